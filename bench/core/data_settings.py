"""Settings of data that a command makes once and its processes inherit: unreadable images, and groups of images."""

from __future__ import annotations

import os

from bench.core.errors import UserError

MAX_UNREADABLE = 0.001  # of all images; more than this is a damaged copy
GROUPS = "VIT_BENCH_GROUPS"  # the environment variable that names a file of groups (`bench.data.groups`) for workers
ALLOWED = "VIT_BENCH_MAX_UNREADABLE"  # the environment variable that says another share (5%)


def max_unreadable() -> float:
    """The share of unreadable images that is left out; of more, a set is refused.

    Raises:
        UserError: $VIT_BENCH_MAX_UNREADABLE is no share.
    """
    text = os.environ.get(ALLOWED)
    return _share(text) if text else MAX_UNREADABLE


def allow_unreadable(text: str) -> None:
    """Another share, for this process and those that it starts.

    Raises:
        UserError: it is no share.
    """
    _share(text)
    os.environ[ALLOWED] = text


def _share(text: str) -> float:
    """ "5%" or "0.05"."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UserError(f"{text!r} is not a share of images.", "Write such as 5% or 0.05.")
    return share
