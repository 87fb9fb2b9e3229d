"""Do these records bear out what the paper says of single design choices, and of masked pre-training?

Variants are told apart by the options in their models' names (`bench.study.names.ModelName`) and by the axes
that their cells name: those of the suites `ablation` and `masked`.

A statement is contradicted only where each side was trained at several learning rates: what looks worse at the rate of
another network may be as good at its own.

Findings:
    subject: the `Statement`.
    estimate: the difference that it is about, mean over pairs of variants.
    margin: of a statement that two things are alike, within which they count as that.
    evidence: each pair ("another variant").
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
NOT_WITHIN_MARGIN = "not within margin"  # a reason: the difference may be 0, and may exceed `MARGIN` too
ONE_RATE = "one rate"  # a reason: a side was trained at one learning rate, which may suit it less than the other
POSITION, POOLING, SHAPE, STEM, OPTIMIZER, MASKED = CHOICES
ENCODINGS = ("learned-1d", "learned-2d", "relative")  # the paper's
MARGIN = 0.03  # accuracy within which two choices count as equal: the gap in Table 8 that the paper calls large


class Statement(StrEnum):
    """A statement of the paper about a design choice, or about self-supervision."""

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
Asked = tuple[Statement, list[tuple[Point | None, Point | None]]]  # differences between pairs of variants
HEAD = "masked"  # the head of a model that predicts masked patches
SCRATCH = "scratch"  # a way, and the axis of a training that stands for it


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One variant on one axis: its series, its model's name without options, and these."""

    series: Series
    base: str
    options: Mapping[str, Any]

    @property
    def point(self) -> Point:
        return self.series.last

    @property
    def config(self) -> ViTConfig:
        """The ViT's own choices, which its name leaves out where they are its row's."""
        from vit.config import config_for, parse

        row = parse(self.base)
        assert row is not None, self.base
        return config_for(self.base, image_size=row["patch_size"], channels=1, num_classes=0, **self.options)


@dataclass(frozen=True, eq=False)
class Ablations:
    """The variants in a study's records, every learning rate that was tried included."""

    evidence: Evidence

    @cached_property
    def whole(self) -> Evidence:
        return self.evidence.swept or self.evidence

    def on(self, axis: str) -> list[Setting]:
        """The variants of an axis."""
        named = (s for s in self.whole.series if any(axis in p.axes for p in s.points))
        return [
            Setting(series=s, base=name.base, options=dict(name.options))
            for s in named
            for name in [ModelName.parse(s.last.model)]
        ]

    @cached_property
    def base(self) -> str:
        """The model that is changed, by name; "" without one."""
        return next((s.base for s in self.on(POSITION)), "")

    @cached_property
    def shaped(self) -> str:
        """The model whose shape is changed, by name: the one that most variants of that axis are of."""
        named = Counter(s.base for s in self.on(SHAPE))
        return named.most_common(1)[0][0] if named else self.base

    def at(self, axis: str, *, base: str | None = None, **options: Any) -> Point | None:
        """The point of a variant by its options; None where it was not trained."""
        wanted = base or self.base
        return next((s.point for s in self.on(axis) if s.base == wanted and s.options == options), None)

    def dimension(self, setting: Setting) -> str:
        """The part of the shape that differs from the base: a field of the configuration, "patch_size", "all"; "" for
        none."""
        changed = [*setting.options, *(["patch_size"] if setting.base != self.shaped else [])]
        return "all" if len(changed) > 1 else "".join(changed)

    def positions(self) -> dict[tuple[str, str], Point]:
        """(encoding, where it is added) -> point. Without either in its name a model has its row's own."""
        return {(s.config.position, s.config.position_at): s.point for s in self.on(POSITION)}

    def sweeps(self, axis: str) -> list[tuple[Setting, lr_sweep.Sweep]]:
        """The sweeps of an axis, with the variant at the rate that was chosen."""
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
        """Directories of the runs whose learning rate is one of several that were tried."""
        return frozenset(name for s in lr_sweep.sweeps(self.evidence) for tried in s.tried for name in tried.cells)

    def has_sweep(self, point: Point) -> bool:
        """Whether its learning rate was one of several; an untrained network has none to choose."""
        return not point.trained or not self.swept.isdisjoint(self.whole.cells.get(point.variant, ()))

    def recipe(self, point: Point) -> Recipe:
        """The recipe that a point was trained by."""
        table = self.whole.horizons
        recipe: Recipe = table.loc[table["variant"] == point.variant, "recipe"].iloc[0]
        return recipe

    def at_rate(self, sweep: lr_sweep.Sweep, rate: float) -> Point | None:
        """The point of a sweep at one of its rates."""
        names = {name for tried in sweep.tried if tried.rate == rate for name in tried.cells}
        return next((s.last for s in self.whole.series if names & set(self.whole.cells[s.variant])), None)


def statements(evidence: Evidence) -> Iterator[Finding]:
    """Every statement of the paper that these records can judge."""
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
    """The mean difference of each statement's pairs, and whether it bears the statement out; nothing where no pair was
    measured. The variances between seeds of all pairs of all statements moderate each other."""
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
    """A finding at one learning rate, which is not enough to contradict the paper."""
    verdict = Verdict.CANNOT_TELL if finding.verdict == Verdict.NO else finding.verdict
    return replace(finding, verdict=verdict, reasons=(*finding.reasons, ONE_RATE))


def _equal(finding: Finding) -> Finding:
    """A finding that says whether both sides are alike: YES with the interval within the margin, NO beyond it."""
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
    settings = [s for s, _ in a.sweeps(OPTIMIZER)] or a.on(OPTIMIZER)  # Table 7 has one rate of each
    by = {(s.base, a.recipe(s.point).optimizer): s.point for s in settings}
    yield Statement.ADAM_HELPS, [(point, by.get((base, "sgd"))) for (base, how), point in by.items() if how == "adamw"]
    yield Statement.AXIAL_HELPS, [(a.at(STEM, base=f"Axial{a.base}"), a.at(STEM))]


def ways(evidence: Evidence) -> dict[str, Point]:
    """How a network of the suite `masked` was pre-trained ("scratch", "masked", "labels") -> its point; of several
    models, the first's. At scale `paper` "scratch" is a training of its own, on the labels of the target set."""
    of_way: dict[str, Point] = {}
    for setting in sorted(Ablations(evidence).on(MASKED), key=lambda s: "masked_target" in s.options):
        masked, alone = setting.options.get("head") == HEAD, SCRATCH in setting.point.axes
        of_way.setdefault("masked" if masked else SCRATCH if alone else "labels", setting.point)
        if setting.series.untrained and not masked:
            of_way.setdefault(SCRATCH, setting.series.untrained)
    return of_way


# -- words -------------------------------------------------------------------------------------------------------------

SAYS = {  # the paper's statements, and where they stand
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
    """The statement, and each pair of variants behind the difference."""
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
