"""Mixup (Zhang et al. 2018), computed by timm, at the strength that DeiT uses."""

from bench.train.augmentations._mixed import mixing
from bench.train.augmentations.augmentation import Augmentation

AUGMENTATION = Augmentation(mixes=mixing(mixup_alpha=0.8, cutmix_alpha=0.0))
