"""Single ranks, without others: ranks that are pretended, and a process group of 64 that answers nothing."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from bench.core.errors import UserError
from bench.data.image_set import ImageSet
from bench.execute.jobs import train
from bench.execute.workloads import LiveBytes
from bench.plan import resources
from bench.study import registry
from bench.study.cell import Cell, Recipe, TaskSpec
from bench.study.record import Score
from bench.tasks.task import Task, Unsuited
from bench.train import compiled, distributed, modes, precision
from bench.train.batches import Batches
from bench.train.distributed import DistributedRanks
from bench.train.events import HorizonReached
from bench.train.ranks import ONE_RANK, RankOutOfMemory, Ranks
from bench.train.recorded import Recorded
from bench.train.rehearsal import rehearse
from bench.train.step import Step
from bench.train.trainer import Trainer, TrainingProgress
from tests.gpu.posing import posing
from tests.train._two_ranks import noted
from tests.train.driving import job_context

SIZES = {"image_size": 28, "channels": 1, "num_classes": 10}
TASKS = tuple(TaskSpec(task="fewshot", data=name) for name in ("digits", "glyphs", "mnist"))
CELL = Cell(
    model="ViT-pico/4",
    data="digits",
    num_images=200,
    image_size=8,
    horizons=(0, 64),
    tasks=TASKS,
    recipe=Recipe(batch=16, warmup_images=16),
)


class Pretended(Ranks):
    """One of several ranks; the others are not there. It notes what it does, and what it waits for."""

    def __init__(self, rank, size, *, first_here=False, rank0_says=None):
        self.rank, self.size, self.first_here, self.rank0_says = rank, size, first_here, rank0_says
        self.did = []

    @property
    def is_first_here(self):
        return self.first_here

    def run_on_rank0(self, work):
        return work() if self.is_rank0 else self.rank0_says

    def run_on_all(self, work):
        value = work()
        self.did.append("waits for all")
        return value


def context(folder, ranks):
    return job_context(folder, ranks=ranks)


class Enough(Exception):
    pass


def stops(*_):
    raise Enough


# -- the first of each machine, and all of them ------------------------------------------------------------------------


@pytest.mark.parametrize("first_here", [True, False])
def test_only_the_first_rank_of_a_machine_opens_data_that_may_have_to_be_decoded(first_here, tmp_path, monkeypatch):
    ranks = Pretended(3, 4, first_here=first_here)
    monkeypatch.setattr(train, "_open_data", lambda *_: ranks.did.append("opens"))
    monkeypatch.setattr(train, "TrainJob", stops)
    with pytest.raises(Enough):
        train.run(CELL, context(tmp_path, ranks))
    assert ranks.did == (["opens", "waits for all"] if first_here else ["waits for all"])


def test_a_machine_with_other_images_is_named(tmp_path):
    with pytest.raises(UserError, match="images of digits here are others than those of rank 0"):
        train.run(CELL, context(tmp_path, Pretended(1, 2, rank0_says="0" * 64)))


@pytest.mark.parametrize("first_here", [True, False])
def test_the_first_rank_of_a_machine_compiles_and_the_others_find_it(first_here, monkeypatch):
    """Torch's cache on the disk has it then; otherwise each of eight would generate the same kernels."""
    ranks = Pretended(1, 2, first_here=first_here)
    torch.manual_seed(0)
    model = registry.build_model("ViT-pico/14", **SIZES).train()
    monkeypatch.setattr(nn.Module, "compile", lambda self, **_: None)
    with modes.switched("default"):
        step = Step(model=model, recipe=Recipe(batch=8, lr=0.1), device="cpu", ranks=ranks)
    step.working.network.register_forward_pre_hook(lambda *_: ranks.did.append("forward"))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rehearse(step, torch.rand(8, 1, 28, 28), torch.arange(8))
    passes = ["forward"] * compiled.REHEARSALS
    assert ranks.did == [*(["forward"] if first_here else []), "waits for all", *passes]
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_horizon_is_read_by_all_ranks_each_a_part_of_it(tmp_path, monkeypatch):
    """Upstream accuracy and three tasks, on two ranks: together all of them, none twice. test_distributed.py holds that
    they make what one rank finds."""
    real, stub = registry.load, Task(evaluate=lambda _, *, data: [data])
    monkeypatch.setattr(registry, "load", lambda kind, name: stub if kind == "task" else real(kind, name))
    monkeypatch.setattr(train.TrainJob, "_upstream_score", lambda *_: "upstream")
    job = train.TrainJob(CELL, context(tmp_path, Pretended(0, 1)))
    alone = job.scores()
    assert list(alone.values()) == [["upstream"], ["digits"], ["glyphs"], ["mnist"]] and list(alone) == [0, 1, 2, 3]
    parts = []
    for rank in range(2):
        job.ranks = Pretended(rank, 2)
        parts.append(job.scores())
    assert [list(part) for part in parts] == [[0, 2], [1, 3]] and parts[0] | parts[1] == alone


