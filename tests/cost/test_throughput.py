"""The figure of the speed suite, from made-up records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.analysis import evidence
from bench.analysis.study_data import Records
from bench.core.record import (
    Conditions,
    Environment,
    Execution,
    LargestBatch,
    Latency,
    ModelFacts,
    Record,
    Reference,
    SpeedResult,
    Throughput,
)
from bench.core.spec import Cell
from bench.cost.timing import spread
from bench.report.figures import throughput
from bench.report.figures._contract import NothingToDraw, render
from tests.analysis._records import blank


def throughput_of(batch: int, rates: list[float], **more: Any) -> Throughput:
    return Throughput(batch=batch, images_per_second=spread(rates), windows=tuple(rates), calls_per_window=1, **more)


def record(
    model: str, family: str, size: int, rates: list[float] | None, *, found: int | None = None, seed: int = 0
) -> Record:
    conditions = Conditions(
        device="cpu X",
        float32_matmul_precision="highest",
        allow_tf32=False,
        windows=3,
        cudnn_benchmark=False,
        window_seconds=0.1,
        slowest_call_seconds=1.0,
    )
    speed = SpeedResult(revision=1, conditions=conditions)
    if rates:
        speed = replace(
            speed,
            inference=throughput_of(8, rates, utilisation=0.4),
            latency=Latency(batch=1, p50_ms=3.0, p90_ms=3.5, p99_ms=None, min_ms=2.0, max_ms=4.0, n=20),
            reference=Reference(
                model="ViT-nano/7",
                image_size=28,
                channels=1,
                num_classes=10,
                throughput=throughput_of(64, [100.0 + size]),
            ),
            largest_batch=LargestBatch(
                inference=5000, training=100, budget_bytes=16 * 2**30, how="from shapes", found_inference=found
            ),
        )
    return blank(
        Cell(model=model, image_size=size, data="noise", seed=seed, job="speed"),
        directory=f"{model}-{size}-{seed}",
        status="complete" if rates else "oom",
        speed=speed,
        model=ModelFacts(name=model, family=family, params=10),
        execution=Execution(device="cpu", threads=2, dtype="float32"),
        environment=Environment(torch="2", commit="c"),
    )


def draw(*records: Record) -> Any:
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
