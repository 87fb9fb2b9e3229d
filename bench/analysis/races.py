"""Training speed beside other libraries: ratios of windows of the same round, with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.analysis.evidence import Evidence, family_rank
from bench.analysis.finding import Counts, Finding, Item, Quantity, Question, Reason, Unit, Verdict
from bench.core.record import ContenderResult, PeersResult, Record
from bench.stats.intervals import POINT_LEVEL, t_quantile

BASE = "timm, defaults"
OWN = "this project"


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Of speeds: geometric mean over `rounds`, and its t interval (None where there is one round)."""

    value: float
    low: float | None
    high: float | None
    rounds: int


@dataclass(frozen=True, kw_only=True)
class Contender(Item):
    """One way to train the model of a race. Speeds are images per second.

    Attributes:
        race: (model, pixels per side). own: this project trains, as it does by default (`OWN`) or otherwise.
        left_out: why it did not take part, or None. over_base: speed over that of `BASE`; own_over: of this project
            over this. loss_difference: largest relative one from the losses of `BASE` over the first steps; None for
            another function.
    """

    race: tuple[str, int]
    seed: int
    batch: int
    name: str
    own: bool
    left_out: str | None
    dtype: str | None
    images_per_second: float | None
    quartiles: tuple[float | None, float | None]
    share_of_peak: float | None
    first_call_seconds: float | None
    loss_difference: float | None
    over_base: Ratio | None
    own_over: Ratio | None
    device: str
    threads: int | None
    torch: str | None


def ratio(windows: Sequence[float], base: Sequence[float], *, level: float = POINT_LEVEL) -> Ratio:
    """Of windows over the base's of the same round. A slow spell of the machine falls on both windows of a round and
    leaves their ratio alone; rounds are the samples."""
    rounds = min(len(windows), len(base))
    logs = np.log(np.asarray(windows[:rounds], dtype=float) / np.asarray(base[:rounds], dtype=float))
    middle = float(logs.mean())
    if rounds < 2:
        return Ratio(value=math.exp(middle), low=None, high=None, rounds=rounds)
    half = t_quantile(rounds - 1, level) * float(logs.std(ddof=1)) / math.sqrt(rounds)
    return Ratio(value=math.exp(middle), low=math.exp(middle - half), high=math.exp(middle + half), rounds=rounds)


def races(evidence: Evidence) -> list[list[Contender]]:
    """The contenders of each race; families in order."""
    ordered = sorted(evidence.records.records, key=lambda r: (family_rank(r.model.family), r.cell.model))
    return [
        [
            _contender(record, record.peers, result, {c.name: c for c in record.peers.contenders}, evidence.level)
            for result in record.peers.contenders
        ]
        for record in ordered
        if record.peers is not None
    ]


def _contender(
    record: Record, race: PeersResult, mine: ContenderResult, by_name: Mapping[str, ContenderResult], level: float
) -> Contender:
    base, own = by_name.get(BASE), by_name.get(OWN)
    return Contender(
        race=(record.cell.model, record.cell.image_size),
        seed=record.cell.seed,
        batch=race.batch,
        name=mine.name,
        own=mine.package is None,
        left_out=mine.left_out,
        dtype=mine.dtype,
        images_per_second=mine.images_per_second.median,
        share_of_peak=mine.share_of_peak,
        quartiles=(mine.images_per_second.q1, mine.images_per_second.q3),
        first_call_seconds=mine.first_call_seconds,
        loss_difference=_loss_difference(mine, base),
        over_base=_over(mine, base, level),
        own_over=_over(own, mine, level),
        device=record.execution.device,
        threads=record.execution.threads,
        torch=record.environment.torch,
    )


def _over(a: ContenderResult | None, b: ContenderResult | None, level: float) -> Ratio | None:
    known = [c.windows for c in (a, b) if c is not None and not c.left_out and c.windows]
    return ratio(*known, level=level) if len(known) == 2 else None


def _loss_difference(mine: ContenderResult, base: ContenderResult | None) -> float | None:
    if base is None or not base.losses or not mine.losses or not mine.same_function:
        return None
    return max(abs(a - b) / abs(b) for a, b in zip(mine.losses, base.losses, strict=True))


def fastest_peer(race: Sequence[Contender]) -> Contender | None:
    """The fastest contender that is not this project."""
    others = [c for c in race if not c.own and c.own_over is not None]
    return min(others, key=lambda c: c.own_over.value, default=None)  # type: ignore[union-attr]


def faster_than_peers(evidence: Evidence) -> Iterator[Finding]:
    """Each race in which this project and another library took part."""
    for race in races(evidence):
        own, peer = next((c for c in race if c.name == OWN), None), fastest_peer(race)
        if own is None or own.left_out or peer is None or (over := peer.own_over) is None:
            continue
        verdict = Verdict.CANNOT_TELL
        if over.low is not None and over.high is not None and not over.low <= 1 <= over.high:
            verdict = Verdict.YES if over.low > 1 else Verdict.NO
        model, pixels = own.race
        yield Finding(
            question=Question.FASTER_THAN_PEERS,
            subject=(model, str(pixels)),
            verdict=verdict,
            measure="",
            reasons=(Reason.WITHIN_INTERVAL,) if verdict == Verdict.CANNOT_TELL else (),
            leader=peer.name,
            quantity=Quantity.SPEED_RATIO,
            unit=Unit.TIMES,
            estimate=over.value,
            low=over.low,
            high=over.high,
            level=evidence.level,
            n=Counts(steps=over.rounds),
            evidence=tuple(race),
        )
