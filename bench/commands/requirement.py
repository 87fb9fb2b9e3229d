"""Requirements of extensions: the terms that vit-bench check and its requirements of models share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.analysis.evidence import Evidence


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """Something that an extension must do.

    Attributes:
        what: what is required, in words.
        check: function that returns what was found, in words, or raises an exception that says what is wrong.
        is_gate: whether nothing further can be checked unless this is met.
        needs: `what` of another requirement, without which this one cannot be checked; "": it needs no other.
    """

    what: str
    check: Callable[[], str]
    is_gate: bool = False
    needs: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """The options with which an extension is checked.

    Attributes:
        image_size: pixels per side of a model's images.
        channels: channels of a model's images, 1 or 3.
        compiled: whether to compile a model too.
        data: name of the data set that a task is evaluated on.
        data_root: folder with data sets that are not installed; None: there is none.
        twice: whether a data set is made a second time, by another process that finds nothing cached.
        evidence: function that reads the study on which a figure or question is tried; None: no study was named.
    """

    image_size: int = 28
    channels: int = 1
    compiled: bool = False
    data: str = "digits"
    data_root: Path | None = None
    twice: bool = True
    evidence: Callable[[], Evidence] | None = None


class Limited(Exception):
    """Raised where a requirement does not apply to an extension or cannot be checked, which counts as no failure."""


def require(met: bool, otherwise: str) -> None:
    """Raise ValueError with the message `otherwise` unless `met`."""
    if not met:
        raise ValueError(otherwise)


def require_revision(revision: object) -> None:
    """Raise ValueError unless a revision is a positive integer."""
    require(type(revision) is int and revision >= 1, f"its revision is {revision!r}, not a positive integer")
