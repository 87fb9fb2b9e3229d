"""Save and load checkpoints: tensors as safetensors, the rest as JSON, and a manifest with the sha256 of both files.

A checkpoint is a folder, which is renamed into place when it is complete. A flipped bit loads silently from every
tensor format, so a checkpoint is used only if its files match its manifest. A damaged checkpoint is moved to
`quarantine/` with the reason, never deleted, and the next older checkpoint is used. The argument `folder` of these
functions is the folder that holds the checkpoints of one cell.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.core import files
from bench.core.errors import UserError
from bench.store import faults, tensors

if TYPE_CHECKING:
    import torch

MAX_KEPT = 2  # number of checkpoints that are kept, because the newest could turn out to be damaged
APPEARS_WITHIN = 60.0  # seconds that a checkpoint written by another machine may take to appear on this one
MANIFEST = "manifest.json"
PREFIX = "step-"
TENSORS, STATE = "tensors.safetensors", "state.json"
FILES = (TENSORS, STATE)
NAME = re.compile(rf"{PREFIX}(\d+)(?:-(\d+))?")  # the step, and a counter where that step was saved more than once


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint.

    Attributes:
        step: number of training steps done so far in all parts of the training (`TrainingProgress.work`); the folder
            of the checkpoint is named after it.
        tensors: name -> tensor of the state of the training.
        state: the rest of that state, as JSON types.
    """

    step: int
    tensors: dict[str, torch.Tensor]
    state: dict[str, Any]


