"""Turns the records of a study into tidy tables (one row per cell and budget, or one row per score) and into arrays of
repeated scores, seeds × few-shot samples."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.core.cell_state import CellState
from bench.core.errors import UserError
from bench.core.files import canonical
from bench.core.formatting import plural
from bench.core.measure import Measure
from bench.core.metrics import ACCURACY, METRICS
from bench.stats.intervals import SHARE, UNBOUNDED, Samples
from bench.store import grid, planned, resampled
from bench.store.prediction_bits import from_detail
from bench.store.records import DamagedRecord, read_record
from bench.store.study import CellDirectory, state_of
from bench.study.cell import RECIPE_REVISION, Recipe, to_json
from bench.study.record import Record, Scored, Scores
from bench.train.effective import EffectiveRecipe, effective_recipe
from bench.train.schedule import warmup_steps

PIXELS = "Pixels"
MAX_NAMED = 5  # at most this many damaged records are named one by one
NOT_A_VARIANT = ("seed", "axes", "tasks", "horizons", "rehearsal")
"""Fields of a cell in which repeats of one variant may differ. (A variant is what is trained, apart from the seed;
unlike `bench.study.cell.cell_id`, it identifies images by their content.)"""


# -- records -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Damaged:
    """A record that could not be used: the directory of its cell, and the reason."""

    directory: str
    reason: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """The contents of a results folder.

    Attributes:
        suite: the suite's name.
        records: one record per finished cell, ordered by directory name.
        damaged: records that were left out, with reasons.
        unfinished: directories of cells that were begun but have no record.
        failed: those of `unfinished` whose last attempt failed; other processes may be working on the rest.
        wanted: the cells that were planned most recently (plan.json); None if no run has written that file.
        plans: how long cells and runs were planned to take.
    """

    suite: str
    records: tuple[Record, ...]
    damaged: tuple[Damaged, ...] = ()
    unfinished: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    wanted: grid.WantedCells | None = None
    plans: planned.Plans = planned.NOTHING

    @property
    def rehearsal(self) -> bool:
        """Whether the records are of a rehearsal: a trial of a whole study in seconds, whose numbers mean nothing."""
        return any(record.cell.rehearsal for record in self.records)

    @property
    def never_started(self) -> tuple[str, ...]:
        """Directory names of the planned cells that have left nothing on disk."""
        present = [record.directory for record in self.records] + [d.directory for d in self.damaged]
        return grid.never_started(self.wanted, [*present, *self.unfinished])


def load(directory: Path, *, suite: str | None = None, rehearsals: bool = False) -> Records:
    """Read every record under `directory`/cells. A damaged record is left out and listed in `Records.damaged`.

    Args:
        directory: `results/<suite>`.
        suite: the suite's name; None: the folder's name.
        rehearsals: whether records of a rehearsal are accepted; the caller must show them as such.

    Raises:
        UserError: there is no such folder, a record is from a newer version of the project, or records are of a
            rehearsal and not accepted.
    """
    cells = directory / "cells"
    if not cells.is_dir():
        raise UserError(
            f"There are no results in {directory}.",
            "Run the suite first (vit-bench run), or name the folder that holds its results with --results.",
        )
    records: list[Record] = []
    damaged: list[Damaged] = []
    unfinished: list[str] = []
    failed: list[str] = []
    with collector_paused():
        for folder in sorted(path for path in cells.iterdir() if path.is_dir()):
            # the bytes of a folder's name need not be valid UTF-8
            path, name = folder / "record.json", os.fsencode(folder.name).decode(errors="replace")
            try:
                if path.exists():
                    records.append(read_record(path, of=folder.name))
                elif (folder / "spec.json").exists():
                    unfinished.append(name)
                    failed += [name] * (state_of(CellDirectory(folder)).name == CellState.FAILED)
            except DamagedRecord as error:
                damaged.append(Damaged(directory=folder.name, reason=error.reason))  # reports contain no paths
            except PermissionError:  # another user's file, or a mistake: the other records can still be reported
                damaged.append(Damaged(directory=name, reason="no permission to read it"))
    _check_rehearsals([record.cell.rehearsal for record in records], directory, allowed=rehearsals)
    return Records(
        suite=suite or directory.name,
        records=tuple(records),
        damaged=tuple(damaged),
        unfinished=tuple(unfinished),
        failed=tuple(failed),
        wanted=grid.read(directory),
        plans=planned.read(directory),
    )


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Pause Python's cyclic garbage collector inside a `with` block. While records are read, it would scan millions of
    new objects, which have no cycles, again and again, and take as long as creating them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _check_rehearsals(rehearsed: Sequence[bool], directory: Path, *, allowed: bool) -> None:
    """Raise UserError if records of a rehearsal are mixed with others, or are not allowed here.

    Args:
        rehearsed: for each record, whether it is of a rehearsal.
        directory: the study's folder, for the message.
        allowed: whether a folder of a rehearsal alone is accepted.
    """
    if not any(rehearsed):
        return
    if not all(rehearsed):
        what = f"{directory} holds records of a rehearsal among others."
        raise UserError(what, "Move the folders of its cells away: their numbers mean nothing.")
    if not allowed:
        what = f"{directory} holds a rehearsal, whose numbers mean nothing."
        raise UserError(what, "Only vit-bench report and status show it. Name the folder of a study.")


def damaged_paths(study: Path, records: Records) -> dict[str, str]:
    """Return path -> reason of every record in a study's folder that was left out."""
    return {str(study / "cells" / cell.directory / "record.json"): cell.reason for cell in records.damaged}


