"""Show how far a study is, from its files alone: done, partly done, failed, running now."""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.core.cell_state import CellState
from bench.core.cli import folder, parser
from bench.core.errors import EXIT_FAILED, EXIT_OK, EXIT_UNFINISHED, UserError, command
from bench.core.formatting import duration, planned_and_took, plural, printable
from bench.store import grid, index, planned
from bench.store.lease import holder
from bench.store.planned import Plans, compare
from bench.store.study import CellDirectory, Study, attempt_status, state_of
from bench.study import registry

EXAMPLES = """\
examples:
  vit-bench status                       every study under results/
  vit-bench status --suite scaling       one study, run by run
  vit-bench status study.toml            the study that this file asks for
  vit-bench status --suite scaling --json
  vit-bench status --watch               again and again, until everything is done
  vit-bench status --watch --exit-code && vit-bench report --suite scaling
"""
POLL_SECONDS = 2.0
UNCHANGED_LOOKS = 3  # looks without a change after which no process is expected to retry a failed cell


@dataclass(frozen=True, kw_only=True)
class CellStatus:
    """The state of one cell (a training run with its evaluations): how far it is, and whether a process works on it.

    Attributes:
        name: name of the cell's folder.
        state: whether the cell is done, running, failed, ….
        fraction: fraction of the cell's training that is done, in [0, 1].
        note: why the cell is not complete, or who works on it, in words; None if there is nothing to say.
        attempts: how often the cell was begun.
        last: when its newest attempt ended, or began if it has not ended; None if it was never begun.
        seconds: wall-clock seconds that a complete cell took; None if unknown.
        processor_seconds: seconds of processor time that a complete cell took; None if unknown.
        planned_seconds: seconds that were planned for the whole cell on one worker; None without a plan.
        without_result: "diverged" or "oom" (out of memory) for a cell that ended so, without scores; else None.
        refused: whether the plan says that the cell cannot be run.
    """

    name: str
    state: CellState
    fraction: float = 0.0
    note: str | None = None
    attempts: int = 0
    last: str | None = None
    seconds: float | None = None
    processor_seconds: float | None = None
    planned_seconds: float | None = None
    without_result: str | None = None
    refused: bool = False

    @property
    def needs_another_run(self) -> bool:
        """Whether the cell failed or cannot be run, so that waiting does not finish it."""
        return self.state == CellState.FAILED or self.refused

    def json(self) -> dict[str, Any]:
        """Return the status as JSON types."""
        return {name: value for name, value in vars(self).items() if name not in ("without_result", "refused")}


CellsByStudy = dict[str, list[CellStatus]]
"""Name of a study -> its cells."""


def describe(directory: CellDirectory) -> CellStatus:
    """Return the status of a cell that has a folder."""
    try:
        state = state_of(directory)
    except PermissionError:  # another user's cell must not hide the rest
        note = "no permission to read it"
        return CellStatus(name=directory.path.name, state=CellState.DAMAGED, fraction=0.0, note=note)
    held = None if state.name == CellState.DONE else holder(directory.lease)
    seconds, processor = state.took
    attempts = directory.attempts()
    last = attempt_status(attempts[-1]) if attempts else {}
    return CellStatus(
        name=directory.path.name,
        state=state.name if held is None else CellState.STOPPED if held.stopped else CellState.RUNNING,
        fraction=state.fraction,
        note=f"held by {held}" if held is not None and (held.stopped or held.runner) else state.note,
        attempts=len(attempts),
        last=last.get("ended") or last.get("started"),
        seconds=seconds,
        processor_seconds=processor,
        without_result=state.without_result,
    )


def cells_of(study: Study, finished: dict[tuple[Path, int], CellStatus]) -> list[CellStatus]:
    """Return the status of every cell of a study; cells that were never started come last.

    Args:
        finished: a cache, which is updated: (path of a record, time at which it was written) -> status of the cell,
            which is done.
    """
    study.check()
    cells = []
    for directory in study.directories():
        try:
            written = directory.record, directory.record.stat().st_mtime_ns
        except OSError:
            cells.append(describe(directory))
            continue
        cell = finished.get(written) or describe(directory)
        if cell.state == CellState.DONE:
            finished[written] = cell
        cells.append(cell)
    wanted = grid.read(study.path)
    refused = wanted.refused if wanted else {}
    for name in grid.never_started(wanted, [cell.name for cell in cells]):
        cells.append(
            CellStatus(name=name, state=CellState.NEVER_STARTED, note=refused.get(name), refused=name in refused)
        )
    plans = planned.read(study.path).cells
    return [replace(cell, planned_seconds=plans[cell.name].seconds) if cell.name in plans else cell for cell in cells]


