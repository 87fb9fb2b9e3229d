"""Puts into words what findings of several questions have in common: estimates with intervals, trends, values on an
axis, and reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bench.analysis.finding import (
    ALL_MODELS,
    TREND_POINTS,
    Axis,
    BeginsLater,
    BestAbsent,
    Difference,
    Finding,
    Item,
    LawDeviation,
    Reason,
    SeveralModels,
    Unit,
    Verdict,
)
from bench.core.formatting import (
    common_flop_unit,
    count,
    flops,
    join,
    number_of_flops,
    percent,
    plural,
    points,
    signed,
    significant,
    span,
)
from bench.core.measure import measure_text
from bench.core.phrase import Interval, phrase

T = TypeVar("T", bound=Item)
Sentence = str | Callable[[Finding], str]
MANY_TIMES = 10  # an interval that would have to be narrower by more than this factor: no number is given
MEASURES = {"headline": "", "far": ", out-of-domain tasks", "upstream": ", pre-training set"}

# -- numbers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Number:
    """A number as it is printed.

    Attributes:
        text: the estimate with its interval, or else the trend; "" if there is neither.
        short: the same for a narrow console.
        magnitude: the estimate before rounding; None for a trend.
        head: the estimate alone, without its unit; "" for a trend.
        unit: unit of the estimate; "" for none.
    """

    text: str = ""
    short: str = ""
    magnitude: float | None = None
    head: str = ""
    unit: str = ""


def shown(magnitude: float, head: str, unit: str, interval: str) -> Number:
    """Return an estimate as it is printed, with its unit and its interval.

    Args:
        magnitude: the estimate before rounding.
        head: the estimate as text, without its unit.
        interval: the interval in brackets; "" for none.
    """
    words = " ".join(part for part in (head, unit) if part)
    text = phrase(words, " " if words and interval else "", Interval(interval))
    return Number(text=text, short=text, magnitude=magnitude, head=head, unit=unit)


def number(f: Finding) -> Number:
    """Return a finding's estimate as it is printed, with its interval; if it has no estimate, the first and the last
    value of its trend."""
    value, low, high = f.estimate, f.low, f.high
    if value is None:
        text = trend(f)
        return Number(text=text, short=text and ends(f))
    if f.unit == Unit.SHARE:
        return share(value, low, high)
    if f.unit == Unit.FLOP:
        scale, unit = common_flop_unit([value])
        return shown(
            value,
            significant(value / scale),
            f"{unit}s",
            bracket(low, high, lambda end: significant(end / scale)),
        )
    if f.unit == Unit.IMAGES:
        return shown(value, count(value), "images", bracket(low, high, count))
    if f.unit == Unit.TIMES:
        return shown(value, significant(value), "×", bracket(low, high, significant))
    return shown(value, f"{value:g}", "", bracket(low, high, significant))


def share(value: float, low: float | None, high: float | None) -> Number:
    """Return a difference of accuracies (0.01 is one point) as it is printed, in percentage points, with its interval;
    without one if an end is None."""
    interval = "" if low is None or high is None else f"[{signed(low)}, {signed(high)}]"
    return shown(value, signed(value), "points", interval)


def trend(f: Finding) -> str:
    """Return a finding's trend in words, such as "+31.0 → −1.4 points from 21.2 GFLOPs to 444 GFLOPs"; "" if it has
    none."""
    if len(f.trend) < 2:
        return ""
    return f"{ends(f)} from {between(f, f.trend[0].x, f.trend[-1].x, 'to')}"


def ends(f: Finding) -> str:
    """Return the first and the last value of a finding's trend, such as "+31.0 → −1.4 points", as text."""
    return f"{signed(f.trend[0].estimate)} → {signed(f.trend[-1].estimate)} points"


def between(f: Finding, low: float | None, high: float | None, joint: str) -> str:
    """Return two values on the x axis of a finding as text, with the word `joint` between them; a unit that they share
    is written once."""
    both = [end for end in (low, high) if end is not None]
    return span(_number_of_x(f, low, both), _number_of_x(f, high, both), joint)


def place(f: Finding, x: float | None) -> str:
    """Return a value on the x axis of a finding as text, with its unit; all values of one trend get the same unit."""
    return " ".join(_number_of_x(f, x, [point.x for point in f.trend]))


def _number_of_x(f: Finding, x: float | None, beside: Sequence[float]) -> tuple[str, ...]:
    """Return a value on the x axis of a finding, and its unit, as two texts; only a dash for None. `beside`: further
    values that must get the same unit."""
    if x is None:
        return ("–",)
    if f.axis == Axis.ACCURACY:
        return percent(x), "%"
    return (count(x), "images") if f.axis == Axis.IMAGES else number_of_flops(x, beside)


