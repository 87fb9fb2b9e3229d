"""What a study cannot tell, however clear its figures look."""

from __future__ import annotations

import math

from bench.analysis.evidence import Evidence
from bench.core.formatting import flops, join, plural, short_count, significant

PAPER_BEGINS = 50e18
NATURAL_PIXELS = 128  # from this side length on, photographs show most of what they show in full


def limits(evidence: Evidence) -> tuple[str, ...]:
    """Sentences on range, size, data, noise and method; only those that apply."""
    trained = [p for s in evidence.series for p in s.points]
    if not trained:
        return ("How accurate the models are: none was trained to the end.",)
    sentences = (_range(evidence), _data(evidence), _noise(evidence), _tests(evidence), _method(evidence))
    return tuple(text for text in sentences if text)


def _range(evidence: Evidence) -> str:
    points = [p for s in evidence.on_axis("compute") for p in s.points if p.train_flops > 0]
    if not points:
        return ""
    low, high = min(p.train_flops for p in points), max(p.train_flops for p in points)
    largest = max(p.params for p in points)
    text = (
        f"Anything outside {flops(low)} to {flops(high)} (a factor of {significant(high / low, 2)}) or above "
        f"{short_count(largest)} parameters: an answer that reaches beyond says by how much."
    )
    if evidence.published or high >= PAPER_BEGINS:
        return text
    begins = f"The ViT paper's Figure 5 starts at {flops(PAPER_BEGINS)}"
    return f"{text} {begins}, {_times(PAPER_BEGINS / high)} the largest budget here."


def _times(ratio: float) -> str:
    for scale, name in ((1e9, " billion"), (1e6, " million"), (1.0, "")):
        if ratio >= scale:
            return f"about {significant(ratio / scale, 1)}{name} times"
    return f"{significant(ratio, 1)} times"


def _data(evidence: Evidence) -> str:
    upstream = sorted({(s.last.data, s.last.kind) for s in evidence.series})
    most = max(p.num_images for s in evidence.series for p in s.points)
    size = evidence.horizons["image_size"].max()
    text = f"Pre-training used at most {most:,} images of {join([f'{name} ({kind})' for name, kind in upstream])}"
    text += f" at {size:.0f} px" if not math.isnan(size) else ""
    rendered = [name for name, kind in upstream if kind == "rendered"]
    text += "; results on rendered images need not hold for photographs" if rendered else ""
    if not rendered and size >= NATURAL_PIXELS:
        return f"{text}: whether other images lead to the same laws is not shown."
    return text + "; whether natural images at full resolution behave alike is not shown."


def _noise(evidence: Evidence) -> str:
    trained = [p for p in evidence.points.values() if p.trained]
    if all(len(p.seeds) == 1 for p in trained):
        return "How much of a difference is luck in training: every model was trained with one seed."
    few = sorted({p.series for p in trained if len(p.seeds) < 3})
    return "How much seeds differ is known roughly: fewer than three seeds for " + (
        f"{join(few)}." if len(few) <= 4 else f"{len(few)} models."
    ) if few else ""


def _tests(evidence: Evidence) -> str:
    number = sum(1 for s in evidence.on_axis("compute") for _ in s.points)
    if evidence.published:
        return f"Each interval stands alone, and {number} published rows are few for a law per family."
    return (
        f"Each interval stands alone at {evidence.level:.0%}, with {plural(number, 'trained point')} to compare: of "
        f"differences that do not exist, {1 - evidence.level:.0%} still lie beyond theirs."
    )


def _method(evidence: Evidence) -> str:
    if evidence.published:
        return (
            "What other recipes would have given: rows are quoted as published, each family trained and fine-tuned as "
            "its authors chose. A difference between families includes the difference between their recipes."
        )
    text = "How models would rank with recipes tuned for each"
    probed = any(":" not in measure for measure in evidence.headline)
    text += ", or fine-tuned: few-shot probes read frozen features." if probed else "."
    families = len({s.family for s in evidence.series})
    between = " A difference between families includes the difference between their recipes."
    return text + between if families > 1 else text
