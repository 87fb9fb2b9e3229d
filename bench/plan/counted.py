"""Read FLOPs and sizes of the networks of the ViT paper's studies from a table in the package. With it, a plan of these
studies for devices that are named (--hardware) needs no torch, and no minute of counting.

`python -m tools.counted` writes the table, and tests count again. A row holds for one state of a network's code only:
after a change of the code, the network has to be counted again.
"""

from __future__ import annotations

import csv
import json
import math
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from bench.core.files import canonical
from bench.plan.estimate import Rates
from bench.study import fingerprint, registry
from bench.study.cell import Cell, to_json

TABLE = Path(__file__).with_suffix(".csv")
IDENTITY = ("model", "options", "image_size", "channels", "classes", "revision", "code")
COUNTS = ("flops_dense", "flops_paper", "params", "activation_bytes", "features", "sees", "group")
UNKNOWN: dict[str, Any] = {
    "train_images_per_second": math.nan,  # NaN, so that nothing is planned by a speed that nobody measured
    "eval_images_per_second": math.nan,
    "measured": False,
    "basis": "counted, and not measured",
}


def identity(cell: Cell, classes: int) -> tuple[str, ...]:
    """Return the texts that identify a network's row of the table (its columns `IDENTITY`): all that its counts depend
    on. `classes`: number of classes that it is built with."""
    code = fingerprint.of_model(cell.model)
    options = canonical(to_json(cell.model_options))
    sizes = (cell.image_size, cell.channels, classes, registry.model_revision(cell.model))
    return (cell.model, options, *map(str, sizes), "" if code is None else code.digest)


def find(cell: Cell, classes: int) -> Rates | None:
    """Return the counts of a cell's network, with NaN for its throughput; None if the table has no row for the network
    with its present code. `classes`: number of classes that it is built with."""
    row = _rows().get(identity(cell, classes))
    if row is None:
        return None
    numbers: dict[str, Any] = {name: json.loads(row[name] or "null") for name in COUNTS}
    flops = {convention: numbers.pop(f"flops_{convention}") for convention in ("dense", "paper")}
    return Rates(model=cell.model, train_flops_per_image=flops, **UNKNOWN, **numbers)


def row_of(cell: Cell, classes: int, rates: Rates) -> dict[str, Any]:
    """Return the row of the table, column -> value, for a network that was counted. `rates`: its counts."""
    flops = {f"flops_{convention}": rates.train_flops_per_image[convention] for convention in ("dense", "paper")}
    counted = {**asdict(rates), **flops}
    return dict(zip(IDENTITY, identity(cell, classes), strict=True)) | {name: counted[name] for name in COUNTS}


@cache
def _rows() -> dict[tuple[str, ...], dict[str, str]]:
    with TABLE.open(newline="") as file:
        return {tuple(row[name] for name in IDENTITY): row for row in csv.DictReader(file)}
