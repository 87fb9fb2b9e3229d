"""Every finding says itself as one sentence with its interval; a study is titled by rule with one of them."""

import io
import re
from dataclasses import replace

import pandas as pd
import pytest

from bench.analysis import published, questions, saved_findings
from bench.analysis.finding import ALL_MODELS, Axis, Counts, Difference, Finding, Reason, TrendPoint, Unit, Verdict
from bench.analysis.findings import Findings, ValidityCheck
from bench.analysis.targets import AccuracyTarget
from bench.questions.best_learning_rate import EDGE_OF_SWEEP, OPEN_INTERVAL
from bench.report import build, text
from bench.report.style import PAGE
from bench.report.title import is_answered, sentence, title_of
from bench.validity.size_at_edge import SMALLEST
from tests.analysis._study import findings_of
from tests.analysis._study import study as synthetic
from tests.conftest import PROJECT

REFERENCES = sorted(path.parent for path in PROJECT.glob("results/reference/*-cpu/findings.json"))


def study(*findings: Finding) -> Findings:
    return Findings(findings=findings, checks=(), cost=questions.cost(()), scope=None)


def gain(name: str, family: str, estimate: float, half: float, *reasons: str, **more: object) -> Finding:
    low, high = estimate - half, estimate + half
    verdict = Verdict.YES if low > 0 else Verdict.NO if high < 0 else Verdict.CANNOT_TELL
    finding = Finding(question=name, subject=(family,), verdict=verdict, estimate=estimate, low=low, high=high)
    return replace(finding, unit=Unit.SHARE, n=Counts(seeds=2), reasons=reasons, **more)  # type: ignore[arg-type]


def test_a_sweep_of_many_networks_is_titled_with_all_of_them() -> None:
    """Between which rates the best lie, and how many of them are bounded; a sweep of few is titled with one."""

    def best(model: str, rate: float | None, *reasons: str) -> Finding:
        verdict = Verdict.NO if rate is None else Verdict.YES
        made = Finding(question="best learning rate", subject=(model, "set"), verdict=verdict, estimate=rate)
        return replace(made, low=rate and rate / 2, high=rate and rate * 2, n=Counts(seeds=3), reasons=reasons)

    some = [best("a", 3e-3), best("b", 1e-3, OPEN_INTERVAL), best("c", 2e-3), best("d", None, EDGE_OF_SWEEP)]
    made = title_of(study(*some), figures=["learning-rates"], own="best learning rate")
    assert made is not None and made.figure == "learning-rates"
    assert made.text == (
        "The best learning rates of 3 of 4 networks lie between 0.001 and 0.003; the sweep bounds 2 of them on both "
        "sides."
    )


@pytest.mark.parametrize("folder", REFERENCES, ids=lambda folder: folder.name)
def test_every_finding_of_the_references_says_itself(folder, race) -> None:
    for finding in saved_findings.read(folder):
        said = sentence(finding)
        assert said.strip() == said and said.endswith(".") and not re.search(r"\b(None|nan)\b|  |\.\.", said), said
        assert all(name in said for name in _named(finding)), said


def _named(finding: Finding) -> tuple[str, ...]:
    """Names that a sentence about a finding has: its subject, where that is a family, a model or a pair of them."""
    as_words = ("as published", "branch as accurate", "resolution gain", "faster than peers", "next run")
    return () if finding.question in as_words or finding.subject == (ALL_MODELS,) else finding.subject[:1]


def test_the_choice_of_a_title_does_not_depend_on_answers() -> None:
    """The suite's question first, then those that a figure shows, then the order of figures and of questions."""
    open_one = gain("more compute helps", "ViT", 0.02, 0.05, Reason.WITHIN_INTERVAL)
    compute, images = gain("more compute helps", "ResNet", 0.05, 0.01), gain("more images help", "ResNet", 0.04, 0.01)
    aside = gain("more images help", "Hybrid", 0.3, 0.01, main=False)
    every = study(open_one, compute, images, aside)
    made = title_of(every, figures=["frontier"])
    assert made is not None and (made.finding, made.figure) == (0, "")
    made = title_of(every, figures=["compute", "data-size"])
    assert made is not None and (made.finding, made.figure) == (0, "compute")
    made = title_of(every, figures=["data-size", "compute"])
    assert made is not None and (made.finding, made.figure) == (2, "data-size")
    assert made.text == "More images give ResNet 4.0 points [3.0, 5.0]."
    made = title_of(every, figures=["compute", "data-size"], own="more images help")
    assert made is not None and made.finding == 2
    decided = replace(open_one, verdict=Verdict.YES, low=0.01, reasons=())
    again = title_of(study(decided, compute, images, aside), figures=["compute", "data-size"])
    assert again is not None and again.finding == 0
    impossible = replace(open_one, reasons=(Reason.TOO_FEW_POINTS,))
    made = title_of(study(impossible, compute), figures=[])
    assert made is not None and made.finding == 1


def test_an_open_title_about_two_families_gives_the_difference() -> None:
    f = Finding(
        question="best family at equal compute",
        subject=("ViT", "ResNet"),
        verdict=Verdict.CANNOT_TELL,
        reasons=(Reason.WITHIN_INTERVAL,),
        unit=Unit.SHARE,
        estimate=0.004,
        low=-0.012,
        high=0.02,
    )
    assert "Inconclusive: ViT − ResNet +0.4 points [−1.2, +2.0]." in sentence(f)
    decided = replace(f, verdict=Verdict.YES, leader="ViT", reasons=(Reason.SEVERAL,))
    assert not is_answered(decided) and "leads" not in sentence(decided)


