"""A pass that leaves out fine-tuning of models for which it takes longer than some minutes. FLOPs decide, since the
choice must not depend on today's speed."""

from __future__ import annotations

import re
from dataclasses import replace

from baselines.published import timm_costs
from bench.cost import flops
from bench.plan.sizes import evaluation_images
from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.study.cell import Cell

TASK = "finetune"
AFFORDABLE = 2e13  # a model is fine-tuned if that takes at most so many FLOPs: some minutes of a core


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the study without fine-tuning that takes more than `AFFORDABLE` FLOPs. The plan says how long it would
    take (`bench.plan.notes.costly`)."""
    cells, costly = [], {}
    for cell in study.cells:
        size = request.sizes[cell.data]
        tuning = replace(cell, tasks=tuple(task for task in cell.tasks if task.task == TASK))
        without = replace(cell, tasks=tuple(task for task in cell.tasks if task.task != TASK))
        if _forward_flops(cell, size.classes) * (evaluation_images(tuning, request.sizes) - size.test) > AFFORDABLE:
            costly[without], cell = tuning.tasks, without
        cells.append(cell)
    return replace(study, cells=tuple(cells), costly=costly)


def _forward_flops(cell: Cell, classes: int) -> float:
    """Return the FLOPs of a forward pass of one image. For timm's models they are read from a table, for which torch is
    not needed. `classes`: number of classes of the model."""
    row = timm_costs.table().get(re.sub(r"^timm:|[.+].*", "", cell.model))
    if row is not None and row["macs_dense"]:
        return 2 * int(row["macs_dense"]) * (cell.image_size / int(row["image_size"])) ** 2
    sizes = {"image_size": cell.image_size, "channels": cell.channels, "num_classes": classes}
    cost = flops.count(cell.model, **sizes, model_options=cell.model_options, activations=False)
    return cost.forward_flops["dense"]


PASS = Pass(
    apply=apply,
    needed=lambda r: r.suite.compares_finetuning and r.scale == "cpu" and not r.what.tasks,
    after=("detectable-difference",),
)
