"""Answers are YES where the truth is, and CANNOT_TELL where noise hides it; Table 6 gives the paper's conclusions."""

import dataclasses
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.interpolate import interp1d
from scipy.optimize import brentq
from scipy.stats import binom

from baselines.published import table
from bench.analysis import baselines, frontiers, published, questions, scaling_laws, targets
from bench.analysis.comparisons import unreplicated_noise
from bench.analysis.evidence import HEADLINE, Evidence, _same_task, build
from bench.analysis.finding import ALL_MODELS, Axis, Finding, LawDeviation, Reason, Unit, Verdict
from bench.analysis.findings import Findings, Stated
from bench.analysis.law_crossings import UNEQUAL_COMPUTE
from bench.analysis.question import load
from bench.analysis.study_data import Records
from bench.analysis.targets import BELOW_RANGE, OUT_OF_REACH, AccuracyTarget
from bench.laws import averaging, bootstrap
from bench.laws.extrapolation import forecast, reached
from bench.laws.fit import Points
from bench.laws.forms import POWER
from bench.laws.lack_of_fit import GroupMeans
from bench.published import matched, public_evidence
from bench.questions.best_family_at_equal_compute import SELECTION_BIAS
from bench.questions.compute_to_match import NO_SINGLE_FACTOR, SharedLaw, compute_to_match
from bench.questions.hybrid_advantage_shrinks import advantage_shrinks
from bench.questions.more_compute_helps import PREVIOUS_BUDGET
from bench.questions.more_images_help import PEAK_INSIDE, PeakInside
from bench.questions.next_run import FurtherRun, Narrowing, next_runs
from bench.questions.saturated import BENDS_AGAINST_TREND, TopOfRange
from bench.report import caveats, text
from bench.stats.intervals import SEEDS
from bench.study import registry
from tests.analysis._records import World
from tests.analysis._study import ask, findings_of, study

FAMILIES = ("ViT", "Hybrid", "ResNet")
ORDERS = ("order of families over compute", "order of families over images")
BY_LAWS = (
    "compute to match",
    "crossing over compute",
    "crossing over images",
    "hybrids stop helping",
    "hybrid advantage shrinks",
    "saturated",
    "compute for a target",
    "images for a target",
    "next run",
)
YES, NO, CANNOT_TELL = Verdict.YES, Verdict.NO, Verdict.CANNOT_TELL
COLUMNS = ("ImageNet", "CIFAR-10", "CIFAR-100", "Pets", "Flowers")
TABLE_6 = [
    (published.family(row["name"]), 1e18 * float(row["exaFLOPs"]), sum(float(row[c]) for c in COLUMNS) / 500)
    for row in table("table6")
]
"""(family, FLOP, Average-5) of every printed row."""


def only(findings: Findings | list[Finding], question: str, *subject: str, measure: str = "headline") -> Finding:
    every = findings.findings if isinstance(findings, Findings) else findings
    (one,) = [f for f in every if (f.question, f.subject, f.measure) == (question, subject, measure)]
    return one


def item(finding: Finding, kind: type[Any]) -> Any:
    return next(i for i in finding.evidence if isinstance(i, kind))


@pytest.fixture(scope="session")
def findings(evidence: Evidence) -> Findings:
    return findings_of(evidence)


@pytest.fixture(scope="session")
def paper() -> Findings:
    return findings_of(published.evidence())


# -- measured points ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_clear_effects_are_found(findings: Findings, family: str) -> None:
    for question in (
        "beats untrained",
        "beats raw pixels",
        "more compute helps",
        "more images help",
    ):
        finding = only(findings, question, family)
        assert (finding.verdict, finding.reasons, finding.main) == (YES, (), True)
        assert finding.n.seeds == 2 and finding.n.draws == 3 and finding.n.tasks == 2 and finding.evidence


def test_the_far_task_is_lost_to_raw_pixels(findings: Findings) -> None:
    finding = only(findings, "beats raw pixels", "ViT", measure="far")
    assert finding.verdict == NO and not finding.main


def test_everything_is_json_with_each_number_once(findings: Findings) -> None:
    body = json.loads(json.dumps(dataclasses.asdict(findings), allow_nan=False))
    assert {f["question"] for f in body["findings"]} <= {name.replace("-", " ") for name in registry.names("question")}
    assert all(i["kind"] for f in body["findings"] for i in f["evidence"])
    numbers = [c.own.finding for c in findings.claims if c.own.finding is not None]
    assert findings.claims and all(findings.findings[number].question for number in numbers)


