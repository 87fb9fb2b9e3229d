"""The texts of a report beside its findings: claims of the ViT paper, limits, cost and validity checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.analysis.check import MAX_NAMED, Words, said
from bench.analysis.finding import Finding, Unit, Verdict
from bench.analysis.findings import (
    Claim,
    CostSummary,
    Findings,
    Judgement,
    Level,
    Scope,
    Stated,
)
from bench.analysis.question import Tone, question_of
from bench.analysis.questions import SHARE_FALSE, asked_together
from bench.analysis.wording import MEASURES
from bench.core.formatting import (
    core_days,
    count,
    duration,
    energy,
    flops,
    join,
    plural,
    short_count,
    significant,
    weight,
)
from bench.core.measure import Measure
from bench.report.text import Answer, usual_counts
from bench.study import registry

SIMULATED_FALSE, SIMULATED = 2, 200
"""In simulated studies without any difference between families, SIMULATED_FALSE of SIMULATED reports claimed one
(results/reference/coverage/reports.md)."""

# -- the paper's claims ----------------------------------------------------------------------------------------------

STATED = {
    Stated.CONTAINS: "within the stated 2 to 4 times",
    Stated.OVERLAPS: "overlaps the stated 2 to 4 times",
    Stated.OUTSIDE: "outside the stated 2 to 4 times",
}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim of the ViT paper with two verdicts, in words: one by this study's records, one by the paper's Table 6.

    Attributes:
        claim: the claim in one sentence.
        where: the section of the paper that makes it.
        own: the verdict by this study's records.
        own_tone, paper_tone: tones of the verdicts, which select their symbols.
        own_number: the number behind `own`; "" where no finding is about the claim.
        own_key: key of the `Answer` behind `own`; "" where no finding is about the claim.
        paper: the verdict by Table 6; "" where that has no numbers about the claim.
        paper_number: the number behind `paper`, or why there is none; "" where nothing is to be said.
    """

    claim: str
    where: str
    own: str
    own_tone: Tone
    own_number: str
    own_key: str
    paper: str
    paper_tone: Tone
    paper_number: str


def claims(findings: Findings, answers: Sequence[Answer]) -> tuple[Judged, ...]:
    """Return the claims of the ViT paper, each judged by this study's records and by the paper's own Table 6.
    `answers`: the texts of `findings.findings`, in the same order."""
    made = []
    for claim in findings.claims:
        made_by = registry.load("claim", claim.claim)
        own = answers[claim.own.finding] if claim.own.finding is not None else None
        paper, tone, shown = _by_table_6(findings, claim)
        made.append(
            Judged(
                claim=made_by.text,
                where=made_by.where,
                own=_word(claim.own),
                own_tone=_tone(claim.own),
                own_key=own.key if own else "",
                own_number=_stated(own.number if own else "", claim.own),
                paper=paper,
                paper_tone=tone,
                paper_number=shown,
            )
        )
    return tuple(made)


def _by_table_6(findings: Findings, claim: Claim) -> tuple[str, Tone, str]:
    if findings.published:  # these records are the table
        own = claim.own
        shown = _number(findings.findings[own.finding]) if own.finding is not None else "Figure 4 has no table."
        return _word(own) if own.finding is not None else "", _tone(own), _stated(shown, own)
    if claim.paper is None:
        return "", "unsure", "" if registry.load("claim", claim.claim).in_table else "Figure 4 has no table."
    at = claim.paper.finding
    shown = _number(findings.paper[at]) if at is not None else ""
    return _word(claim.paper), _tone(claim.paper), _stated(shown, claim.paper)


def _number(f: Finding) -> str:
    question = question_of(f)
    return " ".join(filter(None, (question.number(f).text, question.of(f))))


def _stated(shown: str, judgement: Judgement) -> str:
    return f"{shown}; {STATED[judgement.stated]}" if shown and judgement.stated else shown


def _word(judgement: Judgement) -> str:
    return "inconclusive" if judgement.verdict == Verdict.CANNOT_TELL else str(judgement.verdict)


def _tone(judgement: Judgement) -> Tone:
    return {Verdict.YES: "yes", Verdict.NO: "no"}.get(judgement.verdict, "unsure")  # type: ignore[return-value]


# -- what limits the answers -----------------------------------------------------------------------------------------


def shared_facts(findings: Findings) -> str:
    """Return sentences on what all answers have in common: levels of intervals, n, and training noise. Without any
    answer, they say why."""
    if not findings.findings:
        if not findings.completed:
            return "No run has been completed, so no question can be answered."
        return "" if findings.judged else "This study has no evaluation on target sets: see its tables."
    levels = sorted({f.level for f in findings.findings if f.level is not None}, reverse=True)
    usual = [
        text if measure == "headline" else f"{text} ({_on(measure)})"
        for measure, text in usual_counts(findings).items()
    ]
    laws = f"; for fitted laws, {levels[-1]:.0%}" if len(levels) > 1 else ""
    once = not findings.replicated and any(f.excluded for f in findings.findings)
    allowed = any(f.unit == Unit.TIMES and f.margin is not None and not f.excluded for f in findings.findings)
    texts = (
        f"Brackets show {levels[0]:.0%} intervals{laws}." if levels else "",
        f"n, unless stated otherwise: {'; '.join(usual)}." if usual else "",
        f"Every model was trained once, so the intervals{' of differences' if allowed else ''} exclude training noise."
        if once
        else "",
    )
    return " ".join(text for text in texts if text)


