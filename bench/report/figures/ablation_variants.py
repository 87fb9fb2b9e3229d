"""Figure that compares convolutional stems, axial attention, and optimizers of a ResNet, after the ViT paper's Table 7
and Figure 13."""

from __future__ import annotations

from bench.analysis.evidence import Evidence
from bench.core.formatting import significant
from bench.questions.as_published import OPTIMIZER, STEM, Ablations
from bench.report.figures import _variants
from bench.report.figures.figure import Drawing, Figure, NothingToDraw
from bench.study.names import ModelName

TITLE = "Stem, axial attention, optimizer"
OPTIMIZERS = {"adamw": "Adam", "sgd": "SGD"}


def draw(evidence: Evidence) -> Drawing:
    """Draw accuracy with one point per variant, the worst first."""
    ablations = Ablations(evidence)
    stems = sorted(
        (s.point for s in ablations.on(STEM)), key=lambda p: (p.family, ModelName.parse(p.model).base, p.model)
    )
    made = {f"{p.model.replace(':', ' ')}\n{significant(p.forward_macs / 1e6)} MMACs": p for p in stems}
    for setting in [s for s, _ in ablations.sweeps(OPTIMIZER)] or ablations.on(OPTIMIZER):
        recipe = ablations.recipe(setting.point)
        made[f"{setting.base}\n{OPTIMIZERS[recipe.optimizer]}, {recipe.lr:g}"] = setting.point
    if not made:
        raise NothingToDraw("no stems and optimizers were compared")
    tasks = _variants.judged_by(ablations.whole, made.values())
    measure = next((m for m in tasks if any(ablations.whole.estimate(p, m) for p in made.values())), "")
    scores = {name: e.value for name, point in made.items() if (e := ablations.whole.estimate(point, measure))}
    made = {name: made[name] for name in sorted(scores, key=lambda name: scores[name])}
    curve = _variants.Curve(label="", points=tuple((float(x), p) for x, p in enumerate(made.values())))
    return _variants.draw(
        ablations.whole,
        [curve],
        measures=(measure,),
        x_label="",
        x_name="variant",
        ticks=tuple(made),
        alt=f"{TITLE}: accuracy of each variant.",
        caption="Patches against a convolutional stem (with one layer fewer too, for equal compute), the axial ViT "
        "(the paper's appendix D.6), and a ResNet trained with Adam and with SGD (Table 7), each at the rate chosen by "
        "accuracy on the pre-training set, where there were several.",
    )


FIGURE = Figure(title=TITLE, draw=draw)
