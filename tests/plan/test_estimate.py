"""Calibration: the quickest of a few calls, on a busy machine too; measured once for an hour of plans and runs, and
again when anything that a rate depends on has changed."""

import dataclasses
import os
import platform
import time
from dataclasses import replace

import pytest

import vit.family
from bench.core import environment, files
from bench.cost.peaks import PeakRate
from bench.plan import calibrate, estimate, rate_cache
from bench.plan.estimate import Rates, Reporter
from bench.plan.sizes import DataSize, DataSizes
from bench.study import registry
from bench.study.cell import Cell, Recipe, TaskSpec
from bench.tasks import fewshot
from bench.train import modes

A, B, C = (Cell(model=name, data="glyphs", horizons=(0, 64_000)) for name in ("ViT-pico/14", "ViT-pico/7", "pixels"))
SIZE = DataSize(train=100, test=10, classes=10, shape=(28, 28, 1))

# -- how a rate is measured --------------------------------------------------------------------------------------------


class Busy:
    """A clock of which this thread gets a share; `calls` are the seconds of work that each call takes."""

    def __init__(self, calls, share=1.0):
        self.calls, self.share, self.now, self.made = list(calls), share, 0.0, 0

    def run(self):
        work = self.calls[min(self.made, len(self.calls) - 1)]
        self.made += 1
        self.now += work / self.share

    @property
    def clock(self):
        return calibrate.Clock(wall=lambda: self.now, own=lambda: self.now * self.share)


@pytest.mark.parametrize(
    "seconds, share, quickest, calls",
    [
        ([0.01, 0.2, 0.1, 0.2], 1.0, 0.1, 4),  # the first is warming up
        ([0.2], 0.05, 0.2, 1),  # a busy machine: the thread's own time; beyond the limit, not even a second call
        ([180.0, 5.0, 0.02], 1.0, 0.02, 3),  # the first compiles: those after it are waited for beyond the limit
    ],
)
def test_the_quickest_call_counts(seconds, share, quickest, calls):
    machine = Busy(seconds, share=share)
    assert calibrate.quickest(machine.run, clock=machine.clock) == (pytest.approx(quickest), pytest.approx(share))
    assert machine.made == calls and (share == 1.0 or machine.now == pytest.approx(4.0))


def test_what_is_not_measured_comes_from_flops(monkeypatch):
    monkeypatch.setattr(calibrate, "_measured", lambda *_, **__: pytest.fail("measured"))
    monkeypatch.setattr(calibrate.peaks, "peak", lambda *_, **__: PeakRate(flops_per_second=1e10, source="a test"))
    rates = Rates(**calibrate.answer(A, 10, device="cpu", threads=1, measure=False)["rates"])
    assert not rates.measured and "assumed" in rates.basis
    assert 0 < rates.train_images_per_second * rates.train_flops_per_image["dense"] < 1e10


def test_the_gain_of_compiling_is_said_to_be_a_guess(monkeypatch):
    """Of a step that takes a GPU a tenth of a second, and is launched in as long."""
    parts = 0.1, 0.1
    monkeypatch.setattr(calibrate, "_measured", lambda *_, **__: (A.recipe.batch / 0.1, 300.0, 1.0, parts))
    monkeypatch.setattr(calibrate.peaks, "peak", lambda *_, **__: PeakRate(flops_per_second=1e12, source="a test"))
    with modes.switched("default"):
        rates = Rates(**calibrate.answer(A, 10, device="cpu", threads=1, measure=True)["rates"])
    assert not rates.measured and "guessed" in rates.basis
    guessed = A.recipe.batch / (0.1 * calibrate.COMPILED_COMPUTING)
    assert rates.train_images_per_second == pytest.approx(guessed) and rates.eval_images_per_second == 300.0


# -- what follows training ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "solving, training, left",
    [
        (8.0, 0.0, 8.0),  # no training to hide it: an untrained network
        (2.0, 100.0, 2.0),  # the last horizon's alone
        (30.0, 100.0, 35.0),  # each waits for the one before it: 5 to 35, to 65, to 105, 135
        (5.0, 100.0, 5.0),
    ],
)
def test_probes_that_are_solved_beside_training_are_waited_for_at_its_end(solving, training, left):
    cell = dataclasses.replace(A, horizons=(0,) if not training else (50, 250, 750, 1000))
    assert estimate.waited(cell, solving, training=training) == pytest.approx(left)


