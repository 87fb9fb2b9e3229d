"""What makes points unfit to stand in one law: refused by `laws`, said by `checks`. Read from records alone."""

from __future__ import annotations

from collections.abc import Iterable

from bench.analysis.evidence import Evidence, Point
from bench.core.formatting import join, plural, significant
from bench.core.spec import Recipe

UNITS_APART = 1.4  # counts of one convention agree to a few per cent; MACs, or forward alone, are off by 2 or 3
MAX_WARMUP = 0.1
CAP = 0.25  # of the shortest horizon, at which training ends a warm-up (`bench.train.schedule.warmup_steps`)


def refusal(evidence: Evidence, points: Iterable[Point]) -> str | None:
    """Why these points do not belong in one law, or None."""
    found = list(points)
    annealed = {point: _recipe(evidence, point).cooldown for point in found}
    without = sum(value == 0 for value in annealed.values())
    if without and any(value for value in annealed.values()):
        return f"{plural(without, 'point')} not cooled down beside others that were: in mid-schedule they look worse"
    data = sorted({p.data for p in found if p.trained})
    if len(data) > 1:
        return f"points were pre-trained on different data sets ({join(data)})"
    wrong = units(found)
    return wrong[0] if wrong else None


def units(points: Iterable[Point]) -> list[str]:
    """Models whose compute contradicts their own multiply-adds: training takes 6 FLOPs per multiply-add and image."""
    found = []
    for model, ratio in sorted({(p.model, _ratio(p)) for p in points if p.trained and p.forward_macs > 0}):
        if not 1 / UNITS_APART < ratio < UNITS_APART:
            found.append(f"{model}: compute is {significant(ratio, 2)} times 6 FLOPs per multiply-add and image")
    return list(dict.fromkeys(found))


def _ratio(point: Point) -> float:
    return round(point.train_flops / (6 * point.forward_macs * point.images_seen), 2)


def long_warmup(evidence: Evidence) -> list[str]:
    """Models whose warm-up takes more than a tenth of their shortest run."""
    found = {}
    for series in evidence.on_axis("compute"):
        first = series.points[0]
        images = _recipe(evidence, first).warmup_images
        if images and images > MAX_WARMUP * first.images_seen:
            found[series.label] = min(images / first.images_seen, CAP)
    if not found:
        return []
    most = max(found, key=lambda name: found[name])
    return [f"Warm-up takes up to {found[most]:.0%} of the shortest run ({most}): short runs look worse than they are, "
            "which bends exponents."]  # fmt: skip


def _recipe(evidence: Evidence, point: Point) -> Recipe:
    recipes = evidence.cache.get("recipes")
    if recipes is None:
        table = evidence.horizons.drop_duplicates("variant")
        recipes = dict(zip(table["variant"], table["recipe"], strict=True))
        evidence.cache["recipes"] = recipes
    found: Recipe = recipes[point.variant]
    return found
