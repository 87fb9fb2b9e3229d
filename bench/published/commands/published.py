"""Ask what published networks cost and reach: results of timm's checkpoints with training FLOPs, and others."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import json
import math
import sys
from typing import TYPE_CHECKING, Any

from bench.core import cli
from bench.core.console import add_row, make_console, make_table, show_table, write
from bench.core.errors import EXIT_OK, UserError, command, unknown
from bench.core.formatting import compact, plural

if TYPE_CHECKING:
    import pandas as pd

    from bench.published.matched import Ratio

EXAMPLES = """examples:
  vit-bench published                                        the columns, and how many rows there are
  vit-bench published --where "family == 'ViT' and pretrain_images > 1e7" --x train_exaflops --y in1k_top1
  vit-bench published --reach 85% --by train                 the cheapest published ways to 85 %
  vit-bench published --reach 85% --where "complete and not teacher"
  vit-bench published --like timm:convnext_tiny              where a model stands, and its neighbours in cost
  vit-bench published --compare                              families at equal error, with intervals
  vit-bench published --table clip --reach 75%
  vit-bench published --reach 85% --json

Training FLOPs are computed from published recipes; a cost with ≥ lacks a stage whose length was not found."""
COSTS = {"train": "train_exaflops", "inference": "gmacs", "params": "params_m", "images": "images_seen"}
MEASURES = {"checkpoints": "in1k_top1", "clip": "in1k_zeroshot", "paper": "in1k_top1"}
PRINTED = {"train": "train_exaflops_paper"}
"""Cost -> its column in the table `paper`, where that differs from COSTS: by the ViT paper's own convention of
counting, every row has a cost."""
FROM_RECIPES = ("train_exaflops", "train_exaflops_paper", "pretrain_exaflops", "images_seen")
"""Columns of costs that follow from a training recipe; they are lower bounds in rows whose recipe is incomplete."""
MAX_EXPRESSION_LETTERS = 1000  # letters of an expression
ALLOWED = (
    ast.Expression,
    ast.BoolOp,
    ast.boolop,
    ast.UnaryOp,
    ast.unaryop,
    ast.BinOp,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.BitAnd,
    ast.BitOr,
    ast.Compare,
    ast.cmpop,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.List,
    ast.Tuple,
)
"""Syntax nodes that an expression of --where may consist of: columns, constants, comparisons and arithmetic."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command's options."""
    made = cli.parser(
        "vit-bench published",
        __doc__ or "",
        EXAMPLES,
        effects=lambda options: {
            "used": {"with --compare": options.compare and "compare"},
            "idle": {"with --like": options.like and "reach", "with --x": options.x and "by"},
        },
    )
    made.add_argument(
        "--table", default="checkpoints", help="checkpoints (timm), clip (open_clip) or paper (ViT paper)"
    )
    made.add_argument(
        "--where", metavar="EXPRESSION", help="only rows for which it holds: columns, and or not, < == in"
    )
    made.add_argument("--x", metavar="COLUMN", help="sort by it; * marks rows that are best at their cost")
    made.add_argument("--y", metavar="COLUMN", help="what is reached or compared (default: accuracy on ImageNet-1k)")
    made.add_argument("--reach", type=_percent, metavar="ACCURACY", help="the cheapest rows with at least so much")
    made.add_argument("--like", metavar="MODEL", help="one of timm's models, and what costs about as much")
    made.add_argument("--compare", action="store_true", help="how much more compute families need at equal error")
    made.add_argument("--by", choices=COSTS, default="train", help="the cost: of training (default), …")
    made.add_argument("--limit", type=cli.positive, default=15, help="rows to show (default 15)")
    return made


@command
def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    if options.compare:
        return _compare(as_json=options.json)
    from bench.published import public_models

    table = public_models.table(options.table)
    if options.where:
        table = where(table, options.where)
    costs = COSTS | PRINTED if options.table == "paper" else COSTS
    usual = costs[options.by]
    if options.x is None and usual not in table:
        here = ", ".join(by for by, name in costs.items() if name in table)
        raise UserError(f"The table {options.table} has no cost of {options.by}.", f"Allowed with --by: {here}.")
    cost = column(table, options.x or usual, of_numbers=True)
    measure = column(table, options.y or MEASURES[options.table], of_numbers=True)
    if options.like:
        rows, said = like(table, options.like, cost=cost, measure=measure, number=options.limit)
    elif options.reach is not None:
        rows = reach(table, options.reach, cost=cost, measure=measure)
        said = f"Rows that reach {options.reach:g}{_unit(measure)} in {measure}: {len(rows)}. The cheapest in {cost}:"
    elif options.where or options.x or options.y:
        rows = frontier(table, cost=cost, measure=measure)
        said = f"Rows with {cost} and {measure}: {len(rows)}, of which best at their cost (*): {rows['best'].sum()}."
        if len(rows) > options.limit and rows["best"].any() and not options.json:
            rows, said = rows[rows["best"]], f"{said} Only these are shown."
    else:
        rows, said = table, ""
    if options.json:
        plain = json.loads(rows.to_json(orient="records", double_precision=15))
        print(json.dumps({"version": public_models.VERSION, "rows": plain}, indent=1))
    elif not said:
        _describe(table, public_models.COLUMNS, public_models.VERSION)
    else:
        print(said)
        _show(rows.head(options.limit), cost=cost, measure=measure)
    return EXIT_OK


