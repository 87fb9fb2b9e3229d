"""How often a whole report says something false of families: `python -m tools.measure_reports FOLDER SUITE CSV`.

Studies of the shape of a committed one (its cells, budgets, seeds, draws and test images) get simulated scores, and the
project's own evidence, questions and title read them. Truths:

- `null`: error is one power law of compute times one of the images of the set, the same for every family. Every
  decided verdict on a question about two families is false, and so is a title that names a leader.
- `gap`: the first family (ViT, where there is one) is 2 points better everywhere.
- `crossing`: its error falls faster, and it overtakes the others in the middle of the range of compute.

Chance, as in the committed studies: seeds differ by `SEEDS` in log-odds, with a correlation of `ADJACENT` from one
budget of a trunk to the next; few-shot draws that all models share, and draws of each model; test images of different
difficulty, images that a model finds hard, and single answers. Every score has its right and wrong bits.

    python -m tools.measure_reports results/reference/scaling-cpu scaling null.csv --studies 200
    python -m tools.measure_reports FOLDER SUITE upstream.csv --upstream --test-images 10000   # test accuracy alone

A study takes about four seconds of one core, nearly all of it refits of laws; without them (`--quick`) a tenth of that.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import astuple, dataclass, fields, replace
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from scipy import special

from bench.analysis import questions, scaling_laws
from bench.analysis.evidence import UPSTREAM, Evidence, nothing_computed
from bench.analysis.families import VIT, kind_of
from bench.analysis.finding import Axis
from bench.analysis.findings import ValidityCheck
from bench.analysis.study_data import PIXELS
from bench.questions import gap_over_compute, gap_over_images
from bench.report import build, text
from bench.report.title import title_of
from bench.store.prediction_bits import Correct

SEEDS, ADJACENT = 0.07, 0.5  # log-odds; correlation
DRAWS, OWN_DRAWS = 0.10, 0.05  # log-odds: of a draw for all models, of a draw for one run
IMAGES, OF_MODEL, OF_RUN = 0.55, 0.15, 0.10
"""Shares of the variance of an answer that are of the image, of the image for a model, and of the image for a run; the
rest is of the single answer."""
FIRST_ERROR, LAST_ERROR, OF_FEW_IMAGES = 0.50, 0.21, 1.5
"""Errors at the least and the most compute, and the factor on the error of a hundredth of the images."""
GAP, STEEPER = 0.02, 0.12  # of `gap`; difference of exponents of `crossing`
BY_REFITS = ("compute to match", "crossing over compute", "crossing over images", "hybrids stop helping")
NO_VERDICT = ("next run",)  # advice about two families
TRUTHS = ("null", "gap", "crossing")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What is simulated: a study's cells and scores without their values."""

    folder: Path
    suite: str
    upstream: bool
    seeds: int
    test_images: int
    truth: str
    quick: bool


@lru_cache(maxsize=2)
def template(shape: Shape) -> Evidence:
    """The study's evidence with the scores that are read."""
    evidence, _ = build.measured(shape.folder, shape.suite, None)
    if shape.upstream:
        evidence = replace(evidence, headline=(UPSTREAM,), far=(), shots=None, **nothing_computed())
    scores = evidence.scores[evidence.scores["measure"].isin([*evidence.headline, UPSTREAM])]
    scores = scores[scores["shots"].isna() | (scores["shots"] == evidence.shots)]
    keys = ["directory", "images_seen", "variant", "seed", "family", "num_images", "train_flops_paper"]
    scores = scores.astype({"directory": object, "measure": object}).merge(
        evidence.horizons[keys], on=["directory", "images_seen"]
    )
    if shape.seeds:
        scores = scores[scores["seed"] < shape.seeds]
    kept = set(scores["directory"])
    horizons = evidence.horizons[evidence.horizons["directory"].isin(kept)].reset_index(drop=True)
    scores = scores.reset_index(drop=True)
    scores["draw"] = scores["draw"].fillna(-1)
    return replace(evidence, horizons=horizons, scores=scores, **nothing_computed())


