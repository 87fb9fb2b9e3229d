"""A step's use of memory, graphs and the compiler, without a GPU."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from bench.core import device
from bench.core.device import InBatches, is_lost, release
from bench.data.image_set import ImageSet
from bench.study import registry
from bench.study.cell import Recipe
from bench.tasks._features import extractor
from bench.tasks._finetuner import FineTuner
from bench.train import recorded, schedule
from bench.train.batches import Batches
from bench.train.optimizers._eager import AdamW
from bench.train.rehearsal import rehearse
from bench.train.step import Step
from bench.train.trainer import Trainer
from bench.train.update import Ema
from tests.gpu.posing import Graph, NoReading, Short, posing
from vit.model import VisionTransformer

pytestmark = pytest.mark.gate

SIZES = {"image_size": 28, "channels": 1, "num_classes": 10}
RECIPE = Recipe(batch=8, lr=1e-2, warmup_images=0, dtype="bfloat16", flip=True)
RATE = 2.0**-7  # which a float32, from which a recorded update reads it, holds as it is
FAMILIES = ("ViT-pico/14", "R5+ViT-pico/14", "R8x0.125-s2")


@pytest.fixture
def gpu():
    with posing():
        yield


def made(name="ViT-pico/14", seed=0, **options):
    torch.manual_seed(seed)
    model = registry.build_model(name, **SIZES, **options)
    head = model.head if isinstance(model.head, nn.Linear) else model.head.fc
    nn.init.normal_(head.weight, std=0.1)
    return model.train()


def images(number=40):
    rng = np.random.default_rng(0)
    return ImageSet(
        name="noise",
        split="train",
        kind="rendered",
        images_NHWC=rng.integers(0, 256, (number, 28, 28, 1), np.uint8),
        labels_N=np.arange(number) % 10,
        class_names=tuple("0123456789"),
    )


def batch(number=8):
    generator = torch.Generator().manual_seed(1)
    return torch.rand((number, 1, 28, 28), generator=generator), torch.arange(number) % 10


def trained(step, steps=3, number=8):
    losses = [step(*batch(number), lr=RATE, seed=seed).clone() for seed in range(steps)]
    return torch.stack(losses), {name: value.clone() for name, value in step.model.state_dict().items()}


def same(given, wanted):
    torch.testing.assert_close(given[0], wanted[0], rtol=0, atol=0)
    assert all(torch.equal(given[1][name], wanted[1][name]) for name in wanted[1])


# -- graphs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, recipe",
    [
        *((name, replace(RECIPE, micro_batch=3)) for name in FAMILIES),
        (FAMILIES[0], replace(RECIPE, dtype="float32")),
        (FAMILIES[0], replace(RECIPE, micro_batch=3, dtype="float32")),
    ],
    ids=[*FAMILIES, "fp32", "fp32 parts"],
)
def test_recorded_steps_are_the_steps(name, recipe, monkeypatch):
    """Also where everything that a graph has written is lost before its next replay, and the parts are unequal."""
    wanted = trained(Step(model=made(name), recipe=recipe, device="cpu"), 5)
    graphs: list[Graph] = []
    monkeypatch.setattr(Graph, "__init__", lambda self, begin=Graph.__init__: (begin(self), graphs.append(self))[0])

    replay = Graph.replay

    def spoiled(self):
        self.poison()
        replay(self)

    monkeypatch.setattr(Graph, "replay", spoiled)
    with posing():
        step = Step(model=made(name), recipe=recipe, device="cuda")
        if recipe.dtype == "bfloat16":  # else they are given in the middle of the first step
            rehearse(step, *batch())
            assert len(step.optimizer.state) == len(step.weights)  # its memory is taken before anything is recorded
        given = trained(step, 5)
        assert step.run_as.how == "reduce-overhead"
        for graph in graphs:  # between a step and whatever reads the weights
            graph.poison()
    of_passes = list(step.both_ways._graphs.values())
    assert len(of_passes) == (2 if recipe.micro_batch else 1)  # one for each size of a part
    assert step.update._graph in graphs
    same(given, wanted)


def training(device="cuda", recipe=RECIPE, horizons=(800,), **options):
    data = Batches(images(), recipe=recipe, seed=0, device=device, scaled=True)
    return Trainer(
        model=made(**options), batches=data, recipe=recipe, horizons=horizons, seed=0, device=device, initialise=None
    )


@pytest.mark.parametrize(
    "optimizer, average, clip, dtype",
    [("adamw", 0.9, 0.05, "bfloat16"), ("sgd", 0.9, 1.0, "bfloat16"), ("adamw", 0.0, 0.0, "float32")],
)
def test_recorded_updates_are_the_updates(optimizer, average, clip, dtype, monkeypatch):
    """Weights, moments and averages, through branches and back to the trunk, at rates that change; also where all that
    graphs have written is lost before their next replay. Nothing is recorded again where a branch ends."""
    rates, replay, recordings = schedule.learning_rate, Graph.replay, []
    monkeypatch.setattr(schedule, "learning_rate", lambda *x, **y: float(np.float32(rates(*x, **y))))
    monkeypatch.setattr(Graph, "replay", lambda self: (self.poison(), replay(self))[1])
    recipe = replace(RECIPE, optimizer=optimizer, average=average, clip=clip, dtype=dtype, warmup_images=32)
    wanted = training("cpu", recipe, horizons=(80, 160))
    list(wanted.run())
    with posing():
        real = recorded.record
        monkeypatch.setattr(recorded, "record", lambda run, **x: (recordings.append(run), real(run, **x))[1])
        given = training("cuda", recipe, horizons=(80, 160))
        list(given.run())
        assert given.train_step.run_as.how == "reduce-overhead"
        assert recordings.count(given.train_step.rule) == 1
    state = wanted.state()
    assert state.keys() == given.state().keys() and any(name.startswith("average") for name in state) == bool(average)
    assert all(torch.equal(value, state[name]) for name, value in given.state().items())


def waiting(call):
    def waits(*given, **more):
        torch.ones(1).item()
        return call(*given, **more)

    return waits


@pytest.mark.parametrize(
    "owner, name, said, recordings",
    [
        (VisionTransformer, "forward", "default (RuntimeError: called a synchronizing", 2),  # those of updates
        (AdamW, "step", "reduce-overhead; updates as written: RuntimeError: called a synchronizing", 1),
        (Graph, "replay", "reduce-overhead; updates as written: a recorded one gives other weights", 2),
    ],
)
def test_what_cannot_be_recorded_is_done_as_it_is_written(owner, name, said, recordings, gpu, monkeypatch):
    """Reading a value, or a recording that does something else. The reason is kept for the record. It is noticed before
    a recording is begun: one that fails leaves torch's memory as if it still went on."""
    wanted = trained(Step(model=made(), recipe=RECIPE, device="cpu"), 4)
    begun, graph = [], torch.cuda.graph
    monkeypatch.setattr(torch.cuda, "graph", lambda *x, **y: (begun.append(x), graph(*x, **y))[1])
    monkeypatch.setattr(owner, name, waiting(getattr(owner, name)) if owner is not Graph else lambda _: None)
    step = Step(model=made(), recipe=RECIPE, device="cuda")
    reached = trained(step, 4)
    assert step.run_as.how.startswith(said), step.run_as.how
    assert len(begun) == recordings
    if owner is not Graph:
        same(reached, wanted)


