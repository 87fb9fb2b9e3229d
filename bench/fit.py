"""Fit a scaling law to a CSV from anywhere: card, intervals, warnings, predictions. Needs no torch."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import EXIT_OK, UserError, command, unknown

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from bench.analysis.fits.fit import Points

EXAMPLES = """\
examples:
  python -m bench.fit runs.csv --x compute --y error --group family
  python -m bench.fit runs.csv --x images --y error --form zhai --predict 1e9,1e10 --json
  python -m bench.fit runs.csv --form chinchilla --x N,D --y loss --delta 1e-3
  python -m bench.fit runs.csv --form isoflop --budget flops --x n_params --y loss --predict 1e21
"""
SCHEDULE_COLUMNS = ("annealed", "schedule", "cooldown")
SINGLE_FORMS = ("auto", "isoflop")


@command
def main(argv: list[str] | None = None) -> int:
    from bench.run import parser

    p = parser("python -m bench.fit", __doc__ or "", EXAMPLES)
    p.add_argument("csv", type=Path, help="a CSV file with one run per row")
    p.add_argument("--x", required=True, help="column of x; two with a comma for --form chinchilla (N,D)")
    p.add_argument("--y", required=True, help="column of y: a loss or an error, smaller is better")
    p.add_argument("--form", default="auto", help="auto, power, power-floor, zhai, m3, bnsl1, chinchilla, isoflop")
    p.add_argument("--group", help="column of families: one fit each, and where they cross")
    p.add_argument("--cluster", help="column that names the trunk of a run; points of one trunk share their luck")
    p.add_argument("--budget", help="column of budgets, for --form isoflop")
    p.add_argument("--loss", default="huber", choices=("huber", "squares", "absolute"), help="loss on log residuals")
    p.add_argument("--delta", type=float, help="Huber threshold (default: from the residuals of a pilot fit)")
    p.add_argument("--predict", help="comma-separated values of x; for chinchilla N:D pairs")
    p.add_argument("--bootstrap", type=int, default=400, help="resamples (default: 400)")
    p.add_argument("--json", action="store_true", help="machine-readable output on standard output")
    arguments = p.parse_args(argv)
    result = run(arguments)
    print(json.dumps(result) if arguments.json else "\n".join(lines(result)))
    return EXIT_OK


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Fit what was asked for; the answer as JSON types."""
    from bench.analysis.fits.forms import FORMS

    if arguments.form not in (*FORMS, *SINGLE_FORMS):
        raise unknown("form", arguments.form, (*FORMS, *SINGLE_FORMS))
    table = read(arguments.csv)
    guard(table, arguments)
    if arguments.form == "isoflop":
        return isoflop(table, arguments)
    groups = [("all", table)] if not arguments.group else list(table.groupby(column(table, arguments.group), sort=True))
    made = {str(name): one(part, arguments) for name, part in groups}
    result: dict[str, Any] = {"fits": {name: answer for name, (answer, _) in made.items()}}
    if len(made) > 1 and arguments.form != "chinchilla":
        result["crossings"] = crossings({name: resampled for name, (_, resampled) in made.items()})
    return result


def one(table: pd.DataFrame, arguments: argparse.Namespace) -> tuple[dict[str, Any], Any]:
    """One group's fit: card, intervals within this analysis, predictions with the total interval, warnings."""
    import numpy as np

    from bench.analysis.fits import bootstrap, conscience, fit, forms, rank

    points = points_of(table, arguments)
    ranked = rank.rank(points, forms.CURVES) if arguments.form == "auto" else []
    form = rank.choose(ranked) if ranked else forms.FORMS[arguments.form]
    if len(arguments.x.split(",")) != form.inputs:
        raise UserError(f"The form {form.name!r} takes {form.inputs} x columns, not {arguments.x!r}.", form.formula)
    delta = arguments.delta or (fit.CHINCHILLA_DELTA if form.name == "chinchilla" else None)
    main_fit = fit.fit(points, form, loss=arguments.loss, delta=delta)
    resampled = bootstrap.resample(main_fit, draws=arguments.bootstrap)
    at = predict_at(arguments, form.inputs)
    repeated = len(np.unique(points.x, axis=1).T) < len(points)
    answer = {
        "card": main_fit.card(), "level": bootstrap.LEVEL, "resampling": resampled.method,
        "intervals": {name: list(ends) for name, ends in resampled.parameters().items()},
        "forms_tried": [{"form": r.form.name, "extrapolation_rms_log": _finite(r.score), "rollouts": r.rollouts}
                        for r in ranked],
        "warnings": conscience.warnings(main_fit, predict_at=at[0] if at is not None else None, repeated=repeated)
                    + conscience.check_errors(points),
    }  # fmt: skip
    if at is not None:
        within = resampled.predictions(at)
        rivals = rank.credible(ranked) if ranked else [form]
        overall = bootstrap.total(points, rivals, at)
        answer["predictions"] = [
            {"x": at[:, i].tolist() if form.inputs > 1 else float(at[0, i]), "y": float(main_fit.predict(at)[i]),
             "within": list(resampled.interval(within[:, i])), "total": list(overall[i])}
            for i in range(at.shape[1])
        ]  # fmt: skip
        answer["total_over"] = {"forms": [f.name for f in rivals], "losses": ["huber", "squares", "absolute"]}
    return answer, resampled


