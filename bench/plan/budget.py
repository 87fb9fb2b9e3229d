"""Choose the part of a suite's grid that answers its question best within a budget: --budget 200gpuh, 12h, or 500eur
with --price.

A grid consists of units; a unit is a model with a number of training images, and has horizons (the budgets at which it
is evaluated) and a number of seeds. The answer is the lead of each family over each other, their difference in accuracy
at equal compute (and at equal numbers of images, where the suite asks for them), averaged over the range that the whole
grid spans. The width of its interval is predicted from variance components (bench/stats/components.py): those of the
study's own records where there are enough, else those of the main study, an assumption that is stated. The search
starts from the whole grid, removes what narrows the intervals least for its time until the rest fits, and then makes
single exchanges as long as one helps.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.core.by_key import by_key
from bench.core.errors import UserError, nearest
from bench.core.formatting import duration, join, significant
from bench.plan.passes.chosen_grid import GridLine
from bench.stats.components import LAW_DEGREE, Arm, Components, Observations, Target, fit, half_width
from bench.study import registry
from bench.study.cell import Cell, Recipe
from bench.train.schedule import images_trained

if TYPE_CHECKING:
    from bench.analysis.evidence import Evidence
    from bench.plan.plan import Plan, PlannedCell

BUDGET_PATTERN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([a-z]+|[€$£¥])")
UNITS = {"gpuh": ("device", 1.0), "h": ("wall", 1.0), "min": ("wall", 1 / 60)}
CURRENCIES = "€ $ £ ¥ eur usd gbp jpy chf cny inr cad aud"
ASSUMED_COMPONENTS = Components(model=0.0169, point=5.5e-4, trunk=3.8e-5, run=2.0e-4, df=10)
"""Variance components of the accuracy by which the main study (suite `scaling`) is judged at scale `cpu`, on two cores.
For any other study they are an assumption."""
MIN_RECORDS = 20  # least number of results for which a study's own variance components are used
MAX_SEED_FACTOR = 2  # a choice has at most this many times the suite's number of seeds
MAX_SWAPS = 4  # largest number of exchanges in a search
POINTS_PER_LEAD = 17  # values of x over which a lead is averaged
COMPUTE, IMAGES = "compute", "data_size"  # axes, which are comparisons of a suite
LEAD_OVER = {COMPUTE: "at equal compute", IMAGES: "at equal numbers of images"}
COMPUTE_WEIGHT = 3.0  # weight of a lead at equal compute; a lead at equal numbers of images has weight 1
Unit = tuple[str, int | None]  # (a model, its number of training images; None: all of the set)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a study may cost.

    Attributes:
        amount: hours, or a sum of money, as `unit` says.
        unit: "device" for hours summed over devices, "wall" for hours of wall time, or "money".
        typed: (unit, amount) as the user typed them, such as ("min", 30.0).
    """

    amount: float
    unit: str
    typed: tuple[str, float] = field(default=("", 1.0), compare=False)


def parse(text: str) -> Budget:
    """Return the budget that a text states: "200gpuh" (hours of one device), "12h" or "30min" (of wall time), "500eur".

    Raises:
        UserError: the text has another form.
    """
    match = BUDGET_PATTERN.fullmatch(text.strip().lower())
    if match is None or match[2] not in (*UNITS, *CURRENCIES.split()) or not float(match[1]):
        close = nearest(match[2], UNITS) if match and match[2] not in UNITS else []
        hint = f"Did you mean {match[1]}{close[0]}? " if match and close else ""
        forms = "Give 200gpuh, 12h or 30min of wall time, or money as 500eur with --price"
        raise UserError(f"{text!r} is no budget.", f"{hint}{forms} ({CURRENCIES}).")
    unit, factor = UNITS.get(match[2], ("money", 1.0))
    return Budget(amount=float(match[1]) * factor, unit=unit, typed=(match[2], float(match[1])))


