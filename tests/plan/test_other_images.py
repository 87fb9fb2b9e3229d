"""Results of a folder whose images have changed since are refused, kept or redone; never taken for done in silence."""

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.core import files
from bench.core.errors import EXIT_OK, UserError
from bench.data import cache, identity
from bench.data.sets import fashion_mnist
from bench.execute import worker
from bench.execute.prepare import begin
from bench.plan import estimate
from bench.plan.changed import changes
from bench.plan.cost_model import NOTHING_MEASURED
from bench.plan.plan import Plan, make_plan
from bench.store.study import Study, state_of
from bench.study import fingerprint
from bench.study import suite as suites
from bench.study.cell import Cell, Recipe, TaskSpec
from bench.study.fingerprint import Basis
from bench.study.options import StudyOptions
from bench.study.record import Cost, DataFacts, Execution, ModelFacts, Result
from tests.data import writers
from tests.plan.finished import finish

PARTS = writers.make(30)  # and 10 to test, of three classes
TASKS = (TaskSpec(task="fewshot", data="folder:tests"),)
CELLS = [
    Cell(
        model="ViT-pico/4", data="folder:photos", image_size=8, horizons=(0, 64), seed=seed, tasks=TASKS, recipe=recipe
    )
    for seed, recipe in ((0, Recipe(warmup_images=0)), (1, Recipe(warmup_images=0)))
]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / "cache"))
    writers.as_folder(tmp_path / "data" / "photos", PARTS)
    writers.as_folder(tmp_path / "data" / "tests", writers.make(30, seed=2))
    return tmp_path / "data"


