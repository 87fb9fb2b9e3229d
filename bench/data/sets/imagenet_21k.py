"""ImageNet-21k: 14 million photographs of 21,843 classes, read from your copy; the paper's second largest upstream set.

The central square of every image is stored at 224 px, decoded once: 2.1 TB.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.core.errors import UserError
from bench.data.image_set import ImageSet
from bench.data.published import SIZES
from bench.data.sets import folder

REVISION = 1
KIND = "photographs"
LICENCE = "non-commercial research only; the images belong to their owners"
SOURCE = "https://www.image-net.org (Deng et al., 2009)"
HOW_TO_GET = (
    "Ask for it at https://www.image-net.org, and put a folder per class (or tar shards, or Parquet) into "
    "<data root>/imagenet-21k."
)
DESCRIPTION = "14 million photographs, 21,843 classes, 224 px; not in any package"
SIZE = dict(zip(("train", "test", "classes"), SIZES["imagenet-21k"], strict=True))  # too many to look into


def available(root: Path | None) -> bool:
    return root is not None and (root / "imagenet-21k").is_dir()


def load(split: str, *, root: Path | None) -> ImageSet:
    if not available(root):
        raise UserError("Data set 'imagenet-21k' is not on this machine.", HOW_TO_GET)
    return replace(folder.load(split, root=root, option="imagenet-21k:224px:rgb"), name="imagenet-21k")
