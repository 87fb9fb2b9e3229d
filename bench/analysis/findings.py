"""Everything that a report states, as data: findings, the paper's claims, threats to validity, cost and scope."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bench.analysis.finding import Finding, Verdict
from bench.stats.intervals import POINT_LEVEL


class ClaimKind(StrEnum):
    """Claims of the ViT paper (arXiv 2010.11929): sections 4.3 (Figure 4, which has no table) and 4.4 (Figure 5)."""

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
    """The result of a check, and the meaning of the fields of `ValidityCheck` there."""

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
    TUNED_AT_EDGE = "tuned at edge"
    """count: fine-tunings of limit whose rate, chosen on held-out images, is an end of their sweep; groups: how many by
    model, untrained ones apart. These look worse: a warning where they are most of a model's."""
    RATE_NOT_IN_INTERVAL = "rate not in interval"
    """Families are compared, and every model was trained at one learning rate: no interval holds its choice."""
    LONG_WARMUP = "long warm-up"  # names (model,); high: share of its shortest run, which looks worse: bends exponents
    NOT_BEGUN = "not begun"
    """names (model,); count: its points whose network has not begun to learn (`bench.analysis.begun`), of limit; low,
    high: their FLOP; groups: the reasons. In no comparison, law or sentence, and hollow in figures."""
    BELOW_PIXELS = "below raw pixels"
    """names: two families that are compared; groups: models by family that are below raw pixels there; count: places
    with such a model, of limit; low, high: of the axis, FLOP ("compute" the last name) or images ("images")."""
    STILL_FALLING = "still falling"
    """At the budget low (FLOP) of models compared at equal compute over images, names: of them (of all, in a note) the
    training loss still fell in the last doubling by up to high, as a share of the loss of guessing; limit: above which
    training has only begun, a warning."""
    OTHER_TRAINING_IMAGES = "other training images"
    """names (data set,); count: images; groups: content hashes under one name. No repeats of each other, not pooled."""
    OTHER_TEST_IMAGES = "other test images"  # names (task, data set); groups: content hashes. Scores do not compare
    MIXED_REVISIONS = "mixed revisions"  # groups: revisions by what ("task fewshot", "data mnist", "model ViT-S/16")
    UNCONTROLLED = "uncontrolled"  # families are of many authors: no law, and no main answer, but of controlled pairs
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
    """The range that was measured, to which every answer is limited.

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