def within(plan: Plan, budget: Budget) -> float:
    """Return the seconds of work that a budget allows on the plan's devices, summed over workers (a worker does one
    cell at a time).

    Raises:
        UserError: the budget is money, and no price is given.
    """
    if budget.unit == "wall":
        return budget.amount * 3600 * plan.cost.workers
    if budget.unit == "device":
        return budget.amount * 3600 / plan.cost.ranks
    if plan.machine.per_hour is None or plan.machine.hardware is None:
        raise UserError("A budget of money needs a price.", "Give --hardware 8xH100 --price 2.5/gpuh.")
    amount, for_one = plan.machine.per_hour
    return budget.amount / amount * 3600 * (1 / plan.cost.ranks if for_one else plan.cost.workers)


# -- what can be chosen ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Training:
    """What it costs to train a model on one number of images, with one seed and one recipe.

    Attributes:
        recipe: the recipe, which decides how many images a list of horizons takes.
        per_image: seconds of training per image.
        per_horizon: seconds of evaluation per horizon.
    """

    recipe: Recipe
    per_image: float
    per_horizon: float

    def seconds(self, horizons: tuple[int, ...]) -> float:
        return images_trained(self.recipe, horizons) * self.per_image + len(horizons) * self.per_horizon


@dataclass(frozen=True, kw_only=True)
class GridOption:
    """A unit that a grid may contain, which is one model on one number of images: what its training runs cost, and
    where its horizons lie on the axis of compute.

    Attributes:
        cell: a cell of the suite with this model and number of images.
        family: family of the model.
        x: horizon in images -> log2 of its training FLOPs.
        whole: whether no unit of the study trains on more images: this one trains on all, or on the N of a set that is
            named NAME@N.
        trainings: the training runs of one seed: several where the study has several data sets, or sweeps recipes. A
            choice holds for all of them.
        seeds: number of seeds in the suite.
        most: largest number of seeds that may be chosen.
    """

    cell: Cell
    family: str
    x: Mapping[int, float]
    whole: bool
    trainings: tuple[Training, ...]
    seeds: int
    most: int

    @property
    def unit(self) -> Unit:
        return self.cell.model, self.cell.num_images

    def is_on(self, axis: str) -> bool:
        """Return whether this option is part of an axis, a comparison of the suite: `IMAGES`, or `COMPUTE`, to which
        only options belong that train on all images."""
        return axis in self.cell.axes and (axis != COMPUTE or self.whole)

    def seconds(self, horizons: Iterable[int]) -> float:
        """Return the seconds that the training runs of one seed take with evaluations at these horizons, and of the
        untrained network where the suite evaluates it."""
        kept = tuple(sorted({*horizons, *({0} & set(self.cell.horizons))}))
        if kept in ((), (0,)):
            return 0.0
        return sum(training.seconds(kept) for training in self.trainings)


Choice = dict[Unit, tuple[tuple[int, ...], int]]
"""A chosen grid: unit that is trained -> (its horizons in images, its number of seeds)."""


