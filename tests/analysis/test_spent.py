"""What a study cost, counted alike: images are those that the FLOPs were spent on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.analysis.cost_summary import spent

REFERENCE = Path(__file__).parents[2] / "results" / "reference"


@pytest.mark.parametrize("study", ["branching-cpu", "transfer-cpu"])
def test_flops_over_images_are_the_flops_of_an_image(study):
    """Study by study the sum, cell by cell the quotient: a cell that reads several branches trains on more images than
    its longest horizon says."""
    records = [json.loads(path.read_bytes()) for path in sorted((REFERENCE / study).glob("cells/*/record.json"))]
    implied = 0
    for record in records:
        one = spent([record])
        per_image = record["model"]["train_flops_per_image"]["paper"]
        if one.spent_images:
            assert one.spent_flops / one.spent_images == pytest.approx(per_image, rel=1e-9)
            implied += round(one.spent_flops / per_image)
    whole = spent(records)
    assert whole.spent_images == implied > 0
    assert whole.spent_images >= sum(max(h["images_seen"] for h in r["horizons"]) for r in records)
    assert f"over {whole.spent_images:,} images" in whole.sentence
