"""Run a study: plan it, say what it will cost, do what is missing, report what was found."""

from __future__ import annotations

import argparse
import dataclasses
import fnmatch
import itertools
import json
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.core import environment, registry
from bench.core.cli import names_list, parser, positive, seeds
from bench.core.device import resolve_device
from bench.core.errors import EXIT_FAILED, EXIT_OK, UserError, command, nearest
from bench.core.registry import directory_name
from bench.core.spec import Cell, TaskSpec, to_json
from bench.plan import overrides, sizes
from bench.plan import preflight as possible
from bench.plan.overrides import Overrides
from bench.suites._contract import SCALES, SuiteOptions

EXAMPLES = """\
examples:
  python -m bench.run --suite scaling                      the main study, at the scale that fits this machine
  python -m bench.run --suite scaling --plan               what it would do and cost, and nothing else
  python -m bench.run --suite smoke                        all of it, small, in under a minute
  python -m bench.run --suite scaling --models ViT-nano/7,R8x0.25-s2 --seeds 3
  python -m bench.run --suite data --data fashion-mnist    accuracy against number of images, on photographs
  python -m bench.run --suite scaling --only 'vit-*'       only some cells; the rest can follow later
  python -m bench.run --suite scaling --ranks 4            each cell trained by four processes together
  python -m bench.run --suite scaling --sweep lr=1e-3,2e-3 --horizons 2epochs

A run that was stopped, by whatever cause, is continued by the same command.
"""
NO_CHANGES = Overrides()
LOG_WIDTH = 120  # columns of a log file, where there is no terminal to ask


def add_study_options(p: argparse.ArgumentParser) -> None:
    """Options that say which study, and where."""
    p.add_argument("--suite", default="scaling", help=f"the question to answer: {', '.join(registry.names('suite'))}")
    p.add_argument("--scale", default="auto", help="cpu (minutes), gpu (about an hour), paper; default: what fits")
    p.add_argument("--models", type=names_list, help="comma-separated model names instead of the suite's own")
    p.add_argument("--data", type=names_list, help="comma-separated upstream data sets instead of the suite's own; "
                   "NAME@N for N images at most")  # fmt: skip
    p.add_argument("--tasks", type=names_list, help="comma-separated tasks instead of the suite's own")
    p.add_argument("--seeds", type=seeds, help="number of training seeds")
    overrides.add_options(p)
    p.add_argument("--only", action="append", default=[], help="only cells whose name matches this pattern; repeatable")
    p.add_argument("--results", type=Path, default=Path("results"), help="where results go (default: results)")
    p.add_argument("--data-root", type=Path, help="where your data sets are")
    p.add_argument("--device", default="auto", help="cpu, cuda, or auto")
    p.add_argument("--workers", type=positive, help="cells to run at once (default: one per core; one per GPU)")
    p.add_argument("--ranks", type=positive, default=1, help="processes that train each cell together (one per GPU)")
    p.add_argument("--calibrate", action="store_true", help="measure every model's speed again, kept or not")
    p.add_argument("--accelerator", help="also cost it on this one, from FLOPs: H100, A100, … (assumes a utilisation)")
    p.add_argument("--json", action="store_true", help="machine-readable output on standard output")


def check_ranks(ranks: int, device: str, cells: Sequence[Cell]) -> None:
    """Refuse a number of ranks that the cells or the machine cannot serve.

    Raises:
        UserError: a batch that they do not divide, a job for one process, fewer GPUs than ranks.
    """
    if ranks == 1:
        return
    from bench.train.ranks import check_cells

    check_cells(cells, ranks=ranks)
    if device == "cuda":
        import torch

        if ranks > (count := torch.cuda.device_count()):
            raise UserError(f"--ranks {ranks}, but this machine has {count} GPU(s).", f"Use --ranks {count} at most.")


def resolve_scale(wanted: str, device: str) -> str:
    """The scale that "auto" means."""
    if wanted == "auto":
        return "cpu" if device == "cpu" else "gpu"
    if wanted not in SCALES:
        close = nearest(wanted, SCALES)
        hint = f"Did you mean {close[0]!r}? " if close else ""
        raise UserError(f"Unknown scale {wanted!r}.", f"{hint}Allowed: auto, {', '.join(SCALES)}.")
    return wanted


def with_tasks(cell: Cell, tasks: Sequence[str]) -> Cell:
    """The cell judged by these tasks, each on every downstream set that the suite judges it on.

    A task that the suite already uses keeps the options it has there, and is asked as often (at two resolutions).
    """
    data = dict.fromkeys(task.data for task in cell.tasks)
    known: dict[tuple[str, str], list[TaskSpec]] = {}
    for task in cell.tasks:
        known.setdefault((task.task, task.data), []).append(task)
    specs = (known.get((name, on)) or [TaskSpec(task=name, data=on)] for name in tasks for on in data)
    return dataclasses.replace(cell, tasks=tuple(itertools.chain.from_iterable(specs)))


