"""Measures one model at one input size: inference at many batch sizes, training, latency, memory; no data, no scores.

The cell's images are made up. A small reference model takes its turn between the cell's own windows, in every cell
alike: where its speed differs between two cells, the machine did, and the two should not be compared closely.
"""

from __future__ import annotations

import functools
import os
import time
from typing import TYPE_CHECKING, Any

from bench.core.device import is_out_of_memory, release
from bench.core.spec import Cell

if TYPE_CHECKING:
    from torch import nn

    from bench.cost.timing import Workload
    from bench.execute.jobs._contract import JobContext

REVISION = 1
CANDIDATES = 3  # batch sizes that are measured thoroughly: the fastest of the scan
PHASES = 6


def expected_seconds(cell: Cell) -> float:
    """About how long one cell takes, for a plan: the windows have a fixed length, whatever the model."""
    return 12.0


def run(cell: Cell, context: JobContext) -> dict[str, Any]:
    """Measure a cell. Out of memory anywhere is part of the result.

    Raises:
        UserError: the model cannot be built at this size.
        Interrupted: a signal asked for a stop; the cell is measured again from the start.
    """
    import torch

    torch.set_num_threads(context.threads)
    return SpeedJob(cell, context).body()


class SpeedJob:
    """One model on one device, and what is found about it."""

    def __init__(self, cell: Cell, context: JobContext) -> None:
        from bench.cost import flops, peaks
        from bench.cost.timing import CPU_PACE, Pace
        from bench.execute.workloads import CLASSES, Subject
        from bench.train import precision

        self.started = time.perf_counter()
        self.load_before = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        self.cell, self.context, self.device = cell, context, context.device
        self.on_gpu = context.device.startswith("cuda")
        self.pace = Pace() if self.on_gpu else CPU_PACE
        self.phase = 0
        sizes = {"image_size": cell.image_size, "channels": cell.channels}
        options = cell.model_options
        self.cost = flops.count(cell.model, num_classes=CLASSES, model_options=options, activations=False, **sizes)
        dtype = precision.resolve(cell.recipe.dtype, context.device)
        self.subject = Subject(model=cell.model, device=context.device, dtype=dtype, options=options, **sizes)
        self.peak = peaks.peak(dtype, device=context.device, threads=context.threads)

    def body(self) -> dict[str, Any]:
        """The record's body: "speed" holds the findings."""
        from bench.core.errors import Interrupted
        from bench.cost.timing import OutOfMemory
        from bench.execute.jobs._facts import model_facts
        from bench.execute.workloads import CLASSES

        status, reason, found = "complete", None, dict[str, Any]()
        try:
            found = self.measure()
        except OutOfMemory:
            status, reason = "oom", f"{self.cell.model} at {self.cell.image_size} px does not fit at batch 1"
        if self.context.should_stop():
            raise Interrupted("the measurement was not finished")
        cost = self.cost
        return {
            "status": status,
            "reason": reason,
            "model": model_facts(self.cell.model, cost),
            "data": {"name": self.cell.data, "kind": "rendered", "num_images": 0, "num_classes": CLASSES},
            "horizons": [],
            "speed": found | {"revision": REVISION, "environment": self.environment()},
            "peak_flops_per_second": self.peak.flops_per_second,
            "peak_source": self.peak.source,
            "cost": self._seconds(),
        }

    def measure(self) -> dict[str, Any]:
        """All measurements, as JSON types.

        Raises:
            OutOfMemory: the model itself does not fit.
        """
        from bench.cost import timing as speed
        from bench.execute import workloads

        stop, pace, subject = self.context.should_stop, self.pace, self.subject
        self._say("scanning batch sizes")
        try:
            model = subject.build()
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                raise speed.OutOfMemory from error
            raise
        inference = functools.partial(subject.inference, model)
        scanned, limit = speed.scan_batches(inference, device=self.device, pace=pace, should_stop=stop)
        if not scanned:
            raise speed.OutOfMemory
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
        latency = speed.latency(single.call, device=self.device, calls=pace.latency_calls)
        best = max(chosen, key=lambda w: speed.spread(w.windows)["median"] or 0.0)
        found = {
            "inference": best.summary() | {"utilisation": self._utilisation(best, "forward_flops"), "limit": limit},
            "batches": [self._scanned(workload) for workload in scanned],
            "compiled": compiled and self._compiled_summary(compiled),
            "training": training and self._training_summary(training),
            "latency": latency | {"batch": 1},
            "reference": reference.summary() | workloads.REFERENCE,
            "memory": self._memory(model, best, training),
        }
        self._profile(model, best.images)
        del model, inference, single, training, together, best, scanned, chosen
        release(self.device)
        self._say("largest batch")
        return found | {"largest_batch": self._largest_batch()}

    def _compiled(self, model: nn.Module, batch: int) -> Workload | None:
        """The compiled model at its best eager batch, its compilation timed by the first call; on GPUs only.

        Compiling for a CPU takes minutes and gains nothing for these models.
        """
        import torch

        from bench.cost import timing as speed

        if not self.on_gpu:
            return None
        workload = self.subject.inference(torch.compile(model, mode="max-autotune"), batch)
        try:
            speed.warm_up(workload, device=self.device, pace=self.pace)
        except (speed.OutOfMemory, RuntimeError) as error:
            self.context.log(f"not compiled: {error}")
            return None
        return workload

    def _largest_batch(self) -> dict[str, Any]:
        """Predicted from shapes and a budget everywhere; on a GPU also found by trying."""
        import torch

        from bench.execute import workloads

        predicted = dict(workloads.predicted_batches(self.subject))
        how = f"float32 tensors alive at once, from shapes; {workloads.BUDGET_NAME}"
        result: dict[str, Any] = {"predicted": predicted, "budget_bytes": workloads.BUDGET, "how": how, "found": None}
        if self.on_gpu:
            largest = self.subject.largest_inference(start=predicted["inference"], should_stop=self.context.should_stop)
            device_bytes = torch.cuda.get_device_properties(0).total_memory
            result["found"] = {"inference": largest, "device_bytes": device_bytes}
        return result

    def _memory(self, model: nn.Module, best: Workload, training: Workload | None) -> dict[str, Any]:
        """Peak bytes of one call each: by the allocator on a GPU; on a CPU of the whole process so far."""
        import torch

        from bench.cost import memory
        from bench.cost import timing as speed

        if not self.on_gpu:
            how = "resident memory of the process at its largest so far"
            return {"process_peak_bytes": memory.measured_peak_bytes(), "how": how}
        found: dict[str, Any] = {"how": "torch's allocator during one call, with weights and images of all workloads"}
        for mode, workload in (("inference", best), ("training", training)):
            if workload is not None:
                torch.cuda.reset_peak_memory_stats()
                speed.timed(workload.call, device=self.device)
                found[f"{mode}_peak_bytes"] = torch.cuda.max_memory_allocated()
        return found

    def _profile(self, model: nn.Module, batch: int) -> None:
        """A few training steps and evaluations in a trace, where the user asked for one."""
        if not self.context.profile or not self.cost.params:
            return
        from bench.cost import trace

        trained = self.subject.training(self.subject.build().train(), min(batch, self.cell.recipe.batch))
        evaluated = self.subject.inference(model, batch)
        with trace.profile(self.context.attempt / "trace", device=self.device) as recording:
            for _ in range(trace.WAIT + trace.WARM_UP + trace.ACTIVE + 1):
                trained.call()
                with trace.label("evaluate"):
                    evaluated.call()
                recording.step()

    # -- reporting -------------------------------------------------------------------------------------------------

    def _scanned(self, workload: Workload) -> dict[str, Any]:
        rate = workload.images / workload.call_seconds if workload.call_seconds else None
        return workload.summary() | {"scan_images_per_second": rate}

    def _training_summary(self, workload: Workload) -> dict[str, Any]:
        used = self._utilisation(workload, "train_flops_per_image")
        return workload.summary() | {"utilisation": used, "optimizer": "AdamW, fused; gradient norm clipped"}

    def _compiled_summary(self, workload: Workload) -> dict[str, Any]:
        used = self._utilisation(workload, "forward_flops")
        return workload.summary() | {"utilisation": used, "compile_seconds": workload.first_call_seconds}

    def _utilisation(self, workload: Workload, cost: str) -> float | None:
        from bench.cost.timing import spread

        rate = spread(workload.windows)["median"]
        return None if rate is None else rate * getattr(self.cost, cost)["dense"] / self.peak.flops_per_second

    def environment(self) -> dict[str, Any]:
        """What the numbers depend on besides the versions, which are in the record's "env"."""
        import torch

        from bench.core import environment

        found = {
            "device": torch.cuda.get_device_name() if self.on_gpu else environment.cpu_model(),
            "threads": self.context.threads,
            "cores": environment.cores(),
            "dtype": self.subject.dtype,
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "allow_tf32": torch.backends.cuda.matmul.allow_tf32,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
            "load_before": self.load_before,
            "windows": self.pace.windows,
            "window_seconds": self.pace.seconds,
            "slowest_call_seconds": self.pace.slowest_call,
        }
        if self.on_gpu:
            found |= {"cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
        return found

    def _seconds(self) -> dict[str, Any]:
        from bench.cost import memory, units

        total = time.perf_counter() - self.started
        devices = 1 if self.on_gpu else self.context.threads
        return {
            "seconds": {"train": 0.0, "evaluate": total, "save": 0.0, "wait": 0.0, "total": total},
            "spent_images": 0,
            "spent_flops": {"dense": 0, "paper": 0},
            "core_days": units.core_days(total, devices),
            "devices": devices,
            "device": self.device,
            "threads": self.context.threads,
            "dtype": self.subject.dtype,
            "peak_memory_bytes": memory.measured_peak_bytes(),
            "flop_convention": "FLOP = 2 MAC; training = 3 forward; utilisation counts dense convolutions",
        }

    def _say(self, phase: str) -> None:
        self.context.log(phase)
        self.context.progress({"done": self.phase, "total": PHASES, "phase": phase})
        self.phase += 1