def isoflop(table: pd.DataFrame, arguments: argparse.Namespace) -> dict[str, Any]:
    """Best size at each budget and its exponent."""
    import dataclasses

    from bench.analysis.fits import isoflop as curves

    if not arguments.budget:
        raise UserError("The form 'isoflop' needs the column of budgets.", "Add --budget flops.")
    found = curves.fit(*(numbers(table, name) for name in (arguments.budget, arguments.x, arguments.y)))
    result = {"isoflop": dataclasses.asdict(found)}
    if arguments.predict:
        result["isoflop"]["predictions"] = [
            {"budget": c, "size": found.predict(c)} for c in map(number, arguments.predict.split(","))
        ]
    return result


def crossings(resampled: dict[str, Any]) -> list[dict[str, Any]]:
    """Every pair of families: where they cross, or that it cannot be told."""
    import dataclasses
    from itertools import combinations

    from bench.analysis.fits.crossing import crossing

    return [
        {"first": a, "second": b, **dataclasses.asdict(crossing(resampled[a], resampled[b], names=(a, b)))}
        for a, b in combinations(sorted(resampled), 2)
    ]


def read(path: Path) -> pd.DataFrame:
    """The CSV.

    Raises:
        UserError: it is not there, or not a table.
    """
    import pandas as pd

    try:
        table = pd.read_csv(path)
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.", "Name a CSV file with one run per row.") from None
    except (ValueError, OSError) as error:
        raise UserError(f"{path} cannot be read as CSV: {error}", "Name a CSV file with one run per row.") from error
    if table.empty:
        raise UserError(f"{path} has no rows.")
    return table


def guard(table: pd.DataFrame, arguments: argparse.Namespace) -> None:
    """Refuse mixed schedules and mixed units of compute where the table shows them."""
    from bench.analysis.fits import conscience

    for name in SCHEDULE_COLUMNS:
        if name in table.columns and name != arguments.group:
            conscience.check_schedules(table[name].to_numpy())
    known = {alias: name for name in table.columns for alias in [name.lower()]}
    flops = next((known[a] for a in ("flops", "compute", "c") if a in known), None)
    size = next((known[a] for a in ("n_params", "params", "n") if a in known), None)
    tokens = next((known[a] for a in ("n_tokens", "tokens", "d") if a in known), None)
    if flops and size and tokens:
        conscience.check_units(*(numbers(table, name) for name in (flops, size, tokens)))


def points_of(table: pd.DataFrame, arguments: argparse.Namespace) -> Points:
    """x, y and trunks; rows with missing values are dropped and counted."""
    import numpy as np

    from bench.analysis.fits.fit import Points

    x = np.stack([numbers(table, name.strip()) for name in arguments.x.split(",")])
    y = numbers(table, arguments.y)
    cluster = table[column(table, arguments.cluster)].astype(str).to_numpy() if arguments.cluster else np.arange(len(y))
    whole = np.isfinite(y) & np.isfinite(x).all(axis=0)
    dropped = (f"{int((~whole).sum())} rows with missing values",) if not whole.all() else ()
    return Points(x=x[:, whole], y=y[whole], cluster=cluster[whole], dropped=dropped)


def column(table: pd.DataFrame, name: str) -> str:
    """`name`, if the table has it.

    Raises:
        UserError: it does not; suggests the nearest.
    """
    if name not in table.columns:
        raise unknown("column", name, map(str, table.columns))
    return name


def numbers(table: pd.DataFrame, name: str) -> np.ndarray:
    """A column as floats (integers would overflow in products of counts)."""
    import pandas as pd

    values = pd.to_numeric(table[column(table, name)], errors="coerce")
    if values.isna().all():
        raise UserError(f"Column {name!r} holds no numbers.")
    return values.to_numpy(dtype=float)


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


def number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not value > 0:
        raise UserError(f"{text!r} in --predict is not a positive number.")
    return value


def lines(result: dict[str, Any]) -> list[str]:
    """The answer for people."""
    from bench.analysis.words import significant

    if "isoflop" in result:
        found = result["isoflop"]
        ends = f"[{found['low']:.4f}, {found['high']:.4f}] ({found['level']:.0%}, {len(found['minima'])} budgets)"
        text = [f"size* = {found['coefficient']:.4g} × budget^{found['exponent']:.4f} {ends}"]
        text += [f"  budget {p['budget']:.4g}: size {p['size']:.4g}" for p in found.get("predictions", [])]
        return text + [f"  dropped: {item}" for item in found["dropped"]]
    text = []
    for name, answer in result["fits"].items():
        card = answer["card"]
        text.append(f"{name}: {card['formula']}, {card['points']} points, {card['loss']}")
        text.append(f"  {answer['level']:.0%} intervals by resampling: {answer['resampling']}")
        for key, value in card["parameters"].items():
            low, high = answer["intervals"][key]
            text.append(f"  {key} = {value:.5g} [{low:.5g}, {high:.5g}]")
        agree = f"{card['starts_that_agree']} of {card['starts']} starts agree"
        rms = f"rms of log residuals {card['rms_log_residual']:.3g}"
        text.append(f"  objective {card['objective']:.6g}, {agree}, {rms}")
        for p in answer.get("predictions", []):
            within, total = (f"[{significant(a, 4)}, {significant(b, 4)}]" for a, b in (p["within"], p["total"]))
            value = f"y = {significant(p['y'], 4)}"
            text.append(f"  x = {p['x']}: {value}, {within} within this analysis, {total} in total")
        text += [f"  warning: {item}" for item in answer["warnings"]]
    for c in result.get("crossings", []):
        where = ""
        if c["x"] is not None:
            where = f" at {c['x']:.4g} [{c['low']:.4g}, {c['high']:.4g}], then {c['overtakes']} is ahead"
        text.append(f"{c['first']} and {c['second']} cross: {c['verdict']}{where} ({c['reason']})")
    return text


def _finite(value: float) -> float | None:
    return value if value - value == 0 else None


if __name__ == "__main__":
    sys.exit(main())
