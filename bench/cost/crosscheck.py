"""Compare our count of a forward pass with those of torch's flop counter and of fvcore, by kind of operation.

All three count contractions (convolutions, matrix products, attention). fvcore counts a multiply-accumulate (MAC) as
one "flop" and adds norms, pooling and resizing. It has no formula for fused attention, and one is added here. torch
counts two FLOPs per MAC.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bench.cost.counter import is_uncounted_contraction
from bench.cost.flops import FLOPS_PER_MAC, Options, count_forward
from bench.cost.without_weights import looked_at

KINDS = {
    "convolutions": ("conv", "convolution"),
    "linear layers": ("linear", "addmm", "mm", "addmv", "mv"),
}
PRODUCTS = "attention and other products"
COUNT_TOLERANCE = 1e-3  # largest relative difference of counts that agree: some leave out matrix-vector products
ATTENTION = "scaled_dot_product_attention"
FVCORE_ONLY = {
    "layer_norm": "5 per element",
    "group_norm": "5 per element",
    "instance_norm": "5 per element",
    "batch_norm": "2 per element, 5 in training",
    "adaptive_avg_pool2d": "1 per element",
    "upsample_nearest2d": "1 per element",
    "upsample_bilinear2d": "4 per element",
    "grid_sampler": "4 per element",
}
"""Operation that fvcore counts although it is no contraction -> its rule: operations per element."""


@dataclass(frozen=True, kw_only=True)
class Crosscheck:
    """MACs of one forward pass by three counters. Taps of convolutions that read padding count too ("dense").

    Attributes:
        ours: kind of operation (a key of KINDS, or PRODUCTS) -> MACs by our counter.
        torch: kind of operation -> MACs by torch's flop counter.
        fvcore: kind of operation -> MACs by fvcore, with a formula for fused attention.
        beyond: operator that is no contraction -> fvcore's count.
        fused_attention: the part of `fvcore`'s MACs that is counted by the formula added here.
        without_formula: operator that fvcore has no formula for -> number of its calls.
        by_module: module's path -> fvcore's count of the module with all of its children, norms and pooling included;
            "" is the model.
        params: module's path -> number of its parameters, by fvcore.
        why_not: why fvcore could not trace the model; "" if it could.
    """

    ours: Mapping[str, int]
    torch: Mapping[str, int]
    fvcore: Mapping[str, int]
    beyond: Mapping[str, int]
    fused_attention: int
    without_formula: Mapping[str, int]
    by_module: Mapping[str, int]
    params: Mapping[str, int]
    why_not: str = ""

    @property
    def torch_agrees(self) -> bool:
        return self._agrees(self.torch)

    @property
    def fvcore_agrees(self) -> bool | None:
        """Whether fvcore's count equals ours, up to COUNT_TOLERANCE; None if fvcore could not trace the model."""
        return None if self.why_not else self._agrees(self.fvcore)

    def _agrees(self, theirs: Mapping[str, int]) -> bool:
        return math.isclose(sum(self.ours.values()), sum(theirs.values()), rel_tol=COUNT_TOLERANCE)

    @property
    def differs(self) -> bool:
        """Whether the count of torch or of fvcore differs from ours. fvcore is ignored if it could not trace the
        model."""
        return not self.torch_agrees or self.fvcore_agrees is False

    @property
    def missed(self) -> tuple[str, ...]:
        """Names of contractions that fvcore has no formula for, and for which none is added here."""
        return tuple(name for name in self.without_formula if is_uncounted_contraction(name))

    def sentence(self) -> str:
        """Return one line of text that says whether the counters of torch and fvcore agree with ours."""
        names = {"torch's counter": self.torch_agrees, "fvcore": self.fvcore_agrees}
        words = {True: "agrees", False: "DIFFERS", None: f"cannot trace the model ({self.why_not})"}
        return "; ".join(f"{name} {words[agrees]}" for name, agrees in names.items())


def crosscheck(
    model_name: str, *, image_size: int, channels: int, num_classes: int, model_options: Options = ()
) -> Crosscheck:
    """Count one forward pass of a registered model with all three counters. fvcore takes as long as such a pass on a
    CPU.

    Args:
        model_options: (name, value) pairs for `bench.study.registry.build_model`.

    Raises:
        UserError: the model is unknown, or cannot take this size.
    """
    sizes = {"image_size": image_size, "channels": channels, "num_classes": num_classes}
    return looked_at(model_name, lambda model, images: compare(model, images(1)), **sizes, **dict(model_options))


