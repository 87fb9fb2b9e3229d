"""The options shared by `bench.run` and `bench.plan`: which study, where its results go, and the resources it uses."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from pathlib import Path

from bench.core import registry
from bench.core.cli import folder, names_list, positive, seeds
from bench.plan.overrides import NO_OVERRIDES, Overrides
from bench.plan.overrides import add_options as add_override_options

CHANGED = ("refuse", "keep", "redo")


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """The options of a command line. None, or an empty tuple, means the suite's default.

    Attributes:
        scale: "auto" or one of `bench.suites._contract.SCALES`. data: names of upstream sets, or NAME@N.
        only: patterns of cells' names; the others are left for another run.
        device: "auto", "cpu" or "cuda". workers: cells at a time. ranks: processes that train a cell together.
        calibrate: measure every model's speed again. accelerator: also cost the study on this one.
        changed: what to do with results of a model whose code has changed since; see `bench.core.fingerprint`.
    """

    suite: str = "scaling"
    scale: str = "auto"
    models: tuple[str, ...] | None = None
    data: tuple[str, ...] | None = None
    tasks: tuple[str, ...] = ()
    seeds: int | None = None
    overrides: Overrides = NO_OVERRIDES
    only: tuple[str, ...] = ()
    results: Path = Path("results")
    data_root: Path | None = None
    device: str = "auto"
    workers: int | None = None
    ranks: int = 1
    calibrate: bool = False
    changed: str = "refuse"
    accelerator: str | None = None

    @classmethod
    def parsed(cls, arguments: argparse.Namespace) -> StudyOptions:
        """From a command line to which `add_options` was added.

        Raises:
            UserError: a change of the recipe that means nothing.
        """
        values = {entry.name: getattr(arguments, entry.name) for entry in fields(cls) if entry.name != "overrides"}
        for name in ("tasks", "only"):
            values[name] = tuple(dict.fromkeys(values[name] or ()))
        return cls(**values, overrides=Overrides.parsed(arguments))


def add_options(p: argparse.ArgumentParser) -> None:
    """The options that make `StudyOptions`, and --json."""
    p.add_argument("--suite", default="scaling", help=f"the study to run: {', '.join(registry.names('suite'))}")
    p.add_argument("--scale", default="auto", help="cpu (minutes), gpu (about an hour) or paper (default: by device)")
    p.add_argument("--models", type=names_list, help="comma-separated model names (default: those of the suite)")
    p.add_argument("--data", type=names_list, help="comma-separated upstream data sets (default: those of the suite); "
                   "NAME@N limits a set to N images")  # fmt: skip
    p.add_argument("--tasks", type=names_list, help="comma-separated tasks (default: those of the suite)")
    p.add_argument("--seeds", type=seeds, help="number of training seeds")
    add_override_options(p)
    p.add_argument("--only", action="append", default=[], help="run only cells with matching names; repeatable")
    p.add_argument("--results", type=folder, default=Path("results"),
                   help="folder for results (default: results)")  # fmt: skip
    p.add_argument("--data-root", type=folder, help="folder that contains your data sets")
    p.add_argument("--device", default="auto", help="cpu, cuda, or auto")
    p.add_argument("--workers", type=positive, help="cells to run at once (default: one per core; one per GPU)")
    p.add_argument("--ranks", type=positive, default=1, help="processes that train each cell together (one per GPU)")
    p.add_argument("--changed", choices=CHANGED, default=CHANGED[0],
                   help="what to do with results from other model code (default: refuse)")  # fmt: skip
    p.add_argument("--calibrate", action="store_true", help="measure every model's speed again, even if cached")
    p.add_argument("--accelerator", help="also estimate the time on an accelerator (H100, A100, …) from FLOPs")
    p.add_argument("--json", action="store_true", help="machine-readable output on standard output")
