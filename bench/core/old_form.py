"""Plug-ins of the old form, whose facts are names of the module itself. They are taken until the next release."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import Any

FIELDS: Mapping[str, Mapping[str, str]] = {
    "data set": {
        "REVISION": "revision",
        "KIND": "kind",
        "LICENCE": "licence",
        "SOURCE": "source",
        "HOW_TO_GET": "how_to_get",
        "DESCRIPTION": "description",
        "OPTIONS": "options",
        "SPLIT": "split",
        "PINNED": "pinned",
        "SIDE": "side",
        **{name: name for name in ("load", "available", "look", "size", "listed_images", "some_encoded", "indexed")},
    },
    "task": {
        "REVISION": "revision",
        **{name: name for name in ("evaluate", "begin", "forward_images", "solving_seconds")},
    },
    "suite": {
        "QUESTION": "question",
        "FIGURES": "figures",
        "QUESTIONS": "questions",
        "HEADLINE": "headline",
        "FAR": "far",
        "DOWNSTREAM": "downstream",
        "VARIES": "varies",
        "EXCLUSIVE": "exclusive",
        "PURPOSE": "purpose",
        "cells": "cells",
    },
    "figure": {"TITLE": "title", "draw": "draw"},
    "job": {"REVISION": "revision", "run": "run", "expected_seconds": "expected_seconds"},
    "family": {
        "FAMILY": "label",
        "REVISION": "revision",
        "NAMING": "naming",
        "TRAINS": "trains",
        "DROPOUT": "has_dropout",
        "family": "label_of",
        **{name: name for name in ("accepts", "build", "names", "check", "identity", "input_size", "source")},
    },
}
"""Kind of a plug-in -> name in a module of the old form -> field of the object that takes its place."""
NEEDED = {
    "data set": ("load",),
    "task": ("evaluate",),
    "suite": ("QUESTION", "cells"),
    "figure": ("TITLE", "draw"),
    "job": ("run",),
    "family": ("FAMILY", "accepts", "build"),
}
"""Names that a module of the old form has."""


def is_old_form(kind: str, module: ModuleType) -> bool:
    """Whether a module has the names of a plug-in of the old form."""
    return kind in NEEDED and all(hasattr(module, name) for name in NEEDED[kind])


def converted(kind: str, name: str, module: ModuleType, *, type_: Any, export: str) -> Any:
    """The object that a module of the old form would export today, with a notice.

    Args:
        name: of the plug-in.
        type_: class of the object.
        export: what the object is called in a file of today.
    """
    warnings.warn(
        f"{module.__file__} has the old form of a {kind}: its facts are names of the module. Write {export} = "
        f"{type_.__name__}(…) instead (CONTRIBUTING.md); the next release does not take the old form.",
        FutureWarning,
        stacklevel=2,
    )
    facts = {field: getattr(module, old) for old, field in FIELDS[kind].items() if hasattr(module, old)}
    if kind == "family":
        facts["names"] = tuple(facts["names"]()) if "names" in facts else ()
    if kind == "suite":
        facts = {"figures": (), "name": name, **facts}
    if kind == "data set":
        facts = {"name": name, **_facts_of_data_set(module, facts)}
    return type_(**facts)


def _facts_of_data_set(module: ModuleType, facts: dict[str, Any]) -> dict[str, Any]:
    """Fields of a data set that the old form leaves out, or says by other names."""
    facts = {**dict.fromkeys(("kind", "description", "licence", "source", "how_to_get"), ""), **facts}
    options = facts["options"] = facts.get("options") or ""
    facts |= {"takes_side": "px" in options, "takes_colour": ":grey" in options}
    if isinstance(size := getattr(module, "SIZE", None), dict):
        facts |= {"images": (size["train"], size["test"]), "classes": size["classes"], "unopened": True}
    elif stated := getattr(module, "IMAGES", None):
        facts |= {"images": tuple(stated[:2]), "classes": stated[2], "carried_in_part": True}
    return facts
