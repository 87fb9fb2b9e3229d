"""The weights and attention of a trained ViT: the paper's section 4.5 and appendices D.7 and D.8, as numbers.

Attention weights are recomputed from a block's queries and keys while hooks are set; the network computes as always,
by whatever kernel it uses. Shapes: B images, H heads, N tokens, R rows and S columns of the grid, P patches (R S), D
width, C channels, K components.
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
    """Inside, every forward pass adds the attention weights_BHNN of its layers to the list, in the order in which they
    compute. For test mode."""
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
    """Distances between the centres of all pairs of patches in pixels, (P, P)."""
    rows, columns = torch.meshgrid(*(torch.arange(n) * p for n, p in zip(grid, patch, strict=True)), indexing="ij")
    place_P2 = torch.stack([rows.flatten(), columns.flatten()], 1).double()
    return torch.cdist(place_P2, place_P2)


def attention_distance(weights_BHNN: Tensor, *, grid: tuple[int, int], patch: tuple[int, int]) -> Tensor:
    """Mean distance in pixels between a query patch and what it attends to, weighted by attention: one per head, (H,).

    Mean over images and queries. A class token is left out: as a query, and as a key, where the other weights of its
    query are scaled to sum to 1.
    """
    patches = grid[0] * grid[1]
    weights_BHPP = weights_BHNN[..., -patches:, -patches:].double()
    weights_BHPP = weights_BHPP / weights_BHPP.sum(-1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    return (weights_BHPP * pixel_distances(grid, patch)).sum(-1).mean((0, 2))


def rollout(layers: Sequence[Tensor], *, grid: tuple[int, int], cls: bool) -> Tensor:
    """Attention roll-out (Abnar & Zuidema 2020; the paper's D.8): how much each patch enters the output, (B, R, S).

    Per layer: the mean over heads, the identity added for the residual connection, rows scaled to sum to 1; the product
    over layers. Read at the class token, or at the mean over patches where those are averaged; sums to 1 over patches.

    Args:
        layers: weights_BHNN of every layer, the first first.
        cls: whether the first token is a class token, which is read.
    """
    joint_BNN = torch.eye(layers[0].shape[-1], dtype=torch.float64)
    for weights_BHNN in layers:
        mixed_BNN = weights_BHNN.double().mean(1) + torch.eye(weights_BHNN.shape[-1], dtype=torch.float64)
        joint_BNN = mixed_BNN / mixed_BNN.sum(-1, keepdim=True) @ joint_BNN
    read_BN = joint_BNN[:, 0] if cls else joint_BNN.mean(1)
    read_BP = read_BN[:, -grid[0] * grid[1] :]
    return (read_BP / read_BP.sum(-1, keepdim=True)).unflatten(1, grid)


def principal_components(filters_DCRS: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The first principal components of a layer's filters as unit images x_KCRS, and their shares of the variance."""
    flat = filters_DCRS.double().flatten(1)
    _, scale, components = torch.linalg.svd(flat - flat.mean(0), full_matrices=False)
    number = min(number, len(scale))
    # a component has no sign: its largest entry is made positive
    sign = components.gather(1, components.abs().argmax(1, keepdim=True)).sign()
    shares = scale**2 / (scale**2).sum().clamp_min(torch.finfo(torch.float64).tiny)
    return (components * sign)[:number].reshape(number, *filters_DCRS.shape[1:]), shares[:number]


def first_filters(model: nn.Module) -> Tensor | None:
    """Weights of the first convolution, x_DCRS: a ViT's patch embedding, the stem of a ResNet or hybrid."""
    return next((m.weight.detach() for m in model.modules() if isinstance(m, nn.Conv2d)), None)


def position_similarity(table_PD: Tensor) -> Tensor:
    """Cosine similarity of all pairs of position embeddings, (P, P)."""
    unit_PD = nn.functional.normalize(table_PD.double(), dim=1)
    return unit_PD @ unit_PD.T


def positions_of(model: Any) -> Tensor | None:
    """The patches' position embeddings x_PD, of the first table; None where there is none."""
    if not len(getattr(model, "positions", ())):
        return None
    rows, columns = model.config.grid
    return model.positions[0]()[0, -rows * columns :].detach()
