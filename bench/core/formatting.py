"""Functions that format numbers and text for people: with units and without control characters. A number that is None,
NaN or infinite is shown as `MISSING`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from bench.core.by_key import by_key

FLOP_UNITS = (
    (1e21, "ZFLOP"),
    (1e18, "EFLOP"),
    (1e15, "PFLOP"),
    (1e12, "TFLOP"),
    (1e9, "GFLOP"),
    (1e6, "MFLOP"),
    (1.0, "FLOP"),
)
TIME_UNITS = ((31_557_600.0, "years"), (86_400.0, "days"), (3_600.0, "h"), (60.0, "min"))  # in seconds
MISSING = "–"
NEARLY_ZERO = 1e-9  # smaller numbers are shown with an exponent
# The two sides of an interval may differ by this many points, or by this fraction of their mean, and be printed as one.
ONE_SIDED_POINTS, ONE_SIDED_SHARE = 0.1, 0.2
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all control characters but tab and line feed


def significant(value: float, digits: int = 3) -> str:
    """Format a number with `digits` significant digits and thousands separators: 12345 -> "12,300". Zeros at the end of
    decimal places are left out."""
    if not math.isfinite(value):
        return MISSING
    if value == 0:
        return "0"
    if abs(value) < NEARLY_ZERO:
        return _typed(value, digits)
    places = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, places)
    return f"{rounded:,.{max(0, places)}f}".rstrip("0").rstrip(".") if places > 0 else f"{rounded:,.0f}"


def compact(value: float, digits: int = 4) -> str:
    """Format a number of any size: from 0.0001 to ten million as `significant` does, others with an exponent, such as
    "1.68e9"."""
    if value == 0 or not math.isfinite(value) or 1e-4 <= abs(value) < 1e7:
        return significant(value, digits)
    return _typed(value, digits)


def _typed(value: float, digits: int) -> str:
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{int(exponent)}"


def flop_unit(value: float) -> tuple[float, str]:
    """Return (scale in FLOP, name) of the largest unit that is not larger than `value` FLOP: 3e12 -> (1e12, "TFLOP").
    For values below 1 the unit is FLOP."""
    for scale, unit in FLOP_UNITS:
        if value >= scale:
            return scale, unit
    return FLOP_UNITS[-1]


def common_flop_unit(values: Sequence[float]) -> tuple[float, str]:
    """Return (scale in FLOP, name) of the unit for an axis, or for numbers that are shown together: the unit that
    `flop_unit` returns for the geometric mean of the least and the largest value."""
    known = [value for value in values if value and math.isfinite(value)]
    return flop_unit(math.sqrt(min(known) * max(known))) if known else FLOP_UNITS[-1]


def flops(value: float | None) -> str:
    """Format a number of FLOPs: 3.2e12 -> "3.2 TFLOPs"; None or NaN -> "–"."""
    return " ".join(number_of_flops(value))


def number_of_flops(value: float | None, beside: Sequence[float] = ()) -> tuple[str, ...]:
    """Format a number of FLOPs as (number, unit): 3.2e12 -> ("3.2", "TFLOPs"); None or NaN -> ("–",).
    `beside`: further numbers of FLOPs that are shown with it, in one common unit."""
    if value is None or not math.isfinite(value):
        return (MISSING,)
    scale, unit = common_flop_unit([*beside, value])
    return significant(value / scale), f"{unit}s"


def flops_range(low: float, high: float) -> str:
    """Format a range of FLOPs: "10.6 to 2,640 GFLOPs". If both ends give the same text, it is written once."""
    first, last = (number_of_flops(end, (low, high)) for end in (low, high))
    return " ".join(last) if first == last else span(first, last)


def span(first: Sequence[str], last: Sequence[str], joint: str = "to") -> str:
    """Join two (number, unit) pairs with the word `joint` to a text such as "1 to 2 GFLOPs". If both units are equal,
    the unit is written once."""
    return " ".join([*(first[:1] if first[1:] == last[1:] else first), joint, *last])


def count(value: float | None) -> str:
    """Format a whole number with thousands separators: 1234567 -> "1,234,567"; None or NaN -> "–"."""
    return MISSING if value is None or not math.isfinite(value) else f"{round(value):,}"


def short_count(value: float | None) -> str:
    """Format a count in k, M or G: 1234567 -> "1.23 M". Counts below ten thousand are formatted as by `count`; None or
    NaN -> "–"."""
    if value is None or not math.isfinite(value):
        return MISSING
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= 10 * scale or (value >= scale and scale > 1e3):
            return f"{significant(value / scale)} {unit}"
    return count(value)


def percent(value: float | None) -> str:
    """Format a fraction in percent: 0.7123 -> "71.2"; None or NaN -> "–". Callers add the percent sign in a heading or
    after the number."""
    return MISSING if value is None or not math.isfinite(value) else f"{100 * value:.1f}"


def interval(value: float | None, low: float | None, high: float | None) -> str:
    """Format a fraction in percent with its interval from `low` to `high`, also fractions: "71.2 ± 1.3", or "99.2 −1.3
    +0.5" if the interval reaches clearly further to one side. None for an end gives "71.2 ± ?", None for the value "–".
    """
    if value is None or not math.isfinite(value):
        return MISSING
    if low is None or high is None or not math.isfinite(high - low):
        return percent(value) + " ± ?"
    below, above = 100 * (value - low), 100 * (high - value)
    if abs(above - below) <= max(ONE_SIDED_POINTS, ONE_SIDED_SHARE * (above + below) / 2):
        return f"{percent(value)} ± {(above + below) / 2:.1f}"
    return f"{percent(value)} −{below:.1f} +{above:.1f}"


def points(value: float, low: float, high: float) -> str:
    """Format a difference of accuracies in percentage points with its interval: "+3.1 points [+1.0, +5.2]". All three
    numbers are fractions; an interval that is not finite is left out."""
    if not math.isfinite(value):
        return MISSING
    ends = f" [{signed(low)}, {signed(high)}]" if math.isfinite(low) and math.isfinite(high) else ""
    return f"{signed(value)} points{ends}"


def signed(value: float) -> str:
    """Format a fraction in percent with its sign and one decimal place: -0.031 -> "−3.1"."""
    text = f"{100 * value:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "−")


def data_size(number: float) -> str:
    """Format a number of bytes in decimal units: 1.5e9 -> "1.5 GB"."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if number >= scale:
            return f"{significant(number / scale)} {unit}"
    return f"{number / 1e3:.0f} kB"


