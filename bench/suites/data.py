"""Data size only: accuracy against number of distinct pre-training images, as in the paper's Figure 4."""

from __future__ import annotations

from bench.core.spec import Cell
from bench.suites._contract import SuiteOptions, merge
from bench.suites._grid import DOWNSTREAM as DOWNSTREAM
from bench.suites._grid import PHOTOGRAPHIC, grids, pixel_cells, size_cells
from bench.suites._questions import OF_FAMILIES

QUESTION = "how many pre-training images does each family need?"
FIGURES = ("data-size",)
QUESTIONS = OF_FAMILIES
HEADLINE = ("fashion-mnist", *PHOTOGRAPHIC)
FAR = ("scripts", "mnist", "digits", "specimen-tiles:56px", "terrain")


def cells(options: SuiteOptions) -> list[Cell]:
    """The models of the data-size axis on nested subsets, and raw pixels."""
    made: list[Cell] = []
    for grid, asked in grids(options, of_photographs=True):
        made += [*size_cells(grid, asked, untrained=True), *pixel_cells(grid, asked)]
    return merge(made)
