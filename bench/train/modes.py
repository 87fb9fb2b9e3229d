"""Whether networks are compiled on a device, and how. The code that does so (`bench.train.compiled`) is loaded only
where they are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from bench.core.errors import UserError

VARIABLE = "VIT_BENCH_COMPILE"  # how a user overrides "auto"
MODES = ("auto", "off", "default", "reduce-overhead", "max-autotune")
WITH_GRAPHS = ("reduce-overhead", "max-autotune")  # modes that record a CUDA graph


def mode_for(device: str) -> str:
    """The value of VARIABLE; without it, the safest for a device: what goes beyond compiling was measured on none.

    Raises:
        UserError: unknown mode.
    """
    wanted = os.environ.get(VARIABLE, "auto")
    if wanted not in MODES:
        raise UserError(f"Unknown way to compile: {wanted!r}.", f"Allowed in {VARIABLE}: {', '.join(MODES)}.")
    if wanted == "auto":
        return "default" if device.startswith("cuda") else "off"
    return wanted


@contextlib.contextmanager
def switched(mode: str) -> Iterator[None]:
    """Inside, what is made is made to be compiled in this mode."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = mode
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before
