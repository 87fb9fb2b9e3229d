"""The text of everything beside the findings: the paper's claims, scope, cost and validity checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.analysis.finding import Axis, Finding, Unit, Verdict
from bench.analysis.findings import (
    CheckKind,
    Claim,
    ClaimKind,
    CostSummary,
    Findings,
    Judgement,
    Level,
    Scope,
    Stated,
    ValidityCheck,
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
    flops_range,
    join,
    plural,
    set_and_task,
    short_count,
    significant,
    weight,
)
from bench.report.text import MAX_NAMED, Answer, usual_counts

SIMULATED_FALSE, SIMULATED = 2, 200
"""Studies without any difference whose reports said otherwise, of all that were simulated: reports.md in
results/reference/coverage/."""

# -- the paper's claims ----------------------------------------------------------------------------------------------

CLAIMS = {
    ClaimKind.CHEAPER: (
        "ViT uses about 2 to 4 times less compute than ResNet for the same performance.",
        "section 4.4",
    ),
    ClaimKind.SHRINKING: (
        "Hybrids outperform ViT at small compute; their lead shrinks for larger models.",
        "section 4.4",
    ),
    ClaimKind.UNSATURATED: ("ViT does not saturate within the range tried.", "section 4.4"),
    ClaimKind.DATA: ("ResNets do better with fewer pre-training images; ViT overtakes them with more.", "section 4.3"),
}
STATED = {
    Stated.CONTAINS: "within the stated 2 to 4 times",
    Stated.OVERLAPS: "overlaps the stated 2 to 4 times",
    Stated.OUTSIDE: "outside the stated 2 to 4 times",
}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim with two verdicts and their numbers. `own_key`: key of the answer that supports the first."""

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
    """The paper's claims, tested with these records and with its own Table 6."""
    made = []
    for claim in findings.claims:
        sentence, where = CLAIMS[claim.claim]
        own = answers[claim.own.finding] if claim.own.finding is not None else None
        paper, tone, shown = _by_table_6(findings, claim)
        made.append(
            Judged(
                claim=sentence,
                where=where,
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
        return ("", "unsure", "Figure 4 has no table." if claim.claim is ClaimKind.DATA else "")
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
    """Facts common to all answers: interval levels, n, and training noise."""
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
    """What a measure other than the mean of the main sets is read on."""
    return MEASURES.get(measure, "").removeprefix(", ") or ", ".join(filter(None, set_and_task(measure)))


def limits(findings: Findings) -> tuple[str, ...]:
    """Limits of the study."""
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
        f"asked, and answers hold for all together (Holm): with no difference at all, a report says otherwise in at "
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
    """The cost in one sentence."""
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
    """The energy of the cells whose energy was measured; "" where it was of none."""
    if spent.joules is None:
        return ""
    grams = spent.co2_grams
    co2 = "" if grams is None else f", {weight(grams)} of CO2"
    of = "" if spent.measured == spent.cells else f" in {spent.measured} of {plural(spent.cells, 'run')}"
    return f"; {energy(spent.joules)} of electricity measured{of}{co2}"


# -- validity checks -------------------------------------------------------------------------------------------------

CHECKS: dict[CheckKind, str | Callable[[ValidityCheck], str]] = {
    CheckKind.DAMAGED_RECORD: "Excluded damaged record: {names} ({message}).",
    CheckKind.UNSUCCESSFUL: lambda c: f"{' '.join(c.names)}: {c.message or 'no reason given'}.",
    CheckKind.UNFINISHED: "{count} runs are not finished. vit-bench status shows why; the same command continues.",
    CheckKind.ONE_SEED: lambda c: _one_seed(c),
    CheckKind.SEEDS_DISAGREE: lambda c: _disagree(c),
    CheckKind.NARROW_COMPUTE: lambda c: _narrow(c, flops),
    CheckKind.NARROW_IMAGES: lambda c: _narrow(c, lambda x: f"{count(x)} images"),
    CheckKind.REPEATED_DATA: "On the {names} axis, {count} points used each image more than {limit:g} times (up "
    "to {high_text}): there, more compute does not mean more distinct data.",
    CheckKind.FEW_IMAGES: "{high:g}-shot scores on {names} used {count} labelled images, not {limit:,.0f}: some "
    "classes have too few "
    "images, which all few-shot samples share.",
    CheckKind.SAME_DRAWS: "All few-shot samples of {groups} shots on {names} are the same images: these intervals do "
    "not contain their spread.",
    CheckKind.MIXED: "Records mix values of {names} ({groups}): times are not comparable, and scores may differ "
    "slightly.",
    CheckKind.DIRTY_TREE: "Some records were made with uncommitted changes, so their commit may not reproduce them.",
    CheckKind.MISSING_BASELINE: lambda c: f"Baselines not measured: {_names(c)}.".replace(
        "raw pixels", "pixel baseline"
    ),
    CheckKind.RECIPES_BETWEEN: "Families differ in {field} ({groups}): part of a difference may be due to the recipe.",
    CheckKind.RECIPES_WITHIN: "Every family was trained with {field} {groups}.",
    CheckKind.UNEQUAL_RECIPES: "Runs that are compared on the {names} axis were not trained alike "
    "({groups}): part of a difference may be due to it.",
    CheckKind.SUPERSEDED: "Excluded, because a newer run measured the same scores: {names} ({groups}).",
    CheckKind.REJECTED_RATES: "{count} runs at learning rates that a sweep rejected are excluded from "
    "everything except the sweep.",
    CheckKind.CHOSEN_ON_TEST: "Learning rates were chosen on test images of {names}; scores reported on the "
    "same images are optimistic.",
    CheckKind.RATE_AT_EDGE: "The best learning rate of {names} lies at or beyond the edge of its sweep: "
    "none is chosen, and a better rate may exist.",
    CheckKind.RATE_NOT_IN_INTERVAL: "Every model was trained at one learning rate: the choice of the rates is not in "
    "the intervals of families.",
    CheckKind.TUNED_AT_EDGE: "Fine-tuning chose the lowest or highest of its learning rates in {count} of "
    "{limit:g} cases ({groups}): a wider sweep may raise these scores.",
    CheckKind.LONG_WARMUP: "Warm-up takes {high:.0%} of the shortest run of {names}, which may lower its score.",
    CheckKind.NOT_BEGUN: lambda c: _not_begun(c),
    CheckKind.BELOW_PIXELS: lambda c: _below_pixels(c),
    CheckKind.STILL_FALLING: lambda c: _falling(c),
    CheckKind.OTHER_TRAINING_IMAGES: "Training images named {names} differ between runs ({groups}): these runs "
    "are not pooled.",
    CheckKind.OTHER_TEST_IMAGES: "Test images named {names} differ between runs ({groups}): their scores are "
    "not comparable.",
    CheckKind.MIXED_REVISIONS: "Records mix revisions ({groups}): rerun the study for comparable scores.",
    CheckKind.UNCONTROLLED: (
        "Checkpoints are of many authors and years: recipes and test sizes differ with the family. Main answers are "
        "of controlled pairs alone."
    ),
    CheckKind.DUPLICATES: lambda c: _duplicates(c),
    CheckKind.LAW_TOO_FEW_POINTS: "No law for {names}: {count} points on or near the frontier, at least "
    "{limit:g} are needed.",
    CheckKind.LAW_FIT_FAILED: "No law for {names}: the fit failed.",
    CheckKind.LAW_NOT_COOLED_DOWN: "No law for {names}: {count} points were not cooled down, the others were.",
    CheckKind.LAW_SEVERAL_DATA_SETS: "No law for {names}: points were pre-trained on different data ({groups}).",
    CheckKind.LAW_UNITS: "No law for {names}: compute is counted in several units ({groups}).",
}


def check(c: ValidityCheck, *, published: bool = False) -> str:
    """A validity check in one or two sentences."""
    if c.kind is CheckKind.ONE_SEED and published:
        return "Every row is one training run; a ± that is printed is over repeated fine-tuning, not pre-training."
    made = CHECKS[c.kind]
    if not isinstance(made, str):
        return made(c)
    field = join([{"lr": "learning rate"}.get(name, name.replace("_", " ")) for name in c.names])
    return made.format(
        names=_names(c),
        groups=_groups(c),
        count=count(c.count),
        message=c.message,
        field=field,
        high=c.high,
        high_text="" if c.high is None else significant(c.high),
        limit=c.limit,
    )


def _names(c: ValidityCheck) -> str:
    more = len(c.names) - MAX_NAMED
    return f"{join(c.names[:MAX_NAMED])} and {more} more" if more > 0 else join(c.names)


def _groups(c: ValidityCheck) -> str:
    return "; ".join(f"{name} {join(values)}" if name else join(values) for name, values in c.groups)


def _one_seed(c: ValidityCheck) -> str:
    if c.names:
        return f"Trained once: {_names(c)}. Their intervals use the variance of repeated models, or exclude it."
    middle, high = (100 * (share or 0.0) for share in (c.high, c.low))
    return (
        f"Every model was trained once: intervals exclude training noise. Differences below {middle:.1f} points at "
        f"50 % accuracy ({high:.1f} at 95 %) are not interpreted. More seeds: --seeds 3."
    )


def _not_begun(c: ValidityCheck) -> str:
    at = flops_range(c.low or 0.0, c.high or 0.0)
    return (
        f"{_names(c)} has not begun to learn at {at} ({count(c.count)} of {plural(int(c.limit or 0), 'point')}: "
        f"{_groups(c)}). There it is hollow in figures, and in no comparison and no law."
    )


def _below_pixels(c: ValidityCheck) -> str:
    first, second, axis = c.names
    ends = dict.fromkeys((c.low or 0.0, c.high or 0.0))
    at = f"{' to '.join(map(count, ends))} images" if axis == Axis.IMAGES else flops_range(c.low or 0.0, c.high or 0.0)
    models = "; ".join(f"{name} ({join(values)})" for name, values in c.groups)
    return (
        f"{first} against {second} at {at}: the pixel baseline beats {models} at {count(c.count)} of "
        f"{count(c.limit)} places, where a difference is none between networks that have learned what is asked."
    )


def _disagree(c: ValidityCheck) -> str:
    cells = round(sum(len(values) for _, values in c.groups) / (c.count or 1))
    return (
        f"Seeds of {_names(c)} differ more than {c.limit:g} times as much as is usual here: with {c.count} seeds "
        f"their intervals reach ± {100 * (c.high or 0):.0f} points. One seed more ({plural(cells, 'run')}) should "
        f"leave ± {100 * (c.low or 0):.0f}."
    )


def _falling(c: ValidityCheck) -> str:
    rule = f"rule: less than {c.limit:.0%} of the loss of guessing per doubling of training"
    fell = f"the training loss of {_names(c)} still fell by up to {c.high:.0%} of it"
    if c.level is Level.WARNING:
        return f"At {flops(c.low or 0)} training had only begun ({rule}): {fell}."
    return f"At {flops(c.low or 0)} the untrained part was over ({rule}): {fell}."


def _duplicates(c: ValidityCheck) -> str:
    if not c.count:
        return f"No test image of {_names(c)} is a copy of a training image."
    return (
        f"{c.count:,} of {c.limit:,.0f} test images of {_names(c)} are copies of training images; without them "
        f"accuracy changes by at most {100 * (c.high or 0):.2f} points."
    )


def _narrow(c: ValidityCheck, x: Callable[[float], str]) -> str:
    assert c.low and c.high
    return (
        f"{_names(c)}: {x(c.low)} to {x(c.high)} is a factor of {significant(c.high / c.low, 2)}; a trend needs at "
        f"least {significant(10 ** (c.limit or 0), 2)}."
    )


def warnings(findings: Findings) -> tuple[list[str], list[str]]:
    """Warnings and notes as text."""
    made: dict[Level, list[str]] = {Level.WARNING: [], Level.NOTE: []}
    clean = [name for c in findings.checks if c.kind is CheckKind.DUPLICATES and not c.count for name in c.names]
    for c in findings.checks:
        if clean and c.kind is CheckKind.DUPLICATES and not c.count:  # all in one sentence
            c, clean = replace(c, names=tuple(clean)), []
        elif c.kind is CheckKind.DUPLICATES and not c.count:
            continue
        made[c.level].append(check(c, published=findings.published))
    return made[Level.WARNING], made[Level.NOTE]


def quoted(models: int, source: str) -> str:
    return f"Published results from {source}: {plural(models, 'model')}; nothing was run."
