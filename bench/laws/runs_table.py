"""Reads a CSV or JSON Lines file from any source into the points of a fit.

Columns are found by any of their usual names, numbers and units are understood as they are usually written, and every
row that is left out is named.
"""

from __future__ import annotations

import csv
import io
import json
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bench.core.errors import UserError, unknown
from bench.core.formatting import compact
from bench.laws import table_diagnostics
from bench.laws.fit import Points

ALIASES: tuple[tuple[str, ...], ...] = (
    ("n", "nparams", "params", "parameters", "numparams", "modelsize", "size"),
    (
        "d",
        "ntokens",
        "tokens",
        "numtokens",
        "traintokens",
        "trainingtokens",
        "samples",
        "nsamples",
        "samplesseen",
        "imagesseen",
        "seenexamples",
        "examplesseen",
        "images",
    ),
    (
        "c",
        "flops",
        "compute",
        "flop",
        "trainflops",
        "trainingflops",
        "trainflop",
        "trainingflop",
        "trainingcompute",
        "traincompute",
        "exaflops",
        "gflops",
    ),
    ("u", "unique", "uniquetokens", "uniqueimages", "uniquesamples"),
    ("loss", "valloss", "validationloss", "evalloss", "testloss"),
    ("error", "err", "errorrate", "valerror", "testerror", "top1error"),
)
"""Each tuple holds the names of one quantity, in lower case without punctuation: parameters, samples, compute, unique
samples, loss, error."""
SUFFIXES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
UNITS = (
    ("thousand", 1e3),
    ("million", 1e6),
    ("billion", 1e9),
    ("trillion", 1e12),
    ("exaflop", 1e18),
    ("petaflop", 1e15),
    ("teraflop", 1e12),
    ("gigaflop", 1e9),
    ("gflop", 1e9),
    ("pflop", 1e15),
    ("eflop", 1e18),
    ("tflop", 1e12),
)
NUMBER = re.compile(r"^([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([kmbgt%]?)$", re.IGNORECASE)
THOUSANDS = re.compile(
    r"^[+-]?[1-9]\d{0,2}(?:(?:,\d{3})+|(?: \d{3})+)(?:\.\d+)?(?:e[+-]?\d+)?\s*[kmbgt%]?$", re.IGNORECASE
)
DECIMAL_COMMA = re.compile(r"^[+-]?\d*,\d+(?:e[+-]?\d+)?\s*[kmbgt%]?$", re.IGNORECASE)
GROUPED = re.compile(r"^(?=.*\d)[+-]?[\d.]*[, ][\d., ]*(?:e[+-]?\d+)?\s*[kmbgt%]?$", re.IGNORECASE)
"""Text that looks like a number with commas or spaces, whether they are in the right places or not."""
UNCLEAR = "unclear commas"  # key in a table's `attrs`: columns whose commas may be decimal or between thousands
ACCURACY = re.compile(
    r"^(?!.*err(?:ors?|s)?(?:rate)?(?![a-z]))(?!\s*1(?:00)?\s*%?\s*[-−–]).*?(?:(?<!in)acc(?!um)|top.?[15]|(?<!in)correct)",
    re.IGNORECASE,
)  # matches the name of an accuracy, but not "error (top-1)", "100 - accuracy", "incorrect", "accumulated loss"
BLANK = "(blank)"  # name of the group of all rows without a group
CONDITION = re.compile(r"^(.*?)(<=|>=|!=|<|>|=)(.*)$", re.DOTALL)
UNIT = re.compile(r"\s*[\[(].*?[\])]|[_ ]((thousand|million|billion|trillion)s?|[kMBGT])$")
MIN_OF_A_KIND = 3  # a text column counts as categorical if each value has this many rows on average
MAX_NAMED = 6  # at most this many rows are named one by one
MAX_BYTES, MAX_COLUMNS, MAX_POINTS = 256 << 20, 2_000, 20_000  # limits of a file, of a table, and of one fit
SEPARATORS = (",", ";", "\t", "|")
FLOP_PER = 6.0  # floating-point operations of training per parameter and sample: C = 6 N D (Kaplan et al. 2020)


