"""Scores as tables seeds × draws, one per (variant, images seen, measure, shots)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pandas as pd

from bench.analysis.study_data import PIXELS
from bench.stats.intervals import Samples

SampleKey = tuple[str, int, str, int | None]
"""(variant, images seen, measure, shots)."""


def all_samples(horizons: pd.DataFrame, scores: pd.DataFrame) -> Iterator[tuple[SampleKey, Samples]]:
    """Scores of complete cells, grouped. Works on integer codes, one measure at a time: a study may have millions of
    scores, and sorting them takes several times their memory."""
    complete = horizons[horizons["status"] == "complete"]
    if complete.empty or scores.empty:
        return
    cells = complete[["directory", "images_seen", "variant", "seed", "family"]]
    codes = scores["measure"].cat.codes
    for code, measure in enumerate(scores["measure"].cat.categories):
        for (variant, seen, shots), made in _of_measure(scores[codes == code], cells):
            yield (variant, seen, measure, shots), made


def _of_measure(scores: pd.DataFrame, cells: pd.DataFrame) -> Iterator[tuple[tuple[str, int, int | None], Samples]]:
    """Scores of one measure by (variant, images seen, shots)."""
    rows, at = _matched(scores, cells)
    if not len(rows):
        return
    variants = sorted(set(cells["variant"]))
    keys = np.stack([
        np.searchsorted(variants, cells["variant"].to_numpy(dtype=object))[at], cells["images_seen"].to_numpy()[at],
        _whole(scores["shots"])[rows], cells["seed"].to_numpy(dtype=np.int64)[at], _whole(scores["draw"])[rows],
    ])  # fmt: skip
    order = np.lexsort((scores["directory"].cat.codes.to_numpy()[rows], *keys[::-1]))
    keys = keys[:, order]
    first = np.append(True, (np.diff(keys, axis=1) != 0).any(axis=0))  # a repeat of the same seed and draw adds nothing
    keys, rows, at = keys[:, first], rows[order[first]], at[order[first]]
    value, error, tests = (scores[name].to_numpy()[rows] for name in ("value", "stderr", "num_test"))
    error = np.where(np.isnan(error), np.sqrt(value * (1 - value) / tests), error)
    correct, pixels = scores["correct"].to_numpy()[rows], (cells["family"] == PIXELS).to_numpy()[at]
    starts = np.flatnonzero(np.append(True, (np.diff(keys[:3], axis=1) != 0).any(axis=0)))
    fewest = np.minimum.reduceat(tests, starts)
    for number, (start, stop) in enumerate(pairwise([*starts.tolist(), len(rows)])):
        variant, seen, shots = keys[:3, start].tolist()
        made = _rectangle(
            value[start:stop], correct[start:stop], seeds=keys[3, start:stop], draws=keys[4, start:stop],
            trained=not pixels[start], image_error=float(np.add.reduce(error[start:stop]) / (stop - start)),
            num_test=int(fewest[number]),
        )  # fmt: skip
        if made is not None:
            yield (variants[variant], seen, None if shots < 0 else shots), made


def _matched(scores: pd.DataFrame, cells: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Rows of `scores` that have a value and a row in `cells`, and which row that is."""
    seen = np.unique(np.concatenate([scores["images_seen"].to_numpy(), cells["images_seen"].to_numpy()]))
    place = pd.Index(scores["directory"].cat.categories).get_indexer(pd.Index(cells["directory"]))
    wanted = place * len(seen) + np.searchsorted(seen, cells["images_seen"].to_numpy())
    wanted[place < 0] = -1
    given = scores["directory"].cat.codes.to_numpy().astype(np.int64) * len(seen)
    given += np.searchsorted(seen, scores["images_seen"].to_numpy())
    sorter = np.argsort(wanted, kind="stable")
    found = sorter[np.searchsorted(wanted, given, sorter=sorter).clip(max=len(wanted) - 1)]
    rows = np.flatnonzero((wanted[found] == given) & scores["value"].notna().to_numpy())
    return rows, found[rows]


def _whole(column: pd.Series) -> np.ndarray:
    return column.fillna(-1).to_numpy(dtype=np.int64)


def _rectangle(
    value: np.ndarray, correct: np.ndarray, *, seeds: np.ndarray, draws: np.ndarray, trained: bool, image_error: float,
    num_test: int,
) -> Samples | None:  # fmt: skip
    """Seeds × draws without holes: draws that a seed lacks are dropped, or else seeds that lack a draw."""
    all_seeds, all_draws = sorted(set(seeds.tolist())), sorted(set(draws.tolist()))
    if len(value) == len(all_seeds) * len(all_draws):  # whole, and in order
        shape = len(all_seeds), len(all_draws)
        values_SD, correct_SD = value.reshape(shape), correct.reshape(shape)
    else:
        at_SD = np.full((len(all_seeds), len(all_draws)), -1)
        at_SD[np.searchsorted(all_seeds, seeds), np.searchsorted(all_draws, draws)] = np.arange(len(value))
        draws_D, seeds_S = (np.flatnonzero((at_SD >= 0).all(axis=axis)).tolist() for axis in (0, 1))  # without holes
        if draws_D:
            at_SD, all_draws = at_SD[:, draws_D], [all_draws[at] for at in draws_D]
        elif seeds_S:
            at_SD, all_seeds = at_SD[seeds_S], [all_seeds[at] for at in seeds_S]
        else:
            return None
        values_SD, correct_SD = value[at_SD], correct[at_SD]
    return Samples(
        values_SD=values_SD, seeds=tuple(all_seeds) if trained else (),
        draws=() if all_draws == [-1] else tuple(all_draws), image_error=image_error, num_test=num_test,
        correct_SD=None if None in correct_SD.flat else correct_SD,
    )  # fmt: skip