@dataclass(frozen=True, kw_only=True)
class GridQuestion:
    """What grids are judged by: the leads of families that are asked for, what units cost, and how much results vary.

    Attributes:
        options: unit -> its costs and its place on the axes.
        fixed: seconds of cells that every grid has (raw pixels).
        components: variances from which the widths of intervals are predicted.
        compute: leads at equal compute.
        images: leads at equal numbers of images.
        source: where the components come from, in words.
    """

    options: Mapping[Unit, GridOption]
    fixed: float
    components: Components
    compute: tuple[Target, ...]
    images: tuple[Target, ...]
    source: str

    @property
    def families(self) -> dict[str, str]:
        return {option.cell.model: option.family for option in self.options.values()}

    def whole(self) -> Choice:
        """Return the suite's own grid: every model and number of images, with all of its horizons (budgets) and
        seeds."""
        return {unit: (tuple(option.x), option.seeds) for unit, option in self.options.items()}

    def seconds(self, choice: Choice) -> float:
        """Return the seconds that a chosen grid takes on one worker, including the cells that every grid has (raw
        pixels)."""
        return self.fixed + sum(
            seeds * self.options[unit].seconds(horizons) for unit, (horizons, seeds) in choice.items()
        )

    def half_widths(self, choice: Choice) -> dict[str, float]:
        """Return name of a lead (of one family over another) -> expected half-width of its interval, as a fraction
        (0.01 is one percentage point); infinite if the choice cannot determine the lead."""
        arms = [
            Arm(
                model=unit[0],
                family=self.options[unit].family,
                seeds=seeds,
                x=tuple(self.options[unit].x[h] for h in horizons),
            )
            for unit, (horizons, seeds) in choice.items()
            if self.options[unit].is_on(COMPUTE)
        ]
        widths = {name(t, COMPUTE): half_width(arms, self.components, t, families=self.families) for t in self.compute}
        sized = {unit[0]: option.family for unit, option in self.options.items() if option.is_on(IMAGES)}
        places = {point[1 + side] for target in self.images for point in target.points for side in (0, 1)}
        parts = []
        for (model, size), (horizons, seeds) in choice.items():
            number = self._number(model, size, horizons)
            if model in places and number is not None:
                parts.append(Arm(model=model, family=sized[model], x=(math.log2(number),), seeds=seeds))
        return widths | {name(t, IMAGES): half_width(parts, self.components, t, families=sized) for t in self.images}

    def _number(self, model: str, size: int | None, horizons: Sequence[int]) -> int | None:
        """Return the number of distinct images for which a unit, a model trained on `size` images, stands in the
        comparison over numbers of images; None if it is not part of it.

        A unit on a part of a set stands for `size`. A unit on all images is part of the comparison only if it is
        evaluated (at `horizons`) at the horizon of the units on parts. If `size` is None, since it is not stated, it
        stands for as many images as that horizon has.
        """
        if not self.options[model, size].whole:
            return size
        parts = [o for (other, _), o in self.options.items() if other == model and not o.whole]
        read_at = next(iter(parts[0].x), None) if parts else None
        return (size or read_at) if read_at in horizons else None

    def loss(self, choice: Choice, best: Mapping[str, float]) -> float:
        """Return the loss of a choice, which the search makes small: the weighted mean of (half-width / half-width in
        the whole grid)² over all leads of one family over another. Leads at equal compute, the suite's first question,
        count more.

        Args:
            best: name of a lead -> its half-width in the whole grid.
        """
        widths = self.half_widths(choice)
        weights = {key: 1.0 if key.endswith(LEAD_OVER[IMAGES]) else COMPUTE_WEIGHT for key in widths}
        return sum(weights[key] * (widths[key] / best[key]) ** 2 for key in widths) / sum(weights.values())


def name(target: Target, axis: str) -> str:
    """Return the name of the lead of one family over another (`target`) on an axis, `COMPUTE` or `IMAGES`: such as "ViT
    − ResNet at equal compute"."""
    return f"{' − '.join(target.pair)} {LEAD_OVER[axis]}"


def question(plan: Plan, evidence: Evidence | None = None) -> GridQuestion:
    """Return what parts of a plan's grid are judged by: leads of families over each other, costs and variances.

    Args:
        evidence: results of the same suite, from which variance components and the best model of each family are taken;
            None: both are assumed.

    Raises:
        UserError: the suite compares no families over compute, or has several lists of budgets for a model.
    """
    options: dict[Unit, GridOption] = {}
    trained = [p for p in plan.cells if p.cell.job == "train" and p.cell.horizons != (0,) and p.seconds]
    most = max((p.cell.num_images or math.inf for p in trained), default=math.inf)
    for unit, group in by_key(((p.cell.model, p.cell.num_images), p) for p in trained).items():
        options[unit] = _option(group, whole=(unit[1] or math.inf) == most)
    on_compute = {unit[0]: option for unit, option in options.items() if option.is_on(COMPUTE)}
    pairs = list(itertools.combinations(sorted({o.family for o in on_compute.values()}), 2))
    if not pairs:
        raise UserError(
            f"--budget chooses among families over compute, and suite {plan.suite!r} compares none.",
            "Use it with --suite scaling, or give --horizons, --models, --seeds.",
        )
    components, curves, source = (
        ASSUMED_COMPONENTS,
        dict[str, dict[float, float]](),
        "assumed to be those of the main study",
    )
    seen = None if evidence is None else observations(evidence, of={p.cell.data for p in trained})
    if seen is not None and len(seen.values) >= MIN_RECORDS:
        estimate = fit(seen)
        if estimate.df >= 3:
            components, source = estimate, f"estimated from {len(seen.values)} results of this study"
            curves = _curves(seen)
    parts = {unit[0]: option for unit, option in options.items() if not option.whole}
    return GridQuestion(
        options=options,
        components=components,
        source=source,
        fixed=sum(p.seconds or 0.0 for p in plan.cells if p not in trained),
        compute=tuple(t for pair in pairs if (t := _over_compute(pair, on_compute, curves)) is not None),
        images=tuple(
            _over_images(pair, parts, options)
            for pair in itertools.combinations(sorted({o.family for o in parts.values()}), 2)
        ),
    )


