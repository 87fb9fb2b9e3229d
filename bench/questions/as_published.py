"""Do these records confirm what the ViT paper says about single design choices, and about masked pre-training?

Variants are identified by the options in their models' names (`bench.study.names.ModelName`), and by the axes
(comparisons of a study) that their cells belong to, which are those of the suites `ablation` and `masked`.

A statement is contradicted only if each side was trained at several learning rates, because a network that looks worse
at another network's rate may be as good at its own.

Findings:
    subject: the `Statement`.
    estimate: the difference in accuracy that the statement is about, averaged over pairs of variants.
    margin: for a statement that two things are equal, the difference up to which they count as equal.
    evidence: the difference of each pair (contrast "another variant").
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bench.analysis import lr_sweep, wording
from bench.analysis.comparisons import Pair, compare, mean_finding
from bench.analysis.evidence import CHOICES, HEADLINE, UPSTREAM, Evidence, Point, Series
from bench.analysis.finding import Difference, Finding, Verdict
from bench.analysis.question import Question
from bench.core.by_key import by_key
from bench.core.formatting import points
from bench.core.measure import FINETUNE, Measure, measure_text
from bench.core.phrase import phrase
from bench.study.cell import Recipe
from bench.study.names import ModelName

if TYPE_CHECKING:
    from vit.config import ViTConfig

NAME = "as published"
# Reasons of a finding (`Finding.reasons`).
NOT_WITHIN_MARGIN = "not within margin"  # the difference may be within `MARGIN`, but may also exceed it
ONE_RATE = "one rate"  # a side was trained at a single learning rate, which may suit it less than the other side
POSITION, POOLING, SHAPE, STEM, OPTIMIZER, MASKED = CHOICES
ENCODINGS = ("learned-1d", "learned-2d", "relative")  # the position encodings that the paper compares
MARGIN = 0.03  # two choices whose accuracies differ by less count as equal: the paper calls such a gap (Table 8) large


class Statement(StrEnum):
    """A statement of the ViT paper about a design choice or about masked pre-training. The comment beside each says
    where in the paper it is made."""

    POSITION_HELPS = "position embedding > none"  # Table 8
    ENCODINGS_ALIKE = "2-D, relative = 1-D positions"  # Table 8
    PLACES_ALIKE = "positions at every layer, shared = stem"  # Table 8
    POOLING_ALIKE = "mean pooling = class token, own rates"  # Figure 9
    POOLING_RATE = "class token > mean pooling at a high rate"  # Figure 9
    DEPTH_HELPS = "deeper > base"  # Figure 8
    PATCHES_HELP = "smaller patches > base"  # Figure 8
    DEPTH_OVER_WIDTH = "deeper > wider"  # Figure 8
    ADAM_HELPS = "Adam > SGD for ResNets"  # Table 7
    AXIAL_HELPS = "axial ViT > ViT, at more compute"  # Figure 13
    MASKED_OVER_SCRATCH = "masked > from scratch"  # section 4.6
    LABELS_OVER_MASKED = "labels > masked"  # section 4.6


EQUAL = (Statement.ENCODINGS_ALIKE, Statement.PLACES_ALIKE, Statement.POOLING_ALIKE)
Asked = tuple[Statement, list[tuple[Point | None, Point | None]]]  # a statement, and the pairs of variants it compares
HEAD = "masked"  # name of the head with which a model predicts masked patches
SCRATCH = "scratch"  # training from scratch: a key of `ways`, and the axis of cells that train so


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One variant on one axis (comparison) of a study.

    Attributes:
        series: the variant's points.
        base: name of its model without options.
        options: options of its model, such as {"depth": 6}.
    """

    series: Series
    base: str
    options: Mapping[str, Any]

    @property
    def point(self) -> Point:
        return self.series.last

    @property
    def config(self) -> ViTConfig:
        """The full configuration of the ViT. The model's name gives only the options that differ from the row of its
        size in the table of sizes."""
        from vit.config import config_for, parse

        row = parse(self.base)
        assert row is not None, self.base
        return config_for(self.base, image_size=row["patch_size"], channels=1, num_classes=0, **self.options)


