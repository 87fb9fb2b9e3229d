"""A store in which cells are done, without training any: for tests of what looks at results only."""

from collections.abc import Iterable
from pathlib import Path

from bench.core.environment import Environment
from bench.data import identity
from bench.store import records
from bench.store.study import Study
from bench.study import fingerprint
from bench.study.cell import Cell, cell_id
from bench.study.fingerprint import Basis
from bench.study.record import Cost, DataFacts, Execution, ModelFacts, Record
from bench.study.registry import revisions_of


def finish(
    store: Path, cells: Iterable[Cell], *, reasons: tuple[str | None, ...] = (), root: Path | None = None
) -> Study:
    """Leave a record, and a spec, of each cell; cells with a reason diverged."""
    study, images = Study(store), identity.of_cells(root=root)
    study.create()
    for number, cell in enumerate(cells):
        directory, revisions = study.cell(cell), revisions_of(cell)
        directory.prepare(cell, Basis(code=fingerprint.of_model(cell.model), images=images(cell)))
        reason = reasons[number] if number < len(reasons) else None
        record = Record(
            suite=store.name,
            cell_id=cell_id(cell, revisions),
            directory=directory.path.name,
            cell=cell,
            revisions=revisions,
            environment=Environment(),
            status="diverged" if reason else "complete",
            reason=reason,
            model=ModelFacts(name=cell.model),
            data=DataFacts(name=cell.data),
            execution=Execution(device="cpu"),
            cost=Cost(),
        )
        records.write_record(directory.record, record)
    return study