def true_errors(scores: pd.DataFrame, truth: str) -> np.ndarray:
    """The error of every score's model over all seeds, draws and images."""
    flops, images = scores["train_flops_paper"].to_numpy(), scores["num_images"].to_numpy(dtype=float)
    trained = (flops > 0) & (scores["family"] != PIXELS).to_numpy()
    least, most = flops[trained].min(), flops[trained].max()
    falls = math.log(FIRST_ERROR / LAST_ERROR) / math.log(most / least)
    error = FIRST_ERROR * (np.maximum(flops, least) / least) ** -falls
    error *= (images / np.nanmax(images)) ** -(math.log(OF_FEW_IMAGES) / math.log(100))
    first = trained & np.array([kind_of(family) == VIT for family in scores["family"]])
    if truth == "gap":
        error = error - GAP * first
    if truth == "crossing":
        error = error * np.where(first, (np.maximum(flops, least) / math.sqrt(least * most)) ** -STEEPER, 1.0)
    return np.where(trained, np.clip(error, 0.02, 0.95), 0.75)


def simulated(evidence: Evidence, shape: Shape, number: int) -> Evidence:
    """The study with scores of its own."""
    rng = np.random.default_rng([7, number])
    scores = evidence.scores
    log_odds = special.logit(1 - true_errors(scores, shape.truth))
    log_odds = log_odds + _luck_of_seeds(rng, scores) + _of(rng, scores, ["measure", "draw"], DRAWS)
    log_odds += _of(rng, scores, ["measure", "draw", "variant", "seed"], OWN_DRAWS)
    right = _answers(rng, scores, special.expit(log_odds), shape.test_images)
    value = [one.mean() for one in right]
    number_of = [len(one) for one in right]
    correct = pd.Series(
        [
            Correct(content_hash=measure, num_images=len(one), packed=np.packbits(one).tobytes())
            for one, measure in zip(right, scores["measure"], strict=True)
        ],
        dtype=object,
    )
    drawn = scores["draw"].where(scores["draw"] >= 0)
    made = scores[evidence.scores.columns.drop(_ADDED)].assign(
        value=value, num_test=np.array(number_of, dtype=float), stderr=np.nan, correct=correct, draw=drawn
    )
    return replace(evidence, scores=made, **nothing_computed())


_ADDED = ["variant", "seed", "family", "num_images", "train_flops_paper"]


def _luck_of_seeds(rng: np.random.Generator, scores: pd.DataFrame) -> np.ndarray:
    """Log-odds by trunk and budget; untrained networks and raw pixels have none."""
    luck = np.zeros(len(scores))
    for _, rows in scores.groupby(["variant", "seed"], sort=True).indices.items():
        seen = scores["images_seen"].to_numpy()[rows]
        before = 0.0
        for nth, budget in enumerate(np.unique(seen[seen > 0])):
            share = ADJACENT if nth else 0.0
            before = share * before + math.sqrt(1 - share**2) * rng.normal()
            luck[rows[seen == budget]] = SEEDS * before
    return luck


def _of(rng: np.random.Generator, scores: pd.DataFrame, keys: list[str], sd: float) -> np.ndarray:
    """A normal value for every group of scores; scores without draws have none."""
    group = scores.groupby(keys, sort=True).ngroup().to_numpy()
    values = rng.normal(0, sd, group.max() + 1)[group]
    return np.where(scores["draw"].to_numpy() >= 0, values, 0.0)


