"""The text of findings: turns data of `bench.analysis.finding` into labels, numbers and sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bench.analysis import lr_sweep
from bench.analysis.finding import (
    ALL_MODELS,
    NEEDED,
    Axis,
    Budget,
    Candidate,
    Closing,
    Contrast,
    Counts,
    Difference,
    Finding,
    Findings,
    HeldOut,
    Item,
    LawDeviation,
    Peak,
    Question,
    Reason,
    SharedLaw,
    Statement,
    Target,
    TopOfRange,
    Unit,
    Verdict,
)
from bench.core.formatting import (
    count,
    flops,
    flops_range,
    judged_on,
    measure_text,
    percent,
    plural,
    points,
    significant,
)
from bench.core.spec import RATE_MARGIN
from bench.report import race_text
from bench.report.number_text import between, bracket, magnitude, number, place, trend
from bench.report.phrases import PHRASES, Tone
from bench.stats.extrapolation import MIN_ORIGINS

SYMBOLS: dict[Tone, str] = {"yes": "✓", "no": "✗", "fact": "●", "unsure": "?"}
MAX_COLUMNS = 4  # subjects that are columns of the table at a glance; more become rows
MAX_TOGETHER = 3  # subjects whose like answers share a row on the console
MAX_NAMED = 6  # names in one sentence
T = TypeVar("T", bound=Item)


MEASURES = {"headline": "", "far": ", far tasks", "upstream": ", upstream"}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A finding as text.

    Attributes:
        key: its anchor in the page.
        label, question: labels of its row and of its heading. subject: families or models compared.
        number: the estimate with its interval, or the trend; "" without either. magnitude: the estimate as `number`
            shows it; None of a trend.
        verdict, tone: the answer, and the tone that selects its colour and symbol.
        text: explanation of the number, reasons and caveats, and n where it differs from the usual one.
        main: see `Finding`. is_pair: see `Finding.is_about_two`.
    """

    key: str
    label: str
    question: str
    subject: str
    number: str
    magnitude: float | None
    verdict: str
    tone: Tone
    text: str
    main: bool
    is_pair: bool

    @property
    def symbol(self) -> str:
        return SYMBOLS[self.tone]


@dataclass(frozen=True, kw_only=True)
class Glance:
    """A table of answers: `rows` of (label, one answer or None per column)."""

    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Answer | None, ...]], ...]


def answers(findings: Findings) -> tuple[Answer, ...]:
    """Every finding as text, in order."""
    usual = usual_counts(findings)
    tasks = judged_on(findings.headline, findings.shots)
    return tuple(_answer(f, f"answer-{nth}", usual, tasks) for nth, f in enumerate(findings.findings, start=1))


def _answer(f: Finding, key: str, usual: Mapping[str, str], tasks: str) -> Answer:
    phrase = PHRASES[f.question]
    decided = f.verdict is not Verdict.CANNOT_TELL
    yes = f.verdict is Verdict.YES
    verdict = (phrase.yes if yes else phrase.no).format(f.leader or "one") if decided else "cannot tell"
    tone: Tone = phrase.tones[0 if yes else 1] if decided else "unsure"
    if f.question is Question.BEST_AT_EQUAL_COMPUTE and f.estimate is None and (along := _along(f)):
        verdict, tone = along, "fact"
    measure = "" if f.question is Question.BEST_LEARNING_RATE else MEASURES.get(f.measure, "")
    if f.question is Question.AS_PUBLISHED and f.measure not in MEASURES:
        measure = f", {measure_text(f.measure)}"
    target = next((f"{percent(item.accuracy)} %" for item in f.evidence if isinstance(item, Target)), "the target")
    return Answer(
        key=key,
        subject=subject(f),
        number=number(f),
        magnitude=magnitude(f),
        verdict=verdict,
        tone=tone,
        main=f.main,
        is_pair=f.is_about_two,
        label=phrase.label.format(target=target) + measure,
        question=phrase.ask.format(target=target).removesuffix("?") + measure + "?",
        text=" ".join(part for part in (*_body(f), _judged(f, tasks), *_reasons(f), _counted(f, usual)) if part),
    )