def _json_lines(path: Path) -> tuple[list[str], list[list[str]], list[int]]:
    """Read a file of one JSON object per line, or of one list of objects. Return the column names, the rows, and each
    row's line number. There is a column for each key, also of nested objects, unless its values are lists.

    Raises:
        UserError: the file holds something else.
    """
    wrong, fix = f"{path} is neither a CSV nor one JSON object per line", "Give one run per line, as one object."
    try:
        text = path.read_text(encoding="utf-8-sig")
        if text.lstrip().startswith("["):
            found = list(enumerate(json.loads(text), start=1))
        else:
            found = [(at, json.loads(line)) for at, line in enumerate(text.splitlines(), start=1) if line.strip()]
    except (ValueError, RecursionError) as error:
        raise UserError(f"{wrong}: {error}", fix) from error
    if not all(isinstance(run, dict) for _, run in found):
        raise UserError(f"{wrong}.", fix)
    runs = pd.json_normalize([run for _, run in found]).to_dict("records")
    lists = {name for run in runs for name, value in run.items() if isinstance(value, list)}
    names = [name for name in (runs[0] if runs else ()) if name not in lists]
    rows = [["" if (value := run[name]) is None or value != value else str(value) for name in names] for run in runs]
    return list(map(str, names)), rows, [at for at, _ in found]


def check_columns(names: Sequence[str], *, rows: int, of: str) -> None:
    """Raise UserError if there are no rows, or if two columns have the same name. `of`: the name of the file."""
    if not rows:
        raise UserError(f"{of} has no rows.", "Give a header, and below it one run per row.")
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(f"{of} has several columns named {repeated[0]!r}.", "Give each a name of its own.")


def read(path: Path) -> pd.DataFrame:
    """Read a file of values separated by commas, semicolons, tabs or bars, or of one JSON object per line. The index of
    the table holds line numbers.

    In a file separated by semicolons, a comma may be a decimal sign; in columns where this is evident, commas become
    points.

    Raises:
        UserError: it is not a regular file, not a table of one run per row, or too large.
    """
    try:
        mode, size = path.stat().st_mode, path.stat().st_size
        if not stat.S_ISREG(mode) or size > MAX_BYTES:
            why = f"is larger than {MAX_BYTES >> 20} MiB" if stat.S_ISREG(mode) else "is not a regular file"
            raise UserError(f"{path} {why}.", "Name a CSV file with one run per row.")
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = file.readline()
            if header.lstrip().startswith(("{", "[{")) or header.strip() == "[":
                names, rows, numbers_of_lines = _json_lines(path)
                check_columns(names, rows=len(rows), of=str(path))
                return _typed(names, rows, numbers_of_lines)
            file.seek(0)
            separator = max(SEPARATORS, key=header.count)
            lines = csv.reader(file, delimiter=separator, skipinitialspace=True)
            names = [name.strip() for name in next(lines, [])]
            while names and not names[-1]:  # a separator at the end of every line
                names.pop()
            names = [name or f"column {i}" for i, name in enumerate(names, start=1)]
            if len(names) > MAX_COLUMNS:
                raise UserError(f"{path} has {len(names):,} columns.", f"At most {MAX_COLUMNS:,} are read.")
            rows, numbers_of_lines = [], []
            for row in lines:
                if not any(map(str.strip, row)):
                    continue
                if len(row) > len(names) and any(map(str.strip, row[len(names) :])):
                    what = f"Line {lines.line_num} of {path} has {len(row)} fields; the header has {len(names)}."
                    raise UserError(what, "Quote fields that hold the separator, or name every column.")
                rows.append(row[: len(names)] + [""] * (len(names) - len(row)))
                numbers_of_lines.append(lines.line_num)
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.", "Name a CSV file with one run per row.") from None
    except (ValueError, OSError, csv.Error) as error:
        raise UserError(f"{path} cannot be read as CSV: {error}", "Name a CSV file with one run per row.") from error
    check_columns(names, rows=len(rows), of=str(path))
    unclear = _read_decimal_commas(names, rows) if separator == ";" else ()
    return _typed(names, rows, numbers_of_lines, unclear=unclear)