def bracket(low: float | None, high: float | None, show: Callable[[float], str]) -> Interval:
    """Return an interval in brackets. If one end is None, it reads "at least" or "at most" the other; if both are, it
    is empty.

    Args:
        show: an end -> its text.
    """
    if high is None:
        return Interval("" if low is None else f"[at least {show(low)}]")
    return Interval(f"[at most {show(high)}]" if low is None else f"[{show(low)}, {show(high)}]")


def or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


# -- of one finding ----------------------------------------------------------------------------------------------------


def subject(f: Finding) -> str:
    """Return the families, models or settings that a finding is about ("ViT vs ResNet")."""
    return " vs ".join(name.capitalize() if name == ALL_MODELS else name for name in f.subject)


def measure(f: Finding) -> str:
    """Return the words that follow the label of a finding that is not about the main tasks, such as ", pre-training
    set"; "" for the main tasks."""
    return MEASURES.get(f.measure, "")


def first(f: Finding, kind: type[T]) -> T | None:
    """Return the first item of the class `kind` in a finding's evidence; None if there is none."""
    return next((item for item in f.evidence if isinstance(item, kind)), None)


def every(f: Finding, kind: type[T]) -> list[T]:
    """Return all items of the class `kind` in a finding's evidence."""
    return [item for item in f.evidence if isinstance(item, kind)]


def differences(f: Finding, *, contrast: str = "", x: str = "images seen") -> list[str]:
    """Return sentences on the differences behind a mean: how many models differ by more than their own interval, and
    the differences on single tasks.

    Args:
        contrast: what models are compared with in the differences to use, such as "untrained"; "": all differences.
        x: what `Difference.from_x` and `to_x` are, in words.
    """
    compared = [d for d in every(f, Difference) if contrast in ("", d.contrast)]
    models = [d for d in compared if d.measure == f.measure and d.model]
    texts = []
    if len(models) == 1:
        d = models[0]
        at = f" at {flops(d.train_flops)}" if d.train_flops else ""
        change = "" if d.from_x is None or d.to_x is None else f", {count(d.from_x)} → {count(d.to_x)} {x}"
        texts.append(f"{d.model}{at}{change}.")
    elif models:
        up, down = (sum(d.verdict == verdict for d in models) for verdict in (Verdict.YES, Verdict.NO))
        what = "models" if len({d.model for d in models}) == len(models) else "budgets"
        lower = f", {down} lower" if up < len(models) else ""
        others = ", the others undecided" if up + down < len(models) else ""
        texts.append(f"Individually: {up} of {len(models)} {what} higher{lower}{others}.")
    tasks = [f"{measure_text(d.measure)} {points(d.estimate, d.low, d.high)}" for d in compared if not d.model]
    return [*texts, f"By task: {'; '.join(tasks)}."] if tasks else texts


# -- one sentence ------------------------------------------------------------------------------------------------------


def size(value: float, low: float | None, high: float | None) -> str:
    """Return the absolute value of a difference of accuracies with its interval, such as "3.1 points [1.0, 5.2]". Words
    before this text must express the sign."""
    turned = -1.0 if value < 0 else 1.0
    ends = sorted(turned * end for end in (low, high) if end is not None)
    interval = f"[{', '.join(f'{100 * end:.1f}'.replace('-', '−') for end in ends)}]" if len(ends) == 2 else ""
    return phrase(f"{100 * abs(value):.1f} points", " " if interval else "", Interval(interval))


def amount(f: Finding) -> str:
    """Return the absolute value of the difference that a finding estimates, with its interval ("3.1 points [1.0,
    5.2]")."""
    return size(or_nan(f.estimate), f.low, f.high)


def other(f: Finding) -> str:
    """Return the first name in a finding's subject that is not its leader: in a pair, the side that is behind."""
    return next((name for name in f.subject if name != f.leader), "the other")


def effect(f: Finding, cause: str, *, gives: str, costs: str, tail: str = "") -> str:
    """Return a sentence about a cause that increases or decreases accuracy ("Longer training gives ViT 3.1 points [1.0,
    5.2]").

    Args:
        cause: the cause, as the sentence's subject.
        gives, costs: the verb if the cause increases accuracy, and if it decreases it.
        tail: text at the end of the sentence.
    """
    return phrase(f"{cause} {gives if or_nan(f.estimate) >= 0 else costs} {subject(f)} ", amount(f), tail)


# -- reasons -----------------------------------------------------------------------------------------------------------


def _within(f: Finding) -> str:
    if f.estimate is None:
        return "The interval of the mean over the range includes zero."
    return f"The interval includes {'1' if f.unit == Unit.TIMES else 'zero'}."


def _throughout(f: Finding) -> str:
    share = f" in {f.agreement:.0%} of the resamples" if f.agreement is not None else " at every budget"
    return f"{f.leader} is ahead throughout the common range{share}."


def _deviation(item: LawDeviation) -> str:
    """Return a sentence that says by how much a law misses a measured point."""
    p = "" if item.p is None else " (p < 0.001)" if item.p < 0.001 else f" (p = {significant(item.p, 2)})"
    who = f"Lack of fit of {item.families[0]}'s law" if len(item.families) == 1 else "Lack of fit of the shared law"
    missed = f"error {percent(item.predicted)} % predicted, {percent(item.observed)} % measured{p}"
    return f"{who}: {missed}."


