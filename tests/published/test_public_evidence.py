"""Published checkpoints as evidence: records beside the table, answers, and what is laid beside a study."""

import math
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from bench import api
from bench.analysis.evidence import UPSTREAM, Evidence, build
from bench.analysis.finding import Finding, Verdict
from bench.analysis.question import load
from bench.analysis.study_data import Records
from bench.published import clip, matched, public_evidence, robustness
from bench.published.figures import published_ratios
from bench.published.matched import MEAN, ByMetric, Comparison, gains
from bench.published.questions.as_claimed import Claimed
from bench.report.figures import compute
from bench.report.title import title_of
from bench.stats.pareto import pareto
from bench.study.record import DataFacts
from tests.analysis._records import World, change, map_scores
from tests.analysis._study import findings_of, study
from tests.conftest import PROJECT

PAIRS = ("compute at equal error", "gain from more images", "as claimed")
APART = ("robust at equal error", "exponent by data set")


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return public_evidence.evidence()


@pytest.fixture(scope="module")
def findings(evidence: Evidence) -> tuple[Finding, ...]:
    return findings_of(evidence).findings


def test_records_are_the_rows_of_the_table(evidence: Evidence) -> None:
    table = api.published()
    known = table[(table.stages != "") & table.complete & ~table.teacher].set_index(["model", "image_size"])
    records = evidence.records.records
    assert len(records) == len(known) > 600
    for record in records[::7]:
        row = known.loc[record.model.name, record.cell.image_size]
        (horizon,) = record.horizons
        assert horizon.train_flops.dense == pytest.approx(1e18 * row.train_exaflops)
        assert horizon.train_flops.paper == pytest.approx(1e18 * row.train_exaflops_paper)
        assert horizon.scores[0].value == pytest.approx(row.in1k_top1 / 100)
        assert (record.model.family, record.source) == (row.family, row.source)
    assert len(evidence.points) == len(known)


def test_main_answers_are_of_controlled_pairs_alone(findings: tuple[Finding, ...]) -> None:
    assert {*PAIRS, *APART, "best family at equal compute"} <= {f.question for f in findings}
    for f in findings:
        controlled = [not item.differs for item in f.evidence if hasattr(item, "differs")]
        assert f.main == (f.question in PAIRS and controlled == [True]), f


def test_the_headline_is_a_controlled_pair_of_vit_and_resnet(evidence: Evidence) -> None:
    """Also where an uncontrolled comparison comes first and is surer."""
    made = findings_of(evidence)
    chosen = title_of(made, figures=["published-frontiers", "published-ratios"])
    first = made.findings[chosen.finding]
    assert first.main and first.subject[:2] == ("ResNet (BiT)", "ViT") and chosen.figure
    assert "took 2.0" in chosen.text and "JFT-300M (Table 6)" in chosen.text
    assert "; on ReaL labels 1.00 [0.47, 2.80]" in chosen.text
    again = title_of(replace(made, findings=made.findings[::-1]), figures=["published-frontiers", "published-ratios"])
    assert made.findings[::-1][again.finding].main


def test_a_comparison_that_differs_in_anything_is_not_controlled() -> None:
    for comparison in matched.comparisons():
        both = [rows["stages"] for rows in comparison.families if "stages" in rows]
        recipes = {re.sub(r"@\d+", "", stages) for rows in both for stages in rows}
        if comparison.table == "checkpoints" and len(recipes) > 1:
            assert not comparison.controlled, comparison.name


@pytest.mark.parametrize("comparison", matched.comparisons(), ids=lambda c: c.name)
def test_images_of_a_controlled_comparison_have_one_size(comparison: Comparison) -> None:
    """CLIP's larger ResNets saw 288 to 448 px, its ViTs 224: that is another difference than the networks."""
    both = pd.concat(comparison.families)
    assert len(both) > 3
    if comparison.controlled:
        assert both["image_size"].nunique() == 1
    if comparison.name.startswith("ResNet and ViT, WIT-400M"):
        assert set(both["image_size"]) > {224, 288, 384} and not comparison.controlled
        assert "288" in comparison.differs and "text tower" in comparison.differs


