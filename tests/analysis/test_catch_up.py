"""Families at equal compute over the number of images: the gap, its slope, where the laws meet, and when not to ask."""

import math
from dataclasses import replace
from typing import Any

import pytest
from scipy import stats

from bench.analysis import gap_series
from bench.analysis.budgets import FamilyBudget
from bench.analysis.catch_up import Closing, HeldOut
from bench.analysis.check import checks
from bench.analysis.evidence import Evidence, nothing_computed
from bench.analysis.finding import Finding, Verdict
from bench.analysis.questions import find
from bench.questions import gap_over_images
from bench.report import text
from bench.report.figures import gap
from bench.stats.levels import p_value
from tests.analysis._records import World
from tests.analysis._study import ask, read, study

GAIN = {"ViT": 0.09, "Hybrid": 0.07, "ResNet": 0.03}  # accuracy per tenfold images
SIZES = (300, 1_000, 3_000, 10_000, 30_000)


class Equal(World):
    """The middle models cost the same per image, and gain differently from more images."""

    def __init__(self, **changes: Any) -> None:
        super().__init__(seed=2)
        for name in ("R-mini+ViT-mini/2", "ResNet-small"):
            family, params, _ = self.models[name]
            self.models[name] = family, params, self.models["ViT-mini/7"][2]
        self.level = {"ViT": 0.80, "Hybrid": 0.78, "ResNet": 0.84}
        for name, value in changes.items():
            setattr(self, name, value)

    def accuracy(self, family: str, flops: float, num_images: int, task: str) -> float:
        self.data_slope = GAIN[family]
        return super().accuracy(family, flops, num_images, task)


@pytest.fixture(scope="module")
def equal() -> Evidence:
    return read(Equal().records())


@pytest.fixture(scope="module")
def over_images(equal: Evidence) -> list[Finding]:
    return ask(equal, "gap over images", "gap over compute")


def about(findings: list[Finding], *subject: str) -> Finding:
    """The main finding over images of two families."""
    return next(f for f in findings if f.question == "gap over images" and f.subject == subject and f.main)


def test_two_models_of_a_family_are_not_mixed() -> None:
    """The better ViT stands for its family; the other is asked about by its name."""
    world = Equal()
    _, params, macs = world.models["ViT-mini/7"]
    world.models["ViT-nano/7"] = "ViT", params // 2, macs  # fewer parameters: less accurate
    world.middle = (*world.middle, "ViT-nano/7")
    evidence = read(world.records())
    lines = [line for line in gap_series.gap_series(evidence) if line.families == ("ViT", "ResNet")]
    assert {line.models for line in lines} == {("ViT-mini/7", "ResNet-small"), ("ViT-nano/7", "ResNet-small")}
    at_most = [line for line in lines if line.flops == lines[0].flops]
    assert lines[0].places[-1].accuracy == max(line.places[-1].accuracy for line in at_most)
    for line in lines:
        assert line.names == line.models
        assert {(place.first.model, place.second.model) for place in line.places} == {line.models}
    asked = ask(evidence, "gap over images")
    assert about(asked, "ViT", "ResNet").trend[0].first.startswith(lines[0].models[0])
    others = {f.subject for f in asked if not f.main}
    assert {line.models for line in lines[1:]} <= others
    alt = gap.draw(evidence).alt
    assert " minus ".join(lines[0].models) in alt


def test_the_gap_at_every_size_is_the_difference_of_the_two(equal: Evidence) -> None:
    line = next(line for line in gap_series.gap_series(equal) if line.families == ("ViT", "ResNet"))
    assert [place.x for place in line.places] == list(SIZES)
    for place in line.places:
        assert {place.first.train_flops, place.second.train_flops} == {line.flops}
        values = [equal.estimate(p, "headline").value for p in (place.first, place.second)]
        assert place.estimate.value == pytest.approx(values[0] - values[1])


def test_its_interval_is_of_the_level_that_it_states(equal: Evidence) -> None:
    """The interval of level 1 - p reaches zero."""
    line = next(line for line in gap_series.gap_series(equal) if line.families == ("ViT", "ResNet"))
    slope, beside = gap_over_images.slope_over_images(equal, line)
    p = p_value(slope, beside=beside)
    again = replace(equal, level=1 - p, **nothing_computed())
    finding = gap_over_images._over_images(again, line, (), main=True)
    assert finding.level == 1 - p and finding.p == pytest.approx(p, rel=1e-3)
    assert min(abs(finding.low), abs(finding.high)) == pytest.approx(0, abs=1e-3 * finding.estimate)


