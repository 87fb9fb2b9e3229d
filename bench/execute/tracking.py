"""Keeps trackers up to date: processes of `bench.report --to` follow a run, and all is sent once more at its end."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.core.subprocesses import child_environment
from bench.trackers import tracker as trackers

FOLLOWER_SECONDS = 10.0  # seconds that a follower gets to end


@contextlib.contextmanager
def tracked(store: Path, names: Sequence[str], *, live: bool, say: Callable[[str], None]) -> Iterator[None]:
    """Keep trackers up to date with a study while the block runs, and once more at its end, however it ends.

    Args:
        live: whether to follow the run.
        say: shows what went wrong, which never harms the run.
    """
    followers = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "bench.report",
                "--suite",
                store.name,
                "--results",
                str(store.parent),
                "--to",
                name,
                "--follow",
                "--parent",
                str(os.getpid()),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=child_environment(1),
            start_new_session=True,
        )
        for name in names
        if live
    ]
    try:
        yield
    finally:
        for follower in followers:
            follower.terminate()
            try:
                follower.wait(FOLLOWER_SECONDS)
            except subprocess.TimeoutExpired:
                follower.kill()
                follower.wait()
        for name in names:
            try:
                trackers.send(store, name)
            except Exception as error:
                say(f"{name} is not up to date: {error}. Try again: vit-bench report --suite {store.name} --to {name}")