def _typed(
    names: list[str], rows: list[list[str]], numbers_of_lines: list[int], *, unclear: tuple[str, ...] = ()
) -> pd.DataFrame:
    """Return the rows as a table whose index holds line numbers; columns whose entries are all numbers become numeric.
    `unclear`: columns whose commas may be decimal or between thousands."""
    text = io.StringIO()
    csv.writer(text).writerows([names, *rows])
    text.seek(0)
    # None and NA are kept as text: they may be the name of a family, or mean "no teacher"
    missing = {"keep_default_na": False, "na_values": ["", "nan", "NaN"]}
    table = pd.read_csv(text, index_col=False, skip_blank_lines=False, **missing)
    table.index = pd.Index(numbers_of_lines)
    table.attrs[UNCLEAR] = unclear
    return table


def _read_decimal_commas(names: list[str], rows: list[list[str]]) -> tuple[str, ...]:
    """Replace decimal commas in `rows` by points, in place. Return the names of the columns in which this is undecided,
    because "1,500" may be 1.5 or 1500."""
    unclear = []
    for at, name in enumerate(names):
        entries = [row[at].strip() for row in rows]
        single = [i for i, entry in enumerate(entries) if DECIMAL_COMMA.match(entry)]
        if any("," in entry and THOUSANDS.match(entry) for entry in entries if not DECIMAL_COMMA.match(entry)):
            continue  # an entry like "1,500,000" shows that commas are between thousands
        if any(not THOUSANDS.match(entries[i]) for i in single):
            for i in single:
                rows[i][at] = entries[i].replace(",", ".")
        elif single:
            unclear.append(name)
    return tuple(unclear)


def column(table: pd.DataFrame, name: str) -> str:
    """Return the full name of the column that `name` means: the column with exactly this name, else the only one with
    the same name in another spelling or another usual name of the same quantity, else the only one whose name ends in
    `name` after a point or slash ("val.loss" means "results.val.loss").

    Raises:
        UserError: there is no such column (similar names are suggested), or there are several.
    """
    same = _matches(table, name)
    if len(same) == 1:
        return same[0]
    if same:
        raise UserError(f"{name!r} may mean several columns: {', '.join(same)}.", "Name one of them exactly.")
    raise unknown("column", name, map(str, table.columns))


def _matches(table: pd.DataFrame, name: str) -> list[str]:
    if name in table.columns:
        return [name]
    same = [str(c) for c in table.columns if _plain(c) == _plain(name)]
    known = next((group for group in ALIASES if _plain(name) in group), (_plain(name),))
    same = same or [str(c) for c in table.columns if _plain(c) in known or _bare(c) in known]
    return same or [str(c) for c in table.columns if str(c).endswith((f".{name}", f"/{name}"))]


def select(table: pd.DataFrame, conditions: Sequence[str]) -> pd.DataFrame:
    """Return the rows where every condition holds. A condition is column=value (column=a,b: any of these values), the
    same with !=, or a comparison of numbers with <, <=, > or >=.

    Raises:
        UserError: a condition has another form, a column or value is unknown, or no row is left.
    """
    for text in conditions:
        parts = CONDITION.match(text)
        if not parts:
            raise UserError(f"--where {text!r} is not COLUMN=VALUE.", "For example --where family=ViT, or 'epochs<10'.")
        name, sign, wanted = (part.strip() for part in parts.groups())
        chosen = column(table, name)
        keep = _any_of(table[chosen], wanted) if sign in ("=", "!=") else _beside(table[chosen], sign, wanted)
        table = table[~keep if sign == "!=" else keep]
        if table.empty:
            raise UserError(f"--where {text!r} leaves no row.", "Conditions hold together: each narrows what is left.")
    return table