@pytest.fixture
def study(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """Two finished cells, of one set upstream and another downstream; the suite asks for these."""
    suite = suites.Suite(name="own", question="?", cells=lambda _: CELLS)
    monkeypatch.setattr(suites, "load", lambda _: suite)
    monkeypatch.setattr(estimate, "calibrate", lambda *_, **__: NOTHING_MEASURED)
    monkeypatch.setattr(estimate, "cell_cost", lambda *_, **__: estimate.CellCost(seconds=1.0))
    return finish(tmp_path / "own", CELLS, root=root)


def plan(study: Study, root: Path, *, to_run: bool = True, **options: object) -> Plan:
    asked = {"suite": "own", "results": study.path.parent, "device": "cpu", "data_root": root, **options}
    return make_plan(StudyOptions.of(asked), to_run=to_run)


def refused(study: Study, root: Path) -> UserError:
    with pytest.raises(UserError) as refusal:
        plan(study, root)
    return refusal.value


def pictures(root: Path, name: str = "photos") -> list[Path]:
    return sorted((root / name / "train" / "1").iterdir())


def add(root: Path, name: str = "photos") -> None:
    for number, pixels in enumerate(writers.make(4, seed=1)["train"][0]):
        (root / name / "train" / "1" / f"new-{number}.png").write_bytes(writers.png(pixels))


def rewrite(write: Callable[..., None], parts: dict[str, tuple] = PARTS) -> Callable[[Path], None]:
    def change(root: Path) -> None:
        shutil.rmtree(root / "photos")
        write(root / "photos", parts)

    return change


def touch(root: Path) -> None:
    for path in (root / "photos").rglob("*"):
        os.utime(path, (1, 1))


def rename_files(root: Path) -> None:
    for path in pictures(root):
        path.rename(path.with_name(f"a-{path.name}"))
    (root / "photos" / "notes.txt").write_text("the same")


def edit(root: Path) -> None:
    pictures(root)[0].write_bytes(writers.png(255 - PARTS["train"][0][1]))


def edit_unseen(root: Path) -> None:
    """With the size and the time that the file had."""
    path = pictures(root)[0]
    before = path.stat()
    path.write_bytes(writers.png(np.zeros_like(PARTS["train"][0][1])).ljust(before.st_size, b"\0"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size


def to_test(root: Path) -> None:
    pictures(root)[0].rename(root / "photos" / "test" / "1" / "moved.png")


def relabelled() -> dict[str, tuple]:
    images, labels = PARTS["train"]
    return {**PARTS, "train": (images, np.concatenate([labels[1:], labels[:1]]))}


@pytest.mark.parametrize(
    "change",
    [touch, rename_files, rewrite(writers.as_folder), rewrite(writers.as_tar), rewrite(writers.as_npz)],
    ids=["touched", "files renamed", "copied anew", "packed", "arrays"],
)
def test_the_same_images_are_no_others(study: Study, root: Path, change: Callable[[Path], None]) -> None:
    assert plan(study, root).todo == ()
    change(root)
    assert plan(study, root).todo == ()
    moved = root.rename(root.with_name("elsewhere"))
    assert plan(study, moved).todo == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (add, "4 images added"),
        (lambda root: pictures(root)[0].unlink(), "1 image removed"),
        (edit, "1 image added and 1 image removed"),
        (edit_unseen, "1 image added and 1 image removed"),
        (to_test, "1 image in another class or split"),
        (rewrite(writers.as_tar, relabelled()), "30 images in another class or split"),
        (rewrite(writers.as_npz, {**PARTS, "test": PARTS["train"]}), "30 images added and 10 images removed"),
    ],
    ids=["added", "removed", "edited", "edited unseen", "to the other split", "labels", "another test set"],
)
def test_results_of_other_images_are_refused_with_what_is_different(
    study: Study, root: Path, change: Callable[[Path], None], said: str
) -> None:
    change(root)
    refusal = refused(study, root)
    assert re.fullmatch(
        rf"folder:photos has changed since 2 of these runs were done, the last at 20[-\d: ]+: {said}\.", refusal.what
    )
    assert "--changed redo" in refusal.fix and "--changed keep" in refusal.fix
    shown = plan(study, root, to_run=False)  # it can still be costed
    assert [cell.state for cell in shown.cells] == ["changed"] * 2 and len(shown.todo) == 2


def test_a_class_that_is_renamed_is_another(study: Study, root: Path) -> None:
    for split in writers.SPLITS:
        (root / "tests" / split / "2").rename(root / "tests" / split / "9")  # the labels stay as they are
    assert "folder:tests has changed" in refused(study, root).what
    assert "13 images in another class or split" in refused(study, root).what


def test_every_set_and_the_code_are_named(study: Study, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(root)
    add(root, "tests")
    there = study.cell(CELLS[0]).basis().code
    assert there is not None
    other = replace(there, digest="0" * 16, modules={**there.modules, "vit.layers": "0" * 16})
    monkeypatch.setattr(fingerprint, "of_model", lambda name: other)
    refusal = refused(study, root)
    assert all(about in refusal.what for about in ("The code of ViT-pico/4", "folder:photos has", "folder:tests has"))
    assert "increment the revision" in refusal.fix and "give the new ones another name" in refusal.fix
    begin(plan(study, root, changed="keep"))
    assert plan(study, root).todo == ()


def test_results_that_are_kept_are_asked_about_once_and_their_records_stay(study: Study, root: Path) -> None:
    before = {path: path.read_bytes() for path in study.path.glob("cells/*/record.json")}
    add(root)
    kept = plan(study, root, changed="keep")
    assert kept.todo == ()
    begin(kept)
    assert plan(study, root).todo == ()
    assert {path: path.read_bytes() for path in study.path.glob("cells/*/record.json")} == before
    edit(root)
    assert "1 image added" in refused(study, root).what  # since it was accepted


def test_cells_that_are_redone_set_their_old_results_aside(study: Study, root: Path) -> None:
    add(root)
    assert len(plan(study, root, changed="redo").todo) == 2
    directory, code = study.cell(CELLS[0]), fingerprint.of_model("ViT-pico/4")
    old, now = directory.record.read_bytes(), Basis(code=code, images=identity.of_cells(root=root)(CELLS[0]))
    assert not directory.is_settled(now)
    directory.prepare(CELLS[0], now)  # as the worker does
    assert state_of(directory).name == "missing" and directory.basis() == now
    (aside,) = directory.path.glob("record.other-images-*.json")
    assert aside.read_bytes() == old
    assert [cell.state for cell in plan(study, root, to_run=False).cells] == ["missing", "changed"]


def test_a_worker_says_which_images_it_reads_and_reads_others_anew(
    study: Study, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"model": ModelFacts(name="ViT-pico/4"), "data": DataFacts(name="folder:photos")}
    made = Result(status="complete", execution=Execution(device="cpu"), cost=Cost(), **facts)  # type: ignore[arg-type]
    monkeypatch.setattr(worker.Worker, "_job", lambda *_: made)
    study = Study(tmp_path / "new" / "own")
    study.create()

    def work() -> list[int]:
        options = worker.WorkerOptions(device="cpu", data_root=root)
        stop: Any = lambda: False  # noqa: E731
        assert worker.Worker(study, CELLS, suite="own", options=options, stop=stop).run() == EXIT_OK
        assert plan(study, root).todo == ()
        return [len(study.cell(cell).attempts()) for cell in CELLS]

    assert work() == work() == [1, 1]
    add(root)
    assert "4 images added" in refused(study, root).what
    assert work() == work() == [2, 2]
    assert len(list(study.path.glob("cells/*/record.other-images-*.json"))) == 2


def test_an_unfinished_cell_is_refused_before_it_is_run(study: Study, root: Path) -> None:
    directory = study.cell(CELLS[0])
    directory.record.unlink()
    (attempt := directory.new_attempt()).joinpath("status.json").write_text("{}")
    add(root)
    assert plan(study, root, only=["*s0*"]).todo  # nothing was kept of it
    files.write_sealed(attempt / "status.json", {"outcome": "failed", "reason": "out of luck"})
    assert "since 2 of these runs" in refused(study, root).what


def test_results_that_do_not_say_what_images_they_are_of_are_taken_as_they_are(study: Study, root: Path) -> None:
    for cell in CELLS:
        study.cell(cell).spec.unlink()
        study.cell(cell).prepare(cell, Basis(code=fingerprint.of_model(cell.model)))
    add(root)
    assert plan(study, root).todo == ()
    directories = [study.cell(cell) for cell in CELLS]
    assert changes(CELLS, directories, [state_of(directory) for directory in directories], root=root) == ()


def test_no_image_is_opened_while_its_file_is_as_it_was(
    study: Study, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(identity, "load", lambda *_, **__: pytest.fail("images were opened"))
        assert plan(study, root).todo == ()
    touch(root)
    assert plan(study, root).todo == ()
    monkeypatch.setattr(identity, "load", lambda *_, **__: pytest.fail("images were opened again"))
    assert plan(study, root).todo == ()


def test_without_the_cache_they_are_others_all_the_same(study: Study, root: Path) -> None:
    add(root)
    shutil.rmtree(cache.directory())
    assert refused(study, root).what.endswith(": other images, or in other classes.")


def test_a_folder_that_can_no_longer_be_read_is_not_done(study: Study, root: Path) -> None:
    for path in pictures(root):
        path.write_bytes(b"torn")
    assert "cannot be read" in refused(study, root).what
    assert identity.of_cells(root=root)(CELLS[0]).keys() == {"folder:tests"}  # the job says so


def test_classes_that_are_links_count_and_a_circle_ends(study: Study, root: Path) -> None:
    place = root / "photos" / "train" / "1"
    place.rename(root / "kept")
    place.symlink_to(root / "kept")
    (root / "kept" / "circle").symlink_to(root / "photos")
    assert plan(study, root).todo == ()
    add(root)
    assert "4 images added" in refused(study, root).what


def test_a_set_that_is_carried_in_part_is_another_where_the_whole_is(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fashion_mnist, "SYSTEM_FOLDER", root / "absent")
    part = identity.digest("fashion-mnist", root=root)
    assert part == identity.digest("fashion-mnist", root=None)
    labels = {"train": np.arange(60_000) % 10, "test": np.arange(10_000) % 10}
    whole = {split: (np.zeros((len(labels_N), 28, 28, 1), np.uint8), labels_N) for split, labels_N in labels.items()}
    writers.as_idx(root / "fashion-mnist", whole)
    assert part != identity.digest("fashion-mnist", root=root)
    assert identity.digest("digits", root=root) is identity.digest("glyphs", root=root) is None


def test_specifications_say_it_in_plain_words(study: Study, root: Path) -> None:
    said = json.loads(study.cell(CELLS[0]).spec.read_bytes())["images"]
    assert said == {name: identity.digest(name, root=root) for name in ("folder:photos", "folder:tests")}