def test_a_wider_network_more_classes_shots_and_draws_take_longer_to_probe():
    size = {"num_train": 50_000, "num_test": 10_000, "num_classes": 100, "features": 384}
    usual = fewshot.solving_seconds(**size)
    changes = {"features": 768, "num_classes": 1000, "shots": (1, 5, 10, 25, 50), "draws": 6, "ridge": "each"}
    for change in ({name: value} for name, value in changes.items()):
        assert fewshot.solving_seconds(**size | change) > 1.2 * usual
    assert fewshot.solving_seconds(**size | {"ridge": "published"}) < usual
    small = {"num_train": 100, "num_test": 10, "num_classes": 10, "features": 16, "shots": (1,), "draws": 1}
    products, eigen, predicting = 2 * 10 * 16 * 10, 9 * 10**3, 2 * 10 * 16 * 10
    wanted = (products + eigen + predicting) / fewshot.SOLVED_PER_SECOND
    assert fewshot.solving_seconds(**small, ridge="published") == pytest.approx(wanted)


def test_a_cells_cost_has_what_its_tasks_solve():
    rates = Rates(
        model=A.model,
        train_images_per_second=100.0,
        eval_images_per_second=1000.0,
        params=1,
        measured=True,
        train_flops_per_image={"dense": 1},
        basis="a test",
        features=384,
    )
    sizes = DataSizes()
    probe = TaskSpec(task="fewshot", data="mnist", options=(("shots", (25,)), ("draws", 100)))
    one, more = (dataclasses.replace(A, horizons=h, tasks=(probe,)) for h in ((20_000,), (10_000, 20_000)))

    def seconds(cell, device, features=384):
        key = estimate.rate_key(cell, sizes[cell.data].classes)
        made = estimate.Calibration(rates={key: dataclasses.replace(rates, features=features)})
        return estimate.cell_cost(cell, made, sizes, ranks=1, fraction=0.0, device=device).seconds

    solved = estimate.solving_seconds(one, sizes, features=384)
    assert solved > 0.5
    assert seconds(one, "cpu") - seconds(one, "cpu", features=0) == pytest.approx(solved)
    assert seconds(more, "cpu") - seconds(more, "cpu", features=0) == pytest.approx(2 * solved)
    assert seconds(more, "cuda") - seconds(more, "cuda", features=0) == pytest.approx(solved)  # training hides one


# -- when --------------------------------------------------------------------------------------------------------------