@pytest.mark.nightly
def test_no_effect_is_not_claimed() -> None:
    """Flat in compute and data, equal families: over thirty studies, hardly any false claim. Where fitted laws cross is
    asked of a few (they take most of the time; test_coverage asks it of many)."""
    false, asked, changing, pairs = 0, 0, 0, 0
    for seed in range(30):
        flat = study(
            seed=seed,
            level=dict.fromkeys(FAMILIES, 0.7),
            data_slope=0.0,
            slope=dict.fromkeys(FAMILIES, 0.0),
            sizes=(300, 30_000),
            horizons=(0, 8_000, 72_000),
        )
        duels = ask(flat, "best family at equal compute")
        orders = [replace(f, main=True) for f in ask(flat, *ORDERS)]
        made = [*duels, *orders, *ask(flat, "more compute helps", "more images help")]
        if seed < 3:
            made += ask(flat, "crossing over compute", "crossing over images")
        verdicts = [f.verdict for f in made if f.main]
        asked += len(verdicts)
        false += sum(verdict != CANNOT_TELL for verdict in verdicts)
        pairs += len(duels)
        changing += sum(Reason.CHANGES in f.reasons for f in duels)
    assert asked >= 300 and false / asked <= 0.05
    assert pairs == 90 and changing / pairs <= 0.05


