"""Fit a scaling law to a CSV from anywhere: card, intervals, warnings, predictions. Needs no torch."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.core.errors import EXIT_OK, UserError, command, unknown

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from bench.stats.bootstrap import Resampled

EXAMPLES = """\
examples:
  python -m bench.fit runs.csv --x compute --y error --group family      a law per family, and where they cross
  python -m bench.fit runs.csv --x images --y top1_accuracy --predict 1e9,1e10
  python -m bench.fit runs.csv --x flops --y loss --where split=val --form zhai --json
  python -m bench.fit runs.csv --form chinchilla --x N,D --y loss --predict 1e9:2e10
  python -m bench.fit runs.csv --form chinchilla --x N,D --y loss --delta 1e-3 \\
      --claimed A=406.4,B=410.7,E=1.69,alpha=0.34,beta=0.28             is somebody else's fit an optimum?
  python -m bench.fit runs.csv --form repeated --x N,D,U --y loss        D samples of which U are distinct
  python -m bench.fit runs.csv --form isoflop --budget flops --x n_params --y loss --predict 1e21
columns are found by any usual name (n_params for N, ...); "125M", "1,000" and units in names ("N (millions)") are read;
a column of D (or N) that is not there is compute / (6 N); to test a law on its largest points, fit --where 'images<1e9'
and --predict those beyond
"""
SINGLE_FORMS = ("auto", "isoflop")
JOINT_FORMS = ("chinchilla", "repeated")


def arguments_parser() -> argparse.ArgumentParser:
    from bench.core.cli import parser

    p = parser("python -m bench.fit", __doc__ or "", EXAMPLES)
    p.add_argument("csv", type=Path, help="a CSV file with one run per row")
    p.add_argument("--x", required=True, help="column of x; N,D for --form chinchilla; N,D,U for --form repeated")
    p.add_argument("--y", required=True, help="column of y: a loss or an error; an accuracy is turned into an error")
    p.add_argument("--form", default="auto",
                   help="auto (ranked by extrapolation), power, power-floor, zhai, m3, m4, bnsl1, chinchilla, "
                        "repeated, isoflop")  # fmt: skip
    p.add_argument("--group", help="column of families: one fit each, and where they cross")
    p.add_argument("--where", action="append", default=[], metavar="COLUMN=VALUE",
                   help="keep these rows (repeatable); =a,b: any of them; and !=, <, <=, >, >=, in quotes")  # fmt: skip
    p.add_argument("--accuracy", action=argparse.BooleanOptionalAction, default=None,
                   help="y is (not) an accuracy (default: by its name)")  # fmt: skip
    p.add_argument("--cluster", help="column that names the trunk of a run; points of one trunk share their luck")
    p.add_argument("--budget", help="column of budgets, for --form isoflop")
    p.add_argument("--loss", default="huber", choices=("huber", "squares", "absolute"), help="loss on log residuals")
    p.add_argument("--delta", type=float, help="Huber threshold (default: from the residuals of a pilot fit)")
    p.add_argument("--predict", help="comma-separated values of x; N:D pairs for chinchilla, N:D:U for repeated")
    p.add_argument("--claimed", help="parameters to judge, name=value,...: are they an optimum of this objective?")
    p.add_argument("--bootstrap", type=int, default=400, help="resamples (default: 400)")
    p.add_argument("--json", action="store_true", help="machine-readable output on standard output")
    return p


@command
def main(argv: list[str] | None = None) -> int:
    from bench.report.fit_text import lines

    arguments = arguments_parser().parse_args(argv)
    if arguments.bootstrap < 20:
        raise UserError(f"--bootstrap {arguments.bootstrap} is too few for an interval.", "At least 20.")
    result = run(arguments)
    print(json.dumps(result) if arguments.json else "\n".join(lines(result)))
    return EXIT_OK


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Fit what was asked for; the answer as JSON types.

    Raises:
        UserError: unknown names, points that do not belong together or are too few, in every group.
    """
    from bench.analysis import runs_table as reader
    from bench.stats.forms import FORMS

    if arguments.form not in (*FORMS, *SINGLE_FORMS):
        raise unknown("form", arguments.form, (*FORMS, *SINGLE_FORMS))
    table = reader.select(reader.read(arguments.csv), arguments.where)
    table, notes = reader.with_inputs(table, _columns(arguments)) if arguments.form in JOINT_FORMS else (table, [])
    found = reader.guard(table, x=_columns(arguments), y=arguments.y, group=arguments.group)
    if arguments.form == "isoflop" and arguments.group:
        raise UserError("The form 'isoflop' fits one set of budgets at a time.",
                        f"Instead of --group choose the rows: --where {arguments.group}=VALUE.")  # fmt: skip
    if arguments.form == "isoflop":
        return isoflop(table, arguments)
    groups = [("all", table)]
    if arguments.group:
        groups = list(table.groupby(reader.column(table, arguments.group), sort=True))
    made: dict[str, tuple[dict[str, Any], Resampled]] = {}
    refused: dict[str, str] = {}
    for name, part in groups:
        try:
            made[str(name)] = one(part, arguments)
        except UserError as error:
            if len(groups) == 1:
                raise
            refused[str(name)] = str(error.what)
    if not made:
        raise UserError("No group can be fitted: " + " ".join(f"{k}: {v}" for k, v in refused.items()),
                        "Add runs, or choose a form with fewer parameters (--form power has 2).")  # fmt: skip
    result: dict[str, Any] = {"fits": {name: answer for name, (answer, _) in made.items()}, "refused": refused,
                              "warnings": found, "notes": notes}  # fmt: skip
    if len(made) > 1 and len(_columns(arguments)) == 1:
        result["crossings"] = crossings({name: resampled for name, (_, resampled) in made.items()})
    return result


