"""How well do pre-trained models transfer? Fine-tuning at their own and at a higher resolution, and probes of frozen
features.

Results are laid out as in the ViT paper's Tables 2 and 5: models by upstream (pre-training) set, tasks beside each
other, core-days beneath. At a higher resolution the position tables are interpolated; `finetune@56px` and `finetune`
use the same images, with a learning rate for each, so that the two can be compared pair by pair. A higher resolution is
used where the stored images hold as many pixels (`photo-tiles:56px`): enlarging images of 28 px, as the paper does with
those of CIFAR, adds nothing to see.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from bench.data.load import side_of
from bench.study.cell import Cell, TaskSpec
from bench.study.suite import Suite, SuiteOptions, fitting, pick, task
from bench.suites._gpu_grid import gpu_size
from bench.suites._grid import GPU_DOWNSTREAM, here
from bench.suites._paper import average_5, tuned, tuned_larger
from bench.suites._pretraining import PretrainingStudy, gpu_study, paper, paper_bit, pretrained_cells, small
from bench.suites._questions import OF_FAMILIES

DOWNSTREAM = ("fashion-mnist", "photo-tiles:56px", "mnist")
HIGHER = ("photo-tiles:56px", "pets", "flowers102")  # also fine-tuned at a higher resolution, if stored with it

# Learning rates of fine-tuning, up to one at which training diverges. With only three rates, from 0.05 to 0.45,
# the chosen one was mostly the lowest or the highest.
SWEEP = (0.015, 0.05, 0.15, 0.45, 1.35)

IN_TABLE_2 = {("jft-300m", "ViT-H/14"), ("jft-300m", "ViT-L/16"), ("imagenet-21k", "ViT-L/16")}


def cells(options: SuiteOptions) -> list[Cell]:
    """Return cells for models × upstream sets × seeds, evaluated on every downstream set that is on this machine."""
    study = pick("study", options.scale, {"cpu": _cpu, "gpu": _gpu, "paper": _paper})
    made = pretrained_cells(study(options), options)
    if options.scale != "paper":
        return made
    return [
        replace(cell, tasks=(*cell.tasks, tuned_larger(cell.model))) if (cell.data, cell.model) in IN_TABLE_2 else cell
        for cell in made
    ]


def _cpu(options: SuiteOptions) -> PretrainingStudy:
    tuning = {"steps": 50, "batch": 64, "rates": SWEEP, "train_limit": 2_000, "test_limit": 1_000}
    return PretrainingStudy(
        upstream=small(
            ("ViT-pico/7", "ViT-nano/7", "ResNet-8-s4"), "glyphs", "fashion-mnist", images=16_000, batch=32, shift=1
        ),
        tasks=partial(
            _tasks,
            names=here(DOWNSTREAM, options),
            higher=56,
            tuning={**tuning, "held_out": 0.2},
            probe={"shots": (5, 10), "draws": 3, "test_limit": 1_000, "ridge": "loo"},
            linear={"train_limit": 500, "test_limit": 1_000},
        ),
        seeds=2,
        untrained=False,
    )


def _gpu(options: SuiteOptions) -> PretrainingStudy:
    tuning = {"steps": 1_000, "batch": 512, "rates": (0.01, 0.03, 0.1), "held_out": 0.1}
    tasks = partial(
        _tasks,
        names=here(GPU_DOWNSTREAM, options),
        higher=gpu_size(options) * 3 // 2,
        tuning=tuning,
        probe={"shots": (1, 5, 10, 25), "draws": 5, "test_limit": None},
        linear={"train_limit": 10_000},
    )
    return gpu_study(options, tasks=tasks, seeds=3)


def _paper(options: SuiteOptions) -> PretrainingStudy:
    """Return the study at scale `paper`: the networks of the ViT paper's Table 5, and the smallest and largest ResNet
    of BiT's band in its Figure 3, fine-tuned with the settings of Table 4 at 384 px, three times."""
    own = (replace(upstream, of=lambda family: family != "ResNet") for upstream in paper())
    upstream = (*own, *paper_bit("R50x1", "R152x4"))
    return PretrainingStudy(upstream=upstream, tasks=tuned, seeds=1, image_size=224, channels=3, untrained=False)


def _tasks(
    model: str,
    *,
    names: tuple[str, ...],
    higher: int,
    tuning: dict[str, Any],
    probe: dict[str, Any],
    linear: dict[str, Any],
) -> tuple[TaskSpec, ...]:
    """Return the tasks of a model: fine-tuning and both probes on every downstream set, and fine-tuning at a higher
    resolution on the sets in `HIGHER` whose images are stored with enough pixels.

    Args:
        names: the downstream sets.
        higher: pixels per side of the higher resolution.
        tuning: options of fine-tuning.
        probe: options of the few-shot probe.
        linear: options of the linear probe.
    """
    tasks = []
    for name in names:
        tasks += [task("finetune", name, **tuning), task("fewshot", name, **probe), task("linear", name, **linear)]
        size = fitting(model, higher)
        if name in HIGHER and (side_of(name) or 0) >= size:
            tasks.append(task("finetune", name, image_size=size, **tuning))
    return tuple(tasks)


SUITE = Suite(
    name="transfer",
    question="how well do pre-trained models transfer, and is fine-tuning better at a higher resolution?",
    figures=("pretraining-data",),  # one budget per model: nothing to draw against compute
    questions=OF_FAMILIES,
    headline=(*(f"finetune:{name}" for name in dict.fromkeys((*DOWNSTREAM, *GPU_DOWNSTREAM))), *average_5()),
    downstream=DOWNSTREAM,
    cells=cells,
)
