"""Fine-tuning of real networks: against timm, scikit-learn and SciPy, and that the trained model stays as it was."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import ndimage
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from torch import nn
from torch.nn import functional as F

from bench.commands import probe
from bench.core.errors import Interrupted, UserError
from bench.core.seeds import stream
from bench.data.image_set import ImageSet
from bench.study import registry
from bench.study.cell import Recipe
from bench.study.record import Score
from bench.tasks import _finetuner as engine
from bench.tasks import finetune
from bench.tasks._finetuner import FineTuner, transferred_model
from bench.tasks.finetune import make_tuning
from bench.tasks.task import TaskContext
from bench.train.batches import Batches
from vit.checkpoints import export

FAMILIES = {"ViT-pico/7": 18, "R5+ViT-pico/14": 12, "R8x0.125-s2": 25}  # steps that it takes to learn something
PLAIN = Recipe(
    optimizer="sgd",
    lr=0.05,
    batch=24,
    weight_decay=0.0,
    clip=1.0,
    schedule="separate",
    cooldown=1.0,
    cooldown_shape="cosine",
    warmup_images=2 * 24,
    shift=0,
    dtype="float32",
)


def images(count: int = 90, size: int = 28, channels: int = 1, classes: int = 3, seed: int = 0) -> ImageSet:
    """Noise on one template per class."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % classes
    templates = np.random.default_rng(9).integers(40, 215, (classes, size, size, channels))
    pixels = np.clip(templates[labels] + rng.normal(0, 60, (count, size, size, channels)), 0, 255)
    names = tuple(map(str, range(classes)))
    return ImageSet(
        name="toy", split="train", images_NHWC=pixels.astype(np.uint8), labels_N=labels, class_names=names, kind="x"
    )


def build(name: str, *, channels: int = 1, **options) -> nn.Module:
    """A model whose weights, head included, are all at work."""
    torch.manual_seed(0)
    model = registry.build_model(name, image_size=28, channels=channels, num_classes=7, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model


def tuner(model: nn.Module, name: str, *, channels: int = 1, **more) -> FineTuner:
    return FineTuner(model, name=name, image_size=28, channels=channels, **more)


@pytest.mark.parametrize("size", [None, 42])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_learns_and_the_model_stays_as_it_was(name: str, size: int | None) -> None:
    model, data = build(name).eval(), images()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    tuned = tuner(model, name)(data, recipe=replace(PLAIN, lr=0.2), steps=FAMILIES[name], image_size=size)
    assert tuned.losses_T[0] == pytest.approx(np.log(3), abs=1e-6), "the classifier starts at zero"
    assert tuned.losses_T[-5:].mean() < tuned.losses_T[0] - 0.1 and not tuned.diverged
    assert tuned.image_size == (size or 28) and tuned.train_flops["dense"] > 0
    logits_NK = tuned.logits(data.images_NHWC)
    assert logits_NK.shape == (90, 3) and logits_NK.dtype == np.float32
    np.testing.assert_allclose(tuned.logits(data.images_NHWC[:5]), logits_NK[:5], atol=1e-5)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items()) and not model.training


def test_the_same_again_and_other_orders_for_other_purposes() -> None:
    model, data = build("ViT-pico/14"), images()
    run = lambda purpose, seed=0: tuner(model, "ViT-pico/14", seed=seed)(data, recipe=PLAIN, steps=4, purpose=purpose)  # noqa: E731
    first, again, other, seeded = run("a"), run("a"), run("b"), run("a", 1)
    np.testing.assert_array_equal(first.losses_T, again.losses_T)
    assert not np.array_equal(first.losses_T, other.losses_T)
    assert not np.array_equal(first.losses_T, seeded.losses_T)


