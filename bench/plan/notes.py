"""Write the notes below a plan's table, sentences for the user: on cells left to other runs, missing data sets,
learning rates that nobody swept."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from baselines._hub import reachable
from bench.core.formatting import duration, join, plural
from bench.cost.sight import Sight
from bench.data.load import data_set
from bench.plan.estimate import Rates, rate_key
from bench.plan.sizes import DataSizes, evaluation_images
from bench.plan.study_cells import StudyCells
from bench.study import registry
from bench.study.cell import Cell
from bench.study.options import Selection, What
from bench.study.overrides import Overrides
from bench.study.suite import Suite
from bench.suites._recipes import DEFAULT, FAMILY, PAPER, SWEPT, WIDTH, rate_and_rule
from vit.model_family import Weights

OF_WHAT = "Rows, and the runs counted below, are of the whole study; images, time, memory and disk are of this run."
RULES = {
    PAPER: "Table 3 of the paper × √(batch / 4096)",
    WIDTH: "Table 3 of the network of its kind nearest in width × √(batch / 4096) × the ratio of widths",
    DEFAULT: "assumed",
}
MAX_SINGLE_NOTES = 2  # number of missing sets up to which each has a note of its own


def part_of_a_run(selection: Selection) -> list[str]:
    """Return a note on what this run leaves to later runs; [] if it leaves nothing."""
    failed = " that failed" if selection.retry else ""
    if selection.max_cells is not None:
        return [f"This command does at most {plural(selection.max_cells, 'run')}{failed}. {OF_WHAT}"]
    return [f"This command does only runs{failed}. {OF_WHAT}"] if selection.retry else []


def costly(study: StudyCells, rates: Mapping[str, Rates], sizes: DataSizes) -> list[str]:
    """Return a note on fine-tuning that was left out because it takes long; [] if none was. `rates`: `rate_key` of a
    cell -> throughput, to state how long."""
    if not study.costly:
        return []
    seconds = [
        f"{cell.model} {duration(evaluation_images(replace(cell, tasks=tasks), sizes) / known.eval_images_per_second)}"
        for cell, tasks in study.costly.items()
        if (known := rates.get(rate_key(cell, sizes[cell.data].classes))) is not None
    ]
    named = f" (on one worker about: {join(seconds)})" if seconds else ""
    return [
        f"Fine-tuning of the whole network is left out where it takes long{named}; with it: --tasks adapt,finetune."
    ]


def unswept(scale: str, overrides: Overrides, cells: Sequence[Cell]) -> list[str]:
    """Return a note on models that train at a learning rate which nobody swept for them, and on the rule that gave it;
    [] if there are none, or if the user chose the rates."""
    if scale == "paper" or overrides.recipe or overrides.changes("lr"):
        return []
    by_rule: dict[str, dict[str, set[float]]] = {}
    for cell in cells:
        if cell.job != "train" or cell.horizons == (0,):
            continue
        batch = cell.recipe.batch
        found = rate_and_rule(cell.model, scale=scale, images=cell.horizons[-1], batch=batch)
        if found.rule not in (SWEPT, FAMILY):
            by_rule.setdefault(found.rule, {}).setdefault(cell.model, set()).add(cell.recipe.lr)
            if not math.isclose(cell.recipe.lr, found.value):  # the suite has its own rate, or compares several
                by_rule[found.rule][cell.model].add(math.nan)
    said, models = [], list[str]()
    for rule, rates in by_rule.items():
        given = {model: tried.pop() for model, tried in rates.items() if len(tried) == 1}
        if given:
            models += given
            said.append(f"{RULES[rule]} for {join([f'{model} {rate:.2g}' for model, rate in given.items()])}")
    if not models:
        return []
    return [
        f"Learning rate not swept: {'; '.join(said)}. To choose it: vit-bench run "
        f"--suite rates --scale {scale} --models {','.join(models)}; to set it: --set lr=…"
    ]


def short_sighted(cells: Sequence[Cell], rates: Mapping[str, Rates], sizes: DataSizes) -> list[str]:
    """Return a note on each network whose features do not see the whole image, or whose last normalisation has groups
    of too few channels (see `bench.cost.sight`). `rates`: `rate_key` of a cell -> what was counted of its model."""
    said = {}
    for cell in cells:
        if known := rates.get(rate_key(cell, sizes[cell.data].classes)):
            sight = Sight(pixels=known.sees, group=known.group)
            said[cell.model, cell.image_size] = sight.sentence(image_size=cell.image_size)
    return [f"{model}: {sentence}." for (model, _), sentence in said.items() if sentence]


def from_outside(cells: Sequence[Cell]) -> list[str]:
    """Return notes on pre-trained checkpoints: which part of each is used, how large its weights are, their licence,
    and whether they are on this machine or have to be fetched."""
    models = list(dict.fromkeys(cell.model for cell in cells))
    taken = [f"{model}: {said}." for model in models if (said := registry.about(model))]
    known = {model: weights for model in models if (weights := registry.weights_of(model)) is not None}
    needs = "; ".join(_need(model, weights) for model, weights in known.items())
    if not needs:
        return taken
    without = [model for model, weights in known.items() if not weights.here]
    if without and not reachable():
        needs += ". There is no network here: those that are not here cannot be fetched; --models takes others"
    return [*taken, f"Weights: {needs}."]


def _need(model: str, weights: Weights) -> str:
    """Return the size and licence of a model's weights, and where they are, in words: "vit_small 86 MB, licence mit,
    here"."""
    size = f"{weights.megabytes:,.0f} MB" if weights.megabytes else "of unknown size"
    licence = f", licence {weights.licence}" if weights.licence else ""
    gated = ", gated: accept its terms on the hub and set HF_TOKEN" if weights.gated else ""
    return f"{model} {size}{licence}, " + ("here" if weights.here else f"to be fetched from {weights.where}{gated}")


def absent(suite: Suite, what: What, cells: Sequence[Cell], *, root: Path | None) -> list[str]:
    """Return notes on downstream sets that are not on this machine. Tasks on them are left out; at scale `paper` they
    are included in the estimate. `root`: folder with data sets that do not come with the installation."""
    judged = {task.data for cell in cells for task in cell.tasks}
    notes = []
    if what.scale == "paper":
        for name in sorted(judged):
            one = data_set(name)
            if not one.available(root):
                notes.append(f"Included in the estimate, but not on this machine: {name}. {one.how_to_get}")
    elif judged and what.downstream is None:
        gone = {name: data_set(name).how_to_get for name in suite.downstream_at(what.scale) if name not in judged}
        notes += [f"Not evaluated on {name}, which is not on this machine. {how}" for name, how in gone.items()]
        if len(gone) > MAX_SINGLE_NOTES:
            which = f"Not evaluated on {join(list(gone))}, which are not on this machine."
            notes = [f"{which} vit-bench data NAME says how to get one."]
    return notes
