"""One flipped byte in any kind of file that a study leaves is noticed, each time; nothing wrong is used."""

import json
import random
from pathlib import Path

import pytest
import torch

from bench.core import files
from bench.core.errors import UserError
from bench.core.spec import Cell, to_json
from bench.data import cache as _cache
from bench.store import checkpoints, grid, lease, records, weights
from bench.store.checkpoints import Checkpoint
from bench.store.study import SPEC_FIELDS, STATUS_FIELDS, STORE_FILE, CellDirectory, Study, state_of
from tests.analysis._records import World

TENSORS = {"a": torch.arange(40.0).reshape(5, 8), "b": torch.tensor(3), "c": torch.ones(3, dtype=torch.bfloat16)}
RECORD = World().records()[0]


def checkpoint(folder: Path) -> Path:
    return checkpoints.save(folder, Checkpoint(step=1, tensors=TENSORS, state={"work": 1, "total_work": 2}))


def write_record(folder: Path) -> Path:
    records.write_record(folder / "record.json", RECORD)
    return folder / "record.json"


def write_weights(folder: Path) -> Path:
    weights.write(folder / "w.safetensors", TENSORS, {"model": "ViT-B/16", "image_size": 28})
    return folder / "w.safetensors"


def write_spec(folder: Path) -> Path:
    CellDirectory(folder).prepare(Cell(model="pixels", data="digits"))
    return folder / "spec.json"


def write_status(folder: Path) -> Path:
    files.write_sealed(folder / "status.json", {"started": "2026-01-01", "outcome": "complete"})
    return folder / "status.json"


def write_lease(folder: Path) -> Path:
    assert lease._acquire(folder / "lease.json")
    return folder / "lease.json"


def write_progress(folder: Path) -> Path:
    return checkpoint(folder / "checkpoints") / checkpoints.STATE


def read_progress(path: Path) -> None:
    state, fraction, *_ = state_of(CellDirectory(path.parents[2]))
    if (state, fraction) != ("partial", 0.5):
        raise ValueError("nothing to go on from")


def write_cache(folder: Path) -> Path:
    entry = folder / "cache" / "entry"
    _cache._store(entry, {"x": TENSORS["a"].numpy()})
    return entry / "x.npy"


def read_cache(path: Path) -> None:
    _cache._verified.clear()
    if _cache._open(path.parent) is None:
        raise ValueError("built again")


def write_plan(folder: Path) -> Path:
    grid.write(folder, grid.WantedCells(suite="scaling", scale="cpu", names=("a", "b")))
    return folder / grid.PLAN_FILE


def write_marker(folder: Path) -> Path:
    Study(folder).create()
    return folder / STORE_FILE


KINDS = {
    "plan": (write_plan, lambda path: grid.read(path.parent)),
    "store": (write_marker, lambda path: Study(path.parent).check()),
    "record": (write_record, records.read_record),
    "weights": (write_weights, weights.about),
    "spec": (write_spec, lambda path: files.read_sealed(path, legacy_fields=SPEC_FIELDS)),
    "status": (write_status, lambda path: files.read_sealed(path, legacy_fields=STATUS_FIELDS)),
    "lease": (write_lease, files.read_sealed),
    "progress": (write_progress, read_progress),
    "cache": (write_cache, read_cache),
    **{
        f"checkpoint {name}": (
            lambda folder, name=name: checkpoint(folder) / name,
            lambda path: checkpoints.verify(path.parent),
        )
        for name in (checkpoints.MANIFEST, *checkpoints.FILES)
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_flip_is_noticed(tmp_path, kind):
    write, read = KINDS[kind]
    path = write(tmp_path)
    read(path)
    whole = path.read_bytes()
    chooser = random.Random(kind)
    places = range(len(whole)) if len(whole) < 400 else sorted(chooser.sample(range(len(whole)), 400))
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chooser.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises((UserError, ValueError)):
            read(path)
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
    path = write_lease(tmp_path)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        seen = lease._look(path)
        assert not lease._is_dead(path, seen)
        clock[0] += lease.EXPIRES_AFTER + 1
        assert lease._is_dead(path, seen)


def test_a_damaged_spec_is_kept_beside_a_new_one(tmp_path):
    cell = Cell(model="pixels", data="digits")
    path = write_spec(tmp_path)
    torn = path.read_bytes()[:50]
    path.write_bytes(torn)
    CellDirectory(tmp_path).prepare(cell)
    assert files.read_sealed(path, legacy_fields=SPEC_FIELDS)["cell"] == json.loads(json.dumps(to_json(cell)))
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
        write_status(directory.new_attempt())
    first = directory.attempts()[0] / "status.json"
    first.write_bytes(first.read_bytes().replace(b"complete", b"complfte"))
    assert [attempt.outcome for attempt in directory.attempt_log()] == ["unknown", "complete"]
