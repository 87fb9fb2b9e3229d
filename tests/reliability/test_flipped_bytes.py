"""One flipped byte in any kind of file that a study leaves is noticed, each time; nothing wrong is used."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bench.core import files
from bench.core.errors import UserError
from bench.data import cache as _cache
from bench.store import checkpoints, grid, lease, records, weights
from bench.store.checkpoints import Checkpoint
from bench.store.study import SPEC_FIELDS, STATUS_FIELDS, STORE_FILE, CellDirectory, Study, state_of
from bench.study.cell import Cell, to_json
from tests.analysis._records import World

TENSORS = {"a": torch.arange(40.0).reshape(5, 8), "b": torch.tensor(3), "c": torch.ones(3, dtype=torch.bfloat16)}
RECORD = World().records()[0]


CELL = Cell(model="pixels", data="digits")
STEP = "checkpoints/step-000000001"
WANTED = grid.WantedCells(suite="scaling", scale="cpu", names=("a", "b"))


def save_checkpoint(path: Path) -> None:
    checkpoints.save(path.parents[1], Checkpoint(step=1, tensors=TENSORS, state={"work": 1, "total_work": 2}))


def read_progress(path: Path) -> None:
    state, fraction, *_ = state_of(CellDirectory(path.parents[2]))
    if (state, fraction) != ("partial", 0.5):
        raise ValueError("nothing to go on from")


def read_cache(path: Path) -> None:
    _cache._verified.clear()
    if _cache._open(path.parent) is None:
        raise ValueError("built again")


Kind = tuple[str, Callable[[Path], object], Callable[[Path], object]]
KINDS: dict[str, Kind] = {  # its place in a folder, what writes it, what reads it
    "plan": (grid.PLAN_FILE, lambda path: grid.write(path.parent, WANTED), lambda path: grid.read(path.parent)),
    "store": (STORE_FILE, lambda path: Study(path.parent).create(), lambda path: Study(path.parent).check()),
    "record": ("record.json", lambda path: records.write_record(path, RECORD), records.read_record),
    "weights": ("w.safetensors", lambda path: weights.write(path, TENSORS, {"model": "ViT-B/16"}), weights.about),
    "spec": (
        "spec.json",
        lambda path: CellDirectory(path.parent).prepare(CELL),
        lambda path: files.read_sealed(path, legacy_fields=SPEC_FIELDS),
    ),
    "status": (
        "status.json",
        lambda path: files.write_sealed(path, {"started": "2026-01-01", "outcome": "complete"}),
        lambda path: files.read_sealed(path, legacy_fields=STATUS_FIELDS),
    ),
    "lease": ("lease.json", lease._acquire, files.read_sealed),
    "progress": (f"{STEP}/{checkpoints.STATE}", save_checkpoint, read_progress),
    "cache": ("entry/x.npy", lambda path: _cache._store(path.parent, {"x": TENSORS["a"].numpy()}), read_cache),
    **{
        f"checkpoint {name}": (f"{STEP}/{name}", save_checkpoint, lambda path: checkpoints.verify(path.parent))
        for name in (checkpoints.MANIFEST, *checkpoints.FILES)
    },
}


def written(kind: str, folder: Path) -> Path:
    name, write, _ = KINDS[kind]
    write(folder / name)
    return folder / name


@pytest.mark.parametrize("kind", KINDS)
def test_every_flip_is_noticed(tmp_path, kind):
    path, read = written(kind, tmp_path), KINDS[kind][2]
    sound = read(path)
    whole = path.read_bytes()
    chooser = random.Random(kind)
    places = range(len(whole)) if len(whole) < 400 else sorted(chooser.sample(range(len(whole)), 400))
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chooser.randrange(8)
        path.write_bytes(damaged)
        try:
            again = read(path)
        except (UserError, ValueError):
            continue
        assert kind == "record" and again == sound, place  # a 17th digit, with which the number is the same
    for length in {0, 1, len(whole) // 2, len(whole) - 2}:
        path.write_bytes(whole[:length])
        with pytest.raises((UserError, ValueError)):
            read(path)
    path.write_bytes(whole)
    read(path)


def test_an_altered_lease_expires_as_one_of_another_machine_does(tmp_path, monkeypatch):
    """Neither is its holder robbed, whatever process the lease names now, nor is the cell locked for ever."""
    clock = [0.0]
    monkeypatch.setattr(lease, "running", lambda: clock[0])
    path = written("lease", tmp_path)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        seen = lease._look(path)
        assert not lease._is_dead(path, seen)
        clock[0] += lease.EXPIRES_AFTER + 1
        assert lease._is_dead(path, seen)


def test_a_damaged_spec_is_kept_beside_a_new_one(tmp_path):
    path = written("spec", tmp_path)
    torn = path.read_bytes()[:50]
    path.write_bytes(torn)
    CellDirectory(tmp_path).prepare(CELL)
    assert files.read_sealed(path, legacy_fields=SPEC_FIELDS)["cell"] == json.loads(json.dumps(to_json(CELL)))
    assert [p.read_bytes() for p in tmp_path.glob("spec.damaged-*")] == [torn]


def test_files_from_before_they_were_sealed_are_read(tmp_path):
    from safetensors.torch import save_file

    (tmp_path / "status.json").write_text('{"started": "x", "ended": "y", "outcome": "complete"}')
    assert files.read_sealed(tmp_path / "status.json", legacy_fields=STATUS_FIELDS)["outcome"] == "complete"
    save_file(TENSORS, tmp_path / "w.safetensors", metadata={"about": '{"model": "ViT-B/16"}'})
    assert weights.about(tmp_path / "w.safetensors") == {"model": "ViT-B/16"}
    save_file(TENSORS, tmp_path / "w.safetensors", metadata={"format": "pt"})
    assert weights.about(tmp_path / "w.safetensors") is None


def test_a_damaged_status_does_not_hide_the_other_attempts(tmp_path):
    directory = CellDirectory(tmp_path)
    for _ in range(2):
        written("status", directory.new_attempt())
    first = directory.attempts()[0] / "status.json"
    first.write_bytes(first.read_bytes().replace(b"complete", b"complfte"))
    assert [attempt.outcome for attempt in directory.attempt_log()] == ["unknown", "complete"]
