"""Data size only: accuracy against number of distinct pre-training images, as in the paper's Figure 4."""

from __future__ import annotations

from bench.core.spec import Cell
from bench.suites._contract import SuiteOptions, merge, pick
from bench.suites._grid import DATA_SCALES, on_this_machine, pixel_cells, size_cells

QUESTION = "how many pre-training images does each family need?"
FIGURES = ("data-size",)
HEADLINE = ("fashion-mnist",)
FAR = ("scripts", "mnist", "digits")


def cells(options: SuiteOptions) -> list[Cell]:
    """The models of the data-size axis on nested subsets, and raw pixels."""
    grid = on_this_machine(pick("grid", options.scale, DATA_SCALES), options)
    return merge([*size_cells(grid, options, untrained=True), *pixel_cells(grid, options)])
