"""The records arranged for questions: points (model × data × horizon), series, samples, estimates."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import pandas as pd

from bench.analysis.begun import NotBegun, gains, loss_of_guessing, not_begun
from bench.analysis.deduplicate import current
from bench.analysis.families import KINDS, kind_of
from bench.analysis.study_data import ACCURACY, PIXELS, Records, SampleKey, horizon_table, samples, score_table, without
from bench.core.by_key import by_key
from bench.core.measure import FEWSHOT, UPSTREAM, Measure
from bench.stats.intervals import POINT_LEVEL, Estimate, Samples, average, estimate_all, pool
from bench.stats.moderated import Moderated
from bench.study import registry
from bench.study.names import DataName

HEADLINE, FAR = "headline", "far"
CHOICES = ("position", "pooling", "shape", "stem", "optimizer", "masked")
"""Axes along which a single design choice is changed: a study of these alone compares no families."""
DEFAULT_SHOTS = 10
PointKey = tuple[str, int]
"""(variant, images seen)."""
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Point:
    """A variant of a model read at one horizon, over all its seeds. Compute is in FLOP, sizes in parameters."""

    variant: str
    series: str
    model: str
    family: str
    data: str
    kind: str
    num_images: int
    images_seen: int
    unique_images: int
    epochs: float
    train_flops: float
    params: float
    params_body: float
    forward_macs: float
    seeds: tuple[int, ...]
    axes: tuple[str, ...]

    @property
    def key(self) -> PointKey:
        return self.variant, self.images_seen

    @property
    def trained(self) -> bool:
        return self.images_seen > 0


@dataclass(frozen=True, kw_only=True)
class Series:
    """One variant with its trained points in order of compute, and its untrained network."""

    variant: str
    label: str
    points: tuple[Point, ...]
    untrained: Point | None

    @property
    def last(self) -> Point:
        return self.points[-1]

    @property
    def family(self) -> str:
        return self.last.family


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """The records of a suite, and the choices under which they are read.

    Attributes:
        records: what was loaded, with damaged and unfinished cells.
        horizons, scores: tidy tables of all records, whatever their status.
        headline, far: names of measures averaged as "headline" and "far".
        shots: labelled images per class for every few-shot number that is shown.
        convention: which FLOP count is the compute axis, "paper" or "dense".
        data_kinds: "photographs", "handwriting" or "rendered" per data set, as far as known; what a data set's file
            says now stands before what a record said when it was made.
        published: the numbers are quoted from a publication, not measured here; figures show such points hollow.
        source: the publication that they are quoted from.
        controlled: what families differ in was chosen for a comparison; it was not where numbers are of many authors.
        reference: published evidence that figures lay under these points.
        set_aside: per record, scores that another cell supersedes (`bench.analysis.deduplicate`): left out of `scores`.
        targets: accuracies that were asked for, 0..1; () leaves them to the questions.
        forecast_at: training FLOPs that a forecast was asked for at; None leaves them to the question.
        own_question: name of the question that the study was made for; "": of none in particular.
        swept: the same with every learning rate, where a sweep was made: this one keeps the rates that stand.
    """

    records: Records
    horizons: pd.DataFrame
    scores: pd.DataFrame
    headline: tuple[str, ...]
    far: tuple[str, ...]
    shots: int | None
    level: float = POINT_LEVEL
    convention: str = "paper"
    question: str = ""
    data_kinds: Mapping[str, str] = field(default_factory=dict)
    published: bool = False
    source: str = ""
    controlled: bool = True
    reference: Evidence | None = None
    set_aside: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    targets: tuple[float, ...] = ()
    forecast_at: float | None = None
    own_question: str = ""
    swept: Evidence | None = None
    _estimates: dict[tuple[str, int | None], dict[PointKey, Estimate]] = field(default_factory=dict, repr=False)
    _averages: dict[tuple[PointKey, str, int | None], Samples | None] = field(default_factory=dict, repr=False)
    _pools: dict[str, Moderated | None] = field(default_factory=dict, repr=False)
    _kept: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def suite(self) -> str:
        return self.records.suite

    @cached_property
    def points(self) -> dict[PointKey, Point]:
        """Every point that at least one complete cell reached."""
        done = self.horizons[self.horizons["status"] == "complete"]
        seeds: dict[PointKey, set[int]] = {}
        axes: dict[PointKey, set[str]] = {}
        columns = (done[name] for name in ("variant", "images_seen", "seed", "axes"))
        for variant, seen, seed, named in zip(*columns, strict=True):
            seeds.setdefault((variant, seen), set()).add(seed)
            axes.setdefault((variant, seen), set()).update(named)
        first = done.drop_duplicates(["variant", "images_seen"]).sort_values(["variant", "images_seen"])
        points = {}
        for row in first.to_dict("records"):
            key = row["variant"], row["images_seen"]
            points[key] = Point(
                variant=row["variant"],
                series=row["series"],
                model=row["model"],
                family=row["family"],
                data=row["data"],
                kind=self.data_kinds.get(DataName.parse(row["data"]).base, row["kind"]),
                num_images=_int(row["num_images"]),
                images_seen=row["images_seen"],
                unique_images=_int(row["unique_images"]),
                epochs=row["epochs"],
                params=row["params"],
                train_flops=row[f"train_flops_{self.convention}"],
                params_body=row["params_body"],
                forward_macs=row[f"forward_macs_{self.convention}"],
                seeds=tuple(sorted(seeds[key])),
                axes=tuple(sorted(axes[key])),
            )
        return points

    @cached_property
    def series(self) -> tuple[Series, ...]:
        """Every trained variant, families in order of name, small models first."""
        made = []
        for variant, points in by_key((p.variant, p) for p in self.points.values() if p.family != PIXELS).items():
            trained = tuple(sorted((p for p in points if p.trained), key=lambda p: p.images_seen))
            untrained = next((p for p in points if not p.trained), None)
            if trained:
                made.append(Series(variant=variant, label=trained[-1].series, points=trained, untrained=untrained))
        return tuple(sorted(made, key=_order))

    @cached_property
    def not_begun(self) -> Mapping[PointKey, NotBegun]:
        """Trained points whose network has not begun to learn, and why (`bench.analysis.begun`). None in a rehearsal,
        where hardly any has: what a study does once they have is what is rehearsed."""
        if self.records.rehearsal:
            return {}
        trained = [p for p in self.points.values() if p.trained]
        losses, gained = self._losses(), self._gains(trained)
        nothing = (math.nan, math.nan)
        found = {}
        for p in trained:
            loss, guessing = losses.get(p.key, nothing)
            if why := not_begun(loss=loss, guessing=guessing, gain=gained.get(p.key)):
                found[p.key] = why
        return found

    def _losses(self) -> dict[PointKey, tuple[float, float]]:
        """Training loss of every point, mean over its seeds, and the loss of guessing. Networks that are not judged by
        classes upstream take targets from the images: chance is another number there."""
        done = self.horizons[(self.horizons["status"] == "complete") & self.horizons["final_train_loss"].notna()]
        of_upstream = self.scores.loc[self.scores["task"] == UPSTREAM, ["directory", "images_seen"]].drop_duplicates()
        done = done.merge(of_upstream.astype({"directory": object}), on=["directory", "images_seen"])
        return {
            (str(variant), int(seen)): (
                float(rows["final_train_loss"].mean()),
                loss_of_guessing(rows["num_classes"].iloc[0], sigmoid=rows["recipe"].iloc[0].loss == "sigmoid"),
            )
            for (variant, seen), rows in done.groupby(["variant", "images_seen"], sort=False)
        }

    def _gains(self, trained: Sequence[Point]) -> dict[PointKey, Estimate | None]:
        """Headline score minus that of the same network before training: of the same cells or, since initialisation
        does not depend on images, of the model's cells on others."""
        elsewhere = {p.model: p for p in self.points.values() if not p.trained and p.family != PIXELS}
        pairs = {}
        for p in trained:
            base = self.points.get((p.variant, 0)) or elsewhere.get(p.model)
            scored = [(self.samples(p, t), self.samples(base, t)) for t in self.parts(HEADLINE)] if base else []
            both = [(a, b) for a, b in scored if a is not None and b is not None]  # upstream has no untrained score
            a, b = (average([pair[side] for pair in both]) if both else None for side in (0, 1))
            if a is not None and b is not None:
                single = [(sign / len(both), pair[side]) for side, sign in ((0, 1), (1, -1)) for pair in both]
                pairs[p.key] = a, b, single
        return dict(zip(pairs, gains(list(pairs.values()), level=self.level), strict=True))

    def on_axis(self, axis: str, *, every: bool = False) -> tuple[Series, ...]:
        """Series whose cells name `axis`. Without any: all for "data_size", the largest data sets for "compute".

        The largest size of a model on the data-size axis may be its run on the compute axis: it belongs to both.

        Args:
            every: with the points whose network has not begun to learn, which nothing but a picture or a list of what
                was measured should hold. Otherwise a series has its other points, and one without any is left out.
        """
        chosen = self._on_axis(axis)
        return chosen if every else self.begun(chosen)

    def begun(self, series: Iterable[Series]) -> tuple[Series, ...]:
        """Series without the points whose network has not begun to learn; those without any other are left out."""
        kept = ((s, tuple(p for p in s.points if p.key not in self.not_begun)) for s in series)
        return tuple(s if points == s.points else replace(s, points=points) for s, points in kept if points)

    def _on_axis(self, axis: str) -> tuple[Series, ...]:
        named = tuple(s for s in self.series if any(axis in p.axes for p in s.points))
        if axis == "data_size":
            curves = {(s.label, s.last.data) for s in named}
            named = tuple(s for s in self.series if (s.label, s.last.data) in curves)
        if named or axis != "compute":
            return named or self.series
        largest: dict[tuple[str, str], int] = {}
        for s in self.series:
            key = (s.last.model, s.last.data)
            largest[key] = max(largest.get(key, 0), s.last.num_images)
        return tuple(s for s in self.series if s.last.num_images == largest[s.last.model, s.last.data])

    @cached_property
    def cells(self) -> dict[str, tuple[str, ...]]:
        """Names of the complete cells of each variant: one per seed."""
        done = self.horizons[self.horizons["status"] == "complete"].drop_duplicates("directory")
        names_of = by_key(zip(done["variant"], done["directory"], strict=True))
        return {variant: tuple(names) for variant, names in names_of.items()}

    @cached_property
    def pixels(self) -> Point | None:
        """The raw-pixel baseline."""
        return next((p for p in self.points.values() if p.family == PIXELS), None)

    @cached_property
    def measures(self) -> tuple[str, ...]:
        """Every accuracy: headline tasks, other tasks, far tasks, then upstream. Other metrics: `all_measures`."""
        known = accuracies(self.scores)
        middle = sorted(m for m in known if m not in (*self.headline, *self.far, UPSTREAM))
        ordered = [*self.headline, *middle, *self.far, UPSTREAM]
        return tuple(m for m in dict.fromkeys(ordered) if m in known)

    @cached_property
    def all_measures(self) -> tuple[str, ...]:
        """Everything that was scored, whatever the metric, in alphabetical order."""
        return tuple(str(m) for m in self.scores["measure"].cat.categories)

    def parts(self, measure: str) -> tuple[str, ...]:
        """Single measures that an average is made of."""
        return {HEADLINE: self.headline, FAR: self.far}.get(measure, (measure,))

    def name(self, measure: str, points: Iterable[Point] | None = None) -> str:
        """A measure as a title: what it is, and what its images are. A set that was trained on is that of `points`."""
        if measure in (HEADLINE, FAR):
            parts = self.parts(measure)
            return f"Average of {len(parts)} main tasks" if len(parts) > 1 else self.name(parts[0])
        if measure == UPSTREAM:
            used = {(p.data, p.kind) for p in (points or (s.last for s in self.series))}
            return "Test accuracy: {} ({})".format(*next(iter(used))) if len(used) == 1 else "Test accuracy"
        return self.with_kind(measure, measure)

    def with_kind(self, text: str, measure: str) -> str:
        """Words for a measure, followed by what its images are: "mnist (handwriting)"."""
        data = DataName.parse(Measure.parse(measure, registry.names("task")).data)
        kind = next((self.data_kinds[word] for word in (data.base, *data.words) if word in self.data_kinds), None)
        return f"{text} ({kind})" if kind else text

    def samples(self, point: Point, measure: str, *, shots: int | None = None) -> Samples | None:
        """Scores of one point, seeds × draws; None if any part of an average is missing."""
        wanted = self.shots if shots is None else shots
        parts = [
            self._samples.get((*point.key, name, wanted), self._samples.get((*point.key, name, None)))
            for name in self.parts(measure)
        ]
        if not parts or any(part is None for part in parts):
            return None
        known = [part for part in parts if part is not None]
        if len(known) == 1:
            return known[0]
        key = (point.key, measure, wanted)
        if key not in self._averages:
            self._averages[key] = average(known)
        return self._averages[key]

    def estimates(self, measure: str, *, shots: int | None = None) -> dict[PointKey, Estimate]:
        """Estimates of one measure at every point. The variances between seeds moderate each other, those of trained
        points and those of untrained ones apart."""
        cached = self._estimates.get((measure, shots))
        if cached is None:
            cached = {}
            for trained in (True, False):
                chosen = [p for p in self.points.values() if p.trained is trained]
                sampled = {p.key: s for p in chosen if (s := self.samples(p, measure, shots=shots)) is not None}
                cached |= estimate_all(sampled, level=self.level)
            self._estimates[measure, shots] = cached
        return cached

    def pool(self, measure: str) -> Moderated | None:
        """Variances between seeds of one measure, over all trained points."""
        if measure not in self._pools:
            points = [p for p in self.points.values() if p.trained]
            self._pools[measure] = pool(s for p in points if (s := self.samples(p, measure)) is not None)
        return self._pools[measure]

    def estimate(self, point: Point | None, measure: str) -> Estimate | None:
        """The estimate at one point; None where it was not measured."""
        return None if point is None else self.estimates(measure).get(point.key)

    def without(self, cells: Set[str]) -> Evidence:
        """The evidence without some cells, named by their directories; `swept` is the whole."""
        return replace(self, horizons=without(self.horizons, cells), swept=self, **nothing_computed())

    def accuracies_at(self, shots: int | None) -> Evidence:
        """The evidence with accuracies alone, few-shot ones at so many shots: a sixth of the scores, where no question
        asks for others."""
        drawn = self.scores["shots"].isna() | (self.scores["shots"] == shots)
        scores = self.scores[(self.scores["metric"] == ACCURACY) & drawn]
        return replace(self, scores=scores, shots=shots, **nothing_computed())

    @cached_property
    def _samples(self) -> dict[SampleKey, Samples]:
        return samples(self.horizons, self.scores)


