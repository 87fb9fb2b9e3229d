"""The executor `local`: workers are processes of this machine."""

from __future__ import annotations

from collections.abc import Callable

from bench.core.events import WorkerEvent
from bench.execute import local
from bench.execute.local import Failure
from bench.plan.plan import Plan


def run(plan: Plan, *, on_event: Callable[[int, WorkerEvent], None], tick: Callable[[], None]) -> list[Failure]:
    """Run a plan as `bench.execute.local.run` does, with the options that the user gave. Return the cells that
    failed."""
    asked = plan.machine.asked
    return local.run(plan, on_event=on_event, tick=tick, profile=asked.profile, co2=asked.co2)


EXECUTOR = run
