"""The interval of a comparison of families holds the choice of learning rates, where other rates were trained."""

from dataclasses import replace

import pytest

from bench.analysis import lr_sweep, rate_choice
from bench.analysis.check import checks
from bench.analysis.comparisons import compared_series
from bench.analysis.evidence import HEADLINE, UPSTREAM
from bench.analysis.frontiers import at_compute
from bench.questions import best_family_at_equal_compute as question
from bench.study.record import Record
from tests.analysis._records import World, change, map_scores
from tests.analysis._study import read

MODELS = ("ViT-nano/7", "ViT-mini/7", "ResNet-mini", "ResNet-small")


def records(*, families: tuple[str, ...] = ("ViT", "ResNet"), better: float = 0.0) -> list[Record]:
    """Every model at 1e-3; those of some families at 2e-3 too, where downstream scores are `better` and upstream ones
    worse, so that 1e-3 stands."""
    world = World.small(models=MODELS)
    made = []
    for record in world.records():
        made.append(record)
        if record.model.family in families:
            other = change(
                record,
                {
                    "directory": f"{record.directory}-other",
                    "cell.recipe": replace(record.cell.recipe, lr=2 * record.cell.recipe.lr),
                },
            )
            step = {"upstream": -0.05}
            made.append(map_scores(other, lambda _, s, step=step: replace(s, value=s.value + step.get(s.task, better))))
    return made


def compared(made: list[Record]) -> rate_choice.UnderRates:
    evidence = read(made)
    found = rate_choice.at_compute(evidence, compared_series(evidence), "ViT", "ResNet", HEADLINE)
    assert isinstance(found, rate_choice.UnderRates)
    return found


def test_without_another_rate_nothing_changes_and_the_report_says_so() -> None:
    evidence = read(records(families=()))
    plain = at_compute(evidence, compared_series(evidence), "ViT", "ResNet", HEADLINE)
    assert compared(records(families=())) == rate_choice.UnderRates(gaps=plain)
    assert [c for c in checks(evidence) if c.kind == "rate not in interval"]
    assert not [c for c in checks(read(records())) if c.kind == "rate not in interval"]


@pytest.mark.parametrize("better", [0.08, -0.08])
def test_the_interval_holds_the_difference_under_each_choice(better: float) -> None:
    """ResNets would be 8 points better or worse at the other rate."""
    plain = compared(records(families=())).gaps
    found = compared(records(families=("ResNet",), better=better))
    assert found.gaps.mean.value == pytest.approx(plain.mean.value)  # the rate that stands still does
    assert found.others and all(
        other.mean.value == pytest.approx(plain.mean.value - better, abs=0.01) for other in found.others
    )
    assert found.gaps.mean.half == pytest.approx(max(abs(better) + o.mean.half for o in found.others), abs=0.01)
    for other in found.others:
        assert found.gaps.mean.low <= other.mean.low + 1e-9 and other.mean.high - 1e-9 <= found.gaps.mean.high
        for gap, changed in zip(found.gaps.gaps, other.gaps, strict=True):
            assert gap.estimate.low <= changed.estimate.value <= gap.estimate.high


def test_the_finding_says_what_other_rates_give() -> None:
    (finding,) = question.ask(read(records(families=("ResNet",), better=0.08)))
    (other,) = finding.evidence
    assert isinstance(other, question.OtherRates) and other.least <= other.greatest < 0
    assert any("other learning rates" in sentence for sentence in question.say(finding))
    (finding,) = question.ask(read(records(families=())))
    assert finding.evidence == () and not any("learning rates" in sentence for sentence in question.say(finding))


def test_rates_outside_of_the_interval_of_the_best_could_not_have_been_chosen() -> None:
    evidence = read(records())
    (sweep, *_) = lr_sweep.sweeps(evidence)
    assert rate_choice.possible(sweep) == sweep.tried  # two rates: no curve
    assert evidence.swept is not None and UPSTREAM in evidence.measures
