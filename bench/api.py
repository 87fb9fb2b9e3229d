"""The commands as functions, for notebooks and scripts: `import bench.api; bench.api.run("study.toml", seeds=2)`.

Options have the names of the flags, with "_" for "-", and take what a study file takes: `models=["ViT-nano/7"]`,
`set={"clip": 0}`. A mistake raises `bench.core.errors.UserError`.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from rich.console import Console

from bench.analysis import frames, saved_findings, study_data
from bench.analysis.finding import Finding
from bench.commands import flops as flops_verb
from bench.commands import ladder as ladder_verb
from bench.commands import probe as probe_verb
from bench.commands import status as status_verb
from bench.commands.compare import Compared
from bench.commands.compare import compare as compare_sides
from bench.core.console import LOG_WIDTH, make_console
from bench.core.errors import UserError, unknown
from bench.core.formatting import by_reason, plural
from bench.core.shown import Picture, Shown
from bench.cost.flops import ModelCost, ModuleCost, count_module
from bench.data.__main__ import about
from bench.execute.local import Failure
from bench.execute.work_off import work_off
from bench.laws import runs_table, table_fit, wording
from bench.plan import view
from bench.plan.plan import Plan, make_plan
from bench.report import fit_figure
from bench.report.build import ReportPaths, build, say
from bench.store import index
from bench.store.study import Study as Store
from bench.study import registry
from bench.study.option import spelt_out
from bench.study.options import RUN, StudyOptions
from bench.study.record import Record
from bench.tasks._options import checked_options

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = [
    "Compared",
    "Fit",
    "Picture",
    "Results",
    "UserError",
    "compare",
    "data",
    "fit",
    "flops",
    "load",
    "plan",
    "probe",
    "published",
    "report",
    "run",
    "status",
]
Study = Path | str | None
"""Path of a study file (TOML); None: the options alone say what the study is."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Results(Shown):
    """The results of a study, read from its folder when they are first used, and then kept. `str()` of them is the
    number of runs and the report's answers.

    Attributes:
        folder: `results/<suite>`.
        paths: files and findings of the report that was just built; None where the results were only loaded.
        failures: cells that could not be run, with reasons.
    """

    folder: Path
    paths: ReportPaths | None = None
    failures: tuple[Failure, ...] = ()

    @cached_property
    def records(self) -> tuple[Record, ...]:
        """A tuple with one record per finished cell (training run with its evaluations), ordered by name.
        `bench.study.record.Record` describes its fields."""
        return study_data.load(self.folder, rehearsals=True).records

    @cached_property
    def horizons(self) -> pd.DataFrame:
        """A table with one row per cell and horizon (budget at which the cell was evaluated): which cell, compute,
        time, recipe. docs/api.md lists the columns."""
        return frames.horizons(self.records)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """A table with one row per score, and the cell that has it; docs/api.md lists the columns."""
        return frames.scores(self.records)

    @cached_property
    def curves(self) -> pd.DataFrame:
        """A table with one row per point of a learning curve; its columns are directory, model, seed, images seen,
        horizon, and training loss in nats."""
        return frames.curves(self.records)

    @cached_property
    def answers(self) -> tuple[Finding, ...]:
        """The report's answers as `Finding` objects, from the report that was just built, or else from findings.json in
        the folder; empty where there is no report.

        Raises:
            UserError: findings.json is damaged, or of another version.
        """
        return self.paths.findings.findings if self.paths else saved_findings.read(self.folder)

    @cached_property
    def findings(self) -> pd.DataFrame:
        """The report's findings as a table, one row each; `bench.analysis.frames.findings` describes the columns."""
        return frames.findings(self.answers)

    @property
    def table(self) -> pd.DataFrame:
        """The main columns of `findings`: question, subject, verdict, estimate, its interval (low, high), number of
        seeds."""
        return self.findings[["question", "subject", "verdict", "estimate", "low", "high", "n_seeds"]]

    def __str__(self) -> str:
        cells, answers = plural(len(self.records), "run"), plural(len(self.answers), "answer")
        lines = [f"{self.folder}: {cells}, {answers}", *(f"failed: {line}" for line in by_reason(self.failures))]
        return "\n".join([*lines, self.table.to_string(index=False)] if self.answers else lines)

    def plot(self, name: str | None = None) -> Picture:
        """Return the report's figure called `name`; None: the figure that the report's page shows first.

        Raises:
            UserError: the report does not have this figure, or has no figure at all.
        """
        return self.figure(name or next(iter(self._drawn()), ""))

    def figure(self, name: str) -> Picture:
        """Return the figure of the report that is called `name`, such as "compute"; a notebook displays it.

        Raises:
            UserError: the report does not have this figure.
        """
        drawn = self._drawn()
        if name not in drawn:
            raise UserError(f"The report has no figure {name!r}.", f"It has: {', '.join(sorted(drawn)) or 'none'}.")
        return Picture(path=drawn[name])

    def _drawn(self) -> dict[str, Path]:
        """Return name -> path of the PNG, for every figure of the report."""
        files = self.paths.figures if self.paths else (self.folder / "figures").glob("*.png")
        return {path.stem: path for path in files if path.suffix == ".png"}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Fit(Shown):
    """Fitted scaling laws. `str()` of them is what `vit-bench fit` prints.

    Attributes:
        answer: what `vit-bench fit --json` prints.
        ask: takes fields of `bench.laws.table_fit.Request` to change, and returns the answer for the same runs and
            bootstrap resamples.
    """

    answer: Mapping[str, Any]
    ask: Callable[..., Mapping[str, Any]]

    @cached_property
    def parameters(self) -> pd.DataFrame:
        """A table with one row per parameter of the law of each group of runs: its value and interval (low, high)."""
        rows = [
            {"group": group, "parameter": name, "value": fitted["card"]["parameters"].get(name), "low": low, "high": up}
            for group, fitted in self.answer["fits"].items()
            for name, (low, up) in fitted["intervals"].items()
        ]
        return pd.DataFrame(rows)

    @property
    def table(self) -> pd.DataFrame:
        """The main table of the fit, which is `parameters`; other results of this module have a `table`, too."""
        return self.parameters

    def predict(self, x: float | Sequence[float] | np.ndarray) -> pd.DataFrame:
        """Predict y at values of x. The table has one row per group of runs and x: y (an error, where the fitted column
        was an accuracy), the interval of the law (low, high; missing where no past predictions support one), and
        `reach`, how many times beyond the runs x lies.

        Args:
            x: values of the law's only input, in the units of the fit (FLOP for a column in exaFLOPs).
        """
        fits = self.ask(at=np.atleast_2d(_given(x)))["fits"]
        rows = [
            {"group": group, "x": at["x"], "y": at["y"], "low": ends[0], "high": ends[1], "reach": at["reach"]}
            for group, fitted in fits.items()
            for at in fitted["predictions"]
            for ends in (at["total"] or (np.nan, np.nan),)
        ]
        return pd.DataFrame(rows)

    def reach(self, y: float | Sequence[float]) -> pd.DataFrame:
        """Find the x that is needed to reach y, as `vit-bench fit --reach` does. The table has one row per group of
        runs and y: the x at which one more run has this y, and its interval (low, high). Where a number is not known,
        it is missing, and the column `why` gives the reason.

        Args:
            y: values of y; errors, where the fitted column was an accuracy.
        """
        goals = _given(y).tolist()
        if self.answer["share"] and not all(0 < goal < 1 for goal in goals):
            raise UserError(
                f"An error of {goals} cannot be reached.", "Give shares, between 0 and 1: 0.15 is 85 % right."
            )
        fits = self.ask(reach=tuple(1 - goal if self.answer["share"] else goal for goal in goals))["fits"]
        rows = [
            {"group": group, **found, "y": goal}
            for group, fitted in fits.items()
            for goal, found in zip(goals, fitted["reached"], strict=True)
        ]
        columns = ["x", "low", "high"]
        table = pd.DataFrame(rows)[["group", "y", *columns, "reach", "why"]]
        return table.astype(dict.fromkeys(columns, float))

    def plot(self, path: Path | str | None = None) -> Picture:
        """Draw runs, laws and intervals, as `vit-bench fit --figure` does.

        Args:
            path: path of the PNG to write; None: a file in a new temporary folder.
        """
        drawn = Picture.at(path, "fit.png")
        fit_figure.save(self.ask(curves=True), drawn.path)
        return drawn

    def __str__(self) -> str:
        return "\n".join(wording.lines(dict(self.answer)))