def compare(model: nn.Module, images: torch.Tensor) -> Crosscheck:
    """Count one forward pass of a model in eval mode on `images` with all three counters. The model's parameters are
    replaced by zeros (see `weightless`)."""
    run: Any = model.features if isinstance(getattr(model, "head", None), torch.nn.Identity) else model
    ours = count_forward(model, images, run=run).by_operation["dense"]
    theirs = torch_by_operation(run, images)
    weightless(model)
    analysis, why_not = analysis_of(model, torch.zeros(images.shape)), ""
    by_operator: dict[str, int] = {}
    try:
        by_operator = dict(analysis.by_operator())
    except Exception as error:  # the tracer can fail on anything that the model does
        why_not = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    return Crosscheck(
        ours=by_kind(ours),
        torch=by_kind(theirs),
        fvcore=by_kind({name: macs for name, macs in by_operator.items() if name not in FVCORE_ONLY}),
        beyond={name: macs for name, macs in by_operator.items() if name in FVCORE_ONLY},
        fused_attention=by_operator.get(ATTENTION, 0),
        without_formula={} if why_not else dict(analysis.unsupported_ops()),
        by_module={} if why_not else dict(analysis.by_module()),
        params=dict(_fvcore().parameter_count(model)),
        why_not=why_not,
    )


def by_kind(by_operation: Mapping[str, int]) -> dict[str, int]:
    """Sum operation -> MACs over the operations of each kind; return kind (a key of KINDS, or PRODUCTS) -> MACs, with
    an entry for every kind."""
    kinds = {name: kind for kind, names in KINDS.items() for name in names}
    counted = Counter(dict.fromkeys((*KINDS, PRODUCTS), 0))
    for name, macs in by_operation.items():
        counted[kinds.get(name, PRODUCTS)] += int(macs)
    return dict(counted)


class _Whole:
    """A substitute for the module tracker of torch's flop counter. It treats the whole model as one module. The
    original takes longer than the counting itself, and fails if a module is called with a parameter as its argument."""

    parents = frozenset(("Global",))

    def __enter__(self) -> _Whole:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def torch_by_operation(run: Callable[[torch.Tensor], Any], images: torch.Tensor) -> dict[str, int]:
    """Return the MACs of a forward pass, `run(images)`, by torch's own flop counter: operation -> MACs."""
    from torch.utils.flop_counter import FlopCounterMode

    counter: Any = FlopCounterMode(display=False)
    counter.mod_tracker = _Whole()
    with torch.enable_grad(), counter:
        run(images)
    counts = counter.get_flop_counts().get("Global", {})
    return {str(operation).removeprefix("aten."): int(flops) // FLOPS_PER_MAC for operation, flops in counts.items()}


def analysis_of(model: nn.Module, images: torch.Tensor) -> Any:
    """Return fvcore's `FlopCountAnalysis` of a model on `images`, with a formula for fused attention added, and with
    fvcore's warnings turned off."""
    analysis = _fvcore().FlopCountAnalysis(model, images).set_op_handle(f"aten::{ATTENTION}", _fused_attention)
    return analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")


def _fvcore() -> Any:
    """Import `fvcore.nn`, and return it. Its warnings, about torch's deprecations and about operations that it does not
    count, are turned off."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import fvcore.nn
    logging.getLogger("fvcore").setLevel(logging.ERROR)
    return fvcore.nn


def _fused_attention(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Return the MACs of fused attention, i.e. of q k^T and of the product with v, given the traced values of q, k and
    v first among `inputs`. fvcore calls this unit flops."""
    q, k, v = (value.type().sizes() for value in inputs[:3])
    return math.prod(q[:-1]) * k[-2] * (q[-1] + v[-1])


def weightless(model: nn.Module) -> None:
    """Replace every parameter and buffer of a model, and every other meta tensor that a module keeps (such as a table
    of positions), by a single zero on the CPU that is expanded to its shape.

    fvcore traces tensors that have values, and those of large models take gigabytes; an expanded zero takes none.
    Parameters require gradients, because otherwise torch fuses operations into ones that fvcore has no formula for.
    """

    def zeros(tensor: torch.Tensor) -> torch.Tensor:
        return torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)

    for module in model.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                module._parameters[name] = torch.nn.Parameter(zeros(parameter))
        for name, buffer in list(module._buffers.items()):
            if buffer is not None:
                module._buffers[name] = zeros(buffer)
        for name, kept in list(vars(module).items()):
            if isinstance(kept, torch.Tensor) and kept.is_meta:
                setattr(module, name, zeros(kept))
