"""Variance components are found again, and intervals are as wide as simulated studies scatter."""

from __future__ import annotations

import numpy as np
import pytest

from bench.stats.components import LEAST, Arm, Components, Observations, Target, fit, half_width, law
from bench.stats.intervals import t_quantile

TRUE = Components(model=0.02**2, point=0.01**2, trunk=0.015**2, run=0.01**2, df=1000)
LAWS = {"A": (0.5, 0.06, -0.004), "B": (0.45, 0.05, 0.0)}
ARMS = [
    Arm(model=f"{family}{n}", family=family, x=tuple(n + np.arange(4.0)), seeds=2 + n % 2)
    for family in LAWS
    for n in range(3)
]
FAMILIES = {arm.model: arm.family for arm in ARMS}
TARGET = Target(
    pair=("A", "B"),
    points=tuple((float(x), f"A{min(2, int(x) // 2)}", f"B{min(2, int(x) // 2)}") for x in np.linspace(1, 5, 9)),
)


def study(rng, arms=ARMS) -> tuple[Observations, float]:
    """A study drawn from the model, and the lead that it should find."""
    rows, place = [], {model: rng.normal(0, TRUE.model**0.5) for model in FAMILIES}
    for arm in arms:
        points = {x: rng.normal(0, TRUE.point**0.5) for x in arm.x}
        for seed in range(arm.seeds):
            trunk = rng.normal(0, TRUE.trunk**0.5)
            for x in arm.x:
                mean = np.polyval(LAWS[arm.family][::-1], x) + place[arm.model] + points[x]
                value = mean + trunk + rng.normal(0, TRUE.run**0.5)
                rows.append((float(value), x, arm.family, arm.model, f"{arm.model} {seed}"))
    values, xs, families, models, trunks = zip(*rows, strict=True)
    seen = Observations(values=values, x=xs, families=families, models=models, variants=models, trunks=trunks)
    lead = [
        np.polyval(LAWS["A"][::-1], x) + place[a] - np.polyval(LAWS["B"][::-1], x) - place[b]
        for x, a, b in TARGET.points
    ]
    return seen, float(np.mean(lead))


def predicted(seen: Observations) -> float:
    """The lead by the true components: laws by generalised least squares, and each model's place beside its law."""
    y_N, families, models = np.asarray(seen.values), np.asarray(seen.families), np.asarray(seen.models)
    names = sorted(LAWS)
    X_NP = np.concatenate([law(seen.x) * (families == name)[:, None] for name in names], axis=1)
    points = np.array([f"{model} {x}" for model, x in zip(seen.models, seen.x, strict=True)])
    labels = (models, points, np.asarray(seen.trunks), np.arange(len(y_N)))
    V_NN = sum(v * (same[:, None] == same) for v, same in zip(TRUE.variances, labels, strict=True))
    W_NP = np.linalg.solve(V_NN + LEAST * np.eye(len(y_N)), X_NP)
    beta_P = np.linalg.solve(X_NP.T @ W_NP, W_NP.T @ y_N)
    left_N = np.linalg.solve(V_NN + LEAST * np.eye(len(y_N)), y_N - X_NP @ beta_P)
    betas = dict(zip(names, beta_P.reshape(len(names), -1), strict=True))

    def at(family: str, model: str, x: float) -> float:
        return float(law([x])[0] @ betas[family]) + TRUE.model * float(left_N[models == model].sum())

    return float(np.mean([at("A", a, x) - at("B", b, x) for x, a, b in TARGET.points]))


def test_components_are_found_again():
    rng = np.random.default_rng(0)
    found = [fit(study(rng)[0]) for _ in range(12)]
    for name in ("point", "trunk", "run"):
        mean = np.mean([getattr(each, name) for each in found])
        assert mean == pytest.approx(getattr(TRUE, name), rel=0.5), name


@pytest.mark.parametrize(
    "arms",
    [
        ARMS,
        [arm for arm in ARMS if arm.model != "A1"],
        [Arm(model=a.model, family=a.family, x=a.x[:2], seeds=1) for a in ARMS],
    ],
)
def test_the_interval_is_as_wide_as_simulated_studies_scatter(arms):
    rng = np.random.default_rng(1)
    off = [predicted(seen) - lead for seen, lead in (study(rng, arms) for _ in range(200))]
    df = TRUE.df + sum(arm.seeds - 1 for arm in arms)
    wanted = half_width(arms, TRUE, TARGET, families=FAMILIES) / t_quantile(df, 0.95)
    assert np.sqrt(np.mean(np.square(off))) == pytest.approx(wanted, rel=0.2)  # 4 standard errors of 200


def test_less_data_never_narrow_an_interval_and_too_little_tells_nothing():
    full = half_width(ARMS, TRUE, TARGET, families=FAMILIES)
    assert half_width(ARMS[1:], TRUE, TARGET, families=FAMILIES) > full
    assert half_width([a for a in ARMS if a.family == "A"], TRUE, TARGET, families=FAMILIES) == float("inf")
