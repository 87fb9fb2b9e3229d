"""Every law of a study with its card, intervals and warnings, as JSON types, for reports."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from bench.analysis.evidence import Evidence
from bench.analysis.laws import COMPUTE, IMAGES, Law, laws, why_not
from bench.stats import bootstrap, diagnostics

CURVE = 41  # places at which a curve is given
REACH = 3.0  # how far beyond the largest run a curve is drawn


def fit_cards(evidence: Evidence) -> list[dict[str, Any]]:
    """One dictionary per family and axis that allow a law.

    Keys: family, axis ("compute" in FLOP or "images"), measure, y (what is fitted), card (see `Fit.card`), level,
    parameters ({name: {value, within: [low, high]}}), forms_tried, frontier ({x, error} per point, corrected), runs
    (the same of what was fitted, one per seed), picked (mean correction for picking the best), misfit (how far the law
    misses its marks: p of lack of fit, worst miss; None where nothing was repeated), warnings,
    curve ({x, y, within, total, beyond}).
    """
    if not evidence.headline:
        return []
    return [_card(evidence, law) for axis in (COMPUTE, IMAGES) for law in laws(evidence, axis=axis).values()]


def missing(evidence: Evidence) -> list[str]:
    """Sentences: which family has no law on which axis, and why."""
    if not evidence.headline:
        return []
    return [
        f"{family} has no law of error against {axis}: {reason.rstrip('.')}."
        for axis in (COMPUTE, IMAGES) for family, reason in why_not(evidence, axis=axis).items()
    ]  # fmt: skip


def _card(evidence: Evidence, law: Law) -> dict[str, Any]:
    made = law.within.fit
    ends = law.within.parameters()
    x, y = law.frontier
    return {
        "family": law.family, "axis": law.axis, "measure": law.measure, "y": "1 - accuracy", "card": made.card(),
        "level": bootstrap.LEVEL, "resampling": law.within.method,
        "parameters": {name: {"value": value, "within": list(ends[name])} for name, value in made.parameters.items()},
        "forms_tried": [{"form": r.form.name, "rollouts": r.rollouts,
                         "extrapolation_rms_log": r.extrapolation_rmse if np.isfinite(r.extrapolation_rmse) else None}
                        for r in law.ranked],
        "total_over": sorted({f"{r.fit.form.name}, {r.fit.loss}" for r in law.every}),
        "frontier": [{"x": float(a), "error": float(b)} for a, b in zip(x, y, strict=True)],
        "runs": [{"x": float(a), "error": float(b)} for a, b in zip(made.points.x[0], made.points.y, strict=True)],
        "points_tried": law.tried, "picked": law.bias,
        "misfit": None if law.lack_of_fit is None else asdict(law.lack_of_fit),
        "warnings": warnings(evidence, law), "curve": _curve(law),
    }  # fmt: skip


def warnings(evidence: Evidence, law: Law) -> list[str]:
    """What makes this law worth less than it looks."""
    repeated = any(len(p.seeds) > 1 for p in law.places)
    found = diagnostics.warnings(law.within.fit, repeated=repeated) + diagnostics.check_errors(law.within.fit.points)
    most = max(p.epochs for p in law.places)
    if law.axis == COMPUTE and most > diagnostics.MAX_EPOCHS and not evidence.published:
        found.append(f"Data were repeated up to {most:.0f} times: the law holds for this many distinct images only.")
    if law.lack_of_fit is not None and law.lack_of_fit.fails:
        found.append(f"The law {law.lack_of_fit.clause}: what is read off it contradicts what was measured.")
    if law.bias > 0.5 * law.noise > 0:
        found.append(f"Best points were picked from noisy ones: corrected by {100 * law.bias:.2g} points on average.")
    return found


def _curve(law: Law) -> dict[str, list[Any]]:
    low, high = law.range
    x = np.geomspace(low, high * REACH, CURVE)
    within, every = law.within.predictions(x), law.errors(x)
    ends = [bootstrap.quantiles(within[:, i], bootstrap.LEVEL) for i in range(len(x))]
    total = [bootstrap.quantiles(every[:, i], bootstrap.LEVEL) for i in range(len(x))]
    return {
        "x": x.tolist(), "y": law.within.fit.predict(x).tolist(), "beyond": (x > high * (1 + 1e-9)).tolist(),
        "within": [list(pair) for pair in ends],
        "total": [[min(a[0], b[0]), max(a[1], b[1])] for a, b in zip(ends, total, strict=True)],
    }  # fmt: skip