def test_the_best_of_many_is_not_flattered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight equal models against one: picking the best of the eight must not look like an advantage."""
    truth = {"ViT": 0.7, "ResNet": 0.7}
    models = {f"ViT-{n}/7": ("ViT", 1e5, 3e6) for n in range(8)} | {"ResNet-mini": ("ResNet", 1e5, 3e6)}

    def lead(seed: int) -> float:
        world = study(
            seed=seed,
            models=models,
            level=truth,
            slope=dict.fromkeys(truth, 0.0),
            shots=(10,),
            sizes=(30_000,),
            seed_sd=0.02,
            horizons=(0, 8_000, 24_000),
        )
        gaps = frontiers.at_compute(world, world.on_axis("compute"), "ViT", "ResNet", "headline")
        assert isinstance(gaps, frontiers.Gaps) and gaps.corrected
        return gaps.mean.value

    corrected = np.mean([lead(seed) for seed in range(30)])
    monkeypatch.setattr(frontiers, "frontier_bias", lambda errors, noise, members, draws: np.zeros(len(members)))
    flattered = np.mean([lead(seed) for seed in range(30)])
    assert flattered > 0.01 and abs(corrected) < 0.6 * flattered


@pytest.mark.parametrize("ratio", [1.3, 1.9, 2.6])
def test_between_two_budgets_a_score_is_interpolated_over_log_compute(ratio: float) -> None:
    """Accuracies are lines over log compute here, so that interpolation is exact wherever the budgets of two families
    lie to each other: at every place they differ by what their lines do."""
    world = study(
        models={"ViT-a": ("ViT", 1e5, 3e6), "ResNet-a": ("ResNet", 1e5, 3e6 * ratio)},
        level={"ViT": 0.60, "ResNet": 0.66},
        slope={"ViT": 0.09, "ResNet": 0.09},
        seed_sd=0.0,
        draw_sd=0.0,
        noise_sd=0.0,
        middle=(),
    )
    gaps = frontiers.at_compute(world, world.on_axis("compute"), "ViT", "ResNet", "headline")
    assert isinstance(gaps, frontiers.Gaps) and len(gaps.gaps) == frontiers.BUDGETS
    assert [gap.estimate.value for gap in gaps.gaps] == pytest.approx([-0.06] * frontiers.BUDGETS, abs=1e-9)
    assert gaps.mean.value == pytest.approx(-0.06, abs=1e-9)
    trained = {point.train_flops for series in world.on_axis("compute") for point in series.points}
    assert sum(gap.x not in trained for gap in gaps.gaps) >= 3


def test_the_family_ahead_is_named_with_its_interval(findings: Findings) -> None:
    finding = only(findings, "best family at equal compute", "ViT", "ResNet")
    assert (finding.verdict, finding.leader, finding.unit) == (YES, "ResNet", Unit.SHARE)
    assert len(finding.trend) == 5 and all(p.low < p.estimate < p.high < 0 for p in finding.trend)


def test_a_mean_that_the_trend_contradicts_is_not_given() -> None:
    """ViT leads by far at little compute and by nothing at much: the trend is the answer, though on average it leads.
    Equal slopes leave one number for all."""
    closing = study(
        seed=3,
        level={"ViT": 0.78, "ResNet": 0.70},
        slope={"ViT": 0.02, "ResNet": 0.12},
        sizes=(30_000,),
        models=_two_families(),
    )
    (finding,) = ask(closing, "best family at equal compute")
    assert (finding.verdict, finding.leader) == (YES, "ViT") and Reason.CHANGES in finding.reasons
    assert finding.estimate is None is finding.low and finding.trend[0].estimate > 0.1 > finding.trend[-1].estimate
    level = study(
        seed=3,
        level={"ViT": 0.74, "ResNet": 0.70},
        slope={"ViT": 0.08, "ResNet": 0.08},
        sizes=(30_000,),
        models=_two_families(),
    )
    (finding,) = ask(level, "best family at equal compute")
    assert finding.verdict == YES and Reason.CHANGES not in finding.reasons
    assert finding.low is not None and finding.high is not None and finding.low < 0.04 < finding.high


def _two_families() -> dict[str, tuple[str, float, float]]:
    sizes = (("nano", 6e4, 1.1e6), ("mini", 2e5, 4e6), ("base", 8e5, 1.4e7))
    return {
        f"{prefix}-{name}": (family, body, macs)
        for family, prefix in (("ViT", "ViT"), ("ResNet", "ResNet"))
        for name, body, macs in sizes
    }


def test_no_crossing_is_promised(findings: Findings) -> None:
    finding = only(findings, "order of families over compute", "ViT", "ResNet")
    assert (finding.verdict, finding.reasons, finding.leader) == (CANNOT_TELL, (Reason.AHEAD_THROUGHOUT,), "ResNet")


def test_a_clear_crossing_is_found_and_bracketed() -> None:
    crossing = study(
        seed=2, level={"ViT": 0.65, "Hybrid": 0.65, "ResNet": 0.65}, slope={"ViT": 0.16, "Hybrid": 0.1, "ResNet": 0.02}
    )
    finding = next(iter(ask(crossing, *ORDERS)))
    assert (finding.verdict, finding.leader) == (YES, "ViT")
    assert finding.low is not None and finding.high is not None and finding.low < 1e12 < finding.high  # the truth
    assert finding.trend[0].verdict == NO and finding.trend[-1].verdict == YES
    duel = only(ask(crossing, "best family at equal compute"), "best family at equal compute", "ViT", "ResNet")
    assert duel.verdict == CANNOT_TELL and duel.reasons[:2] == (Reason.ORDER_CHANGES, Reason.CHANGES)
    assert duel.leader == "" and duel.estimate is None


def test_overlapping_noise_cannot_tell() -> None:
    """Twelve studies of two questions: as intervals of 95 % go, 1.2 of 24 are decided by chance (over 4: p < 0.01)."""
    decided = 0
    for seed in range(12):
        noisy = study(
            seed=seed,
            seed_sd=0.06,
            slope=dict.fromkeys(FAMILIES, 0.01),
            data_slope=0.005,
            level=dict.fromkeys(FAMILIES, 0.70),
        )
        for finding in (
            only(ask(noisy, "more images help"), "more images help", "ViT"),
            next(iter(ask(noisy, "best family at equal compute"))),
        ):
            assert finding.verdict != CANNOT_TELL or finding.reasons[0] == Reason.WITHIN_INTERVAL
            decided += finding.verdict != CANNOT_TELL
    assert decided <= 4


def test_one_seed_claims_no_small_difference() -> None:
    single = study(
        seed=4,
        seeds=(0,),
        level={"ViT": 0.70, "Hybrid": 0.70, "ResNet": 0.72},
        draw_sd=0.001,
        slope=dict.fromkeys(FAMILIES, 0.05),
    )
    findings = questions.find(single)
    finding = only(findings, "best family at equal compute", "ViT", "ResNet")
    assert finding.verdict == CANNOT_TELL and finding.excluded == ("training seeds",)
    assert Reason.UNREPLICATED in finding.reasons and finding.margin == pytest.approx(0.12 * 0.7 * 0.3, rel=0.2)
    assert not findings.replicated and findings.scope is not None and findings.scope.once


def test_what_chance_may_make_shrinks_with_the_errors_that_are_left(paper: Findings) -> None:
    """One run each: 1.3 points are a fifth of Table 6's errors, and are told; 0.4 points are not."""
    assert only(paper, "best family at equal compute", "ViT", "Hybrid").reasons[0] == Reason.UNREPLICATED
    noise = unreplicated_noise
    assert noise(0.5) == pytest.approx(0.03) and noise(0.95) < 0.01 and noise(0.2) == pytest.approx(noise(0.8))


