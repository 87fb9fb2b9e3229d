"""The kernels that Inductor generates for an H100, counted without one: launches, bytes and a roofline.

    python -m tools.codegen                      the table of tools/h100.csv, computed anew
    python -m tools.codegen --models ViT-S/16    some of it
    python -m tools.codegen --whole              networks compiled as a whole, for comparison: minutes per model
    python -m tools.codegen --assemble           assembles every kernel too, with the assembler of Triton

A training step's forward and backward graphs are traced on shapes and lowered for compute capability 9.0. Every kernel
gets the larger of its bytes over the bandwidth and its FLOPs over the peak, at shares that are assumed: the table's
first line. Attention counts as the flash kernels. A step begins with pixels of images that are resident: they are
gathered, some mirrored, and copied to where the graph reads them. Needs Triton, which CUDA builds of torch bring along.

How far to trust it: bytes and launches are those of the generated code. Seconds rest on the assumed shares; nothing was
compared with a clock on an H100. Convolutions are given the share of products, which narrow ones do not reach. Rates
that other code is known to reach (PUBLISHED in bench/execute/machine_checks.py) are below it.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import csv
import importlib.util
import math
import re
import sys
import tempfile
import types
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bench.core.errors import EXIT_OK, UserError, command, unknown
from bench.cost.peaks import TERA, accelerator
from bench.study import registry
from bench.train import compiled, precision

TABLE = Path(__file__).with_name("h100.csv")
MODELS = {  # images of a micro-batch that one H100 holds; pixels
    "ViT-Ti/16": (512, 224),
    "ViT-S/16": (256, 224),
    "ViT-B/16": (256, 224),
    "ViT-L/16": (128, 224),
    "ViT-H/14": (64, 224),
    "R50x1": (128, 224),
    "R50+ViT-B/16": (128, 224),
    "ViT-Ti/4": (512, 28),
}
PEAK, BANDWIDTH = accelerator("H100").tera["bfloat16"] * TERA, 3.35e12  # FLOPs and bytes per second of an H100 SXM
# Assumed, not measured: the shares of the peaks that products, memory and attention reach; the seconds between two
# kernels of one CUDA graph.
PRODUCTS, STREAMS, ATTENTION = 0.7, 0.85, 0.35
LAUNCH = 2e-6
CLASSES = 1000
UPDATE = 28  # bytes per weight that AdamW reads and writes: weight and two moments both ways, gradient
PROPERTIES = types.SimpleNamespace(
    name="NVIDIA H100 80GB HBM3",
    major=9,
    minor=0,
    multi_processor_count=132,
    warp_size=32,
    gcnArchName="",
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536,
    max_threads_per_block=1024,
    total_memory=80 << 30,
    shared_memory_per_block_optin=232448,
    shared_memory_per_block=49152,
    L2_cache_size=50 << 20,
    shared_memory_per_multiprocessor=233472,
)


@dataclass(frozen=True, kw_only=True)
class Generated:
    """Generated code of one training step, optimizer left out.

    Attributes:
        compilations: distinct regions that are compiled.
        kernels: distinct Triton kernels among them.
        launches: of kernels.
        gigabytes: read and written by them.
        teraflops: of products and attention.
        seconds: by the roofline.
    """

    compilations: int = 0
    kernels: int = 0
    launches: int = 0
    gigabytes: float = 0.0
    teraflops: float = 0.0
    seconds: float = 0.0

    def plus(self, other: Generated, *, times: int = 1) -> Generated:
        """The sum with another region that is called a number of times: it is compiled once."""
        total = {f.name: getattr(self, f.name) + times * getattr(other, f.name) for f in fields(self)}
        total |= {name: getattr(self, name) + getattr(other, name) for name in ("compilations", "kernels")}
        return Generated(**total)


# -- lowering ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def emulate_h100() -> Iterator[None]:
    """Inside, Inductor and Triton generate code for an H100. Attention is the flash kernel, as on a GPU."""
    import torch._dynamo.device_interface as interface
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    from vit import layers

    class Driver:
        get_current_target = staticmethod(lambda: GPUTarget("cuda", 90, 32))
        get_current_device = staticmethod(lambda: 0)
        get_current_stream = staticmethod(lambda *_: 0)
        is_active = staticmethod(lambda: True)

    def flash(q: Tensor, k: Tensor, v: Tensor, attn_mask: Any = None, dropout_p: float = 0.0, **options: Any) -> Tensor:
        if attn_mask is not None:
            raise UserError("Attention with a bias has no flash kernel to count.")
        scale = options.get("scale")
        return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, False, scale=scale)[0]

    of_device = staticmethod(lambda *_, **__: PROPERTIES)
    before = driver._active
    driver.set_active(Driver())
    _forget_devices()
    try:
        with contextlib.ExitStack() as stack:
            for owner, name, value in (
                (torch.cuda, "get_device_properties", of_device.__func__),
                (torch.cuda, "get_device_capability", lambda *_, **__: (9, 0)),
                (torch.cuda, "current_device", lambda: 0),
                (torch.cuda, "device_count", lambda: 1),
                (interface.CudaInterface.Worker, "get_device_properties", of_device),
                (interface.CudaInterface, "get_device_properties", of_device),
                (interface.CudaInterface, "get_compute_capability", staticmethod(lambda *_, **__: 90)),
                (interface.CudaInterface, "is_available", staticmethod(lambda *_, **__: True)),
                (nn.functional, "scaled_dot_product_attention", flash),
                (layers, "prefers_plain_attention", lambda _: False),
                (layers, "runs_on_cpu", lambda _: False),
            ):
                stack.enter_context(mock.patch.object(owner, name, value))
            yield
    finally:
        driver._active = before
        _forget_devices()


def _forget_devices() -> None:
    """Torch asks once in a process whether Triton has a device, and keeps the answer."""
    from torch.utils import _triton

    for asked in vars(_triton).values():
        if hasattr(asked, "cache_clear"):
            asked.cache_clear()


def lowered(graph_module: Any, inputs: list[Any]) -> tuple[Generated, str]:
    """The cost of one graph of operators, and its generated module. `inputs`: fake tensors of any device."""
    from torch._inductor.debug import DebugContext
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    fake = FakeTensorMode()
    with fake, torch.no_grad():
        given = [
            torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda:0") if torch.is_tensor(x) else x
            for x in inputs
        ]
        with _made_on(graph_module, "cuda:0"):
            module = make_fx(graph_module, tracing_mode="real")(*given)
    graph = GraphLowering(module, example_inputs=given, shape_env=fake.shape_env)
    with V.set_debug_handler(DebugContext()), V.set_graph_handler(graph), V.set_fake_mode(fake):
        graph.run(*given)
        code = graph.codegen()[0]
        total = Generated(compilations=1)
        for node in graph.scheduler.nodes:
            total = total.plus(_kernel(node))
    source = str(getattr(code, "value", code))
    kernels = source.count("@triton.jit")
    return replace(total, kernels=kernels), source


@contextlib.contextmanager
def _made_on(graph_module: Any, device: str) -> Iterator[None]:
    """Inside, the tensors that a graph makes out of nothing are made on a device."""
    before = {node: node.kwargs for node in graph_module.graph.nodes if "device" in node.kwargs}
    for node, kwargs in before.items():
        node.kwargs = {**kwargs, "device": torch.device(device)}
    graph_module.recompile()
    try:
        yield
    finally:
        for node, kwargs in before.items():
            node.kwargs = kwargs
        graph_module.recompile()


def _kernel(node: Any) -> Generated:
    """One node of the schedule: a kernel, or nothing for a view."""
    from torch._inductor.ir import MultiOutput

    if isinstance(getattr(node, "node", None), MultiOutput):  # a part of what another node computes
        return Generated()
    if node.is_template() or not hasattr(node, "get_read_write_buffers_sizes"):
        moved = 0
    else:
        moved = int(node.get_read_write_buffers_sizes())
    operations = 0
    # its own name: the products that read what attention wrote have it among their inputs
    attention = "attention" in str(getattr(node.node, "python_kernel_name", ""))
    if node.is_extern():
        operations = int(_operations(node) or 0)
    return _cost(moved, operations, attention=attention) if moved or operations else Generated()


def _cost(moved: int, operations: int, *, attention: bool = False) -> Generated:
    """One launch that moves bytes and does FLOPs."""
    share = ATTENTION if attention else PRODUCTS
    seconds = LAUNCH + max(moved / (STREAMS * BANDWIDTH), operations / (share * PEAK))
    return Generated(launches=1, gigabytes=moved / 1e9, teraflops=operations / TERA, seconds=seconds)


def _operations(node: Any) -> int | None:
    """FLOPs of a product, a convolution or attention: Inductor's own count, or torch's by its operator."""
    from torch.utils.flop_counter import FlopCounterMode

    origin = getattr(node.node, "fx_node", None) or next(iter(node.node.origins), None)
    if origin is None or not callable(origin.target) or "val" not in origin.meta:
        return None
    arguments = torch.utils._pytree.tree_map(lambda a: a.meta["val"] if hasattr(a, "meta") else a, origin.args)
    given = torch.utils._pytree.tree_map(lambda a: a.meta["val"] if hasattr(a, "meta") else a, dict(origin.kwargs))
    with FlopCounterMode(display=False) as counter:
        origin.target(*arguments, **given)
    return counter.get_total_flops()


def both_ways(run: Callable[..., Tensor], parameters: list[Tensor], x: Tensor) -> tuple[Generated, list[str]]:
    """Forward and backward of `run(*parameters, x)`, split as Inductor's trainings are; forward alone where nothing
    takes a gradient."""
    import torch._inductor.lowering  # decompositions of pooling look for it
    from torch._functorch.aot_autograd import aot_function, make_boxed_func
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch._inductor.decomposition import select_decomp_table

    from bench.train.keep_sums import KEEP_SUMS

    graphs: list[tuple[Generated, str]] = []

    def note(gm: Any, example_inputs: Any) -> Any:
        graphs.append(lowered(gm, list(example_inputs)))
        return make_boxed_func(gm.forward)

    def cut(joint: Any, *given: Any, **more: Any) -> Any:
        KEEP_SUMS(joint.graph)
        return min_cut_rematerialization_partition(joint, *given, **more)

    both = aot_function(run, fw_compiler=note, bw_compiler=note, partition_fn=cut, decompositions=select_decomp_table())
    with mock.patch.object(torch._functorch.config, "enable_autograd_cache", False):
        out = both(*parameters, x)
        if out.requires_grad:
            out.backward(torch.empty_like(out))
    total = Generated()
    for counts, _ in graphs:
        total = total.plus(counts)
    return replace(total, compilations=1), [source for _, source in graphs]


def region(
    module: nn.Module,
    x_shape: tuple[int, ...],
    *more: Any,
    x_stride: tuple[int, ...] | None = None,
    pixels: bool = False,
) -> tuple[Generated, list[str]]:
    """Forward and backward of a module on bfloat16 input of a shape, contiguous unless `x_stride` says otherwise, or on
    pixels, and on more arguments that are no tensors."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.func import functional_call

    names = [name for name, _ in module.named_parameters()]
    buffers = dict(module.named_buffers())
    with FakeTensorMode(allow_non_fake_inputs=True):
        kept = {id(p) for m in module.modules() if precision.stays_float32(m) for p in m.parameters(recurse=False)}
        parameters = [
            torch.empty(p.shape, dtype=p.dtype if id(p) in kept else torch.bfloat16, requires_grad=True)
            for p in module.parameters()
        ]
        given = {name: torch.empty(b.shape, dtype=b.dtype) for name, b in buffers.items()}

        def run(*tensors: Tensor) -> Tensor:
            *weights, x = tensors
            return functional_call(module, dict(zip(names, weights, strict=True)) | given, (x, *more))

        dense = torch.empty(x_shape, dtype=torch.bfloat16)
        x = dense if x_stride is None else torch.empty_strided(x_shape, x_stride, dtype=torch.bfloat16)
        x = pixels_of(x_shape) if pixels else x.requires_grad_()
        return both_ways(run, parameters, x)


