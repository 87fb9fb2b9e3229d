"""Rates are measured once for an hour of plans and runs, and again whenever anything they depend on has changed."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
import time
import warnings
from dataclasses import replace

import pytest

import vit.family
from bench import run
from bench.core import files
from bench.core.spec import Cell, Recipe, to_json
from bench.plan import estimate, kept_rates
from tests.conftest import PROJECT

A, B, C = (Cell(model=name, data="glyphs", horizons=(0, 64_000)) for name in ("ViT-pico/14", "ViT-pico/7", "pixels"))
SIZE = estimate.DataSize(train=100, test=10, classes=10, shape=(28, 28, 1))


def answer(rate, share=1.0):
    rates = estimate.Rates(train_images_per_second=rate, eval_images_per_second=2 * rate, params=1, measured=True,
                           train_flops_per_image={"dense": 1, "paper": 1}, basis="a test", share=share)  # fmt: skip
    peak = {"flops_per_second": rate, "source": "a test", "measured": True}
    return {"rates": to_json(rates), "known": {"peaks": {"float32": peak}, "costs": [{"of": rate}]}}


class Machine:
    """Stands for the processes that measure: `measured` holds the models of every call, each faster than the last."""

    def __init__(self):
        self.measured, self.share, self.rate = [], 1.0, 0.0

    def __call__(self, jobs, **_):
        self.measured.append([job["cell"]["model"] for job in jobs.values()])
        self.rate += 1.0
        return {key: answer(self.rate, self.share) for key in jobs}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache; the clock stands still."""
    now = time.time()
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_rates.time, "time", lambda: now)
    return tmp_path / "cache" / "rates"


@pytest.fixture
def machine(folder, monkeypatch):
    machine = Machine()
    monkeypatch.setattr(estimate, "_measure", machine)
    return machine


def calibrate(*cells, size=SIZE, device="cpu", threads=1, workers=2, **options):
    return estimate.calibrate(
        list(cells), {"glyphs": size}, device=device, threads=threads, workers=workers, **options
    )  # fmt: skip


def later(monkeypatch, seconds):
    now = kept_rates.time.time() + seconds
    monkeypatch.setattr(kept_rates.time, "time", lambda: now)


def test_a_second_plan_starts_no_process_and_finds_the_same(folder, monkeypatch):
    monkeypatch.setattr(estimate, "BUSY", 0.0)  # whoever else uses the machine that tests
    first = calibrate(A, C, workers=1)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("measured"))
    second = calibrate(A, C, workers=1)
    assert first.age is None and second == replace(first, age=0.0)
    assert all(rate.measured for rate in second.rates.values())
    assert second.known["peaks"] and len(second.known["costs"]) == 2  # so workers measure none either


