"""Compiling the network that trains: the same gradients, once per shape, and the kernel choice."""

from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.torch_version import TorchVersion

from bench.core.errors import UserError
from bench.study import registry
from bench.study.cell import Recipe
from bench.train import compiled, modes, recorded
from bench.train.precision import Working
from bench.train.step import Step
from tests.gpu.posing import posing

SIZES = {"image_size": 28, "channels": 1, "num_classes": 10}


def made(seed=0, **others):
    torch.manual_seed(seed)
    model = registry.build_model("ViT-pico/14", **(SIZES | others)).train()
    torch.nn.init.normal_(model.head.weight, std=0.1)
    return model


def gradient(model, working):
    generator = torch.Generator().manual_seed(1)
    working.refresh()
    F.cross_entropy(working(torch.rand((4, 1, 28, 28), generator=generator)).float(), torch.arange(4)).backward()
    working.collect()
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    model.zero_grad()
    return flat


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_compiled_network_has_the_same_gradients_also_after_its_weights_changed(dtype):
    plain, other = made(), made()
    wanted, fast = Working(plain, dtype), Working(other, dtype)
    fast.network = compiled.compiled(fast.network, mode="default", backend="aot_eager")
    for _ in range(2):
        torch.testing.assert_close(gradient(other, fast), gradient(plain, wanted), rtol=1e-5, atol=1e-6)
        with torch.no_grad():
            for model in (plain, other):
                for parameter in model.parameters():
                    parameter.mul_(1.1)


def test_without_a_compiler_a_step_is_recorded_as_it_is_written_and_says_why(monkeypatch):
    from torch._inductor import config

    compiled.obstacle.cache_clear()
    with config.patch({"cpp.cxx": ("/nowhere/c++",)}):
        why = compiled.obstacle("cpu")
    compiled.obstacle.cache_clear()
    assert why is not None and "No working C++ compiler" in why
    recipe, images, labels = Recipe(batch=4, dtype="bfloat16"), torch.rand(4, 1, 28, 28), torch.arange(4)
    wanted = Step(model=made(), recipe=recipe, device="cpu")(images, labels, lr=1e-3, seed=0)
    monkeypatch.setattr(compiled, "obstacle", lambda _: why)
    with posing():
        step = Step(model=made(), recipe=recipe, device="cuda")
        assert step.run_as.how == f"graphs alone ({why})"
        assert torch.equal(step(images, labels, lr=1e-3, seed=0), wanted)


def test_auto_compiles_on_a_gpu_only_and_a_variable_overrides_it(monkeypatch):
    monkeypatch.delenv(modes.VARIABLE, raising=False)
    assert modes.mode_for("cpu") == "off"
    assert modes.mode_for("cuda") == "default"
    monkeypatch.setenv(modes.VARIABLE, "off")
    assert modes.mode_for("cuda") == "off"
    monkeypatch.setenv(modes.VARIABLE, "fast")
    with pytest.raises(UserError, match="max-autotune"):
        modes.mode_for("cuda")
    model = made()
    assert compiled.compiled(model, mode="off") is model


def test_unless_asked_a_step_on_a_gpu_has_torchs_compiler_and_nothing_else(monkeypatch):
    """No graph, no kernel of attention, no pass of ours."""
    monkeypatch.setenv(modes.VARIABLE, "auto")
    monkeypatch.setattr(compiled, "ranked_kernels", lambda *_, **__: pytest.fail("ranked"))
    monkeypatch.setattr(recorded, "record", lambda *_, **__: pytest.fail("recorded"))
    monkeypatch.setattr(compiled, "obstacle", lambda _: None)
    with posing():
        step = Step(model=made(), recipe=Recipe(batch=4, dtype="bfloat16"), device="cuda")
        assert step.run_as.how == "default" and step.update is step.rule and step.run_as.kernels() == ()
        step(torch.rand(4, 1, 28, 28), torch.arange(4), lr=1e-3, seed=0)
    for mode in modes.MODES[2:]:
        assert ("joint_custom_post_pass" in compiled.options(mode)) == (mode in modes.WITH_GRAPHS)