def split(table: pd.DataFrame, conditions: Sequence[str], *, x: Sequence[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows that `select` would return, which are to be fitted, and the rows that are held out for comparison
    with predictions.

    A row is held out if it fails only conditions on x, or on the size of a run (parameters, samples, compute). A row
    that fails any other condition is a run of another kind, and is in neither table. `x`: names of the x columns.

    Raises:
        UserError: see `select`.
    """
    chosen = select(table, conditions)
    sizes = {name for wanted in x for name in _matches(table, wanted)}
    sizes |= {str(c) for c in table.columns for names in ALIASES[:3] if _plain(c) in names or _bare(c) in names}
    kinds = [text for text in conditions if column(table, CONDITION.match(text)[1].strip()) not in sizes]  # type: ignore[index]
    return chosen, select(table, kinds).drop(index=chosen.index)


def _any_of(entries: pd.Series, wanted: str) -> np.ndarray:
    """Return which entries equal `wanted`, or one of its comma-separated values, (n,) bool. Numbers are compared by
    value, not as text."""
    texts, values = [str(entry).strip() for entry in entries], entries.map(_number).to_numpy(dtype=float)
    keep = np.zeros(len(entries), dtype=bool)
    for choice in [wanted] if wanted in texts else [part.strip() for part in wanted.split(",")]:
        same = np.array([text == choice for text in texts]) | np.isclose(values, _number(choice), rtol=1e-9, atol=0)
        if not same.any():
            raise unknown(f"value of {entries.name!r}", choice, texts)
        keep |= same
    return keep


def _beside(entries: pd.Series, sign: str, wanted: str) -> np.ndarray:
    """Return which entries satisfy a comparison (`sign`: <, <=, > or >=) with `wanted`, (n,) bool; False for entries
    that are not numbers."""
    limit, values = _number(wanted), _floats(entries)
    if not np.isfinite(limit) or not np.isfinite(values).any():
        which = repr(wanted) if not np.isfinite(limit) else f"every entry of {entries.name!r}"
        raise UserError(f"{sign} compares numbers, and {which} is none.", "For words write COLUMN=VALUE.")
    compare = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}[sign]
    keep = compare(values, limit)
    if not keep.any():
        ends = f"from {compact(np.nanmin(values), 6)} to {compact(np.nanmax(values), 6)}"
        raise UserError(f"No row has {entries.name} {sign} {wanted}.", f"It runs {ends}.")
    return keep


def with_inputs(table: pd.DataFrame, x: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Return the table with columns for a law of N (parameters) and D (samples), and notes for the user.

    If the table has compute C but only one of N and D, a column for the missing one is computed: N as C / (6 D), or D
    as C / (6 N). A note says so.

    Args:
        x: names of the columns of N and D, in this order.

    Raises:
        UserError: a compute column is given as N or D, or a column is missing.
    """
    compute = _known(table, ALIASES[2])
    for at, name in enumerate(x[:2] if len(x) > 1 else ()):
        same = _matches(table, name)
        if compute in same:
            other = f"{x[0]},D" if at else f"N,{x[1]}"
            raise UserError(
                f"{name!r} is compute; this law takes parameters and samples.",
                f'Write --x "{other}": what is missing is read as compute / {FLOP_PER:g} of the other.',
            )
        if not same and compute and _plain(name) in ALIASES[at]:
            rest = column(table, x[1 - at])
            made = numbers(table, compute) / (FLOP_PER * numbers(table, rest))
            return table.assign(**{name: made}), [f"{name} was read as {compute} / ({FLOP_PER:g} × {rest})."]
    return table, []


def numbers(table: pd.DataFrame, name: str) -> np.ndarray:
    """Return a column as floats (products of integer counts would overflow). Entries such as "125M", "1,000" and "7 %"
    are understood; a unit in the column's name ("params (millions)", "exaFLOPs") scales the values.

    Raises:
        UserError: the column has no numbers, or one whose commas or spaces are not between thousands.
    """
    found = column(table, name)
    made = _floats(table[found]) * scale_of(found)
    if np.isnan(made).all():
        numeric = (str(other) for other in table.columns if np.isfinite(table[other].map(_number)).any())
        raise UserError(f"Column {found!r} holds no numbers.", f"These do: {', '.join(numeric) or 'none'}.")
    return made


def _floats(entries: pd.Series) -> np.ndarray:
    """Return every entry of a column as a number, (n,); NaN for text that is not a number.

    Raises:
        UserError: an entry consists of digits but is not a valid number, or may mean two numbers.
    """
    if pd.api.types.is_numeric_dtype(entries) and entries.dtype != bool:
        return entries.to_numpy(dtype=float)
    made = entries.map(_number).to_numpy(dtype=float)
    texts = [str(entry).strip() for entry in entries]
    for line, text, value in zip(entries.index, texts, made, strict=True):
        where = f"Line {line}, column {entries.name!r}: {text!r}"
        if entries.name in entries.attrs.get(UNCLEAR, ()) and DECIMAL_COMMA.match(text):
            plain, point = text.replace(",", ""), text.replace(",", ".")
            raise UserError(f"{where} may be {point} or {plain}.", f"Write {point}, or {plain} without a comma.")
        if np.isnan(value) and GROUPED.match(text):
            raise UserError(
                f"{where} is not a number.",
                "Write a point before decimals (1.5), and commas or spaces only between thousands (1,500; "
                "1 500). Decimal commas are read in files separated by semicolons.",
            )
    return made


def scale_of(name: str) -> float:
    """Return the factor of the unit in a column's name: "N (millions)" -> 1e6, "exaFLOPs" -> 1e18, "loss" -> 1."""
    lowered = name.lower()
    for word, factor in UNITS:
        if word in lowered:
            return factor
    bracket = re.search(r"[\[(_ ](k|M|B|G|T)[\])]?$", name)
    return SUFFIXES[bracket.group(1).lower()] if bracket else 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class RunPrice:
    """The cost of a run as a function of its x: constant · x1^power1 · x2^power2 · …

    Attributes:
        constant: cost, in `unit`, of a run whose inputs are all 1.
        powers: power of each input, (inputs,).
        unit: "FLOP", "hours" or a column's name.
    """

    constant: float
    powers: np.ndarray
    unit: str

    def of(self, x: np.ndarray) -> np.ndarray:
        """Return the cost of runs at x (inputs, n), (n,)."""
        return self.constant * np.exp(self.powers @ np.log(x))


def run_price(table: pd.DataFrame, x: Sequence[str], *, cost: str | None = None) -> RunPrice:
    """Return the cost of a run as a function of its x.

    The function is a least-squares line in logarithms through the values of the column `cost`, or else of the table's
    compute column. Without such a column, or if x is compute, a run costs 6 N D for a law of several inputs, and x
    itself for a law of one input.

    Args:
        x: names of the x columns.
        cost: name of the column of costs; None: the compute column, if there is one.

    Raises:
        UserError: an unknown column, or one with too few positive numbers.
    """
    compute = _known(table, ALIASES[2])
    own = compute is not None and compute in [column(table, name) for name in x]
    chosen = column(table, cost) if cost else None if own else compute
    if chosen is None:
        joint = len(x) > 1
        powers = np.array([1.0, 1.0] + [0.0] * (len(x) - 2))[: len(x)]
        unit = "FLOP" if joint or own else column(table, x[0])
        return RunPrice(constant=FLOP_PER if joint else 1.0, powers=powers, unit=unit)
    paid, x_IN = numbers(table, chosen), np.stack([numbers(table, name) for name in x])
    known = np.isfinite(np.log(np.where(paid > 0, paid, np.nan))) & (np.nan_to_num(x_IN) > 0).all(axis=0)
    if known.sum() <= len(x):
        raise UserError(f"Column {chosen!r} has too few costs above zero.", "Name another with --cost.")
    log_x = np.log(x_IN[:, known])
    steady = np.ptp(log_x, axis=1) > 0
    rows = np.vstack([np.ones(known.sum()), log_x[steady]]).T
    found = np.linalg.lstsq(rows, np.log(paid[known]), rcond=None)[0]
    powers = np.zeros(len(x))
    powers[steady] = found[1:]
    unit = "hours" if "hour" in chosen.lower() or _plain(chosen).endswith("gpuh") else "FLOP"
    known_unit = unit == "hours" or chosen == compute
    return RunPrice(constant=float(np.exp(found[0])), powers=powers, unit=unit if known_unit else chosen)


def by_group(table: pd.DataFrame, name: str) -> dict[str, pd.DataFrame]:
    """Return the rows of every group, by the group's name. `name`: the column that holds the groups; rows without an
    entry there form one group, `BLANK`."""
    named: dict[str, list[pd.DataFrame]] = {}
    for group, part in table.groupby(column(table, name), dropna=False):
        named.setdefault(group_name(group), []).append(part)  # 1 and "1" have the same name
    return {group: pd.concat(parts) for group, parts in named.items()}


def group_name(entry: Any) -> str:
    """Return the name of the group for an entry of the group column; `BLANK` for a missing one."""
    if pd.isna(entry) or entry == "":
        return BLANK
    # a blank makes pandas read a column of integers as floats
    return str(int(entry) if isinstance(entry, float) and entry.is_integer() else entry)


def points(
    table: pd.DataFrame, *, x: Sequence[str], y: str, cluster: str | None = None, full: float | None = None
) -> tuple[Points, list[str]]:
    """Return the points of a table, and notes for the user on how its columns were interpreted. An accuracy becomes an
    error, 1 - accuracy.

    Args:
        x, y: names of columns.
        cluster: name of the column that says which trunk (training run) a row comes from; None: all rows are
            independent.
        full: value of a perfect accuracy in column y, from `full_accuracy`; None: y is not an accuracy.

    Raises:
        UserError: an unknown column, or no row left.
    """
    notes = [
        f"{name} was multiplied by {compact(scale_of(name))}, the unit in its name."
        for name in (column(table, n) for n in (*x, y))
        if scale_of(name) != 1
    ]
    x_IN, y_N = np.stack([numbers(table, name) for name in x]), outcomes(table, y, full)
    if full is not None:
        notes.append(
            f"{column(table, y)} was read as an accuracy {'in percent' if full > 1 else 'from 0 to 1'}: "
            "y = 1 - accuracy."
        )
    reasons = {
        "a missing value": ~(np.isfinite(y_N) & np.isfinite(x_IN).all(axis=0)),
        "x or y not above zero": ~((np.nan_to_num(y_N, nan=1) > 0) & (np.nan_to_num(x_IN, nan=1) > 0).all(axis=0)),
        "a copy of an earlier row": table.duplicated().to_numpy(),
    }
    keep, dropped = np.ones(len(table), dtype=bool), []
    for reason, bad in reasons.items():
        if (bad & keep).any():
            dropped.append(f"{_lines(table.index[bad & keep])}: {reason}")
            keep &= ~bad
    if not keep.any():
        raise UserError(f"No row can be used ({'; '.join(dropped)}).")
    if len(x) > 1 and keep.sum() > MAX_POINTS:  # rows of a law of one input are averaged instead: `Points.averaged`
        every = -(-int(keep.sum()) // MAX_POINTS)
        notes.append(f"Of {keep.sum():,} rows, one in {every} is fitted, evenly along the table.")
        keep[np.delete(np.flatnonzero(keep), np.s_[::every])] = False
    named = table[column(table, cluster)].map(group_name) if cluster else None
    alone = [f"line {line}" for line in table.index]  # a row without a trunk shares its noise with no other row
    trunks = np.arange(len(table)) if named is None else named.where(named != BLANK, alone).to_numpy()
    made = Points(x=x_IN[:, keep], y=y_N[keep], cluster=trunks[keep], dropped=tuple(dropped), share=full is not None)
    return replace(made, labels=_labels(table[keep])), notes


def full_accuracy(table: pd.DataFrame, y: str, *, accuracy: bool | None = None) -> float | None:
    """Return the value of a perfect accuracy in column y: 100 if any value is above 1, else 1; None if y is not an
    accuracy. It must be called with the whole table: on a hard test set, some rows in percent may all be below 1.

    Args:
        accuracy: whether y is an accuracy; None: decided by its name.
    """
    if not (accuracy or (accuracy is None and ACCURACY.search(column(table, y)))):
        return None
    return 100.0 if np.nanmax(numbers(table, y)) > 1 else 1.0


def outcomes(table: pd.DataFrame, y: str, full: float | None) -> np.ndarray:
    """Return column y as a loss or an error, (n,). `full`: value of a perfect accuracy, with which y becomes
    1 - y / full; None: y is returned as it is."""
    y_N = numbers(table, y)
    return y_N if full is None else 1 - y_N / full


def _labels(table: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return the entries of categorical columns as text, by column name. A text column is categorical if it has
    more than one value and on average at least `MIN_OF_A_KIND` rows per value."""
    words = [str(c) for c in table.columns if not pd.api.types.is_numeric_dtype(table[c])]
    few = [c for c in words if 1 < table[c].nunique() <= len(table) // MIN_OF_A_KIND]
    return {c: table[c].map(str).to_numpy() for c in few if table[c].map(_number).isna().any()}


def guard(table: pd.DataFrame, *, x: Sequence[str], y: str, group: str | None, full: float | None = None) -> list[str]:
    """Check that the rows belong in one fit. Return warnings about learning rates at the edge of their sweep, and about
    repeated data.

    Args:
        x, y, group: names of columns. Column `group` is not checked, because each of its values gets a law of its own.
        full: value of a perfect accuracy in column y, from `full_accuracy`; None: y is not an accuracy.

    Raises:
        UserError: the table mixes schedules, kinds of checkpoints, or units of compute.
    """
    for name in table.columns:
        if name != group and _plain(name) in table_diagnostics.SCHEDULES:
            table_diagnostics.check_schedules(table[name].to_numpy())
        if name != group and _plain(name) in table_diagnostics.CHECKPOINTS:
            table_diagnostics.check_checkpoints(table[name].to_numpy())
    flops, size, samples = (_known(table, ALIASES[i]) for i in (2, 0, 1))
    if flops and size and samples:
        table_diagnostics.check_units(*(numbers(table, name) for name in (flops, size, samples)))
    warnings = []
    rate = _known(table, ("lr", "learningrate", "peaklr", "baselr"))
    if rate and rate not in [column(table, name) for name in x]:
        family = table[column(table, group)].astype(str).to_numpy() if group else None
        sweep = (np.stack([numbers(table, name) for name in x]), numbers(table, rate), numbers(table, y))
        warnings += table_diagnostics.check_rates(*sweep, better=np.argmax if full else np.argmin, family=family)
    epochs = _known(table, ("epochs", "numepochs"))
    if epochs and len(x) < 3:  # a law of N, D and U has a term for them
        warnings += table_diagnostics.check_repeats(numbers(table, epochs))
    return warnings


def _known(table: pd.DataFrame, names: Sequence[str]) -> str | None:
    """Return the first column that has one of these names and holds any number; None without one. (A column "size" may
    hold text such as "B/16".)"""
    named = (str(c) for c in table.columns if _plain(c) in names or _bare(c) in names)
    return next((name for name in named if np.isfinite(table[name].map(_number)).any()), None)


def _plain(name: Any) -> str:
    return re.sub(r"[^a-z0-9]", "", str(name).lower())


def _bare(name: Any) -> str:
    """Return a column's name without its unit, in lower case without punctuation: "Tokens (billions)" -> "tokens"."""
    return _plain(UNIT.sub("", str(name)))


def _number(value: Any) -> float:
    text = str(value).strip()
    match = NUMBER.match(text.replace(",", "").replace(" ", "") if THOUSANDS.match(text) else text)
    if not match:
        return float("nan")
    suffix = match.group(2).lower()
    return float(match.group(1)) * SUFFIXES.get(suffix, 1.0)


def _lines(index: pd.Index) -> str:
    named = ", ".join(str(i) for i in index[:MAX_NAMED]) + (" and others" if len(index) > MAX_NAMED else "")
    return f"{len(index)} of the rows (line{'s' if len(index) > 1 else ''} {named})"
