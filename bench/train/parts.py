"""The parts of a recipe that can be plugged in: optimizers, losses, augmentations and schedules, one file each.

A recipe names a part by its file ("adamw"), or as "FILE:NAME" where a file stands for several parts of another library
("timm:muon"). Neither this file nor the top of a part's file may import torch: plans and status read recipes without
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.core.errors import UserError, unknown
from bench.study import registry


@dataclass(frozen=True, kw_only=True)
class Part:
    """The base class of optimizers, losses, augmentations and schedules.

    Attributes:
        revision: number that is raised when the same recipe gives other results. Revision 1 is not part of a training
            run's identity, later ones are.
        names: for a file that stands for several parts ("timm:muon"), a function that returns the names that may follow
            the colon; else None.
    """

    revision: int = 1
    names: Callable[[], tuple[str, ...]] | None = None


def files(kind: str) -> tuple[str, ...]:
    """Return the names of a kind's files, as "timm:…" where a file stands for several parts. No other library is
    imported for this.

    Args:
        kind: "optimizer", "loss", "augmentation" or "schedule".
    """
    return tuple(f"{name}:…" if registry.load(kind, name).names else name for name in registry.names(kind))


def known(kind: str) -> list[str]:
    """Return every name that a recipe may give for a part of this kind ("optimizer", …). Libraries that such names
    refer to are imported for this."""
    made: list[str] = []
    for name in registry.names(kind):
        part: Part = registry.load(kind, name)
        made += [name] if part.names is None else [f"{name}:{rest}" for rest in part.names()]
    return made


def suffix(name: str) -> str:
    """Return the text after the colon in a part's name: "timm:muon" -> "muon"."""
    return name.partition(":")[2]


def check_part(kind: str, name: str) -> None:
    """Check that a part of this kind ("optimizer", …) with this full name ("timm:muon") exists.

    Raises:
        UserError: it does not exist; the error lists the parts that do.
    """
    file, colon, rest = name.partition(":")
    if file in registry.names(kind):
        part: Part = registry.load(kind, file)
        if part.names is None and not colon:
            return
        if part.names is not None and rest in part.names():
            return
    error = unknown(kind, name, (every := known(kind)))
    raise UserError(error.what, f"{error.fix.partition(' Known:')[0]} There are: {', '.join(every)}.")
