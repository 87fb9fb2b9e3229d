"""Keeps trackers (W&B, MLflow, …) up to date with a run: one process of `bench.report --to` follows it for each
tracker, and at the end everything is sent once more."""

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
    """Context manager that keeps trackers up to date with a study while its block runs, and once more at the end of the
    block, even if that ends with an error.

    Args:
        store: folder of the study.
        names: names of the trackers.
        live: whether to follow the run; else everything is sent at the end only.
        say: shows what went wrong with a tracker, which never stops the run.
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
