"""Validity checks: what weakens a study's conclusions, what does not compare in it, and what was set aside for that."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from bench.analysis import gap_series, lr_sweep
from bench.analysis.comparisons import compared_series, families_of, size_curves, unreplicated_noise
from bench.analysis.evidence import HEADLINE, Evidence, PointKey, family_rank
from bench.analysis.finding import Axis, TrendPoint
from bench.analysis.findings import CheckKind, Level, ValidityCheck
from bench.analysis.frontiers import Gaps, at_compute, of_one_data_set
from bench.analysis.scaling_laws import mixed
from bench.analysis.study_data import PIXELS
from bench.core import registry
from bench.core.by_key import by_key
from bench.core.record import Record
from bench.core.spec import MAX_EPOCHS, to_json
from bench.stats.intervals import SEEDS, t_quantile
from bench.train.effective import WORDS, TrainingOnAxis, differences
from bench.train.schedule import total_steps

MIN_DECADES = 1.5
UNUSUAL_SPREAD_RATIO = 1.5  # times the standard deviation between seeds of the study's median point, in log-odds
WIDE_HALF_WIDTH = 0.04  # half-width in accuracy, due to seeds, that a further one should narrow
MIN_MODELS = 3  # with fewer, none is unusual
MOST_FALL = 0.1  # of the loss of guessing, per doubling of training: more, and training has only begun
ONE_BUDGET = 1.25  # factor of compute up to which there is no range to see a trend in
MAX_WARMUP = 0.1  # of the shortest run
HASH_DIGITS = 8
NOT_TO_BE_MIXED: tuple[tuple[str, Callable[[Record], object]], ...] = (
    ("commit", lambda record: record.environment.commit and record.environment.commit[:10]),
    ("cpu", lambda record: record.environment.cpu),
    ("accelerator", lambda record: record.environment.accelerator),
    ("device", lambda record: record.execution.device),
    ("threads", lambda record: record.execution.threads),
    ("dtype", lambda record: record.execution.dtype if record.model.params else None),  # without any, nothing computes
    ("evaluation dtype", lambda record: _evaluated_in(record)),
)


def _evaluated_in(record: Record) -> str | None:
    """The precision of features and logits, where any were judged here; before it was recorded, it was float32."""
    judged = record.model.params and record.source is None and any(row.scores for row in record.horizons)
    return (record.execution.evaluation_dtype or "float32") if judged else None


def checks(evidence: Evidence) -> tuple[ValidityCheck, ...]:
    """Every check that found something."""
    return tuple(check for function in CHECKS for check in function(evidence))


# -- cells -------------------------------------------------------------------------------------------------------------


def incomplete_cells(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Damaged records, cells that diverged or failed, and cells that were begun and not finished."""
    for damaged in evidence.records.damaged:
        yield ValidityCheck(kind=CheckKind.DAMAGED_RECORD, names=(damaged.directory,), message=damaged.reason)
    for record in evidence.records.records:
        if record.status != "complete":
            yield ValidityCheck(
                kind=CheckKind.UNSUCCESSFUL, names=(record.directory, record.status), message=record.reason or ""
            )
    if evidence.records.unfinished:
        yield ValidityCheck(kind=CheckKind.UNFINISHED, count=len(evidence.records.unfinished))