def begins(f: Finding) -> str:
    """Return a text that says why a comparison begins above the smallest compute ("below 85 GFLOPs ResNet has not begun
    to learn"); "" if it does not."""
    late = first(f, BeginsLater)
    if late is None:
        return ""
    verb = "has" if len(late.families) == 1 else "have"
    return f"below {flops(late.at)} {join(late.families)} {verb} not begun to learn"


def absent(f: Finding) -> list[str]:
    """Return a sentence for each best model of a family that was not trained to some of the budgets."""
    return [
        f"Not compared at {join([flops(x) for x in item.places])}: {item.model}, until then the best {item.family}, "
        "was not trained so far, and no other is as good there."
        for item in every(f, BestAbsent)
    ]


def below_pixels(f: Finding) -> list[str]:
    """Return a text for each family of a trend that is less accurate than raw pixels somewhere; the text says where."""
    said = []
    for name in f.subject:
        places = [p.x for p in f.trend if name in p.below]
        if len(places) == len(f.trend) > 0:
            said.append(f"{name} is below the pixel baseline throughout")
        elif places:
            said.append(f"{name} is below the pixel baseline at {join([place(f, x) for x in places])}")
    return said


def _several_models(f: Finding) -> str:
    said = [f"{item.family}'s law runs through {join(item.models)}" for item in every(f, SeveralModels)]
    return f"{'; '.join(said)}: where one model takes over from another no smooth law holds."


REASONS: Mapping[str, Sentence] = {
    Reason.WITHIN_INTERVAL: _within,
    Reason.UNREPLICATED: lambda f: (
        f"The interval excludes training noise: between single runs, "
        f"{100 * (f.margin or 0):.1f} points may be due to chance."
    ),
    Reason.NO_COMMON_RANGE: "The ranges overlap too little for a comparison.",
    Reason.TOO_FEW_SCORES: "Fewer than two budgets in the common range have scores for both.",
    Reason.TOO_FEW_POINTS: lambda f: f"{plural(f.n.points, 'point')}; a trend needs at least {TREND_POINTS}.",
    Reason.ORDER_CHANGES: "Each family is ahead in part of the range, by more than the interval.",
    Reason.AHEAD_THROUGHOUT: _throughout,
    Reason.FIT_FAILED: "No law could be fitted to these points.",
    Reason.CHANGES: "",
    Reason.BEGINS_LATER: lambda f: f"{begins(f).capitalize()}." if begins(f) else "",
    Reason.WITHIN_BUDGETS: "Models have one budget each and count within larger ones: not at equal compute.",
    Reason.SEVERAL_MODELS: _several_models,
    Reason.SEVERAL: "Beyond its own interval, perhaps, but not where all questions about families count (Holm).",
    Reason.LACK_OF_FIT: lambda f: " ".join(map(_deviation, every(f, LawDeviation))),
}
"""Words of the reasons that several questions give, by `Reason`: a sentence, or a function that makes one."""


def _narrower(f: Finding) -> str:
    """Return a sentence that says by what factor the interval would have to shrink to decide the question, if the
    estimate stayed as it is."""
    if f.estimate is None or f.low is None or f.high is None or not f.estimate - (f.unit == Unit.TIMES):
        return "It takes a narrower interval: more seeds, few-shot samples or test images."
    off = abs(f.estimate - (f.unit == Unit.TIMES))
    times = max(f.high - f.estimate, f.estimate - f.low) / off
    if times > MANY_TIMES:
        return f"It takes an interval more than {MANY_TIMES} times narrower, if there is a difference at all."
    more = "more rounds" if f.quantity == "speed ratio" else "more seeds, few-shot samples or test images"
    return f"It takes an interval {significant(max(times, 1.1), 2)} times narrower: {more}."


TAKES: Mapping[str, Sentence] = {
    Reason.WITHIN_INTERVAL: _narrower,
    Reason.UNREPLICATED: "It takes a second seed of every training (--seeds 2).",
    Reason.NO_COMMON_RANGE: "It takes a range that both were trained in.",
    Reason.TOO_FEW_SCORES: "It takes two budgets or more with scores of both.",
    Reason.TOO_FEW_POINTS: f"It takes {TREND_POINTS} points or more.",
    Reason.AHEAD_THROUGHOUT: "It takes a wider range, for one is ahead throughout this one.",
    Reason.FIT_FAILED: "It takes points that a law can be fitted to.",
    Reason.SEVERAL: "It takes a narrower interval: more seeds, few-shot samples or test images.",
    Reason.LACK_OF_FIT: "It takes points that the law does not miss.",
    Reason.SEVERAL_MODELS: "It takes one model along each law, or a measured change of the order.",
}
"""For reasons that leave a question undecided: what it would take to answer it."""
