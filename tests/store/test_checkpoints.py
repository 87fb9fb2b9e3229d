"""The newest checkpoint that verifies is used; a bad one is set aside with its reason, never deleted."""

import errno
import hashlib
import os
import shutil

import pytest
import safetensors.torch
import torch

from bench.core import files
from bench.core.errors import UserError
from bench.store import checkpoints, tensors
from bench.store.checkpoints import Checkpoint


def make(step: int) -> Checkpoint:
    return Checkpoint(step=step, tensors={"w": torch.full((64,), float(step))}, state={"step": step})


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "checkpoints"
    for step in (90, 100, 1000):  # 1000 sorts before 90 as text
        checkpoints.save(folder, make(step))
    return folder


def test_the_newest_is_used_and_two_are_kept(folder):
    newest, messages = checkpoints.load_newest(folder)
    assert (newest.step, messages) == (1000, [])
    assert torch.equal(newest.tensors["w"], make(1000).tensors["w"])
    assert sorted(os.listdir(folder)) == ["step-000000100", "step-000001000"]


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "remove"])
def test_damage_of_any_kind_in_any_file_is_found(folder, name, damage):
    file = folder / "step-000001000" / name
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    elif damage == "remove":
        file.unlink()
    else:
        file.write_bytes(data[: len(data) // 2] if damage == "truncate" else b"")
    newest, messages = checkpoints.load_newest(folder)
    assert newest.step == 100
    assert len(messages) == 1 and "set aside" in messages[0]
    (aside,) = (folder.parent / "quarantine").iterdir()
    assert (aside / "reason.txt").read_text().strip()


def test_all_bad_means_starting_over_not_crashing(folder):
    for path in folder.iterdir():
        (path / "state.json").write_bytes(b"{}")
    newest, messages = checkpoints.load_newest(folder)
    assert newest is None and len(messages) == 2


def test_a_full_disk_leaves_the_older_ones(folder, monkeypatch):
    real = os.fsync

    def fail(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UserError, match="full"):
        checkpoints.save(folder, make(2000))
    monkeypatch.setattr(os, "fsync", real)
    assert sorted(os.listdir(folder)) == ["step-000000100", "step-000001000"]


def test_leftovers_of_a_killed_save_are_removed(folder):
    (folder / ".step-000000500.99.tmp").mkdir()
    checkpoints.save(folder, make(2000))
    assert not list(folder.glob(".*"))


def test_saving_a_step_again_never_leaves_less_than_there_was(tmp_path, monkeypatch):
    folder = tmp_path / "checkpoints"
    checkpoints.save(folder, make(5))

    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(UserError):
        checkpoints.save(folder, make(5))
    monkeypatch.undo()
    assert checkpoints.load_newest(folder)[0].step == 5
    for number in range(3):
        checkpoints.save(folder, Checkpoint(step=5, tensors=make(5).tensors, state={"number": number}))
        assert checkpoints.load_newest(folder)[0].state == checkpoints.load(folder, 5).state == {"number": number}
        assert checkpoints.newest_state(folder) == {"number": number}
        assert len(os.listdir(folder)) == 2


def test_what_is_renamed_is_on_the_disk_with_the_names_of_its_files(tmp_path, monkeypatch):
    synced: list[str] = []
    fsync, rename = os.fsync, os.rename

    def noted_fsync(handle):
        synced.append(os.readlink(f"/proc/self/fd/{handle}"))
        fsync(handle)

    def noted_rename(old, new):
        synced.append("rename")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "rename", noted_rename)
    checkpoints.save(tmp_path / "checkpoints", make(5))
    *files, folder, renamed, parent = synced
    assert {file.rpartition("/")[2] for file in files} == {*checkpoints.FILES, checkpoints.MANIFEST}
    assert {file.rpartition("/")[0] for file in files} == {folder}
    assert (renamed, parent) == ("rename", str(tmp_path / "checkpoints"))


def test_a_bad_sector_is_a_bad_checkpoint(folder, monkeypatch):
    sha256 = files.file_sha256

    def unreadable(path):
        if path.parent.name == "step-000001000":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return sha256(path)

    monkeypatch.setattr(files, "file_sha256", unreadable)
    newest, messages = checkpoints.load_newest(folder)
    assert newest.step == 100 and "cannot be read" in messages[0]


def test_bad_ones_of_one_step_are_all_kept_also_when_somebody_deletes_the_first(folder):
    place = folder.parent / "quarantine"
    for number in range(4):
        (checkpoints.save(folder, make(2000)) / "state.json").write_bytes(b"bad %d" % number)
        assert checkpoints.load_newest(folder)[0].step != 2000
        if number == 2:
            shutil.rmtree(min(place.iterdir()))
    assert sorted((path / "state.json").read_bytes() for path in place.iterdir()) == [b"bad 1", b"bad 2", b"bad 3"]


def test_what_another_machine_has_just_written_is_waited_for(folder, monkeypatch):
    """A network file system may show it later."""
    step, aside = folder / "step-000001000", folder.parent / "aside"
    step.rename(aside)
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            aside.rename(step)

    monkeypatch.setattr(checkpoints.time, "sleep", sleep)
    assert checkpoints.load(folder, 1000).state == {"step": 1000} and len(slept) == 3


def test_what_never_appears_is_named(folder, monkeypatch):
    clock = iter(range(0, 1000, 10))
    monkeypatch.setattr(checkpoints.time, "sleep", lambda _: None)
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: float(next(clock)))
    with pytest.raises(UserError, match="no checkpoint of step 7 in"):
        checkpoints.load(folder, 7)
    assert next(clock) == 80  # it was looked for until 60 s had passed


KINDS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.float16, torch.bfloat16, torch.int32, torch.float32)


@pytest.mark.parametrize("seed", range(8))
def test_tensors_are_written_as_the_format_s_own_library_writes_them(seed):
    """Sizes of none and of one number, letters that JSON escapes, and every type, to the byte; whatever is strided."""
    rng = torch.Generator().manual_seed(seed)
    given = {}
    for number in range(12):
        kind = (*KINDS, torch.float64, torch.int64)[int(torch.randint(10, (), generator=rng))]
        shape = torch.randint(0, 4, (int(torch.randint(4, (), generator=rng)),), generator=rng).tolist()
        given[f'é"\\{number}'] = torch.randint(0, 2, shape, generator=rng).to(kind)
    given["turned"] = torch.arange(6.0).reshape(2, 3).T
    written = bytearray()
    tensors.write(written.extend, given)
    assert bytes(written) == safetensors.torch.save({name: value.contiguous() for name, value in given.items()})


def test_a_large_tensor_is_written_in_pieces_that_are_hashed_on_the_way(monkeypatch):
    monkeypatch.setattr(tensors, "PIECE", 64)
    pieces = []
    hashed = tensors.Hashed(lambda data: pieces.append(bytes(data)))
    tensors.write(hashed, {"w": torch.arange(100.0)})
    whole = b"".join(pieces)
    assert max(map(len, pieces[1:])) == 64
    assert (hashed.bytes, hashed.sha256) == (len(whole), hashlib.sha256(whole).hexdigest())
    assert torch.equal(safetensors.torch.load(whole)["w"], torch.arange(100.0))
