"""The training loop of pre-training and fine-tuning: it runs the segments of a training step by step and yields events.

A segment is a part of the trunk, which budgets (horizons) share, or a branch, the cool-down to one budget. Training can
stop after any step and continue from there with the same results, bit for bit.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.core.clock import running
from bench.core.device import synchronise
from bench.core.errors import Interrupted, UserError
from bench.core.events import Advanced
from bench.core.seeds import stream
from bench.cost.trace import label
from bench.store import checkpoints, faults
from bench.store.checkpoints import Checkpoint
from bench.store.records import build
from bench.study.cell import Recipe, to_json
from bench.study.record import Horizon, MicroBatch, Seconds
from bench.train import schedule
from bench.train.batches import Batches
from bench.train.early_stopping import ACCURACY, PREFIX, Best
from bench.train.events import CheckDue, CheckpointSaved, Event, HorizonReached, Stepped
from bench.train.ranks import ONE_RANK, Ranks
from bench.train.schedule import Segment
from bench.train.step import Step
from bench.train.update import KINDS, TENSOR, Ema, set_aside

CHECK_EVERY = 50  # steps between checks of the loss, each of which waits for the device
MAX_POINTS = 200  # points of a learning curve at most
MAX_SAVING_SHARE = 0.03  # fraction of the time that may go into checkpoints, where one takes long
Evaluated = Horizon | Future[Horizon]


class Diverged(Exception):
    """Raised when the loss or a weight is no longer finite; the message names the steps in which that happened."""


NO_TIME = Seconds(train=0.0, evaluate=0.0, save=0.0, wait=0.0)


@dataclass
class TrainingProgress:
    """The progress of a training run, as saved in its checkpoints.

    Attributes:
        segment: index of the current segment: a part of the shared trunk, or the cool-down to a budget.
        step: position in that segment, as the number of steps since the start of training.
        work: steps done so far in all segments together; it only grows.
        rows: results at the budgets (horizons) reached so far.
        seconds: wall-clock seconds by purpose.
        segment_seconds: seconds of training in each finished segment.
        current_seconds: seconds of training in the current segment.
        image_wait_seconds: the part of the training time that was spent waiting for images.
        micro_batches: the steps at which memory ran out, and the micro-batch from then on.
    """

    segment: int = 0
    step: int = 0
    work: int = 0
    rows: list[Horizon] = field(default_factory=list)
    seconds: Seconds = NO_TIME
    segment_seconds: list[float] = field(default_factory=list)
    current_seconds: float = 0.0
    image_wait_seconds: float = 0.0
    micro_batches: list[MicroBatch] = field(default_factory=list)

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> TrainingProgress:
        """Return the progress from a checkpoint's JSON state. Fields that an older version of the project did not write
        keep their defaults."""
        values = {entry.name: state[entry.name] for entry in fields(cls) if entry.name in state}
        return cls(
            **values
            | {
                "rows": [build(Horizon, row) for row in state["rows"]],
                "seconds": Seconds(**state["seconds"]),
                "micro_batches": [MicroBatch(**each) for each in state.get("micro_batches", ())],
            }
        )

    def spend(self, purpose: str, seconds: float) -> None:
        """Add seconds to the time of a purpose: "train", "evaluate", "save" or "wait"."""
        self.seconds = replace(self.seconds, **{purpose: getattr(self.seconds, purpose) + seconds})

    def scale_seconds(self, factor: float) -> None:
        """Multiply all times by a factor, so that devices × seconds stays the same when the number of ranks changes."""
        self.seconds = Seconds(**{purpose: spent * factor for purpose, spent in to_json(self.seconds).items()})
        self.segment_seconds = [seconds * factor for seconds in self.segment_seconds]
        self.current_seconds *= factor
        self.image_wait_seconds *= factor

    def horizon_seconds(self, segments: tuple[Segment, ...]) -> float:
        """Return the training seconds that the current budget would have taken if it had been trained alone: those of
        its cool-down, and of the shared trunk before it.

        Args:
            segments: the segments of the training.
        """
        total, at = self.current_seconds, segments[self.segment]
        for segment, seconds in zip(segments[: self.segment][::-1], self.segment_seconds[::-1], strict=True):
            if at.origin == "init":
                break
            if not segment.is_branch:
                total, at = total + seconds, segment
        return total


class LossCurve:
    """The learning curve of a cell (training run): the mean loss of the steps between points that are fixed in advance,
    at most about MAX_POINTS.

    Points lie at fixed steps of each segment and at its end, however often the run was stopped and continued. Losses
    stay on their device until `read`, which waits for the device.

    Args:
        segments: the parts of the training: of the shared trunk, and the cool-down to each budget.
        batch: images per step.
    """

    def __init__(self, segments: Sequence[Segment], *, batch: int) -> None:
        self.batch, self.segments = batch, segments
        steps = sum(s.end - s.start for s in segments)
        self.every = max(1, math.ceil(steps / max(1, MAX_POINTS - len(segments))))
        lengths = [math.ceil((s.end - s.start) / self.every) for s in segments]
        self.first = [sum(lengths[:n]) for n in range(len(lengths))]
        self.sums, self.counts = [0.0] * sum(lengths), [0] * sum(lengths)
        self._unread: list[tuple[int, Tensor]] = []  # (point, loss)

    def add(self, loss: Tensor, *, segment: int, step: int) -> None:
        """Add the loss of one step, without waiting for the device.

        Args:
            loss: mean loss of the batch, a scalar.
            segment: index of the segment.
            step: number of the step, counted from the start of training.
        """
        point = self.first[segment] + (step - self.segments[segment].start) // self.every
        self._unread.append((point, loss))
        self.counts[point] += 1

    def read(self) -> None:
        """Copy the losses that were added since the last call from the device, and add them to the sums of their
        points."""
        losses = torch.stack([loss for _, loss in self._unread]).tolist() if self._unread else []
        for (point, _), loss in zip(self._unread, losses, strict=True):
            self.sums[point] += loss
        self._unread.clear()

    def state(self) -> Tensor:
        """Return the sum and the number of the losses of each point, as one float64 tensor (2, points), for a
        checkpoint."""
        self.read()
        return torch.tensor([self.sums, self.counts], dtype=torch.float64)

    def restore(self, state: Tensor) -> None:
        """Restore the sums and numbers that `state()` returned."""
        self._unread.clear()
        self.sums, self.counts = state[0].tolist(), [int(count) for count in state[1]]

    def points(self, *, final: bool = False) -> list[dict[str, Any]]:
        """Return one {"images", "loss", "horizon"} per point that was reached, in the order of training.

        `images` counts from the start of training; `horizon` is the budget in images that only this part of the
        training serves, None on a shared trunk. The first loss that is not finite ends the list.

        Args:
            final: leave out points that further steps would still change.
        """
        points: list[dict[str, Any]] = []
        self.read()
        for segment, horizon, first in zip(self.segments, self._horizons(), self.first, strict=True):
            steps = segment.end - segment.start
            for index in range(math.ceil(steps / self.every)):
                count = self.counts[first + index]
                if not count or (final and count < min(self.every, steps - index * self.every)):
                    continue
                if not math.isfinite(self.sums[first + index]):
                    return points
                images = (segment.start + index * self.every + count) * self.batch
                points.append({"images": images, "loss": self.sums[first + index] / count, "horizon": horizon})
        return points

    def _horizons(self) -> list[int | None]:
        """Return for each segment the budget in images that it serves; None for a part of a shared trunk. If every
        budget is trained from the start, all segments of that training serve it."""
        shared = sum(s.origin == "init" for s in self.segments) == 1
        owners = [next((b.horizon for b in self.segments[n:] if b.is_branch), None) for n in range(len(self.segments))]
        return [s.horizon if shared else owner for s, owner in zip(self.segments, owners, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Where and how often checkpoints are written.

    Attributes:
        folder: folder of the checkpoints.
        content: hash of the training images; training that began on other images is not continued.
        every: least number of seconds between checkpoints.
        check_lease: called before a checkpoint is renamed into place; it raises if another worker has taken over the
            cell.
    """

    folder: Path
    content: str = ""
    every: float = 20.0
    check_lease: Callable[[], None] = lambda: None


