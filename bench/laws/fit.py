"""Fits one functional form to points: minimises the sum (never the mean) of a robust loss of log residuals, from many
starting points.

The mean of a loss is small, so an optimiser with an absolute tolerance stops before it has moved; published fits have
gone wrong that way. Here the sum is minimised by least-squares methods whose tolerances are relative. A fit's card
holds everything that is needed to judge or repeat it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy
from scipy.optimize import least_squares

from bench.core.errors import UserError
from bench.core.formatting import compact, plural
from bench.laws.forms import Form

FTOL = 1e-12  # relative improvement of the objective below which a step counts as none; see `descend`
REFIT_FTOL = 1e-8  # the same for bootstrap refits, whose scatter is far larger; at 1e-6, results depend on the CPU
MAX_STEPS, MAX_REFIT_STEPS = 250, 200  # limits of a descent; a start that needs more steps hardly ever ends lowest
HEAT, LANES = 30, 4  # after HEAT steps, only the LANES best starts of a problem go on
SAME_OPTIMUM_RTOL = 1e-6  # two starts agree if their objectives differ by less than this, relatively
SUBSAMPLE, FINALISTS = 600, 3
"""For a table of more than SUBSAMPLE points: all starts are tried on that many points, then FINALISTS starts on all."""
MEANS = 50  # `averaged` makes at least this many means: each of at most 1/50 of the rows and of the range of log x
HUBER_K = 1.345  # Huber's constant: 95 % efficiency under normal noise
CHINCHILLA_DELTA = 1e-3  # Huber's threshold for the form `chinchilla`, as published (Hoffmann et al. 2022)


@dataclass(frozen=True, kw_only=True)
class Points:
    """The data of a fit.

    Attributes:
        x: (inputs, n), all positive.
        y: (n,), all positive.
        cluster: (n,), the independent training run (trunk) that each point comes from; points of one trunk share noise.
        dropped: one text for each reason why rows of the table were left out, with the rows.
        labels: categorical columns of the table by name, (n,) each.
        share: whether y is an error rate (1 - accuracy), which is at most 1.
        scatter: standard deviation of log y of a single row, where points are means of rows; None where they are rows.
    """

    x: np.ndarray
    y: np.ndarray
    cluster: np.ndarray
    dropped: tuple[str, ...] = ()
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)
    share: bool = False
    scatter: float | None = None

    def __len__(self) -> int:
        return len(self.y)

    def take(self, chosen: np.ndarray) -> Points:
        """Return some of the points, without their labels and `share`. `chosen`: indices, or a mask."""
        return Points(
            x=self.x[:, chosen],
            y=self.y[chosen],
            cluster=self.cluster[chosen],
            dropped=self.dropped,
            scatter=self.scatter,
        )

    def averaged(self) -> Points:
        """Return points of one input as means over neighbours in x. Each mean is over rows of a single trunk, or over
        any rows if every row has a trunk of its own. Fitting thousands of rows would take hours, and means determine
        the law as precisely."""
        log_x, log_y = np.log(self.x[0]), np.log(self.y)
        _, trunk = np.unique(self.cluster, return_inverse=True)
        alone = np.bincount(trunk).max() == 1
        trunk = np.zeros_like(trunk) if alone else trunk  # independent runs may be averaged with each other
        order = np.lexsort((log_x, trunk))
        most, width = -(-len(self) // MEANS), (log_x.max() - log_x.min()) / MEANS
        first, of = order[0], np.zeros(len(self), dtype=int)
        number = count = 0
        for row in order.tolist():
            if count == most or trunk[row] != trunk[first] or log_x[row] > log_x[first] + width:
                first, number, count = row, number + 1, 0
            of[row], count = number, count + 1
        sizes = np.bincount(of)
        x, y = (np.bincount(of, values) / sizes for values in (log_x, log_y))
        freedom = max(1, len(self) - len(sizes))
        cluster = np.arange(len(sizes)) if alone else self.cluster[np.unique(of, return_index=True)[1]]
        return Points(
            x=np.exp(x)[None],
            y=np.exp(y),
            cluster=cluster,
            dropped=self.dropped,
            share=self.share,
            scatter=float(np.sqrt(((log_y - y[of]) ** 2).sum() / freedom)),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class FormFit:
    """A fitted law, and how the fit went.

    Attributes:
        form: the form that was fitted.
        theta: internal parameters of the form: positive ones as logarithms, for x divided by `scale`.
        scale: (inputs,), by which x is divided before it is passed to the form.
        parameters: parameters by name, in the user's units.
        loss: "huber", "squares" or "absolute".
        delta: Huber's threshold on log residuals.
        objective: sum of the loss over points, at the optimum.
        objective_at_start: this sum at the starting point from which the optimum was reached.
        starts: how many starting points were tried.
        agree: how many of them ended at the same, lowest objective.
        gradient: largest component of the gradient of the objective at the optimum.
        rms: root mean square of the log residuals.
        points: the points that were fitted.
    """

    form: Form
    theta: np.ndarray
    scale: np.ndarray
    parameters: Mapping[str, float]
    loss: str
    delta: float
    objective: float
    objective_at_start: float
    starts: int
    agree: int
    gradient: float
    rms: float
    points: Points

    def log_predict(self, x: np.ndarray) -> np.ndarray:
        """Return the predicted log y, (n,), at x in the user's units, (inputs, n)."""
        with np.errstate(over="ignore"):  # a parameter that the points do not determine may overflow, as in `fit`
            return self.form.log_predict(self.theta, np.atleast_2d(x) / self.scale[:, None])

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the predicted y, (n,), at x in the user's units: (inputs, n), or (n,) for one input."""
        return np.exp(self.log_predict(x))

    @property
    def residuals(self) -> np.ndarray:
        """Log observed - log predicted y of every point, (n,)."""
        return np.log(self.points.y) - self.log_predict(self.points.x)

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value of the first input."""
        return float(self.points.x[0].min()), float(self.points.x[0].max())

    def card(self) -> dict[str, object]:
        """Return everything that is needed to judge or repeat the fit, as JSON types."""
        return {
            "form": self.form.name,
            "formula": self.form.formula,
            "parameters": dict(self.parameters),
            "loss": f"sum of {self.loss}"
            + (f", delta {compact(self.delta)}" if self.loss == "huber" else "")
            + ", on log residuals",
            "objective": self.objective,
            "objective_at_start": self.objective_at_start,
            "starts": self.starts,
            "starts_that_agree": self.agree,
            "largest_gradient": self.gradient,
            "rms_log_residual": self.rms,
            "points": len(self.points),
            "clusters": len(set(self.points.cluster.tolist())),
            "dropped": list(self.points.dropped),
            "x_range": list(self.range),
            "software": {"numpy": np.__version__, "scipy": scipy.__version__},
        }


def loss_sum(residuals: np.ndarray, *, loss: str, delta: float, weight: np.ndarray | float = 1.0) -> Any:
    """Return the weighted sum of the loss of residuals r over their last axis. `loss`: "squares" (r²/2), "absolute"
    (|r|) or "huber" (r²/2 up to |r| = delta, and delta |r| - delta²/2 beyond it)."""
    size = np.abs(residuals)
    if loss == "squares":
        each = size**2 / 2
    elif loss == "absolute":
        each = size
    else:
        each = np.where(size <= delta, size**2 / 2, delta * size - delta**2 / 2)
    return (weight * each).sum(axis=-1)


@np.errstate(over="ignore")  # a parameter that the points do not determine may overflow
def fit(
    points: Points,
    form: Form,
    *,
    loss: str = "huber",
    delta: float | None = None,
    weight: np.ndarray | None = None,
    max_starts: int = 400,
    ftol: float = FTOL,
) -> FormFit:
    """Fit a form to points, from the form's grid of starting points.

    Args:
        loss: "huber", "squares" or "absolute".
        delta: Huber's threshold on log residuals; None: 1.345 robust standard deviations of a pilot fit's residuals.
        weight: weight of every point, (n,), which is scaled to a mean of 1; None: all points weigh the same.
        max_starts: a larger grid of starts is thinned to this many.
        ftol: relative improvement at which a descent ends; see `descend`.

    Raises:
        UserError: as many parameters as points or more, or values that are not positive.
    """
    check(points, form)
    scale = np.exp(np.log(points.x).mean(axis=1))[list(form.scaled_like) or slice(None)]
    x, log_y = points.x / scale[:, None], np.log(points.y)
    grid = list(form.starts(x, points.y))
    importance = np.ones(len(points)) if weight is None else weight / weight.mean()
    if len(grid) > max_starts:
        grid = grid[:: -(-len(grid) // max_starts)]
    some = _subsample(x)
    if loss == "huber" and delta is None:
        delta = _pilot_delta(form, x[:, some], log_y[some], grid)
    threshold = delta if loss == "huber" and delta else 1e-6 if loss == "absolute" else 1.0

    def search(chosen: np.ndarray, begin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ends = descend(
            form,
            x[:, chosen],
            log_y[None, chosen],
            begin,
            loss=loss,
            delta=threshold,
            ftol=ftol,
            weight=importance[None, chosen],
            steps=MAX_STEPS if ftol < REFIT_FTOL else MAX_REFIT_STEPS,
            rivals=ftol >= REFIT_FTOL,
        )
        residuals = _residuals(form, x[:, chosen], log_y[None, chosen], ends)
        return ends, loss_sum(residuals, loss=loss, delta=threshold, weight=importance[chosen])

    ends, objectives = search(some, np.stack(grid))
    best = int(np.argmin(objectives))
    if not np.isfinite(ends[best]).all():
        raise UserError(f"The form {form.name!r} could not be fitted to these points.", "Try --form power.")
    theta, lowest = ends[best], None
    if len(some) < len(points):
        finalists = np.argsort(objectives)[:FINALISTS]
        refined, sums = search(np.arange(len(points)), ends[finalists])
        theta, best, lowest = refined[np.argmin(sums)], int(finalists[np.argmin(sums)]), float(objectives.min())
    if ftol < REFIT_FTOL:
        theta = _polish(form, x, log_y, theta, loss=loss, delta=threshold, weight=importance)
    residuals = form.log_predict(theta, x) - log_y
    least = float(loss_sum(residuals, loss=loss, delta=threshold, weight=importance))
    begin = loss_sum(form.log_predict(grid[best], x) - log_y, loss=loss, delta=threshold, weight=importance)
    lowest = least if lowest is None else lowest
    return FormFit(
        form=form,
        theta=theta,
        scale=scale,
        parameters=_natural(form, theta, scale),
        loss=loss,
        delta=threshold,
        objective=least,
        objective_at_start=float(begin),
        starts=len(grid),
        agree=max(1, int((objectives <= lowest + SAME_OPTIMUM_RTOL * max(lowest, 1e-300)).sum())),
        gradient=_gradient(form, theta, x, residuals, loss=loss, delta=threshold, weight=importance),
        rms=float(np.sqrt((residuals**2).mean())),
        points=points,
    )


def _subsample(x: np.ndarray) -> np.ndarray:
    """Return the indices of the points, x (inputs, n), to which the form is fitted from every starting point: all
    points, or for a large table a fixed random sample and the points at the ends of each input."""
    number = x.shape[1]
    if number <= SUBSAMPLE:
        return np.arange(number)
    drawn = np.random.default_rng(0).choice(number, SUBSAMPLE, replace=False)
    return np.unique(np.concatenate([drawn, x.argmin(axis=1), x.argmax(axis=1)]))


def check(points: Points, form: Form) -> None:
    """Check that a form can be fitted to points.

    Raises:
        UserError: too few points or distinct values of x, or values that are not positive and finite.
    """
    if len(points) <= form.size:
        raise UserError(
            f"{plural(len(points), 'point')} cannot determine the {form.size} parameters of {form.formula}"
            " with their error.",
            "Add runs, or choose a form with fewer parameters (--form power has 2).",
        )
    values = np.concatenate([points.x.ravel(), points.y])
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise UserError("A scaling law needs positive, finite x and y.", "Remove zero, negative or missing values.")
    if len(np.unique(points.x[0])) < min(3, form.size):
        raise UserError("All points lie at fewer than three values of x.", "Vary x.")


def _natural(form: Form, theta: np.ndarray, scale: np.ndarray) -> Mapping[str, float]:
    with np.errstate(over="ignore", invalid="ignore"):  # the scale of x is undetermined if y does not depend on x
        return form.natural(theta, scale)


def _pilot_delta(form: Form, x: np.ndarray, log_y: np.ndarray, grid: Sequence[np.ndarray]) -> float:
    begin = np.stack(grid)
    ends = descend(form, x, log_y[None], begin, loss="squares", delta=1.0, ftol=REFIT_FTOL, steps=MAX_REFIT_STEPS)
    residuals = min(_residuals(form, x, log_y[None], ends), key=lambda r: float((r**2).sum()))
    freedom = max(1, len(log_y) - form.size)
    spread = 1.4826 * float(np.median(np.abs(residuals))) * np.sqrt(len(log_y) / freedom)
    return max(HUBER_K * spread, 1e-9)


def descend(
    form: Form,
    x: np.ndarray,
    log_y: np.ndarray,
    start: np.ndarray,
    *,
    loss: str,
    delta: float,
    weight: np.ndarray | None = None,
    ftol: float = FTOL,
    steps: int = MAX_STEPS,
    rivals: bool = False,
) -> np.ndarray:
    """Minimise the summed loss of log residuals for a batch of fits (problems) at once, by Levenberg-Marquardt on
    iteratively re-weighted residuals.

    Args:
        x: inputs, divided by the fit's scale, (inputs, n), shared by all problems.
        log_y: (batch, n), or (1, n) if it is shared.
        start: theta from which each descent starts, (batch, parameters).
        loss, delta: as in `loss_sum`.
        weight: weights of the points, (batch, n), or (1, n) if they are shared; None: all points weigh the same.
        ftol: a descent ends after three successive steps (one, if ftol is REFIT_FTOL or more) that improve its sum by
            less than this fraction. There is no absolute tolerance.
        steps: limit on the number of steps.
        rivals: whether the batch is one problem from several starting points; after `HEAT` steps only the best `LANES`
            descents go on.

    Returns: theta where each descent ended, (batch, parameters).
    """
    end = np.array(start, dtype=float)
    batch, size = end.shape
    importance = np.broadcast_to(np.ones((1, 1)) if weight is None else weight, (batch, x.shape[1]))
    targets = np.broadcast_to(log_y, (batch, x.shape[1]))
    damping, quiet = np.full(batch, 1e-3), np.zeros(batch, dtype=int)
    residuals = _residuals(form, x, targets, end)
    value = loss_sum(residuals, loss=loss, delta=delta, weight=importance)
    active = np.arange(batch)  # problems that have not converged yet
    patience = 3 if ftol < REFIT_FTOL else 1
    for number in range(steps):
        if rivals and number == HEAT and len(active) > LANES:
            active = np.intersect1d(active, np.argsort(value)[:LANES])
        if not len(active):
            break
        theta, errors, weights = end[active], residuals[active], importance[active]
        irls = weights if loss == "squares" else weights * delta / np.maximum(np.abs(errors), delta)
        jacobian = _jacobian(form, x, theta)
        weighted = (jacobian * irls[..., None]).transpose(0, 2, 1)
        slope, bend = weighted @ errors[..., None], weighted @ jacobian
        diagonal = np.einsum("bpp->bp", bend)
        ridge = damping[active, None] * diagonal + 1e-12 * (1e-3 + diagonal.max(axis=1, keepdims=True))
        trial = theta - np.linalg.solve(bend + ridge[:, :, None] * np.eye(size), slope)[..., 0]
        trial_residuals = _residuals(form, x, targets[active], trial)
        trial_value = loss_sum(trial_residuals, loss=loss, delta=delta, weight=weights)
        better = trial_value < value[active]
        small = value[active] - trial_value <= ftol * value[active]
        quiet[active] = np.where(better, np.where(small, quiet[active] + 1, 0), quiet[active])
        damping[active] *= np.where(better, 0.2, 4.0)
        damping[active] = np.maximum(damping[active], 1e-12)
        moved = active[better]
        end[moved], residuals[moved], value[moved] = trial[better], trial_residuals[better], trial_value[better]
        active = active[(quiet[active] < patience) & (damping[active] < 1e12)]
    return end


def objectives(
    form: Form, x: np.ndarray, log_y: np.ndarray, theta: np.ndarray, *, weight: np.ndarray, loss: str, delta: float
) -> np.ndarray:
    """Return the summed loss of every problem of a batch at its theta, (batch,). Arguments are as in `descend`."""
    return loss_sum(_residuals(form, x, log_y, theta), loss=loss, delta=delta, weight=weight)


def _polish(
    form: Form, x: np.ndarray, log_y: np.ndarray, theta: np.ndarray, *, loss: str, delta: float, weight: np.ndarray
) -> np.ndarray:
    """Return theta, (parameters,), improved by a trust-region method, because re-weighting converges slowly when most
    residuals exceed delta. With unequal weights, theta is returned as it is."""
    if (weight != 1).any():
        return theta
    try:
        with np.errstate(all="ignore"):
            polished = least_squares(
                lambda t: _residuals(form, x, log_y, t),
                theta,
                jac=lambda t: _jacobian(form, x, t),
                f_scale=delta,
                loss="linear" if loss == "squares" else "huber",
                x_scale="jac",
                xtol=1e-15,
                ftol=1e-15,
                gtol=1e-15,
                max_nfev=300,
            )
    except (ValueError, np.linalg.LinAlgError):
        return theta
    before, after = (loss_sum(_residuals(form, x, log_y, t), loss=loss, delta=delta) for t in (theta, polished.x))
    return polished.x if after <= before else theta


def _parameters_first(theta: np.ndarray) -> np.ndarray:
    """Return theta in the shape that forms take, parameters first: (p,) unchanged, (batch, p) as (p, batch, 1)."""
    return theta if theta.ndim == 1 else theta.T[:, :, None]


def _residuals(form: Form, x: np.ndarray, log_y: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Return log predicted - log observed y, (..., n), clipped to ±1000: a descent that leaves the range of floating
    point then loses to those from other starting points, without an error."""
    with np.errstate(all="ignore"):
        predicted = form.log_predict(_parameters_first(theta), x)
        errors = predicted - log_y
    return np.clip(errors if np.isfinite(errors).all() else np.nan_to_num(errors, nan=1e3), -1e3, 1e3)