def one(table: pd.DataFrame, arguments: argparse.Namespace) -> tuple[dict[str, Any], Resampled]:
    """One group's fit: card, intervals within this analysis, predictions with the total interval, warnings."""
    import numpy as np

    from bench.analysis import runs_table as reader
    from bench.stats import bootstrap, diagnostics, fit, forms, model_selection

    points, notes = reader.points(table, x=_columns(arguments), y=arguments.y, cluster=arguments.cluster,
                                  accuracy=arguments.accuracy)  # fmt: skip
    if arguments.form == "auto":
        fit.check(points, forms.POWER)
    ranked = model_selection.rank(points, forms.CURVES, max_starts=60) if arguments.form == "auto" else []
    form = model_selection.select(ranked) if ranked else forms.FORMS[arguments.form]
    if len(_columns(arguments)) != form.inputs:
        raise UserError(f"The form {form.name!r} takes {form.inputs} x columns, not {arguments.x!r}.", form.formula)
    delta = arguments.delta or (fit.CHINCHILLA_DELTA if form.name == "chinchilla" else None)
    main_fit = fit.fit(points, form, loss=arguments.loss, delta=delta)
    resampled = bootstrap.resample(main_fit, draws=arguments.bootstrap)
    at = predict_at(arguments, form.inputs)
    repeated = len(np.unique(points.x, axis=1).T) < len(points)
    answer: dict[str, Any] = {
        "card": main_fit.card(), "level": bootstrap.LEVEL, "resampling": resampled.method,
        "intervals": {name: list(ends) for name, ends in resampled.parameters().items()},
        "forms_tried": [{"form": r.form.name, "extrapolation_rms_log": _finite(r.extrapolation_rmse),
                         "rollouts": r.rollouts} for r in ranked],
        "notes": notes,
        "warnings": diagnostics.warnings(main_fit, predict_at=at[0] if at is not None else None, repeated=repeated)
                    + diagnostics.check_errors(points) + diagnostics.check_direction(points)
                    + diagnostics.check_autocorrelation(main_fit) + diagnostics.check_exponents(main_fit)
                    + diagnostics.check_groups(main_fit.residuals, points.labels)
    }  # fmt: skip
    if arguments.claimed:
        answer["warnings"] += diagnostics.check_published(main_fit, parse_claimed(arguments.claimed))
    if at is not None:
        within, one_run = resampled.predictions(at), resampled.one_run(at)
        rivals = model_selection.credible(ranked) if ranked else [form]
        overall = bootstrap.total(points, rivals, at)
        answer["predictions"] = [
            {"x": at[:, i].tolist() if form.inputs > 1 else float(at[0, i]), "y": float(main_fit.predict(at)[i]),
             "within": list(resampled.interval(within[:, i])), "total": list(overall[i]),
             "one_run": list(resampled.interval(one_run[:, i]))}
            for i in range(at.shape[1])
        ]  # fmt: skip
        answer["total_over"] = {"forms": [f.name for f in rivals], "losses": ["huber", "squares", "absolute"]}
    return answer, resampled


