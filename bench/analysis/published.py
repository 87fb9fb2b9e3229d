"""Makes evidence of the ViT paper's printed results, so that every question and figure also works on them: its scaling
study (Table 6, Figure 5), its comparison of pre-training sets (Table 5, Figure 3) and its VTAB scores (Table 9, Figure
2).

ExaFLOPs, epochs and accuracies are taken as printed. Added from elsewhere are the sizes of the test sets and the
numbers of classes (from the data sets), and the numbers of parameters (counted on this project's models with 1000
classes). Forward multiply-adds follow from the exaFLOPs: compute = 6 x MACs x epochs x 303 million images. Tables 5 and
9 print neither epochs nor compute; there, `images_seen` is the size of the pre-training set, which only means that the
network was trained. Seeds, seconds and core-days are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType

from baselines.published import SOURCE, model_name, number, table
from bench.analysis import evidence as evidence_module
from bench.analysis.evidence import Evidence
from bench.analysis.study_data import Records
from bench.core.by_key import by_key
from bench.core.environment import Environment
from bench.study.cell import Cell
from bench.study.record import Cost, DataFacts, Execution, Horizon, ModelFacts, Operations, Record, Score

SUITE = "paper"
QUESTION = "what does the paper's own Table 6 say about scaling?"
EXA = 1e18
TESTS: Mapping[str, tuple[str, int, int]] = MappingProxyType(
    {
        "ImageNet": ("imagenet", 50_000, 1000),
        "ReaL": ("imagenet-real", 46_837, 1000),
        "CIFAR-10": ("cifar-10", 10_000, 10),
        "CIFAR-100": ("cifar-100", 10_000, 100),
        "Pets": ("pets", 3_669, 37),
        "Flowers": ("flowers", 6_149, 102),
    }
)
"""For each column of Table 6: (data set, test images, classes). ReaL leaves out validation images without a label."""
COLUMNS = {"ImageNet-ReaL": "ReaL", "Oxford-IIIT-Pets": "Pets", "Oxford-Flowers-102": "Flowers"}
"""Name of a row of Table 5 -> name of the same data set in Table 6."""
FIVE = ("ImageNet", "CIFAR-10", "CIFAR-100", "Pets", "Flowers")
"""The data sets of "Average-5" in Figure 5, an unweighted mean without ReaL."""
HEADLINE = tuple(f"finetune:{TESTS[column][0]}" for column in FIVE)

JFT = "JFT-300M"
UPSTREAM = {
    "ImageNet": ("imagenet", 1_281_167, 1000),
    "ImageNet-21k": ("imagenet-21k", 14_000_000, None),
    JFT: ("jft-300m", 303_000_000, 18_291),
}
"""Printed name of a pre-training set -> (data set, number of images, number of classes or None if unknown)."""
FULL_NAMES = {"JFT": JFT, "I21k": "ImageNet-21k"}

VTAB = {
    "natural": ("Caltech101", "CIFAR-100", "DTD", "Flowers102", "Pets", "Sun397", "SVHN"),
    "specialised": ("Camelyon", "EuroSAT", "Resisc45", "Retinopathy"),
    "structured": (
        "Clevr-Count",
        "Clevr-Dist",
        "DMLab",
        "dSpr-Loc",
        "dSpr-Ori",
        "KITTI-Dist",
        "sNORB-Azim",
        "sNORB-Elev",
    ),
}
VTAB_TEST = 711
"""Number of images of VTAB's smallest test set, KITTI's. The paper prints no intervals; with this number they are wider
rather than narrower."""


@cache
def evidence() -> Evidence:
    """Return Table 6 of the ViT paper as evidence: 15 models, 18 runs, one seed each."""
    return _evidence(table6(), headline=HEADLINE, question=QUESTION)


@cache
def figures() -> Mapping[str, Evidence]:
    """Return, for every figure that can be drawn from a table of the ViT paper (6, 5 or 9), name of the figure ->
    evidence from that table. Figures draw these points hollow."""
    scaling = evidence()
    drawn = {
        "compute": scaling,
        "laws": scaling,
        "pretraining-data": _evidence(table5(), headline=HEADLINE),
        "groups": _evidence(table9()),
    }
    return MappingProxyType(drawn)


def _evidence(records: Sequence[Record], *, headline: tuple[str, ...] = (), question: str = "") -> Evidence:
    ordered = tuple(sorted(records, key=lambda record: record.directory))
    kinds = {data: "photographs" for data, _, _ in TESTS.values()} if headline else {}
    return evidence_module.build(
        Records(suite=SUITE, records=ordered),
        headline=headline,
        question=question,
        data_kinds=kinds,
        published=True,
        source=SOURCE,
    )


# -- tables as records -------------------------------------------------------------------------------------------------


def table6() -> list[Record]:
    """Return Table 6 of the ViT paper as records: one per model, with one horizon (budget) per number of epochs,
    although each was a separate run."""
    by_name = by_key((row["name"], row) for row in sorted(table("table6"), key=lambda row: int(row["epochs"])))
    made = []
    for printed, rows in by_name.items():
        images = UPSTREAM[JFT][1]
        macs = float(rows[-1]["exaFLOPs"]) * EXA / (6 * int(rows[-1]["epochs"]) * images)
        horizons = [
            Horizon(
                images_seen=int(row["epochs"]) * images,
                unique_images=images,
                epochs=float(row["epochs"]),
                train_flops=Operations(paper=float(row["exaFLOPs"]) * EXA),
                spent_flops=Operations(paper=float(row["exaFLOPs"]) * EXA),
                scores=tuple(_score("finetune", column, float(row[column])) for column in TESTS),
            )
            for row in rows
        ]
        cost = Cost(spent_flops=Operations(paper=sum(float(row["exaFLOPs"]) * EXA for row in rows)))
        made.append(_record(printed, JFT, horizons, "Table 6", axis="compute", macs=macs, cost=cost))
    return made


def table5() -> list[Record]:
    """Return Table 5 of the ViT paper as records, one per (model, pre-training set)."""
    rows = table("table5")
    made = []
    for model in [column for column in rows[0] if column not in ("pretrain", "dataset")]:
        for upstream in UPSTREAM:
            printed = {r["dataset"]: number(r[model])[0] for r in rows if r["pretrain"] == upstream}
            values = {COLUMNS.get(name, name): value for name, value in printed.items() if value is not None}
            scores = [_score("finetune", column, value) for column, value in values.items()]
            if scores:
                made.append(_record(model, upstream, [_horizon(upstream, scores)], "Table 5"))
    return made


def table9() -> list[Record]:
    """Return Table 9 of the ViT paper as records, one per model."""
    made = []
    for row in table("table9"):
        model, _, short = row["model"].partition(" ")
        upstream = FULL_NAMES[short.strip("()")]
        grouped = [(group, task) for group, tasks in VTAB.items() for task in tasks]
        scores = [_score("vtab", task, float(row[task]), group=group) for group, task in grouped]
        made.append(_record(model, upstream, [_horizon(upstream, scores)], "Table 9"))
    return made


def family(printed: str) -> str:
    """Return the family of a model by its printed name, as in the legend of the ViT paper's Figure 5: ViT, ResNet or
    Hybrid."""
    return "Hybrid" if "+" in printed else "ViT" if printed.startswith("ViT") else "ResNet"


def _horizon(upstream: str, scores: Sequence[Score]) -> Horizon:
    images = UPSTREAM[upstream][1]
    return Horizon(images_seen=images, unique_images=images, scores=tuple(scores))


def _score(task: str, column: str, percent: float, *, group: str | None = None) -> Score:
    """Return a printed accuracy as a score. Its standard error over test images is the binomial one, because the ViT
    paper prints none for these tables.

    Args:
        task: name of the task, such as "finetune".
        column: printed name of the data set.
        percent: the printed accuracy.
        group: group of the VTAB task; None if the task is not of VTAB.
    """
    data, tests, classes = (column.lower(), VTAB_TEST, None) if group else TESTS[column]
    value = percent / 100
    return Score(
        task=task,
        data=data,
        metric="accuracy",
        value=value,
        stderr=(value * (1 - value) / tests) ** 0.5,
        num_test=tests,
        num_classes=classes,
        chance=1 / classes if classes else None,
        detail={"group": group} if group else {},
    )


def _record(
    printed: str,
    upstream: str,
    horizons: Sequence[Horizon],
    source: str,
    *,
    axis: str = "upstream",
    macs: float | None = None,
    cost: Cost | None = None,
) -> Record:
    name, (data, images, classes) = model_name(printed), UPSTREAM[upstream]
    size = next(row for row in table("table6_sizes") if row["name"] == printed)
    directory = f"{name.lower().replace('/', '-').replace('+', '-')}_{data}"
    return Record(
        suite=SUITE,
        cell_id=directory,
        directory=directory,
        revisions={},
        status="complete",
        source=f"{SOURCE}, {source}",
        cell=Cell(
            model=name,
            data=data,
            num_images=images,
            image_size=224,
            channels=3,
            axes=(axis,),
            horizons=tuple(horizon.images_seen for horizon in horizons),
        ),
        model=ModelFacts(
            name=name,
            family=family(printed),
            params=int(size["params"]),
            params_body=int(size["params_body"]),
            forward_macs=Operations(paper=macs),
        ),
        data=DataFacts(
            name=data, kind="photographs", num_images=images, num_classes=classes, image_size=224, channels=3
        ),
        horizons=tuple(horizons),
        execution=Execution(device="TPUv3"),
        cost=cost or Cost(),
        environment=Environment(),
    )
