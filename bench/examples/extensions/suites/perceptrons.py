"""A suite that trains perceptrons on stripes."""

from typing import Any

from bench.study.cell import Cell, Recipe, TaskSpec
from bench.study.suite import Suite


def cells(options):  # options: scale, models, data, seeds
    common: dict[str, Any] = {
        "data": "stripes",
        "num_images": 200,
        "horizons": (0, 2000),  # images seen; 0: the untrained network
        "tasks": (TaskSpec(task="centroid", data="stripes"),),
        "recipe": Recipe(lr=3e-3, warmup_images=448),
        "axes": ("compute",),
    }
    return [Cell(model=model, **common) for model in options.models or ("MLP-8", "MLP-32")]


SUITE = Suite(
    name="perceptrons",
    question="do perceptrons see stripes?",
    cells=cells,
    figures=("widths",),  # files in bench/report/figures/
    questions=("beats-untrained",),  # files in bench/questions/; without this line every question is asked
    headline=("stripes",),  # downstream sets that answer the question
)
