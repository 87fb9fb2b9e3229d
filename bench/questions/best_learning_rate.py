"""What is the best learning rate of each model, and can it be predicted from smaller models of its family?

The rule for other sizes says that the logarithm of the chosen rate is linear in the logarithm of forward MACs per
image. It is fitted to the smaller sizes by least squares, and its prediction is rounded to the nearest rate of the
sweep. Each size with two or more smaller ones is held out in turn. The rule is right for a size if the predicted rate
is good enough (`is_rate_enough`). The rule is offered only if it is right for all held-out sizes, and if random choices
among the tried rates would be unlikely to be.

Findings:
    subject: model, pre-training set.
    estimate: the chosen rate, with its interval; None if the best rate is at or beyond an end of the sweep.
    YES: the best rate is inside the sweep.
    evidence: `Sweep`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import linear_regression

from bench.analysis import wording
from bench.analysis.comparisons import counts
from bench.analysis.evidence import UPSTREAM, Evidence
from bench.analysis.finding import Finding, Verdict
from bench.analysis.lr_sweep import Sweep, judged_on, sweeps
from bench.analysis.question import Question
from bench.analysis.table import Column, Table
from bench.core.formatting import compact, count, percent, plural, short_count, signed, significant
from bench.core.phrase import phrase
from bench.stats.intervals import POINT_LEVEL
from bench.study.cell import RATE_MARGIN, Recipe, is_rate_enough

NAME = "best learning rate"

# Reasons of a finding (`Finding.reasons`).
TOO_FEW_RATES = "too few rates"  # fewer than two learning rates were trained to the end
EDGE_OF_SWEEP = "edge of sweep"  # the best rate is at or beyond an end of the sweep: try `Sweep.further`
NO_CURVE = "no curve"  # the curve has no maximum near the best rate tried, which is chosen instead
OPEN_INTERVAL = "open interval"  # the interval of the best rate reaches an end of the sweep, or is unknown
DIVERGED = "diverged"  # some runs of the sweep diverged; such a rate is not chosen

MAX_P_VALUE = 0.05  # the rule for other sizes is offered if its p-value is at most this
MIN_FITTED_SIZES = 2  # sizes that the rule needs to predict a larger one


def best_learning_rates(evidence: Evidence) -> Iterator[Finding]:
    """Yield, for each model whose learning rate was swept, a finding on the rate to train it with, at the longest
    budget. YES: the best rate is inside the sweep. NO: it is at or beyond an end, and none is chosen."""
    for sweep in sweeps(evidence):
        accuracy, reasons = sweep.chosen.accuracy, []
        assert accuracy is not None
        verdict = Verdict.NO if sweep.edge else Verdict.YES
        if sum(t.eligible for t in sweep.tried) < 2:
            verdict, reasons = Verdict.CANNOT_TELL, [TOO_FEW_RATES]
        if sweep.edge:
            reasons.append(EDGE_OF_SWEEP)
        elif sweep.peak is None:
            reasons.append(NO_CURVE)
        elif sweep.is_open:
            reasons.append(OPEN_INTERVAL)
        if any(t.diverged for t in sweep.tried):
            reasons.append(DIVERGED)
        low, high = sweep.interval or (None, None)
        yield Finding(
            question=NAME,
            subject=(sweep.model, sweep.upstream),
            verdict=verdict,
            measure=UPSTREAM,
            reasons=tuple(reasons),
            quantity="learning rate",
            estimate=sweep.rate,
            low=low,
            high=high,
            level=POINT_LEVEL if sweep.interval else None,
            n=counts(accuracy, points=len(sweep.tried)),
            evidence=(sweep,),
        )


# -- learning rates for bench/suites/_recipes.py -----------------------------------------------------------------------


def family_rates(swept: Sequence[Sweep]) -> dict[str, float]:
    """Return family -> a learning rate for those of its models that were not swept: the geometric mean of the family's
    chosen rates at their longest budgets, rounded to two digits."""
    made = {}
    for family in dict.fromkeys(s.family for s in swept):
        if known := [s.rate for s in swept if s.family == family and s.rate is not None]:
            made[family] = _two_digits(math.exp(math.fsum(map(math.log, known)) / len(known)))
    return made


def model_rates(swept: Sequence[Sweep]) -> dict[str, dict[int, float]]:
    """Return model -> budget (images seen) -> chosen learning rate, for the shortest and the longest budget of each
    sweep; budgets without a chosen rate are left out."""
    made: dict[str, dict[int, float]] = {}
    for sweep in swept:
        for each in (sweep.shorter, sweep):
            if each is not None and each.rate is not None:
                made.setdefault(sweep.model, {})[each.images_seen] = each.rate
    return made


def _two_digits(rate: float) -> float:
    return float(f"{rate:.2g}")


# -- a rule for other sizes --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class HeldOutSize:
    """A test of the rule for learning rates: the rate of one network is predicted from those of smaller networks of its
    family.

    Attributes:
        model: name of the network.
        macs: its forward multiply-adds per image.
        fitted: number of smaller networks that the rule was fitted to.
        predicted: learning rate by the rule, rounded to the nearest one that was tried.
        chosen: learning rate that the network's own sweep chose.
        lacks: best accuracy minus accuracy at the predicted rate; None if a run at that rate diverged or is missing.
        chance: fraction of the tried rates that would count as right.
    """

    model: str
    macs: float
    fitted: int
    predicted: float
    chosen: float
    lacks: float | None
    chance: float

    @property
    def right(self) -> bool:
        return self.lacks is not None and is_rate_enough(lacks=self.lacks)


@dataclass(frozen=True, kw_only=True)
class RateRule:
    """The rule for learning rates of a family: rate = `scale` × MACs ** `exponent`, where MACs are those of the forward
    pass of one image.

    Attributes:
        family: name of the family.
        upstream: name of the pre-training set.
        sizes: number of sizes of the family, all of which the rule is fitted to.
        held_out: tests of the rule on sizes that were held out.
    """

    family: str
    upstream: str
    sizes: int
    scale: float
    exponent: float
    held_out: tuple[HeldOutSize, ...]

    @property
    def p_value(self) -> float:
        """Probability that rates picked at random among those tried would have been right for all held-out sizes."""
        return math.prod(each.chance for each in self.held_out)

    @property
    def offered(self) -> bool:
        return all(each.right for each in self.held_out) and self.p_value <= MAX_P_VALUE


def rules(evidence: Evidence) -> tuple[RateRule, ...]:
    """Return the rule for learning rates of each family of which at least three sizes were swept on the same images
    with the same recipe."""
    records = {record.directory: record for record in (evidence.swept or evidence).records.records}
    alike: dict[tuple[str, str, int, Recipe], dict[float, Sweep]] = {}
    for sweep in sweeps(evidence):
        record = records[sweep.tried[0].cells[0]]
        if (macs := record.model.forward_macs.dense) and sum(t.eligible for t in sweep.tried) > 1:
            key = sweep.family, sweep.upstream, sweep.images_seen, replace(record.cell.recipe, lr=0.0)
            alike.setdefault(key, {})[float(macs)] = sweep
    return tuple(_rule(by_size) for by_size in alike.values() if len(by_size) > MIN_FITTED_SIZES)


def _rule(by_size: dict[float, Sweep]) -> RateRule:
    sizes = sorted(by_size.items())
    chosen = [(macs, sweep.chosen.rate) for macs, sweep in sizes]
    held_out = []
    for number, (macs, sweep) in enumerate(sizes[MIN_FITTED_SIZES:], MIN_FITTED_SIZES):
        scale, exponent = _fit(chosen[:number])
        wanted = math.log(scale * macs**exponent)
        nearest = min(sweep.tried, key=lambda tried: (abs(math.log(tried.rate) - wanted), tried.rate))
        assert sweep.best.accuracy is not None
        best = sweep.best.accuracy.value
        lacks = {t.rate: best - t.accuracy.value for t in sweep.tried if t.eligible and t.accuracy is not None}
        held_out.append(
            HeldOutSize(
                model=sweep.model,
                macs=macs,
                fitted=number,
                predicted=nearest.rate,
                chosen=sweep.chosen.rate,
                lacks=lacks.get(nearest.rate),
                chance=sum(is_rate_enough(lacks=value) for value in lacks.values()) / len(sweep.tried),
            )
        )
    scale, exponent = _fit(chosen)
    some = sizes[0][1]
    return RateRule(
        family=some.family,
        upstream=some.upstream,
        sizes=len(sizes),
        scale=scale,
        exponent=exponent,
        held_out=tuple(held_out),
    )


def _fit(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return (scale, exponent) of the rule rate = scale × MACs ** exponent, fitted to (MACs, rate) of each model by
    least squares of logarithms."""
    line = linear_regression([math.log(macs) for macs, _ in points], [math.log(rate) for _, rate in points])
    return math.exp(line.intercept), line.slope