def test_untrained_better_than_trained_is_a_no() -> None:
    level, slope = {"ViT": 0.15, "Hybrid": 0.68, "ResNet": 0.7}, {"ViT": 0.0, "Hybrid": 0.07, "ResNet": 0.06}
    made = ask(study(seed=6, level=level, slope=slope), "beats untrained", "beats raw pixels")
    assert only(made, "beats untrained", "ViT").verdict == NO


def test_a_mean_lacks_what_any_of_its_models_lacks(evidence: Evidence) -> None:
    """Where only the second model was trained once, the mean's interval does not hold all training noise either."""
    first, second = baselines.against_untrained(evidence, evidence.on_axis("compute")[:2], "headline")
    assert first.estimate.excluded == ()
    once = dataclasses.replace(second, estimate=dataclasses.replace(second.estimate, excluded=(SEEDS,)))
    assert baselines._task_mean([first, once]).excluded == (SEEDS,)
    assert baselines._task_mean([once, first]).excluded == (SEEDS,)


def test_all_models_together_and_step_by_step(findings: Findings) -> None:
    finding = only(findings, "more compute helps", ALL_MODELS)
    steps = [i for i in finding.evidence if i.contrast == PREVIOUS_BUDGET]
    assert finding.n.models == 8 and len(steps) == 16 and all(s.from_x < s.to_x for s in steps)


# -- laws --------------------------------------------------------------------------------------------------------------


def test_table_6_says_two_to_four_times_less_compute(paper: Findings) -> None:
    """Section 4.4: "ViT uses approximately 2 - 4x less compute to attain the same performance"."""
    laws = scaling_laws.laws(published.evidence())
    finding = compute_to_match(laws["ViT"], laws["ResNet"])
    assert (finding.verdict, finding.leader, finding.unit) == (YES, "ViT", Unit.TIMES)
    assert finding.low < 4 and finding.high > 2 and 2 <= round(finding.estimate, 0) <= 4
    assert item(finding, SharedLaw).reached[1] <= max(average for _, _, average in TABLE_6)


def test_table_6_says_hybrids_lead_and_lose_it() -> None:
    evidence = published.evidence()
    laws = scaling_laws.laws(evidence)
    finding = advantage_shrinks(evidence, laws["Hybrid"], laws["ViT"])
    assert finding.verdict == YES and finding.low is not None and finding.low > 0
    assert finding.trend[0].estimate > 0 > finding.trend[-1].estimate
    assert compute_to_match(laws["ViT"], laws["Hybrid"]).leader == "Hybrid"


def test_table_6_has_one_answer_to_one_question(paper: Findings, findings: Findings) -> None:
    """Reports of a study, of Table 6 and of all published results, and the command that compares, say the same."""
    public = public_evidence.evidence()
    asked = ("compute at equal error", "as claimed")
    of_public = [f for name in asked for f in load(name).ask(public)]
    for kind, name in (("cheaper", "BiT and ViT"), ("shrinking", "ViT and hybrid")):
        claim = next(c for c in findings.claims if c.claim == kind)
        said = findings.paper[claim.paper.finding]
        assert said.subject[-1].startswith(name) and said in paper.findings and said in of_public
        row = [f for f in (*paper.findings, *of_public) if f.question in asked and f.subject[-1] == said.subject[-1]]
        assert {f.estimate for f in row if f.question == said.question} == {said.estimate}
    of_table_6 = next(c for c in matched.comparisons() if c.name.startswith("BiT and ViT, JFT"))
    *_, mean = matched.matched(of_table_6, matched.MEAN)  # the claim is of the average over five sets
    cheaper = findings.paper[next(c for c in findings.claims if c.claim == "cheaper").paper.finding]
    assert (cheaper.estimate, cheaper.low, cheaper.high) == (mean.ratio, mean.low, mean.high)
    assert not {"compute to match", "hybrid advantage shrinks"} & {f.question for f in paper.findings}


