"""Training speed beside other libraries: ratios of windows of the same round, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bench.analysis.compare import Verdict
from bench.analysis.evidence import family_rank
from bench.core.formatting import percent, significant
from bench.core.record import ContenderResult, PeersResult, Record
from bench.report.layout import Column, Table
from bench.stats.intervals import t_quantile

QUESTION = "Is training here faster than in the fastest peer?"
BASE = "timm, defaults"
OWN = "this project"
SAME_LOSS = 0.02  # largest relative difference between losses of the first steps that rounding to bfloat16 explains


def ratio(windows: Sequence[float], base: Sequence[float], *, level: float = 0.95) -> tuple[float, float, float, int]:
    """(ratio, low, high, rounds): geometric mean over rounds of window / base of the same round, and its t interval.

    A slow spell of the machine falls on both windows of a round and leaves their ratio alone; rounds are the samples.
    """
    logs = np.log(np.asarray(windows, dtype=float) / np.asarray(base, dtype=float))
    middle, n = float(logs.mean()), len(logs)
    if n < 2:
        return math.exp(middle), math.nan, math.nan, n
    half = t_quantile(n - 1, level) * float(logs.std(ddof=1)) / math.sqrt(n)
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half), n


def rows(records: Sequence[Record], *, level: float = 0.95) -> list[dict[str, Any]]:
    """One row per race and contender; what is not known is None."""
    found = []
    for record in sorted(records, key=_order):
        race = record.peers
        if race is None:
            continue
        by_name = {c.name: c for c in race.contenders}
        for contender in race.contenders:
            found.append(_row(record, race, contender, by_name, level))
    return found


def _order(record: Record) -> tuple[tuple[int, str], str]:
    """Families as everywhere: ViT first."""
    return family_rank(record.model.family), record.cell.model


def _row(
    record: Record, race: PeersResult, contender: ContenderResult, by_name: Mapping[str, ContenderResult], level: float
) -> dict[str, Any]:
    cell, execution = record.cell, record.execution
    row: dict[str, Any] = {
        "race": f"{cell.model} at {cell.image_size} px", "model": cell.model, "seed": cell.seed,
        "image_size": cell.image_size, "batch": race.batch, "contender": contender.name,
        "left_out": contender.left_out, "dtype": contender.dtype,
        "images_per_second": contender.images_per_second.median,
        "q1": contender.images_per_second.q1, "q3": contender.images_per_second.q3,
        "share_of_peak": contender.share_of_peak, "first_call_seconds": contender.first_call_seconds,
        "loss_difference": _loss_difference(contender, by_name.get(BASE)),
        "device": execution.device, "threads": execution.threads, "torch": record.environment.torch,
    }  # fmt: skip
    for key, other in (("over_base", BASE), ("own_over_this", OWN)):
        pair = (contender, by_name.get(other)) if key == "over_base" else (by_name.get(other), contender)
        row |= dict.fromkeys((key, f"{key}_low", f"{key}_high", f"{key}_rounds"))
        windows = [c.windows for c in pair if c and not c.left_out and c.windows]
        if len(windows) == 2:
            shared = min(map(len, windows))
            values = ratio(windows[0][:shared], windows[1][:shared], level=level)
            row |= dict(zip((key, f"{key}_low", f"{key}_high", f"{key}_rounds"), values, strict=True))
    return row


def _loss_difference(contender: ContenderResult, base: ContenderResult | None) -> float | None:
    """The largest relative difference from the base's losses over the first steps; None for another function."""
    if not base or not base.losses or not contender.losses or not contender.same_function:
        return None
    return max(abs(a - b) / abs(b) for a, b in zip(contender.losses, base.losses, strict=True))


def is_own(row: dict[str, Any]) -> bool:
    """Whether a row is this project's, however it was run."""
    return str(row["contender"]).partition(", ")[0] == OWN


def fastest_peer(race: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The row of the fastest contender that is not this project."""
    others = [row for row in race if not is_own(row) and row["own_over_this"]]
    return min(others, key=lambda row: row["own_over_this"], default=None)


def sentences(records: Sequence[Record], *, level: float = 0.95) -> list[tuple[str, Verdict, str]]:
    """(race, verdict, sentence) for each race: beside timm's defaults, and beside the fastest of all peers."""
    made: list[tuple[str, Verdict, str]] = []
    everything = rows(records, level=level)
    for name in dict.fromkeys((row["race"], row["seed"]) for row in everything):
        race = [row for row in everything if (row["race"], row["seed"]) == name]
        own = next((row for row in race if row["contender"] == OWN), None)
        peer = fastest_peer(race)
        if own is None or own["left_out"] or peer is None:
            continue
        low, high = peer["own_over_this_low"], peer["own_over_this_high"]
        verdict: Verdict = "yes" if low > 1 else "no" if high < 1 else "cannot tell"
        base = next((row for row in race if row["contender"] == BASE and row["own_over_this"]), None)
        parts = [f"{significant(own['images_per_second'])} images/s in {own['dtype']}, batch {own['batch']}"]
        if base is not None:
            parts.append(f"{_times(base)} {BASE}")
        parts.append(f"{_times(peer)} the fastest peer ({peer['contender']})")
        parts += [
            f"{row['contender'].partition(', ')[2]}: {significant(row['over_base'])} × {BASE}"
            for row in race
            if is_own(row) and row is not own and row["over_base"]
        ]
        used = f"{percent(own['share_of_peak'])} % of the measured matmul peak"
        made.append((name[0], verdict, f"{'; '.join(parts)}; {used}, {peer['own_over_this_rounds']} rounds."))
    return made


def _times(row: dict[str, Any]) -> str:
    low, high = significant(row["own_over_this_low"]), significant(row["own_over_this_high"])
    return f"{significant(row['own_over_this'])} × ({low} to {high})"


def table(records: Sequence[Record], *, level: float = 0.95) -> Table | None:
    """Every contender of every race; None where nothing was raced."""
    found = rows(records, level=level)
    if not found:
        return None
    columns = (
        Column(key="race", heading="Model", numeric=False),
        Column(key="contender", heading="Trained by", numeric=False),
        Column(key="dtype", heading="dtype", numeric=False),
        Column(key="images_per_second", heading="Images/s", text=significant),
        Column(key="over_base", heading=f"× {BASE}", text=significant),
        Column(key="over_base_low", heading="low", text=significant),
        Column(key="over_base_high", heading="high", text=significant),
        Column(key="share_of_peak", heading="% of matmul peak", text=percent),
        Column(key="first_call_seconds", heading="First step [s]", text=significant),
        Column(key="loss_difference", heading="Losses differ by", text=lambda v: f"{v:.1e}"),
        Column(key="left_out", heading="Left out", numeric=False),
    )  # fmt: skip
    note = (
        f"Ratios: geometric means over rounds of windows of the same round, {level:.0%} t intervals. Losses: largest "
        "relative difference from the base over the first steps, where the function and the weights are the same."
    )
    return Table(name="peers", title="Training speed beside other libraries", columns=columns, rows=tuple(found),
                 note=note)  # fmt: skip
