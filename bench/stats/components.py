"""Variance components of a study, and from them the width of the interval that another grid of cells would give. (A
cell is one training run with its evaluations.)

The statistical model: in each family, accuracy follows a law, a quadratic in the logarithm of compute (or of images).
Four random effects are added to it:

- models: each model lies above or below its family's law, at all its budgets and in all seeds;
- points: a model deviates at one budget, in all seeds (the law is not quite right there);
- trunks: one training run deviates at all its budgets;
- runs: what is left varies with model, budget and seed.

Test images and few-shot draws are left out: they are the same for all runs, so no grid changes their part. The
variances of the effects (components) are estimated by restricted maximum likelihood (Patterson and Thompson 1971). The
target is a difference between the models that represent two families, over a range of compute. Its interval is that of
the best linear unbiased prediction (Henderson 1975), with Student's t whose degrees of freedom are those of the
repeated trainings. No torch is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import optimize

from bench.stats.intervals import POINT_LEVEL, t_quantile

LAW_DEGREE = 2  # degree of a family's polynomial
MIN_VARIANCE = 1e-8  # added to variances, so that none is exactly 0


@dataclass(frozen=True, kw_only=True)
class Components:
    """Variances of the four random effects, in squared units of the measurement.

    Attributes:
        model: between the models of a family.
        point: of a model's deviation at one budget, in all seeds.
        trunk: of one training run's deviation at all its budgets.
        run: of what is left.
        df: degrees of freedom of `trunk` and `run`.
    """

    model: float
    point: float
    trunk: float
    run: float
    df: int = 0

    @property
    def variances(self) -> tuple[float, float, float, float]:
        return self.model, self.point, self.trunk, self.run


@dataclass(frozen=True, kw_only=True, order=True)
class Arm:
    """A part of a planned grid of cells: one model, trained `seeds` times. `x`: log2 of compute (or images) at each of
    its budgets."""

    model: str
    family: str
    x: tuple[float, ...]
    seeds: int


@dataclass(frozen=True, kw_only=True)
class Observations:
    """Measured values (accuracies). Each tuple has one entry per variant, budget and seed. `x` is log2 of compute (or
    images). A variant is a model with everything about its training except the seed; a trunk is a training run (a
    variant with a seed)."""

    values: tuple[float, ...]
    x: tuple[float, ...]
    families: tuple[str, ...]
    models: tuple[str, ...]
    variants: tuple[str, ...]
    trunks: tuple[str, ...]


def law(x: Sequence[float], *, centre: float) -> np.ndarray:
    """Return the design matrix of a law: one row for each x, with the powers 1, x, x² of its distance from `centre`."""
    return np.vander(np.asarray(x, dtype=float) - centre, LAW_DEGREE + 1, increasing=True)


def fit(seen: Observations, *, models: bool = True) -> Components:
    """Estimate the variance components by restricted maximum likelihood.

    Args:
        models: whether to estimate the variance between models; otherwise it is taken as 0. (If every family has one
            model, the model's offset cannot be told from the law.)
    """
    y_N = np.asarray(seen.values)
    centre = float(np.mean(seen.x))
    X_NP = _by_family(seen.families, law(seen.x, centre=centre))
    points = [f"{model} {x}" for model, x in zip(seen.variants, seen.x, strict=True)]
    same = [_same(labels) for labels in (seen.models, points, seen.trunks)] + [np.eye(len(y_N))]
    free = [0, 1, 2, 3] if models else [1, 2, 3]

    def unlikely(logs: np.ndarray) -> float:
        V_NN = sum(np.exp(log) * same[k] for log, k in zip(logs, free, strict=True))
        L_NN = np.linalg.cholesky(V_NN + MIN_VARIANCE * np.eye(len(y_N)))
        A_NP, b_N = np.linalg.solve(L_NN, X_NP), np.linalg.solve(L_NN, y_N)
        XVX_PP = A_NP.T @ A_NP
        residual_N = b_N - A_NP @ np.linalg.solve(XVX_PP, A_NP.T @ b_N)
        return float(2 * np.log(np.diag(L_NN)).sum() + np.linalg.slogdet(XVX_PP)[1] + residual_N @ residual_N)

    start = np.full(len(free), np.log(np.var(y_N) / 8))
    optimum = optimize.minimize(unlikely, start, method="Nelder-Mead", options={"maxiter": 2000, "xatol": 0.01})
    variances = dict.fromkeys(range(4), 0.0) | {k: float(np.exp(log)) for log, k in zip(optimum.x, free, strict=True)}
    df = len(set(seen.trunks)) - len(set(seen.variants))
    return Components(model=variances[0], point=variances[1], trunk=variances[2], run=variances[3], df=df)


@dataclass(frozen=True, kw_only=True)
class Target:
    """The quantity that a grid of cells is to determine: the difference between two families, averaged over several x.

    Attributes:
        pair: names of the two families.
        points: for each x: (x, model that represents the first family there, model that represents the second). All
            grids that are compared are judged by the same points.
    """

    pair: tuple[str, str]
    points: tuple[tuple[float, str, str], ...]


def half_width(
    arms: Sequence[Arm],
    components: Components,
    target: Target,
    *,
    families: Mapping[str, str],
    level: float = POINT_LEVEL,
) -> float:
    """Return the expected half-width of the target's interval if these arms (models with budgets and numbers of seeds)
    were run, in units of the measurement; infinite if they cannot determine the target. A model without an arm is
    predicted from its family's law alone.

    Args:
        families: model -> family, for every model, whether it has an arm or not.
        level: confidence level of the interval.
    """
    df = components.df + sum(arm.seeds - 1 for arm in arms)
    variance = 0.0
    for side, family in enumerate(target.pair):
        known = tuple(sorted(model for model, other in families.items() if other == family))
        weights, centre = _weights(target, side, known)
        mine = tuple(sorted(arm for arm in arms if arm.family == family))
        covariance = _covariance(mine, known, components, centre)
        if df < 1 or covariance is None:
            return float("inf")
        variance += float(weights @ covariance @ weights)
    return t_quantile(df, level) * variance**0.5


@lru_cache(maxsize=256)
def _weights(target: Target, side: int, known: tuple[str, ...]) -> tuple[np.ndarray, float]:
    """Return the weights with which the target sums the coefficients of one family's law and the offsets of its models,
    and the x at which laws are centred. Any centre would do; a rounded one lets the caches be used more often.

    Args:
        side: 0 or 1, the family's place in `target.pair`.
        known: all models of the family, in the order of their offsets.
    """
    xs = [x for x, *_ in target.points]
    centre = 8.0 * round(sum(xs) / len(xs) / 8)
    picked = np.array([[model == name for name in known] for model in (point[1 + side] for point in target.points)])
    return np.concatenate([law(xs, centre=centre), picked.astype(float)], axis=1).mean(0), centre


@lru_cache(maxsize=65536)
def _covariance(
    arms: tuple[Arm, ...], known: tuple[str, ...], components: Components, centre: float
) -> np.ndarray | None:
    """Return the covariance matrix of the estimated coefficients of one family's law and offsets of its models
    (`known`), if `arms` are run; None if they have too few distinct x to determine the law. `centre`: the x at which
    the law is centred."""
    if len({x for arm in arms for x in arm.x}) <= LAW_DEGREE:
        return None
    size = LAW_DEGREE + 1 + len(known)
    information = np.zeros((size, size))
    information[LAW_DEGREE + 1 :, LAW_DEGREE + 1 :] = np.eye(len(known)) / max(components.model, MIN_VARIANCE)
    for arm in arms:
        information += _information(arm, known, components, centre)
    return np.linalg.inv(information)


@lru_cache(maxsize=65536)
def _information(arm: Arm, known: tuple[str, ...], components: Components, centre: float) -> np.ndarray:
    budgets = len(arm.x)
    X_HP = np.zeros((budgets, LAW_DEGREE + 1 + len(known)))
    X_HP[:, : LAW_DEGREE + 1] = law(arm.x, centre=centre)
    X_HP[:, LAW_DEGREE + 1 + known.index(arm.model)] = 1.0
    own = components.point + components.run / arm.seeds + MIN_VARIANCE
    V_HH = components.trunk / arm.seeds * np.ones((budgets, budgets)) + own * np.eye(budgets)
    return X_HP.T @ np.linalg.solve(V_HH, X_HP)


def _by_family(families: Sequence[str], rows_NQ: np.ndarray) -> np.ndarray:
    """Return a design matrix (N rows) in which each family has coefficients of its own: one block of Q columns for each
    family, in alphabetical order. `families`: family of each row."""
    order = sorted(set(families))
    X = np.zeros((len(rows_NQ), len(order) * rows_NQ.shape[1]))
    for n, family in enumerate(families):
        at = order.index(family) * rows_NQ.shape[1]
        X[n, at : at + rows_NQ.shape[1]] = rows_NQ[n]
    return X


def _same(labels: Sequence[str]) -> np.ndarray:
    codes = np.unique(np.asarray(labels), return_inverse=True)[1]
    return (codes[:, None] == codes[None, :]).astype(float)
