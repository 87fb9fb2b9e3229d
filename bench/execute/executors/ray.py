"""The executor `ray`: workers are tasks of the Ray cluster that RAY_ADDRESS names; the value "local" starts a cluster
on this machine.

`--job` takes names of Ray's task options: `--job num_gpus=0.5 --job resources.tpu=1`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from bench.core.errors import UserError
from bench.execute import remote
from bench.execute.executors.executor import SAVE_SECONDS, Ended, Executor, Resources, WorkerCommand, tail
from bench.store.lease import RUNNER

POLL_SECONDS = 0.2  # seconds between looks at a worker


def work_of(command: WorkerCommand, log: Path) -> Ended:
    """Run a worker until it ends, and return how it ended. This is the body of a Ray task; if the task is cancelled,
    the worker is ended. `log`: the file that its output goes to."""
    import ray

    # Ray interrupts tasks with SIGINT, which is ignored by processes that a shell has started in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
    runner = {RUNNER: f"ray task {str(ray.get_runtime_context().get_task_id())[:8]}"}
    with open(log, "ab") as written:
        process = subprocess.Popen(
            [*command.arguments, "--parent", str(os.getpid())],
            stdout=written,
            stderr=written,
            stdin=subprocess.DEVNULL,
            env=os.environ | command.environment | runner,
        )
    try:
        while process.poll() is None:  # short waits: Ray's interruption would not end a long one
            time.sleep(POLL_SECONDS)
    finally:
        process.terminate()  # the worker still runs if the task was cancelled
        process.wait(timeout=SAVE_SECONDS)
    return Ended(process.returncode, tail(log))


class Ray(Executor):
    """An executor whose workers are tasks of Ray Core; the base class describes its methods."""

    def __init__(self, needs: Resources, command: WorkerCommand) -> None:
        self._ray: Any = importlib.import_module("ray")
        self._command, self._made = command, 0
        if needs.nodes > 1:
            raise UserError("--executor ray starts each worker on one machine.", "Use --executor slurm, or --nodes 1.")
        self._ours = not self._ray.is_initialized()
        if self._ours:
            here = {"include_dashboard": False} if os.environ.get("RAY_ADDRESS") == "local" else {}
            self._ray.init(log_to_driver=False, logging_level="ERROR", **here)
        plain = {name: value for name, value in needs.options.items() if "." not in name}
        custom = {name.partition(".")[2]: value for name, value in needs.options.items() if "." in name}
        asked = {"num_cpus": needs.cpus, "num_gpus": needs.gpus, "resources": custom} | plain
        self._wanted = {"CPU": asked["num_cpus"], "GPU": asked["num_gpus"], **custom}
        try:  # Ray does not repeat a lost task: its submitter has to look at the store first
            self._remote = self._ray.remote(max_retries=0, **asked)(work_of)
        except (ValueError, TypeError) as error:
            raise UserError(f"--executor ray: {error}", "Give --job names of Ray's task options.") from error
        self.alive: list[Any] = []

    @property
    def slots(self) -> int:  # type: ignore[override]
        """How many workers the cluster has room for at present; this changes, since machines join and leave."""
        return max(1, int(min(self._fitting().values(), default=1)))

    @property
    def waits(self) -> str:  # type: ignore[override]
        """The resources, in words, that the whole cluster has too little of for even one worker; "" where it has
        enough."""
        scarce = [f"{self._wanted[name]:g} {name}" for name, number in self._fitting().items() if number < 1]
        return f"the whole cluster does not have {' and '.join(scarce)}" if scarce and self.alive else ""

    def _fitting(self) -> dict[str, float]:
        """Return, for each resource that workers need, how many workers it would suffice for if the whole cluster were
        free."""
        has = self._ray.cluster_resources()
        return {name: has.get(name, 0) // amount for name, amount in self._wanted.items() if amount}

    def submit(self, number: int) -> None:
        run = self._remote.options(runtime_env={"env_vars": dict(self._command.environment)})
        for _ in range(number):
            log = self._command.folder / f"worker-{self._command.number}-{self._made}.log"
            self.alive.append(run.remote(self._command, log))
            self._made += 1

    def ended(self) -> list[Ended]:
        if not self.alive:
            return []
        over, self.alive = self._ray.wait(self.alive, num_returns=len(self.alive), timeout=0)
        return [self._how(task) for task in over]

    def _how(self, task: Any) -> Ended:
        try:
            return self._ray.get(task)  # type: ignore[no-any-return]
        except self._ray.exceptions.RayError as error:
            return Ended(None, f"error: A Ray task ended without a result: {str(error).splitlines()[0]}")

    def stop(self, *, running: bool = True) -> None:
        for task in self.alive if running else ():
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.cancel(task)

    def close(self) -> None:
        self.stop()
        if self._ours:
            self._ray.shutdown()


EXECUTOR = remote.runs_on(Ray)
