"""KMNIST: 28 px grey cursive Japanese characters, 10 classes (Clanuwat et al., 2018, arXiv:1812.01718)."""

from __future__ import annotations

from pathlib import Path

from bench.core.errors import UserError
from bench.data.fetch import File
from bench.data.idx import find_pair, read_idx_pair
from bench.data.image_set import ImageSet

REVISION = 1
KIND = "handwriting"
LICENCE = "CC-BY-SA-4.0"
SOURCE = "https://github.com/rois-codh/kmnist (ROIS-CODH)"
HOW_TO_GET = (
    "Put the four IDX files of Kuzushiji-MNIST (train-images-idx3-ubyte.gz, …, from "
    "https://github.com/rois-codh/kmnist) into <data root>/kmnist/. "
    "Or run: python -m bench.data kmnist --download --data-root <data root>"
)
DESCRIPTION = "28 px scanned cursive Japanese characters, 10 classes, 60,000 + 10,000"
DOWNLOADS = tuple(  # checksums as torchvision pins them
    File(url=f"http://codh.rois.ac.jp/kmnist/dataset/kmnist/{name}", checksum=f"md5:{md5}", folder="kmnist")
    for name, md5 in (
        ("train-images-idx3-ubyte.gz", "bdb82020997e1d708af4cf47b453dcf7"),
        ("train-labels-idx1-ubyte.gz", "e144d726b3acfaa3e44228e80efcd344"),
        ("t10k-images-idx3-ubyte.gz", "5c965bf0a639b31b8f53240b1b52f4d7"),
        ("t10k-labels-idx1-ubyte.gz", "7320c461ea6c1c855c0b718fb2a4b134"),
    )
)
CLASSES = ("お o", "き ki", "す su", "つ tsu", "な na", "は ha", "ま ma", "や ya", "れ re", "を wo")


def available(root: Path | None) -> bool:
    return all(find_pair(_folders(root), split) for split in ("train", "test"))


def load(split: str, *, root: Path | None) -> ImageSet:
    pair = find_pair(_folders(root), split)
    if pair is None:
        raise UserError("Data set 'kmnist' is not on this machine.", HOW_TO_GET)
    images_NHWC, labels_N = read_idx_pair(*pair, num_classes=len(CLASSES))
    return ImageSet(
        name="kmnist",
        split=split,
        images_NHWC=images_NHWC,
        labels_N=labels_N,
        class_names=CLASSES,
        kind=KIND,
        source="IDX files",
    )


def _folders(root: Path | None) -> list[Path]:
    return [root / "kmnist", root / "KMNIST" / "raw"] if root else []
