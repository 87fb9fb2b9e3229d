"""Cells of a study: sizes cut to what a set has, or to what the user says; tasks; patterns; each training once."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.core.errors import UserError
from bench.core.files import canonical
from bench.plan import passes, preflight
from bench.plan.sizes import DataSizes
from bench.plan.study_cells import Pass
from bench.store.records import read_record
from bench.study import registry
from bench.study import suite as suites
from bench.study.cell import Cell, to_json
from bench.study.overrides import Overrides
from bench.study.suite import SuiteOptions
from tests.conftest import PROJECT
from tests.data import writers
from tests.plan.making import cells_of, grid_of

REFERENCE = sorted(
    path.parent for path in PROJECT.glob("results/reference/*-cpu/cells")
)  # as their suites are, without options


def trained(cells: list[Cell]) -> list[tuple[Cell, int]]:
    """(training, budget): what is paid for."""
    return [(replace(cell, horizons=(0,)), horizon) for cell in cells for horizon in cell.horizons if horizon]


def budgets(cells: list[Cell]) -> dict[str, set[int]]:
    return {cell.model: {h for c in cells if c.model == cell.model for h in c.horizons} for cell in cells}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A data root with 200 images in `few`."""
    writers.as_npz(tmp_path / "few", writers.make(200, side=28))
    return tmp_path


# -- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", ["scaling", "data"])
def test_the_whole_of_jft_is_one_cell(suite: str) -> None:
    grid = grid_of(suite, scale="paper")
    cells = list(grid.cells)
    assert len(trained(cells)) == len(set(trained(cells))) and not grid.notes
    assert not [cell for cell in cells if cell.num_images == 303_000_000]
    on_size_axis = {(cell.model, cell.num_images or 303_000_000) for cell in cells if "data_size" in cell.axes}
    assert on_size_axis == {
        (model, size)
        for model in ("ViT-b/32", "ViT-B/32", "ViT-L/32", "ViT-L/16", "R50x1", "R152x2")
        for size in (9_000_000, 30_000_000, 90_000_000, 303_000_000)
    }


def test_the_paper_s_grid_follows_another_set() -> None:
    """Table 3: 90 epochs of ImageNet-21k, 300 of ImageNet; Figure 4: 9, 30 and 90 of 303 million."""
    for data, epochs, images in (("imagenet-21k", 90, 14_094_722), ("imagenet", 300, 1_281_167)):
        grid = grid_of("scaling", scale="paper", data=(data,), models=("ViT-B/16",))
        *parts, whole = grid.cells
        assert (whole.num_images, whole.axes) == (None, ("compute", "data_size")) and not grid.notes
        assert {cell.horizons for cell in grid.cells} == {(epochs * images,)}
        assert [cell.num_images / images for cell in parts] == pytest.approx([9 / 303, 30 / 303, 90 / 303], rel=0.05)
        preflight.check_data(grid.cells, DataSizes(published=True))


def test_a_small_set_of_one_s_own_is_trained_on_for_as_long_as_imagenet(own: Path) -> None:
    (cell,) = {
        c
        for c in cells_of("data", scale="paper", data=("folder:few",), models=("ViT-B/16",), data_root=own)
        if c.num_images is None and c.horizons != (0,)
    }
    assert cell.horizons[-1] == 300 * 200 and cell.recipe.lr == 3e-3
    assert cell.recipe.warmup_images == pytest.approx(300 * 200 * 10_000 * 4096 / (300 * 1_281_167), abs=1)


@pytest.mark.parametrize("suite, sizes", [("smoke", {100, None}), ("data", {100, None}), ("scaling", {None})])
def test_sizes_beyond_a_folder_are_the_whole_folder_once(own: Path, suite: str, sizes: set[int | None]) -> None:
    grid = grid_of(suite, data=("folder:few",), data_root=own)
    cells, usual = list(grid.cells), cells_of(suite)
    assert {cell.num_images for cell in cells} == sizes
    assert len(trained(cells)) == len(set(trained(cells)))
    assert budgets(cells) == budgets(usual)
    assert {axis for cell in cells for axis in cell.axes} == {axis for cell in usual for axis in cell.axes}
    (note,) = grid.notes
    too_many = (f"{cell.num_images:,}" for cell in usual if (cell.num_images or 0) > 200)
    assert all(datum in note for datum in ("folder:few", "200", *too_many))
    preflight.check_data([replace(cell, tasks=()) for cell in cells], DataSizes(root=own))


