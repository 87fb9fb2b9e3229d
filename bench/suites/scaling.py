"""The main question: how do ViT, hybrids and ResNets scale with pre-training compute, and with number of images?

There are two axes (comparisons), as in the ViT paper's Figures 5 and 4. Compute: every model at several budgets on all
upstream (pre-training) images. Number of images: one model of each family at one budget on nested subsets. At scale
`cpu` both are judged by the accuracy on the test images of the upstream set, as published results of small networks
are; few-shot probes, compared with raw pixels and the untrained network (horizon 0), show what the features are worth
elsewhere. At scale `paper` every network of Table 6 is fine-tuned on the table's five sets with the settings of Table
4, and networks trained on parts of the upstream set are probed as in Figure 4.
"""

from __future__ import annotations

from bench.study.cell import Cell
from bench.study.suite import Suite, SuiteOptions, merge, trained_once
from bench.suites._cpu_grid import TRANSFER
from bench.suites._grid import (
    FAR_FROM_PHOTOGRAPHS,
    GPU_DOWNSTREAM,
    PHOTOGRAPHIC,
    compute_cells,
    pixel_cells,
    size_cells,
)
from bench.suites._paper import average_5
from bench.suites._questions import OF_FAMILIES
from bench.suites._scales import grids


def cells(options: SuiteOptions) -> list[Cell]:
    """Return the cells of the compute axis, of the axis over numbers of images, and of raw pixels."""
    made: list[Cell] = []
    for grid, asked in grids(options):
        made += [*compute_cells(grid, asked), *size_cells(grid, asked, untrained=False), *pixel_cells(grid, asked)]
    return trained_once(made) if options.scale == "paper" else merge(made)


SUITE = Suite(
    name="scaling",
    question="how do ViT, hybrids and ResNets scale with pre-training compute and with number of images?",
    figures=("frontier", "compute", "laws", "data-size", "learning-curves"),
    questions=OF_FAMILIES,
    title="best-family-at-equal-compute",
    headline=("upstream", *PHOTOGRAPHIC, *average_5()),
    far=(TRANSFER, *FAR_FROM_PHOTOGRAPHS),
    downstream={"cpu": (TRANSFER,), "gpu": GPU_DOWNSTREAM},
    takes="6 minutes",
    cells=cells,
)
