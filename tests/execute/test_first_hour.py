"""Checks of `vit-bench doctor` that need workers, ranks or memory, on a CPU and on one that poses as a GPU."""

import contextlib
import json
import os
from types import SimpleNamespace

import pytest
import torch
import torchvision

from bench import run
from bench.execute import first_hour
from bench.train import precision, reading
from tests.gpu.posing import MEMORY, posing

pytestmark = pytest.mark.gate


@pytest.fixture
def gpu(monkeypatch):
    """Small: a network of 28 pixels, batches of 8."""
    for name, value in (
        ("MODEL", "ViT-pico/14"),
        ("LARGE", "ViT-pico/14"),
        ("SIDE", 28),
        ("BATCH", 8),
        ("FED", 2),
        ("QUEUED", 64),
    ):
        monkeypatch.setattr(first_hour, name, value)
    with posing():
        yield


@pytest.mark.parametrize("check", [first_hour.kills, first_hour.ranks])
def test_this_machine_passes(check, monkeypatch, tmp_path):
    """Also where nobody, itself included, knows it by its name."""
    (tmp_path / "sitecustomize.py").write_text("import socket\nsocket.getfqdn = lambda *_: 'nobody knows me'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(first_hour.environment, "cores", lambda: 2)
    monkeypatch.setattr(first_hour, "KILLED_OF", 600)
    monkeypatch.setattr(first_hour, "MAX_ENDING_SECONDS", 600.0)
    lines = list(check("cpu"))
    assert len(lines) >= 5 and {line.outcome for line in lines} == {"pass"}, lines


def test_one_device_has_no_ranks(monkeypatch):
    monkeypatch.setattr(first_hour.environment, "cores", lambda: 1)
    assert [line.outcome for line in first_hour.ranks("cpu")] == ["n/a"]
    for devices, ranks in ((1, 1), (3, 2), (8, 8), (9, 8)):
        monkeypatch.setattr(first_hour, "accelerators", lambda _, devices=devices: tuple(map(str, range(devices))))
        assert first_hour.number_of_ranks("cuda") == ranks
    monkeypatch.setattr(first_hour, "accelerators", lambda _: ("GPU-a", "MIG-1", "MIG-2"))
    assert [line.outcome for line in first_hour.ranks("cuda")] == ["n/a"]


def test_who_works_on_which_gpu_is_asked_only_where_somebody_tells(monkeypatch):
    """AMD's do without nvidia-smi."""
    monkeypatch.setattr(first_hour, "accelerators", lambda _: ("0", "1"))
    monkeypatch.setattr(first_hour.shutil, "which", lambda _: None)
    assert [line.outcome for line in first_hour.workers("cuda")] == ["n/a"]


def test_the_clock_and_the_gpus_own_are_compared_over_the_same_steps(gpu, monkeypatch):
    """One that runs ever slower, as at its limit of power, is no fault of either."""
    now, calls = [0.0], [0]

    def step(*_, **__):
        calls[0] += 1
        now[0] += calls[0]

    monkeypatch.setattr(first_hour, "_step", lambda *_: (step, (None, torch.zeros(8))))
    monkeypatch.setattr(first_hour.time, "perf_counter", lambda: now[0])
    profile = SimpleNamespace(key_averages=list)
    monkeypatch.setattr(torch.profiler, "profile", lambda **_: contextlib.nullcontext(profile))
    lines = [line for line in first_hour.timing("cuda") if "apart" in line.check]
    assert [line.value for line in lines] == ["0", "0"]


def test_the_suite_of_speed_is_one_run(monkeypatch, tmp_path, capsys):
    """It takes minutes."""
    asked, done = [], SimpleNamespace(returncode=0)
    monkeypatch.setattr(first_hour, "_run", lambda _, *words: (asked.append(words), (done, 1.0))[1])
    list(first_hour.suites("cpu"))
    assert run.main([*asked[-1], "--plan", "--json", "--results", str(tmp_path)]) == 0
    plan = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert plan["suite"] == "speed" and len(plan["cells"]) == 1


def test_less_and_less_memory(gpu, monkeypatch):
    """A step of 8 images needs 8 GB here: each share leaves room for fewer; without any nothing fits, which is said."""
    room = [8.0]
    monkeypatch.setattr(first_hour, "MEMORY_SHARES", (0.5, 0.1))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda *_: 8 << 30)
    monkeypatch.setattr(
        torch.cuda,
        "set_per_process_memory_fraction",
        lambda share: room.__setitem__(0, share * MEMORY / 2**30),
        raising=False,
    )
    real, sizes = precision.Working.__call__, []

    def short(self, x_BCHW):
        if len(x_BCHW) > room[0]:
            raise torch.OutOfMemoryError("no room")
        sizes.append(len(x_BCHW))
        return real(self, x_BCHW)

    monkeypatch.setattr(precision.Working, "__call__", short)
    lines = list(first_hour.scarcity("cuda"))
    assert {line.outcome for line in lines} == {"pass"}, lines
    assert set(sizes) == {8, 4} and room[0] > 8
    assert [line.limit for line in lines].count("out of memory") == 1  # 10 % of it: less than one image
    assert "TooLarge" in lines[-1].value


def test_features_and_batches_of_a_gpu(gpu, monkeypatch):
    monkeypatch.setattr(reading, "_workers", lambda: 0)
    decode = torchvision.io.decode_jpeg
    lines = [*first_hour.evaluation("cuda")]
    with monkeypatch.context() as with_nvjpeg:
        with_nvjpeg.setattr(torchvision.io, "decode_jpeg", lambda files, *, mode, device: decode(files, mode=mode))
        lines += first_hour.feed("cuda")
        (same,) = first_hour.decoding("cuda")
        assert same.outcome == "pass" and same.value == "0"
    assert {line.outcome for line in lines if "apart" in line.check} == {"pass"}
    fed = [line.check.partition(":")[0] for line in lines if "batches alone" in line.check]
    assert fed == ["resident", "mapped", "JPEG", "packed JPEG", "JPEG by nvJPEG"]
    assert any("levels" in line.value for line in lines)
    rates = {line.check.partition(": ")[2] for line in lines if line.limit and "apart" not in line.check}
    assert rates == {"step with its batches, over the slower of both"}  # how fast a machine decodes fails no check
    monkeypatch.setattr(torchvision.io, "decode_jpeg", lambda *_, **__: torch.zeros(1, device="none"))
    last = list(first_hour.feed("cuda"))[-1]
    assert last.outcome == "fail" and "No JPEG can be decoded on cuda" in last.value


def record(**parts):
    return SimpleNamespace(**{"directory": "cell", "speed": None} | parts)


def test_what_must_be_so_in_records_of_speed():
    def outcomes(of):
        return [line.outcome for line in first_hour.judged(of)]

    def scan(largest, *batches):
        return record(
            speed=SimpleNamespace(
                inference=SimpleNamespace(batch=4),
                batches=[SimpleNamespace(batch=b) for b in batches],
                largest_batch=SimpleNamespace(found_inference=largest),
            )
        )

    assert outcomes(scan(8, 1, 2, 4)) == ["pass", "pass"] and outcomes(scan(2, 1, 4, 2)) == ["fail", "fail"]
    assert outcomes(record()) == []
