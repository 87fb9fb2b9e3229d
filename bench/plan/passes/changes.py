"""A pass for ladders: trains the baseline and every change (the "arms") at each of several budgets (the "rungs"), at
learning rates that were tuned alike for all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.core.errors import UserError
from bench.core.formatting import join, plural
from bench.cost import flops
from bench.data.load import data_set
from bench.plan.apply_overrides import changed
from bench.plan.study_cells import Pass, StudyCells, StudyRequest
from bench.plan.tuning import FIRST, STEP, Trials, choice, further
from bench.store.records import read_record
from bench.study import registry
from bench.study.cell import Cell, Recipe
from bench.study.ladder import BASELINE, LadderPlace
from bench.study.overrides import Overrides, setting
from bench.study.record import Record
from bench.train.schedule import total_steps

RATES = "rates"  # the axis of the runs that tune learning rates
TUNING_SEED = 1_000  # seed of the runs that tune learning rates, and of no others
ENDS = 2  # number of rungs on which learning rates are tuned: the lowest and the highest


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A rung of a ladder, one of its amounts of compute: the baseline `model`, trained on `images` images, which takes
    `flops` FLOPs in the ViT paper's convention."""

    model: str
    images: int
    flops: float


def apply(study: StudyCells, request: StudyRequest) -> StudyCells:
    """Return the study with the baseline and every change on all rungs. Until the records of the runs that tune
    learning rates are there, the study consists of those runs alone.

    Raises:
        UserError: a change cannot be made, or there are fewer than three rungs.
    """
    if not request.suite.compares_changes:
        raise UserError(f"Suite {request.suite.name!r} compares no changes.", "Give --suite ladder with --change.")
    rungs = _rungs(study.cells)
    arms = {BASELINE: study.cells} | {text: _with(text, study.cells, request) for text in request.what.change}
    trials = {(arm, end): _first(cells[0].recipe) for arm, cells in arms.items() for end in range(ENDS)}
    tuning: list[Cell] = []
    while True:
        tuning, records = _tuning(arms, rungs, trials, request)
        if any(record is None for record in records.values()):
            note = (
                f"Rates are tuned first; runs of the {plural(len(rungs), 'rung')} follow: vit-bench ladder goes on by "
                "itself, vit-bench run where it is given again."
            )
            return replace(study, cells=tuple(tuning), notes=(*study.notes, note))
        for key, made in trials.items():
            trials[key] = replace(made, scores=tuple(_score(records[key, rate]) for rate in made.rates))
        more = further(trials)
        if not more:
            break
        trials = more
    chosen = {key: choice(made) for key, made in trials.items()}
    edge = sorted({arm for (arm, _), made in trials.items() if made.at_edge})
    notes = [f"The best rate of {join(edge)} lies at an end of those tried: it may be better than it looks."]
    speed = {arm: _seconds(records, trials, arm) for arm in arms}
    cells = [
        cell
        for arm, of_arm in arms.items()
        for cell in _arm(arm, of_arm, study.cells, rungs, chosen, request, slower=speed[arm] / speed[BASELINE])
    ]
    return replace(study, cells=(*tuning, *cells), notes=(*study.notes, *(notes if edge else ())))


def _rungs(cells: Iterable[Cell]) -> list[Rung]:
    """Return the rungs of a ladder, its amounts of compute, ascending. `cells`: those of the baseline.

    Raises:
        UserError: there are fewer than three rungs.
    """
    pairs = {(cell.model, horizon): cell for cell in cells for horizon in cell.horizons if horizon}
    made = [Rung(model=m, images=h, flops=h * _flops(cell)) for (m, h), cell in pairs.items()]
    if len(made) < 3:
        raise UserError(
            f"A ladder has three rungs or more; this one has {len(made)}.", "Give --horizons, e.g. 8000,32000,128000."
        )
    return sorted(made, key=lambda rung: rung.flops)


def _flops(cell: Cell) -> float:
    cost = flops.count(
        cell.model,
        image_size=cell.image_size,
        channels=cell.channels,
        num_classes=data_set(cell.data).classes or 10,
        model_options=cell.model_options,
        activations=False,
    )
    return float(cost.train_flops_per_image["paper"])


def _with(text: str, cells: Sequence[Cell], request: StudyRequest) -> tuple[Cell, ...]:
    """Return the baseline's cells with a change. `text`: the change, such as "optimizer=timm:muon" or the name of a
    model.

    Raises:
        UserError: the change is neither a model nor a setting, or changes nothing.
    """
    made = list(cells)
    if "=" not in text.partition(":")[0]:
        registry.check_model(text)
        (named,) = registry.as_named_in_results((text,))
        if len({cell.model for cell in cells}) > 1:
            raise UserError(f"{text} is one network beside baselines of several sizes.", "Name one with --baseline.")
        made = [replace(cell, model=named) for cell in made]
    else:
        for part in text.split("+"):
            key, _, value = part.partition("=")
            if key.strip() == "patch":
                made = [replace(cell, model=_patched(cell.model, value.strip())) for cell in made]
            else:
                one = Overrides.of({"set": [setting(part)], "sweep": [], "recipe": None, "horizons": (), "grid": ()})
                made = changed(one, made, request.sizes)
    same = [cell for cell, other in zip(made, cells, strict=True) if cell == other]
    if same:
        raise UserError(f"{text} changes nothing about {same[0].model}.", "Name another change.")
    return tuple(made)


