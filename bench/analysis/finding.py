"""What a study's records answer, as data: every verdict, reason and number, and no sentence.

The questions (`bench/questions/`) turn these into words; nothing reads a number or a decision out of words. Accuracies
and their differences are shares (0..1), compute is in FLOP, times are in seconds. `dataclasses.asdict` of everything is
JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from bench.stats.extrapolation import PastError
from bench.stats.intervals import POINT_LEVEL

ALL_MODELS = "all models"  # subject of a finding about every family together
NEEDED = 4  # points that a law or a trend takes: two parameters, and two more to see the noise


class Verdict(StrEnum):
    """YES and NO answer a question as its file words it, beyond the interval."""

    YES = "yes"
    NO = "no"
    CANNOT_TELL = "cannot tell"


class Reason(StrEnum):
    """Why a finding is undecided or, where it is decided, what qualifies it. The first of several decides."""

    # Why it is undecided.
    WITHIN_INTERVAL = "within interval"  # the interval holds both answers
    UNREPLICATED = "unreplicated"
    """The interval excludes zero but holds no training noise: between single runs, `Finding.margin` may be chance."""
    STARTED_ONCE = "started once"  # a race whose processes did not begin anew: nothing says how far apart starts are
    NO_COMMON_RANGE = "no common range"  # ranges of x overlap by less than a factor of 1.25, or not at all
    NO_COMMON_ACCURACY = "no common accuracy"  # no accuracy was reached by both
    TOO_FEW_SCORES = "too few scores"  # ranges overlap, but fewer than two budgets there have scores of both
    TOO_FEW_POINTS = "too few points"  # n.points, of `NEEDED`, lie in the range of the trend
    ORDER_CHANGES = "order changes"  # each family is ahead, beyond the interval, somewhere in the range
    NO_CHANGE_OF_ORDER = "no change of order"  # none is beyond the intervals of the trend
    AHEAD_THROUGHOUT = "ahead throughout"
    """`leader` is, in the common range (of laws: in the share `agreement` of resamples). A crossing lies beyond."""
    CROSSING_UNSTABLE = "crossing unstable"
    """Laws may cross or not. With low or high, the leader is known up to there, or from there on."""
    UNDETERMINED = "undetermined"  # accuracy hardly changes with compute: any factor fits
    NO_SINGLE_FACTOR = "no single factor"  # measured points contradict every factor in the interval: see the trend
    NO_ADVANTAGE = "no advantage"  # hybrids never led: there is none to shrink
    FIT_FAILED = "fit failed"  # no law could be fitted to these points
    BENDS_AGAINST_TREND = "points bend against the trend"
    """No run above `TopOfRange.best` did better, up to `TopOfRange.most`. A remark if it is not the first reason."""
    NO_RECORD = "no record"  # the target lies beyond the data, and too few earlier origins tell how far off a law is
    EXTRAPOLATION_REFUSED = "extrapolation refused"
    """Only the share `agreement` of refits reach the target within ten times the data; 0.9 would be enough."""
    BELOW_RANGE = "below range"  # the target is reached below the smallest run, where no law has a record
    TOO_FEW_RATES = "too few rates"  # fewer than two learning rates trained to the end
    # Why it is undecided, or what qualifies the verdict.
    LACK_OF_FIT = "lack of fit"  # a law misses group means: evidence has `LawDeviation` per law
    UNEQUAL_COMPUTE = "unequal compute"  # compared at equal images: evidence has the `FamilyBudget` of each family
    CHANGES = "changes along the range"
    """Beyond its interval the difference, or the factor, depends on compute: one number for all is an average at most.
    Of laws: `SharedLaw.widens` has the direction. Of points: the trend."""
    SELECTION_BIAS = "selection bias"  # the best model of each family, uncorrected: no training was repeated
    PEAK_INSIDE = "peak inside"  # fewer images did better than most: evidence has `PeakInside` per model
    IDENTICAL = "identical"  # the same scores to the last digit
    UNPAIRED = "unpaired"
    """Only n.paired of n.models were compared image by image: elsewhere test images count as if each side had its own,
    which overstates their error."""
    EDGE_OF_SWEEP = "edge of sweep"  # the best rate is an end of the sweep: `lr_sweep.Sweep.further` goes on
    NO_LOWER_TRIED = "no lower tried"  # the rate chosen is the lowest of the sweep, though not the best
    NOT_WITHIN_MARGIN = "not within margin"  # a difference that may be 0 may also exceed `Finding.margin`
    DIVERGED = "diverged"  # some runs of the sweep did; such a rate is not chosen


class Quantity(StrEnum):
    """What the estimate is."""

    ACCURACY_DIFFERENCE = "accuracy difference"
    COMPUTE = "compute"
    IMAGES = "distinct images"
    COMPUTE_RATIO = "compute ratio"
    SPEED_RATIO = "speed ratio"
    EXPONENT = "exponent"
    LOSS_PER_TENFOLD = "accuracy lost per tenfold compute"
    LEARNING_RATE = "learning rate"
    GAIN_PER_TENFOLD = "accuracy gained per tenfold"


class Unit(StrEnum):
    """Of the estimate and its interval."""

    SHARE = "share"  # people read percent, or points for a difference
    TIMES = "times"
    FLOP = "FLOP"
    IMAGES = "images"
    NONE = ""


class Axis(StrEnum):
    """What x is, of a trend or of a law."""

    COMPUTE = "compute"  # FLOP
    IMAGES = "images"  # distinct pre-training images
    ACCURACY = "accuracy"


@dataclass(frozen=True, kw_only=True)
class Counts:
    """n behind a number, 0 for what does not apply. Of several models, the fewest seeds, draws and test images.

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
    the models that represent the families there."""

    x: float
    estimate: float
    low: float | None = None
    high: float | None = None
    verdict: Verdict = Verdict.CANNOT_TELL
    first: str = ""
    second: str = ""


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


class Contrast(StrEnum):
    """What a model is compared with, and what `Difference.from_x` and `to_x` are there."""

    UNTRAINED = "untrained"
    PIXELS = "raw pixels"
    LEAST_COMPUTE = "least compute"  # images seen
    PREVIOUS_BUDGET = "previous budget"  # images seen
    FEWEST_IMAGES = "fewest images"  # distinct images
    OWN_TRAINING = "own training"  # to_x: images seen
    OWN_RESOLUTION = "own resolution"  # to_x: pixels
    VARIANT = "another variant"


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
class PeakInside(Item, kind="Peak"):
    """Images and accuracy of a model's best size, and of its largest, which did worse. overlap: of their intervals."""

    model: str
    images: int
    accuracy: float
    most_images: int
    most_accuracy: float
    overlap: bool


