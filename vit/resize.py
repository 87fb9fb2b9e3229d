"""Fitting pre-trained weights to another image or patch size.

Shapes: N tokens, D width, O and I channels of a convolution, P and Q the old and the new kernel's sides.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def resize_grid(table_1ND: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Interpolate a position table from one grid of tokens to another: (1, N_old, D) -> (1, N_new, D).

    Bilinear with the corners aligned, which is what the official code's `scipy.ndimage.zoom(..., order=1)` computes
    (vit_jax/checkpoint.py). timm aligns pixel areas instead and differs visibly. Computed in float64.
    """
    if old == new:
        return table_1ND
    grid_1DRS = table_1ND.double().reshape(1, *old, -1).permute(0, 3, 1, 2)
    grid_1DRS = F.interpolate(grid_1DRS, size=new, mode="bilinear", align_corners=True)
    return grid_1DRS.flatten(2).transpose(1, 2).to(table_1ND.dtype)


def grid_of(num_tokens: int, hint: tuple[int, int] | None, target: tuple[int, int]) -> tuple[int, int]:
    """The grid a table of `num_tokens` rows was made for: the hint, the target if it has as many tokens, else a square.

    Raises:
        ValueError: none of the three fits.
    """
    if hint is not None:
        if hint[0] * hint[1] != num_tokens:
            raise ValueError(f"source_grid {hint} has {hint[0] * hint[1]} tokens, the checkpoint {num_tokens}")
        return hint
    if target[0] * target[1] == num_tokens:
        return target
    side = math.isqrt(num_tokens)
    if side * side != num_tokens:
        raise ValueError(
            f"a position table of {num_tokens} rows is not of a square grid: pass source_grid=(rows, columns)"
        )
    return side, side


def resize_patch_kernel(kernel_OIPP: Tensor, new: tuple[int, int]) -> Tensor:
    """Resize a patch embedding so that resized patches keep their embeddings (FlexiViT, section 3.4).

    Patches are thought to be resized by bilinear interpolation x -> B x; the kernel becomes pinv(B^T) w, which leaves
    <x, w> unchanged when the patch grows. Computed in float64.
    """
    old = (kernel_OIPP.shape[2], kernel_OIPP.shape[3])
    if old == new:
        return kernel_OIPP
    basis = torch.eye(old[0] * old[1], dtype=torch.float64, device=kernel_OIPP.device).reshape(-1, 1, *old)
    resized = F.interpolate(basis, size=new, mode="bilinear", align_corners=False)
    solve_QP = torch.linalg.pinv(resized.flatten(1))
    flat_OIP = kernel_OIPP.double().flatten(2)
    return (flat_OIP @ solve_QP.t()).reshape(*kernel_OIPP.shape[:2], *new).to(kernel_OIPP.dtype)