def _option(group: Sequence[PlannedCell], *, whole: bool) -> GridOption:
    """Return the grid option of one unit, which is a model on one number of images.

    Args:
        group: all planned cells of the unit.
        whole: whether no unit of the study trains on more images.

    Raises:
        UserError: the cells have different lists of budgets.
    """
    first, seeds = max(group, key=lambda p: len(p.cell.axes)), len({p.cell.seed for p in group})
    cell, flops = first.cell, (first.flops or {}).get("paper", 0) / max(1, first.images)
    each = {replace(p.cell, seed=0): p for p in reversed(group)}  # one cell of each training, whatever its seed
    if len({tuple(h for h in p.cell.horizons if h) for p in each.values()}) > 1:
        raise UserError(
            f"--budget chooses one list of budgets per model, and this study has several of {cell.model}.",
            "Give --horizons, or one of --data.",
        )
    return GridOption(
        cell=cell,
        family=registry.family_of(cell.model).label,
        whole=whole,
        seeds=seeds,
        most=MAX_SEED_FACTOR * seeds,
        x={h: math.log2(max(1.0, flops * h)) for h in cell.horizons if h},
        trainings=tuple(map(_training, each.values())),
    )


def _training(planned: PlannedCell) -> Training:
    seconds, share = planned.seconds or 0.0, planned.evaluate_share
    return Training(
        recipe=planned.cell.recipe,
        per_image=seconds * (1 - share) / max(1, planned.images),
        per_horizon=seconds * share / len(planned.cell.horizons),
    )


def _over_compute(
    pair: tuple[str, str], options: Mapping[str, GridOption], curves: Mapping[str, Mapping[float, float]]
) -> Target | None:
    """Return the lead of the first family of a pair over the second at equal compute, over the range of compute that
    both cover; None if there is no such range.

    Args:
        options: model -> its unit on all images.
        curves: model -> log2 of training FLOPs -> mean accuracy in records; empty without enough records.
    """
    spans = []
    for family in pair:
        xs = [x for o in options.values() if o.family == family for x in o.x.values()]
        spans.append((min(xs), max(xs)))
    low, high = max(s[0] for s in spans), min(s[1] for s in spans)
    if not low < high:
        return None
    xs = [float(x) for x in np.linspace(low, high, POINTS_PER_LEAD)]
    points = tuple((x, *(_standing(family, x, options, curves) for family in pair)) for x in xs)
    return Target(pair=pair, points=points)  # type: ignore[arg-type]


def _standing(
    family: str, x: float, options: Mapping[str, GridOption], curves: Mapping[str, Mapping[float, float]]
) -> str:
    """Return the model that represents a family at a level of compute.

    Models whose smallest budget is above `x` are left out, if others remain. Of the rest it is the best by `curves`,
    or, if one of them has no curve, the one for which the middle of its budgets is nearest to `x`.

    Args:
        x: log2 of training FLOPs.
        options, curves: as for `_over_compute`.
    """
    mine = {model: sorted(o.x.values()) for model, o in options.items() if o.family == family}
    begun = {model: xs for model, xs in mine.items() if xs[0] <= x + 1e-9} or mine
    if all(model in curves for model in begun):
        return max(begun, key=lambda m: np.interp(x, sorted(curves[m]), [curves[m][at] for at in sorted(curves[m])]))
    return min(begun, key=lambda model: abs(x - (begun[model][0] + begun[model][-1]) / 2))