def left_out(damaged: Mapping[str, str]) -> str:
    """Return one line about the records that were left out; "" if there are none. `damaged`: path -> reason of each."""
    if not damaged:
        return ""
    named = [f"{path} ({reason.rstrip('.')})" for path, reason in damaged.items()]
    shown = ", ".join(named[:MAX_NAMED]) + (", …" if len(named) > MAX_NAMED else "")
    return f"{plural(len(named), 'record')} {'is' if len(named) == 1 else 'are'} damaged and left out: {shown}."


def variant_of(record: Record, *, but_for: Sequence[str] = ()) -> str:
    """Return a hash of everything that defines the trained model apart from its seed; cells with the same hash are
    repeats of one variant.

    Images are identified by their content, because a folder may have been edited. How the model is evaluated is not
    part of the hash. The actual length of the warm-up is, because in an old revision it depended on the budgets.

    Args:
        but_for: fields of the recipe that do not enter the hash.
    """
    defaults = {name: getattr(Recipe(), name) for name in but_for}
    cell = {k: v for k, v in to_json(record.cell).items() if k not in NOT_A_VARIANT}
    cell["recipe"] = to_json(replace(record.cell.recipe, **defaults), omit_defaults=True)
    if (steps := trained_as(record).warmup_steps) != warmup_steps(record.cell.recipe):
        cell["warmup_steps"] = steps
    made_by = "model", "recipe", f"job:{record.cell.job}", f"data:{record.cell.data}"
    revisions = {k: v for k, v in record.revisions.items() if k in made_by}
    return hashlib.sha256(canonical([cell, revisions, record.data.content_hash]).encode()).hexdigest()[:10]


def trained_as(record: Record) -> EffectiveRecipe:
    """Return the settings that a record's model was actually trained with, by the revision of the code that trained
    it."""
    return effective_recipe(record.cell, revision=record.revisions.get("recipe", RECIPE_REVISION))


# -- one row per horizon -----------------------------------------------------------------------------------------------

TEXTS = ("directory", "cell_id", "status", "reason", "model", "family", "data", "kind", "variant", "content")
OBJECTS = ("axes", "recipe", "trained_as")
NUMBERS = (
    "num_images",
    "num_classes",
    "image_size",
    "params",
    "params_body",
    "forward_macs_dense",
    "forward_macs_paper",
    "unique_images",
    "epochs",
    "steps",
    "batch",
    "train_seconds",
    "images_per_second",
    "flops_per_second",
    "utilisation",
    "core_days",
    "final_train_loss",
    "train_flops_dense",
    "train_flops_paper",
    "spent_flops_dense",
    "spent_flops_paper",
)


