"""Records as tidy tables: one row per (cell, horizon), and one row per score."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence, Set
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import union_categoricals

from bench.core.spec import Recipe, canonical, to_json
from bench.store.prediction_bits import from_detail

HORIZON_NUMBERS = (
    "images_seen", "unique_images", "epochs", "steps", "batch", "train_seconds", "images_per_second",
    "flops_per_second", "utilisation", "core_days", "final_train_loss",
)  # fmt: skip
FLOPS, CONVENTIONS, SECONDS = ("train_flops", "spent_flops"), ("dense", "paper"), ("train", "evaluate", "save", "wait")
HORIZON_COLUMNS = (
    *HORIZON_NUMBERS, *(f"{kind}_{convention}" for kind in FLOPS for convention in CONVENTIONS),
    *(f"{part}_s" for part in SECONDS),
)  # fmt: skip
EMPTY = ("directory", "images_seen", "variant", "series", "status", "seed", "axes", "data", "num_images", "content")
PIXELS = "Pixels"
NOT_A_VARIANT = ("seed", "axes", "tasks", "horizons")
"""Fields of a cell that do not make it another experiment: repeats of a variant differ in the seed alone."""
RECIPE_DEFAULTS = to_json(Recipe())


def variant_of(record: Mapping[str, Any]) -> str:
    """A hash of everything that defines the trained model apart from its seed: cells that share it are repeats. Images
    count by content: a folder may have been edited. How the model is read afterwards is no part of it."""
    cell = {key: value for key, value in record["cell"].items() if key not in NOT_A_VARIANT}
    recipe = cell.get("recipe") or {}  # a field added since an older record was written stands at its default there
    cell["recipe"] = {k: v for k, v in recipe.items() if k not in RECIPE_DEFAULTS or v != RECIPE_DEFAULTS[k]}
    made_by = "model", "recipe", f"data:{cell['data']}"
    revisions = {k: v for k, v in (record.get("revisions") or {}).items() if k in made_by}
    content = (record.get("data") or {}).get("content_hash")
    return hashlib.sha256(canonical([cell, revisions, content]).encode()).hexdigest()[:10]


def horizon_table(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per (cell, horizon), costs in floats (FLOP counts overflow 64-bit integers), missing values NaN."""
    cells, rows, of_cell = [], [], []
    for record in records:
        if record["horizons"]:
            cells.append(_cell_columns(record))
        for horizon in record["horizons"]:
            rows.append(_horizon_numbers(horizon))
            of_cell.append(len(cells) - 1)
    if not rows:
        return _with_series(pd.DataFrame(columns=EMPTY).astype({"images_seen": "int64"}))
    repeated = pd.DataFrame(cells).take(of_cell).reset_index(drop=True)
    numbers = pd.DataFrame(np.array(rows, dtype=np.float64), columns=HORIZON_COLUMNS)  # None becomes NaN
    table = pd.concat([repeated, numbers], axis=1)
    table["images_seen"] = table["images_seen"].astype("int64")
    return _with_series(table).sort_values(["directory", "images_seen"], kind="stable").reset_index(drop=True)


def without(table: pd.DataFrame, directories: Set[str]) -> pd.DataFrame:
    """A horizon table less some cells: what is left may need fewer words to be told apart."""
    return _with_series(table[~table["directory"].isin(directories)].reset_index(drop=True))


NAMED = ("directory", "task", "data", "measure", "metric", "group")
NUMBERED = ("images_seen", "shots", "draw", "value", "stderr", "num_test", "num_classes", "chance")
DETAILED = ("num_duplicates", "value_without_duplicates")
"""Numbers in a score's detail: what is known of copies of training images among its test images."""
MEASURED = ("task", "data", "metric")
Kind = tuple[str, str, str, str | None]
"""What a score measures: task, data, metric, group."""
_measured, _numbered = itemgetter(*MEASURED), itemgetter(*NUMBERED[1:])


