"""Turn the options of a command line into cells (training runs with their evaluations): those of the suite, after every
pass of `bench.plan.passes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from bench.core.errors import UserError
from bench.core.formatting import join
from bench.data.load import data_set, num_images, parse
from bench.plan.images import StudyImages
from bench.plan.passes import apply_all
from bench.plan.sizes import DataSizes
from bench.plan.study_cells import StudyCells, StudyRequest
from bench.study import registry
from bench.study.cell import Cell
from bench.study.options import What
from bench.study.overrides import Overrides
from bench.study.suite import Suite, SuiteOptions


def expand(
    suite: Suite,
    what: What,
    overrides: Overrides,
    sizes: DataSizes,
    *,
    only: Sequence[str] = (),
    device_name: str = "H100",
    notes: Sequence[str] = (),
    store: Path | None = None,
) -> StudyCells:
    """Return the cells of a suite under these options, after checking every name in the options. Whether the suite's
    own models can be built is found out only when their cost is measured.

    Args:
        what: the options of the study; its scale is not "auto".
        overrides: changes to recipes, budgets and the grid.
        sizes: sizes of data sets, used only where they matter: for sets that were named or declare a size, and for
            epochs.
        only: patterns of --only; cells whose names match none are left for another run. Empty: none are left.
        device_name: the accelerator whose hours --hours counts, at scale `gpu`.
        notes: notes on the options, which come before those of the passes.
        store: the study's folder, for suites that tune learning rates before they use them; None: nothing is tuned yet.

    Raises:
        UserError: an unknown model, data set or task (with the nearest names), a data set that is not here or is too
            small, or nothing left by `--only`.
    """
    request = _request(suite, what, overrides, sizes, only=only, device_name=device_name)
    request = replace(request, store=store)
    cells = tuple(suite.cells(request.suite_options))
    if what.sizes and not {cell.num_images for cell in cells} & set(what.sizes):
        wrong = f"Suite {suite.name!r} compares no numbers of images, for which --sizes could give others."
        raise UserError(wrong, "Use --suite data, or NAME@N to limit a set to N images.")
    study = apply_all(StudyCells(cells=cells, notes=(*notes, *_idle(suite, what, overrides, cells))), request)
    for cell in study.cells:
        registry.family_of(cell.model)
        for task in cell.tasks:
            registry.load("task", task.task)
    return study


def _idle(suite: Suite, what: What, overrides: Overrides, cells: Sequence[Cell]) -> list[str]:
    """Return a note on options about training that were given although the suite trains nothing; [] if there are
    none."""
    asked: dict[str, object] = {
        "--data": what.data and not {parse(name)[0] for name in what.data} & {cell.data for cell in cells},
        "--downstream": what.downstream,
        "--horizons": overrides.horizons,
        "--recipe": overrides.recipe,
    }
    idle = [flag for flag, given in asked.items() if given and not any(cell.job == "train" for cell in cells)]
    return (
        [f"Suite {suite.name!r} trains nothing: {join(idle)} {'has' if len(idle) == 1 else 'have'} no effect."]
        if idle
        else []
    )


def _request(
    suite: Suite, what: What, overrides: Overrides, sizes: DataSizes, *, only: Sequence[str], device_name: str
) -> StudyRequest:
    """Return the request to the suite, made of these options after checking every name in them; see `expand`."""
    data, limits = _split_limits(what.data)
    for name in what.models or ():
        registry.check_model(name)
    if what.models:
        what = replace(what, models=registry.as_named_in_results(what.models))
    for name in (*(data or ()), *(what.downstream or ())):
        data_set(name)
    for name in what.tasks:
        registry.load("task", name)
    images = StudyImages(
        asked=what.image_size,
        upstream=data,
        downstream=what.downstream,
        models=what.models,
        root=sizes.root,
    )
    asked = SuiteOptions(
        scale=what.scale,
        models=what.models,
        data=data,
        sizes=what.sizes,
        seeds=what.seeds,
        data_root=sizes.root,
        image_size=images.asked,
        hours=what.hours or SuiteOptions.hours,
        num_images=_counted(data or (), limits, root=sizes.root) if what.scale == "paper" else {},
    )
    return StudyRequest(
        suite=suite,
        what=what,
        overrides=overrides,
        only=tuple(only),
        sizes=sizes,
        suite_options=asked,
        images=images,
        upstream=data,
        limits=limits,
        device_name=device_name,
    )


def _counted(data: Sequence[str], limits: Mapping[str, int], *, root: Path | None) -> dict[str, int]:
    """Return name -> approximate number of training images of each named set, or its limit where it has one."""
    return {name: limits.get(name) or num_images(name, root=root) for name in data}


def _split_limits(data: Sequence[str] | None) -> tuple[tuple[str, ...] | None, dict[str, int]]:
    """Return the plain names of data sets (None if none were given), and name -> N for each that was given as NAME@N.

    Raises:
        UserError: N is less than 1, or a set is given twice.
    """
    if data is None:
        return None, {}
    pairs = [parse(text) for text in data]
    names = tuple(name for name, _ in pairs)
    for text, (name, size) in zip(data, pairs, strict=True):
        if size is not None and size < 1:
            raise UserError(f"{text}: a data set needs at least one image.", f"For example {name}@1000.")
        if names.count(name) > 1:
            raise UserError(
                f"Data set {name!r} is given {names.count(name)} times.", "Give it once, and the numbers with --sizes."
            )
    return names, {name: size for name, size in pairs if size is not None}
