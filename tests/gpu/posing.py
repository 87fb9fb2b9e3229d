"""A CPU that poses as two CUDA devices: every branch for them runs, on tensors that are on the CPU.

`posing()` does so in this process; `environment()` is for processes that it starts: their Python finds `site/` first
and poses from its beginning. Compiling is left out (`Module.compile` does nothing); CUDA graphs are recorded and
replayed, operator by operator, at the addresses that they were recorded at.

It refuses as real ones do: to be waited for in a recording, or where `set_sync_debug_mode` forbids it; `posing(Apple)`
has neither float64 nor operations on many tensors at once; `posing(Forked)` serves no process that was forked from its
own.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

NAME, COUNT, MEMORY = "NVIDIA H100 80GB HBM3", 2, 80 << 30
PROPERTIES = types.SimpleNamespace(name=NAME, major=9, minor=0, total_memory=MEMORY, multi_processor_count=132)


def environment() -> dict[str, str]:
    """Variables under which every Python that is started poses, and records what can be, unless told otherwise."""
    here = Path(__file__).resolve().parent
    paths = (str(here / "site"), str(here.parent.parent), os.environ.get("PYTHONPATH"))
    asked = os.environ.get("VIT_BENCH_COMPILE", "reduce-overhead")
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "VIT_BENCH_COMPILE": asked}


# -- devices -----------------------------------------------------------------------------------------------------------


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type in ("cuda", "mps"):
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and value.partition(":")[0] in ("cuda", "mps") else value


class Redirect(TorchFunctionMode):
    """Tensors that are asked for on CUDA are made on the CPU."""

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not torch.device:  # a name, under which nothing is made
            args, kwargs = tree_map(_on_cpu, (args, kwargs or {}))
            kwargs.pop("pin_memory", None)  # which asks the driver
        return function(*args, **(kwargs or {}))


class Apple(Redirect):
    """Its tensors bear a mark, as do results of what is done with them, until they are brought to the processor."""

    REPLACED = tuple(
        (torch.nn.utils.clip_grad, name, lambda *_: False)
        for name in ("_has_foreach_support", "_device_has_foreach_support")
    )

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tree_leaves((args, kwargs))
        result = super().__torch_function__(function, kinds, args, kwargs)
        if function is torch.Tensor.cpu or any(str(x) == "cpu" for x in given if isinstance(x, str | torch.device)):
            return result.clone() if torch.is_tensor(result) else result
        if any(_on_cpu(x) is not x or getattr(x, "is_there", False) for x in given):
            written = [args[0]] if function is torch.Tensor.data.__set__ else []
            for tensor in filter(torch.is_tensor, [*tree_leaves(result), *written]):
                if tensor.dtype == torch.float64:
                    raise TypeError("Cannot convert a MPS Tensor to float64 dtype: MPS doesn't support float64")
                tensor.is_there = True
        return result


class Forked(Redirect):
    """In a process that was forked from the one that uses it, it is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.owner = os.getpid()

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        if os.getpid() != self.owner and any(_on_cpu(x) is not x for x in tree_leaves((args, kwargs))):
            raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")
        return super().__torch_function__(function, kinds, args, kwargs)


class NoReading(TorchDispatchMode):
    """Fails where the CPU would wait for what a GPU computes."""

    READS = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "unique", "equal")

    def __torch_dispatch__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(name in str(function) for name in self.READS):
            raise RuntimeError(f"called a synchronizing CUDA operation: {function}")
        return function(*args, **(kwargs or {}))


_watching = contextlib.ExitStack()


def set_sync_debug_mode(mode: str) -> None:
    _watching.close()
    if mode == "error":
        _watching.enter_context(NoReading())


class Generator(torch.Generator):
    def __new__(cls, device: Any = "cpu") -> Generator:
        return super().__new__(cls, device=_on_cpu(device))


class Stream:
    """Work that is submitted is done at once."""

    def wait_stream(self, other: Stream) -> None:
        assert isinstance(other, Stream)

    def record_event(self) -> Event:
        event = Event()
        event.record()
        return event

    def synchronize(self) -> None:
        pass

    def is_capturing(self) -> bool:
        return False


class Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.timed = enable_timing

    def record(self) -> None:
        self.at = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, later: Event) -> float:
        assert self.timed and later.timed
        return 1e3 * (later.at - self.at)


