"""How do pre-trained models adapt to tasks of three kinds, from 1,000 examples each? The answer is what the ViT paper's
Figure 2 and Table 9 show.

At scale `cpu` the suite is a small VTAB: the same three groups of tasks, from data that come in packages or are
generated, by short fine-tuning with one sweep of learning rates for all tasks; the same networks are evaluated
untrained too. At scale `paper` it has the 19 tasks of VTAB, with the paper's one setting. Both lists are in
bench/tasks/vtab.py. The score is the plain mean over tasks, so a missing data set changes it: the plan says which are
missing, and how to get them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.study.cell import Cell, TaskSpec
from bench.study.suite import Suite, SuiteOptions, fitting, pick, task
from bench.suites._grid import here
from bench.suites._paper import stored_at
from bench.suites._pretraining import PretrainingStudy, gpu_study, paper, pretrained_cells, small
from bench.suites._questions import OF_FAMILIES
from bench.suites.transfer import SWEEP
from bench.tasks.vtab import SMALL, VTAB, task_names

DOWNSTREAM = task_names(SMALL)

IN_TABLE_9 = {("jft-300m", "ViT-H/14"), ("jft-300m", "ViT-L/16"), ("imagenet-21k", "ViT-L/16")}


def cells(options: SuiteOptions) -> list[Cell]:
    """Return cells for models × upstream sets × seeds, evaluated on every task whose data are on this machine."""
    study = pick("study", options.scale, {"cpu": _cpu, "gpu": _gpu, "paper": _paper})
    return pretrained_cells(study(options), options)


def _cpu(options: SuiteOptions) -> PretrainingStudy:
    tasks = _tasks(here(DOWNSTREAM, options), steps=60, batch=64, rates=SWEEP, test_limit=1_000)
    models = ("ViT-pico/7", "ViT-nano/7", "ResNet-8-s4")
    return PretrainingStudy(
        upstream=small(models, "glyphs", images=16_000, batch=32, shift=1), tasks=lambda _: tasks, seeds=2
    )


def _gpu(options: SuiteOptions) -> PretrainingStudy:
    """Return the study at scale `gpu`, evaluated on the tasks of VTAB whose data are here, and on those of the small
    VTAB."""
    names = here((*task_names(VTAB), *DOWNSTREAM), options)
    tasks = _tasks(names, steps=500, batch=256, rates=(0.01, 0.03, 0.1), repeats=3)
    return gpu_study(options, tasks=lambda _: tasks, seeds=2)


def _paper(options: SuiteOptions) -> PretrainingStudy:
    """Return the study at scale `paper`: the networks of the ViT paper's Table 9 on the 19 tasks at 384 px, with three
    repeats."""
    wanted = tuple(stored_at(name, 384) for name in here(task_names(VTAB), options))

    def tasks(model: str) -> tuple[TaskSpec, ...]:
        return _tasks(wanted, image_size=fitting(model, 384), repeats=3, flip=True)

    rows = [
        replace(u, images=images)
        for u in paper()
        if (images := {model: n for model, n in u.images.items() if (u.data, model) in IN_TABLE_9})
    ]
    return PretrainingStudy(upstream=tuple(rows), tasks=tasks, seeds=1, image_size=224, channels=3, untrained=False)


def _tasks(data: tuple[str, ...], **options: Any) -> tuple[TaskSpec, ...]:
    return tuple(task("vtab", name, **options) for name in data)


SUITE = Suite(
    name="vtab",
    question="how do pre-trained models adapt to natural, specialised and structured tasks from 1,000 examples?",
    figures=("groups", "compute"),
    questions=OF_FAMILIES,
    headline=tuple(f"vtab:{name}{size}" for name in (*task_names(VTAB), *DOWNSTREAM) for size in ("", ":384px")),
    downstream=DOWNSTREAM,
    cells=cells,
)
