"""Fine-tuning of the whole network, as in the paper's Table 4, at its own resolution or at a higher one.

A classifier of zeros on the trained body; SGD with momentum 0.9, cosine decay, gradients clipped at norm 1, no weight
decay. The learning rate is chosen on a held-out part of the training set, then the full set is trained on with it.
At another image size, position tables are interpolated and the score's task is named after the size: `finetune@56px`,
so that the two are never averaged. Images are resized, anti-aliased, from the size they are stored at.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.core.errors import UserError
from bench.core.record import Score
from bench.tasks import _tuning
from bench.tasks._common import balanced_part
from bench.tasks._contract import TaskContext

REVISION = 2  # every class holds out its share


def evaluate(
    context: TaskContext,
    *,
    data: str,
    image_size: int | None = None,
    steps: int | None = None,
    batch: int | None = None,
    rates: Sequence[float] | None = None,
    held_out: float | int | None = None,
    repeats: int = 1,
    train_limit: int | None = None,
    test_limit: int | None = None,
    average: float = 0.0,
    shift: int = 0,
    flip: bool = False,
    crop: float = 0.0,
) -> list[Score]:
    """Fine-tune the model of `context` on one data set.

    Args:
        image_size: pixels per side; None for the model's own.
        steps, batch, rates, held_out: None for Table 4's, by number of training images; see `_tuning.tuning`.
        repeats: fits with the chosen rate, each with its own order of the images: the draws of the scores.
        train_limit, test_limit: nested, class-balanced parts of the two splits; None takes all.
        average: Polyak averaging of the weights, decay per step; 0 for none.
        shift, flip, crop: random translation by up to this many stored pixels; mirroring; random crops that keep at
            least this share of the area (the paper: 0.05), 0 for none.

    Returns:
        One score per repeat. Its detail says what was chosen from what, whether at the sweep's edge, the costs, and
        which test images were right.

    Raises:
        UserError: options out of range, a size that the model cannot take, data that is not on this machine.
        Interrupted: a signal asked for a stop.
    """
    if repeats < 1:
        raise UserError(f"repeats={repeats}: at least one fit is needed.")
    train = balanced_part(context.load(data, "train"), train_limit)
    test = balanced_part(context.load(data, "test"), test_limit)
    settings = _tuning.tuning(
        len(train), steps=steps, batch=batch, rates=rates, held_out=held_out, image_size=image_size, average=average,
        shift=shift, flip=flip, crop=crop,
    )  # fmt: skip
    task = "finetune" if image_size is None else f"finetune@{image_size}px"
    return _tuning.evaluate(context, train, test, settings, task=task, data=data, draws=range(repeats))


def num_images(
    *,
    num_train: int,
    num_test: int,
    own_size: int | None = None,
    repeats: int = 1,
    train_limit: int | None = None,
    test_limit: int | None = None,
    image_size: int | None = None,
    steps: int | None = None,
    batch: int | None = None,
    rates: Sequence[float] | None = None,
    held_out: float | int | None = None,
    **_: object,
) -> int:
    """The cost in forward passes of one image; see `_tuning.forward_images`."""
    settings = _tuning.tuning(
        min(num_train, train_limit or num_train), steps=steps, batch=batch, rates=rates, held_out=held_out,
        image_size=image_size,
    )  # fmt: skip
    num_test = min(num_test, test_limit or num_test)
    return _tuning.forward_images(settings, num_test=num_test, repeats=repeats, own_size=own_size)
