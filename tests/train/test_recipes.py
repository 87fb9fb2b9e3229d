"""Recipes against published formulas, and smaller micro-batches."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import log_expit, log_softmax
from torch import nn

from bench.core.errors import Interrupted, UserError
from bench.study.cell import CHOICES, Recipe
from bench.study.record import MicroBatch
from bench.train import schedule
from bench.train.step import Step, make_loss, set_head_bias
from tests.train.driving import Tight
from tests.train.test_loop import trainer, weights_of

# -- recipes as data, against torch, published formulas and a few steps by hand ----------------------------------------


def rates(recipe: Recipe, horizon: int) -> list[float]:
    """The rate of every step of a training to one horizon."""
    warmup = schedule.warmup_steps(recipe)
    return [
        schedule.learning_rate(recipe, step=step, warmup=warmup, segment=segment)
        for segment in schedule.segments(recipe, (horizon,))
        for step in range(segment.start, segment.end)
    ]


def published(kind: str, *, step: int, total: int, warmup: int, timescale: float, cooldown: int) -> float:
    """big_vision's schedules at base rate 1 (utils.py, create_learning_rate_schedule), after the warm-up."""
    progress = (step - warmup) / (total - warmup)
    rate = {
        "linear": 1.0 - progress,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * progress)),
        "rsqrt": 1.0 / math.sqrt(1.0 + (step - warmup) / timescale),
        "constant": 1.0,
    }[kind]
    return rate * min(1.0, (total - step) / cooldown) if cooldown else rate


SCHEDULES = [("linear", 0), ("cosine", 0), ("rsqrt", 0), ("rsqrt", 50), ("constant", 0), ("constant", 50)]


@pytest.mark.parametrize("kind, cooldown", SCHEDULES)
def test_schedules_over_a_whole_training_are_the_published_ones(kind, cooldown):
    total, warmup = 200, 40
    whole = kind in ("linear", "cosine")
    recipe = Recipe(
        lr=1.0,
        batch=8,
        warmup_images=warmup * 8,
        timescale_images=30 * 8,
        schedule="separate",
        decay="rsqrt" if kind == "rsqrt" else "constant",
        cooldown=1.0 if whole else cooldown / total,
        cooldown_shape=kind if whole else "linear",
    )
    scheduled = rates(recipe, total * 8)
    assert scheduled[:warmup] == pytest.approx([(step + 1) / warmup for step in range(warmup)])
    for step in range(warmup, total):
        expected = published(kind, step=step, total=total, warmup=warmup, timescale=30, cooldown=cooldown)
        assert scheduled[step] == pytest.approx(expected)


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_a_training_that_is_read_on_its_way_has_the_rates_of_one_that_is_not(shape):
    total, warmup, batch = 200, 40, 8
    shared = {"lr": 1.0, "batch": batch, "warmup_images": warmup * batch}
    whole = rates(Recipe(**shared, schedule="separate", cooldown=1.0, cooldown_shape=shape), total * batch)
    recipe = Recipe(**shared, schedule="branch", decay=shape, cooldown=0.0, timescale_images=total * batch)
    segments = schedule.segments(recipe, (50 * batch, 120 * batch, total * batch))
    assert [segment.horizon for segment in segments if segment.is_branch] == [50 * batch, 120 * batch, total * batch]
    read = [
        schedule.learning_rate(recipe, step=step, warmup=warmup, segment=segment)
        for segment in segments
        for step in range(segment.start, segment.end)
    ]
    assert read == pytest.approx(whole)
    assert schedule.images_trained(recipe, (50 * batch, 120 * batch, total * batch)) == total * batch
    with pytest.raises(UserError, match="ends before"):
        schedule.segments(recipe, (2 * total * batch,))


def test_the_reciprocal_root_without_a_timescale_continues_the_warm_up():
    """lr · √(warmup / step), the schedule of the first Transformer (Vaswani et al. 2017, section 5.3)."""
    scheduled = rates(Recipe(lr=2.0, batch=1, warmup_images=25, decay="rsqrt", cooldown=0.0), 400)
    assert scheduled[25:] == pytest.approx([2.0 * math.sqrt(25 / step) for step in range(25, 400)])
    with pytest.raises(UserError, match="timescale"):
        schedule.segments(Recipe(decay="rsqrt", warmup_images=0), (100,))


def small() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 9), nn.GELU(), nn.LayerNorm(9), nn.Linear(9, 5))


def images(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 3, 2, 2, generator=generator), torch.randint(5, (count,), generator=generator)


