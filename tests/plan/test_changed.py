"""Results of a model whose code has changed since are refused, kept or redone; never taken for done in silence."""

import sys
import textwrap
from dataclasses import replace

import pytest

from bench.core.errors import UserError
from bench.execute.prepare import begin
from bench.plan import estimate
from bench.plan.changed import changes
from bench.plan.cost_model import NOTHING_MEASURED
from bench.plan.plan import make_plan
from bench.store.study import CellDirectory, state_of
from bench.study import fingerprint, registry
from bench.study import suite as suites
from bench.study.cell import Cell, Recipe
from bench.study.fingerprint import Basis
from bench.study.options import StudyOptions
from tests.plan.finished import finish

FAMILY = """
    '''A family of one's own.'''
    from mine_parts import width

    from vit.model_family import ModelFamily

    def accepts(name):
        return name.startswith("mine-")

    def build(name, *, image_size, channels, num_classes):
        return width(int(name[5:]))

    FAMILY = ModelFamily(label="Mine", names=("mine-4",), accepts=accepts, build=build, revision=1)
"""
PARTS = "def width(number):\n    return 2 * number\n"
CELLS = [
    Cell(model="mine-4", data="fashion-mnist", horizons=(0, 64), seed=seed, recipe=Recipe(warmup_images=0))
    for seed in (0, 1)
]


@pytest.fixture
def edit(tmp_path, monkeypatch):
    """Writes the family's files, and has the project meet them as a new process would."""
    folder = tmp_path / "code" / "added"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setitem(registry.KINDS, "family", replace(registry.KINDS["family"], package="added"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # edits of one second and length look alike to its cache

    def forget():
        for name in [name for name in sys.modules if name.partition(".")[0] in ("added", "mine_parts")]:
            del sys.modules[name]
        registry.forget()
        for cached in (fingerprint.of_module, fingerprint._read, fingerprint._counts):
            cached.cache_clear()

    def write(family=FAMILY, parts=PARTS):
        (folder / "mine.py").write_text(textwrap.dedent(family).lstrip())
        (folder / "mine_parts.py").write_text(parts)
        forget()

    write()
    yield write
    monkeypatch.undo()
    forget()


@pytest.fixture
def study(edit, tmp_path, monkeypatch):
    """Two finished cells of the family; the suite asks for these."""
    suite = suites.Suite(
        name="own",
        question="?",
        cells=lambda _: CELLS,
    )
    monkeypatch.setattr(suites, "load", lambda _: suite)
    monkeypatch.setattr(estimate, "calibrate", lambda *_, **__: NOTHING_MEASURED)
    monkeypatch.setattr(estimate, "cell_cost", lambda *_, **__: estimate.CellCost(seconds=1.0))
    return finish(tmp_path / "own", CELLS)


def plan(study, *, to_run=True, **options):
    asked = {"suite": "own", "results": study.path.parent, "device": "cpu", **options}
    return make_plan(StudyOptions.of(asked), to_run=to_run)


def test_nothing_is_refused_while_the_code_is_the_same(edit, study):
    assert plan(study).todo == ()
    edit(family=FAMILY.replace("A family", "# words\n    A better family") + "\n    # the end\n")
    assert plan(study).todo == ()


@pytest.mark.parametrize(
    "changed",
    [{"family": FAMILY.replace("number, ", "").replace("int(", "1 + int(")}, {"parts": PARTS.replace("2", "3")}],
    ids=["family", "imported"],
)
def test_results_of_other_code_are_refused_with_the_file_and_what_to_do(edit, study, changed):
    edit(**changed)
    with pytest.raises(UserError) as refusal:
        plan(study)
    assert "mine-4" in refusal.value.what and "2 of these runs" in refusal.value.what
    assert ("mine_parts.py" if "parts" in changed else "added/mine.py") in refusal.value.what
    assert all(word in refusal.value.fix for word in ("revision", "--changed redo", "--changed keep"))
    shown = plan(study, to_run=False)  # it can still be costed
    assert [cell.state for cell in shown.cells] == ["changed"] * 2 and len(shown.todo) == 2
    assert {cell["state"] for cell in shown.json()["cells"]} == {"changed"}


def test_a_new_revision_leaves_the_old_results_and_makes_new_ones(edit, study):
    edit(family=FAMILY.replace("revision=1", "revision=2"), parts=PARTS.replace("2", "3"))
    assert [cell.state for cell in plan(study).cells] == ["missing"] * 2
    assert len(list(study.path.glob("cells/*/record.json"))) == 2


def test_results_that_are_kept_are_asked_about_once_and_their_records_stay(edit, study):
    before = {path: path.read_bytes() for path in study.path.glob("cells/*/record.json")}
    edit(parts=PARTS.replace("2", "3"))
    kept = plan(study, changed="keep")
    assert kept.todo == ()
    begin(kept)
    assert plan(study).todo == ()
    assert {path: path.read_bytes() for path in study.path.glob("cells/*/record.json")} == before


def test_cells_that_are_redone_set_their_old_results_aside(edit, study):
    edit(parts=PARTS.replace("2", "3"))
    assert len(plan(study, changed="redo").todo) == 2
    directory = study.cell(CELLS[0])
    old = directory.record.read_bytes()
    directory.prepare(CELLS[0], Basis(code=fingerprint.of_model("mine-4")))  # as the worker does
    assert state_of(directory).name == "missing"
    (aside,) = directory.path.glob("record.other-code-*.json")
    assert aside.read_bytes() == old
    assert [cell.state for cell in plan(study, to_run=False).cells] == ["missing", "changed"]


def test_results_that_do_not_say_what_code_they_are_of_are_taken_as_they_are(edit, study):
    for cell in CELLS:
        directory = study.cell(cell)
        directory.spec.unlink()
        if cell.seed:
            directory.prepare(cell)
    edit(parts=PARTS.replace("2", "3"))
    assert plan(study).todo == ()
    directories = [study.cell(cell) for cell in CELLS]
    assert changes(CELLS, directories, [state_of(directory) for directory in directories]) == ()


def test_committed_references_are_valid_whatever_becomes_of_the_project(project):
    for path in sorted(project.glob("results/reference/*/cells/*/record.json"))[::20]:
        assert CellDirectory(path.parent).basis().code is None  # it is in spec.json, which is not committed