@pytest.mark.parametrize(
    "suite, asked, sizes",
    [
        ("smoke", None, {100, 150}),
        ("smoke", (50, 1_000), {50, 150}),
        ("data", (50, 120), {50, 120, 150}),  # raw pixels are of all
        ("transfer", None, {150}),
        ("branching", None, {150}),
    ],
)
def test_a_number_of_images_cuts_every_suite(own: Path, suite: str, asked: tuple[int, ...], sizes: set[int]) -> None:
    grid = grid_of(suite, data=("folder:few@150",), data_root=own, sizes=asked)
    cells = list(grid.cells)
    assert {cell.num_images for cell in cells} == sizes and {cell.data for cell in cells} == {"folder:few"}
    assert [("150" in note, "1,000" in note) for note in grid.notes] == ([(True, True)] if suite == "smoke" else [])
    assert budgets(cells) == budgets(cells_of(suite, data=("folder:few",), data_root=own))


SWEEP = Overrides(sweep=(("lr", ("1e-3", "2e-3")),))
NAMED = ("fashion-mnist@2000", "glyphs@1000", "folder:few@150", "folder:few")


ONE_BUDGET = Overrides(horizons=("4000",))


@pytest.mark.parametrize("overrides", [Overrides(), SWEEP, ONE_BUDGET], ids=["as it is", "sweep", "one budget"])
@pytest.mark.parametrize("data", NAMED)
@pytest.mark.parametrize("suite", sorted(set(registry.names("suite")) - {"whole-paper"}))
def test_no_two_cells_differ_in_budgets_and_axes_alone(own: Path, suite: str, data: str, overrides: Overrides) -> None:
    """Where sizes are cut to a number or to the set, what is left of an axis is often part of another."""
    cells = grid_of(suite, data=(data,), data_root=own, overrides=overrides).cells
    trainings = [replace(cell, horizons=(0,)) for cell in cells]
    assert len(set(trainings)) == len(trainings)
    assert {axis for c in cells for axis in c.axes} == {a for c in cells_of(suite) for a in c.axes}
    if overrides is not ONE_BUDGET:
        wanted = suites.load(suite).cells(SuiteOptions(data=(data.partition("@")[0],), data_root=own))
        assert budgets(list(cells)) == budgets(wanted), "every budget of every model is still read"


@pytest.mark.parametrize(
    "data, words",
    [
        (("folder:few@0",), "at least one image"),
        (("folder:few@201",), r"only 200 training images here.\n.*at most folder:few@200"),
        (("folder:few@10", "folder:few@20"), "2 times.\n.*--sizes"),
        (("folder:few@many",), "name@N"),
        (("glyfs@100",), "'glyphs'"),
        (None, "'transfer' compares no numbers of images"),
    ],
)
def test_numbers_that_mean_nothing(own: Path, data: tuple[str, ...] | None, words: str) -> None:
    with pytest.raises(UserError, match=words):
        grid_of("smoke" if data else "transfer", data=data, data_root=own, sizes=(300, 2_000))


def test_each_data_set_is_opened_once_for_a_plan(own: Path, monkeypatch) -> None:
    opened: list[str] = []
    look = DataSizes._opened
    monkeypatch.setattr(DataSizes, "_opened", lambda self, name: opened.append(name) or look(self, name))
    sizes = DataSizes(root=own)
    for _ in range(3):
        assert sizes["folder:few"].train == 200 and sizes["digits"].classes == 10
    assert sorted(opened) == ["digits", "folder:few"]