def test_a_plan_says_how_old_its_rates_are_and_is_else_the_same(machine, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    asked = ["--suite", "smoke", "--plan", "--json", "--device", "cpu"]

    def plan(*more):
        assert run.main([*asked, *more]) == 0
        said = capsys.readouterr()
        return json.loads(said.out), said.err

    first, said = plan()
    assert "Calibrating" in said and "ago" not in said and first.pop("rates_age_seconds") is None
    later(monkeypatch, 720)
    second, said = plan()
    assert "Calibrating" not in said
    assert "Rates measured up to 12.0 min ago on this machine (measure again: --calibrate)." in said
    assert second.pop("rates_age_seconds") == pytest.approx(720) and second == first and first["calibrated"]
    assert len(machine.measured) == 1
    third, said = plan("--calibrate")
    assert len(machine.measured) == 2 and "ago" not in said and third["rates_age_seconds"] is None
    assert plan()[0]["rates_age_seconds"] == 0  # and what was measured again is what is kept
    assert not (tmp_path / "results").exists()


def test_only_missing_models_are_measured(machine, monkeypatch):
    ticks = []
    calibrate(A)
    later(monkeypatch, 60)
    calibrate(A, B)
    later(monkeypatch, 60)
    found = calibrate(C, B, A, say=ticks.append)
    assert machine.measured == [[A.model], [B.model], [C.model]] and len(ticks) == 1
    assert [rate.train_images_per_second for rate in found.rates.values()] == [3, 2, 1]
    assert found.age == pytest.approx(120)
    assert found.known["costs"] == [{"of": 3}, {"of": 2}, {"of": 1}]
    assert found.known["peaks"]["float32"]["flops_per_second"] == 3  # the highest, as of several processes
    assert calibrate(C, B, A, say=ticks.append) == found and len(ticks) == 1


def changed(cell=A, **recipe):
    return replace(cell, recipe=replace(cell.recipe, **recipe))


@pytest.mark.parametrize("cell, options", [
    (B, {}), (replace(A, image_size=14), {}), (replace(A, channels=3), {}), (replace(A, model_options=(("a", 1),)), {}),
    *((changed(**{name: value}), {}) for name, value in {
        "batch": 32, "micro_batch": 8, "optimizer": "sgd", "dtype": "float32", "average": 0.9, "loss": "sigmoid",
        "shift": 0, "flip": True, "clip": 0.0, "sharding": "fsdp",
    }.items()),
    (A, {"threads": 2}), (A, {"workers": 3}), (A, {"size": replace(SIZE, classes=11)}),
    (A, {"size": replace(SIZE, shape=None)}),
])  # fmt: skip
def test_another_step_or_other_neighbours_are_measured(machine, cell, options):
    calibrate(A)
    calibrate(cell, **options)
    assert len(machine.measured) == 2
    calibrate(A)
    calibrate(cell, **options)
    assert len(machine.measured) == 2


@pytest.mark.parametrize("where, what, value", [
    (kept_rates.environment, "cpu_model", lambda: "another"), (kept_rates.environment, "cores", lambda: 4096),
    (kept_rates.environment, "version", lambda _: "another"), (kept_rates, "__version__", "another"),
    (kept_rates, "RECIPE_REVISION", 4096), (vit.family, "REVISION", 4096),
    (kept_rates, "source_sha256", lambda _: "another"), (kept_rates.platform, "node", lambda: "another"),
], ids=lambda v: v if isinstance(v, str) else "")  # fmt: skip
def test_another_machine_or_version_is_measured(machine, monkeypatch, where, what, value):
    calibrate(A)
    with monkeypatch.context() as changes:
        changes.setattr(where, what, value)
        calibrate(A)
    assert len(machine.measured) == 2
    calibrate(A)
    assert len(machine.measured) == 2


def test_another_accelerator_or_setting_is_measured(machine, monkeypatch):
    import torch

    for name in ("NVIDIA A100", "NVIDIA L4", "NVIDIA A100"):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda _, name=name: name)
        calibrate(A, device="cuda")
    assert len(machine.measured) == 2
    calibrate(A)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    calibrate(A)
    assert len(machine.measured) == 4


def test_what_no_step_takes_longer_for_is_not_measured_again(machine, monkeypatch):
    calibrate(A)
    calibrate(changed(lr=0.5, cooldown=0.5, weight_decay=0.0))
    calibrate(replace(A, seed=3, horizons=(0, 64), num_images=50))
    monkeypatch.setenv("OMP_NUM_THREADS", "17")  # who measures is told how many
    calibrate(A)
    assert len(machine.measured) == 1


def test_every_part_of_a_recipe_that_is_passed_over_is_one():
    assert set(kept_rates.FREE) < {entry.name for entry in dataclasses.fields(Recipe)}


def test_edited_modules_count(tmp_path):
    (tmp_path / "vit").mkdir()
    (tmp_path / "bench" / "plots").mkdir(parents=True)
    found = set()
    for path, text in (("vit/a.py", "1"), ("vit/a.py", "2"), ("vit/b.py", "2"), ("bench/train.py", "")):
        (tmp_path / path).write_text(text)
        found.add(kept_rates.source_sha256.__wrapped__(tmp_path))
    assert len(found) == 4
    (tmp_path / "bench" / "plots" / "figure.py").write_text("")
    assert kept_rates.source_sha256.__wrapped__(tmp_path) in found


@pytest.mark.parametrize("seconds, times", [(0, 1), (3599, 1), (3601, 2), (-5, 2)])
def test_rates_are_kept_for_an_hour(machine, monkeypatch, seconds, times):
    calibrate(A)
    later(monkeypatch, seconds)
    assert (calibrate(A).age is None) == (times == 2)
    assert len(machine.measured) == times


def test_what_is_too_old_is_removed(machine, folder):
    calibrate(A)
    (old,) = folder.iterdir()
    others = [folder / f".{old.name}.1.tmp", folder / "mine.txt"]
    for path in (old, *others):
        path.touch()
        os.utime(path, (time.time() - 3700,) * 2)
    calibrate(B)
    assert not old.exists() and not others[0].exists() and others[1].exists() and len(list(folder.iterdir())) == 2


