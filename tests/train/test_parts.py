"""Optimizers, losses, augmentations and schedules by name, against the libraries that they come from."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from timm import scheduler
from timm.data import Mixup
from timm.data.auto_augment import rand_augment_transform
from timm.loss import BinaryCrossEntropy, LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from torch import nn
from torch.nn import functional as F

from bench.core.errors import Interrupted, UserError
from bench.core.seeds import stream
from bench.data.image_set import ImageSet
from bench.study import registry
from bench.study.cell import PARTS, Cell, Recipe, cell_id
from bench.train import schedule
from bench.train.augmentations.augmentation import random_stream
from bench.train.batches import Batches, to_input
from bench.train.parts import check_part, known
from bench.train.ranks import Ranks
from bench.train.step import Step, make_loss
from bench.train.trainer import Checkpoints
from tests.train.driving import Driven

TIMMS = tuple(registry.load("optimizer", "timm").names())
TORCHS = tuple(registry.load("optimizer", "torch").names())


def net() -> nn.Module:
    torch.manual_seed(3)
    conv = nn.Conv2d(1, 4, 3, bias=False)
    return nn.Sequential(conv, nn.Flatten(), nn.Linear(4 * 36, 9), nn.LayerNorm(9), nn.GELU(), nn.Linear(9, 4))


def image_set(channels: int = 1, count: int = 40) -> ImageSet:
    drawn = np.random.default_rng(0)
    return ImageSet(
        name="drawn",
        split="train",
        images_NHWC=drawn.integers(0, 256, (count, 8, 8, channels), dtype=np.uint8),
        labels_N=(np.arange(count) % 4).astype(np.int64),
        class_names=tuple("abcd"),
        kind="rendered",
    )


# -- optimizers --------------------------------------------------------------------------------------------------------

ORACLES = {
    "timm:muon": lambda w, r: create_optimizer_v2(
        w, "muon", lr=r.lr, weight_decay=r.weight_decay, momentum=0.9, betas=r.betas
    ),
    "timm:lion": lambda w, r: create_optimizer_v2(w, "lion", lr=r.lr, weight_decay=r.weight_decay, betas=r.betas),
    "timm:sgd": lambda w, r: torch.optim.SGD(
        w, lr=r.lr, weight_decay=r.weight_decay, momentum=r.momentum, nesterov=True
    ),
    "timm:adafactor": lambda w, r: create_optimizer_v2(w, "adafactor", lr=r.lr, weight_decay=r.weight_decay),
    "timm:lamb": lambda w, r: create_optimizer_v2(w, "lamb", lr=r.lr, weight_decay=r.weight_decay, betas=r.betas),
    "torch:NAdam": lambda w, r: torch.optim.NAdam(w, lr=r.lr, weight_decay=r.weight_decay, betas=r.betas),
    "torch:RMSprop": lambda w, r: torch.optim.RMSprop(w, lr=r.lr, weight_decay=r.weight_decay, momentum=r.momentum),
    "adamw": lambda w, r: torch.optim.AdamW(w, lr=r.lr, weight_decay=r.weight_decay, betas=r.betas, fused=True),
}


@pytest.mark.parametrize("name", ORACLES)
def test_a_step_is_that_of_the_library(name: str) -> None:
    """The same gradients, clipped by torch, through the library's own optimizer: equal weights, to the bit."""
    recipe = Recipe(batch=8, lr=0.01, weight_decay=0.1, betas=(0.8, 0.95), optimizer=name, clip=1.0)
    ours, theirs = net(), net()
    step = Step(model=ours, recipe=recipe, device="cpu")
    oracle = ORACLES[name](list(theirs.parameters()), recipe)
    for number in range(1, 6):
        drawn = torch.Generator().manual_seed(number)
        x, labels = torch.randn(8, 1, 8, 8, generator=drawn), torch.randint(4, (8,), generator=drawn)
        rate = recipe.lr / number
        step(x, labels, lr=rate, seed=0)
        for group in oracle.param_groups:
            group["lr"] = rate
        oracle.zero_grad()
        F.cross_entropy(theirs(x), labels).backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        oracle.step()
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(a, b), number


@pytest.mark.parametrize("name", ["adamw", "timm:muon", "timm:lion", "timm:adafactorbv"])
def test_weight_decay_is_on_biases_and_norms_too(name: str) -> None:
    """The paper's convention. Without gradients nothing but the decay changes a weight."""
    model = net()
    before = [p.detach().clone() for p in model.parameters()]
    step = Step(model=model, recipe=Recipe(optimizer=name, weight_decay=0.5, batch=8), device="cpu")
    step.rule.set_rate(0.1)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    step.rule()
    for old, new in zip(before, model.parameters(), strict=True):
        if old.any():
            assert not torch.equal(old, new) and new.norm() < old.norm()


