"""Defines a table and its output formats: raw numbers as CSV, formatted text as Markdown and LaTeX (HTML is made
elsewhere). Text from any source is escaped, so that it is harmless in each format."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from bench.core import formatting as words
from bench.core.by_key import by_key
from bench.stats.intervals import Estimate

if TYPE_CHECKING:
    import pandas as pd

Text = Callable[[Any], str]
DIGITS = 8  # significant digits of numbers in a CSV; further ones differ between processors
FORMULA = re.compile(r"[=+\-@\t\n\uff1d\uff0b\uff0d\uff20]")  # a spreadsheet may run text that begins so (OWASP)
NUMBER = re.compile(r"-?[\d.]+(e[+-]?\d+)?|-inf")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
NAMING = ("series", "family")  # columns that only name the row
ESTIMATE_ENDS = ("", "_low", "_high", "_seeds", "_draws", "_test_images", "_excludes")
LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "−": "$-$",
    "–": "--",
    "→": r"$\rightarrow$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "\n": " ",
    '"': "''",
}


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes:
        key: key of the column's value in a row.
        heading: the heading as printed.
        text: raw value -> formatted text.
        numeric: whether the column is aligned right.
    """

    key: str
    heading: str
    text: Text = str
    numeric: bool = True


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of raw values. Accuracies are `Estimate`s, which CSV splits into value, low, high and sample sizes.

    Attributes:
        name: name of the table's files.
        title: the title as printed.
        rows: for each row, key of a column -> value.
        note: footnote; "" for none.
        best: whether the highest accuracy of each column, or of each row, is set in bold; None: no bold. An estimate is
            bold only if its whole interval is above the intervals of all others.
        csv_only: keys of columns that are written to CSV only.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, Any], ...]
    note: str = ""
    best: Literal["column", "row"] | None = None
    csv_only: tuple[str, ...] = ()

    @cached_property
    def bold(self) -> frozenset[tuple[int, str]]:
        """(row number, column key) of every table cell that is set in bold."""
        estimates = {
            (number, column.key): value
            for number, row in enumerate(self.rows)
            for column in self.columns
            if isinstance(value := row.get(column.key), Estimate)
        }
        along = self.best == "column"
        groups = by_key((place[along], place) for place in (estimates if self.best else ()))
        best = set()
        for places in groups.values():
            top = max(places, key=lambda place: estimates[place].low)
            if len(places) > 1 and all(estimates[top].low > estimates[other].high for other in places if other != top):
                best.add(top)
        return frozenset(best)

    @property
    def says_something(self) -> bool:
        """Whether any row has a value in a column other than those that name the row (`NAMING`)."""
        return any(row.get(c.key) is not None for row in self.rows for c in self.columns if c.key not in NAMING)

    @cached_property
    def displayed(self) -> tuple[Column, ...]:
        """Columns in the order in which they are displayed, without those for CSV only. If bold marks the best estimate
        of each column, columns of estimates follow directly after those that name the row."""
        columns = tuple(c for c in self.columns if c.key not in self.csv_only)
        if self.best != "column":
            return columns
        compared = {c.key for c in columns if any(isinstance(row.get(c.key), Estimate) for row in self.rows)}
        return tuple(sorted(columns, key=lambda c: 0 if c.key in NAMING else 1 if c.key in compared else 2))

    def cells(self) -> list[list[str]]:
        """Return the formatted text of every table cell, row by row."""
        return [[shown(column, row.get(column.key)) for column in self.displayed] for row in self.rows]

    def markdown(self, *, rows: int | None = None) -> str:
        """Return a Markdown (pipe) table with title and footnote. `rows`: the number of rows to show, which the
        footnote then mentions; None: all."""
        lines = [
            "| " + " | ".join(markdown(c.heading) for c in self.displayed) + " |",
            "| " + " | ".join("---:" if c.numeric else ":---" for c in self.displayed) + " |",
        ]
        for number, texts in enumerate(self.cells()[:rows]):
            cells = [
                f"**{markdown(text)}**" if (number, c.key) in self.bold else markdown(text)
                for c, text in zip(self.displayed, texts, strict=True)
            ]
            lines.append("| " + " | ".join(cells) + " |")
        notes = [text for text in (self.left_out(rows), self.note) if text]
        return f"### {self.title}\n\n" + "\n".join(lines) + "\n" + (f"\n{' '.join(notes)}\n" if notes else "")

    def left_out(self, rows: int | None) -> str:
        """Return a sentence that says that only the first `rows` rows are shown; "" if these are all, or if `rows` is
        None."""
        if rows is None or len(self.rows) <= rows:
            return ""
        return f"The first {rows:,} of {len(self.rows):,} rows; all are in tables/{self.name}.csv."

    def latex(self) -> str:
        """Return a LaTeX table for \\input; it needs \\usepackage{booktabs}."""
        import pandas as pd

        rows = [
            [
                rf"\textbf{{{tex(text)}}}" if (number, c.key) in self.bold else tex(text)
                for c, text in zip(self.displayed, texts, strict=True)
            ]
            for number, texts in enumerate(self.cells())
        ]
        made = pd.DataFrame(rows, columns=[tex(c.heading) for c in self.displayed]).style.hide(axis="index")
        text = made.to_latex(
            column_format="".join("r" if c.numeric else "l" for c in self.displayed),
            hrules=True,
            caption=tex(self.title),
            label=f"tab:{self.name}",
            position_float="centering",
        )
        note = rf"\par\smallskip\footnotesize {tex(self.note)}" + "\n" if self.note else ""
        return text.replace(r"\end{table}", note + r"\end{table}")

    def csv(self) -> str:
        """Return the raw values as CSV; missing values are empty."""
        wide = {c.key for c in self.columns if any(isinstance(row.get(c.key), Estimate) for row in self.rows)}
        heads: list[str] = []
        for column in self.columns:
            heads += [column.key + end for end in ESTIMATE_ENDS] if column.key in wide else [column.key]
        rows: list[list[Any]] = []
        for row in self.rows:
            rows.append([])
            for column in self.columns:
                value = row.get(column.key)
                rows[-1] += split(value) if column.key in wide else [_raw(value)]
        return csv_text(heads, rows)