def where(table: pd.DataFrame, expression: str) -> pd.DataFrame:
    """Return the rows for which an expression, such as "family == 'ViT' and pretrain_images > 1e7", is true.

    Raises:
        UserError: the expression cannot be parsed, names an unknown column, has syntax that is not in ALLOWED (such as
            calls), or is true for no row.
    """
    fix = "For example: family == 'ViT' and pretrain_images > 1e7"
    try:
        tree = ast.parse(expression.strip(), mode="eval") if len(expression) <= MAX_EXPRESSION_LETTERS else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None:
        raise UserError(f"--where {expression[:80]!r} is not an expression.", fix)
    for node in ast.walk(tree):
        if not isinstance(node, ALLOWED):
            raise UserError(f"--where {expression!r} may not have: {type(node).__name__.lower()}.", fix)
        if isinstance(node, ast.Name):
            column(table, node.id)
        if isinstance(node, ast.BinOp) and any(
            isinstance(getattr(side, "value", 0), str | bytes) for side in (node.left, node.right)
        ):
            raise UserError(f"--where {expression!r} calculates with text.", fix)
    try:
        holds = table.eval(ast.unparse(tree), engine="python")
    except Exception as error:  # anything may have been compared with anything
        raise UserError(f"--where {expression!r} cannot be evaluated: {str(error)[:100]}.", fix) from error
    if str(getattr(holds, "dtype", "")) != "bool":
        raise UserError(f"--where {expression!r} is neither true nor false for a row.", fix)
    chosen = table[holds]
    if chosen.empty:
        raise UserError(f"No row of the table has {expression}.", _values(table, tree))
    return chosen


def _values(table: pd.DataFrame, tree: ast.Expression) -> str:
    """Return the distinct values in the text columns that an expression names, as a text for an error message."""
    names = dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    texts = [name for name in names if table[name].dtype != bool and table[name].nunique() <= 12]
    shown = (f"{name}: {', '.join(str(value) for value in sorted(table[name].unique()) if value)}" for name in texts)
    return "; ".join(shown)


def column(table: pd.DataFrame, name: str, *, of_numbers: bool = False) -> str:
    """Return the name of a column after checking that the table has it.

    Raises:
        UserError: there is no such column, or `of_numbers` is true and the column holds no numbers.
    """
    if name not in table:
        raise unknown("column", name, table.columns)
    if of_numbers and table[name].dtype.kind not in "fi":
        numbers = [other for other in table if table[other].dtype.kind in "fi"]
        raise UserError(f"The column {name} holds no numbers.", f"Those that do: {', '.join(numbers)}.")
    return name


def frontier(table: pd.DataFrame, *, cost: str, measure: str) -> pd.DataFrame:
    """Return the rows that have numbers in both columns, `cost` and `measure`, sorted by cost, with a new column
    `best`: whether the row's measure is higher than that of every row that costs as much or less.

    A row whose cost is only a lower bound is never best.
    """
    rows = table.dropna(subset=[cost, measure]).sort_values([cost, measure], ascending=[True, False], kind="stable")
    known = _known(rows, cost)
    before = rows[measure].where(known).cummax().shift(fill_value=-math.inf)
    return rows.assign(best=known & (rows[measure] > before.ffill()))


def reach(table: pd.DataFrame, accuracy: float, *, cost: str, measure: str) -> pd.DataFrame:
    """Return the rows whose value in the column `measure` is at least `accuracy`, sorted by the column `cost`.

    Raises:
        UserError: there are no such rows.
    """
    rows = frontier(table, cost=cost, measure=measure)
    enough = rows[rows[measure] >= accuracy]
    if enough.empty:
        best = f"The best has {rows[measure].max():g}." if len(rows) else "No row has both numbers."
        raise UserError(f"No row with a known {cost} reaches {accuracy:g} in {measure}.", best)
    return enough


