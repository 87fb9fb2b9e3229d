"""Defines the data classes of everything that a report states: findings, the ViT paper's claims, validity checks, cost
and scope."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bench.analysis.finding import Finding, Verdict
from bench.stats.intervals import POINT_LEVEL


class Stated(StrEnum):
    """How a measured factor relates to the range that the ViT paper states for it: that range contains the estimate,
    overlaps its interval, or is outside the interval."""

    CONTAINS = "contains the estimate"
    OVERLAPS = "overlaps the interval"
    OUTSIDE = "outside the interval"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Whether a claim of the ViT paper is confirmed (YES), contradicted (NO) or undecided (CANNOT_TELL).

    Attributes:
        finding: index of the deciding finding in `Findings.findings` or, for a judgement by Table 6, in
            `Findings.paper`; None if no finding is about the claim.
        stated: how the number that the paper states compares with the measured one; None if the paper states none.
    """

    verdict: Verdict
    finding: int | None = None
    stated: Stated | None = None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of the ViT paper, judged.

    Attributes:
        claim: name of its file in `bench/claims/`.
        own: judgement by the study's records.
        paper: judgement by the paper's Table 6; None if that table has no numbers about the claim, or if the study's
            records are that table.
    """

    claim: str
    own: Judgement
    paper: Judgement | None


# -- validity checks ---------------------------------------------------------------------------------------------------


class Level(StrEnum):
    """The severity of a validity check's result: WARNING if it weakens a conclusion, NOTE if it does not."""

    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class ValidityCheck:
    """One result of a validity check, such as a model that was trained with one seed only.

    The file of its `kind` in `bench/validity/` says which of the fields `names`, `count`, `low`, `high`, `limit` and
    `groups` are used, and what they hold.
    """

    kind: str
    level: Level = Level.WARNING
    names: tuple[str, ...] = ()
    count: int | None = None
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    groups: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (name, values); the name is "" if there is only one group
    message: str = ""  # reason that was given when the record was loaded or the cell was run


# -- everything --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class CostSummary:
    """The cost of a study: sums over cells, whether or not they ran at the same time.

    Attributes:
        cells: number of cells.
        seconds: (purpose, seconds), for the purposes "train", "evaluate", "save" and "wait".
        total_seconds: seconds of all purposes together.
        spent_flops: training compute, in FLOP.
        spent_images: images that training steps were taken on, repeats included.
        core_days: devices × days.
        image_wait_seconds: training time that was spent waiting for images.
        joules: energy of the cells whose energy is known; None if none is.
        measured: number of cells whose energy is known.
        co2_grams: emissions of the cells whose energy is known; None if those of any of them are unknown.
    """

    cells: int
    seconds: tuple[tuple[str, float], ...]
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
    """The range that was measured, to which every answer of a report is limited.

    Attributes:
        flops: least and most training compute on the compute axis, in FLOP; None without compute.
        params: number of parameters of the largest model.
        paper_begins: FLOP at which Figure 5 of the ViT paper begins; None if this study reaches that compute.
        upstream: (data set, kind of its images) of each pre-training set.
        images: largest number of pre-training images used.
        image_size: largest size of the images, in pixels per side; None if unknown.
        once: whether every model was trained with one seed only.
        few_seeds: models with fewer than three seeds.
        points: number of trained points (a model at a budget) on the compute axis.
        families: number of families.
        frozen: whether some main task is a few-shot probe, which uses frozen features.
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
        findings: answers, in this order: to the suite's own question, on families at equal compute, on laws, and on the
            effects of compute, images and training.
        checks: results of validity checks.
        cost: what the study has cost.
        scope: the range that was measured; None if no model was trained to the end.
        claims: the ViT paper's claims, judged; () if no law could be fitted.
        paper: findings from the ViT paper's Table 6 by which `claims` are judged.
        headline, far: names of the scores that are averaged under these names.
        shots: labelled images per class of the few-shot probe; None without one.
        level: confidence level of the intervals.
        replicated: whether some training was repeated; otherwise no interval includes training noise.
        judged: whether some model was evaluated on a target set, or some question has a finding. If not, the suite's
            answer is in its figures and tables.
        completed: whether some cell was completed.
        published: whether the numbers are quoted from a publication, so that nothing was run or spent.
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
