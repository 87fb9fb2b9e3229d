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
        what: is required.
        check: returns what was seen, or raises what is wrong with it.
        is_gate: nothing further can be looked at unless it is met.
        needs: another requirement, by its `what`: unless that is met, this one cannot be looked at.
    """

    what: str
    check: Callable[[], str]
    is_gate: bool = False
    needs: str = ""


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """The options of a check.

    Attributes:
        image_size: pixels per side of a model's images.
        channels: of a model's images, 1 or 3.
        compiled: whether to compile a model too.
        data: the set that a task is evaluated on.
        data_root: folder with data sets that are not installed.
        twice: whether a data set is made again by another process that finds nothing cached.
        evidence: reads the study that a figure or question is tried on; None where none was named.
    """

    image_size: int = 28
    channels: int = 1
    compiled: bool = False
    data: str = "digits"
    data_root: Path | None = None
    twice: bool = True
    evidence: Callable[[], Evidence] | None = None


class Limited(Exception):
    """A requirement is not met, and need not be: something cannot be done with this extension."""


def require(met: bool, otherwise: str) -> None:
    """Raises ValueError with `otherwise` unless it is met."""
    if not met:
        raise ValueError(otherwise)


def require_revision(revision: object) -> None:
    """A revision is a positive integer."""
    require(type(revision) is int and revision >= 1, f"its revision is {revision!r}, not a positive integer")