def duration(seconds: float | None) -> str:
    """Format a number of seconds as "45 s", "12.3 min", "5.1 h", "2.4 days" or "37 years"; None or NaN -> "–"."""
    if seconds is None or not math.isfinite(seconds):
        return MISSING
    for scale, unit in TIME_UNITS:
        if seconds >= 2 * scale:
            return f"{significant(seconds / scale)} {unit}"
    return f"{significant(seconds, 2 if seconds < 100 else 3)} s"


def planned_and_took(planned: float, took: float, processor: float | None = None) -> str:
    """Format planned and actual seconds as "planned 46 s, took 58 s (+26%)". `processor`: seconds of processor time
    that were used, which are added in the brackets; None if not known."""
    used = "" if processor is None else f", {duration(processor)} of a processor"
    return f"planned {duration(planned)}, took {duration(took)} ({took / max(1e-9, planned) - 1:+.0%}{used})"


def core_days(value: float | None) -> str:
    """Format a number of core-days (devices × days) with three significant digits; None or NaN -> "–"."""
    return MISSING if value is None or not math.isfinite(value) else significant(value)


def energy(joules: float) -> str:
    """Format a number of joules as text in Wh or kWh, the units in which electricity is sold: 3.6e6 -> "1 kWh"."""
    kwh = joules / 3.6e6
    return f"{significant(1000 * kwh)} Wh" if kwh < 1 else f"{significant(kwh)} kWh"


def weight(grams: float) -> str:
    return f"{significant(grams)} g" if grams < 1000 else f"{significant(grams / 1000)} kg"


def join(items: list[str] | tuple[str, ...], last: str = "and") -> str:
    """Join items to an enumeration: "a", "a and b", "a, b and c". `last`: the word before the last item. No items give
    an empty text."""
    parts = list(items)
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {last} {parts[-1]}" if parts else ""


def plural(number: int, noun: str, nouns: str = "") -> str:
    """Format a number with its noun: "1 seed", "2 seeds". `nouns`: the plural of the noun ("classes"); "": noun + s."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def by_reason(reasons: Iterable[tuple[str, str]]) -> list[str]:
    """Return the lines that show (name of a run, reason) pairs: one line for each reason, such as "NAME: reason" or, if
    several runs have the same reason, "5 runs (NAME, NAME, …): reason"."""
    groups = by_key((reason, name) for name, reason in reasons)
    return [f"{_cells(names)}: {reason}" for reason, names in groups.items()]


def _cells(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} runs ({', '.join(names[:2])}{', …' * (len(names) > 2)})"


def printable(text: str) -> str:
    """Return `text` with each control character replaced by its escape sequence in plain characters (escape becomes
    "\\x1b"), because a terminal would obey the character itself. Line feeds and tabs stay."""
    return CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)
