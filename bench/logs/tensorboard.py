"""Reader of TensorBoard's event files: every folder with such files is a run. Hyperparameters are read from the data of
TensorBoard's plug-in HParams."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.core.errors import UserError
from bench.logs.run import Run

KIND = "TensorBoard"
PATTERN = "events.out.tfevents*"
HPARAMS = "hparams"  # the name of TensorBoard's plug-in for hyperparameters


def read(place: Path) -> list[Run]:
    """Return the runs whose event files lie below a folder, or the run in one such file.

    torch's `add_hparams` writes hyperparameters into a folder of their own inside the run's. Therefore a folder with
    settings and series of at most one value is merged into the run whose folder it lies in.

    Raises:
        UserError: the files hold no scalar.
    """
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    folders = sorted({path.parent for path in place.rglob(PATTERN)}) if place.is_dir() else [place]
    below = place if place.is_dir() else place.parent
    found: dict[Path, Run] = {}
    for folder in folders:
        events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
        events.Reload()
        series = {
            tag: [(float(e.step), float(e.value)) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]
        }
        series |= _tensors(events)
        name = folder.relative_to(below).as_posix() if place.is_dir() else folder.parent.name
        found[folder] = Run(name=below.name if name == "." else name, settings=_settings(events), series=series)
    runs: dict[Path, Run] = {}
    for folder, run in found.items():
        parent = next((outer for outer in folder.parents if outer in runs), None)
        if parent is not None and run.settings and all(len(one) < 2 for one in run.series.values()):
            outer = runs[parent]
            joined: dict[str, Sequence[tuple[float, float]]] = dict(run.series) | dict(outer.series)
            runs[parent] = Run(name=outer.name, settings={**outer.settings, **run.settings}, series=joined)
        else:
            runs[folder] = run
    made = [run for run in runs.values() if run.series]
    if not made:
        raise UserError(f"{place} holds event files without a scalar.", "Name the folder of the runs' logs.")
    return made


def _tensors(events: Any) -> dict[str, list[tuple[float, float]]]:
    """Return name -> (step, value) pairs for scalars that are stored as tensors of one element, as TensorFlow 2 writes
    them. `events`: a loaded `EventAccumulator`."""
    from tensorboard.util import tensor_util

    made = {}
    for tag in events.Tags()["tensors"]:
        values = [(float(e.step), tensor_util.make_ndarray(e.tensor_proto)) for e in events.Tensors(tag)]
        if values and all(value.size == 1 and value.dtype.kind in "fiu" for _, value in values):
            made[tag] = [(step, float(value.reshape(()))) for step, value in values]
    return made


def _settings(events: Any) -> dict[str, Any]:
    """Return the hyperparameters of a run, by name; an empty dict if it has none. `events`: a loaded
    `EventAccumulator`."""
    from tensorboard.plugins.hparams import plugin_data_pb2

    made: dict[str, Any] = {}
    try:
        contents = events.PluginTagToContent(HPARAMS)
    except KeyError:
        return made
    for content in contents.values():
        data = plugin_data_pb2.HParamsPluginData.FromString(content)
        for name, value in data.session_start_info.hparams.items():
            made[name] = getattr(value, value.WhichOneof("kind")) if value.WhichOneof("kind") else None
    return made
