"""Warnings and refusals about a fit: what makes its exponent worth less than it looks."""

from __future__ import annotations

import math

import numpy as np

from bench.analysis.fits.fit import Fit, Points
from bench.analysis.words import significant
from bench.errors import UserError

MIN_SIZES, MIN_DECADES, MAX_EXTRAPOLATION, MIN_AGREE, MAX_EPOCHS = 5, 1.5, 10.0, 3, 4.0
FLOORS = {"power-floor": "e", "zhai": "c", "bnsl1": "a", "m4": "e"}
EDGE = 0.02
UNIT_FACTORS = {2: "MACs beside FLOPs", 3: "forward beside forward + backward", 6: "MACs, forward only, beside FLOPs"}


def warnings(made: Fit, *, predict_at: np.ndarray | None = None, repeated: bool = True) -> list[str]:
    """Sentences about range, optimiser, bounds and extrapolation."""
    found = []
    x = made.points.x[0]
    distinct, decades = len(np.unique(x)), math.log10(float(x.max() / x.min()))
    if distinct < MIN_SIZES:
        found.append(f"Only {distinct} distinct values of x; a law needs at least {MIN_SIZES}.")
    if decades < MIN_DECADES:
        found.append(f"x spans {significant(decades, 2)} decades; an exponent needs at least {MIN_DECADES}.")
    if made.form.inputs == 2:
        ratio = made.points.x[1] / made.points.x[0]
        if math.log10(float(ratio.max() / ratio.min())) < 1.0:
            found.append("The ratio of the inputs spans less than a decade: their exponents are not told apart.")
    if not repeated:
        found.append("No run was repeated: the noise between seeds is only seen as scatter about the curve.")
    if made.starts > 1 and made.agree < min(MIN_AGREE, made.starts):
        found.append(f"Only {made.agree} of {made.starts} starts reached this optimum; it may not be the global one.")
    if made.objective_at_start <= made.objective * (1 + 1e-12) and made.starts > 1:
        found.append("The optimiser did not move from its best start.")
    found += _at_bound(made)
    if predict_at is not None and len(predict_at):
        low, high = made.range
        factor = max(float(np.max(predict_at)) / high, low / float(np.min(predict_at)))
        if factor > MAX_EXTRAPOLATION:
            reach = f"Predictions reach {significant(factor, 2)} times beyond the data"
            found.append(f"{reach}; over {MAX_EXTRAPOLATION:.0f} times they are guesses.")
    return found


def _at_bound(made: Fit) -> list[str]:
    name = FLOORS.get(made.form.name)
    if name is None:
        return []
    floor, least = made.parameters[name], float(made.points.y.min())
    if floor < EDGE * least:
        return [f"The floor {name} went to zero: these points do not show one."]
    if floor > (1 - EDGE) * least:
        return [f"The floor {name} reached the smallest y: these points do not show what lies below."]
    return []


def check_schedules(annealed: np.ndarray) -> None:
    """Refuse points read in the middle of a schedule next to points at its end.

    Raises:
        UserError: the column holds both.
    """
    values = sorted({str(v).strip().lower() for v in annealed})
    if len(values) > 1:
        raise UserError(
            f"These points mix schedules ({', '.join(values[:5])}): in mid-schedule it is not the loss at that budget.",
            "Keep only points whose learning rate was annealed to the end, or fit each kind on its own (--group).",
        )


def check_units(flops: np.ndarray, params: np.ndarray, tokens: np.ndarray) -> None:
    """Refuse compute that is counted in two ways in one column.

    Raises:
        UserError: flops / (6 N D) falls into two groups that differ by 2, 3 or 6.
    """
    ratio = np.sort(np.log(flops / (6.0 * params * tokens)))
    gaps = np.diff(ratio)
    if not len(gaps) or gaps.max() < math.log(1.6):
        return
    at = int(gaps.argmax())
    factor = math.exp(float(np.median(ratio[at + 1 :]) - np.median(ratio[: at + 1])))
    nearest = min(UNIT_FACTORS, key=lambda f: abs(math.log(factor / f)))
    if abs(math.log(factor / nearest)) < 0.2:
        raise UserError(
            f"Compute is counted in two ways: {at + 1} points and {len(ratio) - at - 1} points differ by a factor of "
            f"{significant(factor, 2)} from one another relative to 6 N D ({UNIT_FACTORS[nearest]}).",
            "Bring all compute to one convention: FLOPs = 2 × MACs, forward and backward = 3 × forward.",
        )


def check_errors(points: Points) -> list[str]:
    """A warning if error rises again with x: a power law holds only before that."""
    order = np.argsort(points.x[0])
    log_y = np.log(points.y[order])
    tail = max(3, len(log_y) // 4)
    rise = log_y[-tail:].mean() - log_y[-2 * tail : -tail].mean() if len(log_y) >= 2 * tail else -1.0
    scatter = float(np.abs(np.diff(log_y)).mean())
    return ["y rises again at large x: a power law holds only before that."] if rise > scatter else []