@dataclass(frozen=True, kw_only=True, repr=False)
class ShownPlan(Shown, Plan):
    """A plan; `str()` of it is what `vit-bench plan` prints."""

    def __str__(self) -> str:
        view.show(self, console := Console(file=io.StringIO(), width=LOG_WIDTH, force_jupyter=False))
        return console.file.getvalue().rstrip()  # type: ignore[attr-defined]


@spelt_out(RUN)
def plan(study: Study = None, **options: Any) -> Plan:
    """Plan a study, without training anything: return which of its cells (training runs with their evaluations) are
    done, which are left, and what the cells left cost on this machine.

    Args:
        study: path of a study file (TOML); None: the options alone say what the study is.

    Raises:
        UserError: unknown names or options, missing data, ….
    """
    asked = StudyOptions.called(study, options)
    asked.where.use()
    return ShownPlan(**vars(make_plan(asked, to_run=False)))


@spelt_out(RUN)
def run(study: Study = None, *, verbose: bool = False, **options: Any) -> Results:
    """Plan a study, run its missing cells in worker processes, and build its report. Call this from the main thread,
    where signals arrive.

    Args:
        study: path of a study file (TOML); None: the options alone say what the study is.
        verbose: print the plan, progress and findings, as the command does.

    Raises:
        UserError: as in `plan` and `report`; or `hardware` or `price` is given, which only `plan` takes. If cells
            failed before the report could not be built, `__notes__` of the exception names them.
        Interrupted: a signal asked for a stop; the same call continues the study.
    """
    asked = StudyOptions.called(study, options)
    asked.where.use()
    if asked.machine.detach:
        raise UserError("bench.api.run waits for its runs.", "To leave SLURM jobs: vit-bench run --detach.")
    console = make_console() if verbose else Console(file=io.StringIO(), force_jupyter=False)
    made = make_plan(asked, to_run=True, report=view.ConsoleReporter(console))
    view.show(made, console)
    failures = work_off(made, console, track=asked.reporting.track)
    try:
        paths = build(made.store, suite=made.suite, reference=asked.reporting.reference)
    except UserError as error:  # such as a full disk, for which cells may have failed as well
        for line in by_reason(failures):
            error.add_note(f"failed: {line}")
        raise
    say(paths, console)
    return Results(folder=made.store, paths=paths, failures=tuple(failures))