def test_a_ratio_is_that_of_the_family_named_first(evidence: Evidence, findings: tuple[Finding, ...]) -> None:
    """In findings, names of comparisons, the table, the figure, and docs: one order. Checked on the numbers: the line
    of the first at the error of a network of the second costs as many times more."""
    asked = [f for f in findings if f.question == "compute at equal error"]
    figure = published_ratios.draw(evidence).figure.axes[0]
    labels = [label.get_text() for label in figure.get_yticklabels()]
    rows = [label.split("\n")[0] for label in labels if "ReaL" not in label]
    table = {row["over"] for row in load("compute at equal error").tables(evidence)[0].rows}
    assert len(asked) == len(rows) == len(matched.comparisons())
    for f in asked:
        over = " over ".join(f.subject[:2])
        assert over.replace(" over ", " against ") in rows and over in table
        (comparison,) = [item for item in f.evidence if isinstance(item, Comparison)]
        points, line = comparison.families
        assert f.subject == (comparison.second, comparison.first, comparison.name)
        kept = pareto(list(line["compute"]), list(line["error"]))[::-1]
        costs, errors = np.log(line["compute"].to_numpy()[kept]), line["error"].to_numpy()[kept]
        inside = points[(points["error"] >= errors.min()) & (points["error"] <= errors.max())]
        at = np.interp(np.log(inside["error"]), np.log(errors), costs)
        assert math.exp((at - np.log(inside["compute"])).mean()) == pytest.approx(f.estimate)
        assert f.leader == f.subject[f.estimate > 1]
    reading = " ".join((PROJECT / "docs/reading.md").read_text().split())
    assert "it is that of the family named first, divided by that of the second" in reading


def verdicts(findings: tuple[Finding, ...]) -> dict[tuple[str, str], Verdict]:
    return {(f.subject[0].split()[0], f.subject[1]): f.verdict for f in findings if f.question == "as claimed"}


def test_the_papers_claims_hold_where_its_recipe_does(findings: tuple[Finding, ...]) -> None:
    """2 to 4 times less compute than ResNets in the paper and in CLIP, the reverse against ConvNeXt; more from images
    than a ConvNet by the paper's recipe and AugReg's, not by DeiT III's."""
    made = verdicts(findings)
    assert made["ViT", "BiT and ViT, JFT-300M (Table 6)"] == Verdict.YES
    (of_table_6,) = [f for f in findings if f.subject == (Claimed.CHEAPER, "BiT and ViT, JFT-300M (Table 6)")]
    average = {m.metric: m for m in of_table_6.evidence if isinstance(m, ByMetric)}[MEAN]
    assert (of_table_6.estimate, of_table_6.low) == (average.ratio, average.low), "the claim is of five sets' average"
    assert made["ViT", "ResNet and ViT, WIT-400M (CLIP)"] == Verdict.YES
    assert not any(f.main for f in findings if "CLIP)" in f.subject[-1] and "ResNet" in f.subject[-1])
    assert made["ViT", "ViT (DeiT III) and ConvNeXt, ImageNet-22k"] == Verdict.NO
    assert made["ViT", "ViT (AugReg) and ConvNeXt, ImageNet-21k"] == Verdict.NO
    assert made["ViT", "ViT-B/16, ViT paper and ConvNeXt-B"] == Verdict.YES
    assert made["ViT", "ViT-B/16, DeiT III and ConvNeXt-B"] == Verdict.CANNOT_TELL
    hybrids = [f for f in findings if f.question == "as claimed" and f.subject[0].startswith("hybrids")]
    assert len(hybrids) == 3 and all(f.estimate > 1 for f in hybrids)
    assert made["hybrids", "ViT and hybrid, JFT-300M (Table 6)"] == Verdict.CANNOT_TELL  # single trainings


GAINS = {
    "ViT-B/16, ViT paper": 6.1,
    "ViT-B/16, AugReg": 4.9,
    "Swin-B": 2.0,
    "ConvNeXt-B": 1.8,
    "ViT-B/16, DeiT III": 1.7,
}
"""In points, by another analysis of the same numbers."""


def test_gains_are_those_of_another_analysis() -> None:
    made = {gain.network: gain for gain in gains()}
    for network, points in (GAINS | {"EfficientNetV2-M": 0.8}).items():
        assert 100 * made[network].gain == pytest.approx(points, abs=0.06), network


def test_the_interval_of_a_gain_contains_chance_in_the_test_images() -> None:
    rng, gain = np.random.default_rng(0), gains()[0]
    drawn = [
        rng.binomial(matched.TEST_IMAGES, share, 20_000) / matched.TEST_IMAGES for share in (gain.fewer, gain.more)
    ]
    assert gain.half == pytest.approx(1.96 * np.std(drawn[1] - drawn[0]), rel=0.03)


def test_robustness_is_that_of_another_analysis() -> None:
    """Means of checkpoints with 13.3 to 14.3 % ImageNet error, in percent: Sketch 43, 48, 55 and R 57, 62, 69 by
    1.28M, 12 to 38M and web images; V2 and ReaL unchanged."""
    near = robustness.in_band(robustness.checkpoints()).groupby("upstream")
    means = near[list(robustness.TESTS)].mean()
    assert list(means["sketch_top1"]) == pytest.approx([43, 48, 55], abs=0.6)
    assert list(means["r_top1"]) == pytest.approx([57, 62, 69], abs=0.8)
    assert (means[["v2_top1", "real_top1"]].max() - means[["v2_top1", "real_top1"]].min()).max() < 0.5


