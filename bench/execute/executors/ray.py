"""Workers as tasks of a Ray cluster: that of RAY_ADDRESS, or else one on this machine.

`--job` takes names of Ray's task options: `--job num_gpus=0.5 --job resources.tpu=1`.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.core.errors import UserError
from bench.execute import remote
from bench.execute.executors.executor import Ended, Resources, WorkerCommand, load


def work_of(work: WorkerCommand) -> Ended:
    """The body of a task."""
    import ray

    # Ray interrupts tasks as Ctrl-C does, which whatever a shell starts in the background ignores
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return work(runner=f"ray task {str(ray.get_runtime_context().get_task_id())[:8]}")


class Ray:
    """See `bench.execute.executors.executor.Executor`."""

    def __init__(self, folder: Path, needs: Resources) -> None:
        self._ray = load("ray", package="ray")
        if needs.nodes > 1:
            raise UserError("--executor ray starts each worker on one machine.", "Use --executor slurm, or --nodes 1.")
        self._ours = not self._ray.is_initialized()
        if self._ours:
            here: dict[str, Any] = {} if "RAY_ADDRESS" in os.environ else {"include_dashboard": False}
            self._ray.init(log_to_driver=False, logging_level="ERROR", **here)
        plain = {name: value for name, value in needs.options.items() if "." not in name}
        custom = {name.partition(".")[2]: value for name, value in needs.options.items() if "." in name}
        asked = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "resources": custom} | plain
        has = self._ray.cluster_resources()
        wanted = {"CPU": asked["num_cpus"], "GPU": asked["num_gpus"], **custom}
        self.slots = max(1, min(int(has.get(name, 0) // amount) for name, amount in wanted.items() if amount))
        try:  # a lost task is not repeated by Ray: who submitted it looks at the store first
            self._remote = self._ray.remote(max_retries=0, **asked)(work_of)
        except (ValueError, TypeError) as error:
            raise UserError(f"--executor ray: {error}", "Give --job names of Ray's task options.") from error
        self._tasks: list[Any] = []

    def submit(self, works: Sequence[WorkerCommand]) -> None:
        self._tasks += [self._remote.options(runtime_env={"env_vars": work.environment}).remote(work) for work in works]

    def ended(self) -> list[Ended]:
        if not self._tasks:
            return []
        over, self._tasks = self._ray.wait(self._tasks, num_returns=len(self._tasks), timeout=0)
        return [self._how(task) for task in over]

    def _how(self, task: Any) -> Ended:
        try:
            return self._ray.get(task)  # type: ignore[no-any-return]
        except self._ray.exceptions.RayError as error:
            return Ended(None, f"error: A Ray task ended without a result: {str(error).splitlines()[0]}")

    def names(self) -> tuple[str, ...]:
        return ()  # tasks end with who submitted them

    def adopt(self, names: Sequence[str], folder: Path) -> int:
        return 0

    def call_off(self, names: Sequence[str], folder: Path) -> None:
        """There are none: they end with their process."""

    def leave(self) -> None:
        self._tasks = []

    def stop(self) -> None:
        for task in self._tasks:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(task)

    def close(self) -> None:
        if self._ours:
            self._ray.shutdown()


EXECUTOR = remote.runs_on(Ray)
