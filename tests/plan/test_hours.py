"""Scale `gpu`: what it trains on, and budgets that fit the hours."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.core.errors import UserError
from bench.cost import flops
from bench.data import photographs
from bench.plan.notes import unswept
from bench.plan.passes import chosen_grid, hours
from bench.plan.sizes import DataSizes
from bench.study import suite as suites
from bench.study.cell import Cell
from bench.study.overrides import Overrides
from bench.study.suite import SuiteOptions
from bench.suites import _recipes
from bench.train.schedule import images_trained
from tests.plan.making import cells_of, grid_of

MODELS = ("ViT-Ti/8", "R26x1-s2")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ImageNet's layout with a few small JPEGs, and beside it a folder of as many."""
    root = tmp_path_factory.mktemp("root")
    for number in range(40):
        pixels = np.random.default_rng(number).integers(0, 256, (50 + number, 60, 3), dtype=np.uint8)
        for part in ("imagenet/train", "imagenet/val", "holidays"):
            path = root / part / f"n{number % 4:08}" / f"{number}.JPEG"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(path)
    return root


def device_hours(grid, *, utilisation: float) -> float:
    """By the table's own figures: 6 FLOPs per MAC and image over an H100's 989.4 TFLOP/s."""
    seconds = 0.0
    for cell in grid.cells:
        if cell.horizons != (0,):
            count = flops.count(cell.model, image_size=64, channels=3, num_classes=1000, activations=False)
            seconds += images_trained(cell.recipe, cell.horizons) * 6 * count.forward_macs["dense"] / 989.4e12
    return seconds / utilisation / 3600


def test_photographs_where_there_are_some_and_drawings_where_there_are_none(root: Path, monkeypatch) -> None:
    real = grid_of("scaling", scale="gpu", models=MODELS, data_root=root).cells
    assert {c.data for c in real} == {"imagenet:64px"}
    drawn = grid_of("scaling", scale="gpu", models=MODELS).cells
    assert {(c.data, c.image_size, c.channels) for c in drawn} == {("visual-atoms:1000x1000", 64, 3)}
    assert DataSizes()["visual-atoms:1000x1000"].train == 1_000_000  # without drawing one
    assert all(c.recipe.flip for c in real if c.model != "pixels") and not any(c.recipe.flip for c in drawn)
    monkeypatch.setattr(photographs, "MIN_IMAGES", 30)
    assert photographs.largest(root) == "imagenet"
    (root / "imagenet").rename(root / ".gone")
    try:
        assert photographs.largest(root) == "folder:holidays"
        monkeypatch.setattr(photographs, "MIN_IMAGES", 41)
        assert photographs.largest(root) is None
    finally:
        (root / ".gone").rename(root / "imagenet")


@pytest.mark.parametrize("suite", ["scaling", "data", "branching", "rates", "transfer"])
def test_only_photographs_are_mirrored_whichever_set_is_named_first(suite: str) -> None:
    named = ("cifar10", "emnist:letters", "lettering")

    def mirrored(data: tuple[str, ...]) -> dict[str, bool]:
        cells = suites.load(suite).cells(SuiteOptions(scale="gpu", models=MODELS, data=data))
        return {cell.data: cell.recipe.flip for cell in cells if cell.model != "pixels"}

    assert mirrored(named) == mirrored(named[::-1]) == {"cifar10": True, "emnist:letters": False, "lettering": False}