def test_a_claim_names_the_metric_and_all_others(findings: Findings) -> None:
    shown = next(row for row in caveats.claims(findings, text.answers(findings)) if "2 to 4 times" in row.claim)
    assert shown.paper_number.startswith("3.67 ×")
    assert "at equal error, mean of five sets; ImageNet 2.0 ×, ReaL labels 1.0 ×" in shown.paper_number
    assert all(metric in shown.paper_number for metric in matched.METRICS)


def test_table_6_says_vit_does_not_saturate(paper: Findings) -> None:
    finding = only(paper, "saturated", "ViT")
    assert finding.verdict == NO and finding.low is not None and finding.low > 0


def test_models_with_one_horizon_each_are_compared_within_budgets(paper: Findings) -> None:
    """Table 6: most models have one row. At the largest common budget ViT is ahead of ResNet, as its rows say."""
    finding = only(paper, "best family at equal compute", "ViT", "ResNet")
    last = finding.trend[-1]
    best = {
        name: max(average for family, flops, average in TABLE_6 if family == name and flops <= last.x * (1 + 1e-9))
        for name in ("ViT", "ResNet")
    }
    assert (finding.verdict, finding.leader) == (YES, "ViT")
    assert last.estimate == pytest.approx(best["ViT"] - best["ResNet"], abs=1e-9)
    assert paper.published and paper.paper == () and SELECTION_BIAS in finding.reasons


def test_the_papers_claims(paper: Findings, findings: Findings) -> None:
    own = {c.claim: c.own for c in paper.claims}
    for kind in ("cheaper", "shrinking", "unsaturated"):
        wanted = CANNOT_TELL if kind == "shrinking" else YES  # single trainings may differ as much
        assert own[kind].verdict == wanted and own[kind].finding is not None
    assert own["cheaper"].stated in (Stated.CONTAINS, Stated.OVERLAPS)
    assert own["data"].finding is None
    for claim in findings.claims:
        assert (claim.paper is None) == (claim.claim == "data")
        if claim.paper is not None:
            assert claim.paper == dataclasses.replace(own[claim.claim], finding=claim.paper.finding)
            assert claim.paper.finding is not None and findings.paper[claim.paper.finding] in paper.findings
    cheaper = next(c.own for c in findings.claims if c.claim == "cheaper")
    assert cheaper.verdict == NO  # in this world ResNet needs less


def test_a_known_ratio_and_target_are_found() -> None:
    """Every family gains 8 points per decade; ResNet lags ViT by 4 points: half a decade, 3.16 times the compute."""
    level = {"ViT": 0.70, "Hybrid": 0.70, "ResNet": 0.66}
    made = study(seed=3, level=level, slope=dict.fromkeys(FAMILIES, 0.08), sizes=(30_000,))
    findings = [*ask(made, "compute to match", "next run")]
    findings += targets.targets(replace(made, targets=(0.72,)), "compute for a target", Axis.COMPUTE)
    ratio = only(findings, "compute to match", "ViT", "ResNet")
    assert (ratio.verdict, ratio.leader) == (YES, "ViT") and ratio.low is not None and ratio.high is not None
    assert ratio.low < 10**0.5 < ratio.high and ratio.high / ratio.low < 4
    target = only(findings, "compute for a target", "ViT")
    assert target.estimate is not None and 10**11.5 < target.estimate < 10**12.5  # 3 points are lost or won to draws
    assert item(target, AccuracyTarget).accuracy == 0.72
    run = only(findings, "next run", "ViT", "ResNet")
    assert run.estimate is not None and 1e10 < run.estimate < 1e14
    assert run.leader in ("ViT", "ResNet") and 0 < item(run, Narrowing).shrinks < 1


