"""Reads the findings that a report has saved in findings.json back into dataclasses."""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.analysis.finding import BeginsLater, BestAbsent, Difference, Finding, Item, LawDeviation, SeveralModels
from bench.analysis.question import load
from bench.core.errors import UserError
from bench.core.files import read_whole
from bench.store.records import build, check_schema

NAME = "findings.json"
SCHEMA = 3
SHARED_KINDS = (Difference, LawDeviation, SeveralModels, BeginsLater, BestAbsent)
SHARED: Mapping[str, type[Item]] = {kind.KIND: kind for kind in SHARED_KINDS}
"""Classes of evidence that findings of several questions hold, by their name in JSON. A question may have more."""


def read(folder: Path) -> tuple[Finding, ...]:
    """Return the findings of a study's report; () if no report was built.

    Args:
        folder: `results/<suite>`.

    Raises:
        UserError: the file is damaged, or another version of this project wrote it.
    """
    path = folder / NAME
    if not path.exists():
        return ()
    again = f"Build the report again: vit-bench report --results {folder.parent} --suite {folder.name}"
    try:
        body = json.loads(read_whole(path))
        check_schema(path, body["schema"], newest=SCHEMA)
        if body["schema"] != SCHEMA:
            raise UserError(f"{path} was written by an older version of this project.", again)
        return tuple(map(_finding, body["findings"]))
    except (OSError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path} is damaged: {type(error).__name__}: {error}.", again) from error


def _finding(body: Mapping[str, Any]) -> Finding:
    kinds = {**SHARED, **{kind.KIND: kind for kind in load(body["question"]).items}}
    evidence = tuple(_item(kinds[item["kind"]], item) for item in body["evidence"])
    return replace(build(Finding, {**body, "evidence": ()}), evidence=evidence)


def _item(kind: type[Item], body: Mapping[str, Any]) -> Item:
    """Build an item of evidence, of the class `kind`, from JSON. JSON has no NaN, so a null in a field of type float
    becomes NaN."""
    return build(kind, {name: float("nan") if v is None and name in _numbers(kind) else v for name, v in body.items()})


def _numbers(kind: type) -> frozenset[str]:
    return frozenset(name for name, hint in typing.get_type_hints(kind).items() if hint is float)