def test_exponents_are_those_of_a_known_law_and_of_numpy() -> None:
    compute_N = np.array([1.0, 10.0, 100.0, 2000.0])
    assert clip.power_law(compute_N, 80 * compute_N**-0.12)[:2] == pytest.approx((80, 0.12))
    for _, rows in clip.networks().groupby("upstream"):
        _, exponent, low, high = clip.power_law(rows["compute"], rows["error"])
        slope, _ = np.polyfit(np.log(rows["compute"]), np.log(rows["error"]), 1)
        assert exponent == pytest.approx(-slope) and low < exponent < high


def test_clips_networks_agree_with_their_authors() -> None:
    """ViTs need about 3 times less compute than ResNets (CLIP, section 3.2; here 2, in zero-shot error alone), and
    LAION's images more of it than OpenAI's."""
    by_name = {comparison.name: comparison for comparison in matched.comparisons()}
    *_, mean = matched.matched(by_name["ResNet and ViT, WIT-400M (CLIP)"])
    assert 1.5 < mean.ratio < 3 and mean.low > 1 and mean.high > 3
    table = clip.networks().set_index("model")
    for model, same in (("ViT-B-32", "e32"), ("ViT-B-16", "e32"), ("ViT-L-14", "e32")):
        assert table.error[f"{model}.openai"] < table.error[f"{model}.laion400m_{same}"]


# -- beside a study ----------------------------------------------------------------------------------------------------


def on_imagenet(images: int, *, size: int = 224) -> Evidence:
    """A study of models that were pre-trained on so many images of ImageNet."""
    world = World(seed=2)
    world.models, world.sizes, world.seeds = {"ViT-nano/7": world.models["ViT-nano/7"]}, (30_000,), (0,)
    data = DataFacts(name="imagenet", kind="photographs", num_images=images, image_size=size, channels=3)
    cell = {"cell.data": "imagenet", "cell.num_images": images, "cell.image_size": size}
    records = [change(record, cell | {"data": data}) for record in world.records()]
    moved = [map_scores(r, lambda _, s: replace(s, data="imagenet") if s.task == UPSTREAM else None) for r in records]
    return build(Records(suite="mine", records=tuple(sorted(moved, key=lambda record: record.directory))))


def test_checkpoints_of_the_same_set_and_size_are_laid_beside_a_study() -> None:
    mine = on_imagenet(1_281_167)
    theirs = public_evidence.beside(mine)
    table = api.published()
    alike = table[(table.pretrain_set == "in1k") & (table.image_size == 224) & table.complete & ~table.teacher]
    assert theirs is not None and len(theirs.points) == len(alike) > 100
    drawing = compute.draw(replace(mine, reference=theirs))
    quoted = drawing.data[drawing.data.kind == "published"]
    assert set(quoted.measure) == {UPSTREAM} and len(quoted) == len(alike)
    assert sorted(quoted.accuracy) == pytest.approx(sorted(alike.in1k_top1 / 100))
    assert sorted(quoted.train_flops) == pytest.approx(sorted(1e18 * alike.train_exaflops_paper))
    assert any("published" in entry.get_text() for entry in drawing.figure.legends[0].texts)


OTHERS = {"part": lambda: on_imagenet(100_000), "size": lambda: on_imagenet(1_281_167, size=100), "set": study}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_nothing_is_laid_beside_a_study_of_other_images(other: Callable[[], Evidence]) -> None:
    assert public_evidence.beside(other()) is None


def test_the_average_of_other_tasks_has_no_published_counterpart(evidence: Evidence) -> None:
    assert not (compute.draw(replace(study(), reference=evidence)).data.kind == "published").any()


def test_chance_between_trainings_shifts_a_ratio_as_far_as_it_shifts_a_power_law() -> None:
    """On error = 30 x compute^-0.15 a shift of log-odds by 0.12 is one of log compute by 0.12 x (1 - error) / 0.15."""
    costs = np.array([10.0, 40.0, 90.0, 400.0, 1000.0])
    made = matched.estimate([100.0], [30 * 100**-0.15], costs, 30 * costs**-0.15, draws=50)
    wanted = 0.12 * (1 - 0.3 * 100**-0.15) / 0.15
    assert made[0, 3] == pytest.approx(math.exp(wanted), rel=0.02)
    assert isinstance(matched.comparisons()[0], Comparison)
