"""Sizes of a study's data are cut to what a set has, or to what the user says; every training is asked for once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.core import registry
from bench.core.errors import UserError
from bench.core.spec import Cell, canonical, to_json
from bench.plan import estimate
from bench.run import cells_of
from bench.store.records import read_record
from bench.suites._contract import SuiteOptions
from tests.conftest import PROJECT
from tests.data import writers

REFERENCE = sorted(path.parent for path in PROJECT.glob("results/reference/*/cells"))


def cells(suite: str, **options) -> tuple[list[Cell], list[str]]:
    said: list[str] = []
    return cells_of(suite, SuiteOptions(**options), say=said.append), said


def trained(found: list[Cell]) -> list[tuple[Cell, int]]:
    """(training, budget): what is paid for."""
    return [(replace(cell, horizons=(0,)), horizon) for cell in found for horizon in cell.horizons if horizon]


def budgets(found: list[Cell]) -> dict[str, set[int]]:
    return {cell.model: {h for c in found if c.model == cell.model for h in c.horizons} for cell in found}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A data root with 200 images in `few`."""
    writers.as_npz(tmp_path / "few", writers.make(200, side=28))
    return tmp_path


@pytest.mark.parametrize("suite", ["scaling", "data"])
def test_the_whole_of_jft_is_one_cell(suite: str) -> None:
    found, said = cells(suite, scale="paper")
    assert len(trained(found)) == len(set(trained(found))) and not said
    assert not [cell for cell in found if cell.num_images == 303_000_000]
    on_size_axis = {(cell.model, cell.num_images or 303_000_000) for cell in found if "data_size" in cell.axes}
    models = ("ViT-b/32", "ViT-B/32", "ViT-L/32", "ViT-L/16", "R50x1", "R152x2")
    assert on_size_axis == {(m, size) for m in models for size in (9_000_000, 30_000_000, 90_000_000, 303_000_000)}


def test_the_paper_s_grid_can_be_costed_on_a_smaller_set() -> None:
    found, said = cells("scaling", scale="paper", data=("imagenet-21k",), models=("ViT-B/16",))
    assert [(cell.num_images, cell.axes) for cell in found] == [
        (9_000_000, ("data_size",)), (None, ("compute", "data_size")),
    ]  # fmt: skip
    assert said == ["imagenet-21k has 14,094,722 training images; they stand for the suite's 30,000,000, 90,000,000 "
                    "and 303,000,000."]  # fmt: skip
    estimate.data_sizes(found, root=None, absent_too=True)


@pytest.mark.parametrize("suite, sizes", [("smoke", {100, None}), ("data", {100, None}), ("scaling", {None})])
def test_sizes_beyond_a_folder_are_the_whole_folder_once(own: Path, suite: str, sizes: set[int | None]) -> None:
    found, said = cells(suite, data=("folder:few",), data_root=own)
    usual, _ = cells(suite)
    assert {cell.num_images for cell in found} == sizes
    assert len(trained(found)) == len(set(trained(found)))
    assert budgets(found) == budgets(usual)
    assert {axis for cell in found for axis in cell.axes} == {axis for cell in usual for axis in cell.axes}
    assert len(said) == 1 and "folder:few has 200 training images" in said[0] and "1,000" in said[0]
    estimate.data_sizes([replace(cell, tasks=()) for cell in found], root=own)


@pytest.mark.parametrize("suite, sizes", [("smoke", {100, 150}), ("transfer", {150}), ("branching", {150})])
def test_a_number_of_images_cuts_every_suite(own: Path, suite: str, sizes: set[int]) -> None:
    found, said = cells(suite, data=("folder:few@150",), data_root=own)
    assert {cell.num_images for cell in found} == sizes and {cell.data for cell in found} == {"folder:few"}
    assert said == (["folder:few is cut at 150 images; they stand for the suite's 1,000."] if suite == "smoke" else [])
    assert budgets(found) == budgets(cells(suite, data=("folder:few",), data_root=own)[0])


@pytest.mark.parametrize(
    "data, words",
    [
        (("folder:few@0",), "at least one image"),
        (("folder:few@201",), r"only 200 training images.\n.*at most folder:few@200"),
        (("folder:few@10", "folder:few@20"), "2 times"),
        (("folder:few@many",), "name@N"),
        (("glyfs@100",), "'glyphs'"),
    ],
)
def test_numbers_that_mean_nothing(own: Path, data: tuple[str, ...], words: str) -> None:
    with pytest.raises(UserError, match=words):
        cells("smoke", data=data, data_root=own)


def test_a_set_of_one_class_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    writers.as_npz(tmp_path / "one", writers.make(200, classes=1, side=28))
    with pytest.raises(UserError, match=r"folder:one has images of one class only.*\n.*two classes"):
        cells("smoke", data=("folder:one",), data_root=tmp_path)


@pytest.mark.parametrize("study", REFERENCE, ids=lambda study: study.name)
def test_committed_studies_are_the_cells_that_their_suites_ask_for(study: Path) -> None:
    """But for revisions: those say that a result is to be made again, not that another is wanted."""

    def spec(cell: Cell) -> str:
        return canonical(to_json(cell, omit_defaults=True))

    suite = study.name.rpartition("-")[0]
    assert suite in registry.names("suite")
    there = {spec(read_record(path).cell) for path in study.glob("cells/*/record.json")}
    assert there == {spec(cell) for cell in cells_of(suite, SuiteOptions())}
