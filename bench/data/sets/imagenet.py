"""ImageNet (ILSVRC-2012): 1.28 million photographs of 1,000 classes, read from your copy.

The central square of every image is stored at 224 px, decoded once: 190 GB; `imagenet:384px` keeps more. `real.json`
beside its folders adds the reassessed labels (ReaL).
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
SOURCE = "https://www.image-net.org (Russakovsky et al., 2015)"
HOW_TO_GET = (
    "Ask for it at https://www.image-net.org, and put its folders train/ and val/ (or tar shards, or Parquet) into "
    "<data root>/imagenet."
)
OPTIONS = "imagenet:384px stores the central square at that size"
DESCRIPTION = "1.28 million photographs, 1,000 classes, 224 px; not in any package"
SIZE = dict(zip(("train", "test", "classes"), SIZES["imagenet"], strict=True))  # too many to look into


def available(root: Path | None) -> bool:
    return root is not None and (root / "imagenet").is_dir()


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    if not available(root):
        raise UserError("Data set 'imagenet' is not on this machine.", HOW_TO_GET)
    images = folder.load(split, root=root, option=f"imagenet:{option or '224px'}:rgb")
    return replace(images, name=f"imagenet:{option}" if option else "imagenet")