def like(table: pd.DataFrame, name: str, *, cost: str, measure: str, number: int) -> tuple[pd.DataFrame, str]:
    """Return a model's rows together with the rows nearest to it in cost, sorted by cost, and a sentence on where the
    model stands among them.

    Args:
        name: one of timm's checkpoints or architectures, with or without "timm:" before it.
        cost, measure: columns of the cost and of the accuracy.
        number: number of rows to return.

    Raises:
        UserError: there is no such model, or its cost is unknown.
    """
    plain = name.removeprefix("timm:")
    own = table[(table["model"] == plain) | (table["arch"] == plain)]
    if own.empty:
        raise unknown("published model", plain, {*table["model"], *table["arch"]} - {""})
    rows = frontier(table, cost=cost, measure=measure)
    mine = rows[rows["model"].isin(own["model"])]
    if mine.empty:
        others = [by for by, other in COSTS.items() if other in own and own[other].notna().any()]
        raise UserError(f"No recipe of {plain} was found: its {cost} is unknown.", f"Try --by {' or '.join(others)}.")
    chosen = mine.sort_values(measure).iloc[-1]
    far = rows.assign(far=(rows[cost] / chosen[cost]).map(math.log).abs(), asked=rows["model"].isin(mine["model"]))
    nearest = far.sort_values(["far", measure], ascending=[True, False], kind="stable")
    own = nearest[nearest["asked"]][: -(-number // 2)]  # one architecture may have more rows than are asked for
    others = nearest[~nearest["asked"]][: number - len(own)]
    near = nearest.loc[[*own.index, *others.index]].drop(columns="far")
    known = _known(rows, cost)
    cheaper = rows[known & (rows[cost] <= chosen[cost])]
    said = (
        f"{chosen['model']} has {chosen[measure]:g}{_unit(measure)} in {measure} at "
        f"{_cost(chosen[cost], known=known[chosen.name])} {cost}; of {plural(len(cheaper), 'row')} known to cost "
        f"as much or less, {(cheaper[measure] > chosen[measure]).sum()} have more. Its neighbours in cost:"
    )
    return near.sort_values([cost, measure]), said


def _known(rows: pd.DataFrame, cost: str) -> pd.Series:
    """Return for each row whether its cost is known, and not only as a lower bound. A cost that follows from a training
    recipe is known if the recipe is complete."""
    if cost not in FROM_RECIPES or "complete" not in rows:
        return rows[cost].notna()
    return rows["complete"]


def _unit(measure: str) -> str:
    from bench.published import public_models

    return " %" if public_models.COLUMNS[measure].endswith("in percent") else ""


def _cost(amount: float, *, known: bool) -> str:
    return f"{'' if known else '≥ '}{compact(amount)}"


def _percent(text: str) -> float:
    """Return in percent an accuracy that is given as "85%", "85" or "0.85"."""
    try:
        value = float(text.strip().removesuffix("%"))
        value *= 1 if "%" in text or value >= 1 else 100
    except ValueError:
        value = math.nan
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not an accuracy in percent, such as 85%")
    return value


def _show(rows: pd.DataFrame, *, cost: str, measure: str) -> None:
    sources = list(dict.fromkeys(source for source in rows["source"] if source))
    made = make_table(
        "", "model", measure, cost, "px", "pre-trained on", "teacher", "source", right=(measure, cost, "px")
    )
    for row, exact in zip(rows.to_dict("records"), _known(rows, cost), strict=True):
        mark = ">" if row.get("asked") else "*" if row.get("best") else ""
        numbers = f"{row[measure]:g}", _cost(row[cost], known=exact), f"{row['image_size']:g}"
        teacher, source = "yes" if row.get("teacher") else "", row["source"]
        cited = f"[{sources.index(source) + 1}]" if source else ""
        add_row(made, mark, row["model"], *numbers, row["pretrain_set"], teacher, cited)
    console = make_console()
    show_table(made, console)
    for number, source in enumerate(sources, start=1):
        write(console, f"[{number}] {source}")


def _compare(*, as_json: bool) -> int:
    from bench.published.matched import by_metric, comparisons, matched
    from bench.published.wording import CHANCE

    ratios = {comparison: matched(comparison) for comparison in comparisons()}
    if as_json:
        plain = [
            dataclasses.asdict(asked) | {"ratios": list(map(dataclasses.asdict, of))} for asked, of in ratios.items()
        ]
        print(json.dumps(plain, indent=1))
        return EXIT_OK
    for asked, (*networks, mean) in ratios.items():
        label = asked.name if asked.controlled else f"NOT controlled: {asked.name}"
        print(f"{label}: at equal ImageNet top-1 error {asked.second} needs {_times(mean)} of {asked.first}")
        if others := by_metric(asked)[1:]:
            print(f"    By other metrics: {', '.join(f'{o.metric} {_ratio(o.ratio)}' for o in others)}")
        for ratio in networks:
            print(f"    {_times(ratio):42}of {ratio.model}")
        if asked.differs:
            print(f"    What else differs: {asked.differs}.")
    print(CHANCE)
    return EXIT_OK


def _ratio(ratio: float | None) -> str:
    return "none in both ranges" if ratio is None else f"{ratio:.2f}"


def _times(ratio: Ratio) -> str:
    if ratio.ratio is None:
        return "an unknown multiple of the compute"
    return f"{ratio.ratio:.2f} ({ratio.low:.2f} to {ratio.high:.2f}) times the compute"


def _describe(table: pd.DataFrame, columns: Any, version: str) -> None:
    print(f"Published networks, tables of {version}: {len(table)} rows of {table['model'].nunique()} models.")
    if "confidence" in table:
        with_cost, whole = table["confidence"].ne("").sum(), table["complete"].sum()
        print(f"Training FLOPs are known for {with_cost} rows: {whole} whole, {with_cost - whole} as lower bounds.")
    made = make_table("column", "rows", "what it holds", right=("rows",))
    for name in table:
        filled = table[name].ne("") & table[name].notna()
        add_row(made, name, str(int(filled.sum())), columns[name])
    show_table(made, make_console())


if __name__ == "__main__":
    sys.exit(main())
