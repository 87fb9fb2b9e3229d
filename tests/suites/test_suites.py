"""Every suite: what differs along its axes, and what it asks for."""

import math
from collections.abc import Iterable
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest

from baselines import published
from bench.core.errors import UserError
from bench.cost import flops
from bench.data.load import load, side_of
from bench.plan import preflight
from bench.plan.preflight import check_data
from bench.plan.sizes import DataSizes, evaluation_images
from bench.plan.study_cells import StudyCells
from bench.study import registry
from bench.study import suite as suites
from bench.study.cell import Cell, Recipe
from bench.study.suite import SCALES, SuiteOptions
from bench.suites import _cpu_grid, _paper, transfer, vtab
from bench.tasks.vtab import VTAB, task_names
from bench.train import schedule
from bench.train.effective import effective_recipe
from tests.plan.making import grid_of

# -- cells of one axis differ in nothing but the axis, for every suite at every scale ----------------------------------


HOURS = (0.06, 0.5, None, 8.0)
# Without labels the paper trains in another way (appendix B.1.2); section 4.6 compares it with labels as a whole.
WITHOUT_LABELS = ("loss", "head_bias", "cooldown_shape", "weight_decay", "clip")
SUITES = registry.names("suite")


def with_hours(suite: str, scale: str) -> tuple[float | None, ...]:
    return HOURS if scale == "gpu" and not suites.load(suite).exclusive else (None,)


PLANNED = [(suite, scale, hours) for suite in SUITES for scale in SCALES for hours in with_hours(suite, scale)]
NOTHING = StudyCells(cells=())


@cache
def planned(suite: str, scale: str, hours: float | None) -> StudyCells:
    """The grid of a suite, made once; nothing where it has no such scale."""
    try:
        return grid_of(suite, scale=scale, hours=hours)
    except UserError as error:
        assert "has no scale" in str(error)
        return NOTHING


def trained(grid: StudyCells) -> list[Cell]:
    return [cell for cell in grid.cells if cell.job != "train" or any(cell.horizons)]


def by_axis(cells: Iterable[Cell]) -> dict[str, list[Cell]]:
    on_axis: dict[str, list[Cell]] = {}
    for cell in cells:
        for axis in cell.axes:
            on_axis.setdefault(axis, []).append(cell)
    return on_axis


def values(cells: Iterable[Cell], field: str, *, within: Iterable[str] = ()) -> set[int]:
    """How many values of a recipe's field there are among cells that are equal in `within`."""
    groups: dict[tuple[object, ...], set[object]] = {}
    for cell in cells:
        groups.setdefault(tuple(getattr(cell, name) for name in within), set()).add(getattr(cell.recipe, field))
    return {len(sizes) for sizes in groups.values()}


def test_every_suite_is_looked_at() -> None:
    made = [(suite, scale) for suite, scale, hours in PLANNED if planned(suite, scale, hours) is not NOTHING]
    assert {suite for suite, _ in made} == set(SUITES)
    assert {scale for _, scale in made} == set(SCALES)


@pytest.mark.parametrize("suite", SUITES)
def test_what_an_axis_varies_on_purpose_is_said_of_an_axis_that_there_is(suite: str) -> None:
    """At some scale: the paper trains more recipes than two cores do."""
    scales = {scale: hours for of_suite, scale, hours in PLANNED if of_suite == suite}
    axes = {axis for scale, hours in scales.items() for axis in by_axis(trained(planned(suite, scale, hours)))}
    assert set(suites.load(suite).varies) <= axes


