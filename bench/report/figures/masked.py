"""Figure that compares masked patch prediction with training from scratch and with pre-training on labels; section 4.6
of the ViT paper."""

from __future__ import annotations

from bench.analysis.evidence import HEADLINE, UPSTREAM, Evidence
from bench.questions.as_published import MASKED, Ablations, ways
from bench.report.figures import _panels, _variants
from bench.report.figures.figure import Drawing, Figure, NothingToDraw

TITLE = "Masked patch prediction"
WAYS = {"scratch": "None", "masked": "Masked", "labels": "Labels"}
# Target of the prediction -> its name (appendix B.1.2).
TARGETS = {"mean": "mean colour", "small": "4 × 4 colours", "pixels": "pixels"}
UNTRAINED = (
    "Fine-tuned at equal compute: without pre-training, fine-tuning takes longer by as many images. The few-shot probe "
    "trains no network: there “None” is the untrained one."
)
TRAINED = "“None” is trained on the labels of the target set alone, and then fine-tuned on it like the others."


def draw(evidence: Evidence) -> Drawing:
    """Draw one point per way to pre-train: the mean over the main tasks or, if there is none, accuracy after
    fine-tuning."""
    by = ways(evidence)
    if not {"scratch", "masked"} <= by.keys():
        raise NothingToDraw("no masked patch prediction beside training from scratch")
    measures = sorted(_panels.measures_of(evidence), key=lambda m: (m != HEADLINE, ":" not in m))
    shown = {name: by[way] for way, name in WAYS.items() if way in by}
    if others := {
        f"{WAYS['masked']}: {TARGETS[target]}": setting.point
        for target in TARGETS
        for setting in Ablations(evidence).on(MASKED)
        if setting.options.get("masked_target") == target
    }:
        mean = {f"{WAYS['masked']}: {TARGETS['mean']}": shown.pop(WAYS["masked"])}
        labels = {name: shown.pop(name) for name in [WAYS["labels"]] if name in shown}
        shown |= mean | others | labels
    curve = _variants.Curve(label="", points=tuple((float(x), point) for x, point in enumerate(shown.values())))
    return _variants.draw(
        evidence,
        [curve],
        measures=[m for m in measures if m != UPSTREAM][:1],  # single tasks are in the tables
        x_label="Pre-training",
        x_name="pretraining",
        ticks=tuple(shown),
        alt=f"{TITLE}: accuracy by way to pre-train.",
        caption=f"{by['masked'].model.partition(':')[0]}, pre-trained on {by['masked'].data} by predicting masked "
        "patches, with its labels, or not at all. " + (TRAINED if by["scratch"].trained else UNTRAINED),
    )


FIGURE = Figure(title=TITLE, draw=draw)
