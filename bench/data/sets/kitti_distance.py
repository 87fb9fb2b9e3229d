"""KITTI-Distance: how far is the nearest car, van or truck ahead? One of VTAB's tasks (arXiv:1910.04867).

From KITTI's object detection set (Geiger et al., 2012), read by torchvision. Neighbouring frames of one drive show the
same cars, so drives are not divided: a tenth of them, by a hash of their names, is for testing (TensorFlow Datasets
holds out a tenth by drive too, in another order). Which drive a frame is from is said in the development kit.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.core.errors import UserError
from bench.data import named
from bench.data.formats._source import Source
from bench.data.image_set import ImageSet

NAME, REVISION, KIND = "kitti-distance", 1, "photographs"
LICENCE = "CC-BY-NC-SA-3.0"
SOURCE = "https://www.cvlibs.net/datasets/kitti (Karlsruhe Institute of Technology and Toyota)"
HOW_TO_GET = (
    "Unpack data_object_image_2.zip and data_object_label_2.zip from "
    "https://www.cvlibs.net/datasets/kitti/eval_object.php into <data root>/Kitti/raw/, and put mapping/ of "
    "devkit_object.zip there too."
)
DESCRIPTION = "photographs of roads by the distance of the nearest vehicle, 4 classes, about 6,700 + 750"
SIDE, CHANNELS = 224, 3
OPTIONS = named.options(NAME, SIDE)
VEHICLES = ("Car", "Van", "Truck")
BOUNDS = (-100.0, 8.0, 20.0, 999.0)  # metres; VTAB's
NONE = 1000.0  # where there is no vehicle
CLASSES = ("below 8 m", "8 to 20 m", "above 20 m", "no vehicle")
TEST_SHARE = 0.1


def available(root: Path | None) -> bool:
    needed = ("training/image_2", "training/label_2", "mapping/train_mapping.txt", "mapping/train_rand.txt")
    return named.all_below(root, *(f"Kitti/raw/{name}" for name in needed))


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    return named.image_set(sys.modules[__name__], split, root=root, option=option, listed=_listed)


def _listed(split: str, root: Path) -> tuple[Source, Sequence[str]]:
    from torchvision.datasets import Kitti

    data = Kitti(root, train=True)
    drives = _drives(root / "Kitti" / "raw" / "mapping")
    order = sorted(range(len(data)), key=lambda i: str(data.images[i]))
    kept = [i for i in order if is_for_testing(drives[int(Path(data.images[i]).stem)]) == (split == "test")]
    paths = [Path(data.images[i]) for i in kept]
    return named.files(paths, [label(data._parse_target(i)) for i in kept]), CLASSES


def label(objects: Sequence[Mapping[str, Any]]) -> int:
    """Class of a frame with these objects: the last bound that lies below the smallest distance ahead."""
    nearest = min([NONE, *(thing["location"][2] for thing in objects if thing["type"] in VEHICLES)])
    return max(place for place, bound in enumerate(BOUNDS) if bound < nearest)


def is_for_testing(drive: str) -> bool:
    """Whether a drive is one of the tenth held out."""
    return int.from_bytes(hashlib.sha256(drive.encode()).digest()[:4], "big") < math.floor(TEST_SHARE * 2**32)


def _drives(folder: Path) -> list[str]:
    """The drive of every frame: line `train_rand[n]` of the mapping, counted from 1."""
    lines = (folder / "train_mapping.txt").read_text().splitlines()
    numbers = [int(number) for number in (folder / "train_rand.txt").read_text().replace(",", " ").split()]
    if not numbers or max(numbers) > len(lines) or min(numbers) < 1:
        raise UserError(f"{folder} does not say which drive each frame is from.", "Get the development kit again.")
    return [lines[number - 1].split()[1] for number in numbers]
