"""The grid (models, budgets, data) of the scaling and data suites at each scale."""

from __future__ import annotations

from dataclasses import replace

from bench.study.suite import SuiteOptions
from bench.suites._cpu_grid import CPU
from bench.suites._grid import Grid, here


def grids(options: SuiteOptions) -> list[tuple[Grid, SuiteOptions]]:
    """Return the grids of a scale, each with the options for it. A grid is evaluated on the downstream sets that are on
    this machine; the plan names those that are not.

    At scale `paper` each upstream (pre-training) set that the user named has a grid of its own, because budgets depend
    on it. At the other scales there is one grid.
    """
    made = [(CPU, options)]
    if options.scale == "gpu":
        from bench.suites import _gpu_grid

        made = [(_gpu_grid.grid(options), options)]
    elif options.scale == "paper":
        from bench.suites import _paper_grid

        made = _paper_grid.grids(options)
    present = here(tuple(task.data for grid, _ in made for task in grid.tasks), options)
    return [(replace(g, tasks=tuple(task for task in g.tasks if task.data in present)), asked) for g, asked in made]
