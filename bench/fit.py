"""Fit a scaling law to a CSV from anywhere: card, intervals, warnings, predictions and their record. Needs no torch."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench.core.errors import EXIT_OK, UserError, command
from bench.core.formatting import printable

if TYPE_CHECKING:
    import numpy as np

    from bench.analysis.runs_fit import Request

EXAMPLES = """\
examples:
  python -m bench.fit runs.csv --x compute --y error --group family      a law per family, and where they cross
  python -m bench.fit runs.csv --x images --y top1_accuracy --predict 1e9,1e10
  python -m bench.fit runs.csv --x images --y error --where 'images<1e9' --predict 4e9    beside the runs held out
  python -m bench.fit runs.csv --x compute --y error --backtest record.png    how far off was it before?
  python -m bench.fit runs.csv --x flops --y loss --where split=val --form zhai --json
  python -m bench.fit runs.csv --form chinchilla --x N,D --y loss --predict 1e9:2e10
  python -m bench.fit runs.csv --form chinchilla --x N,D --y loss --delta 1e-3 \\
      --claimed A=406.4,B=410.7,E=1.69,alpha=0.34,beta=0.28             is a published fit an optimum?
  python -m bench.fit runs.csv --form repeated --x N,D,U --y loss        D samples of which U are distinct
  python -m bench.fit runs.csv --form isoflop --budget flops --x n_params --y loss --predict 1e21
columns are found by any usual name (n_params for N, ...); "125M", "1,000" and units in names ("N (millions)") are read;
a column of D (or N) that is not there is compute / (6 N). With --form auto, intervals of slopes, floors, exponents,
predictions and crossings are over all forms, by weights that are printed; those of a form that is given hold only if y
follows it. A crossing's interval may be open, [x, ∞), where the points do not show its end. Predictions by --form auto
are the median of four forms that bend; beyond the data an interval is at least as wide as the same procedure has been
off from earlier origins (--backtest)
"""
FIGURES = (".png", ".svg", ".pdf")


def arguments_parser() -> argparse.ArgumentParser:
    from bench.core.cli import above_zero, parser

    p = parser("python -m bench.fit", __doc__ or "", EXAMPLES)
    p.add_argument("csv", type=Path, help="a CSV file with one run per row")
    p.add_argument("--x", required=True, help="column of x; N,D for --form chinchilla; N,D,U for --form repeated")
    p.add_argument("--y", required=True, help="column of y: a loss or an error; an accuracy is turned into an error")
    p.add_argument(
        "--form",
        default="auto",
        help="auto (intervals over all forms; the one that extrapolates best is shown, one for all groups), power, "
        "power-floor, zhai, m3, m4, bnsl1, chinchilla, repeated, isoflop",
    )
    p.add_argument("--group", help="column of families: one fit each, and where they cross")
    p.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="COLUMN=VALUE",
        help="keep these rows (repeatable); =a,b: any of them; and !=, <, <=, >, >=, in quotes. Runs that "
        "only a limit on x or on size leaves out are set beside predictions at their x",
    )
    p.add_argument(
        "--accuracy",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="y is (not) an accuracy (default: by its name)",
    )
    p.add_argument("--cluster", help="column that names the trunk of a run; points of one trunk share its noise")
    p.add_argument("--budget", help="column of budgets, for --form isoflop")
    p.add_argument("--loss", default="huber", choices=("huber", "squares", "absolute"), help="loss on log residuals")
    p.add_argument("--delta", type=above_zero, help="Huber threshold (default: from the residuals of a pilot fit)")
    p.add_argument("--predict", help="comma-separated values of x; N:D pairs for chinchilla, N:D:U for repeated")
    p.add_argument(
        "--backtest",
        nargs="?",
        const="",
        metavar="FIGURE",
        help="list how far off predictions from earlier origins were; draw it in this file",
    )
    p.add_argument("--claimed", help="parameters to judge, name=value,...: are they an optimum of this objective?")
    p.add_argument("--bootstrap", type=int, default=400, help="resamples (default: 400)")
    p.add_argument("--json", action="store_true", help="machine-readable output on standard output")
    return p


@command
def main(argv: list[str] | None = None) -> int:
    arguments = arguments_parser().parse_args(argv)
    if arguments.bootstrap < 20:
        raise UserError(f"--bootstrap {arguments.bootstrap} is too few for an interval.", "At least 20.")
    if arguments.backtest and Path(arguments.backtest).suffix not in FIGURES:
        raise UserError(f"--backtest {arguments.backtest!r} is no figure.", f"Name a file: {', '.join(FIGURES)}.")
    from bench.analysis import runs_fit, runs_table
    from bench.report import fit_text

    asked = request(arguments)
    table, held = runs_table.split(runs_table.read(arguments.csv), arguments.where, x=asked.x)
    result = runs_fit.answer(table, asked, held=held)
    if arguments.backtest:
        fit_text.draw_backtest(result, Path(arguments.backtest))
    print(json.dumps(result) if arguments.json else printable("\n".join(fit_text.lines(result))))
    return EXIT_OK


def request(arguments: argparse.Namespace) -> Request:
    """The command line as what is to be fitted.

    Raises:
        UserError: a value of --predict or --claimed that is none.
    """
    from bench.analysis.runs_fit import ISOFLOP, Request

    x = tuple(name.strip() for name in arguments.x.split(","))
    if arguments.y in x:
        raise UserError(f"--x and --y are the same column, {arguments.y!r}.", "Name what was reached with --y.")
    if arguments.backtest is not None and arguments.form == ISOFLOP:
        raise UserError("--backtest does not go with --form isoflop.", "--predict says what its record is.")
    return Request(
        x=x,
        y=arguments.y,
        form=arguments.form,
        group=arguments.group,
        accuracy=arguments.accuracy,
        cluster=arguments.cluster,
        budget=arguments.budget,
        loss=arguments.loss,
        delta=arguments.delta,
        at=predict_at(arguments.predict, len(x)) if arguments.predict else None,
        draws=arguments.bootstrap,
        published=parse_claimed(arguments.claimed) if arguments.claimed else None,
        backtest=arguments.backtest is not None,
    )


def predict_at(text: str, inputs: int) -> np.ndarray:
    """Values of --predict, (inputs, n)."""
    import numpy as np

    rows = [[number(part) for part in item.split(":")] for item in text.split(",")]
    if any(len(row) != inputs for row in rows):
        raise UserError(
            f"--predict {text!r} does not give {inputs} values for each point.",
            "For two inputs write 1e9:2e10,1e9:4e10.",
        )
    return np.array(rows).T


def parse_claimed(text: str) -> dict[str, float]:
    """ "A=406,B=410" -> {"A": 406.0, "B": 410.0}."""
    found = {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not equals:
            raise UserError(f"--claimed {item!r} is not NAME=VALUE.", "For example --claimed b=2.1,c=0.3.")
        found[name.strip()] = number(value, option="--claimed")
    return found


def number(text: str, *, option: str = "--predict") -> float:
    """A positive, finite number."""
    from bench.core.cli import above_zero

    try:
        return above_zero(text)
    except argparse.ArgumentTypeError as error:
        raise UserError(f"{option}: {error}.", "Write it as 1e9; several are separated by commas.") from error


if __name__ == "__main__":
    sys.exit(main())
