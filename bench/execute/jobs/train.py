"""Pre-trains a cell's model and evaluates it at every horizon."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.core import registry
from bench.core.clock import running
from bench.core.device import InBatches, is_out_of_memory, release
from bench.core.errors import UserError
from bench.core.record import Horizon, LearningCurve, MicroBatch, Operations, Result, Score, Seconds, Status
from bench.core.seeds import stream
from bench.core.spec import Cell
from bench.cost import flops, memory, peaks, units
from bench.cost.flops import ModelCost
from bench.cost.trace import ACTIVE, WAIT, WARM_UP, Trace, label, profile
from bench.data.image_set import ImageSet
from bench.data.load import load
from bench.execute.jobs._contract import JobContext, cost_facts, data_facts, execution, model_facts
from bench.store import weights
from bench.store.study import WEIGHTS
from bench.tasks._contract import TaskContext, Unsuited, judged
from bench.tasks._features import extractor, top1, top1_and_loss
from bench.tasks._finetuner import FineTuner
from bench.train import inference, precision, schedule
from bench.train.batches import Batches
from bench.train.optim import set_head_bias
from bench.train.ranks import RestartNeeded
from bench.train.step import TooLarge
from bench.train.trainer import (
    Diverged,
    Evaluated,
    Hooks,
    Progress,
    Saving,
    Trainer,
    load_micro_batch_hint,
    save_micro_batch_hint,
)

Scores = list[Score] | Callable[[], list[Score]]


def run(cell: Cell, context: JobContext) -> Result:
    """Train and evaluate one cell, continuing from its newest checkpoint.

    Raises:
        Interrupted: stopped by a signal; everything is saved.
        UserError: the data are missing, the model does not fit the images, the disk is full.
    """
    started = running()
    release(context.device)  # of the cell before
    memory.reset_peak(context.device)
    precision.set_up(threads=context.threads)
    ranks = context.ranks
    if ranks.size > 1:  # what has to be decoded is so once on each machine
        ranks.run_on_all(lambda: _open_data(cell, context) if ranks.is_first_here else None)
    job = ranks.run_on_all(lambda: TrainJob(cell, context))
    content = ranks.run_on_rank0(lambda: job.train.content_hash)
    ranks.run_on_all(lambda: _check_content(cell, job.train, content))
    waited = running() - started
    with profile(context.attempt / "trace", enabled=context.profile, device=context.device) as trace:
        trainer = job.trainer(on_step=job.traced(trace) if context.profile else lambda _: trace.step())
        trainer.resume()
        limit = context.ranks.run_on_rank0(lambda: load_micro_batch_hint(context.directory.attempts()))
        if limit is not None:
            trainer.limit_micro_batch(limit)
        trainer.progress.seconds["wait"] += waited
        return _run(job, trainer)


def _open_data(cell: Cell, context: JobContext) -> tuple[ImageSet, ImageSet]:
    """Training and test images of the upstream set."""
    train = load(cell.data, "train", root=context.data_root, num_images=cell.num_images)
    return train, load(cell.data, "test", root=context.data_root)


def _check_content(cell: Cell, images: ImageSet, content: str) -> None:
    """Raise UserError where this rank's machine has other images than that of rank 0."""
    if images.content_hash != content:
        raise UserError(
            f"The images of {cell.data} here are others than those of rank 0.",
            "Give all machines the same data: equal files, and the same --data-root.",
        )


def _run(job: TrainJob, trainer: Trainer) -> Result:
    """Train; divergence and lack of memory are results."""
    status: Status = "complete"
    reason = None
    try:
        trainer.run()
        with trainer.ema.applied():
            job.keep_weights()
    except Diverged as error:
        status, reason = "diverged", str(error)
    except RestartNeeded as again:
        save_micro_batch_hint(job.context.attempt, again.micro_batch)
        raise
    except (RuntimeError, MemoryError) as error:
        known_to_all = job.ranks.size == 1 or isinstance(error, TooLarge)
        if not known_to_all or not is_out_of_memory(error):
            raise
        status, reason = "oom", (str(error) or "out of memory").splitlines()[0]
    trainer.settle()
    return job.result(trainer, status=status, reason=reason)


