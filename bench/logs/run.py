"""A run as an experiment tracker logged it, and runs as the table to which scaling laws are fitted.

Each point of a law is a run, not a step of one: a row of the table holds the run's settings and the last value of each
of its series, or the values at the step where y, the quantity that the law predicts, was best. On request each value of
y becomes a row; if these are from one run, `bench.laws` makes no statement beyond the data.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from bench.core.errors import UserError, unknown
from bench.core.formatting import join, plural
from bench.laws import runs_table

RUN, STEP = "run", "step"  # columns that `table` adds to those of the logs
MAX_NAMED = 3  # runs that a message names
Y = (  # patterns of names of the series that a law may describe, the likeliest first
    r"(val|valid|validation|eval|test|dev)\W*(loss|nll|ce|cross_?entropy|bpb)\b",
    r"(loss|nll|cross_?entropy|bpb)\W*(val|valid|validation|eval|test|dev)\b",
    r"(val|valid|validation|eval|test|dev)\W*(err|error|error_rate)\b",
    r"(val|valid|validation|eval|test|dev)\W*(acc|accuracy|top-?1|acc1)\b",
    r"^(?!.*(train|regul|aux)).*\bloss\b",
    r"\bloss\b",
    r"\b(error|err)\b",
    r"\b(accuracy|acc|top-?1|acc1)\b",
)
GROUPS = ("family", "architecture", "arch", "model_type", "model_family", "method", "optimizer", "dataset", "group")
MOST_GROUPS = 8
SIZES = (2, 0, 1)  # rows of `runs_table.ALIASES` with names for x, in order of preference: compute, parameters, samples


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run as a tracker logged it.

    Attributes:
        name: name of the run.
        settings: name -> value; nested settings are named "outer.inner".
        series: name -> (step, value) pairs in the order in which they were logged.
        status: how the run ended, if it is known not to have ended as planned; "" otherwise.
    """

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    series: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    status: str = ""


@dataclass(frozen=True, kw_only=True)
class Logs:
    """Runs that were read from one place.

    Attributes:
        where: path or address of the logs.
        kind: kind of the logs in words, such as "TensorBoard".
        runs: all runs, in order.
    """

    where: str
    kind: str
    runs: tuple[Run, ...]

    @property
    def finished(self) -> tuple[Run, ...]:
        """The runs that ended as planned; all runs if none did."""
        return tuple(run for run in self.runs if not run.status) or self.runs


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as one level of names: {"model": {"depth": 2}} -> {"model.depth": 2}. Lists are left out,
    because a cell of a table cannot hold them. `prefix`: what every name begins with."""
    made: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            made |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, str | int | float | bool) or value is None:
            made[f"{prefix}{name}"] = value
    return made


def series_of(rows: Iterable[Mapping[str, Any]], steps: Sequence[str]) -> dict[str, list[tuple[float, float]]]:
    """Return name -> (step, value) pairs for all numbers in logged rows. `steps`: names that may hold the step, of
    which the first one in a row is used; if a row has none of them, the step is the row's number, from 0."""
    made: dict[str, list[tuple[float, float]]] = {}
    for number, row in enumerate(rows):
        step = next((row[name] for name in steps if isinstance(row.get(name), int | float)), number)
        for name, value in flat(row).items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                made.setdefault(name, []).append((float(step), float(value)))
    return made


# -- the table ---------------------------------------------------------------------------------------------------------


def table(logs: Logs, *, points: str = "final", y: str = "") -> pd.DataFrame:
    """Return a table with one row per run that ended as planned, or one row per value of y if `points` is "all"; its
    index starts at 1.

    Args:
        points: "final" for the last value of each series, "best" for the values at the step at which y was best, or
            "all".
        y: name of the series that "best" and "all" refer to; "" if `points` is "final".
    """
    rows = list[dict[str, Any]]()
    for run in logs.finished:
        of_run = {RUN: run.name, **run.settings}
        steps = [step for step, _ in run.series.get(y, ())] if points != "final" else []
        if points == "best" and steps:
            values = {step: value for step, value in run.series[y] if math.isfinite(value)}
            better = max if runs_table.ACCURACY.search(y) else min
            steps = [better(values, key=values.__getitem__)] if values else []
        for step in steps or [math.inf]:
            rows.append(of_run | _values(run, step))
    made = pd.DataFrame(rows).infer_objects()
    made.index = pd.RangeIndex(1, len(made) + 1)
    return made


def _values(run: Run, until: float) -> dict[str, float]:
    """Return the last finite value of each series of a run up to and including the step `until`, by name, and under
    STEP the last step among these."""
    made, last = dict[str, float](), -math.inf
    for name, series in run.series.items():
        before = [(step, value) for step, value in series if step <= until and math.isfinite(value)]
        if before:
            step, made[name] = max(before, key=lambda one: one[0])
            last = max(last, step)
    return made | ({STEP: last} if last > -math.inf and STEP not in made else {})