@dataclass(frozen=True, eq=False)
class Ablations:
    """The variants in a study's records that the ViT paper's statements are about, at all learning rates that were
    tried."""

    evidence: Evidence

    @cached_property
    def whole(self) -> Evidence:
        return self.evidence.swept or self.evidence

    def on(self, axis: str) -> list[Setting]:
        """Return the variants whose cells belong to the comparison `axis`, such as "position"."""
        named = (s for s in self.whole.series if any(axis in p.axes for p in s.points))
        return [
            Setting(series=s, base=name.base, options=dict(name.options))
            for s in named
            for name in [ModelName.parse(s.last.model)]
        ]

    @cached_property
    def base(self) -> str:
        """Name of the model whose design choices are changed, taken from the axis "position"; "" if there is none."""
        return next((s.base for s in self.on(POSITION)), "")

    @cached_property
    def shaped(self) -> str:
        """Name of the model whose shape (depth, width, …) is changed: the one that most variants on the axis "shape"
        are derived from."""
        named = Counter(s.base for s in self.on(SHAPE))
        return named.most_common(1)[0][0] if named else self.base

    def at(self, axis: str, *, base: str | None = None, **options: Any) -> Point | None:
        """Return the point of the variant on an axis that has exactly these options; None if it was not trained.

        Args:
            base: name of its model without options; None: `self.base`.
        """
        wanted = base or self.base
        return next((s.point for s in self.on(axis) if s.base == wanted and s.options == options), None)

    def dimension(self, setting: Setting) -> str:
        """Return which part of the shape of a variant differs from that of `shaped`: a field of the configuration, or
        "patch_size"; "all" for several parts, "" for none."""
        changed = [*setting.options, *(["patch_size"] if setting.base != self.shaped else [])]
        return "all" if len(changed) > 1 else "".join(changed)

    def positions(self) -> dict[tuple[str, str], Point]:
        """Return (encoding of positions, where it is added) -> point of the variant with that position embedding."""
        return {(s.config.position, s.config.position_at): s.point for s in self.on(POSITION)}

    def sweeps(self, axis: str) -> list[tuple[Setting, lr_sweep.Sweep]]:
        """Return the learning-rate sweeps on an axis, each with the variant that was trained at the chosen rate."""
        settings = self.on(axis)
        cells = self.whole.cells
        return [
            (setting, sweep)
            for sweep in lr_sweep.sweeps(self.evidence)
            for setting in settings
            if set(cells.get(setting.series.variant, ())) & set(sweep.chosen.cells)
        ]

    @cached_property
    def swept(self) -> frozenset[str]:
        """Directories of the runs that are part of a learning-rate sweep."""
        return frozenset(name for s in lr_sweep.sweeps(self.evidence) for tried in s.tried for name in tried.cells)

    def has_sweep(self, point: Point) -> bool:
        """Return whether a point's learning rate is one of several that were tried. An untrained network has no
        learning rate, and counts as True."""
        return not point.trained or not self.swept.isdisjoint(self.whole.cells.get(point.variant, ()))

    def recipe(self, point: Point) -> Recipe:
        """Return the recipe that a point was trained with."""
        table = self.whole.horizons
        recipe: Recipe = table.loc[table["variant"] == point.variant, "recipe"].iloc[0]
        return recipe

    def at_rate(self, sweep: lr_sweep.Sweep, rate: float) -> Point | None:
        """Return the point of a sweep's model at the learning rate `rate`; None if the sweep did not try it."""
        names = {name for tried in sweep.tried if tried.rate == rate for name in tried.cells}
        return next((s.last for s in self.whole.series if names & set(self.whole.cells[s.variant])), None)


