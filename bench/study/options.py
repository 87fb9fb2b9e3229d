"""The options of a study, in seven groups. Each group is a frozen dataclass; each option is declared once, as a field
of its group.

Flags, headings of --help, keys of study files and arguments of Python calls are derived from the fields of the groups.
A function takes the groups that it needs, never all options.
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
MPS_CELLS = 4  # cells that share a GPU under NVIDIA's Multi-Process Service (MPS)
CHANGED = ("refuse", "keep", "redo")
EQUAL = ("flops", "images", "seconds")


def read_share(text: str) -> str:
    """Parse how cells share a GPU: "none", the number of cells that take turns, or "mps" (NVIDIA's Multi-Process
    Service). Return the text, which is one of these."""
    text = text.removeprefix("nvidia-")  # "nvidia-mps" is accepted too, because --device mps means Apple's GPU
    if text not in ("none", "mps") and not re.fullmatch("[1-9][0-9]{0,2}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not none, mps, or a number of runs up to 999")
    return text


@dataclass(frozen=True, kw_only=True)
class What:
    """Options that say what is studied: suite, models, data sets, tasks. None or () means the suite's own choice."""

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
    """Options for the folders of plug-ins, of results and of the user's data, and for that data's labels, groups and
    unreadable images. A group is a set of images that belong together, for example those of one patient."""

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
        """Return the folder for the results of the study that `what` names. A rehearsal (a trial run on shrunk networks
        and data) has a folder of its own, so that its numbers are never mixed with real ones."""
        return self.results / folder_name(what.suite, what.scale, rehearse=what.rehearse)

    def use(self) -> None:
        """Apply these options to this process and to the processes that it starts: the folders of plug-ins are
        searched, and data is read with these labels, groups and limits. A command calls this once, before it plans.

        Raises:
            UserError: a folder of plug-ins is invalid, or `max_unreadable` is not a fraction.
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
    """Options for the devices and processes that run the cells, and for what they record besides results."""

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
    """Options that select the cells of the study that are run now."""

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
    """Options for the predicted cost of the study: the devices for which it is predicted, and their price."""

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
    """Options for what a report shows besides the study's own results, and for the experiment trackers that show the
    runs."""

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
"""All groups of options, in the order in which --help and study files have them."""
RUN = options_of(*GROUPS)
STUDY = options_of(*(group for group in GROUPS if group is not Reporting))
"""The options of `vit-bench plan`, which are all options but those of the report; `RUN` has all."""


class RanksPerNode(int):
    """A number of ranks (processes of one training) on each machine, as torchrun counts them. The option `ranks` counts
    the ranks on all machines together."""


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
    Alias(name="output_dir", option="results", letter="-o"),
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
"""Names of options that users know from torchrun, timm and Hugging Face's trainers."""


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """The values of all options of a study, in groups. A function takes only the groups that it needs."""

    what: What
    overrides: Overrides
    where: Where
    machine: Machine
    selection: Selection
    pricing: Pricing
    reporting: Reporting

    @classmethod
    def of(cls, *layers: Values) -> StudyOptions:
        """Return the options whose values are in `layers`, such as those of a study file and those of flags. A later
        layer overrides an earlier one; an option that is in none gets its default.

        Raises:
            UserError: a recipe's field is both set and swept, sweeps have too many combinations, or a data set's folder
                is wrong (see `by_path`).
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
        """Return name -> value of all options. This is the inverse of `of`."""
        groups = [getattr(self, entry.name) for entry in fields(self)]
        return {entry.name: getattr(group, entry.name) for group in groups for entry in fields(group)}

    def changed(self, **values: Any) -> StudyOptions:
        """Return a copy in which the options named in `values` have these new values.

        Raises:
            TypeError: there is no option of such a name.
        """
        if unknown := values.keys() - self.values().keys():
            raise TypeError(f"no option is called {', '.join(sorted(unknown))}")
        return StudyOptions.of(self.values() | values)

    @classmethod
    def parsed(cls, arguments: argparse.Namespace) -> StudyOptions:
        """Return the options from a command line, and from the study file that the command line may name.

        Args:
            arguments: the result of a parser to which `add_options` has added the options.

        Raises:
            UserError: see `of` and `read_study`.
        """
        asked = given(arguments, RUN)
        return cls.of(read_study(arguments.study, plugins=asked.get("plugins", ())), asked)

    @classmethod
    def called(cls, study: Path | str | None, options: Mapping[str, Any]) -> StudyOptions:
        """Return the options from the arguments of a Python call, and from a study file.

        Args:
            study: path of the study file; None for none.
            options: name of an option -> value, as in the call; these override the study file.

        Raises:
            UserError: see `of`, `read_study` and `bench.study.option_values.read_mapping`.
        """
        from bench.study.option_values import read_mapping

        asked = read_mapping(options, RUN, ALIASES)
        return cls.of(read_study(study, plugins=asked.get("plugins", ())), asked)

    def to_toml(self) -> str:
        """Return the text of a study file that asks for the same study from any working directory. How the study is run
        and where its results go is left out."""
        values = self.values()
        for name in ("plugins", "data_root", "groups", "labels"):
            values[name] = _absolute(values[name])
        return to_toml(values, RUN, always=("suite", "scale"))


def _group(group: type[T], values: Values) -> T:
    """Return one group of options, an object of the dataclass `group`, made from name -> value of all options."""
    return group(**{each.name: values[each.name] for each in options_of(group)})


def by_path(values: Mapping[str, Any]) -> Values:
    """Return new values of the options `data`, `downstream` and `data_root` if data sets are named by the path of a
    folder: photos/flowers becomes folder:flowers with the data root photos. Return {} if no data set is named so.

    Raises:
        UserError: there is no such folder, or the folder is not directly in the data root.
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
    """Return the name of a study's folder below the folder for results: that of the suite, or "rehearsal-SUITE-SCALE"
    for a rehearsal."""
    return f"rehearsal-{suite}-{scale}" if rehearse else suite


def _absolute(value: Any) -> Any:
    """Return a path as absolute path, a tuple of paths as tuple of absolute paths, and None as None."""
    if isinstance(value, tuple):
        return tuple(map(_absolute, value))
    return value and str(Path(value).absolute())


def add_options(p: Parser, options: Iterable[Option] = STUDY) -> None:
    """Add options of a study, under the headings of their groups, and the argument STUDY.toml to a parser. An error of
    the parser for any other option of a study says that `vit-bench run` has it."""
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
    """Return name -> value of the options in the study file `path`; {} if `path` is None. A study file may only ask for
    folders of plug-ins that the user has named too, because plug-ins are code and are run.

    Args:
        plugins: folders of plug-ins that the user has named, in addition to those in VIT_BENCH_PLUGINS.

    Raises:
        UserError: the file cannot be read or parsed (see `bench.study.option_values.read_file`), or it asks for
            plug-ins that the user has not named.
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
    """Return (name of the study's folder, folder for results) for a command that reads existing results. They are taken
    from --suite and --results, or else from the study file that the command line names; the name is None if neither
    states a suite.

    Raises:
        UserError: see `read_study`.
    """
    said = read_study(arguments.study)
    suite = said.get("suite")
    if suite and said.get("rehearse"):
        suite = folder_name(suite, said.get("scale", "auto"), rehearse=True)
    return arguments.suite or suite, arguments.results or said.get("results") or Path("results")
