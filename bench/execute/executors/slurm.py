"""The executor `slurm`: workers are jobs of SLURM job arrays. It uses `sbatch`, `squeue`, `scancel` and `scontrol`
only, so that SLURM's accounting need not be set up.

`--job` takes sbatch's options: `--job partition=gpu --job time=4:00:00 --job qos=low`. A job is told to save before its
time is up, and goes back into the queue; it also goes back after a preemption. A job that somebody cancels is not
replaced.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import time
from typing import NamedTuple

from bench.core.errors import EXIT_INTERRUPTED, UserError
from bench.execute import remote
from bench.execute.executors.executor import Ended, Executor, Resources, WorkerCommand, tail
from bench.store.lease import RUNNER

SIGNAL_SECONDS = 120  # seconds before a job's end at which its worker is told to save; SLURM may do so a minute earlier
TOO_SHORT = r"(?!0+$)(0+:)?0*[0-4](:\d+)?"  # time limits below 5 minutes (M, M:S or H:M:S), with which jobs would be
# told to save as they begin; 0 is no limit
MAX_ARRAY_JOBS = 1000  # jobs of an array, as SLURM is usually configured
LOOK_SECONDS, HURRY_SECONDS = 10.0, 1.0  # seconds between looks at the queue, and once jobs were told to end
LONG_SECONDS = 180  # seconds in the queue after which the reason is shown; requeued jobs wait two minutes in any case
ANSWER_SECONDS = 60  # seconds that SLURM's commands may take
STOPPED_FILE = "stopped"  # in a run's folder: keeps its jobs from going back into the queue
MIB = 1 << 20
OPTION_ALIASES = (
    ("gpus-per-node", "gpus", "gpus-per-task", "gres"),
    ("mem", "mem-per-cpu", "mem-per-gpu"),
    ("cpus-per-task", "cpus-per-gpu"),
)
"""Groups of options that ask for the same resource in several ways. Where the user gives any option of a group, the
first of the group, which the plan gives, is left out."""
LEFT_OUT, FLAG = "none", "true"  # values of --job: sbatch's default is kept; an option without a value
OVER_STATES = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
)
"""States of jobs that are over and that SLURM still remembers."""

SCRIPT = """#!/bin/bash
# SLURM tells this shell when time is nearly up, and the shell tells the worker, which saves. While SLURM still counts
# the job as running, nobody has cancelled it: it goes back into the queue, and on from there.
export {environment}
job=${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID  # SLURM_JOB_ID may stand for the whole array
export {runner}="slurm job $job"
trap 'kill -USR2 "$worker"' USR2
trap : TERM
[ -e {stopped} ] && exit {interrupted}
{command} &
worker=$!
wait "$worker"; code=$?
while [ "$code" -gt 128 ] && kill -0 "$worker" 2>/dev/null; do wait "$worker"; code=$?; done
case $code in {interrupted}|140|143)  # it saved, or was told to before it could listen
  if [ ! -e {stopped} ] && [ "$(squeue --noheader --jobs="$job" --format=%t)" = R ]; then
    scontrol requeue "$job" && sleep 60  # SLURM ends this shell
  fi ;;
esac
exit "$code"
"""
SEVERAL = """first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun --kill-on-bad-exit=1 --cpus-per-task={cpus} bash -c 'exec "$@" --node "$SLURM_NODEID"' worker {command} \\
  --nodes {nodes} --first "$first" --job "$job.${{SLURM_RESTART_COUNT:-0}}\""""