# -- tasks, models, patterns -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", ["transfer", "vtab", "scaling"])
def test_a_suite_s_own_tasks_are_its_own_to_the_option(suite: str) -> None:
    asked = cells_of(suite)
    for name in {task.task for cell in asked for task in cell.tasks}:
        for cell, chosen in zip(asked, cells_of(suite, tasks=(name,)), strict=True):
            assert chosen.tasks == tuple(task for task in cell.tasks if task.task == name)


def test_a_task_that_is_new_to_the_suite_is_asked_once_of_each_set() -> None:
    for cell in cells_of("transfer", tasks=("knn",)):
        assert len(cell.tasks) == len({task.data for task in cell.tasks}) > 1


@pytest.mark.parametrize("suite, scale", [("rates", "cpu"), ("speed", "cpu")])
def test_tasks_are_refused_where_nothing_is_judged(suite: str, scale: str) -> None:
    with pytest.raises(UserError, match="judges nothing on target sets"):
        grid_of(suite, scale=scale, tasks=("fewshot",))


@pytest.mark.parametrize("suite", ["smoke", "scaling", "data"])
def test_raw_pixels_are_read_never_trained(suite: str) -> None:
    both = cells_of(suite, models=("pixels", "R8x0.125-s2"))
    pixels = [cell for cell in both if cell.model == "pixels"]
    assert [cell.horizons for cell in pixels] == [(0,)]
    assert pixels == [cell for cell in cells_of(suite) if cell.model == "pixels"]
    assert {cell.model for cell in both} == {"pixels", "R8x0.125-s2"}


def test_a_suite_that_reads_no_pixels_refuses_them() -> None:
    with pytest.raises(UserError, match="nothing to train"):
        grid_of("transfer", models=("pixels",))


def test_patterns_choose_from_the_grid_and_leave_it_as_it_is() -> None:
    grid = grid_of("smoke", only=("vit-*", "*-100_*"))
    assert grid.cells == grid_of("smoke").cells
    assert set(grid.chosen) == {c for c in grid.cells if "ViT" in c.model or c.num_images == 100}


@pytest.mark.parametrize("study", REFERENCE, ids=lambda study: study.name)
def test_committed_studies_are_the_cells_that_their_suites_ask_for(race, study: Path) -> None:
    """But for revisions: those say that a result is to be made again, not that another is wanted."""

    def spec(cell: Cell) -> str:
        return canonical(to_json(cell, omit_defaults=True))

    suite = study.name.rpartition("-")[0]
    assert suite in registry.names("suite")
    there = {spec(read_record(path).cell) for path in study.glob("cells/*/record.json")}
    assert there == {spec(cell) for cell in cells_of(suite)}


def test_passes_come_after_those_that_they_name() -> None:
    """Of the project's own, each names the one before it, so that no order is left to their names."""
    named = {id(registry.load("pass", name)): name for name in registry.names("pass")}
    order = [named[id(one)] for one in passes.in_order()]
    assert set(order) == set(named.values())
    assert [passes.in_order()[nth].after for nth in range(1, len(order))] == [(name,) for name in order[:-1]]


def test_a_pass_after_one_that_is_not_there_is_refused(monkeypatch) -> None:
    lost = Pass(apply=lambda study, request: study, after=("clippd",))
    load = registry.load
    monkeypatch.setattr(registry, "load", lambda kind, name: lost if name == "only" else load(kind, name))
    with pytest.raises(UserError, match="clippd"):
        passes.in_order()


def test_a_pass_says_what_it_comes_before(monkeypatch) -> None:
    first = Pass(apply=lambda study, request: study, before=("changes", "rehearsal"))
    names = registry.names
    monkeypatch.setattr(registry, "names", lambda kind: (*names(kind), "zz first") if kind == "pass" else names(kind))
    load = registry.load
    monkeypatch.setattr(registry, "load", lambda kind, name: first if name == "zz first" else load(kind, name))
    order = passes.in_order()
    assert len(order) == len(names("pass")) + 1
    assert order.index(first) < min(order.index(load("pass", name)) for name in first.before)