@command
def main(argv: list[str] | None = None) -> int:
    p = parser("vit-bench status", __doc__ or "", EXAMPLES, plugins=registry.add_plugins)
    p.add_argument("study", nargs="?", metavar="STUDY.toml", help="a study file, which names suite and results")
    p.add_argument("--suite", help="a single study (default: all)")
    p.add_argument(
        "--results", "--output-dir", "-o", metavar="DIR", type=folder, help="folder with results (default: results)"
    )
    p.add_argument("--watch", action="store_true", help="show it again and again, until everything is done")
    p.add_argument(
        "--exit-code",
        action="store_true",
        help=f"end with {EXIT_OK} if all is done, {EXIT_UNFINISHED} if runs are under way or not begun, "
        f"{EXIT_FAILED} if those that are left failed or cannot be run",
    )
    arguments = p.parse_args(argv)
    suite, results = arguments.suite, arguments.results or Path("results")
    if arguments.study:
        from bench.study.options import results_of  # loads NumPy, which nothing else here needs

        suite, results = results_of(arguments)
    names = index.named(results)
    if suite:
        if suite not in names:
            raise index.absent(suite, results)
        names = [suite]
    if not names:
        raise UserError(f"No study in {results}.", "Start one with `vit-bench run --suite smoke`.")
    finished: dict[tuple[Path, int], CellStatus] = {}
    look = lambda: {name: cells_of(Study(results / name), finished) for name in names}  # noqa: E731
    studies = watch(look, as_json=arguments.json) if arguments.watch else look()
    if arguments.json and not arguments.watch:
        print(to_json(studies))
    elif not arguments.watch:
        show(studies, {name: planned.read(results / name) for name in names}, cell_by_cell=bool(suite))
    return exit_code(studies) if arguments.exit_code else EXIT_OK


def to_json(studies: CellsByStudy) -> str:
    """Return all cells of all studies as one line of JSON."""
    return json.dumps({name: [cell.json() for cell in cells] for name, cells in studies.items()})


def unfinished(studies: CellsByStudy) -> list[CellStatus]:
    """Return the cells of all studies that are not done."""
    return [cell for cells in studies.values() for cell in cells if cell.state != CellState.DONE]


def exit_code(studies: CellsByStudy) -> int:
    """Return the exit code that tells scripts whether all cells are done, whether they can be waited for, or whether
    all that are left need another run."""
    left = unfinished(studies)
    if not left:
        return EXIT_OK
    return EXIT_FAILED if all(cell.needs_another_run for cell in left) else EXIT_UNFINISHED


def watch(look: Callable[[], CellsByStudy], *, as_json: bool) -> CellsByStudy:
    """Show counts and running cells again and again, until every cell that can be run is done or has failed for good,
    or until Ctrl-C. A terminal is updated in place; otherwise, or as JSON, each change is one line. Return the last
    state of all studies. `look`: reads this state."""
    from rich.live import Live
    from rich.text import Text

    from bench.core.console import make_console, write

    console, last, unchanged = make_console(), None, 0
    with Live(console=console, auto_refresh=False) if console.is_terminal and not as_json else nullcontext() as live:
        while True:
            studies = look()
            lines = [f"{name}: {counted(cells)}" for name, cells in studies.items()]
            left = unfinished(studies)
            running = [cell for cell in left if cell.state == CellState.RUNNING]
            shown = [*lines, *(f"  {c.name} {c.fraction:.0%} {c.note or ''}".rstrip() for c in running)]
            if live is not None:
                live.update(Text(printable("\n".join(shown))), refresh=True)
            elif studies != last:
                write(console, to_json(studies) if as_json else "; ".join(map(str.strip, shown)))
            unchanged = unchanged + 1 if studies == last else 0
            stalled = unchanged >= UNCHANGED_LOOKS and all(cell.needs_another_run for cell in left)
            if stalled or all(cell.refused for cell in left):
                return studies
            last = studies
            time.sleep(POLL_SECONDS)


def counted(cells: list[CellStatus]) -> str:
    """Return in words how many cells are in each state, and how many cells ended without a result, by reason."""
    counts = Counter(cell.state for cell in cells)
    without = Counter(cell.without_result for cell in cells if cell.without_result is not None)
    said = ", ".join(f"{number} {outcome}" for outcome, number in sorted(without.items()))
    of_done = {CellState.DONE: f" ({said})" if said else ""}
    return ", ".join(f"{number} {state}{of_done.get(state, '')}" for state, number in sorted(counts.items()))


def timed(cells: list[CellStatus], plans: Plans) -> str:
    """Return in words the planned and actual time of cells that are done, and the planned time of what is left of the
    others; "" if no plan was kept."""
    done = {cell.name: (cell.seconds, cell.processor_seconds) for cell in cells if cell.state == CellState.DONE}
    left = math.fsum(
        plans.cells[cell.name].seconds * (1 - cell.fraction)
        for cell in cells
        if cell.name in plans.cells and cell.name not in done
    )
    compared, said = compare(plans, done), []
    if compared is not None:
        spent = planned_and_took(compared.planned, compared.took, compared.processor)
        said.append(f"{plural(compared.cells, 'run')} {spent}")
    if left:
        said.append(f"planned for what is left: {duration(left)} of one worker")
    return "; ".join(said)


def show(studies: CellsByStudy, plans: dict[str, Plans], *, cell_by_cell: bool) -> None:
    """Print counts and times of each study and, if `cell_by_cell`, a table of its cells. `plans`: name of a study ->
    its planned times."""
    from bench.core.console import add_row, make_console, make_table, show_table, write

    console = make_console()
    for name, cells in studies.items():
        write(console, f"{name}: {counted(cells)}")
        if times := timed(cells, plans[name]):
            write(console, f"  {times}")
        if cell_by_cell:
            table = make_table("cell", "state", "done", "attempts", "note", right=("done", "attempts"))
            for cell in cells:
                add_row(table, cell.name, cell.state, f"{cell.fraction:.0%}", str(cell.attempts), cell.note or "")
            show_table(table, console, spare=("attempts", "done"))


if __name__ == "__main__":
    sys.exit(main())
