"""The options of a study: which one, how it differs from its suite, where its results go, the resources it uses.

`STUDY` and `RUN` are the tables from which flags, study files and Python calls are read.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bench.core import registry
from bench.core.cli import Parser, accuracies, folder, grams, hours, names_list, pair, positive, seeds, sizes_list
from bench.core.errors import UserError
from bench.core.options import Alias, Kind, Option, Values, add_flags, given, resolve, to_toml
from bench.plan import overrides
from bench.plan.overrides import Overrides

MPS_CELLS = 4  # that share a GPU by NVIDIA's MPS
CHANGED = ("refuse", "keep", "redo")


def share(text: str) -> str:
    """How cells share a GPU: "none", a number of them, or "mps"."""
    text = text.removeprefix("nvidia-")  # --device mps is Apple's
    if text not in ("none", "mps") and not re.fullmatch("[1-9][0-9]{0,2}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not none, mps, or a number of runs up to 999")
    return text


STUDY = (
    Option(
        name="plugins",
        kind=Kind.REPEATED,
        default=(),
        help="folder of your own models, data, tasks, suites, figures, jobs; repeatable",
    ),
    Option(name="suite", default="scaling", help="the study to run (default: scaling)"),
    Option(name="scale", default="auto", help="cpu (minutes), gpu (about an hour) or paper (default: by device)"),
    Option(
        name="models", kind=Kind.LIST, read=names_list, help="comma-separated model names (default: those of the suite)"
    ),
    Option(
        name="data",
        kind=Kind.LIST,
        read=names_list,
        help="comma-separated pre-training data sets (default: those of the suite); NAME@N limits a set to N images",
    ),
    Option(
        name="sizes",
        kind=Kind.LIST,
        read=sizes_list,
        metavar="N,N",
        help="comma-separated numbers of images that an axis over images compares (default: those of the suite)",
    ),
    Option(
        name="downstream",
        kind=Kind.LIST,
        read=names_list,
        help="comma-separated data sets that models are judged on (default: those of the suite)",
    ),
    Option(
        name="image_size", read=positive, help="pixels per side that models take, e.g. 64 (default: that of the data)"
    ),
    Option(
        name="hours",
        read=hours,
        metavar="H",
        help="scale gpu: hours on one data-centre GPU that budgets and image size are chosen for (default: 1)",
    ),
    Option(
        name="tasks",
        kind=Kind.LIST,
        read=names_list,
        default=(),
        help="comma-separated tasks (default: those of the suite)",
    ),
    Option(name="seeds", read=seeds, help="number of training seeds"),
    Option(
        name="grid",
        kind=Kind.REPEATED,
        default=(),
        metavar="MODEL=H1,H2 xN",
        help="of a model (MODEL@IMAGES: on a part of its data) only these budgets and so many seeds, and no model "
        "that is not named; repeatable. vit-bench plan --budget writes them",
    ),
    *overrides.OPTIONS,
    Option(
        name="rehearse",
        kind=Kind.FLAG,
        default=False,
        help="do every run in seconds, to see what would break: networks of two blocks, a few hundred small images, a "
        "few steps; the numbers mean nothing, and lie in a folder of their own",
    ),
    Option(name="only", kind=Kind.REPEATED, default=(), help="do only runs whose names match; repeatable"),
    Option(
        name="results", read=folder, default=Path("results"), here=True, help="folder for results (default: results)"
    ),
    Option(name="data_root", read=folder, help="folder that contains your data sets"),
    Option(
        name="groups",
        read=folder,
        metavar="FILE.csv",
        help="columns file,group: images of one patient, camera or site stay on one side of every division "
        "(default: groups.csv in a folder of images)",
    ),
    Option(
        name="max_unreadable",
        metavar="SHARE",
        help="share of a set's images that are left out where they cannot be read, such as 5%% (default: 0.1%%)",
    ),
    Option(name="device", default="auto", help="cpu, cuda, mps, or auto"),
    Option(
        name="workers",
        called="jobs",
        read=positive,
        here=True,
        help="runs at once (default: one per core; one per GPU)",
    ),
    Option(
        name="share",
        read=share,
        default="none",
        here=True,
        metavar="none|N|mps",
        help=f"runs at once on each GPU: one (default); N, in turns; by NVIDIA's MPS {MPS_CELLS}, or --jobs in all",
    ),
    Option(name="ranks", read=positive, default=1, help="processes that train each network together (one per GPU)"),
    Option(
        name="executor",
        choices=("local", "slurm", "ray"),
        default="local",
        here=True,
        help="where runs are done: on this machine (default), as SLURM jobs, or as tasks of a Ray cluster",
    ),
    Option(
        name="job",
        kind=Kind.REPEATED,
        read=pair,
        default=(),
        here=True,
        metavar="NAME=VALUE",
        help="what each job asks of the cluster, beside what the plan says, e.g. partition=gpu; repeatable",
    ),
    Option(
        name="detach",
        kind=Kind.FLAG,
        default=False,
        here=True,
        help="submit SLURM jobs and leave; vit-bench status --watch follows them, the same command without it reports",
    ),
    Option(name="nodes", read=positive, default=1, here=True, help="machines that the ranks of a run are spread over"),
    Option(name="max_cells", read=positive, here=True, metavar="N", help="do at most N runs now"),
    Option(name="retry", choices=("failed",), here=True, help="only do runs that were tried and failed"),
    Option(
        name="co2",
        read=grams,
        here=True,
        metavar="GRAMS",
        help="CO2 per kilowatt-hour of the electricity used here, in grams; for the records and the report",
    ),
    Option(
        name="changed",
        choices=CHANGED,
        default=CHANGED[0],
        here=True,
        help="what to do with results of other model code, or of other images (default: refuse)",
    ),
    Option(
        name="calibrate",
        kind=Kind.FLAG,
        default=False,
        here=True,
        help="measure every model's speed again, even if cached",
    ),
    Option(name="accelerator", here=True, help="also estimate the time on an accelerator (H100, A100, …) from FLOPs"),
    Option(
        name="hardware",
        here=True,
        metavar="8xH100",
        help="for a plan, or jobs of a cluster: these devices instead of this machine's; from records of theirs below "
        "--results, else from a roofline, with its error",
    ),
    Option(
        name="cores",
        read=positive,
        here=True,
        metavar="N",
        help="for a plan with --hardware: processor cores beside each device, which decode its images (default: those "
        "of its maker's servers)",
    ),
    Option(
        name="price",
        here=True,
        metavar="2.5/gpuh",
        help="of an hour of one device, or 20/h for all of them: the plan says what the study costs",
    ),
)
RUN = (
    *STUDY,
    Option(name="reference", choices=registry.names("quoted source"), help="add published results to the figures"),
    Option(
        name="target",
        kind=Kind.LIST,
        read=accuracies,
        metavar="95%",
        help="comma-separated accuracies: how many images, or how much compute, do they take? (default: round ones)",
    ),
    Option(
        name="track",
        kind=Kind.LIST,
        read=names_list,
        default=("auto",),
        here=True,
        help="trackers that show the runs: tensorboard, wandb, mlflow, trackio; none; or auto: TensorBoard at the "
        "end, where it is installed (default)",
    ),
    Option(
        name="profile",
        kind=Kind.FLAG,
        default=False,
        here=True,
        help="write a torch.profiler trace of each run's first steps",
    ),
)


class RanksPerNode(int):
    """A number of ranks on each machine, as torchrun counts them."""


ALIASES = (
    Alias(name="workers", option="workers"),
    Alias(
        name="nproc_per_node",
        option="ranks",
        read=lambda text: RanksPerNode(positive(text)),
        help="ranks on each machine",
    ),
    Alias(name="nnodes", option="nodes"),
    Alias(name="num_seeds", option="seeds"),
    Alias(name="output_dir", option="results"),
    Alias(name="report_to", option="track"),
    Alias(name="retry_failed", option="retry", value="failed"),
    Alias(name="lr", option="set", read=lambda text: ("lr", text), help="--set lr=…"),
    Alias(name="batch_size", option="set", read=lambda text: ("batch", text), help="--set batch=…"),
    Alias(
        name="epochs",
        option="horizons",
        read=lambda text: tuple(f"{number}epochs" for number in names_list(text)),
        help="--horizons …epochs",
    ),
)
"""Names by which users of torchrun, timm and Hugging Face's trainers know the options."""


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """The options of a study; defaults are in the table. None, or an empty tuple, means the suite's default.

    Attributes:
        plugins: folders of plug-ins; see bench/core/registry.py.
        suite: its name.
        scale: "auto" or one of `bench.suites.suite.SCALES`.
        models: their names.
        data: names of upstream sets, or NAME@N.
        sizes: numbers of images of the axis over images, ascending.
        downstream: sets that replace those of the suite's tasks.
        image_size: pixels per side that models take.
        hours: on one accelerator, that the budgets of scale `gpu` are for.
        tasks: that replace those of the suite.
        seeds: how many.
        grid: lines of bench/plan/passes/chosen_grid.py, that leave a part of the suite's cells.
        overrides: of recipes and horizons.
        rehearse: cut every cell to seconds; see `bench.plan.passes.rehearsed`.
        only: patterns of cells' names; the others are left for another run.
        results: folder for results.
        data_root: folder with the user's data sets.
        groups: file that says which images of a folder belong together.
        max_unreadable: share of a set's images that may be left out, see `bench.data.source`.
        device: one of `bench.core.device.KINDS`.
        workers: cells at a time.
        share: of a GPU by cells: "none", a number of them, or "mps".
        ranks: processes that train a cell together.
        calibrate: measure every model's speed again.
        accelerator: also cost the study on this one.
        hardware: devices that are planned for, as bench/cost/hardware.py reads them.
        cores: of processors, beside each of those devices.
        price: of an hour of theirs.
        changed: what to do with results of code, or images, that have changed since; see `bench.plan.changed`.
        executor: "local", "slurm" or "ray".
        job: (name, value) pairs for it.
        detach: leave once jobs are submitted.
        nodes: machines of each worker.
        max_cells: that this run does.
        retry: "failed": only those.
        co2: grams per kilowatt-hour.
        reference: a quoted source ("paper", "published"), whose results are added to the figures.
        target: accuracies, 0..1; the report says what each takes.
        track: trackers, see `bench.trackers`.
        profile: write traces.
    """

    plugins: tuple[str, ...]
    suite: str
    scale: str
    models: tuple[str, ...] | None
    data: tuple[str, ...] | None
    sizes: tuple[int, ...] | None
    downstream: tuple[str, ...] | None
    image_size: int | None
    hours: float | None
    tasks: tuple[str, ...]
    seeds: int | None
    grid: tuple[str, ...]
    overrides: Overrides
    rehearse: bool
    only: tuple[str, ...]
    results: Path
    data_root: Path | None
    groups: Path | None
    max_unreadable: str | None
    device: str
    workers: int | None
    share: str
    ranks: int
    executor: str
    job: tuple[tuple[str, Any], ...]
    detach: bool
    nodes: int
    max_cells: int | None
    retry: str | None
    co2: float | None
    calibrate: bool
    changed: str
    accelerator: str | None
    hardware: str | None
    cores: int | None
    price: str | None
    reference: str | None
    target: tuple[float, ...] | None
    track: tuple[str, ...]
    profile: bool

    @classmethod
    def of(cls, *layers: Values) -> StudyOptions:
        """From what a study file, a call and flags say, the last of them first.

        Raises:
            UserError: a field that is both set and swept; too many combinations.
        """
        values = resolve(RUN, *layers)
        for name in ("plugins", "tasks", "only", "job", "grid"):
            values[name] = tuple(dict.fromkeys(values[name]))
        if isinstance(values["ranks"], RanksPerNode):
            values["ranks"] = int(values["ranks"] * values["nodes"])
        values |= by_path(values)
        plain = {entry.name: values[entry.name] for entry in fields(cls) if entry.name != "overrides"}
        return cls(**plain, overrides=Overrides.of(values))

    @classmethod
    def parsed(cls, arguments: argparse.Namespace) -> StudyOptions:
        """From a command line to which `add_options` was added, and the study file that it names.

        Raises:
            UserError: see `of` and `bench.core.option_values.read_file`.
        """
        asked = given(arguments, RUN)
        return cls.of(read_study(arguments.study, plugins=asked.get("plugins", ())), asked)

    @classmethod
    def called(cls, study: Path | str | None, options: Mapping[str, Any]) -> StudyOptions:
        """From the arguments of a Python call, and the study file that it names.

        Raises:
            UserError: as `parsed`.
        """
        from bench.core.option_values import read_mapping

        asked = read_mapping(options, RUN, ALIASES)
        return cls.of(read_study(study, plugins=asked.get("plugins", ())), asked)

    @property
    def store(self) -> Path:
        """The study's folder. A rehearsal has one of its own, so that its numbers never lie beside others."""
        return self.results / folder_name(self.suite, self.scale, rehearse=self.rehearse)

    def to_toml(self) -> str:
        """A study file that asks for the same, wherever it is read, but for how it is run and where results go."""
        values = {**vars(self), **self.overrides.values()}
        for name in ("plugins", "data_root", "groups"):
            values[name] = _absolute(values[name])
        return to_toml(values, RUN, always=("suite", "scale"))


