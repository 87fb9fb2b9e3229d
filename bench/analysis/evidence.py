"""Arranges the records of a study for analysis: points (a variant of a model at one budget), series of points, scores
of points, and estimates with intervals."""

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
"""Axes along which a single design choice is changed. A study with only such axes does not compare families."""
DEFAULT_SHOTS = 10  # labelled images per class
PointKey = tuple[str, int]
"""Key of a point: (variant, images seen)."""
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Point:
    """A variant of a model, evaluated at one horizon (budget), over all its seeds. (A variant is everything that
    defines a trained model except its seed.)

    Attributes:
        variant: hash of the variant (`study_data.variant_of`).
        series: displayed name of the variant.
        data: name of the pre-training set.
        kind: kind of the images of `data`, such as "photographs".
        num_images: number of images of the pre-training set, or of the subset that was used.
        images_seen: images seen in training up to this horizon, repeats included; 0 for an untrained network.
        unique_images: number of distinct images among them.
        epochs: passes over the pre-training set.
        train_flops: training compute, in FLOP.
        params, params_body: number of parameters, and the same without head and embeddings.
        forward_macs: multiply-adds of the forward pass of one image.
        axes: names of the study's comparisons that its cells belong to, such as "compute".
    """

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
    """One variant of a model: its trained points in order of compute, and the point of its untrained network (None if
    that was not evaluated). `label`: displayed name."""

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
    """The records of a study, and the choices by which they are analysed.

    Attributes:
        records: all that was loaded, including damaged and unfinished cells.
        horizons, scores: tables with a row per cell and horizon, and per score, of all records, whatever their status.
        headline, far: names of the scores that are averaged as "headline" (main tasks) and as "far" (out-of-domain
            tasks: target sets unlike the pre-training set).
        shots: labelled images per class of every few-shot score that is shown; None without few-shot scores.
        level: confidence level of all intervals.
        convention: how FLOPs on the compute axis are counted, "paper" or "dense" (`bench.study.record.Operations`).
        question: the study's question in words.
        data_kinds: data set -> "photographs", "handwriting" or "rendered", as far as known. It overrides what a record
            says.
        published: whether the numbers are quoted from a publication, not measured here; figures draw them hollow.
        source: the publication that published numbers are quoted from.
        controlled: whether the differences between families were designed for a comparison; False for numbers from many
            authors.
        reference: published evidence that figures draw behind this evidence; None: none.
        set_aside: directory of a record -> (task, data) of its scores that another cell supersedes
            (`bench.analysis.deduplicate`); `scores` does not contain these.
        targets: target accuracies that the user asked for, 0..1; () leaves the choice to the questions.
        forecast_at: training FLOPs at which the user asked for a forecast; None leaves the choice to the question.
        own_question: name of the question that the study was made for; "" if none in particular.
        swept: if learning rates were swept, the evidence that includes runs at all of them, where this one includes
            only the chosen rates; else None.
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
        """All points for which there is at least one complete cell, by (variant, images seen)."""
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
        """All trained variants, sorted by family (`family_rank`), and within a family from small to large models."""
        made = []
        for variant, points in by_key((p.variant, p) for p in self.points.values() if p.family != PIXELS).items():
            trained = tuple(sorted((p for p in points if p.trained), key=lambda p: p.images_seen))
            untrained = next((p for p in points if not p.trained), None)
            if trained:
                made.append(Series(variant=variant, label=trained[-1].series, points=trained, untrained=untrained))
        return tuple(sorted(made, key=_order))

    @cached_property
    def not_begun(self) -> Mapping[PointKey, NotBegun]:
        """Trained points whose network has not begun to learn, and the reason (`bench.analysis.begun`). The mapping is
        empty for a rehearsal (a trial of a study in seconds): hardly any of its networks begin to learn, but it must
        exercise all that a study does with networks that have."""
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
        """Return, for every point, (training loss averaged over seeds, loss of guessing). Networks without a
        pre-training accuracy are left out: their targets come from the images, not from classes, so the loss of
        guessing differs."""
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
        """Return the headline score of every trained point minus that of the same network before training. If the
        variant has no untrained score, the untrained score of the same model on other images is used, because
        initialisation does not depend on the images."""
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
        """Return the series whose cells belong to the comparison `axis` ("compute", "data_size", …). If there are none,
        return all series for "data_size", and those on the largest data sets for "compute".

        The largest size of a model on the data-size axis may be its run on the compute axis; it belongs to both.

        Args:
            every: whether to keep points whose network has not begun to learn. Only figures and lists of what was
                measured should have them. If they are left out, so are series without any other point.
        """
        chosen = self._on_axis(axis)
        return chosen if every else self.begun(chosen)

    def begun(self, series: Iterable[Series]) -> tuple[Series, ...]:
        """Return the series without the points whose network has not begun to learn. A series that has no other points
        is left out."""
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
        """Variant -> directory names of its complete cells, one for each seed."""
        done = self.horizons[self.horizons["status"] == "complete"].drop_duplicates("directory")
        names_of = by_key(zip(done["variant"], done["directory"], strict=True))
        return {variant: tuple(names) for variant, names in names_of.items()}

    @cached_property
    def pixels(self) -> Point | None:
        """The point of the raw-pixel baseline; None if it was not evaluated."""
        return next((p for p in self.points.values() if p.family == PIXELS), None)

    @cached_property
    def measures(self) -> tuple[str, ...]:
        """Names of all scores whose metric is accuracy: of main tasks, other tasks, out-of-domain tasks, then
        pre-training accuracy ("upstream"). For other metrics see `all_measures`."""
        known = accuracies(self.scores)
        middle = sorted(m for m in known if m not in (*self.headline, *self.far, UPSTREAM))
        ordered = [*self.headline, *middle, *self.far, UPSTREAM]
        return tuple(m for m in dict.fromkeys(ordered) if m in known)

    @cached_property
    def all_measures(self) -> tuple[str, ...]:
        """Names of all scores, whatever the metric, in alphabetical order."""
        return tuple(str(m) for m in self.scores["measure"].cat.categories)

    def parts(self, measure: str) -> tuple[str, ...]:
        """Return the names of the single scores that the average "headline" or "far" consists of; for any other
        `measure`, its own name in a tuple."""
        return {HEADLINE: self.headline, FAR: self.far}.get(measure, (measure,))

    def name(self, measure: str, points: Iterable[Point] | None = None) -> str:
        """Return the title of a score, which says what it is and of what kind its images are.

        Args:
            measure: name of the score.
            points: for "upstream", the title names the pre-training set of these points; None: of all series.
        """
        if measure in (HEADLINE, FAR):
            parts = self.parts(measure)
            return f"Average of {len(parts)} main tasks" if len(parts) > 1 else self.name(parts[0])
        if measure == UPSTREAM:
            used = {(p.data, p.kind) for p in (points or (s.last for s in self.series))}
            return "Test accuracy: {} ({})".format(*next(iter(used))) if len(used) == 1 else "Test accuracy"
        return self.with_kind(measure, measure)

    def with_kind(self, text: str, measure: str) -> str:
        """Return `text` followed by the kind of the images of a score (`measure`), if known ("mnist (handwriting)")."""
        data = DataName.parse(Measure.parse(measure, registry.names("task")).data)
        kind = next((self.data_kinds[word] for word in (data.base, *data.words) if word in self.data_kinds), None)
        return f"{text} ({kind})" if kind else text

    def samples(self, point: Point, measure: str, *, shots: int | None = None) -> Samples | None:
        """Return the scores of one point, seeds × few-shot samples; None if it was not scored, or if any part of an
        average is missing.

        Args:
            measure: name of the score, or "headline" or "far" for an average.
            shots: labelled images per class of few-shot scores; None: `self.shots`.
        """
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
        """Return the estimate of one score at every point that has it. Variances between seeds are shrunk towards those
        of the other points (`bench.stats.moderated`), separately for trained and untrained points.

        Args:
            measure: name of the score.
            shots: labelled images per class of few-shot scores; None: `self.shots`.
        """
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
        """Return the variances between seeds of the score `measure`, pooled over all trained points
        (`bench.stats.moderated`); None if nothing was repeated."""
        if measure not in self._pools:
            points = [p for p in self.points.values() if p.trained]
            self._pools[measure] = pool(s for p in points if (s := self.samples(p, measure)) is not None)
        return self._pools[measure]

    def estimate(self, point: Point | None, measure: str) -> Estimate | None:
        """Return the estimate of the score `measure` at one point; None if it was not measured there."""
        return None if point is None else self.estimates(measure).get(point.key)

    def without(self, cells: Set[str]) -> Evidence:
        """Return the evidence without some cells, given by their directories. `swept` of the result is this evidence,
        which has them."""
        return replace(self, horizons=without(self.horizons, cells), swept=self, **nothing_computed())

    def accuracies_at(self, shots: int | None) -> Evidence:
        """Return the evidence with accuracies only, and with few-shot accuracies only at `shots` labelled images per
        class. These are a sixth of the scores, and enough unless a question asks for others."""
        drawn = self.scores["shots"].isna() | (self.scores["shots"] == shots)
        scores = self.scores[(self.scores["metric"] == ACCURACY) & drawn]
        return replace(self, scores=scores, shots=shots, **nothing_computed())

    @cached_property
    def _samples(self) -> dict[SampleKey, Samples]:
        return samples(self.horizons, self.scores)


def nothing_computed() -> dict[str, Any]:
    """Return empty caches, to be passed to `dataclasses.replace` for a copy of an `Evidence` whose numbers differ from
    the original's."""
    return {"_estimates": {}, "_averages": {}, "_pools": {}, "_kept": {}}


