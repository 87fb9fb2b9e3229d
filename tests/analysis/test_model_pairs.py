"""Two models at equal compute: the verdict of `vit-bench compare` is that of the report; nothing is extrapolated; test
images are paired; and the intervals hold the truth where curves bend between horizons."""

import math
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import bench.api
from bench.analysis import model_pairs, questions
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Finding, Verdict
from bench.analysis.findings import Findings
from bench.core.errors import UserError
from bench.core.formatting import flops_range
from bench.core.measure import judged_on
from bench.report import build, text
from bench.stats.intervals import Samples
from bench.stats.paired import contrast_error, pair
from bench.store import grid
from bench.store.prediction_bits import from_detail, to_detail
from bench.study.record import Horizon, Record, Score
from tests.analysis._records import World, map_scores, write
from tests.analysis._study import read

KEPT = Path(__file__).parents[1] / "records" / "scaling"
PAIR = ("ViT-nano/7", "ResNet-mini")


def world(*, seed: int = 0, kind: type[World] = World) -> World:
    made = kind(seed=seed)
    made.models = {name: made.models[name] for name in PAIR}
    made.middle, made.shots = (), (10,)
    return made


def records_of(made: World, horizons: dict[str, tuple[int, ...]]) -> list[Record]:
    made.records()  # draws the luck that all share
    records = []
    for name in made.models:
        made.horizons = (0, *horizons[name])
        records += [made.record(name, 30_000, seed, ("compute",)) for seed in made.seeds]
    return records


def report_of(folder: Path, suite: str) -> tuple[Evidence, Findings]:
    evidence, _ = build.measured(folder, suite, None)
    return evidence, questions.find(evidence)


def agree(compared: bench.commands.compare.Compared, f: Finding, evidence: Evidence, findings: Findings) -> None:
    """In sign, tasks, compute and verdict. The finding is first - second, the comparison B - A."""
    assert compared.headline == findings.headline == evidence.headline
    assert compared.found.span == (f.trend[0].x, f.trend[-1].x)
    theirs = [-p.estimate for p in f.trend]
    np.testing.assert_allclose([b.contrast.estimate for b in compared.found.budgets], theirs, atol=1e-12)
    halves = [(p.high - p.low) / 2 for p in f.trend]  # type: ignore[operator]
    np.testing.assert_allclose([b.contrast.half for b in compared.found.budgets], halves, atol=1e-9)
    if f.estimate is not None:
        assert compared.average.estimate == pytest.approx(-f.estimate)
    leader = {"better": f.subject[1], "worse": f.subject[0]}.get(compared.verdict, "")
    assert f.leader == leader and (f.verdict is Verdict.CANNOT_TELL) == (not leader)
    rests_on = f"{judged_on(evidence.headline, evidence.shots)}, at {flops_range(*compared.found.span)} of training"
    answers = {a.subject: a.text for a in text.answers(findings) if a.label == "Ahead at equal compute?"}
    assert rests_on in str(compared) and rests_on in answers[" vs ".join(f.subject)]


def equal_compute(findings: Findings) -> list[Finding]:
    return [f for f in findings.findings if f.question == "best family at equal compute" and f.trend]


def test_the_kept_study_has_one_verdict():
    evidence, findings = report_of(KEPT, "scaling")
    asked = equal_compute(findings)
    assert {f.subject for f in asked} == set(combinations(("ViT", "Hybrid", "ResNet"), 2))
    for f in asked:
        agree(bench.api.compare(*f.subject, suite=KEPT.name, results=KEPT.parent), f, evidence, findings)