def test_timm_s_model_on_the_same_batches_has_the_same_losses() -> None:
    """The step, clipping, momentum and schedule written out with torch and timm alone."""
    timm = pytest.importorskip("timm")
    options = {"position": "learned-1d", "pooling": "cls", "gelu": "exact"}
    ours, data, steps = build("ViT-nano/7", channels=3, **options), images(channels=3), 15
    tuned = tuner(ours, "ViT-nano/7", channels=3, options=tuple(options.items()))(data, recipe=PLAIN, steps=steps)

    peer = timm.models.vision_transformer.VisionTransformer(
        img_size=28, patch_size=7, embed_dim=64, depth=4, num_heads=4, num_classes=7
    )
    peer.load_state_dict(export(ours, "timm"), strict=True)
    peer.reset_classifier(3)
    nn.init.zeros_(peer.head.weight), nn.init.zeros_(peer.head.bias)
    optimizer = torch.optim.SGD(peer.parameters(), lr=PLAIN.lr, momentum=0.9)
    batches = Batches(data, recipe=PLAIN, seed=stream(0, "fine-tune", ""), device="cpu")
    for step in range(steps):
        rising, falling = (step + 1) / 2, 0.5 * (1 + np.cos(np.pi * (step - 2) / (steps - 2)))
        for group in optimizer.param_groups:
            group["lr"] = PLAIN.lr * (rising if step < 2 else falling)
        x, y = batches(step)
        loss = F.cross_entropy(peer(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(peer.parameters(), 1.0)
        optimizer.step()
        assert loss.item() == pytest.approx(tuned.losses_T[step], abs=1e-5)
    with torch.inference_mode():
        expected = peer.eval()(torch.from_numpy(data.images_NHWC).permute(0, 3, 1, 2) / 127.5 - 1).numpy()
    np.testing.assert_allclose(tuned.logits(data.images_NHWC), expected, atol=1e-4)


class Linear(nn.Module):
    """A classifier alone, on nine pixels."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(9, num_classes)
        nn.init.zeros_(self.head.weight), nn.init.zeros_(self.head.bias)

    def forward(self, x_BCHW):
        return self.head(x_BCHW.flatten(1))


def test_a_classifier_alone_converges_to_scikit_learn_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss is convex: what SGD finds from zero must be the minimum that another solver finds."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 240)
    pixels = np.clip(rng.normal(110 + 20 * labels[:, None], 70, (240, 9)), 0, 255).astype(np.uint8)
    data = ImageSet(
        name="toy",
        split="train",
        images_NHWC=pixels.reshape(-1, 3, 3, 1),
        labels_N=labels,
        class_names=("a", "b", "c"),
        kind="x",
    )
    monkeypatch.setattr(engine, "transferred_model", lambda model, name, **_: Linear(3))
    monkeypatch.setattr(engine.flops, "count", lambda *_, **__: type("Cost", (), {"train_flops_per_image": {}}))
    settings = make_tuning(240, steps=250, rates=(1.0,))
    assert settings.batch == 240, "all of a set that is smaller than 512"
    recipe = replace(settings.recipe(1.0), dtype="float32")
    tuned = FineTuner(Linear(3), name="linear", image_size=3, channels=1)(data, recipe=recipe, steps=250)
    x = pixels / 127.5 - 1
    reference = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(x, labels)
    expected = log_loss(labels, reference.predict_proba(x))
    assert 0.3 < expected < 1.0, "the classes overlap, so that there is a minimum"
    assert tuned.losses_T[-1] == pytest.approx(expected, abs=1e-5)
    np.testing.assert_array_equal(tuned.logits(data.images_NHWC).argmax(1), reference.predict(x))


@pytest.mark.parametrize("size", [14, 42, 56])
def test_positions_are_interpolated_as_the_official_code_does(size: int) -> None:
    """scipy.ndimage.zoom of order 1 on the grid; the class token's row stays (vit_jax/checkpoint.py). A table of sines
    is interpolated too: recomputed, half of its rows would lie where nothing was trained."""
    side = size // 7
    for options in ({"position": "learned-1d", "pooling": "cls"}, {}):
        old = build("ViT-pico/7", **options)
        new = transferred_model(old, "ViT-pico/7", image_size=size, channels=1, num_classes=3, **options)
        table, resized = (m.positions[0]().detach()[0].numpy() for m in (old, new))
        first = int("pooling" in options)
        grid = table[first:].reshape(4, 4, -1)
        expected = ndimage.zoom(grid, (side / 4, side / 4, 1), order=1).reshape(side**2, -1)
        np.testing.assert_allclose(resized[first:], expected, atol=1e-6)
        np.testing.assert_array_equal(resized[:first], table[:first])


def test_a_hidden_layer_in_the_head_goes_with_the_old_classes() -> None:
    old = build("ViT-pico/7", head="mlp")
    new = transferred_model(old, "ViT-pico/7", image_size=28, channels=1, num_classes=3, head="mlp")
    assert old.pre_logits is not None and new.pre_logits is None
    assert not any(parameter.any() for parameter in new.head.parameters())


def test_averaged_weights_are_what_is_scored() -> None:
    """With a decay that forgets nothing the classifier stays where the first step left it; without one it moves on."""
    model, data = build("ViT-pico/14"), images()
    run = lambda average, steps: tuner(model, "ViT-pico/14")(  # noqa: E731
        data, recipe=make_tuning(90, steps=steps, batch=24, rates=(0.05,), average=average).recipe(0.05), steps=steps
    )
    plain, averaged, frozen = (run(a, 8) for a in (0.0, 0.5, 1 - 1e-9))
    np.testing.assert_array_equal(plain.losses_T, averaged.losses_T)
    spread = [np.abs(tuned.logits(data.images_NHWC)).mean() for tuned in (frozen, averaged, plain)]
    assert spread[0] < 0.5 * spread[1] and spread[1] != spread[2]


def test_grey_images_into_an_rgb_model_and_back() -> None:
    for name, channels, of_data in (("ViT-pico/14", 3, 1), ("ViT-pico/14", 1, 3)):
        model = build(name, channels=channels)
        tuned = tuner(model, name, channels=channels)(images(channels=of_data), recipe=PLAIN, steps=2)
        assert tuned.logits(images(channels=of_data).images_NHWC).shape == (90, 3)


def test_a_stop_between_steps_leaves_everything_as_it_was() -> None:
    model, looks = build("ViT-pico/14"), iter([False, False, True])
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(Interrupted, match="step 3 of 9"):
        tuner(model, "ViT-pico/14", should_stop=lambda: next(looks))(images(), recipe=PLAIN, steps=9)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_divergence_is_noticed_and_ends_early() -> None:
    wild = Recipe(optimizer="sgd", lr=1e30, batch=24, clip=0.0, warmup_images=0, shift=0)
    tuned = tuner(build("ViT-pico/14"), "ViT-pico/14")(images(), recipe=wild, steps=200)
    assert tuned.diverged and len(tuned.losses_T) < 200


@pytest.mark.parametrize(("rate", "features"), [(3e38, 1e3), (1e30, 1.0)])
def test_what_the_last_update_breaks_has_no_score(rate: float, features: float) -> None:
    """Its loss was found before: the weights overflow, or they are finite and what they give is not."""
    model = build("ViT-pico/14")
    with torch.no_grad():
        model.norm.weight.mul_(features)
    fine_tune = tuner(model, "ViT-pico/14")
    wild = Recipe(optimizer="sgd", lr=rate, batch=24, clip=0.0, warmup_images=0, shift=0, schedule="separate")
    tuned = fine_tune(images(), recipe=wild, steps=1)
    assert np.isfinite(tuned.losses_T).all() and not np.isfinite(tuned.logits(images().images_NHWC)).all()
    assert tuned.diverged == (features > 1), "so are the weights"
    given = TaskContext(features=lambda x: x, load=lambda *_: images(), fine_tune=lambda *_, **__: tuned)
    (score,) = finetune.evaluate(given, data="toy", steps=1, batch=24, rates=(0.1,))
    assert score.value is None and score.stderr is None and "diverged" in score.detail["reason"]


@pytest.mark.parametrize(
    ("name", "options", "size", "answer"),
    [
        ("ViT-pico/14", {}, 30, "28 or 42"),
        ("R5+ViT-pico/14", {}, 30, "28 or 42"),
        ("R8x0.125-s2", {}, 2, "smaller than the total down-sampling"),
        ("ViT-pico/14", {"position": "relative"}, 42, "relatives"),
    ],
)
def test_sizes_that_a_model_cannot_take(name: str, options: dict, size: int, answer: str) -> None:
    fine_tune = tuner(build(name, **options), name, options=tuple(options.items()))
    context = TaskContext(features=lambda x: x, load=lambda *_: images(), fine_tune=fine_tune)
    with pytest.raises(UserError, match=answer):
        finetune.evaluate(context, data="toy", image_size=size, steps=1, batch=4, rates=(0.1,))


def test_raw_pixels_have_nothing_to_tune() -> None:
    model = registry.build_model("pixels", image_size=28, channels=1, num_classes=2)
    with pytest.raises(UserError, match="no classifier"):
        tuner(model, "pixels")(images(), recipe=PLAIN, steps=1)


def test_from_the_shell(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    options = ("steps=20", "batch=32", "rates=0.03,0.1", "train_limit=300", "test_limit=200", "image_size=42")
    arguments = ["--model", "ViT-pico/14", "--image-size", "28", "--channels", "1", "--data", "digits"]
    arguments += ["--task", "finetune", *(text for option in options for text in ("--option", option))]
    assert probe.main([*arguments, "--json"]) == 0
    (score,) = json.loads(capsys.readouterr().out)
    assert (score["task"], score["num_test"], score["detail"]["image_size"]) == ("finetune@42px", 200, 42)
    assert score["value"] > 0.2 and score["detail"]["rate"] in (0.03, 0.1)
    text = probe.table([Score(**score)], title="as people see it")
    assert f"{score['value']:.1%}" in text and "30 images held out of the training set" in text
    assert probe.main([*arguments, "--option", "image_size=40"]) == 2
    assert "42" in capsys.readouterr().err
