"""The main question: how do ViT, hybrids and ResNets scale with pre-training compute, and with number of images?

Two axes, as in the paper's Figures 5 and 4. Compute: every model at several budgets on all upstream images. Data size:
one model of each family at one budget on nested subsets. Both are read by few-shot probes beside raw pixels and the
untrained network (horizon 0).
"""

from __future__ import annotations

from bench.core.spec import Cell
from bench.suites._contract import SuiteOptions, merge, pick
from bench.suites._grid import SCALES, compute_cells, on_this_machine, pixel_cells, size_cells

QUESTION = "how do ViT, hybrids and ResNets scale with pre-training compute and with number of images?"
FIGURES = ("frontier", "compute", "laws", "data-size", "learning-curves")
HEADLINE = ("scripts", "mnist")
FAR = ("fashion-mnist", "digits")


def cells(options: SuiteOptions) -> list[Cell]:
    """The compute axis, the data-size axis, and raw pixels."""
    grid = on_this_machine(pick("grid", options.scale, SCALES), options)
    subsets = size_cells(grid, options, untrained=False)
    return merge([*compute_cells(grid, options), *subsets, *pixel_cells(grid, options)])
