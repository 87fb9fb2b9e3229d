"""Peak rates: published where known, measured where not."""

from __future__ import annotations

import time

import pytest
import torch

from bench.core.errors import UserError
from bench.cost import peaks


@pytest.mark.parametrize(
    ("device", "dtype", "tera"),
    [
        ("NVIDIA H100 80GB HBM3", "bfloat16", 989.4),
        ("NVIDIA H100 PCIe", "bfloat16", 756.0),
        ("NVIDIA H200", "bfloat16", 989.4),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156.0),
        ("NVIDIA A100-SXM4-80GB", "float32", 19.5),
        ("NVIDIA L40S", "bfloat16", 362.05),
        ("NVIDIA L4", "bfloat16", 121.0),
        ("NVIDIA A10G", "float32", 31.2),
        ("NVIDIA GeForce RTX 4090", "bfloat16", 165.2),
        ("Tesla T4", "float16", 65.0),
        ("NVIDIA GH200 480GB", "bfloat16", 989.4),
        ("NVIDIA B200", "bfloat16", 2250.0),
        ("NVIDIA GB200", "bfloat16", 2500.0),  # 5,000 with sparsity: "NVIDIA GB200 NVL72", individual GPU
        ("NVIDIA GB200", "tf32", 1250.0),
        ("Tesla V100-SXM2-16GB", "float16", 125.0),
    ],
)
def test_names_as_drivers_give_them(device: str, dtype: str, tera: float) -> None:
    found = peaks.published_peak(device, dtype)
    assert found is not None and not found.measured
    assert found.flops_per_second == pytest.approx(tera * 1e12)
    assert dtype in found.source


def test_unknown_devices_have_no_published_peak() -> None:
    for name in (
        "Some CPU @ 2.0GHz",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA H20",
        "NVIDIA H800",
        "NVIDIA L40",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA RTX 6000 Ada Generation",
    ):
        assert peaks.published_peak(name, "float16") is peaks.accelerator_of(name) is None
    with pytest.raises(UserError, match="Did you mean"):
        peaks.accelerator("H101")


def test_every_row_has_rates_and_a_source() -> None:
    for row in peaks.ACCELERATORS:
        assert row.source and all(rate > 0 for rate in row.tera.values())
        assert peaks.published_peak(" ".join(row.matches), "bfloat16") is not None


def test_measured_peak_is_quick_plausible_and_restores_threads() -> None:
    before = torch.get_num_threads()
    peaks.measured_peak.cache_clear()
    start = time.process_time()
    found = peaks.measured_peak("float32", 1, "cpu", seconds=0.3)
    assert time.process_time() - start < 1.5
    assert torch.get_num_threads() == before
    assert found.measured and "1 thread" in found.source and "float32" in found.source
    assert 1e9 < found.flops_per_second < 1e13
    a = torch.randn(256, 256)
    start = time.perf_counter()
    a @ a
    slower = 2 * 256**3 / (time.perf_counter() - start)
    assert peaks.utilisation(slower, found) < 2
