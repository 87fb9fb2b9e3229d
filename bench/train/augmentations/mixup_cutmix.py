"""Mixup or CutMix, each on half of the batches, computed by timm, with the strengths that DeiT uses (alpha = 0.8 and
1)."""

from bench.train.augmentations._mixed import mixing
from bench.train.augmentations.augmentation import Augmentation

AUGMENTATION = Augmentation(mixes=mixing(mixup_alpha=0.8, cutmix_alpha=1.0))
