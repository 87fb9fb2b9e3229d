"""Records as tidy tables: one row per (cell, horizon), and one row per score."""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from bench.spec import Recipe, canonical, to_json
from bench.store.correct import Correct, from_detail

HORIZON_NUMBERS = (
    "images_seen", "unique_images", "epochs", "steps", "batch", "train_seconds", "images_per_second",
    "flops_per_second", "utilisation", "core_days", "final_train_loss",
)  # fmt: skip
EMPTY = ("directory", "images_seen", "variant", "series", "status")
PIXELS = "Pixels"
NOT_A_VARIANT = ("seed", "axes", "tasks", "horizons")
"""Fields of a cell that do not make it another experiment: repeats of a variant differ in the seed alone."""
RECIPE_DEFAULTS = to_json(Recipe())


def variant_of(record: Mapping[str, Any]) -> str:
    """A hash of everything that defines the experiment apart from its seed: cells that share it are repeats."""
    cell = {key: value for key, value in record["cell"].items() if key not in NOT_A_VARIANT}
    recipe = cell.get("recipe") or {}  # a field added since an older record was written stands at its default there
    cell["recipe"] = {k: v for k, v in recipe.items() if k not in RECIPE_DEFAULTS or v != RECIPE_DEFAULTS[k]}
    revisions = {k: v for k, v in (record.get("revisions") or {}).items() if not k.startswith("task:")}
    return hashlib.sha256(canonical([cell, revisions]).encode()).hexdigest()[:10]