def environment(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Records of several commits, processors, accelerators, threads or precisions, or of dirty trees, in one table.
    Versions of packages, ranks and modes of compilation are not looked at: the page lists them under Provenance."""
    records = evidence.records.records
    for name, read in NOT_TO_BE_MIXED:
        values = tuple(sorted({str(value) for record in records if (value := read(record)) is not None}))
        if len(values) > 1:
            yield ValidityCheck(kind=CheckKind.MIXED, names=(name,), groups=(("", values),))
    if any(record.environment.dirty for record in records):
        yield ValidityCheck(kind=CheckKind.DIRTY_TREE, level=Level.NOTE)


# -- design ------------------------------------------------------------------------------------------------------------


def one_seed(evidence: Evidence) -> Iterator[ValidityCheck]:
    trained = [p for p in evidence.points.values() if p.trained]
    single = sorted({p.series for p in trained if len(p.seeds) == 1})
    if trained and all(len(p.seeds) < 2 for p in trained):
        yield ValidityCheck(kind=CheckKind.ONE_SEED, low=unreplicated_noise(0.95), high=unreplicated_noise(0.5))
    elif single:
        yield ValidityCheck(kind=CheckKind.ONE_SEED, names=tuple(single))


def disagreeing_seeds(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Models with points whose seeds differ much more than at most of the study's points, and whose intervals are wide
    for that: a further seed would help."""
    pooled = evidence.pool(HEADLINE)
    if pooled is None or len(pooled.models) < MIN_MODELS:
        return
    points = [p for p in evidence.points.values() if p.trained]
    samples = {p.key: s for p in points if (s := evidence.samples(p, HEADLINE)) is not None and len(s.seeds) > 1}
    spread = {key: math.sqrt(pooled.of(s.model, s.log_odds, s.log_images)[0]) for key, s in samples.items()}
    limit = UNUSUAL_SPREAD_RATIO * float(np.median(list(spread.values())))
    wide: dict[str, dict[str, tuple[float, float, int]]] = {}  # model, variant: half-width, with a seed more, seeds
    for point in points:
        e = evidence.estimate(point, HEADLINE)
        if e is None or spread.get(point.key, 0.0) <= limit or e.margins[SEEDS] <= WIDE_HALF_WIDTH:
            continue
        t_now, t_then = (t_quantile(df, e.level) for df in (e.seed_df, e.seed_df + 1))
        then = e.margins[SEEDS] * math.sqrt(e.num_seeds / (e.num_seeds + 1)) * t_then / t_now
        widest = wide.setdefault(point.model, {})
        widest[point.variant] = max(widest.get(point.variant, (0.0, 0.0, 0)), (e.margins[SEEDS], then, e.num_seeds))
    if wide:
        half, then, seeds = max(max(by_variant.values()) for by_variant in wide.values())
        named = {model: [n for variant in by for n in evidence.cells.get(variant, ())] for model, by in wide.items()}
        yield ValidityCheck(
            kind=CheckKind.SEEDS_DISAGREE,
            level=Level.NOTE,
            names=tuple(sorted(wide)),
            count=seeds,
            limit=UNUSUAL_SPREAD_RATIO,
            low=then,
            high=half,
            groups=_groups(named),
        )


def narrow_ranges(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Ranges too short for a trend; () for one budget, or where nothing is judged downstream."""
    by_family: dict[str, list[float]] = {}
    for series in evidence.on_axis("compute") if evidence.headline else ():
        by_family.setdefault(series.family, []).extend(p.train_flops for p in series.points if p.train_flops > 0)
    for family, flops in by_family.items():
        low, high = min(flops, default=1.0), max(flops, default=1.0)
        if ONE_BUDGET * low < high < 10**MIN_DECADES * low:
            yield ValidityCheck(kind=CheckKind.NARROW_COMPUTE, names=(family,), low=low, high=high, limit=MIN_DECADES)
    for curve in size_curves(evidence):
        if curve.decades < MIN_DECADES:
            yield ValidityCheck(
                kind=CheckKind.NARROW_IMAGES,
                names=(curve.label,),
                low=curve.points[0].unique_images,
                high=curve.points[-1].unique_images,
                limit=MIN_DECADES,
            )


def repeated_data(evidence: Evidence) -> Iterator[ValidityCheck]:
    counted: set[PointKey] = set()
    for name, axis, level in (("compute", Axis.COMPUTE, Level.WARNING), ("data_size", Axis.IMAGES, Level.NOTE)):
        points = [p for s in evidence.on_axis(name) for p in s.points if p.epochs > MAX_EPOCHS and p.key not in counted]
        counted |= {p.key for p in points}
        if points:
            yield ValidityCheck(
                kind=CheckKind.REPEATED_DATA,
                level=level,
                names=(axis,),
                count=len(points),
                limit=MAX_EPOCHS,
                high=max(p.epochs for p in points),
            )


def support_images(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Few-shot draws from too few images; warnings at the number of shots that is shown.

    Draws are the same images where their scores say so, and where more shots used no more images than fewer did.
    """
    scores, probe = evidence.scores, ["directory", "task", "data"]
    known = scores[(scores["task"] == "fewshot") & scores["num_support"].notna() & scores["shots"].notna()]
    known = known.drop_duplicates([*probe, "shots", "draw"])  # horizons and metrics share them
    no_more = known.groupby([*probe, "draw", "num_support"], observed=True)["shots"].transform("nunique") > 1
    several = known.groupby([*probe, "shots"], observed=True)["draw"].transform("nunique") > 1
    known = known.assign(
        same=several & (no_more | (known["same_images"] == 1)), asked=known["shots"] * known["num_classes"]
    )

    def level(shots: Sequence[int]) -> Level:
        return Level.WARNING if evidence.shots in shots else Level.NOTE

    for data, mine in known.groupby("data", observed=True):
        fewer = mine[mine["num_support"] < mine["asked"]].sort_values(["shots", "num_support"], kind="stable")
        for row in fewer.drop_duplicates("shots").itertuples():
            yield ValidityCheck(
                kind=CheckKind.FEW_IMAGES,
                level=level([int(row.shots)]),
                names=(str(data),),
                high=row.shots,
                count=int(row.num_support),
                limit=row.asked,
            )
        if same := sorted({int(shots) for shots in mine.loc[mine["same"], "shots"]}):
            yield ValidityCheck(
                kind=CheckKind.SAME_DRAWS, level=level(same), names=(str(data),), groups=(("", tuple(map(str, same))),)
            )


def missing_baselines(evidence: Evidence) -> Iterator[ValidityCheck]:
    if evidence.published or not evidence.headline:  # what was not printed cannot be measured now; nothing was judged
        return
    pixels = ["raw pixels"] if evidence.pixels is None and evidence.series else []
    begun = {s.last.model for s in evidence.series if s.untrained}  # one untrained network for its runs on every size
    lacking = [m for m in dict.fromkeys(s.last.model for s in evidence.series) if m not in begun]
    if pixels or lacking:
        yield ValidityCheck(kind=CheckKind.MISSING_BASELINE, names=(*pixels, *lacking))


def different_recipes(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Recipes that differ between families are named: part of a difference may be theirs."""
    by_family: dict[str, dict[str, set[str]]] = {}
    standing = set(evidence.horizons["directory"])  # not what a sweep rejected
    for record in evidence.records.records:
        if record.model.family != PIXELS and record.status == "complete" and record.directory in standing:
            for name, value in to_json(record.cell.recipe).items():
                by_family.setdefault(name, {}).setdefault(record.model.family, set()).add(str(value))
    for name, used in sorted(by_family.items()):
        every = set().union(*used.values())
        if len(every) > 1 and all(values == every for values in used.values()):
            yield ValidityCheck(
                kind=CheckKind.RECIPES_WITHIN, level=Level.NOTE, names=(name,), groups=_groups({"": every})
            )
        elif len(every) > 1:
            yield ValidityCheck(kind=CheckKind.RECIPES_BETWEEN, level=Level.NOTE, names=(name,), groups=_groups(used))


def unequal_recipes(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Axes along which trainings differ in more than the axis, and than what the suite varies on purpose."""
    used = dict(zip(evidence.horizons["variant"], evidence.horizons["trained_as"], strict=True))
    known = evidence.suite in registry.names("suite")
    varies = registry.load("suite", evidence.suite).varies if known else {}
    axes = sorted({axis for series in evidence.series for axis in series.last.axes}) or ["compute"]
    for axis in axes if not evidence.published else ():
        compared = [
            TrainingOnAxis(model=s.last.model, data=s.last.data, recipe=used[s.variant]) for s in evidence.on_axis(axis)
        ]
        if apart := differences(compared, varies=varies.get(axis, ())):
            groups = tuple((WORDS[name], values) for name, values in apart.items())
            yield ValidityCheck(kind=CheckKind.UNEQUAL_RECIPES, names=(axis.replace("_", " "),), groups=groups)


def mixed_laws(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Families whose points do not belong in one law; of numbers of many authors, no family's do."""
    if not evidence.controlled:
        yield ValidityCheck(kind=CheckKind.UNCONTROLLED)
        return
    for family in sorted({s.family for s in evidence.on_axis("compute")}, key=family_rank):
        points = [p for s in evidence.on_axis("compute") if s.family == family for p in s.points]
        if check := mixed(evidence, family, points):
            yield check


def learning_rates(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Runs that a sweep set aside or could not decide, and warm-ups that short runs hardly leave."""
    swept = lr_sweep.sweeps(evidence)
    if evidence.swept is not None:
        yield ValidityCheck(
            kind=CheckKind.REJECTED_RATES, level=Level.NOTE, count=len(lr_sweep.rejected(evidence.swept))
        )
    elif not swept and not evidence.published and len({s.family for s in evidence.series}) > 1 and evidence.headline:
        yield ValidityCheck(kind=CheckKind.RATE_NOT_IN_INTERVAL, level=Level.NOTE)
    chosen = {_base(s.data) for s in swept if not s.held_out}
    judged = evidence.scores.loc[evidence.scores["task"] != "upstream", "data"].unique()
    if both := sorted(chosen & {_base(str(name)) for name in judged}):
        yield ValidityCheck(kind=CheckKind.CHOSEN_ON_TEST, names=tuple(both))
    if edges := dict.fromkeys(s.model for s in swept if s.edge):
        yield ValidityCheck(kind=CheckKind.RATE_AT_EDGE, names=tuple(edges))
    shares, trained = {}, dict(zip(evidence.horizons["variant"], evidence.horizons["trained_as"], strict=True))
    for series in evidence.on_axis("compute", every=True):
        used, seen = trained[series.variant], series.points[0].images_seen
        if used.warmup_steps > MAX_WARMUP * total_steps(seen, used.batch):
            shares[series.label] = used.warmup_steps / total_steps(seen, used.batch)
    if shares:
        most = max(shares, key=lambda name: shares[name])
        yield ValidityCheck(kind=CheckKind.LONG_WARMUP, names=(most,), high=shares[most])


def tuned_at_edge(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Fine-tunings that chose an end of the rates that they tried, of every model that did so, trained or not."""
    standing = set(evidence.horizons["directory"])
    chosen: set[tuple[str, bool, str, int, str, str]] = set()
    for record in evidence.records.records:
        for row in record.horizons if record.directory in standing else ():
            name = record.cell.model if row.images_seen else f"{record.cell.model}, untrained"
            for s in row.scores:  # repeats with one choice are one
                if (edge := s.detail.get("rate_at_edge")) is not None and len(s.detail.get("rates", ())) > 1:
                    chosen.add(
                        (name, bool(edge), record.directory, row.images_seen, s.task, s.data.removesuffix("-real"))
                    )
    by_model = {name: (sum(mine), len(mine)) for name, mine in by_key((c[0], c[1]) for c in chosen).items()}
    at_edge = {name: [f"{edges} of {all_}"] for name, (edges, all_) in by_model.items() if edges}
    if at_edge:
        most = any(2 * edges > all_ for edges, all_ in by_model.values())
        yield ValidityCheck(
            kind=CheckKind.TUNED_AT_EDGE,
            level=Level.WARNING if most else Level.NOTE,
            count=sum(edges for edges, _ in by_model.values()),
            limit=len(chosen),
            groups=_groups(at_edge),
        )


def still_falling(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Models compared at equal compute over images: whether more than the beginning of their training was over."""
    falling = gap_series.still_falling(evidence)
    for flops in sorted({f.flops for f in falling}):
        mine = [f for f in falling if f.flops == flops]
        begun = [f for f in mine if f.share > MOST_FALL]
        yield ValidityCheck(
            kind=CheckKind.STILL_FALLING,
            level=Level.WARNING if begun else Level.NOTE,
            low=flops,
            limit=MOST_FALL,
            names=tuple(f.model for f in begun or mine),
            high=max(f.share for f in mine),
        )


def not_begun(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Models that have not begun to learn at some of their points."""
    for series in evidence.series:
        if without := [p for p in series.points if p.key in evidence.not_begun]:
            spent = sorted(p.train_flops for p in without)
            yield ValidityCheck(
                kind=CheckKind.NOT_BEGUN,
                names=(series.label,),
                count=len(without),
                limit=len(series.points),
                low=spent[0],
                high=spent[-1],
                groups=(("", tuple(sorted({str(evidence.not_begun[p.key]) for p in without}))),),
            )


def below_raw_pixels(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Families that are compared where the same probe on raw pixels beats a side's model. They are named and stay: how
    far a network falls behind pixels is a result, and that one falls further is not a lead of the other."""
    if evidence.pixels is None:
        return
    series = of_one_data_set(compared_series(evidence)) if compared_series(evidence) else []
    for pair in combinations(families_of(series), 2):
        gaps = at_compute(evidence, series, *pair, HEADLINE)
        if isinstance(gaps, Gaps):
            yield from _below(pair, gaps.trend, Axis.COMPUTE)
    for line in gap_series.gap_series(evidence) if series else ():
        yield from _below(line.families, tuple(place.trend for place in line.places), Axis.IMAGES)


def _below(families: tuple[str, str], trend: Sequence[TrendPoint], axis: Axis) -> Iterator[ValidityCheck]:
    if places := [p for p in trend if p.below]:
        models = [(name, p.first if name == families[0] else p.second) for p in places for name in p.below]
        yield ValidityCheck(
            kind=CheckKind.BELOW_PIXELS,
            names=(*families, axis),
            count=len(places),
            limit=len(trend),
            low=places[0].x,
            high=places[-1].x,
            groups=_groups(by_key(dict.fromkeys(models))),
        )


# -- what is not comparable --------------------------------------------------------------------------------------------


def superseded(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Scores that are replaced by those of another cell of the same variant, by cell."""
    for cell, pairs in evidence.set_aside.items():
        yield ValidityCheck(kind=CheckKind.SUPERSEDED, names=(cell,), groups=_groups(by_key(set(pairs))))


def other_images(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Data sets, or parts of them, that held other images under the same name."""
    trained = evidence.horizons.dropna(subset=["content"])
    for (data, number), hashes in trained.groupby(["data", "num_images"], sort=True)["content"]:
        if hashes.nunique() > 1:
            yield ValidityCheck(
                kind=CheckKind.OTHER_TRAINING_IMAGES, names=(data,), count=int(number), groups=_hashes(hashes)
            )
    known = evidence.scores[evidence.scores["correct"].notna()]
    tests = known["correct"].map(lambda correct: correct.content_hash)
    for (task, data), hashes in tests.groupby([known["task"].astype(str), known["data"].astype(str)]):
        if hashes.nunique() > 1:
            yield ValidityCheck(kind=CheckKind.OTHER_TEST_IMAGES, names=(task, data), groups=_hashes(hashes))


def revisions(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Scores in use, made by different revisions of a task, a data set, the training or one model."""
    measured = (record.directory for record in evidence.records.records if record.cell.job != "train")
    standing = {*evidence.horizons["directory"], *measured}
    used: dict[str, set[int]] = {}
    for record in evidence.records.records:
        gone = {
            name
            for task, data in evidence.set_aside.get(record.directory, ())
            for name in (f"task:{task.split('@')[0]}", f"data:{data}")
        }
        for name, revision in record.revisions.items() if record.directory in standing else ():
            if name not in gone:
                about = f"model:{record.cell.model}" if name == "model" else name
                used.setdefault(about.replace(":", " ", 1), set()).add(revision)
    mixed = {name: map(str, numbers) for name, numbers in sorted(used.items()) if len(numbers) > 1}
    if mixed:
        yield ValidityCheck(kind=CheckKind.MIXED_REVISIONS, groups=_groups(mixed))


def duplicates(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Test images that upstream holds a copy of, and what accuracies are without them."""
    known = evidence.scores[evidence.scores["num_duplicates"].notna()]
    change = (known["value_without_duplicates"] - known["value"]).abs()
    most = known.assign(change=change).groupby("data", observed=True)[["num_duplicates", "num_test", "change"]].max()
    for data, (copies, tests, largest) in zip(most.index, most.to_numpy(), strict=True):
        yield ValidityCheck(
            kind=CheckKind.DUPLICATES,
            level=Level.NOTE,
            names=(str(data),),
            count=int(copies),
            limit=tests,
            high=None if math.isnan(largest) else float(largest),
        )


def _groups(values: dict[str, Any]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((name, tuple(sorted(members))) for name, members in sorted(values.items()))


def _hashes(hashes: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return _groups({"": {str(digest)[:HASH_DIGITS] for digest in hashes}})


def _base(name: str) -> str:
    return name.split(":")[0].split("@")[0]


CHECKS: tuple[Callable[[Evidence], Iterator[ValidityCheck]], ...] = (
    incomplete_cells,
    one_seed,
    disagreeing_seeds,
    narrow_ranges,
    repeated_data,
    support_images,
    environment,
    missing_baselines,
    different_recipes,
    unequal_recipes,
    mixed_laws,
    superseded,
    learning_rates,
    tuned_at_edge,
    not_begun,
    below_raw_pixels,
    still_falling,
    other_images,
    revisions,
    duplicates,
)
