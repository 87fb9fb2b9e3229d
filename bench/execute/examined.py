"""The types of the checks that `vit-bench doctor` runs on a machine, and of their results (a value, a limit and an
outcome)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.core.formatting import compact


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """One result of a check.

    Attributes:
        check: what was checked, in a few words.
        value: what was found.
        limit: what was expected, such as "≥ 5 GB"; "" where nothing is expected.
        outcome: "pass", "fail", or "n/a" where the check does not apply here.
    """

    check: str
    value: str
    limit: str = ""
    outcome: str = "pass"


@dataclass(frozen=True, kw_only=True)
class MachineCheck:
    """One check of a machine.

    Attributes:
        name: the check's name.
        run: takes a device, and yields the results of the check.
        gpu: whether it applies to GPUs only.
        long: whether it takes long; --quick leaves such checks out.
    """

    name: str
    run: Callable[[str], Iterator[CheckResult]]
    gpu: bool = False
    long: bool = False


def at_least(check: str, value: float, limit: float, unit: str = "", *, why: str = "") -> CheckResult:
    """Return the result of a check that passes if `value` is at least `limit`. `why`: where the limit comes from."""
    return _judged(check, value, limit, unit, why, sign="≥", good=value >= limit)


def at_most(check: str, value: float, limit: float, unit: str = "") -> CheckResult:
    """Return the result of a check that passes if `value` is at most `limit`."""
    return _judged(check, value, limit, unit, "", sign="≤", good=value <= limit)


def _judged(check: str, value: float, limit: float, unit: str, why: str, *, sign: str, good: bool) -> CheckResult:
    shown = [f"{compact(number, 3)} {unit}".strip() for number in (value, limit)]
    limits = f"{sign} {shown[1]}" + (f", {why}" if why else "")
    return CheckResult(check=check, value=shown[0], limit=limits, outcome="pass" if good else "fail")


def as_wanted(check: str, value: str, wanted: str, *, good: bool | None = None) -> CheckResult:
    """Return the result of a check that passes if `good`; None: if `value` equals `wanted`."""
    outcome = "pass" if (value == wanted if good is None else good) else "fail"
    return CheckResult(check=check, value=value, limit=wanted, outcome=outcome)
