"""Every training of the ViT paper, done once, and evaluated by every task that one of its figures or tables shows.

The suites `scaling`, `transfer`, `vtab`, `ablation` and `masked` at scale `paper` train some networks that another of
them trains too: ViT-H/14 on JFT-300M is in three. Here such a network is one run with the tasks of all three, at each
of its budgets. `docs/paper.md` says which figure needs which part, and what it costs.
"""

from __future__ import annotations

from bench.study.cell import Cell
from bench.study.suite import Suite, SuiteOptions, pick, trained_once
from bench.suites import ablation, masked, scaling, transfer, vtab
from bench.suites._paper import average_5
from bench.suites._questions import OF_FAMILIES

PARTS = (scaling.SUITE, transfer.SUITE, vtab.SUITE, ablation.SUITE, masked.SUITE)


def cells(options: SuiteOptions) -> list[Cell]:
    """Return the cells of all parts; cells that are the same training are merged into one."""
    pick("grid", options.scale, {"paper": None})
    return trained_once(cell for part in PARTS for cell in part.cells(options))


SUITE = Suite(
    name="whole-paper",
    question="what do all experiments of the paper show, each network trained once for all of them?",
    figures=tuple(dict.fromkeys(figure for part in PARTS for figure in part.figures)),
    questions=(*OF_FAMILIES, "as-published"),
    title="best-family-at-equal-compute",
    headline=average_5(),
    downstream=(),
    varies={axis: fields for part in PARTS for axis, fields in part.varies.items()},
    cells=cells,
)