def test_an_answer_beyond_the_data_has_a_record_and_ends_where_nobody_knows() -> None:
    """The hybrids' points leave fewer earlier budgets to fit a law to than the other families' do."""
    level, slope = dict.fromkeys(FAMILIES, 0.7), dict.fromkeys(FAMILIES, 0.08)
    horizons = (0, 4_000, 8_000, 16_000, 32_000, 64_000)
    laws = scaling_laws.laws(study(seed=3, level=level, slope=slope, sizes=(30_000,), horizons=horizons))
    for law in laws.values():
        far, inside, below = (
            targets.needed_for("compute for a target", law, float(1 - law.within.fit.predict(np.array([at]))[0]))
            for at in (2 * law.range[1], float(np.sqrt(law.range[0] * law.range[1])), law.range[0] / 2)
        )
        assert inside.verdict == YES and inside.reach == 1
        assert (below.verdict, below.reasons) == (CANNOT_TELL, (BELOW_RANGE,))
        nowhere = targets.needed_for("compute for a target", law, 0.9999)
        assert (nowhere.verdict, nowhere.reasons) == (CANNOT_TELL, (OUT_OF_REACH,))
        ends = law.bands(np.array([far.low, far.high or law.forecast.grid[-1]])).one_run
        error = 1 - item(far, AccuracyTarget).accuracy
        assert ends[0, 0] == pytest.approx(error, rel=0.01)
        assert far.high is None or ends[1, 1] == pytest.approx(error, rel=0.01)
        record = item(far, AccuracyTarget).record
        assert far.reach == pytest.approx(2, rel=0.02) and far.high_reach >= far.reach
        assert (record is None) == (not law.forecast.origins)
        assert record is None or (record.origins == len(law.forecast.origins) and record.median_error > 0)
    assert len({len(law.forecast.origins) for law in laws.values()}) > 1
    for first, second in (("ViT", "ResNet"), ("ViT", "Hybrid")):
        run = next_runs(laws[first], laws[second])
        planned = [one for one in run.evidence if isinstance(one, FurtherRun)]
        spent = sum(float(laws[family].within.fit.points.x.sum()) for family in (first, second))
        assert run.estimate == pytest.approx(sum(one.runs * one.train_flops for one in planned))
        assert 0 < run.estimate <= spent * (1 + 1e-9)
        for one in planned:
            low, high = laws[one.family].range
            assert low <= one.train_flops * (1 + 1e-9) and one.train_flops <= high * (1 + 1e-9)


def law_of_runs(x: np.ndarray, error: np.ndarray, *, noise: float) -> scaling_laws.Law:
    """A power law through runs that are no selection, noise as given."""
    data = Points(x=x[None], y=error, cluster=np.arange(len(x)))
    made = forecast(data, [POWER], loss="squares", half_life=None)
    places, of = np.unique(x, return_inverse=True)
    means = np.bincount(of, error) / np.bincount(of)
    return scaling_laws.Law(
        family="ViT",
        axis=Axis.COMPUTE,
        measure=HEADLINE,
        within=bootstrap.resample(made.fits[0], draws=100, restarts=0),
        averaged=averaging.average(made.fits, shown=made.fits[0], draws=100, restarts=0, seed=1),
        forecast=made,
        ranked=(),
        points=(),
        tried=len(x),
        bias=0.0,
        noise=noise,
        best=(),
        group_means=GroupMeans(x=places, error=means, noise=noise * means, freedom=0),
        most=float(x.max()),
    )


def test_the_interval_of_a_target_holds_another_run_nine_times_in_ten() -> None:
    """Of 12 studies with 3 % of noise, 40 more runs each, within the data and up to 1.3 times beyond: the target is
    what a run has, the answer its x. Somewhat more than 90 % are held, since noise is taken for Student's t where it is
    normal; by the law's own interval, which was given before, fewer than 70 % would be."""
    rng, noise = np.random.default_rng(7), 0.03
    x = np.repeat(np.geomspace(1e9, 1e11, 7), 2)
    held, by_law = [], []
    for _ in range(12):
        law = law_of_runs(x, 0.9 * (x / 1e9) ** -0.25 * np.exp(rng.normal(0, noise, len(x))), noise=noise)
        for at in np.exp(rng.uniform(np.log(1.3e9), np.log(1.3e11), 40)):
            error = 0.9 * (at / 1e9) ** -0.25 * np.exp(rng.normal(0, noise))
            found = targets.needed_for("compute for a target", law, float(1 - error))
            if found.estimate is not None:
                held.append((found.low or 0) <= at <= (found.high or np.inf))
                narrow = reached(law.forecast.grid, replace(law.on_grid, one_run=law.on_grid.total), float(error))
                by_law.append(narrow.low <= at <= narrow.high)
    assert len(held) > 400
    assert binom.cdf(sum(held), len(held), 0.9) > 1e-3 and np.mean(held) < 0.98
    assert np.mean(by_law) < 0.7


