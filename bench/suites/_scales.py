"""The grid of the scaling and data suites at each scale."""

from __future__ import annotations

from dataclasses import replace

from bench.study.suite import SuiteOptions
from bench.suites._cpu_grid import CPU
from bench.suites._grid import Grid, here


def grids(options: SuiteOptions) -> list[tuple[Grid, SuiteOptions]]:
    """Return the grid of a scale for the upstream sets that were named, with the downstream sets that are on this
    machine; the plan names those that are not. At scale `paper` budgets depend on the upstream set, so that each has a
    grid of its own."""
    made = [(CPU, options)]
    if options.scale == "gpu":
        from bench.suites import _gpu_grid

        made = [(_gpu_grid.grid(options), options)]
    elif options.scale == "paper":
        from bench.suites import _paper_grid

        made = _paper_grid.grids(options)
    present = here(tuple(task.data for grid, _ in made for task in grid.tasks), options)
    return [(replace(g, tasks=tuple(task for task in g.tasks if task.data in present)), asked) for g, asked in made]
