"""Is training here faster than in the fastest other library?

A race consists of starts: all processes begin anew, then take turns in rounds. Processes that do the same differ in
speed for reasons that stay as long as they live (where their memory lies, which pages are large, …), so windows of one
start are no independent samples: starts are. Days, neighbours on the host and hosts differ beyond that: where a race
was run more than once (`--seeds`), races are the samples. The interval is that of a repetition: another measurement of
as many starts, or races, falls into it with the stated probability. It is sqrt(2) times as wide as the interval of the
mean, and so holds the true ratio more often than it says.

Findings:
    subject: the model, pixels.
    estimate: times the speed of the fastest other library, which is the leader.
    evidence: every way to train of this race.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.analysis import wording
from bench.analysis.evidence import Evidence, family_rank
from bench.analysis.finding import Counts, Finding, Item, Reason, Unit, Verdict
from bench.analysis.question import Question
from bench.analysis.table import Column, Table
from bench.core.formatting import percent, plural, significant
from bench.core.phrase import phrase
from bench.stats.intervals import POINT_LEVEL, t_quantile
from bench.study.record import ContenderResult, PeerSettings, PeersResult, Record

NAME = "faster than peers"
STARTED_ONCE = "started once"  # no process of the race began anew: nothing says how far apart two starts are
BASE = "timm, defaults"
OWN = "this project"

Windows = Sequence[Sequence[Sequence[float]]]
"""Speeds of every race, of every start of it, of every round."""


@dataclass(frozen=True, kw_only=True)
class SpeedRatio:
    """A ratio of speeds, and where a repetition would find it; None where nothing was repeated."""

    value: float
    low: float | None
    high: float | None
    races: int
    starts: int
    rounds: int


@dataclass(frozen=True, kw_only=True)
class RacedContender(Item, kind="Contender"):
    """One way to train the model of a race, over all its runs. Speeds are images per second.

    Attributes:
        race: (model, pixels per side). own: this project trains, as it does by default (`OWN`) or otherwise.
        left_out: why it did not take part, or None. over_base: speed over that of `BASE`; own_over: of this project
            over this. loss_difference: largest relative one from the losses of `BASE` over the first steps; None for
            another function. settings: with which it raced, those of each run; () where the record does not say.
    """

    race: tuple[str, int]
    seeds: tuple[int, ...]
    batch: int
    name: str
    own: bool
    left_out: str | None
    dtype: str | None
    settings: tuple[PeerSettings, ...]
    images_per_second: float | None
    quartiles: tuple[float | None, float | None]
    share_of_peak: float | None
    first_call_seconds: float | None
    loss_difference: float | None
    over_base: SpeedRatio | None
    own_over: SpeedRatio | None
    device: str
    threads: int | None
    torch: str | None


def ratio(windows: Windows, base: Windows, *, level: float = POINT_LEVEL) -> SpeedRatio:
    """The ratio of windows over the base's of the same round. A slow spell of the machine falls on both windows of a
    round and leaves their ratio alone; one that falls on a single window is outvoted by the other rounds of its
    start."""
    logs = [
        [
            np.log(np.asarray(mine, dtype=float) / np.asarray(other, dtype=float))
            for mine, other in zip(starts, base_starts, strict=True)
        ]
        for starts, base_starts in zip(windows, base, strict=True)
    ]
    by_start = [[statistics.median(rounds.tolist()) for rounds in starts] for starts in logs]
    by_race = [statistics.fmean(starts) for starts in by_start]
    samples = by_race if len(by_race) > 1 else by_start[0]
    middle, half = statistics.fmean(by_race), None
    if len(samples) > 1:
        half = t_quantile(len(samples) - 1, level) * statistics.stdev(samples) * math.sqrt(2 / len(samples))
    return SpeedRatio(
        value=math.exp(middle),
        low=None if half is None else math.exp(middle - half),
        high=None if half is None else math.exp(middle + half),
        races=len(by_race),
        starts=sum(map(len, by_start)),
        rounds=sum(len(rounds) for starts in logs for rounds in starts),
    )


def races(evidence: Evidence) -> list[list[RacedContender]]:
    """The contenders of each race; families in order. Records of one model at one size are runs of one race."""
    ordered = sorted(evidence.records.records, key=lambda r: (family_rank(r.model.family), r.cell.model, r.cell.seed))
    runs: dict[tuple[object, ...], list[tuple[Record, PeersResult]]] = {}
    for record in ordered:
        if record.peers is not None:
            key = (record.cell.model, record.cell.image_size, record.peers.batch, record.execution.device)
            runs.setdefault(key, []).append((record, record.peers))
    return [_race(race, evidence.level) for race in runs.values()]


def _race(runs: Sequence[tuple[Record, PeersResult]], level: float) -> list[RacedContender]:
    names = list(dict.fromkeys(c.name for _, peers in runs for c in peers.contenders))
    by_name = {name: [{c.name: c for c in peers.contenders}.get(name) for _, peers in runs] for name in names}
    starts = [peers.starts or 1 for _, peers in runs]

    def over(a: str, b: str) -> SpeedRatio | None:
        """Over the runs in which both took part to the end."""
        both = [
            (_by_start(x, n), _by_start(y, n))
            for x, y, n in zip(by_name.get(a, ()), by_name.get(b, ()), starts, strict=False)
            if x and y and not (x.left_out or y.left_out) and 0 < len(x.windows) == len(y.windows)
        ]
        return ratio([x for x, _ in both], [y for _, y in both], level=level) if both else None

    return [
        _contender(runs, by_name[name], by_name.get(BASE, ()), over_base=over(name, BASE), own_over=over(OWN, name))
        for name in names
    ]


def _by_start(result: ContenderResult, starts: int) -> list[tuple[float, ...]]:
    each = len(result.windows) // starts
    return [result.windows[n * each : (n + 1) * each] for n in range(starts)]


def _contender(
    runs: Sequence[tuple[Record, PeersResult]],
    results: Sequence[ContenderResult | None],
    bases: Sequence[ContenderResult | None],
    *,
    over_base: SpeedRatio | None,
    own_over: SpeedRatio | None,
) -> RacedContender:
    record, peers = runs[0]
    known = [result for result in results if result is not None]
    took_part = [result for result in known if not result.left_out] or known[:1]
    first, windows = took_part[0], [speed for result in took_part for speed in result.windows]
    shares = [result.share_of_peak for result in took_part if result.share_of_peak is not None]
    differences = [_loss_difference(*pair) for pair in zip(results, bases, strict=False)]
    return RacedContender(
        race=(record.cell.model, record.cell.image_size),
        seeds=tuple(r.cell.seed for r, _ in runs),
        batch=peers.batch,
        name=first.name,
        own=first.package is None,
        left_out=first.left_out,
        dtype=first.dtype,
        settings=tuple(result.settings for result in took_part if result.settings is not None),
        images_per_second=float(np.median(windows)) if windows else None,
        quartiles=(float(np.quantile(windows, 0.25)), float(np.quantile(windows, 0.75))) if windows else (None, None),
        share_of_peak=statistics.median(shares) if shares else None,
        first_call_seconds=first.first_call_seconds,
        loss_difference=max((d for d in differences if d is not None), default=None),
        over_base=over_base,
        own_over=own_over,
        device=record.execution.device,
        threads=record.execution.threads,
        torch=record.environment.torch,
    )


def _loss_difference(mine: ContenderResult | None, base: ContenderResult | None) -> float | None:
    if mine is None or base is None or not base.losses or not mine.losses or not mine.same_function:
        return None
    return max(abs(a - b) / abs(b) for a, b in zip(mine.losses, base.losses, strict=True))


def fastest_peer(race: Sequence[RacedContender]) -> RacedContender | None:
    """The fastest contender that is not this project."""
    others = [c for c in race if not c.own and c.own_over is not None]
    return min(others, key=lambda c: c.own_over.value, default=None)  # type: ignore[union-attr]


def faster_than_peers(evidence: Evidence) -> Iterator[Finding]:
    """Each race in which this project and another library took part."""
    for race in races(evidence):
        own, peer = next((c for c in race if c.name == OWN), None), fastest_peer(race)
        if own is None or own.left_out or peer is None or (over := peer.own_over) is None:
            continue
        verdict, inside = Verdict.CANNOT_TELL, Reason.WITHIN_INTERVAL
        if over.low is not None and over.high is not None and not over.low <= 1 <= over.high:
            verdict = Verdict.YES if over.low > 1 else Verdict.NO
        model, pixels = own.race
        yield Finding(
            question=NAME,
            subject=(model, str(pixels)),
            verdict=verdict,
            measure="",
            reasons=() if verdict != Verdict.CANNOT_TELL else (STARTED_ONCE if over.low is None else inside,),
            leader=peer.name,
            quantity="speed ratio",
            unit=Unit.TIMES,
            estimate=over.value,
            low=over.low,
            high=over.high,
            level=evidence.level,
            n=Counts(runs=over.races, steps=over.starts),
            evidence=tuple(race),
        )


# -- words -------------------------------------------------------------------------------------------------------------

WORDS = {
    "layout": {
        "contiguous": "NCHW",
        "channels_last": "channels last",
        "channels_last images": "images channels last",
    },
    "dtype": {},
    "attention": {"fused": "fused attention", "plain": "plain attention", "own": ""},
    "compiled": {"off": "eager", "blocks": "compiled blocks", "whole": "compiled", "own": ""},
    "optimizer": {"default": "", "foreach": "foreach AdamW", "fused": "fused AdamW", "own": ""},
}


def settings(chosen: Sequence[PeerSettings]) -> str:
    """The settings of one contender: "NCHW, bfloat16, plain attention, eager, fused AdamW"; of several runs each that
    differs."""
    texts = [
        ", ".join(filter(None, (words.get(getattr(each, name), getattr(each, name)) for name, words in WORDS.items())))
        for each in chosen
    ]
    return " or ".join(dict.fromkeys(texts))


def repetitions(ratio: SpeedRatio) -> str:
    """ "12 rounds in 4 starts of a race that was run once"."""
    often = {1: "once", 2: "twice"}.get(ratio.races, f"{ratio.races} times")
    return f"{plural(ratio.rounds, 'round')} in {plural(ratio.starts, 'start')} of a race that was run {often}"


def say(f: Finding) -> list[str]:
    """Speed, and speed relative to the base and to the fastest other library."""
    race = [item for item in f.evidence if isinstance(item, RacedContender)]
    own, peer = next((c for c in race if c.name == OWN), None), fastest_peer(race)
    if own is None or peer is None or peer.own_over is None:
        return []
    base = next((c.own_over for c in race if c.name == BASE and c.own_over), None)
    over = f"{significant(base.value)} × {BASE}; " if base else ""
    others = [
        f"{c.name.partition(', ')[2]}: {significant(c.over_base.value)} × {BASE}"
        for c in race
        if c.own and c is not own and c.over_base
    ]
    share = f"; {percent(own.share_of_peak)} % of the measured matmul peak" if own.share_of_peak else ""
    speed = f"{significant(own.images_per_second or 0.0)} images/s in {own.dtype}, batch {own.batch}"
    chosen = [f"{c.name}: {text}" for c in (own, peer) if (text := settings(c.settings))]
    return [
        f"Relative to {peer.name}. {speed}; {over}{repetitions(peer.own_over)}{share}.",
        *([f"Settings, the fastest of short trials: {'; '.join(chosen)}."] if chosen else []),
        *(f"With {text}." for text in others),
    ]


def subject(f: Finding) -> str:
    return f"{f.subject[0]} at {f.subject[1]} px"


def tables(evidence: Evidence) -> tuple[Table, ...]:
    """Every contender of every race."""
    rows = [
        {
            "race": f"{c.race[0]} at {c.race[1]} px",
            "contender": c.name,
            "settings": settings(c.settings) or c.dtype,
            "images_per_second": c.images_per_second,
            "over_base": c.over_base and c.over_base.value,
            "over_base_low": c.over_base and c.over_base.low,
            "over_base_high": c.over_base and c.over_base.high,
            "share_of_peak": c.share_of_peak,
            "first_call_seconds": c.first_call_seconds,
            "loss_difference": c.loss_difference,
            "left_out": c.left_out,
        }
        for race in races(evidence)
        for c in race
    ]
    columns = (
        Column(key="race", heading="Model", numeric=False),
        Column(key="contender", heading="Trained by", numeric=False),
        Column(key="settings", heading="Settings", numeric=False),
        Column(key="images_per_second", heading="Images/s", text=significant),
        Column(key="over_base", heading=f"× {BASE}", text=significant),
        Column(key="over_base_low", heading="low", text=significant),
        Column(key="over_base_high", heading="high", text=significant),
        Column(key="share_of_peak", heading="% of matmul peak", text=percent),
        Column(key="first_call_seconds", heading="First step [s]", text=significant),
        Column(key="loss_difference", heading="Losses differ by", text=lambda v: f"{v:.1e}"),
        Column(key="left_out", heading="Left out", numeric=False),
    )
    note = (
        "Ratios: of windows of the same round, medians of each start, geometric means over starts; "
        f"{evidence.level:.0%} of repetitions lie between low and high. Settings: the fastest of short trials; those "
        "of defaults are what a user gets who sets nothing. Losses: largest relative difference from the base over the "
        "first steps, where function and weights are the same."
    )
    table = Table(
        name="peers", title="Training speed beside other libraries", columns=columns, rows=tuple(rows), note=note
    )
    return (table,) if rows else ()


def _sentence(f: Finding) -> str:
    library = (f.leader or "").replace(", tuned", " at its best settings")
    times = phrase(f"{significant(wording.or_nan(f.estimate))} times ", wording.bracket(f.low, f.high, significant))
    return phrase(f"Training {subject(f)} is ", times, f" as fast as in {library}")


QUESTION = Question(
    name=NAME,
    label="Faster than libraries?",
    text="Is training faster than in the fastest other library?",
    yes="faster",
    no="slower",
    ask=faster_than_peers,
    say=say,
    reasons={STARTED_ONCE: "Every process was started once: nothing says how far another start would be from it."},
    items=(RacedContender,),
    order=10,
    subject=subject,
    tables=tables,
    sentence=_sentence,
    shown_in=("peers",),
)
