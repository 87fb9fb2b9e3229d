"""NVIDIA's Multi-Process Service (MPS), with which kernels of several processes run on a GPU at the same time, instead
of by turns.

Each study has an MPS daemon of its own, reached through pipes in a folder of its own. Only the last run of the study on
this machine ends the daemon, since a daemon that was told to quit accepts no new processes. If that run is killed, the
study's next run ends the daemon.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from bench.core import files
from bench.core.device import MPS_CONTROL, VISIBLE_VARIABLES
from bench.core.errors import UserError

PATIENCE = 60.0  # seconds that the daemon gets to answer


@contextlib.contextmanager
def served(store: Path) -> Iterator[dict[str, str]]:
    """Context manager within which the study's MPS daemon runs. It yields the environment variables by which processes
    find the daemon.

    Raises:
        UserError: the daemon cannot be started, or its folder belongs to another user.
    """
    import fcntl  # not of Windows, where there is no daemon either

    name = hashlib.sha256(str(store.absolute()).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir(), f"vit-bench-mps-{os.getuid()}-{name}")  # a socket's path has 108 bytes at most
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise UserError(f"{folder} belongs to somebody else.", "Set TMPDIR to a folder of your own.")
    variables = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
    with open(folder / "users", "a") as users:
        with _alone(folder, users) as is_only:
            if is_only:
                _control(variables, say="quit")
                if said := _control(variables, "-d"):
                    raise UserError(
                        f"{MPS_CONTROL} cannot be started: {said}", "Ask whoever runs this machine, or give --share N."
                    )
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield variables
        finally:
            with _alone(folder, users) as is_last:
                if is_last:
                    _control(variables, say="quit")


@contextlib.contextmanager
def _alone(folder: Path, users: IO[str]) -> Iterator[bool]:
    """Context manager within which no other run of the study starts or stops using the daemon. It yields whether no
    other run is using it. `users`: the open file on which each run that uses the daemon holds a lock."""
    with open(folder / "turn", "a") as turn:
        files.lock(turn.fileno(), wait=True)
        yield files.lock(users.fileno()) is not False


def _control(variables: dict[str, str], *arguments: str, say: str = "") -> str | None:
    """Run the program that controls the daemon. Return why it failed; None if it succeeded. The daemon sees all GPUs,
    and each worker only its own.

    Args:
        variables: the environment variables by which the daemon is found.
        say: the program's standard input, such as "quit".
    """
    own = {name: value for name, value in os.environ.items() if name not in VISIBLE_VARIABLES}
    try:
        done = subprocess.run(
            [MPS_CONTROL, *arguments],
            input=say,
            env=own | variables | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (done.stderr or done.stdout).strip() or f"exit code {done.returncode}" if done.returncode else None
