"""Plans as they are shown, in part, and with models that cannot be trained."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from bench.core.console import show_table
from bench.cost.hardware import parse
from bench.execute import local
from bench.execute.prepare import begin
from bench.plan import price, view
from bench.plan.estimate import Calibration, Rates
from bench.plan.plan import PlannedCell
from bench.plan.study_cells import StudyCells
from bench.plan.view import plan_summary
from bench.store import grid
from bench.study.cell import Cell, Recipe, cell_from_json
from tests.execute.naps import naps
from tests.plan.making import changed, plan_of, study_plan

# -- a plan on a terminal and in a log: names stay whole, budgets and seeds are named as they are ----------------------


MODELS = ("R8x0.125-s2", "R8x0.25-s2")
CELLS = [Cell(model=model, data="fashion-mnist", num_images=1000, horizons=(0, 512, 1024)) for model in MODELS]
RATES = Rates(
    model="m",
    train_images_per_second=10.0,
    eval_images_per_second=30.0,
    measured=True,
    basis="measured",
    train_flops_per_image={"dense": 10**12, "paper": 10**12},
    params=1,
)


def table(plan, width, *, terminal):
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    show_table(view.plan_table(plan), console, spare=view.LEAST_USEFUL_COLUMNS)
    return console.file.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("width", [60, 40, 120])
def test_names_stay_whole_and_rows_apart(width, terminal):
    said = table(plan_of(CELLS), width, terminal=terminal)
    assert all(model in said for model in MODELS) and "…" not in said and "one worker" in said
    assert all(len(line.rstrip()) <= width for line in said.splitlines())
    assert ("budgets" in said) == (width == 120)
    assert terminal or all(line == line.rstrip() for line in said.splitlines())


def test_columns_that_are_left_have_room_for_their_cells():
    for width in range(60, 121):
        said = table(plan_of(CELLS), width, terminal=True)
        assert len(said.splitlines()) == 1 + len(CELLS), said  # nothing is folded


def columns(plan):
    return {column.header: [str(cell) for cell in column.cells] for column in view.plan_table(plan).columns}


@pytest.mark.parametrize(
    "horizons, text",
    [
        ((0,), "untrained"),
        ((640,), "640"),
        ((0, 640), "640 + untrained"),
        ((320, 640), "2 up to 640"),
        ((0, 8000, 16_000, 64_000), "3 up to 64 k + untrained"),
    ],
)
def test_budgets_are_named_as_they_are(horizons, text):
    assert columns(plan_of([replace(CELLS[0], horizons=horizons)]))["budgets"] == [text]


def test_checkpoints_have_no_budgets_and_are_not_untrained():
    given = [
        replace(cell, model=f"timm:{name}+pretrained", horizons=(0,)) for cell, name in zip(CELLS, "ab", strict=True)
    ]
    assert {"images of", "one worker"} <= set(columns(plan_of(given)))
    assert not set(view.OF_TRAINING) & set(columns(plan_of(given)))
    assert set(view.OF_TRAINING) <= set(columns(plan_of([*given, CELLS[0]])))


def test_recipes_of_a_sweep_are_not_called_seeds():
    cell = Cell(model="ViT-mini/7", data="digits", horizons=(640,))
    recipes = [Recipe(lr=lr, clip=clip) for lr in (1e-3, 2e-3) for clip in (0.0, 1.0)]
    swept = [replace(cell, recipe=recipe, seed=seed) for recipe in recipes for seed in (0, 1, 2)]
    shown = columns(plan_of([CELLS[0], *swept]))
    assert (shown["recipes"], shown["seeds"]) == (["1", "4"], ["1", "3"])
    assert "recipes" not in columns(plan_of([CELLS[0]]))


def summary(rates=RATES, **changes):
    plan = plan_of(CELLS[:1], calibration=Calibration(rates={"m": rates}))
    cells = tuple(replace(cell, flops={"dense": 10**15, "paper": 10**15}) for cell in plan.cells)
    return "\n".join(view.plan_summary(changed(plan, cells=cells, **changes)))


def test_a_busy_machine_is_reported():
    assert "busy" not in summary()
    assert "12% of a processor" in summary(replace(RATES, share=0.12))


def test_flops_are_those_of_what_is_left():
    plan = plan_of(CELLS[:1])
    half = tuple(replace(cell, flops={"dense": 8 * 10**12}, fraction=0.75, state="partial") for cell in plan.cells)
    shown = replace(plan, cells=half)
    assert columns(shown)["FLOPs"] == ["2 TFLOPs"] and "2 TFLOPs" in "\n".join(view.plan_summary(shown))


def test_a_study_meant_for_accelerators_is_costed_on_one_wherever_it_is_planned():
    def on(name):
        cells = [replace(cell, device_hours=2.0, error=0.5) for cell in plan_of(CELLS[:1]).cells]
        return price.of(cells, hardware=parse(name), ranks=1, wall=7200.0, asked=None)

    assert "H100" not in summary(scale="cpu", elsewhere=on("H100"))
    assert "H100" not in summary(scale="gpu", device="cuda", elsewhere=on("H100"))
    assert "about 2 H100-hours (1.1 to 3.8, from a roofline" in summary(scale="gpu", elsewhere=on("H100"))
    assert "A100-hours" in summary(scale="cpu", accelerator="A100", elsewhere=on("A100"))


def test_a_plan_for_named_devices_has_their_hours_and_cost_instead_of_this_machines_time():
    cells = [
        replace(cell, device_hours=20.0, error=0.5, flops={"dense": 10**19}, basis="a guess", seconds=36_000.0)
        for cell in plan_of(CELLS).cells
    ]
    two = parse("2xH100")
    plan = changed(plan_of(CELLS), cells=tuple(cells), hardware=two, price="3/gpuh", workers=2)
    assert "one worker" not in columns(plan)
    assert columns(plan)["H100-hours"] == ["20", "20"] and columns(plan)["cost"] == ["60", "60"]
    assert columns(plan)["of peak"] == [f"{1e19 / (20 * 3600 * 989e12):.0%}"] * 2


def test_equal_notes_are_given_once():
    plan = plan_of(CELLS)
    noted = replace(plan, cells=tuple(replace(cell, note="same [/reason]") for cell in plan.cells))
    assert sum("same [/reason]" in line for line in view.plan_summary(noted)) == 1


def test_text_of_others_is_neither_markup_nor_obeyed():
    console = Console(file=io.StringIO(), width=200, force_terminal=True, color_system=None)
    view.show(plan_of(CELLS, notes=("[/data/x] \x1b[2J [enforce fail]",)), console)
    said = console.file.getvalue()
    assert "[/data/x]" in said and "[enforce fail]" in said and "\x1b[2J" not in said


# -- a run of a part: at most so many cells, or those alone that failed ------------------------------------------------


def states(plan, *named):
    cells = [replace(cell, state=state) for cell, state in zip(plan.cells, named, strict=True)]
    return replace(plan, cells=tuple(cells))


def test_what_is_left_is_cut_after_the_most_urgent(tmp_path):
    plan = states(plan_of(naps(5), tmp_path), "missing", "done", "partial", "failed", "refused")
    assert [cell.state for cell in plan.todo] == ["partial", "missing", "failed"]
    assert [cell.state for cell in changed(plan, max_cells=1).todo] == ["partial"]


def test_only_what_failed(tmp_path):
    plan = changed(states(plan_of(naps(4), tmp_path), "missing", "failed", "partial", "failed"), retry="failed")
    assert [cell.state for cell in plan.todo] == ["failed", "failed"]
    assert len(changed(plan, max_cells=1).todo) == 1


def test_a_run_of_a_part_says_so(verb, tmp_path):
    said = verb(
        "plan", "--suite", "smoke", "--scale", "cpu", "--results", tmp_path, "--max-cells", 1, "--models", "ViT-pico/14"
    )
    assert said.returncode == 0 and "This command does at most 1 run. Rows, and the runs" in said.stdout


# -- a model that cannot be trained is told so by name and file before anything is trained, and the others are run -----


BAD = """
from torch import nn

