"""The terminal: tables that fit it, plain text that stays plain. A log gets fixed width and no trailing blanks."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.measure import Measurement
from rich.status import Status
from rich.table import Table
from rich.text import Text

from bench.core.formatting import printable

LOG_WIDTH = 120  # columns of a log file, where there is no terminal to ask


def make_console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, or LOG_WIDTH wide where there is none."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=LOG_WIDTH)


def busy(text: str) -> Status:
    """A context in which a terminal shows what takes its time; a log, and standard output, get nothing of it."""
    return Console(stderr=True).status(text)


def write(console: Console, text: str, *, style: str = "") -> None:
    """Print text as it is: no markup is looked for in it, no control character reaches the terminal, and no line is
    broken."""
    console.print(Text(printable(text), style=style), soft_wrap=True, highlight=False)


def make_table(*columns: str, right: Iterable[str] = ()) -> Table:
    """An empty table in the project's style. `right`: columns of numbers."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    numbers = set(right)
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    return table


def add_row(table: Table, *cells: str) -> None:
    """Add a row of plain text."""
    table.add_row(*(Text(printable(cell)) for cell in cells))


def drop_columns(table: Table, *names: str) -> None:
    """Take columns out of a table, by their headings."""
    kept = Table(*(column for column in table.columns if column.header not in names))  # numbers them anew, by which
    table.columns = kept.columns  # the room between columns is given


def show_table(table: Table, console: Console, *, spare: Iterable[str] = ()) -> None:
    """Print a table within the console's width: `spare` columns go, one by one, while it is too wide; then long cells
    are folded, so that no two names look alike."""
    options = console.options.update(max_width=100_000)
    for name in spare:
        if Measurement.get(console, options, table).maximum <= console.width:
            break
        drop_columns(table, name)
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        write(console, line.rstrip())
