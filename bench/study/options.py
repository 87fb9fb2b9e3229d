"""The options of a study, in seven groups: each is a frozen dataclass that declares its options once.

Flags, headings of --help, keys of study files and arguments of Python calls are read from the fields of the groups.
What does a part of the work takes the group that it needs, and never all options.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from bench.core import cli
from bench.core.cli import Parser
from bench.core.data_settings import GROUPS as GROUPS_FILE
from bench.core.data_settings import allow_unreadable, folder_set, is_path, remember_labels
from bench.core.errors import UserError
from bench.study import registry
from bench.study.option import Alias, Kind, Option, Values, add_flags, given, option, options_of, resolve, to_toml
from bench.study.overrides import Overrides

T = TypeVar("T")
MPS_CELLS = 4  # that share a GPU by NVIDIA's MPS
CHANGED = ("refuse", "keep", "redo")
EQUAL = ("flops", "images", "seconds")


def read_share(text: str) -> str:
    """How cells share a GPU: "none", a number of them, or "mps"."""
    text = text.removeprefix("nvidia-")  # --device mps is Apple's
    if text not in ("none", "mps") and not re.fullmatch("[1-9][0-9]{0,2}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not none, mps, or a number of runs up to 999")
    return text


@dataclass(frozen=True, kw_only=True)
class What:
    """The study: which one, of which models, data and tasks. None, or an empty tuple, means the suite's own."""

    HEADING: ClassVar[str] = "the study"

    suite: str = option(
        "the study to run (default: scaling)",
        default="scaling",
    )
    scale: str = option(
        "cpu (minutes), gpu (about an hour) or paper (default: by device)",
        default="auto",
    )
    models: tuple[str, ...] | None = option(
        "comma-separated model names (default: those of the suite)",
        kind=Kind.LIST,
        read=cli.names_list,
    )
    data: tuple[str, ...] | None = option(
        "comma-separated pre-training data sets (default: those of the suite); NAME@N limits a set to N images",
        kind=Kind.LIST,
        read=cli.names_list,
    )
    sizes: tuple[int, ...] | None = option(
        "comma-separated numbers of images that an axis over images compares (default: those of the suite)",
        kind=Kind.LIST,
        read=cli.sizes_list,
        metavar="N,N",
    )
    downstream: tuple[str, ...] | None = option(
        "comma-separated data sets that models are judged on (default: those of the suite)",
        kind=Kind.LIST,
        read=cli.names_list,
    )
    image_size: int | None = option(
        "pixels per side that models take, e.g. 64 (default: that of the data)",
        read=cli.positive,
    )
    hours: float | None = option(
        "scale gpu: hours on one data-centre GPU that budgets and image size are chosen for (default: 1)",
        read=cli.hours,
        metavar="H",
    )
    tasks: tuple[str, ...] = option(
        "comma-separated tasks (default: those of the suite)",
        default=(),
        kind=Kind.LIST,
        read=cli.names_list,
    )
    metrics: tuple[str, ...] = option(
        "comma-separated metrics beside accuracy, of every task that takes them: balanced-accuracy, macro-f1",
        default=(),
        kind=Kind.LIST,
        read=cli.names_list,
    )
    seeds: int | None = option(
        "number of training seeds",
        read=cli.seeds,
    )
    change: tuple[str, ...] = option(
        "suite ladder: a change whose gain is followed over compute: a model, patch=N, or field=value of a recipe "
        "(two at once: a=1+b=2); repeatable",
        default=(),
        kind=Kind.REPEATED,
    )
    equal: str = option(
        "suite ladder: what a change and its baseline have the same of (default: flops)",
        default="flops",
        choices=EQUAL,
    )
    at: float | str | None = option(
        "suite ladder: where the gain is forecast (default: one rung above the highest): training FLOPs, or what they "
        "are of, NETWORK:300epochs, NETWORK@224:1e8images, or 90epochs of the baseline",
        read=cli.place,
        metavar="FLOPS",
    )
    rehearse: bool = option(
        "do every run in seconds, to see what would break: networks of two blocks, a few hundred small images, a "
        "few steps; the numbers mean nothing, and lie in a folder of their own",
        default=False,
        kind=Kind.FLAG,
    )