def save(folder: Path, checkpoint: Checkpoint, *, check_lease: Callable[[], None] = lambda: None) -> Path:
    """Write a checkpoint to a new folder in `folder`, delete all checkpoints there but the newest `MAX_KEPT`, and
    return the path of the new folder.

    Tensors are written in pieces, one after the other, and hashed on the way, so that no second copy of them is held in
    memory.

    Args:
        check_lease: is called just before the new folder is renamed into place. If it raises an error, because another
            process has taken over the cell, nothing is left behind.

    Raises:
        UserError: the checkpoint cannot be written (the disk is full, …); older checkpoints are untouched.
    """
    target = _new(folder, checkpoint.step)
    try:
        folder.mkdir(exist_ok=True)
        files.remove_leftovers(folder)
        with files.new_directory(target) as temporary:
            listed = {}
            for name in FILES:
                with files.synced(temporary / name) as handle:
                    hashed = tensors.Hashed(handle.write)
                    if name == TENSORS:
                        tensors.write(hashed, checkpoint.tensors)
                    else:
                        hashed(files.dump_json(checkpoint.state))
                    listed[name] = {"bytes": hashed.bytes, "sha256": hashed.sha256}
            with files.synced(temporary / MANIFEST) as handle:
                handle.write(files.dump_json({"step": checkpoint.step, "files": listed}))
            check_lease()
            faults.reach("checkpoint-before-rename")
        faults.reach("checkpoint-after-rename")
    except OSError as error:
        raise files.explain(error, target) from error
    for old in _steps(folder)[MAX_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return target


def verify(path: Path, names: Sequence[str] = FILES) -> None:
    """Check the files `names` of the checkpoint in the folder `path` against its manifest.

    Raises:
        ValueError: the manifest or a file is damaged or missing; the message says which and how.
    """
    try:
        manifest = json.loads(files.read_whole(path / MANIFEST))
        listed = {name: (manifest["files"][name]["bytes"], manifest["files"][name]["sha256"]) for name in FILES}
        step = manifest["step"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"the manifest cannot be read ({error!r})") from error
    if step != _number(path)[0] or len(manifest["files"]) != len(FILES):
        raise ValueError("the manifest is of another checkpoint")
    for name in names:
        file, (size, sha256) = path / name, listed[name]
        if not file.is_file() or file.stat().st_size != size:
            raise ValueError(f"{name} is missing or truncated")
        try:
            digest = files.file_sha256(file)
        except OSError as error:  # a bad sector
            raise ValueError(f"{name} cannot be read ({error!r})") from error
        if digest != sha256:
            raise ValueError(f"{name} was altered: its sha256 does not match")


def load_newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return (newest checkpoint in `folder` whose files match its manifest, or None; a message for each newer one,
    which is damaged).

    Damaged checkpoints are moved to `quarantine/`.
    """
    from safetensors.torch import load_file

    messages = []
    for path in _steps(folder):
        try:
            verify(path)
            state = json.loads((path / STATE).read_bytes())
            found = load_file(path / TENSORS)
        except ValueError as error:
            messages.append(f"Checkpoint {path.name} set aside: {error}")
            _quarantine(path, str(error))
            continue
        return Checkpoint(step=_number(path)[0], tensors=found, state=state), messages
    return None, messages


def load(folder: Path, step: int) -> Checkpoint:
    """Return the newest checkpoint of a training step in `folder`, without verifying it, because another process has
    just verified it.

    If that process runs on another machine, a network file system may show the checkpoint here a little later, so this
    function waits for it up to `APPEARS_WITHIN` seconds.

    Raises:
        UserError: the checkpoint does not appear in that time.
    """
    from safetensors.torch import load_file

    deadline = time.monotonic() + APPEARS_WITHIN
    while not (paths := [path for path in _steps(folder) if _number(path)[0] == step]):
        if time.monotonic() > deadline:
            raise UserError(
                f"There is no checkpoint of step {step} in {folder}.", "All machines must see the same results folder."
            )
        time.sleep(0.2)
    path = paths[0]
    return Checkpoint(step=step, tensors=load_file(path / TENSORS), state=json.loads((path / STATE).read_bytes()))


def newest_state(folder: Path) -> dict[str, Any] | None:
    """Return the `Checkpoint.state` of the newest checkpoint in `folder` whose file of the state matches the manifest;
    None if there is no such checkpoint.

    This is for showing progress only, because the tensors are not verified.
    """
    for path in _steps(folder):
        try:
            verify(path, [STATE])
            return json.loads((path / STATE).read_bytes())
        except (OSError, ValueError):
            continue
    return None


def clear(folder: Path) -> None:
    """Delete all checkpoints in `folder`, because the cell's record is written and they are no longer needed. Damaged
    checkpoints in `quarantine/` stay."""
    for path in _steps(folder):
        shutil.rmtree(path, ignore_errors=True)
    if folder.exists():
        files.remove_leftovers(folder)
        with contextlib.suppress(OSError):  # the folder is not empty, or another runner has removed it
            folder.rmdir()


def _number(path: Path) -> tuple[int, int]:
    """Parse the name of a checkpoint's folder into (step, number of times that the step had been saved before). Return
    (-1, 0) if `path` has another name."""
    match = NAME.fullmatch(path.name)
    return (int(match[1]), int(match[2] or 0)) if match else (-1, 0)


def _steps(folder: Path) -> list[Path]:
    """Return the folders of the complete checkpoints in `folder`, newest first."""
    found = (path for path in folder.glob(f"{PREFIX}*") if path.is_dir() and _number(path)[0] >= 0)
    return sorted(found, key=_number, reverse=True) if folder.exists() else []


def _new(folder: Path, step: int) -> Path:
    """Return the path of a new folder, in `folder`, for a checkpoint of this step. An existing folder of the same step
    is not replaced, because for a moment neither would exist."""
    saved = [number for saved_at, number in map(_number, _steps(folder)) if saved_at == step]
    return folder / (f"{PREFIX}{step:09d}" + (f"-{saved[0] + 1}" if saved else ""))


def _quarantine(path: Path, reason: str) -> None:
    place = path.parent.parent / "quarantine"
    try:
        place.mkdir(exist_ok=True)
        names = (place / f"{path.name}.{number:03d}" for number in itertools.count(1))
        target = next(name for name in names if not name.exists())
        os.rename(path, target)
        (target / "reason.txt").write_text(reason + "\n")
    except OSError as error:
        why = files.explain(error, place)
        raise UserError(f"The damaged checkpoint {path} could not be moved aside. {why.what}", why.fix) from error