def by_path(values: Mapping[str, Any]) -> Values:
    """Sets that are named by a folder's path, as `folder:NAME` below the data root: photos/flowers is folder:flowers
    with --data-root photos.

    Raises:
        UserError: there is no such folder; it is not in the data root.
    """
    root, changed = values["data_root"], {}
    for option in ("data", "downstream"):
        if values[option] and any(map(_is_path, values[option])):
            names = []
            for name in values[option]:
                if _is_path(name):
                    root, name = _folder_set(name, root)
                names.append(name)
            changed[option] = tuple(names)
    return {**changed, "data_root": root} if changed else {}


def _is_path(name: str) -> bool:
    before = name.partition(":")[0]
    return before.startswith((".", "~", os.sep)) or "/" in before or os.sep in before


def _folder_set(name: str, root: Path | None) -> tuple[Path, str]:
    """(data root, folder:NAME) of a path with what may follow it: photos/flowers:64px@1000."""
    path, colon, option = name.partition(":")
    path, at, number = path.partition("@")
    place = Path(path).expanduser().absolute()
    if not place.is_dir():
        raise UserError(
            f"There is no folder {path}.", "Name a folder of images, or a data set (vit-bench data lists them)."
        )
    if root is not None and place.parent != root.absolute():
        raise UserError(
            f"{path} is not in {root}, where the other sets are.", "All folders of a study are in one: --data-root."
        )
    return place.parent, f"folder:{place.name}{colon}{option}{at}{number}"