@dataclass(frozen=True, kw_only=True)
class LawDeviation(Item):
    """Where a law (of two families: one for both) misses a group mean most: the error that it predicts and the one that
    was observed. p: how often noise between seeds alone would miss like this; None: only this point, beside the answer,
    is missed."""

    families: tuple[str, ...]
    predicted: float
    observed: float
    p: float | None


@dataclass(frozen=True, kw_only=True)
class SharedLaw(Item):
    """One law for two families, shifted by a factor of compute. within: the factor's interval without other forms and
    losses. reached: least and most accuracy that both reached. widens: the gap does (False: it narrows) with compute,
    beyond noise; None: neither."""

    factor: float
    low: float
    high: float
    within: tuple[float, float]
    reached: tuple[float, float]
    widens: bool | None
    forms: tuple[str, ...]
    losses: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FamilyBudget(Item, kind="Budget"):
    """FLOP and images seen of the least and the most expensive run behind a family's curve over images."""

    family: str
    flops: tuple[float, float]
    images_seen: tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Closing(Item):
    """Where the laws of two families meet, in the common range or beyond the data; `leader` is ahead before.

    Attributes:
        x: None where they do not meet within `catch_up.CROSSING_REACH` times the data.
        low: the first x at which the intervals of the laws allow it; None where it is not known.
        high: the last such x; None where it lies beyond `catch_up.RECORD_REACH` times the data, or is not known.
        reach: times beyond the data, 1 inside.
        has_record: whether both laws have a record there.
    """

    x: float | None
    low: float | None
    high: float | None
    reach: float
    leader: str
    has_record: bool
    form: str


