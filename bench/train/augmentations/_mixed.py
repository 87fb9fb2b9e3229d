"""Mix pairs of images of a batch, and their labels, by timm's `Mixup`, with one mixing ratio for the whole batch as in
timm's training script."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bench.core.errors import UserError
from bench.study.cell import Recipe

if TYPE_CHECKING:
    from torch import Tensor

Mixes = Callable[[Recipe, "Tensor", "Tensor", int], tuple["Tensor", "Tensor"]]


def mixing(*, mixup_alpha: float, cutmix_alpha: float) -> Mixes:
    """Return a function for `Augmentation.mixes`: it mixes the images and labels of a batch by Mixup, CutMix or, batch
    by batch at random, one of both. It does no label smoothing, because the loss does that.

    Args:
        mixup_alpha, cutmix_alpha: parameters of the Beta distributions of the mixing ratio; 0 leaves a method out.
    """
    return partial(_mixed, mixup_alpha=mixup_alpha, cutmix_alpha=cutmix_alpha)


def _mixed(
    recipe: Recipe, x_BCHW: Tensor, labels_B: Tensor, num_classes: int, *, mixup_alpha: float, cutmix_alpha: float
) -> tuple[Tensor, Tensor]:
    from timm.data import Mixup

    if recipe.batch % 2:
        raise UserError(f"{recipe.augmentation} mixes pairs of a batch, and {recipe.batch} is odd.", "Set batch even.")
    mixup = Mixup(mixup_alpha=mixup_alpha, cutmix_alpha=cutmix_alpha, label_smoothing=0.0, num_classes=num_classes)
    mixed: tuple[Tensor, Tensor] = mixup(x_BCHW.clone(), labels_B)
    return mixed
