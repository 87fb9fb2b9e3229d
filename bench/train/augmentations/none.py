"""No augmentation in addition to the recipe's shift, flip and crop."""

from bench.train.augmentations.augmentation import Augmentation

AUGMENTATION = Augmentation()
