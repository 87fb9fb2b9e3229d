"""CLEVR's scenes (Johnson et al., 2017, arXiv:1612.06890): images with what is in them, for VTAB's two tasks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.data import named
from bench.data.fetch import File
from bench.data.formats._source import Source

FOLDER = "clevr/CLEVR_v1.0"  # as torchvision unpacks it
HOW_TO_GET = (
    "Unpack CLEVR_v1.0.zip from https://cs.stanford.edu/people/jcjohns/clevr into <data root>/clevr/. "
    "Or run: python -m bench.data clevr-count --download --data-root <data root>"
)
DOWNLOADS = (  # checksums as torchvision pins them
    File(
        url="https://dl.fbaipublicfiles.com/clevr/CLEVR_v1.0.zip",
        checksum="md5:b11922020e72d0cd9154779b2d3d07d2",
        folder="clevr",
        makes=("CLEVR_v1.0",),
    ),
)
PARTS = {"train": "train", "test": "val"}  # the published test part has no scenes; VTAB judges on "val"


def available(root: Path | None) -> bool:
    return named.all_below(root, *(f"{FOLDER}/scenes/CLEVR_{part}_scenes.json" for part in PARTS.values()))


def listed(split: str, root: Path, *, label: Callable[[Sequence[dict[str, Any]]], int]) -> Source:
    """The images of a split, labelled by `label(objects of the scene)`."""
    part = PARTS[split]
    with open(root / FOLDER / "scenes" / f"CLEVR_{part}_scenes.json", encoding="utf-8") as file:
        scenes = json.load(file)["scenes"]
    scenes.sort(key=lambda scene: scene["image_filename"])
    folder = root / FOLDER / "images" / part
    paths = [folder / Path(scene["image_filename"]).name for scene in scenes]
    return named.files(paths, [label(scene["objects"]) for scene in scenes])
