"""The verbs as functions, for notebooks and scripts: `import bench.api`, then `bench.api.run("study.toml", seeds=2)`.

Options have the names of the flags, with "_" for "-", and take what a study file takes: `models=["ViT-nano/7"]`,
`set={"clip": 0}`. A mistake raises `bench.core.errors.UserError`.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from rich.console import Console

from bench.analysis import frames, runs_fit, runs_table, saved_findings, study_data
from bench.analysis.finding import Finding
from bench.compare import Compared
from bench.compare import compare as compare_sides
from bench.core.console import make_console
from bench.core.errors import UserError, unknown
from bench.core.formatting import by_reason
from bench.core.record import Record
from bench.cost import public_models
from bench.execute.local import Failure
from bench.plan import view
from bench.plan.options import StudyOptions
from bench.plan.plan import Plan, make_plan
from bench.report import fit_text
from bench.report.build import ReportPaths, build, say
from bench.run import work_off
from bench.store import index

__all__ = ["Fit", "Results", "UserError", "compare", "fit", "load", "plan", "published", "report", "run"]
Study = Path | str | None
"""A study file; None: options alone."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Results:
    """A study's folder, read once when it is first asked for.

    Attributes:
        folder: `results/<suite>`.
        paths: of the report, where one was built, with its findings.
        failures: cells that could not be run, with reasons.
    """

    folder: Path
    paths: ReportPaths | None = None
    failures: tuple[Failure, ...] = ()

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """One per finished cell, ordered by name."""
        return study_data.load(self.folder).records

    @cached_property
    def horizons(self) -> pd.DataFrame:
        """One row per (cell, horizon): compute, time, recipe."""
        return frames.horizons(self.records)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """One row per score, with its cell."""
        return frames.scores(self.records)

    @cached_property
    def curves(self) -> pd.DataFrame:
        """One row per point of a learning curve."""
        return frames.curves(self.records)

    @cached_property
    def answers(self) -> tuple[Finding, ...]:
        """The report's findings, typed: of the report just built, or of the one in the folder; none without one.

        Raises:
            UserError: findings.json is damaged, or of another version.
        """
        return self.paths.findings.findings if self.paths else saved_findings.read(self.folder)

    @cached_property
    def findings(self) -> pd.DataFrame:
        """The report's findings, one row each; see `bench.analysis.frames.findings` for the columns."""
        return frames.findings(self.answers)

    def figure(self, name: str) -> Path:
        """The PNG of a figure of the report, e.g. "compute".

        Raises:
            UserError: it was not drawn.
        """
        files = self.paths.figures if self.paths else (self.folder / "figures").glob("*.png")
        drawn = {path.stem: path for path in files if path.suffix == ".png"}
        if name not in drawn:
            raise UserError(f"The report has no figure {name!r}.", f"It has: {', '.join(sorted(drawn)) or 'none'}.")
        return drawn[name]


@dataclass(frozen=True, kw_only=True, eq=False)
class Fit:
    """Fitted laws. `answer` is what `bench.fit --json` prints; as text it reads as `bench.fit` does."""

    answer: Mapping[str, Any]

    @cached_property
    def parameters(self) -> pd.DataFrame:
        """One row per group and parameter, with its interval."""
        rows = [
            {"group": group, "parameter": name, "value": found["card"]["parameters"].get(name), "low": low, "high": up}
            for group, found in self.answer["fits"].items()
            for name, (low, up) in found["intervals"].items()
        ]
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        return "\n".join(fit_text.lines(dict(self.answer)))


def plan(study: Study = None, **options: Any) -> Plan:
    """Which cells of a study are done, what is left, and what that costs here. Nothing is trained.

    Raises:
        UserError: unknown names or options, missing data, ….
    """
    return make_plan(StudyOptions.called(study, options), to_run=False)