def statements(evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for every statement of the ViT paper that the records can judge."""
    ablations = Ablations(evidence)
    asked: tuple[Asked, ...] = (*_positions(ablations), *_pooling(ablations), *_shapes(ablations), *_others(ablations))
    for measure in (HEADLINE, UPSTREAM):
        yield from _judged(ablations, ablations.whole, asked, measure)
    by = ways(evidence)
    for measure in (HEADLINE, *(m for m in evidence.measures if Measure.parse(m).task == FINETUNE)) if by else ():
        masked = by.get("masked")
        asked = (
            (Statement.MASKED_OVER_SCRATCH, [(masked, by.get("scratch"))]),
            (Statement.LABELS_OVER_MASKED, [(by.get("labels"), masked)]),
        )
        yield from _judged(ablations, evidence, asked, measure)


def _judged(ablations: Ablations, evidence: Evidence, asked: Sequence[Asked], measure: str) -> Iterator[Finding]:
    """Yield a finding for each statement with a measured pair of variants: the mean difference of its pairs, and
    whether it confirms the statement. The variances between seeds of all pairs are shrunk towards each other
    (`bench.stats.moderated`).

    Args:
        asked: statements, each with the pairs of points that it compares.
        measure: name of the score.
    """
    pairs = [
        (statement, Pair(contrast="another variant", model=a.series, point=a, base=b))
        for statement, both in asked
        for a, b in both
        if a and b
    ]
    compared = compare(evidence, [pair for _, pair in pairs], measure)
    for statement, _ in asked:
        mine = [id(pair) for of, pair in pairs if of is statement]
        of_statement = [c for c in compared if id(c.pair) in mine]
        if of_statement:
            finding = replace(mean_finding(NAME, [statement], of_statement), main=True)
            sides = [point for c in of_statement for point in (c.pair.point, c.pair.base)]
            finding = _equal(finding) if statement in EQUAL else finding
            yield finding if all(map(ablations.has_sweep, sides)) else _at_one_rate(finding)


def _at_one_rate(finding: Finding) -> Finding:
    """Return a finding whose sides were not both trained at several learning rates, with NO replaced by CANNOT_TELL:
    one rate is not enough to contradict the ViT paper."""
    verdict = Verdict.CANNOT_TELL if finding.verdict == Verdict.NO else finding.verdict
    return replace(finding, verdict=verdict, reasons=(*finding.reasons, ONE_RATE))


def _equal(finding: Finding) -> Finding:
    """Return a finding with its verdict replaced by one on whether two things are equal: YES if the interval is within
    ±`MARGIN`, NO if it is wholly outside, else CANNOT_TELL."""
    low, high = finding.low, finding.high
    if low is None or high is None:
        return finding
    within, beyond = low >= -MARGIN and high <= MARGIN, low > MARGIN or high < -MARGIN
    verdict = Verdict.YES if within else Verdict.NO if beyond else Verdict.CANNOT_TELL
    return replace(finding, verdict=verdict, reasons=() if within or beyond else (NOT_WITHIN_MARGIN,), margin=MARGIN)


def _positions(a: Ablations) -> Iterator[Asked]:
    at = a.positions()
    usual = {name: at.get((name, "stem")) or at.get((name, "every-layer")) for name in ENCODINGS}
    yield Statement.POSITION_HELPS, [(usual[name], at.get(("none", "stem"))) for name in ENCODINGS]
    yield Statement.ENCODINGS_ALIKE, [(usual[name], usual["learned-1d"]) for name in ENCODINGS[1:]]
    places = ("every-layer", "shared")
    yield Statement.PLACES_ALIKE, [(at.get((name, place)), usual[name]) for name in ENCODINGS[:2] for place in places]


def _pooling(a: Ablations) -> Iterator[Asked]:
    poolings = {s.config.pooling: (s, sweep) for s, sweep in a.sweeps(POOLING)}
    if {"cls", "mean"} <= poolings.keys():
        (cls, cls_sweep), (mean, mean_sweep) = poolings["cls"], poolings["mean"]
        yield Statement.POOLING_ALIKE, [(mean.point, cls.point)]
        highest = max(t.rate for t in cls_sweep.tried)
        yield Statement.POOLING_RATE, [(a.at_rate(cls_sweep, highest), a.at_rate(mean_sweep, highest))]


def _shapes(a: Ablations) -> Iterator[Asked]:
    by = by_key((a.dimension(s), s.point) for s in a.on(SHAPE))
    most = {name: max(points, key=lambda p: p.forward_macs) for name, points in by.items()}
    base = most.get("")
    yield Statement.DEPTH_HELPS, [(most.get("depth"), base)]
    yield Statement.PATCHES_HELP, [(most.get("patch_size"), base)]
    yield Statement.DEPTH_OVER_WIDTH, [(most.get("depth"), most.get("width"))]


def _others(a: Ablations) -> Iterator[Asked]:
    settings = [s for s, _ in a.sweeps(OPTIMIZER)] or a.on(OPTIMIZER)  # Table 7 has one learning rate per optimizer
    by = {(s.base, a.recipe(s.point).optimizer): s.point for s in settings}
    yield Statement.ADAM_HELPS, [(point, by.get((base, "sgd"))) for (base, how), point in by.items() if how == "adamw"]
    yield Statement.AXIAL_HELPS, [(a.at(STEM, base=f"Axial{a.base}"), a.at(STEM))]


def ways(evidence: Evidence) -> dict[str, Point]:
    """Return the points of the suite `masked` by how their network was pre-trained: "scratch", "masked" or "labels". If
    there are several models, the first is used. The point "scratch" is the untrained network or, at scale `paper`, a
    network that was trained on the labels of the target set."""
    of_way: dict[str, Point] = {}
    for setting in sorted(Ablations(evidence).on(MASKED), key=lambda s: "masked_target" in s.options):
        masked, alone = setting.options.get("head") == HEAD, SCRATCH in setting.point.axes
        of_way.setdefault("masked" if masked else SCRATCH if alone else "labels", setting.point)
        if setting.series.untrained and not masked:
            of_way.setdefault(SCRATCH, setting.series.untrained)
    return of_way


# -- words -------------------------------------------------------------------------------------------------------------

SAYS = {  # the paper's statements in words, and where the paper makes them
    Statement.POSITION_HELPS: "Position embeddings of any kind matter (Table 8)",
    Statement.ENCODINGS_ALIKE: "How positions are encoded makes little difference (Table 8)",
    Statement.PLACES_ALIKE: "Where positions are added makes little difference (Table 8)",
    Statement.POOLING_ALIKE: "With a learning rate of its own, mean pooling does as well as a class token (Figure 9)",
    Statement.POOLING_RATE: "At a high learning rate mean pooling does worse than a class token (Figure 9)",
    Statement.DEPTH_HELPS: "More layers help (Figure 8)",
    Statement.PATCHES_HELP: "Smaller patches, that is more tokens, help (Figure 8)",
    Statement.DEPTH_OVER_WIDTH: "Depth helps more than width (Figure 8)",
    Statement.ADAM_HELPS: "ResNets pre-trained with Adam transfer better than with SGD (Table 7)",
    Statement.AXIAL_HELPS: "Axial attention does better than the ViT of its size, at more compute (Figure 13)",
    Statement.MASKED_OVER_SCRATCH: "Masked patch prediction does better than training from scratch (section 4.6)",
    Statement.LABELS_OVER_MASKED: "Pre-training with labels does better than without (section 4.6)",
}


def say(f: Finding) -> list[str]:
    """Return the statement that a finding judges, and a sentence with the difference of each pair of variants ("" for a
    single pair)."""
    pairs = [f"{d.model} {points(d.estimate, d.low, d.high)}" for d in wording.every(f, Difference)]
    return [f"{SAYS[Statement(f.subject[0])]}.", f"Pairs: {'; '.join(pairs)}." if len(pairs) > 1 else ""]


def sentence(f: Finding) -> str:
    said = SAYS[Statement(f.subject[0])]
    statement = said if said.startswith("ResNets") else f"{said[0].lower()}{said[1:]}"
    holds = "holds" if f.verdict == Verdict.YES else "does not hold"
    return phrase(f"The paper's claim that {statement} {holds} here: ", wording.number(f).text)


def measure(f: Finding) -> str:
    return wording.MEASURES.get(f.measure, f", {measure_text(f.measure)}")


QUESTION = Question(
    name=NAME,
    label="As the paper says?",
    text="Do these runs bear out what the paper says?",
    yes="borne out",
    no="not borne out here",
    ask=statements,
    say=say,
    reasons={
        NOT_WITHIN_MARGIN: lambda f: f"The interval is not within {100 * (f.margin or 0):g} points of equality.",
        ONE_RATE: lambda f: (
            "Inconclusive at one rate: each side may do better at a learning rate of its own."
            if f.verdict == Verdict.CANNOT_TELL
            else "Both sides were trained at one learning rate: at rates of their own the difference may be another."
        ),
    },
    order=20,
    measure=measure,
    sentence=sentence,
    shown_in=("ablation-position", "ablation-pooling", "ablation-shape", "ablation-variants", "masked"),
)
