"""Masked patch prediction, the ViT paper's preliminary self-supervision (sections 4.6 and B.1.2).

Half of an image's patch embeddings are corrupted: 80 % of these become a learned mask token, 10 % the embedding of
another patch of the image, and 10 % stay. For each corrupted patch the network predicts one of the three targets of
appendix B.1.2:

mean: the patch's mean colour in 3 bits per channel: 512 classes for RGB images; grey images have one channel, hence 8
levels of mean intensity. small: the mean colour of each of 4 x 4 parts of the patch, in parallel. pixels: all pixels of
the patch, with the squared error as loss.

Random numbers come from torch's default generator, which the training step seeds, as for dropout. Shapes: B images, C
channels, H and W pixels, N patches, M corrupted patches of an image, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

SHARE = 0.5  # fraction of the patches that are corrupted
MASKED, REPLACED = 0.8, 0.1  # fractions of these that become the mask token, and another patch; the rest stays
LEVELS = 8  # levels per colour channel: 3 bits
PARTS = {"mean": 1, "small": 4}  # target -> parts per side of a patch whose mean colour is predicted


class Regression(NamedTuple):
    """Predicted values and the target values, of equal shape; the loss is the squared error between them."""

    predicted: Tensor
    wanted: Tensor


@dataclass(frozen=True, kw_only=True)
class Picked:
    """The patches of each image that are corrupted.

    Attributes:
        index_BM: number of each corrupted patch within its image.
        draw_BM: a random number in [0, 1) for each corrupted patch, which decides how it is corrupted.
        other_BM: number of another patch of the same image, which may replace the corrupted patch.
    """

    index_BM: Tensor
    draw_BM: Tensor
    other_BM: Tensor


def num_colours(channels: int) -> int:
    """Return the number of colour classes for images of so many channels: 512 for RGB, 8 for grey images."""
    return LEVELS**channels


def outputs(target: str, *, channels: int, patch: tuple[int, int]) -> int:
    """Return the number of outputs that the head needs per patch.

    Args:
        target: "mean", "small" or "pixels": what is predicted of a patch.
        patch: height and width of a patch in pixels.
    """
    if target == "pixels":
        return channels * patch[0] * patch[1]
    return PARTS[target] ** 2 * num_colours(channels)


def judged(
    output_MK: Tensor, x_BCHW: Tensor, *, target: str, grid: tuple[int, int], picked: Picked
) -> tuple[Tensor, Tensor] | Regression:
    """Return the head's outputs together with the targets: (logits, classes) with a row for every predicted colour, or
    predicted and target pixels.

    Args:
        output_MK: the head's outputs, with a row for each corrupted patch of all images.
        x_BCHW: the uncorrupted images in [-1, 1].
        target: "mean", "small" or "pixels": what is predicted of a patch.
        grid: number of rows and columns of patches.
        picked: the corrupted patches.
    """
    if target == "pixels":
        rows, columns = grid
        height, width = x_BCHW.shape[2] // rows, x_BCHW.shape[3] // columns
        cut_BCRhSw = x_BCHW.float().unflatten(3, (columns, width)).unflatten(2, (rows, height))
        pixels_BNP = cut_BCRhSw.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
        return Regression(output_MK, _take(pixels_BNP, picked.index_BM).flatten(0, 1))
    parts = PARTS[target]
    classes_BNQ = colours(x_BCHW, grid, parts=parts)
    wanted_M = _take(classes_BNQ, picked.index_BM).flatten()
    return output_MK.reshape(len(wanted_M), num_colours(x_BCHW.shape[1])), wanted_M


def pick(batch: int, grid: tuple[int, int], *, device: torch.device) -> Picked:
    """Choose at random which patches of every image are corrupted, and how.

    Args:
        batch: number of images.
        grid: number of rows and columns of patches.

    Raises:
        ValueError: the grid has a single patch.
    """
    patches = grid[0] * grid[1]
    if patches < 2:
        raise ValueError("masked patch prediction needs at least two patches per image: use smaller patches")
    corrupted = max(1, round(SHARE * patches))
    index_BM = torch.rand(batch, patches, device=device).argsort(1)[:, :corrupted]
    draw_BM = torch.rand(batch, corrupted, device=device)
    step_BM = torch.randint(1, patches, (batch, corrupted), device=device)
    return Picked(index_BM=index_BM, draw_BM=draw_BM, other_BM=(index_BM + step_BM) % patches)


def corrupted(x_BND: Tensor, *, picked: Picked, mask_token: Tensor) -> Tensor:
    """Return the patch embeddings x_BND, in which those of the picked patches are corrupted: `picked.draw_BM` decides
    whether one becomes the mask token, becomes the embedding of another patch, or stays."""
    draw_BM1 = picked.draw_BM[..., None]
    new_BMD = torch.where(draw_BM1 < MASKED + REPLACED, _take(x_BND, picked.other_BM), of_picked(x_BND, picked))
    new_BMD = torch.where(draw_BM1 < MASKED, mask_token.to(x_BND.dtype), new_BMD)
    return x_BND.scatter(1, picked.index_BM[..., None].expand_as(new_BMD), new_BMD)


def of_picked(x_BND: Tensor, picked: Picked) -> Tensor:
    """Return the embeddings of the picked patches, x_BMD."""
    return _take(x_BND, picked.index_BM)


def colours(x_BCHW: Tensor, grid: tuple[int, int], *, parts: int = 1) -> Tensor:
    """Return the colour class of every part of every patch, long (B, N, parts²), of images in [-1, 1].

    A patch is divided into parts x parts. The class is the part's mean colour in LEVELS steps per channel, as a number
    whose highest digit is the first channel.

    Args:
        grid: number of rows and columns of patches.
    """
    rows, columns = grid
    mean_BCRS = F.adaptive_avg_pool2d(x_BCHW.float(), (rows * parts, columns * parts))
    level_BCRS = ((mean_BCRS + 1) * (LEVELS / 2)).floor().clamp(0, LEVELS - 1).long()
    place_C = LEVELS ** torch.arange(x_BCHW.shape[1] - 1, -1, -1, device=x_BCHW.device)
    class_BRS = (level_BCRS * place_C[:, None, None]).sum(1)
    class_BRqSq = class_BRS.unflatten(2, (columns, parts)).unflatten(1, (rows, parts))
    return class_BRqSq.transpose(2, 3).flatten(3).flatten(1, 2)


def _take(x_BND: Tensor, index_BM: Tensor) -> Tensor:
    return x_BND.gather(1, index_BM[..., None].expand(-1, -1, x_BND.shape[2]))
