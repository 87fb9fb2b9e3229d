"""VTAB-1k: how well a model adapts to a task from 1,000 examples; the benchmark's score is the plain mean over tasks.

The protocol (Zhai et al. 2019, section 3) takes 1,000 examples of the training split, whose classes are as frequent as
in the whole split. 800 of them train and 200 evaluate every choice; then the model is fitted on all 1,000 with what was
chosen, and scored once on the whole test split. Every task has the same settings: the ViT paper's (Table 4: the whole
network is fine-tuned for 2,500 steps of 512 images at learning rate 0.01), unless a study changes them. With a single
learning rate there is nothing to choose; of several, the same for all tasks, each task chooses one.

One data set is one task of the benchmark. `detail` names its group of tasks ("natural", "specialised" or "structured");
the analysis computes means over tasks and groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from bench.core.errors import UserError
from bench.data.subset import priorities
from bench.study.names import DataName
from bench.study.record import Score
from bench.tasks import finetune
from bench.tasks.task import Task, TaskContext, balanced_part

EXAMPLES, HELD_OUT = 1_000, 200
STEPS, BATCH, RATES = 2_500, 512, (0.01,)

# Group -> tasks (Zhai et al. 2019, arXiv:1910.04867), in the order of the paper's Table 9. Natural: photographs of
# things. Specialised: images from special equipment, from above or of the inside. Structured: the question is about the
# scene as a whole.
VTAB: Mapping[str, tuple[str, ...]] = {
    "natural": ("caltech101", "cifar100", "dtd", "flowers102", "pets", "sun397", "svhn"),
    "specialised": ("patch-camelyon", "eurosat", "resisc45", "retinopathy"),
    "structured": (
        "clevr-count",
        "clevr-distance",
        "dmlab",
        "dsprites-location",
        "dsprites-orientation",
        "kitti-distance",
        "smallnorb-azimuth",
        "smallnorb-elevation",
    ),
}
# Group -> sets that come with installed packages.
SMALL: Mapping[str, tuple[str, ...]] = {
    "natural": ("fashion-mnist", "mnist", "photo-tiles"),
    "specialised": ("terrain", "specimen-tiles"),
    "structured": ("shapes-count", "shapes-distance", "shapes-position", "shapes-orientation"),
}

# Tasks whose correct answer changes when images are mirrored or shifted: BiT's appendix F.
NO_FLIP = ("dsprites-orientation", "smallnorb-azimuth", "dsprites-location", "shapes-orientation", "shapes-position")
NO_SHIFT = ("clevr-count", "clevr-distance", "dmlab", "kitti-distance", "dsprites-location", "shapes-position")


def evaluate(
    context: TaskContext,
    *,
    data: str,
    image_size: int | None = None,
    steps: int = STEPS,
    batch: int = BATCH,
    rates: Sequence[float] = RATES,
    repeats: int = 1,
    test_limit: int | None = None,
    shift: int = 0,
    flip: bool = False,
) -> list[Score]:
    """Fine-tune the model of `context` on 1,000 examples of one data set, and score it on the test split.

    Args:
        image_size: pixels per side; None for the model's own.
        steps, batch, rates: steps, images per step, and learning rates; the same for every task. One of several
            learning rates is chosen on 200 of the 1,000 examples.
        repeats: number of repetitions, each with other 1,000 examples; the `draw` of a score is its number.
        test_limit: number of test images that are scored, a nested, class-balanced part of the split; None scores all.
        shift, flip: random translation by up to this many pixels, and mirroring; left out for tasks whose correct
            answer they change (`may_shift`, `may_flip`).

    Raises:
        UserError: an option is out of range, there are fewer than 1,000 training examples, or the data is not on this
            machine.
        Interrupted: a signal arrived.
    """
    if repeats < 1:
        raise UserError(f"repeats={repeats}: at least one fit is needed.")
    train, test = context.load(data, "train"), balanced_part(context.load(data, "test"), test_limit)
    _check(len(train))
    settings = finetune.make_tuning(
        EXAMPLES,
        steps=steps,
        batch=batch,
        rates=rates,
        held_out=HELD_OUT,
        image_size=image_size,
        shift=shift if may_shift(data) else 0,
        flip=flip and may_flip(data),
    )
    detail = {"group": group_of(data)}
    scores = []
    for draw in range(repeats):
        order_N = np.argsort(priorities(train.labels_N, f"vtab/{draw}", keys_N=train.content_keys_N), kind="stable")
        examples = train.take(order_N[:EXAMPLES])
        scores += finetune.score_tuned(
            context, examples, test, settings, task="vtab", data=data, draws=(draw,), detail=detail
        )
    return scores


def _check(num_train: int) -> None:
    """Check that there are enough training examples for VTAB-1k.

    Raises:
        UserError: there are fewer than 1,000.
    """
    if num_train < EXAMPLES:
        what = f"VTAB takes {EXAMPLES:,} training examples, and this set has {num_train:,}."
        raise UserError(what, "Use the task finetune.")


def forward_images(
    *,
    num_train: int,
    num_test: int,
    own_size: int | None = None,
    repeats: int = 1,
    test_limit: int | None = None,
    image_size: int | None = None,
    steps: int = STEPS,
    batch: int = BATCH,
    rates: Sequence[float] = RATES,
    **_: object,
) -> int:
    """Return the cost of one evaluation as a number of images that pass forward through the network, to forecast it;
    see `finetune.tuning_images`.

    Args:
        num_train, num_test: numbers of images of the two splits.
        own_size: the model's own image size; None: all sizes count alike. Other arguments are those of `evaluate`.

    Raises:
        UserError: an option is out of range, or there are fewer than 1,000 training examples.
    """
    _check(num_train)
    settings = finetune.make_tuning(
        EXAMPLES, steps=steps, batch=batch, rates=rates, held_out=HELD_OUT, image_size=image_size
    )
    num_test = min(num_test, test_limit or num_test)
    return repeats * finetune.tuning_images(settings, num_test=num_test, repeats=1, own_size=own_size)


def rehearsed(*, steps: int = STEPS, batch: int = BATCH, **_: object) -> dict[str, int]:
    """Return the options that replace those of `evaluate` in a rehearsal (a quick trial of a study): few steps, with
    few images each."""
    return {"steps": min(steps, finetune.REHEARSED_STEPS), "batch": min(batch, finetune.REHEARSED_BATCH)}


def group_of(data: str) -> str | None:
    """Return the group of a data set's task ("natural", "specialised" or "structured"); None if the task is in neither
    `VTAB` nor `SMALL`."""
    for table in (VTAB, SMALL):
        for group, names in table.items():
            if _base(data) in names:
                return group
    return None


def may_shift(data: str) -> bool:
    """Return whether the correct answers of a data set stay correct when images are shifted. The size at which the set
    is stored makes no difference."""
    return _base(data) not in NO_SHIFT


def may_flip(data: str) -> bool:
    """Return whether the correct answers of a data set stay correct when images are mirrored. The size at which the set
    is stored makes no difference."""
    return _base(data) not in NO_FLIP


def _base(data: str) -> str:
    """Return the name of the VTAB task that a data set stands for: without an image size, and the same for every
    published copy of the task (`vtab-…` and `vtab1k-…`, see `bench.data.vtab`)."""
    return re.sub(r"^vtab(1k)?-", "", DataName.parse(data).base)


def task_names(table: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return all tasks of a table (`VTAB` or `SMALL`), in its order."""
    return tuple(name for group in table.values() for name in group)


TASK = Task(
    evaluate=evaluate,
    revision=3,  # 2: natural frequencies of classes, and every class is held out in proportion; 3: as finetune
    forward_images=forward_images,
    rehearsed=rehearsed,
)
