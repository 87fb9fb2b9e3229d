"""The costs that a job records: those of one horizon (budget at which the network is evaluated), and those of the whole
cell."""

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
    """Computes the costs in a cell's record from what its training has spent.

    Attributes:
        context: the job's surroundings.
        recipe: the training recipe.
        cost: parameters, MACs and FLOPs of the model, per image.
        peak: peak FLOP/s of one device at the precision of training.
        num_images: images in the training set.
    """

    context: JobContext
    recipe: Recipe
    cost: ModelCost
    peak: PeakRate
    num_images: int

    @property
    def per_image(self) -> Operations:
        """FLOPs of training on one image: forward and backward pass."""
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
        """Return what the record says about a horizon, without its scores.

        Args:
            reached: the horizon.
            progress: work and seconds of the training so far.
            segments: the parts of the whole training, trunk and cool-downs.
            evaluate_seconds: seconds that its evaluation took.
            smaller_batches: "evaluate" or "finetune" -> images at a time that fitted, if memory ran out in that
                evaluation.
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
        """Return the record's `cost`, which is the cost of the whole cell."""
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
    """Return the seconds spent on one purpose ("save" or "wait") since the last horizon was evaluated. A negative
    difference counts as 0: it can occur after a change of the number of ranks, when earlier seconds are rescaled."""
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
        seconds: seconds of the whole cell, by purpose.
        busy: the seconds that core-days are computed from.
        peak: peak FLOP/s of one device.
        spent_images: images that training steps were taken on; None where nothing was trained.
        per_image: FLOPs of training on one image.
        image_wait: seconds of the training that were spent waiting for images; None where nothing was trained.
        peak_memory: whether this process did the work, so that its peak memory is the job's; else none is recorded.
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
