"""Names that say several things: each is parsed here, once, and nowhere cut at ":" again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.core.cli import literal


@dataclass(frozen=True)
class ModelName:
    """A model and its options: ViT-pico/7:position=none:depth=6.

    Attributes:
        base: the name that a family accepts; a colon in it belongs to it (timm:resnet18).
        options: arguments of the family's `build`, with values that are numbers where they look like some.
    """

    base: str
    options: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> ModelName:
        base, *parts = re.split(r":(?=[a-z_]+=)", text)
        return cls(base, {key: literal(value) for key, _, value in (part.partition("=") for part in parts)})


@dataclass(frozen=True)
class DataName:
    """A data set and what follows its name: folder:mine:64px:rgb.

    Attributes:
        base: the name of its file.
        option: the words that the file itself reads; empty without any.
    """

    base: str
    option: str = ""

    @classmethod
    def parse(cls, text: str) -> DataName:
        base, _, option = text.partition(":")
        return cls(base, option)

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(self.option.split(":")) if self.option else ()

    @property
    def side(self) -> int | None:
        """Pixels per side that the name says."""
        said = re.search(r"(?:^|:)(\d+)px(?=:|$)", self.option)
        return int(said[1]) if said else None

    def __str__(self) -> str:
        return f"{self.base}:{self.option}" if self.option else self.base
