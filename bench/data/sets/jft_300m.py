"""JFT-300M, the paper's largest upstream set. Not public: its size stands here so that the paper's grid can be costed.

`python -m bench.plan --suite scaling --scale paper` counts what the grid takes. To run it, name a set of your own with
--data.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from bench.core.errors import UserError
from bench.data.published import SIZES

REVISION = 1
KIND = "photographs"
LICENCE = "not public"
SOURCE = "Sun et al. 2017, arXiv:1707.02968; as used in arXiv:2010.11929"
HOW_TO_GET = "It cannot be had outside Google. Use --data with a set of your own."
DESCRIPTION = "303 million photographs, 18,291 classes; not public, for costing only"

SIZE = dict(zip(("train", "test", "classes"), SIZES["jft-300m"], strict=True))


def available(root: Path | None) -> bool:
    return False


def load(split: str, *, root: Path | None) -> NoReturn:
    raise UserError("The data set jft-300m is not public.", HOW_TO_GET)
