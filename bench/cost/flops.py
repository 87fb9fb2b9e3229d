"""Count what a model costs: parameters, MACs, FLOPs and training memory, from shapes alone, for any model.

One MAC is 2 FLOPs. Training FLOPs per image are 6 x forward MACs: 2 FLOPs per MAC, and forward + backward = 3 forward
passes. This is the rule behind the ViT paper's exaFLOPs; unlike `backward_macs` it does not deduct the gradients of
their input, which first layers do not compute. Every count is given by two conventions: "dense" counts every tap
(position of the kernel) of a convolution at every output position, "paper" only taps that do not read padding.

The whole architecture is counted, as in publications. A ViT that pools by its class token executes less on a GPU or in
bfloat16: its last block computes only keys and values of the other tokens (ViT-S/16: 7 % less).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bench.core.errors import UserError

if TYPE_CHECKING:
    import torch
    from torch import nn

    from bench.cost.counter import MacCounter

CONVENTIONS = ("dense", "paper")  # the ways in which convolutions are counted: see bench/cost/counter.py
FLOPS_PER_MAC = 2
TRAIN_PER_FORWARD = 3  # cost of forward + backward, in forward passes
EXA = 1e18
NOT_BODY = (
    "head",
    "pre_logits",
    "embed.proj",
    "cls",
    "positions",
    "relatives",
    "pos_embed",
    "patch_embed.proj.",
    "reg_token",
    "dist_token",
    "mask_token",
)
"""Beginnings of the names of parameters that `params_body` excludes: first this project's names, then timm's."""

Options = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class ModuleCost:
    """Costs of one pass of a module over given inputs, as Python ints.

    Attributes:
        params: number of all parameters; shared ones count once.
        forward_macs: convention ("dense" or "paper", see above) -> MACs of one forward pass.
        backward_macs: convention -> MACs of one backward pass, which computes gradients of all that requires one.
        by_module: convention -> {module path: forward MACs run by that module itself, not its children}.
    """

    params: int
    forward_macs: Mapping[str, int]
    backward_macs: Mapping[str, int]
    by_module: Mapping[str, Mapping[str, int]] = field(repr=False)

    @property
    def forward_flops(self) -> dict[str, int]:
        """FLOPs of one forward pass, by convention ("dense" or "paper")."""
        return {c: FLOPS_PER_MAC * macs for c, macs in self.forward_macs.items()}

    @property
    def backward_flops(self) -> dict[str, int]:
        """Exact FLOPs of one backward pass, by convention ("dense" or "paper"): a little less than two forward
        passes."""
        return {c: FLOPS_PER_MAC * macs for c, macs in self.backward_macs.items()}


@dataclass(frozen=True, kw_only=True)
class ModelCost(ModuleCost):
    """Costs of one model for one image of a given size. A backward pass computes no gradient of the image.

    Attributes:
        image_size: pixels per side.
        params_body: number of parameters without the classifier (and its hidden layer) and the patch, position and
            class embeddings.
        num_features: width of the classifier's input.
        activation_bytes: bytes kept for the backward pass per image, in float32 and with fused attention (no N x N
            matrix for N tokens). None if they were not asked for.
    """

    model: str
    image_size: int
    channels: int
    num_classes: int
    params_body: int
    num_features: int
    activation_bytes: int | None = None

    @property
    def train_flops_per_image(self) -> dict[str, int]:
        """FLOPs of training on one image, 6 x forward MACs, by convention ("dense" or "paper")."""
        return {c: FLOPS_PER_MAC * TRAIN_PER_FORWARD * macs for c, macs in self.forward_macs.items()}


PRECOMPUTED: dict[tuple[str, int, int, int, Options], ModelCost] = {}
"""(model, image size, channels, classes, options) -> cost that another process counted, and that `count` returns: see
bench/cost/precomputed.py."""


@functools.lru_cache(maxsize=256)
def count(
    model_name: str,
    *,
    image_size: int,
    channels: int = 3,
    num_classes: int,
    model_options: Options = (),
    activations: bool = True,
) -> ModelCost:
    """Return what a registered model costs. It is counted on the meta device, which takes milliseconds to a second and
    allocates no weights.

    Args:
        image_size: pixels per side.
        model_options: (name, value) pairs for `bench.study.registry.build_model`.
        activations: whether to find `activation_bytes` too, which takes three forward passes instead of one.

    Raises:
        UserError: the model is unknown, cannot take this size, or runs a contraction without a formula.
    """
    from bench.study import registry

    registry.family_of(model_name)  # a wrong name is refused before torch is imported
    known = PRECOMPUTED.get((model_name, image_size, channels, num_classes, model_options))
    if known is not None and (known.activation_bytes is not None or not activations):
        return known
    registry.check_model(model_name)
    import torch

    from bench.cost.counter import NoFormula
    from bench.cost.memory import activation_bytes
    from bench.cost.shapes import KnownShapes
    from bench.cost.without_weights import looked_at

    def look(model: nn.Module, images: Callable[[int], torch.Tensor]) -> ModelCost:
        _check_contract(model, model_name)
        # A model without a classifier (raw pixels) has features only.
        run: Callable[..., Any] = model.features if isinstance(model.head, torch.nn.Identity) else model  # type: ignore
        with KnownShapes():
            counter = count_forward(model, images(1), run=run)
            kept = activation_bytes(model, images, run=run) if activations else None
        return ModelCost(
            **vars(_cost(model, counter)),
            model=model_name,
            image_size=image_size,
            channels=channels,
            num_classes=num_classes,
            params_body=sum(
                parameter.numel()
                for name, parameter in model.named_parameters()
                if not name.removeprefix("body.").startswith(NOT_BODY)
            ),
            num_features=int(model.num_features),  # type: ignore[arg-type]
            activation_bytes=kept,
        )

    sizes = {"image_size": image_size, "channels": channels, "num_classes": num_classes}
    try:
        return looked_at(model_name, look, **sizes, **dict(model_options))
    except NoFormula as error:
        raise UserError(
            f"Model {model_name!r} ({registry.source_of(model_name)}) cannot be counted: {error}",
            "Without it the operation's work would be missed. Other models of the study go on.",
        ) from error
    except (RuntimeError, TypeError, ValueError, AttributeError) as error:
        what = f"Model {model_name!r} ({registry.source_of(model_name)}) cannot be counted"
        raise UserError(
            f"{what}: {type(error).__name__}: {error}",
            "Its forward pass must run, on the meta device or on this machine's CPU.",
        ) from error


def count_module(module: nn.Module, *inputs: Any, **keywords: Any) -> ModuleCost:
    """Run `module(*inputs, **keywords)` once, and return what this pass costs; nothing is trained.

    Args:
        module: any module on any device; on "meta" nothing is computed, and no weights are allocated.

    Raises:
        NotImplementedError: the module runs a contraction that has no formula.
    """
    return _cost(module, count_forward(module, *inputs, **keywords))


def _cost(module: nn.Module, counter: MacCounter) -> ModuleCost:
    return ModuleCost(
        params=sum(parameter.numel() for parameter in module.parameters()),
        forward_macs=_freeze({c: counter.total(c) for c in CONVENTIONS}),
        backward_macs=_freeze(counter.backward),
        by_module=_freeze({c: _freeze(counter.by_module[c]) for c in CONVENTIONS}),
    )


def _check_contract(model: nn.Module, name: str) -> None:
    """Raise UserError if a model, called `name`, lacks a member that every command uses (`features`, `head` or
    `num_features`)."""
    from bench.study import registry

    missing = [member for member in ("num_features", "head", "features") if not hasattr(model, member)]
    if missing:
        raise UserError(
            f"Model {name!r} of {registry.source_of(name)} has no {', '.join(missing)}.",
            "A model has num_features (an int), head (its classifier), features(x_BCHW) and forward(x_BCHW): see "
            "CONTRIBUTING.md.",
        )


def count_forward(model: nn.Module, *inputs: Any, run: Callable[..., Any] | None = None, **keywords: Any) -> MacCounter:
    """Run `model(*inputs, **keywords)` once under a counter, and return the counter. The model may be on any device,
    compiled or not. `run` is a method of the model to be called instead of the model; None = the model."""
    import torch

    from bench.cost.counter import MacCounter

    # Gradients are on: without them torch may take a fused path that changes what is run (nn.MultiheadAttention).
    with torch.enable_grad(), MacCounter(model) as counter:
        (run or model)(*inputs, **keywords)
    return counter


def exaflops(cost: ModelCost, *, images_seen: float, convention: str = "paper") -> float:
    """Return the training compute of a model in 1e18 FLOPs. `images_seen` is the number of training images, where an
    image counts each time it is used; `convention` is "dense" or "paper"."""
    return cost.train_flops_per_image[convention] * images_seen / EXA


def _freeze(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(dict(values))