def test_its_slope_is_of_least_squares(equal: Evidence) -> None:
    for line in gap_series.gap_series(equal):
        x, y = [p.x for p in line.places], [p.estimate.value for p in line.places]
        slope, _ = gap_over_images.slope_over_images(equal, line)
        assert slope.value == pytest.approx(stats.linregress([math.log10(a) for a in x], y).slope)


@pytest.mark.parametrize("pair", [("ViT", "ResNet"), ("Hybrid", "ResNet"), ("ViT", "Hybrid")])
def test_its_slope_is_that_of_the_truth(over_images: list[Finding], pair: tuple[str, str]) -> None:
    finding = about(over_images, *pair)
    truth = GAIN[pair[0]] - GAIN[pair[1]]
    assert finding.low < truth < finding.high
    assert finding.estimate == pytest.approx(truth, abs=0.01)
    assert (finding.verdict, finding.leader) == (Verdict.YES, pair[0])
    assert [type(item) for item in finding.evidence[:2]] == [FamilyBudget, FamilyBudget]


def test_equal_families_gain_nothing() -> None:
    world = Equal(level=dict.fromkeys(GAIN, 0.8))
    world.accuracy = lambda *a: World.accuracy(world, *a)  # type: ignore[method-assign]
    assert about(ask(read(world.records()), "gap over images"), "ViT", "ResNet").verdict is Verdict.CANNOT_TELL


def test_the_laws_meet_where_accuracies_are_equal(over_images: list[Finding]) -> None:
    """The ViT is behind, and gains 6 points per tenfold images."""
    finding = about(over_images, "ViT", "ResNet")
    closing = next(item for item in finding.evidence if isinstance(item, Closing))
    at = finding.trend[-1]
    truth = at.x * 10 ** (-at.estimate / (GAIN["ViT"] - GAIN["ResNet"]))
    assert closing.leader == "ResNet" and closing.x is not None
    assert abs(math.log10(closing.x / truth)) < 1  # the truth is no power law
    held = next(item for item in finding.evidence if isinstance(item, HeldOut))
    assert held.x == SIZES[-1]
    assert held.observed == pytest.approx(at.estimate, abs=0.02)
    assert held.low <= held.predicted <= held.high


def test_a_run_that_sees_fewer_images_than_there_are_stands_for_larger_sets(equal: Evidence) -> None:
    points = [p for s in equal.series if s.label == "ViT-mini/7" for p in s.points if p.images_seen == 8_000]
    fresh = next(p for p in points if p.num_images == 10_000)
    assert gap_series._point_on([fresh], 30_000) is fresh
    assert gap_series._point_on([fresh], 3_000) is None


def test_unequal_compute_is_not_compared() -> None:
    evidence = study(seed=2)
    assert not ask(evidence, "gap over images", "gap over compute")
    assert not [c for c in checks(evidence) if c.kind == "still falling"]


def test_every_answer_has_words_and_a_figure(equal: Evidence, over_images: list[Finding]) -> None:
    findings = find(equal)
    words = [a for f, a in zip(findings.findings, text.answers(findings), strict=True) if f in over_images]
    assert len(words) == len(over_images) and all("minus" in a.text for a in words)
    drawing = gap.draw(equal)
    assert len(drawing.data) == len(drawing.annotations) > 0 and len(drawing.figure.axes) == 1


def test_a_loss_that_still_falls_by_much_is_a_warning(equal: Evidence) -> None:
    """The synthetic loss falls by 0.2 nats per tenfold compute: 0.06 per doubling, 1.3 % of ln 100."""
    falling = gap_series.still_falling(equal)
    assert {f.model for f in falling} == {"ViT-mini/7", "R-mini+ViT-mini/2", "ResNet-small"}
    assert all(f.share == pytest.approx(0.2 * math.log10(2) / math.log(100), rel=0.01) for f in falling)
    noted = [c for c in checks(equal) if c.kind == "still falling"]
    assert noted and {c.level for c in noted} == {"note"}