class TrainJob:
    """The parts of one training cell: data, model, costs, and how a horizon becomes a row."""

    def __init__(self, cell: Cell, context: JobContext) -> None:
        self.cell, self.context, self.ranks = cell, context, context.ranks
        self.train, self.val = _open_data(cell, context)
        sizes: dict[str, Any] = {
            "image_size": cell.image_size,
            "channels": cell.channels,
            "num_classes": self.train.num_classes,
        }
        self.cost: ModelCost = flops.count(cell.model, **sizes, model_options=cell.model_options, activations=False)
        self.per_image = Operations(**self.cost.train_flops_per_image)
        self._sizes = sizes
        self.model = self._fresh_model().to(context.device)
        self.ranks.check_model(self.model)
        self.trained = self.model  # what the steps change; another module where it is spread over ranks
        self.dtype = precision.resolve(cell.recipe.dtype, context.device, self.model)
        self.evaluation_dtype = inference.resolve(cell.recipe.evaluation_dtype, context.device, self.model)
        self.peak = peaks.peak(self.dtype, device=context.device, threads=context.threads)
        self.batches = InBatches(device=context.device)  # of evaluation
        self.said: list[str] = []  # of a horizon, by a rank that has no log

    @property
    def fit(self) -> tuple[int, int] | None:
        """(image_size, channels) that images are resized to as they are read; None where they are stored so."""
        shape, cell = self.train.images_NHWC.shape[1:], self.cell
        return None if shape == (cell.image_size, cell.image_size, cell.channels) else (cell.image_size, cell.channels)

    @property
    def trains(self) -> bool:
        return self.cell.horizons != (0,)

    def _fresh_model(self) -> nn.Module:
        """The model with its initial weights: a pure function of the cell's seed, for any model whatever."""
        torch.manual_seed(stream(self.cell.seed, "init"))
        model = registry.build_model(self.cell.model, **self._sizes, **dict(self.cell.model_options))
        set_head_bias(model, self.cell.recipe, self.train.num_classes)
        return model

    def initialise(self) -> None:
        """Put the initial weights back."""
        own, fresh = self.trained.state_dict(), self._fresh_model().state_dict()
        self.trained.load_state_dict({name: self.ranks.shard(value, like=own[name]) for name, value in fresh.items()})

    def trainer(self, *, on_step: Callable[[torch.Tensor], None]) -> Trainer:
        recipe, context = self.cell.recipe, self.context
        batches = None
        if self.trains:
            batches = Batches(
                self.train, recipe=recipe, seed=self.cell.seed, device=context.device, ranks=self.ranks, fit=self.fit
            )
        dtype = precision.resolve(recipe.dtype, context.device, self.model)
        self.trained = self.ranks.shard_model(self.model, sharding=recipe.sharding, dtype=dtype)
        return Trainer(
            model=self.trained,
            batches=batches,
            recipe=recipe,
            horizons=self.cell.horizons,
            seed=self.cell.seed,
            device=context.device,
            hooks=Hooks(
                initialise=self.initialise,
                evaluate=self.row,
                on_step=on_step,
                report=context.progress,
                should_stop=context.should_stop,
                log=context.log,
            ),
            saving=Saving(
                folder=context.directory.checkpoints,
                content=self.train.content_hash,
                check_lease=context.check_lease,
            ),
            ranks=self.ranks,
        )

    def traced(self, trace: Trace) -> Callable[[torch.Tensor], None]:
        """What follows each step while a trace is made: a batch of evaluation, so that the trace shows its cost too."""
        left = iter(range(WAIT + WARM_UP + ACTIVE))
        sample = self.val.take(np.arange(min(256, len(self.val))))

        def on_step(_: torch.Tensor) -> None:
            if next(left, None) is not None:
                self.model.eval()
                with label("evaluate"):
                    top1(self.model, sample, device=self.context.device, fit=self.fit)
                self.model.train()
            trace.step()

        return on_step

    # -- evaluation ------------------------------------------------------------------------------------------------

    @property
    def solves_beside(self) -> bool:
        """Whether probes are solved while training goes on: on the processor, where that is not what trains."""
        return self.context.device != "cpu" and self.ranks.size == 1

    @cached_property
    def _beside(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix="probes")

    def row(self, horizon: int, loss: float | None, progress: Progress) -> Evaluated:
        """What is known of the model at one horizon: its costs and its scores. Each rank reads some of them."""
        self._put_together(everywhere=True)
        started = running()

        def read() -> tuple[dict[int, Scores], dict[str, int], list[str]]:
            self.said = []
            scores = self.scores()
            if self.trained is not self.model:
                self.model.cpu()  # its memory is the shards'
            return scores, self._smaller_batches(), self.said

        found: dict[int, Scores] = {}
        smaller: dict[str, int] = {}
        for rank, (scores, batches, said) in enumerate(self.ranks.exchange(self.ranks.run_on_all(read))):
            found |= scores
            for text in said:
                self.context.log(f"rank {rank}: {text}")
            smaller |= {kind: min(images, smaller.get(kind, images)) for kind, images in batches.items()}
        row = self._horizon(horizon, progress, running() - started, loss=loss, smaller_batches=smaller)
        in_order = [part for _, part in sorted(found.items())]

        def scored() -> Horizon:
            parts = (part() if callable(part) else part for part in in_order)
            return replace(row, scores=tuple(score for part in parts for score in part))

        return self._beside.submit(scored) if any(map(callable, in_order)) else scored()

    def _log(self, text: str) -> None:
        """A line for the log, which is rank 0's; another rank's get there when the horizon has been read."""
        if self.ranks.is_rank0:
            self.context.log(text)
        else:
            self.said.append(text)

    def _put_together(self, *, everywhere: bool = False) -> None:
        """Give the model that is read, by rank 0 or by all, the weights of one that is spread over ranks."""
        if self.trained is not self.model:
            weights_now = self.ranks.gather(self.trained.state_dict(), everywhere=everywhere)
            if self.ranks.is_rank0 or everywhere:
                self.model.load_state_dict(weights_now)
                self.model.to(self.context.device)

    def _smaller_batches(self) -> dict[str, int]:
        """Images at a time that fitted, where evaluation ran out of memory; nothing where all went well.
        Scores do not depend on them, but for the dropout of fine-tuning."""
        found = {"evaluate": self.batches.batch if self.batches.shrunk else None, "finetune": self.tuner.micro_batch}
        smaller = {kind: images for kind, images in found.items() if images is not None}
        for kind, images in smaller.items():
            self._log(f"out of memory in evaluation ({kind}): went on with {images} images at a time")
        return smaller

    def scores(self) -> dict[int, Scores]:
        """Upstream accuracy with the model's own head, then every downstream task on the frozen features: of these
        parts, by number, the ones that this rank takes its turn with; or what computes them of features."""
        self.model.eval()
        device, root = self.context.device, self.context.data_root
        sizes = {"image_size": self.cell.image_size, "channels": self.cell.channels}
        network = inference.in_precision(self.model, dtype=self.evaluation_dtype, device=device, batches=self.batches)
        features = extractor(network, **sizes, device=device, batches=self.batches)
        task_context = TaskContext(
            features=features,
            load=lambda name, split: load(name, split, root=root),
            seed=self.cell.seed,
            model=self.model,
            fine_tune=self.tuner,
            upstream=self.train,
            data_root=root,
        )
        supervised = not getattr(self.model, "self_supervised", False)
        found: dict[int, Scores] = {}
        for number, spec in enumerate((None, *self.cell.tasks)):
            if number % self.ranks.size != self.ranks.rank:
                continue
            if spec is None:
                found[number] = [self._upstream_score(network)] if self.trains and supervised else []
                continue
            try:
                task = registry.load("task", spec.task)
                read = (self.solves_beside and getattr(task, "begin", None)) or task.evaluate
                found[number] = read(task_context, data=spec.data, **spec.kwargs)
            except Unsuited as error:
                found[number] = error.missing
                self._log(f"no score of {spec.task}: {error}")
        return found

    @cached_property
    def tuner(self) -> FineTuner:
        cell, context = self.cell, self.context
        return FineTuner(
            self.model,
            name=cell.model,
            options=cell.model_options,
            image_size=cell.image_size,
            channels=cell.channels,
            device=context.device,
            seed=cell.seed,
            should_stop=context.should_stop,
            batches=self.batches,
            dtype=cell.recipe.evaluation_dtype,
        )

    def _upstream_score(self, network: nn.Module) -> Score:
        right_M, loss = top1_and_loss(network, self.val, device=self.context.device, batches=self.batches, fit=self.fit)
        return judged(
            right_M,
            content_hash=self.val.content_hash,
            task="upstream",
            data=self.cell.data,
            num_test=len(self.val),
            num_classes=self.val.num_classes,
            detail={"loss": loss} if np.isfinite(loss) else {},
        )

    def keep_weights(self) -> None:
        """Keep the weights of the last horizon, for `bench.probe` and later transfer."""
        if not self.trains:
            return
        cell = self.cell
        facts = self._sizes | {"model": cell.model, "data": cell.data_name, "images_seen": cell.horizons[-1]}
        facts["model_options"] = dict(cell.model_options)
        self._put_together()
        path = self.context.attempt / WEIGHTS
        self.ranks.run_on_rank0(
            lambda: weights.write(path, self.model.state_dict(), facts, check_lease=self.context.check_lease)
        )

    # -- costs -----------------------------------------------------------------------------------------------------

    def _horizon(
        self,
        horizon: int,
        progress: Progress,
        evaluated: float,
        *,
        loss: float | None,
        smaller_batches: dict[str, int],
    ) -> Horizon:
        batch = self.cell.recipe.batch
        steps = schedule.total_steps(horizon, batch) if horizon else 0
        seen, spent = steps * batch, progress.work * batch - sum(row.spent_images or 0 for row in progress.rows)
        own_seconds = self._own_seconds(progress) if horizon else 0.0
        rate = seen / own_seconds if own_seconds else None
        flops_per_second = rate * self.cost.train_flops_per_image["dense"] if rate else None
        peak = self.peak.flops_per_second * self.ranks.size
        return Horizon(
            images_seen=horizon,
            images_trained=seen,
            unique_images=min(seen, len(self.train)),
            epochs=seen / len(self.train),
            steps=steps,
            batch=batch,
            train_flops=self.per_image.times(seen),
            spent_images=spent,
            spent_flops=self.per_image.times(spent),
            seconds=Seconds(train=own_seconds, evaluate=evaluated, **self._since_the_last(progress)),
            images_per_second=rate,
            flops_per_second=flops_per_second,
            utilisation=flops_per_second / peak if flops_per_second else None,
            core_days=units.core_days(own_seconds, devices=self.context.devices),
            final_train_loss=loss,
            smaller_batches=smaller_batches,
        )

    def _since_the_last(self, progress: Progress) -> dict[str, float]:
        """Seconds of saving and waiting that no earlier horizon counts. (Seconds before a change of ranks are
        stretched, so that the difference may fall below zero.)"""
        return {
            part: max(0.0, progress.seconds[part] - sum(getattr(row.seconds, part) or 0.0 for row in progress.rows))
            for part in ("save", "wait")
        }

    def _own_seconds(self, progress: Progress) -> float:
        """Training time of this horizon as if trained alone: the trunk up to the branch, and the branch."""
        segments = schedule.segments(self.cell.recipe, self.cell.horizons)
        total = progress.current_seconds
        for index in range(progress.segment - 1, -1, -1):
            if segments[index].is_branch:
                if self.cell.recipe.schedule == "separate":
                    break
                continue
            total += progress.segment_seconds[index]
        return total

    def result(self, trainer: Trainer, *, status: Status, reason: str | None) -> Result:
        """Everything that was found, at the end."""
        cell, progress, step = self.cell, trainer.progress, trainer.train_step
        points = trainer.curve.points()
        seconds = Seconds(**progress.seconds)
        return Result(
            status=status,
            reason=reason,
            model=model_facts(cell.model, self.cost),
            data=data_facts(cell, self.train, self.val),
            horizons=tuple(progress.rows),
            curve=LearningCurve(
                images=tuple(point["images"] for point in points),
                losses=tuple(point["loss"] for point in points),
                horizons=tuple(point["horizon"] for point in points),
            )
            if points
            else None,
            execution=execution(
                self.context,
                dtype=self.dtype,
                evaluation_dtype=self.evaluation_dtype,
                sharding=cell.recipe.sharding if self.ranks.size > 1 else None,
                compile_mode=step.how_compiled if step else None,
                attention_kernels=step.attention_kernels() if step else (),
                micro_batches=tuple(MicroBatch(**found) for found in progress.micro_batches),
            ),
            cost=cost_facts(
                self.context,
                seconds=seconds,
                busy=progress.seconds["train"],
                peak=self.peak,
                spent_images=progress.work * cell.recipe.batch,
                per_image=self.per_image,
                image_wait=progress.image_wait_seconds,
            ),
        )
