"""Published sizes of data sets that may not be on this machine, so that a study can be costed before they are fetched.

Splits are those that this project's sets use: training and validation images together, where both are published.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SIZES: Mapping[str, tuple[int, int, int]] = MappingProxyType(  # training images, test images, classes
    {
        "caltech101": (3_060, 6_084, 102),
        "cifar10": (50_000, 10_000, 10),
        "cifar100": (50_000, 10_000, 100),
        "clevr-count": (70_000, 15_000, 8),
        "clevr-distance": (70_000, 15_000, 6),
        "dmlab": (88_178, 22_735, 6),
        "dsprites-location": (663_552, 73_728, 16),
        "dsprites-orientation": (663_552, 73_728, 16),
        "dtd": (3_760, 1_880, 47),
        "eurosat": (21_600, 5_400, 10),
        "flowers102": (2_040, 6_149, 102),
        "imagenet": (1_281_167, 50_000, 1_000),
        "imagenet-21k": (14_094_722, 102_400, 21_843),
        "jft-300m": (303_000_000, 49_511, 18_291),
        "kitti-distance": (6_733, 748, 4),
        "patch-camelyon": (294_912, 32_768, 2),
        "pets": (3_680, 3_669, 37),
        "resisc45": (25_200, 6_300, 45),
        "retinopathy": (46_032, 42_670, 5),
        "smallnorb-azimuth": (24_300, 12_150, 18),
        "smallnorb-elevation": (24_300, 12_150, 9),
        "sun397": (87_003, 21_751, 397),
        "svhn": (73_257, 26_032, 10),
    }
)