def pixels_of(x_shape: tuple[int, ...], *, device: str = "cpu") -> Tensor:
    """uint8 images of a shape (B, C, H, W), as a training set stores them."""
    B, C, H, W = x_shape
    return torch.empty((B, H, W, C), dtype=torch.uint8, device=device).permute(0, 3, 1, 2)


# -- networks ----------------------------------------------------------------------------------------------------------


NO_KERNELS = ("aten::empty.memory_format", "aten::_unsafe_view")


class Outside(TorchDispatchMode):
    """Follows what runs between the compiled blocks, kernel by kernel: backward takes twice what forward does."""

    def __init__(self) -> None:
        super().__init__()
        self.total, self.inside = Generated(), 0

    def __torch_dispatch__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            result = function(*args, **(kwargs or {}))
        made = [x for x in tree_leaves(result) if torch.is_tensor(x)]
        read = [x for x in tree_leaves((args, kwargs)) if torch.is_tensor(x)]
        if self.inside or not made or getattr(function, "is_view", False) or function.name() in NO_KERNELS:
            return result
        moved = sum(x.numel() * x.element_size() for x in (*made, *read))
        self.total = self.total.plus(_cost(moved, counter.get_total_flops()), times=3)
        return result


def step(name: str, *, batch: int, image_size: int, whole: bool = False) -> tuple[Generated, list[str]]:
    """One training step of a model in bfloat16, its AdamW update included, and the generated modules."""
    channels = 1 if image_size < 32 else 3
    with torch.device("meta"):
        model = registry.build_model(name, image_size=image_size, channels=channels, num_classes=CLASSES)
    model.train().bfloat16()
    shape = (batch, channels, image_size, image_size)
    parameters, pixels = sum(p.numel() for p in model.parameters()), math.prod(shape)
    # refreshing the copies in low precision and collecting their gradients read and write 6 bytes each
    total = _cost((UPDATE + 12) * parameters, 0).plus(Generated(launches=9, seconds=9 * LAUNCH))
    total = total.plus(_cost(2 * pixels, 0), times=3)  # gathered, mirrored, copied
    takes_pixels = getattr(model, "takes_pixels", False)
    network = model if takes_pixels else nn.Sequential(precision.Input(torch.bfloat16), model)
    if whole:
        generated, sources = region(network, shape, pixels=True)
        return total.plus(generated), sources
    outside = Outside()
    calls: dict[Hashable, list[Any]] = {}

    def enter(block: nn.Module, args: Any) -> None:
        outside.inside += 1
        x, *more = args
        layout = {"x_stride": x.stride(), "pixels": x.dtype == torch.uint8}
        key = (type(block), tuple(p.shape for p in block.parameters()), x.shape, *layout.values(), *more)
        calls.setdefault(key, [block, (tuple(x.shape), *more), layout, 0])[-1] += 1

    def leave(*_: Any) -> None:
        outside.inside -= 1

    for block in compiled.parts(network):
        block.register_forward_pre_hook(enter)
        block.register_forward_hook(leave)
    with outside, torch.no_grad():
        network(pixels_of(shape, device="meta"))
    total, sources = total.plus(outside.total), []
    for block, given, layout, times in calls.values():
        block._forward_pre_hooks.clear()
        block._forward_hooks.clear()
        generated, modules = region(block, *given, **layout)
        total, sources = total.plus(generated, times=times), [*sources, *modules]
    return total, sources


