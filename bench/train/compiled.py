"""Compile the training network with torch.compile: on a GPU unless asked not to, on a CPU only on request.

Mode "default" compiles block by block: blocks of the same shape share one compilation, whatever the depth, the head and
the cell (training run), in this process and, through torch's cache on disk, in the next process. Operations on both
sides of a block's boundary are not fused, so a step reads and writes 1 to 6 % more bytes (compare tools/h100.csv with
h100_whole.csv; `python -m tools.codegen --whole`).

Mode "reduce-overhead" adds what is meant to be faster but has been measured nowhere yet: sums that blocks keep
(bench/train/keep_sums.py), the fastest kernels of attention, and forward and backward recorded as one CUDA graph
(bench/train/recorded.py). "max-autotune" also times kernels for matrix products, which takes minutes per shape.
Compiling for a CPU takes minutes and gained at most 5 % in training, so "auto" does not do it.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from bench.core.device import OutOfMemory, is_out_of_memory, timed
from bench.core.formatting import plural
from bench.train import precision, recorded
from bench.train.modes import WITH_GRAPHS, mode_for
from bench.train.recorded import Recorded, RecordedUpdate, make_recordable, small_update
from bench.train.step_parts import Wrapped

KERNELS = {"default": "default", "reduce-overhead": "default", "max-autotune": "max-autotune-no-cudagraphs"}
REHEARSALS = 2  # calls after which everything is prepared: one compiles and records, one replays
MAX_SHAPES = 4096
"""Compilations of one piece of code that torch may make. A process compiles the same classes at the shapes of many
cells; by default torch gives up after 8 for a module's code and 256 for a function's, and then runs the rest
uncompiled, which the record would not show."""


@functools.cache
def obstacle(device: str) -> str | None:
    """Return why torch.compile does not work on a device, in one line (mostly because a container has no C compiler);
    None if it compiled a small function there.

    Raises:
        RuntimeError: memory ran out. This is not remembered as an obstacle, so the next training run of this process
            tries again.
    """
    try:
        torch.compile(lambda x: 2 * x + 1, dynamic=False)(torch.ones(8, device=device))
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return f"{type(error).__name__}: {error}".strip().splitlines()[0]
    return None


def blocks(network: nn.Module) -> list[nn.Module]:
    """Return the blocks that a network repeats, such as a Transformer's layers: members of its ModuleLists and
    Sequentials that have children, but contain no other such member."""
    lists = [m for m in network.modules() if isinstance(m, nn.ModuleList | nn.Sequential)]
    members = [member for parent in lists for member in parent if any(member.children())]
    outer = {id(m) for m in members if any(id(inner) in {id(x) for x in members} for inner in list(m.modules())[1:])}
    return [member for member in members if id(member) not in outer]


def parts(network: nn.Module) -> list[nn.Module]:
    """Return the parts of a network that are compiled separately: its blocks (the whole network if it has none), and
    modules whose attribute `compiles_alone` is true."""
    alone = [m for m in network.modules() if getattr(m, "compiles_alone", False)]
    return [*alone, *(blocks(network) or [network])] if network not in alone else [network]


def options(mode: str) -> dict[str, Any]:
    """Return the options for Inductor, torch.compile's backend, in a mode of `bench.train.modes` that compiles.

    Torch 2.10 to 2.13 fuse sums over rows with sums over columns into kernels whose gradients were silently wrong
    (pytorch#190796, #193061), from sizes on that small networks do not reach; so this fusion is switched off there.
    """
    from torch._inductor import config, list_mode_options

    chosen = list_mode_options(KERNELS[mode])
    if mode in WITH_GRAPHS:
        from bench.train.keep_sums import KEEP_SUMS

        chosen |= {"joint_custom_post_pass": KEEP_SUMS}
    if torch.__version__ < "2.14" and hasattr(config.triton, "mix_order_reduction"):
        chosen["triton.mix_order_reduction"] = False
    return chosen


def compiled(network: nn.Module, *, mode: str, backend: str = "inductor") -> Any:
    """Compile a network's blocks in place (the whole network if it has none), each at the shapes it will be called
    with, and return the network. Mode "off" changes nothing.

    Args:
        mode: one of `bench.train.modes.MODES` except "auto".
        backend: backend of torch.compile; only "inductor" is given options.
    """
    if mode == "off":
        return network
    for limit in ("recompile_limit", "accumulated_recompile_limit"):
        setattr(torch._dynamo.config, limit, max(getattr(torch._dynamo.config, limit), MAX_SHAPES))
    torch._dynamo.config.optimize_ddp = False  # it would split blocks; exchanges of gradients begin between blocks
    # the cache's key ignores which attention kernels are allowed, so it could return one that was found to be wrong
    torch._functorch.config.enable_autograd_cache = False
    for part in parts(network):
        part.compile(backend=backend, dynamic=False, **({"options": options(mode)} if backend == "inductor" else {}))
    return network


def given_up() -> str | None:
    """Return a text with the number of functions that torch gave up compiling in this process, and a reason; None if
    there are none.

    Torch runs such a function uncompiled at new shapes, and warns once.
    """
    from torch._dynamo.utils import counters

    reasons = counters["unimplemented"]
    return (
        f"{plural(sum(reasons.values()), 'function')} as written: {min(reasons).splitlines()[0]}" if reasons else None
    )


def fused(function: Callable[..., Tensor], *, device: str) -> Callable[..., Tensor]:
    """Return a function of tensors compiled by torch, into one kernel, if the device is a GPU on which networks are
    compiled; else the function itself."""
    if not device.startswith("cuda") or mode_for(device) == "off" or obstacle(device):
        return function
    return torch.compile(function, dynamic=False)


class Compiled:
    """Makes a training step run with a compiled network where possible; has the interface of
    `bench.train.acceleration.AsWritten`.

    On a GPU, modes that record CUDA graphs also choose the fastest kernels of attention. With several ranks (processes
    that train together) such a mode becomes "default", because their exchange of gradients cannot be recorded.

    Args:
        step: the step, parts of which are replaced in place.
        mode: one of `bench.train.modes.MODES` except "auto" and "off".
        ranks: number of ranks.

    Attributes:
        obstacle: why the network could not be compiled; None if it could. CUDA graphs need no compiler, so a mode that
            records them does so in either case.
    """

    def __init__(self, step: Wrapped, *, mode: str, ranks: int) -> None:
        self.model, self.device = step.model, step.device
        self.dtype = precision.DTYPES[step.dtype]
        self.obstacle = obstacle(self.device) if self.device.startswith("cuda") else None
        mode = "default" if ranks > 1 and mode in WITH_GRAPHS else mode
        self.mode = "off" if self.obstacle and mode not in WITH_GRAPHS else mode
        working, run = step.working, step.both_ways
        if self.compiles and not self.obstacle:
            working.network = compiled(working.network, mode=self.mode)
        if self.compiles:
            working.input = fused(working.input, device=self.device)
        working.keeps_gradients = self.mode not in WITH_GRAPHS
        # the references are weak, because what is recorded calls this object
        self._recorded: Callable[[], Recorded | None] = lambda: None
        self._update: Callable[[], RecordedUpdate | None] = lambda: None
        if not self.records:
            return
        model, dtype, device = self.model, self.dtype, self.device

        def with_kernels(x_bCHW: Tensor, labels_b: Tensor, **how: Any) -> Tensor:
            with attention(model, batch=len(labels_b), dtype=dtype, device=device):
                return run(x_bCHW, labels_b, **how)

        passes = Recorded(with_kernels, leaves=working.leaves, buffers=self.model.buffers, device=self.device)
        step.both_ways, self._recorded = passes, weakref.ref(passes)
        if not step.rule.fused:  # it may count steps outside of tensors, and a recording would repeat one count
            return
        make_recordable(step.rule, device=self.device)
        like_it = functools.partial(small_update, step.recipe, dtype=step.dtype, device=self.device)
        update = RecordedUpdate(step.rule, like_it=like_it, device=self.device)
        step.update, self._update = update, weakref.ref(update)

    @property
    def compiles(self) -> bool:
        return self.mode != "off"

    @property
    def records(self) -> bool:
        return self.mode in WITH_GRAPHS and self.device.startswith("cuda")

    @property
    def how(self) -> str:
        update = self._update()
        late = f"; updates as written: {update.obstacle}" if update and update.obstacle else ""
        return self._passes_how + late

    @property
    def _passes_how(self) -> str:
        recorded = self._recorded()
        unrecorded = recorded.obstacle if recorded else None
        if self.obstacle:
            graphs = self.mode in WITH_GRAPHS and unrecorded is None
            return f"{'graphs alone' if graphs else 'off'} ({self.obstacle})"
        if unrecorded:
            return f"default ({unrecorded})"
        return f"{self.mode} ({reason})" if self.compiles and (reason := given_up()) else self.mode

    def kernels(self) -> tuple[str, ...]:
        if self.device.startswith("cuda") and not self.records:  # torch chooses
            return ()
        return chosen_kernels(self.model, dtype=self.dtype, device=self.device)

    def forget(self) -> None:
        """Free the memory of recorded CUDA graphs. Compiled code stays; the next step records it again."""
        if self.compiles:
            recorded.forget()


# -- attention ---------------------------------------------------------------------------------------------------------

Shape = tuple[int, int, int, int]
TOLERANCE = 0.05  # relative error of a kernel's outputs and gradients; bfloat16 rounds to 0.004
COMPARED = 4  # images on which outputs and gradients are compared; attention never mixes images, so a few suffice
_ranked: dict[tuple[Shape, torch.dtype, str], list[Any]] = {}


def attention_shape(network: nn.Module, batch: int) -> Shape | None:
    """Return the shape of a network's attention: (images in a batch, heads, tokens, width of a head); None for a
    network without attention."""
    config = getattr(network, "config", None)
    if config is None or not hasattr(config, "attention_width"):
        return None
    return batch, config.heads, config.num_tokens, config.attention_width // config.heads


def attention(network: nn.Module, *, batch: int, dtype: torch.dtype, device: str) -> Any:
    """Return a context manager in which fused attention uses the kernel that is fastest for this network, forward and
    backward together; where that kernel refuses (because of a bias or dropout), the next fastest.

    The kernels are timed once per shape in a process. On a CPU there is nothing to choose: `vit.layers` decides.

    Args:
        batch: number of images in a batch.
    """
    shape = attention_shape(network, batch)
    if not device.startswith("cuda") or shape is None:
        return contextlib.nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    key = (shape, dtype, device)
    if key not in _ranked:
        kernels = (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
        _ranked[key] = ranked_kernels(shape, dtype=dtype, device=device, kernels=kernels)
    return sdpa_kernel(_ranked[key], set_priority=True)


def chosen_kernels(network: nn.Module, *, dtype: torch.dtype, device: str) -> tuple[str, ...]:
    """Return the names of the kernels that `attention` has ranked for this network, the fastest first. On a CPU this is
    ("plain",), no fused kernel; for a network without attention, or before its first step, it is ()."""
    shape = attention_shape(network, 1)
    if shape is None:
        return ()
    if not device.startswith("cuda"):
        return ("plain",)
    ranked = [names for (other, *rest), names in _ranked.items() if other[1:] == shape[1:] and rest == [dtype, device]]
    return tuple(kernel.name.lower() for kernel in ranked[-1]) if ranked else ()


def ranked_kernels(
    shape: Shape, *, dtype: torch.dtype, device: str, kernels: Sequence[Any], calls: int = 10
) -> list[Any]:
    """Return the attention kernels sorted by their time for forward and backward, the fastest first. SDPBackend.MATH,
    which takes everything, comes last.

    Kernels that refuse the shape, or whose results differ from those of MATH, are left out. The tensors lie in memory
    as those of `vit.layers`.

    Args:
        shape: images in a batch, heads, tokens, width of a head.
        kernels: members of torch's SDPBackend except MATH.
        calls: number of calls per measurement.
    """
    with torch.inference_mode(False), torch.enable_grad():  # evaluation calls this too, with gradients off
        return _ranked_kernels(shape, dtype=dtype, device=device, kernels=kernels, calls=calls)


def _ranked_kernels(shape: Shape, *, dtype: torch.dtype, device: str, kernels: Sequence[Any], calls: int) -> list[Any]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    B, H, N, E = shape
    own = torch.Generator(device=device).manual_seed(0)  # the step has seeded the default generator for its dropout
    qkv_BN3HE = torch.randn((B, N, 3, H, E), device=device, dtype=dtype, generator=own, requires_grad=True)
    grad_BNHE = torch.randn((B, N, H, E), device=device, dtype=dtype, generator=own)

    def once(images: int = B) -> tuple[Tensor, Tensor]:
        qkv = qkv_BN3HE[:images]
        q_BHNE, k_BHNE, v_BHNE = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        x_BHNE = nn.functional.scaled_dot_product_attention(q_BHNE, k_BHNE, v_BHNE)
        return x_BHNE, torch.autograd.grad(x_BHNE, qkv, grad_BNHE[:images].transpose(1, 2))[0]

    with sdpa_kernel(SDPBackend.MATH):
        wanted = once(min(B, COMPARED))
    seconds: dict[Any, float] = {}
    for kernel in kernels:
        with contextlib.suppress(RuntimeError, OutOfMemory), sdpa_kernel(kernel):
            if all(_near(given[:COMPARED], right) for given, right in zip(once(), wanted, strict=True)):
                timed(once, device=device, calls=3)
                seconds[kernel] = min(timed(once, device=device, calls=calls) for _ in range(3))
    return [*sorted(seconds, key=lambda kernel: seconds[kernel]), SDPBackend.MATH]


def _near(given: Tensor, right: Tensor) -> bool:
    return bool((given - right).float().norm() <= TOLERANCE * right.float().norm())
