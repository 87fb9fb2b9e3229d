"""A figure of accuracy against the width of perceptrons."""

import pandas as pd
import seaborn.objects as so

from bench.report.figures import _style
from bench.report.figures.figure import Drawing, Figure, NothingToDraw


def draw(evidence):
    widths = {r.directory: r.model.num_features for r in evidence.records.records}
    scores = evidence.scores[evidence.scores.measure == "centroid:stripes"].sort_values("images_seen")
    if scores.empty:
        raise NothingToDraw("no perceptron was scored on stripes")
    last = scores.groupby("directory", observed=True).value.last()
    data = pd.DataFrame({"width": last.index.map(widths), "accuracy": last.to_numpy()})
    with _style.context():
        figure = _style.figure(width=4, height=3)
        so.Plot(data, x="width", y="accuracy").add(so.Dot()).theme(_style.theme()).on(figure).plot()
    return Drawing(figure=figure, data=data, caption="What is shown, n, what intervals contain.", alt="One sentence.")


FIGURE = Figure(title="Accuracy against width", draw=draw)
