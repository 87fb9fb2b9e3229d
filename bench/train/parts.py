"""The kinds of a recipe that can be plugged in: optimizers, losses, augmentations and schedules, one file each.

A recipe names one by its file ("adamw"), or as "FILE:NAME" where a file stands for several of another library
("timm:muon"). No torch here, nor at the top of such a file: plans and status read recipes without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.core.errors import UserError, unknown
from bench.study import registry


@dataclass(frozen=True, kw_only=True)
class Part:
    """What every kind has.

    Attributes:
        revision: raised when the same recipe gives other results. The first is no part of a cell's identity.
        names: those that may follow the file's name after a colon; None where none may.
    """

    revision: int = 1
    names: Callable[[], tuple[str, ...]] | None = None


def files(kind: str) -> tuple[str, ...]:
    """Names of a kind's files; "timm:…" of one that stands for several. Nothing of another library is imported."""
    return tuple(f"{name}:…" if registry.load(kind, name).names else name for name in registry.names(kind))


def known(kind: str) -> list[str]:
    """Every name of a kind, those of other libraries included: this imports them."""
    made: list[str] = []
    for name in registry.names(kind):
        part: Part = registry.load(kind, name)
        made += [name] if part.names is None else [f"{name}:{rest}" for rest in part.names()]
    return made


def suffix(name: str) -> str:
    """What follows the file in a name: "timm:muon" -> "muon"."""
    return name.partition(":")[2]


def check_part(kind: str, name: str) -> None:
    """Checks that a part exists, by its full name.

    Raises:
        UserError: it does not; says what there is.
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