def net(num_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(7, num_classes))
"""


@pytest.fixture
def plan(verb, tmp_path):
    """The plan of a study of a good and of a bad model."""
    (tmp_path / "bad.py").write_text(BAD)
    return lambda *models: verb("plan", "--suite", "smoke", "--models", ",".join(models), "--json", "--workers", "1")


def test_one_bad_model_never_ends_a_study_of_others(plan, tmp_path):
    done = plan("ViT-pico/14", "bad.py:net")
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    cells = {cell["cell"]["model"]: cell for cell in made["cells"]}
    assert cells["bad.py:net"]["state"] == "refused" and cells["ViT-pico/14"]["state"] == "missing"
    assert "bad.py:net" in cells["bad.py:net"]["note"] and "784" in cells["bad.py:net"]["note"]
    assert made["expected_seconds"] > 0 and not any("bad.py" in note for note in made["notes"])

    refused = [
        PlannedCell(
            cell=cell_from_json(cell["cell"]),
            name=cell["name"],
            state=cell["state"],
            fraction=0.0,
            images=cell["images"],
            note=cell["note"],
        )
        for cell in made["cells"]
        if cell["state"] == "refused"
    ]
    left = study_plan(refused, tmp_path / "s")
    every = StudyCells(cells=tuple(cell.cell for cell in refused))
    left = replace(left, study=replace(left.study, cells=every))
    assert left.todo == () and "2 that cannot be run" in plan_summary(left)[0]
    failures = local.run(left, on_event=lambda *_: None, tick=lambda: None)
    assert [failure.cell for failure in failures] == [cell.name for cell in refused]
    for looked_at in (left.cells, ()):  # a later run whose --only leaves them out forgets nothing
        begin(replace(left, cells=looked_at))
        kept = grid.read(left.store)
        assert kept is not None and kept.refused == {cell.name: cell.note for cell in refused}
    begin(replace(left, cells=tuple(replace(cell, state="missing", note=None) for cell in left.cells)))
    assert (kept := grid.read(left.store)) is not None and kept.refused == {}
    done_already = replace(left, cells=tuple(replace(cell, state="done") for cell in refused))
    assert local.run(done_already, on_event=lambda *_: None, tick=lambda: None) == []


@pytest.mark.gate
def test_where_no_model_can_be_trained_nothing_is_planned(plan):
    done = plan("bad.py:net")
    assert done.returncode == 2 and "bad.py:net" in done.stderr and "784" in done.stderr
