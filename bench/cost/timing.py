"""Measure the speed of workloads in interleaved windows, each of many calls; running out of memory is a result too.

This differs from timing a loop. A window runs many calls and waits for the device once, so launch overhead overlaps as
in real use. Windows of all workloads take turns, so a slow minute of the machine affects all of them. The median of the
windows is reported with their quartiles and extremes. Nothing is created or copied inside a window except what the
workload itself needs. First calls (allocation, compilation, autotuning) are timed separately.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.core.device import OutOfMemory, timed
from bench.study.record import Spread, Throughput


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Settings that say how long to measure.

    Attributes:
        windows: number of windows per workload.
        seconds: length of one window in seconds; a window has at least one call.
        slowest_call: seconds that one call may take; no batch is tried that would take longer.
        latency_calls: number of calls timed one by one at batch 1.
    """

    windows: int = 7
    seconds: float = 0.5
    slowest_call: float = 2.0
    latency_calls: int = 100


CPU_PACE = Pace(windows=5, seconds=0.15, slowest_call=0.35, latency_calls=20)
REHEARSAL_PACE = Pace(windows=2, seconds=0.01, slowest_call=0.02, latency_calls=3)


@dataclass(kw_only=True)
class Workload:
    """Something to time, such as a forward pass: `call` runs it once on `images` images. The functions below fill in
    the other fields."""

    name: str
    call: Callable[[], object]
    images: int
    calls_per_window: int = 1
    first_call_seconds: float | None = None
    call_seconds: float | None = None
    windows: list[float] = field(default_factory=list)  # images per second in each window

    def spread(self) -> Spread:
        """Return median, quartiles and extremes over the windows, in images per second."""
        return spread(self.windows)

    def throughput(self, **more: Any) -> Throughput:
        """Return the throughput in the form of a record. `more` gives the fields of `Throughput` that the windows do
        not determine."""
        return Throughput(
            batch=self.images,
            images_per_second=self.spread(),
            windows=tuple(self.windows),
            calls_per_window=self.calls_per_window,
            first_call_seconds=self.first_call_seconds,
            **more,
        )


def warm_up(workload: Workload, *, device: str, pace: Pace) -> None:
    """Time a workload's first call by itself, then repeat the call until two calls in a row agree within 10 % (at most
    10 calls), and set how many calls make a window.

    The first call is not compared with the second, because it may compile; the second may record what was compiled, and
    then differs from the third.
    """
    workload.first_call_seconds = timed(workload.call, device=device)
    seconds = timed(workload.call, device=device)
    for _ in range(9):
        previous, seconds = seconds, timed(workload.call, device=device)
        if abs(seconds - previous) <= 0.1 * previous or seconds > pace.slowest_call:
            break
    workload.call_seconds = seconds
    workload.calls_per_window = max(1, round(pace.seconds / max(seconds, 1e-6)))


def interleave(
    workloads: Sequence[Workload], *, device: str, windows: int, should_stop: Callable[[], bool] = lambda: False
) -> None:
    """Time `windows` windows of every workload, a window of each in turn, and append the images per second to the
    workload's windows. Every second round is in reverse order, so that no workload always follows the same other one.
    `should_stop` is asked before each window."""
    for number in range(windows):
        for workload in workloads if number % 2 == 0 else reversed(workloads):
            if should_stop():
                return
            seconds = timed(workload.call, device=device, calls=workload.calls_per_window)
            workload.windows.append(workload.calls_per_window * workload.images / seconds)


def spread(values: Sequence[float]) -> Spread:
    """Return median, quartiles, extremes and number of the values; without values, an empty `Spread`."""
    if not values:
        return Spread()
    quartiles = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return Spread(
        median=statistics.median(values),
        q1=quartiles[0],
        q3=quartiles[2],
        min=min(values),
        max=max(values),
        n=len(values),
    )


def latency(call: Callable[[], object], *, device: str, calls: int) -> dict[str, Any]:
    """Return percentiles and extremes, in milliseconds, of the duration of `calls` single calls after a warm-up. After
    each call the device is waited for."""
    for _ in range(3):
        timed(call, device=device)
    milliseconds = sorted(1e3 * timed(call, device=device) for _ in range(calls))

    def percentile(share: float) -> float:
        return milliseconds[min(len(milliseconds) - 1, round(share * (len(milliseconds) - 1)))]

    return {
        "p50_ms": percentile(0.5),
        "p90_ms": percentile(0.9),
        "p99_ms": percentile(0.99) if calls >= 100 else None,  # fewer calls say nothing about the slowest hundredth
        "min_ms": milliseconds[0],
        "max_ms": milliseconds[-1],
        "n": calls,
    }


def scan_batches(
    make: Callable[[int], Workload], *, device: str, pace: Pace, largest: int = 4096, should_stop: Callable[[], bool]
) -> tuple[list[Workload], str]:
    """Warm up workloads with batches of 1, 2, 4, … images; return these workloads, and in words why no larger batch was
    tried.

    The scan stops when memory runs out, before a call would take longer than `pace.slowest_call`, after `largest`, or
    when `should_stop()` is true. `make` returns the workload for a number of images.
    """
    workloads: list[Workload] = []
    batch = 1
    while batch <= largest:
        if should_stop():
            return workloads, "stopped"
        workload = make(batch)
        try:
            warm_up(workload, device=device, pace=pace)
        except OutOfMemory:
            return workloads, f"out of memory at batch {batch}"
        workloads.append(workload)
        assert workload.call_seconds is not None
        if 2 * workload.call_seconds > pace.slowest_call:
            return workloads, f"a call at batch {2 * batch} would take more than {pace.slowest_call:g} s"
        batch *= 2
    return workloads, f"batch {largest} is the largest tried"


def fastest(workloads: Sequence[Workload], *, count: int) -> list[Workload]:
    """Return the `count` workloads that had the highest throughput in their warm-up, best first."""
    return sorted(workloads, key=lambda w: (w.call_seconds or float("inf")) / w.images)[:count]


def search_largest(fits: Callable[[int], bool], *, start: int, precision: float = 0.02) -> int:
    """Return the largest batch for which `fits(batch)` is true, within a relative `precision`; 0 if there is none. The
    search doubles or halves the batch from `start`, then bisects."""
    low, high = 0, max(1, start)
    if fits(high):
        low = high
        while fits(2 * low):
            low *= 2
        high = 2 * low
    else:
        while high > 1 and not fits(high // 2):
            high //= 2
        low = high // 2
    while high - low > max(1, precision * low):
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
