"""The main question: how do ViT, hybrids and ResNets scale with pre-training compute, and with number of images?

Two axes, as in the paper's Figures 5 and 4. Compute: every model at several budgets on all upstream images. Data size:
one model of each family at one budget on nested subsets. Both are read by few-shot probes beside raw pixels and the
untrained network (horizon 0).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bench.core.spec import Cell
from bench.suites._grid import (
    DOWNSTREAM,
    FAR_FROM_PHOTOGRAPHS,
    PHOTOGRAPHIC,
    Grid,
    compute_cells,
    pixel_cells,
    size_cells,
)
from bench.suites._questions import OF_FAMILIES
from bench.suites._scales import grids
from bench.suites.suite import Suite, SuiteOptions, merge

CPU_WARMUP = 23 * 32
"""Images, at scale `cpu`: 23 steps of the batch of 32, a quarter of the shortest budget of the compute axis. Both axes
share it, since the cells on all images are on both."""


def cells(options: SuiteOptions) -> list[Cell]:
    """The compute axis, the data-size axis, and raw pixels."""
    made: list[Cell] = []
    for grid, asked in grids(options):
        grid = warmed_up_alike(grid) if options.scale == "cpu" else grid
        made += [*compute_cells(grid, asked), *size_cells(grid, asked, untrained=False), *pixel_cells(grid, asked)]
    return merge(made)


def warmed_up_alike(grid: Grid) -> Grid:
    """The grid with one warm-up for every budget, the shortest included."""

    def recipe(data: str) -> dict[str, Any]:
        return {**grid.recipe(data), "warmup_images": CPU_WARMUP}

    return replace(grid, recipe=recipe)


SUITE = Suite(
    name="scaling",
    question="how do ViT, hybrids and ResNets scale with pre-training compute and with number of images?",
    figures=("frontier", "compute", "laws", "data-size", "learning-curves"),
    questions=OF_FAMILIES,
    headline=("scripts", "mnist", *PHOTOGRAPHIC),
    far=FAR_FROM_PHOTOGRAPHS,
    downstream=DOWNSTREAM,
    cells=cells,
)