def driven(folder, recipe: Recipe, stop=lambda: False) -> Driven:
    torch.manual_seed(3)
    model = net()
    first = {k: v.clone() for k, v in model.state_dict().items()}
    return Driven(
        model=model,
        batches=Batches(image_set(), recipe=recipe, seed=1, device="cpu"),
        recipe=recipe,
        horizons=(64, 128),
        seed=1,
        device="cpu",
        initialise=lambda: model.load_state_dict(first),
        should_stop=stop,
        saving=Checkpoints(folder=folder),
    )


EVERY = [*(f"timm:{name}" for name in TIMMS), *(f"torch:{name}" for name in TORCHS), "adamw", "sgd"]


@pytest.mark.parametrize("name", EVERY)
def test_what_is_stopped_at_any_step_ends_in_the_same_bits(tmp_path, name: str) -> None:
    """With a trunk and branches, so that state is put back within a run too."""
    recipe = Recipe(batch=8, lr=1e-3, warmup_images=16, shift=1, optimizer=name, cooldown=0.5)
    whole = driven(tmp_path / "whole", recipe)
    whole.drive()
    part = driven(tmp_path / "part", recipe)
    for allowed in (3, 4, 5):
        steps = iter(range(allowed))
        part = driven(tmp_path / "part", recipe, stop=lambda steps=steps: next(steps, None) is None)
        part.resume()
        with pytest.raises(Interrupted):
            part.drive()
    last = driven(tmp_path / "part", recipe)
    assert last.resume()
    last.drive()
    assert whole.state().keys() == last.state().keys()
    for key, value in whole.state().items():
        assert torch.equal(value, last.state()[key]), key


def test_state_that_no_checkpoint_can_hold_is_said_so() -> None:
    model = net()
    step = Step(model=model, recipe=Recipe(batch=8), device="cpu")
    weight = next(model.parameters())
    step.optimizer.state[weight]["history"] = [1, 2]
    with pytest.raises(UserError, match="keeps a list as its 'history'"):
        step.rule.state.tensors(model.named_parameters())


# -- losses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_losses_of_timm(smoothing: float) -> None:
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(6) % 5
    for name, oracle in (
        ("BinaryCrossEntropy", BinaryCrossEntropy(smoothing=smoothing)),
        ("SoftTargetCrossEntropy", LabelSmoothingCrossEntropy(smoothing=smoothing)),
    ):
        ours = make_loss(Recipe(loss=f"timm:{name}", label_smoothing=smoothing))
        torch.testing.assert_close(ours(logits, labels), oracle(logits, labels))


@pytest.mark.parametrize("name", ["softmax", "sigmoid"])
def test_a_loss_is_linear_in_the_shares_of_a_mixed_image(name: str) -> None:
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    a, b = torch.arange(6) % 5, (torch.arange(6) + 2) % 5
    shares = 0.3 * F.one_hot(a, 5) + 0.7 * F.one_hot(b, 5)
    loss = make_loss(Recipe(loss=name, label_smoothing=0.1))
    torch.testing.assert_close(loss(logits, shares), 0.3 * loss(logits, a) + 0.7 * loss(logits, b))


# -- augmentations -----------------------------------------------------------------------------------------------------

MIXED = {"mixup": (0.8, 0.0), "cutmix": (0.0, 1.0), "mixup-cutmix": (0.8, 1.0)}


@pytest.mark.parametrize("name", MIXED)
def test_a_mixed_batch_is_timms_under_the_same_stream(name: str) -> None:
    plain = Recipe(batch=8, shift=1, flip=True)
    batches = Batches(image_set(), recipe=replace(plain, augmentation=name), seed=5, device="cpu")
    before = Batches(image_set(), recipe=plain, seed=5, device="cpu")
    mixup, cutmix = MIXED[name]
    oracle = Mixup(mixup_alpha=mixup, cutmix_alpha=cutmix, label_smoothing=0.0, num_classes=4)
    for step in (0, 7, 3):
        x, targets = batches(step)
        np.random.seed(stream(5, "mix", step) % 2**32)
        x_images, labels = before(step)
        theirs, wanted = oracle(x_images.clone(), labels)
        assert torch.equal(x, theirs) and torch.equal(targets, wanted)
        assert targets.shape == (8, 4)


def test_an_augmented_image_is_timms_under_the_same_stream() -> None:
    from PIL import Image

    for channels in (1, 3):
        images, recipe = image_set(channels), Recipe(batch=8, shift=0, augmentation="randaugment")
        batches = Batches(images, recipe=recipe, seed=5, device="cpu")
        fill = (128,) * 3 if channels == 3 else 128
        oracle = rand_augment_transform("rand-m9-n2-mstd0.5", {"translate_const": 3, "img_mean": fill})
        x, labels = batches(2)
        for place, index in enumerate(batches.indices(2)):
            chosen = stream(5, "augment", 2, place)
            random.seed(chosen)
            np.random.seed(chosen % 2**32)
            pixels = images.images_NHWC[index]
            theirs = np.asarray(oracle(Image.fromarray(pixels if channels == 3 else pixels[..., 0])))
            wanted = to_input(torch.from_numpy(theirs.reshape(1, 8, 8, channels).copy()))
            assert torch.equal(x[place : place + 1], wanted)
            assert labels[place] == images.labels_N[index]


