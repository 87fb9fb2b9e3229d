"""Read and write the grid of cells that was planned most recently for a study.

plan.json lists the cells of the grid, so that a report can name the cells that were never started; study.toml is the
study file (options of `vit-bench run`) that asks for this grid. In these functions `study` is the folder of the study.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import SCHEMA_VERSION
from bench.core import files
from bench.core.errors import UserError
from bench.store.records import check_schema

PLAN_FILE, STUDY_FILE = "plan.json", "study.toml"
FIELDS = frozenset(("schema", "suite", "scale", "cells"))


@dataclass(frozen=True, kw_only=True)
class WantedCells:
    """The cells of a study's whole grid, including cells that the option --only left out of a run.

    Attributes:
        suite: name of the suite.
        scale: name of its scale.
        names: folder names of the cells.
        refused: folder name of each cell that cannot be run -> the reason.
        downstream: data sets that the user named to evaluate models on; () for the suite's own choice.
    """

    suite: str
    scale: str
    names: tuple[str, ...]
    refused: Mapping[str, str] = field(default_factory=dict)
    downstream: tuple[str, ...] = ()


def write(study: Path, wanted: WantedCells) -> None:
    """Write the grid `wanted` to `study`/plan.json, unless the file already has these contents."""
    cells = sorted(set(wanted.names))
    body = {"schema": SCHEMA_VERSION, "suite": wanted.suite, "scale": wanted.scale, "cells": cells}
    body |= {"refused": dict(wanted.refused)} if wanted.refused else {}
    body |= {"downstream": list(wanted.downstream)} if wanted.downstream else {}
    path, data = study / PLAN_FILE, files.sealed(body)
    if not path.is_file() or path.stat().st_size != len(data) or path.read_bytes() != data:
        files.write_bytes(path, data)


def write_study_file(study: Path, text: str) -> None:
    """Write the study file `text` to `study`/study.toml, unless `text` is empty or the file already has this text."""
    path = study / STUDY_FILE
    data = f"# What this folder's results were asked for: python -m bench.run {STUDY_FILE}\n{text}".encode()
    if text and (not path.is_file() or path.stat().st_size != len(data) or path.read_bytes() != data):
        files.write_bytes(path, data)


def says_more(study: Path) -> bool:
    """Return whether `study`/study.toml has any options besides `suite` and `scale`."""
    return bool(_asked(study).keys() - {"suite", "scale"})


def targets(study: Path) -> tuple[float, ...]:
    """Return the target accuracies in (0, 1) that `study`/study.toml names; () if it names none."""
    asked = _asked(study).get("target", [])
    shares = [float(share) for share in asked if isinstance(share, float)] if isinstance(asked, list) else []
    return tuple(share for share in shares if 0 < share < 1)


def forecast_at(study: Path) -> float | None:
    """Return the training FLOPs for which `study`/study.toml asks for a forecast; None if it asks for none."""
    asked = _asked(study).get("at")
    return float(asked) if isinstance(asked, int | float) and asked > 0 else None


def is_rehearsal(study: Path) -> bool:
    """Return whether `study`/study.toml asks for a rehearsal, a trial run on shrunk networks and data."""
    return _asked(study).get("rehearse") is True


def _asked(study: Path) -> dict[str, Any]:
    """Return option -> value as they are in `study`/study.toml; an empty dict if the file cannot be read."""
    try:
        return tomllib.loads(files.read_whole(study / STUDY_FILE).decode())
    except (OSError, ValueError, RecursionError):
        return {}


def read(study: Path) -> WantedCells | None:
    """Return the most recently planned grid from `study`/plan.json; None if no run has written that file.

    Raises:
        UserError: plan.json is damaged, or a newer version of the project wrote it.
    """
    path = study / PLAN_FILE
    if not path.exists():
        return None
    try:
        match files.read_sealed(path, legacy_fields=FIELDS):
            case {"schema": int(version), "suite": str(suite), "scale": str(scale), "cells": [*names], **more}:
                refused = dict(more.get("refused", {}))  # type: ignore[call-overload]
                downstream = _names(more.get("downstream", []))
                cells = _names(names)
                wanted = WantedCells(suite=suite, scale=scale, names=cells, refused=refused, downstream=downstream)
            case _:
                raise ValueError("not what is written here")
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"{path} is damaged.", "Delete this one file: the next run writes it again.") from error
    check_schema(path, version)
    return wanted


def _names(values: object) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{values!r} are no names")
    return tuple(values)


def never_started(wanted: WantedCells | None, present: Iterable[str]) -> tuple[str, ...]:
    """Return the folder names of the cells in the grid `wanted` that are not among the names of existing folders,
    `present`; () if there is no grid."""
    there = set(present)
    return tuple(name for name in wanted.names if name not in there) if wanted else ()