def cells_of(
    suite: str,
    options: SuiteOptions,
    only: Sequence[str] = (),
    tasks: Sequence[str] | None = None,
    changes: Overrides = NO_CHANGES,
    say: Callable[[str], None] = lambda _: None,
) -> list[Cell]:
    """The cells that a suite asks for, every name in them checked; `say` is told where a set has fewer images.

    Raises:
        UserError: an unknown suite, model, data set or task (with the nearest names), or nothing left by `only`.
    """
    module = registry.load("suite", suite)
    options, limits = sizes.split(options)
    for name in options.models or ():
        registry.family_of(name)
    for name in options.data or ():
        registry.load("data set", name)
    tasks = tuple(dict.fromkeys(tasks or ()))
    for name in tasks:
        registry.load("task", name)
    cells = sizes.fit(possible.only_read(module.cells(options)), options, limits, say=say)
    cells = changes.apply(cells, data_root=options.data_root)
    if tasks:
        if not any(cell.tasks for cell in cells):
            what = f"Suite {suite!r} judges nothing downstream at scale {options.scale}: no task has data to read."
            raise UserError(what, "Leave out --tasks, or take another suite or scale.")
        cells = [with_tasks(cell, tasks) for cell in cells]
    for cell in cells:
        registry.family_of(cell.model)
        for task in cell.tasks:
            registry.load("task", task.task)
    if only:
        kept = [c for c in cells if any(_matches(c.readable_name, pattern) for pattern in only)]
        if not kept:
            some = ", ".join(sorted({c.readable_name for c in cells})[:8])
            raise UserError(f"No cell matches --only {' '.join(only)}.", f"Names are like: {some}.")
        return kept
    return cells


def _matches(name: str, pattern: str) -> bool:
    pattern = pattern.lower()
    return fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(name, f"*{pattern}*")


def suite_options(arguments: argparse.Namespace, scale: str) -> SuiteOptions:
    """What parsed study options change about a suite."""
    return SuiteOptions(
        scale=scale, models=arguments.models, data=arguments.data, seeds=arguments.seeds, data_root=arguments.data_root
    )


def note_wanted_cells(arguments: argparse.Namespace, plan: Any) -> None:
    """Keep the names of the whole grid, whatever --only leaves out of this run: a report names what is missing. And
    remove the checkpoints of finished cells that a kill between record and clean-up left."""
    from bench.store import grid as plan_file
    from bench.store.study import Study

    cells = cells_of(arguments.suite, suite_options(arguments, plan.scale), tasks=arguments.tasks,
                     changes=Overrides.parsed(arguments))  # fmt: skip
    Study(plan.store).create()
    names = tuple(directory_name(cell) for cell in cells)
    plan_file.write(plan.store, plan_file.WantedCells(suite=plan.suite, scale=plan.scale, names=names))
    for planned in plan.cells:
        if planned.state == "done":
            Study(plan.store).cell(planned.cell).settle()