class Slurm(Executor):
    """An executor whose workers are SLURM jobs; the base class describes its methods."""

    def __init__(self, needs: Resources, command: WorkerCommand) -> None:
        self._options = options(needs)
        self._runs = command.folder.parent
        self.queue = f"{self._options.pop('job-name', 'vit-bench')}.{command.folder.name}.{command.number}"
        line = shlex.join(command.arguments)
        several = SEVERAL.format(cpus=needs.cpus, command=line, nodes=needs.nodes)
        self._folder, self._script = (
            command.folder,
            SCRIPT.format(
                environment=shlex.join(f"{name}={value}" for name, value in command.environment.items()),
                runner=RUNNER,
                stopped=shlex.quote(f"{command.folder}/{STOPPED_FILE}"),
                interrupted=EXIT_INTERRUPTED,
                command=f'{line} --parent "$$"' if needs.nodes == 1 else several,
            ),
        )
        self._followed, self.alive = set[str](), set[str]()
        self._pause, self._next = LOOK_SECONDS, 0.0

    def submit(self, number: int) -> None:
        self._followed.add(self.queue)
        self._next = 0.0  # SLURM may take jobs and fail to say so: a look at the queue shows them
        for first in range(0, number, MAX_ARRAY_JOBS):
            tasks = range(min(MAX_ARRAY_JOBS, number - first))
            asked = self._options | {"job-name": self.queue, "array": f"0-{tasks[-1]}"}
            asked |= {"output": f"{self._folder}/worker-%A_%a.log"}
            words = [f"--{name}" if value == FLAG else f"--{name}={value}" for name, value in asked.items()]
            job = ask("sbatch", "--parsable", *words, script=self._script).partition(";")[0].strip()
            self.alive |= {f"{job}_{task}" for task in tasks}

    def ended(self) -> list[Ended]:
        if time.monotonic() < self._next:
            return []
        self._next = time.monotonic() + self._pause
        jobs, before = states(self._followed), self.alive
        self.alive = {job for job, (state, *_) in jobs.items() if state not in OVER_STATES}
        long = {job.reason for job in jobs.values() if job.state == "PENDING" and job.queued > LONG_SECONDS}
        self.waits = "; ".join(sorted(long))
        return [self._how(job, jobs.get(job, Queued())) for job in sorted(before - self.alive)]

    def _how(self, job: str, how: Queued) -> Ended:
        state = how.state
        if state == "CANCELLED":
            return Ended(None, cancelled=f"job {job}")
        log = next((tail(path) for path in self._runs.glob(f"*/worker-{job}.log")), "")
        if state not in ("COMPLETED", "FAILED"):
            return Ended(None, log or f"error: Job {job} ended without a result ({state or 'SLURM has forgotten it'}).")
        number = os.waitstatus_to_exitcode(int(how.status))
        return Ended(128 - number if number > 128 and number != EXIT_INTERRUPTED else number, log)

    def adopt(self, queue: str) -> int:
        alive = {job for job, (state, *_) in states({queue}).items() if state not in OVER_STATES}
        self.alive |= alive
        self._followed |= {queue} if alive else set()
        return len(alive)

    def call_off(self, queue: str) -> None:
        ask("scancel", f"--name={queue}")

    def stop(self, *, running: bool = True) -> None:
        self._pause, self._next = HURRY_SECONDS, 0.0
        for queue in self._followed:
            with contextlib.suppress(FileNotFoundError):  # the run that submitted it has removed its folder
                (self._runs / queue.split(".")[-2] / STOPPED_FILE).touch()
            ask("scancel", f"--name={queue}", "--state=PENDING")
            if running:
                ask("scancel", f"--name={queue}", "--state=RUNNING", "--signal=USR2", "--batch")

    def close(self) -> None:
        for queue in self._followed if self.alive else ():
            with contextlib.suppress(UserError):
                self.call_off(queue)


def options(needs: Resources) -> dict[str, str]:
    """Return the options of sbatch, name -> value: those that follow from the worker's needs, replaced by those of
    `--job`.

    Raises:
        UserError: `--job time` is less than a job needs to save; `--job job-name` contains a comma.
    """
    asked = {
        "requeue": FLAG,
        "open-mode": "append",
        "nodes": needs.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": needs.cpus,
        "gpus-per-node": needs.gpus or LEFT_OUT,
        "mem": f"{-(-needs.memory // MIB)}M",
        "time": round(60 * needs.hours),
        "signal": f"B:USR2@{SIGNAL_SECONDS}",
    }
    given = {name.replace("_", "-"): value for name, value in needs.options.items()}
    if "," in str(given.get("job-name")):  # squeue would look for several names
        raise UserError(f"--job job-name={given['job-name']}: a name with a comma is two.", "Leave the comma out.")
    for group in OPTION_ALIASES:
        if any(name in given for name in group):
            asked.pop(group[0], None)
    if re.fullmatch(TOO_SHORT, str(given.get("time"))):
        raise UserError(
            f"--job time={given['time']} is under 5 minutes, and workers save {SIGNAL_SECONDS} seconds before the end.",
            "Give minutes, H:M:S or D-H:M:S; a run that takes longer goes on in the next job.",
        )
    return {name: str(value) for name, value in (asked | given).items() if value != LEFT_OUT}


class Queued(NamedTuple):
    """A job as squeue shows it.

    Attributes:
        state: SLURM's name of its state, such as "PENDING"; "" where SLURM has forgotten the job.
        queued: seconds in the queue.
        status: its exit status as `os.wait` encodes it.
        reason: why it has not begun.
    """

    state: str = ""
    queued: int = 0
    status: str = ""
    reason: str = ""


def states(queues: set[str]) -> dict[str, Queued]:
    """Return id of a job, such as "123_4" -> its state, for the jobs in these queues that SLURM still remembers.

    Raises:
        UserError: as in `ask`.
    """
    if not queues:
        return {}
    shown = "JobArrayID:40,State:30,PendingTime:20,exit_code:30,Reason:200"
    lines = ask("squeue", "--noheader", "--array", "--states=all", f"--name={','.join(queues)}", f"--Format={shown}")
    rows = [line.split(maxsplit=4) for line in lines.splitlines()]
    return {job: Queued(state, int(queued), *map(str.strip, rest)) for job, state, queued, *rest in rows}


def ask(*words: str, script: str = "") -> str:
    """Run one of SLURM's commands, given as `words`, with `script` as its standard input. Return its standard output.

    Raises:
        UserError: the command fails, or does not answer.
    """
    try:
        done = subprocess.run(words, input=script, capture_output=True, text=True, timeout=ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"SLURM's {words[0]} does not answer: {error}.") from error
    if done.returncode:
        said = [re.sub(rf"^{words[0]}: (error: )?", "", line) for line in done.stderr.splitlines() if line.strip()]
        raise UserError(
            f"SLURM's {words[0]} refuses: {'; '.join(said) or f'exit code {done.returncode}'}.",
            "--job takes sbatch's options, such as --job partition=NAME; `sinfo` shows partitions and their state.",
        )
    return done.stdout


EXECUTOR = remote.runs_on(Slurm)
