"""The grid of the scaling and data suites at each scale."""

from __future__ import annotations

from dataclasses import replace

from bench.suites._grid import CPU, NUMBERS, PHOTOGRAPHS, SEEN, Grid, here
from bench.suites.suite import SuiteOptions


def grids(options: SuiteOptions, *, of_photographs: bool = False) -> list[tuple[Grid, SuiteOptions]]:
    """The grid of a scale for the upstream sets that were named, with the downstream sets that are here; the plan says
    which are not. At scale `paper` budgets follow the set, so that each has a grid of its own.

    Args:
        of_photographs: the data-size axis is of photographs at scale `cpu` too.
    """
    small = replace(CPU, size_data=PHOTOGRAPHS, size_models=SEEN, sizes=NUMBERS) if of_photographs else CPU
    made = [(small, options)]
    if options.scale == "gpu":
        from bench.suites import _gpu_grid

        made = [(_gpu_grid.grid(options), options)]
    elif options.scale == "paper":
        from bench.suites import _paper_grid

        made = _paper_grid.grids(options)
    present = here(tuple(task.data for grid, _ in made for task in grid.tasks), options)
    return [(replace(g, tasks=tuple(task for task in g.tasks if task.data in present)), asked) for g, asked in made]