def make_plan(arguments: argparse.Namespace, console: Console) -> Any:
    """The plan for parsed study options."""
    from bench.cost import peaks
    from bench.plan import console as views
    from bench.plan import plan as planner

    device = resolve_device(arguments.device)
    scale = resolve_scale(arguments.scale, device)
    options = suite_options(arguments, scale)
    notes: list[str] = []
    changes = Overrides.parsed(arguments)
    cells = cells_of(arguments.suite, options, arguments.only, arguments.tasks, changes, say=notes.append)
    if arguments.accelerator:
        peaks.accelerator(arguments.accelerator)
    possible.check_folder(arguments.results, write=not arguments.plan)
    if arguments.data_root is not None and not arguments.data_root.is_dir():
        raise UserError(f"--data-root {arguments.data_root} is not a folder.", "Create it, or give another.")
    alone = getattr(registry.load("suite", arguments.suite), "ALONE", False)  # measures time: no neighbours
    check_ranks(arguments.ranks, device, cells)
    spare = max(1, environment.cores() // arguments.ranks)
    workers = arguments.workers or (spare if device == "cpu" and not alone else 1)
    workers = min(workers, len(cells))
    possible.check_processes(workers, arguments.ranks, device)
    threads = max(1, spare // workers)
    plan = planner.make(
        cells, suite=arguments.suite, scale=scale, store=arguments.results / arguments.suite, device=device,
        workers=workers, threads=threads, ranks=arguments.ranks, data_root=arguments.data_root,
        calibrate=arguments.calibrate, say=lambda text: console.print(text, style="dim", highlight=False),
        tick=views.ticker(console),
    )  # fmt: skip
    return dataclasses.replace(plan, notes=tuple(notes), accelerator=arguments.accelerator)


def plan_json(plan: Any) -> dict[str, Any]:
    """A plan as JSON types."""
    return {
        "suite": plan.suite, "scale": plan.scale, "device": plan.device, "workers": plan.workers,
        "threads": plan.threads, "ranks": plan.ranks, "expected_seconds": plan.seconds, "calibrated": plan.measured,
        "rates_age_seconds": plan.rates_age, "notes": list(plan.notes),
        "cells": [
            {
                "name": c.name, "state": c.state, "fraction": c.fraction, "images": c.images, "flops": c.flops,
                "seconds": c.seconds, "note": c.note, "cell": to_json(c.cell),
            }
            for c in plan.cells
        ],
        "rates": to_json_rates(plan.rates),
    }  # fmt: skip


def to_json_rates(rates: dict[str, Any]) -> list[dict[str, Any]]:
    """Rates as JSON types, with the model they belong to."""
    return [{"model": json.loads(key)[0], **to_json(rate)} for key, rate in rates.items()]


def _absent(plan: Any, suite: Any) -> list[str]:
    """What the study asks of data sets that are not here: a task left out, or one that is costed all the same."""
    judged = {task.data for planned in plan.cells for task in planned.cell.tasks}
    found = []
    for name in getattr(suite, "DOWNSTREAM", (*suite.HEADLINE, *suite.FAR)) if judged else ():
        if name not in judged and plan.scale != "paper":
            how = registry.load("data set", name).HOW_TO_GET
            found.append(f"Not judged on {name}, which is not on this machine. {how}")
    if plan.scale == "paper":  # see `estimate.data_sizes`
        for name in sorted(judged):
            module = registry.load("data set", name)
            if not module.available(plan.data_root):
                found.append(f"Costed, but not on this machine: {name}. {module.HOW_TO_GET}")
    return found


def show_plan(plan: Any, console: Console, *, suite: Any) -> None:
    """Print the plan."""
    from bench.plan import console as views

    console.print(f"[bold]{plan.suite}[/bold] at scale {plan.scale}: {suite.QUESTION}", highlight=False, soft_wrap=True)
    views.show_table(views.plan_table(plan), console, spare=views.SPARE)
    for line in (*plan.notes, *_absent(plan, suite)):
        console.print(line, highlight=False, soft_wrap=True)
    for line in views.plan_summary(plan):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


@command
def main(argv: list[str] | None = None) -> int:
    p = parser("python -m bench.run", __doc__ or "", EXAMPLES + overrides.listing())
    add_study_options(p)
    p.add_argument("--plan", action="store_true", help="print the plan and stop")
    p.add_argument("--profile", action="store_true", help="write a torch.profiler trace of each cell's first steps")
    p.add_argument("--reference", choices=["paper"], help="lay the paper's published points under the measured ones")
    arguments = p.parse_args(argv)
    return execute(arguments)


def execute(arguments: argparse.Namespace) -> int:
    """Plan, run, report. Shared by `bench.run` and `bench.plan`."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # while nothing is at work that saves itself
    try:
        return _execute(arguments)
    finally:
        signal.signal(signal.SIGTERM, before)


def _execute(arguments: argparse.Namespace) -> int:
    console = Console(stderr=arguments.json)
    if not console.is_terminal:
        console = Console(stderr=arguments.json, width=LOG_WIDTH)
    suite = registry.load("suite", arguments.suite)
    plan = make_plan(arguments, console)
    show_plan(plan, console, suite=suite)
    if arguments.plan:
        if arguments.json:
            print(json.dumps(plan_json(plan)))
        return EXIT_OK
    from bench.execute import local
    from bench.plan import console as views

    possible.check_data(plan)
    note_wanted_cells(arguments, plan)
    with views.Progress(plan, console) as progress:
        failures = local.run(
            plan,
            on_event=progress.event,
            tick=progress.tick,
            data_root=arguments.data_root,
            profile=arguments.profile,
        )
    from bench.report import build as report
    paths = report.build(plan.store, suite=arguments.suite, reference=arguments.reference)
    report.say(paths, console)
    if arguments.json:
        print(json.dumps(report.to_json(paths)))
    for line in views.by_reason(failures):
        console.print(f"failed: {line}", highlight=False, markup=False, style="red", soft_wrap=True)
    return EXIT_FAILED if failures else EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