def test_where_the_number_is_the_answer_a_title_names_those_of_others() -> None:
    item = AccuracyTarget(accuracy=0.75, asked=(100.0, 1000.0))
    needed = [
        Finding(
            question="images for a target",
            subject=(family,),
            verdict=Verdict.YES,
            unit=Unit.IMAGES,
            estimate=images,
            low=images - 20,
            high=images + 20,
            evidence=(item,),
        )
        for family, images in (("ViT", 400.0), ("Hybrid", 210.0), ("ResNet", 180.0))
    ]
    made = title_of(study(*needed), figures=["data-size"])
    assert made is not None and made.others == "Hybrid: 210 images; ResNet: 180 images."
    assert made.text == f"Another run of ViT reaches 75 % at 400 images [380, 420]. {made.others}"
    unmet = replace(needed[1], verdict=Verdict.CANNOT_TELL)
    made = title_of(study(needed[0], unmet), figures=["data-size"])
    assert made is not None and made.others == "Hybrid: inconclusive."


@pytest.mark.parametrize("name", ["beats untrained", "more compute helps"])
def test_a_title_that_no_figure_shows_has_a_figure_of_its_own(name: str) -> None:
    """A row per model and one of the mean, with the title's number; none where there are no differences."""
    evidence = synthetic()
    found = questions.find(evidence, [name])
    title = title_of(found, figures=[])
    assert title is not None and not title.figure
    made = build._answer(found, title, evidence, PAGE)
    assert made is not None and (made.name, made.title) == (build.ANSWER, title.text)
    rows, finding = pd.read_csv(io.StringIO(made.csv)), found.findings[title.finding]
    first = rows.iloc[0]
    assert (first.difference, first.low, first.high) == pytest.approx((finding.estimate, finding.low, finding.high))
    models = {d.model for f in found.findings if f.main for d in f.evidence if isinstance(d, Difference) and d.model}
    assert set(rows["model"].dropna()) <= models and rows["model"].notna().sum() >= 2
    assert build._answer(study(replace(finding, evidence=())), replace(title, finding=0), evidence, PAGE) is None


def test_a_loss_is_a_loss() -> None:
    assert sentence(gain("more images help", "ViT", -0.02, 0.01)) == "More images cost ViT 2.0 points [1.0, 3.0]."


def test_an_open_question_says_what_it_would_take() -> None:
    open_one = gain("more compute helps", "ViT", 0.02, 0.05, Reason.WITHIN_INTERVAL)
    made = title_of(study(open_one), figures=["compute"])
    assert made is not None and "Inconclusive for ViT" in made.text and "2.5 times narrower" in made.text
    once = gain("more compute helps", "ViT", 0.02, 0.05, Reason.UNREPLICATED)
    assert "--seeds 2" in sentence(once)


def test_nothing_asked_is_no_headline() -> None:
    assert title_of(study(), figures=[]) is None
    everybody = replace(gain("more compute helps", "ViT", 0.2, 0.05), subject=(ALL_MODELS,))
    assert title_of(study(everybody), figures=[]) is None


def test_the_papers_own_table_is_titled_with_its_families() -> None:
    made = title_of(findings_of(published.evidence()), figures=["compute"])
    assert made is not None and made.figure and made.text.startswith("ViT leads ResNet by ")
    assert "undecided, for 0.4 points [0.1, 0.6] may be chance between single trainings" in made.text


def test_a_title_gives_other_leaders_and_no_bare_ratio_of_the_same() -> None:
    made = title_of(study(*saved_findings.read(PROJECT / "results/reference/speed-cpu")), figures=["throughput"])
    assert made is not None and made.others == "64 px: ViT-Ti/16."


def test_a_table_at_a_glance_has_no_empty_column() -> None:
    findings = study(*saved_findings.read(PROJECT / "results/reference/speed-cpu"))
    tables = [g for part in vars(text.overview(findings, text.answers(findings))).values() for g in part]
    assert tables and all(len(cells) == len(g.columns) for g in tables for _, cells in g.rows)
    assert all(any(column) for g in tables for column in zip(*(cells for _, cells in g.rows), strict=True))


def test_a_difference_that_changes_is_an_answer(race) -> None:
    for folder in REFERENCES:
        for finding in saved_findings.read(folder):
            if finding.question == "best family at equal compute" and finding.estimate is None and finding.trend:
                assert is_answered(finding) == (" leads " in sentence(finding))


def test_a_lead_of_the_smallest_networks_is_taken_back() -> None:
    """Where the smallest are best up to the largest budget, and nowhere else; an open question leads with nobody."""
    ends = [TrendPoint(x=x, estimate=-0.1, low=-0.12, high=-0.08, verdict=Verdict.NO) for x in (1e9, 1e10)]
    ahead = gain("best family at equal compute", "ViT", -0.1, 0.02, axis=Axis.COMPUTE, leader="ResNet")
    ahead = replace(ahead, subject=("ViT", "ResNet"), verdict=Verdict.YES, trend=tuple(ends))

    def said(finding: Finding, **upper: float) -> str:
        checks = tuple(
            ValidityCheck(kind=SMALLEST, names=(family, "tiny"), count=2, low=1e9, high=high)
            for family, high in upper.items()
        )
        title = title_of(replace(study(finding), checks=checks), figures=[])
        assert title is not None and (not title.others or title.text.endswith(title.others))
        return title.others

    assert said(ahead, ViT=1e10, ResNet=0.99e10, Hybrid=1e10) == (
        "But the smallest ViT and ResNet are best: smaller ones may be better."
    )
    assert said(ahead, ResNet=1e10) == "But the smallest ResNet is best: a smaller one may be better."
    assert not said(ahead, ViT=5e9, Hybrid=1e10) and not said(replace(ahead, verdict=Verdict.CANNOT_TELL), ViT=1e10)
