"""Names of the rows of `bench.data.public`, and numbers of images of the sets that the ViT paper (arXiv:2010.11929)
pre-trains on, available without importing the table.

tests/data/test_public.py compares both with the table.
"""

from __future__ import annotations

VTAB = (  # Zhai et al., 2019: the nineteen tasks
    *("caltech101", "cifar100", "clevr-count", "clevr-distance", "dmlab", "dsprites-location", "dsprites-orientation"),
    *("dtd", "eurosat", "flowers102", "kitti-distance", "patch-camelyon", "pets", "resisc45", "retinopathy"),
    *("smallnorb-azimuth", "smallnorb-elevation", "sun397", "svhn"),
)
OTHERS = (
    *("aircraft", "cars", "cifar10", "emnist", "food101", "imagenet", "imagenet-21k", "jft-300m", "kmnist", "stl10"),
)
PUBLIC_SETS = (*OTHERS, *VTAB, *(f"{kind}-{name}" for kind in ("vtab", "vtab1k") for name in VTAB))
UPSTREAM_IMAGES = {"imagenet": 1_281_167, "imagenet-21k": 14_094_722, "jft-300m": 303_000_000}
"""Number of training images of each of the paper's three upstream sets."""