class Graph(NoReading):
    """Stands for torch.cuda.CUDAGraph: notes each operator with its tensors, and does them again, writing every result
    where it was written when it was recorded. A recording changes nothing that was there before."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: list[tuple[Any, Any, Any, Any]] = []
        self.before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_dispatch__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        for argument, value in zip(function._schema.arguments, args, strict=False):
            for tensor in tree_leaves(value) if argument.is_write else ():
                self.before.setdefault(id(tensor), (tensor, tensor.clone()))
        result = super().__torch_dispatch__(function, kinds, args, kwargs)
        self.operators.append((function, args, kwargs or {}, result))
        return result

    @torch.no_grad()
    def replay(self) -> None:
        for function, args, kwargs, result in self.operators:
            again = tree_leaves(function(*args, **kwargs))
            for old, new in zip(tree_leaves(result), again, strict=True):
                if is_new(old, (args, kwargs)):
                    old.copy_(new)

    @torch.no_grad()
    def undo(self) -> None:
        """Put back what operators have written to in the recording."""
        for tensor, value in self.before.values():
            tensor.copy_(value)
        self.before.clear()

    @torch.no_grad()
    def poison(self) -> None:
        """Write NaN over every result, as other work in the same memory might."""
        for _, args, kwargs, result in self.operators:
            for tensor in tree_leaves(result):
                if is_new(tensor, (args, kwargs)) and tensor.is_floating_point():
                    tensor.fill_(float("nan"))


def is_new(value: Any, read: Any) -> bool:
    """Whether a result is a tensor in memory of its own: not a view, nor written in place."""
    if not torch.is_tensor(value):
        return False
    return value.untyped_storage()._cdata not in {
        x.untyped_storage()._cdata for x in tree_leaves(read) if torch.is_tensor(x)
    }


class Short(TorchDispatchMode):
    """Memory runs out at the n-th new tensor. `count`: of them until then."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.left, self.count = n, 0

    def __torch_dispatch__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if self.left and self.count == self.left:
            return result
        if any(is_new(value, (args, kwargs)) for value in tree_leaves(result)):
            self.count += 1
            if self.count == self.left:
                raise torch.OutOfMemoryError("CUDA out of memory")
        return result


@contextlib.contextmanager
def recording(graph: Graph, **_: Any) -> Iterator[None]:
    try:
        with graph:
            yield
    finally:
        graph.undo()


def _autocast(self: Any, device_type: str, **options: Any) -> None:
    _REAL["autocast"](self, _on_cpu(device_type), **options)


def _run_thread(self: threading.Thread) -> None:
    with Redirect():
        _REAL["run"](self)


_REAL: dict[str, Any] = {"autocast": torch.autocast.__init__, "run": threading.Thread.run}


def _visible() -> int:
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return COUNT if listed is None else len(listed.split(","))


REPLACED: tuple[tuple[Any, str, Any], ...] = (
    (torch.cuda, "is_available", lambda: True),
    (torch.cuda, "is_initialized", lambda: True),
    (torch.cuda, "device_count", _visible),
    (torch.cuda, "current_device", lambda: 0),
    (torch.cuda, "default_generators", (torch.default_generator,) * COUNT),
    (torch.cuda, "set_device", lambda _: None),
    (torch.cuda, "get_device_name", lambda *_: NAME),
    (torch.cuda, "get_device_properties", lambda *_: PROPERTIES),
    (torch.cuda, "get_device_capability", lambda *_: (9, 0)),
    (torch.cuda, "synchronize", lambda *_: None),
    (torch.cuda, "empty_cache", lambda: None),
    (torch.cuda, "memory_allocated", lambda *_: 1 << 20),
    (torch.cuda, "max_memory_allocated", lambda *_: 1 << 30),
    (torch.cuda, "reset_peak_memory_stats", lambda *_: None),
    (torch.cuda, "memory_reserved", lambda *_: 0),
    (torch.cuda, "set_per_process_memory_fraction", lambda *_: None),
    (torch.cuda, "set_sync_debug_mode", set_sync_debug_mode),
    (torch.cuda, "is_bf16_supported", lambda including_emulation=True: True),
    (torch.cuda, "mem_get_info", lambda *_: (MEMORY, MEMORY)),
    (torch.cuda, "Stream", Stream),
    (torch.cuda, "Event", Event),
    (torch.cuda, "_sleep", lambda cycles: None),
    (torch.cuda, "current_stream", lambda *_: Stream()),
    (torch.mps, "is_available", lambda: True),
    (torch.mps, "synchronize", lambda: None),
    (torch.mps, "empty_cache", lambda: None),
    (torch.mps, "_get_default_mps_generator", lambda: torch.default_generator),
    (torch.accelerator, "current_stream", lambda *_: Stream()),
    (torch.cuda, "stream", lambda _: contextlib.nullcontext()),
    (torch.cuda, "CUDAGraph", Graph),
    (torch.cuda, "graph", recording),
    (torch, "Generator", Generator),
    (torch, "compile", lambda model=None, **_: model),
    (torch.nn.Module, "compile", lambda self, **_: None),
    (torch.Tensor, "pin_memory", lambda self, *_: self),
    (torch.Tensor, "record_stream", lambda self, _: None),
    (torch.autocast, "__init__", _autocast),
    (threading.Thread, "run", _run_thread),
)


@contextlib.contextmanager
def posing(kind: type[Redirect] = Redirect) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for owner, name, value in (*REPLACED, *getattr(kind, "REPLACED", ())):
            stack.enter_context(mock.patch.object(owner, name, value))
        stack.enter_context(kind())
        stack.enter_context(mock.patch.dict(os.environ, environment()))
        yield
