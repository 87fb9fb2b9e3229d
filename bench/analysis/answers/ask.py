"""Puts every question to the records."""

from __future__ import annotations

from collections.abc import Sequence

from bench.analysis.answers import design, order, ratio, saturation, target
from bench.analysis.answers.answer import Answer
from bench.analysis.evidence import Evidence
from bench.analysis.laws import COMPUTE, IMAGES, Law, laws


def answers(evidence: Evidence, *, accuracy: float | None = None) -> list[Answer]:
    """Every answer, in order of questions; () where no family has points enough for a law.

    Args:
        accuracy: of "how much is needed for it", 0..1; by default one that every family reached.
    """
    if "answers" not in evidence.cache or accuracy is not None:
        found = _ask(evidence, accuracy)
        if accuracy is not None:
            return found
        evidence.cache["answers"] = found
    return list(evidence.cache["answers"])


def _ask(evidence: Evidence, accuracy: float | None) -> list[Answer]:
    by_compute, by_images = laws(evidence, axis=COMPUTE), laws(evidence, axis=IMAGES)
    vit, resnet, hybrid = (pick(by_compute, kind) for kind in ("vit", "resnet", "hybrid"))
    found = ratio.ratios(by_compute)
    if vit and resnet:
        found.append(order.overtakes(vit, resnet))
    if vit and hybrid:
        found += [order.shrinks(vit, hybrid), order.stops(vit, hybrid)]
    vit_images, resnet_images = pick(by_images, "vit"), pick(by_images, "resnet")
    if vit_images and resnet_images:
        found.append(order.overtakes(vit_images, resnet_images))
    found += [saturation.saturation(law) for law in by_compute.values()]
    for family_laws in (by_compute, by_images):
        wanted = accuracy if accuracy is not None else target.default_target(family_laws)
        every = ", which every family reached" if len(family_laws) > 1 else ", the best reached"
        why = every if accuracy is None else ""
        found += [target.needed(law, wanted, why=why) for law in family_laws.values() if wanted is not None]
    return found + design.next_runs(by_compute)


NAMES = {"vit": ("vit",), "resnet": ("bit", "resnet"), "hybrid": ("hybrid", "r+vit")}


def pick(found: dict[str, Law], kind: str) -> Law | None:
    """The family of one kind, whatever it is called here."""
    name = family(list(found), kind)
    return found[name] if name else None


def family(names: Sequence[str], kind: str) -> str | None:
    """The first name of a kind: "vit", "resnet" or "hybrid"."""
    return next((name for name in names if name.lower().startswith(NAMES[kind])), None)
