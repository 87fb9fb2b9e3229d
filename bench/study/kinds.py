"""All kinds of plug-ins, on one page.

A plug-in is one file that exports one object, for example `TASK = Task(…)`. Its public name is the name of its file
with "_" written as "-" (`fashion_mnist.py` -> "fashion-mnist"). A file whose name starts with "_" holds code that
several plug-ins share; it is not listed, and neither is the file that defines the kind. `bench.study.registry` finds
plug-ins.

Plug-ins can also be in folders outside the project: the folders given with `--plugins` or in the environment variable
VIT_BENCH_PLUGINS (which `--plugins` sets for the processes that a study starts), and the packages that installed
distributions name as entry points of the group `vit_bench`. Such a folder has the subfolders that are named below. The
files in them are found as if they were in the project, and may not have the name of another plug-in of their kind.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PluginKind:
    """A kind of plug-in, such as "task".

    Attributes:
        package: the package that contains the project's own plug-ins of this kind.
        export: the variable under which a file exports its object.
        defined: "module:Class" of the exported object; "module" or "" if files export a function instead.
        subfolder: the subfolder of an outside plug-in folder that is searched for this kind; "" if only the project
            itself can have plug-ins of this kind.
    """

    package: str
    export: str
    defined: str = ""
    subfolder: str = ""


KINDS = {
    "suite": PluginKind(package="bench.suites", export="SUITE", defined="bench.study.suite:Suite", subfolder="suites"),
    "data set": PluginKind(
        package="bench.data.sets", export="DATASET", defined="bench.data.data_set:DataSet", subfolder="data"
    ),
    "task": PluginKind(package="bench.tasks", export="TASK", defined="bench.tasks.task:Task", subfolder="tasks"),
    "question": PluginKind(
        package="bench.questions", export="QUESTION", defined="bench.analysis.question:Question", subfolder="questions"
    ),
    "validity check": PluginKind(package="bench.validity", export="CHECK", defined="bench.analysis.check:Check"),
    "claim": PluginKind(package="bench.claims", export="CLAIM", defined="bench.analysis.claim:PaperClaim"),
    "figure": PluginKind(
        package="bench.report.figures",
        export="FIGURE",
        defined="bench.report.figures.figure:Figure",
        subfolder="figures",
    ),
    "job": PluginKind(
        package="bench.execute.jobs", export="JOB", defined="bench.execute.jobs.job:Job", subfolder="jobs"
    ),
    "optimizer": PluginKind(
        package="bench.train.optimizers",
        export="OPTIMIZER",
        defined="bench.train.optimizers.optimizer:Optimizer",
        subfolder="optimizers",
    ),
    "loss": PluginKind(
        package="bench.train.losses", export="LOSS", defined="bench.train.losses.loss:Loss", subfolder="losses"
    ),
    "augmentation": PluginKind(
        package="bench.train.augmentations",
        export="AUGMENTATION",
        defined="bench.train.augmentations.augmentation:Augmentation",
        subfolder="augmentations",
    ),
    "schedule": PluginKind(
        package="bench.train.schedules",
        export="SCHEDULE",
        defined="bench.train.schedules.schedule:Schedule",
        subfolder="schedules",
    ),
    "family": PluginKind(
        package="baselines", export="FAMILY", defined="vit.model_family:ModelFamily", subfolder="models"
    ),
    "tracker": PluginKind(package="bench.trackers", export="TRACKER", defined="bench.trackers.tracker:Tracker"),
    "executor": PluginKind(
        package="bench.execute.executors", export="EXECUTOR", defined="bench.execute.executors.executor"
    ),
    "pass": PluginKind(package="bench.plan.passes", export="PASS", defined="bench.plan.study_cells:Pass"),
    "cost model": PluginKind(package="bench.plan.cost_models", export="COST_MODEL"),
    "quoted source": PluginKind(
        package="bench.report.quoted",
        export="QUOTED",
        defined="bench.report.quoted.source:QuotedSource",
        subfolder="quoted",
    ),
    "command": PluginKind(package="bench.commands", export="main", subfolder="commands"),
}
SUBFOLDERS = {kind: about.subfolder for kind, about in KINDS.items() if about.subfolder}
