"""Compute values once for a study and give them to its workers: the machine's peak FLOP/s, and the costs of the study's
models.

Measuring a peak takes a second of matrix products, and counting a model loads half of torch. A worker that is given
these values starts with its first cell at once. Without them a worker computes the values itself, and they are the
same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from bench.cost import flops, peaks
from bench.cost.flops import ModelCost
from bench.cost.peaks import PeakRate
from bench.study.cell import Cell

Json = dict[str, Any]
MAPPINGS = ("forward_macs", "backward_macs", "by_module")


def to_json(*, measured: Mapping[str, PeakRate], costs: Iterable[tuple[ModelCost, flops.Options]]) -> Json:
    """Return peaks and costs as JSON types, for `install` in another process.

    Args:
        measured: dtype -> peak of this machine.
        costs: each model's cost, and the options that the model was built with.
    """
    return {
        "peaks": {dtype: dataclasses.asdict(peak) for dtype, peak in measured.items()},
        "costs": [{"options": [list(pair) for pair in options], "cost": _plain(cost)} for cost, options in costs],
    }


def counted(cell: Cell, *, classes: int) -> Json:
    """Return the cost of a cell's model as JSON types, for `install` in another process. No peak is included; each
    worker measures it itself. `classes` is the number of classes."""
    sizes = {"image_size": cell.image_size, "channels": cell.channels, "num_classes": classes}
    cost = flops.count(cell.model, **sizes, model_options=cell.model_options, activations=False)
    return to_json(measured={}, costs=[(cost, cell.model_options)])


def merge(parts: Iterable[Json]) -> Json:
    """Merge the values (see `to_json`) of several processes that ran at the same time. For each dtype the highest peak
    is kept, because its measurement was disturbed least."""
    made: Json = {"peaks": {}, "costs": []}
    for part in parts:
        for dtype, peak in part["peaks"].items():
            best = made["peaks"].get(dtype)
            if best is None or peak["flops_per_second"] > best["flops_per_second"]:
                made["peaks"][dtype] = peak
        made["costs"] += part["costs"]
    return made


def install(known: Json, *, device: str, threads: int) -> None:
    """Make this process use the peaks and costs that another process of this machine computed.

    Args:
        known: what `to_json` returned there.
        device: device whose peak was measured.
        threads: number of threads with which the peak was measured.
    """
    for dtype, peak in known.get("peaks", {}).items():
        source = f"{peak['source']}, once for the study" if peak["measured"] else peak["source"]
        peaks.PRECOMPUTED[dtype, threads, device] = PeakRate(**{**peak, "source": source})
    for entry in known.get("costs", ()):
        cost = ModelCost(**entry["cost"])
        key = cost.model, cost.image_size, cost.channels, cost.num_classes, _tuples(entry["options"])
        flops.PRECOMPUTED[key] = cost


def _plain(cost: ModelCost) -> Json:
    """Return a model's cost as JSON types. Its mappings are copied here, because they are read-only views, which
    `dataclasses.asdict` cannot copy."""
    fields = {entry.name: getattr(cost, entry.name) for entry in dataclasses.fields(cost)}
    fields |= {name: dict(fields[name]) for name in MAPPINGS}
    return fields | {"by_module": {convention: dict(macs) for convention, macs in cost.by_module.items()}}


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