# -- words -------------------------------------------------------------------------------------------------------------


def say(f: Finding) -> list[str]:
    sweep = wording.first(f, Sweep)
    if sweep is None or sweep.best.accuracy is None:
        return []
    tried = f"{plural(len(sweep.tried), 'rate')} from {sweep.tried[0].rate:g} to {sweep.tried[-1].rate:g}"
    best = f"of {tried}, {sweep.best.rate:g} has the highest accuracy, {percent(sweep.best.accuracy.value)} %"
    budget = f"After {count(sweep.images_seen)} images seen, {best}."
    return [budget, _sensitivity(sweep), _by_budget(sweep)]


def _sensitivity(sweep: Sweep) -> str:
    lost = [(what, sweep.lost_at(factor)) for what, factor in (("half", 0.5), ("twice", 2.0))]
    known = [f"{signed(-value)} points at {what} the rate" for what, value in lost if value is not None]
    return f"By the curve through the runs: {', '.join(known)}." if known else ""


def _by_budget(sweep: Sweep) -> str:
    """Return a sentence that compares the best rate at the longest budget of a sweep with that at the shortest; "" if
    one of the two is unknown."""
    shorter, times = sweep.shorter, sweep.ratio_to_shorter
    if shorter is None or times is None:
        return ""
    value, low, high = times
    agree = "; the two budgets agree within it" if low <= 1 <= high else ""
    factor = significant(sweep.images_seen / shorter.images_seen)
    return (
        f"The best rate at {factor} times the budget is {_times(value, low, high)} times that at the short one{agree}."
    )


