"""`python -m bench.doctor` on a CPU, and on one that poses as a GPU."""

import json

import pytest

from bench import doctor
from bench.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from bench.cost.timing import Workload
from bench.execute.workloads import Subject
from tests.gpu.posing import posing


@pytest.fixture
def brief(monkeypatch):
    """Without what runs a study, or the machine at its limit."""
    left_out = ("ceilings", "study", "kills", "ranks")  # the last two: tests/execute/test_first_hour.py
    checks = [check for check in doctor.CHECKS if check.name not in left_out]
    monkeypatch.setattr(doctor, "FAMILIES", doctor.FAMILIES[:1])
    monkeypatch.setattr(doctor, "CHECKS", checks)
    monkeypatch.setattr(doctor, "STEPS", 3)
    return monkeypatch


def outcomes(path):
    found = json.loads(path.read_text())["sections"]
    return {name: {line["outcome"] for line in lines} for name, lines in found.items()}


@pytest.mark.slow
def test_a_cpu_passes_what_applies_and_is_not_asked_twice(brief, tmp_path, capsys):
    path = tmp_path / "doctor.json"
    arguments = ["--quick", "--device", "cpu", "--out", str(path)]
    assert doctor.main(arguments) == EXIT_OK
    found = outcomes(path)
    assert found["recorded steps"] == found["memory"] == {"n/a"} and "throughput" not in found
    assert found["numerics"] == found["resuming"] == {"pass"}
    table = path.with_suffix(".md").read_text().splitlines()
    rows = [line for line in table if line.startswith("|")]
    assert len(rows) > 8 and {line.count("|") for line in rows} == {5}
    brief.setattr(doctor, "examine", lambda *_: pytest.fail("checked again"))
    assert doctor.main(arguments) == EXIT_OK


@pytest.mark.slow
def test_every_check_of_a_gpu_runs(brief, tmp_path, capsys):
    path = tmp_path / "doctor.json"
    with posing():
        doctor.main(["--quick", "--device", "cuda", "--out", str(path)])
    found = outcomes(path)
    assert found["recorded steps"] == found["memory"] == found["numerics"] == {"pass"}, path.read_text()


def test_only_a_published_rate_is_a_limit_of_throughput(monkeypatch):
    """Rooflines, which rest on assumptions, are shown beside it."""
    instant = Workload(name="x", call=lambda: None, images=1)
    monkeypatch.setattr(Subject, "largest_training", lambda *_, **__: instant)
    large = doctor.THROUGHPUT.keys()
    monkeypatch.setattr(doctor, "_roofline", lambda *_: 1.0)
    with posing():
        lines = {line.check: line for line in doctor.throughput("cuda")}
    assert lines.keys() == large | {f"{name}: of the H100's roofline" for name in large}
    assert {name for name, line in lines.items() if line.limit} == doctor.PUBLISHED.keys()


def test_what_fails_is_said_and_checked_again(brief, tmp_path, capsys):
    def broken(_):
        yield doctor.CheckResult(check="first", value="1")
        raise RuntimeError("no kernel image is available")

    brief.setattr(doctor, "CHECKS", (doctor.MachineCheck(name="broken", run=broken),))
    arguments = ["--device", "cpu", "--out", str(tmp_path / "doctor.json")]
    for _ in range(2):
        assert doctor.main(arguments) == EXIT_FAILED
        assert "RuntimeError: no kernel image" in capsys.readouterr().out
    assert doctor.at_least("x", 2.0, 3.0).outcome == "fail" and doctor.at_most("x", 2.0, 3.0).outcome == "pass"
    assert doctor.main(["--out", str(tmp_path / "doctor.txt"), "--device", "cpu"]) == EXIT_USAGE
