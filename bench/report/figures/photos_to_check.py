"""Figure of labelled photos that are worth a look: pairs of copies with different labels, and the misclassified test
images of which the best model is surest."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from bench.analysis.adaptation import Adapted, adapted
from bench.analysis.evidence import Evidence
from bench.core.formatting import plural
from bench.report.figures import _style
from bench.report.figures.figure import Drawing, Figure, NothingToDraw

TITLE = "Photos to check"
MAX_PER_ROW = 6  # pictures in a row, at most
WIDTH, ROW = 9.5, 1.95  # inches: width of the figure, height of a row
MAX_CLASS_LETTERS = 20  # letters of a class's name


def draw(evidence: Evidence) -> Drawing:
    """Draw photos of the first data set that has photos to check: pairs of copies, side by side, then errors of the
    best adapted model."""
    best = next((one for one in adapted(evidence) if one.pairs or one.surest), None)
    if best is None:
        raise NothingToDraw("no test image is misjudged, and no copies have different labels")
    tiles = [
        *(
            (picture, f"copy {i + 1}: labelled\n{_short(picture['class'])}")
            for i, two in enumerate(best.pairs)
            for picture in two
        ),
        *((one, f"{_short(one['class'])}\ntaken for {_short(one['taken'])}") for one in best.surest),
    ]
    across = 2 * _style.columns(MAX_PER_ROW // 2)
    rows = -(-len(tiles) // across)
    with _style.context():
        figure = _style.figure(width=WIDTH, height=ROW * rows)
        panels = figure.subplots(rows, across, squeeze=False).ravel()
        for axes in panels:
            axes.set_axis_off()
        for axes, (picture, text) in zip(panels, tiles, strict=False):
            axes.imshow(_pixels(picture), cmap="gray", vmin=0, vmax=255, interpolation="none")
            axes.set_title(text, fontsize=8, loc="center")
    return Drawing(figure=figure, data=_table(best), caption=_caption(best), alt=f"{TITLE}: {len(tiles)} small photos.")


def _caption(best: Adapted) -> tuple[str, ...]:
    parts = []
    if best.pairs:
        parts.append(f"Copies with different labels ({len(best.pairs)} of {plural(best.contrary, 'pair')}).")
    if best.surest:
        parts.append(
            f"The test images that {best.name} misjudges, those first that ridge regression on its features puts "
            "furthest from their label. A wrong label is one reason."
        )
    return tuple(parts)


def _table(best: Adapted) -> pd.DataFrame:
    copies = [{"shown": f"copy {i + 1}", **_words(one)} for i, two in enumerate(best.pairs) for one in two]
    errors = [{"shown": "error", **_words(one)} for one in best.surest]
    return pd.DataFrame([*copies, *errors], columns=["shown", "split", "class", "taken"])


def _words(picture: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in picture.items() if key != "jpeg"}


def _pixels(picture: Mapping[str, Any]) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(picture["jpeg"]))))


def _short(name: str) -> str:
    """Return a class's name for a picture's title: shortened to `MAX_CLASS_LETTERS`, and with dollar signs escaped,
    which would begin a formula."""
    return (name if len(name) <= MAX_CLASS_LETTERS else f"{name[: MAX_CLASS_LETTERS - 1]}…").replace("$", r"\$")


FIGURE = Figure(title=TITLE, draw=draw)
