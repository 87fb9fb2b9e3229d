"""Which settings a contender races with: all that a user would try, as they say, and the fastest by the data."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from bench.study.cell import Cell, Recipe, to_json
from bench.study.record import PeerSettings
from tools.race import builders, contenders, entrant, settings, steps
from tools.race.contenders import Competitor

CELL = Cell(
    model="ViT-b/14",
    data="fashion-mnist",
    num_images=64,
    image_size=28,
    channels=3,
    job="peers",
    recipe=Recipe(batch=8, shift=0, lr=1e-4),
    model_options=(("gelu", "exact"), ("depth", 2)),
)
PACKAGES = (None, *contenders.LIBRARIES)


def course(package: str | None, **changes: Any) -> steps.Course:
    contender = Competitor(name="x", package=package, tuned=True)
    task = {"contender": dataclasses.asdict(contender), "device": "cpu", "data_root": None}
    return steps.Course(task | {"cell": to_json(dataclasses.replace(CELL, **changes))})


def everything(groups: Sequence[Mapping[str, Sequence[str]]]) -> list[PeerSettings]:
    values = {name: each for group in groups for name, each in group.items()}
    return [PeerSettings(**dict(zip(values, row, strict=True))) for row in itertools.product(*values.values())]


# -- the search --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("seed", range(5))
def test_the_search_ends_where_no_single_setting_makes_it_faster(package: str | None, seed: int) -> None:
    groups = settings.axes(package, device="cpu", bfloat16=True)
    rng = np.random.default_rng(seed)
    speed: dict[PeerSettings, float] = {}

    def speed_of(s: PeerSettings) -> float:
        """Settings of one group change each other's effect; the optimizer's is its own."""
        together = dataclasses.replace(s, optimizer="default")
        alone = PeerSettings(optimizer=s.optimizer, layout="", dtype="", attention="", compiled="")
        return speed.setdefault(together, rng.lognormal(0, 0.3)) * speed.setdefault(alone, rng.lognormal(0, 0.3))

    tried: list[PeerSettings] = []

    def compare(best: PeerSettings, challenger: PeerSettings) -> tuple[float, None]:
        tried.append(challenger)
        return speed_of(challenger) / speed_of(best), None

    start = settings.first(package, tuned=True, device="cpu", bfloat16=True, own_dtype="bfloat16")
    best, trials = settings.search(start, groups, compare)
    assert len(tried) == len(set(tried)) == len(trials) and start not in tried
    assert [t.settings for t in trials if t.kept][-1:] == ([best] if best != start else [])
    for name, values in ((name, values) for group in groups for name, values in group.items()):
        for value in values:
            assert speed_of(dataclasses.replace(best, **{name: value})) <= speed_of(best)


def test_settings_whose_effects_multiply_are_all_found() -> None:
    groups = settings.axes("timm", device="cpu", bfloat16=True)
    effect = {"bfloat16": 2.5, "channels_last": 0.9, "plain": 1.2, "blocks": 1.05, "foreach": 1.02, "fused": 1.04}

    def speed(s: PeerSettings) -> float:
        optimizer = effect.get(s.optimizer, 1.0)
        rest = dataclasses.replace(s, optimizer="default", attention="" if s.attention == "fused" else s.attention)
        return optimizer * float(np.prod([effect.get(value, 1.0) for value in dataclasses.astuple(rest)]))

    start = settings.first("timm", tuned=True, device="cpu", bfloat16=True, own_dtype="")
    best, _ = settings.search(start, groups, lambda best, other: (speed(other) / speed(best), None))
    assert best == max(everything(groups), key=speed)
    assert best == PeerSettings(dtype="bfloat16", attention="plain", compiled="blocks", optimizer="fused")


def test_settings_that_do_not_work_are_noted_and_not_kept() -> None:
    groups = ({"compiled": ("off", "blocks"), "layout": settings.LAYOUTS},)
    best, trials = settings.search(
        PeerSettings(),
        groups,
        lambda _, other: (None, "no compiler") if other.compiled == "blocks" else (1.5, None),
    )
    assert best == PeerSettings(layout="channels_last")
    assert {t.reason for t in trials if not t.kept} == {"no compiler"}


def test_bfloat16_is_tried_where_the_processor_multiplies_it() -> None:
    for package in PACKAGES:
        with_units, without = (
            {s.dtype for s in everything(settings.axes(package, device="cpu", bfloat16=has))} for has in (True, False)
        )
        assert with_units == {"float32", "bfloat16"} and without == {"float32"}


@pytest.mark.parametrize("package", PACKAGES)
def test_both_layouts_are_tried_for_everybody(package: str | None) -> None:
    for device in ("cpu", "cuda"):
        layouts = {s.layout for s in everything(settings.axes(package, device=device, bfloat16=True))}
        assert layouts >= {"contiguous", "channels_last"} and layouts <= set(steps.FORMATS)


class Clocked:
    """A step whose time a table gives, on a machine with slow spells. Its first steps choose kernels."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds = clock, seconds

    def __call__(self, number: int) -> torch.Tensor:
        slow = 3.0 if self.clock.now % 7 < 1 else 2.0 if number < 5 else 1.0
        self.clock.now += self.seconds * self.clock.rng.lognormal(0, 0.01) * slow
        return torch.zeros(())


class Clock:
    def __init__(self) -> None:
        self.now, self.rng = 0.0, np.random.default_rng(0)

    def timed(self, call: Any, *, device: str, calls: int = 1) -> float:
        start = self.now
        for _ in range(calls):
            call()
        return self.now - start


