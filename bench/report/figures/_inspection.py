"""Figures of the inside of a model: filters, position embeddings, attention distances, attention roll-out.

Every figure shows the network before and after training beside each other. Figure numbers are those of the ViT paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import Normalize

from bench.report.figures import _style
from bench.report.figures.figure import Drawing

States = Mapping[str, np.ndarray]
PER_ROW = 7  # components beside each other
GAP = 1  # pixels between the small grids of a grid of grids


@_style.context()
def filters(states: Mapping[str, tuple[np.ndarray, np.ndarray]], *, model: str, what: str) -> Drawing:
    """Draw the principal components of a model's filters, as in Figure 7 (left) of the ViT paper.

    Args:
        states: "Before training" or "After training" -> (components x_KCRS, the fraction of the variance that each
            explains).
        what: the filters, in words for the caption.
    """
    number = max(len(components) for components, _ in states.values())
    rows = -(-number // PER_ROW)
    grey = next(iter(states.values()))[0].shape[1] == 1
    figure = _style.figure(height=0.86 * rows + 0.5)
    parts = figure.subfigures(1, len(states) + grey, squeeze=False, width_ratios=[1.0] * len(states) + [0.16] * grey)[0]
    table = []
    for part, (state, (components_KCRS, shares_K)) in zip(parts, states.items(), strict=False):
        part.suptitle(state, fontsize=_style.text(12))
        grid = part.subplots(rows, PER_ROW, squeeze=False).flat
        for axes in grid:
            axes.axis("off")
        for k, (image_CRS, share) in enumerate(zip(components_KCRS, shares_K, strict=True)):
            axes = grid[k]
            if len(image_CRS) == 1:
                most = float(np.abs(image_CRS).max())
                shown = axes.imshow(image_CRS[0] / (most or 1.0), cmap="RdBu_r", vmin=-1, vmax=1, interpolation="none")
            else:
                span = float(np.ptp(image_CRS)) or 1.0
                axes.imshow(((image_CRS - image_CRS.min()) / span).transpose(1, 2, 0), interpolation="none")
            axes.set_title(f"{100 * share:.1f} %", fontsize=_style.text(9), pad=2)
            table += [
                {
                    "state": state,
                    "component": k + 1,
                    "share": share,
                    "channel": c,
                    "row": r,
                    "column": s,
                    "value": value,
                }
                for (c, r, s), value in np.ndenumerate(image_CRS)
            ]
    if grey:
        figure.colorbar(
            shown,
            cax=parts[-1].add_axes((0.05, 0.12, 0.16, 0.72)),
            ticks=(-1, 0, 1),
            label="Weight relative to the largest",
        )
    colours = "Each is scaled by its largest entry" if grey else "Each has its own range"
    caption = (
        f"{model}: the first {number} principal components of {what}, and their shares of the filters' "
        f"variance (the paper's Figure 7, left). {colours}."
    )
    return Drawing(
        figure=figure,
        data=pd.DataFrame(table),
        caption=caption,
        alt=f"Principal components of the filters of {model}, {' and '.join(states)}.",
    )


@_style.context()
def positions(states: States, *, grid: tuple[int, int], model: str, fixed: bool) -> Drawing:
    """Draw the cosine similarities of position embeddings, as in Figures 7 (centre) and 10 of the ViT paper: a grid
    with one cell per patch, each of which is a grid of this patch's similarities to all patches.

    Args:
        states: "Before training" or "After training" -> similarities (P, P) of the P patches.
        grid: rows and columns of patches.
        fixed: whether the embeddings are not trained.
    """
    rows, columns = grid
    figure = _style.figure(height=4.9, width=9.5)
    panels = figure.subplots(1, len(states), squeeze=False)[0]
    table = []
    for axes, (state, cosine_PP) in zip(panels, states.items(), strict=True):
        mosaic = np.full((rows * (rows + GAP) - GAP, columns * (columns + GAP) - GAP), np.nan)
        for (p, q), value in np.ndenumerate(cosine_PP):
            (r, c), (y, x) = divmod(p, columns), divmod(q, columns)
            mosaic[r * (rows + GAP) + y, c * (columns + GAP) + x] = value
            table.append({"state": state, "row": r, "column": c, "other_row": y, "other_column": x, "cosine": value})
        image = axes.imshow(mosaic, cmap="viridis", vmin=-1, vmax=1, interpolation="none")
        axes.set(title=state, xlabel="Patch column", ylabel="Patch row")
        for set_ticks, count in ((axes.set_xticks, columns), (axes.set_yticks, rows)):
            every = max(1, count // 7)
            middle = [k * (count + GAP) + (count - 1) / 2 for k in range(0, count, every)]
            set_ticks(middle, [str(k + 1) for k in range(0, count, every)])
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
    figure.colorbar(image, ax=list(panels), label="Cosine similarity", shrink=0.85)
    same = " The table is fixed: training does not change it." if fixed else ""
    caption = (
        f"{model}: cosine similarity between the position embedding of the patch at each place and those of all "
        f"others, {rows} × {columns} patches (the paper's Figure 7, centre).{same}"
    )
    return Drawing(
        figure=figure,
        data=pd.DataFrame(table),
        caption=caption,
        alt=f"Grid of grids of position similarities of {model}, {' and '.join(states)}.",
    )


@_style.context()
def distances(states: States, *, model: str, uniform: float, images: int, data: str, side: int) -> Drawing:
    """Draw mean attention distances, as in Figures 7 (right) and 11 of the ViT paper: a point per layer and head.

    Args:
        states: "Before training" or "After training" -> distances (layers, heads) in pixels.
        uniform: the distance in pixels if attention to all patches were equal.
        images: number of images behind the means.
        data: name of their data set.
        side: their side, in pixels.
    """
    figure = _style.figure(height=3.9, width=9.5)
    panels = figure.subplots(1, len(states), sharey=True, squeeze=False)[0]
    table = []
    for axes, (state, pixels_LH) in zip(panels, states.items(), strict=True):
        layers, heads = pixels_LH.shape
        colours = _style.shades(_style.FAMILIES["ViT"][0], heads)
        for head in range(heads):
            place = np.arange(1, layers + 1) + 0.3 * (head - (heads - 1) / 2) / max(1, heads - 1)
            axes.plot(
                place,
                pixels_LH[:, head],
                linestyle="",
                marker="o",
                markersize=6,
                color=colours[head],
                zorder=3,
                label=f"Head {head + 1}",
                markeredgecolor="white",
                markeredgewidth=0.5,
            )
        axes.plot(range(1, layers + 1), pixels_LH.mean(1), color="#444444", linewidth=1, label="Mean over heads")
        axes.axhline(uniform, color="#888888", linestyle="--", linewidth=1, label="Equal attention to all patches")
        axes.set(title=state, xlabel="Layer", xlim=(0.5, layers + 0.5))
        axes.set_xticks(range(1, layers + 1, max(1, layers // 8)))
        table += [
            {"state": state, "layer": layer + 1, "head": head + 1, "pixels": value}
            for (layer, head), value in np.ndenumerate(pixels_LH)
        ]
    panels[0].set_ylabel("Mean attention distance [pixels]")
    panels[0].set_ylim(0, 1.12 * max(uniform, *(float(v.max()) for v in states.values())))
    if heads <= 8:
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=heads + 2 if heads < 4 else 5)
    caption = (
        f"{model}: mean distance between a query patch and the patches it attends to, weighted by attention, "
        f"per head and layer (the paper's Figures 7 and 11); n = {images} images of {data}, {side} px wide."
    )
    return Drawing(
        figure=figure,
        data=pd.DataFrame(table),
        caption=caption,
        alt=f"Mean attention distance of every head of {model}, {' and '.join(states)}.",
    )


@_style.context()
def rollouts(states: States, images_BHWC: np.ndarray, *, model: str, labels: list[str], data: str) -> Drawing:
    """Draw attention roll-outs over the images that they belong to, as in Figure 6 of the ViT paper.

    Args:
        states: "Before training" or "After training" -> fraction of the attention that each patch gets, (B, R, S) for R
            rows and S columns of patches. It is drawn relative to the mean over patches.
        labels: the name that stands above each image.
        data: name of the images' data set.
    """
    number = len(images_BHWC)
    figure = _style.figure(height=1.45 * (1 + len(states)) + 0.5)
    panels = figure.subplots(1 + len(states), number, squeeze=False)
    most = max(float(v.max() * v[0].size) for v in states.values())
    colours = Normalize(0, most)
    table = []
    for column in range(number):
        image_HWC = np.asarray(images_BHWC[column])
        grey = image_HWC.mean(-1)
        panels[0, column].imshow(image_HWC.squeeze(), cmap="gray", interpolation="none")
        panels[0, column].set_title(labels[column], fontsize=_style.text(9))
        for row, (state, share_BRS) in enumerate(states.items(), start=1):
            axes, relative_RS = panels[row, column], share_BRS[column] * share_BRS[column].size
            axes.imshow(grey, cmap="gray", interpolation="none")
            height, width = grey.shape
            drawn: Any = axes.imshow(
                relative_RS,
                cmap="inferno",
                norm=colours,
                alpha=0.6,
                interpolation="bilinear",
                extent=(-0.5, width - 0.5, height - 0.5, -0.5),
            )
            table += [
                {
                    "state": state,
                    "image": column,
                    "label": labels[column],
                    "row": r,
                    "column": s,
                    "relative_attention": value,
                }
                for (r, s), value in np.ndenumerate(relative_RS)
            ]
    for axes in panels.flat:
        axes.set(xticks=[], yticks=[])
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
    for row, name in enumerate(("Input", *states)):
        panels[row, 0].set_ylabel(name)
    figure.colorbar(drawn, ax=panels[1:].ravel().tolist(), label="Attention\n(1: mean over patches)", aspect=12)
    caption = (
        f"{model}: attention roll-out on test images of {data}: heads averaged, the identity added for residual "
        "connections, layers multiplied (the paper's Figure 6). Colours are interpolated between patches."
    )
    return Drawing(
        figure=figure,
        data=pd.DataFrame(table),
        caption=caption,
        alt=f"Images of {data}, and where {model} attends to, {' and '.join(states)}.",
    )