def _answers(
    rng: np.random.Generator, scores: pd.DataFrame, accuracy: np.ndarray, test_images: int
) -> list[np.ndarray]:
    """Which images every score has right: a normal value of image, model and run is above a threshold."""
    models = scores.groupby("variant").ngroup().to_numpy()
    runs = scores.groupby(["variant", "seed"]).ngroup().to_numpy()
    right: list[np.ndarray] = [np.zeros(0)] * len(scores)
    threshold = special.ndtri(accuracy).astype(np.float32)
    rest = np.float32(math.sqrt(1 - IMAGES - OF_MODEL - OF_RUN))
    for _, rows in scores.groupby("measure", sort=True).indices.items():
        number = test_images or int(scores["num_test"].iloc[rows[0]])

        def noise(groups: int, share: float, number: int = number) -> np.ndarray:
            return math.sqrt(share) * rng.standard_normal((groups, number), dtype=np.float32)

        of_image, of_model, of_run = (
            noise(1, IMAGES)[0],
            noise(models.max() + 1, OF_MODEL),
            noise(runs.max() + 1, OF_RUN),
        )
        for row in rows:
            single = rest * rng.standard_normal(number, dtype=np.float32)
            right[row] = of_image + of_model[models[row]] + of_run[runs[row]] + single > -threshold[row]
    return right


# -- what a report says ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Row:
    """One main finding about two families of one study. decided: its verdict in words, "" where it is open. titled: it
    is the study's title."""

    study: int
    question: str
    subject: str
    decided: str
    estimate: float | None
    low: float | None
    high: float | None
    p: float | None
    titled: bool
    unit: str


def one(number: int, *, shape: Shape) -> list[Row]:
    """The main findings of a simulated study, read as its report reads them."""
    evidence = simulated(template(shape), shape, number)
    asked = build._questions(shape.suite, evidence)
    about_two = [q.name for q in questions.asked(asked) if q.about_two and q.name not in NO_VERDICT]
    with ExitStack() as changed:
        changed.enter_context(patch.object(gap_over_compute, "by_law", _nothing))
        changed.enter_context(patch.object(gap_over_images, "by_law", _nothing))
        changed.enter_context(patch.object(questions, "_claims", lambda *_: ((), ())))
        if shape.quick:
            changed.enter_context(patch.object(scaling_laws, "_fit", _unfitted))
            about_two = [name for name in about_two if name not in BY_REFITS]
        found = questions.find(evidence, about_two)
    design = build._design(shape.suite)
    title = title_of(found, figures=design.figures if design else (), own=evidence.own_question)
    return [
        Row(
            study=number,
            question=f.question,
            subject=", ".join(f.subject),
            decided=text.verdict_of(f)[0] if questions.is_decided(f) else "",
            estimate=f.estimate,
            low=f.low,
            high=f.high,
            p=f.p,
            titled=title is not None and place == title.finding,
            unit=str(f.unit),
        )
        for place, f in enumerate(found.findings)
        if f.main
    ]


def _unfitted(evidence: Evidence, family: str, axis: Axis, measure: str) -> scaling_laws.Law | ValidityCheck:
    """A law of which only the points are read."""
    known = scaling_laws._prepared(evidence, family, axis, measure)
    if isinstance(known, ValidityCheck):
        return known
    pairs = zip(known.front, known.biases, strict=True)
    best = tuple((float(known.x[i]), float(known.errors[i] - b)) for i, b in pairs if i in known.strict)
    points = tuple(known.known[i] for i in known.front)
    parts: dict[str, Any] = dict.fromkeys(("averaged", "forecast", "ranked", "group_means"))
    parts["within"] = SimpleNamespace(fit=SimpleNamespace(points=known.data))
    rest: dict[str, Any] = {"tried": len(known.known), "bias": 0.0, "noise": 0.0, "most": float(known.x.max())}
    return scaling_laws.Law(family=family, axis=axis, measure=measure, points=points, best=best, **parts, **rest)


def _nothing(*_: object) -> list[object]:
    """In place of what findings say beside their verdict, which takes half of the time."""
    return []


def share(number: int, of: int) -> str:
    """A share with its standard error; of none or all that of half a study."""
    p = min(max(number / of, 0.5 / of), 1 - 0.5 / of)
    return f"{100 * number / of:.1f} ± {100 * math.sqrt(p * (1 - p) / of):.1f} %"


