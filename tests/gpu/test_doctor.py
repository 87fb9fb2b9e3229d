"""`python -m bench doctor` on a CPU, and on one that poses as a GPU."""

import json
from unittest.mock import Mock

import pytest

from bench.commands import doctor
from bench.core.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from bench.cost.timing import Workload
from bench.execute import machine_checks
from bench.execute.examined import CheckResult, MachineCheck, at_least, at_most
from bench.execute.workloads import Subject
from bench.train.step import Step
from tests.gpu.posing import posing


@pytest.fixture
def brief(monkeypatch):
    """Without what runs a study, or the machine at its limit."""
    left_out = ("ceilings", "study", "kills", "ranks")  # the last two: tests/execute/test_first_hour.py
    checks = [check for check in machine_checks.CHECKS if check.name not in left_out]
    monkeypatch.setattr(machine_checks, "FAMILIES", machine_checks.FAMILIES[:1])
    monkeypatch.setattr(machine_checks, "CHECKS", checks)
    monkeypatch.setattr(machine_checks, "STEPS", 3)
    return monkeypatch


def outcomes(path):
    sections = json.loads(path.read_text())["sections"]
    return {name: {line["outcome"] for line in lines} for name, lines in sections.items()}


@pytest.mark.gate
def test_a_cpu_passes_what_applies_and_is_not_asked_twice(brief, tmp_path, capsys):
    path = tmp_path / "doctor.json"
    arguments = ["--quick", "--device", "cpu", "--out", str(path)]
    assert doctor.main(arguments) == EXIT_OK
    by_section = outcomes(path)
    assert by_section["recorded steps"] == by_section["memory"] == {"n/a"} and "throughput" not in by_section
    assert by_section["numerics"] == by_section["resuming"] == {"pass"}
    table = path.with_suffix(".md").read_text().splitlines()
    rows = [line for line in table if line.startswith("|")]
    assert len(rows) > 8 and {line.count("|") for line in rows} == {5}
    brief.setattr(machine_checks, "examine", lambda *_: pytest.fail("checked again"))
    assert doctor.main(arguments) == EXIT_OK


@pytest.mark.gate
def test_every_check_of_a_gpu_runs(brief, tmp_path, capsys):
    path = tmp_path / "doctor.json"
    with posing():
        doctor.main(["--quick", "--device", "cuda", "--out", str(path)])
    by_section = outcomes(path)
    assert by_section["recorded steps"] == by_section["memory"] == by_section["numerics"] == {"pass"}, path.read_text()


def test_only_a_published_rate_is_a_limit_of_throughput(monkeypatch):
    instant = Workload(name="x", call=lambda: None, images=1)
    monkeypatch.setattr(Subject, "largest_training", lambda *_, **__: instant)
    large = machine_checks.THROUGHPUT.keys()
    with posing():
        lines = {line.check: line for line in machine_checks.throughput("cuda")}
    assert lines.keys() == large
    assert {name for name, line in lines.items() if line.limit} == machine_checks.PUBLISHED.keys()


def test_a_compiled_gradient_that_is_wrong_fails(monkeypatch):
    """One tensor of many, whose norm is a hundredth of all."""
    sizes = {"ViT-pico/14": (28, 8)}
    with posing():
        (right,) = machine_checks.gradients("cuda", sizes=sizes)
        taken = Step.gradients_that_fit

        def wrong(self, *given, **how):
            loss = taken(self, *given, **how)
            if self.compiles:
                self.weights[-1].grad.mul_(1.3)
            return loss

        monkeypatch.setattr(Step, "gradients_that_fit", wrong)
        (line,) = machine_checks.gradients("cuda", sizes=sizes)
    assert right.outcome == "pass" and right.value == "0"
    assert line.outcome == "fail" and "head.bias" in line.check


def test_what_was_known_before_a_kill_is_kept_and_its_check_begun_again(brief, tmp_path, capsys):
    begun, path = [], tmp_path / "doctor.json"

    def killed(_):
        begun.append("killed")
        yield CheckResult(check="first", value="1")
        if len(begun) == 1:
            raise KeyboardInterrupt
        yield CheckResult(check="second", value="2")

    def other(_):
        begun.append("other")
        yield CheckResult(check="third", value="3")

    brief.setattr(
        machine_checks, "CHECKS", (MachineCheck(name="killed", run=killed), MachineCheck(name="other", run=other))
    )
    arguments = ["--device", "cpu", "--out", str(path)]
    doctor.main(arguments)
    assert outcomes(path) == {"killed": {"pass"}} and "first" in path.with_suffix(".md").read_text()
    assert doctor.main([*arguments, "--only", "other"]) == EXIT_OK and begun == ["killed", "other"]
    assert doctor.main(arguments) == EXIT_OK and begun == ["killed", "other", "killed"]
    assert doctor.main([*arguments, "--only", "nothing"]) == EXIT_USAGE


def test_what_fails_is_said_and_checked_again(brief, tmp_path, capsys):
    def broken(_):
        yield CheckResult(check="first", value="1")
        raise RuntimeError("no kernel image is available")

    brief.setattr(machine_checks, "CHECKS", (MachineCheck(name="broken", run=broken),))
    arguments = ["--device", "cpu", "--out", str(tmp_path / "doctor.json")]
    for _ in range(2):
        assert doctor.main(arguments) == EXIT_FAILED
        assert "RuntimeError: no kernel image" in capsys.readouterr().out
    brief.setattr(machine_checks, "synchronise", broken_device := Mock(side_effect=RuntimeError("illegal access")))
    check = MachineCheck(name="lost", run=lambda _: iter([CheckResult(check="first", value="1")]))
    assert [line.outcome for line in machine_checks.examine(check, "cuda")] == ["pass", "fail"] and broken_device.called
    assert at_least("x", 2.0, 3.0).outcome == "fail" and at_most("x", 2.0, 3.0).outcome == "pass"
    assert doctor.main(["--out", str(tmp_path / "doctor.txt"), "--device", "cpu"]) == EXIT_USAGE
