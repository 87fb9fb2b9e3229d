"""A job that counts a model's parameters and trains nothing."""

from bench.cost import flops
from bench.execute.jobs.job import Job, data_facts, execution, model_facts
from bench.study.record import Cost, Result, Seconds
from bench.study.registry import load


def run(cell, context):  # context: device, threads, progress, should_stop, …
    images = load("data set", cell.data).load("train", root=context.data_root)
    sizes = {"image_size": cell.image_size, "channels": cell.channels, "num_classes": images.num_classes}
    return Result(
        status="complete",
        model=model_facts(cell.model, flops.count(cell.model, **sizes)),
        data=data_facts(cell, images),
        execution=execution(context, dtype=None),
        cost=Cost(seconds=Seconds(evaluate=0.0)),
    )


JOB = Job(run=run, expected_seconds=lambda cell, *, device: 1.0)