# -- columns -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns of a table of runs to which a law is fitted.

    Attributes:
        x, y: names of columns; several columns for x are separated by commas.
        group: column that divides the runs into groups; None if there is none.
        guessed: which of "x", "y" and "group" the user did not name.
    """

    x: str
    y: str
    group: str | None
    guessed: tuple[str, ...]

    def said(self, logs: Logs, points: str) -> list[str]:
        """Return sentences that tell the user how the logs were read. `points`: "final", "best" or "all", see
        `table`."""
        left_out = [run for run in logs.runs if run not in logs.finished]
        which = {"final": "the last value of each run", "best": "the best value of each run", "all": "every value"}
        taken = [f"x = {self.x}", f"y = {self.y} ({which[points]})", f"group = {self.group or 'none'}"]
        options = ", ".join(f"--{name}" for name in self.guessed)
        other = f" Others: {options}." if options else ""
        said = [f"{plural(len(logs.runs), 'run')} of {logs.where} ({logs.kind}): {', '.join(taken)}.{other}"]
        if left_out:
            named = join([f"{run.name} ({run.status})" for run in left_out[:MAX_NAMED]])
            more = " and others" if len(left_out) > MAX_NAMED else ""
            said.append(f"{plural(len(left_out), 'run')} that did not finish left out: {named}{more}.")
        return said


def columns(logs: Logs, *, x: str | None, y: str | None, group: str | None) -> Columns:
    """Choose the columns of a fit: those that the user named, and the likeliest ones where the user named none (None).

    Args:
        x: one name, or several separated by commas.

    Raises:
        UserError: a named column does not exist, or no column is a likely x or y.
    """
    made = table(logs)
    guessed = [name for name, given in (("x", x), ("y", y), ("group", group)) if not given]
    x = ",".join(meant(made, name.strip()) for name in x.split(",")) if x else None
    y, group = (meant(made, name) if name else None for name in (y, group))
    series = {name for run in logs.runs for name in run.series} or {str(name) for name in made.columns}
    numeric = [
        str(name) for name in made.columns if pd.api.types.is_numeric_dtype(made[name]) and made[name].dtype != bool
    ]
    y = y or next((name for each in Y for name in numeric if name in series and re.search(each, _words(name))), None)
    if y is None:
        raise UserError(
            f"Which series of {logs.where} is y? None is named as a loss, an error or an accuracy.", _name(numeric)
        )
    if x is None:
        known = [[name for name in numeric if name != y and _is(name, runs_table.ALIASES[at])] for at in SIZES]
        varying = [name for names in known for name in names if (made[name] > 0).any() and made[name].nunique() > 1]
        x = max(varying, key=lambda name: (made[name].nunique() > 2, -varying.index(name)), default=None)
    if x is None:
        varying = [name for name in numeric if name != y and made[name].nunique() > 1]
        what = f"Which column of {logs.where} is x? None that varies is named as compute, parameters or samples."
        raise UserError(what, _name(varying, option="--x"))
    if group is None:
        group = next(
            (
                name
                for known in GROUPS
                for name in map(str, made.columns)
                if _is(name, (_plain(known),)) and _divides(made[name])
            ),
            None,
        )
    return Columns(x=x, y=y, group=group, guessed=tuple(guessed))


def check_points(logs: Logs, points: str) -> None:
    """Check that a fit would have more points than the last or best value of a single run. `points`: see `table`.

    Raises:
        UserError: the logs hold one run, and `points` is not "all".
    """
    if points != "all" and len(logs.finished) == 1:
        run = logs.finished[0]
        most = max(map(len, run.series.values()), default=0)
        what = f"{logs.where} holds one run, {run.name}: the {most:,} values of its curve are no points of a law."
        raise UserError(
            what, "A law takes runs of several sizes or lengths; --points all fits the curve, up to its end."
        )


def meant(made: pd.DataFrame, name: str) -> str:
    """Return the column of the table `made` that a user means by its full name or by the last part of it: "n_params"
    for "model.n_params".

    Raises:
        UserError: no column, or several, may be meant.
    """
    if name in made.columns:
        return name
    ends = [str(column) for column in made.columns if _plain(_last(str(column))) == _plain(name)]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise UserError(f"{name!r} may mean several columns: {', '.join(ends)}.", "Name one of them exactly.")
    try:
        return runs_table.column(made, name)
    except UserError:
        raise unknown("column", name, map(str, made.columns)) from None


def _divides(column: pd.Series) -> bool:
    """Whether a column divides the runs into 2 to `MOST_GROUPS` groups of at least two runs each."""
    counts = column.astype(str).value_counts()
    return 1 < len(counts) <= MOST_GROUPS and bool((counts > 1).all())


def _name(names: Sequence[str], option: str = "--y") -> str:
    return f"Name it with {option}: {', '.join(names[:40]) or 'there is no column of numbers that varies'}."


def _is(name: str, known: Sequence[str]) -> bool:
    return _plain(name) in known or _plain(_last(name)) in known


def _last(name: str) -> str:
    return re.split(r"[./]", name)[-1]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _words(name: str) -> str:
    """Return a name as lower-case words: "val loss" for "val/loss", "valLoss" and "val_loss"."""
    return re.sub(r"[\W_]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)).lower()
