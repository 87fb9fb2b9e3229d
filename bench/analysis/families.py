"""Kinds of families, by what their names begin with: order, colours and the paper's claims go by them."""

from __future__ import annotations

from collections.abc import Collection

VIT, HYBRID, RESNET = KINDS = "ViT", "Hybrid", "ResNet"  # in order: the subject, its hybrids, what it is compared with
BEGINNINGS = {
    "vit": VIT,
    "hybrid": HYBRID,
    "r+vit": HYBRID,
    "resnet+vit": HYBRID,
    "bit": RESNET,
    "resnet": RESNET,
}


def kind_of(family: str) -> str | None:
    """The kind of a family, whatever it is called here; None of other families."""
    return next((kind for start, kind in BEGINNINGS.items() if family.lower().startswith(start)), None)


def family_of_kind(names: Collection[str], kind: str) -> str | None:
    """The first of these names that is a family of a kind, e.g. of `VIT`; None where none is."""
    return next((name for name in names if kind_of(name) == kind), None)