def _patched(model: str, patch: str) -> str:
    base, colon, options = model.partition(":")
    stem, slash, _ = base.rpartition("/")
    if not slash:
        raise UserError(f"{model} has no patch size in its name.", "Name a model with --change instead.")
    named = f"{stem}/{patch}{colon}{options}"
    registry.check_model(named)
    return named


# -- tuning ------------------------------------------------------------------------------------------------------------

Key = tuple[str, int]
"""An arm, which is BASELINE or a change, and an end of the ladder: 0 for the lowest rung, 1 for the highest."""


def _first(recipe: Recipe) -> Trials:
    """Return the first trials: learning rates around the usual one of the recipe's optimizer, the same at both ends of
    the ladder."""
    usual = registry.load("optimizer", recipe.optimizer).usual_rate(recipe)
    centre = recipe.lr * usual if recipe.optimizer != "adamw" else recipe.lr
    places = [number - (FIRST - 1) / 2 for number in range(FIRST)]
    return Trials(rates=tuple(_rounded(centre * STEP**place) for place in places))


def _tuning(
    arms: Mapping[str, Sequence[Cell]], rungs: list[Rung], trials: dict[Key, Trials], request: StudyRequest
) -> tuple[list[Cell], dict[tuple[Key, float], Record | None]]:
    cells: list[Cell] = []
    records: dict[tuple[Key, float], Record | None] = {}
    for (arm, end), made in trials.items():
        rung = rungs[-end]
        for rate in made.rates:
            cell = _on_rung(arms[arm], rung, arms[BASELINE], request, slower=1.0)[0]
            recipe = replace(cell.recipe, lr=rate)
            cell = replace(cell, recipe=recipe, held_out=True, seed=TUNING_SEED, axes=(RATES,))
            cells.append(cell)
            records[(arm, end), rate] = _record(cell, request)
    return cells, records


def _record(cell: Cell, request: StudyRequest) -> Record | None:
    """Return the record that a cell left when it finished; None if there is none."""
    if request.store is None:
        return None
    name = registry.directory_name(cell)
    try:
        return read_record(request.store / "cells" / name / "record.json", of=name)
    except FileNotFoundError:
        return None


def _score(record: Record | None) -> float | None:
    """Return a run's accuracy on the held-out images; None if it diverged."""
    if record is None or record.status != "complete":
        return None
    values = [s.value for s in record.horizons[-1].scores if s.task == "upstream" and s.metric == "accuracy"]
    return values[0] if values else None


def _seconds(records: dict[tuple[Key, float], Record | None], trials: dict[Key, Trials], arm: str) -> float:
    """Return the seconds of training per image of an arm (the baseline or a change) on the highest rung (the most
    compute), as the median over its trials of learning rates; 1 if none is known. `records`: (arm and end of the
    ladder, learning rate) -> record."""
    rates = [
        record.horizons[-1].images_per_second
        for rate in trials[arm, 1].rates
        if (record := records[(arm, 1), rate]) is not None and record.horizons
    ]
    known = sorted(rate for rate in rates if rate)
    return 1 / known[len(known) // 2] if known else 1.0


# -- rungs -------------------------------------------------------------------------------------------------------------


def _on_rung(
    of_arm: Sequence[Cell], rung: Rung, baseline: Sequence[Cell], request: StudyRequest, *, slower: float
) -> list[Cell]:
    """Return the cells of the baseline or of a change on a rung (an amount of compute), one for each seed. The number
    of images that they train on equals the baseline's in compute, images or time, as --equal says.

    Args:
        of_arm: cells of the baseline or of the change.
        baseline: cells of the baseline, in the same order.
        slower: time that the baseline or the change takes per image, divided by that of the baseline.
    """
    made = []
    for cell, base in zip(of_arm, baseline, strict=True):
        if base.model != rung.model:
            continue
        factor = {"images": 1.0, "seconds": 1 / slower}.get(request.what.equal) or _flops(base) / _flops(cell)
        images = total_steps(round(rung.images * factor), cell.recipe.batch) * cell.recipe.batch
        made.append(replace(cell, horizons=(images,)))
    return made


def _arm(
    arm: str,
    of_arm: Sequence[Cell],
    baseline: Sequence[Cell],
    rungs: list[Rung],
    chosen: dict[Key, float],
    request: StudyRequest,
    *,
    slower: float,
) -> list[Cell]:
    made = []
    for number, rung in enumerate(rungs):
        share = _share(rungs, rung)
        rate = _rounded(chosen[arm, 0] ** (1 - share) * chosen[arm, 1] ** share)
        for cell in _on_rung(of_arm, rung, baseline, request, slower=slower):
            axis = LadderPlace(change=arm, rung=number).axis
            made.append(replace(cell, recipe=replace(cell.recipe, lr=rate), axes=(axis,)))
    return made


def _share(rungs: list[Rung], rung: Rung) -> float:
    """Return how far up the ladder a rung is, by the logarithm of compute: 0 for the lowest, 1 for the highest of its
    amounts of compute."""
    return math.log(rung.flops / rungs[0].flops) / math.log(rungs[-1].flops / rungs[0].flops)


def _rounded(rate: float) -> float:
    return float(f"{rate:.3g}")


PASS = Pass(apply=apply, needed=lambda r: bool(r.what.change), after=("metrics",))