def _judged(f: Finding, tasks: str) -> str:
    """What a verdict at equal compute rests on, as `bench.compare` says it."""
    if f.question is not Question.BEST_AT_EQUAL_COMPUTE or not f.trend:
        return ""
    return f"Judged on {tasks}, at {flops_range(f.trend[0].x, f.trend[-1].x)} of training."


def _along(f: Finding) -> str:
    """The leader along a trend that changes: "ViT ahead" or "ViT, then even". "" where nobody is ahead anywhere, or the
    leader changes more often: then the mean along the range answers."""
    names = {Verdict.YES: f"{f.subject[0]} ahead", Verdict.NO: f"{f.subject[1]} ahead", Verdict.CANNOT_TELL: "even"}
    parts = [names[p.verdict] for p in f.trend]
    parts = [part for part, before in zip(parts, ["", *parts], strict=False) if part != before]
    if len(parts) > 2:
        return "order changes" if Reason.ORDER_CHANGES in f.reasons else ""
    if parts in ([], ["even"]):
        return ""
    return parts[0] if len(parts) == 1 else ", then ".join(part.removesuffix(" ahead") for part in parts)


def subject(f: Finding) -> str:
    """The families, models or settings of a finding."""
    if f.question is Question.BRANCH_AS_ACCURATE:
        return f"{f.subject[0]} schedule"
    if f.question in (Question.RESOLUTION_GAIN, Question.FASTER_THAN_PEERS) and len(f.subject) > 1:
        return f"{f.subject[0]} at {f.subject[1].removesuffix(' px')} px"
    if f.question is Question.BEST_LEARNING_RATE:
        return f.subject[0]
    return "/".join(name.capitalize() if name == ALL_MODELS else name for name in f.subject)


# -- tables of answers -----------------------------------------------------------------------------------------------


def glances(findings: Findings, found: Sequence[Answer]) -> tuple[Glance, ...]:
    """The main answers as tables: a row per question, a column per subject; with many subjects, a row per subject."""
    shown = [
        (f, a)
        for f, a in zip(findings.findings, found, strict=True)
        if a.main and f.subject != (ALL_MODELS,) and f.question is not Question.NEXT_RUN
    ]
    groups: list[list[tuple[frozenset[str], Answer]]] = []
    for f, a in shown:
        who = frozenset(f.subject)
        home = next((g for g in groups if any(who == w or a.label == b.label for w, b in g)), None)
        if home is None:
            groups.append(home := [])
        home.append((who, a))
    return tuple(_glance(group) for group in groups)


def _glance(group: Sequence[tuple[frozenset[str], Answer]]) -> Glance:
    names: dict[frozenset[str], str] = {}
    labels: dict[str, dict[frozenset[str], Answer]] = {}
    for who, a in group:
        names.setdefault(who, a.subject)
        labels.setdefault(a.label, {})[who] = a
    if len(labels) > 1 and len(names) <= MAX_COLUMNS:
        decided = [label for label, by in labels.items() if any(a.tone != "unsure" for a in by.values())]
        ordered = [*decided, *(label for label in labels if label not in decided)]
        rows = tuple((label, tuple(labels[label].get(who) for who in names)) for label in ordered)
        return Glance(heading="Question", columns=tuple(names.values()), rows=rows)
    rows = tuple((name, tuple(by.get(who) for by in labels.values())) for who, name in names.items())
    return Glance(heading="Subject", columns=tuple(labels), rows=rows)


def console_rows(found: Sequence[Answer], *, limit: int) -> tuple[list[tuple[str, str, str, str]], list[str]]:
    """At most `limit` rows of (label, subjects, number, verdict) of the main answers, with equal verdicts grouped, and
    the labels of the questions left out. Questions without any decided answer come last."""
    by_label: dict[str, list[Answer]] = {}
    for a in found:
        if a.main and a.subject.lower() != ALL_MODELS and a.label != PHRASES[Question.NEXT_RUN].label:
            by_label.setdefault(a.label, []).append(a)
    grouped: dict[str, dict[str, list[Answer]]] = {}
    for label, asked in by_label.items():
        for a in asked:
            alone = a.tone == "fact" or len(asked) > MAX_TOGETHER or a.is_pair
            grouped.setdefault(label, {}).setdefault(a.key if alone else a.verdict, []).append(a)
    rows: list[tuple[str, str, str, str]] = []
    left: list[str] = []
    certain = [label for label, asked in by_label.items() if any(a.tone != "unsure" for a in asked)]
    for label in (*certain, *(label for label in by_label if label not in certain)):
        by_verdict = grouped[label]
        everybody = len(by_verdict) == 1 and len(by_label[label]) > 1
        made = [
            (
                "" if number else label,
                "all" if everybody else ", ".join(a.subject for a in mine),
                _together(mine),
                f"{mine[0].symbol} {mine[0].verdict}",
            )
            for number, mine in enumerate(by_verdict.values())
        ]
        if len(rows) + len(made) <= limit:
            rows += made
        else:
            left.append(label)
    return rows, left


