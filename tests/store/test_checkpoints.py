"""The newest checkpoint that verifies is used; a bad one is set aside with its reason, never deleted."""

from __future__ import annotations

import errno
import os

import pytest
import torch

from bench.errors import UserError
from bench.store import checkpoints
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
    found, messages = checkpoints.load_newest(folder)
    assert (found.step, messages) == (1000, [])
    assert torch.equal(found.tensors["w"], make(1000).tensors["w"])
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
    found, messages = checkpoints.load_newest(folder)
    assert found.step == 100
    assert len(messages) == 1 and "set aside" in messages[0]
    (aside,) = (folder.parent / "quarantine").iterdir()
    assert (aside / "reason.txt").read_text().strip()


def test_every_byte_of_a_small_checkpoint_is_covered(tmp_path):
    folder = tmp_path / "checkpoints"
    path = checkpoints.save(folder, make(1))
    for file in sorted(path.iterdir()):
        original = file.read_bytes()
        for position in range(0, len(original), 7):
            damaged = bytearray(original)
            damaged[position] ^= 4
            file.write_bytes(damaged)
            if file.name == "manifest.json" and bytes(damaged).split() == original.split():
                continue  # white space
            with pytest.raises(ValueError):
                checkpoints.verify(path)
        file.write_bytes(original)
    checkpoints.verify(path)


def test_all_bad_means_starting_over_not_crashing(folder):
    for path in folder.iterdir():
        (path / "state.json").write_bytes(b"{}")
    found, messages = checkpoints.load_newest(folder)
    assert found is None and len(messages) == 2


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
