"""Passes over a suite's cells before they are planned: one file each, in this order.

A pass is a file of this folder with `apply(study, request) -> StudyCells`. It is loaded only where `needed` says so.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass

from bench.plan.study_cells import StudyCells, StudyRequest


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One step from the suite's cells to those that are planned.

    Attributes:
        file: of this folder.
        needed: whether a study needs it.
    """

    file: str
    needed: Callable[[StudyRequest], bool] = lambda request: True

    def __call__(self, study: StudyCells, request: StudyRequest) -> StudyCells:
        """The study after this pass.

        Raises:
            UserError: what was asked cannot be done.
        """
        if not self.needed(request):
            return study
        changed: StudyCells = importlib.import_module(f"{__name__}.{self.file}").apply(study, request)
        return changed


PASSES = (
    Pass(file="untrainable"),
    Pass(file="images"),
    Pass(file="hours", needed=lambda r: r.fits_budgets_to_hours or r.options.hours is not None),
    Pass(file="clipped"),
    Pass(file="overrides"),
    Pass(
        file="alike",
        needed=lambda r: r.options.scale == "gpu" and not (r.gives_budgets or r.keeps_fitted_budgets),
    ),
    Pass(file="united"),
    Pass(file="chosen_grid", needed=lambda r: bool(r.options.grid)),
    Pass(
        file="one_warmup",
        needed=lambda r: (
            r.options.scale == "gpu"
            and not (r.suite.exclusive or r.gives_budgets or r.options.overrides.chooses_warmup)
        ),
    ),
    Pass(file="told_apart", needed=lambda r: "best-adaptation" in (r.suite.questions or ())),
    Pass(
        file="affordable",
        needed=lambda r: (
            r.options.scale == "cpu" and not r.options.tasks and "fine-tuning-gain" in (r.suite.questions or ())
        ),
    ),
    Pass(file="tasks", needed=lambda r: bool(r.options.tasks)),
    Pass(file="rehearsed", needed=lambda r: r.options.rehearse),
    Pass(file="only"),
)


def apply_all(study: StudyCells, request: StudyRequest) -> StudyCells:
    """The study after every pass.

    Raises:
        UserError: as the passes.
    """
    for each in PASSES:
        study = each(study, request)
    return study
