"""Output to a terminal or a log. Tables fit the width of the terminal; a log has a fixed width and no trailing blanks.
Plain text is not interpreted as markup."""

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
    """Return a console as wide as the terminal, or LOG_WIDTH columns wide where there is no terminal."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=LOG_WIDTH)


def busy(text: str) -> Status:
    """Return a context manager that shows `text` with a spinner on the terminal (standard error) while its block runs.
    Nothing is written to a log or to standard output."""
    return Console(stderr=True).status(text)


def write(console: Console, text: str, *, style: str = "") -> None:
    """Print text literally: markup is not interpreted, control characters are escaped, and lines are not wrapped.
    `style`: a style of rich, such as "bold"; "" for none."""
    console.print(Text(printable(text), style=style), soft_wrap=True, highlight=False)


def make_table(*columns: str, right: Iterable[str] = ()) -> Table:
    """Return an empty table with these column headings, in the project's style. `right`: headings of the columns that
    are aligned right (numbers)."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    numbers = set(right)
    for name in columns:
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    return table


def add_row(table: Table, *cells: str) -> None:
    """Add a row to a table; each cell is plain text, not markup."""
    table.add_row(*(Text(printable(cell)) for cell in cells))


def drop_columns(table: Table, *names: str) -> None:
    """Remove columns from a table, by their headings."""
    # rich spaces columns by their numbers, and a new Table numbers them again
    kept = Table(*(column for column in table.columns if column.header not in names))
    table.columns = kept.columns


def show_table(table: Table, console: Console, *, spare: Iterable[str] = ()) -> None:
    """Print a table within the console's width. While it is too wide, the columns with the headings `spare` are dropped
    one by one, in that order; then long cells are folded over several lines, not cut, because cut names may look alike.
    """
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