@pytest.mark.parametrize("suite, scale, hours", PLANNED)
def test_cells_of_an_axis_differ_in_nothing_but_the_axis(suite: str, scale: str, hours: float | None) -> None:
    grid, varies = planned(suite, scale, hours), suites.load(suite).varies
    preflight.check_warmup(grid.cells)
    axes = by_axis(trained(grid))
    for axis, cells in axes.items():
        where = f"{suite} at {scale}, {axis} axis"
        assert len({effective_recipe(cell).warmup_steps for cell in cells}) == 1, where
        for field in (entry.name for entry in fields(Recipe)):
            if field in varies.get(axis, ()):
                assert max(values(cells, field)) > 1, f"{where}: {field} is said to vary"
            elif field == "stopping_checks":  # only parts are seen often enough for it to matter
                parts, wholes = ([c for c in cells if (c.num_images is None) == whole] for whole in (False, True))
                assert values(parts, field) <= {1} and {c.recipe.stopping_checks for c in wholes} <= {0}
            elif axis == "masked" and scale == "paper" and field in WITHOUT_LABELS:
                assert values(cells, field, within=("data", "model")) == {1}, f"{where}: {field}"
            elif field == "lr":  # every model has a rate of its own
                assert values(cells, field, within=("data", "model")) == {1}, where
            elif field in ("warmup_images", "batch", "cooldown"):
                assert values(cells, field) == {1}, f"{where}: {field}"
            else:  # letters are not mirrored, and the paper trains on each of its sets in its own way
                assert values(cells, field, within=("data",)) == {1}, f"{where}: {field}"


@pytest.mark.parametrize("suite, scale, hours", PLANNED)
def test_parts_of_the_data_are_seen_for_as_long_as_all_of_them(suite: str, scale: str, hours: float | None) -> None:
    groups: dict[Cell, list[Cell]] = {}
    for cell in by_axis(trained(planned(suite, scale, hours))).get("data_size", ()):
        groups.setdefault(replace(cell, num_images=None, horizons=(0,)), []).append(cell)
    for cells in groups.values():
        lasts = {cell.horizons[-1] for cell in cells if cell.num_images is not None}
        assert len(lasts) <= 1, "parts"
        assert all(lasts <= set(cell.horizons) for cell in cells), "the whole"


@pytest.mark.parametrize("suite, scale, hours", PLANNED)
def test_every_training_is_planned_once(suite: str, scale: str, hours: float | None) -> None:
    trainings = [replace(cell, horizons=(0,)) for cell in planned(suite, scale, hours).cells]
    assert len(set(trainings)) == len(trainings)


def test_budgets_never_change_the_warm_up() -> None:
    """The rest of the grid knows nothing of a budget more or less."""
    usual = {replace(c, horizons=(0,)): effective_recipe(c) for c in grid_of("scaling").cells}
    for horizons in (("24000",), ("8000", "64000"), ("3000",)):
        other = grid_of("scaling", horizons=horizons).cells
        assert all(usual[replace(cell, horizons=(0,))] == effective_recipe(cell) for cell in other)


# -- studies on two cores: one ladder of budgets in FLOPs, for networks that see their images --------------------------


SMALL = {"image_size": 28, "channels": 1, "num_classes": 10}


def cells_on_compute(suite: str) -> list[Cell]:
    made = registry.load("suite", suite).cells(SuiteOptions())
    return [c for c in made if "compute" in c.axes and c.model != "pixels"]


@pytest.mark.parametrize("model", _cpu_grid.TRAIN_FLOPS)
def test_the_ladder_counts_flops_as_the_counter_does(model: str) -> None:
    counted = flops.count(model, **SMALL).train_flops_per_image["paper"]
    assert _cpu_grid.TRAIN_FLOPS[model] == pytest.approx(counted, rel=2e-3)


@pytest.mark.parametrize("suite", ["scaling", "photographs"])
def test_families_are_compared_at_budgets_of_one_ladder(suite: str) -> None:
    """Each budget is within 2 % of a rung, and every family has several networks and spans a factor of two at least."""
    families: dict[str, set[float]] = {}
    for cell in cells_on_compute(suite):
        for seen in filter(None, cell.horizons):
            spent = seen * _cpu_grid.TRAIN_FLOPS[cell.model]
            rung = math.log2(spent / _cpu_grid.LADDER[0])
            assert spent == pytest.approx(_cpu_grid.LADDER[0] * 2 ** round(rung), rel=0.02), cell.model
            families.setdefault(registry.family_of(cell.model).label, set()).add(round(rung))
    assert set(families) == {"ViT", "Hybrid", "ResNet"}
    shared = set.intersection(*families.values())
    assert max(shared) - min(shared) >= (6 if suite == "photographs" else 3)