def _times(value: float, low: float, high: float) -> str:
    ends = ", ".join("unbounded" if not 1e-3 < end < 1e3 else f"{end:.2g}" for end in (low, high))
    return f"{value:.2g}" + ("" if math.isnan(low) else f" [{ends}]")


def _further(f: Finding) -> str:
    sweep = wording.first(f, Sweep)
    return refused(sweep) if sweep is not None and sweep.edge else ""


def refused(sweep: Sweep) -> str:
    """Return a sentence that says that the best rate of a sweep is at or beyond its edge, and which rates to try
    next."""
    further = ",".join(f"{rate:.3g}" for rate in sweep.further)
    return f"The best rate lies at or beyond the sweep's edge: sweep {further} too (--sweep lr={further})."


def _diverged(f: Finding) -> str:
    sweep = wording.first(f, Sweep)
    rates = [f"{t.rate:g}" for t in sweep.tried if t.diverged] if sweep else []
    return f"Diverged: {', '.join(rates)}." if rates else ""


def subject(f: Finding) -> str:
    return f.subject[0]


def together(found: Sequence[Finding]) -> str | None:
    """Return a sentence on the range of the best learning rates of all models, which also says how many of these rates
    lie surely inside their sweep; None if fewer than two models have a best rate."""
    known = [f for f in found if f.estimate is not None]
    if len(known) < 2:
        return None
    rates = sorted(f.estimate for f in known if f.estimate is not None)
    bounded = sum(f.low is not None and not {OPEN_INTERVAL, EDGE_OF_SWEEP} & set(f.reasons) for f in known)
    of = f"{len(known)} of {len(found)}" if len(known) < len(found) else str(len(found))
    inside = "all" if bounded == len(known) else bounded or "none"
    return (
        f"The best learning rates of {of} networks lie between {rates[0]:.2g} and {rates[-1]:.2g}; the sweep bounds "
        f"{inside} of them on both sides."
    )