class ScoreRows:
    """Collects the scores of some records as columns."""

    def __init__(self) -> None:
        self._horizons: list[tuple[str, int, int]] = []  # directory, images seen, scores
        self._kinds: dict[Kind, int] = {}
        self._kind: list[int] = []
        self._numbers: list[tuple[float | None, ...]] = []
        self._details: dict[int, Mapping[str, Any]] = {}  # of the scores that have any, by row

    def add(self, record: Mapping[str, Any]) -> None:
        """Every score of a record."""
        for horizon in record["horizons"]:
            scores = horizon.get("scores") or ()
            self._horizons.append((record["directory"], horizon["images_seen"], len(scores)))
            for row, score in enumerate(scores, start=len(self._numbers)):
                if detail := score.get("detail"):
                    self._details[row] = detail
                kind = (*_measured(score), detail.get("group") if detail else None)
                self._kind.append(self._kinds.setdefault(kind, len(self._kinds)))
            try:
                self._numbers += list(map(_numbered, scores))
            except KeyError:  # a number that was not kept when the record was written
                self._numbers += [tuple(map(score.get, NUMBERED[1:])) for score in scores]

    def take(self, record: Mapping[str, Any]) -> None:
        """`add`, and leave the record without its scores."""
        self.add(record)
        for horizon in record["horizons"]:
            horizon.pop("scores", None)

    def table(self) -> pd.DataFrame:
        """One row per score; names are categories in alphabetical order, missing numbers NaN. `correct` holds which
        test images were right, None where the record does not say."""
        directories, seen, scores = zip(*self._horizons, strict=True) if self._horizons else ((), (), ())
        columns: dict[str, Any] = {"directory": _categories(directories).repeat(scores)}
        kinds = np.array(self._kind, dtype=np.intp)
        named = [(kind[0], kind[1], measure_of(*kind[:3]), *kind[2:]) for kind in self._kinds]
        for name, texts in zip(NAMED[1:], zip(*named, strict=True) if named else [()] * 5, strict=True):
            columns[name] = _categories(texts).take(kinds)
        columns["images_seen"] = np.repeat(np.array(seen, dtype=np.int64), scores)
        numbers = np.array(self._numbers, dtype=np.float64).reshape(-1, len(NUMBERED) - 1)
        columns |= dict(zip(NUMBERED[1:], np.ascontiguousarray(numbers.T), strict=True))
        columns |= {name: np.full(len(numbers), np.nan) for name in DETAILED}
        columns["correct"] = np.full(len(numbers), None)
        for row, detail in self._details.items():
            columns["correct"][row] = from_detail(detail)
            for name in DETAILED:
                columns[name][row] = _number(detail.get(name))
        return pd.DataFrame(columns, copy=False)


def _categories(texts: Sequence[str | None]) -> pd.Categorical:
    """In alphabetical order."""
    known = sorted({text for text in texts if text is not None})
    place: dict[str | None, int] = {text: number for number, text in enumerate(known)}
    codes = np.array([place.get(text, -1) for text in texts], dtype=np.int64)
    return pd.Categorical.from_codes(codes, categories=pd.Index(known, dtype=object))