HEAD = """import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
"""
KERNEL = re.compile(r"async_compile\.triton\('(\w+)', '''(.*?)''', device_str='cuda'\)", re.S)


def assembled(source: str) -> int:
    """Assemble every Triton kernel of a generated module for compute capability 9.0. Returns how many."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernels = KERNEL.findall(source)
    with tempfile.TemporaryDirectory() as folder:
        for name, body in kernels:
            body = body.replace("\\\\", "\\")
            path = Path(folder) / f"{name}.py"  # Triton reads a kernel's source from its file
            path.write_text(HEAD + body[body.index("@triton.jit") :])
            spec = importlib.util.spec_from_file_location(name, path)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            signature = ast.literal_eval(re.search(r"'signature': (\{.*?\})", body)[1])  # type: ignore[index]
            blocks = {key: 1 if key == "XBLOCK" else 64 for key, kind in signature.items() if kind == "constexpr"}
            given = ASTSource(fn=getattr(module, name), signature=signature, constexprs=blocks)
            built = triton.compile(given, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
            assert built.asm["cubin"], name
    return len(kernels)


COLUMNS = (
    "model",
    "batch",
    "compilations",
    "kernels",
    "launches",
    "gigabytes",
    "teraflops",
    "roofline_images_per_second",
)


def heading() -> str:
    """The first line of the table: what its rooflines assume."""
    return (
        f"# Computed, never measured. Assumed of an H100: {PRODUCTS:.0%} of {PEAK / TERA:g} TFLOP/s in products, "
        f"{ATTENTION:.0%} in attention; {STREAMS:.0%} of {BANDWIDTH / TERA:g} TB/s; "
        f"{LAUNCH * 1e6:g} µs between kernels\n"
    )


def row(name: str, generated: Generated) -> dict[str, Any]:
    """A line of the table."""
    batch, _ = MODELS[name]
    counts = {key: getattr(generated, key) for key in ("compilations", "kernels", "launches")}
    sizes = {key: f"{getattr(generated, key):.4g}" for key in ("gigabytes", "teraflops")}
    roofline = {"roofline_images_per_second": f"{batch / generated.seconds:.3g}"}
    return {"model": name, "batch": batch} | counts | sizes | roofline


def read_table() -> dict[str, dict[str, str]]:
    """The committed table, by model."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()[1:]
    return {line["model"]: line for line in csv.DictReader(lines)}


@command
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.codegen", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(MODELS), help="some of those in the table")
    parser.add_argument("--whole", action="store_true", help="compile each network as a whole")
    parser.add_argument("--assemble", action="store_true", help="assemble all kernels")
    options = parser.parse_args(argv)
    names = options.models.split(",")
    for name in names:
        if name not in MODELS:
            raise unknown("model of the table", name, MODELS)
    if importlib.util.find_spec("triton") is None:
        raise UserError("Triton is not installed.", "Install it, or a build of torch for CUDA, which brings it.")
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    sys.stdout.write(heading())
    writer.writeheader()
    with emulate_h100():
        for name in names:
            batch, image_size = MODELS[name]
            generated, sources = step(name, batch=batch, image_size=image_size, whole=options.whole)
            writer.writerow(row(name, generated))
            sys.stdout.flush()
            if options.assemble:
                print(f"{sum(map(assembled, sources))} kernels assembled for sm_90", file=sys.stderr)
    return EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