def _together(mine: Sequence[Answer]) -> str:
    """The numbers of equal answers: one with its interval; of several the smallest and the largest estimate."""
    if len(mine) == 1:
        return mine[0].number
    known = sorted(((a.magnitude, a.number) for a in mine if a.magnitude is not None), key=lambda pair: pair[0])
    heads = [shown.partition(" [")[0].partition(" ") for _, shown in known]
    if not known or mine[0].tone == "unsure" or len({unit for _, _, unit in heads}) > 1:
        return ""
    return f"{heads[0][0]} to {heads[-1][0]} {heads[0][2]}".strip()


# -- how many --------------------------------------------------------------------------------------------------------


def usual_counts(findings: Findings) -> dict[str, str]:
    """Per measure the n of most of its findings, which is stated once."""
    found: dict[str, Counter[str]] = {}
    for f in findings.findings:
        if text := counts(f.n):
            found.setdefault(f.measure, Counter())[text] += 1
    return {measure: counted.most_common(1)[0][0] for measure, counted in found.items()}


def counts(n: Counts) -> str:
    """n of measured scores: "2 seeds × 5 draws, 2 tasks of at least 1,000 test images"."""
    runs = " × ".join(plural(k, noun) for k, noun in ((n.seeds, "seed"), (n.draws, "draw")) if k)
    tests = (f"{n.tasks} tasks of at least " if n.tasks > 1 else "") + f"{n.test_images:,} test images"
    return ", ".join(part for part in (runs, tests if n.test_images else "") if part)


def _counted(f: Finding, usual: Mapping[str, str]) -> str:
    text = counts(f.n)
    return f"n: {text}." if text and text != usual[f.measure] else ""


# -- explanations of the numbers ------------------------------------------------------------------------------------


def _first(f: Finding, kind: type[T]) -> T | None:
    return next((item for item in f.evidence if isinstance(item, kind)), None)


def _all(f: Finding, kind: type[T]) -> list[T]:
    return [item for item in f.evidence if isinstance(item, kind)]


def _body(f: Finding) -> list[str]:
    """Sentences that explain the number."""
    made = BODIES.get(f.question)
    return made(f) if made else []


def _ahead(f: Finding) -> list[str]:
    if not f.trend:
        return []
    decided = sum(p.verdict is not Verdict.CANNOT_TELL for p in f.trend)
    ends = "" if f.estimate is None else f", {trend(f)}"
    return [f"{f.subject[0]} minus {f.subject[1]}{ends}; decided at {decided} of {len(f.trend)} budgets."]


def _order(f: Finding) -> list[str]:
    return [f"{f.subject[0]} minus {f.subject[1]}: {trend(f)}."] if f.trend else []


def _match(f: Finding) -> list[str]:
    law = _first(f, SharedLaw)
    if law is None:
        return []
    more = next((name for name in f.subject if name != f.leader), "the other")
    reached = f"accuracy range of both: {percent(law.reached[0])} to {percent(law.reached[1])} %"
    if f.estimate is None:
        return [
            f"A shared law with a constant ratio gives {significant(law.factor)} × [{significant(law.low)}, "
            f"{significant(law.high)}]; {reached}."
        ]
    return [f"Compute of {more} divided by compute of {f.leader} at equal accuracy; {reached}."]


def _crossing(f: Finding) -> list[str]:
    return [f"Above this value, {f.leader} is ahead."] if f.estimate is not None and f.leader else []


