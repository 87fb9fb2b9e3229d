"""A finding: the answer to one question as data (verdict, number with interval, reasons, evidence), not as text.

The reasons, kinds of evidence and words here are shared by several questions; those of a single question are in its
file in `bench/questions/`. No number or decision is ever parsed from text. Accuracies and their differences are
fractions (0..1), compute is in FLOP, times are in seconds. `dataclasses.asdict` of everything here is valid JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

ALL_MODELS = "all models"  # subject of a finding about all families together
TREND_POINTS = 4  # fewest points of a law or a trend: two parameters, and two more to estimate the noise


class Verdict(StrEnum):
    """The answer to a question, whose file defines what YES and NO mean. CANNOT_TELL: the interval allows both."""

    YES = "yes"
    NO = "no"
    CANNOT_TELL = "cannot tell"


class Reason(StrEnum):
    """The reason why a finding is undecided or, if it is decided, a qualification. Of several, the first one counts.

    These reasons occur in several questions (words: `wording.REASONS`); those of a single question are constants in its
    file. "Evidence" below is `Finding.evidence`.
    """

    WITHIN_INTERVAL = "within interval"  # the interval contains both answers
    UNREPLICATED = "unreplicated"  # outside an interval that excludes training noise, but within `Finding.margin`
    NO_COMMON_RANGE = "no common range"  # ranges of x overlap by less than a factor of 1.25, or not at all
    TOO_FEW_SCORES = "too few scores"  # ranges overlap, but fewer than two budgets in it have scores of both
    TOO_FEW_POINTS = "too few points"  # the trend has `n.points` points, fewer than `TREND_POINTS`
    ORDER_CHANGES = "order changes"  # each family is ahead, beyond the interval, somewhere in the range
    AHEAD_THROUGHOUT = "ahead throughout"  # `leader` is, in all of the common range; by laws: in `agreement` of refits
    FIT_FAILED = "fit failed"  # no law could be fitted to these points
    LACK_OF_FIT = "lack of fit"  # a law misses group means: evidence has a `LawDeviation` for each such law
    SEVERAL = "several questions"  # decided by itself, but not after the multiple-testing correction `questions.held`
    CHANGES = "changes along the range"  # the answer depends on x, beyond the interval: one number is only an average
    BEGINS_LATER = "begins later"  # a family has not begun to learn at smaller x: evidence has a `BeginsLater`
    WITHIN_BUDGETS = "within budgets"  # models with one budget each also count at larger ones: not at equal compute
    SEVERAL_MODELS = "several models"  # a law's points are of several models: evidence has a `SeveralModels` for each


class Unit(StrEnum):
    """The unit of a finding's estimate and its interval."""

    SHARE = "share"  # fraction from 0 to 1; printed as percent, and differences as percentage points
    TIMES = "times"
    FLOP = "FLOP"
    IMAGES = "images"
    NONE = ""


class Axis(StrEnum):
    """The quantity on the x axis of a trend or a law."""

    COMPUTE = "compute"  # training compute in FLOP
    IMAGES = "images"  # distinct pre-training images
    ACCURACY = "accuracy"


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Sample sizes behind a number; 0 where one does not apply. For a mean over models, the smallest of any model.

    Attributes:
        draws: few-shot draws.
        points: group means that a law or a trend is based on.
        runs: single runs (seeds) that it is based on.
        steps: budgets that were compared.
        paired: models for which test images were compared one by one.
    """

    seeds: int = 0
    draws: int = 0
    tasks: int = 0
    test_images: int = 0
    models: int = 0
    points: int = 0
    runs: int = 0
    steps: int = 0
    paired: int = 0


@dataclass(frozen=True, kw_only=True)
class TrendPoint:
    """A difference in accuracy between two families at one x.

    Attributes:
        estimate: the difference, first - second.
        low, high: its interval; None: unknown.
        verdict: YES if the difference is above 0 beyond its interval, NO if it is below.
        first, second: the models that represent the families at this x.
        below: names of the families whose model has a lower accuracy than raw pixels at this x.
    """

    x: float
    estimate: float
    low: float | None = None
    high: float | None = None
    verdict: Verdict = Verdict.CANNOT_TELL
    first: str = ""
    second: str = ""
    below: tuple[str, ...] = ()


# -- evidence behind a finding -----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Item:
    """Base class of everything in `Finding.evidence`. `kind` is the name of the class in JSON."""

    kind: str = field(default="", init=False)
    KIND: ClassVar[str] = ""

    def __init_subclass__(cls, kind: str = "") -> None:
        """Set the name of the class in JSON: `kind`, or by default the name of the class."""
        cls.KIND = kind or cls.__name__

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", self.KIND)

    @property
    def is_of_table_6(self) -> bool:
        """Whether this item compares networks of the ViT paper's Table 6."""
        return False


