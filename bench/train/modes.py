"""Choose whether and how networks are compiled on a device. The code that compiles (`bench.train.compiled`) is imported
only where something is compiled."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from bench.core.errors import UserError

VARIABLE = "VIT_BENCH_COMPILE"  # environment variable by which a user overrides "auto"
MODES = ("auto", "off", "default", "reduce-overhead", "max-autotune")
WITH_GRAPHS = ("reduce-overhead", "max-autotune")  # modes that record a CUDA graph


def mode_for(device: str) -> str:
    """Return the mode in which networks are compiled on a device: one of `MODES` except "auto".

    The environment variable VIT_BENCH_COMPILE names it. "auto", the variable's default, means "off" on a CPU and
    "default" on a GPU. That mode only compiles; what the modes beyond it do has been measured on no device.

    Raises:
        UserError: the variable holds an unknown mode.
    """
    wanted = os.environ.get(VARIABLE, "auto")
    if wanted not in MODES:
        raise UserError(f"Unknown way to compile: {wanted!r}.", f"Allowed in {VARIABLE}: {', '.join(MODES)}.")
    if wanted == "auto":
        return "default" if device.startswith("cuda") else "off"
    return wanted


@contextlib.contextmanager
def switched(mode: str) -> Iterator[None]:
    """Inside the `with` block, `mode_for` returns this mode, so that training steps which are created there run in
    it."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = mode
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before