@dataclass(frozen=True, kw_only=True)
class HeldOut(Item):
    """A test of such laws: refitted without each family's largest x, what they said of first - second at the largest
    (low, high: with the record of the laws, or, `has_record` False, with sampling noise alone) and what was observed
    (an interval of training noise)."""

    x: float
    predicted: float
    low: float
    high: float
    observed: float
    observed_low: float
    observed_high: float
    has_record: bool


@dataclass(frozen=True, kw_only=True)
class TopOfRange(Item):
    """The largest budgets of a family, low to high; `best` has its best run, `most` is the largest that was tried."""

    budgets: int
    low: float
    high: float
    best: float
    most: float


@dataclass(frozen=True, kw_only=True)
class AccuracyTarget(Item, kind="Target"):
    """A target accuracy: the least of the families' best, or the best of the only family, unless given.

    asked: range in which the law has points or a record. between: the measured points between which it is reached (the
    first None: by the smallest; both: by none). lost: the largest point that does not reach it although a smaller one
    does. record: how far off the law was at about the distance of the upper end; None inside the data."""

    accuracy: float
    asked: tuple[float, float]
    between: tuple[float | None, float | None] = (None, None)
    lost: float | None = None
    record: PastError | None = None


@dataclass(frozen=True, kw_only=True)
class Candidate(Item):
    """A run that could be done. shrinks: share of the interval's width that it would take away. reach: times the
    family's largest budget; 1 within it."""

    family: str
    train_flops: float
    shrinks: float
    reach: float


# -- a finding ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One answer; None or () where there is no such thing.

    Attributes:
        question: the name of the question that it answers (`bench/questions/`).
        subject: names of families, models or tasks that it is about, in the question's order.
        measure: "headline" or "far" (means over tasks), "upstream", or one task's name.
        level: of the interval.
        reach, high_reach: how many times beyond the data the estimate, or the upper end, lies; 1 inside.
        leader: the member of `subject` that the answer favours.
        agreement: share of resampled laws that agree; see `Reason`.
        margin: difference that chance alone may cause between single runs, where `Reason.UNREPLICATED` decides.
        excluded: sources of chance that exist and are not in the interval, as `bench.stats.intervals` names them.
        main: on the headline tasks, and not what a law answers better; others are shown below.
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
    main: bool = True
    axis: Axis | None = None
    trend: tuple[TrendPoint, ...] = ()
    evidence: tuple[Item, ...] = ()


class ClaimKind(StrEnum):
    """What the ViT paper (arXiv 2010.11929) claims: sections 4.3 (Figure 4, which has no table) and 4.4 (Figure 5)."""

    CHEAPER = "cheaper"  # 4.4: ViT uses about 2 to 4 times less compute than ResNet for the same performance
    SHRINKING = "shrinking"  # 4.4: hybrids outperform ViT at small compute; their advantage shrinks for larger models
    UNSATURATED = "unsaturated"  # 4.4: ViT does not saturate within the range tried
    DATA = "data"  # 4.3: ResNets do better with fewer pre-training images; ViT overtakes them with more


class Stated(StrEnum):
    """How the stated factor of `ClaimKind.CHEAPER`, 2 to 4, lies to a measured one."""

    CONTAINS = "contains the estimate"
    OVERLAPS = "overlaps the interval"
    OUTSIDE = "outside the interval"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A claim is confirmed, contradicted, or left undecided by a finding: its place in `Findings.findings`, or in
    `Findings.paper` (None: no points for the question)."""

    verdict: Verdict
    finding: int | None = None
    stated: Stated | None = None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of the paper. own: judged by these records. paper: by the paper's Table 6 (None for DATA, and where these
    records are that table)."""

    claim: ClaimKind
    own: Judgement
    paper: Judgement | None


