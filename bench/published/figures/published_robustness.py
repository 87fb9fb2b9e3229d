"""Figure: accuracy of published checkpoints on other test sets against their accuracy on ImageNet, by group of
pre-training sets."""

from __future__ import annotations

import seaborn as sns
from matplotlib.patches import Patch

from bench.analysis.evidence import Evidence
from bench.published import drawing
from bench.published.robustness import BAND, TESTS, checkpoints
from bench.report.figures import _style
from bench.report.figures.figure import Drawing, Figure

TITLE = "Other test sets at equal ImageNet accuracy: not controlled"
MIN_ACCURACY = 76  # percent of ImageNet accuracy from which checkpoints are drawn


def draw(evidence: Evidence) -> Drawing:
    """Draw a panel per test set. A grey band marks the range of ImageNet accuracy in which groups are compared.

    Raises:
        NothingToDraw: the evidence is not that of published networks.
    """
    drawing.expect_public(evidence)
    known = checkpoints()
    shown = known[known["in1k_top1"] >= MIN_ACCURACY]
    with _style.context():
        columns = max(2, _style.columns(3))
        figure = _style.figure(height=_style.current().panel_height * (6 // columns))
        grid = figure.subplots(6 // columns, columns).ravel()
        grid[-1].remove()
        for axes, (column, title) in zip(grid, TESTS.items(), strict=False):
            for name, (_, colour) in drawing.UPSTREAM.items():
                rows = shown[shown["upstream"] == name]
                look = {
                    "facecolor": "none",
                    "edgecolor": colour,
                    "s": 9,
                    "linewidth": 0.7,
                    "rasterized": True,
                }
                sns.scatterplot(data=rows, x="in1k_top1", y=column, ax=axes, legend=False, **look)
            axes.axvspan(100 - BAND[1], 100 - BAND[0], color=_style.GREY, alpha=0.2, linewidth=0)
            axes.set(xlabel="ImageNet top-1 accuracy [%]", ylabel="Accuracy [%]")
            axes.set_title(title, loc="left")
        band = Patch(color=_style.GREY, alpha=0.2, linewidth=0, label="groups are compared within this band")
        _style.legend(figure, [*drawing.upstream_handles(hollow=True), band])
    return Drawing(
        figure=figure,
        data=shown[["model", "image_size", "upstream", "in1k_top1", *TESTS]],
        caption=(
            f"{len(shown)} checkpoints with a sourced recipe, each at its best test size. Band: {BAND[0]} to "
            f"{BAND[1]} % error, where groups are compared. Authors, years and recipes differ.",
            drawing.QUOTED,
        ),
        alt=f"{TITLE}: {len(TESTS)} test sets.",
    )


FIGURE = Figure(title=TITLE, draw=draw)
