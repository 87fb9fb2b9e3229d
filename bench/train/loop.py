"""The loop: runs a cell's segments step by step, can stop after any step and continue from there bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bench.core.clock import running
from bench.core.device import synchronise
from bench.core.errors import Interrupted
from bench.core.record import Horizon
from bench.core.seeds import stream
from bench.core.spec import Recipe, to_json
from bench.cost.trace import label
from bench.store import checkpoints, faults
from bench.store.checkpoints import Checkpoint
from bench.train import schedule
from bench.train.average import Average
from bench.train.batches import Batches
from bench.train.curve import Curve
from bench.train.optim import make_optimizer
from bench.train.position import Position, continued
from bench.train.ranks import ONE_RANK, Ranks
from bench.train.schedule import Segment
from bench.train.step import Step

CHECK_EVERY = 50  # steps between looks at the loss: each look waits for the device
SAVING = 0.03  # of the time at most, where a checkpoint takes long: large models, slow disks


class Diverged(Exception):
    """The loss, or a weight, stopped being finite; says between which steps."""


class Trainer:
    """Trains one cell through its segments.

    Args:
        model: on its device. initialise: sets its initial weights, a pure function of the seed.
        batches: step -> batch; None if nothing is trained. recipe, horizons, seed: the cell's.
        evaluate: called with (horizon, mean loss of the last steps) at each horizon; returns the row to keep.
        folder: where checkpoints go. save_every: seconds between them, at least. on_step: called after every step.
        ranks: the processes that train together: each has a Trainer, and the first of them writes.
        content: a hash of the images; what was begun on others is not continued.
        check_lease: called before a checkpoint is put in its place; raises where the cell is no longer ours.
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        initialise: Callable[[], None],
        batches: Batches | None,
        recipe: Recipe,
        horizons: tuple[int, ...],
        seed: int,
        device: str,
        folder: Any,
        evaluate: Callable[[int, float | None, Position], Horizon],
        progress: Callable[[dict[str, Any]], None],
        should_stop: Callable[[], bool],
        log: Callable[[str], None],
        on_step: Callable[[], None] = lambda: None,
        save_every: float = 20.0,
        ranks: Ranks = ONE_RANK,
        content: str = "",
        check_lease: Callable[[], None] = lambda: None,
    ) -> None:
        self.model, self.batches, self.recipe, self.seed, self.device = model, batches, recipe, seed, device
        self.horizons, self.initialise = horizons, initialise
        self.folder, self.evaluate, self.progress = folder, evaluate, progress
        self.should_stop, self.log = should_stop, log
        self.on_step, self.save_every, self.ranks = on_step, save_every, ranks
        self.pause, self.content = save_every, content  # the first: seconds before the next checkpoint
        self.check_lease = check_lease
        self.segments = schedule.segments(recipe, horizons)
        self.warmup = schedule.warmup_steps(recipe, horizons)
        self.total_work = sum(s.end - s.start for s in self.segments)
        self.optimizer = make_optimizer(model, recipe) if self.segments else None
        self.train_step: Step | None = None
        if self.optimizer:
            self.train_step = Step(model=model, optimizer=self.optimizer, recipe=recipe, device=device, ranks=ranks)
        self.average = Average(model, recipe.average)
        self.curve = Curve(self.segments, batch=recipe.batch, device=device)
        self.position = Position()
        self.trunk: dict[str, torch.Tensor] | None = None  # the trunk's state while a branch runs
        self.losses: list[torch.Tensor] = []
        self._last_save = self._mark = running()
        self._seen_loss: float | None = None
        self._compiled = self.train_step is None or not self.train_step.compiles

    # -- state ---------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, torch.Tensor]:
        """Every tensor that training changes, by name."""
        tensors = {f"model.{k}": v for k, v in self.model.state_dict().items()}
        if self.optimizer is None:
            return tensors
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer.{key}.{name}"] = value
        return tensors | {f"average.{name}": value for name, value in self.average.mean.items()}

    def restore(self, tensors: dict[str, torch.Tensor]) -> None:
        """Put `state()` back, exactly."""
        parts = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
        own = self.model.state_dict()
        self.model.load_state_dict({name: self.ranks.shard(value, like=own[name]) for name, value in parts.items()})
        if self.optimizer is None:
            return
        self.optimizer.state.clear()
        parameters = dict(self.model.named_parameters())
        for full, value in tensors.items():
            kind, _, rest = full.partition(".")
            if kind == "optimizer":
                key, _, name = rest.partition(".")
                value = self.ranks.shard(value, like=parameters[name])
                self.optimizer.state[parameters[name]][key] = value.clone().to(self.device)
        mean = {k.removeprefix("average."): v for k, v in tensors.items() if k.startswith("average.")}
        self.average.restore({name: self.ranks.shard(value, like=parameters[name]) for name, value in mean.items()})

    def save(self) -> None:
        """Write a checkpoint of everything needed to continue."""
        started = running()
        tensors = {f"live/{k}": v for k, v in self.state().items()}
        tensors |= {f"trunk/{k}": v for k, v in (self.trunk or {}).items()}
        if self.losses:
            tensors["losses"] = torch.stack(self.losses)
        tensors["curve"] = self.curve.state()
        p = self.position
        whose = {"ranks": self.ranks.size, "content": self.content, "cell": self.folder.parent.name}
        state = to_json(p) | whose | {"total_work": self.total_work}
        whole = Checkpoint(step=p.work, tensors=self.ranks.gather(tensors), state=state)
        self.ranks.run_on_rank0(lambda: checkpoints.save(self.folder, whole, check_lease=self.check_lease))
        self._last_save = running()
        seconds = self._last_save - started
        p.seconds["save"] += seconds
        self.pause = max(self.save_every, seconds / SAVING)

    def resume(self) -> bool:
        """Continue from the newest checkpoint that verifies; False if there is none.

        Raises:
            UserError: it was begun on other images, or is of another cell.
        """
        found = self._newest()
        if found is None:
            return False
        self.position = continued(found.state, folder=self.folder, content=self.content)
        self._count_time_of(found.state.get("ranks", 1))
        self.restore({k.removeprefix("live/"): v for k, v in found.tensors.items() if k.startswith("live/")})
        trunk = {k.removeprefix("trunk/"): v for k, v in found.tensors.items() if k.startswith("trunk/")}
        self.trunk = trunk or None
        self.losses = list(found.tensors["losses"].to(self.device)) if "losses" in found.tensors else []
        if "curve" in found.tensors:
            self.curve.restore(found.tensors["curve"])
        if self.train_step and self.position.micro_batches:
            self.train_step.micro_batch = self.position.micro_batches[-1]["images"]
        self.log(f"continuing from step {self.position.work} of {self.total_work}")
        return True

    def shrink(self, images: int) -> None:
        """Go on with micro-batches of at most so many images: an earlier attempt ran out of memory with more."""
        if self.train_step and images < self.train_step.micro_batch:
            self.train_step.micro_batch = images
            self._note_micro_batch(images)

    def _newest(self) -> Checkpoint | None:
        """The newest checkpoint that verifies: found by the first rank, read by all."""
        found: list[Checkpoint | None] = []

        def look() -> int | None:
            checkpoint, messages = checkpoints.load_newest(self.folder)
            for message in messages:
                self.log(message)
            found.append(checkpoint)
            return checkpoint.step if checkpoint else None

        step = self.ranks.run_on_rank0(look)
        if step is None or found:
            return found[0] if found else None
        return checkpoints.load(self.folder, step)

    def _count_time_of(self, ranks: int) -> None:
        """Put seconds on `ranks` ranks in terms of the ranks of now, so that devices × seconds stays what was spent."""
        if ranks != self.ranks.size:
            self.position.stretch(ranks / self.ranks.size)
            self.log(f"{self.ranks.size} rank(s) continue what {ranks} began")

    # -- work ----------------------------------------------------------------------------------------------------

    def run(self) -> list[Horizon]:
        """Do all segments; returns one row per horizon.

        Raises:
            Interrupted: after a signal, with everything saved.
            Diverged: the loss stopped being finite.
        """
        if self.horizons[0] == 0 and not self.position.rows:
            self._read(0)
        while self.position.segment < len(self.segments):
            segment = self.segments[self.position.segment]
            self._enter(segment)
            self._run_segment(segment)
            if segment.horizon is not None:
                self._read(segment.horizon)
            self._leave(segment)
        return self.position.rows

    def _enter(self, segment: Segment) -> None:
        p = self.position
        if p.step > segment.start or (p.step == segment.start and segment.is_branch and self.trunk is not None):
            return  # in the middle of it, after a resume
        if segment.origin == "init":
            self.initialise()
            if self.optimizer is not None:
                self.optimizer.state.clear()
            self.average.restore({})
        if segment.is_branch and p.segment + 1 < len(self.segments) and self.recipe.schedule == "branch":
            self.trunk = {k: v.clone() for k, v in self.state().items()}
        p.step = segment.start

    def _leave(self, segment: Segment) -> None:
        p = self.position
        if segment.is_branch and self.trunk is not None:
            self.restore(self.trunk)
            self.trunk = None
        p.segment_seconds.append(p.current_seconds)
        p.current_seconds = 0.0
        p.segment += 1
        if p.segment < len(self.segments):
            p.step = self.segments[p.segment].start
            self.losses = [] if segment.is_branch else self.losses

    def _run_segment(self, segment: Segment) -> None:
        p = self.position
        self.model.train()
        self._compile(segment)
        self._mark = running()
        while p.step < segment.end:
            faults.reach("training-step")
            self.step(segment)
            self.on_step()
            p.step += 1
            p.work += 1
            look = p.work % CHECK_EVERY == 0 or p.step == segment.end
            if look:
                self._count_time()  # before anything can be raised: what diverged took its time too
                self._check_loss(segment)
            due = running() - self._last_save > self.pause
            stop, due = self.ranks.agree(stop=self.should_stop(), save=due)
            if look or due or stop:
                self._count_time()
                self._report()
                if due or stop:
                    self.save()
                if stop:
                    raise Interrupted(f"saved at step {p.work} of {self.total_work}")
                self._mark = running()

    def _count_time(self) -> None:
        """Add the time since the mark to that of training, once the device has done its work."""
        synchronise(self.device)
        now = running()
        self.position.seconds["train"] += now - self._mark
        self.position.current_seconds += now - self._mark
        self._mark = now

    def _compile(self, segment: Segment) -> None:
        """Where the network is compiled, have that done before the first step, so that rates are those of training."""
        p, train_step = self.position, self.train_step
        if self._compiled or train_step is None or self.batches is None or p.step == segment.end:
            return
        self.log("compiling")
        started, fitted = running(), train_step.micro_batch
        train_step.rehearse(*self.batches(p.step))
        synchronise(self.device)
        self._compiled = True
        p.seconds["wait"] += running() - started
        if train_step.micro_batch != fitted:
            self._note_micro_batch(train_step.micro_batch)

    def step(self, segment: Segment | None = None) -> None:
        """One optimizer step at the current position, of `segment` or of the one in hand."""
        segment = segment or self.segments[self.position.segment]
        assert self.train_step is not None and self.batches is not None
        step = self.position.step
        with label("data"):
            x_BCHW, labels_B = self.batches(step)
        lr = schedule.learning_rate(self.recipe, step=step, warmup=self.warmup, segment=segment)
        fitted = self.train_step.micro_batch
        loss = self.train_step(x_BCHW, labels_B, lr=lr, seed=stream(self.seed, "dropout", step))
        self.average.update()
        self.curve.add(loss, segment=self.position.segment, step=step)
        if self.train_step.micro_batch != fitted:
            self._note_micro_batch(self.train_step.micro_batch)
        self.losses.append(loss)
        del self.losses[:-CHECK_EVERY]

    def _note_micro_batch(self, images: int) -> None:
        self.position.micro_batches.append({"work": self.position.work, "images": images})
        self.log(f"out of memory at step {self.position.work}: going on with {images} of {self.recipe.batch} at a time")

    def _check_loss(self, segment: Segment) -> None:
        self._seen_loss = torch.stack(self.losses).mean().item()
        if not math.isfinite(self._seen_loss):
            end = self.position.step
            first = max(segment.start, end - CHECK_EVERY)
            raise Diverged(f"the loss was not finite between steps {first} and {end} of {self.segments[-1].end}")
        if segment.is_branch and self.position.step == segment.end and not self._finite():
            raise Diverged(f"a weight was not finite after step {self.position.step} of {self.segments[-1].end}")

    @torch.no_grad()
    def _finite(self) -> bool:
        """Whether all weights are: the last step's loss was found before its update."""
        own = [p.to_local() if hasattr(p, "to_local") else p for p in self.model.parameters()]
        finite = torch.stack([p.isfinite().all() for p in own if p.numel()]).all()
        return self.ranks.mean(finite.float()).item() == 1.0

    def _read(self, horizon: int) -> None:
        """Evaluate at a horizon and keep its row in a checkpoint, so that a kill never repeats it."""
        p = self.position
        if any(row.images_seen == horizon for row in p.rows):
            return
        loss = torch.stack(self.losses).mean().item() if horizon and self.losses else None
        started = running()
        self._report(phase="evaluating")
        try:
            with label("evaluate"), self.average.applied():
                row = self.evaluate(horizon, loss, p)
        except Interrupted:  # a task that takes long looks for signals too
            self.save()
            raise
        p.seconds["evaluate"] += running() - started
        p.rows.append(row)
        faults.reach("after-evaluation")
        self.save()

    def _report(self, phase: str = "training") -> None:
        p = self.position
        self.progress({
            "done": p.work, "total": self.total_work, "phase": phase, "loss": self._seen_loss,
            "seconds": p.seconds["train"], "horizons": len(p.rows),
        })  # fmt: skip