def kept(function: Callable[Concatenate[Evidence, P], T]) -> Callable[Concatenate[Evidence, P], T]:
    """Decorate a function of an evidence so that its result is cached with the evidence (fitting laws takes seconds).
    Copies of the evidence that differ only in targets, reference or the like, but not in numbers, share the cache."""

    @wraps(function)
    def call(evidence: Evidence, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (function, args, *sorted(kwargs.items()))
        if key not in evidence._kept:
            evidence._kept[key] = function(evidence, *args, **kwargs)
        return evidence._kept[key]

    return call


def accuracies(scores: pd.DataFrame) -> tuple[str, ...]:
    """Return the names of the scores whose metric is accuracy, in alphabetical order."""
    return tuple(sorted(scores.loc[scores["metric"] == ACCURACY, "measure"].astype(str).unique()))


def _order(s: Series) -> tuple[Any, ...]:
    return family_rank(s.family), s.last.forward_macs, s.label, s.last.num_images, s.variant


def family_rank(family: str) -> tuple[int, str]:
    """Return a sort key of a family for tables and legends: ViT, hybrids and ResNets come first, then all others by
    name."""
    kind = kind_of(family)
    return KINDS.index(kind) if kind else len(KINDS), family


def shown_shots(known: Collection[int]) -> int | None:
    """Return the number of labelled images per class whose scores are shown: ten if it is among the numbers `known`,
    else the largest of these; None if there are none."""
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
    """Arrange records as evidence, and decide which scores are the headline (main tasks).

    If the user named target sets, the headline is the suite's headline tasks on these sets. Otherwise it is the suite's
    headline, as far as it was scored. If none of it was, it is the first of these that was scored: the test images of
    the pre-training set, if the headline names "upstream"; the same tasks on other sets; all tasks that are not far;
    the far ones.

    Scores that others supersede are left out. Cells at learning rates that a sweep rejects are kept;
    `bench.analysis.lr_sweep.without_rejected` leaves them out.

    Args:
        headline, far: names of the suite's main and out-of-domain scores; those that were not scored are left out.
        others: fields of `Evidence`, described there.
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
    """Return the names of the accuracies on the data sets `named`, in the order of `named`: accuracies of the
    headline's tasks or, if there are none, of all tasks."""
    chosen = scores[(scores["metric"] == "accuracy") & scores["data"].isin(named) & (scores["task"] != UPSTREAM)]
    rows = chosen[["data", "task", "measure"]].drop_duplicates().astype(str).itertuples(index=False)
    ordered = sorted(rows, key=lambda row: (named.index(row.data), row.measure))
    known = registry.names("task")
    tasks = {FEWSHOT if measure == UPSTREAM else Measure.parse(measure, known).whole_task for measure in headline}
    return tuple(row.measure for row in ordered if row.task in tasks) or tuple(row.measure for row in ordered)


def _same_task(headline: Sequence[str], scored: Sequence[str]) -> tuple[str, ...]:
    """Return those of the names `scored` that have the task of a headline score but another data set ("finetune:pets"
    if the headline is "finetune:mnist")."""
    known = registry.names("task")
    tasks = {Measure.parse(measure, known).whole_task for measure in headline} - {FEWSHOT}
    return tuple(measure for measure in scored if Measure.parse(measure, known).whole_task in tasks)


def _int(value: float) -> int:
    return 0 if math.isnan(value) else int(value)