# -- validity checks ---------------------------------------------------------------------------------------------------


class Level(StrEnum):
    """A warning weakens a conclusion; a note does not."""

    WARNING = "warning"
    NOTE = "note"


class CheckKind(StrEnum):
    """What a check found, and what the fields of `ValidityCheck` are there."""

    DAMAGED_RECORD = "damaged record"  # left out: names (cell,); message
    UNSUCCESSFUL = "unsuccessful"  # names (cell, its status); message. Means are over the seeds that finished
    UNFINISHED = "unfinished"  # count: cells begun and not finished
    ONE_SEED = "one seed"
    """names: models trained once, whose intervals borrow the variance of repeated ones or leave training noise out. ():
    all were, no interval holds training noise, and differences under low (at 95 % accuracy) to high (at 50 %) are read
    as nothing. (Printed numbers: their own +- repeats fine-tuning, not pre-training.)"""
    SEEDS_DISAGREE = "seeds disagree"
    """names: models whose seeds differ at some points more than `limit` times as much as at the median point; count:
    seeds at the widest interval; high: its half-width due to them, in accuracy; low: what one seed more would leave of
    it; groups: cells of these points by model."""
    NARROW_COMPUTE = "narrow compute"  # names (family,); low, high: FLOP; limit: decades that a trend takes
    NARROW_IMAGES = "narrow images"  # names (model,); low, high: distinct images; limit as above
    REPEATED_DATA = "repeated data"
    """names (axis,); count: points on it that saw each image more than `limit` times, at most `high`. More compute and
    more data are not the same there. A note on the axis of images, which is made so."""
    FEW_IMAGES = "few images"
    """names (data set,); high: shots; count: labelled images that these scores used; limit: that many shots of every
    class. A class that has fewer gives all it has to every draw: the spread of draws is too small."""
    SAME_DRAWS = "same draws"
    """names (data set,); groups: numbers of shots at which no class has more images than that, so that every draw has
    all of them: no interval contains few-shot draws there."""
    MIXED = "mixed"
    """names (what differs: "commit", "cpu", "accelerator", "device", "threads", "dtype" or "evaluation dtype"); groups:
    the values. Times are not comparable, scores may differ slightly."""
    DIRTY_TREE = "dirty tree"  # some records were made with uncommitted changes: the commit does not reproduce them
    MISSING_BASELINE = "missing baseline"
    """names: "raw pixels" and models whose untrained network was not measured: training and probe are not separated."""
    RECIPES_BETWEEN = "recipes between families"
    """names (field,); groups: values by family. Part of a difference between families may be the recipe's."""
    RECIPES_WITHIN = "recipes within families"  # names (field,); groups: the values, alike in every family
    UNEQUAL_RECIPES = "unequal recipes"
    """names (axis,); groups: values by field in which trainings along it differ, as they were done, beside the axis."""
    SUPERSEDED = "superseded"
    """names (cell,); groups: data sets by task whose scores are set aside, since the current grid, a newer
    revision or a later run has them."""
    REJECTED_RATES = "rejected rates"  # count: runs at rates that a sweep did not choose, left out but for the sweep
    CHOSEN_ON_TEST = "chosen on test images"  # names: sets on which rates were chosen and scores are reported
    RATE_AT_EDGE = "rate at edge"  # names: models whose best learning rate is the edge of the sweep: they look worse
    LONG_WARMUP = "long warm-up"  # names (model,); high: share of its shortest run, which looks worse: bends exponents
    STILL_FALLING = "still falling"
    """At the budget low (FLOP) of models compared at equal compute over images, names: of them (of all, in a note) the
    training loss still fell in the last doubling by up to high, as a share of the loss of guessing; limit: above which
    training has only begun, a warning."""
    OTHER_TRAINING_IMAGES = "other training images"
    """names (data set,); count: images; groups: content hashes under one name. No repeats of each other, not pooled."""
    OTHER_TEST_IMAGES = "other test images"  # names (task, data set); groups: content hashes. Scores do not compare
    MIXED_REVISIONS = "mixed revisions"  # groups: revisions by what ("task fewshot", "data mnist", "model ViT-S/16")
    DUPLICATES = "duplicates"
    """names (test set,); count: images of which upstream holds a copy; limit: of how many; high: largest change of
    accuracy without them. One check per set that was looked at; count 0: none."""
    # Why there is no law for a family (names). Too few points and a failed fit are no warnings.
    LAW_TOO_FEW_POINTS = "no law: too few points"  # count: on or near the frontier; limit: needed
    LAW_FIT_FAILED = "no law: fit failed"
    LAW_NOT_COOLED_DOWN = "no law: points not cooled down"  # count: those, beside others that were; they look worse
    LAW_SEVERAL_DATA_SETS = "no law: several data sets"  # groups: what the points were pre-trained on
    LAW_UNITS = "no law: units of compute"  # groups: models; high: their compute over 6 FLOPs per multiply-add


