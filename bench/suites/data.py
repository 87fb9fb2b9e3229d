"""How many pre-training images are needed? Accuracy against the number of distinct pre-training images, as in the ViT
paper's Figure 4.

At scale `cpu` one network of each family is trained with the same FLOPs on every part of the images, and on more parts
than in the main study.
"""

from __future__ import annotations

from dataclasses import replace

from bench.study.cell import Cell
from bench.study.suite import Suite, SuiteOptions, merge, trained_once
from bench.suites._cpu_grid import TRANSFER
from bench.suites._grid import GPU_DOWNSTREAM, PHOTOGRAPHIC, pixel_cells, size_cells
from bench.suites._paper import SHOWN_FEWSHOT
from bench.suites._questions import OF_FAMILIES
from bench.suites._scales import grids

CPU_SIZES = (100, 300, 1_000, 3_000, None)


def cells(options: SuiteOptions) -> list[Cell]:
    """Return the cells of the axis over numbers of images, its models on nested subsets, and those of raw pixels."""
    made: list[Cell] = []
    for grid, asked in grids(options):
        grid = replace(grid, sizes=CPU_SIZES) if options.scale == "cpu" else grid
        made += [*size_cells(grid, asked, untrained=True), *pixel_cells(grid, asked)]
    return trained_once(made) if options.scale == "paper" else merge(made)


SUITE = Suite(
    name="data",
    question="how many pre-training images does each family need?",
    figures=("data-size",),
    questions=OF_FAMILIES,
    title="images-for-a-target",
    headline=("upstream", "fashion-mnist", *PHOTOGRAPHIC, SHOWN_FEWSHOT),
    far=("scripts", "mnist", "digits", "specimen-tiles:56px", "terrain"),
    downstream={"cpu": (TRANSFER,), "gpu": GPU_DOWNSTREAM},
    cells=cells,
)
