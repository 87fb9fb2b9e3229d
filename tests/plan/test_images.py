"""The size and the channels of a study's images follow its data; models and downstream sets follow them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.core.errors import UserError
from bench.data.load import load, look, named_at
from bench.plan.sizes import DataSizes
from bench.study import registry
from bench.study.cell import cell_id
from bench.study.suite import patched
from tests.data import writers
from tests.plan.making import cells_of, grid_of

SUITES = ("smoke", "scaling", "data", "transfer", "vtab", "rates", "branching")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`photos`: colour JPEGs of many sizes, one of them grey; `small`: 28 px grey arrays; `wide`: all 64 x 48, RGB."""
    root, noise = tmp_path_factory.mktemp("root"), np.random.default_rng(0)
    for number in range(24):
        sides = noise.integers(40, 90, 2) if number else (50, 50)
        pixels = noise.integers(0, 256, (*sides, 3) if number else sides, dtype=np.uint8)
        path = root / "photos" / ("cat", "dog")[number % 2] / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
        path = root / "wide" / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise.integers(0, 256, (48, 64, 3), dtype=np.uint8)).save(path)
    writers.as_npz(root / "small", writers.make(60, side=28))
    return root


@pytest.mark.parametrize(
    "name, seen",
    [
        ("folder:photos", (None, 3)),
        ("folder:photos:96px:rgb", (96, 3)),
        ("folder:photos:96px:grey", (96, 1)),
        ("folder:small", (28, 1)),
        ("folder:wide", (None, 3)),
        ("digits", (8, 1)),
        ("visual-atoms:10x20:32px", (32, 3)),
        ("photo-tiles:56px", (56, 1)),
        ("pets", (224, 3)),
        ("eurosat", (64, 3)),
        ("imagenet", (224, 3)),
        ("jft-300m", None),
        ("cifar10", None),
    ],
)
def test_a_look_is_what_loading_gives(root: Path, name: str, seen: tuple[int | None, int] | None) -> None:
    assert look(name, root=root) == seen
    if seen is not None and seen[0] is not None and name.split(":")[0] not in ("pets", "eurosat", "imagenet"):
        assert load(name, "test", root=root).images_NHWC.shape[1:] == (seen[0], seen[0], seen[1])


@pytest.mark.parametrize("suite", SUITES)
def test_photographs_are_colour_at_a_sensible_size_in_every_suite(root: Path, suite: str) -> None:
    for cell in cells_of(suite, data=("folder:photos",), data_root=root):
        assert (cell.image_size, cell.channels, cell.data) == (64, 3, "folder:photos:64px:rgb")
        if cell.model != "pixels":
            registry.family_of(cell.model)
            assert patched(cell.model, 64) == cell.model
    assert load("folder:photos:64px:rgb", "train", root=root).images_NHWC.shape[1:] == (64, 64, 3)


@pytest.mark.parametrize(
    "options, shape, data",
    [
        ({"data": ("folder:photos",), "image_size": 96}, (96, 3), "folder:photos:96px:rgb"),
        ({"data": ("folder:photos:28px:grey",)}, (28, 1), "folder:photos:28px:grey"),
        ({"data": ("folder:small",)}, (28, 1), "folder:small"),
        ({"data": ("folder:small",), "image_size": 32}, (32, 1), "folder:small:32px:grey"),
        ({"data": ("digits",)}, (28, 1), "digits"),
        ({"data": ("visual-atoms",), "image_size": 32}, (32, 3), "visual-atoms:32px"),
        ({"image_size": 64}, (64, 1), "fashion-mnist"),
        ({"downstream": ("folder:photos",)}, (64, 3), "fashion-mnist"),
    ],
)
def test_size_and_channels_are_those_of_the_data(root: Path, options: dict, shape: tuple, data: str) -> None:
    for cell in cells_of("smoke", data_root=root, **options):
        assert ((cell.image_size, cell.channels), cell.data) == (shape, data)


def test_sets_of_one_study_share_one_size(root: Path) -> None:
    cells = cells_of("smoke", data=("fashion-mnist", "folder:photos"), data_root=root)
    assert {(cell.data, cell.image_size, cell.channels) for cell in cells} == {
        ("fashion-mnist", 64, 3),
        ("folder:photos:64px:rgb", 64, 3),
    }