def join(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Rows of several score tables in one. Takes the columns out of them: a study may have millions of scores, which
    would not fit in memory twice."""
    columns: dict[str, Any] = {}
    for name in list(tables[0]):
        parts = [table.pop(name) for table in tables]
        if name in NAMED:
            named = union_categoricals(parts, sort_categories=True)
            columns[name] = named.rename_categories(named.categories.astype(object))
        else:
            columns[name] = np.concatenate(parts)
    return pd.DataFrame(columns, copy=False)


def score_table(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per score. `measure` names what was measured: "upstream", a few-shot set, or "task:set"; `group` is the
    group of tasks that a score belongs to, where its task has groups."""
    rows = ScoreRows()
    for record in records:
        rows.add(record)
    return rows.table()


def measure_of(task: str, data: str, metric: str = "accuracy") -> str:
    """The short name of what a score measures; any metric but accuracy is named, so that they are never averaged."""
    name = {"upstream": "upstream", "fewshot": data}.get(task, f"{task}:{data}")
    return name if metric == "accuracy" else f"{name} {metric}"


def _cell_columns(record: Mapping[str, Any]) -> dict[str, Any]:
    cell, cost, env = record["cell"], record["cost"], record.get("env") or {}
    model, data = record.get("model") or {}, record.get("data") or {}
    macs = model.get("forward_macs") or {}
    return {
        "directory": record["directory"],
        "cell_id": record["cell_id"],
        "status": record["status"],
        "reason": record.get("reason"),
        "model": cell["model"],
        "family": model.get("family", "unknown"),
        "data": cell["data"],
        "kind": data.get("kind", "unknown"),
        "num_images": _number(cell.get("num_images") or data.get("num_images")),
        "num_classes": _number(data.get("num_classes")),
        "image_size": _number(data.get("image_size", cell.get("image_size"))),
        "seed": cell.get("seed", 0),
        "variant": variant_of(record),
        "axes": tuple(cell.get("axes") or ()),
        "params": _number(model.get("params")),
        "params_body": _number(model.get("params_body")),
        "forward_macs_dense": _number(macs.get("dense")),
        "forward_macs_paper": _number(macs.get("paper")),
        "device": cost.get("device"),
        "devices": _number(cost.get("devices")),
        "threads": _number(cost.get("threads")),
        "peak_memory_bytes": _number(cost.get("peak_memory_bytes")),
        "dtype": env.get("dtype"),
        "cpu": env.get("cpu"),
        "commit": env.get("commit"),
        "recipe": cell.get("recipe") or {},
        "content": data.get("content_hash"),
    }


def _horizon_numbers(horizon: Mapping[str, Any]) -> tuple[float | None, ...]:
    """In the order of `HORIZON_COLUMNS`."""
    seconds = horizon.get("seconds") or {}
    flops = [(horizon.get(kind) or {}).get(convention) for kind in FLOPS for convention in CONVENTIONS]
    return (*map(horizon.get, HORIZON_NUMBERS), *flops, *map(seconds.get, SECONDS))


def _number(value: Any) -> float:
    """A float; NaN for what is missing."""
    return float("nan") if value is None else float(value)


def _with_series(table: pd.DataFrame) -> pd.DataFrame:
    """Add `series`, the name of a variant that people read: the model, and whatever else is needed to tell it apart."""
    if table.empty:
        return table
    variants = table.drop_duplicates("variant").set_index("variant")
    upstreams = _most_upstreams_on_an_axis(variants[variants["family"] != PIXELS])
    names: dict[str, str] = {}
    columns = zip(variants["recipe"], variants["content"], strict=True)
    variants["recipe"] = [recipe | {"images": str(content)[:8]} for recipe, content in columns]
    for (model, data, _), recipes in variants.groupby(["model", "data", "num_images"], dropna=False)["recipe"]:
        label = f"{model} on {data}" if upstreams > 1 else str(model)
        for variant in recipes.index:
            names[variant] = label if len(recipes) == 1 else f"{label} ({_difference(variant, recipes)})"
    table["series"] = table["variant"].map(names)
    return table


def _most_upstreams_on_an_axis(variants: pd.DataFrame) -> int:
    """Upstream sets that share one axis: if each axis has its own, a model's name need not say which."""
    sets: dict[str, set[str]] = {}
    for axes, data in zip(variants["axes"], variants["data"], strict=True):
        for axis in axes or ("",):
            sets.setdefault(axis, set()).add(data)
    return max((len(found) for found in sets.values()), default=0)


def _difference(variant: str, recipes: pd.Series) -> str:
    """What sets one variant of a model apart from the others in its recipe or by its images, e.g. "lr 0.003"."""
    fields = sorted({key for recipe in recipes for key in recipe})
    varying = [f for f in fields if len({str(recipe.get(f)) for recipe in recipes}) > 1]
    text = ", ".join(f"{name.replace('_', ' ')} {recipes[variant].get(name)}" for name in varying)
    return text or f"variant {variant}"