def shown(column: Column, value: Any) -> str:
    """Return the text that stands for a value in a column; a dash for a missing value."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return words.MISSING
    return words.interval(value.value, value.low, value.high) if isinstance(value, Estimate) else column.text(value)


def split(value: Any) -> list[Any]:
    """Return an estimate as the values of its CSV columns (`ESTIMATE_ENDS`): value, ends of the interval, sample sizes,
    sources of chance left out. Any other value goes into the first column, and the others are empty."""
    if not isinstance(value, Estimate):
        return [_raw(value), *[""] * (len(ESTIMATE_ENDS) - 1)]
    numbers = [_raw(float(number)) for number in (value.value, value.low, value.high)]
    return [*numbers, value.num_seeds, value.num_draws, value.num_test, "; ".join(value.excluded)]


def tex(text: str) -> str:
    """Return text escaped for LaTeX."""
    return "".join(LATEX.get(character, character) for character in clean(text))


def _raw(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return f"{value:.{DIGITS}g}" if isinstance(value, float) else value


def csv_text(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return the text of a CSV file. Because names in it may come from anyone, texts are changed so that a spreadsheet
    does not run them as a formula, nor a terminal as an escape sequence."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([_inert(value) for value in row] for row in (heads, *rows))
    return out.getvalue()


def frame_csv(frame: pd.DataFrame, *, digits: int | None = None) -> str:
    """Return a frame as CSV, without its index. Texts are changed as in `csv_text`, so that no program runs them.
    `digits`: significant digits of numbers; None: all."""
    texts = frame.select_dtypes(exclude=["number", "bool"])
    made = frame.assign(**{name: [_inert(value) for value in texts[name]] for name in texts}).rename(columns=_inert)
    return made.to_csv(index=False, lineterminator="\n", float_format=f"%.{digits}g" if digits else None)


def _inert(value: Any) -> Any:
    """Return a value that is safe in a CSV file. A text loses its control characters and, if it begins like a formula
    and is not a number, gets an apostrophe in front; any other value is unchanged."""
    if not isinstance(value, str):
        return value
    text = clean(value)
    return f"'{text}" if FORMULA.match(text) and not NUMBER.fullmatch(text) else text


def clean(text: str) -> str:
    """Return text with control characters (terminal escapes, changes of writing direction) replaced by U+FFFD; line
    feeds and tabs are kept."""
    return CONTROL.sub("\ufffd", text)


def markdown(text: str) -> str:
    """Return text escaped for Markdown and HTML, on one line."""
    escaped = re.sub(r"([\\`*_\[\]|#~])", r"\\\1", clean(text).replace("\n", " "))
    return escaped.replace("&", "&amp;").replace("<", "&lt;")