def isoflop(table: pd.DataFrame, arguments: argparse.Namespace) -> dict[str, Any]:
    """Best size at each budget and its exponent."""
    import dataclasses

    from bench.analysis import runs_table as reader
    from bench.stats import diagnostics
    from bench.stats import isoflop as curves

    if not arguments.budget:
        raise UserError("The form 'isoflop' needs the column of budgets.", "Add --budget flops.")
    points, notes = reader.points(table, x=(arguments.budget, arguments.x), y=arguments.y, accuracy=arguments.accuracy)
    made = curves.fit(points.x[0], points.x[1], points.y)
    found = dataclasses.asdict(made)
    del found["lines"]
    found["dropped"] = [*points.dropped, *found["dropped"]]
    budgets = predict_at(arguments, 1)
    if budgets is not None:
        found["predictions"] = [{"budget": c, "size": made.predict(c), "interval": list(made.interval(c))}
                                for c in budgets[0].tolist()]  # fmt: skip
    residuals = curves.residuals_by_budget(points.x[0], points.x[1], points.y)
    return {"isoflop": found, "notes": notes, "warnings": diagnostics.check_groups(residuals, points.labels)}


def crossings(resampled: dict[str, Any]) -> list[dict[str, Any]]:
    """Every pair of families: where they cross, or that it cannot be told."""
    import dataclasses
    from itertools import combinations

    from bench.stats.crossing import crossing

    return [
        {"first": a, "second": b, **dataclasses.asdict(crossing(resampled[a], resampled[b], names=(a, b)))}
        for a, b in combinations(sorted(resampled), 2)
    ]


def predict_at(arguments: argparse.Namespace, inputs: int) -> np.ndarray | None:
    """Values of --predict, (inputs, n)."""
    import numpy as np

    if not arguments.predict:
        return None
    rows = [[number(part) for part in item.split(":")] for item in arguments.predict.split(",")]
    if any(len(row) != inputs for row in rows):
        raise UserError(f"--predict {arguments.predict!r} does not give {inputs} values for each point.",
                        "For two inputs write 1e9:2e10,1e9:4e10.")  # fmt: skip
    return np.array(rows).T


def parse_claimed(text: str) -> dict[str, float]:
    """"A=406,B=410" -> {"A": 406.0, "B": 410.0}."""
    found = {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        if not equals:
            raise UserError(f"--claimed {item!r} is not NAME=VALUE.", "For example --claimed b=2.1,c=0.3.")
        found[name.strip()] = number(value, option="--claimed")
    return found


def number(text: str, *, option: str = "--predict") -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise UserError(f"{text!r} in {option} is not a positive number.")
    return value


def _columns(arguments: argparse.Namespace) -> tuple[str, ...]:
    return tuple(name.strip() for name in arguments.x.split(","))


def _finite(value: float) -> float | None:
    return value if value - value == 0 else None


if __name__ == "__main__":
    sys.exit(main())
