"""Peak FLOP/s of devices: the maker's figure for a known accelerator, a measurement for any other device.

A utilisation is only as good as the peak it is divided by, so every peak carries its source. All figures are for dense
matrices: the doubled figures that data sheets give "with sparsity" are not used.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.core.device import device_name, synchronise

TERA = 1e12


@dataclass(frozen=True, kw_only=True)
class PeakRate:
    """The peak compute throughput of a device.

    Attributes:
        flops_per_second: FLOPs (2 x MACs) per second of one device, or, on a CPU, of the threads that are used.
        source: where the figure comes from, in words.
        measured: whether the figure is a throughput of matrix products measured on this machine, and not the maker's;
            the true peak may be higher.
    """

    flops_per_second: float
    source: str
    measured: bool = False


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """One kind of device, with its maker's figures.

    Attributes:
        name: our name for the device.
        matches: lower-case words that all occur in the name that the device's driver reports.
        tera: dtype -> peak TFLOP/s; "tf32" is float32 data with products rounded to 10 bits of mantissa.
        source: where the figures come from, in words.
        gigabytes: memory in GB; 0 if unknown.
        bandwidth: memory bandwidth in TB/s; 0 if unknown.
    """

    name: str
    matches: tuple[str, ...]
    tera: dict[str, float]
    source: str
    gigabytes: int = 0
    bandwidth: float = 0.0


def _gpu(name: str, matches: str, source: str, half: float, **tera: float) -> Accelerator:
    rates = {"bfloat16": half, "float16": half, **tera}
    gigabytes, bandwidth = _MEMORY[name]
    return Accelerator(
        name=name, matches=tuple(matches.split()), tera=rates, source=source, gigabytes=gigabytes, bandwidth=bandwidth
    )


_MEMORY = {  # device -> (memory in GB, its bandwidth in TB/s)
    "B200": (180, 8.0),
    "GB200": (186, 8.0),
    "GH200": (96, 4.0),
    "H200": (141, 4.8),
    "H100-PCIe": (80, 2.0),
    "H100-NVL": (94, 3.9),
    "H100": (80, 3.35),
    "A100": (80, 2.04),
    "V100": (32, 0.9),
    "L40S": (48, 0.864),
    "L4": (24, 0.3),
    "A10G": (24, 0.6),
    "A10": (24, 0.6),
    "T4": (16, 0.32),
    "RTX-4090": (24, 1.008),
    "RTX-3090": (24, 0.936),
    "MI300X": (192, 5.3),
    "TPUv2-core": (8, 0.35),
    "TPUv3-core": (16, 0.45),
    "TPUv4-chip": (32, 1.2),
    "TPUv5e-chip": (16, 0.82),
    "TPUv5p-chip": (95, 2.76),
}


_ADA = "NVIDIA Ada GPU architecture white paper, FP32 accumulation"
_AMPERE = "NVIDIA Ampere GA102 white paper, FP32 accumulation"

OTHER_WORDS = {
    "mig",
    "laptop",
    "ti",
    "d",
    "super",
}  # a name with one of these words belongs to another device than the rest of the name says

# More specific names first: the first entry whose words all occur in the device's name is taken.
ACCELERATORS: tuple[Accelerator, ...] = (
    _gpu("B200", "b200", "NVIDIA DGX B200 data sheet, dense", 2250.0, tf32=1125.0, float32=75.0),
    _gpu("GB200", "gb200", "NVIDIA GB200 NVL72 data sheet, per GPU, dense", 2500.0, tf32=1250.0, float32=80.0),
    _gpu("GH200", "gh200", "NVIDIA GH200 data sheet, dense", 989.4, tf32=494.7, float32=66.9),
    _gpu("H200", "h200", "NVIDIA H200 data sheet, dense", 989.4, tf32=494.7, float32=66.9),
    _gpu("H100-PCIe", "h100 pcie", "NVIDIA H100 data sheet, dense", 756.0, tf32=378.0, float32=51.2),
    _gpu("H100-NVL", "h100 nvl", "NVIDIA H100 NVL data sheet, dense", 835.5, tf32=417.5, float32=60.0),
    _gpu("H100", "h100", "NVIDIA H100 SXM data sheet, dense", 989.4, tf32=494.7, float32=66.9),
    _gpu("A100", "a100", "NVIDIA A100 data sheet, dense", 312.0, tf32=156.0, float32=19.5),
    _gpu("V100", "v100", "NVIDIA V100 SXM2 data sheet (no bfloat16 units)", 125.0, bfloat16=15.7, float32=15.7),
    _gpu("L40S", "l40s", "NVIDIA L40S data sheet, dense", 362.05, tf32=183.0, float32=91.6),
    _gpu("L4", "nvidia l4", "NVIDIA L4 data sheet, dense", 121.0, tf32=60.0, float32=30.3),
    _gpu("A10G", "a10g", "NVIDIA A10G data sheet, dense", 70.0, tf32=35.0, float32=31.2),
    _gpu("A10", "nvidia a10", "NVIDIA A10 data sheet, dense", 125.0, tf32=62.5, float32=31.2),
    _gpu("T4", "tesla t4", "NVIDIA T4 data sheet (no bfloat16 units)", 65.0, bfloat16=8.1, float32=8.1),
    _gpu("RTX-4090", "rtx 4090", _ADA, 165.2, tf32=82.6, float32=82.6),
    _gpu("RTX-3090", "rtx 3090", _AMPERE, 71.0, tf32=35.6, float32=35.6),
    _gpu("MI300X", "mi300x", "AMD Instinct MI300X data sheet, dense", 1307.4, tf32=653.7, float32=163.4),
    _gpu("TPUv2-core", "tpu v2", "Google Cloud TPU v2: 45 TFLOP/s per chip of two cores", 22.5),
    _gpu("TPUv3-core", "tpu v3", "Google Cloud TPU v3: 123 TFLOP/s per chip of two cores", 61.5),
    _gpu("TPUv4-chip", "tpu v4", "Google Cloud TPU v4: 275 TFLOP/s per chip", 275.0),
    _gpu("TPUv5e-chip", "tpu v5e", "Google Cloud TPU v5e: 197 TFLOP/s per chip", 197.0),
    _gpu("TPUv5p-chip", "tpu v5p", "Google Cloud TPU v5p: 459 TFLOP/s per chip", 459.0),
)


def accelerator(name: str) -> Accelerator:
    """Return the entry of `ACCELERATORS` with this name ("A100", "h100-pcie").

    Raises:
        UserError: there is no such entry.
    """
    from bench.core.errors import unknown

    for row in ACCELERATORS:
        if row.name.lower() == name.lower():
            return row
    raise unknown("accelerator", name, (row.name for row in ACCELERATORS))


def accelerator_of(device_name: str) -> Accelerator | None:
    """Return the entry of `ACCELERATORS` for a device's name as its driver reports it ("NVIDIA H100 80GB HBM3").

    Return None if the device is not in the table, or is a part of a divided GPU (MIG), because the name does not say
    which fraction of the GPU it is.
    """
    words = set(re.findall(r"[a-z0-9]+", device_name.lower()))
    return None if words & OTHER_WORDS else next((row for row in ACCELERATORS if words.issuperset(row.matches)), None)


def published_peak(device_name: str, dtype: str) -> PeakRate | None:
    """Return the peak that the maker states for a device and dtype; None if unknown.

    Args:
        device_name: the device's name as its driver reports it ("NVIDIA H100 80GB HBM3").
        dtype: "float32", "tf32", "bfloat16" or "float16".
    """
    row = accelerator_of(device_name)
    if row is None or dtype not in row.tera:
        return None
    return PeakRate(flops_per_second=row.tera[dtype] * TERA, source=f"{row.source}, {dtype}")


PRECOMPUTED: dict[tuple[str, int, str], PeakRate] = {}
"""(dtype, threads, device) -> peak that another process measured on this machine: see bench/cost/precomputed.py."""


def peak(dtype: str, *, device: str = "cpu", threads: int = 1) -> PeakRate:
    """Return the peak of a device of this machine, by which throughputs are divided to get utilisations.

    This is the maker's figure if the device is in the table; else it is measured, by another process of this study or
    now (and cached).

    Args:
        dtype: "float32", "bfloat16" or "float16". On CUDA, "float32" means TF32 if torch is allowed to use it.
        threads: number of threads, on a CPU.
    """
    import torch

    if torch.device(device).type == "cuda":
        kind = "tf32" if dtype == "float32" and torch.backends.cuda.matmul.allow_tf32 else dtype
        known = published_peak(torch.cuda.get_device_name(device), kind)
        if known is not None:
            return known
    return PRECOMPUTED.get((dtype, threads, device)) or measured_peak(dtype, threads, device)


@functools.lru_cache(maxsize=32)
def measured_peak(dtype: str, threads: int = 1, device: str = "cpu", *, seconds: float = 1.2) -> PeakRate:
    """Measure the highest FLOP/s of matrix products of several sizes, as the peak of a device for which no maker's
    figure is known.

    The measurement takes `seconds`, plus at most one product per size. If other programs are running, the result is
    less than the device can do; a utilisation above 1 shows that this has happened. `threads` counts on a CPU only.
    """
    import torch

    kind = getattr(torch, dtype)
    on_gpu = torch.device(device).type != "cpu"
    sizes = (2048, 4096, 8192) if on_gpu else (256, 384, 512, 768, 1024)
    before = torch.get_num_threads()
    best, best_size = 0.0, 0
    try:
        if not on_gpu:
            torch.set_num_threads(threads)
        with torch.inference_mode():
            for size in sizes:
                a, b = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
                run = functools.partial(torch.matmul, a, b)
                rate = 2 * size**3 / _fastest(run, device=device, seconds=seconds / len(sizes))
                if rate > best:
                    best, best_size = rate, size
    finally:
        torch.set_num_threads(before)
    where = device_name(device) or f"{device}, {threads} thread"
    plural = "s" if not on_gpu and threads != 1 else ""
    source = f"measured matmul ({best_size}x{best_size}), {dtype}, {where}{plural}"
    return PeakRate(flops_per_second=best, source=source, measured=True)


def _fastest(run: Callable[[], object], *, device: str, seconds: float) -> float:
    """Call `run` repeatedly for about `seconds`, after one call to warm up, and return the seconds of the fastest
    call."""
    run()
    synchronise(device)
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        run()
        synchronise(device)
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return best


def utilisation(flops_per_second: float, peak: PeakRate | float) -> float:
    """Return an achieved throughput in FLOP/s as a fraction of a peak (in FLOP/s if it is a number). If the FLOPs are
    those of the model's architecture, the fraction is the MFU."""
    rate = peak.flops_per_second if isinstance(peak, PeakRate) else peak
    return flops_per_second / rate
