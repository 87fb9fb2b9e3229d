"""The job `train`: pre-trains a cell's model and evaluates it at every horizon (budget)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from bench.core.clock import running
from bench.core.device import InBatches, is_out_of_memory, release
from bench.core.errors import UserError
from bench.core.events import Advanced
from bench.core.seeds import stream
from bench.cost import flops, memory, peaks
from bench.cost.flops import ModelCost
from bench.cost.trace import ACTIVE, WAIT, WARM_UP, Trace, label
from bench.data.image_set import ImageSet
from bench.data.load import load, load_held_out
from bench.execute.jobs._costs import TrainingCosts
from bench.execute.jobs.job import Job, JobContext, data_facts, execution, model_facts
from bench.store import weights
from bench.store.study import WEIGHTS
from bench.study import registry
from bench.study.cell import Cell
from bench.study.record import Horizon, LearningCurve, Result, Score, Status
from bench.tasks._features import Kept, extractor, frozen, top1, top1_and_loss
from bench.tasks.task import Task, TaskContext, Unsuited, judged
from bench.train import inference, precision
from bench.train.batches import Batches
from bench.train.events import CheckDue, HorizonReached, Stepped
from bench.train.step import set_head_bias
from bench.train.trainer import Checkpoints, Diverged, Evaluated, Trainer

if TYPE_CHECKING:
    from bench.tasks._finetuner import FineTuner

TRACED_IMAGES = 256  # images that are evaluated after each step of a trace
Scores = list[Score] | Callable[[], list[Score]]


def run(cell: Cell, context: JobContext) -> Result:
    """Train and evaluate one cell, from its newest checkpoint on if there is one. Return the result.

    Raises:
        Interrupted: a signal asked for a stop; everything is saved.
        UserError: the data are missing, the model does not fit the images, the disk is full.
    """
    started = running()
    release(context.device)  # memory of the cell before
    memory.reset_peak(context.device)
    precision.set_up(threads=context.threads)
    ranks = context.ranks
    if ranks.size > 1:  # images are decoded once on each machine
        ranks.run_on_all(lambda: _open_data(cell, context) if ranks.is_first_here else None)
    job = ranks.run_on_all(lambda: TrainJob(cell, context))
    content = ranks.run_on_rank0(lambda: job.train.content_hash)
    ranks.run_on_all(lambda: _check_content(cell, job.train, content))
    waited = running() - started
    with _trace(context) as trace:
        trainer = job.trainer()
        trainer.resume()
        trainer.progress.spend("wait", waited)
        return _run(job, trainer, trace)


def _trace(context: JobContext) -> contextlib.AbstractContextManager[Trace]:
    if not context.profile:
        return contextlib.nullcontext(Trace())
    from bench.cost.profiler import profile

    return profile(context.attempt / "trace", device=context.device)


def _open_data(cell: Cell, context: JobContext) -> tuple[ImageSet, ImageSet]:
    """Return (training images, test images) of the upstream set. If the cell holds out a part of the training images,
    that part takes the place of the test images."""
    if cell.held_out:
        return load_held_out(cell.data, root=context.data_root, num_images=cell.num_images)
    train = load(cell.data, "train", root=context.data_root, num_images=cell.num_images)
    return train, load(cell.data, "test", root=context.data_root)


def _check_content(cell: Cell, images: ImageSet, content: str) -> None:
    """Raise UserError if the images on this rank's machine differ from those of rank 0, which have the hash
    `content`."""
    if images.content_hash != content:
        raise UserError(
            f"The images of {cell.data} here are others than those of rank 0.",
            "Give all machines the same data: equal files, and the same --data-root.",
        )


def _run(job: TrainJob, trainer: Trainer, trace: Trace) -> Result:
    """Train, evaluate every horizon, and return the result. Diverging and running out of memory are possible
    results."""
    status: Status = "complete"
    reason = None
    try:
        for event in trainer.run():
            match event:
                case Stepped():
                    job.trace_step(trace)
                case Advanced():
                    job.context.progress(event)
                case CheckDue() if trainer.best is not None:
                    with trainer.checking():
                        trainer.best.offer(job.upstream_accuracy())
                case HorizonReached():
                    with trainer.evaluating():
                        row = job.evaluate_horizon(event, trainer)
                    trainer.keep(row)
        with trainer.judged_weights():
            job.keep_weights()
    except Diverged as error:
        status, reason = "diverged", str(error)
    except (RuntimeError, MemoryError) as error:
        if job.ranks.size > 1 or not is_out_of_memory(error):
            raise
        status, reason = "oom", (str(error) or "out of memory").splitlines()[0]
    trainer.wait_for_row()
    return job.result(trainer, status=status, reason=reason)


class TrainJob:
    """One training run of this job: its data, model and costs, and the evaluation of its horizons (budgets)."""

    def __init__(self, cell: Cell, context: JobContext) -> None:
        self.cell, self.context, self.ranks = cell, context, context.ranks
        self.train, self.val = _open_data(cell, context)
        sizes: dict[str, Any] = {
            "image_size": cell.image_size,
            "channels": cell.channels,
            "num_classes": self.train.num_classes,
        }
        self.cost: ModelCost = flops.count(cell.model, **sizes, model_options=cell.model_options, activations=False)
        self._sizes = sizes
        self.model = self._fresh_model().to(context.device)
        self.ranks.check_model(self.model)
        self.trained = self.model  # the module that steps change, which is not `model` if weights are sharded
        self.dtype = precision.resolve(cell.recipe.dtype, context.device, self.model)
        self.evaluation_dtype = inference.resolve(cell.recipe.evaluation_dtype, context.device, self.model)
        self.costs = TrainingCosts(
            context=context,
            recipe=cell.recipe,
            cost=self.cost,
            peak=peaks.peak(self.dtype, device=context.device, threads=context.threads),
            num_images=len(self.train),
        )
        self.batches = InBatches(device=context.device)  # batches of evaluation
        self.rank_messages: list[str] = []  # log lines of this rank about a horizon, if it has no log
        self._steps_to_trace = WAIT + WARM_UP + ACTIVE if context.profile else 0

    @property
    def fit(self) -> tuple[int, int] | None:
        """(image_size, channels) that images are converted to as they are read; None if they are stored in this
        form."""
        shape, cell = self.train.images_NHWC.shape[1:], self.cell
        return None if shape == (cell.image_size, cell.image_size, cell.channels) else (cell.image_size, cell.channels)

    @property
    def trains(self) -> bool:
        return self.cell.horizons != (0,)

    def _fresh_model(self) -> nn.Module:
        """Build the model with its initial weights, which are drawn from a random stream that depends on the cell's
        seed alone."""
        torch.manual_seed(stream(self.cell.seed, "init"))
        model = registry.build_model(self.cell.model, **self._sizes, **dict(self.cell.model_options))
        set_head_bias(model, self.cell.recipe, self.train.num_classes)
        return model

    def initialise(self) -> None:
        """Set the weights of the trained model to their initial values."""
        own, fresh = self.trained.state_dict(), self._fresh_model().state_dict()
        self.trained.load_state_dict({name: self.ranks.shard(value, like=own[name]) for name, value in fresh.items()})

    def trainer(self) -> Trainer:
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
            initialise=self.initialise,
            should_stop=context.should_stop,
            log=context.log,
            saving=Checkpoints(
                folder=context.directory.checkpoints,
                content=self.train.content_hash,
                check_lease=context.check_lease,
            ),
            ranks=self.ranks,
        )

    def trace_step(self, trace: Trace) -> None:
        """End one step of the trace. After each traced step a batch is evaluated, so that the trace shows an
        evaluation, too."""
        if self._steps_to_trace > 0:
            self._steps_to_trace -= 1
            sample = self.val.take(np.arange(min(TRACED_IMAGES, len(self.val))))
            self.model.eval()
            with label("evaluate"):
                top1(self.model, sample, device=self.context.device, fit=self.fit)
            self.model.train()
        trace.step()

    # -- evaluation ------------------------------------------------------------------------------------------------

    @property
    def probes_in_background(self) -> bool:
        """Whether probes are solved in the background on the processor. They are if training goes on elsewhere
        meanwhile."""
        return self.context.device != "cpu" and self.ranks.size == 1

    @cached_property
    def _probe_pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, thread_name_prefix="probes")

    def evaluate_horizon(self, reached: HorizonReached, trainer: Trainer) -> Evaluated:
        """Evaluate the model at one horizon, and return its costs and scores; if probes are solved in the background, a
        future of these. Each rank computes some of the scores."""
        self._gather_weights(everywhere=True)
        started = running()

        def evaluate() -> tuple[dict[int, Scores], dict[str, int], list[str]]:
            self.rank_messages = []
            scores = self.scores()
            if self.trained is not self.model:
                self.model.cpu()  # the shards need the device's memory
            return scores, self._smaller_batches(), self.rank_messages

        by_part: dict[int, Scores] = {}
        smaller: dict[str, int] = {}
        for rank, (scores, batches, messages) in enumerate(self.ranks.exchange(self.ranks.run_on_all(evaluate))):
            by_part |= scores
            for text in messages:
                self.context.log(f"rank {rank}: {text}")
            smaller |= {kind: min(images, smaller.get(kind, images)) for kind, images in batches.items()}
        row = self.costs.of_horizon(
            reached, trainer.progress, trainer.segments, evaluate_seconds=running() - started, smaller_batches=smaller
        )
        in_order = [part for _, part in sorted(by_part.items())]

        def scored() -> Horizon:
            parts = (part() if callable(part) else part for part in in_order)
            return replace(row, scores=tuple(score for part in parts for score in part))

        return self._probe_pool.submit(scored) if any(map(callable, in_order)) else scored()

    def _log(self, text: str) -> None:
        """Write a line to the log. Only rank 0 has a log; lines of other ranks are added to it once the horizon has
        been evaluated."""
        if self.ranks.is_rank0:
            self.context.log(text)
        else:
            self.rank_messages.append(text)

    def _gather_weights(self, *, everywhere: bool = False) -> None:
        """Copy the weights from the ranks, if they are sharded, to `model`, which evaluation uses: on rank 0, or on
        every rank if `everywhere`."""
        if self.trained is not self.model:
            weights_now = self.ranks.gather(self.trained.state_dict(), everywhere=everywhere)
            if self.ranks.is_rank0 or everywhere:
                self.model.load_state_dict(weights_now)
                self.model.to(self.context.device)

    def _smaller_batches(self) -> dict[str, int]:
        """Return "evaluate" or "finetune" -> images at a time that fitted, if memory ran out in that kind of
        evaluation; empty if it never ran out. Scores do not depend on these numbers, except through the dropout of
        fine-tuning."""
        at_once = self.tuner.micro_batch if "tuner" in vars(self) else None  # None where no task has fine-tuned
        reduced = {"evaluate": self.batches.batch if self.batches.shrunk else None, "finetune": at_once}
        smaller = {kind: images for kind, images in reduced.items() if images is not None}
        for kind, images in smaller.items():
            self._log(f"out of memory in evaluation ({kind}): went on with {images} images at a time")
        return smaller

    def scores(self) -> dict[int, Scores]:
        """Compute this rank's part of the scores. Part 0 is the upstream accuracy with the model's own head, and each
        downstream task is a further part; ranks take the parts by turns. Return number of a part -> its scores, or a
        function that computes the scores later, from features that are already extracted."""
        self.model.eval()
        device, root = self.context.device, self.context.data_root
        sizes = {"image_size": self.cell.image_size, "channels": self.cell.channels}
        network = inference.in_precision(self.model, dtype=self.evaluation_dtype, device=device, batches=self.batches)
        features = extractor(network, **sizes, device=device, batches=self.batches)
        given = not self.trains and any(True for _ in self.model.parameters())
        if given:  # the cell does not train: other cells need the same features
            about = frozen(self.cell.model, device=device, dtype=self.evaluation_dtype, **sizes)
            features = Kept(features, model=self.model, about=about)
        task_context = TaskContext(
            features=features,
            load=lambda name, split: (
                self.train if given and (name, split) == (self.cell.data, "train") else load(name, split, root=root)
            ),
            seed=self.cell.seed,
            model=self.model,
            fine_tune=lambda images, **options: self.tuner(images, **options),
            upstream=self.train,
            data_root=root,
        )
        supervised = not getattr(self.model, "self_supervised", False)
        by_part: dict[int, Scores] = {}
        for number, spec in enumerate((None, *self.cell.tasks)):
            if number % self.ranks.size != self.ranks.rank:
                continue
            if spec is None:
                by_part[number] = [self._upstream_score(network)] if self.trains and supervised else []
                continue
            try:
                task: Task = registry.load("task", spec.task)
                evaluate = (self.probes_in_background and task.begin) or task.evaluate
                by_part[number] = evaluate(task_context, data=spec.data, **spec.kwargs)
            except Unsuited as error:
                by_part[number] = error.missing
                self._log(f"no score of {spec.task}: {error}")
        return by_part

    @cached_property
    def tuner(self) -> FineTuner:
        """The fine-tuner of the model, made when a task first asks for it."""
        from bench.tasks._finetuner import FineTuner

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

    def upstream_accuracy(self) -> float:
        """Return the accuracy, 0 to 1, on the test images of the upstream set (or on held-out training images, if the
        cell uses these instead). Every rank returns the same number."""
        self._gather_weights()

        def read() -> float:
            self.model.eval()
            dtype, device = self.evaluation_dtype, self.context.device
            network = inference.in_precision(self.model, dtype=dtype, device=device, batches=self.batches)
            right_M, _ = top1_and_loss(network, self.val, device=device, batches=self.batches, fit=self.fit)
            return float(right_M.mean())

        return self.ranks.run_on_rank0(read)

    def _upstream_score(self, network: nn.Module) -> Score:
        right_M, loss = top1_and_loss(network, self.val, device=self.context.device, batches=self.batches, fit=self.fit)
        return judged(
            right_M,
            content_hash=self.val.content_hash,
            groups_M=self.val.groups_N,
            task="upstream",
            data=self.cell.data,
            num_test=len(self.val),
            num_classes=self.val.num_classes,
            detail={"loss": loss} if np.isfinite(loss) else {},
        )

    def keep_weights(self) -> None:
        """Write the weights at the last horizon to the attempt's folder, for `vit-bench probe` and later transfer."""
        if not self.trains:
            return
        cell = self.cell
        facts = self._sizes | {"model": cell.model, "data": cell.data_name, "images_seen": cell.horizons[-1]}
        facts["model_options"] = dict(cell.model_options)
        self._gather_weights()
        path = self.context.attempt / WEIGHTS
        self.ranks.run_on_rank0(
            lambda: weights.write(path, self.model.state_dict(), facts, check_lease=self.context.check_lease)
        )

    def result(self, trainer: Trainer, *, status: Status, reason: str | None) -> Result:
        """Return the job's result, with everything that was found until training ended. `reason`: why it ended early;
        None where it did not."""
        cell, progress, step = self.cell, trainer.progress, trainer.train_step
        points = trainer.curve.points()
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
                compile_mode=step.run_as.how if step else None,
                attention_kernels=step.run_as.kernels() if step else (),
                micro_batches=tuple(progress.micro_batches),
            ),
            cost=self.costs.of_cell(progress),
        )


JOB = Job(run=run)
