"""A job that only sleeps: what a worker costs beside its work. Every hundredth of a second it looks whether to stop.

Its record holds the worker's process number, as the model's parameters, and the processor time so far, as training's.
"""

import os
import time

from bench.core.errors import Interrupted
from bench.core.events import Advanced
from bench.core.record import Cost, DataFacts, Execution, ModelFacts, Result, Seconds
from bench.execute.jobs.job import Job


def run(cell, context):
    seconds = dict(cell.model_options).get("seconds", 0.0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if context.should_stop():
            raise Interrupted("asked to")
        time.sleep(0.01)
    if dict(cell.model_options).get("fails"):
        raise RuntimeError("it was to fail")
    context.progress(Advanced(done=1, total=1, phase="asleep"))
    return Result(
        status="complete",
        model=ModelFacts(name=cell.model, params=os.getpid()),
        data=DataFacts(name=cell.data),
        execution=Execution(device=context.device),
        cost=Cost(seconds=Seconds(wait=seconds, train=time.process_time())),
    )


JOB = Job(run=run)
