"""Turn published checkpoints into records, so that every question that is asked of a study can be asked of them.

A row of the table `checkpoints` of `bench.published.public_models` becomes a record with one horizon (budget) if all
stages of its training are known and it did not learn from another network. Families are architectures. The records are
no controlled comparison: authors, years, recipes and test sizes differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import pandas as pd

from bench.analysis import evidence as evidence_module
from bench.analysis.evidence import UPSTREAM, Evidence
from bench.analysis.study_data import Records
from bench.core.environment import Environment
from bench.published import public_models
from bench.study.cell import Cell
from bench.study.record import Cost, DataFacts, Execution, Horizon, ModelFacts, Operations, Record, Score

SUITE = "published"
QUESTION = "what do published networks reach, and at which cost?"
SOURCE = f"timm, open_clip ({public_models.VERSION}) and papers' own tables (baselines/published/SOURCES.md)"
TEST, TEST_IMAGES, CLASSES = "imagenet", 50_000, 1000
HEADLINE = f"finetune:{TEST}"
SETS: Mapping[str, str] = MappingProxyType({"in1k": TEST, "in21k": "imagenet-21k", "in22k": "imagenet-21k"})
"""Name of a pre-training set in the published tables -> its name in this project, for the sets that a study can train
on."""
ALL_OF_A_SET = 0.9  # fraction of a set's images that counts as all of them: a study may set some aside


def is_public(evidence: Evidence) -> bool:
    """Return whether evidence is that of the published tables (and not of a study), to which questions about published
    networks belong."""
    return evidence.suite == SUITE


def checkpoints() -> pd.DataFrame:
    """Return the rows of the table `checkpoints` whose recipe is known, one per checkpoint and test size, with two more
    columns: `error` on ImageNet (percent), and `upstream`, the group of the pre-training set; unions of sets count as
    ImageNet-21k."""
    table = public_models.table()
    known = table[table["stages"] != ""]
    upstream = known["pretrain_group"].replace("merged sets", "ImageNet-21k")
    return known.assign(error=100 - known["in1k_top1"], upstream=upstream)


@lru_cache(maxsize=1)
def evidence() -> Evidence:
    """Return all checkpoints with a known cost as evidence, with one record per checkpoint and test size."""
    return _evidence(lambda row: "finetune")


def beside(study: Evidence) -> Evidence | None:
    """Return as evidence the published checkpoints that can be shown beside a study; None if there are none.

    These are checkpoints that were trained on a set that the study trained on as a whole, and tested at the size of the
    study's images. The accuracy of checkpoints trained on ImageNet-1k alone counts as upstream accuracy (on the
    pre-training set), that of the others as accuracy after fine-tuning.
    """
    images, sizes = public_models.images_of_sets(), set(study.horizons["image_size"].dropna().astype(int))
    most = {point.data: point.num_images for point in sorted(study.points.values(), key=lambda p: p.num_images)}
    whole = {name for name, ours in SETS.items() if most.get(ours, 0) >= ALL_OF_A_SET * images[name]}
    if not whole:
        return None

    def task(row: Any) -> str:
        if row.pretrain_set not in whole or row.image_size not in sizes:
            return ""
        return UPSTREAM if SETS[row.pretrain_set] == TEST else "finetune"

    public = _evidence(task)
    return public if public.records.records else None


def _evidence(task: Callable[[Any], str]) -> Evidence:
    """Return checkpoints with a known cost as evidence. `task` is a function from a row of the table to the task as
    which the row's accuracy on ImageNet-1k counts; "" leaves the row out."""
    table = checkpoints()
    known = table[table["complete"] & ~table["teacher"]]
    rows: Iterable[Any] = known.itertuples(index=False)
    made = sorted((_record(row, name) for row in rows if (name := task(row))), key=lambda record: record.directory)
    return evidence_module.build(
        Records(suite=SUITE, records=tuple(made)),
        headline=(HEADLINE,),
        question=QUESTION,
        data_kinds={TEST: "photographs"},
        published=True,
        source=SOURCE,
        controlled=False,
    )


def _record(row: Any, task: str) -> Record:
    name, images, accuracy = f"{row.model}-{row.image_size}", int(row.pretrain_images), row.in1k_top1 / 100
    flops = Operations(dense=row.train_exaflops * 1e18, paper=row.train_exaflops_paper * 1e18)
    score = Score(
        task=task,
        data=TEST,
        metric="accuracy",
        value=accuracy,
        stderr=(accuracy * (1 - accuracy) / TEST_IMAGES) ** 0.5,
        num_test=TEST_IMAGES,
        num_classes=CLASSES,
        chance=1 / CLASSES,
    )
    upstream = SETS.get(row.pretrain_set, row.pretrain_set)
    size = {"image_size": row.image_size, "channels": 3}
    data = DataFacts(name=upstream, kind="photographs", num_images=images, num_classes=None, **size)
    seen = int(row.images_seen)
    return Record(
        suite=SUITE,
        cell_id=name,
        directory=name,
        revisions={},
        status="complete",
        source=row.source,
        cell=Cell(model=row.model, data=upstream, num_images=images, axes=("compute",), horizons=(seen,), **size),
        model=ModelFacts(
            name=row.model,
            family=row.family,
            params=round(row.params_m * 1e6),
            forward_macs=Operations(dense=row.gmacs * 1e9, paper=row.gmacs_paper * 1e9),
        ),
        data=data,
        horizons=(
            Horizon(images_seen=seen, unique_images=images, train_flops=flops, spent_flops=flops, scores=(score,)),
        ),
        execution=Execution(device=""),
        cost=Cost(),
        environment=Environment(),
    )