def _caught_up(f: Finding) -> list[str]:
    """The gap from end to end, the budget, where the laws meet, and what the same laws predicted for the largest x."""
    texts = [f"{f.subject[0]} minus {f.subject[1]}: {trend(f)}."] if f.trend else []
    if budgets := _all(f, Budget):
        seen = ", ".join(f"{b.family} {count(b.images_seen[1])}" for b in budgets)
        texts.append(f"At {flops(budgets[0].flops[0])} each; images seen: {seen}.")
    texts += [_closing(f, item) for item in _all(f, Closing)]
    return texts + [_held_out(f, item) for item in _all(f, HeldOut)]


def _closing(f: Finding, item: Closing) -> str:
    other = next(name for name in f.subject if name != item.leader)
    ends = bracket(item.low, item.high, lambda x: place(f, x)) if item.has_record else ""
    if item.x is None:
        where = f"do not meet within 100 times the data: {item.leader} stays ahead"
    else:
        beyond = f", {significant(item.reach, 2)} times beyond the data" if item.reach > 1.005 else ""
        where = f"meet at {place(f, item.x)}{beyond}{ends}; {other} is ahead from there"
    unknown = "" if item.has_record or item.reach <= 1.005 else " No record of earlier origins supports this."
    seen = max((b.images_seen[1] for b in _all(f, Budget)), default=0)
    if item.x is not None and f.axis is Axis.IMAGES and item.x > seen:
        unknown += f" At this compute no more than {count(seen)} are seen: it takes more of both."
    return f"The laws ({item.form}) {where}.{unknown}"


def _held_out(f: Finding, item: HeldOut) -> str:
    kind = "" if item.has_record else " (sampling noise alone)"
    apart = item.observed_low > item.high or item.observed_high < item.low
    return (
        f"Held out: without the largest of each family they predicted {points(item.predicted, item.low, item.high)}"
        f"{kind} at {place(f, item.x)}; observed {points(item.observed, item.observed_low, item.observed_high)}: "
        f"{'missed' if apart else 'the intervals overlap'}."
    )


def _shrinks(f: Finding) -> list[str]:
    return [f"{f.subject[0]} minus {f.subject[1]} on the frontiers: {trend(f)}."] if f.trend else []


def _saturated(f: Finding) -> list[str]:
    top = _first(f, TopOfRange)
    if top is None:
        return []
    return [f"Fitted to the {plural(top.budgets, 'largest budget')}, {between(f, top.low, top.high, 'to')}."]


def _needed(f: Finding) -> list[str]:
    target, texts = _first(f, Target), []
    if f.reach > 1.005:
        texts.append(f"This is {significant(f.reach, 2)} times the largest measured value.")
    if f.high_reach > 1.005:
        upper = f"at least {significant(f.high_reach, 2)}" if f.high is None else significant(f.high_reach, 2)
        texts.append(f"The upper end is {upper} times the largest measured value.")
        if target is not None and target.record is not None:
            past = target.record
            texts.append(
                f"Fitted to {plural(past.origins, 'earlier origin')}, the law was off by "
                f"{percent(past.median_error)} % of the error (median) {significant(past.factor, 2)} times "
                "beyond them."
            )
    elif f.estimate is not None and f.high is None:
        texts.append("The upper end lies beyond the data, where no record supports one.")
    if f.verdict is Verdict.CANNOT_TELL and target is not None and target.between[1] is not None:
        low, high = target.between
        where = f"by {place(f, high)}" if low is None else f"between {between(f, low, high, 'and')}"
        lost = f", but not at {place(f, target.lost)}" if target.lost is not None else ""
        texts.append(f"Measured points reach the target {where}{lost}.")
    return texts


def _next_run(f: Finding) -> list[str]:
    found = _all(f, Candidate)
    if not found:
        return []
    best, most = found[0], found[-1]
    text = (
        f"{best.family} at {flops(best.train_flops)}: one more run narrows the interval by "
        f"{percent(best.shrinks)} %, the most per FLOP."
    )
    beyond = f" ({significant(most.reach, 2)} × its largest budget)" if most.reach > 1 else ""
    other = f"Regardless of cost: {most.family} at {flops(most.train_flops)}{beyond}, {percent(most.shrinks)} %."
    return [text] if most == best else [text, other]


