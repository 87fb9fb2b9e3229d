"""What designs of next runs are worth: the designer of `bench.laws.design` beside designs that people use.

    python -m tools.measure_designs [--studies 40]      writes tools/designs.csv

A study has a pilot of 16 cheap runs, sizes N and samples D, and then money for `MONEY` times what these cost. Every
design spends it (none more than the money), and L = E + A N^-alpha + B D^-beta is fitted to pilot and new runs. The
answers: the exponent of the best size, the best size at ten times the money, and y there. `half` is half of the 90 %
interval of the refits, the median; `error` the median absolute error, `rms_error` the root mean square one; `covers`
the share of studies whose interval holds the truth; sizes and y in logarithms. The designs of others keep D = 20 N at
their middle:

- approach 1 (Hoffmann et al. 2022): four sizes, each stopped at four horizons, a factor of two apart
- approach 2: four budgets, a factor of three apart, each with five sizes, a factor of two apart
- approach 3: half the money on each of these, all runs in one fit
- ladder (Bhagia et al. 2024, OLMo): four sizes, a factor of two apart, at D = 20 N times 0.5, 1, 2 and 5
- equal spacing: eight runs along D = 20 N, a factor of two of size apart
- largest: one run

Truths: the laws of Hoffmann et al. 2022 and of its replication (Besiroglu et al. 2024), a law whose samples matter less
than its size, and two that the fitted form does not hold: that of Kaplan et al. 2020, and one that levels off towards
chance for small runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar

from bench.laws import averaging, bootstrap, design, extrapolation, fit, next_runs
from bench.laws.forms import CHINCHILLA
from bench.laws.runs_table import FLOP_PER
from tools.rows import simulate

FILE = Path(__file__).with_name("designs.csv")
MONEY = 30.0  # times the pilot's cost
NOISE = 0.01  # standard deviation of log y of a run
BEYOND = 10.0  # times the money, at which best size and y are asked
RATIO = 20.0  # samples per parameter, in the middle of pilot and designs
DRAWS = 100
PILOT_N, PILOT_D = np.geomspace(1e7, 8e7, 4), RATIO * np.geomspace(1e7, 8e7, 4)

Loss = Callable[[np.ndarray, np.ndarray], np.ndarray]
ANSWERS = ("exponent", "optimum", "y")


def _sum(e: float, a: float, alpha: float, b: float, beta: float) -> Loss:
    return lambda n, d: e + a * n**-alpha + b * d**-beta


def _kaplan(n: np.ndarray, d: np.ndarray) -> np.ndarray:
    return ((8.8e13 / n) ** (0.076 / 0.095) + 5.4e13 / d) ** 0.095


def _levelling(n: np.ndarray, d: np.ndarray) -> np.ndarray:
    inner = 0.2 + 300 * n**-0.34 + 500 * d**-0.33
    return 1 / (1 / inner**4 + 1 / 6.9**4) ** 0.25


TRUTHS: Mapping[str, Loss] = {
    "Hoffmann": _sum(1.69, 406.4, 0.34, 410.7, 0.28),
    "Besiroglu": _sum(1.8172, 482.01, 0.3478, 2085.43, 0.3658),
    "size matters more": _sum(0.5, 60.0, 0.22, 3000.0, 0.45),
    "Kaplan": _kaplan,
    "levels off": _levelling,
}


@dataclass(frozen=True)
class Runs:
    """Sizes and samples."""

    n: np.ndarray
    d: np.ndarray

    @property
    def cost(self) -> float:
        """FLOP of all."""
        return float(FLOP_PER * (self.n * self.d).sum())

    @classmethod
    def crossed(cls, n: Sequence[float], per: Sequence[float]) -> Runs:
        """Every size with `per` samples per parameter."""
        n_all, per_all = (both.ravel() for both in np.meshgrid(np.asarray(n, float), np.asarray(per, float)))
        return cls(n_all, n_all * per_all)

    def joined(self, other: Runs) -> Runs:
        return Runs(np.append(self.n, other.n), np.append(self.d, other.d))

    def costing(self, money: float) -> Runs:
        """The same design at another scale."""
        factor = np.sqrt(money / self.cost)
        return Runs(self.n * factor, self.d * factor)


def _approach_2() -> Runs:
    made = [
        (n := np.sqrt(budget / (FLOP_PER * RATIO)) * 2.0**step, budget / (FLOP_PER * n))
        for budget in 3.0 ** np.arange(4)
        for step in range(-2, 3)
    ]
    return Runs(*map(np.array, zip(*made, strict=True)))


FOUR = 2.0 ** np.arange(4)
OTHERS: Mapping[str, Callable[[float], Runs]] = {
    "approach 1": lambda money: _approach_1().costing(money),
    "approach 2": lambda money: _approach_2().costing(money),
    "approach 3": lambda money: _approach_1().costing(money / 2).joined(_approach_2().costing(money / 2)),
    "ladder": lambda money: Runs.crossed(FOUR, RATIO * np.array([0.5, 1, 2, 5])).costing(money),
    "equal spacing": lambda money: Runs.crossed(2.0 ** np.arange(8), [RATIO]).costing(money),
    "largest": lambda money: Runs.crossed([1.0], [RATIO]).costing(money),
}


def _approach_1() -> Runs:
    """The horizons of a size are runs of their own: each has a schedule that ends there."""
    return Runs.crossed(FOUR, RATIO * np.array([0.35, 0.7, 1.4, 2.8]))


def truth_of(loss: Loss, compute: float) -> dict[str, float]:
    """The answers of a truth, by a search over sizes."""

    def best(at: float) -> tuple[float, float]:
        def of(log_n: float) -> float:
            n = np.exp(log_n)
            return float(np.log(loss(np.array(n), np.array(at / (FLOP_PER * n)))))

        found = minimize_scalar(of, bounds=(np.log(1e5), np.log(1e13)), method="bounded", options={"xatol": 1e-9})
        return float(found.x), float(found.fun)

    low, high = best(compute / 1.5)[0], best(compute * 1.5)[0]
    size, y = best(compute)
    return {"exponent": (high - low) / np.log(1.5**2), "optimum": size, "y": y}


def measured(loss: Loss, *, seed: int) -> list[dict[str, float | str]]:
    """One study, all designs and answers."""
    rng = np.random.default_rng(seed)
    n, d = (axis.ravel() for axis in np.meshgrid(PILOT_N, PILOT_D))
    pilot = Runs(n, d)
    money = MONEY * pilot.cost
    asked = BEYOND * money
    seen = _observed(loss, pilot, rng)
    group = _group(seen)
    true = truth_of(loss, asked)
    made = {name: dict.fromkeys(ANSWERS, of(money)) for name, of in OTHERS.items()}
    made["designer"] = {answer: _designed(group, answer, money, asked) for answer in ANSWERS}
    made["none"] = dict.fromkeys(ANSWERS, Runs(np.zeros(0), np.zeros(0)))
    rows: list[dict[str, float | str]] = []
    for name, by_answer in made.items():
        found: dict[int, dict[str, tuple[float, float, float]]] = {}
        for answer, runs in by_answer.items():
            if id(runs) not in found:
                found[id(runs)] = _answers(_group(_joined(seen, _observed(loss, runs, rng))), asked)
            middle, low, high = found[id(runs)][answer]
            rows.append(
                {
                    "design": name,
                    "answer": answer,
                    "runs": len(runs.n),
                    "spent": runs.cost / money,
                    "half": (high - low) / 2,
                    "error": middle - true[answer],
                    "covers": float(low <= true[answer] <= high),
                }
            )
    return rows


def _observed(loss: Loss, runs: Runs, rng: np.random.Generator) -> fit.Points:
    y = loss(runs.n, runs.d) * np.exp(NOISE * rng.normal(size=len(runs.n)))
    return fit.Points(x=np.stack([runs.n, runs.d]), y=y, cluster=np.arange(len(y)))


def _joined(one: fit.Points, other: fit.Points) -> fit.Points:
    y = np.append(one.y, other.y)
    return fit.Points(x=np.concatenate([one.x, other.x], axis=1), y=y, cluster=np.arange(len(y)))


def _group(points: fit.Points) -> design.KnownGroup:
    made = fit.fit(points, CHINCHILLA, loss="squares", max_starts=60, ftol=fit.REFIT_FTOL)
    refits = averaging.alone(bootstrap.resample(made, draws=DRAWS, restarts=0))
    return design.KnownGroup(name="all", fits=(made,), weights=np.ones(1), refits=refits)


def _name(answer: str, asked: float) -> str:
    return answer if answer == "exponent" else f"{answer}@{asked:.6g}"


def _designed(group: design.KnownGroup, answer: str, money: float, asked: float) -> Runs:
    order = next_runs.Order(
        narrow=_name(answer, asked), money=money, price=lambda x: FLOP_PER * x[0] * x[1], unit="FLOP"
    )
    (made,) = group.fits
    law = extrapolation.forecast(made.points, [made.form], half_life=None)
    runs = next_runs.chosen(order, [group], form=CHINCHILLA, middle=1.0, law=law)
    return Runs(*runs)


def _answers(group: design.KnownGroup, asked: float) -> dict[str, tuple[float, float, float]]:
    """(value, low, high) of every answer."""
    (made,) = group.fits
    laws = [
        design.DrawnLaw(form=CHINCHILLA, scale=made.scale, theta=theta)
        for theta in (made.theta, *group.refits.parts[0].thetas)
    ]
    told = {}
    for answer in ANSWERS:
        wanted = next_runs.named(_name(answer, asked), [group], form=CHINCHILLA, middle=1.0)
        middle, *refits = (wanted.value([law]) for law in laws)
        told[answer] = (middle, *bootstrap.quantiles(np.array(refits), bootstrap.LAW_LEVEL))
    return told


def rows(studies: int) -> list[dict[str, str]]:
    """Every truth, answer and design."""
    made = []
    for number, (name, loss) in enumerate(TRUTHS.items()):
        every = [row for study in range(studies) for row in measured(loss, seed=10_000 * number + study)]
        for answer in ANSWERS:
            for kind in ("none", "designer", *OTHERS):
                mine = [row for row in every if row["design"] == kind and row["answer"] == answer]
                of = {
                    key: np.array([row[key] for row in mine], float)
                    for key in ("runs", "spent", "half", "error", "covers")
                }
                made.append(
                    {
                        "truth": name,
                        "answer": answer,
                        "design": kind,
                        "studies": str(studies),
                        "runs": f"{np.median(of['runs']):g}",
                        "spent": f"{np.mean(of['spent']):.2f}",
                        "half": f"{np.median(of['half']):.3g}",
                        "error": f"{np.median(np.abs(of['error'])):.3g}",
                        "rms_error": f"{np.sqrt(np.mean(np.clip(of['error'], -5, 5) ** 2)):.3g}",
                        "covers": f"{np.mean(of['covers']):.2f}",
                    }
                )
        print(name, flush=True)
    return made


def main(argv: Sequence[str] | None = None) -> None:
    simulate(argv, __doc__, rows, of="studies", usual=40, to=FILE)


if __name__ == "__main__":
    main()
