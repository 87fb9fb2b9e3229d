"""One answer as data: a verdict, a number with its interval, reasons, evidence; and no sentence.

A question's own reasons, kinds of evidence and words stand in its file in `bench/questions/`; several questions share
the ones here. Nothing reads a number or a decision out of words. Accuracies and their differences are
shares (0..1), compute is in FLOP, times are in seconds. `dataclasses.asdict` of everything is JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

ALL_MODELS = "all models"  # subject of a finding about every family together
TREND_POINTS = 4  # points that a law or a trend takes: two parameters, and two more to see the noise


class Verdict(StrEnum):
    """YES and NO answer a question as its file words it, beyond the interval."""

    YES = "yes"
    NO = "no"
    CANNOT_TELL = "cannot tell"


class Reason(StrEnum):
    """Why a finding is undecided or, where it is decided, what qualifies it. The first of several decides. These are
    the reasons of several questions (words: `wording.REASONS`); a question's own are constants of its file."""

    WITHIN_INTERVAL = "within interval"  # the interval holds both answers
    UNREPLICATED = "unreplicated"  # beyond an interval without training noise, yet under `Finding.margin`
    NO_COMMON_RANGE = "no common range"  # ranges of x overlap by less than a factor of 1.25, or not at all
    TOO_FEW_SCORES = "too few scores"  # ranges overlap, but fewer than two budgets there have scores of both
    TOO_FEW_POINTS = "too few points"  # n.points, of `TREND_POINTS`, lie in the range of the trend
    ORDER_CHANGES = "order changes"  # each family is ahead, beyond the interval, somewhere in the range
    AHEAD_THROUGHOUT = "ahead throughout"  # `leader` is, in the common range (laws: in the share `agreement` of refits)
    FIT_FAILED = "fit failed"  # no law could be fitted to these points
    LACK_OF_FIT = "lack of fit"  # a law misses group means: evidence has `LawDeviation` per law
    SEVERAL = "several questions"  # decided alone, not where all of the table count: `questions.held`
    CHANGES = "changes along the range"  # beyond its interval the answer depends on x: one number is an average at most
    BEGINS_LATER = "begins later"  # a family has not begun to learn at smaller x: evidence has `BeginsLater`
    WITHIN_BUDGETS = "within budgets"  # models with one budget each count at larger ones as well: not at equal compute
    SEVERAL_MODELS = "several models"  # the points of a law are of several models: evidence has `SeveralModels` per law


class Unit(StrEnum):
    """The unit of the estimate and its interval."""

    SHARE = "share"  # people read percent, or points for a difference
    TIMES = "times"
    FLOP = "FLOP"
    IMAGES = "images"
    NONE = ""


class Axis(StrEnum):
    """The meaning of x in a trend or a law."""

    COMPUTE = "compute"  # FLOP
    IMAGES = "images"  # distinct pre-training images
    ACCURACY = "accuracy"


@dataclass(frozen=True, kw_only=True)
class Counts:
    """n behind a number, 0 where it does not apply. A mean over models has the fewest seeds, draws and test images of
    any.

    `points`: group means that a law or a trend rests on; `runs`: single ones, a seed each; `steps`: budgets compared;
    `paired`: models whose test images were compared one by one.
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
    """`estimate` at x with its interval (None: unknown). verdict: YES above zero beyond it, NO below. first, second:
    the models that represent the families there. below: names of families whose model is below raw pixels there."""

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
    """Base of everything in `Finding.evidence`; `kind` says in JSON which class it is."""

    kind: str = field(default="", init=False)
    KIND: ClassVar[str] = ""

    def __init_subclass__(cls, kind: str = "") -> None:
        """kind: what JSON calls the class; its name by default."""
        cls.KIND = kind or cls.__name__

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", self.KIND)

    @property
    def is_of_table_6(self) -> bool:
        """Whether it compares networks of the ViT paper's Table 6."""
        return False


@dataclass(frozen=True, kw_only=True)
class Difference(Item):
    """Accuracy of a model minus that of its contrast, on one measure. train_flops: of the model."""

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
    """A law (of two families: one for both) misses this group mean most: the error that it predicts and the one that
    was observed. p: how often noise between seeds alone would miss like this; None: only this point, beside the answer,
    is missed."""

    families: tuple[str, ...]
    predicted: float
    observed: float
    p: float | None


@dataclass(frozen=True, kw_only=True)
class SeveralModels(Item):
    """Models on the frontier that a family's law is fitted to, in order of x: where one takes over from another the
    frontier has a kink, which no smooth form has."""

    family: str
    models: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class BeginsLater(Item):
    """Families that have not begun to learn with less compute than `at` (FLOP), where a comparison therefore begins;
    they were trained with `low` and more."""

    families: tuple[str, ...]
    low: float
    at: float


# -- a finding ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One answer; None or () where there is no such thing.

    Attributes:
        question: the name of the question that it answers (`bench/questions/`).
        subject: names of families, models or tasks that it is about, in the question's order.
        measure: "headline" or "far" (means over tasks), "upstream", or one task's name.
        level: of the interval.
        quantity: the meaning of the estimate, such as "compute ratio".
        reach, high_reach: how many times beyond the data the estimate, or the upper end, lies; 1 inside.
        leader: the member of `subject` that the answer favours.
        agreement: share of resampled laws that agree; see `Reason`.
        margin: difference that chance alone may cause between single runs, where `Reason.UNREPLICATED` decides.
        excluded: sources of chance that exist and are not in the interval, as `bench.stats.intervals` names them.
        p: how often an answer as far from no difference as this would be given, were there none; None: not known.
        main: it is on the headline tasks, and no law answers it better; the others are shown below.
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