def test_memory_may_run_out_where_an_update_is_recorded(gpu, monkeypatch):
    """Nothing was changed by then: the step is done again in parts."""
    wanted = trained(Step(model=made(), recipe=replace(RECIPE, micro_batch=4, dtype="float32"), device="cuda"), 4)
    step, real, short = Step(model=made(), recipe=replace(RECIPE, dtype="float32"), device="cuda"), recorded.record, []

    def record(run, **options):
        if run is step.rule and not short:
            short.append(run)
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(run, **options)

    monkeypatch.setattr(recorded, "record", record)
    losses, weights = trained(step, 4)
    assert short and step.micro_batch == 4 and step.run_as.how == "reduce-overhead"
    torch.testing.assert_close(losses, wanted[0], rtol=1e-4, atol=1e-5)
    assert all(torch.allclose(value, weights[name], atol=1e-3) for name, value in wanted[1].items())


def test_release_drops_recorded_graphs_and_they_are_recorded_again(gpu):
    wanted = trained(Step(model=made(), recipe=RECIPE, device="cuda"), 4)[0]
    step = Step(model=made(), recipe=RECIPE, device="cuda")
    first = trained(step, 2)[0]
    graph = weakref.ref(next(iter(step.both_ways._graphs.values())).graph)
    release("cuda")
    assert graph() is None
    again = torch.stack([step(*batch(), lr=RATE, seed=seed).clone() for seed in (2, 3)])
    torch.testing.assert_close(torch.cat([first, again]), wanted, rtol=0, atol=0)


# -- lifetimes ---------------------------------------------------------------------------------------------------------