@pytest.mark.parametrize("suite", ["scaling", "photographs"])
def test_transformers_have_sixteen_tokens_and_more(suite: str) -> None:
    for model in {cell.model for cell in cells_on_compute(suite)} - {"pixels"}:
        patch = model.rpartition("/")[2]
        if "ViT" in model:
            assert math.ceil(28 / int(patch)) ** 2 >= 16, model  # hybrids continue an image by its border


def test_the_photographs_go_up_to_fifty_teraflops_over_two_decades_and_from_600_images_to_all() -> None:
    spent = [h * _cpu_grid.TRAIN_FLOPS[c.model] for c in cells_on_compute("photographs") for h in c.horizons if h]
    assert max(spent) >= 50e12 and max(spent) >= 100 * min(spent)
    sizes = {c.num_images for c in registry.load("suite", "photographs").cells(SuiteOptions())}
    assert {600, None} <= sizes


# -- scale `paper`: every suite trains what Tables 3 and 6 of the paper say, read off its pages ------------------------


JFT = {  # Table 3, first ten rows: epochs, base rate; linear decay, weight decay 0.1, no dropout
    "ViT-B/32": ((7,), 8e-4),
    "ViT-B/16": ((7,), 8e-4),
    "ViT-L/32": ((7,), 6e-4),
    "ViT-L/16": ((7, 14), 4e-4),
    "ViT-H/14": ((14,), 3e-4),
    "R50x1": ((7,), 1e-3),
    "R50x2": ((7,), 1e-3),
    "R101x1": ((7,), 8e-4),
    "R152x1": ((7,), 6e-4),
    "R152x2": ((7, 14), 6e-4),
    "R50+ViT-B/32": ((7,), 8e-4),
    "R50+ViT-B/16": ((7,), 8e-4),
    "R50+ViT-L/32": ((7,), 2e-4),
    "R50+ViT-L/16": ((7, 14), 4e-4),
    "ViT-b/32": ((7,), 8e-4),
    "R200x3": ((14,), 6e-4),  # not in Table 3: as ViT-B/32 and R152x2
}
OTHERS = {
    "imagenet-21k": (90, 14_094_722, 1e-3, "linear", 0.03, 0.0),
    "imagenet": (300, 1_281_167, 3e-3, "cosine", 0.3, 1.0),
}


def cells(suite: str, **options) -> list[Cell]:
    return registry.load("suite", suite).cells(SuiteOptions(scale="paper", **options))


@pytest.mark.parametrize("suite", ["scaling", "data", "transfer", "vtab"])
def test_every_cell_is_trained_as_table_3_says(suite: str) -> None:
    for cell in cells(suite):
        recipe, where = cell.recipe, f"{cell.model} on {cell.data}"
        if "bit" in cell.axes:
            continue  # as BiT is trained, not as Table 3 says: tests/suites/test_paper.py
        if cell.data == "jft-300m":
            epochs, rate = JFT[cell.model]
            expected = (rate, "linear", 0.1, 0.0)
            assert set(cell.horizons) - {0} <= {n * 303_000_000 for n in epochs}, where
        else:
            epochs, images, *expected = OTHERS[cell.data]
            assert cell.horizons == (epochs * images,), where
        assert (recipe.lr, recipe.cooldown_shape, recipe.weight_decay, recipe.clip) == tuple(expected), where
        assert dict(cell.model_options).get("dropout", 0.0) == (0.0 if cell.data == "jft-300m" else 0.1), where
        assert (recipe.batch, recipe.betas, recipe.optimizer) == (4096, (0.9, 0.999), "adamw"), where
        assert (recipe.loss, recipe.head_bias, recipe.shift, recipe.flip) == ("sigmoid", "prior", 0, True), where
        assert schedule.warmup_steps(recipe) == 10_000, where


