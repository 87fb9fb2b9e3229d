"""One contender in a process of its own: the task as JSON on the first line of standard input; answers are JSON lines
on standard output. A task that says "choose" is answered with the settings that were fastest in short trials. Any other
has "settings" or leaves them to the contender; then each line is a number of steps, to be timed. Between two lines the
process waits and takes no processor time."""

from __future__ import annotations

import dataclasses
import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bench.core.device import OutOfMemory, release, timed
from bench.cost import timing as speed
from bench.study.record import PeerSettings, PeerTrial
from tools.race import builders, settings
from tools.race.steps import Course, StepOnce

COMPARED = 5  # first steps whose losses are kept, to show that all do the same work
TRIAL_WARM_UP = 5  # steps: kernels are chosen and memory is got meanwhile
TRIAL_SECONDS = 0.5  # of a window of a trial, at least one step
TRIAL_PAIRS = 5  # windows of each side, in turns
HOPELESS, HOPELESS_AFTER = 0.8, 2  # a challenger slower than this share of the best in so many windows gets no more
SHARED_COMPILATIONS = 64  # of one block's code, by all trials of a process; torch's limit is 8


class EntrantStep:
    """Counts steps, so that every call trains on the next batch."""

    def __init__(self, step: StepOnce, device: str) -> None:
        self.step, self.device, self.number = step, device, 0
        self.losses: list[Tensor] = []

    def once(self) -> None:
        loss = self.step(self.number)
        if len(self.losses) < COMPARED:
            self.losses.append(loss)
        self.number += 1

    def warm_up(self, batch: int, pace: speed.Pace) -> dict[str, Any]:
        """The compared steps, then until the time of a step is steady."""
        workload = speed.Workload(name="step", call=self.once, images=batch)
        first = timed(self.once, device=self.device)
        timed(self.once, device=self.device, calls=COMPARED - 1)
        speed.warm_up(workload, device=self.device, pace=pace)
        losses = [float(loss) for loss in self.losses]
        return {"first_call_seconds": first, "call_seconds": workload.call_seconds, "losses": losses}

    def window(self, calls: int) -> float:
        """Seconds of `calls` steps."""
        return timed(self.once, device=self.device, calls=calls)


class Trial:
    """Settings on trial: steps per second of each window, after a warm-up."""

    def __init__(self, step: StepOnce, device: str) -> None:
        self.entrant: EntrantStep | None = EntrantStep(step, device)
        self.rates: list[float] = []
        self.entrant.window(TRIAL_WARM_UP)
        self.calls = max(1, round(TRIAL_SECONDS / self.entrant.window(1)))

    def window(self) -> float:
        """One more, or, where the step is no longer in memory, the median of those that there were."""
        if self.entrant is None:
            return statistics.median(self.rates)
        self.rates.append(self.calls / self.entrant.window(self.calls))
        return self.rates[-1]


class Trials:
    """Compares settings, two at a time: their windows take turns, so that a slow spell of the machine decides nothing.
    On a GPU only one is in memory, and its windows are compared with those that the other had."""

    def __init__(self, make: Callable[[PeerSettings], StepOnce], device: str) -> None:
        self.make, self.device = make, device
        self.best: tuple[PeerSettings, Trial] | None = None

    def begin(self, chosen: PeerSettings) -> Trial:
        """Raises: whatever its first steps raise."""
        trial = Trial(self.make(chosen), self.device)
        if self.device != "cpu":
            for _ in range(TRIAL_PAIRS):
                trial.window()
            trial.entrant = None
            release(self.device)
        return trial

    def __call__(self, best: PeerSettings, challenger: PeerSettings) -> tuple[float | None, str | None]:
        """Compares two settings, as `settings.Compare` says."""
        if self.best is None:
            self.best = best, self.begin(best)
        try:
            trial = self.begin(challenger)
        except OutOfMemory:
            return None, "out of memory"
        except Exception as error:  # compilers raise anything
            return None, f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        ratios = list[float]()
        for number in range(TRIAL_PAIRS):
            pair = (self.best[1], trial) if number % 2 == 0 else (trial, self.best[1])
            rates = {side: side.window() for side in pair}
            ratios.append(rates[trial] / rates[self.best[1]])
            if len(ratios) >= HOPELESS_AFTER and max(ratios) < HOPELESS:
                break
        over_best = statistics.median(ratios)
        if over_best > 1.0:
            self.best = challenger, trial
        return over_best, None


def choose(course: Course) -> dict[str, Any]:
    """The settings that are fastest for the contender, and the trials that say so.

    Raises:
        NoCounterpart: the library has no such model.
    """
    torch._dynamo.config.recompile_limit = SHARED_COMPILATIONS
    axes = settings.axes(course.contender.package, device=course.device, bfloat16=course.bfloat16)
    trials = Trials(lambda wanted: course.step(wanted)[0], course.device)
    best, made = settings.search(course.first_settings(tuned=True), axes, trials)
    if not course.bfloat16:
        refused = dataclasses.replace(best, dtype="bfloat16")
        made += (PeerTrial(settings=refused, over_best=None, kept=False, reason=settings.NO_BFLOAT16),)
    return {"settings": dataclasses.asdict(best), "trials": [dataclasses.asdict(trial) for trial in made]}


def main() -> None:
    def say(**values: Any) -> None:
        print(json.dumps(values), flush=True)

    task = json.loads(sys.stdin.readline())
    torch.set_num_threads(task["threads"])
    try:
        course = Course(task)
        if task.get("choose"):
            say(**choose(course))
            return
        given = task.get("settings")
        step, facts = course.step(PeerSettings(**given) if given else course.first_settings(tuned=False))
        entrant = EntrantStep(step, task["device"])
        pace = speed.Pace() if task["device"] != "cpu" else speed.CPU_PACE
        say(**facts, **entrant.warm_up(task["cell"]["recipe"]["batch"], pace))
        for line in sys.stdin:
            say(seconds=entrant.window(int(line)))
    except builders.NoCounterpart as error:
        say(left_out=str(error))
    except OutOfMemory:
        say(left_out="out of memory")


if __name__ == "__main__":
    main()
