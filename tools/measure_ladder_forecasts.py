"""How often a ladder's forecast of the next rung holds what came out there, beside two plainer forecasts.

    python -m tools.measure_ladder_forecasts      writes tools/ladder_forecasts.csv

Two sources, their rungs in order of compute. From the lowest three rungs, four, and so on, the next is forecast.

- `study`: every two networks of `results/reference/scaling-cpu`, at the budgets that both have, in both seeds; what is
  forecast is the difference of one pair of runs.
- `published`: every two recipes of timm's table of results that at least four networks of one family have, at one image
  size of each (ImageNet top-1). Compute is that of one image: a recipe's budgets grow with it. Rungs are a factor of
  `APART` apart or more. Each network was trained once, so the noise of a pair is `PAIR`, and not estimated.

`ladder`: `Ladders.one_more_run`. `line`: least squares through all differences, with the scatter about it alone.
`last`: the highest rung's mean, with the noise of a pair, pooled over rungs as the ladder has it. `covers`: share of
the 95 % intervals that hold the difference; `half`: half their median width; `misses`: the median distance from
forecast to difference, in points. Rules and `PAIR` were written down before any forecast was made.
"""

from __future__ import annotations

import csv
import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from bench.published import public_models
from bench.stats.ladder import FEWEST_RUNGS, LEVEL, TUNING, Ladders
from bench.store.records import read_record
from tools.rows import write

FILE = Path(__file__).with_name("ladder_forecasts.csv")
STUDY = Path(__file__).parents[1] / "results" / "reference" / "scaling-cpu"
PAIR = 0.25  # points: of single trainings of two networks on ImageNet, judged by the same 50,000 images
APART = 1.4  # factor of compute
METHODS = ("ladder", "line", "last")


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A forecast and half its 95 % interval, in points."""

    value: float
    half: float


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """A forecast of each method, and the differences that came out on the next rung."""

    source: str
    family: str
    rungs: int
    forecasts: Mapping[str, Interval]
    came_N: np.ndarray


def main() -> None:
    write(FILE, summary([*of_study(), *of_published()]))


# -- where differences come from ---------------------------------------------------------------------------------------


def of_study() -> Iterator[HeldOut]:
    """Pairs of networks of the main study."""
    accuracy: dict[str, dict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for path in sorted(STUDY.glob("cells/*/record.json")):
        record = read_record(path)
        if record.status != "complete" or "compute" not in record.cell.axes or record.cell.num_images is not None:
            continue
        for horizon in record.horizons:
            scores = [s.value for s in horizon.scores if s.task == "upstream" and s.metric == "accuracy"]
            if horizon.images_seen and scores and scores[0] is not None:
                budget = round(math.log2(horizon.train_flops.paper or 1.0) * 4)  # equal but for whole batches
                accuracy[record.cell.model][budget][record.cell.seed] = 100 * scores[0]
    for first, second in itertools.combinations(sorted(accuracy), 2):
        shared = sorted(set(accuracy[first]) & set(accuracy[second]))
        gains_RN = np.array(
            [
                [
                    accuracy[second][budget][seed] - accuracy[first][budget][seed]
                    for seed in sorted(accuracy[first][budget])
                ]
                for budget in shared
            ]
        )
        x_R = np.array(shared) / 4
        for rungs in range(FEWEST_RUNGS, len(shared)):
            made = Ladders.of(x_R[:rungs], gains_RN[None, :rungs])
            ladder, seeds = made.one_more_run(float(x_R[rungs])), gains_RN.shape[1]
            quantile = stats.t.ppf(1 - LEVEL / 2, [ladder.freedom[0], rungs * (seeds - 1)])
            last = math.sqrt(float(made.pooled()[0]) * (1 + 1 / seeds))
            every_x = np.repeat(x_R[:rungs], seeds)
            forecasts = {
                "ladder": Interval(value=float(ladder.value[0]), half=float(quantile[0] * ladder.error[0])),
                "line": line(every_x, gains_RN[:rungs].ravel(), float(x_R[rungs])),
                "last": Interval(value=float(gains_RN[rungs - 1].mean()), half=float(quantile[1] * last)),
            }
            yield HeldOut(
                source="study", family=f"{first} {second}", rungs=rungs, forecasts=forecasts, came_N=gains_RN[rungs]
            )


def _differences(base: Mapping[int, float], change: Mapping[int, float]) -> list[float]:
    return [change[seed] - base[seed] for seed in sorted(base)]


def of_published() -> Iterator[HeldOut]:
    """Pairs of recipes of timm's table."""
    arms: dict[tuple[str, str], dict[str, tuple[float, float]]] = defaultdict(dict)
    for row in public_models.read("timm_results"):
        arch, _, recipe = row["model"].partition(".")
        if recipe and row["image_size"] == row["own_size"]:
            try:
                macs = public_models.macs(arch, int(row["image_size"]))[0]
            except KeyError:
                continue
            arms[family(arch), recipe][arch] = (macs, float(row["in1k_top1"]))
    for (first, one), (second, other) in itertools.combinations(sorted(arms), 2):
        if first != second:
            continue
        networks = sorted(set(arms[first, one]) & set(arms[first, other]), key=lambda arch: arms[first, one][arch])
        x, gains = _apart(
            [arms[first, one][arch][0] for arch in networks],
            [arms[first, other][arch][1] - arms[first, one][arch][1] for arch in networks],
        )
        for rungs in range(FEWEST_RUNGS, len(x)):
            below, at = (x[:rungs], gains[:rungs]), float(x[rungs])
            forecasts = {
                "ladder": known_noise(*below, at),
                "line": line(*below, at),
                "last": Interval(value=float(gains[rungs - 1]), half=float(_normal() * math.sqrt(2) * PAIR)),
            }
            yield HeldOut(
                source="published", family=first, rungs=rungs, forecasts=forecasts, came_N=gains[rungs : rungs + 1]
            )


