"""Every figure and table of the paper: its command plans, its cells are judged by what it shows, the page says so."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from baselines import published
from bench.__main__ import verbs
from bench.core.cli import parser
from bench.core.errors import EXIT_USAGE
from bench.plan import preflight
from bench.plan.plan import make_plan
from bench.plan.sizes import DataSizes, evaluation_images
from bench.report import __main__ as report
from bench.study import registry
from bench.study.cell import Cell
from bench.study.options import RUN, StudyOptions, add_options
from bench.study.registry import directory_name
from bench.tasks import finetune
from bench.tasks.vtab import BATCH, RATES, STEPS
from bench.train import schedule
from tools import paper_table
from tools.paper_table import PAGE, ROWS, WHOLE, Row

PLANNED = [row for row in (*ROWS, WHOLE) if row.suite]
NAMED = pytest.mark.parametrize("row", PLANNED, ids=lambda row: row.name)
SIZES = DataSizes(published=True)
ROW = {row.name: row for row in PLANNED}


@cache
def cells_of(name: str) -> tuple[Cell, ...]:
    """The cells of a row by its name."""
    return ROW[name].cells()


def every_cell() -> tuple[Cell, ...]:
    """The cells of the suite that holds every other."""
    return cells_of(WHOLE.name)


@NAMED
def test_each_command_plans_and_its_cells_are_judged_by_what_the_figure_shows(row: Row) -> None:
    cells = cells_of(row.name)
    preflight.check_warmup(cells)
    preflight.check_data([cell for cell in cells if cell.job == "train"], SIZES)
    assert cells
    for cell in cells:
        assert not {data for one in row.shown for data in one.missing(cell)}, cell.readable_name
    for cell in cells:
        assert not cell.tasks or evaluation_images(cell, SIZES) > 0


def test_the_whole_is_given_the_runs_of_the_others(tmp_path: Path) -> None:
    """Of each of its own that ended there, and of no other; what it has itself stays as it is."""
    options = StudyOptions.of({"suite": "whole-paper", "scale": "paper", "rehearse": True, "results": tmp_path})
    first, second, third = (directory_name(one.cell) for one in make_plan(options, to_run=False, as_new=True).cells[:3])
    for place in (f"data/cells/{first}", f"speed/cells/{first}-other", f"rehearsal-whole-paper-paper/cells/{second}"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "record.json").write_text(place)
    (tmp_path / "data/cells" / third).mkdir()
    assert paper_table.adopt(tmp_path, "whole-paper") == 1
    there = tmp_path / "rehearsal-whole-paper-paper/cells"
    assert {path.name for path in there.iterdir()} == {first, second}
    assert (there / first / "record.json").read_text().startswith("data")
    assert paper_table.adopt(tmp_path, "whole-paper") == 0


def test_a_missing_evaluation_is_found() -> None:
    cell = next(cells_of(name)[0] for name in ROW if name.startswith("Figure 5"))
    assert paper_table.TUNED.missing(replace(cell, tasks=cell.tasks[1:])) == {"imagenet"}
    assert paper_table.LARGER.missing(cell) == {"imagenet"}


def test_every_figure_and_table_of_the_paper_is_a_row() -> None:
    """Tables 1 to 9 (3 and 4 are settings), Figures 2 to 14, the sections of appendix D, and sections 4.6 and B.1.2."""
    text = " ".join(row.name for row in ROWS).replace("Figures 6, 14", "Figure 6 Figure 14")
    text = text.replace("Figures 7, 11", "Figure 7 Figure 11")
    for number in {*range(1, 10)} - {3, 4}:
        assert f"Table {number}" in text
    for number in range(2, 15):
        assert f"Figure {number}" in text
    for section in range(1, 11):
        assert f"D.{section}" in text
    assert all(row.suite or row.more or row.deviates.startswith("No command") for row in ROWS)


def test_a_rehearsal_is_every_command_in_small(tmp_path: Path, capsys) -> None:
    """Their words are those that the commands know; runs are found by what their names begin with."""
    for row in (*ROWS, WHOLE):
        for command in row.commands:
            verb = command.split()[1]
            assert verb in verbs()
            words = paper_table.in_small(command, tmp_path)
            if "…" in command:
                assert not words, "there is no run yet"
                continue
            assert [one[0] for one in words] == [verb]
            if verb == "run":
                p = parser("vit-bench run", "", "")
                add_options(p, RUN)
                options = StudyOptions.parsed(p.parse_args(words[0][1:]))
                assert options.what.rehearse and options.what.scale == "paper"
                assert f"--suite {options.what.suite} " in command
                assert options.where.results == tmp_path
    cells = tmp_path / "rehearsal-scaling-paper" / "cells"
    for name in ("vit-l-32_jft-300m_s0-12", "vit-l-16_jft-300m_s0-34", "r50+vit-l-16_jft-300m_s0-56"):
        (cells / name).mkdir(parents=True)
    (row,) = (row for row in ROWS if row.name.startswith("Figures 7"))
    commands = [words for command in row.commands for words in paper_table.in_small(command, tmp_path)]
    assert sorted(words[-1] for words in commands) == sorted(str(folder) for folder in cells.iterdir())
    for verb, *words in commands:
        assert verb == "report" and report.main(words) == EXIT_USAGE
        assert "no effect" not in (said := capsys.readouterr().err) and "run" in said, said  # these are empty folders


def test_the_page_is_what_the_rows_say() -> None:
    """Costs are kept: `python -m tools.paper_table` plans them anew."""
    text = PAGE.read_text()
    costs, half = paper_table.stated()
    assert paper_table.page(costs, half) == text, "run python -m tools.paper_table --words-only"
    cells = {row.name: len(cells_of(row.name)) for row in PLANNED}
    assert {name: one.cells for name, one in costs.items()} == cells | {paper_table.MORE: cells[WHOLE.name]}


def test_the_whole_is_each_training_once_with_every_evaluation() -> None:
    def training(cell: Cell) -> Cell:
        return replace(cell, horizons=(0,), tasks=())

    every = {training(cell): cell for cell in every_cell()}
    assert len(every) == len(every_cell())
    for row in PLANNED:
        for cell in cells_of(row.name) if row.suite != "speed" else ():
            same = every[training(cell)]
            assert set(cell.tasks) <= set(same.tasks) and set(cell.horizons) - {0} <= set(same.horizons)


# -- Table 4, section 4.1 and appendix B.1: what each cell is fine-tuned with ------------------------------------------

SPLITS = {"imagenet": 1_281_167, "cifar10": 50_000, "cifar100": 50_000, "pets": 3_680, "flowers102": 2_040}
HELD_OUT = {"imagenet": 0.01, "cifar10": 0.02, "cifar100": 0.02, "pets": 0.1, "flowers102": 0.1}
PRINTED = {"ImageNet": "imagenet", "CIFAR-100": "cifar100", "CIFAR-10": "cifar10"} | {
    "Oxford-IIIT-Pets": "pets",
    "Oxford-Flowers-102": "flowers102",
}


def test_fine_tuning_is_table_4_s() -> None:
    by_set = {PRINTED.get(line["dataset"], line["dataset"]): line for line in published.table("table4")}
    for cell in every_cell():
        for task in cell.tasks:
            name, options = task.data.partition(":")[0], task.kwargs
            if task.task == "vtab":
                printed = by_set["VTAB-19"]
                assert (STEPS, [*RATES], BATCH) == (int(printed["steps"]), [float(printed["base_lrs"])], 512)
            if task.task != "finetune":
                continue
            size = options.pop("image_size")
            nominal = options.pop("nominal_size", size)
            assert (nominal, size) in {(384, 384), (512, 512)} | (
                {(384, 378), (512, 518)} if "H/14" in cell.model else set()
            )
            assert (options.pop("flip"), options.pop("crop"), options.pop("repeats")) == (True, 0.05, 3)
            assert options.pop("average", 0.0) == (0.9999 if nominal == 512 else 0.0)
            assert not options, "everything else follows from the number of images"
            settings = finetune.make_tuning(SPLITS[name], image_size=size)
            printed = by_set[name]
            assert settings.steps == int(printed["steps"])
            assert list(settings.rates) == [float(rate) for rate in printed["base_lrs"].split(",")]
            assert settings.num_held_out == round(HELD_OUT[name] * SPLITS[name])
            recipe = settings.recipe(settings.rates[0])
            assert (recipe.batch, recipe.optimizer, recipe.momentum, recipe.clip) == (512, "sgd", 0.9, 1.0)
            assert (recipe.cooldown, recipe.cooldown_shape, recipe.weight_decay) == (1.0, "cosine", 0.0)
            assert schedule.warmup_steps(recipe) == (100 if settings.steps == 500 else 500)


def test_transformers_have_the_paper_s_head_in_pre_training() -> None:
    """Section 3.1: a hidden layer in pre-training; ResNets have none, and masked prediction has a head of its own."""
    for cell in every_cell():
        hidden = dict(cell.model_options).get("head") == "mlp"
        assert hidden == ("ViT" in cell.model and "head=masked" not in cell.model), cell.model


def test_bit_is_trained_as_bit_was() -> None:
    """arXiv 1912.11370, section 3.1: SGD, 0.03 for 256 images, decay 1e-4, 5,000 steps of warm-up, 90 and 40 epochs."""
    cells = [cell for cell in every_cell() if "bit" in cell.axes]
    epochs = {"imagenet": 90, "imagenet-21k": 90, "jft-300m": 40}
    assert {(cell.model, cell.data) for cell in cells} == {(m, d) for m in ("R50x1", "R152x4") for d in epochs}
    for cell in cells:
        recipe = cell.recipe
        assert (recipe.optimizer, recipe.lr, recipe.weight_decay) == ("sgd", pytest.approx(0.03 * 16), 1e-4)
        assert (recipe.batch, schedule.warmup_steps(recipe)) == (4096, 5_000)
        assert cell.horizons == (epochs[cell.data] * SIZES[cell.data].train,)
        assert registry.family_of(cell.model).label == "ResNet"


def test_masked_prediction_is_appendix_b_1_2_s() -> None:
    cells = [cell for cell in every_cell() if "head=masked" in cell.model]
    assert {cell.horizons for cell in cells if cell.data == "jft-300m"} == {(100_000 * 4096, 1_000_000 * 4096)}
    assert len(cells) == 4
    for cell in cells:
        recipe = cell.recipe
        assert (recipe.lr, recipe.cooldown, recipe.cooldown_shape) == (2e-4, 1.0, "cosine")
        assert (recipe.batch, schedule.warmup_steps(recipe), recipe.optimizer) == (4096, 10_000, "adamw")


def test_figure_9_s_three_curves_and_figure_10_s_three_panels_are_there() -> None:
    recipes = {
        (cell.model, cell.recipe.lr, cell.recipe.weight_decay, seen // 303_000_000)
        for cell in every_cell()
        for seen in cell.horizons
        if cell.data == "jft-300m"
    }
    assert {("ViT-B/16", 8e-4, 0.1, 7), ("ViT-B/16:pooling=mean", 8e-4, 0.1, 7)} <= recipes
    assert ("ViT-B/16:pooling=mean", 3e-4, 0.1, 7) in recipes
    assert {("ViT-L/16", 2e-4, 0.01, 7), ("ViT-L/16", 4e-4, 0.1, 7), ("ViT-L/16", 4e-4, 0.1, 14)} <= recipes


def test_figure_9_s_trainings_are_read_after_every_epoch_and_are_table_3_s() -> None:
    cells = [cell for cell in every_cell() if cell.axes == ("pooling",)]
    assert len(cells) == 4
    for cell in cells:
        assert [seen / 303_000_000 for seen in cell.horizons] == list(range(1, 8))
        whole = replace(cell.recipe, schedule="separate", decay="constant", cooldown=1.0, timescale_images=0)
        warmup = schedule.warmup_steps(whole)
        *trunk, _ = schedule.segments(cell.recipe, cell.horizons)
        for segment in (one for one in trunk if one.end > one.start):
            step = (segment.start + segment.end) // 2
            (_, alone) = schedule.segments(whole, cell.horizons[-1:])
            rate = schedule.learning_rate(cell.recipe, step=step, warmup=warmup, segment=segment)
            assert rate == pytest.approx(schedule.learning_rate(whole, step=step, warmup=warmup, segment=alone))