@dataclass(frozen=True, kw_only=True)
class Where:
    """Folders of plug-ins, of results and of the user's data, and how its images are left out or kept together."""

    HEADING: ClassVar[str] = "where"

    plugins: tuple[str, ...] = option(
        "folder of your own models, data, tasks, suites, figures, jobs; repeatable",
        default=(),
        kind=Kind.REPEATED,
    )
    results: Path = option(
        "folder for results (default: results)",
        default=Path("results"),
        read=cli.folder,
        here=True,
    )
    data_root: Path | None = option(
        "folder that contains your data sets",
        read=cli.folder,
    )
    groups: Path | None = option(
        "columns file,group: images of one patient, camera or site stay on one side of every division "
        "(default: groups.csv in a folder of images)",
        read=cli.folder,
        metavar="FILE.csv",
    )
    labels: Path | None = option(
        "table of an image's file and its label, CSV, JSON Lines or Parquet, in place of a folder per class (default: "
        "labels.csv or metadata.csv in a folder of images)",
        read=cli.folder,
        metavar="TABLE",
    )
    label_columns: tuple[str, ...] = option(
        "columns of that table that are not found by themselves: file, label (labels: several an image), split, group",
        default=(),
        kind=Kind.LIST,
        read=cli.names_list,
        metavar="ROLE=COLUMN,…",
    )
    max_unreadable: str | None = option(
        "share of a set's images that are left out where they cannot be read, such as 5%% (default: 0.1%%)",
        metavar="SHARE",
    )

    def store(self, what: What) -> Path:
        """A study's folder. A rehearsal has one of its own, so that its numbers never lie beside others."""
        return self.results / folder_name(what.suite, what.scale, rehearse=what.rehearse)

    def use(self) -> None:
        """Search the folders of plug-ins, and read data as it is said here, in this process and those that it starts.
        A command does so once, before it plans.

        Raises:
            UserError: a folder of plug-ins that is none, or no share of images.
        """
        for path in self.plugins:
            registry.add_plugins(path)
        if self.max_unreadable is not None:
            allow_unreadable(self.max_unreadable)
        if self.groups is not None:
            os.environ[GROUPS_FILE] = str(self.groups.absolute())
        if self.labels is not None or self.label_columns:
            remember_labels(self.labels, self.label_columns)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Devices and processes that do the cells, and what each of them is asked to note."""

    HEADING: ClassVar[str] = "devices and processes"

    device: str = option(
        "cpu, cuda, mps, or auto",
        default="auto",
    )
    workers: int | None = option(
        "runs at once (default: one per core; one per GPU)",
        called="jobs",
        read=cli.positive,
        here=True,
    )
    share: str = option(
        f"runs at once on each GPU: one (default); N, in turns; by NVIDIA's MPS {MPS_CELLS}, or --jobs in all",
        default="none",
        read=read_share,
        here=True,
        metavar="none|N|mps",
    )
    ranks: int = option(
        "processes that train each network together (one per GPU)",
        default=1,
        read=cli.positive,
    )
    nodes: int = option(
        "machines that the ranks of a run are spread over",
        default=1,
        read=cli.positive,
        here=True,
    )
    executor: str = option(
        "where runs are done: on this machine (default), as SLURM jobs, or as tasks of a Ray cluster",
        default="local",
        choices=("local", "slurm", "ray"),
        here=True,
    )
    job: tuple[tuple[str, Any], ...] = option(
        "what each job asks of the cluster, beside what the plan says, e.g. partition=gpu; repeatable",
        default=(),
        kind=Kind.REPEATED,
        read=cli.pair,
        here=True,
        metavar="NAME=VALUE",
    )
    detach: bool = option(
        "submit SLURM jobs and leave; vit-bench status --watch follows them, the same command without it reports",
        default=False,
        kind=Kind.FLAG,
        here=True,
    )
    co2: float | None = option(
        "CO2 per kilowatt-hour of the electricity used here, in grams; for the records and the report",
        read=cli.grams,
        here=True,
        metavar="GRAMS",
    )
    profile: bool = option(
        "write a torch.profiler trace of each run's first steps",
        default=False,
        kind=Kind.FLAG,
        here=True,
    )


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The cells that this run does, of all that a study has."""

    HEADING: ClassVar[str] = "which runs now"

    only: tuple[str, ...] = option(
        "do only runs whose names match, or those of a comparison (axis=compute); repeatable",
        default=(),
        kind=Kind.REPEATED,
    )
    max_cells: int | None = option(
        "do at most N runs now",
        read=cli.positive,
        here=True,
        metavar="N",
    )
    retry: str | None = option(
        "only do runs that were tried and failed",
        choices=("failed",),
        here=True,
    )
    changed: str = option(
        "what to do with results of other model code, or of other images (default: refuse)",
        default=CHANGED[0],
        choices=CHANGED,
        here=True,
    )