def _jacobian(form: Form, x: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Return the derivatives of log y at x by the internal parameters, (..., n, parameters), clipped to ±10⁶ to stay
    finite."""
    with np.errstate(all="ignore"):
        derivatives = form.jacobian(_parameters_first(theta), x)
        derivatives = np.clip(
            derivatives if np.isfinite(derivatives).all() else np.nan_to_num(derivatives, nan=0.0), -1e6, 1e6
        )
        return np.broadcast_to(derivatives, (*theta.shape[:-1], x.shape[1], theta.shape[-1]))


def jacobian(made: FormFit) -> np.ndarray:
    """Return the derivatives of log y by the internal parameters, at every point of a fit, (points, parameters)."""
    return _jacobian(made.form, made.points.x / made.scale[:, None], made.theta)


def _gradient(
    form: Form, theta: np.ndarray, x: np.ndarray, residuals: np.ndarray, *, loss: str, delta: float, weight: np.ndarray
) -> float:
    """Return the largest absolute component of the gradient of the summed loss by the internal parameters, at `theta`.
    `residuals`: log predicted - log observed y there, (n,)."""
    influence = {"squares": residuals, "absolute": np.sign(residuals)}
    slope = influence.get(loss, np.clip(residuals, -delta, delta))
    return float(np.abs(_jacobian(form, x, theta).T @ (weight * slope)).max())
