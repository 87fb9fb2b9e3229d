"""Does masked patch prediction pre-train as the ViT paper's section 4.6 and appendix B.1.2 describe?

Three ways lead to the same total compute: pre-training on masked patches of images without their labels; pre-training
on the same images with their labels; training from scratch, with all compute spent on the downstream task. They are
judged by the few-shot probe and by fine-tuning, on few labelled images per class and on many. The upstream
(pre-training) set is also one of the downstream sets: on it, pre-training with labels has seen the answers.

The images are grey: what is predicted is one of 8 mean intensities (3 bits), not one of 512 colours. At scale `paper`
all three targets of appendix B.1.2 are predicted, of RGB images: ViT-B/16 on JFT-300M for 100,000 and for a million
steps, with the first target also on ImageNet for 100,000 steps. They are compared with the same network trained with
the labels of JFT-300M, and with those of ImageNet alone, which is what the paper calls training from scratch. All are
fine-tuned on ImageNet.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from bench.study.cell import Cell, TaskSpec
from bench.study.suite import Suite, SuiteOptions, pick, task
from bench.suites import _paper
from bench.suites._recipes import recipe_for

DOWNSTREAM = ("mnist", "fashion-mnist", "scripts")

MASKED = ":head=masked"  # is added to a model's name; see vit/masked.py


@dataclass(frozen=True, kw_only=True)
class MaskedScale:
    """The suite at one scale.

    Attributes:
        model: name of the model.
        upstream: name of the upstream (pre-training) set.
        images: images seen in pre-training; networks from scratch see as many more in fine-tuning.
        recipe: arguments of `recipe_for`, in which the recipe of pre-training differs from the default.
        steps, batch: steps and batch size of fine-tuning a pre-trained network.
        shots: labelled images per class in fine-tuning on few images.
        many: number of labelled images in fine-tuning on many images; None: all that there are.
        tuning: further options of fine-tuning.
        probe: options of the few-shot probe.
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
    """Return cells for models × three ways of pre-training × upstream sets × seeds. The third way, training from
    scratch, is a cell of the untrained network, whose fine-tuning tasks do the training."""
    if options.scale == "paper":
        return _of_paper(options)
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


PAPER_STEPS = (100_000, 1_000_000)  # after the first number, returns diminish (appendix B.1.2)
TARGETS = ("", ":masked_target=small", ":masked_target=pixels")  # the first is the mean colour


def _of_paper(options: SuiteOptions) -> list[Cell]:
    """Return cells for models × seeds at scale `paper`: pre-trained by masked prediction of each target, and with
    labels on two sets."""
    upstream, scratch = (options.data or ("jft-300m",))[0], "imagenet"
    made = []
    for seed in range(options.seeds or 1):
        for model in options.models or ("ViT-B/16",):
            tasks = (*_paper.tuned(model, (scratch,)), *_paper.probed())
            usual = Cell(
                model=model, data=upstream, image_size=224, channels=3, seed=seed, tasks=tasks, axes=("masked",)
            )
            images = tuple(steps * _paper.BATCH for steps in PAPER_STEPS)
            predicting = [(f"{model}{MASKED}{target}", upstream, images) for target in TARGETS]
            predicting += [(f"{model}{MASKED}", scratch, images[:1])] if upstream != scratch else []
            made += [
                _without_labels(replace(usual, model=name, data=data, horizons=seen)) for name, data, seen in predicting
            ]
            with_labels = replace(usual, horizons=(_paper.images_seen(upstream, options),))
            alone = replace(usual, data=scratch, horizons=(_paper.images_seen(scratch, options),))
            made += [_paper.as_published(with_labels), _paper.as_published(replace(alone, axes=("masked", "scratch")))]
    return list(dict.fromkeys(made))


def _without_labels(cell: Cell) -> Cell:
    """Return the cell trained as appendix B.1.2 of the ViT paper trains on masked patches: base learning rate 2e-4,
    10,000 steps of warm-up, cosine decay; otherwise as the paper trains on JFT-300M."""
    trained = _paper.as_published(cell, like="jft-300m")
    recipe = replace(
        trained.recipe,
        lr=2e-4,
        warmup_images=_paper.WARMUP_STEPS * _paper.BATCH,
        cooldown_shape="cosine",
        loss="softmax",
        head_bias="zero",
        clip=0.0,
    )
    return replace(trained, recipe=recipe)


def _tasks(scale: MaskedScale, steps: int) -> tuple[TaskSpec, ...]:
    """Return the tasks: the few-shot probe on every downstream set, and fine-tuning on few and on many images of the
    first of these sets. `steps`: steps of fine-tuning."""
    tuning = {"steps": steps, "batch": scale.batch, **scale.tuning}
    probes = (task("fewshot", name, **scale.probe) for name in DOWNSTREAM)
    few = task("finetune", DOWNSTREAM[0], shots=scale.shots, **tuning)
    return (*probes, few, task("finetune", DOWNSTREAM[0], train_limit=scale.many, **tuning))


SUITE = Suite(
    name="masked",
    question="is masked patch prediction better than training from scratch at equal compute, and how far from labels?",
    figures=("masked",),
    questions=("as-published",),
    headline=("finetune@10shot:mnist", "finetune:mnist", *_paper.average_5()[:1]),
    downstream=DOWNSTREAM,
    cells=cells,
)
