"""The study's answers in words: each "yes", "no" or "cannot tell", with numbers, intervals and n."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from bench.analysis import ahead, branching, compare, limits, peers, rates
from bench.analysis.answers import Answer, Claim, answers, claims
from bench.analysis.checks import Check
from bench.analysis.checks import run as run_checks
from bench.analysis.compare import Comparison, Verdict
from bench.analysis.evidence import FAR, HEADLINE, UPSTREAM, Evidence, Series, family_rank
from bench.analysis.intervals import SEEDS, Estimate
from bench.analysis.sizes import size_curves
from bench.analysis.spent import Spent, spent
from bench.analysis.words import count, flops, join, points

AHEAD = "Which family is ahead at equal compute?"
NO_TRAINING_NOISE = " Training noise is not in the interval."
NO_TASKS = "This suite judges nothing downstream: its answer is in the tables."
ONE_SEED = (
    "Every model was trained once: no interval below contains training noise, and differences under "
    f"{100 * compare.UNREPLICATED:.0f} points are read as nothing."
)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One answer.

    Attributes:
        question: shared by findings about different subjects.
        subject: whom it is about: a family, a pair of families, a task.
        verdict: for the mean over the subject's models, beyond its interval.
        answer: a sentence with numbers.
        evidence: the comparisons behind it, one dictionary each (accuracy units, not percent).
        main: on the headline tasks; the others (far tasks, upstream) are shown below them.
    """

    question: str
    subject: str
    verdict: Verdict
    answer: str
    evidence: tuple[dict[str, Any], ...] = ()
    main: bool = True


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Everything a report says in words. `note` holds for every finding and is said once, before them. `claims`: the
    paper's, beside the verdict from these records and from the paper's own table; () where no law could be fitted."""

    findings: tuple[Finding, ...]
    limits: tuple[str, ...]
    checks: tuple[Check, ...]
    cost: Spent
    note: str = ""
    claims: tuple[Claim, ...] = ()

    def lines(self) -> list[str]:
        """Plain text for a console: main findings by question, what cannot be told, warnings, cost."""
        text = [self.note] if self.note else []
        main = [f for f in self.findings if f.main]
        for question in dict.fromkeys(f.question for f in main):
            text.append(question)
            text += [f"  {f.subject}: {f.verdict}. {f.answer}" for f in main if f.question == question]
        if self.claims:
            text.append("The paper's claims, in these records")
            text += [f"  {c.claim} {c.verdict}. {c.sentence}" for c in self.claims]
        text += ["What this study cannot tell", *(f"  - {limit}" for limit in self.limits)]
        warnings = [f"  - {c.text}" for c in self.checks if c.level == "warning"]
        text += ["Warnings", *warnings] if warnings else []
        return [*text, "Cost", f"  {self.cost.sentence}"]


def find(evidence: Evidence) -> Findings:
    """Ask the records every question that they may answer."""
    series = evidence.on_axis("compute")
    made: list[Finding] = []
    judged: tuple[Claim, ...] = ()
    if series and evidence.headline:
        made += _baselines(evidence, series)
        made += _more_compute(evidence, series)
        made += _more_images(evidence)
        made += _families(evidence, series)
        found = answers(evidence)
        made += [_answered(answer) for answer in found]
        judged = tuple(claims(evidence)) if found else ()
    raced = _races(evidence)
    made += [_answered(answer) for answer in branching.answers(evidence)]
    swept = [_answered(answer) for answer in rates.answers(evidence)]
    note = "" if evidence.headline or raced or swept else NO_TASKS
    if made and all(len(p.seeds) < 2 for p in evidence.points.values()):  # then every answer would say the same
        note = ONE_SEED
        made = [replace(f, answer=f.answer.replace(NO_TRAINING_NOISE, "")) for f in made]
    made += raced + swept
    cost = spent(evidence.records.records)
    limits_found, checks = limits.limits(evidence), run_checks(evidence)
    return Findings(findings=tuple(made), limits=limits_found, checks=checks, cost=cost, note=note,
                    claims=judged)  # fmt: skip


def _baselines(evidence: Evidence, series: Sequence[Series]) -> list[Finding]:
    """Against untrained networks and raw pixels: on the headline tasks and on the far ones, per family."""
    made = []
    for measure in _averages(evidence):
        on = _on(evidence, measure)
        for question, comparison in (
            (f"Do trained networks beat untrained ones {on}?", compare.against_untrained),
            (f"Do trained networks beat raw pixels {on}?", compare.against_pixels),
        ):
            for family in _families_of(series):
                members = {s.variant for s in series if s.family == family}
                if comparison is compare.against_pixels:  # chosen by compute, not by score: no pick of the luckiest
                    members = {max((s for s in series if s.family == family), key=lambda s: s.last.train_flops).variant}
                found = [c for c in comparison(evidence, series, measure) if c.point.variant in members]
                per_task = [c for task in evidence.parts(measure) for c in comparison(evidence, series, task)
                            if c.point.variant in members]  # fmt: skip
                if found:
                    extra = _by_task(evidence, measure, per_task)
                    made.append(_about(question, family, found, extra=extra, rows=per_task))
    return made


def _more_compute(evidence: Evidence, series: Sequence[Series]) -> list[Finding]:
    made = []
    for measure in [*_averages(evidence), *([UPSTREAM] if UPSTREAM in evidence.measures else [])]:
        question = f"Does more compute help {_on(evidence, measure)}?"
        ends = compare.compute_ends(evidence, series, measure)
        steps = compare.compute_steps(evidence, series, measure)
        if not ends:
            made.append(Finding(question=question, subject="All models", verdict="cannot tell",
                                answer="No model was read at two or more compute budgets."))  # fmt: skip
            continue
        for family in [*_families_of(series), *(["All models"] if len(_families_of(series)) > 1 else [])]:
            mine = [c for c in ends if family in (c.family, "All models")]
            my_steps = [c for c in steps if family in (c.family, "All models")]
            if mine:
                up = sum(c.verdict == "yes" for c in my_steps)
                down = sum(c.verdict == "no" for c in my_steps)
                extra = f"Single steps beyond their interval: {up} up, {down} down of {len(my_steps)}."
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
                made.append(_about(question, family, found, extra=_list(found), rows=()))
    return made


def _families(evidence: Evidence, series: Sequence[Series]) -> list[Finding]:
    """Equal compute, and whether the order of ResNet and ViT changes within the range."""
    measure = HEADLINE
    families = _families_of(series)
    pairs = list(combinations(families, 2))
    made = []
    for first, second in pairs:
        duel = ahead.at_compute(evidence, series, first, second, measure)
        if duel is None:
            answer = "Their ranges of compute do not overlap."
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
        made += [_crossing(subject, axis, duel) for axis, duel in duels]
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
    return Finding(question=a.question, subject=a.subject, verdict=a.verdict, answer=a.sentence, evidence=(row,))


def _about(
    question: str, subject: str, found: Sequence[Comparison], *, extra: str, rows: Sequence[Comparison]
) -> Finding:
    mean, verdict = compare.overall(found)
    text = points(mean.value, mean.low, mean.high)
    if len(found) == 1:
        text += f" ({found[0].subject} at {flops(found[0].point.train_flops)}; {mean.counts})."
    else:
        beyond = sum(c.verdict == "yes" for c in found)
        against = [c.subject for c in found if c.verdict == "no"]
        text += f" on average; {beyond} of {len(found)} models beyond their own interval"
        text += f", {join(against)} the other way" if against else ""
        text += f" ({mean.counts})."
    text += _without_training_noise(mean)
    return Finding(question=question, subject=subject, verdict=verdict, answer=f"{text} {extra}".strip(),
                   main=found[0].measure == HEADLINE, evidence=tuple(_row(c) for c in (*found, *rows)))  # fmt: skip


def _ahead(evidence: Evidence, duel: ahead.Duel) -> Finding:
    leader, behind = (duel.first, duel.second) if duel.mean.value >= 0 else (duel.second, duel.first)
    verdict = compare.verdict(duel.mean)
    low, high = duel.range
    size = abs(duel.mean.value)
    text = f"{points(size, size - duel.mean.half, size + duel.mean.half)} for {leader}, best model against best model"
    places = [g for g in duel.gaps if g.verdict != "cannot tell"]
    text += f" between {flops(low)} and {flops(high)} ({duel.mean.counts}); "
    text += f"beyond the interval at {len(places)} of {len(duel.gaps)} compute levels."
    if verdict == "cannot tell":
        answer = f"The difference is within its interval: {text}"
    elif {g.verdict for g in places} == {"yes", "no"}:
        verdict, answer = "cannot tell", f"The order changes within the range: {text}"
    else:
        verdict, answer = "yes", f"{leader} is ahead of {behind}: {text}"
    return Finding(
        question=AHEAD, subject=f"{duel.first} or {duel.second}", verdict=verdict,
        answer=answer + _without_training_noise(duel.mean), evidence=tuple(_gap_row(g) for g in duel.gaps),
    )  # fmt: skip


def _crossing(subject: tuple[str, str], axis: str, duel: ahead.Duel | None) -> Finding:
    first, second = subject
    question = f"Does {second} overtake {first} as {'compute' if axis == 'compute' else 'data'} grows?"
    show = flops if axis == "compute" else (lambda x: f"{count(x)} images")
    if duel is None:
        verdict: Verdict = "cannot tell"
        answer = f"They share fewer than two places on the {axis} axis."
    elif duel.crossing and duel.gaps[-1].estimate.value < 0:
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
    rows = tuple(_gap_row(g) for g in duel.gaps) if duel else ()
    return Finding(question=question, subject=axis, verdict=verdict, answer=answer, evidence=rows)


def _averages(evidence: Evidence) -> list[str]:
    return [HEADLINE] + ([FAR] if evidence.far else [])


def _on(evidence: Evidence, measure: str) -> str:
    if measure == UPSTREAM:
        return "on the upstream task"
    shots = f", {evidence.shots}-shot" if evidence.shots else ""
    kind = "headline" if measure == HEADLINE else "far"
    return f"on the {kind} tasks ({', '.join(evidence.parts(measure))}{shots})"


def _families_of(series: Sequence[Series]) -> list[str]:
    return sorted({s.family for s in series}, key=family_rank)


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

