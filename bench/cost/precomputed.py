"""Compute values once for a study and give them to its workers: the machine's peak FLOP/s, and the costs of its models.

Measuring a peak takes a second of matrix products, and counting a model loads half of torch; a worker that is given the
results starts with its first cell at once. A worker that is not computes them itself, with the same results.
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
    """Return peaks by dtype, and models' costs with the options they were built with, as JSON types."""
    return {
        "peaks": {dtype: dataclasses.asdict(peak) for dtype, peak in measured.items()},
        "costs": [{"options": [list(pair) for pair in options], "cost": _plain(cost)} for cost, options in costs],
    }


def counted(cell: Cell, *, classes: int) -> Json:
    """Return the cost of a cell's model as JSON types, without a peak: each worker measures that itself."""
    sizes = {"image_size": cell.image_size, "channels": cell.channels, "num_classes": classes}
    cost = flops.count(cell.model, **sizes, model_options=cell.model_options, activations=False)
    return to_json(measured={}, costs=[(cost, cell.model_options)])


def merge(parts: Iterable[Json]) -> Json:
    """Merge the results of several processes that ran at the same time. For each dtype the highest peak is kept: its
    measurement was disturbed least."""
    made: Json = {"peaks": {}, "costs": []}
    for part in parts:
        for dtype, peak in part["peaks"].items():
            best = made["peaks"].get(dtype)
            if best is None or peak["flops_per_second"] > best["flops_per_second"]:
                made["peaks"][dtype] = peak
        made["costs"] += part["costs"]
    return made


def install(known: Json, *, device: str, threads: int) -> None:
    """Make this process use results of `to_json` from this machine, for workers of `threads` threads."""
    for dtype, peak in known.get("peaks", {}).items():
        source = f"{peak['source']}, once for the study" if peak["measured"] else peak["source"]
        peaks.PRECOMPUTED[dtype, threads, device] = PeakRate(**{**peak, "source": source})
    for entry in known.get("costs", ()):
        cost = ModelCost(**entry["cost"])
        key = cost.model, cost.image_size, cost.channels, cost.num_classes, _tuples(entry["options"])
        flops.PRECOMPUTED[key] = cost


def _plain(cost: ModelCost) -> Json:
    """Return a model's cost as JSON types. Its mappings are read-only views, which `dataclasses.asdict` cannot copy."""
    fields = {entry.name: getattr(cost, entry.name) for entry in dataclasses.fields(cost)}
    fields |= {name: dict(fields[name]) for name in MAPPINGS}
    return fields | {"by_module": {convention: dict(macs) for convention, macs in cost.by_module.items()}}


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
