"""Fine-tune the whole network, as in the ViT paper's Table 4, at its own resolution or at a higher one.

The trained body gets a classifier of zeros, and is trained by SGD with momentum 0.9, cosine decay, gradients clipped at
norm 1, and no weight decay. The learning rate is chosen on a held-out part of the training set (appendix B.1.1), and
the model then trained with it on the full set; the test split is scored once, after everything is chosen. At another
image size, position tables are interpolated, and the score's task is named after the size (`finetune@56px`), so that
sizes are never averaged; likewise for a few images per class (`finetune@10shot`). Images are resized from their stored
size with anti-aliasing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.core.errors import UserError
from bench.core.metrics import check_several
from bench.data.groups import nearest
from bench.data.image_set import ImageSet
from bench.data.real import real_hash, real_right
from bench.data.subset import priorities, rank_within_class
from bench.study.cell import Recipe
from bench.study.record import Score
from bench.tasks._folds import together
from bench.tasks.task import (
    NO_DETAIL,
    FineTuned,
    Task,
    TaskContext,
    Unsuited,
    accuracy_score,
    balanced_part,
    judged,
    judged_by,
)

# Settings by number of training images (below SMALL, below LARGE, from LARGE on) as in BiT's HyperRule (its section
# 3.3), which gives Table 4 row by row. The parts held out are those of the paper's appendix B.1.1, by the same limits.
SMALL, LARGE = 20_000, 500_000
STEPS = (500, 10_000, 20_000)
HELD_OUT = (0.10, 0.02, 0.01)
RATES, RATES_LARGE = (0.001, 0.003, 0.01, 0.03), (0.003, 0.01, 0.03, 0.06)
BATCH = 512


def evaluate(
    context: TaskContext,
    *,
    data: str,
    image_size: int | None = None,
    nominal_size: int | None = None,
    steps: int | None = None,
    batch: int | None = None,
    rates: Sequence[float] | None = None,
    held_out: float | int | None = None,
    repeats: int = 1,
    train_limit: int | None = None,
    shots: int | None = None,
    test_limit: int | None = None,
    copies_aside: bool = False,
    average: float = 0.0,
    shift: int = 0,
    flip: bool = False,
    crop: float = 0.0,
    metrics: Sequence[str] = (),
) -> list[Score]:
    """Fine-tune the model of `context` on one data set, and score it on the test split.

    Args:
        data: name of the set.
        image_size: pixels per side; None for the model's own.
        nominal_size: image size that the score is named after; None for `image_size`. It differs where the model's
            patches do not divide it, and `image_size` is the nearest size that they divide: ViT-H/14 at 378 px is
            compared with other models at 384 px.
        steps, batch, rates, held_out: steps, images per step, learning rates to choose from, and what is held out to
            choose (see `make_tuning`); None for those of the ViT paper (Table 4, appendix B.1.1), by number of training
            images.
        repeats: number of fits with the chosen learning rate, each with its own order of images; the `draw` of a score
            is its number.
        train_limit, test_limit: sizes of nested, class-balanced parts of the two splits; None takes all.
        shots: train on the nested part with this many images per class, instead of train_limit.
        copies_aside: leave out training images that are copies of test images, as the task `adapt` does.
        average: decay per step of an average of the weights (Polyak averaging); 0 for none.
        shift, flip, crop: random translation by up to this many stored pixels; mirroring; random crops that keep at
            least this fraction of the area (the paper: 0.05), 0 for none.
        metrics: metrics in addition to accuracy, of `bench.core.metrics`; the learning rate is chosen by accuracy.

    Returns:
        One score per repeat and metric. Its detail holds which learning rate was chosen from which, whether it is at
        the edge of the sweep, the costs, and which test images were right.

    Raises:
        UserError: an option is out of range, the model cannot take this size, or the data is not on this machine.
        Interrupted: a signal arrived.
    """
    if repeats < 1:
        raise UserError(f"repeats={repeats}: at least one fit is needed.")
    train = context.load(data, "train")
    train = balanced_part(train, train_limit if shots is None else shots * train.num_classes, several=True)
    test = balanced_part(context.load(data, "test"), test_limit, several=True)
    if train.several:
        check_several(metrics, name=train.name)
    if copies_aside:
        from bench.tasks import _photos

        train = train.take(np.flatnonzero(~_photos.copies(train, test).aside_N))
    settings = make_tuning(
        len(train),
        steps=steps,
        batch=batch,
        rates=rates,
        held_out=held_out,
        image_size=image_size,
        average=average,
        shift=shift,
        flip=flip,
        crop=crop,
    )
    named_size = nominal_size or image_size
    task = "finetune" if named_size is None else f"finetune@{named_size}px"
    task += "" if shots is None else f"@{shots}shot"
    return score_tuned(context, train, test, settings, task=task, data=data, draws=range(repeats), metrics=metrics)


def forward_images(
    *,
    num_train: int,
    num_test: int,
    own_size: int | None = None,
    repeats: int = 1,
    num_classes: int | None = None,
    train_limit: int | None = None,
    shots: int | None = None,
    test_limit: int | None = None,
    image_size: int | None = None,
    steps: int | None = None,
    batch: int | None = None,
    rates: Sequence[float] | None = None,
    held_out: float | int | None = None,
    **_: object,
) -> int:
    """Return the cost of one evaluation as a number of images that pass forward through the network, to forecast it;
    see `tuning_images`.

    Args:
        num_train, num_test: numbers of images of the two splits.
        own_size: the model's own image size; None: images of another size count as much as those of its own.
        num_classes: number of classes of the set; other arguments are those of `evaluate`.
    """
    limit = shots * num_classes if shots and num_classes else train_limit
    settings = make_tuning(
        min(num_train, limit or num_train),
        steps=steps,
        batch=batch,
        rates=rates,
        held_out=held_out,
        image_size=image_size,
    )
    num_test = min(num_test, test_limit or num_test)
    return tuning_images(settings, num_test=num_test, repeats=repeats, own_size=own_size)


REHEARSED_STEPS, REHEARSED_BATCH = 2, 4  # a step of warm-up and one after it, for each rate and each repeat
REHEARSED_IMAGES, REHEARSED_HELD_OUT = 128, 16


def rehearsed(
    *,
    num_train: int,
    num_classes: int,
    steps: int | None = None,
    batch: int | None = None,
    rates: Sequence[float] | None = None,
    held_out: float | int | None = None,
    train_limit: int | None = None,
    shots: int | None = None,
    image_size: int | None = None,
    nominal_size: int | None = None,
    **_: object,
) -> dict[str, Any]:
    """Return options that replace those of `evaluate` in a rehearsal, a quick trial of a study: few steps with few
    images, but with the learning rates of the whole set. Scores keep the name that their image size gives them.

    Args:
        num_train, num_classes: numbers of training images and classes of the whole set; other arguments are those of
            `evaluate`.
    """
    number = min(num_train, (shots * num_classes if shots else train_limit) or num_train)
    whole = make_tuning(number, steps=steps, batch=batch, rates=rates, held_out=held_out)
    few = min(number, REHEARSED_IMAGES)
    return {
        "steps": min(whole.steps, REHEARSED_STEPS),
        "batch": min(whole.batch, REHEARSED_BATCH),
        "rates": whole.rates,
        "held_out": min(whole.num_held_out, REHEARSED_HELD_OUT, max(1, few // 4)),
        "train_limit": few,
        **({"nominal_size": nominal_size or image_size} if image_size else {}),
    }


# -- the protocol, which VTAB follows too ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """The settings by which a model is fine-tuned; build them with `make_tuning`.

    Attributes:
        steps, batch: steps of every training, and images per step.
        rates: learning rates to choose from, tried in this order.
        num_held_out: number of images held out to choose the learning rate; approximate where images belong together.
        image_size: pixels per side; None for the model's own.
        shift, flip, crop: augmentation; see `evaluate`.
        average: decay per step of an average of the weights (Polyak averaging); 0 for none (the ViT paper: 0.9999, for
            Table 2's ImageNet).
    """

    steps: int
    batch: int
    rates: tuple[float, ...]
    num_held_out: int
    image_size: int | None = None
    shift: int = 0
    flip: bool = False
    crop: float = 0.0
    average: float = 0.0

    @property
    def warmup_steps(self) -> int:
        """Number of steps of warm-up: 500, or a fifth of the steps if they are fewer than 2,500 (as in big_vision's
        transfer: 100 of 500)."""
        return min(500, self.steps // 5)

    def recipe(self, rate: float) -> Recipe:
        """Return the recipe of a training with learning rate `rate`: SGD with momentum 0.9, cosine decay to zero,
        gradients clipped at norm 1, no weight decay."""
        return Recipe(
            optimizer="sgd",
            lr=rate,
            batch=self.batch,
            weight_decay=0.0,
            clip=1.0,
            schedule="separate",
            cooldown=1.0,
            cooldown_shape="cosine",
            warmup_images=self.warmup_steps * self.batch,
            shift=self.shift,
            flip=self.flip,
            crop=self.crop,
            average=self.average,
        )


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The learning rate that was chosen for fine-tuning, and why.

    Attributes:
        rate: the chosen learning rate; None where training diverged at every one.
        accuracies: accuracy on the held-out images at each learning rate, None where training diverged; () if there was
            only one to choose from.
        num_held_out: number of held-out images.
        at_edge: whether the chosen learning rate is the lowest or highest of several.
        train_flops: FLOPs of all trainings that were done to choose, by the "dense" convention.
        seconds: wall-clock seconds of these trainings.
    """

    rate: float | None
    accuracies: tuple[float | None, ...] = ()
    num_held_out: int = 0
    at_edge: bool = False
    train_flops: int = 0
    seconds: float = 0.0


def make_tuning(
    num_train: int,
    *,
    steps: int | None = None,
    batch: int | None = None,
    rates: Sequence[float] | None = None,
    held_out: float | int | None = None,
    **more: Any,
) -> Tuning:
    """Return the settings of the ViT paper's Table 4 for a training set of this size, with those replaced that are
    given.

    The batch is 512, or the whole training set if that is smaller. Learning rates are used as they are given, whatever
    the batch.

    Args:
        num_train: number of training images.
        steps, batch: steps of every training, and images per step; None for the table's.
        rates: learning rates to choose from; None for the table's.
        held_out: images held out to choose the learning rate: a fraction (float) or a number (int); None for appendix
            B.1.1's.
        more: further fields of `Tuning`.

    Raises:
        UserError: an option is out of range.
    """
    size = int(num_train >= SMALL) + int(num_train >= LARGE)
    part = HELD_OUT[size] if held_out is None else held_out
    number = round(part * num_train) if isinstance(part, float) else part
    made = Tuning(
        steps=STEPS[size] if steps is None else steps,
        batch=min(BATCH, num_train) if batch is None else batch,
        rates=tuple(rates) if rates is not None else RATES_LARGE if size == 2 else RATES,
        num_held_out=max(1, number) if held_out is None else number,
        **more,
    )
    _check(made, num_train)
    return made


def _check(made: Tuning, num_train: int) -> None:
    """Check settings of fine-tuning on `num_train` images.

    Raises:
        UserError: a setting is out of range.
    """
    if made.steps < 1 or made.batch < 1:
        raise UserError(f"Fine-tuning needs at least one step of one image, not {made.steps} of {made.batch}.")
    if made.image_size is not None and made.image_size < 1:
        raise UserError(f"image_size={made.image_size} is not a number of pixels.", "Leave it out for the model's own.")
    if made.shift < 0:
        raise UserError(f"shift={made.shift}: images are shifted by 0 pixels or more.")
    if not 0 <= made.crop <= 1:
        raise UserError(f"crop={made.crop}: random crops keep a share of the area, from 0 (no crops) to 1.")
    if not made.rates or min(made.rates) <= 0:
        raise UserError(f"Learning rates {made.rates} are not positive numbers.", "For example rates=(0.01,0.03).")
    if len(made.rates) > 1 and not 0 < made.num_held_out < num_train:
        raise UserError(
            f"{made.num_held_out} images cannot be held out of {num_train:,} to choose a learning rate.",
            "Give held_out as a fraction such as 0.1, as a number of images, or a single rate.",
        )
    if not 0 <= made.average < 1:
        raise UserError(f"average={made.average} is not a decay.", "Give 0 for none, or such as 0.999.")


def split(train: ImageSet, num_held_out: int) -> tuple[ImageSet, ImageSet]:
    """Divide training images into (images to train on, held-out images).

    Every class is held out in proportion, to within one image; approximately so where images belong together
    (`together`), because these are not divided. The content of images decides which are held out.

    Raises:
        UserError: so many images belong together that none can be held out.
    """
    order_N = np.argsort(priorities(train.labels_N, "held-out", keys_N=train.content_keys_N), kind="stable")
    share_K = shares(np.bincount(train.labels_N), num_held_out)
    if (groups_N := together(train)) is None:
        held_out_N = rank_within_class(train.labels_N, order_N) < share_K[train.labels_N]
    elif not (held_out_N := nearest(train.labels_N, groups_N, share_K)).any():
        what = f"{train.name}: images of one group, and copies of each other, are not divided, and no others are there"
        raise UserError(f"{what} that can be held out to choose a learning rate.", "Give a single rate.")
    held_out_N = held_out_N[order_N]
    return train.take(order_N[~held_out_N]), train.take(order_N[held_out_N])


def shares(counts_K: np.ndarray, number: int) -> np.ndarray:
    """Return how many images of each class to take, (K,), so that they are `number` in all and in proportion to
    `counts_K`: rounded down, and up where the remainder is largest (Hamilton's method)."""
    shares_K, left_K = np.divmod(counts_K * number, counts_K.sum())
    shares_K[np.argsort(-left_K, kind="stable")[: number - shares_K.sum()]] += 1
    return shares_K


def choose(context: TaskContext, train: ImageSet, settings: Tuning, *, purpose: str) -> Choice:
    """Choose the learning rate for fine-tuning: train with each of `settings.rates` on one part of the training set,
    and take the one with the highest accuracy on the other part; of equally good ones the lowest. A single one is taken
    without training.

    Args:
        purpose: text that distinguishes the random numbers of these trainings from those of others.
    """
    assert context.fine_tune is not None
    if len(settings.rates) == 1:
        return Choice(rate=settings.rates[0])
    part, held_out = split(train, settings.num_held_out)
    accuracies: list[float | None] = []
    flops, seconds = 0, 0.0
    for rate in settings.rates:
        tuned = context.fine_tune(
            part,
            recipe=settings.recipe(rate),
            steps=settings.steps,
            image_size=settings.image_size,
            purpose=f"{purpose}/choose",
        )
        accuracies.append(accuracy(tuned, held_out))
        flops, seconds = flops + tuned.train_flops["dense"], seconds + tuned.seconds
    worth = {rate: reached for rate, reached in zip(settings.rates, accuracies, strict=True) if reached is not None}
    best = min(worth, key=lambda rate: (-worth[rate], rate)) if worth else None
    at_edge = best in (min(settings.rates), max(settings.rates))
    return Choice(
        rate=best,
        accuracies=tuple(accuracies),
        num_held_out=len(held_out),
        at_edge=at_edge,
        train_flops=flops,
        seconds=seconds,
    )


def accuracy(tuned: FineTuned, images: ImageSet) -> float | None:
    """Return the accuracy of a fine-tuned model on labelled images, or mAP if they have several labels each; None if
    training diverged."""
    if images.several:
        return _mean_ap(tuned, images)
    predicted_N = classify(tuned, images)
    return None if predicted_N is None else float((predicted_N == images.labels_N).mean())


def _mean_ap(tuned: FineTuned, images: ImageSet) -> float | None:
    from bench.tasks import _several

    logits_NK = None if tuned.diverged else tuned.logits(images.images_NHWC)
    return (
        _several.mean_ap(logits_NK, images.targets_NK)
        if logits_NK is not None and np.isfinite(logits_NK).all()
        else None
    )


def classify(tuned: FineTuned, images: ImageSet) -> np.ndarray | None:
    """Return the predicted class of every image, (N,); None if training diverged or logits are not finite, because such
    logits name no class."""
    if tuned.diverged:
        return None
    logits_NK = tuned.logits(images.images_NHWC)
    return logits_NK.argmax(1) if np.isfinite(logits_NK).all() else None


def score_tuned(
    context: TaskContext,
    train: ImageSet,
    test: ImageSet,
    settings: Tuning,
    *,
    task: str,
    data: str,
    draws: Sequence[int],
    detail: Mapping[str, Any] = NO_DETAIL,
    metrics: Sequence[str] = (),
) -> list[Score]:
    """Choose the learning rate once, fine-tune on all of `train` for every repeat, and return a score on `test` for
    each.

    If the test images have alternative correct labels (ReaL), a second score, of `<data>-real`, accepts any of them.
    The detail of each score holds which test images were right (`bench.store.prediction_bits`), so that scores can be
    compared in pairs. If images have several labels to be learned, a sigmoid decides on each, and mAP and macro-F1 are
    scored (`_several.py`).

    Args:
        task, data: names of the task and the data set, for the scores.
        draws: a number for each repeat, which is the `draw` of its scores.
        detail: further detail of each score.
        metrics: metrics in addition to accuracy, of `bench.core.metrics`.

    Raises:
        UserError: there is no model to train.
        Unsuited: the model cannot take these images, or not at this size.
    """
    if context.fine_tune is None:
        raise UserError(f"The task {task} trains the network, but only features are available.", "Give --model.")
    try:
        return _evaluate(
            context, train, test, settings, task=task, data=data, draws=draws, detail=detail, metrics=metrics
        )
    except UserError as error:
        head: dict[str, Any] = {"task": task, "data": data, "num_test": len(test), "num_classes": test.num_classes}
        missing = [accuracy_score(None, **head, draw=draw, detail=detail) for draw in draws]
        raise Unsuited(error.what, error.fix, missing=missing) from error


def _evaluate(
    context: TaskContext,
    train: ImageSet,
    test: ImageSet,
    settings: Tuning,
    *,
    task: str,
    data: str,
    draws: Sequence[int],
    detail: Mapping[str, Any],
    metrics: Sequence[str],
) -> list[Score]:
    assert context.fine_tune is not None
    purpose = f"{task}/{data}"
    choice = choose(context, train, settings, purpose=purpose)
    copies_M = context.copies(test)
    scores = []
    for draw in draws:
        head: dict[str, Any] = {
            "task": task,
            "data": data,
            "num_test": len(test),
            "num_classes": test.num_classes,
            "draw": draw,
        }
        facts = {
            **detail,
            "num_train": len(train),
            "steps": settings.steps,
            "batch": settings.batch,
            "rates": list(settings.rates),
            "rate": choice.rate,
            "rate_at_edge": choice.at_edge,  # a wider sweep might find a better rate
            "held_out_accuracies": list(choice.accuracies),
            "num_held_out": choice.num_held_out,
        }
        predicted_M = None
        if choice.rate is not None:
            tuned = context.fine_tune(
                train,
                recipe=settings.recipe(choice.rate),
                steps=settings.steps,
                image_size=settings.image_size,
                purpose=f"{purpose}/{draw}",
            )
            facts |= _costs(choice, tuned, len(draws))
            predicted_M = classify(tuned, test)
            if test.several and predicted_M is not None:
                from bench.tasks import _several

                scores += _several.scores(tuned.logits(test.images_NHWC), test, threshold=0.0, detail=facts, **head)
                continue
        if predicted_M is None:
            reason = "training diverged" + ("" if choice.rate else " at every rate")
            scores.append(accuracy_score(None, **head, detail=facts | {"reason": reason}))
            continue
        content = test.content_hash
        judge: dict[str, Any] = {"copies_M": copies_M, "content_hash": content, "groups_M": test.groups_N}
        judge |= {"names": test.class_names}
        scores += judged_by(metrics, predicted_M, test.labels_N, **judge, **head, detail=facts)
        if test.multi_labels is not None:
            right_R, content = real_right(predicted_M, test.multi_labels), real_hash(content, test.multi_labels)
            head |= {"data": f"{data}-real", "num_test": len(right_R)}
            scores.append(judged(right_R, content_hash=content, **head, detail=facts))
    return scores


def _costs(choice: Choice, tuned: FineTuned, repeats: int) -> dict[str, Any]:
    """Return facts about one repeat for a score's detail: its FLOPs and seconds, each with an equal part of the costs
    of choosing the learning rate, its image size and its final loss. These costs count as evaluation, not as
    pre-training.

    Args:
        repeats: number of repeats, which share the costs of the choice.
    """
    return {
        "image_size": tuned.image_size,
        "final_loss": float(np.mean(tuned.losses_T[-50:])),
        "train_flops": round(tuned.train_flops["dense"] + choice.train_flops / repeats),
        "seconds": tuned.seconds + choice.seconds / repeats,
    }


def tuning_images(settings: Tuning, *, num_test: int, repeats: int, own_size: int | None) -> int:
    """Return the cost of fine-tuning and scoring as a number of images that pass forward through the network at its own
    size, to forecast it.

    An image that is trained on counts three times; an image of another size counts in proportion to its number of
    pixels.

    Args:
        num_test: number of test images.
        repeats: number of fits with the chosen learning rate.
        own_size: the model's own image size; None: all sizes count alike.
    """
    pixels = (settings.image_size / own_size) ** 2 if settings.image_size and own_size else 1.0
    tried = len(settings.rates) if len(settings.rates) > 1 else 0
    trained = 3 * settings.steps * settings.batch * (tried + repeats)
    return round(pixels * (trained + tried * settings.num_held_out + repeats * num_test))


TASK = Task(
    evaluate=evaluate,
    revision=3,  # 2: every class is held out in proportion; 3: groups and copies stay together
    forward_images=forward_images,
    rehearsed=rehearsed,
    several_labels=True,
)
