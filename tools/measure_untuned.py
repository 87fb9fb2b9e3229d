"""What verdicts of ladders would be where rates are not tuned alike.

    python -m tools.measure_untuned [--ladders 2000]      writes tools/untuned.csv

A change whose gain is constant has its best rate `factor` times the baseline's, at both ends of a ladder of three
rungs. Accuracy falls with the square of the logarithm of rate over best rate, by `BENDS` points, about what the trials
of the committed cases show (results/reference/ladders, `tools.ladder_cases.bends`). Rates are chosen by the project's
own rules from noisy trials: of both arms (`alike`), of the baseline alone, whose rate the change takes over (`taken
over`), or by an oracle (`best`). `wrong`: the share of ladders that are said to grow, fade or reverse; `other`: those
with another verdict than by rates tuned alike, with the same noise; `rung_sd`: standard deviation of what rates add to
the gain of the lowest and of the highest rung, beside the 0.3 points that intervals allow for; `mean`: its mean.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bench.plan.tuning import FIRST, STEP, Trials, choice, further
from bench.stats.ladder import TREND, VERDICTS, Ladders, verdicts
from tools.rows import simulate

FILE = Path(__file__).with_name("untuned.csv")
BENDS = (3.5, 1.5)  # points at the lowest and the highest rung, of a rate off by a factor of e
PAIRS = (1.5, 0.5)  # standard deviation of the difference of a pair there
SEEDS, X_R = 5, np.array([0.0, 2.0, 4.0])
FACTORS, GAINS = (1.0, 1.5, 2.0, 3.0), (0.0, 1.0, 2.0)
HOW = ("best", "alike", "taken over")


def tuned(best: Sequence[float], rng: np.random.Generator) -> list[list[float]]:
    """Logarithms of the rates that are chosen at both ends, of arms with these best rates, as ladders tune them.

    Args:
        best: logarithm of each arm's.
    """
    grid = tuple(STEP ** (number - (FIRST - 1) / 2) for number in range(FIRST))
    keys = list(itertools.product(range(len(best)), range(2)))
    known: dict[tuple[int, int, float], float] = {}

    def judged(arm: int, end: int, made: Trials) -> Trials:
        for rate in made.rates:
            noise = PAIRS[end] / math.sqrt(2) * rng.normal()
            known.setdefault((arm, end, rate), 70.0 - BENDS[end] * (math.log(rate) - best[arm]) ** 2 + noise)
        return Trials(rates=made.rates, scores=tuple(known[arm, end, rate] / 100 for rate in made.rates))

    trials = {key: judged(*key, Trials(rates=grid)) for key in keys}
    while more := further(trials):
        trials = {key: judged(*key, made) for key, made in more.items()}
    return [[math.log(choice(trials[arm, end])) for end in range(2)] for arm in range(len(best))]


def measured(*, factor: float, ladders: int, seed: int) -> list[dict[str, str]]:
    """A row for each way to choose rates and each gain."""
    rng = np.random.default_rng(seed)
    share_R = X_R / X_R[-1]
    bend_R = np.exp(np.interp(share_R, (0, 1), np.log(BENDS)))
    pair_R = np.interp(share_R, (0, 1), PAIRS)
    off = {how: np.zeros((ladders, len(X_R))) for how in HOW}
    for ladder in range(ladders):
        base = math.log(STEP) * rng.uniform(-0.5, 0.5)
        change = base + math.log(factor)
        one, other = (np.interp(share_R, (0, 1), ends) for ends in tuned((base, change), rng))
        lost_R = bend_R * (one - base) ** 2
        off["alike"][ladder] = lost_R - bend_R * (other - change) ** 2
        off["taken over"][ladder] = lost_R - bend_R * (one - change) ** 2
    noise_TRN = rng.normal(size=(ladders, len(X_R), SEEDS)) * pair_R[None, :, None]
    made = []
    for gain in GAINS:
        found = {how: verdicts(Ladders.of(X_R, gain + off[how][:, :, None] + noise_TRN)) for how in HOW}
        for how in HOW:
            shares = {str(verdict): float((found[how] == index).mean()) for index, verdict in enumerate(VERDICTS)}
            row = {"factor": factor, "gain": gain}
            numbers = {
                **shares,
                "wrong": sum(shares[verdict] for verdict in TREND),
                "other": float((found[how] != found["alike"]).mean()),
                "rung_sd_low": float(off[how][:, 0].std()),
                "rung_sd_high": float(off[how][:, -1].std()),
                "mean_low": float(off[how][:, 0].mean()),
                "mean_high": float(off[how][:, -1].mean()),
            }
            made.append(
                {"rates": how, **{k: f"{v:g}" for k, v in row.items()}, **{k: f"{v:.3f}" for k, v in numbers.items()}}
            )
    return made


def rows(ladders: int) -> list[dict[str, str]]:
    """A row for each distance between best rates and each way to tune."""
    return [row for number, f in enumerate(FACTORS) for row in measured(factor=f, ladders=ladders, seed=number)]


def main(argv: Sequence[str] | None = None) -> None:
    simulate(argv, __doc__, rows, of="ladders", usual=2000, to=FILE)


if __name__ == "__main__":
    main()