def _differences(f: Finding) -> list[str]:
    """The models of a mean, how many of them differ beyond their own interval, steps between budgets, single tasks."""
    found = _all(f, Difference)
    models = [d for d in found if d.measure == f.measure and d.model and d.contrast is not Contrast.PREVIOUS_BUDGET]
    texts = []
    if len(models) == 1:
        d = models[0]
        at = f" at {flops(d.train_flops)}" if d.train_flops else ""
        texts.append(f"{d.model}{at}{_from_to(d)}.")
    elif models:
        up, down = (sum(d.verdict is wanted for d in models) for wanted in (Verdict.YES, Verdict.NO))
        what = "models" if len({d.model for d in models}) == len(models) else "budgets"
        lower = f", {down} lower" if up < len(models) else ""
        others = ", the others undecided" if up + down < len(models) else ""
        texts.append(f"Individually: {up} of {len(models)} {what} higher{lower}{others}.")
    steps = [d for d in found if d.contrast is Contrast.PREVIOUS_BUDGET]
    if steps:
        up, down = (sum(d.verdict is wanted for d in steps) for wanted in (Verdict.YES, Verdict.NO))
        texts.append(f"Between consecutive budgets ({plural(len(steps), 'step')}): {up} higher, {down} lower.")
    tasks = [f"{measure_text(d.measure)} {points(d.estimate, d.low, d.high)}" for d in found if not d.model]
    return [*texts, f"By task: {'; '.join(tasks)}."] if tasks else texts


SAYS = {  # what the paper says, and where
    Statement.POSITION_HELPS: "Position embeddings matter, whichever (Table 8)",
    Statement.ENCODINGS_ALIKE: "How positions are encoded makes little difference (Table 8)",
    Statement.PLACES_ALIKE: "Where positions are added makes little difference (Table 8)",
    Statement.POOLING_ALIKE: "With a learning rate of its own, mean pooling does as well as a class token (Figure 9)",
    Statement.POOLING_RATE: "At a high learning rate mean pooling does worse than a class token (Figure 9)",
    Statement.DEPTH_HELPS: "More layers help (Figure 8)",
    Statement.PATCHES_HELP: "Smaller patches, that is more tokens, help (Figure 8)",
    Statement.DEPTH_OVER_WIDTH: "Depth helps more than width (Figure 8)",
    Statement.ADAM_HELPS: "ResNets pre-trained with Adam transfer better than with SGD (Table 7)",
    Statement.AXIAL_HELPS: "Axial attention does better than the ViT of its size, at more compute (Figure 13)",
    Statement.MASKED_OVER_SCRATCH: "Masked patch prediction does better than training from scratch (section 4.6)",
    Statement.LABELS_OVER_MASKED: "Pre-training with labels does better than without (section 4.6)",
}


def _published(f: Finding) -> list[str]:
    """The statement, and each pair of variants behind the difference."""
    pairs = [f"{d.model} {points(d.estimate, d.low, d.high)}" for d in _all(f, Difference)]
    return [f"{SAYS[Statement(f.subject[0])]}.", f"Pairs: {'; '.join(pairs)}." if len(pairs) > 1 else ""]


def _from_to(d: Difference) -> str:
    if d.from_x is None or d.to_x is None:
        return ""
    what = "distinct images" if d.contrast is Contrast.FEWEST_IMAGES else "images seen"
    return f", {count(d.from_x)} → {count(d.to_x)} {what}"


def _saving(f: Finding) -> list[str]:
    return [
        f"Relative to {plural(f.n.steps, 'budget')} trained separately; measured training time: {item.seconds:.2f} ×."  # type: ignore[attr-defined]
        for item in f.evidence
        if item.kind == "Saving"
    ]


def _sweep(f: Finding) -> list[str]:
    sweep = _first(f, lr_sweep.Sweep)
    if sweep is None or sweep.chosen.accuracy is None or sweep.best.accuracy is None:
        return []
    chosen, best = sweep.chosen, sweep.best
    scored, best_scored = (f"{percent(accuracy.value)} %" for accuracy in (sweep.chosen.accuracy, sweep.best.accuracy))
    tried = f"{plural(len(sweep.tried), 'rate')} from {sweep.tried[0].rate:g} to {sweep.tried[-1].rate:g}"
    if chosen is best:
        return [f"The best of {tried}, {scored}; no lower rate is within {100 * RATE_MARGIN:g} points."]
    margin = f"within {100 * RATE_MARGIN:g} points of the best"
    return [f"The lowest of {tried} {margin}: {scored}; {best.rate:g} has {best_scored}."]