def _over_images(pair: tuple[str, str], parts: Mapping[str, GridOption], options: Mapping[Unit, GridOption]) -> Target:
    """Return the lead of the first family of a pair over the second at equal numbers of images. It ranges from the
    smallest part of a set to the largest number of images, or, if the size of the whole set is not stated, to the
    horizon, at which each image is seen once.

    Args:
        parts: model -> one of its units on a part of the images.
        options: unit -> grid option, for all units.
    """
    first, second = (next(m for m, o in parts.items() if o.family == family) for family in pair)
    sizes = [n for model, n in options if n is not None and model in (first, second)]
    is_counted = all(n is not None for _, n in options)  # else the whole set's size is unknown
    most = max(sizes) if is_counted else max(max(sizes), min(max(parts[m].x) for m in (first, second)))
    xs = np.linspace(math.log2(min(sizes)), math.log2(most), POINTS_PER_LEAD)
    return Target(pair=pair, points=tuple((float(x), first, second) for x in xs))


def observations(
    evidence: Evidence, measure: str = "headline", *, of: Collection[str] | None = None
) -> Observations | None:
    """Return every result on the compute axis as data to estimate variance components from, averaged over few-shot
    samples; None if there is no result. Accuracy follows a law of its own on each upstream (pre-training) set, so only
    the results on the set that has the most are returned.

    Args:
        measure: name of the score.
        of: upstream sets that count; None: any.
    """
    by_data: dict[str, list[tuple[float, float, str, str, str, str]]] = {}
    for point in evidence.points.values():
        counts = point.trained and "compute" in point.axes and (of is None or point.data in of)
        samples = evidence.samples(point, measure) if counts else None
        if samples is None or not samples.seeds:
            continue
        x, variant = math.log2(point.train_flops), point.variant
        for seed, values_D in zip(samples.seeds, samples.values_SD, strict=True):
            row = float(values_D.mean()), x, point.family, point.model, variant, f"{variant} {seed}"
            by_data.setdefault(point.data, []).append(row)
    if not by_data:
        return None
    values, xs, families, models, variants, trunks = zip(*max(by_data.values(), key=len), strict=True)
    return Observations(values=values, x=xs, families=families, models=models, variants=variants, trunks=trunks)


def _curves(seen: Observations) -> dict[str, dict[float, float]]:
    values: dict[str, dict[float, list[float]]] = {}
    for model, x, value in zip(seen.models, seen.x, seen.values, strict=True):
        values.setdefault(model, {}).setdefault(x, []).append(value)
    return {model: {x: sum(v) / len(v) for x, v in curve.items()} for model, curve in values.items()}


# -- choosing ----------------------------------------------------------------------------------------------------------


def choose(asked: GridQuestion, seconds: float, *, budget: Budget | None = None) -> Choice:
    """Return the choice with the least loss (`GridQuestion.loss`) that takes at most `seconds` of one worker.

    Args:
        budget: the budget that the seconds come from. If it is too small, the error names the least budget in its unit,
            and without it in seconds of a worker only.

    Raises:
        UserError: the budget is too small for any comparison.
    """
    best = asked.half_widths(asked.whole())
    starts = [_removed(asked, _seeds(asked, more), seconds, best) for more in (1.0, 0.5, MAX_SEED_FACTOR)]
    starts = [_least(asked), min(starts, key=lambda c: asked.loss(c, best))]
    fitting = [
        _exchanged(asked, c, seconds, best)
        for c in starts
        if asked.seconds(c) <= seconds and math.isfinite(asked.loss(c, best))
    ]
    if not fitting:
        least = asked.seconds(_least(asked))
        cheapest = f"{duration(least)} of one worker"
        if budget is not None and seconds:
            unit, given = budget.typed
            cheapest = f"{significant(given * least / seconds, 2)}{unit} ({cheapest})"
        raise UserError(
            f"This budget is too small to compare families: about {cheapest} is the least.",
            "Give more, or a smaller suite.",
        )
    return min(fitting, key=lambda c: asked.loss(c, best))


def _seeds(asked: GridQuestion, factor: float) -> Choice:
    return {
        unit: (h, min(asked.options[unit].most, max(1, round(n * factor)))) for unit, (h, n) in asked.whole().items()
    }


def _smaller(choice: Choice) -> list[Choice]:
    """Return every choice that has one horizon, one seed or one unit (a model on one number of images) fewer."""
    choices = []
    for unit, (horizons, seeds) in choice.items():
        if len(horizons) > 1:
            choices += [{**choice, unit: (tuple(h for h in horizons if h != drop), seeds)} for drop in horizons]
        if seeds > 1:
            choices.append({**choice, unit: (horizons, seeds - 1)})
        choices.append({other: value for other, value in choice.items() if other != unit})
    return choices


