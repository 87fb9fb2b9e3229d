"""The ViT paper's tables as data, for comparison with our numbers.

Source: Dosovitskiy et al., "An Image is Worth 16x16 Words", arXiv 2010.11929 v2 (ICLR 2021); v1 has other exaFLOPs.
Values are as printed: accuracies in percent, "+-" before a standard deviation, "*" after a number that the paper itself
quotes from elsewhere, empty where the paper prints nothing. `parameter_counts` has the parameters of the official
checkpoints with 1000 classes; `table6_sizes` has those of Table 6's models as built here, with 1000 classes, with and
without head and embeddings.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

SOURCE = "arXiv 2010.11929 v2"

FILES: Mapping[str, str] = MappingProxyType(
    {
        "table1": "table1_variants.csv",
        "table2": "table2_comparison.csv",
        "table3": "table3_pretraining.csv",
        "table4": "table4_finetuning.csv",
        "table5": "table5_by_pretraining_dataset.csv",
        "table6": "table6_scaling.csv",
        "table6_sizes": "table6_sizes.csv",
        "table7": "table7_adam_vs_sgd.csv",
        "table8": "table8_position_embedding.csv",
        "table9": "table9_vtab.csv",
        "parameter_counts": "parameter_counts.csv",
    }
)

CONTRADICTED: Mapping[tuple[str, int], str] = MappingProxyType(
    {
        ("R50x1+ViT-L/16", 7): "859 is not half of the paper's own 14-epoch row (1668 / 2 = 834)",
        ("ViT-B/32", 7): "55 does not follow the rule that gives every other ViT within 0.2 % (56.3)",
    }
)
"""Rows of Table 6, (name, epochs), whose exaFLOPs the paper's other numbers contradict, and how."""


def table(name: str) -> list[dict[str, str]]:
    """Return the rows of a table of FILES ("table6"), each column -> value, with all values as printed.

    Raises:
        KeyError: there is no such table.
    """
    with (Path(__file__).parent / FILES[name]).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def number(text: str) -> tuple[float | None, float | None]:
    """Parse a printed value into (value, standard deviation); "88.55+-0.04" gives both. The standard deviation is None
    if none is printed, and both are None if nothing or NA is printed.

    Of two values, such as "88.4/88.5*", the first one is returned.
    """
    if text.strip() in ("", "NA"):
        return None, None
    value, _, spread = text.split("/")[0].rstrip("*").partition("+-")
    return float(value), float(spread) if spread else None


def model_name(printed: str) -> str:
    """Convert a model's name in the ViT paper's Table 6 to its name in this project: "ResNet152x2" -> "R152x2",
    "R50x1+ViT-L/16" -> "R50+ViT-L/16"."""
    return printed.replace("ResNet", "R").replace("R50x1+", "R50+")
