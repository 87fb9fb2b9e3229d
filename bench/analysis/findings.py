"""Everything that a report states, as data: findings, the paper's claims, threats to validity, cost and scope."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bench.analysis.finding import Finding, Verdict
from bench.stats.intervals import POINT_LEVEL


class Stated(StrEnum):
    """How a factor that the paper states lies to a measured one."""

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
    """A claim of the paper, by the name of its file in `bench/claims/`. own: judged by these records. paper: by the
    paper's Table 6 (None where that says nothing of it, and where these records are that table)."""

    claim: str
    own: Judgement
    paper: Judgement | None


# -- validity checks ---------------------------------------------------------------------------------------------------


class Level(StrEnum):
    """A warning weakens a conclusion; a note does not."""

    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class ValidityCheck:
    """One threat to validity. The file of its kind in `bench/validity/` says which fields are used, and what they
    hold."""

    kind: str
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
