"""Does the gain of a change survive scale?

A ladder compares a change with a baseline at several amounts of compute, its rungs. A gain is the accuracy on the test
images of the pre-training set with the change minus that of the baseline, paired by seed (`bench.stats.ladder`).

Findings:
    subject: the change.
    estimate: the gain that is forecast at the compute the user asked for, or one rung above the highest. The interval
        is that of one more pair of runs there.
    evidence: `Survival`, and a `RungGain` for each rung.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from bench.analysis import wording
from bench.analysis.evidence import UPSTREAM, Evidence
from bench.analysis.finding import Counts, Finding, Item, Unit, Verdict
from bench.analysis.ladders import POINTS, ChangeLadder, arms
from bench.analysis.question import Question, Tone
from bench.analysis.table import Column, Table
from bench.core import formatting
from bench.core.formatting import duration, plural, significant
from bench.core.phrase import phrase
from bench.stats import ladder
from bench.stats.ladder import LEVEL, Truth, seeds_needed

NAME = "change survives scale"
TESTED_REACH = 4.0  # forecasts were tested up to this many times the compute of the highest rung (tools/ladders.csv)
MORE_SEEDS = 4  # the proposed next runs may take as long as this many more seeds on every rung
NO_TREND, BLIND = "no trend stands", "blind rung"  # reasons of a finding
BLIND_TEXT = "On a rung the baseline has not begun to learn, or makes no mistakes: no gain can show there."


@dataclass(frozen=True, kw_only=True)
class RungGain(Item):
    """The gain of a change over the baseline at one amount of compute (a rung of a ladder).

    Attributes:
        flops: training compute of the baseline, in FLOP.
        gain, low, high: mean gain in accuracy (0.01 is one percentage point), and its interval.
        p: p-value of the paired t test.
        seeds: number of pairs of runs.
        seconds: training time of all runs of the rung.
        rate, baseline_rate: learning rates of the change and of the baseline.
    """

    flops: float
    gain: float
    low: float
    high: float
    p: float
    seeds: int
    seconds: float
    rate: float
    baseline_rate: float


@dataclass(frozen=True, kw_only=True)
class Survival(Item):
    """The result of comparing a change with the baseline on a whole ladder. Gains are in accuracy (0.01 is one
    percentage point).

    Attributes:
        verdict: a value of `bench.stats.ladder.LadderVerdict`, such as "grows".
        mean, mean_low, mean_high: mean gain and its interval.
        slope, slope_low, slope_high: change of the gain per doubling of compute, and its interval.
        at: compute of the forecast, in FLOP.
        reach: `at` divided by the compute of the highest rung.
        seeds: number of seeds of the rung that has the fewest.
        seeds_needed: number of seeds with which such a ladder gets a conclusive verdict in four of five cases; None if
            64 are not enough.
        seconds: time on one worker of one more seed on every rung, change and baseline together.
        next_pairs: number of pairs of runs that are proposed next on each rung, because they narrow the answer most.
        next_above: number of pairs of runs that are proposed on a new rung above the others.
        next_seconds: time that all proposed runs take, on one worker.
        next_half, next_half_then: expected half-width of the interval that the proposed runs narrow, without them and
            with them.
    """

    verdict: str
    mean: float
    mean_low: float
    mean_high: float
    slope: float
    slope_low: float
    slope_high: float
    at: float
    reach: float
    seeds: int
    seeds_needed: int | None
    seconds: float
    next_pairs: tuple[int, ...] = ()
    next_above: int = 0
    next_seconds: float = 0.0
    next_half: float = 0.0
    next_half_then: float = 0.0


def ask(evidence: Evidence) -> Iterator[Finding]:
    for arm in arms(evidence):
        at = evidence.forecast_at or arm.next_flops
        forecast = arm.found.one_more_run(float(np.log2(at)))
        (low,), (high,) = forecast.interval()
        answer = {ladder.LadderVerdict.INCONCLUSIVE: Verdict.CANNOT_TELL}
        answer |= dict.fromkeys((ladder.LadderVerdict.GROWS, ladder.LadderVerdict.KEEPS), Verdict.YES)
        verdict = Verdict.CANNOT_TELL if arm.is_blind else answer.get(arm.verdict, Verdict.NO)
        reasons = [BLIND] * arm.is_blind or [NO_TREND] * (verdict is Verdict.CANNOT_TELL)
        yield Finding(
            question=NAME,
            subject=(arm.change,),
            measure=UPSTREAM,
            verdict=verdict,
            reasons=tuple(reasons),
            quantity="gain",
            unit=Unit.SHARE,
            estimate=float(forecast.value[0]) / POINTS,
            low=float(low) / POINTS,
            high=float(high) / POINTS,
            level=1 - LEVEL,
            n=Counts(seeds=arm.seeds, points=len(arm.flops_R), runs=2 * sum(map(len, arm.pairs_R))),
            reach=max(1.0, at / arm.flops_R[-1]),
            p=float(arm.found.slope().p[0]),
            evidence=(_survival(arm, at), *_rungs(arm)),
        )


def _survival(arm: ChangeLadder, at: float) -> Survival:
    found = arm.found
    mean, slope = found.mean(), found.slope()
    (mean_low,), (mean_high,) = mean.interval()
    (low,), (high,) = slope.interval()
    length = float(found.x_R[-1] - found.x_R[0])
    truth = Truth(
        gain=float(mean.value[0]), change=float(slope.value[0]) * length, pair=float(np.sqrt(found.pooled()[0]))
    )
    undecided = arm.verdict is ladder.LadderVerdict.INCONCLUSIVE
    more = ladder.next_pairs(
        found,
        np.array(arm.seconds_R),
        money=MORE_SEEDS * arm.seconds,
        at=None if undecided else float(np.log2(at)),
        opening=arm.opening_seconds,
    )
    return Survival(
        verdict=str(arm.verdict),
        mean=float(mean.value[0]) / POINTS,
        mean_low=float(mean_low) / POINTS,
        mean_high=float(mean_high) / POINTS,
        slope=float(slope.value[0]) / POINTS,
        slope_low=float(low) / POINTS,
        slope_high=float(high) / POINTS,
        at=at,
        reach=at / arm.flops_R[-1],
        seeds=arm.seeds,
        seeds_needed=seeds_needed(truth, found.x_R) if undecided else arm.seeds,
        seconds=arm.seconds,
        next_pairs=more.pairs_R,
        next_above=more.above,
        next_seconds=more.cost,
        next_half=more.half / POINTS,
        next_half_then=more.half_then / POINTS,
    )


def _rungs(arm: ChangeLadder) -> Iterator[RungGain]:
    for index, (flops, pairs) in enumerate(zip(arm.flops_R, arm.pairs_R, strict=True)):
        gain = arm.found.rung(index)
        (low,), (high,) = gain.interval()
        change, base = next(iter(pairs.values()))
        yield RungGain(
            flops=flops,
            gain=float(gain.value[0]) / POINTS,
            low=float(low) / POINTS,
            high=float(high) / POINTS,
            p=float(gain.p[0]),
            seeds=len(pairs),
            seconds=sum(a.seconds + b.seconds for a, b in pairs.values()),
            rate=change.rate,
            baseline_rate=base.rate,
        )


# -- words -------------------------------------------------------------------------------------------------------------

WORDS: dict[str, tuple[str, Tone]] = {
    "grows": ("grows", "yes"),
    "keeps": ("keeps", "yes"),
    "fades": ("fades", "no"),
    "reverses": ("reverses", "no"),
    "inconclusive": ("inconclusive", "unsure"),
}


def _word(f: Finding) -> tuple[str, Tone] | None:
    (whole,) = wording.every(f, Survival)
    return WORDS["inconclusive" if f.verdict is Verdict.CANNOT_TELL else whole.verdict]


def _what(whole: Survival, rungs: list[RungGain]) -> str:
    """Return "gain" or "loss", by the sign of the mean gain; for a gain that changes with compute, by its sign on the
    highest rung if it grows, and on the lowest rung if it fades or reverses."""
    about = {"grows": rungs[-1].gain, "fades": rungs[0].gain, "reverses": rungs[0].gain}.get(whole.verdict, whole.mean)
    return "gain" if about >= 0 else "loss"


def sentence(f: Finding) -> str:
    """Return one sentence with the verdict, the gains on the lowest and the highest rung, and the forecast."""
    (whole,), rungs = wording.every(f, Survival), list(wording.every(f, RungGain))
    word, _ = _word(f) or ("", "")
    ends = f"{formatting.signed(rungs[0].gain)} points at {formatting.flops(rungs[0].flops)}, "
    ends += f"{formatting.signed(rungs[-1].gain)} at {formatting.flops(rungs[-1].flops)}"
    forecast = formatting.points(f.estimate or 0.0, f.low or 0.0, f.high or 0.0)
    head = f"The {_what(whole, rungs)} of {f.subject[0]} {word} with compute"
    if word == "inconclusive":
        head = f"Whether {f.subject[0]} survives scale is inconclusive"
    return phrase(f"{head} ({ends}); at {formatting.flops(whole.at)} one more pair of runs would show {forecast}")


def say(f: Finding) -> list[str]:
    """Return sentences on the mean gain, on its change with compute, and on the runs that would decide the question or
    narrow the answer."""
    (whole,) = wording.every(f, Survival)
    mean = formatting.points(whole.mean, whole.mean_low, whole.mean_high)
    slope = formatting.points(whole.slope, whole.slope_low, whole.slope_high)
    texts = [f"Mean gain {mean}; per doubling of compute {slope}."]
    if f.verdict is Verdict.CANNOT_TELL:
        texts.append(price(whole))
    if whole.reach > TESTED_REACH:
        texts.append(
            f"The forecast lies {significant(whole.reach, 2)} times beyond the highest rung: it holds if the gain goes "
            "on along a straight line over the logarithm of compute, which nothing here tests."
        )
    return [*texts, *next_runs(f, whole)]


def next_runs(f: Finding, whole: Survival) -> list[str]:
    """Return a sentence on the runs that are proposed next, as a list; [] if no runs would help. The runs narrow the
    interval of the trend if the verdict is inconclusive, otherwise that of the forecast."""
    if not (sum(whole.next_pairs) or whole.next_above) or not whole.next_seconds:
        return []
    rungs = list(wording.every(f, RungGain))
    parts = [
        f"{plural(number, 'pair')} at {formatting.flops(rung.flops)}"
        for rung, number in zip(rungs, whole.next_pairs, strict=True)
        if number
    ]
    above = rungs[-1].flops ** 2 / rungs[-2].flops
    parts += [f"{plural(whole.next_above, 'pair')} on a rung above, at {formatting.flops(above)}"] * bool(
        whole.next_above
    )
    what = "trend" if whole.verdict == ladder.LadderVerdict.INCONCLUSIVE else "forecast"
    ends = [f"±{100 * half:.2g}" for half in (whole.next_half, whole.next_half_then)]
    per = " per doubling" if what == "trend" else ""
    return [
        f"The next runs that narrow the {what} most, for {duration(whole.next_seconds)} of one worker: "
        f"{formatting.join(parts)}; from {ends[0]} to {ends[1]} points{per}."
    ]


def price(whole: Survival) -> str:
    """Return a sentence that says how many more seeds would decide an inconclusive ladder, and how long they take."""
    each = f"a seed on every rung takes {duration(whole.seconds)} of one worker"
    if whole.seeds_needed is None:
        return f"Were these numbers the truth, not even {ladder.MAX_SEEDS} seeds would decide; {each}."
    more = max(1, whole.seeds_needed - whole.seeds)
    cost = f"{plural(more, 'more seed')} would decide in four of five cases: {duration(more * whole.seconds)}"
    return f"Were these numbers the truth, {cost} ({each})."


def tables(evidence: Evidence) -> list[Table]:
    """Return a table with a row for each rung of each change, as a list; [] if there is no ladder."""
    text = formatting.signed
    columns = (
        Column(key="change", heading="Change", numeric=False),
        Column(key="flops", heading="Baseline's compute", text=formatting.flops),
        Column(key="gain", heading="Gain [points]", text=text),
        Column(key="low", heading="from", text=text),
        Column(key="high", heading="to", text=text),
        Column(key="p", heading="p", text=lambda value: f"{value:.3f}"),
        Column(key="seeds", heading="Seeds"),
        Column(key="rate", heading="Rate", text=lambda value: f"{value:.2g}"),
        Column(key="baseline_rate", heading="Baseline's rate", text=lambda value: f"{value:.2g}"),
        Column(key="seconds", heading="Cost", text=duration),
    )
    rows = [
        {column.key: f.subject[0] if column.key == "change" else getattr(rung, column.key) for column in columns}
        for f in ask(evidence)
        for rung in wording.every(f, RungGain)
    ]
    note = "Accuracy of a change minus its baseline, paired by seed, with 95% intervals of the paired t test."
    return [Table(name="ladder", title="Rungs", columns=columns, rows=tuple(rows), note=note)] if rows else []


QUESTION = Question(
    name=NAME,
    label="Survives scale?",
    text="Does the gain of a change survive scale?",
    yes="survives",
    no="does not survive",
    ask=ask,
    say=say,
    reasons={NO_TREND: "No trend stands, and no gain that is larger than its own change.", BLIND: BLIND_TEXT},
    items=(Survival, RungGain),
    verdict=_word,
    tables=tables,
    figures=("ladder",),
    sentence=sentence,
    shown_in=("ladder",),
    leads=lambda f: True,
)