def horizon_table(records: Iterable[Record]) -> pd.DataFrame:
    """Return a table with one row per (cell, horizon), ordered by directory and images seen. A horizon is a budget at
    which a cell was evaluated.

    Numbers are floats, because FLOP counts overflow 64-bit integers; missing ones are NaN. The column `recipe` holds a
    `Recipe`, `trained_as` an `EffectiveRecipe`, and `series` the displayed name of the variant.
    """
    rows = [row for record in records for row in _horizon_rows(record)]
    table = pd.DataFrame(rows, columns=[*TEXTS, *OBJECTS, "seed", "images_seen", *NUMBERS])
    table = table.astype({"seed": "int64", "images_seen": "int64", **dict.fromkeys(NUMBERS, "float64")})
    return _with_series(table.sort_values(["directory", "images_seen"], kind="stable").reset_index(drop=True))


def without(table: pd.DataFrame, directories: Set[str]) -> pd.DataFrame:
    """Return a horizon table without the cells in `directories`. The `series` names of the others are made again,
    because they may now be shorter."""
    return _with_series(table[~table["directory"].isin(directories)].reset_index(drop=True))


def _horizon_rows(record: Record) -> list[dict[str, Any]]:
    cell, model, data = record.cell, record.model, record.data
    if not record.horizons:
        return []
    of_cell = {
        "directory": record.directory,
        "cell_id": record.cell_id,
        "status": record.status,
        "reason": record.reason,
        "model": cell.model,
        "family": model.family,
        "data": cell.data,
        "kind": data.kind,
        "num_images": cell.num_images or data.num_images,
        "num_classes": data.num_classes,
        "image_size": data.image_size or cell.image_size,
        "seed": cell.seed,
        "variant": variant_of(record),
        "axes": cell.axes,
        "params": model.params,
        "params_body": model.params_body,
        "forward_macs_dense": model.forward_macs.dense,
        "forward_macs_paper": model.forward_macs.paper,
        "recipe": cell.recipe,
        "trained_as": trained_as(record),
        "content": data.content_hash,
    }
    return [
        of_cell
        | {
            "images_seen": h.images_seen,
            "unique_images": h.unique_images,
            "epochs": h.epochs,
            "steps": h.steps,
            "batch": h.batch,
            "train_seconds": h.seconds.train,
            "images_per_second": h.images_per_second,
            "flops_per_second": h.flops_per_second,
            "utilisation": h.utilisation,
            "core_days": h.core_days,
            "final_train_loss": h.final_train_loss,
            "train_flops_dense": h.train_flops.dense,
            "train_flops_paper": h.train_flops.paper,
            "spent_flops_dense": h.spent_flops.dense,
            "spent_flops_paper": h.spent_flops.paper,
        }
        for h in record.horizons
    ]


