"""Costs in people's units: the paper's Tables 6 and 2 as yardsticks, peak rates, and the command that prints them."""

import json
import time
from types import SimpleNamespace

import pytest
import torch

from baselines import published
from bench.commands import flops
from bench.core.errors import UserError
from bench.cost import paper_table, peaks, units

# -- the paper's Table 6 and Table 2 as yardsticks, and the verb that prints them --------------------------------------


@pytest.fixture(scope="module")
def rows() -> list[paper_table.PaperRow]:
    return paper_table.rows()


def test_every_row_is_within_its_tolerance(rows: list[paper_table.PaperRow]) -> None:
    assert len(rows) == 18
    assert [row.printed for row in rows if not row.within] == []
    flagged = {(row.printed, row.epochs): row.tolerance for row in rows if row.note}
    assert flagged == {("R50x1+ViT-L/16", 7): 0.035, ("ViT-B/32", 7): 0.025}
    assert all(row.tolerance == 0.015 for row in rows if not row.note)
    assert {row.printed for row in rows if abs(row.ratio - 1) > 0.015} == {"ViT-B/32", "R50x1+ViT-L/16"}, "flagged"


@pytest.mark.parametrize(
    ("model", "gmacs"),
    [
        ("ViT-B/16", 17.578),
        ("ViT-H/14", 167.319),
        ("R50x1", 3.984),
        ("R152x2", 43.948),
        ("R200x3", 129.315),
        ("R50+ViT-B/32", 8.331),
        ("R50+ViT-L/16", 65.437),
    ],
)
def test_macs_under_the_papers_convention(rows: list[paper_table.PaperRow], model: str, gmacs: float) -> None:
    assert {round(row.forward_macs / 1e9, 3) for row in rows if row.model == model} == {gmacs}


def test_counting_padded_taps_would_overshoot_every_resnet() -> None:
    for name in ("R50x1", "R152x2", "R200x3"):
        cost = paper_table.count(name, image_size=224, num_classes=18_291, activations=False)
        assert 1.03 < cost.forward_macs["dense"] / cost.forward_macs["paper"] < 1.05


def test_command_prints_the_table(rows: list[paper_table.PaperRow], capsys: pytest.CaptureFixture[str]) -> None:
    assert flops.main(["--paper-table"]) == 0
    text = capsys.readouterr().out
    assert all(row.printed in text for row in rows)
    assert flops.main(["--paper-table", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in printed if entry["contradicted"]] == ["ViT-B/32", "R50x1+ViT-L/16"]


def test_json_and_modules(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["ViT-B/16", "--image-size", "384", "--classes", "10", "--convention", "paper", "--modules", "--json"]
    assert flops.main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["forward_macs"].keys() == {"paper"}
    assert report["by_module"]["paper"][""] == report["forward_macs"]["paper"]
    assert report["image_size"] == 384 and report["num_classes"] == 10


def test_presets_use_their_own_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert flops.main(["mnist-7562", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["params"], report["image_size"], report["channels"]) == (7562, 28, 1)


# -- cost in people's units ------------------------------------------------------------------------------------------


def test_anchors_are_the_papers_numbers() -> None:
    exaflops = {(r["name"], r["epochs"]): float(r["exaFLOPs"]) for r in published.table("table6")}
    days = next(row for row in published.table("table2") if row["dataset"] == "TPUv3-core-days")
    by_name = {anchor.name: anchor for anchor in units.ANCHORS}
    assert by_name["ViT-H/14 (JFT)"].exaflops == exaflops["ViT-H/14", "14"]
    assert by_name["ViT-L/16 (JFT)"].exaflops == exaflops["ViT-L/16", "14"]
    for name, anchor in by_name.items():
        assert anchor.core_days == float(days[name])


def test_implied_rates() -> None:
    """19.7, 26.7 and 23.8 TFLOP/s per core, a third to two fifths of the peak."""
    rates = [anchor.rate / 1e12 for anchor in units.ANCHORS]
    assert rates == pytest.approx([19.7, 26.7, 23.8], abs=0.1)
    assert 0.3 < units.tpuv3_utilisation() < 0.45


def test_proxy_reproduces_table_2_as_well_as_it_says() -> None:
    ratios = {row.name: row.ratio for row in units.reproduction()}
    assert max(abs(ratio - 1) for ratio in ratios.values()) < 0.16
    estimate = units.tpuv3_core_days(4262e18)
    assert estimate.value == pytest.approx(2500 * ratios["ViT-H/14 (JFT)"])
    assert "15%" in str(estimate) and "utilisation" in str(estimate)


def test_core_days_and_gpu_hours() -> None:
    assert units.core_days(86_400, 8) == 8
    assert units.gpu_hours(312e12 * 3600, "A100", 0.5).value == pytest.approx(2)
    with pytest.raises(ValueError, match="utilisation"):
        units.gpu_hours(1e18, "A100", 0)


# -- peak rates: published where known, measured where not -------------------------------------------------------------


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
    peak = peaks.published_peak(device, dtype)
    assert peak is not None and not peak.measured
    assert peak.flops_per_second == pytest.approx(tera * 1e12)
    assert dtype in peak.source


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


def test_measuring_a_peak_takes_the_time_that_it_is_given_and_finds_the_best(monkeypatch) -> None:
    """On a clock that only products move, by as long for each: the largest has the best rate."""
    now = [0.0]
    monkeypatch.setattr(peaks, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(torch, "matmul", lambda a, b: now.append(now.pop() + 0.05))
    peak = peaks.measured_peak.__wrapped__("float32", 1, "cpu", seconds=1.0)
    assert 1.0 <= now[0] <= 1.0 + 5 * 2 * 0.05 + 1e-9  # of five sizes, one to warm up and one that is not cut short
    assert peak.flops_per_second == pytest.approx(2 * 1024**3 / 0.05) and "1024x1024" in peak.source


def test_measured_peak_is_plausible_and_restores_threads() -> None:
    before = torch.get_num_threads()
    peaks.measured_peak.cache_clear()
    peak = peaks.measured_peak("float32", 1, "cpu", seconds=0.3)
    assert torch.get_num_threads() == before
    assert peak.measured and "1 thread" in peak.source and "float32" in peak.source
    assert 1e9 < peak.flops_per_second < 1e13
    a = torch.randn(256, 256)
    start = time.perf_counter()
    a @ a
    slower = 2 * 256**3 / (time.perf_counter() - start)
    assert peaks.utilisation(slower, peak) < 2