BODIES: dict[Question, Callable[[Finding], list[str]]] = {
    Question.GAP_OVER_IMAGES: _caught_up,
    Question.GAP_OVER_COMPUTE: _caught_up,
    Question.BEST_AT_EQUAL_COMPUTE: _ahead,
    Question.ORDER_OVER_COMPUTE: _order,
    Question.ORDER_OVER_IMAGES: _order,
    Question.COMPUTE_TO_MATCH: _match,
    Question.CROSSING_OVER_COMPUTE: _crossing,
    Question.CROSSING_OVER_IMAGES: _crossing,
    Question.HYBRIDS_STOP_HELPING: _crossing,
    Question.HYBRID_ADVANTAGE_SHRINKS: _shrinks,
    Question.SATURATED: _saturated,
    Question.COMPUTE_FOR_TARGET: _needed,
    Question.IMAGES_FOR_TARGET: _needed,
    Question.NEXT_RUN: _next_run,
    Question.MORE_COMPUTE_HELPS: _differences,
    Question.MORE_IMAGES_HELP: _differences,
    Question.BEATS_UNTRAINED: _differences,
    Question.BEATS_PIXELS: _differences,
    Question.BRANCH_AS_ACCURATE: _differences,
    Question.BRANCHES_SAVE: _saving,
    Question.RESOLUTION_GAIN: _differences,
    Question.AS_PUBLISHED: _published,
    Question.FASTER_THAN_PEERS: race_text.answer,
    Question.BEST_LEARNING_RATE: _sweep,
}


# -- reasons ---------------------------------------------------------------------------------------------------------


def _reasons(f: Finding) -> list[str]:
    return [text for reason in f.reasons for text in [_reason(f, reason)] if text]


def _reason(f: Finding, reason: Reason) -> str:
    made = REASONS[reason]
    return made if isinstance(made, str) else made(f)


def _within(f: Finding) -> str:
    if f.question is Question.SATURATED:
        return "The interval includes both improvement and no improvement."
    if f.estimate is None:
        return "The interval of the mean over the range includes zero."
    return f"The interval includes {'1' if f.unit is Unit.TIMES else 'zero'}."


def _throughout(f: Finding) -> str:
    share = f" in {f.agreement:.0%} of the resamples" if f.agreement is not None else " at every budget"
    return f"{f.leader} is ahead throughout the common range{share}."


def _open(f: Finding) -> str:
    """Of laws that may cross: where, or that the points do not tell."""
    if f.low is not None:
        return f"{f.leader} is ahead up to {place(f, f.low)}; if the laws cross, they do so above."
    if f.high is not None:
        return f"{f.leader} is ahead from {place(f, f.high)} on; if the laws cross, they do so below."
    return "Whether the laws cross depends on their form and on noise."


def _lack_of_fit(f: Finding) -> str:
    texts = []
    for item in _all(f, LawDeviation):
        p = "" if item.p is None else " (p < 0.001)" if item.p < 0.001 else f" (p = {significant(item.p, 2)})"
        who = f"{item.families[0]}'s law" if len(item.families) == 1 else "the shared law"
        texts.append(
            f"Lack of fit of {who}: error {percent(item.predicted)} % predicted, {percent(item.observed)} % "
            f"measured{p}."
        )
    return " ".join(texts)


def _unequal(f: Finding) -> str:
    spent = []
    for b in _all(f, Budget):
        ends = dict.fromkeys(zip(b.flops, b.images_seen, strict=True))
        texts = [f"{flops(work)} over {count(seen)} images seen" for work, seen in ends]
        spent.append(f"{b.family} {' to '.join(texts)}")
    return f"Not at equal compute: {'; '.join(spent)}."


def _changes(f: Finding) -> str:
    law = _first(f, SharedLaw)
    if law is not None and law.widens is not None:
        return f"This is an average: the gap {'widens' if law.widens else 'narrows'} with compute."
    return ""


