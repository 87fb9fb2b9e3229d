"""Answers every question from a study's records, and corrects the answers for multiple testing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from bench.analysis.check import checks
from bench.analysis.comparisons import compared_series
from bench.analysis.evidence import UPSTREAM, Evidence
from bench.analysis.finding import Axis, Finding, Reason, Verdict
from bench.analysis.findings import Claim, CostSummary, Findings, Scope
from bench.analysis.question import Question, load, question_of
from bench.analysis.scaling_laws import laws
from bench.stats.levels import holm
from bench.study import registry
from bench.study.record import Record

SHARE_FALSE = 0.05  # fraction of reports that may claim a difference between families which are equal
PAPER_BEGINS = 50e18  # FLOP at which the paper's Figure 5 begins


def find(evidence: Evidence, questions: Iterable[str] | None = None) -> Findings:
    """Return everything that the records answer: findings, judged claims, validity checks, cost and scope.

    Args:
        questions: names of the questions to ask; None: all there are.
    """
    findings = tuple(answered(evidence, asked(questions)))
    if not evidence.controlled:
        findings = tuple(replace(f, main=f.main and load(f.question).is_of_pairs) for f in findings)
    findings = held(findings, own=evidence.own_question)
    judged, paper = _claims(evidence, findings)
    return Findings(
        findings=findings,
        checks=checks(evidence),
        cost=cost(evidence.records.records),
        scope=scope(evidence),
        claims=judged,
        paper=paper,
        headline=evidence.headline,
        far=evidence.far,
        shots=evidence.shots,
        level=evidence.level,
        published=evidence.published,
        replicated=any(len(p.seeds) > 1 for p in evidence.points.values()),
        judged=bool((evidence.scores["task"] != UPSTREAM).any() or findings),
        completed=any(record.status == "complete" for record in evidence.records.records),
    )


def held(findings: Sequence[Finding], *, own: str = "") -> tuple[Finding, ...]:
    """Apply Holm's procedure to all main findings about differences between families, so that at most a fraction
    `SHARE_FALSE` of studies claims a difference if families do not differ at all, however many questions are asked. A
    decided verdict that does not survive becomes "cannot tell"; estimates and intervals stay as they are.

    Args:
        own: name of the question that the study was made for, "" for none. Its answers together have the same weight as
            all other answers together.
    """
    together = asked_together(findings)
    is_own = [f.question == own for _, f in together]
    weights = [1 / is_own.count(each) for each in is_own]
    kept = holm([1.0 if f.p is None else f.p for _, f in together], share=SHARE_FALSE, weights=weights)
    changed = list(findings)
    for (place, f), stands in zip(together, kept, strict=True):
        if not stands and is_decided(f):
            changed[place] = replace(f, verdict=Verdict.CANNOT_TELL, reasons=(Reason.SEVERAL, *f.reasons))
    return tuple(changed)


def asked_together(findings: Sequence[Finding]) -> list[tuple[int, Finding]]:
    """Return (index in `findings`, finding) of the main findings that are corrected for multiple testing together
    (`Question.counts_together`), whether or not they are decided."""
    return [(place, f) for place, f in enumerate(findings) if f.main and question_of(f).counts_together]


def is_decided(f: Finding) -> bool:
    """Return whether a finding answers its question. For some questions it does even if its verdict is "cannot tell":
    an order of families that changes along the range is an answer, too."""
    if Reason.SEVERAL in f.reasons:
        return False
    said = question_of(f).verdict(f)
    return f.verdict != Verdict.CANNOT_TELL or (said is not None and said[1] != "unsure")


def asked(names: Iterable[str] | None = None) -> list[Question]:
    """Return the questions with these names, in the order of a report; None: all questions."""
    every = map(load, registry.names("question") if names is None else names)
    return sorted(every, key=lambda question: (question.order, question.name))


def answered(evidence: Evidence, questions: Iterable[Question]) -> Iterable[Finding]:
    """Yield the findings of all `questions`, in their order. Findings of questions whose `order` has the same whole
    number are sorted by measure (score)."""
    for _, together in groupby(questions, key=lambda question: int(question.order)):
        findings = [finding for question in together for finding in question.ask(evidence)]
        measures = list(dict.fromkeys(finding.measure for finding in findings))
        yield from sorted(findings, key=lambda finding: measures.index(finding.measure))


def _claims(evidence: Evidence, findings: Sequence[Finding]) -> tuple[tuple[Claim, ...], tuple[Finding, ...]]:
    """Judge the ViT paper's claims by the findings of a study. Return the judged claims, and the findings from the
    paper's own Table 6; both are () if no law could be fitted."""
    axes = (Axis.COMPUTE, Axis.IMAGES) if compared_series(evidence) else ()
    if not any(laws(evidence, axis=axis) for axis in axes):
        return (), ()
    from bench.analysis.claims import claims  # imports the paper's tables, which few studies need

    return claims(evidence, findings)


def scope(evidence: Evidence) -> Scope | None:
    """Return the range of compute, models and images that was measured; None if no model was trained to the end."""
    trained = [p for s in evidence.series for p in s.points]
    if not trained:
        return None
    on_axis = [p for s in evidence.on_axis("compute", every=True) for p in s.points]
    flops = [p.train_flops for p in on_axis if p.train_flops > 0]
    size = evidence.horizons["image_size"].max()
    below = flops and max(flops) < PAPER_BEGINS and not evidence.published
    return Scope(
        flops=(min(flops), max(flops)) if flops else None,
        paper_begins=PAPER_BEGINS if below else None,
        params=max(p.params for p in on_axis or trained),
        images=max(p.num_images for p in trained),
        upstream=tuple(sorted({(s.last.data, s.last.kind) for s in evidence.series})),
        image_size=None if math.isnan(size) else int(size),
        once=all(len(p.seeds) == 1 for p in trained),
        few_seeds=tuple(sorted({p.series for p in trained if len(p.seeds) < 3})),
        points=len(on_axis),
        families=len({s.family for s in evidence.series}),
        frozen=any(":" not in measure for measure in evidence.headline),
    )


def cost(records: Iterable[Record]) -> CostSummary:
    """Return the cost of a study: sums over all cells."""
    costs = [record.cost for record in records]
    parts = ("train", "evaluate", "save", "wait")
    energies = [c.energy for c in costs if c.energy is not None]
    grams = [energy.co2_grams for energy in energies if energy.co2_grams is not None]
    return CostSummary(
        joules=math.fsum(energy.joules for energy in energies) if energies else None,
        measured=len(energies),
        co2_grams=math.fsum(grams) if grams and len(grams) == len(energies) else None,
        cells=len(costs),
        total_seconds=math.fsum(c.seconds.total or 0.0 for c in costs),
        seconds=tuple((part, math.fsum(getattr(c.seconds, part) or 0.0 for c in costs)) for part in parts),
        spent_flops=math.fsum(c.spent_flops.paper or 0.0 for c in costs),
        image_wait_seconds=math.fsum(c.image_wait_seconds or 0.0 for c in costs),
        spent_images=sum(c.spent_images or 0 for c in costs),
        core_days=math.fsum(c.core_days or 0.0 for c in costs),
    )
