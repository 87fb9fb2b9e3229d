"""Fit a scaling law to a CSV from anywhere: card, intervals, warnings, predictions and their record. Needs no torch."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bench.core.errors import EXIT_OK, UserError, command
from bench.core.formatting import printable
from bench.laws import REFITS
from bench.logs import POINTS

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from bench.laws.table_fit import Request

EXAMPLES = """\
examples:
  vit-bench fit runs.csv --x compute --y error --group family      a law per family, and where they cross
  vit-bench fit runs.csv --x compute --y error --group family --figure laws.pdf --style paper    one column wide
  vit-bench fit runs.csv --x images --y top1_accuracy --predict 1e9,1e10
  vit-bench fit runs.csv --x images --y error --where 'images<1e9' --predict 4e9    beside the runs held out
  vit-bench fit runs.csv --x compute --y error --reach 0.2              how much compute for an error of 0.2?
  vit-bench fit runs.csv --x compute --y error --backtest record.png    how far off was it before?
  vit-bench fit runs.csv --x flops --y loss --where split=val --form zhai --json
  vit-bench fit runs.csv --form chinchilla --x N,D --y loss --predict 1e9:2e10
  vit-bench fit runs.csv --form chinchilla --x N,D --y loss --delta 1e-3 \\
      --claimed A=406.4,B=410.7,E=1.69,alpha=0.34,beta=0.28             is a published fit an optimum?
  vit-bench fit runs.csv --form repeated --x N,D,U --y loss        D samples of which U are distinct
  vit-bench fit runs/ --y val/loss --group arch                   TensorBoard, W&B, MLflow or JSON: a point per run
  vit-bench fit wandb:ENTITY/PROJECT --x tokens --y val/loss       from the server, where WANDB_API_KEY is set
  vit-bench fit runs.csv --form isoflop --budget flops --x n_params --y loss --predict 1e21
  vit-bench fit runs.csv --x flops --y error --design 1e20 --price 2.5/gpuh --narrow y@1e21      the next runs
  vit-bench fit runs.csv --form chinchilla --x N,D --y loss --design 1e21 --narrow optimum@1e22
  vit-bench fit runs.csv --x flops --y error --group family --design 40 --cost gpu_hours --narrow crossing