@pytest.mark.parametrize("name", ["mixup", "cutmix", "randaugment"])
def test_a_batch_depends_on_seed_and_step_alone_and_ranks_share_it(name: str) -> None:
    class One(Ranks):
        def __init__(self, rank: int) -> None:
            self.place = rank

        def share(self, batch: int) -> slice:
            return slice(self.place * batch // 2, (self.place + 1) * batch // 2)

    recipe = Recipe(batch=8, augmentation=name)
    python, numpy = random.getstate(), np.random.get_state()
    one, other = (Batches(image_set(), recipe=recipe, seed=2, device="cpu") for _ in range(2))
    other(9)
    x, targets = one(4)
    assert all(map(torch.equal, (x, targets), other(4)))
    assert not torch.equal(x, one(5)[0])
    halves = [Batches(image_set(), recipe=recipe, seed=2, device="cpu", ranks=One(rank))(4) for rank in (0, 1)]
    assert torch.equal(torch.cat([half[0] for half in halves]), x)
    assert torch.equal(torch.cat([half[1] for half in halves]), targets)
    assert random.getstate() == python and np.array_equal(np.random.get_state()[1], numpy[1])


def test_an_odd_batch_cannot_be_mixed() -> None:
    with pytest.raises(UserError, match="9 is odd"):
        Batches(image_set(), recipe=Recipe(batch=9, augmentation="mixup"), seed=0, device="cpu")(0)


def test_random_numbers_of_a_stream_are_its_own() -> None:
    with random_stream(1, "a"):
        first = random.random(), np.random.rand()
    random.random(), np.random.rand()
    with random_stream(1, "a"):
        assert (random.random(), np.random.rand()) == first
    with random_stream(1, "b"):
        assert (random.random(), np.random.rand()) != first


# -- schedules ---------------------------------------------------------------------------------------------------------


def rates(recipe: Recipe, horizons: tuple[int, ...]) -> list[list[float]]:
    warmup, made = schedule.warmup_steps(recipe), []
    for segment in schedule.segments(recipe, horizons):
        if segment.origin == "init":
            made.append([])
        for step in range(segment.start, segment.end):
            made[-1].append(schedule.learning_rate(recipe, step=step, warmup=warmup, segment=segment))
    return made


def test_timms_schedules_run_over_each_budget_by_itself() -> None:
    for name, kind in (
        ("cosine", scheduler.CosineLRScheduler),
        ("poly", scheduler.PolyLRScheduler),
        ("tanh", scheduler.TanhLRScheduler),
    ):
        recipe = Recipe(batch=8, lr=0.4, warmup_images=40, schedule=f"timm:{name}")
        for budget, ours in zip((160, 400), rates(recipe, (160, 400)), strict=True):
            steps = budget // 8
            assert len(ours) == steps and ours[:5] == pytest.approx([0.4 * (k + 1) / 5 for k in range(5)])
            optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.4)
            theirs = kind(optimizer, t_initial=steps - 5, t_in_epochs=False)
            for done, rate in enumerate(ours[5:]):
                theirs.step_update(done)
                assert rate == pytest.approx(optimizer.param_groups[0]["lr"])


def test_cosine_of_timm_is_the_cosine_of_a_cool_down_of_one() -> None:
    ours = Recipe(batch=8, warmup_images=40, schedule="separate", cooldown=1.0, cooldown_shape="cosine")
    for a, b in zip(rates(ours, (160, 400)), rates(replace(ours, schedule="timm:cosine"), (160, 400)), strict=True):
        assert a == pytest.approx(b)


# -- names and identity ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PARTS)
def test_every_name_that_is_listed_exists_and_others_are_told_what_there_is(kind: str) -> None:
    for name in known(kind):
        check_part(kind, name)
    for wrong in ("nothing", "timm", "timm:nothing", f"{known(kind)[0]}:more"):
        with pytest.raises(UserError) as error:
            check_part(kind, wrong)
        if wrong == "timm" and kind == "augmentation":
            continue
        assert all(name in error.value.fix for name in known(kind))


def test_a_name_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(UserError, match="no name of a recipe's optimizer"):
        Recipe(optimizer="a b")


def test_the_default_parts_leave_no_trace_in_a_cells_identity(monkeypatch) -> None:
    """Ids that studies of before have, to the digit: computed without the new field and the new revisions."""
    cell = Cell(model="ViT-pico/14", data="glyphs", recipe=Recipe(lr=2e-3))
    revisions = registry.revisions_of(cell)
    assert set(revisions) == {"recipe", "model", "data:glyphs"}
    other = replace(cell, recipe=replace(cell.recipe, optimizer="timm:muon"))
    assert cell_id(other, registry.revisions_of(other)) != cell_id(cell, revisions)
    load, loss = registry.load, registry.load("loss", "softmax")
    monkeypatch.setattr(registry, "load", lambda *named: replace(loss, revision=2) if "loss" in named else load(*named))
    assert registry.revisions_of(cell)["loss:softmax"] == 2
