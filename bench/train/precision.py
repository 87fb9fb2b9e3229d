"""The numerical precision of training.

Weights, optimizer state, accumulated gradients, the loss and weight standardisation are float32 everywhere. In
"bfloat16" the network computes with a copy of its weights that is made once per step, and not with a cast before every
operation as under autocast; activations, and with them the residual stream, are bfloat16. LayerNorm, GroupNorm and
softmax have bfloat16 inputs and outputs, but sum in float32 (torch's kernels do). No loss scaling is needed: bfloat16
has float32's exponent. Probes are float64.

"auto" means bfloat16 on a GPU that computes in it (NVIDIA's since Ampere). On a CPU it means bfloat16 where that is
faster: the processor multiplies bfloat16 in hardware, and most weights are in matrix products or convolutions at least
MIN_COLUMNS wide. The narrow models of the `cpu` scale spend their time elsewhere and stay float32.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from bench.core.errors import UserError
from vit.layers import scaled

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
MIN_COLUMNS = 192  # columns of a matrix product (channels of a convolution) from which bfloat16 is faster on a CPU


def set_up(*, threads: int) -> None:
    """Set this process's number of threads, and make float32 mean float32 on a GPU: by default torch rounds the inputs
    of convolutions there to TF32, but not those of matrix products. For each shape, convolutions use the fastest
    algorithm."""
    torch.set_num_threads(threads)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = True


def resolve(dtype: str, device: str, model: nn.Module | None = None) -> str:
    """Return the dtype in which a model is trained on a device, a key of DTYPES.

    Args:
        dtype: "auto", or a key of DTYPES.
        model: the model; None makes "auto" choose a dtype that suits every model.

    Raises:
        UserError: the dtype is unknown.
    """
    if dtype == "auto":
        fast = (
            torch.cuda.is_bf16_supported(including_emulation=False)  # before Ampere it is slower than float32
            if device.startswith("cuda")
            else device == "cpu" and multiplies_bfloat16() and model is not None and mostly_wide(model)
        )
        return "bfloat16" if fast else "float32"
    if dtype not in DTYPES:
        raise UserError(f"Unknown dtype {dtype!r}.", f"Allowed: auto, {', '.join(DTYPES)}.")
    return dtype


def multiplies_bfloat16() -> bool:
    """Return whether this CPU has matrix or dot-product units for bfloat16 (AMX, AVX512-BF16)."""
    checks = (getattr(torch.cpu, f"_is_{name}_supported", bool) for name in ("amx_tile", "avx512_bf16"))
    return any(check() for check in checks)


def mostly_wide(model: nn.Module) -> bool:
    """Return whether most of a model's weights belong to linear layers or convolutions with at least MIN_COLUMNS inputs
    and outputs."""
    products = (m.weight for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d))
    wide = sum(weight.numel() for weight in products if min(weight.shape[:2]) >= MIN_COLUMNS)
    return 2 * wide > sum(p.numel() for p in model.parameters())


def autocast(dtype: str, device: str) -> contextlib.AbstractContextManager:
    """Return a context manager for forward passes in `dtype`, a key of DTYPES, that casts the float32 weights at each
    operation, as is usual where inference is timed."""
    if dtype == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device.split(":")[0], dtype=DTYPES[dtype])


class Input(nn.Module):
    """A module that converts uint8 pixels in [0, 255], or images in [-1, 1], to images in [-1, 1] in a dtype; both are
    x_BCHW."""

    compiles_alone = True

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return scaled(x_BCHW).to(self.dtype)


class Working:
    """The network that a training step computes with: the model itself, or its copy in lower precision.

    One step is `refresh()`, then for every micro-batch a call, a backward pass and `collect()`.

    Args:
        model: the model whose weights are trained; its buffers, and weights that stay float32, are shared with the
            copy.
        dtype: a key of DTYPES.
        apart: whether the network must be another object than the model also in float32, so that compiling it does not
            change how the model is evaluated.
    """

    def __init__(self, model: nn.Module, dtype: str, *, apart: bool = False) -> None:
        self.model, self.dtype = model, DTYPES[dtype]
        self.input: Callable[[Tensor], Tensor] = Input(self.dtype)
        self.network, self.weights, self.copies = model, list[Tensor](), list[Tensor]()
        # pairs of a weight and the tensor whose `.grad` the backward pass fills: the weight itself, or its copy
        self.pairs: list[tuple[Tensor, Tensor]] = [(p, p) for p in model.parameters()]
        self.keeps_gradients = True  # False where a CUDA graph will write the next gradients to the same memory
        self.sums: dict[int, Tensor] = {}  # number of a weight -> its accumulated gradient, allocated once
        self._twin: nn.Module | None = None  # the copy, which follows the model between training and eval mode
        if self.dtype == torch.float32:
            if apart:
                tensors = (*model.parameters(), *model.buffers())
                self._twin = self.network = copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
            return
        kept = {id(p) for m in model.modules() if stays_float32(m) for p in m.parameters(recurse=False)}
        shared = [*model.buffers(), *(p for p in model.parameters() if id(p) in kept)]
        self._twin = self.network = copy.deepcopy(model, {id(tensor): tensor for tensor in shared})
        self.pairs = list(zip(model.parameters(), self.network.parameters(), strict=True))
        for weight, twin in ((w, t) for w, t in self.pairs if w is not t and w.is_floating_point()):
            twin.data, twin.grad = twin.data.to(self.dtype), None
            self.weights.append(weight)
            self.copies.append(twin)

    @torch.no_grad()
    def refresh(self) -> None:
        """Copy the model's present weights to its copy in lower precision, and drop gradients that were not
        collected."""
        if self.copies:
            torch._foreach_copy_(self.copies, self.weights)
        if self._twin is not None and self._twin.training != self.model.training:
            self._twin.train(self.model.training)
        for twin in self.copies:
            twin.grad = None

    def leaves(self) -> list[Tensor]:
        """Return the tensors whose `.grad` the backward pass fills: the model's weights, or their copies in lower
        precision."""
        return [leaf for _, leaf in self.pairs]

    def __call__(self, x_BCHW: Tensor) -> Tensor:
        """Return the network's output, in `dtype`, for x_BCHW: images in [-1, 1] or uint8 pixels."""
        return self.network(self._input(x_BCHW))

    def _input(self, x_BCHW: Tensor) -> Tensor:
        return x_BCHW if getattr(self.network, "takes_pixels", False) else self.input(x_BCHW)

    @torch.no_grad()
    def collect(self, *, last: bool = True) -> None:
        """Add the gradients computed since the last call to the `.grad` of the model's weights, in float32.

        Args:
            last: whether this is the last call in this step.
        """
        fresh, gradients = list[Tensor](), list[Tensor]()
        for place, (weight, leaf) in enumerate(self.pairs):
            if (gradient := leaf.grad) is None:
                continue
            if leaf is weight and (self.keeps_gradients or last or gradient is self.sums.get(place)):
                continue
            if leaf is weight or weight.grad is None:
                if place not in self.sums:
                    self.sums[place] = torch.empty_like(gradient, dtype=weight.dtype)
                weight.grad = self.sums[place]
                fresh.append(weight.grad)
                gradients.append(gradient)
            else:
                weight.grad.add_(gradient)
            if leaf is not weight:
                leaf.grad = None
        if fresh:
            torch._foreach_copy_(fresh, gradients)  # few launches on a GPU; one per tensor could take as long as a step


