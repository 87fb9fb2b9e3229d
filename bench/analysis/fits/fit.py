"""One fit and its card: sum (never mean) of a robust loss over log residuals, from many starts.

A mean-reduced objective is small, so an optimiser with an absolute tolerance stops before it has moved; published fits
have been lost that way. Here the sum is minimised by a trust-region least-squares method whose tolerances are relative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from scipy.optimize import least_squares

from bench.analysis.fits.forms import Form
from bench.errors import UserError

AGREE = 1e-6  # two starts agree if their objectives differ by less than this, relatively
HUBER_K = 1.345  # Huber's constant: 95 % efficiency under normal noise
CHINCHILLA_DELTA = 1e-3


@dataclass(frozen=True, kw_only=True)
class Points:
    """Data of a fit. `x` has one row per input; all values positive. `cluster` names the trunk of each point."""

    x: np.ndarray
    y: np.ndarray
    cluster: np.ndarray
    dropped: tuple[str, ...] = ()

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
    starts: Sequence[np.ndarray] | None = None, max_starts: int = 400,
) -> Fit:  # fmt: skip
    """Fit a form.

    Args:
        loss: "huber", "squares" or "absolute".
        delta: Huber's threshold; by default 1.345 robust standard deviations of a pilot fit's residuals.
        starts: internal starting points instead of the form's own grid (a bootstrap starts from the main fit).

    Raises:
        UserError: as many parameters as points or more, or values that are not positive.
    """
    check(points, form)
    scale = np.exp(np.log(points.x).mean(axis=1))
    x, log_y = points.x / scale[:, None], np.log(points.y)
    grid = list(form.starts(x, points.y)) if starts is None else list(starts)
    if len(grid) > max_starts:
        grid = grid[:: -(-len(grid) // max_starts)]
    if loss == "huber" and delta is None:
        delta = _pilot_delta(form, x, log_y, grid)
    threshold = delta if loss == "huber" and delta else 1e-6 if loss == "absolute" else 1.0
    ends = [_descend(form, x, log_y, start, loss=loss, delta=threshold) for start in grid]
    objectives = np.array([loss_sum(form.log_predict(end, x) - log_y, loss=loss, delta=threshold) for end in ends])
    objectives = np.where(np.isfinite(objectives), objectives, np.inf)
    best = int(np.argmin(objectives))
    if not np.isfinite(objectives[best]):
        raise UserError(f"The form {form.name!r} could not be fitted to these points.", "Try --form power.")
    theta, least = ends[best], float(objectives[best])
    residuals = form.log_predict(theta, x) - log_y
    begin = loss_sum(form.log_predict(grid[best], x) - log_y, loss=loss, delta=threshold)
    return Fit(
        form=form, theta=theta, scale=scale, parameters=form.natural(theta, scale), loss=loss, delta=threshold,
        objective=least, objective_at_start=begin, starts=len(grid),
        agree=int((objectives <= least + AGREE * max(least, 1e-300)).sum()),
        gradient=_gradient(form, theta, x, residuals, loss=loss, delta=threshold),
        rms=float(np.sqrt((residuals**2).mean())), points=points,
    )  # fmt: skip


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


def _pilot_delta(form: Form, x: np.ndarray, log_y: np.ndarray, grid: Sequence[np.ndarray]) -> float:
    ends = [_descend(form, x, log_y, start, loss="squares", delta=1.0) for start in grid[:: max(1, len(grid) // 16)]]
    residuals = min((form.log_predict(end, x) - log_y for end in ends), key=lambda r: float((r**2).sum()))
    freedom = max(1, len(log_y) - form.size)
    spread = 1.4826 * float(np.median(np.abs(residuals))) * np.sqrt(len(log_y) / freedom)
    return max(HUBER_K * spread, 1e-9)


def _descend(
    form: Form, x: np.ndarray, log_y: np.ndarray, start: np.ndarray, *, loss: str, delta: float
) -> np.ndarray:
    def residuals(t: np.ndarray) -> np.ndarray:
        return np.clip(np.nan_to_num(form.log_predict(t, x) - log_y, nan=1e3), -1e3, 1e3)

    jacobian = form.jacobian
    options = {} if jacobian is None else {"jac": lambda t: np.nan_to_num(jacobian(t, x), posinf=1e6, neginf=-1e6)}
    try:
        with np.errstate(all="ignore"):  # a start may wander far off; it then loses to the others
            found = least_squares(
                residuals, start, loss="linear" if loss == "squares" else "huber", f_scale=delta, x_scale="jac",
                xtol=1e-13, ftol=1e-13, gtol=1e-15, max_nfev=300, **options,
            )  # fmt: skip
    except (ValueError, np.linalg.LinAlgError):
        return np.full(form.size, np.nan)
    return found.x


def _gradient(
    form: Form, theta: np.ndarray, x: np.ndarray, residuals: np.ndarray, *, loss: str, delta: float
) -> float:
    if form.jacobian is not None:
        jacobian = form.jacobian(theta, x)
    else:
        steps = 1e-6 * np.maximum(1.0, np.abs(theta))
        columns = []
        for i, step in enumerate(steps):
            shift = np.zeros_like(theta)
            shift[i] = step
            columns.append((form.log_predict(theta + shift, x) - form.log_predict(theta - shift, x)) / (2 * step))
        jacobian = np.stack(columns, axis=1)
    influence = {"squares": residuals, "absolute": np.sign(residuals)}
    slope = influence.get(loss, np.clip(residuals, -delta, delta))
    return float(np.abs(jacobian.T @ slope).max())
