"""Compare our exaFLOPs with those of the ViT paper, for every row of its Table 6.

The rule that reproduces the paper's column: 6 x forward MACs at 224 px ("paper" convention: taps of convolutions that
read zero padding do not count) x epochs x images per epoch of JFT-300M. ViTs and hybrids are counted as pre-trained:
with a hidden layer before the head.
"""

from __future__ import annotations

from dataclasses import dataclass

from baselines import published
from bench.cost.flops import count, exaflops
from bench.study import registry

JFT_IMAGES = 303_000_000
JFT_CLASSES = 18_291
IMAGE_SIZE = 224
TOLERANCE = 0.015
WIDER_TOLERANCES: dict[tuple[str, int], float] = {("R50x1+ViT-L/16", 7): 0.035, ("ViT-B/32", 7): 0.025}
"""Row of Table 6, (name, epochs), that contradicts other numbers of the paper (`published.CONTRADICTED`) -> relative
deviation that is allowed there."""


@dataclass(frozen=True, kw_only=True)
class PaperRow:
    """One row of the ViT paper's Table 6, with our count of it.

    Attributes:
        printed: the model's name in the table.
        model: the model's name in this project.
        epochs: epochs of pre-training.
        forward_macs: forward MACs per image, "paper" convention.
        ours, theirs: training compute in exaFLOPs, as counted here and as printed.
        tolerance: relative deviation of `ours` from `theirs` that is allowed.
        note: how the row contradicts other numbers of the paper; "" if it does not.
    """

    printed: str
    model: str
    epochs: int
    forward_macs: int
    ours: float
    theirs: float
    tolerance: float
    note: str

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs

    @property
    def within(self) -> bool:
        return abs(self.ratio - 1) <= self.tolerance


def rows() -> list[PaperRow]:
    """Return all rows of the ViT paper's Table 6 in its order. Every model is counted once, on the meta device."""
    result = []
    for entry in published.table("table6"):
        model, epochs = published.model_name(entry["name"]), int(entry["epochs"])
        cost = count(
            model,
            image_size=IMAGE_SIZE,
            num_classes=JFT_CLASSES,
            model_options=() if registry.family_of(model).label == "ResNet" else (("head", "mlp"),),  # in pre-training
            activations=False,
        )
        key = entry["name"], epochs
        row = PaperRow(
            printed=entry["name"],
            model=model,
            epochs=epochs,
            forward_macs=cost.forward_macs["paper"],
            ours=exaflops(cost, images_seen=epochs * JFT_IMAGES),
            theirs=float(entry["exaFLOPs"]),
            tolerance=WIDER_TOLERANCES.get(key, TOLERANCE),
            note=published.CONTRADICTED.get(key, ""),
        )
        result.append(row)
    return result
