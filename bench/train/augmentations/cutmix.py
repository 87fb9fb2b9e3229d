"""CutMix (Yun et al. 2019), computed by timm, with the strength that DeiT uses (alpha = 1)."""

from bench.train.augmentations._mixed import mixing
from bench.train.augmentations.augmentation import Augmentation

AUGMENTATION = Augmentation(mixes=mixing(mixup_alpha=0.0, cutmix_alpha=1.0))
