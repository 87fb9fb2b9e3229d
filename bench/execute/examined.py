"""The checks of a machine and their results, each of which has a value, a limit and an outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.core.formatting import compact


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of one check. `outcome`: "pass", "fail", or "n/a" where it does not apply here."""

    check: str
    value: str
    limit: str = ""
    outcome: str = "pass"


@dataclass(frozen=True, kw_only=True)
class MachineCheck:
    """One check of a machine. `run(device)` yields its results. gpu: it applies to GPUs only. long: it takes long, and
    is no part of --quick."""

    name: str
    run: Callable[[str], Iterator[CheckResult]]
    gpu: bool = False
    long: bool = False


def at_least(check: str, value: float, limit: float, unit: str = "", *, why: str = "") -> CheckResult:
    """The result of a check that passes where the value is at least the limit; `why`: where the limit comes from."""
    return _judged(check, value, limit, unit, why, sign="≥", good=value >= limit)


def at_most(check: str, value: float, limit: float, unit: str = "") -> CheckResult:
    """The result of a check that passes where the value is at most the limit."""
    return _judged(check, value, limit, unit, "", sign="≤", good=value <= limit)


def _judged(check: str, value: float, limit: float, unit: str, why: str, *, sign: str, good: bool) -> CheckResult:
    shown = [f"{compact(number, 3)} {unit}".strip() for number in (value, limit)]
    limits = f"{sign} {shown[1]}" + (f", {why}" if why else "")
    return CheckResult(check=check, value=shown[0], limit=limits, outcome="pass" if good else "fail")


def as_wanted(check: str, value: str, wanted: str, *, good: bool | None = None) -> CheckResult:
    """The result of a check that passes where `good` says so; without `good`, where the value equals `wanted`."""
    outcome = "pass" if (value == wanted if good is None else good) else "fail"
    return CheckResult(check=check, value=value, limit=wanted, outcome=outcome)
