"""Makes tables of a study that users can analyse themselves: horizons (budgets), scores, learning curves and
findings."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pandas as pd

from bench.analysis.finding import Counts, Finding
from bench.analysis.study_data import horizon_table, score_table
from bench.study.cell import to_json
from bench.study.record import Record

OF_CELL = ["directory", "model", "family", "num_images", "seed", "images_seen", "params", "train_flops_dense"]


def horizons(records: Sequence[Record]) -> pd.DataFrame:
    """Return a table with one row per cell (a training run) and horizon (a budget at which it was evaluated). Fields of
    the recipe are columns named `recipe.<field>`."""
    table = horizon_table(records)
    values = [{name: _plain(value) for name, value in to_json(recipe).items()} for recipe in table["recipe"]]
    recipes = pd.DataFrame(values, index=table.index).add_prefix("recipe.")
    plain = table.drop(columns="recipe").assign(axes=[",".join(axes) for axes in table["axes"]])
    return pd.concat([plain, recipes], axis=1)


def _plain(value: Any) -> Any:
    """Return a list as a user types it, such as "0.9/0.99" for [0.9, 0.99]; any other value unchanged."""
    return "/".join(map(str, value)) if isinstance(value, list) else value


def scores(records: Sequence[Record]) -> pd.DataFrame:
    """Return a table with one row per score, with its cell and its horizon (budget). The column `data` names the target
    set that was scored, and `upstream` the pre-training set."""
    table = score_table(records).drop(columns=["correct", "resampled"]).astype({"directory": object})
    cells = horizon_table(records)
    return table.merge(cells[OF_CELL].assign(upstream=cells["data"]), on=["directory", "images_seen"], how="left")


def curves(records: Sequence[Record]) -> pd.DataFrame:
    """Return a table with one row per point of a learning curve, in the order of training. `horizon`, the budget that a
    point belongs to, is missing for points of a trunk, which several budgets share."""
    rows = [
        (record.directory, record.cell.model, record.cell.seed, images, horizon, loss)
        for record in records
        if record.curve
        for images, loss, horizon in zip(record.curve.images, record.curve.losses, record.curve.horizons, strict=True)
    ]
    table = pd.DataFrame(rows, columns=["directory", "model", "seed", "images", "horizon", "loss"])
    return table.astype({"horizon": "Int64"})


FINDING_COLUMNS = tuple(
    entry.name for entry in dataclasses.fields(Finding) if entry.name not in ("n", "evidence", "trend", "axis")
)
COUNT_COLUMNS = tuple(f"n_{entry.name}" for entry in dataclasses.fields(Counts))


def findings(answers: Sequence[Finding]) -> pd.DataFrame:
    """Return a table with one row per finding, without the evidence behind it. Its columns are question, subject,
    verdict, measure, estimate, low, high and the other fields of `Finding`, and n_seeds, n_models and the other fields
    of `Counts`. It has these columns even if there are no findings."""
    return pd.DataFrame([_row(finding) for finding in answers], columns=[*FINDING_COLUMNS, *COUNT_COLUMNS])


def _row(finding: Finding) -> dict[str, Any]:
    values = {name: getattr(finding, name) for name in FINDING_COLUMNS}
    plain = {name: ", ".join(map(str, v)) if isinstance(v, tuple) else v for name, v in values.items()}
    return plain | {f"n_{name}": number for name, number in vars(finding.n).items()}


TABLES = {"horizons": horizons, "scores": scores, "curves": curves}
"""The tables that can be made from records alone, by name."""