@dataclass(frozen=True, kw_only=True)
class Pricing:
    """Devices that costs are predicted for, and what they cost."""

    HEADING: ClassVar[str] = "what it costs"

    calibrate: bool = option(
        "measure every model's speed again, even if cached",
        default=False,
        kind=Kind.FLAG,
        here=True,
    )
    accelerator: str | None = option(
        "also estimate the time on an accelerator (H100, A100, …) from FLOPs",
        here=True,
    )
    hardware: str | None = option(
        "for a plan, or jobs of a cluster: these devices instead of this machine's; from records of theirs below "
        "--results, else from a roofline, with its error",
        here=True,
        metavar="8xH100",
    )
    cores: int | None = option(
        "for a plan with --hardware: processor cores beside each device, which decode its images (default: those "
        "of its maker's servers)",
        read=cli.positive,
        here=True,
        metavar="N",
    )
    price: str | None = option(
        "of an hour of one device, or 20/h for all of them: the plan says what the study costs",
        here=True,
        metavar="2.5/gpuh",
    )


@dataclass(frozen=True, kw_only=True)
class Reporting:
    """What a report adds to a study's own results, and what shows a run."""

    HEADING: ClassVar[str] = "report"

    reference: str | None = option(
        "add published results to the figures",
        choices=registry.names("quoted source"),
    )
    target: tuple[float, ...] | None = option(
        "comma-separated accuracies: how many images, or how much compute, do they take? (default: round ones)",
        kind=Kind.LIST,
        read=cli.accuracies,
        metavar="95%",
    )
    track: tuple[str, ...] = option(
        "trackers that show the runs: tensorboard, wandb, mlflow, trackio; none; or auto: TensorBoard at the "
        "end, where it is installed (default)",
        default=("auto",),
        kind=Kind.LIST,
        read=cli.names_list,
        here=True,
    )


GROUPS = (What, Overrides, Where, Machine, Selection, Pricing, Reporting)
"""Every group of options, in the order of --help and of study files."""
RUN = options_of(*GROUPS)
STUDY = options_of(*(group for group in GROUPS if group is not Reporting))
"""The options of a plan."""


class RanksPerNode(int):
    """A number of ranks on each machine, as torchrun counts them."""


