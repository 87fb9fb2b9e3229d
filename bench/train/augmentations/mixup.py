"""Mixup (Zhang et al. 2018), computed by timm, with the strength that DeiT uses (alpha = 0.8)."""

from bench.train.augmentations._mixed import mixing
from bench.train.augmentations.augmentation import Augmentation

AUGMENTATION = Augmentation(mixes=mixing(mixup_alpha=0.8, cutmix_alpha=0.0))