@pytest.mark.parametrize("share, times", [(0.69, 2), (0.71, 1)])
def test_what_was_measured_while_others_used_the_machine_is_not_kept(machine, share, times):
    machine.share = share
    calibrate(A)
    calibrate(A)
    assert len(machine.measured) == times


@pytest.mark.parametrize("damage", [
    lambda data: data[: len(data) // 2], lambda data: data.replace(b"2.0", b"3.0"), lambda data: b"",
    lambda data: b"{}", lambda data: b"[]", lambda data: b"\xff\xfe", lambda data: b"[" * 100_000,
    lambda data: b'{"rates": {}}', lambda data: files.sealed({"measured": "today"}),
    lambda data: files.sealed({"name": 3, "measured": 1e12}),
], ids=["torn", "flipped", "empty", "object", "list", "bytes", "deep", "foreign", "words", "numbers"])  # fmt: skip
def test_damaged_and_foreign_files_are_measured_over(machine, folder, damage):
    calibrate(A)
    (path,) = folder.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert calibrate(A).age is None
    assert calibrate(A).age == 0 and len(machine.measured) == 2


def test_a_file_under_another_models_name_is_not_taken_for_its_own(machine, folder):
    calibrate(A)
    (mine,) = folder.iterdir()
    calibrate(B)
    (other,) = (path for path in folder.iterdir() if path != mine)
    other.replace(mine)
    assert calibrate(A).age is None


@pytest.mark.parametrize("where", ["/proc/rates", "file", "file/below"])
def test_where_nothing_can_be_written_every_plan_measures(machine, tmp_path, monkeypatch, where):
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / where))  # an absolute path stays as it is
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calibrate(A)
        assert calibrate(A).age is None
    assert len(machine.measured) == 2 and (tmp_path / "file").read_text() == "mine"


def test_a_folder_in_the_files_place_and_no_home_are_no_errors(machine, folder, monkeypatch):
    calibrate(A)
    (path,) = folder.iterdir()
    path.unlink()
    path.mkdir()
    assert calibrate(A).age is None and [entry.name for entry in folder.iterdir()] == [path.name]

    def nowhere():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(kept_rates._cache, "directory", nowhere)
    assert calibrate(A).age is None


WRITE = """
import json, sys
from bench.plan.kept_rates import KeptRates
shelf = KeptRates(device="cpu", threads=1, processes=2)
for _ in range(40):
    shelf.keep(json.loads(sys.argv[1]), {"by": sys.argv[2] * 50_000})
"""


def test_two_plans_may_keep_the_same_rates_at_once(folder):
    (job,) = estimate._jobs([A], {"glyphs": SIZE}, device="cpu").values()
    command, environment = [sys.executable, "-c", WRITE, json.dumps(job)], os.environ | {"PYTHONPATH": str(PROJECT)}
    writers = [subprocess.Popen([*command, who], env=environment) for who in "xy"]
    seen = []
    while any(writer.poll() is None for writer in writers):
        if list(folder.glob("*.json")):
            seen.append(files.read_sealed(next(folder.glob("*.json")))["answer"]["by"])
    assert [writer.returncode for writer in writers] == [0, 0]
    assert seen and {text[:1] for text in seen} <= set("xy") and {len(text) for text in seen} == {50_000}
    assert len(list(folder.iterdir())) == 1


class Process:
    """A process that answers for the jobs it is given."""

    started: list[list[str]]

    def __init__(self, *_, **__):
        self.stdin = Process.Input(self)
        self.stdout = iter(())

    class Input(io.StringIO):
        def __init__(self, process):
            super().__init__()
            self.process = process

        def close(self):
            if self.closed:
                return
            jobs = json.loads(self.getvalue())
            Process.started.append([job["cell"]["model"] for job in jobs.values()])
            self.process.stdout = iter([json.dumps({"key": key} | answer(1.0)) for key in jobs])
            super().close()

    def wait(self):
        return 0


@pytest.mark.parametrize("workers, cells, shares", [
    (2, [A, B, C], [[A.model, C.model], [B.model]]), (3, [A, B], [[A.model], [B.model], [A.model]]),
])  # fmt: skip
def test_a_rate_is_measured_beside_as_many_as_a_worker_will_have(folder, monkeypatch, workers, cells, shares):
    monkeypatch.setattr(subprocess, "Popen", Process)
    Process.started, ticks = [], []
    found = calibrate(*cells, workers=workers, tick=lambda *now: ticks.append(now))
    assert Process.started == shares and len(found.rates) == len(cells)
    assert sorted(ticks) == [(done + 1, len(cells)) for done in range(len(cells))]