@dataclass(frozen=True, kw_only=True)
class ValidityCheck:
    """One threat to validity. `CheckKind` lists which fields are used, and what they hold."""

    kind: CheckKind
    level: Level = Level.WARNING
    names: tuple[str, ...] = ()
    count: int | None = None
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (name, values); name "" for values of everything
    message: str = ""  # of whoever read or ran the cell


# -- everything --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CostSummary:
    """Sums over cells, whether or not they ran at once. spent_images: every image that a training step was taken on.
    image_wait_seconds: of training, in which images were waited for.
    joules, co2_grams: of the `measured` cells whose energy is known; None where it is of none, or no grams of one."""

    cells: int
    seconds: tuple[tuple[str, float], ...]  # (purpose, seconds): train, evaluate, save, wait
    total_seconds: float
    spent_flops: float
    spent_images: int
    core_days: float
    image_wait_seconds: float = 0.0
    joules: float | None = None
    measured: int = 0
    co2_grams: float | None = None


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What was measured, and what every answer is therefore limited to.

    Attributes:
        flops: least and most of the compute axis. params: of the largest model.
        paper_begins: FLOP at which the paper's Figure 5 begins, where this study ends below it.
        upstream: (data set, kind of its images). images: most that were used. image_size: the largest, pixels.
        once: every model was trained with one seed. few_seeds: models with fewer than three.
        points: trained points to compare. families: how many. frozen: headline tasks read frozen features.
    """

    flops: tuple[float, float] | None
    params: float
    paper_begins: float | None
    upstream: tuple[tuple[str, str], ...]
    images: int
    image_size: int | None
    once: bool
    few_seeds: tuple[str, ...]
    points: int
    families: int
    frozen: bool


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Everything that a report states.

    Attributes:
        findings: the suite's own question first, then families at equal compute, laws, and the effects of compute,
            images and training.
        checks: what weakens them.
        claims: () where no law could be fitted. paper: what the paper's own Table 6 answers, where claims refer to it.
        scope: None where no model was trained to the end.
        headline, far: tasks behind these measures. shots: labelled images per class of the probe, None without one.
        replicated: some training was repeated; otherwise no interval holds training noise.
        judged: some model was judged downstream, raced or swept; if not, the answer of the suite is in its figures and
            tables. completed: a cell was.
        published: the numbers are quoted from the paper: nothing was run, nothing was spent.
    """

    findings: tuple[Finding, ...]
    checks: tuple[ValidityCheck, ...]
    cost: CostSummary
    scope: Scope | None
    claims: tuple[Claim, ...] = ()
    paper: tuple[Finding, ...] = ()
    headline: tuple[str, ...] = ()
    far: tuple[str, ...] = ()
    shots: int | None = None
    level: float = POINT_LEVEL
    replicated: bool = True
    judged: bool = True
    completed: bool = True
    published: bool = False
