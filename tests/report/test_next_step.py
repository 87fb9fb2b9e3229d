"""One next step: by what the study lacks, with a command that exists and a price that is arithmetic of its records."""

import shlex
from dataclasses import replace

import pytest

from bench import run
from bench.analysis.findings import Findings
from bench.core.cli import PARSER_ALONE, ParserMade
from bench.core.formatting import duration
from bench.plan import __main__ as plan
from bench.questions.change_survives_scale import Survival
from bench.report import next_step
from bench.report.next_step import NextStep
from bench.store.grid import WantedCells
from tests.analysis._study import findings_of, study, swept
from tests.analysis._study import read as evidence_of
from tests.analysis.test_ladders import evidence as ladder_of


def step_of(evidence, *, wanted: WantedCells | None = None, check: bool = False) -> tuple[NextStep, Findings]:
    """The step after a study, of which `wanted` was asked for, and what was found."""
    findings = findings_of(evidence)
    asked = replace(evidence, records=replace(evidence.records, wanted=wanted)) if wanted else evidence
    return next_step.next_step(asked, findings, None, study="--suite scaling", check=check), findings


def seconds_of(evidence) -> float:
    return sum(record.cost.seconds.total or 0.0 for record in evidence.records.records)


def test_a_study_of_one_seed_is_to_be_repeated_for_as_much_again():
    evidence = study(seeds=(0,))
    step, _ = step_of(evidence)
    assert step.command == "vit-bench run --suite scaling --seeds 2"
    assert duration(seconds_of(evidence)) in step.price


def test_an_unfinished_study_is_to_be_finished_for_the_mean_of_its_runs():
    evidence = study()
    names = tuple(record.directory for record in evidence.records.records)
    for lacks in (("a",), ("a", "b", "c")):
        wanted = WantedCells(suite="scaling", scale="cpu", names=(*names, *lacks))
        step, _ = step_of(evidence, wanted=wanted)
        assert step.command == "vit-bench run --suite scaling" and f"{len(lacks)} run" in step.text
        assert duration(seconds_of(evidence) / len(names) * len(lacks)) in step.price


def test_a_run_that_is_refused_is_not_to_be_finished():
    evidence = study(seeds=(0,))
    names = tuple(record.directory for record in evidence.records.records)
    wanted = WantedCells(suite="scaling", scale="cpu", names=(*names, "a"), refused={"a": "no such model"})
    step, _ = step_of(evidence, wanted=wanted)
    assert "Finish" not in step.text


def test_a_sweep_that_ends_at_its_edge_is_to_be_widened():
    step, _ = step_of(evidence_of(swept({1e-3: 0.5, 2e-3: 0.6, 4e-3: 0.8})))
    assert "--sweep lr=0.008,0.016" in step.command and "ViT-nano/7" in step.command


@pytest.mark.parametrize("changes", [{"seeds": (0,)}, {}, {"horizons": (0, 8_000)}])
def test_commands_parse_and_something_is_said_not_to_be_shown(changes):
    evidence = study(**changes)
    for check in (False, True):
        step, findings = step_of(evidence, check=check)
        _, verb, *words = shlex.split(step.command)
        with pytest.raises(ParserMade) as made:
            {"run": run, "plan": plan}[verb].main.__wrapped__(PARSER_ALONE)
        made.value.args[0].parse_args(words)
        assert step.price and next_step.not_shown(findings).startswith("Not shown here: ")


def test_more_seeds_are_enough_for_the_interval_and_never_too_many():
    """An interval that is k times too wide takes k² times the seeds."""
    (f, *_) = [f for f in step_of(study())[1].findings if f.estimate is not None and f.unit == "share"]
    for wide, wanted in ((0.5, 3), (1.2, 3), (1.4, 4), (1.9, 8), (2.1, None)):
        half = wide * 0.1
        near = replace(f, estimate=0.1, low=0.1 - half, high=0.1 + half)
        assert next_step._seeds_for(near, 2) == wanted


def test_a_ladder_gets_the_seeds_that_decide_or_a_rung_further():
    """Never a sweep of rates for one arm, though every arm was tried at several rates."""
    undecided = ladder_of({"some": (1.5, 1.5, 1.5)}, seeds=3, noise=0.8)
    findings = findings_of(undecided)
    step = next_step.next_step(undecided, findings, None, study="study.toml", check=False)
    (finding,) = [f for f in findings.findings if f.question == next_step.LADDER_QUESTION]
    (whole,) = [item for item in finding.evidence if isinstance(item, Survival)]
    assert whole.verdict == "inconclusive" and whole.seeds_needed
    assert step.command == f"vit-bench ladder study.toml --seeds {max(whole.seeds + 1, whole.seeds_needed)}"
    decided = ladder_of({"up": (1.0, 2.5, 4.0)}, noise=0.2)
    step = next_step.next_step(decided, findings_of(decided), None, study="--suite ladder", check=False)
    assert "rung further" in step.text or "larger scale" in step.text
    assert step.command.startswith("vit-bench ladder --") and "sweep" not in step.command