@dataclass(frozen=True, kw_only=True)
class Difference(Item):
    """The accuracy of a model minus that of its contrast, on one measure.

    Attributes:
        contrast: what the model is compared with, such as "untrained" or "raw pixels".
        model: "" for a mean over models.
        from_x, to_x: x of the contrast and of the model, where they differ in it.
        train_flops: training compute of the model, in FLOP.
    """

    contrast: str
    model: str
    family: str
    measure: str
    estimate: float
    low: float
    high: float
    verdict: Verdict
    n: Counts
    excluded: tuple[str, ...] = ()
    from_x: float | None = None
    to_x: float | None = None
    train_flops: float | None = None


@dataclass(frozen=True, kw_only=True)
class LawDeviation(Item):
    """The group mean that a law misses most.

    Attributes:
        families: the family of the law, or the two families of a shared law.
        predicted: error that the law predicts there.
        observed: error that was measured.
        p: p-value of the lack-of-fit test: how often noise between seeds alone would cause such deviations. None: no
            test failed; only this point, next to the answer, is missed.
    """

    families: tuple[str, ...]
    predicted: float
    observed: float
    p: float | None


@dataclass(frozen=True, kw_only=True)
class SeveralModels(Item):
    """The models on the frontier that a family's law is fitted to, in order of x. Where one model takes over from
    another, the frontier has a kink, which no smooth form can follow."""

    family: str
    models: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BeginsLater(Item):
    """Families that have not begun to learn at small compute, so that a comparison begins at more.

    Attributes:
        low: the least compute, in FLOP, that both sides were trained with.
        at: compute at which the comparison begins.
    """

    families: tuple[str, ...]
    low: float
    at: float


# -- a finding ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The answer to one question about one subject. Fields that do not apply are None, "" or ().

    Attributes:
        question: name of the question that is answered (`bench/questions/`).
        subject: names of the families, models or tasks that the answer is about, in the question's order.
        verdict: the answer; see `Verdict`.
        measure: "headline" or "far" (means over tasks), "upstream", or the name of a task.
        reasons: values of `Reason`, or constants of the question's file.
        quantity: what the estimate is, such as "compute ratio".
        unit: of `estimate`, `low` and `high`.
        level: of the interval from `low` to `high`.
        n: sample sizes.
        reach, high_reach: how many times beyond the data the estimate, or the upper end, is; 1 inside the data.
        leader: the member of `subject` that the answer favours.
        agreement: fraction of resampled laws that agree with the answer.
        margin: difference that noise alone may cause between single runs, if the reason is `Reason.UNREPLICATED`.
        excluded: sources of chance that exist but are not in the interval (names of `bench.stats.intervals`).
        p: p-value: how often an answer this far from "no difference" would be given if there were none; None: unknown.
        main: whether the finding is on the headline tasks, and no law answers the question better. Others are shown
            after the main ones.
        axis: quantity on the x axis of `trend`, or of an estimate that is an x.
        trend: differences along the axis.
        evidence: the results behind the answer.
    """

    question: str
    subject: tuple[str, ...]
    verdict: Verdict
    measure: str = "headline"
    reasons: tuple[str, ...] = ()
    quantity: str | None = None
    unit: Unit = Unit.NONE
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    level: float | None = None
    n: Counts = Counts()
    reach: float = 1.0
    high_reach: float = 1.0
    leader: str = ""
    agreement: float | None = None
    margin: float | None = None
    excluded: tuple[str, ...] = ()
    p: float | None = None
    main: bool = True
    axis: Axis | None = None
    trend: tuple[TrendPoint, ...] = ()
    evidence: tuple[Item, ...] = ()
