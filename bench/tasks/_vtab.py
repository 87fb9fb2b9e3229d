"""The tasks of VTAB and of the small one made from what ships in packages, by group: the one table of both.

Zhai et al. 2019 (arXiv:1910.04867), in the order of the paper's Table 9. Natural: photographs of things. Specialised:
taken with special equipment, from above or of the inside. Structured: the answer is about the scene, not its things.
"""

from __future__ import annotations

from collections.abc import Mapping

VTAB: Mapping[str, tuple[str, ...]] = {
    "natural": ("caltech101", "cifar100", "dtd", "flowers102", "pets", "sun397", "svhn"),
    "specialised": ("patch-camelyon", "eurosat", "resisc45", "retinopathy"),
    "structured": (
        "clevr-count", "clevr-distance", "dmlab", "dsprites-location", "dsprites-orientation", "kitti-distance",
        "smallnorb-azimuth", "smallnorb-elevation",
    ),
}  # fmt: skip

SMALL: Mapping[str, tuple[str, ...]] = {
    "natural": ("fashion-mnist", "mnist", "photo-tiles"),
    "specialised": ("terrain", "specimen-tiles"),
    "structured": ("shapes-count", "shapes-distance", "shapes-position", "shapes-orientation"),
}

# What mirroring or shifting would change the answer of: BiT's appendix F.
NO_FLIP = ("dsprites-orientation", "smallnorb-azimuth", "dsprites-location", "shapes-orientation", "shapes-position")
NO_SHIFT = ("clevr-count", "clevr-distance", "dmlab", "kitti-distance", "dsprites-location", "shapes-position")


def group_of(data: str) -> str | None:
    """The group of a data set's task; None for one that is in neither table."""
    for table in (VTAB, SMALL):
        for group, names in table.items():
            if _base(data) in names:
                return group
    return None


def may_shift(data: str) -> bool:
    """Whether shifting the images of a data set, stored at any size, leaves the answer as it is."""
    return _base(data) not in NO_SHIFT


def may_flip(data: str) -> bool:
    """Whether mirroring them does."""
    return _base(data) not in NO_FLIP


def _base(data: str) -> str:
    """The name without a size."""
    return data.partition(":")[0]


def names(table: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Every task of a table, in its order."""
    return tuple(name for group in table.values() for name in group)
