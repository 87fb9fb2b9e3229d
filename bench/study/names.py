"""Names of models and data sets with options after colons. Only this module splits such a name at its colons."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench.core.cli import literal


@dataclass(frozen=True)
class ModelName:
    """The name of a model with its options, such as ViT-pico/7:position=none:depth=6.

    Attributes:
        base: the name without options, which a model family accepts; it may contain a colon (timm:resnet18).
        options: name -> value of arguments for the family's `build`. A Python literal, such as a number, is converted;
            any other value stays text.
    """

    base: str
    options: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> ModelName:
        base, *parts = re.split(r":(?=[a-z_]+=)", text)
        return cls(base, {key: literal(value) for key, _, value in (part.partition("=") for part in parts)})


@dataclass(frozen=True)
class DataName:
    """The name of a data set with its options, such as folder:mine:64px:rgb.

    Attributes:
        base: name of the plug-in that reads the data set: "folder".
        option: the text after the first colon, which the plug-in interprets: "mine:64px:rgb"; "" if there is none.
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
        """Pixels per side of the images, which an option such as "64px" states; None without such an option."""
        said = re.search(r"(?:^|:)(\d+)px(?=:|$)", self.option)
        return int(said[1]) if said else None

    def __str__(self) -> str:
        return f"{self.base}:{self.option}" if self.option else self.base