def run(study: Study = None, *, verbose: bool = False, **options: Any) -> Results:
    """Plan a study, run its missing cells in processes of their own, and report. To be called from the main thread.

    Args:
        verbose: print the plan, progress and findings, as `bench.run` does.

    Raises:
        UserError: as `plan`; hardware or price, which are for plans; and as `report`, with notes on which cells failed.
        Interrupted: a signal asked for a stop; the same call continues.
    """
    asked = StudyOptions.called(study, options)
    if asked.detach:
        raise UserError("bench.api.run waits for its cells.", "To leave SLURM jobs: python -m bench.run --detach.")
    console = make_console() if verbose else Console(file=io.StringIO())
    made = make_plan(asked, to_run=True, report=view.ConsoleReporter(console))
    view.show(made, console)
    made, failures = work_off(made, asked, console)
    try:
        paths = build(made.store, suite=made.suite, reference=asked.reference)
    except UserError as error:  # such as a full disk, for which cells may have failed as well
        for line in by_reason(failures):
            error.add_note(f"failed: {line}")
        raise
    say(paths, console)
    return Results(folder=made.store, paths=paths, failures=tuple(failures))


def report(folder: Path | str, *, reference: str | None = None) -> Results:
    """Rebuild a study's tables, figures and pages from its records.

    Args:
        folder: `results/<suite>`.
        reference: "paper" or "published" adds such results to the figures.

    Raises:
        UserError: no results there.
    """
    path = _study(folder)
    return Results(folder=path, paths=build(path, suite=index.suite_of(path), reference=reference))


def load(folder: Path | str) -> Results:
    """A study's records and tables, and the findings and figures of its last report, without writing anything.

    Raises:
        UserError: no results there.
    """
    path = Path(folder)  # a report of published numbers has findings and no records
    return Results(folder=path if (path / saved_findings.NAME).is_file() else _study(path))


def _study(folder: Path | str) -> Path:
    path = Path(folder)
    if not (path / "cells").is_dir():
        raise UserError(f"There are no results in {path}.", "Name a study's folder, such as results/scaling.")
    return path


def compare(
    a: str | Path,
    b: str | Path,
    *,
    suite: str | None = None,
    results: Path | str = "results",
    at: Literal["compute", "images"] | None = None,
) -> Compared:
    """B minus A, for two folders, commits, or models or families of a study; see `bench.compare`.

    Args:
        at: of two models, what is equal: training compute (also where None), or images seen.

    Returns:
        What reads as text as the command prints it; `table` is a data frame, `verdict` a word.

    Raises:
        UserError: a side that is nothing known, nothing that both have, or an `at` that is for other sides.
    """
    return compare_sides(str(a), str(b), suite=suite, results=Path(results), at=at)


def published(table: str = "checkpoints") -> pd.DataFrame:
    """What others' networks reach and cost; `bench.cost.public_models.COLUMNS` describes the columns.

    Args:
        table: "checkpoints" (timm's), "clip" (open_clip's) or "paper" (Tables 5 and 6 of the ViT paper).

    Raises:
        UserError: no such table.
    """
    return public_models.table(table)


def fit(
    runs: pd.DataFrame | Path | str,
    *,
    x: str | Sequence[str],
    y: str,
    where: Sequence[str] = (),
    predict: Sequence[float] = (),
    **options: Any,
) -> Fit:
    """Fit scaling laws to a table with one run per row.

    Args:
        runs: a table, or a CSV file.
        where: conditions such as "split=val"; see `bench.analysis.runs_table.split`.
        predict: values of the only x.
        options: fields of `bench.analysis.runs_fit.Request`: form, group, loss, draws, ….

    Raises:
        UserError: unknown columns or options, points that do not belong together or are too few.
    """
    known = {entry.name for entry in dataclasses.fields(runs_fit.Request)}
    for name in options:
        if name not in known:
            raise unknown("option", name, known)
    table = _as_text(runs) if isinstance(runs, pd.DataFrame) else runs_table.read(Path(runs))
    columns = (x,) if isinstance(x, str) else tuple(x)
    at = np.array([list(predict)], dtype=float) if len(predict) else None
    request = runs_fit.Request(x=columns, y=y, at=at, **options)
    chosen, held = runs_table.split(table, list(where), x=columns)
    return Fit(answer=runs_fit.answer(chosen, request, held=held))


def _as_text(table: pd.DataFrame) -> pd.DataFrame:
    """A table as if read from a file: every value as text, missing ones empty, rows numbered from 2."""
    text = table.astype(object).where(table.notna(), "").astype(str).rename(columns=str)
    return text.set_axis(range(2, 2 + len(table)))