def folder_name(suite: str, scale: str, *, rehearse: bool) -> str:
    """The name of a study's folder."""
    return f"rehearsal-{suite}-{scale}" if rehearse else suite


def _absolute(value: Any) -> Any:
    """The folders of an option, wherever this process is."""
    if isinstance(value, tuple):
        return tuple(map(_absolute, value))
    return value and str(Path(value).absolute())


GROUPS: Mapping[str, tuple[str, ...]] = {
    "the study": ("suite", "scale", "models", "data", "downstream", "tasks", "seeds", "hours", "plugins", "rehearse"),
    "its images": ("sizes", "image_size", "groups"),
    "changes to its recipes and grid": ("horizons", "recipe", "set", "sweep", "grid"),
    "where": (
        "results",
        "data_root",
        "max_unreadable",
        "device",
        "workers",
        "share",
        "ranks",
        "nodes",
        "executor",
        "job",
        "detach",
    ),
    "which runs now": ("only", "max_cells", "retry", "changed"),
    "what it costs": ("calibrate", "accelerator", "hardware", "cores", "price", "co2"),
    "report": ("reference", "target", "track", "profile"),
}
"""Heading in --help -> options."""


def add_options(p: Parser, options: Iterable[Option] = STUDY) -> None:
    """The options that make `StudyOptions`, and a study file."""
    p.add_argument(
        "study",
        nargs="?",
        metavar="STUDY.toml",
        help='a file with the same options, which flags override: models = ["ViT-nano/7"], a table [set], …',
    )
    for heading, names in GROUPS.items():
        add_flags(p.add_argument_group(heading), [option for option in options if option.name in names], ALIASES)


