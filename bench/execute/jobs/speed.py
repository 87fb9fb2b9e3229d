"""The job of the suite "speed": measures one model at one input size (inference at many batch sizes, training, latency,
memory) on made-up images, without scores.

In every cell, one small reference model is measured by turns with the cell's model. If the reference's speed differs
between two cells, the machine was in another state, and their numbers are not closely comparable.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from bench.core.device import OutOfMemory, device_name, is_out_of_memory, release, timed
from bench.core.events import Advanced
from bench.execute.jobs.job import Job, JobContext, execution, model_facts
from bench.study.cell import Cell
from bench.study.record import (
    Conditions,
    DataFacts,
    LargestBatch,
    Latency,
    Memory,
    Reference,
    Result,
    Seconds,
    SpeedResult,
    Status,
)

if TYPE_CHECKING:
    from torch import nn

    from bench.cost.timing import Workload

CANDIDATES = 3  # batch sizes that are measured thoroughly: the fastest of the scan
PHASES = 6
COMPILE_MODE = "reduce-overhead"
OPTIMIZER = "AdamW, fused; gradient norm clipped"


def expected_seconds(cell: Cell, *, device: str = "cpu") -> float:
    """Return about how many seconds one cell takes, for a plan. This does not depend on the model, since measurements
    have a fixed length; a GPU takes longer, with two compilations and a search for the largest batch."""
    return 12.0 if device == "cpu" else 150.0


def run(cell: Cell, context: JobContext) -> Result:
    """Measure a cell's model, and return the result. Running out of memory is a possible result, and no error.

    Raises:
        UserError: the model cannot be built at this size.
        Interrupted: a signal asked for a stop; the next attempt measures the cell from the start.
    """
    from bench.train import precision

    release(context.device)  # memory of the cell before
    precision.set_up(threads=context.threads)
    return SpeedJob(cell, context).result()


class SpeedJob:
    """Measures the model of one cell on one device."""

    def __init__(self, cell: Cell, context: JobContext) -> None:
        from bench.cost import flops, peaks
        from bench.cost.timing import CPU_PACE, REHEARSAL_PACE, Pace
        from bench.execute.workloads import CLASSES, Subject
        from bench.train import precision

        self.started = time.perf_counter()
        self.load_before = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        self.cell, self.context, self.device = cell, context, context.device
        self.on_gpu = context.device.startswith("cuda")
        self.pace = REHEARSAL_PACE if cell.rehearsal else Pace() if self.on_gpu else CPU_PACE
        self.phase = 0
        sizes = {"image_size": cell.image_size, "channels": cell.channels}
        options = cell.model_options
        self.cost = flops.count(cell.model, num_classes=CLASSES, model_options=options, activations=False, **sizes)
        dtype = precision.resolve(cell.recipe.dtype, context.device)
        self.subject = Subject(model=cell.model, device=context.device, dtype=dtype, options=options, **sizes)
        self.peak = peaks.peak(dtype, device=context.device, threads=context.threads)

    def result(self) -> Result:
        """Measure everything, and return the job's result; its field `speed` holds the measurements."""
        from bench.core.errors import Interrupted
        from bench.execute.jobs._costs import recorded_cost
        from bench.execute.workloads import CLASSES

        status: Status = "complete"
        reason = None
        try:
            speed = self.measure()
        except OutOfMemory:
            speed = SpeedResult(revision=JOB.revision, conditions=self.conditions())
            status, reason = "oom", f"{self.cell.model} at {self.cell.image_size} px does not fit at batch 1"
        if self.context.should_stop():
            raise Interrupted("the measurement was not finished")
        cell, total = self.cell, time.perf_counter() - self.started
        return Result(
            status=status,
            reason=reason,
            model=model_facts(cell.model, self.cost),
            data=DataFacts(
                name=cell.data, kind="rendered", num_classes=CLASSES, image_size=cell.image_size, channels=cell.channels
            ),
            execution=execution(
                self.context, dtype=self.subject.dtype, compile_mode=COMPILE_MODE if speed.compiled else "off"
            ),
            cost=recorded_cost(
                self.context, seconds=Seconds(train=0.0, evaluate=total, save=0.0, wait=0.0), busy=total, peak=self.peak
            ),
            speed=speed,
        )

    def measure(self) -> SpeedResult:
        """Measure everything, and return the measurements.

        Raises:
            OutOfMemory: not even one image fits.
        """
        from bench.cost import timing as speed
        from bench.execute import workloads

        stop, pace, subject = self.context.should_stop, self.pace, self.subject
        self._say("scanning batch sizes")
        try:
            model = subject.build()
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                raise OutOfMemory from error
            raise
        inference = functools.partial(subject.inference, model, kept=[])
        scanned, limit = speed.scan_batches(inference, device=self.device, pace=pace, should_stop=stop)
        if not scanned:
            raise OutOfMemory
        chosen = speed.fastest(scanned, count=CANDIDATES)
        self._say("warming up")
        reference = workloads.reference(self.device, subject.dtype)
        speed.warm_up(reference, device=self.device, pace=pace)
        compiled = self._compiled(model, chosen[0].images)
        training = subject.largest_training(self.cell.recipe.batch, pace=pace) if self.cost.params else None
        self._say("measuring")
        together = [*chosen, reference, *(w for w in (compiled, training) if w is not None)]
        speed.interleave(together, device=self.device, windows=pace.windows, should_stop=stop)
        single = inference(1)
        self._say("latency and memory")
        latency = Latency(batch=1, **speed.latency(single.call, device=self.device, calls=pace.latency_calls))
        best = max(chosen, key=lambda w: w.spread().median or 0.0)
        measured = SpeedResult(
            revision=JOB.revision,
            conditions=self.conditions(),
            inference=best.throughput(utilisation=self._utilisation(best, self.cost.forward_flops), limit=limit),
            batches=tuple(
                w.throughput(scan_images_per_second=w.images / w.call_seconds if w.call_seconds else None)
                for w in scanned
            ),
            compiled=None
            if compiled is None
            else compiled.throughput(utilisation=self._utilisation(compiled, self.cost.forward_flops)),
            training=None
            if training is None
            else training.throughput(
                utilisation=self._utilisation(training, self.cost.train_flops_per_image), optimizer=OPTIMIZER
            ),
            latency=latency,
            reference=Reference(**workloads.REFERENCE, throughput=reference.throughput()),
            memory=self._memory(model, best, training),
        )
        self._profile(model, best.images)
        del model, inference, single, training, together, best, scanned, chosen, compiled
        release(self.device)
        self._say("largest batch")
        return dataclasses.replace(measured, largest_batch=self._largest_batch())

    def _compiled(self, model: nn.Module, batch: int) -> Workload | None:
        """Return inference of the compiled model as a workload, at batch size `batch`, and warmed up, since its first
        call compiles. None on a CPU, or if the model does not compile.

        Compiling for a CPU takes minutes and gains nothing for these models.
        """
        from bench.cost import timing as speed
        from bench.train import compiled
        from bench.train.recorded import Recorded

        if not self.on_gpu:
            return None
        network = compiled.compiled(copy.deepcopy(model), mode=COMPILE_MODE)
        recorded, images = Recorded(network, device=self.device), self.subject.images(batch)
        workload = self.subject.inference(recorded, batch, kept=[images])
        try:
            speed.warm_up(workload, device=self.device, pace=self.pace)
        except (OutOfMemory, RuntimeError) as error:
            self.context.log(f"not compiled: {error}")
            return None
        return workload

    def _largest_batch(self) -> LargestBatch:
        """Return the largest batch sizes: as predicted from the shapes of tensors and a memory budget; on a GPU also as
        found by trying."""
        import torch

        from bench.execute import workloads

        predicted = workloads.predicted_batches(self.subject)
        how = f"float32 tensors alive at once, from shapes; {workloads.BUDGET_NAME}"
        result = LargestBatch(**predicted, budget_bytes=workloads.MAX_MEMORY_BYTES, how=how)
        if not self.on_gpu:
            return result
        largest = self.subject.largest_inference(start=predicted["inference"], should_stop=self.context.should_stop)
        device_bytes = torch.cuda.get_device_properties(self.device).total_memory
        return dataclasses.replace(result, found_inference=largest, device_bytes=device_bytes)

    def _memory(self, model: nn.Module, best: Workload, training: Workload | None) -> Memory:
        """Return the peak memory in bytes: on a GPU what torch's allocator held during one call each of inference
        (`best`) and training; on a CPU the most that the whole process has used so far. `training`: None if no batch of
        it fits."""
        import torch

        from bench.cost import memory

        if not self.on_gpu:
            how = "resident memory of the process at its largest so far"
            return Memory(process_peak_bytes=memory.measured_peak_bytes(), how=how)

        release(self.device)  # a recorded graph reuses its memory; so it is recorded again, and counted

        def peak_of(workload: Workload | None) -> int | None:
            if workload is None:
                return None
            torch.cuda.reset_peak_memory_stats(self.device)
            timed(workload.call, device=self.device)
            return torch.cuda.max_memory_allocated(self.device)

        return Memory(
            how="torch's allocator during one call, with weights and images of all workloads",
            inference_peak_bytes=peak_of(best),
            training_peak_bytes=peak_of(training),
        )

    def _profile(self, model: nn.Module, batch: int) -> None:
        """Write a torch.profiler trace of a few training steps and evaluations, if the user asked for one. `batch`:
        images of an evaluation."""
        if not self.context.profile or not self.cost.params:
            return
        from bench.cost import profiler, trace

        trained = self.subject.training(self.subject.build().train(), min(batch, self.cell.recipe.batch))
        evaluated = self.subject.inference(model, batch)
        with profiler.profile(self.context.attempt / "trace", device=self.device) as recording:
            for _ in range(trace.WAIT + trace.WARM_UP + trace.ACTIVE + 1):
                trained.call()
                with trace.label("evaluate"):
                    evaluated.call()
                recording.step()

    # -- reporting -------------------------------------------------------------------------------------------------

    def _utilisation(self, workload: Workload, flops: Mapping[str, int]) -> float | None:
        """Return the fraction of the device's peak FLOP/s that a workload reaches; None if its speed is unknown.
        `flops`: "dense" or "paper", the way of counting -> FLOPs of one image."""
        rate = workload.spread().median
        return None if rate is None else rate * flops["dense"] / self.peak.flops_per_second

    def conditions(self) -> Conditions:
        """Return the settings that the measurements depend on, apart from versions and what `execution` records."""
        import torch

        from bench.core import environment

        chip = environment.cpu_model()  # an Apple GPU is a part of it
        return Conditions(
            device=device_name(self.device) or (f"{chip} GPU" if self.device.startswith("mps") else chip),
            float32_matmul_precision=torch.get_float32_matmul_precision(),
            allow_tf32=torch.backends.cuda.matmul.allow_tf32,
            cudnn_benchmark=torch.backends.cudnn.benchmark,
            cudnn=torch.backends.cudnn.version() if self.on_gpu else None,
            load_before=self.load_before,
            windows=self.pace.windows,
            window_seconds=self.pace.seconds,
            slowest_call_seconds=self.pace.slowest_call,
        )

    def _say(self, phase: str) -> None:
        self.context.log(phase)
        self.context.progress(Advanced(done=self.phase, total=PHASES, phase=phase))
        self.phase += 1


JOB = Job(run=run, expected_seconds=expected_seconds)
