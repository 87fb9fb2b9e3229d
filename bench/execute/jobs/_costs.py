"""The costs that a job records: of one horizon, and of the whole cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.cost import units
from bench.execute.jobs.job import JobContext
from bench.study.cell import Recipe
from bench.study.record import Cost, Horizon, Operations, Seconds
from bench.train import schedule
from bench.train.events import HorizonReached
from bench.train.trainer import TrainingProgress

if TYPE_CHECKING:
    from bench.cost.flops import ModelCost
    from bench.cost.peaks import PeakRate

NO_OPERATIONS = Operations()


@dataclass(frozen=True, kw_only=True)
class TrainingCosts:
    """Turns what a training run has spent into the numbers of its record.

    Attributes:
        cost: cost of the model, per image.
        peak: peak FLOPs per second of one device at the precision of training.
        num_images: images in the training set.
    """

    context: JobContext
    recipe: Recipe
    cost: ModelCost
    peak: PeakRate
    num_images: int

    @property
    def per_image(self) -> Operations:
        """FLOPs of training on one image."""
        return Operations(**self.cost.train_flops_per_image)

    def of_horizon(
        self,
        reached: HorizonReached,
        progress: TrainingProgress,
        segments: tuple[schedule.Segment, ...],
        *,
        evaluate_seconds: float,
        smaller_batches: dict[str, int],
    ) -> Horizon:
        """Return a horizon's row of the record, without its scores.

        Args:
            evaluate_seconds: seconds that its evaluation took.
            smaller_batches: kind of evaluation -> images at a time that fitted, where it ran out of memory.
        """
        horizon, batch = reached.images_seen, self.recipe.batch
        steps = schedule.total_steps(horizon, batch) if horizon else 0
        seen, spent = steps * batch, progress.work * batch - sum(row.spent_images or 0 for row in progress.rows)
        train_seconds = progress.horizon_seconds(segments) if horizon else 0.0
        rate = seen / train_seconds if train_seconds else None
        flops_per_second = rate * self.cost.train_flops_per_image["dense"] if rate else None
        peak = self.peak.flops_per_second * self.context.ranks.size
        return Horizon(
            images_seen=horizon,
            images_trained=seen,
            unique_images=min(seen, self.num_images),
            epochs=seen / self.num_images,
            steps=steps,
            batch=batch,
            train_flops=self.per_image.times(seen),
            spent_images=spent,
            spent_flops=self.per_image.times(spent),
            seconds=Seconds(
                train=train_seconds,
                evaluate=evaluate_seconds,
                save=_since_the_last(progress, "save"),
                wait=_since_the_last(progress, "wait"),
            ),
            images_per_second=rate,
            flops_per_second=flops_per_second,
            utilisation=flops_per_second / peak if flops_per_second else None,
            core_days=units.core_days(train_seconds, devices=self.context.devices),
            final_train_loss=reached.loss,
            smaller_batches=smaller_batches,
        )

    def of_cell(self, progress: TrainingProgress) -> Cost:
        """Return the record's `cost`, which is that of the whole cell."""
        return recorded_cost(
            self.context,
            seconds=progress.seconds,
            busy=progress.seconds.train or 0.0,
            peak=self.peak,
            spent_images=progress.work * self.recipe.batch,
            per_image=self.per_image,
            image_wait=progress.image_wait_seconds,
        )


def _since_the_last(progress: TrainingProgress, purpose: str) -> float:
    """Return the seconds spent on one purpose ("save" or "wait") that no earlier horizon counts; at least 0, since
    seconds from before a change of the number of ranks are rescaled, which can make the difference negative."""
    counted = sum(getattr(row.seconds, purpose) or 0.0 for row in progress.rows)
    return max(0.0, (getattr(progress.seconds, purpose) or 0.0) - counted)


def recorded_cost(
    context: JobContext,
    *,
    seconds: Seconds,
    busy: float,
    peak: PeakRate,
    spent_images: int | None = None,
    per_image: Operations = NO_OPERATIONS,
    image_wait: float | None = None,
    peak_memory: bool = True,
) -> Cost:
    """Return the record's `cost`.

    Args:
        busy: the seconds that core-days are computed from.
        spent_images, per_image: images trained on, and the FLOPs of one; None where nothing was trained.
        image_wait: seconds of the training that were spent waiting for images.
        peak_memory: whether the work was done by this process, whose peak is known.
    """
    from bench.cost import memory  # imports torch, which a worker's --help does not need

    return Cost(
        seconds=seconds,
        spent_images=spent_images,
        spent_flops=NO_OPERATIONS if spent_images is None else per_image.times(spent_images),
        core_days=units.core_days(busy, devices=context.devices),
        devices=context.devices,
        image_wait_seconds=image_wait,
        peak_memory_bytes=memory.measured_peak_bytes(context.device) if peak_memory else None,
        peak_flops_per_second=peak.flops_per_second,
        # on a GPU less is executed: see bench/cost/flops.py
        peak_source=peak.source if peak.measured else f"{peak.source}; the architecture's FLOPs are counted",
    )
