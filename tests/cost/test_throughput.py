"""The figure of the speed suite, from made-up records."""

from __future__ import annotations

from typing import Any

import pytest

from bench.analysis import evidence
from bench.analysis.study_data import Records
from bench.core.spec import Cell, to_json
from bench.report.figures import throughput
from bench.report.figures._contract import NothingToDraw, render


def record(
    model: str, family: str, size: int, rates: list[float] | None, *, found: int | None = None, seed: int = 0
) -> dict[str, Any]:
    middle = sorted(rates)[len(rates) // 2] if rates else None
    speed: dict[str, Any] = {"environment": {"device": "cpu X", "threads": 2, "dtype": "float32"}}
    if rates:
        speed |= {
            "inference": {"images_per_second": {"median": middle}, "windows": rates, "batch": 8, "utilisation": 0.4},
            "latency": {"p50_ms": 3.0},
            "reference": {"images_per_second": {"median": 100.0 + size}},
            "largest_batch": {"predicted": {"inference": 5000, "training": 100}, "budget_bytes": 16 * 2**30,
                              "found": {"inference": found} if found else None},
        }  # fmt: skip
    return {
        "directory": f"{model}-{size}-{seed}",
        "status": "complete" if rates else "oom",
        "reason": None,
        "cell_id": f"{model}{size}{seed}",
        "cell": to_json(Cell(model=model, image_size=size, data="noise", seed=seed, job="speed")),
        "model": {"name": model, "family": family, "params": 10},
        "horizons": [],
        "speed": speed,
        "cost": {"device": "cpu", "threads": 2, "seconds": {"total": 1.0}},
        "env": {"torch": "2", "commit": "c"},
        "peak_source": "measured",
    }


def draw(*records: dict[str, Any]) -> Any:
    return throughput.draw(evidence.build(Records(suite="speed", records=records)))


def test_points_are_medians_per_core_with_extremes() -> None:
    drawing = draw(
        record("ViT-A/1", "ViT", 64, [10.0, 20.0, 60.0]),
        record("ViT-A/1", "ViT", 64, [30.0, 40.0, 50.0], seed=1),
        record("ViT-A/1", "ViT", 128, [4.0]),
        record("R1x1", "ResNet", 64, [8.0], found=77),
    )
    rows = drawing.data.set_index(["model", "image_size"])
    vit = rows.loc[("ViT-A/1", 64)]
    assert vit["images_per_second"] == (20 + 40) / 2 / 2  # median over rounds, two threads
    assert (vit["min"], vit["max"], vit["rounds"], vit["windows"]) == (5.0, 30.0, 2, 6)
    assert vit["largest_batch"] == 5000 and not vit["largest_batch_is_found"]
    assert rows.loc[("R1x1", 64)]["largest_batch"] == 77
    assert "hollow: predicted" in drawing.caption and "filled: found" in drawing.caption
    assert "varied by 39 %" in drawing.caption
    assert render("throughput", throughput.TITLE, drawing).png == render("throughput", throughput.TITLE, drawing).png


def test_out_of_memory_is_in_caption_and_table_not_in_the_panel() -> None:
    drawing = draw(record("ViT-A/1", "ViT", 64, [10.0]), record("ViT-H/1", "ViT", 64, None))
    assert "Out of memory at batch 1: ViT-H/1 at 64 px" in drawing.caption
    assert len(drawing.figure.axes[0].lines) == 1
    lacking = drawing.data.set_index("model").loc["ViT-H/1"]
    assert lacking["status"] == "out of memory" and lacking["images_per_second"] != 0


def test_predicted_and_found_batches_look_different() -> None:
    drawing = draw(record("ViT-A/1", "ViT", 64, [10.0]), record("R1x1", "ResNet", 64, [8.0], found=77))
    faces = {line.get_label(): line.get_markerfacecolor() for line in drawing.figure.axes[1].lines}
    assert faces["ViT-A/1"] == "white" and faces["R1x1"] != "white"


def test_nothing_to_draw() -> None:
    with pytest.raises(NothingToDraw, match="no speed"):
        draw()
