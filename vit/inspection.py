"""Inspect the weights and attention of a trained ViT, as in the ViT paper's section 4.5 and its appendices D.7 and D.8.

Attention weights are recomputed in forward hooks from each layer's queries and keys; the network itself computes its
output as always, with a fused kernel or without. Shapes: B images, H heads, N tokens, R rows and S columns of the grid,
P patches (R S), D width, C channels, K components.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from vit.layers import Attention


@contextmanager
def captured(model: nn.Module) -> Iterator[list[Tensor]]:
    """Yield a list to which, within the `with` block, every forward pass appends the attention weights_BHNN of each
    layer, in the order of layers. The model should be in eval mode."""
    weights: list[Tensor] = []

    @torch.no_grad()
    def keep(module: Any, args: tuple[Any, ...], _: Tensor) -> None:
        x_BND, relative = (*args, None)[:2]
        q_BHNE, k_BHNE, _ = module.project(x_BND)
        logits_BHNN = q_BHNE @ k_BHNE.transpose(-2, -1)
        if relative is not None:
            logits_BHNN = logits_BHNN + relative(q_BHNE)
        weights.append(logits_BHNN.softmax(-1).float().cpu())

    hooks = [module.register_forward_hook(keep) for module in model.modules() if isinstance(module, Attention)]
    try:
        yield weights
    finally:
        for hook in hooks:
            hook.remove()


def pixel_distances(grid: tuple[int, int], patch: tuple[int, int]) -> Tensor:
    """Return the distances in pixels between the centres of all pairs of patches, (P, P).

    Args:
        grid: number of rows and columns of patches.
        patch: height and width of a patch in pixels.
    """
    rows, columns = torch.meshgrid(*(torch.arange(n) * p for n, p in zip(grid, patch, strict=True)), indexing="ij")
    place_P2 = torch.stack([rows.flatten(), columns.flatten()], 1).double()
    return torch.cdist(place_P2, place_P2)


def attention_distance(weights_BHNN: Tensor, *, grid: tuple[int, int], patch: tuple[int, int]) -> Tensor:
    """Return for each head the mean distance in pixels between a query patch and the patches that it attends to,
    weighted by attention: (H,).

    The mean is over images and queries. A class token is left out as a query and as a key; the remaining weights of a
    query are scaled to sum to 1.

    Args:
        grid: number of rows and columns of patches.
        patch: height and width of a patch in pixels.
    """
    patches = grid[0] * grid[1]
    weights_BHPP = weights_BHNN[..., -patches:, -patches:].double()
    weights_BHPP = weights_BHPP / weights_BHPP.sum(-1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    return (weights_BHPP * pixel_distances(grid, patch)).sum(-1).mean((0, 2))


def rollout(layers: Sequence[Tensor], *, grid: tuple[int, int], cls: bool) -> Tensor:
    """Return the attention roll-out (Abnar & Zuidema 2020; the ViT paper's D.8): how much each patch contributes to the
    output, (B, R, S), summing to 1 over patches.

    For each layer the weights are averaged over heads, the identity is added for the residual connection, and rows are
    scaled to sum to 1; the layers' matrices are multiplied. The result is the class token's row of the product, or the
    mean over all rows if there is no class token.

    Args:
        layers: attention weights_BHNN of every layer, in order.
        grid: number of rows R and columns S of patches.
        cls: whether the first token is a class token.
    """
    joint_BNN = torch.eye(layers[0].shape[-1], dtype=torch.float64)
    for weights_BHNN in layers:
        mixed_BNN = weights_BHNN.double().mean(1) + torch.eye(weights_BHNN.shape[-1], dtype=torch.float64)
        joint_BNN = mixed_BNN / mixed_BNN.sum(-1, keepdim=True) @ joint_BNN
    read_BN = joint_BNN[:, 0] if cls else joint_BNN.mean(1)
    read_BP = read_BN[:, -grid[0] * grid[1] :]
    return (read_BP / read_BP.sum(-1, keepdim=True)).unflatten(1, grid)


def principal_components(filters_DCRS: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """Return the first `number` principal components of a layer's D filters, as images x_KCRS of unit norm, and the
    fraction of the filters' variance that each explains, (K,)."""
    flat = filters_DCRS.double().flatten(1)
    _, scale, components = torch.linalg.svd(flat - flat.mean(0), full_matrices=False)
    number = min(number, len(scale))
    # the sign of a component is arbitrary: make its largest entry positive
    sign = components.gather(1, components.abs().argmax(1, keepdim=True)).sign()
    shares = scale**2 / (scale**2).sum().clamp_min(torch.finfo(torch.float64).tiny)
    return (components * sign)[:number].reshape(number, *filters_DCRS.shape[1:]), shares[:number]


def first_filters(model: nn.Module) -> Tensor | None:
    """Return the weights of a model's first convolution, D filters x_DCRS: a ViT's patch embedding, or the stem of a
    ResNet or hybrid; None if the model has no convolution."""
    return next((m.weight.detach() for m in model.modules() if isinstance(m, nn.Conv2d)), None)


def position_similarity(table_PD: Tensor) -> Tensor:
    """Return the cosine similarity of all pairs of the patches' position embeddings, (P, P)."""
    unit_PD = nn.functional.normalize(table_PD.double(), dim=1)
    return unit_PD @ unit_PD.T


def positions_of(model: Any) -> Tensor | None:
    """Return the patches' position embeddings x_PD, from a ViT's first position table; None if the model has none."""
    if not len(getattr(model, "positions", ())):
        return None
    rows, columns = model.config.grid
    return model.positions[0]()[0, -rows * columns :].detach()
