"""One fit and its card: sum (never mean) of a robust loss over log residuals, from many starts.

A mean-reduced objective is small, so an optimiser with an absolute tolerance stops before it has moved; published fits
have been lost that way. Here the sum is minimised by least-squares methods whose tolerances are relative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy
from scipy.optimize import least_squares

from bench.core.errors import UserError
from bench.stats.form import Form

RELATIVE = 1e-12  # a step that improves less than this, relatively, three times in a row, ends a descent
QUICK = 1e-6  # the same for refits of a bootstrap, whose own scatter is far larger
STEPS, QUICK_STEPS = 250, 60  # of a descent; a start that needs more hardly ever ends lowest
AGREE = 1e-6  # two starts agree if their objectives differ by less than this, relatively
SEARCHED, FINALISTS = 600, 3  # of a larger table, points that all starts see; starts that then see every point
HUBER_K = 1.345  # Huber's constant: 95 % efficiency under normal noise
CHINCHILLA_DELTA = 1e-3


@dataclass(frozen=True, kw_only=True)
class Points:
    """Data of a fit. `x` has one row per input; all values positive. `cluster` names the trunk of each point; `labels`
    are columns of words beside them."""

    x: np.ndarray
    y: np.ndarray
    cluster: np.ndarray
    dropped: tuple[str, ...] = ()
    labels: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.y)

    def take(self, chosen: np.ndarray) -> Points:
        return Points(x=self.x[:, chosen], y=self.y[chosen], cluster=self.cluster[chosen], dropped=self.dropped)

    def with_y(self, y: np.ndarray) -> Points:
        return Points(x=self.x, y=y, cluster=self.cluster, dropped=self.dropped)


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """A fitted law and its card.

    Attributes:
        theta, scale: internal parameters; `parameters` are in the user's units.
        loss, delta: "huber" with its threshold on log residuals, "squares" or "absolute".
        objective, objective_at_start: sums over points, at the end and at the best start.
        starts, agree: how many starts were tried, how many reached the same objective.
        gradient: largest component of the gradient of the objective at the end.
        rms: root mean square of the log residuals.
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
        """log y at x (one row per input), in the user's units."""
        return self.form.log_predict(self.theta, np.atleast_2d(x) / self.scale[:, None])

    def predict(self, x: np.ndarray) -> np.ndarray:
        """y at x (one row per input, or a vector for one input)."""
        return np.exp(self.log_predict(x))

    @property
    def residuals(self) -> np.ndarray:
        """log observed - log predicted."""
        return np.log(self.points.y) - self.log_predict(self.points.x)

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest first input."""
        return float(self.points.x[0].min()), float(self.points.x[0].max())

    def card(self) -> dict[str, object]:
        """Everything needed to judge or repeat the fit, as JSON types."""
        return {
            "form": self.form.name, "formula": self.form.formula, "parameters": dict(self.parameters),
            "loss": f"sum of {self.loss}" + (f", delta {self.delta:.4g}" if self.loss == "huber" else "")
                    + ", on log residuals",
            "objective": self.objective, "objective_at_start": self.objective_at_start, "starts": self.starts,
            "starts_that_agree": self.agree, "largest_gradient": self.gradient, "rms_log_residual": self.rms,
            "points": len(self.points), "clusters": len(set(self.points.cluster.tolist())),
            "dropped": list(self.points.dropped), "x_range": list(self.range),
            "software": {"numpy": np.__version__, "scipy": scipy.__version__},
        }  # fmt: skip


def loss_sum(residuals: np.ndarray, *, loss: str, delta: float) -> float:
    """Sum of the loss. Huber: r²/2 within delta, delta |r| - delta²/2 beyond."""
    size = np.abs(residuals)
    if loss == "squares":
        return float((size**2).sum() / 2)
    if loss == "absolute":
        return float(size.sum())
    return float(np.where(size <= delta, size**2 / 2, delta * size - delta**2 / 2).sum())


def fit(
    points: Points, form: Form, *, loss: str = "huber", delta: float | None = None,
    starts: Sequence[np.ndarray] | None = None, max_starts: int = 400, relative: float = RELATIVE,
) -> Fit:  # fmt: skip
    """Fit a form.

    Args:
        loss: "huber", "squares" or "absolute".
        delta: Huber's threshold; by default 1.345 robust standard deviations of a pilot fit's residuals.
        starts: internal starting points instead of the form's own grid.
        relative: where a descent ends; see `descend`.

    Raises:
        UserError: as many parameters as points or more, or values that are not positive.
    """
    check(points, form)
    scale = np.exp(np.log(points.x).mean(axis=1))[list(form.scaled_like) or slice(None)]
    x, log_y = points.x / scale[:, None], np.log(points.y)
    grid = list(form.starts(x, points.y)) if starts is None else list(starts)
    if len(grid) > max_starts:
        grid = grid[:: -(-len(grid) // max_starts)]
    some = _some(x)
    if loss == "huber" and delta is None:
        delta = _pilot_delta(form, x[:, some], log_y[some], grid)
    threshold = delta if loss == "huber" and delta else 1e-6 if loss == "absolute" else 1.0

    def search(chosen: np.ndarray, begin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ends = descend(form, x[:, chosen], log_y[None, chosen], begin, loss=loss, delta=threshold, relative=relative,
                       steps=STEPS if relative < QUICK else QUICK_STEPS)  # fmt: skip
        every = (_residuals(form, x[:, chosen], log_y[chosen], end) for end in ends)
        return ends, np.array([loss_sum(residuals, loss=loss, delta=threshold) for residuals in every])

    ends, objectives = search(some, np.stack(grid))
    best = int(np.argmin(objectives))
    if not np.isfinite(ends[best]).all():
        raise UserError(f"The form {form.name!r} could not be fitted to these points.", "Try --form power.")
    theta, lowest = ends[best], None
    if len(some) < len(points):
        finalists = np.argsort(objectives)[:FINALISTS]
        refined, sums = search(np.arange(len(points)), ends[finalists])
        theta, best, lowest = refined[np.argmin(sums)], int(finalists[np.argmin(sums)]), float(objectives.min())
    if relative < QUICK:
        theta = _polish(form, x, log_y, theta, loss=loss, delta=threshold)
    residuals = form.log_predict(theta, x) - log_y
    least = loss_sum(residuals, loss=loss, delta=threshold)
    begin = loss_sum(form.log_predict(grid[best], x) - log_y, loss=loss, delta=threshold)
    lowest = least if lowest is None else lowest
    return Fit(
        form=form, theta=theta, scale=scale, parameters=_natural(form, theta, scale), loss=loss, delta=threshold,
        objective=least, objective_at_start=begin, starts=len(grid),
        agree=max(1, int((objectives <= lowest + AGREE * max(lowest, 1e-300)).sum())),
        gradient=_gradient(form, theta, x, residuals, loss=loss, delta=threshold),
        rms=float(np.sqrt((residuals**2).mean())), points=points,
    )  # fmt: skip


def _some(x: np.ndarray) -> np.ndarray:
    """Points that every start is tried on: all, or of a large table a fixed draw and the ends of each input."""
    number = x.shape[1]
    if number <= SEARCHED:
        return np.arange(number)
    drawn = np.random.default_rng(0).choice(number, SEARCHED, replace=False)
    return np.unique(np.concatenate([drawn, x.argmin(axis=1), x.argmax(axis=1)]))


def check(points: Points, form: Form) -> None:
    """Refuse what cannot be fitted.

    Raises:
        UserError: too few points, or values that are not positive and finite.
    """
    if len(points) <= form.size:
        raise UserError(
            f"{len(points)} points cannot determine the {form.size} parameters of {form.formula}.",
            "Add runs, or choose a form with fewer parameters (--form power has 2).",
        )
    values = np.concatenate([points.x.ravel(), points.y])
    if not (np.isfinite(values).all() and (values > 0).all()):
        raise UserError("A scaling law needs positive, finite x and y.", "Remove zero, negative or missing values.")
    if len(np.unique(points.x[0])) < min(3, form.size):
        raise UserError("All points lie at fewer than three values of x.", "Vary x.")


def _natural(form: Form, theta: np.ndarray, scale: np.ndarray) -> Mapping[str, float]:
    with np.errstate(over="ignore"):  # a flat law's factor on x may be anything
        return form.natural(theta, scale)


def _pilot_delta(form: Form, x: np.ndarray, log_y: np.ndarray, grid: Sequence[np.ndarray]) -> float:
    ends = descend(form, x, log_y[None], np.stack(grid), loss="squares", delta=1.0, relative=QUICK)
    residuals = min((_residuals(form, x, log_y, end) for end in ends), key=lambda r: float((r**2).sum()))
    freedom = max(1, len(log_y) - form.size)
    spread = 1.4826 * float(np.median(np.abs(residuals))) * np.sqrt(len(log_y) / freedom)
    return max(HUBER_K * spread, 1e-9)


def descend(
    form: Form, x: np.ndarray, log_y: np.ndarray, start: np.ndarray, *, loss: str, delta: float,
    weight: np.ndarray | None = None, relative: float = RELATIVE, steps: int = STEPS,
) -> np.ndarray:  # fmt: skip
    """Levenberg-Marquardt on iteratively re-weighted residuals, for a batch of problems at once.

    Args:
        x: (inputs, n), shared. log_y: (batch or 1, n). start: (batch, parameters). weight: (batch or 1, n), of points.
        relative: a descent ends after three steps in a row (one, if only QUICK is asked) that improve its sum by less
            than this fraction. There is no absolute tolerance.

    Returns: (batch, parameters).
    """
    end = np.array(start, dtype=float)
    batch, size = end.shape
    importance = np.broadcast_to(np.ones((1, 1)) if weight is None else weight, (batch, x.shape[1]))
    targets = np.broadcast_to(log_y, (batch, x.shape[1]))
    damping, quiet = np.full(batch, 1e-3), np.zeros(batch, dtype=int)
    residuals = _residuals(form, x, targets, end)
    value = _sums(residuals, importance, loss=loss, delta=delta)
    active = np.arange(batch)  # problems that have not converged; the others are left alone
    patience = 3 if relative < QUICK else 1
    for _ in range(steps):
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
        trial_value = _sums(trial_residuals, weights, loss=loss, delta=delta)
        better = trial_value < value[active]
        small = value[active] - trial_value <= relative * value[active]
        quiet[active] = np.where(better, np.where(small, quiet[active] + 1, 0), quiet[active])
        damping[active] *= np.where(better, 0.2, 4.0)
        damping[active] = np.maximum(damping[active], 1e-12)
        moved = active[better]
        end[moved], residuals[moved], value[moved] = trial[better], trial_residuals[better], trial_value[better]
        active = active[(quiet[active] < patience) & (damping[active] < 1e12)]
    return end


def objective_sums(
    form: Form, x: np.ndarray, log_y: np.ndarray, theta: np.ndarray, *, weight: np.ndarray, loss: str, delta: float
) -> np.ndarray:
    """Objective of every problem of a batch."""
    return _sums(_residuals(form, x, log_y, theta), weight, loss=loss, delta=delta)


def _sums(residuals: np.ndarray, weight: np.ndarray, *, loss: str, delta: float) -> np.ndarray:
    size = np.abs(residuals)
    if loss == "squares":
        return (weight * size**2 / 2).sum(axis=-1)
    return (weight * np.where(size <= delta, size**2 / 2, delta * size - delta**2 / 2)).sum(axis=-1)


def _polish(form: Form, x: np.ndarray, log_y: np.ndarray, theta: np.ndarray, *, loss: str, delta: float) -> np.ndarray:
    """A trust-region method from the best end: re-weighting converges slowly when most residuals exceed delta."""
    try:
        with np.errstate(all="ignore"):
            found = least_squares(
                lambda t: _residuals(form, x, log_y, t), theta, jac=lambda t: _jacobian(form, x, t), f_scale=delta,
                loss="linear" if loss == "squares" else "huber", x_scale="jac", xtol=1e-15, ftol=1e-15, gtol=1e-15,
                max_nfev=300,
            )  # fmt: skip
    except (ValueError, np.linalg.LinAlgError):
        return theta
    before, after = (loss_sum(_residuals(form, x, log_y, t), loss=loss, delta=delta) for t in (theta, found.x))
    return found.x if after <= before else theta


def _parameters_first(theta: np.ndarray) -> np.ndarray:
    """(p,) as it is; (batch, p) -> (p, batch, 1), as forms take it."""
    return theta if theta.ndim == 1 else theta.T[:, :, None]


def _residuals(form: Form, x: np.ndarray, log_y: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """log predicted - log observed, clipped: a start may wander far off, and then loses to the others."""
    with np.errstate(all="ignore"):
        predicted = form.log_predict(_parameters_first(theta), x)
        errors = predicted - log_y
    return np.clip(errors if np.isfinite(errors).all() else np.nan_to_num(errors, nan=1e3), -1e3, 1e3)


def _jacobian(form: Form, x: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """Derivatives of log y, (..., n, parameters); by central differences where the form gives none."""
    with np.errstate(all="ignore"):
        if form.jacobian is not None:
            found = form.jacobian(_parameters_first(theta), x)
        else:
            slopes = []
            for i in range(theta.shape[-1]):
                shift = np.zeros(theta.shape[-1])
                shift[i] = 1e-6
                ends = [form.log_predict(_parameters_first(theta + sign * shift), x) for sign in (1, -1)]
                slopes.append((ends[0] - ends[1]) / 2e-6)
            found = np.stack(slopes, axis=-1)
        found = np.clip(found if np.isfinite(found).all() else np.nan_to_num(found, nan=0.0), -1e6, 1e6)
        return np.broadcast_to(found, (*theta.shape[:-1], x.shape[1], theta.shape[-1]))


def slopes(made: Fit) -> np.ndarray:
    """Derivatives of log y by the internal parameters at every point, (points, parameters)."""
    return _jacobian(made.form, made.points.x / made.scale[:, None], made.theta)


def _gradient(
    form: Form, theta: np.ndarray, x: np.ndarray, residuals: np.ndarray, *, loss: str, delta: float
) -> float:
    influence = {"squares": residuals, "absolute": np.sign(residuals)}
    slope = influence.get(loss, np.clip(residuals, -delta, delta))
    return float(np.abs(_jacobian(form, x, theta).T @ slope).max())