@spelt_out(RUN)
def ladder(
    study: Study = None,
    *,
    budget: str | None = None,
    minutes: float | None = None,
    detect: float = ladder_verb.DETECT,
    verbose: bool = False,
    **options: Any,
) -> Results:
    """Test whether a change still helps with more compute, as `vit-bench ladder` does: tune the learning rates of every
    `change` and of the baseline (`models`) alike, train all of them at a series of growing budgets, and report. Call
    this from the main thread; the same call continues where it was stopped.

    Args:
        study: path of a study file (TOML); None: the options alone say what the study is.
        budget: time that the study may take, for which training budgets and seeds are chosen: "2gpuh" (hours of one
            device), "20min" or "1h"; None: the usual budgets and seeds.
        minutes: the same in minutes; not together with `budget`.
        detect: the gain, in percentage points of accuracy, that the chosen budgets and seeds are to detect.
        verbose: print the plans, progress and findings.

    Raises:
        UserError: as in `run`; or `change` is missing, or cannot be made.
        Interrupted: a signal asked for a stop.
    """
    asked = StudyOptions.called(study, options).changed(suite="ladder")
    asked.where.use()
    console = make_console() if verbose else Console(file=io.StringIO(), force_jupyter=False)
    if (wanted := ladder_verb.budget_of(budget, minutes)) is not None:
        asked = ladder_verb.designed(asked, console, budget=wanted, detect=detect)
    done = ladder_verb.climb(asked, console)
    paths = build(done.plan.store, suite=done.plan.suite)
    say(paths, console)
    return Results(folder=done.plan.store, paths=paths, failures=done.failures)


def report(folder: Path | str, *, reference: str | None = None) -> Results:
    """Rebuild a study's tables, figures and pages from its records, and return its results.

    Args:
        folder: `results/<suite>`, or the suite's name alone; "paper" and "published" are reports on numbers that others
            have published.
        reference: "paper" or "published" adds these published results to the figures; None adds nothing.

    Raises:
        UserError: the folder holds no results.
    """
    quoted = folder in registry.names("quoted source")
    path = _named(folder) if quoted else _study(folder)
    suite = str(folder) if quoted else index.suite_of(path)
    return Results(folder=path, paths=build(path, suite=suite, reference=reference))


