"""Figures of the inside of a study's trained networks (filters, attention, …): `bench.report --cell` writes them, and
reports read and show them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from bench.core import files
from bench.core.errors import UserError
from bench.report.figures.figure import RenderedFigure, render
from bench.store.study import INSPECTED
from bench.study.cell import slug

if TYPE_CHECKING:
    from bench.report.figures.figure import Drawing

TITLES = {
    "filters": "Principal components of the first layer's filters",
    "positions": "Similarity of position embeddings",
    "distance": "Attention distance",
    "rollout": "Attention roll-out",
}
KEPT = ("name", "title", "caption", "alt", "width")  # fields in the list of a folder's figures; files hold the rest


def write(folder: Path, drawings: Mapping[str, Drawing], *, model: str, name: str = "", mark: str = "") -> list[Path]:
    """Write PNG, SVG and CSV of every drawing and then, as JSON, the list of these figures. Return the paths of the
    PNGs.

    Args:
        drawings: kind of figure (a key of `TITLES`) -> its drawing.
        model: name of the model, for the titles.
        name: beginning of the files' names; "": the model's name.
        mark: words before each title and across the picture; "" for none.

    Raises:
        UserError: the folder cannot be written.
    """
    files.make_directory(folder)
    name = name or slug(model)
    saved = [
        figure
        for kind, drawing in drawings.items()
        for figure in render(f"{name}-{kind}", f"{TITLES[kind]}, {model}", drawing, mark=mark)
    ]
    written = {path: data for figure in saved for path, data in figure.files(folder).items()}
    for path, data in written.items():
        files.write_bytes(path, data)
    listed = [{key: getattr(figure, key) for key in KEPT} for figure in saved]
    files.write_bytes(folder / f"{name}.json", files.dump_json({"figures": listed}))
    return [path for path in written if path.suffix == ".png"]


def read(study: Path) -> list[RenderedFigure]:
    """Return the figures that `write` left in a study's folder, in the order of the models' names.

    Raises:
        UserError: a figure on a list is missing or damaged.
    """
    figures = []
    for path in sorted((study / INSPECTED).glob("*.json")):
        try:
            for facts in json.loads(path.read_text())["figures"]:
                figure = path.parent / Path(str(facts["name"])).name  # never elsewhere
                svg, csv = (figure.with_name(f"{figure.name}.{kind}").read_text() for kind in ("svg", "csv"))
                ElementTree.fromstring(svg)  # the page is made from its elements
                png = figure.with_name(f"{figure.name}.png").read_bytes()
                figures.append(
                    RenderedFigure(**{key: facts[key] for key in KEPT}, folder=INSPECTED, png=png, svg=svg, csv=csv)
                )
        except (OSError, ValueError, KeyError, ElementTree.ParseError) as error:
            raise UserError(
                f"{path} cannot be read: {error}.", "Run vit-bench report --cell again, or delete it."
            ) from error
    return figures
