"""The runs of ladders of known cases, from their records, as one small table, and what was found.

    python -m tools.ladder_cases positions=FOLDER stem=FOLDER …      writes results/reference/ladders/{runs,cases}.csv

FOLDER is a study's, results/ladder; committed rows of cases that are not named stay. `kind` is "rung" or "trial" (of a
rate, judged on held-out images); accuracy is in points, seconds are of training.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from bench.stats.ladder import VERDICTS, Ladders, verdicts
from bench.store.records import read_record
from bench.study.ladder import BASELINE, place_of
from tools.rows import write

FOLDER = Path(__file__).parents[1] / "results" / "reference" / "ladders"
RUNS, CASES = FOLDER / "runs.csv", FOLDER / "cases.csv"


def read(case: str, study: Path) -> Iterator[dict[str, str]]:
    """A row for each finished run."""
    for path in sorted(study.glob("cells/*/record.json")):
        record = read_record(path)
        if record.status != "complete" or not record.horizons:
            continue
        cell, last = record.cell, record.horizons[-1]
        place = place_of(cell.axes)
        if place is None and not cell.held_out:
            continue
        scores = [s.value for s in last.scores if s.task == "upstream" and s.metric == "accuracy"]
        options = "".join(f":{name}={value}" for name, value in cell.model_options)
        yield {
            "case": case,
            "kind": "trial" if place is None else "rung",
            "arm": (f"{cell.model}{options} {cell.recipe.optimizer}") if place is None else place.change,
            "rung": "" if place is None else str(place.rung),
            "seed": str(cell.seed),
            "rate": f"{cell.recipe.lr:.3g}",
            "images": str(last.images_trained or last.images_seen),
            "flops": f"{last.train_flops.paper or 0:.4g}",
            "accuracy": "" if not scores or scores[0] is None else f"{100 * scores[0]:.2f}",
            "seconds": f"{last.seconds.train or 0:.1f}",
        }


def found(rows: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """What each case's rungs say: verdict, gains and the forecast one rung up."""
    made = []
    for case in dict.fromkeys(row["case"] for row in rows):
        ladder, change = ladder_of(rows, case)
        forecast = ladder.one_more_run(float(2 * ladder.x_R[-1] - ladder.x_R[-2]))
        line = {"case": case, "change": change, "seeds": str(int(ladder.counts_TR.min()))}
        line["verdict"] = str(VERDICTS[int(verdicts(ladder)[0])])
        for number in range(len(ladder.x_R)):
            gain = ladder.rung(number)
            line[f"gain_{number}"] = _with_ends(gain.value, gain.interval())
        line["forecast"] = _with_ends(forecast.value, forecast.interval())
        made.append(line)
    return made


def ladder_of(rows: Sequence[dict[str, str]], case: str) -> tuple[Ladders, str]:
    """The paired gains of a case, and its change."""
    rungs = [row for row in rows if row["case"] == case and row["kind"] == "rung" and row["accuracy"]]
    (change,) = {row["arm"] for row in rungs} - {BASELINE}
    of = {(row["arm"], int(row["rung"]), int(row["seed"])): row for row in rungs}
    seeds = sorted({seed for _, _, seed in of})
    steps = sorted({rung for _, rung, _ in of})
    gains_RN = np.full((len(steps), len(seeds)), np.nan)
    for r, rung in enumerate(steps):
        for n, seed in enumerate(seeds):
            if (change, rung, seed) in of and (BASELINE, rung, seed) in of:
                one, base = of[change, rung, seed], of[BASELINE, rung, seed]
                gains_RN[r, n] = float(one["accuracy"]) - float(base["accuracy"])
    x_R = np.log2([float(of[BASELINE, rung, seeds[0]]["flops"]) for rung in steps])
    return Ladders.of(x_R, gains_RN[None]), change


def _with_ends(value: np.ndarray, ends: tuple[np.ndarray, np.ndarray]) -> str:
    return f"{value[0]:+.1f} [{ends[0][0]:+.1f}, {ends[1][0]:+.1f}]".replace("-", "−")


def bends(rows: Sequence[dict[str, str]]) -> tuple[float, float]:
    """(lowest, highest rung): points that a rate off its best by a factor of e costs, the median of all arms' parabolas
    through the best trial and its neighbours."""
    per_end: tuple[list[float], list[float]] = ([], [])
    trials = [row for row in rows if row["kind"] == "trial" and row["accuracy"]]
    for case in dict.fromkeys(row["case"] for row in trials):
        for arm in dict.fromkeys(row["arm"] for row in trials if row["case"] == case):
            mine = [row for row in trials if row["case"] == case and row["arm"] == arm]
            images = [int(row["images"]) for row in mine]
            for end, of in ((0, min(images)), (1, max(images))):
                tried = sorted((float(r["rate"]), float(r["accuracy"])) for r in mine if int(r["images"]) == of)
                best = max(range(len(tried)), key=lambda i: tried[i][1])
                if 0 < best < len(tried) - 1:
                    rates, scores = np.array(tried[best - 1 : best + 2]).T
                    per_end[end].append(-float(np.polyfit(np.log(rates), scores, 2)[0]))
    return float(np.median(per_end[0])), float(np.median(per_end[1]))


def main(argv: Sequence[str] | None = None) -> None:
    named = [text.partition("=") for text in (sys.argv[1:] if argv is None else argv)]
    new = {case for case, *_ in named}
    with RUNS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["case"] not in new]
    rows += [row for case, _, folder in named for row in read(case, Path(folder))]
    write(RUNS, rows)
    write(CASES, found(rows))
    print(f"{len(rows)} runs; a rate off by a factor of e costs {bends(rows)} points")


if __name__ == "__main__":
    main()
