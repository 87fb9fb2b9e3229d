"""The study's answers in words: each "yes", "no" or "cannot tell", with numbers, intervals and n."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import combinations
from typing import Any

from bench.analysis import branching, compare, peers, rates, resolution
from bench.analysis import frontier as ahead
from bench.analysis.answers import Answer, Claim, answers, claims
from bench.analysis.answers import ratio as shared_law
from bench.analysis.answers.order import OVERTAKES
from bench.analysis.compare import Comparison, Verdict
from bench.analysis.cost_summary import spent
from bench.analysis.evidence import FAR, HEADLINE, UPSTREAM, Evidence, Series, family_rank
from bench.analysis.sizes import SizeCurve, size_curves
from bench.analysis.validity import run as run_checks
from bench.core.formatting import count, flops, join, percent, plural, points, signed
from bench.report import limits
from bench.report.finding import Finding, Findings, say_counts_once
from bench.report.summary import AHEAD, ALL, summary
from bench.stats.bootstrap import LEVEL as LAWS_LEVEL
from bench.stats.intervals import SEEDS, Estimate

__all__ = ["AHEAD", "Finding", "Findings", "find"]

MAX_LISTED = 5  # tasks that a question names
NO_TRAINING_NOISE = " Training noise is not in the interval."
NO_TASKS = "This suite judges nothing downstream: its answer is in the figures and tables."
NO_SCORES = "No cell has been completed: there is nothing to answer questions with. Coverage says what became of each."
ONE_SEED = (
    "Every model was trained once: of differences, no interval below contains training noise, and "
    f"{compare.READ_AS_NOTHING}."
)


def find(evidence: Evidence) -> Findings:
    """Ask the records every question that they may answer."""
    series = evidence.on_axis("compute")
    made: list[Finding] = []
    judged: tuple[Claim, ...] = ()
    if series and evidence.headline:
        laws = [_answered(answer) for answer in answers(evidence)]
        ahead_of, others = compared(evidence, by_law={f.question for f in laws})
        made = [*ahead_of, *laws, *others]
        judged = tuple(claims(evidence)) if laws else ()
    raced = _races(evidence)
    own = [_answered(answer) for module in (branching, resolution) for answer in module.answers(evidence)]
    made = [*own, *made]  # what this suite was made for comes first
    swept = [_answered(answer) for answer in rates.answers(evidence)]
    made, usual = say_counts_once(made)
    done = any(record.status == "complete" for record in evidence.records.records)
    notes = [] if evidence.headline or raced or swept else [NO_TASKS if done else NO_SCORES]
    if made and _unrepeated(evidence):  # then every answer would say the same
        notes.append(ONE_SEED)
        made = [replace(f, answer=f.answer.replace(NO_TRAINING_NOISE, "")) for f in made]
    notes += [_brackets(evidence, usual, laws=bool(judged))] if made else []
    made = [*raced, *swept, *made]
    asked = tuple(dict.fromkeys(f.question for f in (*raced, *swept, *own)))
    return Findings(
        findings=tuple(made), limits=limits.limits(evidence), checks=run_checks(evidence), note=" ".join(notes),
        cost=spent(evidence.records.records), claims=judged, summary=summary(made, first=asked),
        published=evidence.published,
    )  # fmt: skip


def _unrepeated(evidence: Evidence) -> bool:
    return all(len(p.seeds) < 2 for p in evidence.points.values())


def compared(evidence: Evidence, *, by_law: Set[str] = frozenset()) -> tuple[list[Finding], list[Finding]]:
    """What the points say without any law: which family is ahead; and what compute, images and training bring.

    Args:
        by_law: questions that a law answers; the same from points alone stands below.
    """
    series = evidence.on_axis("compute")
    others = [*_more_compute(evidence, series), *_more_images(evidence), *_baselines(evidence, series)]
    return _families(evidence, series, by_law=by_law), others


def _brackets(evidence: Evidence, usual: str, *, laws: bool) -> str:
    """What brackets hold, said once: two kinds of interval with two levels stand side by side."""
    text = f"Brackets hold {evidence.level:.0%} intervals"
    text += f"; those of fitted laws (times, FLOPs, images, slopes) {LAWS_LEVEL:.0%}" if laws else ""
    text += ", with training noise as far as points scatter about the law" if laws and _unrepeated(evidence) else ""
    return text + (f". n, unless said otherwise: {usual}." if usual else ".")


def _baselines(evidence: Evidence, series: Sequence[Series]) -> list[Finding]:
    """Against untrained networks and raw pixels: on the headline tasks and on the far ones, per family."""
    families = _families_of(series)
    # against pixels one model stands for its family: chosen by compute, not by score, which would pick the luckiest
    largest = [max((s for s in series if s.family == name), key=lambda s: s.last.train_flops) for name in families]
    made = []
    for measure in _averages(evidence):
        on = _on(evidence, measure)
        for question, comparison, members in (
            (f"Do trained networks beat untrained ones {on}?", compare.against_untrained, series),
            (f"Do trained networks beat raw pixels {on}?", compare.against_pixels, largest),
        ):
            found = comparison(evidence, members, measure)
            per_task = [c for task in evidence.parts(measure) for c in comparison(evidence, members, task)]
            for family in families:
                mine = [c for c in found if c.family == family]
                rows = [c for c in per_task if c.family == family]
                if mine:
                    made.append(_about(question, family, mine, extra=_by_task(evidence, measure, rows), rows=rows))
    return made


def _more_compute(evidence: Evidence, series: Sequence[Series]) -> list[Finding]:
    made = []
    for measure in [*_averages(evidence), *([UPSTREAM] if UPSTREAM in evidence.measures else [])]:
        question = f"Does more compute help {_on(evidence, measure)}?"
        ends = compare.compute_ends(evidence, series, measure)
        steps = compare.compute_steps(evidence, series, measure)
        for family in [*_families_of(series), *([ALL] if len(_families_of(series)) > 1 else [])]:
            mine = [c for c in ends if family in (c.family, ALL)]
            my_steps = [c for c in steps if family in (c.family, ALL)]
            if mine:
                up = sum(c.verdict == "yes" for c in my_steps)
                down = sum(c.verdict == "no" for c in my_steps)
                extra = f"Of {plural(len(my_steps), 'single step')}, {up} up and {down} down beyond their interval."
                made.append(_about(question, family, mine, extra=extra, rows=my_steps))
    return made


def _more_images(evidence: Evidence) -> list[Finding]:
    curves = size_curves(evidence)
    made = []
    for measure in [*_averages(evidence), *([UPSTREAM] if UPSTREAM in evidence.measures else [])]:
        question = f"Do more distinct pre-training images help {_on(evidence, measure)}, at equal images seen?"
        for family in dict.fromkeys(c.family for c in curves):
            found = compare.size_ends(evidence, [c for c in curves if c.family == family], measure)
            if found:
                between = [_between(evidence, c, measure) for c in curves if c.family == family]
                extra = " ".join(filter(None, (_list(found), *between)))
                made.append(_about(question, family, found, extra=extra, rows=()))
    return made


def _between(evidence: Evidence, curve: SizeCurve, measure: str) -> str:
    """Says so where more was reached between the two ends than at the end with most images."""
    known = [(e, p) for p in curve.points if (e := evidence.estimate(p, measure)) is not None]
    if len(known) < 3 or (best := max(known, key=lambda k: k[0].value)) in (known[0], last := known[-1]):
        return ""
    values = [percent(e.value) for e, _ in (best, last)]
    if values[0] == values[1]:
        return ""
    surely = "" if best[0].low > last[0].high else ", and their intervals overlap"
    return (f"{curve.label} did best in between: {values[0]} % with {count(best[1].unique_images)} images, "
            f"{values[1]} % with {count(last[1].unique_images)}{surely}.")  # fmt: skip


def _families(evidence: Evidence, series: Sequence[Series], *, by_law: Set[str]) -> list[Finding]:
    """Equal compute, and whether the order of ResNet and ViT changes within the range."""
    measure = HEADLINE
    series = _of_one_data_set(series)
    families = _families_of(series)
    pairs = list(combinations(families, 2))
    made = []
    for first, second in pairs:
        duel = ahead.at_compute(evidence, series, first, second, measure)
        if duel is None:
            answer = ahead.why_not(series, first, second)
            made.append(Finding(question=AHEAD, subject=f"{first} or {second}", verdict="cannot tell", answer=answer))
            continue
        made.append(_ahead(evidence, duel))
    subject = _rivals(families)
    if subject:
        curves = size_curves(evidence)
        duels = (
            ("compute", ahead.at_compute(evidence, series, *subject, measure)),
            ("distinct images", ahead.at_images(evidence, curves, *subject, measure)),
        )
        told = {axis: OVERTAKES[name].format(*reversed(subject)) in by_law
                for axis, name in (("compute", "compute"), ("distinct images", "images"))}  # fmt: skip
        made += [_crossing(subject, axis, duel, main=not told[axis]) for axis, duel in duels if duel]
    return made


def _races(evidence: Evidence) -> list[Finding]:
    """Training speed beside other libraries, where it was raced."""
    said = peers.sentences(evidence.records.records, level=evidence.level)
    return [Finding(question=peers.QUESTION, subject=race, verdict=verdict, answer=sentence)
            for race, verdict, sentence in said]  # fmt: skip


def _answered(a: Answer) -> Finding:
    """An answer from fitted laws; its interval holds seeds, scatter, forms and losses."""
    row = {"subject": a.subject, "estimate": a.estimate, "low": a.low, "high": a.high, "unit": a.unit, "n": a.n,
           "extrapolated": a.extrapolated, "basis": a.basis, "verdict": a.verdict}  # fmt: skip
    short = shared_law.clause(a) if a.question == shared_law.QUESTION else ""
    return Finding(question=a.question, subject=a.subject, verdict=a.verdict, answer=a.sentence, short=short,
                   evidence=(row,))  # fmt: skip


def _about(
    question: str, subject: str, found: Sequence[Comparison], *, extra: str, rows: Sequence[Comparison]
) -> Finding:
    mean, verdict = compare.overall(found)
    text = points(mean.value, mean.low, mean.high)
    if len(found) == 1:
        text += f" ({found[0].subject} at {flops(found[0].point.train_flops)})."
    else:
        beyond = sum(c.verdict == "yes" for c in found)
        against = [c.subject for c in found if c.verdict == "no"]
        text += f" on average; {beyond} of {len(found)} models beyond their own interval"
        text += f", {join(against)} the other way." if against else "."
    text += _without_training_noise(mean)
    unsure = compare.reservation(mean, compare.mean_accuracy(found), models=len(found))
    answer = " ".join(filter(None, (text, unsure, extra)))
    return Finding(question=question, subject=subject, verdict=verdict, answer=answer,
                   counts=mean.counts, main=found[0].measure == HEADLINE,
                   evidence=tuple(_row(c) for c in (*found, *rows)))  # fmt: skip


def _ahead(evidence: Evidence, duel: ahead.Duel) -> Finding:
    leader, behind = (duel.first, duel.second) if duel.mean.value >= 0 else (duel.second, duel.first)
    verdict = duel.verdict
    low, high = duel.range
    size = abs(duel.mean.value)
    by = points(size, size - duel.mean.half, size + duel.mean.half)
    places = [g for g in duel.gaps if g.verdict != "cannot tell"]
    sign = 1 if leader == duel.first else -1
    ends = [signed(sign * gap.estimate.value) for gap in (duel.gaps[0], duel.gaps[-1])]
    spread = f"{ends[0]} at {flops(low)}, {ends[1]} at {flops(high)}"
    text = f"each family's best model within the budget; {spread}; "
    text += f"beyond the interval at {len(places)} of {len(duel.gaps)} levels."
    text += "" if duel.corrected else " Not corrected for picking the best: no training was repeated."
    if {g.verdict for g in places} == {"yes", "no"}:
        verdict, answer = "cannot tell", f"The order changes within the range: {by} for {leader} on average, {text}"
    elif verdict == "cannot tell":
        unsure = compare.reservation(duel.mean, duel.accuracy)
        answer = f"{'No clear difference' if unsure else 'The difference is within its interval'}: "
        answer += f"{by} for {leader} on average, {text}" + (f" {unsure}" if unsure else "")
    else:
        verdict, answer = "yes", f"{leader} is ahead of {behind}: {by} on average, {text}"
    return Finding(
        question=AHEAD, subject=f"{duel.first} or {duel.second}", verdict=verdict,
        answer=answer + _without_training_noise(duel.mean), evidence=tuple(_gap_row(g) for g in duel.gaps),
        short=f"{leader} is ahead of {behind} by {by.lstrip('+')} on average ({spread})", counts=duel.mean.counts,
    )  # fmt: skip


def _crossing(subject: tuple[str, str], axis: str, duel: ahead.Duel, *, main: bool) -> Finding:
    first, second = subject
    question = f"Does {second} overtake {first} as {'compute' if axis == 'compute' else 'data'} grows?"
    show = flops if axis == "compute" else (lambda x: f"{count(x)} images")
    verdict: Verdict
    if duel.crossing and duel.gaps[-1].estimate.value < 0:
        verdict = "yes"
        answer = f"The order changes between {show(duel.crossing[0])} and {show(duel.crossing[1])}."
    elif duel.crossing:
        verdict = "no"
        between = f"between {show(duel.crossing[0])} and {show(duel.crossing[1])}"
        answer = f"The other way round: {first} overtakes {between}."
    else:
        verdict = "cannot tell"
        ahead_of = {g.verdict for g in duel.gaps}
        low, high = duel.range
        who = {frozenset({"yes"}): first, frozenset({"no"}): second}.get(frozenset(ahead_of))
        inside = f"between {show(low)} and {show(high)}"
        answer = "At this scale: " + (
            f"{who} is ahead everywhere {inside}; a crossing, if there is one, lies beyond."
            if who
            else f"no change of order is beyond the intervals {inside}."
        )
        ends = [points(g.estimate.value, g.estimate.low, g.estimate.high) for g in (duel.gaps[0], duel.gaps[-1])]
        answer += f" {first} − {second}: {ends[0]} at the low end, {ends[1]} at the high end."
    rows = tuple(_gap_row(g) for g in duel.gaps)
    return Finding(question=question, subject=f"{second} and {first}", verdict=verdict, answer=answer, evidence=rows,
                   main=main)  # fmt: skip


def _averages(evidence: Evidence) -> list[str]:
    return [HEADLINE] + ([FAR] if evidence.far else [])


def _on(evidence: Evidence, measure: str) -> str:
    if measure == UPSTREAM:
        return "on the upstream task"
    shots = f", {evidence.shots}-shot" if evidence.shots else ""
    kind, parts = "headline" if measure == HEADLINE else "far", evidence.parts(measure)
    if len(parts) > MAX_LISTED:  # the tables name them
        return f"on the {len(parts)} {kind} tasks"
    return f"on the {kind} tasks ({', '.join(parts)}{shots})"


def _families_of(series: Sequence[Series]) -> list[str]:
    return sorted({s.family for s in series}, key=family_rank)


def _of_one_data_set(series: Sequence[Series]) -> list[Series]:
    """Those that were pre-trained on the data set that most were: families are compared on equal data."""
    used = Counter(s.last.data for s in series).most_common(1)
    return [s for s in series if s.last.data == used[0][0]]


def _rivals(families: Sequence[str]) -> tuple[str, str] | None:
    """The ResNet and the ViT family, whatever they are called here."""
    resnet = next((f for f in families if f.lower().startswith(("bit", "resnet"))), None)
    vit = next((f for f in families if f.lower().startswith("vit")), None)
    return (resnet, vit) if resnet and vit else None


def _by_task(evidence: Evidence, measure: str, found: Sequence[Comparison]) -> str:
    """Task by task, as a mean over the models, where there is more than one task."""
    tasks = evidence.parts(measure)
    if len(tasks) < 2:
        return ""
    parts = []
    for task in tasks:
        mine = [c for c in found if c.measure == task]
        if mine:
            mean, verdict = compare.overall(mine)
            parts.append(f"{task} {points(mean.value, mean.low, mean.high)}: {verdict}")
    return "By task: " + "; ".join(parts) + "." if parts else ""


def _list(found: Sequence[Comparison]) -> str:
    whats = list(dict.fromkeys(c.what for c in found))
    return f"{whats[0]}." if len(whats) == 1 else f"{join([f'{c.subject}: {c.what}' for c in found])}."


def _without_training_noise(e: Estimate) -> str:
    return NO_TRAINING_NOISE if SEEDS in e.excluded else ""


def _row(c: Comparison) -> dict[str, Any]:
    return {
        "subject": c.subject, "family": c.family, "what": c.what, "measure": c.measure, "difference": c.estimate.value,
        "low": c.estimate.low, "high": c.estimate.high, "verdict": c.verdict, "seeds": c.estimate.num_seeds,
        "draws": c.estimate.num_draws, "test_images": c.estimate.num_test, "excluded": list(c.estimate.excluded),
        "train_flops": c.point.train_flops,
    }  # fmt: skip


def _gap_row(g: ahead.Gap) -> dict[str, Any]:
    return {
        "x": g.x, "first": g.first_model, "second": g.second_model, "difference": g.estimate.value,
        "low": g.estimate.low, "high": g.estimate.high, "verdict": g.verdict, "seeds": g.estimate.num_seeds,
        "draws": g.estimate.num_draws, "test_images": g.estimate.num_test, "excluded": list(g.estimate.excluded),
    }  # fmt: skip

