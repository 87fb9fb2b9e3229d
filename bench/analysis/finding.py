"""Defines a finding: the answer to one question as data (verdict, number with interval, reasons, evidence), not as
text.

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
    """The answer to a question. What YES and NO mean is defined in the question's file; CANNOT_TELL means that the
    interval allows both."""

    YES = "yes"
    NO = "no"
    CANNOT_TELL = "cannot tell"


class Reason(StrEnum):
    """A reason why a finding is undecided or, for a decided finding, a qualification of its answer. Of several reasons
    of a finding, the first one counts.

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
    """Sample sizes behind a number; 0 for a size that does not apply. For a mean over models, each is the smallest of
    any model.

    Attributes:
        seeds: training seeds.
        draws: few-shot samples.
        tasks: tasks that were averaged.
        test_images: images of the test set.
        models: models that were averaged or compared.
        points: group means (means over seeds at one x) that a law or a trend is based on.
        runs: single runs (seeds) that a law or a trend is based on.
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
        x: position on the axis of the finding (`Finding.axis`), such as compute in FLOP.
        estimate: the difference, first - second.
        low, high: interval of the difference; None if unknown.
        verdict: YES if the difference is above 0 beyond its interval, NO if it is below 0 beyond its interval.
        first, second: the models that represent the families at this x; "" if unknown.
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
    """Base class of everything in `Finding.evidence`. `kind`: the name that stands for the class in JSON."""

    kind: str = field(default="", init=False)
    KIND: ClassVar[str] = ""

    def __init_subclass__(cls, kind: str = "") -> None:
        """Set the name that stands for the class in JSON: `kind`, or by default ("") the name of the class."""
        cls.KIND = kind or cls.__name__

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", self.KIND)

    @property
    def is_of_table_6(self) -> bool:
        """Whether this item compares networks of Table 6 of the ViT paper."""
        return False


@dataclass(frozen=True, kw_only=True)
class Difference(Item):
    """The accuracy of a model minus that of what it is compared with, on one score.

    Attributes:
        contrast: what the model is compared with, such as "untrained" or "raw pixels".
        model: name of the model; "" for a mean over models.
        measure: name of the score.
        estimate, low, high: the difference, and its interval.
        n: sample sizes.
        excluded: sources of chance that exist but are not in the interval.
        from_x, to_x: numbers, such as images seen, that a report gives for the contrast and for the model if they
            differ; None: not given.
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
    """The point (mean over seeds at one x) that a fitted law misses most.

    Attributes:
        families: the family of the law, or the two families of a shared law.
        predicted: error that the law predicts at this point.
        observed: error that was measured at this point.
        p: p-value of the lack-of-fit test: how often noise between seeds alone would cause such deviations. None: no
            test failed, but the law misses this point, which is next to the answer.
    """

    families: tuple[str, ...]
    predicted: float
    observed: float
    p: float | None


@dataclass(frozen=True, kw_only=True)
class SeveralModels(Item):
    """The models, in order of x, whose points form the frontier that a family's law is fitted to. Where one model takes
    over from another, the frontier has a kink, which no smooth form can follow."""

    family: str
    models: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BeginsLater(Item):
    """The families that have not begun to learn at small compute, so that a comparison begins at larger compute.

    Attributes:
        families: names of the families.
        low: the least compute, in FLOP, that both sides were trained with.
        at: compute at which the comparison begins, in FLOP.
    """

    families: tuple[str, ...]
    low: float
    at: float


@dataclass(frozen=True, kw_only=True)
class BestAbsent(Item):
    """A family's best model, which was not trained as far as the other models: at larger compute none of these is as
    good as it was, so the family has no representative there.

    Attributes:
        family, model: names of the family and of its best model.
        places: compute, in FLOP, at which the family was therefore not compared.
    """

    family: str
    model: str
    places: tuple[float, ...]


# -- a finding ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The answer to one question about one subject. Fields that do not apply are None, "" or ().

    Attributes:
        question: name of the question that is answered (`bench/questions/`).
        subject: names of the families, models or tasks that the answer is about, in the question's order.
        verdict: YES, NO or CANNOT_TELL; the question's file says what YES and NO mean.
        measure: name of the score: "headline" or "far" (means over main or out-of-domain tasks), "upstream"
            (pre-training accuracy), or a single task's.
        reasons: values of `Reason`, or constants of the question's file.
        quantity: what the estimate is, such as "compute ratio".
        unit: unit of `estimate`, `low` and `high`.
        estimate: the number that answers the question.
        low, high: interval of the estimate; None for an end that is unknown.
        level: confidence level of the interval.
        n: sample sizes.
        reach, high_reach: how many times beyond the data the estimate, or the upper end of its interval, is; 1 inside
            the data.
        leader: the member of `subject` that the answer favours.
        agreement: fraction of resampled laws that agree with the answer.
        margin: difference that noise alone may cause between single runs, if the reason is `Reason.UNREPLICATED`.
        excluded: sources of chance that exist but are not in the interval (names of `bench.stats.intervals`).
        p: p-value: if there were no difference, how often an answer would be this far from it; None if unknown.
        main: whether the finding is on the main tasks, and no law answers the question better. A report shows the
            others after the main ones.
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