def test_nothing_outlives_its_cell(gpu):
    """Pixels, weights, copies in lower precision and graphs go with the last name, without Python's collector: it
    counts objects and not bytes."""
    gc.collect()
    gc.disable()
    try:
        model = made()
        trainer = Trainer(
            model=model,
            recipe=RECIPE,
            horizons=(0, 16, 32),
            seed=0,
            device="cuda",
            batches=Batches(images(), recipe=RECIPE, seed=0, device="cuda"),
        )
        list(trainer.run())
        step = trainer.train_step
        (graph,) = step.both_ways._graphs.values()
        held = [trainer.batches.images_NHWC, model.head.weight, step, step.working, graph]
        seen = [weakref.ref(thing) for thing in held]
        del trainer, model, step, graph, held
        assert [thing() for thing in seen] == [None] * len(seen)
    finally:
        gc.enable()


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", ["adamw", pytest.param("sgd")])
def test_memory_may_run_out_anywhere(optimizer, monkeypatch):
    """At any allocation of a step, its update and the evaluation after it: then all is as if the micro-batch had been
    small from the beginning. The update allocates the optimizer's state."""
    recipe = replace(RECIPE, optimizer=optimizer, dtype="float32")
    pixels_NHWC = images(16).images_NHWC
    monkeypatch.setattr(device.gc, "collect", lambda: None)  # takes longer than all the rest

    def run(n, micro_batch=0):
        model = made(depth=1)
        average, recipe_here = Ema(model, 0.9), replace(recipe, micro_batch=micro_batch)
        step = Step(model=model, recipe=recipe_here, device="cpu", average=average)
        x_BCHW, labels_B = batch()
        batches = InBatches(8, device="cpu")
        read = extractor(step.model, image_size=28, channels=1, device="cpu", batches=batches)
        with Short(n) as short:
            step(x_BCHW, labels_B, lr=1e-2, seed=0)
            features = read(pixels_NHWC)
        state = [value for held in step.optimizer.state.values() for value in held.values() if torch.is_tensor(value)]
        state += average.mean.values()
        return [*step.model.state_dict().values(), *state, torch.from_numpy(features)], step.micro_batch, short.count

    wanted = {micro_batch: run(0, micro_batch)[0] for micro_batch in (8, 4)}
    _, _, count = run(0)
    parts = set()
    for n in range(1, count):  # the last is that of all features, in the CPU's memory
        values, micro_batch, _ = run(n)
        parts.add(micro_batch)
        for value, right in zip(values, wanted[micro_batch], strict=True):
            torch.testing.assert_close(value, right, rtol=1e-5, atol=1e-6)
    assert count > 50 and parts == {8, 4}


def test_fine_tuned_copies_keep_nothing_that_a_replay_overwrites_and_leave_no_graphs(monkeypatch):
    """They have the losses and logits of those that are not recorded."""
    monkeypatch.setattr(Graph, "replay", lambda self, replay=Graph.replay: (self.poison(), replay(self))[1])
    outcomes = {"cpu": [], "cuda": []}
    for where, tuned_there in outcomes.items():
        with posing():
            tuner = FineTuner(made(), name="ViT-pico/14", image_size=28, channels=1, device=where)
            for classes in (10, 5):
                some = replace(images(), labels_N=np.arange(40) % classes, class_names=tuple("0123456789"[:classes]))
                tuned = tuner(some, recipe=RECIPE, steps=3)
                tuned_there += [np.asarray(tuned.losses_T), tuned.logits(some.images_NHWC)]
    for given, wanted in zip(outcomes["cuda"], outcomes["cpu"], strict=True):
        np.testing.assert_allclose(given, wanted, atol=0.01)  # evaluated in bfloat16
    gc.collect()
    assert not any(held._graphs for held in recorded._all)


@pytest.mark.parametrize("tight, fits", [(("force_eager", "default"), 2), (("force_eager",), 8)])
def test_what_fits_is_found_before_anything_is_compiled(tight, fits, gpu, monkeypatch):
    """Each halving would compile anew; only the whole batch is tried compiled too, which keeps less: one that fits then
    is not divided."""
    calls: list[tuple[int, bool]] = []

    class Tight(nn.Linear):
        def forward(self, x):
            stance = torch._dynamo.eval_frame._stance.stance
            calls.append((len(x), stance != "force_eager"))
            if len(x) > 2 and stance in tight:
                raise torch.OutOfMemoryError("no room")
            return super().forward(x.flatten(1))

    step = Step(model=Tight(784, 10), recipe=replace(RECIPE, dtype="float32"), device="cuda")
    rehearse(step, *batch())
    assert step.micro_batch == fits
    assert {size for size, may_compile in calls if may_compile and size > 2} == {8}
    if fits < 8:  # where a part is of no use
        assert calls.count((8, True)) == 1
        with pytest.raises(device.OutOfMemory):
            rehearse(Step(model=Tight(784, 10), recipe=step.recipe, device="cuda"), *batch(), whole=True)


def test_a_device_that_no_longer_answers_is_lost_and_a_full_one_is_not(gpu, monkeypatch):
    assert not is_lost("cpu") and not is_lost("cuda")
    for error, lost in ((torch.OutOfMemoryError("x"), False), (RuntimeError("an illegal memory access"), True)):

        def fails(*_, error=error, **__):
            raise error

        monkeypatch.setattr(torch, "zeros", fails)
        assert is_lost("cuda") == lost


# -- waiting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, steps", [(FAMILIES[0], 50), (FAMILIES[1], 5), (FAMILIES[2], 5)])
def test_steady_steps_wait_for_nothing(name, steps, gpu):
    recipe = replace(RECIPE, crop=0.05, average=0.9, shift=2)
    trainer = Trainer(
        model=made(name),
        recipe=recipe,
        horizons=(800,),
        seed=0,
        device="cuda",
        batches=Batches(images(), recipe=recipe, seed=0, device="cuda"),
    )
    trainer.step()
    with NoReading():
        for _ in range(steps):
            trainer.progress.step += 1
            trainer.step()