columns are found by any usual name (n_params for N, ...); "125M", "1,000" and units in names ("N (millions)") are read;
a column of D (or N) that is not there is compute / (6 N). With --form auto, intervals of slopes, floors, exponents,
predictions and crossings are over all forms, by weights that are printed; those of a form that is given hold only if y
follows it. A crossing's interval may be open, [x, ∞), where the points do not show its end. The law of --form auto
is the median of four forms that bend; beyond the data its interval comes from what it missed from earlier origins
(--backtest), and from what such laws missed on other curves. Runs far off all others are left out of it, and named
"""
FIGURES = (".png", ".svg", ".pdf")
ACCELERATOR, UTILISATION = "H100", 0.4  # FLOPs are priced on this device, at this assumed fraction of its peak
BESIDE = Path(FIGURES[0])  # --figure without a value: the file is named after the CSV


def arguments_parser() -> argparse.ArgumentParser:
    from bench.core.cli import above_zero, parser
    from bench.report.style import PAGE, style_named

    p = parser(
        "vit-bench fit",
        __doc__ or "",
        forms_table() + EXAMPLES,
        effects=lambda args: {
            "idle": {
                "with --form isoflop": args.form == "isoflop"
                and "cluster loss delta claimed bootstrap backtest reach schedule narrow",
                "with several x": "," in (args.x or "") and "reach schedule",
                "without --form isoflop": args.form != "isoflop" and "budget",
                "without --design": args.design is None and "narrow cost price accelerator",
                "without --loss huber": args.loss != "huber" and "delta",
            }
        },
    )
    p.add_argument(
        "csv",
        type=Path,
        metavar="RUNS",
        help="a CSV file with one run per row; or logs: a folder of TensorBoard, W&B, MLflow or JSON, a file of one "
        "of them or what W&B exports, wandb:ENTITY/PROJECT",
    )
    p.add_argument("--x", help="column of x; N,D for --form chinchilla; N,D,U for --form repeated")
    p.add_argument("--y", help="column of y: a loss or an error; an accuracy is turned into an error")
    p.add_argument(
        "--form",
        default="auto",
        metavar="FORM",
        help="auto (intervals over all forms of one x; the one that extrapolates best is shown, one for all groups) "
        "or one of the forms below",
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
    p.add_argument(
        "--points",
        choices=POINTS,
        help="of logs: the last value of each run (final, the default), its best, or all values, of which nothing is "
        "said beyond the data where they are of one run",
    )
    p.add_argument("--cluster", help="column that names the training that a row is from; points of one share its noise")
    p.add_argument("--budget", help="column of budgets, for --form isoflop")
    p.add_argument("--loss", default="huber", choices=("huber", "squares", "absolute"), help="loss on log residuals")
    p.add_argument("--delta", type=above_zero, help="Huber threshold (default: from the residuals of a pilot fit)")
    p.add_argument(
        "--schedule",
        choices=("runs", "constant", "decay"),
        help="what the rows are: runs of their own, evaluations of one run at a constant rate, or of one whose rate "
        "decays, which says nothing beyond its end (default: runs, or one run where x has even steps)",
    )
    p.add_argument("--predict", help="comma-separated values of x; N:D pairs for chinchilla, N:D:U for repeated")
    p.add_argument("--reach", help="comma-separated values of y: the x that each takes, with its interval")
    p.add_argument(
        "--figure",
        nargs="?",
        const=BESIDE,
        type=Path,
        metavar="FILE",
        help="draw runs, laws and intervals: .png, .svg or .pdf (without FILE: the CSV's name, .png, in this folder)",
    )
    p.add_argument(
        "--style", type=style_named, default=PAGE, help="its sizes: page, paper, paper:5.5, paper:6.75 or slide"
    )
    p.add_argument(
        "--backtest",
        nargs="?",
        const="",
        metavar="FIGURE",
        help="list how far off predictions from earlier origins were; draw it in this file",
    )
    p.add_argument(
        "--design",
        type=above_zero,
        metavar="BUDGET",
        help="the next runs that narrow an answer most, for so much in all: FLOPs, or the unit of --cost",
    )
    p.add_argument(
        "--narrow",
        metavar="ANSWER",
        help="of --design: exponent, floor, crossing, a parameter of the form, slope@X, y@X, x@Y, optimum@FLOPS "
        "(default: the last of --predict or the first of --reach, else the crossing of two groups, else exponent)",
    )
    p.add_argument("--cost", metavar="COLUMN", help="what a run costs, for --design (default: its compute)")
    p.add_argument("--price", metavar="2.5/gpuh", help="of an hour of one device: --design is told in money too")
    p.add_argument("--accelerator", default=None, help="the device of --price, for costs in FLOPs (default: H100)")
    p.add_argument("--claimed", help="parameters to judge, name=value,...: are they an optimum of this objective?")
    p.add_argument("--bootstrap", type=int, default=REFITS, help=f"resamples (default: {REFITS:,})")
    return p


def forms_table() -> str:
    """Return the help text on every form: the word for --form, its name, its formula, and its source."""
    from bench.laws.forms import FORM_NAMES, FORMS

    formulas = {name: form.formula for name, form in FORMS.items()} | {"isoflop": "best size = k budget^a"}
    rows = [f"  {word:12} {name}: {formulas[word]}\n{'':15}{source}" for word, (name, source) in FORM_NAMES.items()]
    return "\n".join(["forms:", *rows, "", ""])


@command
def main(argv: list[str] | None = None) -> int:
    arguments = arguments_parser().parse_args(argv)
    if arguments.figure == BESIDE:
        arguments.figure = Path(arguments.csv.stem + FIGURES[0])
    for option, path in {"--backtest": arguments.backtest, "--figure": arguments.figure}.items():
        if path and Path(path).suffix not in FIGURES:
            raise UserError(f"{option} {str(path)!r} is no figure.", f"Name a file: {', '.join(FIGURES)}.")
    from bench.core.console import busy
    from bench.laws import runs_table, table_fit, wording

    whole, said = _logged(arguments) or (runs_table.read(arguments.csv), [])
    if not (arguments.x and arguments.y):
        columns = f"{arguments.csv} has: {', '.join(map(str, whole.columns))}."
        raise UserError("--x and --y name the columns to fit.", columns)
    asked = request(arguments)
    table, held = runs_table.split(whole, arguments.where, x=asked.x)
    drawn = []
    with busy("Fitting …"):
        result = table_fit.answer(table, asked, held=held)
        for path, record in ((arguments.figure, False), (arguments.backtest, True)):
            if path:
                from bench.report import fit_figure

                fit_figure.save(result, Path(path), style=arguments.style, record=record)
                drawn.append(f"Figure: {path}")
    if arguments.json:
        print(*said, sep="\n", file=sys.stderr)
    print(json.dumps(result) if arguments.json else printable("\n".join([*said, *wording.lines(result), *drawn])))
    return EXIT_OK


def _logged(arguments: argparse.Namespace) -> tuple[pd.DataFrame, list[str]] | None:
    """Read logs of experiment trackers as a table of runs. Return the table with lines for the user on how it was read,
    and fill in the columns that `arguments` does not name. Return None if the input is not logs but a table.

    Raises:
        UserError: the logs cannot be read (`bench.logs`), or --points is given for a table.
    """
    from bench.logs import read, run

    if (logs := read.read(arguments.csv)) is None:
        if arguments.points:
            what = f"--points is about logs, and {arguments.csv} is a table: its rows are the points."
            raise UserError(what, "Leave it out, or name a folder of logs.")
        return None
    points = arguments.points or POINTS[0]
    run.check_points(logs, points)
    chosen = run.columns(logs, x=arguments.x, y=arguments.y, group=arguments.group)
    arguments.x, arguments.y, arguments.group = chosen.x, chosen.y, chosen.group
    if points == "all" and arguments.cluster is None:
        arguments.cluster = run.RUN
    return run.table(logs, points=points, y=chosen.y), chosen.said(logs, points)


def request(arguments: argparse.Namespace) -> Request:
    """Return the request for a fit that the arguments of the command line make.

    Raises:
        UserError: a value of --predict, --reach or --claimed is not a number, or options contradict each other.
    """
    from bench.laws.table_fit import Request

    x = tuple(name.strip() for name in arguments.x.split(","))
    if arguments.y in x:
        raise UserError(f"--x and --y are the same column, {arguments.y!r}.", "Name what was reached with --y.")
    if arguments.figure is not None and (len(x) > 1 or arguments.form == "isoflop"):
        raise UserError("--figure draws laws of one x.", "Leave it out, or fit a form of one x.")
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
        reach=tuple(number(part, option="--reach") for part in arguments.reach.split(",")) if arguments.reach else (),
        schedule=arguments.schedule,
        draws=arguments.bootstrap,
        published=parse_claimed(arguments.claimed) if arguments.claimed else None,
        backtest=arguments.backtest is not None,
        curves=arguments.figure is not None,
        design=arguments.design,
        narrow=arguments.narrow,
        cost=arguments.cost,
        unit_prices=unit_prices(arguments.price, arguments.accelerator or ACCELERATOR) if arguments.price else None,
    )


def unit_prices(price: str, accelerator: str) -> dict[str, tuple[float, str]]:
    """Return the prices of a FLOP and of a device hour: "FLOP" or "hours" -> (price, what it rests on, in words).

    Args:
        price: price of an hour of one device, such as "2.5/gpuh".
        accelerator: name of the device, by whose peak FLOPs are priced.

    Raises:
        UserError: `price` is not the price of an hour of one device, or the device is not known.
    """
    from bench.cost import hardware, units

    amount, each = hardware.price(price)
    if not each:
        raise UserError(f"{price!r} is the price of many devices.", "Give that of one: --price 2.5/gpuh.")
    hours = units.gpu_hours(1.0, accelerator, UTILISATION)
    said = f"a FLOP of one {hours.device} at {UTILISATION:.0%} of its peak in bfloat16, an assumption"
    return {"FLOP": (amount * hours.value, said), "hours": (amount, f"hours at {amount:g}")}


def predict_at(text: str, inputs: int) -> np.ndarray:
    """Return the n values of x in --predict ("1e9,1e10", or "1e9:2e10" for two inputs) as an array, (inputs, n).

    Raises:
        UserError: a value is not a positive number, or does not have this many inputs.
    """
    import numpy as np

    rows = [[number(part) for part in item.split(":")] for item in text.split(",")]
    if any(len(row) != inputs for row in rows):
        raise UserError(
            f"--predict {text!r} does not give {inputs} values for each point.",
            "For two inputs write 1e9:2e10,1e9:4e10.",
        )
    return np.array(rows).T


def parse_claimed(text: str) -> dict[str, float]:
    """Return the parameters in the value of --claimed: "A=406,B=410" gives {"A": 406.0, "B": 410.0}.

    Raises:
        UserError: the text is not of this form.
    """
    claimed = {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not equals:
            raise UserError(f"--claimed {item!r} is not NAME=VALUE.", "For example --claimed b=2.1,c=0.3.")
        claimed[name.strip()] = number(value, option="--claimed")
    return claimed


def number(text: str, *, option: str = "--predict") -> float:
    """Return the positive, finite number that a text holds. `option`: the option that has this value, for the error.

    Raises:
        UserError: the text is no such number.
    """
    from bench.core.cli import above_zero

    try:
        return above_zero(text)
    except argparse.ArgumentTypeError as error:
        raise UserError(f"{option}: {error}.", "Write it as 1e9; several are separated by commas.") from error


if __name__ == "__main__":
    sys.exit(main())
