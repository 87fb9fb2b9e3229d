"""Assigns model families to kinds (ViT, hybrid, ResNet) by the beginning of their names. The order of families, their
colours and the ViT paper's claims depend on the kind."""

from __future__ import annotations

from collections.abc import Collection

VIT, HYBRID, RESNET = KINDS = "ViT", "Hybrid", "ResNet"  # in the order of tables and legends
BEGINNINGS = {
    "vit": VIT,
    "hybrid": HYBRID,
    "r+vit": HYBRID,
    "resnet+vit": HYBRID,
    "bit": RESNET,
    "resnet": RESNET,
}


def kind_of(family: str) -> str | None:
    """Return the kind of a family ("ViT", "Hybrid" or "ResNet"), by its name; None for other families."""
    return next((kind for start, kind in BEGINNINGS.items() if family.lower().startswith(start)), None)


def family_of_kind(names: Collection[str], kind: str) -> str | None:
    """Return the first of the family `names` that is of a kind, such as `VIT`; None if none is."""
    return next((name for name in names if kind_of(name) == kind), None)
