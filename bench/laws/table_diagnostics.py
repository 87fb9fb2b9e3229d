"""Diagnostics of a table of runs and of a law fitted to it: warnings and refusals.

Autocorrelated residuals, groups of rows with laws of their own, mixed schedules, checkpoints or units of compute,
learning rates at the edge of their sweep, and published parameters that are no optimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import special

from bench.core.errors import UserError
from bench.core.formatting import compact, plural, significant
from bench.laws.fit import FormFit, Points, loss_sum
from bench.laws.forms import MAX_EPOCHS

Z_AUTOCORRELATION = 3.3  # standard deviations, exceeded by 1 of 1,000 tables with independent residuals
NEGLIGIBLE_RMS = 1e-3  # rms of log residuals below which their autocorrelation does not matter
MIN_EXPLAINED = 0.4  # fraction of the residuals' variance that a column must explain, adjusted for its number of values
CLAIM_RTOL = 1e-3  # relative excess of the objective that the rounding of printed parameters may cause
LOG_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "power": ("b",),
    "power-floor": ("e", "b", "c"),
    "zhai": ("c", "a", "d", "b"),
    "m3": ("b", "g", "c"),
    "chinchilla": ("A", "B", "E"),
}
"""For each form whose published parameters can be judged: the parameters that it holds as logarithms."""
SCHEDULES = ("annealed", "schedule", "cooldown", "cooleddown", "lrschedule", "decayed", "anneal")
CHECKPOINTS = ("checkpoint", "checkpointkind", "selection", "earlystopping", "whichcheckpoint")
"""Names of columns that say with which schedule, and at which checkpoint, a run was evaluated; in lower case without
punctuation."""
EVALUATIONS, EVEN_SHARE, EVEN_RTOL = 12, 0.8, 0.1
"""Points look like evaluations of a single run if there are at least EVALUATIONS of them, and a fraction EVEN_SHARE of
the steps between them are equal to within EVEN_RTOL."""
SAME_SPREAD = 0.99  # see `check_units`
UNIT_FACTORS = {2: "MACs beside FLOPs", 3: "forward beside forward + backward", 6: "MACs, forward only, beside FLOPs"}


def check_autocorrelation(made: FormFit) -> list[str]:
    """Return a warning if residuals are autocorrelated along x, else []. The test: the lag-1 autocorrelation of n
    independent residuals has a standard deviation of 1 / sqrt(n)."""
    residuals = made.residuals[np.argsort(made.points.x[0], kind="stable")]
    power = float((residuals**2).sum())
    if made.form.inputs > 1 or made.rms < NEGLIGIBLE_RMS or not power:
        return []
    alike = float((residuals[1:] * residuals[:-1]).sum()) / power
    if alike * math.sqrt(len(residuals)) < Z_AUTOCORRELATION:
        return []
    return [
        f"Residuals are autocorrelated along x (lag 1: {alike:.2f}): this form does not bend as the points do, or "
        "they share their noise. Intervals by resampling are too narrow; compare other forms, or fit only "
        "the range that matters (--where)."
    ]


def check_groups(residuals: np.ndarray, labels: Mapping[str, np.ndarray]) -> list[str]:
    """Return a warning if a categorical column explains much of the residuals' variance (`MIN_EXPLAINED`), else []: if
    one does, one law was fitted to rows that follow several.

    Args:
        residuals: log residuals of all rows, (n,).
        labels: categorical columns of the table by name, (n,) each.
    """
    worst, name = MIN_EXPLAINED, ""
    for column, values in labels.items():
        kinds, of = np.unique(values, return_inverse=True)
        means = np.bincount(of, residuals) / np.bincount(of)
        total = float(((residuals - residuals.mean()) ** 2).sum())
        freedom = len(residuals) - len(kinds)
        left = float(((residuals - means[of]) ** 2).sum())
        explained = 1 - (left / freedom) / (total / (len(residuals) - 1)) if total > 0 else 0.0
        if explained > worst and _f_test(total - left, len(kinds) - 1, left, freedom) < 0.001:
            worst, name = explained, column
    if not name:
        return []
    example = sorted(set(labels[name]))[0]
    return [
        f"Values of {name!r} explain {worst:.0%} of the residuals: one law is fitted to rows that follow several. "
        f"Fit each (--group {name!r}) or keep one (--where {f'{name}={example}'!r})."
    ]


def _f_test(between: float, first: int, within: float, second: int) -> float:
    """Return the p-value of an F test from two sums of squares, `between` and `within` groups, which have `first` and
    `second` degrees of freedom."""
    return float(special.fdtrc(first, second, between / first / (within / second))) if within > 0 else 0.0


def check_exponents(made: FormFit) -> list[str]:
    """Return a warning if an exponent (alpha or beta) of a law of several inputs is negative, else []."""
    names = [name for name in ("alpha", "beta") if made.parameters.get(name, 1.0) < 0]
    return (
        [
            f"{' and '.join(names)} below zero: the law would rise with its input. Are the x columns parameters and "
            "samples, in this order?"
        ]
        if names
        else []
    )


def check_schedules(annealed: np.ndarray) -> None:
    """Check that points in the middle of a learning-rate schedule are not mixed with points at its end.

    Args:
        annealed: entries of a column that describes the schedule.

    Raises:
        UserError: the column holds more than one value.
    """
    _refuse_mixture(
        annealed,
        "schedules",
        "in mid-schedule it is not the loss at that budget",
        "Keep only points whose learning rate was annealed to the end",
    )


def check_checkpoints(kinds: np.ndarray) -> None:
    """Check that evaluations of best checkpoints are not mixed with those of last checkpoints. (The best one is picked
    from noise, and looks too good.)

    Args:
        kinds: entries of a column that describes the checkpoint.

    Raises:
        UserError: the column holds more than one value.
    """
    _refuse_mixture(
        kinds, "checkpoints", "the best of a run is picked, the last is not", "Read every run at its last checkpoint"
    )


def _refuse_mixture(column: np.ndarray, what: str, why: str, fix: str) -> None:
    values = sorted({str(v).strip().lower() for v in column})
    if len(values) > 1:
        raise UserError(
            f"These points mix {what} ({', '.join(values[:5])}): {why}.",
            f"{fix}, or fit each kind on its own (--group).",
        )


def check_rates(
    x_IN: np.ndarray,
    rates: np.ndarray,
    y: np.ndarray,
    *,
    better: Callable[[np.ndarray], Any] = np.argmin,
    family: np.ndarray | None = None,
) -> list[str]:
    """Return a warning if the best learning rate at some place is the lowest or the highest that was tried there, else
    []. A place is a value of x within a family; places with a single learning rate are ignored.

    Args:
        x_IN: x of every run, (inputs, n) or (n,).
        rates: learning rate of every run, (n,).
        y: loss, error or accuracy of every run, (n,).
        better: values of y -> the index of the best.
        family: family of every run, (n,); None: all runs are of one family.
    """
    x_IN = np.atleast_2d(x_IN)
    known = np.isfinite(x_IN).all(axis=0) & np.isfinite(rates) & np.isfinite(y)
    names = np.zeros(len(y), dtype=object) if family is None else family
    edges, places = [], 0
    for family_name, *place in sorted(
        {(str(f), *v) for f, v in zip(names[known], x_IN.T[known].tolist(), strict=True)}
    ):
        here = known & np.equal(x_IN.T, place).all(axis=1) & (names.astype(str) == family_name)
        tried = np.unique(rates[here])
        if len(tried) > 1:
            places += 1
            best = rates[here][int(better(y[here]))]
            if best in (tried[0], tried[-1]):
                ends = f"{compact(tried[0], 3)} to {compact(tried[-1], 3)}"
                edges.append(f"{', '.join(map(compact, place))} (best {compact(best, 3)} of {ends})")
    if not edges:
        return []
    return [
        f"At {len(edges)} of {places} values of x the best learning rate is the edge of its sweep: "
        f"{'; '.join(edges[:4])}{' and others' if len(edges) > 4 else ''}. Such points look worse than they are."
    ]


def check_repeats(epochs: np.ndarray) -> list[str]:
    """Return a warning if data were seen more than `MAX_EPOCHS` times, for a law without a term for repeated data; else
    []. `epochs`: passes over the data, for every run."""
    many = int((epochs > MAX_EPOCHS).sum())
    if not many:
        return []
    most = f"(up to {np.nanmax(epochs):.0f})"
    return [
        f"Data of {plural(many, 'point')} were seen more than {MAX_EPOCHS:.0f} times {most}: compute and data are not "
        "the same there. --form repeated has a term for it (x: N,D,U)."
    ]


def check_units(flops: np.ndarray, params: np.ndarray, tokens: np.ndarray) -> None:
    """Check that a table counts the compute of all its runs in the same way.

    Args:
        flops, params, tokens: compute, parameters N and samples D of every run, (n,).

    Raises:
        UserError: flops / (6 N D) falls into two groups that differ by a factor of 2, 3 or 6.
    """
    counted = (flops > 0) & (params > 0) & (tokens > 0)  # an untrained baseline has no compute
    each = np.log(flops[counted] / params[counted])
    ratio = np.sort(each - np.log(6.0 * tokens[counted]))
    gaps = np.diff(ratio)
    if not len(gaps) or gaps.max() < math.log(1.6):
        return
    # flops / N varies less than flops / (N D): the column holds the compute of one forward pass, not of training
    if np.ptp(each) < SAME_SPREAD * np.ptp(ratio):
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


def is_one_run(points: Points) -> bool:
    """Return whether points look like evaluations of a single run: there are many, at distinct and evenly spaced x.
    (The sizes of independent runs usually grow by factors.)"""
    x = np.sort(points.x[0])
    steps = np.diff(x)
    even = np.abs(steps - np.median(steps)) <= EVEN_RTOL * np.median(steps)
    return len(points.x) == 1 and len(x) >= EVALUATIONS and bool((steps > 0).all()) and float(even.mean()) >= EVEN_SHARE


def check_direction(points: Points) -> list[str]:
    """Return a warning if y grows with x, else []: y may be an accuracy that was taken for an error, or the reverse."""
    log_x, log_y = np.log(points.x[0]), np.log(points.y)
    if len(points) > 2 and np.ptp(log_x) and np.ptp(log_y) and float(np.corrcoef(log_x, log_y)[0, 1]) > 0.5:
        add = "is no accuracy, add --no-accuracy" if points.share else "is an accuracy, add --accuracy"
        return [f"y grows with x. If it {add}; a law of error falls."]
    return []


def check_published(made: FormFit, parameters: Mapping[str, float]) -> list[str]:
    """Return a warning if published `parameters` of the fit's form are not an optimum: if the sum of the loss with them
    is above that of the fit. [] if it is as low.

    An optimiser with an absolute tolerance, given the mean of a small loss, stops after a few steps and reports
    convergence; published laws have gone wrong that way (Besiroglu et al. 2024, arXiv 2404.10102).

    Raises:
        UserError: a parameter is missing or not positive, or the form cannot be judged.
    """
    form = made.form
    if form.name not in LOG_PARAMETERS:
        forms = ", ".join(LOG_PARAMETERS)
        raise UserError(f"Claimed parameters of {form.name!r} cannot be judged.", f"Forms: {forms}.")
    missing = [name for name in form.parameters if name not in parameters]
    if missing or any(not parameters[name] > 0 for name in form.parameters):
        raise UserError(
            f"{form.formula} needs positive values for {', '.join(form.parameters)}.",
            "For example --claimed A=406.4,B=410.7,E=1.69,alpha=0.34,beta=0.28.",
        )
    logs = LOG_PARAMETERS[form.name]
    theta = np.array([np.log(parameters[n]) if n in logs else parameters[n] for n in form.parameters])
    residuals = form.log_predict(theta, made.points.x) - np.log(made.points.y)
    claimed = loss_sum(residuals, loss=made.loss, delta=made.delta)
    if claimed <= made.objective * (1 + CLAIM_RTOL):
        return []
    return [
        f"The claimed parameters are no optimum: their sum of {made.loss} is {compact(claimed, 6)}, the least found is "
        f"{compact(made.objective, 6)} ({significant(100 * (claimed / made.objective - 1), 2)} % lower would do). "
        "An optimiser with an absolute tolerance on a mean objective stops like this; minimise the sum, from many "
        "starts."
    ]
