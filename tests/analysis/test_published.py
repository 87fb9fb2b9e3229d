"""The paper's Table 6 as evidence: as printed, and countable on the models themselves."""

import pytest

from baselines.published import CONTRADICTED, model_name, table
from bench.analysis import published
from bench.analysis.evidence import HEADLINE
from bench.report import tables
from bench.study import registry


def test_table_6_becomes_evidence_as_printed() -> None:
    evidence = published.evidence()
    points = {(p.model, round(p.epochs)): p for p in evidence.points.values()}
    assert len(points) == 18 and {s.family for s in evidence.series} == {"ViT", "Hybrid", "ResNet"}
    for row in table("table6"):
        point = points[model_name(row["name"]), int(row["epochs"])]
        assert point.train_flops == float(row["exaFLOPs"]) * 1e18
        five = [float(row[c]) for c in ("ImageNet", "CIFAR-10", "CIFAR-100", "Pets", "Flowers")]
        estimate = evidence.estimate(point, HEADLINE)
        assert estimate is not None and 100 * estimate.value == pytest.approx(sum(five) / 5)


@pytest.mark.parametrize("row", table("table6_sizes"), ids=lambda row: row["name"])
def test_sizes_are_those_of_the_models(row: dict[str, str]) -> None:
    import torch

    with torch.device("meta"):
        model = registry.build_model(model_name(row["name"]), image_size=224, channels=3, num_classes=1000)
    assert sum(p.numel() for p in model.parameters()) == int(row["params"])


def test_multiply_adds_follow_from_the_printed_compute() -> None:
    """A ViT with n tokens, width d, depth l and MLP 4d takes n l (12 d^2 + 2 n d) multiply-adds, and little else."""
    tokens, width, depth = 197, 768, 12
    expected = tokens * depth * (12 * width**2 + 2 * tokens * width)
    point = next(p for p in published.evidence().points.values() if p.model == "ViT-B/16")
    assert point.forward_macs == pytest.approx(expected, rel=0.02)
    assert ("ViT-B/16", 7) not in CONTRADICTED
    assert "from the printed, rounded exaFLOPs" in tables.models(published.evidence()).note
