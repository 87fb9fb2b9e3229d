"""The loop: stopping anywhere and continuing changes nothing; a branch is what training to that budget alone gives."""

import itertools
import math
import random
import shutil
import sys
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from bench.core.errors import Interrupted, UserError
from bench.cost.trace import label
from bench.data.image_set import ImageSet
from bench.study import registry
from bench.study.cell import Recipe
from bench.study.record import Horizon, Score
from bench.train import compiled, modes
from bench.train import trainer as loop
from bench.train.batches import Batches
from bench.train.trainer import Checkpoints, Diverged, Trainer
from tests.conftest import PROJECT
from tests.train.driving import Driven

HORIZONS = (0, 320, 640, 1280)


class Later(Future):
    """A row that is there once it has been asked for some times."""

    def __init__(self, row: Horizon, looks: int) -> None:
        super().__init__()
        self.row, self.looks = row, looks

    def done(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    def result(self, timeout=None) -> Horizon:
        return self.row


def data() -> ImageSet:
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    pixels = (rng.integers(0, 120, (90, 8, 8, 1)) + 60 * labels[:, None, None, None]).astype(np.uint8)
    return ImageSet(
        name="stripes", split="train", images_NHWC=pixels, labels_N=labels, class_names=("a", "b", "c"), kind="rendered"
    )


class Net(nn.Module):
    """Has dropout and a buffer-free norm, so that every random stream matters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.2), nn.Linear(16, 3)
        )

    def forward(self, x):
        return self.layers(x)


def trainer(
    folder,
    *,
    stop=lambda: False,
    recipe=None,
    horizons=HORIZONS,
    snapshots=None,
    content="",
    on_step=lambda _: None,
    looks=None,
    make=Net,
) -> Driven:
    torch.manual_seed(0)
    model = make()

    def initialise():
        torch.manual_seed(0)
        model.load_state_dict(make().state_dict())

    recipe = recipe or Recipe(batch=16, lr=1e-2, warmup_images=64)

    def evaluate(horizon, loss):
        weights = torch.cat([p.detach().flatten() for p in model.parameters()])
        if snapshots is not None:
            snapshots[horizon] = weights.clone()
        digest = Score(
            task="digest",
            data="weights",
            metric="sum",
            value=weights.double().sum().item(),
            stderr=None,
            num_test=0,
            num_classes=None,
            chance=None,
        )
        row = Horizon(images_seen=horizon, final_train_loss=loss, spent_images=0, scores=(digest,))
        return row if looks is None else Later(row, looks)

    return Driven(
        model=model,
        batches=Batches(data(), recipe=recipe, seed=5, device="cpu"),
        recipe=recipe,
        horizons=horizons,
        seed=5,
        device="cpu",
        initialise=initialise,
        evaluate=evaluate,
        check=lambda: math.sin(1e3 * sum(p.detach().double().sum().item() for p in model.parameters())),
        on_step=on_step,
        should_stop=stop,
        saving=Checkpoints(folder=folder, content=content),
    )


def weights_of(t: Trainer) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in t.model.parameters()])


def stopped(folder, *, after: int, **options) -> Driven:
    """A run that goes on from what the folder holds, and was stopped again when it had asked so many times."""
    steps = iter(range(after))
    part = trainer(folder, stop=lambda: next(steps, None) is None, **options)
    part.resume()
    with pytest.raises(Interrupted):
        part.drive()
    return part


AVERAGED = {"average": 0.9}


@pytest.mark.parametrize(
    "kind, seed, looks, change",
    [
        *((kind, seed, None, {}) for kind in ("branch", "separate") for seed in range(4)),
        ("branch", 0, 7, {}),
        ("separate", 1, 7, {}),
        *(
            (kind, 4, None, change)
            for kind in ("branch", "separate")
            for change in (AVERAGED, {"optimizer": "sgd", "loss": "sigmoid", "decay": "rsqrt"})
        ),
        *(("separate", seed, None, {"stopping_checks": 6}) for seed in range(2)),
    ],
)
def test_stopping_anywhere_changes_not_one_bit(tmp_path, kind, seed, looks, change):
    """Rows, weights, their running average, and the curve of losses."""
    recipe = Recipe(batch=16, lr=1e-2, warmup_images=64, schedule=kind, **change)
    whole = trainer(tmp_path / "whole", recipe=recipe)
    rows = whole.drive()
    chooser, done, pieces = random.Random(seed), 0, 0
    while (after := chooser.randrange(1, 25)) + 1 < whole.total_work - done:
        done = stopped(tmp_path / "parts", after=after, recipe=recipe, looks=looks).progress.work
        pieces += 1
    part = trainer(tmp_path / "parts", recipe=recipe, looks=looks)
    assert part.resume() and pieces > 3
    assert part.drive() == rows
    assert torch.equal(weights_of(part), weights_of(whole))
    assert part.ema.mean.keys() == whole.ema.mean.keys() and bool(part.ema.mean) == (change == AVERAGED)
    assert all(torch.equal(part.ema.mean[name], mean) for name, mean in whole.ema.mean.items())
    assert part.curve.points() == whole.curve.points()


def test_early_stopping_evaluates_the_best_weights_and_goes_on_with_the_last(tmp_path):
    """Of four checks of each budget the second is the best; the weights that it saw are those that are evaluated."""
    horizons, accuracies, seen = (320, 640), itertools.cycle((0.3, 0.8, 0.5, 0.8)), list[torch.Tensor]()
    recipe = Recipe(batch=16, lr=1e-2, warmup_images=64, schedule="separate", stopping_checks=4)
    snapshots: dict[int, torch.Tensor] = {}
    made = trainer(tmp_path, recipe=recipe, horizons=horizons, snapshots=snapshots)
    steps = list[int]()

    def check() -> float:
        steps.append(made.progress.step)
        seen.append(weights_of(made).clone())
        return next(accuracies)

    made.check = check
    made.drive()
    assert steps == [5, 10, 15, 20, 10, 20, 30, 40]
    assert torch.equal(snapshots[320], seen[1]) and torch.equal(snapshots[640], seen[5])
    assert torch.equal(weights_of(made), seen[-1])
    with made.judged_weights():
        assert torch.equal(weights_of(made), seen[5])


@pytest.mark.parametrize("change", [{"average": 0.9}, {"schedule": "branch"}])
def test_early_stopping_is_of_one_training_s_own_weights(change):
    with pytest.raises(UserError, match="Early stopping"):
        Recipe(**{"stopping_checks": 4, "schedule": "separate"} | change)


class Killed(Exception):
    """Nothing is saved after it."""


@pytest.mark.parametrize("looks", [0, 7, 10_000])
def test_training_goes_on_while_a_row_is_computed_and_a_kill_loses_none(tmp_path, monkeypatch, looks):
    """At any step, also with the row still missing: no checkpoint is further than the rows that it holds."""
    whole = trainer(tmp_path / "whole")
    rows = whole.drive()
    taken: list[tuple[int, int]] = []
    result = Later.result
    monkeypatch.setattr(
        Later, "result", lambda self: (taken.append((self.row.images_seen, t.progress.work)), result(self))[1]
    )
    t = trainer(tmp_path / "at once", looks=looks)
    assert t.drive() == rows and torch.equal(weights_of(t), weights_of(whole))
    ends = [0]  # where each horizon's segment ends, in steps done
    for segment in t.segments:
        ends.append(ends[-1] + segment.end - segment.start)
    read = [0, *(end for end, segment in zip(ends[1:], t.segments, strict=True) if segment.horizon is not None)]
    waits = [work - end for (_, work), end in zip(taken, read, strict=True)]
    assert waits[-1] == 0 and all(wait == looks + 1 for wait in waits[:-1]) if looks < 10 else min(waits[:-1]) > 10
    for steps in (3, 25, 41, 60):
        left = iter(range(steps))

        def kill(_, left=left):
            if next(left, None) is None:
                raise Killed

        t = trainer(tmp_path / f"killed {steps}", looks=looks, on_step=kill)
        with pytest.raises(Killed):
            t.drive()
        t = trainer(tmp_path / f"killed {steps}", looks=looks)
        t.resume()
        assert t.drive() == rows and torch.equal(weights_of(t), weights_of(whole))


def test_a_row_that_cannot_be_computed_ends_the_run(tmp_path, monkeypatch):
    def fails(self):
        raise ValueError("no probe")

    monkeypatch.setattr(Later, "result", fails)
    with pytest.raises(ValueError, match="no probe"):
        trainer(tmp_path, looks=3).drive()


def test_waiting_for_images_is_counted_over_interruptions(tmp_path, monkeypatch):
    """A quarter of a second in every step, on a clock of its own; what is waited for between segments is no step's."""
    waited = [0.0]
    monkeypatch.setattr(Batches, "waited", property(lambda _: waited[0]))

    def on_step(_: torch.Tensor) -> None:
        waited[0] += 0.25

    part = stopped(tmp_path, after=60, on_step=on_step)
    done = part.progress.work
    assert 0 < done < part.total_work and part.progress.image_wait_seconds == done / 4
    waited[0] = 7.0  # of whatever a later process does before its first step
    rest = trainer(tmp_path, on_step=on_step)
    assert rest.resume()
    rest.drive()
    assert rest.progress.image_wait_seconds == rest.total_work / 4


def test_losing_the_newest_checkpoint_changes_nothing_either(tmp_path):
    rows = trainer(tmp_path / "whole").drive()
    stopped(tmp_path / "parts", after=60)
    newest = max((tmp_path / "parts").iterdir())
    (newest / "tensors.safetensors").write_bytes(b"torn")
    again = trainer(tmp_path / "parts")
    assert again.resume()
    assert again.drive() == rows


@pytest.mark.parametrize("change", [{}, AVERAGED])
def test_a_branch_equals_training_to_that_budget_alone(tmp_path, change):
    """Same order, same rates, same dropout: sharing the trunk must not change a weight."""
    recipe = Recipe(batch=16, lr=1e-2, warmup_images=64, **change)
    shared: dict[int, torch.Tensor] = {}
    trainer(tmp_path / "shared", snapshots=shared, recipe=recipe).drive()
    for horizon in HORIZONS[1:]:
        alone: dict[int, torch.Tensor] = {}
        # warm-up is a function of the shortest horizon; 64 images are below its cap in every case
        trainer(tmp_path / f"alone-{horizon}", horizons=(horizon,), snapshots=alone, recipe=recipe).drive()
        assert torch.equal(shared[horizon], alone[horizon])


def tiny_resnet() -> nn.Module:
    """A registered network whose BatchNorm keeps running statistics."""
    return registry.build_model("ResNet-8x0.25-s2", image_size=8, channels=1, num_classes=3)


def test_running_statistics_are_part_of_a_checkpoint_and_of_a_branch(tmp_path):
    """A branch begins at the trunk's statistics and leaves none of its own there; a kill loses none."""
    recipe = Recipe(batch=16, lr=1e-2, warmup_images=64)
    shared: dict[int, torch.Tensor] = {}
    whole = trainer(tmp_path / "whole", recipe=recipe, make=tiny_resnet, snapshots=shared)
    rows = whole.drive()
    for _ in range(3):
        stopped(tmp_path / "parts", after=9, recipe=recipe, make=tiny_resnet)
    part = trainer(tmp_path / "parts", recipe=recipe, make=tiny_resnet)
    assert part.resume() and part.drive() == rows
    states = part.model.state_dict(), whole.model.state_dict()
    assert any("running_var" in name for name in states[0])
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    for horizon in HORIZONS[1:]:
        alone = trainer(tmp_path / f"alone-{horizon}", horizons=(horizon,), recipe=recipe, make=tiny_resnet)
        alone.drive()
        if horizon == HORIZONS[-1]:
            state = alone.model.state_dict()
            assert all(torch.equal(state[name], value) for name, value in whole.model.state_dict().items())
        assert torch.equal(weights_of(alone), shared[horizon])


def test_what_was_begun_on_other_images_is_not_continued(tmp_path):
    stopped(tmp_path / "c", after=5, content="these")
    with pytest.raises(UserError, match="other images"):
        trainer(tmp_path / "c", content="those").resume()
    assert trainer(tmp_path / "c", content="these").resume()


def test_what_another_cell_began_is_not_continued(tmp_path):
    (tmp_path / "a").mkdir()
    stopped(tmp_path / "a" / "c", after=5)
    shutil.copytree(tmp_path / "a", tmp_path / "b")  # a folder that was renamed, after the rate was changed
    with pytest.raises(UserError, match="another run, a"):
        trainer(tmp_path / "b" / "c").resume()
    assert trainer(tmp_path / "a" / "c").resume()


def test_training_learns(tmp_path):
    rows = trainer(tmp_path / "c").drive()
    assert rows[0].final_train_loss is None
    assert rows[-1].final_train_loss < rows[1].final_train_loss < 1.2


def test_divergence_is_noticed_says_where_and_is_charged_the_time_it_took(tmp_path):
    t = trainer(tmp_path, recipe=Recipe(batch=16, lr=float("inf"), warmup_images=0))
    with pytest.raises(Diverged, match=r"between steps \d+ and \d+"):
        t.drive()
    assert t.progress.work and t.progress.seconds.train == t.progress.current_seconds > 0


def test_weights_that_the_last_step_broke_are_no_result(tmp_path):
    """The loss of a step is found before its update: no loss ever tells of the last one."""

    def break_last(_):
        if t.progress.step == 9:
            with torch.no_grad():
                next(t.model.parameters())[0] = float("nan")

    t = trainer(tmp_path, recipe=Recipe(batch=16, warmup_images=32), horizons=(160,), on_step=break_last)
    with pytest.raises(Diverged, match="after step 10 of 10"):
        t.drive()
    assert not t.progress.rows


def test_checkpoints_that_take_long_are_written_less_often(tmp_path, monkeypatch):
    t = trainer(tmp_path)
    clock = iter(range(0, 10_000, 30))
    monkeypatch.setattr(loop, "running", lambda: float(next(clock)))  # every look costs 30 s
    t.save()
    assert t.progress.seconds.save == 30.0
    assert t.save_interval == pytest.approx(30.0 / loop.MAX_SAVING_SHARE)
    monkeypatch.setattr(loop, "running", lambda: 0.0)
    t.save()
    assert t.save_interval == t.saving.every


class Normalised(nn.Module):
    """Keeps statistics over batches."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.body = nn.BatchNorm2d(1), Net()

    def forward(self, x):
        return self.body(self.norm(x))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_compiling_comes_before_the_clock_and_changes_nothing(tmp_path, monkeypatch, dtype):
    """With a compiler that only notes when it is called."""
    called: list[float] = []
    graphs: list[bool] = []

    def noted(network, *, mode):
        graphs.append(mode in modes.WITH_GRAPHS)
        if mode != "off":
            network.register_forward_pre_hook(lambda *_: called.append(t.progress.seconds.train))
        return network

    states = []
    monkeypatch.setattr(compiled, "compiled", noted)
    for mode in ("off", "reduce-overhead"):
        monkeypatch.setenv(modes.VARIABLE, mode)
        torch.manual_seed(0)
        model = Normalised()
        recipe = Recipe(batch=16, lr=1e-2, warmup_images=64, dtype=dtype, micro_batch=8)
        t = Driven(
            model=model,
            batches=Batches(data(), recipe=recipe, seed=5, device="cpu"),
            recipe=recipe,
            horizons=(0, 64, 128),
            seed=5,
            device="cpu",
            saving=Checkpoints(folder=tmp_path / f"{mode}-{dtype}"),
        )
        t.drive()
        states.append(t.state())
    assert graphs == [True]
    before = 2 * compiled.REHEARSALS
    assert len(called) == before + 2 * t.total_work
    assert set(called[: before + 1]) == {0.0} and t.progress.seconds.wait > 0
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_a_step_on_one_processor_is_read_in_eight_files(tmp_path):
    """Whoever follows it opens no other; the loss is the file that the recipe names. `label` only marks the parts for
    a trace."""
    made = trainer(tmp_path, recipe=Recipe(batch=16, warmup_images=64, average=0.9))
    made.step()
    called: set[str] = set()

    def note(frame, event, _):
        if event == "call" and frame.f_code is not label.__code__:
            called.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        made.step()
    finally:
        sys.setprofile(None)
    bench = PROJECT / "bench"
    ours = {str(Path(name).relative_to(bench)) for name in called if Path(name).is_relative_to(bench)}
    parts = {
        f"train/{name}.py"
        for name in ("trainer", "schedule", "batches", "step", "update", "precision", "losses/softmax")
    }
    assert ours == parts | {"core/seeds.py"}