def test_a_study_judged_on_named_sets_has_one_verdict_on_those(tmp_path):
    """The ResNet is ahead on the set that was trained on, the headline of the suite; the ViT over both named sets."""

    def changed(_: Horizon, s: Score, record: Record) -> Score:
        lead = {"mnist": -0.1, "digits": 0.25, "glyphs": -0.1}.get(s.data, 0.0) * (record.model.family == "ViT")
        return replace(s, value=min(0.99, (s.value or 0) - 0.2 + lead))

    made = world()
    made.level = dict.fromkeys(made.level, 0.7)
    made.slope = dict.fromkeys(made.slope, 0.06)
    budgets = {"ViT-nano/7": (8_000, 24_000, 72_000), "ResNet-mini": (4_000, 12_000, 36_000)}
    records = [
        map_scores(r, lambda h, s, r=r: changed(h, s, r) if s.data != "fashion-mnist" else None)
        for r in records_of(made, budgets)
    ]
    folder = write(records, tmp_path / "scaling")
    names = tuple(r.directory for r in records)

    def both(downstream: tuple[str, ...]) -> tuple[bench.commands.compare.Compared, Finding]:
        grid.write(folder, grid.WantedCells(suite="scaling", scale="cpu", names=names, downstream=downstream))
        evidence, findings = report_of(folder, "scaling")
        (f,) = equal_compute(findings)
        compared = bench.api.compare(*PAIR, suite="scaling", results=tmp_path)
        agree(compared, f, evidence, findings)
        return compared, f

    compared, f = both(("mnist", "digits"))
    assert compared.headline == ("mnist", "digits") and f.leader == "ViT" and compared.verdict == "worse"
    assert [task.task for task in compared.found.apart] == ["upstream"]
    compared, f = both(())
    assert compared.headline == ("upstream",) and f.leader == "ResNet" and compared.verdict == "better"
    assert [task.task for task in compared.found.apart] == ["mnist", "digits"]
    at_images = bench.api.compare(*(str(folder),) * 2)
    assert at_images.headline == ("upstream",) and at_images.verdict == "equal"


def test_a_study_judged_on_far_sets_alone_is_judged(tmp_path):
    budgets = dict.fromkeys(PAIR, (8_000, 24_000))
    records = [
        map_scores(r, lambda _, s: s if s.data in ("digits", "glyphs") else None) for r in records_of(world(), budgets)
    ]
    evidence, findings = report_of(write(records, tmp_path / "smoke"), "smoke")
    assert evidence.headline == ("digits",) and evidence.far == () and findings.judged
    bare = [map_scores(r, lambda _, s: s if s.task == "upstream" else None) for r in records]
    _, findings = report_of(write(bare, tmp_path / "bare" / "smoke"), "smoke")
    assert not findings.judged


def test_nothing_is_extrapolated():
    budgets = {"ViT-nano/7": (8_000, 16_000, 64_000), "ResNet-mini": (4_000, 40_000)}  # MACs differ 1.1 to 3
    sides = model_pairs.at_compute(read(records_of(world(), budgets)), *PAIR)
    flops = [6 * macs * seen for name, macs in ((PAIR[0], 1_100_000), (PAIR[1], 3_000_000)) for seen in budgets[name]]
    assert sides.span == pytest.approx((max(flops[0], flops[3]), min(flops[2], flops[4])))
    apart = read(records_of(world(), {"ViT-nano/7": (1_000, 2_000), "ResNet-mini": (8_000, 16_000)}))
    with pytest.raises(UserError, match=r"No training compute in common.*6\.6 to 13\.2 GFLOPs.*144 to 288") as raised:
        model_pairs.at_compute(apart, *PAIR)
    assert "--at images" in raised.value.fix
    touching = read(records_of(world(), {"ViT-nano/7": (1_000, 3_000), "ResNet-mini": (1_100, 2_000)}))  # 19.8 each
    sides = model_pairs.at_compute(touching, *PAIR)
    assert len(sides.budgets) == 1 and "interpolation" not in sides.average.margins


def answered(rng: np.random.Generator, right_SDM: np.ndarray, content: str) -> Samples:
    bits = [[from_detail(dict([to_detail(right_M, content_hash=content)])) for right_M in row] for row in right_SDM]
    return Samples(
        values_SD=right_SDM.mean(axis=2),
        seeds=tuple(range(right_SDM.shape[0])),
        draws=tuple(range(right_SDM.shape[1])),
        image_error=0.1,
        num_test=right_SDM.shape[2],
        correct_SD=np.array(bits, dtype=object),
    )