def load(folder: Path | str) -> Results:
    """Return the results of a study as they are in its folder: records, tables, and the findings and figures of its
    last report. Nothing is written.

    Args:
        folder: `results/<suite>`, or the suite's name alone; also the folder of a report on published numbers.

    Raises:
        UserError: the folder holds no results.
    """
    path = _named(folder)  # a report of published numbers has findings and no records
    return Results(folder=path if (path / saved_findings.NAME).is_file() else _study(path))


def _named(folder: Path | str) -> Path:
    """Return `folder` itself if such a folder exists or if it has several parts, else the folder of this name in
    results/."""
    path = Path(folder)
    return path if path.is_dir() or path.parent != Path() else Path("results") / path


def _study(folder: Path | str) -> Path:
    path = _named(folder)
    if not (path / "cells").is_dir():
        raise UserError(
            f"There are no results in {path}.", "Name a study's folder, such as results/scaling, or a suite."
        )
    return path


def status(results: Path | str = "results") -> pd.DataFrame:
    """Return the progress of every study in the folder `results`: a table with one row per cell, whose columns are
    `study` and the fields of `bench.commands.status.CellStatus`.

    Raises:
        UserError: a study cannot be read.
    """
    rows = [
        {"study": name, **vars(cell)}
        for name in index.named(Path(results))
        for cell in status_verb.cells_of(Store(Path(results) / name), {})
    ]
    return pd.DataFrame(rows, columns=["study", *status_verb.CellStatus.__annotations__])


def data(*, data_root: Path | str | None = None) -> pd.DataFrame:
    """Return a table of all data sets, one row each: name, whether it is on this machine, what it holds, licence, how
    to get it. No data set is opened.

    Args:
        data_root: folder with data sets that are not part of the installation; None: no such folder.
    """
    root = Path(data_root) if data_root else None
    return pd.DataFrame([about(name, root) for name in registry.names("data set")])