def test_the_compute_axis_is_table_6() -> None:
    wanted = {(published.model_name(row["name"]), int(row["epochs"])) for row in published.table("table6")}
    planned = {(c.model, h // 303_000_000) for c in cells("scaling") if "compute" in c.axes for h in c.horizons}
    assert planned == wanted


@pytest.mark.parametrize(
    "model, data, row",
    [
        ("ViT-L/16", "imagenet", ("ViT-L/16", "ImageNet")),
        ("ViT-S/16", "imagenet-21k", ("ViT-B/16", "ImageNet-21k")),
        ("R101x3", "jft-300m", ("R50x1", "JFT-300M")),
        ("R26+ViT-S/32", "folder:flowers:224px", ("R50+ViT-B/16", "JFT-300M")),
        ("R152x1", "imagenet-21k", ("R152x1", "JFT-300M")),
    ],
)
def test_what_the_table_leaves_out_is_trained_as_what_is_nearest(model: str, data: str, row: tuple[str, str]) -> None:
    nearest = _paper.row_for(model, data)
    assert (nearest.model, nearest.data) == row


def test_a_set_of_one_s_own_is_trained_on_as_the_suite_s_first() -> None:
    (cell,) = cells("transfer", data=("folder:flowers",), models=("ViT-B/16",))
    assert (cell.data, cell.recipe.lr, cell.recipe.cooldown_shape) == ("folder:flowers", 3e-3, "cosine")


# -- the suites transfer and vtab: whose models, which tasks, what is left out where data are missing, what is costed --


UPSTREAM = {"ImageNet": "imagenet", "ImageNet-21k": "imagenet-21k", "JFT-300M": "jft-300m"}
DATA = {"Oxford-IIIT-Pets": "pets", "Oxford-Flowers-102": "flowers102"}  # else the name in small letters, no hyphen


def cells_of_suite(suite, scale: str, **options) -> list[Cell]:
    return suite.cells(SuiteOptions(scale=scale, **options))


def test_the_paper_s_rows_and_columns_are_asked_for() -> None:
    """Table 5: every model and upstream set but ViT-H/14 on ImageNet-21k, whose pre-training Table 3 does not state."""
    rows = published.table("table5")
    wanted = {(UPSTREAM[row["pretrain"]], model) for row in rows for model in row if row[model] and "ViT" in model}
    cells_asked = cells_of_suite(transfer, "paper")
    of_vits = {(cell.data, cell.model) for cell in cells_asked if "bit" not in cell.axes}
    assert of_vits == wanted - {("imagenet-21k", "ViT-H/14")}
    assert {cell.data for cell in cells_asked if "bit" in cell.axes} == set(UPSTREAM.values())
    asked = {DATA.get(row["dataset"], row["dataset"].lower().replace("-", "")) for row in rows} - {"imagenetreal"}
    for cell in cells_asked:  # ReaL is a second score of ImageNet's task
        assert {task.data.partition(":")[0] for task in cell.tasks} == asked


def test_the_nineteen_tasks_are_asked_of_the_paper_s_models() -> None:
    asked = cells_of_suite(vtab, "paper")
    names = {f"{cell.model} ({'I21k' if cell.data == 'imagenet-21k' else 'JFT'})" for cell in asked}
    assert names == {row["model"] for row in published.table("table9")}
    for cell in asked:
        assert tuple(task.data.partition(":")[0] for task in cell.tasks) == task_names(VTAB)


@pytest.mark.parametrize("suite", [transfer, vtab])
@pytest.mark.parametrize("scale", SCALES)
def test_image_sizes_are_divided_by_the_patches_and_headlines_are_measured(suite, scale: str) -> None:
    measured = set()
    for cell in cells_of_suite(suite, scale):
        for task in cell.tasks:
            size = task.kwargs.get("image_size")
            patch = int(cell.model.rpartition("/")[2]) if "/" in cell.model else 1
            assert size is None or size % patch == 0
            measured.add(f"{task.task}:{task.data}")
    if scale != "paper" or suite is vtab:
        assert measured & set(suite.SUITE.headline)
    for name in suite.SUITE.downstream:
        registry.load("data set", name)


def test_each_higher_resolution_stands_beside_the_own_one() -> None:
    """The same options but for the size: only then are the two compared on equal terms."""
    for cell in cells_of_suite(transfer, "cpu"):
        tuned = [task for task in cell.tasks if task.task == "finetune"]
        pairs = {}
        for task in tuned:
            options = {k: v for k, v in task.options if k != "image_size"}
            pairs.setdefault(task.data, []).append((task.kwargs.get("image_size"), options))
        assert any(len(pair) == 2 for pair in pairs.values())
        for (size, options), *higher in pairs.values():
            assert size is None and all(other == 56 and options == again for other, again in higher)
        assert {data for data, pair in pairs.items() if len(pair) > 1} == {"photo-tiles:56px"}


@pytest.mark.parametrize("scale", ["cpu", "gpu"])
def test_a_higher_resolution_is_asked_of_images_that_have_it(scale: str) -> None:
    """The stored images are opened: enlarging smaller ones would add nothing to see."""
    for cell in cells_of_suite(transfer, scale):
        for task in cell.tasks:
            if (size := task.kwargs.get("image_size")) is not None:
                assert load(task.data, "test").image_shape[0] >= size


def test_sides_are_those_of_the_stored_images() -> None:
    for name in ("fashion-mnist", "scripts", "digits", "photo-tiles", "photo-tiles:56px", "visual-atoms:2x2:32px"):
        assert side_of(name) == load(name, "test").image_shape[0]
    assert (side_of("folder:photos:96px:rgb"), side_of("folder:photos"), side_of("no-such-set")) == (96, None, None)


@pytest.mark.parametrize("suite", [transfer, vtab])
def test_fine_tuning_tries_rates_well_beyond_those_that_are_chosen(suite) -> None:
    """Of 0.05, 0.15 and 0.45 too many choices were an end: a factor of three more on each side."""
    for cell in cells_of_suite(suite, "cpu"):
        for task in cell.tasks:
            if (rates := task.kwargs.get("rates")) is not None:
                assert min(rates) < 0.05 / 3 and max(rates) > 1.3 and len(rates) == 5


def test_what_is_not_here_is_left_out_but_costed_at_scale_paper(tmp_path: Path) -> None:
    def judged(scale: str) -> set[str]:
        return {task.data for cell in cells_of_suite(transfer, scale, data_root=tmp_path) for task in cell.tasks}

    assert judged("cpu") <= set(transfer.DOWNSTREAM) and "fashion-mnist" in judged("cpu")
    assert "pets:384px" in judged("paper")
    some = [cell for cell in cells_of_suite(transfer, "paper") if cell.model == "ViT-B/32"][:1]
    sizes = DataSizes(root=tmp_path, published=True)
    check_data(some, sizes)
    assert (sizes["pets:384px"].train, sizes["imagenet:384px"].classes) == (3_680, 1_000)
    assert evaluation_images(some[0], sizes) > 3 * 10_000 * 512, "fine-tuning is costed"
    with pytest.raises(UserError, match="not on this machine"):
        check_data(some, DataSizes(root=tmp_path))


@pytest.mark.parametrize("suite", [transfer, vtab])
def test_models_and_upstream_sets_may_be_chosen(suite) -> None:
    asked = cells_of_suite(suite, "cpu", models=("ViT-micro/14",), data=("lettering",), seeds=1)
    assert [(cell.model, cell.data) for cell in asked] == [("ViT-micro/14", "lettering")]