def _larger(asked: GridQuestion, choice: Choice) -> list[Choice]:
    """Return every choice that has one horizon, one seed or one unit (a model on one number of images) more. A unit is
    added with one of its horizons, or with all."""
    choices = []
    for unit, option in asked.options.items():
        if unit not in choice:
            choices += [{**choice, unit: ((h,), 1)} for h in option.x] + [{**choice, unit: (tuple(option.x), 1)}]
            continue
        horizons, seeds = choice[unit]
        choices += [{**choice, unit: (tuple(sorted((*horizons, h))), seeds)} for h in option.x if h not in horizons]
        if seeds < option.most:
            choices.append({**choice, unit: (horizons, seeds + 1)})
    return choices


def _removed(asked: GridQuestion, choice: Choice, seconds: float, best: Mapping[str, float]) -> Choice:
    """Return a choice from which horizons, seeds and units were removed one at a time until it fits into `seconds` of
    one worker, always the one whose removal adds least loss for the time that it saves. If no removal saves time any
    more, the choice may still not fit.

    Args:
        best: as for `GridQuestion.loss`.
    """
    while choice and (now := asked.seconds(choice)) > seconds:
        loss, options = asked.loss(choice, best), list[tuple[float, float, int, Choice]]()
        for other in _smaller(choice):
            saved = min(now - seconds, now - asked.seconds(other))
            if saved > 0:
                options.append(((asked.loss(other, best) - loss) / saved, -saved, len(options), other))
        if not options:
            return choice
        choice = min(options)[-1]
    return choice


def _exchanged(asked: GridQuestion, choice: Choice, seconds: float, best: Mapping[str, float]) -> Choice:
    """Return a choice to which horizons, seeds and units were added one at a time as long as one fits into `seconds` of
    one worker, always the one that reduces loss most for its time; then up to `MAX_SWAPS` exchanges (an addition with
    the removals that make it fit) were made, as long as one reduces loss.

    Args:
        best: as for `GridQuestion.loss`.
    """
    loss, swaps = asked.loss(choice, best), 0
    while True:
        now = asked.seconds(choice)
        fitting = [c for c in _larger(asked, choice) if now < asked.seconds(c) <= seconds]
        losses = [(asked.loss(c, best), c) for c in fitting]
        gains = [((loss - new) / (asked.seconds(c) - now), n) for n, (new, c) in enumerate(losses) if new < loss - 1e-9]
        if gains:
            loss, choice = losses[max(gains)[1]]
            continue
        if swaps == MAX_SWAPS:
            return choice
        swaps += 1
        swapped = [_removed(asked, larger, seconds, best) for larger in _larger(asked, choice)]
        losses = [(asked.loss(c, best), c) for c in swapped if asked.seconds(c) <= seconds]
        new, at = min(((new, n) for n, (new, _) in enumerate(losses)), default=(loss, 0))
        if new >= loss - 1e-9:
            return choice
        loss, choice = losses[at]


def _least(asked: GridQuestion) -> Choice:
    """Return about the cheapest grid that tells anything, with one seed: for every family the cheapest results that are
    enough to determine its law over compute, and all units needed to compare families over numbers of images."""
    choice: Choice = {}
    for family in dict.fromkeys(asked.families.values()):
        mine = [
            (o.seconds((h,)), unit, h)
            for unit, o in asked.options.items()
            if o.family == family and o.is_on(COMPUTE)
            for h in o.x
        ]
        for _, unit, horizon in sorted(mine, key=lambda one: one[0])[: LAW_DEGREE + 2]:
            choice[unit] = (tuple(sorted((*choice.get(unit, ((), 1))[0], horizon))), 1)
    asked_of = {point[1 + side] for target in asked.images for point in target.points for side in (0, 1)}
    for unit, option in asked.options.items():
        if unit[0] in asked_of and not option.is_on(COMPUTE):
            choice[unit] = (tuple(option.x), 1)
    return choice


# -- what is said ------------------------------------------------------------------------------------------------------


def lines_of(choice: Choice) -> tuple[str, ...]:
    """Return the choice as lines of --grid, one for each unit, such as "ViT-pico/14=4000,16000 x3"."""
    return tuple(
        str(GridLine(model=model, images=size, horizons=horizons, seeds=seeds))
        for (model, size), (horizons, seeds) in choice.items()
    )


