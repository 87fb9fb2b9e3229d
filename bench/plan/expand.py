"""Expands the options of a command line to cells: those of the suite, after every pass of `bench.plan.passes`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.core import registry
from bench.core.errors import UserError
from bench.core.formatting import join
from bench.core.spec import Cell
from bench.data.load import data_set, num_images, parse
from bench.plan.images import StudyImages
from bench.plan.options import StudyOptions
from bench.plan.passes import apply_all
from bench.plan.sizes import DataSizes
from bench.plan.study_cells import StudyCells, StudyRequest
from bench.suites.suite import Suite, SuiteOptions


def expand(
    suite: Suite, options: StudyOptions, sizes: DataSizes, *, device_name: str = "H100", notes: Sequence[str] = ()
) -> StudyCells:
    """The cells of a suite under these options, every name in them checked. Whether models of the suite's own can be
    built is found out when their cost is measured.

    Args:
        options: with a scale that is resolved.
        sizes: used only where sizes of data matter: for sets that were named or declare a size, and for epochs.
        device_name: the accelerator that the hours of scale `gpu` are of.
        notes: on the options, that those of the passes follow.

    Raises:
        UserError: an unknown model, data set or task (with the nearest names), a data set that is not here or is too
            small, or nothing left by `--only`.
    """
    request = _request(suite, options, sizes, device_name)
    cells = tuple(suite.cells(request.suite_options))
    if options.sizes and not {cell.num_images for cell in cells} & set(options.sizes):
        what = f"Suite {suite.name!r} compares no numbers of images, for which --sizes could give others."
        raise UserError(what, "Use --suite data, or NAME@N to limit a set to N images.")
    study = apply_all(StudyCells(cells=cells, notes=(*notes, *_idle(suite, options, cells))), request)
    for cell in study.cells:
        registry.family_of(cell.model)
        for task in cell.tasks:
            registry.load("task", task.task)
    return study


def _idle(suite: Suite, options: StudyOptions, cells: Sequence[Cell]) -> list[str]:
    """A note on options that are about training, where nothing is trained."""
    asked: dict[str, object] = {
        "--data": options.data and not {parse(name)[0] for name in options.data} & {cell.data for cell in cells},
        "--downstream": options.downstream,
        "--horizons": options.overrides.horizons,
        "--recipe": options.overrides.recipe,
    }
    idle = [flag for flag, given in asked.items() if given and not any(cell.job == "train" for cell in cells)]
    return (
        [f"Suite {suite.name!r} trains nothing: {join(idle)} {'has' if len(idle) == 1 else 'have'} no effect."]
        if idle
        else []
    )


def _request(suite: Suite, options: StudyOptions, sizes: DataSizes, device_name: str) -> StudyRequest:
    """The request, with every name checked."""
    data, limits = _split_limits(options.data)
    for name in options.models or ():
        registry.check_model(name)
    for name in (*(data or ()), *(options.downstream or ())):
        data_set(name)
    for name in options.tasks:
        registry.load("task", name)
    images = StudyImages(
        asked=options.image_size,
        upstream=data,
        downstream=options.downstream,
        models=options.models,
        root=options.data_root,
    )
    asked = SuiteOptions(
        scale=options.scale,
        models=options.models,
        data=data,
        sizes=options.sizes,
        seeds=options.seeds,
        data_root=options.data_root,
        image_size=images.asked,
        hours=options.hours or SuiteOptions.hours,
        num_images=_counted(data or (), limits, root=options.data_root) if options.scale == "paper" else {},
    )
    return StudyRequest(
        suite=suite,
        options=options,
        sizes=sizes,
        suite_options=asked,
        images=images,
        upstream=data,
        limits=limits,
        device_name=device_name,
    )


def _counted(data: Sequence[str], limits: Mapping[str, int], *, root: Path | None) -> dict[str, int]:
    """Training images of the named sets, about, or their limits."""
    return {name: limits.get(name) or num_images(name, root=root) for name in data}


def _split_limits(data: Sequence[str] | None) -> tuple[tuple[str, ...] | None, dict[str, int]]:
    """Plain names of data sets, and the N of each that was given as NAME@N."""
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