class Machine:
    """Stands for the processes that measure: `measured` holds the models of every call, each faster than the last."""

    def __init__(self):
        self.measured, self.asked, self.share, self.rate = [], [], 1.0, 0.0

    def __call__(self, questions, **_):
        self.measured.append([question["cell"]["model"] for question in questions.values()])
        self.asked += questions.values()
        self.rate += 1.0
        return {key: self.answer(question["cell"]["model"]) for key, question in questions.items()}

    def answer(self, model):
        rates = Rates(
            model=model,
            train_images_per_second=self.rate,
            eval_images_per_second=1.0,
            params=1,
            measured=True,
            train_flops_per_image={"dense": 1},
            basis="a test",
            share=self.share,
        )
        peak = {"flops_per_second": self.rate, "source": "a test", "measured": True}
        precomputed = {"peaks": {"float32": peak}, "costs": [{"of": self.rate}]}
        return {"rates": dataclasses.asdict(rates), "precomputed": precomputed}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache; the clock stands still."""
    now = time.time()
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(rate_cache.time, "time", lambda: now)
    return tmp_path / "cache" / "rates"


@pytest.fixture
def machine(folder, monkeypatch):
    machine = Machine()
    monkeypatch.setattr(estimate, "_measure", machine)
    return machine


def ask(*cells, size=SIZE, device="cpu", threads=1, processes=2, anew=False):
    return estimate.calibrate(
        cells, {"glyphs": size}, device=device, threads=threads, processes=processes, anew=anew, report=Reporter()
    )


def later(monkeypatch, seconds):
    now = rate_cache.time.time() + seconds
    monkeypatch.setattr(rate_cache.time, "time", lambda: now)


def test_only_missing_models_are_measured(machine, monkeypatch):
    ask(A)
    later(monkeypatch, 60)
    ask(A, B)
    later(monkeypatch, 60)
    measured = ask(C, B, A)
    assert machine.measured == [[A.model], [B.model], [C.model]]
    assert [rate.train_images_per_second for rate in measured.rates.values()] == [3, 2, 1]
    assert measured.age == pytest.approx(120)
    assert measured.precomputed["peaks"]["float32"]["flops_per_second"] == 3  # the highest, as of several processes
    assert ask(C, B, A) == measured
    assert ask(A, anew=True).age is None and machine.measured[-1] == [A.model]


def with_recipe(**recipe):
    return replace(A, recipe=replace(A.recipe, **recipe))


@pytest.mark.parametrize(
    "cell, options",
    [
        (replace(A, image_size=14), {}),
        (replace(A, channels=3), {}),
        (replace(A, model_options=(("a", 1),)), {}),
        (with_recipe(batch=32), {}),
        (with_recipe(optimizer="sgd"), {}),
        (with_recipe(dtype="float32"), {}),
        (with_recipe(augmentation="randaugment"), {}),
        (with_recipe(decoding="device"), {}),
        (A, {"threads": 2}),
        (A, {"processes": 3}),
        (A, {"size": replace(SIZE, classes=11)}),
        (A, {"size": replace(SIZE, shape=None)}),
    ],
)
def test_another_step_or_other_neighbours_are_measured(machine, cell, options):
    for _ in range(2):
        ask(A)
        ask(cell, **options)
    assert len(machine.measured) == 2


@pytest.mark.parametrize(
    "where, what, value",
    [
        (environment, "cpu_model", lambda: "another"),
        (environment, "version", lambda _: "another"),
        (platform, "node", lambda: "another"),
        (rate_cache, "RECIPE_REVISION", 4096),
        (vit.family, "FAMILY", replace(vit.family.FAMILY, revision=4096)),
        (estimate.fingerprint, "of_model", lambda _: estimate.fingerprint.Fingerprint(digest="another")),
        (estimate, "Rates", dataclasses.make_dataclass("Rates", [("new", int, 0)], bases=(Rates,), frozen=True)),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_another_machine_version_network_or_question_is_measured(machine, monkeypatch, where, what, value):
    ask(A)
    with monkeypatch.context() as changes:
        changes.setattr(where, what, value)
        registry.forget()  # which family builds a model is looked up once
        ask(A)
    registry.forget()
    assert len(machine.measured) == 2
    ask(A)
    assert len(machine.measured) == 2


def test_what_no_step_takes_longer_for_is_not_measured_again(machine, monkeypatch):
    ask(A, with_recipe(lr=0.5, cooldown=0.5), replace(A, seed=3, horizons=(0, 64), num_images=50))
    monkeypatch.setenv("OMP_NUM_THREADS", "17")  # who measures is told how many
    ask(with_recipe(weight_decay=0.0))
    assert machine.measured == [[A.model]]
    assert set(estimate.STEP_FIELDS) < {entry.name for entry in dataclasses.fields(Recipe)}


@pytest.mark.parametrize("seconds, times", [(0, 1), (3599, 1), (3601, 2), (-5, 2)])
def test_rates_are_kept_for_an_hour(machine, monkeypatch, seconds, times):
    ask(A)
    later(monkeypatch, seconds)
    assert (ask(A).age is None) == (times == 2) and len(machine.measured) == times


def test_what_is_too_old_is_removed(machine, folder):
    ask(A)
    (old,) = folder.iterdir()
    os.utime(old, (time.time() - 3700,) * 2)
    ask(B)
    assert not old.exists() and len(list(folder.iterdir())) == 1


@pytest.mark.parametrize("share, times", [(0.69, 2), (0.71, 1)])
def test_what_was_measured_while_others_used_the_machine_is_not_kept(machine, share, times):
    machine.share = share
    ask(A)
    ask(A)
    assert len(machine.measured) == times


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data.replace(b"2.0", b"3.0"),
        lambda data: b"[]",
        lambda data: b"\xff\xfe",
        lambda data: b"[" * 100_000,
        lambda data: files.sealed({"name": 3, "measured": 1e12}),
    ],
    ids=["torn", "flipped", "list", "bytes", "deep", "foreign"],
)
def test_damaged_and_foreign_files_are_measured_over(machine, folder, damage):
    machine.rate = 1.0
    ask(A)
    (path,) = folder.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert ask(A).age is None
    assert ask(A).age == 0 and len(machine.measured) == 2


@pytest.mark.parametrize("where", ["/proc/rates", "file", "file/below"])
def test_where_nothing_can_be_written_every_plan_measures(machine, tmp_path, monkeypatch, where):
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / where))  # an absolute path stays as it is
    ask(A)
    assert ask(A).age is None
    assert len(machine.measured) == 2 and (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "device, shape, measured",
    [
        ("cpu", None, False),
        ("cpu", (28, 28, 1), True),
        ("cuda", None, True),
    ],
)
def test_a_processor_is_not_asked_how_fast_it_would_train_on_images_that_are_not_here(
    device, shape, measured, machine, monkeypatch
):
    import torch

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100")
    ask(A, size=replace(SIZE, shape=shape), device=device)
    assert [question["measure"] for question in machine.asked] == [measured]