def test_targets_rise_with_what_is_asked_and_end_where_no_run_gets() -> None:
    x = np.repeat(np.geomspace(1e9, 1e11, 7), 2)
    scatter = np.exp(np.random.default_rng(2).normal(0, 0.03, len(x)))
    law = law_of_runs(x, 0.9 * (x / 1e9) ** -0.25 * scatter, noise=0.03)
    found = [targets.needed_for("compute for a target", law, accuracy) for accuracy in np.linspace(0.05, 0.95, 91)]
    told = [f for f in found if f.estimate is not None]
    assert [f.verdict for f in told] == [YES] * len(told) and len(told) > 40
    for end, absent in (("low", 0.0), ("estimate", None), ("high", np.inf)):
        values = [absent if getattr(f, end) is None else getattr(f, end) for f in told]
        assert values == sorted(values)
    assert all((f.low or 0) < f.estimate < (f.high or np.inf) for f in told)
    assert [f.reasons for f in (found[0], found[-1])] == [(BELOW_RANGE,), (OUT_OF_REACH,)]
    assert all(f.low is None and f.high is None for f in (found[0], found[-1]))


def test_flat_families_have_stopped_and_promise_nothing() -> None:
    flat = study(seed=4, level=dict.fromkeys(FAMILIES, 0.7), slope=dict.fromkeys(FAMILIES, 0.0), sizes=(30_000,))
    findings = ask(flat, "compute to match", "saturated")
    assert all(f.verdict == CANNOT_TELL for f in findings if f.question == "compute to match")
    assert all(f.verdict != NO for f in findings if f.question == "saturated")


def test_too_few_points_ask_nothing_of_laws() -> None:
    few = study(seed=1, horizons=(0, 8_000), sizes=(30_000,))
    assert ask(few, *BY_LAWS) == [] and questions.find(few).claims == ()


# -- laws that miss their group means ----------------------------------------------------------------------------------


def _truth(family: str, flops: float, num_images: int, task: str) -> float:
    """ViT stops at 300 GFLOPs. ResNet learns late: nothing below 200 GFLOPs, then quickly. More than 3,000 distinct
    images hurt."""
    log = np.log10(flops / 1e11)
    value = 0.5 + 0.15 * min(log, np.log10(3.0)) if family == "ViT" else 0.35 + 0.33 * max(0.0, log - 0.3)
    value = 0.4 + 0.1 * log if family == "Hybrid" else value
    return float(np.clip(value - 0.08 * abs(np.log10(num_images / 3_000)), 0.02, 0.97))


@pytest.fixture(scope="session")
def bent_evidence() -> Evidence:
    changes: dict[str, Any] = {"accuracy": _truth, "num_images": 10_000, "sizes": (300, 1_000, 3_000, 10_000)}
    return study(seed=2, shots=(10,), horizons=(0, 4_000, 8_000, 24_000, 72_000), seed_sd=0.004, **changes)


@pytest.fixture(scope="session")
def bent(bent_evidence: Evidence) -> Findings:
    return questions.find(bent_evidence)


def test_the_law_of_a_late_learner_lacks_fit(bent_evidence: Evidence) -> None:
    law = scaling_laws.laws(bent_evidence)["ResNet"]
    assert law.lack_of_fit is not None and law.lack_of_fit.fails and law.lack_of_fit.p < 0.001


def test_a_flat_end_is_not_still_improving(bent: Findings) -> None:
    finding = only(bent, "saturated", "ViT")
    top = item(finding, TopOfRange)
    assert finding.verdict != NO and BENDS_AGAINST_TREND in finding.reasons and top.best < top.most
    steep = only(bent, "saturated", "ResNet")  # its largest budgets are of two models, or bend: no exponent
    assert (steep.verdict, steep.estimate) == (CANNOT_TELL, None)
    assert {Reason.SEVERAL_MODELS, Reason.LACK_OF_FIT} & set(steep.reasons)


def test_a_target_that_measured_points_pass_is_read_off_them(bent: Findings, bent_evidence: Evidence) -> None:
    """The law misses these points; the curve that is drawn passes the target all the same, and says where."""
    finding = only(bent, "compute for a target", "ResNet")
    target = item(finding, AccuracyTarget)
    x, error = scaling_laws.laws(bent_evidence)["ResNet"].frontier
    oracle = brentq(
        lambda log: np.exp(interp1d(np.log(x), np.log(error))(log)) - 1 + target.accuracy, *np.log(x[[0, -1]])
    )
    assert finding.verdict == YES and target.measured and finding.estimate == pytest.approx(np.exp(oracle))
    low, high = target.between
    assert low is not None and high is not None and low < finding.estimate < high
    assert (finding.low or 0) < finding.estimate < (finding.high or np.inf) and finding.reach == 1
    assert any("Interpolated between measured points" in text for text in targets.say(finding))