BEGINNING = SimpleNamespace(progress=TrainingProgress(), segments=())
"""The state that a horizon's row is made of before the first step."""


def test_what_another_rank_says_of_a_horizon_reaches_the_log(tmp_path, monkeypatch):
    """It names a task that it could not evaluate, and lack of memory, once for each horizon."""
    real, lines = registry.load, []
    missing = Score(
        task="digits",
        data="digits",
        metric="accuracy",
        value=None,
        stderr=None,
        num_test=0,
        num_classes=None,
        chance=None,
    )

    def evaluate(_, *, data):
        if data == "digits":
            raise Unsuited("too few classes", missing=[missing])
        return []

    stub = Task(evaluate=evaluate)
    monkeypatch.setattr(registry, "load", lambda kind, name: stub if kind == "task" else real(kind, name))
    monkeypatch.setattr(train.TrainJob, "_upstream_score", lambda *_: missing)
    first, second = (train.TrainJob(CELL, context(tmp_path, Pretended(rank, 2))) for rank in range(2))
    second.batches.batch, second.batches.shrunk = 16, True
    sent = []
    second.ranks.exchange = lambda value: [sent.append(value)] and stops()
    first.ranks.exchange = lambda value: [value, sent[-1]]
    first.context = replace(first.context, log=lines.append)
    for _ in range(2):
        lines.clear()
        with pytest.raises(Enough):
            second.evaluate_horizon(HorizonReached(images_seen=0, loss=None), BEGINNING)
        upstream, digits = first.evaluate_horizon(HorizonReached(images_seen=0, loss=None), BEGINNING).scores
        assert upstream is missing and digits.detail == {"reason": "too few classes"}
        assert lines == [
            "rank 1: no score of fewshot: too few classes",
            "rank 1: out of memory in evaluation (evaluate): went on with 16 images at a time",
        ]


# -- 64 ranks ----------------------------------------------------------------------------------------------------------

WORLD = 64


class Fake(DistributedRanks):
    """One of many, of a process group in which nobody answers: what is received is what was there."""

    def __init__(self, rank, size=WORLD):
        self.device, self.rank, self.size, self._vote, self.exchange_failed = "cpu", rank, size, None, False
        self._control = self._votes = dist.group.WORLD


@pytest.fixture(params=[0, WORLD - 1])
def one_of_64(request):
    dist.init_process_group("fake", store=FakeStore(), rank=request.param, world_size=WORLD)
    yield Fake(request.param)
    dist.destroy_process_group()


def images():
    rng = np.random.default_rng(0)
    return ImageSet(
        name="noise",
        split="train",
        kind="rendered",
        images_NHWC=rng.integers(0, 256, (256, 28, 28, 1), np.uint8),
        labels_N=np.arange(256) % 10,
        class_names=tuple("0123456789"),
    )


class Counting(TorchDispatchMode):
    """Calls of other ranks, by name."""

    def __enter__(self):
        self.found = Counter()
        return super().__enter__()

    def __torch_dispatch__(self, function, kinds, args=(), kwargs=None):
        if function.namespace == "c10d":
            self.found[function._opname] += 1
        return function(*args, **(kwargs or {}))


def steps(name, recipe, ranks, *, number=2):
    """(trainer, collectives of the last step by name)."""
    torch.manual_seed(0)
    whole = registry.build_model(name, **SIZES)
    ranks.check_model(whole)
    model = ranks.shard_model(whole, sharding=recipe.sharding, dtype=recipe.dtype)
    trainer = Trainer(
        model=model,
        recipe=recipe,
        horizons=(recipe.batch * 10 + recipe.warmup_images,),
        seed=0,
        device="cpu",
        ranks=ranks,
        batches=Batches(images(), recipe=recipe, seed=0, device="cpu", ranks=ranks),
    )
    model.train()
    for _ in range(number):
        with Counting() as counting:
            trainer.step()
        trainer.progress.step += 1
    return whole, trainer, counting.found