def _on(measure: str) -> str:
    """Return in words the data sets and tasks that a measure is computed on. The headline, the mean of the main tasks,
    needs no such words."""
    return MEASURES.get(measure, "").removeprefix(", ") or Measure.parse(measure).text


def limits(findings: Findings) -> tuple[str, ...]:
    """Return sentences on the limits of a study: its range of compute, its images, noise, multiple comparisons and
    methods."""
    scope = findings.scope
    if scope is None:
        return () if findings.completed else ("No model completed training.",)
    sentences = [_range(scope), _data(scope, findings), _noise(scope), _multiplicity(scope, findings)]
    return tuple(text for text in (*sentences, _method(scope, findings)) if text)


def _range(scope: Scope) -> str:
    if scope.flops is None:
        return ""
    low, high = scope.flops
    size = f"models of up to {short_count(scope.params)} parameters"
    if high < 1.05 * low:
        text = f"One budget, {flops(high)}, and {size}: other budgets were not measured."
    else:
        text = f"Compute from {flops(low)} to {flops(high)} (a factor of {significant(high / low, 2)}) and {size}."
    if scope.paper_begins is None:
        return text
    begins = scope.paper_begins
    return f"{text} The ViT paper's Figure 5 starts at {flops(begins)}, {_times(begins / high)} that."


def _times(ratio: float) -> str:
    for scale, name in ((1e9, " billion"), (1e6, " million")):
        if ratio >= scale:
            return f"{significant(ratio / scale, 1)}{name} times"
    return f"{significant(ratio, 1)} times"


def _data(scope: Scope, findings: Findings) -> str:
    if findings.published:
        return ""
    sets = join([f"{name} ({kind})" for name, kind in scope.upstream])
    size = f" at {scope.image_size} px" if scope.image_size else ""
    return f"Pre-training on at most {scope.images:,} images of {sets}{size}; other images may behave differently."


def _noise(scope: Scope) -> str:
    if scope.once:
        return "Every model was trained with one seed, so the part of a difference that is due to chance is unknown."
    few = scope.few_seeds
    named = join(few) if len(few) <= MAX_NAMED else f"{len(few)} models"
    return f"The variance between seeds is estimated from fewer than three seeds for {named}." if few else ""


def _multiplicity(scope: Scope, findings: Findings) -> str:
    if findings.published or not scope.points:
        return ""
    together = len(asked_together(findings.findings))
    held = (
        f"{plural(together, 'question')} about differences between families {'was' if together == 1 else 'were'} "
        f"asked, and answers hold for all together (Holm; the study's own question weighs as much as all others): "
        f"with no difference at all, a report says otherwise in at "
        f"most {SHARE_FALSE:.0%} of studies (simulated: {SIMULATED_FALSE} of {SIMULATED}). "
    )
    return (
        f"{held if together else ''}Intervals are not corrected for multiple comparisons: "
        f"{plural(scope.points, 'trained point')} at {findings.level:.0%} each."
    )


def _method(scope: Scope, findings: Findings) -> str:
    between = "Differences between families include differences between their recipes." if scope.families > 1 else ""
    if findings.published:
        published = "Results are as published; each family was trained and fine-tuned with its authors' settings."
        return f"{published} {between}".strip()
    frozen = "Few-shot probes use frozen features; fine-tuning may rank models differently." if scope.frozen else ""
    return " ".join(text for text in (frozen, between) if text)


def cost(spent: CostSummary) -> str:
    """Return one sentence on what a study cost: time, training compute, core-days and energy."""
    if not spent.cells:
        return "No finished runs."
    parts = ", ".join(f"{part} {duration(seconds)}" for part, seconds in spent.seconds if seconds > 0)
    trained = f"; {flops(spent.spent_flops)} of training over {count(spent.spent_images)} images"
    trained = trained if spent.spent_images else ""
    waited = spent.image_wait_seconds
    parts += f"; {duration(waited)} of training was waiting for images" if waited > 0 else ""
    time = f"{duration(spent.total_seconds)} summed over workers{f' ({parts})' if parts else ''}"
    days = f"; {core_days(spent.core_days)} core-days" if spent.core_days or trained else ""
    return f"Cost: {time}{trained}{days}{_energy(spent)}."


def _energy(spent: CostSummary) -> str:
    """Return in words the energy of those cells for which it was measured; "" where it was measured for none."""
    if spent.joules is None:
        return ""
    grams = spent.co2_grams
    co2 = "" if grams is None else f", {weight(grams)} of CO2"
    of = "" if spent.measured == spent.cells else f" in {spent.measured} of {plural(spent.cells, 'run')}"
    return f"; {energy(spent.joules)} of electricity measured{of}{co2}"


# -- validity checks -------------------------------------------------------------------------------------------------


def warnings(findings: Findings) -> tuple[list[Words], list[Words]]:
    """Return the results of the validity checks in words: (warnings, which weaken a conclusion; notes, which do
    not)."""
    made: dict[Level, list[Words]] = {Level.WARNING: [], Level.NOTE: []}
    for result, words in said(findings.checks, published=findings.published):
        made[result.level].append(words)
    return made[Level.WARNING], made[Level.NOTE]


def quoted(models: int, source: str) -> str:
    return f"Published results from {source}: {plural(models, 'model')}; nothing was run."