@pytest.mark.parametrize("fast", ["contiguous", "channels_last"])
def test_trials_choose_the_layout_that_is_faster_on_a_machine_with_slow_spells(
    fast: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seventh of the time everything takes three times as long, and the first five steps twice; the layouts differ by
    20 %."""
    clock = Clock()
    for caller in (entrant, entrant.speed):
        monkeypatch.setattr(caller, "timed", clock.timed)
    trials = entrant.Trials(lambda s: Clocked(clock, 0.25 if s.layout == fast else 0.3), "cpu")
    groups = (
        {"optimizer": settings.OPTIMIZERS},
        {"layout": settings.LAYOUTS},
    )  # the best is warm when layouts are tried
    chosen = []
    for _ in range(20):
        trials.best = None
        chosen.append(settings.search(PeerSettings(), groups, trials)[0].layout)
    assert chosen.count(fast) >= 18


# -- what settings do --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("layout", steps.FORMATS)
def test_images_and_weights_lie_as_the_layout_says(
    package: str | None, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if package:
        pytest.importorskip(package)
    images, weights = steps.FORMATS[layout]
    seen: list[torch.Tensor] = []

    def spy(model: torch.nn.Module, recipe: Recipe, batches: steps.Loader, *_: Any) -> steps.StepOnce:
        patches = [p for p in model.parameters() if p.dim() == 4]
        seen.extend([batches(0)[0], *patches])
        return lambda number: torch.zeros(())

    monkeypatch.setattr(steps, "own_step", spy)
    monkeypatch.setattr(steps, "plain_step", spy)
    course(package).step(PeerSettings(layout=layout, attention="fused"))
    x_BCHW, *weights_OIHW = seen
    # written out: `is_contiguous` is what the code itself asks
    channels, rows, columns = x_BCHW.shape[1:]
    last = (rows * columns * channels, 1, columns * channels, channels)
    first = (rows * columns * channels, rows * columns, columns, 1)
    assert x_BCHW.stride() == (first if images == torch.contiguous_format else last)
    assert x_BCHW.dtype == torch.float32 and x_BCHW.min() >= -1 and x_BCHW.max() <= 1
    assert bool(weights_OIHW) == (package != "vit_pytorch")  # it cuts patches itself
    for weight_OIHW in weights_OIHW:
        inputs, height, width = weight_OIHW.shape[1:]
        last = (height * width * inputs, 1, width * inputs, inputs)
        first = (height * width * inputs, height * width, width, 1)
        assert weight_OIHW.stride() == (first if weights == torch.contiguous_format else last)


def test_every_layout_holds_the_same_images() -> None:
    made = course(None)
    batches = [made.batches(layout)(3) for layout in steps.FORMATS]
    for x_BCHW, labels_B in batches[1:]:
        assert torch.equal(x_BCHW, batches[0][0]) and torch.equal(labels_B, batches[0][1])


def test_a_contender_whose_images_or_weights_lie_otherwise_is_stopped() -> None:
    x_BCHW = torch.zeros(2, 3, 4, 4)
    steps.expect_layout([x_BCHW, torch.zeros(3)], torch.contiguous_format)
    with pytest.raises(AssertionError, match="channels_last"):
        steps.expect_layout([x_BCHW], torch.channels_last)
    with pytest.raises(AssertionError, match=r"\(48, 1, 12, 3\)"):
        steps.expect_layout([x_BCHW.contiguous(memory_format=torch.channels_last)], torch.contiguous_format)


def test_attention_is_what_settings_say() -> None:
    sizes: dict[str, Any] = {"name": CELL.model, "image_size": 28, "num_classes": 10}
    ours = steps.network(CELL, 10)
    for attention in ("fused", "plain"):
        timm_vit: Any = builders.build("timm", ours, attention=attention, **sizes)[0]
        assert timm_vit.blocks[0].attn.fused_attn == (attention == "fused")
    builders.build("timm", ours, **sizes)
    pytest.importorskip("transformers")
    for attention, name in (("fused", "sdpa"), ("plain", "eager")):
        model: Any = builders.build("transformers", ours, attention=attention, **sizes)[0]
        assert model.model.config._attn_implementation == name


@pytest.mark.parametrize("package", contenders.LIBRARIES)
def test_settings_change_how_a_library_computes_and_not_what(package: str) -> None:
    pytest.importorskip(package)
    made = course(package)
    start = made.first_settings(tuned=False)
    changed = [
        PeerSettings(
            layout="channels_last", attention=settings.ATTENTION.get(package, ("own",))[-1], optimizer=optimizer
        )
        for optimizer in settings.OPTIMIZERS
    ]
    losses = []
    for each in (start, *changed):
        torch.manual_seed(0)  # vit-pytorch draws its own weights
        step, facts = made.step(each)
        assert facts["settings"] == dataclasses.asdict(each)
        losses.append([float(step(number)) for number in range(3)])
    for other in losses[1:]:
        assert other == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.parametrize("package", contenders.LIBRARIES)
def test_the_blocks_that_are_compiled_hold_nearly_all_weights(package: str) -> None:
    pytest.importorskip(package)
    model, _ = builders.build(package, steps.network(CELL, 10), name=CELL.model, image_size=28, num_classes=10)
    blocks = builders.transformer_blocks(model)
    inside = sum(p.numel() for block in blocks for p in block.parameters())
    assert inside > 0.8 * sum(p.numel() for p in model.parameters())
    with pytest.raises(builders.NoCounterpart, match="no Transformer blocks"):
        builders.transformer_blocks(torch.nn.Linear(1, 1))