def test_the_interval_of_a_measured_target_holds_another_run_nine_times_in_ten() -> None:
    """Runs about a curve that no power law follows, two of each budget, and further runs that pass the target."""
    rng, noise, x = np.random.default_rng(11), 0.03, np.geomspace(1e9, 1e11, 7)
    truth = interp1d(np.log(x), np.log([0.9, 0.89, 0.85, 0.5, 0.3, 0.28, 0.2]))
    held: list[bool] = []
    law = law_of_runs(x, np.exp(truth(np.log(x))), noise=noise)
    for _ in range(300):
        error = np.exp(truth(np.log(x)) + rng.normal(0, noise / np.sqrt(2), len(x)))
        front = [i for i in range(len(x)) if error[i] < error[:i].min(initial=np.inf)]
        means = GroupMeans(x=x, error=error, noise=error * noise / np.sqrt(2), freedom=0)
        best = tuple((float(x[i]), float(error[i])) for i in front)
        points = (SimpleNamespace(seeds=(0, 1)),) * len(x)
        seen = replace(law, group_means=means, best=best, points=points)
        at = float(rng.uniform(*np.log(x[[2, 4]])))
        wanted = float(np.exp(truth(at) + rng.normal(0, noise)))
        ends = targets.passed(seen, AccuracyTarget(accuracy=1 - wanted, asked=(1e9, 1e11), between=(x[0], x[-1])))
        if ends is not None:
            held.append(ends.low <= np.exp(at) <= ends.high)
    assert len(held) > 250 and binom.cdf(sum(held), len(held), 0.9) > 1e-3 and np.mean(held) < 0.98


def test_what_group_means_contradict_is_not_read_off_the_law(bent_evidence: Evidence) -> None:
    """Where no two of the best points lie on either side of the target, the law is asked, and refused."""
    law = replace(scaling_laws.laws(bent_evidence)["ResNet"], best=())
    (accuracy,) = {
        item(f, AccuracyTarget).accuracy for f in targets.targets(bent_evidence, "compute for a target", Axis.COMPUTE)
    }
    finding = targets.needed_for("compute for a target", law, accuracy)
    assert (finding.verdict, finding.reasons, finding.estimate) == (CANNOT_TELL, (Reason.LACK_OF_FIT,), None)
    deviation, target = item(finding, LawDeviation), item(finding, AccuracyTarget)
    assert deviation.p < 0.05 and abs(deviation.predicted / deviation.observed - 1) > 0.05
    assert target.between[1] is not None and (target.between[0] or 0) < target.between[1]


def test_one_factor_for_curves_of_different_shape_is_refused(bent: Findings) -> None:
    finding = only(bent, "compute to match", "ViT", "ResNet")
    assert (finding.verdict, finding.reasons, finding.estimate) == (CANNOT_TELL, (NO_SINGLE_FACTOR,), None)
    law, factors = item(finding, SharedLaw), [p.estimate for p in finding.trend]
    assert not all(law.low <= factor <= law.high for factor in factors)


def test_a_better_middle_and_unequal_compute_are_remarked(bent: Findings) -> None:
    more = only(bent, "more images help", "ViT")
    assert PEAK_INSIDE in more.reasons and item(more, PeakInside).images == 3_000
    images = only(bent, "crossing over images", "ViT", "ResNet")
    assert UNEQUAL_COMPUTE in images.reasons
    assert [b.family for b in images.evidence if b.kind == "Budget"] == ["ViT", "ResNet"]


def test_the_headline_s_task_on_other_sets_is_the_headline() -> None:
    scored = ("fewshot", "finetune:folder:mine:64px:rgb", "folder:mine:64px:rgb", "linear:folder:mine:64px:rgb")
    assert _same_task(("finetune:mnist", "photo-tiles:56px"), scored) == (scored[1],)
    assert _same_task(("mnist", "photo-tiles:56px"), scored) == ()


def test_the_test_images_of_the_set_trained_on_are_a_headline_where_no_other_was_scored() -> None:
    made = Records(suite="scaling", records=tuple(World.small().records()))
    assert build(made, headline=("upstream",)).headline == ("upstream",)
    assert build(made, headline=("upstream", "pets")).headline == ("upstream",)
    assert build(made, headline=("upstream", "mnist")).headline == ("mnist",)
    assert build(made, headline=("upstream",)).name("headline") == "Test accuracy: glyphs (rendered)"