@pytest.mark.parametrize("world, machines", [(16, 2), (64, 8)])
def test_ranks_of_several_machines_share_a_batch_and_exchange_it_once(world, machines, monkeypatch):
    """Together their images, crops and places are the batch of one rank; one of each machine opens its data."""
    recipe = Recipe(batch=2 * world, crop=0.3, lr=1e-3, dtype="float32", clip=1.0)

    def asked(ranks):
        draws = Batches(images(), recipe=recipe, seed=0, device="cpu", ranks=ranks).draws
        return draws.request(5, encoded=None)[0], draws.boxes(5, 28, 28)

    parts, first, sent = [], [], []
    for rank in range(world):
        monkeypatch.setenv("LOCAL_RANK", str(rank % (world // machines)))
        parts.append(asked(Fake(rank, world)))
        first += [rank] if Fake(rank, world).is_first_here else []
    for own, whole in zip(zip(*parts, strict=True), asked(ONE_RANK), strict=True):
        assert np.array_equal(np.concatenate(own, axis=-1), whole)
    assert first == [8 * machine for machine in range(machines)]
    real = dist.all_reduce
    monkeypatch.setattr(dist, "all_reduce", lambda x, *a, **k: (sent.append(x.numel()), real(x, *a, **k))[1])
    dist.init_process_group("fake", store=FakeStore(), rank=first[-1], world_size=world)
    try:
        _, trainer, _ = steps("ViT-pico/14", recipe, Fake(first[-1], world), number=1)
    finally:
        dist.destroy_process_group()
    assert sorted(sent) == [1, sum(p.numel() for p in trainer.model.parameters())]  # the loss, the gradients


@pytest.mark.parametrize("micro_batch", [0, 1])
def test_64_ranks_exchange_gradients_once_a_step(one_of_64, micro_batch, monkeypatch):
    sizes = []
    real = dist.all_reduce
    monkeypatch.setattr(dist, "all_reduce", lambda x, *a, **k: (sizes.append(x.numel()), real(x, *a, **k))[1])
    recipe = Recipe(batch=128, lr=1e-3, dtype="float32", micro_batch=micro_batch, clip=1.0)
    _, trainer, _ = steps("ViT-pico/14", recipe, one_of_64)
    weights = sum(p.numel() for p in trainer.model.parameters())
    assert [size for size in sizes if size > 1] == [weights] * 2 and len(sizes) == 4  # and the loss
    assert len(trainer.batches(0)[1]) == 2 and torch.isfinite(trainer.losses[-1])
    assert one_of_64.share(128) == slice(2 * one_of_64.rank, 2 * one_of_64.rank + 2)


@pytest.mark.parametrize("more", [{}, {"optimizer": "sgd"}, {"optimizer": "sgd", "momentum": 0.0}], ids=str)
def test_the_plan_counts_the_bytes_that_a_rank_keeps(one_of_64, more):
    """All but activations, here of one image of five tokens: of two micro-batches' gradients the sum is kept beside
    what is exchanged."""
    for ranks in (ONE_RANK, one_of_64):
        model = registry.build_model("ViT-nano/14", **SIZES).train()
        recipe = Recipe(batch=2 * ranks.size, micro_batch=1, dtype="float32", **more)
        weights = sum(p.nbytes for p in model.parameters())
        with LiveBytes() as live:
            step = Step(model=model, recipe=recipe, device="cpu", ranks=ranks)
            for seed in range(2):
                step(torch.rand(2, 1, 28, 28), torch.arange(2), lr=1e-3, seed=seed)
        planned = resources.state_bytes(recipe, weights // 4, ranks=ranks.size)
        assert weights + live.peak == pytest.approx(planned, rel=0.1)


@pytest.mark.parametrize(
    "mode, parts, dtype", [("off", 2, "bfloat16"), ("off", 1, "float32"), ("default", 2, "bfloat16")]
)
@pytest.mark.parametrize("name", ["ViT-pico/14", "R5+ViT-pico/14", "R8x0.125-s2"])
def test_64_ranks_exchange_while_the_backward_pass_goes_on(one_of_64, name, mode, parts, dtype, monkeypatch):
    """Nothing is sent in earlier micro-batches; in the last, every bucket when its gradients are there. With blocks
    compiled too, each of which hands over its gradients at once; the order of events, not of time."""
    torch._dynamo.reset()
    monkeypatch.setattr(distributed, "BUCKET_MB", 2**-8)
    real = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda self, **_: real(self, backend="aot_eager", dynamic=False))
    monkeypatch.setattr(dist, "all_reduce", dist.all_reduce)  # to be put back
    model = registry.build_model(name, **SIZES).train()
    with modes.switched(mode):
        recipe = Recipe(batch=128, dtype=dtype, micro_batch=2 // parts)
        step = Step(model=model, recipe=recipe, device="cpu", ranks=one_of_64)
    events: list[str] = []
    noted(step, events)
    for seed in range(2):
        events.clear()
        step(torch.rand(2, 1, 28, 28), torch.arange(2), lr=1e-2, seed=seed)
    weights = len(list(model.parameters()))
    earlier = (parts - 1) * weights
    assert events.count("found") == parts * weights and "sent" not in events[:earlier]
    last = events[earlier:]
    assert last.count("sent") > 4
    assert last.index("sent") < 2 * weights / 3 and last[-1] == "sent"


def test_steps_that_exchange_are_not_recorded(one_of_64):
    """The mode does not matter: an exchange is no part of a graph."""
    model = registry.build_model("ViT-pico/14", **SIZES).train()
    with posing(), modes.switched("reduce-overhead"):
        recipe = Recipe(batch=256, micro_batch=2, dtype="bfloat16")
        step = Step(model=model, recipe=recipe, device="cuda", ranks=one_of_64)
    assert step.run_as.how == "default" and not isinstance(step.both_ways, Recorded)


@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("micro_batch, advice", [(0, "--set micro_batch=2"), (1, "sharding=fsdp")])
def test_memory_that_runs_out_names_the_micro_batch_to_set(where, micro_batch, advice):
    """Nothing is tried again: the others wait."""

    class Short(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if where == "forward":
                raise torch.OutOfMemoryError("no room for activations")
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad):
            raise torch.OutOfMemoryError("no room for gradients")

    model = registry.build_model("ViT-pico/14", **SIZES).train()
    recipe = Recipe(batch=8, micro_batch=micro_batch, dtype="float32")
    step = Step(model=model, recipe=recipe, device="cpu", ranks=Pretended(1, 2))
    step.working.network.blocks[0].register_forward_hook(lambda _, __, x: Short.apply(x))
    with pytest.raises(RankOutOfMemory, match=f"out of memory with {micro_batch or 4} images at a time") as caught:
        step(torch.rand(4, 1, 28, 28), torch.arange(4), lr=1e-2, seed=0)
    assert advice in caught.value.fix


def test_weights_without_a_gradient_keep_none(one_of_64):
    """As on one rank: no decay is applied to them."""
    model = registry.build_model("ViT-pico/14", **SIZES).train()
    model.register_parameter("unused", nn.Parameter(torch.ones(3)))
    step = Step(model=model, recipe=Recipe(batch=256, dtype="bfloat16"), device="cpu", ranks=one_of_64)
    for seed in range(2):
        step(torch.rand(4, 1, 28, 28), torch.arange(4), lr=1e-2, seed=seed)
    assert model.unused.grad is None and model.unused.tolist() == [1.0] * 3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["ViT-pico/14", "R5+ViT-pico/14"])
def test_64_ranks_share_the_weights(one_of_64, name, dtype, monkeypatch):
    """Each weight is gathered once a step, forward and backward together, and its gradients are exchanged once,
    whatever the number of micro-batches; standardised weights stay float32; the whole model is not on the device."""
    recipe = Recipe(batch=128, lr=1e-3, dtype=dtype, micro_batch=1, sharding="fsdp", clip=1.0, average=0.9)
    to_the_host, real = [], nn.Module.cpu
    monkeypatch.setattr(nn.Module, "cpu", lambda self: to_the_host.append(self) or real(self))
    whole, trainer, counts = steps(name, recipe, one_of_64)
    assert to_the_host == [whole]
    units = [m for m in trainer.model.modules() if type(m).__name__.startswith("FSDP")]
    with_weights = [u for u in units if u._get_fsdp_state()._fsdp_param_group is not None]
    assert len(with_weights) > len(compiled.blocks(whole)) > 1
    exchanged = {n: count for n, count in counts.items() if "gather" in n or "scatter" in n}
    assert exchanged == {"_allgather_base_": len(with_weights), "_reduce_scatter_base_": len(with_weights)}
    inexact = [m for m in whole.modules() if precision.stays_float32(m)]
    exact = [u for u in with_weights if precision.stays_float32(u)]
    assert len(exact) == len(inexact) and bool(exact) != name.startswith("ViT")
    assert all(u._get_fsdp_state()._mp_policy.param_dtype is None for u in exact)
    for parameter in trainer.model.parameters():
        assert isinstance(parameter, DTensor) and parameter.device_mesh.size() == WORLD
        state = trainer.optimizer.state[parameter]
        assert state["exp_avg"].to_local().numel() == parameter.to_local().numel()
        assert parameter.to_local().numel() <= -(-parameter.shape[0] // WORLD) * parameter[0].numel()
    names = {name: value.shape for name, value in trainer.state().items() if isinstance(value, DTensor)}
    gathered_here = trainer.ranks.gather(trainer.state())
    everywhere = trainer.ranks.gather(trainer.state(), everywhere=True)
    assert {n: everywhere[n].shape for n in names} == names
    assert (set(names) <= set(gathered_here)) == (one_of_64.rank == 0)