def expected(question: str, subject: str, truth: str) -> float | None:
    """The true value of an estimate; None where it has none under this truth."""
    first, second = (kind_of(name) == VIT for name in subject.split(", "))
    if question == "best family at equal compute":
        return {"null": 0.0, "gap": GAP * (first - second)}.get(truth)
    if question in ("gap over compute", "gap over images", "hybrid advantage shrinks"):
        return 0.0 if truth in ("null", "gap") else None
    return 1.0 if question == "compute to match" and truth == "null" else None


def summary(table: pd.DataFrame, truth: str) -> list[str]:
    """Tables by question and subject, and of whole reports."""
    studies = table["study"].nunique()
    table = table.assign(is_decided=table["decided"].notna(), half=(table["high"] - table["low"]) / 2)
    lines = [
        "| question | subject | decided | estimate: mean, SD | half-width: median | interval holds the truth |",
        "|---|---|---|---|---|---|",
    ]
    for (question, subject), rows in table.groupby(["question", "subject"], sort=False):
        known = rows[rows["estimate"].notna() & rows["half"].notna()]
        scale, digits = (100, 2) if len(known) and known["unit"].iloc[0] == "share" else (1, 3)
        numbers = half = holds = "–"
        if len(known) > 1 and known["unit"].iloc[0] in ("share", "times"):
            mean, sd = scale * known["estimate"].mean(), scale * known["estimate"].std()
            numbers, half = f"{mean:.{digits}f}, {sd:.{digits}f}", f"{scale * known['half'].median():.{digits}f}"
            if (true := expected(str(question), str(subject), truth)) is not None:
                held = int(((known["low"] <= true) & (true <= known["high"])).sum())
                holds = share(held, len(known)) + (f" of {len(known)}" if len(known) < studies else "")
        decided = share(int(rows["is_decided"].sum()), studies)
        lines.append(f"| {question} | {subject} | {decided} | {numbers} | {half} | {holds} |")
    reports = table.groupby("study")
    wrong, titled = reports["is_decided"].any(), table[table["titled"] & table["is_decided"]]
    lines += [
        "",
        f"Of {studies} reports, {int(wrong.sum())} ({share(int(wrong.sum()), studies)}) have a decided main answer "
        f"about two families, {table['is_decided'].sum() / studies:.2f} each of {len(table) / studies:.1f} asked; "
        f"{len(titled)} ({share(len(titled), studies)}) are titled with one.",
    ]
    return lines


def main() -> None:
    """Simulate what the table of findings lacks, and print what it then says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="a study whose shape is simulated")
    parser.add_argument("suite", help="the suite whose questions its report asks")
    parser.add_argument("csv", type=Path, help="findings, to which studies are added: an interrupted run goes on")
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--truth", choices=TRUTHS, default="null")
    parser.add_argument("--upstream", action="store_true", help="the headline is the upstream test accuracy alone")
    parser.add_argument("--quick", action="store_true", help="leave out the questions that laws are refitted for")
    parser.add_argument("--seeds", type=int, default=0, help="keep so many seeds of every model")
    parser.add_argument("--test-images", type=int, default=0, help="of every task; default: the study's")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    shape = Shape(
        folder=given.folder,
        suite=given.suite,
        upstream=given.upstream,
        seeds=given.seeds,
        test_images=given.test_images,
        truth=given.truth,
        quick=given.quick,
    )
    done = set(pd.read_csv(given.csv)["study"]) if given.csv.exists() else set()
    left = [number for number in range(given.studies) if number not in done]
    with (
        ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as workers,
        given.csv.open("a", newline="") as file,
    ):
        table = csv.writer(file)
        if not done:
            table.writerow([field.name for field in fields(Row)])
        for rows in workers.map(partial(one, shape=shape), left):
            table.writerows(astuple(row) for row in rows)
            file.flush()
    print(*summary(pd.read_csv(given.csv), given.truth), sep="\n")


if __name__ == "__main__":
    main()