def read_study(path: Path | str | None, *, plugins: Iterable[str] = ()) -> Values:
    """The values in a study file; none without one. Its plug-ins are code, which a file alone does not get to run.

    Args:
        plugins: folders that the user has named beside those of VIT_BENCH_PLUGINS.

    Raises:
        UserError: see `bench.core.option_values.read_file`; it asks for plug-ins that the user has not named.
    """
    if path is None:
        return {}
    if str(path) in registry.names("suite") and not Path(path).exists():
        raise UserError(f"{str(path)!r} is a suite, not a study file.", f"Write --suite {path}.")
    from bench.core.option_values import read_file

    values = read_file(Path(path), RUN, ALIASES)
    named = {
        os.path.realpath(one) for one in (*plugins, *os.environ.get(registry.PLUGINS, "").split(os.pathsep)) if one
    }
    if unnamed := [folder for folder in values.get("plugins", ()) if os.path.realpath(folder) not in named]:
        raise UserError(
            f"{path} asks for plug-ins in {', '.join(unnamed)}: code, which a study file alone does not get to run.",
            f"Read it, then add {' '.join(f'--plugins {shlex.quote(one)}' for one in unnamed)}.",
        )
    return values


def results_of(arguments: argparse.Namespace) -> tuple[str | None, Path]:
    """(study, folder with results) for a verb that reads what is there: --suite and --results, else what its study file
    says.

    Raises:
        UserError: see `read_study`.
    """
    said = read_study(arguments.study)
    suite = said.get("suite")
    if suite and said.get("rehearse"):
        suite = folder_name(suite, said.get("scale", "auto"), rehearse=True)
    return arguments.suite or suite, arguments.results or said.get("results") or Path("results")


def listing() -> str:
    """Suites, fields and recipes, for --help."""
    suites = (f"\n  {name:15} {registry.load('suite', name).question}" for name in registry.names("suite"))
    return f"\nsuites, and what each asks:{''.join(suites)}" + overrides.listing()
