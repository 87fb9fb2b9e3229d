"""Counts the MACs of whatever runs under it, on any device (also "meta", where nothing is computed or allocated).

    with MacCounter(model) as counter:
        model(images)
    counter.total("paper")

It sees operations below autograd and torch's composite ones, so a fused attention kernel, an unfused one, and the meta
device give the same number. Recomputation and the backward pass are never counted: the backward pass follows from
which factors of each contraction want a gradient.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from bench.cost.formulas import FORMULAS, Work, convolution, is_uncounted_contraction, wants_grad

Pads = tuple[tuple[int, int], ...]


class MacCounter(TorchDispatchMode):
    """Forward MACs by module and operation.

    Attributes:
        by_module: convention -> {module's path: MACs run by that module itself, not by its children}. "" is the model.
        by_operation: convention -> {operation: MACs}.
        backward: convention -> MACs of the backward pass (first layers have no gradient of their input).

    Raises (inside the block):
        NotImplementedError: an operation that looks like a contraction and has no formula.
    """

    def __init__(self, model: nn.Module | None = None) -> None:
        super().__init__()
        self.by_module: dict[str, Counter[str]] = {"dense": Counter(), "paper": Counter()}
        self.by_operation: dict[str, Counter[str]] = {"dense": Counter(), "paper": Counter()}
        self.backward: dict[str, int] = {"dense": 0, "paper": 0}
        self._model = model
        self._path: list[str] = []
        self._padded: Any = WeakTensorKeyDictionary()  # tensor -> zeros that were put around it by F.pad
        self._exit = contextlib.ExitStack()
        self._depth = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch asks: whether to wrap what counts in what keeps the compiler out of it, which loads the compiler."""
        return False

    def total(self, convention: str) -> int:
        return sum(self.by_module[convention].values())

    def __enter__(self) -> MacCounter:
        self._depth += 1
        if self._depth == 1:  # it enters itself again to look inside composite operations
            self._prepare()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._depth -= 1
        if self._depth == 0:
            self._exit.close()

    def _prepare(self) -> None:
        # A compiled module would run kernels that no formula knows: make it run as written. Nothing is compiled where
        # the compiler is not loaded, and loading it takes as long as all of torch.
        if "torch._dynamo" in sys.modules:
            self._exit.enter_context(torch.compiler.set_stance("force_eager"))
        for name, module in self._model.named_modules() if self._model is not None else ():
            path = name.replace("_orig_mod.", "").replace("_orig_mod", "")
            enter = module.register_forward_pre_hook(lambda *_, path=path: self._path.append(path))
            leave = module.register_forward_hook(lambda *_: self._leave(), always_call=True)
            self._exit.callback(enter.remove)
            self._exit.callback(leave.remove)

    def _leave(self) -> None:
        self._path.pop()

    def __torch_dispatch__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = function.name().split(".")[0]
        if name in FORMULAS:
            self._add(name, FORMULAS[name](args))
            return function(*args, **kwargs)
        if function.namespace == "aten" and function._can_decompose():
            with self:  # a composite operation that autograd has not taken apart, as in inference mode
                result = function.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = function(*args, **kwargs)
        if name in ("aten::convolution", "aten::_convolution"):
            self._add(name, [self._convolution(args, result)])
        elif name == "aten::constant_pad_nd":
            self._remember_padding(args, result)
        elif is_uncounted_contraction(name):
            raise NotImplementedError(f"No formula for {name}: add one to bench/cost/formulas.py.")
        return result

    def _add(self, name: str, works: list[Work]) -> None:
        path = self._path[-1] if self._path else ""
        for work in works:
            for convention, macs in (("dense", work.dense), ("paper", work.paper)):
                self.by_module[convention][path] += macs
                self.by_operation[convention][name.removeprefix("aten::")] += macs
                self.backward[convention] += macs * work.needs_grad

    def _convolution(self, args: Sequence[Any], result: torch.Tensor) -> Work:
        image, weight, _, stride, padding, dilation, transposed = args[:7]
        axes = image.ndim - 2
        per_axis = [list(map(int, v)) * (axes if len(v) == 1 else 1) for v in (stride, padding, dilation)]
        size, outputs = list(map(int, image.shape[2:])), list(map(int, result.shape[2:]))
        before = per_axis[1]
        if transposed:
            size, outputs = outputs, size
        else:
            pads: Pads = self._padded.get(image, ((0, 0),) * axes)
            size = [s - front - back for s, (front, back) in zip(size, pads, strict=True)]
            before = [b + front for b, (front, _) in zip(before, pads, strict=True)]
        dense, paper = convolution(
            batch=int(image.shape[0]) if image.ndim == weight.ndim else 1,
            weight=tuple(map(int, weight.shape)),
            size=size,
            outputs=outputs,
            stride=per_axis[0],
            padding=before,
            dilation=per_axis[2],
        )
        return Work(dense, paper, wants_grad(image, weight))

    def _remember_padding(self, args: Sequence[Any], result: torch.Tensor) -> None:
        pads, value = list(map(int, args[1])), args[2] if len(args) > 2 else 0
        if value == 0 and result.ndim > 2 and min(pads, default=0) >= 0 and len(pads) <= 2 * (result.ndim - 2):
            last_first = list(zip(pads[::2], pads[1::2], strict=True))
            missing = result.ndim - 2 - len(last_first)
            self._padded[result] = ((0, 0),) * missing + tuple(reversed(last_first))
