"""Diagnostics of a fitted law: warnings about the range of x, the optimiser and the floor, and parameters that the
points do not determine."""

from __future__ import annotations

import math

import numpy as np

from bench.core.formatting import compact, significant
from bench.laws.fit import FormFit, Points, jacobian
from bench.laws.roughness import roughness

MIN_SIZES, MIN_DECADES, MIN_AGREE = 5, 1.5, 3  # fewer distinct x, decades of x or starts that agree give a warning
FLOORS = {"power-floor": "e", "zhai": "c", "bnsl1": "a", "m4": "e"}  # form -> its parameter that is the floor
EDGE_SHARE = 0.02  # a floor this near 0 (fraction of the smallest y) or this near the smallest y is at its bound
RISES = 4.0  # y is said to rise if its last mean lies this many roughnesses above the smallest mean
MIN_RMS = 1e-9  # lower limit of the rms of log residuals, for points without any noise


def warnings(made: FormFit, *, repeated: bool = True) -> list[str]:
    """Return warnings about a fit: about its range of x, the optimiser and the floor, one sentence each.

    Args:
        made: the fit.
        repeated: whether the table has several runs at one x, so that the noise between seeds is known.
    """
    texts = []
    x = made.points.x[0]
    distinct, decades = len(np.unique(x)), math.log10(float(x.max() / x.min()))
    which = "x" if made.form.inputs == 1 else "the first x"
    if distinct < MIN_SIZES:
        texts.append(f"Only {distinct} distinct values of {which}; a law needs at least {MIN_SIZES}.")
    if decades < MIN_DECADES:
        texts.append(f"x spans {significant(decades, 2)} decades; an exponent needs at least {MIN_DECADES}.")
    if made.form.inputs == 2:
        ratio = made.points.x[1] / made.points.x[0]
        if math.log10(float(ratio.max() / ratio.min())) < 1.0:
            texts.append("The ratio of the inputs spans less than a decade: their exponents are not told apart.")
    if not repeated:
        texts.append("No run was repeated: the noise between seeds is only seen as scatter about the curve.")
    if made.starts > 1 and made.agree < min(MIN_AGREE, made.starts):
        texts.append(f"Only {made.agree} of {made.starts} starts reached this optimum; it may not be the global one.")
    if made.objective_at_start <= made.objective * (1 + 1e-12) and made.starts > 1:
        texts.append("The optimiser did not move from its best start.")
    return texts + _at_bound(made)


def unresolved(made: FormFit) -> list[str]:
    """Return the names of the parameters that the points do not determine. Changing such a parameter by 1 (by a factor
    of e, if it is fitted as a logarithm) changes log y at all points together (root of the sum of squares) by less than
    the rms of the residuals."""
    moved = np.sqrt((jacobian(made) ** 2).sum(axis=0))
    return [name for name, size in zip(made.form.parameters, moved, strict=True) if size < max(made.rms, MIN_RMS)]


def _at_bound(made: FormFit) -> list[str]:
    """Return a warning if the points do not determine the floor (limit of y for large x), else []."""
    name = FLOORS.get(made.form.name)
    if name is None:
        return []
    floor, least = made.parameters[name], float(made.points.y.min())
    if floor < EDGE_SHARE * least:
        return [f"The floor {name} went to zero: these points do not show one."]
    if least - floor < EDGE_SHARE * min(least, float(made.points.y.max()) - least):
        return [f"The floor {name} reached the smallest y: these points do not show what lies below."]
    return []


def check_errors(points: Points) -> list[str]:
    """Return a warning if y rises again at large x, where a falling law does not hold; else []."""
    log_x, group = np.unique(np.log(points.x[0]), return_inverse=True)
    means = np.bincount(group, np.log(points.y)) / np.bincount(group)
    least = int(means.argmin())
    if means[-1] - means[least] <= RISES * max(roughness(log_x, means), MIN_RMS):
        return []
    return [
        f"y rises with x here, from x = {compact(float(np.exp(log_x[least])))} on: a power law holds only before that."
    ]
