"""Workers as SLURM job arrays, through submitit; on preemption and time-out they save, and are requeued.

`--job` takes submitit's names: `--job partition=gpu --job time=240 --job qos=low`. `--job cluster=local` runs the same
jobs on this machine, without SLURM.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.core.errors import UserError
from bench.execute import remote
from bench.execute.executors.executor import Ended, Resources, WorkerCommand, load

TIMEOUTS = 1000  # times that a job may be requeued after its time is up: cells go on from their checkpoints
SIGNAL_SECONDS = 120  # before the end of a job, in which its worker saves
MAX_ARRAY_JOBS = 1000  # jobs of an array, as SLURM is usually configured
GIB = 1 << 30


class RequeuedWorker:
    """A worker as submitit calls it, and calls `checkpoint` of before its time is up."""

    def __init__(self, work: WorkerCommand) -> None:
        self.work = work

    def __call__(self) -> Ended:
        import submitit

        place = submitit.JobEnvironment()
        several = (
            "--nodes",
            str(place.num_nodes),
            "--node",
            str(place.node),
            "--job",
            place.job_id,
            "--first",
            place.hostnames[0],
        )
        return self.work(*(several if place.num_nodes > 1 else ()), runner=f"{place.cluster} job {place.job_id}")

    def checkpoint(self) -> Any:
        import submitit

        self.work.stop()
        return submitit.helpers.DelayedSubmission(RequeuedWorker(self.work))


class Slurm:
    """See `bench.execute.executors.executor.Executor`."""

    slots = 256

    def __init__(self, folder: Path, needs: Resources) -> None:
        submitit = load("slurm", package="submitit")
        options = dict(needs.options)
        cluster = self._cluster = options.pop("cluster", "slurm")
        asked = {
            "name": "vit-bench",
            "nodes": needs.nodes,
            "tasks_per_node": 1,
            "cpus_per_task": needs.cpus,
            "gpus_per_node": needs.gpus or None,
            "timeout_min": round(60 * needs.hours),
            "mem_gb": max(1, round(needs.memory / GIB)),
            "slurm_signal_delay_s": SIGNAL_SECONDS,
            "slurm_array_parallelism": self.slots,
            "slurm_additional_parameters": {"requeue": True},
        }
        try:
            self._executor = submitit.AutoExecutor(
                Path(os.path.abspath(folder)), cluster=cluster, slurm_max_num_timeout=TIMEOUTS
            )
            self._executor.update_parameters(**{name: value for name, value in asked.items() if value is not None})
            known = self._executor._executor._valid_parameters() if cluster == "slurm" else options
            self._executor.update_parameters(
                **{
                    f"slurm_{name}" if cluster == "slurm" and name in known else name: value
                    for name, value in options.items()
                }
            )
        except (RuntimeError, ValueError, NameError, TypeError) as error:
            raise UserError(
                f"--executor slurm: {str(error).splitlines()[0]}",
                "SLURM's commands (sbatch, srun) must be here; --job takes submitit's names.",
            ) from error
        self._jobs: list[Any] = []
        self._names: tuple[str, ...] = ()

    def submit(self, works: Sequence[WorkerCommand]) -> None:
        for first in range(0, len(works), MAX_ARRAY_JOBS):
            with self._executor.batch():
                new = [self._executor.submit(RequeuedWorker(work)) for work in works[first : first + MAX_ARRAY_JOBS]]
            self._jobs += new
            self._names += tuple(str(job.job_id) for job in new)

    def ended(self) -> list[Ended]:
        over, left = list[Any](), list[Any]()
        for job in self._jobs:
            (over if job.done() else left).append(job)
        self._jobs = left
        return [_how(job) for job in over]

    def names(self) -> tuple[str, ...]:
        return self._names

    def adopt(self, names: Sequence[str], folder: Path) -> int:
        alive = self._alive(names, folder)
        self._jobs += alive
        return len(alive)

    def call_off(self, names: Sequence[str], folder: Path) -> None:
        for job in self._alive(names, folder):
            job.cancel(check=False)

    def _alive(self, names: Sequence[str], folder: Path) -> list[Any]:
        import submitit

        if self._cluster != "slurm":  # nobody can be asked about them: their leases say what they hold
            return []
        jobs: list[Any] = [submitit.SlurmJob(folder, name) for name in names]
        return [job for number, job in enumerate(jobs) if not job.done(force_check=not number)]  # one call for all

    def leave(self) -> None:
        self._jobs = []

    def stop(self) -> None:
        for job in self._jobs:
            job.cancel(check=False)

    def close(self) -> None:
        self.stop()


def _how(job: Any) -> Ended:
    """How a job ended; one that was killed with its machine, or by SLURM, left no result."""
    what = f"error: Job {job.job_id} ended without a result ({job.state})"
    if not job.paths.result_pickle.exists():
        return Ended(None, f"{what}.")
    try:
        return job.result()  # type: ignore[no-any-return]
    except Exception as error:  # submitit's own, or what the job raised
        return Ended(None, f"{what}: {str(error)[-300:]}")


EXECUTOR = remote.runs_on(Slurm)