# -- tables ------------------------------------------------------------------------------------------------------------


def tables(evidence: Evidence) -> list[Table]:
    return [table for table in (best_rates(evidence), rates(evidence), rate_rule(evidence)) if table is not None]


def rates(evidence: Evidence) -> Table | None:
    """Return a table with one row per model, budget and tried learning rate; None if no rates were swept."""
    swept = sweeps(evidence)
    rows = [
        {
            "model": s.model,
            "family": s.family,
            "data": s.upstream,
            "seen": s.images_seen,
            "rate": t.rate,
            "accuracy": t.accuracy,
            "diverged": t.diverged or None,
            "chosen": "nearest to the best" if t is s.chosen and not s.edge else "",
            "edge": f"best, {s.edge} tried" if t is s.best and s.edge else "",
        }
        for longest in swept
        for s in (longest.shorter, longest)
        if s is not None
        for t in s.tried
    ]
    columns = (
        Column(key="model", heading="Model", numeric=False),
        Column(key="family", heading="Family", numeric=False),
        Column(key="data", heading="Upstream", numeric=False),
        Column(key="seen", heading="Images seen", text=count),
        Column(key="rate", heading="Learning rate", text=lambda v: f"{v:g}"),
        Column(key="accuracy", heading="Pre-training accuracy [%]"),
        Column(key="diverged", heading="Runs diverged"),
        Column(key="chosen", heading="Chosen", numeric=False),
        Column(key="edge", heading="Edge of the sweep", numeric=False),
    )
    note = f"Accuracy on {judged_on(swept)}. A rate at which a run diverged is not chosen."
    return Table(name="rates", title="Learning rates", columns=columns, rows=tuple(rows), note=note) if rows else None


def best_rates(evidence: Evidence) -> Table | None:
    """Return a table with one row per model and budget: the best learning rate with its interval, and the accuracy that
    is lost at half and at twice that rate; None if no rates were swept."""
    swept = sweeps(evidence)
    rows = []
    for longest in swept:
        for s in (longest.shorter, longest):
            if s is not None:
                low, high = s.interval or (None, None)
                times = longest.ratio_to_shorter if s is longest else None
                rows.append(
                    {
                        "model": s.model,
                        "data": s.upstream,
                        "seen": s.images_seen,
                        "rate": s.rate,
                        "low": low,
                        "high": high,
                        "half": s.lost_at(0.5),
                        "twice": s.lost_at(2.0),
                        "ratio": _times(*times) if times else "",
                        "remark": refused(s) if s.edge else "" if not s.is_open else "interval reaches the edge",
                    }
                )
    columns = (
        Column(key="model", heading="Model", numeric=False),
        Column(key="data", heading="Upstream", numeric=False),
        Column(key="seen", heading="Images seen", text=count),
        Column(key="rate", heading="Best rate", text=_rate),
        Column(key="low", heading="from", text=_rate),
        Column(key="high", heading="to", text=_rate),
        Column(key="half", heading="Lost at half the rate [points]", text=percent),
        Column(key="twice", heading="Lost at twice the rate [points]", text=percent),
        Column(key="ratio", heading="Best rate / that at the short budget", numeric=False),
        Column(key="remark", heading="Remark", numeric=False),
    )
    note = (
        "Best rate: the maximum of a curve (log-odds of accuracy over the logarithm of the rate, a cubic of five rates "
        f"or a parabola of fewer, a level per seed), with its {POINT_LEVEL:.0%} interval, cut where a rate "
        "is lower by more than chance, and at the ends of the sweep."
    )
    # The suite `rates` is what bench/suites/_recipes.py takes its rates from; other sweeps are not.
    if evidence.records.suite == "rates" and len({s.model for s in swept}) == len(swept):
        dictionaries: dict[str, object] = {"FAMILY_RATES": family_rates(swept), "MODEL_RATES": model_rates(swept)}
        scale = f'["{evidence.records.wanted.scale}"]' if evidence.records.wanted else ""
        lines = [f"{name}{scale} = {chosen}" for name, chosen in dictionaries.items()]
        note += f" For bench/suites/_recipes.py: {'; '.join(lines)}."
    name, title = "best-rates", "Best learning rates"
    return Table(name=name, title=title, columns=columns, rows=tuple(rows), note=note) if rows else None


