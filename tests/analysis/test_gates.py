"""Gates: what has not begun to learn is drawn hollow and is in no comparison, law or sentence; comparisons are at equal
compute; crossings and exponents are read off smooth laws alone. Shown on synthetic studies and on the committed ones
whose sentences they were made for."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from bench.analysis import comparisons, frontiers, lr_sweep, published, scaling_laws, study_data
from bench.analysis.begun import NEAR_GUESSING, NotBegun, loss_of_guessing, not_begun
from bench.analysis.check import checks, say
from bench.analysis.evidence import HEADLINE, Evidence
from bench.analysis.finding import Axis, BeginsLater, BestAbsent, Finding, Reason, SeveralModels, Verdict
from bench.analysis.law_crossings import TaskCrossing
from bench.analysis.question import load, question_of
from bench.report.figures import compute, frontier
from bench.report.title import sentence
from bench.stats.intervals import Estimate
from bench.study.record import Horizon, Record, Score
from bench.validity import below_raw_pixels
from bench.validity import not_begun as not_begun_check
from tests.analysis._records import MODELS, UPSTREAM, World, map_scores
from tests.analysis._study import read, study

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
GUESSING = math.log(100)


def without_learning(records: list[Record], model: str, *, until: int) -> list[Record]:
    """The records, with a loss of chance for a model at its budgets of up to `until` images."""

    def lost(h: Horizon) -> Horizon:
        return replace(h, final_train_loss=GUESSING) if 0 < h.images_seen <= until else h

    return [replace(r, horizons=tuple(map(lost, r.horizons))) if r.cell.model == model else r for r in records]


def answer(evidence: Evidence, question: str, *subject: str) -> Finding:
    (found,) = [f for f in load(question).ask(evidence) if f.subject == subject and f.measure == HEADLINE]
    return found


# -- the rule ----------------------------------------------------------------------------------------------------------


def gain(value: float, half: float) -> Estimate:
    return Estimate(
        value=value,
        margins={"test images": half},
        excluded=(),
        moderated=False,
        num_seeds=2,
        num_draws=1,
        num_test=2000,
        tasks=1,
        level=0.95,
        seed_df=1.0,
        bounds=(-1.0, 1.0),
    )


def test_the_loss_of_guessing_is_the_entropy_of_the_classes() -> None:
    for classes in (2, 10, 1000):
        share = 1 / classes
        assert loss_of_guessing(classes) == pytest.approx(stats.entropy([share] * classes))
        assert loss_of_guessing(classes, sigmoid=True) == pytest.approx(classes * stats.bernoulli(share).entropy())
    assert math.isnan(loss_of_guessing(1)) and math.isnan(loss_of_guessing(math.nan))


def test_what_was_not_measured_gates_nothing() -> None:
    assert not_begun(loss=math.nan, guessing=GUESSING, gain=None) is None
    assert not_begun(loss=GUESSING, guessing=math.nan, gain=None) is None
    assert not published.evidence().not_begun


@pytest.mark.parametrize(
    ("loss", "gained", "why"),
    [
        (NEAR_GUESSING * 1.001 * GUESSING, gain(0.3, 0.01), NotBegun.LOSS),
        (NEAR_GUESSING * 0.999 * GUESSING, gain(0.3, 0.01), None),
        (1.0, gain(0.03, 0.02), None),
        (1.0, gain(0.02, 0.03), NotBegun.SCORE),
        (1.0, gain(-0.3, 0.01), NotBegun.SCORE),
        (math.nan, gain(0.02, 0.03), NotBegun.SCORE),
    ],
)
def test_the_rule(loss: float, gained: Estimate, why: NotBegun | None) -> None:
    assert not_begun(loss=loss, guessing=GUESSING, gain=gained) == why


def test_a_score_of_the_untrained_network_is_one_by_the_paired_difference() -> None:
    """A tenth of a point above its initialisation, with noise of one between seeds, is nothing; ten points are."""

    def few_learned(h: Horizon, s: Score) -> Score:
        base = untrained.get((s.data, s.shots, s.draw))
        return s if base is None or h.images_seen != 8_000 else replace(s, value=base + 0.001)

    records = []
    for record in World(seed=3).records():
        first = next((h for h in record.horizons if h.images_seen == 0), None)
        untrained = {(s.data, s.shots, s.draw): s.value for s in first.scores} if first else {}
        records.append(map_scores(record, few_learned) if record.cell.model == "ResNet-small" else record)
    evidence = read(records)
    shown = {(evidence.points[key].model, key[1]): why for key, why in evidence.not_begun.items()}
    assert shown == {("ResNet-small", 8_000): NotBegun.SCORE}
    # its runs on other numbers of images have no untrained network of their own: initialisation is the same
    assert len(evidence.not_begun) == len(World().sizes)


def test_networks_that_make_their_own_targets_have_no_loss_of_chance() -> None:
    """They are not judged by classes: whatever their loss is, guessing among classes says nothing of it."""
    records = without_learning(World(seed=3).records(), "ResNet-small", until=8_000)
    assert read(records).not_begun
    unjudged = [map_scores(r, lambda h, s: None if s.data == UPSTREAM else s) for r in records]
    assert not read(unjudged).not_begun


# -- where it holds ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gated() -> Evidence:
    """All ResNets are at chance at their first budget, and the largest at all of its budgets."""
    records = World(seed=2).records()
    for model in ("ResNet-mini", "ResNet-small"):
        records = without_learning(records, model, until=8_000)
    return read(without_learning(records, "ResNet-base", until=72_000))


def test_they_enter_no_comparison_and_no_law(gated: Evidence) -> None:
    dull = set(gated.not_begun)
    assert {gated.points[key].family for key in dull} == {"ResNet"}
    for axis in ("compute", "data_size"):
        assert not dull & {p.key for s in gated.on_axis(axis) for p in s.points}
        assert dull & {p.key for s in gated.on_axis(axis, every=True) for p in s.points}
    assert "ResNet-base" not in {s.label for s in comparisons.compared_series(gated)}
    for axis in Axis.COMPUTE, Axis.IMAGES:
        assert not dull & {p.key for law in scaling_laws.laws(gated, axis=axis).values() for p in law.points}


def test_a_comparison_begins_where_both_have_begun_and_says_so(gated: Evidence) -> None:
    whole = answer(read(World(seed=2).records()), "best family at equal compute", "ViT", "ResNet")
    finding = answer(gated, "best family at equal compute", "ViT", "ResNet")
    late = next(item for item in finding.evidence if isinstance(item, BeginsLater))
    assert late.families == ("ResNet",) and late.at == finding.trend[0].x == 6 * MODELS["ResNet-mini"][2] * 24_000
    assert late.low == whole.trend[0].x < late.at and Reason.BEGINS_LATER not in whole.reasons
    assert "below 432 GFLOPs ResNet has not begun to learn" in sentence(finding)
    assert all(p.second != "ResNet-base" for p in finding.trend)


def test_questions_about_training_itself_leave_nothing_out(gated: Evidence) -> None:
    """Leaving out what did not beat its initialisation would answer whether networks do."""
    found = answer(gated, "beats untrained", "ResNet")
    assert found.n.models == 3 == answer(gated, "beats untrained", "ViT").n.models


def test_a_family_that_never_begins_is_compared_with_nobody() -> None:
    records = World(seed=2).records()
    for model in ("ResNet-mini", "ResNet-small", "ResNet-base"):
        records = without_learning(records, model, until=72_000)
    evidence = read(records)
    asked = [f for f in load("best family at equal compute").ask(evidence)]
    assert {name for f in asked for name in f.subject} == {"ViT", "Hybrid"}
    named = {c.names for c in not_begun_check.find(evidence)}
    assert {("ResNet-mini",), ("ResNet-small",), ("ResNet-base",)} <= named
    frontier.draw(evidence)  # without a line for them


def test_a_check_names_them_and_figures_draw_them_hollow(gated: Evidence) -> None:
    (check,) = [c for c in checks(gated) if c.kind == "not begun" and c.names == ("ResNet-mini",)]
    assert (check.count, check.limit) == (1, 3) and "144 GFLOPs" in str(say(check))
    dull = {(gated.points[key].series, gated.points[key].train_flops) for key in gated.not_begun}
    data = compute.draw(gated).data
    hollow = data[(data["kind"] == "not begun") & (data["measure"] == HEADLINE)]
    assert set(zip(hollow["series"], hollow["train_flops"], strict=True)) <= dull and len(hollow) == 5
    drawing = frontier.draw(gated)
    assert (~drawing.data["begun"]).sum() == 5 and not (drawing.data["best"] & ~drawing.data["begun"]).any()
    assert any("not begun to learn" in text for text in drawing.caption)


# -- raw pixels --------------------------------------------------------------------------------------------------------


def test_a_family_below_raw_pixels_is_named_and_leads_no_sentence() -> None:
    """ResNets pass raw pixels (68 % on average) within the range: what is said of them begins there."""
    weak = study(
        seed=2, level={"ViT": 0.75, "Hybrid": 0.75, "ResNet": 0.55}, slope={"ViT": 0.02, "Hybrid": 0.02, "ResNet": 0.2}
    )
    finding = answer(weak, "best family at equal compute", "ViT", "ResNet")
    below = [p.x for p in finding.trend if p.below]
    assert {name for p in finding.trend for name in p.below} == {"ResNet"} and 0 < len(below) < len(finding.trend)
    first = next(p for p in finding.trend if not p.below)
    said = sentence(finding)
    assert (
        "ResNet is below the pixel baseline" in said
        and f"{100 * abs(finding.trend[0].estimate):.1f} points" not in said
    )
    assert f"{100 * abs(first.estimate):.1f} points" in said
    (check,) = [c for c in below_raw_pixels.find(weak) if c.names == ("ViT", "ResNet", "compute")]
    assert (check.count, check.low, check.high) == (len(below), below[0], below[-1])


# -- at equal compute --------------------------------------------------------------------------------------------------


def test_no_run_is_carried_on_beyond_its_end() -> None:
    """The smallest ViT is by far the best, and ends first: where it was not trained it represents nobody."""
    records = [
        map_scores(r, lambda h, s: replace(s, value=min(0.99, s.value + 0.15)) if h.images_seen else s)
        if r.cell.model == "ViT-nano/7"
        else r
        for r in World(seed=5).records()
    ]
    evidence = read(records)
    series = evidence.on_axis("compute")
    spent = {s.label: (s.points[0].train_flops, s.last.train_flops) for s in series}
    gaps = frontiers.at_compute(evidence, series, "ViT", "ResNet", HEADLINE)
    assert isinstance(gaps, frontiers.Gaps) and {gap.first_model for gap in gaps.gaps} >= {"ViT-nano/7"}
    for gap in gaps.gaps:
        for model in (gap.first_model, gap.second_model):
            assert spent[model][0] <= 1.0001 * gap.x and gap.x <= 1.02 * spent[model][1]
    beyond = max(high for _, high in spent.values())
    vits = [s for s in series if s.family == "ViT"]
    best = next(s.last for s in vits if s.label == "ViT-nano/7")
    (absent,) = gaps.absent
    assert (absent.family, absent.model) == ("ViT", "ViT-nano/7")
    assert min(absent.places) > max(gap.x for gap in gaps.gaps) >= best.train_flops / 2
    found = answer(evidence, "best family at equal compute", "ViT", "ResNet")
    assert absent in found.evidence and question_of(found).say(found)[-1].endswith("no other is as good there.")
    held = frontiers.best_within(evidence, vits, HEADLINE, beyond)  # a curve of bests within a budget holds it
    assert held == pytest.approx(evidence.estimate(best, HEADLINE).value)  # type: ignore[union-attr]


def test_published_networks_of_one_budget_each_are_compared_within_budgets() -> None:
    finding = answer(published.evidence(), "best family at equal compute", "ViT", "ResNet")
    assert Reason.WITHIN_BUDGETS in finding.reasons and "at equal compute" not in sentence(finding)


# -- crossings and exponents -------------------------------------------------------------------------------------------

CROSSING = {"level": {"ViT": 0.65, "ResNet": 0.65}, "slope": {"ViT": 0.16, "ResNet": 0.02}}
BUDGETS = (0, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000)


def test_a_frontier_of_several_models_gives_no_crossing_and_no_exponent() -> None:
    level, slope = CROSSING["level"] | {"Hybrid": 0.6}, CROSSING["slope"] | {"Hybrid": 0.05}
    several = study(seed=2, level=level, slope=slope)
    finding = answer(several, "crossing over compute", "ViT", "ResNet")
    assert (finding.verdict, finding.estimate, finding.leader) == (Verdict.YES, None, "ViT")
    assert Reason.SEVERAL_MODELS in finding.reasons and finding.low < 1e12 < finding.high  # type: ignore[operator]
    named = {item.family: item.models for item in finding.evidence if isinstance(item, SeveralModels)}
    assert len(named["ViT"]) > 1
    measured = answer(several, "order of families over compute", "ViT", "ResNet")
    assert (measured.low, measured.high) == (finding.low, finding.high)
    by_task = [item for item in finding.evidence if isinstance(item, TaskCrossing)]
    assert [item.task for item in by_task] == list(several.headline) and all(
        i.task in sentence(finding) for i in by_task
    )
    assert (
        "where the measured order changes" in sentence(finding) and "[" not in question_of(finding).number(finding).text
    )
    rising = answer(several, "saturated", "ViT")
    assert (rising.verdict, rising.estimate) == (Verdict.CANNOT_TELL, None) and Reason.SEVERAL_MODELS in rising.reasons


def test_one_model_each_cross_by_their_laws_task_by_task() -> None:
    """The families are equal at 1 TFLOP on both tasks; then ViTs win one of them throughout and ResNets the other,
    while the mean goes on crossing."""
    world = World(seed=4)
    world.models = {"ViT-mini/7": MODELS["ViT-mini/7"], "ResNet-small": ("ResNet", 160_000, 4_000_000)}
    world.horizons, world.sizes, world.seed_sd = BUDGETS, (30_000,), 0.004
    world.level, world.slope = CROSSING["level"], CROSSING["slope"]
    records = world.records()
    agree = answer(read(records), "crossing over compute", "ViT", "ResNet")
    assert agree.verdict == Verdict.YES and Reason.SEVERAL_MODELS not in agree.reasons
    assert agree.low < 1e12 < agree.high  # type: ignore[operator]
    by_task = [item for item in agree.evidence if isinstance(item, TaskCrossing)]
    assert [i.leader for i in by_task] == ["ViT", "ViT"] and all(0.7e12 < (i.x or 0.0) < 1.4e12 for i in by_task)

    def apart(h: Horizon, s: Score) -> Score:
        ahead = {"mnist": 0.18, "fashion-mnist": -0.12}.get(s.data, 0.0) if h.images_seen else 0.0
        return replace(s, value=float(np.clip(s.value + ahead, 0.02, 0.98)))

    records = [map_scores(r, apart) if r.model.family == "ResNet" else r for r in records]
    disagree = answer(read(records), "crossing over compute", "ViT", "ResNet")
    assert disagree.estimate is not None
    assert "fashion-mnist none, ViT ahead throughout; mnist none, ResNet ahead throughout" in sentence(disagree)


# -- the committed studies ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scaling-cpu", "photographs-cpu"])
def test_the_committed_studies_lead_with_no_network_that_pixels_or_chance_beat(name: str) -> None:
    """The sentences were once about a ResNet whose loss was that of chance, and one that raw pixels beat."""
    evidence = lr_sweep.of_chosen(study_data.load(REFERENCE / name), headline=("upstream",))
    compared = {p.key for s in comparisons.compared_series(evidence) for p in s.points}
    table = evidence.horizons.groupby(["variant", "images_seen"])["final_train_loss"].mean()
    assert len(compared) > 20 and all(table[key] <= NEAR_GUESSING * loss_of_guessing(10) for key in compared)
    findings = list(load("best family at equal compute").ask(evidence))
    assert len(findings) == 3
    for f in findings:
        below = [p for p in f.trend if p.below]
        assert not below or f.verdict == Verdict.CANNOT_TELL or "below the pixel baseline" in sentence(f)


def test_a_family_whose_best_model_ended_is_left_out_where_the_study_says_so() -> None:
    """On all of Fashion-MNIST the smallest networks were trained to 3.3 TFLOPs; at 13 the larger ViTs are five points
    worse than the smallest was, at 53 they are within chance of it."""
    evidence = lr_sweep.of_chosen(study_data.load(REFERENCE / "photographs-cpu"), headline=("upstream",))
    found = answer(evidence, "best family at equal compute", "ViT", "ResNet")
    (absent,) = [item for item in found.evidence if isinstance(item, BestAbsent) and item.family == "ViT"]
    assert absent.model == "ViT-pico-2/7" and absent.places == pytest.approx([13.3e12], rel=0.02)
    assert [p.x for p in found.trend] == pytest.approx([0.208e12, 0.832e12, 3.33e12, 53.2e12], rel=0.02)