def _with_series(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with a further column `series`, the displayed name of a variant: its model, and what else
    distinguishes it from other variants."""
    variants = table.drop_duplicates("variant").set_index("variant")
    upstreams = _most_upstreams_on_an_axis(variants[variants["family"] != PIXELS])
    names: dict[str, str] = {}
    for (model, data, _), alike in variants.groupby(["model", "data", "num_images"], dropna=False):
        label = f"{model} on {data}" if upstreams > 1 else str(model)
        different = _differences(alike) if len(alike) > 1 else {}
        names |= {v: f"{label} ({different[v]})" if v in different else label for v in alike.index}
    return table.assign(series=table["variant"].map(names))


def _most_upstreams_on_an_axis(variants: pd.DataFrame) -> int:
    """Return the largest number of pre-training sets on one axis (comparison of the study). If it is 1, names of
    variants need not contain the data set."""
    sets: dict[str, set[str]] = {}
    for axes, data in zip(variants["axes"], variants["data"], strict=True):
        for axis in axes or ("",):
            sets.setdefault(axis, set()).add(data)
    return max((len(names) for names in sets.values()), default=0)


def _differences(variants: pd.DataFrame) -> dict[str, str]:
    """Return variant -> how it differs from the other variants of the model, in its recipe or its images ("lr
    0.003")."""
    fields = {
        variant: {**to_json(recipe), "images": str(content)[:8]}
        for variant, recipe, content in zip(variants.index, variants["recipe"], variants["content"], strict=True)
    }
    if len({str(sorted(values.items())) for values in fields.values()}) < len(fields):
        for variant, used in zip(variants.index, variants["trained_as"], strict=True):
            fields[variant]["warmup_steps"] = used.warmup_steps
    names = sorted({name for values in fields.values() for name in values})
    varying = [n for n in names if len({str(values[n]) for values in fields.values()}) > 1]
    return {
        variant: ", ".join(f"{n.replace('_', ' ')} {values[n]}" for n in varying) or f"variant {variant}"
        for variant, values in fields.items()
    }


# -- one row per score -------------------------------------------------------------------------------------------------

SCORE_TEXTS = ("directory", "task", "data", "measure", "metric", "group")
NUMBERED = (
    "shots",
    "draw",
    "value",
    "stderr",
    "num_test",
    "num_classes",
    "chance",
    "num_duplicates",
    "value_without_duplicates",
    "num_support",
    "same_images",
    "test_groups",
)


def score_table(records: Iterable[Record]) -> pd.DataFrame:
    """Return a table with one row per score, in the order of the records. Names are categories in alphabetical order;
    missing numbers are NaN.

    The column `measure` is the text of a `bench.core.measure.Measure` (task, data set and metric), and `group` the
    group of tasks that the score belongs to, missing if its task has no groups. `correct` holds which test images were
    right, and `resampled` a metric's values in resamples of the test images; each is None if the record does not hold
    it.
    """
    records = list(records)
    budgets = [
        (number, horizon, Scores.of_all(horizon.scores))
        for number, record in enumerate(records)
        for horizon in record.horizons
    ]
    held_of = [scores for *_, scores in budgets]
    sizes = [len(scores) for scores in held_of]
    of_N, about = _of_scores(held_of)
    known: dict[tuple[str, str, str], int] = {}
    kinds = np.array([known.setdefault((s.task, s.data, s.metric), len(known)) for s in about], dtype=np.int32)
    kind_N = kinds[of_N]
    directories = [records[number].directory for number, *_ in budgets]
    of_score = {"shots": _floats(s.shots for s in about)[of_N], "draw": _floats(s.draw for s in about)[of_N]}
    of_score |= {
        name: _joined([getattr(s, of) for s in held_of]) for name, of in (("value", "values"), ("stderr", "errors"))
    }
    of_score |= {name: _floats(getattr(s, name) for s in about)[of_N] for name in NUMBERED[4:7]}
    starts = np.cumsum([0, *sizes])
    detailed = [
        (start + at, detail)
        for start, scores in zip(starts.tolist(), held_of, strict=False)
        for at, detail in enumerate(scores.details or ())
        if detail
    ]
    number = len(of_N)
    of_detail = {name: np.full(number, np.nan) for name in NUMBERED[7:]}
    group_N, correct, resamples = (np.full(number, None, dtype=object) for _ in range(3))
    for row, detail in detailed:
        correct[row], resamples[row] = from_detail(detail), resampled.from_detail(detail)
        group_N[row] = detail.get("group")
        for name, column in of_detail.items():
            if (value := detail.get(name)) is not None:
                column[row] = value
    texts = {
        "directory": _category(np.repeat(np.arange(len(budgets), dtype=np.int32), sizes), directories),
        "task": _category(kind_N, [task for task, _, _ in known]),
        "data": _category(kind_N, [data for _, data, _ in known]),
        "measure": _category(kind_N, [str(Measure.of_score(*kind)) for kind in known]),
        "metric": _category(kind_N, [metric for _, _, metric in known]),
        "group": _categories(group_N) if detailed else _category(np.full(number, 0), [None]),
    }
    seen = np.repeat(np.array([horizon.images_seen for _, horizon, _ in budgets], dtype=np.int64), sizes)
    held = {"correct": correct, "resampled": resamples}
    return pd.DataFrame({**texts, "images_seen": seen, **of_score, **of_detail, **held})


def _of_scores(held: Sequence[Scores]) -> tuple[np.ndarray, list[Scored]]:
    """Return the distinct `Scored` (what a score measures) as a list, and for each score its index in this list, as
    (indices, list). Runs that were evaluated alike share one `Scores.of`, which is therefore looked up only once, to
    save time."""
    known: dict[Scored, int] = {}
    places: dict[int, np.ndarray] = {}
    for scores in held:
        if id(scores.of) not in places:
            places[id(scores.of)] = np.array([known.setdefault(one, len(known)) for one in scores.of], dtype=np.int32)
    joined = [places[id(scores.of)] for scores in held]
    return (np.concatenate(joined) if joined else np.empty(0, dtype=np.int32)), list(known)


def _joined(columns: Sequence[array[float]]) -> np.ndarray:
    return np.concatenate([np.asarray(column) for column in columns]) if columns else np.empty(0)


def _categories(values: Iterable[str | None]) -> pd.Categorical:
    """Return texts as a categorical column, whose categories are in alphabetical order; None becomes a missing
    value."""
    known: dict[str | None, int] = {}
    codes_N = np.fromiter((known.setdefault(value, len(known)) for value in values), dtype=np.int32)
    return _category(codes_N, list(known))


def _category(codes_N: np.ndarray, texts: Sequence[str | None]) -> pd.Categorical:
    """Return N texts as a categorical column, whose categories are in alphabetical order. Text n is
    `texts[codes_N[n]]`; `texts` may contain duplicates, and None for a missing value."""
    ordered = sorted({texts[code] for code in np.unique(codes_N) if texts[code] is not None})  # type: ignore[type-var]
    rank = {text: at for at, text in enumerate(ordered)}
    of_text = np.array([-1 if text is None else rank.get(text, -1) for text in texts], dtype=np.int32)
    index = pd.Index(ordered) if ordered else pd.Index([], dtype=object)
    return pd.Categorical.from_codes(of_text[codes_N] if len(codes_N) else codes_N, categories=index)


def _floats(values: Iterable[float | None]) -> np.ndarray:
    return np.array([np.nan if value is None else value for value in values], dtype=float)


# -- repeats of one measurement ----------------------------------------------------------------------------------------

SampleKey = tuple[str, int, str, int | None]
"""(variant, images seen, measure, shots)."""
OF_SAMPLE = ["variant", "images_seen", "measure", "shots"]
READ_OF_SCORES = (
    *("directory", "images_seen", "measure", "metric", "shots", "draw", "value", "stderr", "num_test"),
    *("same_images", "test_groups", "correct", "resampled"),
)


def samples(horizons: pd.DataFrame, scores: pd.DataFrame) -> dict[SampleKey, Samples]:
    """Return (variant, images seen, score, shots) -> the scores of complete cells, as an array of seeds × few-shot
    samples. A second score of the same seed and sample is left out. If all samples consist of the same images, only one
    is kept.

    Args:
        horizons, scores: the tables from `horizon_table` and `score_table`.
    """
    of_cell = ["directory", "images_seen", "variant", "seed", "family", "model"]
    texts = {"directory": scores["directory"].dtype, **dict.fromkeys(("variant", "family", "model"), "category")}
    cells = horizons.loc[horizons["status"] == "complete", of_cell].astype(texts)
    table = scores.loc[scores["value"].notna(), list(READ_OF_SCORES)]
    table = table.merge(cells, on=["directory", "images_seen"])
    table = table.fillna({"shots": -1, "draw": -1}).astype({"shots": int, "draw": int})
    table = table.sort_values([*OF_SAMPLE, "seed", "draw", "directory"], kind="stable")
    table = table.drop_duplicates([*OF_SAMPLE, "seed", "draw"], ignore_index=True)
    table["error"] = _image_error(table)
    table["image_df"] = (table["test_groups"] - 1).where(table["test_groups"] > 1, np.inf)
    names = (
        "value",
        "correct",
        "resampled",
        "seed",
        "draw",
        "num_test",
        "family",
        "model",
        "metric",
        "error",
        "same_images",
    )
    columns = {name: table[name].to_numpy() for name in (*names, "image_df")}
    sampled = {}
    for (variant, seen, measure, shots), rows in table.groupby(OF_SAMPLE, sort=False, observed=True).indices.items():
        of = {name: column[rows] for name, column in columns.items()}
        made = _rectangle(
            of["value"],
            of["correct"],
            of["resampled"],
            seeds=of["seed"],
            draws=of["draw"],
            alike=bool((of["same_images"] == 1).all()),
            trained=of["family"][0] != PIXELS,
            image_error=float(of["error"].mean()),
            image_df=float(of["image_df"].min()),
            num_test=int(of["num_test"].min()),
            model=str(of["model"][0]),
            trunk=variant,
            images_seen=int(seen),
            bounds=SHARE if of["metric"][0] in METRICS else UNBOUNDED,
        )
        if made is not None:
            sampled[variant, int(seen), measure, None if shots < 0 else int(shots)] = made
    return sampled


def _image_error(table: pd.DataFrame) -> np.ndarray:
    """Return the standard error of each score in the table that is due to the finite test set: the recorded one;
    without it the binomial one for an accuracy, NaN for another metric.

    For an accuracy it is at least that of half a mistake in the test set, because a test set without mistakes does not
    rule them out. For this limit, a group of images that belong together counts as one image.
    """
    recorded = table["stderr"].to_numpy()
    share = table["value"].where(table["metric"] == ACCURACY).to_numpy()
    images = np.fmax(table["num_test"].to_numpy(), 1)
    apart = np.where(table["test_groups"] > 1, table["test_groups"], images)
    least = np.sqrt(0.5 / apart * (1 - 0.5 / apart) / apart)
    binomial = np.fmax(np.where(np.isnan(recorded), np.sqrt(share * (1 - share) / images), recorded), least)
    return np.where(np.isnan(share), recorded, binomial)


def _rectangle(
    value: np.ndarray,
    correct: np.ndarray,
    resamples: np.ndarray,
    *,
    seeds: np.ndarray,
    draws: np.ndarray,
    alike: bool,
    trained: bool,
    **about: Any,
) -> Samples | None:
    """Arrange scores as a complete array of seeds × few-shot samples. Samples that some seed lacks are dropped; if none
    would be left, seeds that lack a sample are dropped instead. Return None if nothing is left.

    Args:
        value: the scores.
        correct: for each score, which test images were right; None if that was not recorded.
        resamples: for each score, its values in resamples of the test images; None if these were not recorded.
        seeds, draws: seed and few-shot sample of each score; scores are sorted by these.
        alike: whether all samples consist of the same images, so that one is enough.
        trained: False for raw pixels, which have no seeds.
        about: the other fields of `Samples`.
    """
    all_seeds, all_draws = sorted(set(seeds.tolist())), sorted(set(draws.tolist()))
    if len(value) == len(all_seeds) * len(all_draws):  # complete, and already in order
        shape = len(all_seeds), len(all_draws)
        values_SD, correct_SD, resampled_SD = (x.reshape(shape) for x in (value, correct, resamples))
    else:
        at_SD = np.full((len(all_seeds), len(all_draws)), -1)
        at_SD[np.searchsorted(all_seeds, seeds), np.searchsorted(all_draws, draws)] = np.arange(len(value))
        draws_D, seeds_S = (np.flatnonzero((at_SD >= 0).all(axis=axis)).tolist() for axis in (0, 1))  # complete ones
        if draws_D:
            at_SD, all_draws = at_SD[:, draws_D], [all_draws[at] for at in draws_D]
        elif seeds_S:
            at_SD, all_seeds = at_SD[seeds_S], [all_seeds[at] for at in seeds_S]
        else:
            return None
        values_SD, correct_SD, resampled_SD = value[at_SD], correct[at_SD], resamples[at_SD]
    if alike:
        values_SD, correct_SD, resampled_SD = values_SD[:, :1], correct_SD[:, :1], resampled_SD[:, :1]
        all_draws = [-1]
    return Samples(
        values_SD=values_SD,
        seeds=tuple(all_seeds) if trained else (),
        draws=() if all_draws == [-1] else tuple(all_draws),
        correct_SD=None if None in correct_SD.flat else correct_SD,
        resampled_SD=None if None in resampled_SD.flat else resampled_SD,
        **about,
    )
