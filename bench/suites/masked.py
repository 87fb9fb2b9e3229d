"""Does masked patch prediction pre-train as the paper's section 4.6 and appendix B.1.2 describe?

Three ways to the same total compute: pre-trained on masked patches of images without their labels; pre-trained on the
same images with their labels; from scratch, with all compute spent on the downstream task. Judged by the few-shot probe
and by fine-tuning, on few labelled images per class and on many. The upstream set is also a downstream one: there,
pre-training with labels has seen the answers.

The images are grey: what is predicted is one of 8 mean intensities (3 bits), not one of 512 colours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from bench.core.spec import Cell, TaskSpec
from bench.suites._recipes import recipe_for
from bench.suites.suite import Suite, SuiteOptions, pick, task

DOWNSTREAM = ("mnist", "fashion-mnist", "scripts")

MASKED = ":head=masked"  # after a model's name: see vit/masked.py


@dataclass(frozen=True, kw_only=True)
class MaskedScale:
    """One scale of the study.

    Attributes:
        images: seen in pre-training; from scratch, as many more are seen in fine-tuning.
        steps, batch: of fine-tuning a pre-trained network.
        shots, many: images per class, or of all classes.
    """

    model: str
    upstream: str
    images: int
    recipe: dict[str, Any]
    steps: int
    batch: int
    shots: int
    many: int | None
    tuning: dict[str, Any]
    probe: dict[str, Any]


SCALES = {
    "cpu": MaskedScale(
        model="ViT-pico/7",
        upstream="fashion-mnist",
        images=16_000,
        recipe={"batch": 32, "shift": 1},
        steps=80,
        batch=64,
        shots=10,
        many=2_000,
        tuning={"rates": (0.05, 0.15, 0.45), "held_out": 0.2, "test_limit": 1_000},
        probe={"shots": (5, 10), "draws": 5, "test_limit": 1_000, "ridge": "loo"},
    ),
    "gpu": MaskedScale(
        model="ViT-S/4",
        upstream="fashion-mnist",
        images=2_000_000,
        steps=500,
        batch=512,
        shots=10,
        many=None,
        recipe={"scale": "gpu", "batch": 512, "warmup_images": 20_000},
        probe={"shots": (5, 10), "draws": 5},
        tuning={"rates": (0.01, 0.03, 0.1), "held_out": 0.2},
    ),
}


def cells(options: SuiteOptions) -> list[Cell]:
    """Models × three ways × seeds. The untrained network stands for training from scratch: its tasks do that."""
    scale = pick("grid", options.scale, SCALES)
    more = scale.images // scale.batch
    made = []
    for seed in range(options.seeds or 2):
        for model in options.models or (scale.model,):
            for data in options.data or (scale.upstream,):
                labels = Cell(
                    model=model,
                    data=data,
                    seed=seed,
                    recipe=recipe_for(model, **scale.recipe),
                    axes=("masked",),
                    horizons=(scale.images,),
                    tasks=_tasks(scale, scale.steps),
                )
                scratch = replace(labels, horizons=(0,), tasks=_tasks(scale, scale.steps + more))
                made += [replace(labels, model=f"{model}{MASKED}"), labels, scratch]
    return made


def _tasks(scale: MaskedScale, steps: int) -> tuple[TaskSpec, ...]:
    """The probe on every downstream set; fine-tuning on few images and on many of the first."""
    tuning = {"steps": steps, "batch": scale.batch, **scale.tuning}
    probes = (task("fewshot", name, **scale.probe) for name in DOWNSTREAM)
    few = task("finetune", DOWNSTREAM[0], shots=scale.shots, **tuning)
    return (*probes, few, task("finetune", DOWNSTREAM[0], train_limit=scale.many, **tuning))


SUITE = Suite(
    name="masked",
    question="is masked patch prediction better than training from scratch at equal compute, and how far from labels?",
    figures=("masked",),
    questions=("as-published",),
    headline=("finetune@10shot:mnist", "finetune:mnist"),
    downstream=DOWNSTREAM,
    cells=cells,
)