def _no_factor(f: Finding) -> str:
    return "The compute ratio changes with accuracy." if f.trend else "A constant compute ratio does not fit."


def _bends(f: Finding) -> str:
    top = _first(f, TopOfRange)
    return f"Accuracy did not improve above {flops(top.best)}; the largest run is {flops(top.most)}." if top else ""


def _peaks(f: Finding) -> str:
    return " ".join(
        f"{p.model} did best with {count(p.images)}: {percent(p.accuracy)} %, against {percent(p.most_accuracy)} % "
        f"with {count(p.most_images)}{' (intervals overlap)' if p.overlap else ''}."
        for p in _all(f, Peak)
    )


def _further(f: Finding) -> str:
    sweep = _first(f, lr_sweep.Sweep)
    if sweep is None or not sweep.edge:
        return ""
    further = ",".join(f"{rate:.3g}" for rate in sweep.further)
    return f"The best is the {sweep.edge} rate tried; extend the sweep with --sweep lr={further}."


def _diverged(f: Finding) -> str:
    sweep = _first(f, lr_sweep.Sweep)
    rates = [f"{t.rate:g}" for t in sweep.tried if t.diverged] if sweep else []
    return f"Diverged: {', '.join(rates)}." if rates else ""


REASONS: dict[Reason, str | Callable[[Finding], str]] = {
    Reason.WITHIN_INTERVAL: _within,
    Reason.UNREPLICATED: lambda f: (
        f"The interval excludes training noise: between single runs, "
        f"{100 * (f.margin or 0):.1f} points may be due to chance."
    ),
    Reason.STARTED_ONCE: "Every process was started once: nothing says how far another start would be from it.",
    Reason.NO_COMMON_RANGE: "The ranges overlap too little for a comparison.",
    Reason.NO_COMMON_ACCURACY: "There is no accuracy that both reached.",
    Reason.TOO_FEW_SCORES: "Fewer than two budgets in the common range have scores for both.",
    Reason.TOO_FEW_POINTS: lambda f: f"{plural(f.n.points, 'point')}; a trend needs at least {NEEDED}.",
    Reason.ORDER_CHANGES: "Each family is ahead in part of the range, by more than the interval.",
    Reason.NO_CHANGE_OF_ORDER: "No change of rank exceeds the intervals.",
    Reason.AHEAD_THROUGHOUT: _throughout,
    Reason.CROSSING_UNSTABLE: _open,
    Reason.UNDETERMINED: "Accuracy hardly changes with compute, so the compute ratio is undetermined.",
    Reason.NO_SINGLE_FACTOR: _no_factor,
    Reason.NO_ADVANTAGE: "Hybrids were not ahead, so there is no lead to shrink.",
    Reason.FIT_FAILED: "No law could be fitted to these points.",
    Reason.BENDS_AGAINST_TREND: _bends,
    Reason.NO_RECORD: f"The target lies beyond the data, and fewer than {MIN_ORIGINS} earlier origins show how far off "
    "the law may be there.",
    Reason.EXTRAPOLATION_REFUSED: lambda f: (
        f"Only {f.agreement or 0:.0%} of the resampled fits reach the target within 10 times the measured range."
    ),
    Reason.BELOW_RANGE: "The target is reached below the smallest run, where the law has no record.",
    Reason.TOO_FEW_RATES: "Fewer than two learning rates completed training.",
    Reason.LACK_OF_FIT: _lack_of_fit,
    Reason.UNEQUAL_COMPUTE: _unequal,
    Reason.CHANGES: _changes,
    Reason.SELECTION_BIAS: "Not corrected for selection of the best model, since no training was repeated.",
    Reason.PEAK_INSIDE: _peaks,
    Reason.IDENTICAL: "The scores are identical.",
    Reason.UNPAIRED: lambda f: (
        f"{f.n.paired} of {plural(f.n.models, 'model')} compared image by image; for the others "
        "the error over test images is overestimated."
    ),
    Reason.EDGE_OF_SWEEP: _further,
    Reason.NO_LOWER_TRIED: "No lower rate was tried.",
    Reason.NOT_WITHIN_MARGIN: lambda f: f"The interval is not within {100 * (f.margin or 0):g} points of equality.",
    Reason.DIVERGED: _diverged,
}