def nothing_computed() -> dict[str, Any]:
    """Fields of a copy that has other numbers."""
    return {"_estimates": {}, "_averages": {}, "_pools": {}, "_kept": {}}


def kept(function: Callable[Concatenate[Evidence, P], T]) -> Callable[Concatenate[Evidence, P], T]:
    """A function that computes something once and keeps it with the evidence. Copies that have the same numbers, and
    differ in what is asked of them or in what is laid beside them, share it: laws take seconds."""

    @wraps(function)
    def call(evidence: Evidence, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (function, args, *sorted(kwargs.items()))
        if key not in evidence._kept:
            evidence._kept[key] = function(evidence, *args, **kwargs)
        return evidence._kept[key]

    return call


def accuracies(scores: pd.DataFrame) -> tuple[str, ...]:
    """Measures whose metric is accuracy, in alphabetical order."""
    return tuple(sorted(scores.loc[scores["metric"] == ACCURACY, "measure"].astype(str).unique()))


def _order(s: Series) -> tuple[Any, ...]:
    return family_rank(s.family), s.last.forward_macs, s.label, s.last.num_images, s.variant


def family_rank(family: str) -> tuple[int, str]:
    """Order of families in tables and legends: by kind, then all others."""
    kind = kind_of(family)
    return KINDS.index(kind) if kind else len(KINDS), family


def shown_shots(known: Collection[int]) -> int | None:
    """The number of labelled images per class that is shown: ten, or else the largest; None without any."""
    return DEFAULT_SHOTS if DEFAULT_SHOTS in known else max(known, default=None)


def build(
    records: Records,
    *,
    headline: Sequence[str] = (),
    far: Sequence[str] = (),
    question: str = "",
    data_kinds: Mapping[str, str] | None = None,
    level: float = POINT_LEVEL,
    published: bool = False,
    source: str = "",
    controlled: bool = True,
    reference: Evidence | None = None,
) -> Evidence:
    """Arrange records. Where the user named downstream sets, the tasks of the suite's headline on these are the
    headline. Otherwise it is the suite's, as far as it was scored. Where none of it was, it is the first of these that
    there is: the test images of the set that was trained on, if the headline names "upstream"; the same tasks on other
    sets; all tasks that are not far; the far ones.

    Scores that others supersede are set aside. Cells at learning rates that a sweep rejects are not:
    `bench.analysis.lr_sweep.without_rejected` leaves them out.
    """
    scores = score_table(records.records)
    horizons = horizon_table(records.records)
    standing = current(records, horizons, scores)
    if standing.empty:
        horizons = without(horizons, standing.empty)
    scores = standing.scores
    scored = [m for m in accuracies(scores) if m != UPSTREAM]
    far_found = tuple(m for m in far if m in scored)
    named = _on_named(headline, scores, records.wanted.downstream if records.wanted else ())
    own = (UPSTREAM,) if UPSTREAM in headline and UPSTREAM in accuracies(scores) else ()
    headline_found = named or tuple(m for m in headline if m in scored) or own or _same_task(headline, scored)
    headline_found = headline_found or tuple(sorted(set(scored) - set(far_found))) or far_found
    far_found = tuple(m for m in far_found if m not in headline_found)
    return Evidence(
        records=records,
        horizons=horizons,
        scores=scores,
        headline=headline_found,
        set_aside=standing.set_aside,
        far=far_found,
        shots=shown_shots({int(s) for s in scores["shots"].dropna()}),
        level=level,
        question=question,
        data_kinds=data_kinds or {},
        published=published,
        source=source,
        controlled=controlled,
        reference=reference,
    )


def _on_named(headline: Sequence[str], scores: pd.DataFrame, named: Sequence[str]) -> tuple[str, ...]:
    """Accuracies on the named downstream sets, in their order: those of the headline's tasks, or else of all tasks."""
    chosen = scores[(scores["metric"] == "accuracy") & scores["data"].isin(named) & (scores["task"] != UPSTREAM)]
    rows = chosen[["data", "task", "measure"]].drop_duplicates().astype(str).itertuples(index=False)
    ordered = sorted(rows, key=lambda row: (named.index(row.data), row.measure))
    known = registry.names("task")
    tasks = {FEWSHOT if measure == UPSTREAM else Measure.parse(measure, known).whole_task for measure in headline}
    return tuple(row.measure for row in ordered if row.task in tasks) or tuple(row.measure for row in ordered)


def _same_task(headline: Sequence[str], scored: Sequence[str]) -> tuple[str, ...]:
    """Measures of the headline's tasks on other sets: "finetune:pets" where "finetune:mnist" was meant."""
    known = registry.names("task")
    tasks = {Measure.parse(measure, known).whole_task for measure in headline} - {FEWSHOT}
    return tuple(measure for measure in scored if Measure.parse(measure, known).whole_task in tasks)


def _int(value: float) -> int:
    return 0 if math.isnan(value) else int(value)
