"""A job that only sleeps: what a worker costs beside its work. Every hundredth of a second it looks whether to stop.
It sleeps on for as long as there is a file `hold` in the study's folder.

Its record holds the worker's process number, as the model's parameters, and the processor time so far, as training's.
"""

import os
import signal
import time

from bench.core.errors import Interrupted
from bench.core.events import Advanced
from bench.execute.jobs.job import Job
from bench.study.record import Cost, DataFacts, Execution, ModelFacts, Result, Seconds


def run(cell, context):
    seconds = dict(cell.model_options).get("seconds", 0.0)
    end, hold = time.monotonic() + seconds, context.directory.path.parents[1] / "hold"
    while time.monotonic() < end or hold.exists():
        if context.should_stop():
            raise Interrupted("asked to")
        time.sleep(0.01)
    if dict(cell.model_options).get("fails"):
        raise RuntimeError("it was to fail")
    if dict(cell.model_options).get("kills"):
        os.kill(os.getpid(), signal.SIGKILL)
    context.progress(Advanced(done=1, total=1, phase="asleep"))
    return Result(
        status="complete",
        model=ModelFacts(name=cell.model, params=os.getpid()),
        data=DataFacts(name=cell.data),
        execution=Execution(device=context.device),
        cost=Cost(seconds=Seconds(wait=seconds, train=time.process_time())),
    )


JOB = Job(run=run)