@pytest.mark.parametrize("suite", ["scaling", "branching", "transfer", "ablation", "masked"])
def test_rates_are_of_a_scale(suite: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep at scale cpu says nothing of gpu, whose rates follow from the paper's, and the plan says so; rates that
    are swept at gpu are trained with."""
    asked = SuiteOptions(scale="gpu", models=("ViT-Ti/4",)), SuiteOptions(scale="cpu", models=("ViT-Ti/4",))

    def cells() -> list[list[Cell]]:
        return [[c for c in suites.load(suite).cells(o) if c.horizons != (0,)] for o in asked]

    def rates(of: list[Cell]) -> set[float]:
        return {cell.recipe.lr for cell in of}

    gpu, cpu = cells()
    by_width = {8e-4 * 768 / 192 * (cell.recipe.batch / 4096) ** 0.5 for cell in gpu}
    assert any(rate == pytest.approx(wanted) for rate in rates(gpu) for wanted in by_width)
    assert _recipes.FAMILY_RATES["cpu"]["ViT"] in rates(cpu)
    (note,) = unswept("gpu", Overrides(), gpu)
    assert "Table 3 of the network of its kind nearest in width" in note
    assert "ViT-Ti/4" in note and "--suite rates --scale gpu" in note
    monkeypatch.setitem(_recipes.FAMILY_RATES, "gpu", {"ViT": 3e-4})
    swept, again = cells()
    assert 3e-4 in rates(swept) and rates(again) == rates(cpu)
    assert "ViT-Ti/4" not in "".join(unswept("gpu", Overrides(), swept))


def test_budgets_follow_the_hours_and_nothing_else() -> None:
    one, again, eight = (grid_of("data", scale="gpu", models=MODELS[:1], hours=h) for h in (1.0, None, 8.0))
    assert one.cells == again.cells
    spent = device_hours(one, utilisation=hours.UTILISATION["ViT"])
    assert 0.6 * hours.TRAINING_SHARE <= spent <= 1.6 * hours.TRAINING_SHARE  # the factor is rounded to one digit
    assert {c.image_size for c in eight.cells} == {128} and any("about 8 h on one H100" in n for n in eight.notes)


def test_too_little_time_leaves_the_largest_models_out_but_a_family_never() -> None:
    grid = grid_of("scaling", scale="gpu", hours=0.2)
    models = {cell.model for cell in grid.cells}
    assert {"ViT-Ti/8", "R8+ViT-Ti/8", "R26x1-s2", "pixels"} <= models and "R101x1-s2" not in models
    assert any("R101x1-s2" in note for note in grid.notes)
    named = grid_of("scaling", scale="gpu", hours=0.06, models=MODELS)
    assert {cell.model for cell in named.cells} - {"pixels"} == set(MODELS)


@pytest.mark.parametrize("asked", [0.06, 0.3, 2.0])
def test_the_warm_up_follows_the_hours_alike_for_all(asked: float) -> None:
    """A quarter of the shortest budget of all, or the suite's own; --set stands before it."""
    own = hours_warmups(grid_of("scaling", scale="gpu", horizons=("1000000",)))
    grid = grid_of("scaling", scale="gpu", hours=asked)
    shortest = min(h for cell in grid.cells for h in cell.horizons if h)
    (images,), (most,) = hours_warmups(grid), own
    assert images == min(most, round(shortest / 512) // 4 * 512)
    assert (images < most) == any("Warm-up is" in note for note in grid.notes)
    said = (("warmup_images", "512"),)
    assert hours_warmups(grid_of("scaling", scale="gpu", hours=asked, set=said)) == {512}


def hours_warmups(grid) -> set[int]:
    return {cell.recipe.warmup_images for cell in grid.cells if any(cell.horizons)}


def test_no_model_is_left_out_where_the_budgets_are_given() -> None:
    given = ("512", "1024")
    grid = grid_of("scaling", scale="gpu", horizons=given)
    assert {c.model for c in grid.cells} == {c.model for c in suites.load("scaling").cells(SuiteOptions(scale="gpu"))}
    assert {c.horizons for c in grid.cells if c.model != "pixels"} == {(512, 1024), (0, 512, 1024)} and not grid.notes
    with pytest.raises(UserError, match="--hours chooses the budgets that --horizons gives"):
        grid_of("scaling", scale="gpu", hours=0.2, horizons=given)


def test_the_grid_of_a_budget_keeps_its_horizons_at_scale_gpu():
    """More seeds leave fewer images for the hours: what was chosen stays what is trained."""
    one = cells_of("scaling", scale="gpu", models=("ViT-Ti/8",))
    lines = [
        str(chosen_grid.GridLine(model=c.model, images=c.num_images, horizons=c.horizons[-2:], seeds=4))
        for c in one
        if c.seed == 0 and c.model != "pixels"
    ]
    more = cells_of("scaling", scale="gpu", models=("ViT-Ti/8",), seeds=4, grid=tuple(lines))
    kept = {cell.horizons[-2:] for cell in more if cell.model != "pixels"}
    assert kept == {cell.horizons[-2:] for cell in one if cell.model != "pixels"}
    assert {cell.seed for cell in more} == {0, 1, 2, 3}


def test_no_two_sizes_give_the_same_number_of_distinct_images() -> None:
    """Beyond the images that are seen all sizes are one; of these the whole set is trained on."""
    grid = grid_of("scaling", scale="gpu", models=("ViT-S/8", "R50x1-s2"), hours=0.06)
    parts = [c for c in grid.cells if "data_size" in c.axes and c.model != "pixels"]
    for model in ("ViT-S/8", "R50x1-s2"):
        mine = [c for c in parts if c.model == model and c.seed == 0]
        (whole,) = [c for c in mine if c.num_images is None]
        sizes = [c.num_images for c in mine if c.num_images is not None]
        ends = {c.horizons[-1] for c in mine if c is not whole}
        assert len(mine) > 1 and ends <= set(whole.horizons) and max(sizes) < min(ends) < 300_000
    assert any("300,000" in note and "R50x1-s2" in note for note in grid.notes)


def test_hours_that_mean_nothing() -> None:
    with pytest.raises(UserError, match="out of range"):
        grid_of("scaling", scale="gpu", hours=0.001)
    with pytest.raises(UserError, match="scale gpu"):
        grid_of("smoke", hours=2.0)