def test_test_images_are_paired_as_in_a_t_test():
    rng = np.random.default_rng(0)
    a, b = (answered(rng, rng.random((1, 1, 500)) < share, "t") for share in (0.6, 0.7))
    x, y = (s.correct_SD[0, 0].right_M.astype(float) for s in (b, a))  # type: ignore[index]
    test = stats.ttest_rel(x, y)
    assert contrast_error([(1.0, b), (-1.0, a)]) == pytest.approx((x.mean() - y.mean()) / test.statistic)
    both = [answered(rng, rng.random((3, 4, 500)) < share, "t") for share in (0.6, 0.7)]
    one = pair(both[1], both[0])
    expected = math.sqrt(max(0.0, one.error**2 - one.shared))
    assert contrast_error([(1.0, both[1]), (-1.0, both[0])]) == pytest.approx(expected)
    half_way = [(0.5, both[1]), (0.5, both[1]), (-1.0, both[0])]  # two horizons of one side
    assert contrast_error(half_way) == pytest.approx(expected)
    other = answered(rng, rng.random((3, 4, 500)) < 0.5, "u")
    assert contrast_error([(1.0, other), (-1.0, both[0])]) is None  # other test images
    assert contrast_error([(1.0, both[1]), (-1.0, replace(both[0], correct_SD=None))]) is None
    two = [(0.5, s) for s in (both[1], other)] + [
        (-0.5, both[0]),
        (-0.5, answered(rng, rng.random((3, 4, 500)) < 0.5, "u")),
    ]
    single = [contrast_error([two[n], (-0.5, two[n + 2][1])]) for n in (0, 1)]
    assert contrast_error(two) == pytest.approx(math.hypot(*single))  # type: ignore[arg-type]


def test_intervals_pair_the_images_where_records_hold_them():
    """Models that err on the same images: a narrower interval around the same difference."""
    rng = np.random.default_rng(5)
    hard_M = rng.random(2_000)

    def with_bits(_: Horizon, s: Score) -> Score:
        shown = hard_M[: s.num_test] + rng.normal(0, 0.02, s.num_test) < (s.value or 0)
        return replace(s, value=float(shown.mean()), detail=dict([to_detail(shown, content_hash=s.data)]))

    budgets = {"ViT-nano/7": (8_000, 24_000, 72_000), "ResNet-mini": (4_000, 12_000, 36_000)}
    held = [map_scores(r, with_bits) for r in records_of(world(), budgets)]
    blind = [map_scores(r, lambda _, s: replace(s, detail={})) for r in held]
    ours, theirs = (model_pairs.at_compute(read(records), *PAIR).average for records in (held, blind))
    assert ours.paired and not theirs.paired and ours.estimate == theirs.estimate
    assert ours.margins["test images"] < 0.5 * theirs.margins["test images"]


class Bending(World):
    """Accuracy along a power law with a floor of its own for each family: curves bend between horizons."""

    def accuracy(self, family: str, flops: float, num_images: int, task: str) -> float:
        top, cost, rate = self.curves[family]  # type: ignore[attr-defined]
        return float(np.clip(top - 0.5 * (flops / cost) ** -rate, 0.02, 0.99))


@pytest.mark.nightly
@pytest.mark.parametrize("seed_sd", [0.0, 0.006])
def test_intervals_hold_the_truth_between_horizons(seed_sd):
    """Nominal 95 %; a binomial test at 0.1 % decides. Without the error of interpolation they held it in 43 % of the
    studies without training noise, in 91 % of those with it."""
    rng = np.random.default_rng(3)
    held = []
    for seed in range(80):
        made = world(seed=seed, kind=Bending)
        made.seed_sd, made.noise_sd, made.draw_sd = seed_sd, 0.001, 0.005
        draw = lambda: (rng.uniform(0.7, 0.95), 10 ** rng.uniform(10, 10.6), rng.uniform(0.15, 0.8))  # noqa: E731
        made.curves = {family: draw() for family in ("ViT", "ResNet")}  # type: ignore[attr-defined]
        budgets = {"ViT-nano/7": tuple(4_000 << n for n in range(5)), "ResNet-mini": (3_000, 9_000, 27_000)}
        records = [map_scores(r, lambda _, s: replace(s, stderr=1e-6)) for r in records_of(made, budgets)]
        sides = model_pairs.at_compute(read(records), *PAIR)
        at = [b.train_flops for b in sides.budgets]
        truth = [made.accuracy("ResNet", x, 0, "mnist") - made.accuracy("ViT", x, 0, "mnist") for x in at]
        held.append(sides.average.low <= np.mean(truth) <= sides.average.high)
    print(seed_sd, np.mean(held))
    assert stats.binomtest(sum(held), len(held), 0.95, alternative="less").pvalue > 1e-3