class Cast(nn.Module):
    """A network that computes in lower precision but as a function of its float32 weights, so that their gradients, and
    the sums over micro-batches, are float32 too.

    Args:
        network: a network with float32 weights.
        dtype: a key of DTYPES.
    """

    def __init__(self, network: nn.Module, dtype: str) -> None:
        super().__init__()
        self.network, self.dtype = network, DTYPES[dtype]
        exact = {id(p) for m in network.modules() if stays_float32(m) for p in m.parameters(recurse=False)}
        low = self.dtype != torch.float32
        self.low = [n for n, p in network.named_parameters() if low and p.is_floating_point() and id(p) not in exact]

    def forward(self, x_BCHW: Tensor) -> Tensor:
        if not self.low:
            return self.network(x_BCHW)
        weights = {name: self.network.get_parameter(name).to(self.dtype) for name in self.low}
        return torch.func.functional_call(self.network, weights, (x_BCHW,))


class SharedWorking(Working):
    """The network of a training step on one of several ranks (processes), which average their gradients.

    Args:
        model, dtype, apart: see `Working`.
        share: network -> module that computes the same, and averages the gradients of the weights over the ranks.
    """

    def __init__(self, model: nn.Module, dtype: str, *, apart: bool, share: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__(model, "float32", apart=apart)
        self.dtype = DTYPES[dtype]
        self.input = Input(self.dtype)
        self.shared = share(Cast(self.network, dtype))

    def __call__(self, x_BCHW: Tensor) -> Tensor:
        return self.shared(self._input(x_BCHW))


def stays_float32(module: nn.Module) -> bool:
    """Return whether a module's own weights stay float32: those of batch normalisation, and those that are standardised
    before use."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm) or getattr(module, "standardises_weight", False)