def test_kernels_that_refuse_a_shape_are_passed_over():
    shape = compiled.attention_shape(made(), 2)
    assert shape == (2, 3, 4, 16)
    options = {"dtype": torch.float32, "device": "cpu", "calls": 1}
    only_on_gpus = SDPBackend.CUDNN_ATTENTION
    both = (only_on_gpus, SDPBackend.FLASH_ATTENTION)
    stream = torch.get_rng_state()
    assert compiled.ranked_kernels(shape, kernels=both, **options) == [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    assert compiled.ranked_kernels(shape, kernels=(only_on_gpus,), **options) == [SDPBackend.MATH]
    assert torch.equal(torch.get_rng_state(), stream)  # dropout draws from it next


@pytest.mark.gate
def test_the_choice_of_attention_kernels_outlives_no_process_in_a_cache(tmp_path, monkeypatch):
    """The second time another kernel is chosen, as by a second process: torch's cache, whose key leaves the choice out,
    must not bring back the first, which may have been found to be wrong. `dynamo.reset` is a new process."""
    from torch._dynamo.utils import counters
    from torch._inductor.utils import run_and_get_code

    class Attention(nn.Module):
        def forward(self, qkv_3BHNE):
            return F.scaled_dot_product_attention(*qkv_3BHNE.unbind(0))

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    qkv, flash = torch.rand(3, 2, 2, 32, 16, requires_grad=True), "_scaled_dot_product_flash_attention_for_cpu"
    for kernel in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        torch._dynamo.reset()
        counters.clear()
        network = compiled.compiled(Attention(), mode="default")
        with sdpa_kernel(kernel):
            _, sources = run_and_get_code(lambda network=network: network(qkv).sum().backward())
        assert any(flash in source for source in sources) == (kernel == SDPBackend.FLASH_ATTENTION)
        assert counters["aot_autograd"]["autograd_cache_hit"] == 0


def test_kernels_that_compute_something_else_are_passed_over(monkeypatch):
    right = F.scaled_dot_product_attention

    def wrong(q, k, v):
        x = right(q, k, v)
        return x if not torch.backends.cuda.flash_sdp_enabled() else x + 0.5 * v

    options = {"dtype": torch.bfloat16, "device": "cpu", "calls": 1, "kernels": (SDPBackend.FLASH_ATTENTION,)}
    assert SDPBackend.FLASH_ATTENTION in compiled.ranked_kernels((6, 2, 9, 16), **options)
    monkeypatch.setattr(F, "scaled_dot_product_attention", wrong)
    assert compiled.ranked_kernels((6, 2, 9, 16), **options) == [SDPBackend.MATH]


@pytest.mark.parametrize("threaded", [False, True], ids=["main", "thread"])
@pytest.mark.parametrize("mode", ["default", "max-autotune"])
def test_a_study_compiles_each_shape_once_whatever_the_mode(monkeypatch, mode, threaded):
    """Through the real steps of cells one after another, of several depths and heads, at rates that change, in
    micro-batches; only the code generator is replaced, by a backend that needs no compiler. Torch's settings are those
    of a thread, and hold in the one that compiles, backward passes too."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor import compile_fx

    compilations, settings = [], set()

    def counted(graph, inputs):
        compilations.append(len(inputs))
        dynamo = torch._dynamo.config
        limits = dynamo.recompile_limit, dynamo.accumulated_recompile_limit
        settings.add((*limits, dynamo.optimize_ddp, torch._functorch.config.enable_autograd_cache))
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=counted)
    monkeypatch.setattr(compile_fx, "compile_fx", lambda graph, inputs, **_: backend(graph, inputs))
    monkeypatch.setenv(modes.VARIABLE, mode)
    torch._dynamo.reset()
    recipe = Recipe(batch=8, micro_batch=4, dtype="bfloat16")

    def study():
        for seed in range(3):
            model = made(seed, depth=2 + seed, num_classes=10 - seed)
            step = Step(model=model, recipe=recipe, device="cpu")
            assert step.working.keeps_gradients == (mode not in modes.WITH_GRAPHS)
            for number in range(3):
                step(torch.ones(8, 1, 28, 28), torch.arange(8), lr=0.1 / (number + 1), seed=number)

    if threaded:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(study).result()
    else:
        with torch._dynamo.config.patch(recompile_limit=8):  # timm's Kron raises it when it is imported
            study()
    assert len(compilations) == 3  # patches; a block's forward and backward pass
    assert settings == {(compiled.MAX_SHAPES, compiled.MAX_SHAPES, False, False)}


@pytest.mark.parametrize("name", ["ViT-pico/14", "R5+ViT-pico/14", "R8x0.125-s2"])
def test_every_family_is_one_graph(name):
    """A break would cost launches, and keep CUDA graphs from covering the step."""
    torch._dynamo.reset()
    options = {"dropout": 0.1} if "ViT" in name else {}
    network = Working(registry.build_model(name, **SIZES, **options).train(), "bfloat16").network
    whole = torch.compile(network, backend="aot_eager", fullgraph=True, dynamic=False)
    whole(torch.rand(2, 1, 28, 28).bfloat16()).float().sum().backward()


def test_gradients_that_a_graph_would_overwrite_are_copied_and_still_add_up():
    model = made()
    wanted = 2 * gradient(model, Working(model, "float32"))
    working = Working(model, "float32")
    working.keeps_gradients = False
    generator = torch.Generator().manual_seed(1)
    x_BCHW = torch.rand((4, 1, 28, 28), generator=generator)
    working.refresh()
    for number in range(2):  # they are moved once, and the next are added to them there
        F.cross_entropy(working(x_BCHW), torch.arange(4)).backward()
        before = {name: p.grad.data_ptr() for name, p in model.named_parameters()}
        working.collect(last=False)
        moved = [p.grad.data_ptr() != before[name] for name, p in model.named_parameters()]
        assert moved == [number == 0] * len(moved)
    added = torch.cat([p.grad.flatten() for p in model.parameters()])
    torch.testing.assert_close(added, wanted, rtol=1e-5, atol=1e-6)


def test_where_memory_runs_out_the_memory_of_recorded_graphs_is_given_back_first(monkeypatch):
    model, recipe = nn.Linear(4, 3), Recipe(batch=8)
    events: list[str] = []

    def tight(network, *, mode):
        def forward(x):
            events.append(f"{len(x)} images")
            if len(x) > 2:
                raise torch.OutOfMemoryError
            return network(x)

        return forward

    monkeypatch.setenv(modes.VARIABLE, "max-autotune")
    monkeypatch.setattr(compiled, "compiled", tight)
    monkeypatch.setattr(recorded, "forget", lambda: events.append("forgotten"))
    step = Step(model=model, recipe=recipe, device="cpu")
    step(torch.ones(8, 4), torch.zeros(8, dtype=torch.int64), lr=0.1, seed=0)
    assert events == ["8 images", "forgotten", "4 images", "forgotten", *["2 images"] * 4]


def test_sums_over_rows_and_columns_are_not_fused_where_torch_did_so_wrongly(monkeypatch):
    for version, left_out in (("2.11.0", True), ("2.13.1", True), ("2.14.0", False)):
        monkeypatch.setattr(torch, "__version__", TorchVersion(version))
        assert (compiled.options("default").get("triton.mix_order_reduction") is False) == left_out


def test_what_torch_no_longer_compiles_is_said_in_the_record(monkeypatch):
    """Torch itself only warns, once, where a function has had more shapes than it keeps."""
    from torch._dynamo.testing import CompileCounter
    from torch._dynamo.utils import counters

    class Layer(nn.Linear):
        def forward(self, x):
            return super().forward(x)

    torch._dynamo.reset()
    counters.clear()
    monkeypatch.setattr(compiled, "MAX_SHAPES", 2)
    with modes.switched("default"):
        run_as = Step(model=Layer(2, 2), recipe=Recipe(), device="cpu").run_as
    with torch._dynamo.config.patch(recompile_limit=1, accumulated_recompile_limit=256):
        network = compiled.compiled(run_as.model, mode="default", backend=(counter := CompileCounter()))
        for images in range(2, 7):
            assert network(torch.ones(images, 2)).shape == (images, 2)
            assert (run_as.how == "default") == (images < 4)
    assert counter.frame_count == 2 and run_as.how.startswith("default (1 function as written: ")
    counters.clear()


def test_lack_of_memory_is_no_obstacle_for_the_next_cell(monkeypatch):
    compiled.obstacle.cache_clear()
    monkeypatch.setattr(torch, "compile", mock.Mock(side_effect=[torch.OutOfMemoryError("out of memory"), abs]))
    with pytest.raises(torch.OutOfMemoryError):
        compiled.obstacle("cpu")
    assert compiled.obstacle("cpu") is None