def _rate(rate: float) -> str:
    return f"{rate:.2g}"


def rate_rule(evidence: Evidence) -> Table | None:
    """Return a table with one row per size that a rule for learning rates was tested on; None if no family was swept at
    enough sizes."""
    fitted = rules(evidence)
    rows = [
        {
            "family": rule.family,
            "data": rule.upstream,
            "model": each.model,
            "macs": each.macs,
            "fitted": each.fitted,
            "predicted": each.predicted,
            "chosen": each.chosen,
            "factor": each.predicted / each.chosen,
            "lacks": each.lacks,
            "right": "yes" if each.right else "no",
        }
        for rule in fitted
        for each in rule.held_out
    ]
    columns = (
        Column(key="family", heading="Family", numeric=False),
        Column(key="data", heading="Upstream", numeric=False),
        Column(key="model", heading="Held out", numeric=False),
        Column(key="macs", heading="MACs/image", text=short_count),
        Column(key="fitted", heading="Smaller sizes"),
        Column(key="predicted", heading="Predicted rate", text=lambda v: f"{v:g}"),
        Column(key="chosen", heading="Chosen", text=lambda v: f"{v:g}"),
        Column(key="factor", heading="Predicted / chosen", text=significant),
        Column(key="lacks", heading="Accuracy below the best [points]", text=percent),
        Column(key="right", heading=f"Within {100 * RATE_MARGIN:g} points", numeric=False),
    )
    note = "The rule: log rate linear in log MACs, fitted to the smaller sizes, to the nearest rate tried. " + " ".join(
        map(_offered, fitted)
    )
    return (
        Table(
            name="rate-rule",
            title="Learning rates predicted from smaller models",
            columns=columns,
            rows=tuple(rows),
            note=note,
        )
        if rows
        else None
    )


def _offered(rule: RateRule) -> str:
    """Return a text that says whether a rule for learning rates can be used and, if not, why."""
    right, held_out = sum(each.right for each in rule.held_out), len(rule.held_out)
    if rule.offered:
        return (
            f"{rule.family}: right on all {held_out} sizes held out (by chance: {rule.p_value:.1%}); rate = "
            f"{compact(rule.scale, 3)} × MACs^{rule.exponent:.2f} for the next size."
        )
    why = f"right on {right} of {plural(held_out, 'size')} held out"
    if right == held_out:
        why += f", which happens by chance with probability {rule.p_value:.0%}: too few sizes"
    return f"{rule.family}: no rule offered, {why}."


def sentence(f: Finding) -> str:
    (swept,) = wording.every(f, Sweep)
    after = f"after {count(swept.images_seen)} images seen"
    if f.estimate is None:
        return f"{f.subject[0]} trains best at or beyond the edge of its sweep, {after}: no rate is chosen"
    return phrase(f"{f.subject[0]} trains best at a learning rate of ", wording.number(f).text, f", {after}")


QUESTION = Question(
    name=NAME,
    label="Best learning rate?",
    text="What is the best learning rate of each model?",
    yes="in the sweep",
    no="at the edge",
    ask=best_learning_rates,
    say=say,
    reasons={
        TOO_FEW_RATES: "Fewer than two learning rates completed training.",
        EDGE_OF_SWEEP: _further,
        NO_CURVE: "No smooth curve through the runs has a maximum: the best rate tried is given, without interval.",
        OPEN_INTERVAL: "The interval reaches an end of the sweep, or nothing is known of the noise.",
        DIVERGED: _diverged,
    },
    items=(Sweep,),
    leads=lambda f: f.estimate is not None and OPEN_INTERVAL not in f.reasons,
    order=30,
    subject=subject,
    measure=lambda f: "",
    tables=tables,
    figures=("learning-rates",),
    sentence=sentence,
    together=together,
)