def horizon_table(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per (cell, horizon), costs in floats (FLOP counts overflow 64-bit integers), missing values NaN."""
    rows = []
    for record in records:
        cell_columns = _cell_columns(record)
        for horizon in record["horizons"]:
            row = dict(cell_columns)
            row |= {name: _number(horizon.get(name)) for name in HORIZON_NUMBERS}
            for kind in ("train_flops", "spent_flops"):
                counted = horizon.get(kind) or {}
                row |= {f"{kind}_{convention}": _number(counted.get(convention)) for convention in ("dense", "paper")}
            seconds = horizon.get("seconds") or {}
            row |= {f"{part}_s": _number(seconds.get(part)) for part in ("train", "evaluate", "save", "wait")}
            rows.append(row)
    table = pd.DataFrame(rows) if rows else pd.DataFrame(columns=EMPTY)
    table["images_seen"] = table["images_seen"].astype("int64")
    return _with_series(table).sort_values(["directory", "images_seen"], kind="stable").reset_index(drop=True)


NAMED = ("directory", "task", "data", "measure", "metric", "group")
NUMBERED = ("images_seen", "shots", "draw", "value", "stderr", "num_test", "num_classes", "chance")


class ScoreRows:
    """Collects scores as columns: a study may have millions."""

    def __init__(self) -> None:
        self._codes: dict[str, array[int]] = {name: array("q") for name in NAMED}
        self._names: dict[str, dict[str | None, int]] = {name: {} for name in NAMED}
        self._coded: dict[tuple[str, str, str, str | None], tuple[int, ...]] = {}
        self._numbers = {name: array("d") for name in NUMBERED}
        self._correct: dict[int, Correct] = {}  # by row; few scores hold it

    def __len__(self) -> int:
        return len(self._numbers["images_seen"])

    def add(self, record: Mapping[str, Any]) -> None:
        """Every score of a record."""
        directory = self._code("directory", record["directory"])
        for horizon in record["horizons"]:
            scores = horizon.get("scores") or ()
            coded = [self._kind(score) for score in scores]
            for row, score in enumerate(scores, start=len(self)):
                if (found := from_detail(score.get("detail"))) is not None:
                    self._correct[row] = found
            self._codes["directory"].extend([directory] * len(scores))
            self._numbers["images_seen"].extend([horizon["images_seen"]] * len(scores))
            for number, name in enumerate(NAMED[1:]):
                self._codes[name].extend([codes[number] for codes in coded])
            for name in NUMBERED[1:]:
                values = [score.get(name) for score in scores]
                self._numbers[name].extend([math.nan if value is None else value for value in values])

    def _kind(self, score: Mapping[str, Any]) -> tuple[int, ...]:
        """Codes of what a score measures, in the order of NAMED."""
        detail = score.get("detail")
        key = score["task"], score["data"], score["metric"], detail.get("group") if detail else None
        found = self._coded.get(key)
        if found is None:
            task, data, metric, group = key
            named = (task, data, measure_of(task, data, metric), metric, group)
            found = tuple(self._code(name, text) for name, text in zip(NAMED[1:], named, strict=True))
            self._coded[key] = found
        return found

    def _code(self, name: str, text: str | None) -> int:
        known = self._names[name]
        return known.setdefault(text, len(known))

    def take(self, record: Mapping[str, Any]) -> None:
        """`add`, and leave the record without its scores."""
        self.add(record)
        for horizon in record["horizons"]:
            horizon.pop("scores", None)

    def join(self, other: ScoreRows) -> None:
        """Append the rows that were collected elsewhere."""
        self._correct |= {row + len(self): found for row, found in other._correct.items()}
        for name in NAMED:
            places = np.array([self._code(name, text) for text in other._names[name]], dtype=np.int64)
            codes = np.array(other._codes[name], dtype=np.int64)
            self._codes[name].frombytes((places[codes] if len(codes) else codes).tobytes())
        for name in NUMBERED:
            self._numbers[name].extend(other._numbers[name])

    def table(self) -> pd.DataFrame:
        """One row per score; names are categories in alphabetical order, missing numbers NaN. `correct` holds which
        test images were right, None where the record does not say."""
        columns: dict[str, Any] = {}
        for name in NAMED:
            known = self._names[name]
            texts = sorted(text for text in known if text is not None)
            place: dict[str | None, int] = {text: number for number, text in enumerate(texts)}
            renamed = np.array([place.get(text, -1) for text in known], dtype=np.int64)
            codes = renamed[np.array(self._codes[name], dtype=np.int64)] if known else np.array([], dtype=np.int64)
            columns[name] = pd.Categorical.from_codes(codes, categories=pd.Index(texts, dtype=object))
        columns |= {name: np.array(values, dtype=np.float64) for name, values in self._numbers.items()}
        columns["images_seen"] = columns["images_seen"].astype(np.int64)
        columns["correct"] = np.full(len(self), None, dtype=object)
        columns["correct"][list(self._correct)] = list(self._correct.values())
        return pd.DataFrame(columns)


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
    }


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
    for (model, data, _), group in variants.groupby(["model", "data", "num_images"], sort=True, dropna=False):
        label = f"{model} on {data}" if upstreams > 1 else str(model)
        for variant, row in group.sort_index().iterrows():
            names[str(variant)] = label if len(group) == 1 else f"{label} ({_difference(row, group)})"
    table["series"] = table["variant"].map(names)
    return table


def _most_upstreams_on_an_axis(variants: pd.DataFrame) -> int:
    """Upstream sets that share one axis: if each axis has its own, a model's name need not say which."""
    sets: dict[str, set[str]] = {}
    for axes, data in zip(variants["axes"], variants["data"], strict=True):
        for axis in axes or ("",):
            sets.setdefault(axis, set()).add(data)
    return max((len(found) for found in sets.values()), default=0)


def _difference(row: pd.Series, group: pd.DataFrame) -> str:
    """What sets one variant of a model apart from the others in its recipe, e.g. "lr 0.003"."""
    fields = sorted({key for recipe in group["recipe"] for key in recipe})
    varying = [f for f in fields if len({str(recipe.get(f)) for recipe in group["recipe"]}) > 1]
    text = ", ".join(f"{name.replace('_', ' ')} {row['recipe'].get(name)}" for name in varying)
    return text or f"variant {row.name}"
