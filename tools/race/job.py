"""Trains one model in this project's step and in other libraries' loops, and times them in alternating rounds.

Each contender is a process of its own (`tools.race.entrant`), so that each has the environment its users have;
only one works at a time. All train from the same weights on the same batches of the same images, held in memory. First
each chooses its settings by short trials. Then all start several times: processes that do the same differ in speed from
start to start, for as long as they live, and the intervals shall contain that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.core.events import Advanced
from bench.execute.jobs.job import Job, JobContext, data_facts, execution, model_facts
from bench.study.cell import Cell, to_json
from bench.study.record import ContenderResult, PeerSettings, PeersResult, PeerTrial, Result, Seconds

if TYPE_CHECKING:
    from tools.race.contenders import Competitor

STARTS = {"cpu": 4, "cuda": 4}
ROUNDS = {"cpu": 7, "cuda": 1}  # of a start
WINDOWS = {"cpu": 1, "cuda": 3}  # of a contender in a round
WINDOW_SECONDS = {"cpu": 0.4, "cuda": 1.5}


def expected_seconds(cell: Cell, *, device: str = "cpu") -> float:
    """About how long one cell takes, for a plan: windows have a fixed length, trials and starting up take the rest."""
    return 540.0 if device == "cpu" else 2400.0


def run(cell: Cell, context: JobContext) -> Result:
    """Race a cell. A library that is missing, or that has no such model, is part of the result.

    Raises:
        UserError: the model cannot be built at this size, or the data are missing.
        Interrupted: stopped by a signal; the race restarts next time.
    """
    from bench.core.errors import Interrupted
    from bench.cost import flops, peaks
    from bench.data.load import load
    from bench.execute.jobs._costs import recorded_cost
    from tools.race.contenders import contenders

    started = time.perf_counter()
    kind = "cpu" if context.on_cpu else "cuda"  # an Apple GPU races as any other
    train = load(cell.data, "train", root=context.data_root, num_images=cell.num_images)
    sizes: dict[str, Any] = {"image_size": cell.image_size, "channels": cell.channels, "num_classes": train.num_classes}
    cost = flops.count(cell.model, **sizes, model_options=cell.model_options, activations=False)
    peak = {d: peaks.peak(d, device=context.device, threads=context.threads) for d in ("float32", "bfloat16")}
    entrants = [Entrant(contender, cell, context) for contender in contenders(kind, threads=context.threads)]
    try:
        race(entrants, cell, context, kind)
    finally:
        for entrant in entrants:
            entrant.stop()
    if context.should_stop():
        raise Interrupted("the race was not finished")
    per_image = cost.train_flops_per_image["dense"]
    best = max(peak.values(), key=lambda p: p.flops_per_second)
    raced = PeersResult(
        revision=JOB.revision,
        contenders=tuple(entrant.summary(per_image, best.flops_per_second) for entrant in entrants),
        peaks={dtype: p.flops_per_second for dtype, p in peak.items()},
        window_seconds=WINDOW_SECONDS[kind],
        batch=cell.recipe.batch,
        starts=STARTS[kind],
    )
    ours = next(contender for contender in raced.contenders if contender.package is None)
    seconds = time.perf_counter() - started
    return Result(
        status="failed" if ours.left_out else "complete",
        reason=ours.left_out,
        model=model_facts(cell.model, cost),
        data=data_facts(cell, train),
        execution=execution(context, dtype=ours.dtype, compile_mode="off"),
        cost=recorded_cost(
            context,
            seconds=Seconds(train=0.0, evaluate=seconds, save=0.0, wait=0.0),
            busy=seconds,
            peak=best,
            peak_memory=False,
        ),
        peers=raced,
    )


class Entrant:
    """A contender's processes and their measurements."""

    def __init__(self, contender: Competitor, cell: Cell, context: JobContext) -> None:
        self.contender, self.context, self.batch = contender, context, cell.recipe.batch
        self.facts: dict[str, Any] = {}
        self.settings: dict[str, str] | None = None  # None: what a user gets who sets nothing
        self.trials: list[dict[str, Any]] = []
        self.rates: list[float] = []
        self.left_out = contender.missing
        self.processes: list[subprocess.Popen[str]] = []
        self.task = {
            "cell": to_json(cell),
            "contender": dataclasses.asdict(contender),
            "device": context.device,
            "threads": max(1, context.threads // contender.processes),
            "data_root": str(context.data_root) if context.data_root else None,
        }
        self.complaints: Path = context.attempt / f"{contender.name.replace(', ', '-').replace(' ', '-')}.txt"

    def choose(self) -> None:
        """Find its best settings, in a process that then ends."""
        if self.left_out or not self.contender.tuned:
            return
        self.context.log(f"choosing settings of {self.contender.name}")
        self.open(1)
        for answer in self.ask(json.dumps(self.task | {"choose": True})):
            self.settings, self.trials = answer["settings"], answer["trials"]
        self.stop()

    def start(self) -> None:
        """Start, train the compared steps, warm up; afterwards it waits."""
        if self.left_out:
            return
        self.context.log(f"starting {self.contender.name}")
        self.open(self.contender.processes)
        answers = self.ask(json.dumps(self.task | {"settings": self.settings}))
        self.facts = self.facts or (answers[0] if answers else {})  # of its first start, where it compiled

    def open(self, processes: int) -> None:
        """Begin as many processes, which wait for their task."""
        with open(self.complaints, "a", encoding="utf-8") as errors:
            self.processes = [
                subprocess.Popen(
                    [sys.executable, "-m", "tools.race.entrant"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env=self.contender.environment(),
                )
                for _ in range(processes)
            ]

    def window(self, seconds: float) -> None:
        """One timed window: the same number of steps in each process, until the last has finished."""
        if self.left_out:
            return
        calls = max(1, round(seconds / self.facts["call_seconds"]))
        if answers := self.ask(str(calls)):
            self.rates.append(calls * self.batch * len(answers) / max(answer["seconds"] for answer in answers))

    def turn(self, kind: str) -> None:
        """Its windows of a round. On a GPU it begins for them alone: only one contender at a time is in its memory."""
        if kind != "cpu":
            self.start()
        for _ in range(WINDOWS[kind]):
            self.window(WINDOW_SECONDS[kind])
        if kind != "cpu":
            self.stop()

    def ask(self, line: str) -> list[dict[str, Any]]:
        """The processes' answers to a line; none, and it is left out from then on, where one has died."""
        for process in self.processes:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(line + "\n")
                process.stdin.flush()
        answers = [process.stdout.readline() for process in self.processes if process.stdout is not None]
        if all(answers):
            answered = [dict(json.loads(answer)) for answer in answers]
            reasons = [answer["left_out"] for answer in answered if "left_out" in answer]
            if not reasons:
                return answered
            self.left_out = reasons[0]
            self.stop()  # now: a process that ends by itself would take its time from the next window
            return []
        dead = self.processes[answers.index("")]
        last = (self.complaints.read_text(encoding="utf-8").strip().splitlines() or ["no message"])[-1]
        self.left_out = f"failed: {last} (exit code {dead.wait()})"
        self.context.log(f"{self.contender.name} {self.left_out}")
        return []

    def stop(self) -> None:
        """End the processes."""
        for process in self.processes:
            process.kill()
            process.wait()

    def summary(self, flops_per_image: int, peak: float) -> ContenderResult:
        """The summary that the record stores."""
        from bench.cost.timing import spread

        rates = spread(self.rates)
        facts = self.facts | {"losses": tuple(self.facts.get("losses", ()))}
        if settings := facts.get("settings"):
            facts["settings"] = PeerSettings(**settings)
        return ContenderResult(
            name=self.contender.name,
            package=self.contender.package,
            left_out=self.left_out,
            windows=tuple(self.rates),
            images_per_second=rates,
            share_of_peak=None if rates.median is None else rates.median * flops_per_image / peak,
            trials=tuple(PeerTrial(**trial | {"settings": PeerSettings(**trial["settings"])}) for trial in self.trials),
            **facts,
        )


def race(entrants: list[Entrant], cell: Cell, context: JobContext, kind: str) -> None:
    """Settings are chosen. Then come starts of rounds in which each has its turn, every other round backwards. On a CPU
    all have been started before a round."""
    rounds = [(start, number) for start in range(STARTS[kind]) for number in range(ROUNDS[kind])]
    total = len(entrants) + len(rounds)
    single: dict[str | None, Entrant] = {}
    for done, entrant in enumerate(entrants):
        context.progress(Advanced(done=done, total=total, phase="choosing settings"))
        if context.should_stop():
            return
        if entrant.contender.processes == 1:
            entrant.choose()
            single[entrant.contender.package] = entrant
        elif like := single.get(entrant.contender.package):
            entrant.settings = like.settings
    for done, (start, number) in enumerate(rounds, start=len(entrants)):
        context.progress(Advanced(done=done, total=total, phase=f"racing, start {start + 1} of {STARTS[kind]}"))
        if kind == "cpu" and number == 0:
            for entrant in entrants:
                entrant.stop()
            for entrant in entrants:
                if context.should_stop():
                    return
                entrant.start()
        for entrant in entrants if done % 2 == 0 else reversed(entrants):
            if context.should_stop():
                return
            entrant.turn(kind)


JOB = Job(run=run, revision=2, expected_seconds=expected_seconds)