ALIASES = (
    Alias(name="workers", option="workers"),
    Alias(
        name="nproc_per_node",
        option="ranks",
        read=lambda text: RanksPerNode(cli.positive(text)),
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
        read=lambda text: tuple(f"{number}epochs" for number in cli.names_list(text)),
        help="--horizons …epochs",
    ),
)
"""Names by which users of torchrun, timm and Hugging Face's trainers know the options."""


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """All options of a study, in the groups that its parts are given: whoever needs some takes their group."""

    what: What
    overrides: Overrides
    where: Where
    machine: Machine
    selection: Selection
    pricing: Pricing
    reporting: Reporting

    @classmethod
    def of(cls, *layers: Values) -> StudyOptions:
        """Options from what a study file, a call and flags say, the last of them first.

        Raises:
            UserError: a field that is both set and swept; too many combinations.
        """
        values = resolve(RUN, *layers)
        for name in ("plugins", "tasks", "only", "job", "grid"):
            values[name] = tuple(dict.fromkeys(values[name]))
        if isinstance(values["ranks"], RanksPerNode):
            values["ranks"] = int(values["ranks"] * values["nodes"])
        values |= by_path(values)
        return cls(
            what=_group(What, values),
            overrides=Overrides.of(values),
            where=_group(Where, values),
            machine=_group(Machine, values),
            selection=_group(Selection, values),
            pricing=_group(Pricing, values),
            reporting=_group(Reporting, values),
        )

    def values(self) -> Values:
        """Every value by the name of its option: the inverse of `of`."""
        groups = [getattr(self, entry.name) for entry in fields(self)]
        return {entry.name: getattr(group, entry.name) for group in groups for entry in fields(group)}

    def changed(self, **values: Any) -> StudyOptions:
        """The same options with other values, each given by the name of its option."""
        if unknown := values.keys() - self.values().keys():
            raise TypeError(f"no option is called {', '.join(sorted(unknown))}")
        return StudyOptions.of(self.values() | values)

    @classmethod
    def parsed(cls, arguments: argparse.Namespace) -> StudyOptions:
        """Options from a command line to which `add_options` was added, and the study file that it names.

        Raises:
            UserError: see `of` and `bench.study.option_values.read_file`.
        """
        asked = given(arguments, RUN)
        return cls.of(read_study(arguments.study, plugins=asked.get("plugins", ())), asked)

    @classmethod
    def called(cls, study: Path | str | None, options: Mapping[str, Any]) -> StudyOptions:
        """Options from the arguments of a Python call, and the study file that it names.

        Raises:
            UserError: as `parsed`.
        """
        from bench.study.option_values import read_mapping

        asked = read_mapping(options, RUN, ALIASES)
        return cls.of(read_study(study, plugins=asked.get("plugins", ())), asked)

    def to_toml(self) -> str:
        """A study file that asks for the same, wherever it is read, but for how it is run and where results go."""
        values = self.values()
        for name in ("plugins", "data_root", "groups", "labels"):
            values[name] = _absolute(values[name])
        return to_toml(values, RUN, always=("suite", "scale"))


def _group(group: type[T], values: Values) -> T:
    """A group with its own values of all that there are."""
    return group(**{each.name: values[each.name] for each in options_of(group)})


def by_path(values: Mapping[str, Any]) -> Values:
    """Sets that are named by a folder's path, as `folder:NAME` below the data root: photos/flowers is folder:flowers
    with --data-root photos.

    Raises:
        UserError: there is no such folder; it is not in the data root.
    """
    root, changed = values["data_root"], {}
    for given_as in ("data", "downstream"):
        if values[given_as] and any(map(is_path, values[given_as])):
            names = []
            for name in values[given_as]:
                if is_path(name):
                    root, name = folder_set(name, root)
                names.append(name)
            changed[given_as] = tuple(names)
    return {**changed, "data_root": root} if changed else {}


def folder_name(suite: str, scale: str, *, rehearse: bool) -> str:
    """The name of a study's folder."""
    return f"rehearsal-{suite}-{scale}" if rehearse else suite


def _absolute(value: Any) -> Any:
    """The folders of an option, wherever this process is."""
    if isinstance(value, tuple):
        return tuple(map(_absolute, value))
    return value and str(Path(value).absolute())


def add_options(p: Parser, options: Iterable[Option] = STUDY) -> None:
    """The options that make `StudyOptions`, and a study file."""
    p.add_argument(
        "study",
        nargs="?",
        metavar="STUDY.toml",
        help='a file with the same options, which flags override: models = ["ViT-nano/7"], a table [set], …',
    )
    wanted = {each.name for each in options}
    for group in GROUPS:
        mine = [each for each in options_of(group) if each.name in wanted]
        verb = "vit-bench run"
        p.elsewhere = {**p.elsewhere, **{each.flag: verb for each in options_of(group) if each.name not in wanted}}
        if mine:
            add_flags(p.add_argument_group(group.HEADING), mine, ALIASES)


def read_study(path: Path | str | None, *, plugins: Iterable[str] = ()) -> Values:
    """The values in a study file; none without one. Its plug-ins are code, which a file alone does not get to run.

    Args:
        plugins: folders that the user has named beside those of VIT_BENCH_PLUGINS.

    Raises:
        UserError: see `bench.study.option_values.read_file`; it asks for plug-ins that the user has not named.
    """
    if path is None:
        return {}
    if str(path) in registry.names("suite") and not Path(path).exists():
        raise UserError(f"{str(path)!r} is a suite, not a study file.", f"Write --suite {path}.")
    from bench.study.option_values import read_file

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
