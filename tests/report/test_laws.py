"""The figure of fitted laws: what the cards say, extrapolation set apart, both intervals around the line."""

from __future__ import annotations

import pytest

from bench.analysis import published
from bench.analysis.evidence import Evidence
from bench.core.formatting import short_count
from bench.report import limits, tables
from bench.report.cards import fit_cards
from bench.report.figures import compute, laws
from bench.report.figures._contract import Drawing, NothingToDraw
from tests.analysis._study import study


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return published.evidence()


@pytest.fixture(scope="module")
def drawing(evidence: Evidence) -> Drawing:
    return laws.draw(evidence)


def test_the_figure_says_what_the_cards_say(evidence: Evidence, drawing: Drawing) -> None:
    cards = fit_cards(evidence)
    assert len(cards) == 3
    for card in cards:
        mine = drawing.data[drawing.data["family"] == card["family"]]
        frontier = mine[mine["kind"] == "frontier"]
        assert list(frontier["error"]) == pytest.approx([p["error"] for p in card["frontier"]], rel=1e-3)
        low, high = card["card"]["x_range"]
        fitted, beyond = mine[mine["kind"] == "fitted"], mine[mine["kind"] == "extrapolated"]
        assert fitted["x"].max() <= high * 1.001 < beyond["x"].min() * 1.001 and fitted["x"].min() >= low * 0.999
        assert len(beyond) and card["card"]["form"] in drawing.caption


def test_intervals_hold_the_line_and_the_total_is_rarely_narrower(drawing: Drawing) -> None:
    curve = drawing.data[~drawing.data["kind"].isin(["frontier", "run"])]
    assert (curve["total_low"] <= curve["error"] * 1.001).all()
    assert (curve["error"] <= curve["total_high"] * 1.001).all()
    wider = (curve["total_high"] - curve["total_low"]) >= 0.9 * (curve["within_high"] - curve["within_low"])
    assert wider.mean() > 0.9


def test_what_is_extrapolated_is_dashed(drawing: Drawing) -> None:
    lines = [line for line in drawing.figure.axes[0].get_lines() if len(line.get_xdata()) > 6 or line.is_dashed()]
    dashed = [line for line in lines if line.is_dashed()]
    solid = [line for line in lines if not line.is_dashed() and line.get_linestyle() == "-"]
    assert len(dashed) == len(solid) == 3


def test_sizes_in_words_are_those_of_the_models_table(evidence: Evidence) -> None:
    """One convention: all parameters, in the legend, at the pointer, in the limits and in the table."""
    sizes = {row["series"]: short_count(row["params"]) for row in tables.models(evidence).rows}
    drawing = compute.draw(evidence)
    legends = [legend for axes in drawing.figure.axes if (legend := axes.get_legend())]
    handles = [text.get_text() for legend in legends for text in legend.texts]
    named = [model for model in sizes if any(text.startswith(f"{model}, ") for text in handles)]
    spoken = "\n".join(mark.text if isinstance(mark.text, str) else mark.text() for mark in drawing.marks)
    assert all(f"{model}, {sizes[model]} params" in handles for model in named)
    assert all(f"{model} ({sizes[model]} parameters)" in spoken for model in sizes)
    largest = max(tables.models(evidence).rows, key=lambda row: row["params"])
    assert f"above {short_count(largest['params'])} parameters" in limits.limits(evidence)[0]


def test_models_of_one_size_can_be_told_apart() -> None:
    """The same network on smaller patches: family and size are equal, dash and fill are not."""
    models = {"ViT-mini/7": ("ViT", 2.1e5, 3.3e6), "ViT-mini/14": ("ViT", 2.2e5, 1.1e6),
              "ResNet-mini": ("ResNet", 4e4, 3e6)}  # fmt: skip
    drawing = compute.draw(study(models=models, sizes=(30_000,)))
    legend = next(legend for axes in drawing.figure.axes if (legend := axes.get_legend()))
    lines = {text.get_text().split(",")[0]: line
             for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)}  # fmt: skip
    one, other = lines["ViT-mini/7"], lines["ViT-mini/14"]
    assert (one.get_color(), one.get_marker()) == (other.get_color(), other.get_marker())
    assert one.is_dashed() != other.is_dashed() and one.get_fillstyle() != other.get_fillstyle()


def test_without_laws_the_reason_is_given() -> None:
    with pytest.raises(NothingToDraw, match="no law"):
        laws.draw(study(horizons=(0, 8_000), seeds=(0,), sizes=(30_000,)))