@pytest.mark.parametrize("change", [{}, {"optimizer": "sgd", "momentum": 0.9, "lr": 0.1}])
def test_optimizers_against_their_formulas_in_float64(change):
    """flax.optim.Adam decays every parameter beside the gradient; BiT's SGD adds the decay to the gradient."""
    recipe = Recipe(
        batch=8,
        lr=change.get("lr", 0.01),
        weight_decay=0.1,
        betas=(0.8, 0.95),
        clip=0.0,
        **{k: v for k, v in change.items() if k != "lr"},
    )
    model = small()
    step = Step(model=model, recipe=recipe, device="cpu")
    ours = [p.detach().double().numpy().copy() for p in model.parameters()]
    first, second = [np.zeros_like(p) for p in ours], [np.zeros_like(p) for p in ours]
    for number in range(1, 5):
        lr = recipe.lr / number
        step(*images(8, seed=number), lr=lr, seed=0)
        for i, parameter in enumerate(model.parameters()):
            g = parameter.grad.double().numpy()
            if recipe.optimizer == "sgd":
                first[i] = recipe.momentum * first[i] + g + 0.1 * ours[i]
                ours[i] = ours[i] - lr * first[i]
                continue
            first[i] = 0.8 * first[i] + 0.2 * g
            second[i] = 0.95 * second[i] + 0.05 * g**2
            adam = (first[i] / (1 - 0.8**number)) / (np.sqrt(second[i] / (1 - 0.95**number)) + 1e-8)
            ours[i] = ours[i] - lr * adam - lr * 0.1 * ours[i]
        for expected, parameter in zip(ours, model.parameters(), strict=True):
            np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_losses_against_scipy(smoothing):
    logits = np.random.default_rng(0).normal(size=(7, 5)) * 3
    labels = np.arange(7) % 5
    hot = np.eye(5)[labels]
    softmax = -((hot * (1 - smoothing) + smoothing / 5) * log_softmax(logits, axis=1)).sum(1).mean()
    targets = np.where(hot > 0, 1 - smoothing, smoothing)
    sigmoid = -(targets * log_expit(logits) + (1 - targets) * log_expit(-logits)).sum(1).mean()
    for kind, expected in (("softmax", softmax), ("sigmoid", sigmoid)):
        loss = make_loss(Recipe(loss=kind, label_smoothing=smoothing))
        assert loss(torch.tensor(logits), torch.tensor(labels)).item() == pytest.approx(expected, rel=1e-6)


def test_the_head_starts_at_the_published_bias():
    head = nn.Linear(2, 1000)
    set_head_bias(head, Recipe(head_bias="prior"), 1000)
    assert torch.allclose(head.bias, torch.tensor(-6.9), atol=0.01)  # big_vision's configs/vit_i1k.py
    with pytest.raises(UserError, match="last parameter"):
        set_head_bias(nn.Linear(2, 1000, bias=False), Recipe(head_bias="prior"), 1000)


@pytest.mark.parametrize("micro", [1, 3, 8])
@pytest.mark.parametrize("recipe", [Recipe(batch=16), Recipe(batch=16, loss="sigmoid", label_smoothing=0.05, clip=0.1)])
def test_micro_batches_add_up_to_the_whole_batch(micro, recipe):
    results = []
    for size in (0, micro):
        model = small()
        step = Step(model=model, recipe=replace(recipe, optimizer="sgd", micro_batch=size), device="cpu")
        losses = [step(*images(16, seed=n), lr=0.1, seed=n).item() for n in range(5)]
        results.append((losses, [p.detach().clone() for p in model.parameters()]))
    (whole, a), (parts, b) = results
    assert parts == pytest.approx(whole, rel=1e-5)
    for one, other in zip(a, b, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_a_failed_step_leaves_the_model_as_it_was_and_one_image_that_does_not_fit_is_the_end():
    recipe = Recipe(batch=16)
    model = Tight(small(), 16)
    step = Step(model=model, recipe=recipe, device="cpu")
    step(*images(16), lr=0.01, seed=0)
    before = copy.deepcopy((model.state_dict(), step.optimizer.state_dict()))
    model.room = 0
    with pytest.raises(torch.OutOfMemoryError):
        step(*images(16), lr=0.01, seed=1)
    torch.testing.assert_close((model.state_dict(), step.optimizer.state_dict()), before, rtol=0, atol=0)
    broken = Step(model=nn.Linear(1, 1), recipe=recipe, device="cpu")
    with pytest.raises(RuntimeError, match="shape"):  # any other error is not taken for it
        broken(*images(16), lr=0.01, seed=1)


def test_the_trainer_notes_where_memory_ran_out_and_keeps_to_it_after_a_stop(tmp_path):
    def tight(folder, stop=lambda: False):
        t = trainer(folder, stop=stop)
        forward = t.model.forward

        def limited(x):
            if len(x) > 8 and t.progress.work >= 10 and t.model.training:
                raise MemoryError
            return forward(x)

        t.model.forward = limited
        return t

    whole = tight(tmp_path / "whole")
    rows = whole.drive()
    assert whole.progress.micro_batches == [MicroBatch(work=10, images=8)]
    steps = iter(range(30))
    part = tight(tmp_path / "part", stop=lambda: next(steps, None) is None)
    with pytest.raises(Interrupted):
        part.drive()
    again = tight(tmp_path / "part")
    again.resume()
    assert again.drive() == rows and again.progress.micro_batches == whole.progress.micro_batches
    assert torch.equal(weights_of(again), weights_of(whole))


AVERAGED = Recipe(batch=16, lr=1e-2, warmup_images=64, average=0.9)


def test_averaging_against_torch(tmp_path):
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    snapshots: dict[int, torch.Tensor] = {}
    t = trainer(
        tmp_path,
        recipe=AVERAGED,
        horizons=(640,),
        snapshots=snapshots,
        on_step=lambda _: theirs.update_parameters(t.model),
    )
    theirs = AveragedModel(t.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    t.drive()
    expected = torch.cat([p.detach().flatten() for p in theirs.module.parameters()])
    assert torch.equal(snapshots[640], expected)
    assert not torch.equal(weights_of(t), expected)  # training goes on from the weights themselves


@pytest.mark.parametrize("field", CHOICES)
def test_a_mistyped_word_names_the_nearest(field):
    allowed = CHOICES[field][-1]
    with pytest.raises(UserError, match=f"Did you mean '{allowed}'"):
        Recipe(**{field: allowed + "x"})


@pytest.mark.parametrize(
    "change",
    [
        {"lr": -1.0},
        {"lr": math.nan},
        {"batch": 0},
        {"average": 1.5},
        {"cooldown": 1.5},
        {"betas": (0.9, 1.0)},
        {"clip": -1.0},
    ],
)
def test_a_number_that_means_nothing_is_refused(change):
    with pytest.raises(UserError):
        Recipe(**change)
