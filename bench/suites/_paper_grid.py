"""The ViT paper's own grid (Tables 3 and 6, Figures 4 and 5), whose cost can be estimated anywhere, and which can be
run where the data are."""

from __future__ import annotations

from dataclasses import replace

from baselines import published
from bench.data.public_names import UPSTREAM_IMAGES
from bench.study.cell import Cell
from bench.study.suite import SuiteOptions
from bench.suites import _paper
from bench.suites._grid import Grid

JFT = UPSTREAM_IMAGES["jft-300m"]  # images of one epoch
STOPPING_CHECKS = 20  # checks for early stopping, of trainings on a part of the images; the paper does not say how many


def _table_6() -> dict[str, tuple[int, ...]]:
    """Return model -> its budgets in images seen, as Table 6 has them: 7 epochs of JFT-300M, 14 epochs, or both."""
    horizons: dict[str, tuple[int, ...]] = {}
    for line in published.table("table6"):
        model = published.model_name(line["name"])
        horizons[model] = (*horizons.get(model, ()), int(line["epochs"]) * JFT)
    return horizons


def _trained(cell: Cell) -> Cell:
    """Return the cell trained as published, and evaluated by what its figure shows: fine-tuning on five sets and the
    5-shot probe on the compute axis (Figure 5), the probe alone on the axis over images (Figure 4).

    Trainings on a part of the images stop early, as in the paper. A training on all images does not: it sees them too
    few times for early stopping to matter, and it also belongs to Figure 5.
    """
    trained = _paper.as_published(cell)
    tuned = _paper.tuned(cell.model) if "compute" in cell.axes else ()
    checks = STOPPING_CHECKS if cell.num_images is not None else 0
    recipe = replace(trained.recipe, stopping_checks=checks)
    return replace(trained, recipe=recipe, tasks=(*tuned, *_paper.probed()))


PAPER = Grid(
    compute_data="jft-300m",
    compute=_table_6(),
    size_data="jft-300m",
    size_models=dict.fromkeys(("ViT-b/32", "ViT-B/32", "ViT-L/32", "ViT-L/16", "R50x1", "R152x2"), 7 * JFT),
    sizes=(9_000_000, 30_000_000, 90_000_000, None),
    tasks=(),
    seeds=1,
    image_size=224,
    channels=3,
    trained=_trained,
)


def grids(options: SuiteOptions) -> list[tuple[Grid, SuiteOptions]]:
    """Return the paper's grid with the options; if the user named upstream (pre-training) sets, a grid for each of
    them."""
    if not options.data:
        return [(PAPER, options)]
    return [(_grid_on(name, options), replace(options, data=(name,))) for name in options.data]


def _grid_on(name: str, options: SuiteOptions) -> Grid:
    """Return the paper's grid on an upstream (pre-training) set. On another set than JFT-300M, every model is trained
    for as many epochs as Table 3 gives the set, and subsets are the same fractions of it as those of Figure 4."""
    if _paper.upstream_of(name) == PAPER.compute_data:
        return PAPER
    images = options.num_images.get(name, _paper.IMAGES["ImageNet"])
    seen = _paper.epochs(name) * images
    parts = (float(f"{images * part / JFT:.1e}") for part in PAPER.sizes if part and images * part >= JFT)
    return replace(
        PAPER,
        compute_data=name,
        compute=dict.fromkeys(PAPER.compute, (seen,)),
        size_data=name,
        size_models=dict.fromkeys(PAPER.size_models, seen),
        sizes=(*map(int, parts), None),
    )