def halved(asked: GridQuestion) -> dict[str, float]:
    """Return name of a lead -> its half-width if every horizon of the whole grid were halved, which takes half the
    time."""
    options = {
        unit: replace(o, x={h: x - 1 for h, x in o.x.items()}) if o.whole else o for unit, o in asked.options.items()
    }
    return replace(asked, options=options).half_widths(asked.whole())


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The best grid for a budget, and others that it is compared with. Half-widths are given as name of a lead ->
    expected half-width of its interval, in units of the measure (0.01 is one point of accuracy).

    Attributes:
        choice: the best grid within the budget.
        seconds: seconds that the choice takes on one worker.
        widths: half-widths of the choice.
        whole: half-widths of the whole grid.
        whole_seconds: seconds that the whole grid takes on one worker.
        halved: half-widths of the whole grid with every horizon halved.
        twice: the best grid for twice the budget.
        twice_widths: half-widths of the best grid for twice the budget.
        source: where the variance components come from, in words.
    """

    choice: Choice
    seconds: float
    widths: Mapping[str, float]
    whole: Mapping[str, float]
    whole_seconds: float
    halved: Mapping[str, float]
    twice: Choice
    twice_widths: Mapping[str, float]
    source: str

    @property
    def grid(self) -> tuple[str, ...]:
        return lines_of(self.choice)

    @property
    def seeds(self) -> int:
        return max(seeds for _, seeds in self.choice.values())

    def json(self) -> dict[str, Any]:
        """Return the choice, and what it is compared with, as JSON types."""
        return {
            "grid": list(self.grid),
            "seeds": self.seeds,
            "worker_seconds": self.seconds,
            "half_widths": dict(self.widths),
            "whole": dict(self.whole),
            "whole_worker_seconds": self.whole_seconds,
            "halved_horizons": dict(self.halved),
            "twice": list(lines_of(self.twice)),
            "twice_half_widths": dict(self.twice_widths),
            "components": self.source,
        }


def chosen(asked: GridQuestion, seconds: float, *, budget: Budget | None = None) -> Chosen:
    """Return the best grid that takes at most `seconds` of one worker, beside the whole grid, the whole grid with
    halved horizons, and the best grid for twice the time. `budget`: as for `choose`.

    Raises:
        UserError: the budget is too small for any comparison.
    """
    choice, twice = choose(asked, seconds, budget=budget), choose(asked, 2 * seconds)
    return Chosen(
        choice=choice,
        seconds=asked.seconds(choice),
        widths=asked.half_widths(choice),
        source=asked.source,
        whole=asked.half_widths(asked.whole()),
        whole_seconds=asked.seconds(asked.whole()),
        halved=halved(asked),
        twice=twice,
        twice_widths=asked.half_widths(twice),
    )


def sentences(best: Chosen, *, workers: int) -> list[str]:
    """Return sentences on the chosen grid, the units left out of it, the expected half-widths, and the gain of twice
    the budget. `workers`: number of cells that run at a time, to state wall time."""

    def points(widths: Mapping[str, float], key: str) -> str:
        return f"±{100 * widths[key]:.1f}" if math.isfinite(widths[key]) else "nothing"

    unchosen = (unit for unit in best.twice | best.choice if unit not in best.choice)
    left = [name if images is None else f"{name} on {images:,} images" for name, images in unchosen]
    lines = [
        f"Within the budget: {sum(n for _, n in best.choice.values())} trainings, "
        f"{duration(best.seconds / workers)} (the whole grid: {duration(best.whole_seconds / workers)})."
    ]
    lines += [f"  {line}" for line in best.grid]
    lines.append(
        "Expected half-width of the answer, in points of accuracy, from variance components "
        f"{best.source} (test images and draws not counted):"
    )
    lines += [
        f"  {key}: {points(best.widths, key)}; whole grid {points(best.whole, key)}; every horizon halved "
        f"{points(best.halved, key)}; twice the budget {points(best.twice_widths, key)}"
        for key in best.widths
    ]
    if left:
        lines.append(f"Left out, and in the grid for twice the budget: {join(left)}.")
    return lines
