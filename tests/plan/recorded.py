"""A finished study as a plan whose times are the recorded ones, and its evidence."""

from functools import cache
from pathlib import Path

from bench.analysis import lr_sweep, study_data
from bench.analysis.evidence import Evidence
from bench.plan.plan import Plan, PlannedCell
from tests.plan.making import changed, study_plan

RECORDS = Path(__file__).parents[1] / "records"


@cache
def evidence() -> Evidence:
    """Evidence of a study of 39 cells."""
    return lr_sweep.of_chosen(study_data.load(RECORDS / "scaling", suite="scaling"), headline=("scripts", "mnist"))


@cache
def plan() -> Plan:
    """Nothing is done, and every cell takes what it took. Two workers."""
    cells = []
    for record in evidence().records.records:
        cost, spent = record.cost, record.cost.spent_flops
        total, train = cost.seconds.total or 0.0, cost.seconds.train or 0.0
        cells.append(
            PlannedCell(
                cell=record.cell,
                name=record.directory,
                state="missing",
                fraction=0.0,
                seconds=total,
                images=cost.spent_images or 0,
                flops={"paper": round(spent.paper or 0), "dense": round(spent.dense or 0)},
                evaluate_share=1 - train / total if total else 0.0,
            )
        )
    return changed(study_plan(cells, suite="scaling"), workers=2)