def flops(
    model: str | nn.Module,
    *inputs: Any,
    image_size: int | None = None,
    channels: int | None = None,
    classes: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> ModuleCost | ModelCost:
    """Count and return parameters, MACs and FLOPs of a named model, or of any module applied to inputs. Nothing is
    trained.

    Args:
        model: a name, counted for one image; or a module, counted for `model(*inputs)` or one image of `image_size`.
        image_size: pixels per side; None: the named model's own.
        channels: channels of the image; None: those of the named model, or 3 for a module.
        classes: outputs of the classifier; None: the named model's own.
        options: settings of the named model, as --set model.NAME=VALUE gives them; None: its defaults.

    Raises:
        UserError: an unknown name, a size that the model does not take, a module without an input.
        NotImplementedError: the module runs a contraction (a matrix product, say) for which no count of MACs is known.
    """
    if isinstance(model, str):
        sizes = {"image_size": image_size, "channels": channels, "classes": classes}
        return flops_verb.model_cost(model, **sizes, options=tuple((options or {}).items()))
    if inputs:
        return count_module(model, *inputs)
    if image_size is None:
        raise UserError(
            "A module is counted on an input.", "Give it: flops(net, images), or flops(net, image_size=224)."
        )
    return count_module(model, _image(model, image_size, channels or 3))


def _image(module: nn.Module, side: int, channels: int) -> torch.Tensor:
    """Return one black image, a tensor (1, channels, side, side), on the device of a module; without parameters, on the
    CPU."""
    import torch

    device = next((parameter.device for parameter in module.parameters()), None)
    return torch.zeros(1, channels, side, side, device=device)


def probe(
    model: str | nn.Module,
    data: str,
    *,
    task: str = "fewshot",
    checkpoint: Path | str | None = None,
    image_size: int | None = None,
    channels: int | None = None,
    device: str = "cpu",
    dtype: str = "auto",
    seed: int = 0,
    data_root: Path | str | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Evaluate a model on a downstream data set. Return one row per score, with the fields of
    `bench.study.record.Score`.

    Args:
        model: a name; or a module with its weights, which is not changed. It maps x_BCHW in [-1, 1] to logits_BK; see
            "A model of your own" in CONTRIBUTING.md.
        data: name of the data set.
        task: "fewshot", "linear", "neighbours", …; a module given as an object cannot be fine-tuned.
        checkpoint: file with weights of a named model; None: untrained, or pre-trained where the name has +pretrained.
        image_size: pixels per side of its input, which a module needs; None: as stored with the checkpoint, else the
            named model's own size, else 224.
        channels: 1 or 3; None: as stored with the checkpoint, else 3.
        device: such as "cpu", "cuda".
        dtype: precision of the features: "auto", "float32" or "bfloat16".
        seed: seed of an untrained network's weights.
        data_root: folder with data sets that are not part of the installation; None: no such folder.
        options: options of the task, such as shots=(1, 5, 10) and draws=3.

    Raises:
        UserError: unknown names or options, a device that cannot be used, a model that the task does not suit.
    """
    chosen = registry.load("task", task)
    asked = argparse.Namespace(
        model=model,
        data=data,
        labels=None,
        label_columns=(),
        features=None,
        checkpoint=Path(checkpoint) if checkpoint else None,
        image_size=image_size,
        channels=channels if isinstance(model, str) else channels or 3,
        device=device,
        dtype=dtype,
        seed=seed,
        data_root=Path(data_root) if data_root else None,
        model_options={},
    )
    if isinstance(model, str):
        probe_verb.fill_in(asked)
    elif image_size is None or checkpoint:
        raise UserError("A module is probed with the weights that it has, at a size.", "Give image_size, and no more.")
    settings = checked_options(chosen.evaluate, options)
    context, name = probe_verb.subject(asked)
    scores = chosen.evaluate(context, data=name, **settings)
    return pd.DataFrame([dataclasses.asdict(score) for score in scores]).drop(columns="detail")


def compare(
    a: str | Path,
    b: str | Path,
    *,
    suite: str | None = None,
    results: Path | str = "results",
    at: Literal["compute", "images"] | None = None,
) -> Compared:
    """Compare `b` with `a` (differences are b minus a), as `vit-bench compare` does: two folders of results, two
    commits, or two models or families of one study.

    Args:
        suite: name of the study to look for models and commits in; None: all studies in `results`.
        results: folder that holds the folders of studies.
        at: what is equal when two models are compared: "compute" (of training; also where None) or "images" (seen).

    Returns:
        The comparison. `str()` of it is what the command prints; `table` is a data frame, `verdict` a word.

    Raises:
        UserError: a side is not known, the sides have nothing in common, or `at` does not apply to them.
    """
    return compare_sides(str(a), str(b), suite=suite, results=Path(results), at=at)


def published(table: str = "checkpoints") -> pd.DataFrame:
    """Return accuracies and costs of networks that others have published; docs/published.md describes the columns.

    Args:
        table: "checkpoints" (timm's), "clip" (open_clip's) or "paper" (Tables 5 and 6 of the ViT paper).

    Raises:
        UserError: no such table; the tables are not installed.
    """
    made: pd.DataFrame = registry.load("quoted source", "published").table(table)
    return made


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
        runs: a table, or the path of a CSV file.
        where: conditions such as "split=val"; see `bench.laws.runs_table.split`.
        predict: values of x to predict y at, for laws of one x.
        options: fields of `bench.laws.table_fit.Request`: form, group, loss, draws, ….

    Raises:
        UserError: unknown columns or options, points that do not belong together or are too few.
    """
    known = {entry.name for entry in dataclasses.fields(table_fit.Request)}
    for name in options:
        if name not in known:
            raise unknown("option", name, known)
    table = _as_text(runs) if isinstance(runs, pd.DataFrame) else runs_table.read(Path(runs))
    columns = (x,) if isinstance(x, str) else tuple(x)
    at = np.array([list(predict)], dtype=float) if len(predict) else None
    request = table_fit.Request(x=columns, y=y, at=at, **options)
    chosen, held = runs_table.split(table, list(where), x=columns)
    ask = partial(_asked, chosen, request, held)
    return Fit(answer=table_fit.answer(chosen, request, held=held), ask=ask)


def _given(values: float | Sequence[float] | np.ndarray) -> np.ndarray:
    found = np.ravel(np.asarray(values, dtype=float))
    if not len(found):
        raise UserError("Nothing is asked for.", "Give one value or several.")
    return found


def _asked(runs: pd.DataFrame, request: table_fit.Request, held: pd.DataFrame, **changes: Any) -> Mapping[str, Any]:
    if len(request.x) > 1:
        raise UserError(f"predict, reach and plot are for laws of one x, not of {', '.join(request.x)}.")
    return table_fit.answer(runs, dataclasses.replace(request, **changes), held=held)


def _as_text(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table as if read from a CSV file: every value as text, missing ones empty, rows numbered from 2."""
    runs_table.check_columns(list(map(str, table.columns)), rows=len(table), of="The table")
    text = table.astype(object).where(table.notna(), "").astype(str).rename(columns=str)
    return text.set_axis(range(2, 2 + len(table)))
