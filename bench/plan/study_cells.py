"""The cells of a study on their way from the suite to the plan, and what the passes over them may read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.plan.images import StudyImages
from bench.plan.sizes import DataSizes
from bench.study.cell import Cell, TaskSpec
from bench.study.options import What
from bench.study.overrides import Overrides
from bench.study.suite import Suite, SuiteOptions


@dataclass(frozen=True, kw_only=True)
class StudyCells:
    """The cells of a study, between two passes.

    Attributes:
        cells: all cells.
        chosen: the cells of this run; `--only` leaves out the others.
        notes: deviations from the suite, one sentence each.
        stored: name of an upstream set as it was written -> its name with the size at which it is stored.
        costly: cell -> tasks that were left out because they take long.
    """

    cells: tuple[Cell, ...]
    chosen: tuple[Cell, ...] = ()
    notes: tuple[str, ...] = ()
    stored: Mapping[str, str] = field(default_factory=dict)
    costly: Mapping[Cell, tuple[TaskSpec, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
    """What is asked of a suite: the options of a study after they were checked, for the passes to read.

    Attributes:
        suite: the design of the study.
        what: the options of the study; their scale is not "auto".
        overrides: changes to recipes, budgets and the grid.
        only: patterns of --only, for names of cells that this run does; empty: it does all.
        sizes: sizes of the data sets; a set is opened only where its size matters.
        suite_options: the options that the suite's cells were made with.
        images: what the options ask of images.
        upstream: upstream (pre-training) sets that the user named, without their limits; None: the suite's own.
        limits: name of a set -> N, for each that was given as NAME@N.
        device_name: the accelerator whose hours --hours counts, at scale `gpu`.
        store: the study's folder, whose records say which learning rates were tuned; None: none were.
    """

    suite: Suite
    what: What
    overrides: Overrides
    sizes: DataSizes
    suite_options: SuiteOptions
    images: StudyImages
    only: tuple[str, ...] = ()
    upstream: tuple[str, ...] | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    device_name: str = "H100"
    store: Path | None = None

    @property
    def scale(self) -> str:
        """The study's scale: "cpu", "gpu" or "paper"."""
        return self.what.scale

    @property
    def gives_budgets(self) -> bool:
        """Whether --horizons states how long every cell is trained, in images, steps or epochs."""
        horizons = self.overrides.horizons
        return bool(horizons) and not any(text.endswith("%") for text in horizons or ())

    @property
    def keeps_fitted_budgets(self) -> bool:
        """Whether --grid holds budgets that an earlier plan fitted to --hours."""
        return bool(self.overrides.grid) and self.scale == "gpu"

    @property
    def fits_budgets_to_hours(self) -> bool:
        """Whether budgets are computed from --hours."""
        fixed = self.suite.exclusive or self.gives_budgets or self.keeps_fitted_budgets
        return self.scale == "gpu" and not fixed


@dataclass(frozen=True, kw_only=True)
class Pass:
    """One step from the suite's cells to those that are planned.

    Attributes:
        apply: (study, request) -> the study after the pass. It raises a UserError if what was asked cannot be done.
        needed: (request) -> whether the pass is applied, by fields of the suite and of the options.
        after: names of the passes that come before this one.
        before: names of the passes that come after this one, if they cannot name it in their own `after`.
    """

    apply: Callable[[StudyCells, StudyRequest], StudyCells]
    needed: Callable[[StudyRequest], bool] = lambda request: True
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