def family(arch: str) -> str:
    """A network's name without its size: `resnet` of resnet50, `convnext` of convnext_tiny."""
    sizes = r"atto|femto|pico|nano|zepto|tiny|xxtiny|xtiny|small|medium|base|large|xlarge|huge|giant|gigantic"
    plain = re.sub(rf"_(?:{sizes})(?=_|$)", "", arch)
    return re.sub(r"(?<=[a-uw-z])_?\d+(?=_|$)|_[a-z]{1,3}\d+[a-z]?(?=_|$)|_(?:xxs|xs|s|m|l|xl)(?=_|$)", "", plain)


def _apart(macs: Sequence[float], gains: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """log2 of compute and gains of rungs that are `APART` or more, from the smallest on."""
    kept: list[int] = []
    for index in range(len(macs)):
        if not kept or macs[index] >= APART * macs[kept[-1]]:
            kept.append(index)
    return np.log2([macs[i] for i in kept]), np.array([gains[i] for i in kept])


# -- forecasts ---------------------------------------------------------------------------------------------------------


def known_noise(x_R: np.ndarray, gains_R: np.ndarray, at: float) -> Interval:
    """`Ladders.one_more_run` of one pair on every rung, whose noise is known to be `PAIR`."""
    apart_R = x_R - x_R.mean()
    weights_R = 1 / len(x_R) + (at - x_R.mean()) * apart_R / (apart_R**2).sum()
    slope = apart_R @ gains_R / (apart_R**2).sum()
    left_R = gains_R - gains_R.mean() - slope * apart_R
    rung = PAIR**2 + TUNING**2
    scale = max(1.0, float((left_R**2).sum()) / rung / (len(x_R) - 2))
    variance = scale * rung * (float((weights_R**2).sum()) + 1)
    return Interval(value=float(weights_R @ gains_R), half=float(_normal() * math.sqrt(variance)))


def line(x_N: np.ndarray, gains_N: np.ndarray, at: float) -> Interval:
    """Least squares, and the interval of one more difference from the scatter about it."""
    apart_N = x_N - x_N.mean()
    slope = apart_N @ gains_N / (apart_N**2).sum()
    left_N = gains_N - gains_N.mean() - slope * apart_N
    freedom = len(x_N) - 2
    variance = float((left_N**2).sum()) / freedom
    variance *= 1 + 1 / len(x_N) + (at - x_N.mean()) ** 2 / float((apart_N**2).sum())
    value = float(gains_N.mean() + slope * (at - x_N.mean()))
    return Interval(value=value, half=float(stats.t.ppf(1 - LEVEL / 2, freedom) * math.sqrt(variance)))


def _normal() -> float:
    return float(stats.norm.ppf(1 - LEVEL / 2))


# -- the table ---------------------------------------------------------------------------------------------------------


def summary(every: Sequence[HeldOut]) -> list[dict[str, str]]:
    """A row for each source, for three rungs, for more, and for all."""
    rows = []
    for source in dict.fromkeys(one.source for one in every):
        for name, rungs in (("3", range(3, 4)), ("4 and more", range(4, 99)), ("all", range(3, 99))):
            chosen = [one for one in every if one.source == source and one.rungs in rungs]
            row = {"source": source, "rungs": name, "forecasts": str(len(chosen))}
            row["families"] = str(len({one.family for one in chosen}))
            for method in METHODS:
                held = [(one.forecasts[method], came) for one in chosen for came in one.came_N]
                row[f"covers_{method}"] = f"{np.mean([abs(came - f.value) <= f.half for f, came in held]):.3f}"
                row[f"half_{method}"] = f"{np.median([f.half for f, _ in held]):.2f}"
                row[f"misses_{method}"] = f"{np.median([abs(came - f.value) for f, came in held]):.2f}"
            rows.append(row)
    return rows


def rows() -> list[dict[str, str]]:
    """The committed table."""
    with FILE.open(newline="") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main()