def test_a_number_of_images_goes_with_the_set_whatever_it_is_stored_as(root: Path) -> None:
    cells = cells_of("smoke", data=("folder:photos@10",), data_root=root)
    assert {cell.data_name for cell in cells} == {"folder:photos:64px:rgb@10"}


def test_own_images_upstream_downstream_or_both(root: Path) -> None:
    stored = "folder:photos:64px:rgb"
    for upstream in (None, ("folder:photos",)):
        for cell in cells_of("smoke", data=upstream, downstream=("folder:photos", "digits"), data_root=root):
            assert [task.data for task in cell.tasks] == [stored, "digits"]
            assert (cell.data == stored) is (upstream is not None)
    for cell in cells_of("transfer", downstream=("folder:photos",), data_root=root):
        assert {task.data for task in cell.tasks} == {"folder:photos:128px:rgb"}  # what the higher resolution needs
        assert {task.task for task in cell.tasks} == {"finetune", "fewshot", "linear"}
        assert {task.kwargs.get("image_size") for task in cell.tasks} == {None, 128}
    (probe,) = {task for c in cells_of("rates", downstream=("digits",)) for task in c.tasks}
    assert (probe.task, probe.data) == ("fewshot", "digits")


def test_models_come_in_the_nearest_patch_that_divides() -> None:
    grid = grid_of("scaling", image_size=64)
    models = {cell.model for cell in grid.cells}
    assert {"ViT-femto/8", "ViT-pico-2/8", "ResNet-8-s4"} <= models
    assert not any(name.endswith(("/14", "/7")) for name in models)
    assert any("ViT-femto/8" in note and "ViT-femto/7" in note for note in grid.notes)
    rates = {(c.model, c.recipe.lr) for c in cells_of("scaling") if c.model == "ViT-femto/7"}
    assert {("ViT-femto/7", c.recipe.lr) for c in grid.cells if c.model == "ViT-femto/8"} == rates  # trained as it was


def test_a_model_that_was_named_is_never_exchanged() -> None:
    with pytest.raises(UserError, match=r"ViT-pico/7 do not divide images of 64 px.\n.*ViT-pico/8.*63"):
        grid_of("smoke", models=("ViT-pico/7",), image_size=64)
    with pytest.raises(UserError, match="From 8 to 1024"):
        grid_of("smoke", image_size=4)


@pytest.mark.parametrize(
    "model, size, fits",
    [
        ("ViT-B/16", 224, "ViT-B/16"),
        ("ViT-H/14", 64, "ViT-H/16"),
        ("ViT-pico/7", 64, "ViT-pico/8"),
        ("R50+ViT-B/16", 28, "R50+ViT-B/4"),
        ("R50x1", 61, "R50x1"),
        ("mnist-7562", 64, "mnist-7562"),
    ],
)
def test_patches(model: str, size: int, fits: str) -> None:
    assert patched(model, size) == fits


@pytest.mark.parametrize(
    "name, stored",
    [
        ("folder:mine", "folder:mine:64px:grey"),
        ("imagenet", "imagenet:64px"),
        ("visual-atoms:10x20", "visual-atoms:10x20:64px"),
    ],
)
def test_a_name_with_a_size(name: str, stored: str) -> None:
    assert named_at(name, 64, 1) == stored


@pytest.mark.parametrize("suite", SUITES)
def test_nothing_changes_where_nothing_is_asked(suite: str) -> None:
    """Saying what the suite does anyway leaves every cell what it was, to its id."""
    usual = cells_of(suite)
    named = cells_of(suite, data=tuple(dict.fromkeys(cell.data for cell in usual)))
    ids = [{cell_id(replace(c, axes=()), registry.revisions_of(c)) for c in cells} for cells in (usual, named)]
    assert ids[1] == ids[0] or len({cell.data for cell in usual}) > 1
    assert {(cell.image_size, cell.channels) for cell in usual} == {(28, 1)}


def test_a_set_larger_than_its_cut_is_seen_at_its_stored_size(root: Path) -> None:
    size = DataSizes(root=root)["folder:photos:64px:rgb"]
    assert (size.train + size.test, size.classes, size.shape) == (24, 2, (64, 64, 3))
