"""Write every published result into one HTML page, whose table sorts and filters without a server, and into CSV and
Parquet files."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import io
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from bench.analysis.table import frame_csv
from bench.published import public_models
from bench.report.page import NO_NETWORK, TEMPLATES

HERE = Path(__file__).parent
PAGE = "published.html"
LINK = "All results, to sort and filter"
NAMES = {"checkpoints": "timm", "clip": "open_clip, zero-shot", "paper": "ViT paper"}
"""Table of `bench.published.public_models` -> its name on the page."""
COLUMNS = {
    "model": "Model",
    "image_size": "px",
    "in1k_top1": "ImageNet [%]",
    "train_exaflops": "Training exaFLOPs",
    "gmacs": "GMACs",
    "pretrain_set": "Pre-trained on",
    "images_seen": "Images seen",
    "family": "Family",
    "params_m": "Params [M]",
    "bound": "Lower bound",
    "teacher": "Teacher",
    "real_top1": "ReaL",
    "v2_top1": "V2",
    "a_top1": "A",
    "r_top1": "R",
    "sketch_top1": "Sketch",
    "table": "Table",
    "confidence": "Recipe",
    "licence": "Licence",
    "source": "Source",
    "note": "Note",
}
"""Column of the page -> its heading."""


def table() -> pd.DataFrame:
    """Return the three tables of published networks as one, with the columns of the page. Zero-shot accuracies are in
    the same columns as other accuracies, and rows of the ViT paper have the exaFLOPs that it prints instead of counted
    ones."""
    parts = []
    for name, shown in NAMES.items():
        part = public_models.table(name).rename(columns=lambda column: column.replace("_zeroshot", "_top1"))
        if name == "paper":
            part["train_exaflops"] = part["train_exaflops_paper"]
        known = part["train_exaflops"].notna()
        bound = known & ~part["complete"] if "complete" in part else False
        parts.append(part.assign(table=shown, bound=bound))
    made = pd.concat(parts, ignore_index=True).reindex(columns=list(COLUMNS))
    for flag in ("bound", "teacher"):
        made[flag] = made[flag].eq(True).map({True: "yes", False: ""})
    return made


def files(folder: Path) -> dict[Path, bytes]:
    """Return the files to be written below `folder`, path -> content: the page, and every table with all of its columns
    as CSV (and as Parquet, if pyarrow is installed)."""
    made: dict[Path, bytes] = {}
    for name in NAMES:
        whole = public_models.table(name)
        made[folder / "tables" / f"{name}.csv"] = frame_csv(whole, digits=8).encode()
        if importlib.util.find_spec("pyarrow"):
            buffer = io.BytesIO()
            whole.to_parquet(buffer, index=False)
            made[folder / "tables" / f"{name}.parquet"] = buffer.getvalue()
    links = [path.relative_to(folder).as_posix() for path in made]
    return made | {folder / PAGE: _page(table(), links).encode()}


def _page(rows: pd.DataFrame, links: list[str]) -> str:
    script = (HERE / "explore.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    data = {"columns": [_column(name, rows[name]) for name in COLUMNS]}
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("explore.html.j2").render(
        policy=f"{NO_NETWORK}; script-src 'sha256-{digest}'",
        style=Markup((TEMPLATES / "style.css").read_text()),
        script=Markup(script),
        data=Markup(json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")),
        columns=COLUMNS,
        described=public_models.COLUMNS,
        links=links,
        rows=len(rows),
        version=public_models.VERSION,
    )


def _column(name: str, values: pd.Series) -> dict[str, Any]:
    """Return a column in the form that the page's script reads: numbers with five significant digits (None if missing),
    or the distinct texts and for each row the index of its text."""
    if values.dtype.kind in "fi":
        numbers = [float(f"{v:.5g}") if math.isfinite(v) else None for v in values.tolist()]
        return {"name": name, "numbers": numbers}
    codes, texts = pd.factorize(values.fillna(""))
    return {"name": name, "texts": [str(text) for text in texts], "codes": codes.tolist()}