class Trainer:
    """Trains one model through the segments of its schedule.

    Args:
        model: a model on its device.
        batches: step -> batch; None if nothing is trained.
        recipe, horizons, seed: those of the cell (training run); horizons are its budgets in images.
        initialise: sets the model's initial weights, a pure function of the seed; None if the model has them already.
        should_stop: called after every step; if it returns True, the trainer saves and raises `Interrupted`.
        log: writes one line to the attempt's log.
        saving: where checkpoints go; None writes none, so that a stopped run starts over.
        ranks: the processes that train together: each has a Trainer, and rank 0 writes.
        purpose: words that random streams are derived from, in addition to the seed.
        targets_SK: for images with several labels; see `bench.train.step.make_loss`.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        batches: Batches | None,
        recipe: Recipe,
        horizons: tuple[int, ...],
        seed: int,
        device: str,
        initialise: Callable[[], None] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        log: Callable[[str], None] = lambda _: None,
        saving: Checkpoints | None = None,
        ranks: Ranks = ONE_RANK,
        purpose: tuple[str, ...] = (),
        targets_SK: torch.Tensor | None = None,
    ) -> None:
        self.model, self.batches, self.recipe, self.seed, self.device = model, batches, recipe, seed, device
        self.horizons, self.saving, self.ranks, self.purpose = horizons, saving, ranks, purpose
        self.initialise, self.should_stop, self.log = initialise, should_stop, log
        self.save_interval = saving.every if saving else math.inf  # seconds; grows where checkpoints take long
        self.segments = schedule.segments(recipe, horizons)
        self.warmup = schedule.warmup_steps(recipe)
        self.total_work = sum(s.end - s.start for s in self.segments)
        self.ema = Ema(model, recipe.average)
        self.best = Best(model, recipe.stopping_checks) if recipe.stopping_checks else None
        self.train_step: Step | None = None
        if self.segments:
            about: dict[str, Any] = {"device": device, "ranks": ranks, "average": self.ema, "targets_SK": targets_SK}
            self.train_step = Step(model=model, recipe=recipe, **about)
        self.optimizer = self.train_step.optimizer if self.train_step else None
        self.optimizer_state = self.train_step.rule.state if self.train_step else None
        self.curve = LossCurve(self.segments, batch=recipe.batch)
        self.progress = TrainingProgress()
        self.trunk: dict[str, torch.Tensor] | None = None  # the trunk's state while a branch is trained
        self.losses: list[torch.Tensor] = []
        self._pending: Future[Horizon] | None = None  # results of the last horizon; nothing is saved before they arrive
        self._last_save = self._mark = running()
        self._waited = 0.0  # seconds of waiting for images that are counted already
        self._seen_loss: float | None = None
        self._compiled = self.train_step is None or not (self.train_step.compiles or self.train_step.run_as.obstacle)

    # -- state ---------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, torch.Tensor]:
        """Return every tensor that training changes, by its name in a checkpoint, such as "model.WEIGHT" or
        "average.WEIGHT". Numbers that the optimizer keeps are among them, as tensors."""
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        if self.optimizer_state is None:
            return tensors
        tensors |= self.optimizer_state.tensors(self.model.named_parameters())
        tensors |= {f"average.{name}": value for name, value in self.ema.mean.items()}
        return tensors | (self.best.state() if self.best else {})

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Set model, optimizer, average and best weights to exactly what `state()` returned."""
        parts = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
        own = self.model.state_dict()
        self.model.load_state_dict({name: self.ranks.shard(value, like=own[name]) for name, value in parts.items()})
        if self.optimizer_state is None:
            return
        parameters = dict(self.model.named_parameters())
        shards = {full: value for full, value in tensors.items() if full.partition(".")[0] in KINDS}
        for full in (full for full in shards if full.startswith(f"{TENSOR}.")):
            shards[full] = self.ranks.shard(shards[full], like=parameters[full.split(".", 2)[2]])
        self.optimizer_state.restore(shards, parameters)
        mean = {k.removeprefix("average."): v for k, v in tensors.items() if k.startswith("average.")}
        self.ema.restore({name: self.ranks.shard(value, like=parameters[name]) for name, value in mean.items()})
        if self.best is not None:
            kept_best = {k.removeprefix(PREFIX): v for k, v in tensors.items() if k.startswith(PREFIX)}
            best = {name: self.ranks.shard(value, like=own[name]) for name, value in kept_best.items()}
            self.best.restore(best, tensors.get(ACCURACY))

    def save(self) -> None:
        """Write a checkpoint of everything that is needed to continue; if `saving` is None, nothing is written."""
        self.wait_for_row()
        if self.saving is None:
            return
        started = running()
        tensors = {f"live/{k}": v for k, v in self.state().items()}
        tensors |= {f"trunk/{k}": v for k, v in (self.trunk or {}).items()}
        if self.losses:
            tensors["losses"] = torch.stack(self.losses)
        tensors["curve"] = self.curve.state()
        p = self.progress
        whose = {"ranks": self.ranks.size, "content": self.saving.content, "cell": self.saving.folder.parent.name}
        state = to_json(p) | whose | {"total_work": self.total_work, "curve": self.curve.points(final=True)}
        whole = Checkpoint(step=p.work, tensors=self.ranks.gather(tensors), state=state)
        saving = self.saving
        self.ranks.run_on_rank0(lambda: checkpoints.save(saving.folder, whole, check_lease=saving.check_lease))
        self._last_save = running()
        seconds = self._last_save - started
        p.spend("save", seconds)
        self.save_interval = max(self.saving.every, seconds / MAX_SAVING_SHARE)

    def resume(self) -> bool:
        """Restore the newest undamaged checkpoint. Return whether there was one.

        Raises:
            UserError: the checkpoint belongs to other images or to another cell.
        """
        saved = self._newest()
        if saved is None:
            return False
        self.progress = self._continued(saved.state)
        if (ranks := saved.state.get("ranks", 1)) != self.ranks.size:  # scaled so that devices × seconds stays the same
            self.progress.scale_seconds(ranks / self.ranks.size)
            self.log(f"{self.ranks.size} rank(s) continue what {ranks} began")
        self.restore({k.removeprefix("live/"): v for k, v in saved.tensors.items() if k.startswith("live/")})
        trunk = {k.removeprefix("trunk/"): v for k, v in saved.tensors.items() if k.startswith("trunk/")}
        self.trunk = trunk or None
        self.losses = list(saved.tensors["losses"].to(self.device)) if "losses" in saved.tensors else []
        if "curve" in saved.tensors:
            self.curve.restore(saved.tensors["curve"])
        if self.train_step and self.progress.micro_batches:
            self.train_step.micro_batch = self.progress.micro_batches[-1].images
        self.log(f"continuing after {self.progress.work} of {self.total_work} steps")
        return True

    def _newest(self) -> Checkpoint | None:
        """Return the newest undamaged checkpoint; None if there is none. Rank 0 finds it, and all ranks read it."""
        if self.saving is None:
            return None
        folder = self.saving.folder
        newest: list[Checkpoint | None] = []

        def look() -> int | None:
            checkpoint, messages = checkpoints.load_newest(folder)
            for message in messages:
                self.log(message)
            newest.append(checkpoint)
            return checkpoint.step if checkpoint else None

        step = self.ranks.run_on_rank0(look)
        if step is None or newest:
            return newest[0] if newest else None
        return checkpoints.load(folder, step)

    def _continued(self, state: Mapping[str, Any]) -> TrainingProgress:
        """Return the progress from the JSON state of a checkpoint.

        Raises:
            UserError: the checkpoint belongs to another cell or to other images.
        """
        assert self.saving is not None
        folder, content = self.saving.folder, self.saving.content
        if (cell := state.get("cell", folder.parent.name)) != folder.parent.name:
            raise UserError(
                f"The checkpoints in {folder} are of another run, {cell}.",
                "Put them back; or delete that folder, and the training begins anew.",
            )
        if state.get("content", content) != content:
            raise UserError(
                f"The training in {folder} was begun on other images under the same name.",
                "Give the same --data-root as then; or delete that folder, and it begins anew.",
            )
        return TrainingProgress.from_json(state)

    # -- work ----------------------------------------------------------------------------------------------------

    def run(self) -> Iterator[Event]:
        """Train all segments, and yield events. On `HorizonReached` (a budget is reached) the caller evaluates the
        model and calls `keep`; without that call the budget is recorded without scores.

        Raises:
            Interrupted: a signal arrived; everything has been saved.
            Diverged: the loss or a weight is no longer finite.
        """
        if self.horizons[0] == 0 and not self.progress.rows:
            yield from self._reach(0)
        while self.progress.segment < len(self.segments):
            segment = self.segments[self.progress.segment]
            self._enter(segment)
            yield from self._run_segment(segment)
            if segment.horizon is not None:
                self._check_weights()
                yield from self._reach(segment.horizon)
            self._leave(segment)
        if self._pending is not None:
            yield from self._save()

    def judged_weights(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager in which the model has the weights that are evaluated: with early stopping the best
        ones, with averaging the averaged ones, otherwise its own."""
        return self.ema.applied() if self.best is None else self.best.applied()

    @contextlib.contextmanager
    def checking(self) -> Iterator[None]:
        """Count the time of the `with` block, in which the caller measures accuracy for early stopping, as evaluation,
        and return the model to training mode afterwards. The weights stay as they are."""
        started = running()
        with label("evaluate"):
            yield
        self.model.train()
        self.progress.spend("evaluate", running() - started)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Inside the `with` block the model has the weights that are evaluated (`judged_weights`). The time of the
        block counts as evaluation.

        A long task also looks for signals; the `Interrupted` that it raises then is passed on after a checkpoint is
        written.
        """
        started = running()
        try:
            with label("evaluate"), self.judged_weights():
                yield
        except Interrupted:
            self.save()
            raise
        self.progress.spend("evaluate", running() - started)

    def keep(self, row: Evaluated) -> None:
        """Keep the results at the budget that was reached.

        Args:
            row: the results, or a future of results whose computation needs neither the model nor the device any more;
                training then goes on meanwhile.
        """
        if isinstance(row, Future):
            self._pending = row
            return
        self.progress.rows.append(row)
        faults.reach("after-evaluation")

    def wait_for_row(self) -> None:
        """If the results at the last budget are still being computed, wait for them, and keep them."""
        if self._pending is None:
            return
        started = running()
        row, self._pending = self._pending.result(), None
        self.progress.spend("evaluate", running() - started)
        self.keep(row)

    def _enter(self, segment: Segment) -> None:
        p = self.progress
        if p.step > segment.start or (p.step == segment.start and segment.is_branch and self.trunk is not None):
            return  # training was resumed in the middle of this segment
        if segment.origin == "init":
            if self.initialise is not None:
                self.initialise()
            if self.optimizer_state is not None:
                self.optimizer_state.clear()
            self.ema.restore({})
            if self.best is not None:
                self.best.forget()
        if segment.is_branch and p.segment + 1 < len(self.segments) and schedule.shares_trunk(self.recipe):
            self.trunk = {k: set_aside(v) for k, v in self.state().items()}
        p.step = segment.start

    def _leave(self, segment: Segment) -> None:
        p = self.progress
        if segment.is_branch and self.trunk is not None:
            self.restore(self.trunk)
            self.trunk = None
        p.segment_seconds.append(p.current_seconds)
        p.current_seconds = 0.0
        p.segment += 1
        if p.segment < len(self.segments):
            p.step = self.segments[p.segment].start
            self.losses = [] if segment.is_branch else self.losses

    def _run_segment(self, segment: Segment) -> Iterator[Event]:
        p = self.progress
        self.model.train()
        self._compile(segment)
        self._mark, self._waited = running(), self.batches.waited if self.batches else 0.0
        while p.step < segment.end:
            faults.reach("training-step")
            self.step(segment)
            yield Stepped(self.losses[-1])
            p.step += 1
            p.work += 1
            look = p.work % CHECK_EVERY == 0 or p.step == segment.end
            if look:
                self._count_time()  # before an error is raised, because a diverged training took time too
                self._check_loss(segment)
            if self.best is not None and self.best.due(p.step, end=self._end()):
                self._count_time()
                yield CheckDue()
                self._mark = running()
            due = running() - self._last_save > self.save_interval
            if self._pending is not None:  # save when its results have arrived, and not before
                due = self._pending.done()
            stop, due = self.ranks.agree(stop=self.should_stop(), save=due)
            if look or due or stop:
                self._count_time()
                yield self._advanced("training")
                if due or stop:
                    yield from self._save()
                if stop:
                    kept = "saved" if self.saving else "stopped, with nothing saved,"
                    raise Interrupted(f"{kept} at step {p.work} of {self.total_work}")
                self._mark = running()

    def _end(self) -> int:
        """Return the number of steps, from the start of training, after which the current budget is reached."""
        return next(segment.end for segment in self.segments[self.progress.segment :] if segment.is_branch)

    def _count_time(self) -> None:
        """Wait for the device, and add the time since the last call to the training time."""
        synchronise(self.device)
        now = running()
        self.progress.spend("train", now - self._mark)
        self.progress.current_seconds += now - self._mark
        self._mark = now
        if self.batches is not None:
            self.progress.image_wait_seconds += self.batches.waited - self._waited
            self._waited = self.batches.waited

    def _compile(self, segment: Segment) -> None:
        """Compile the network, if its step is to be compiled, before the first step, so that compilation does not count
        as training time.

        Args:
            segment: the current segment.
        """
        p, train_step = self.progress, self.train_step
        if self._compiled or train_step is None or self.batches is None or p.step == segment.end:
            return
        from bench.train.rehearsal import rehearse

        self.log("compiling")
        started, fitted = running(), train_step.micro_batch
        rehearse(train_step, *self.batches(p.step))
        synchronise(self.device)
        self._compiled = True
        if train_step.run_as.how != train_step.run_as.mode:
            self.log(f"compiled otherwise than asked: {train_step.run_as.how}")
        p.spend("wait", running() - started)
        if train_step.micro_batch != fitted:
            self._note_micro_batch(train_step.micro_batch)

    def step(self, segment: Segment | None = None) -> None:
        """Do one optimizer step at the current position, in `segment` (by default the current one)."""
        segment = segment or self.segments[self.progress.segment]
        assert self.train_step is not None and self.batches is not None
        step = self.progress.step
        with label("data"):
            x_BCHW, labels_B = self.batches(step)
        lr = schedule.learning_rate(self.recipe, step=step, warmup=self.warmup, segment=segment)
        fitted = self.train_step.micro_batch
        loss = self.train_step(x_BCHW, labels_B, lr=lr, seed=stream(self.seed, *self.purpose, "dropout", step))
        self.curve.add(loss, segment=self.progress.segment, step=step)
        if self.train_step.micro_batch != fitted:
            self._note_micro_batch(self.train_step.micro_batch)
        self.losses.append(loss)
        del self.losses[:-CHECK_EVERY]

    def _note_micro_batch(self, images: int) -> None:
        self.progress.micro_batches.append(MicroBatch(work=self.progress.work, images=images))
        self.log(f"out of memory at step {self.progress.work}: going on with {images} of {self.recipe.batch} at a time")

    def _check_loss(self, segment: Segment) -> None:
        self._seen_loss = torch.stack(self.losses).mean().item()
        self.curve.read()
        if not math.isfinite(self._seen_loss):
            end = self.progress.step
            first = max(segment.start, end - CHECK_EVERY)
            raise Diverged(f"the loss was not finite between steps {first} and {end} of {self.segments[-1].end}")

    @torch.no_grad()
    def _check_weights(self) -> None:
        """Raise Diverged if a weight is not finite. The check of the loss does not notice this after the last step,
        whose loss was computed before its update."""
        own = [p.to_local() if hasattr(p, "to_local") else p for p in self.model.parameters()]
        finite = torch.stack([p.isfinite().all() for p in own if p.numel()]).all()
        if self.ranks.mean(finite.float()).item() < 1.0:
            raise Diverged(f"a weight was not finite after step {self.progress.step} of {self.segments[-1].end}")

    def _reach(self, horizon: int) -> Iterator[Event]:
        """Yield `HorizonReached` so that the caller evaluates the model, and then save the results in a checkpoint, so
        that a killed run does not repeat the evaluation.

        Results that are still being computed are saved when they arrive; a run that is killed before computes them
        again.

        Args:
            horizon: the budget in images.
        """
        self.wait_for_row()
        p = self.progress
        if any(row.images_seen == horizon for row in p.rows):
            return
        loss = torch.stack(self.losses).mean().item() if horizon and self.losses else None
        yield self._advanced("evaluating")
        yield HorizonReached(images_seen=horizon, loss=loss)
        if self._pending is not None:
            return
        if not any(row.images_seen == horizon for row in p.rows):
            self.keep(Horizon(images_seen=horizon))
        yield from self._save()

    def _save(self) -> Iterator[CheckpointSaved]:
        self.save()
        if self.saving is not None:
            yield CheckpointSaved(work=self.progress.work)

    def _advanced(self, phase: str) -> Advanced:
        p = self.progress
        return Advanced(
            done=p.work,
            total=self.total_work,
            phase=phase,
            loss=self._seen_loss,
            seconds=p.seconds.train,
            horizons=len(p.rows),
        )
