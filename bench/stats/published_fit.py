"""Whether parameters that somebody else fitted are an optimum at all: their objective beside the one found here.

An optimiser with an absolute tolerance, given the mean of a small loss, stops after a few steps and says "converged";
published laws have been lost that way. Equal objectives mean equal fits, whatever the parameters' last digits.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from bench.core.errors import UserError
from bench.core.formatting import significant
from bench.stats.fit import Fit, loss_sum

TOLERANCE = 1e-3  # relative: what rounding of printed parameters may cost
LOGS: Mapping[str, tuple[str, ...]] = {
    "power": ("b",), "power-floor": ("e", "b", "c"), "zhai": ("c", "a", "d", "b"), "m3": ("b", "g", "c"),
    "chinchilla": ("A", "B", "E"),
}  # fmt: skip
"""Parameters that a form holds as logarithms, for the forms that can be judged."""


def judge(made: Fit, parameters: Mapping[str, float]) -> list[str]:
    """A warning if the sum of the loss at `parameters` is above the optimum; [] if it is the same fit.

    Raises:
        UserError: a parameter is missing or not positive, or the form cannot be judged.
    """
    form = made.form
    if form.name not in LOGS:
        raise UserError(f"Claimed parameters of {form.name!r} cannot be judged.", f"Forms: {', '.join(LOGS)}.")
    missing = [name for name in form.parameters if name not in parameters]
    if missing or any(not parameters[name] > 0 for name in form.parameters):
        raise UserError(
            f"{form.formula} needs positive values for {', '.join(form.parameters)}.",
            "For example --claimed A=406.4,B=410.7,E=1.69,alpha=0.34,beta=0.28.",
        )
    logs = LOGS[form.name]
    theta = np.array([np.log(parameters[n]) if n in logs else parameters[n] for n in form.parameters])
    residuals = form.log_predict(theta, made.points.x) - np.log(made.points.y)
    claimed = loss_sum(residuals, loss=made.loss, delta=made.delta)
    if claimed <= made.objective * (1 + TOLERANCE):
        return []
    return [
        f"The claimed parameters are no optimum: their sum of {made.loss} is {claimed:.6g}, the least found is "
        f"{made.objective:.6g} ({significant(100 * (claimed / made.objective - 1), 2)} % lower would do). An optimiser "
        "with an absolute tolerance on a mean objective stops like this; minimise the sum, from many starts."
    ]
