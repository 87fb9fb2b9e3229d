"""Data size only: accuracy against number of distinct pre-training images, as in the paper's Figure 4."""

from __future__ import annotations

from bench.core.spec import Cell
from bench.suites._grid import DOWNSTREAM, PHOTOGRAPHIC, pixel_cells, size_cells
from bench.suites._questions import OF_FAMILIES
from bench.suites._scales import grids
from bench.suites.suite import Suite, SuiteOptions, merge


def cells(options: SuiteOptions) -> list[Cell]:
    """The models of the data-size axis on nested subsets, and raw pixels."""
    made: list[Cell] = []
    for grid, asked in grids(options, of_photographs=True):
        made += [*size_cells(grid, asked, untrained=True), *pixel_cells(grid, asked)]
    return merge(made)


SUITE = Suite(
    name="data",
    question="how many pre-training images does each family need?",
    figures=("data-size",),
    questions=OF_FAMILIES,
    headline=("fashion-mnist", *PHOTOGRAPHIC),
    far=("scripts", "mnist", "digits", "specimen-tiles:56px", "terrain"),
    downstream=DOWNSTREAM,
    cells=cells,
)
