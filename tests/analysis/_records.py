"""Synthetic records with a known truth: accuracy grows with compute along a power law per family, plus noise."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from bench.store.records import write_record
from bench.store.study import CellDirectory
from bench.study.cell import Cell, Recipe
from bench.study.record import (
    Attempt,
    Cost,
    DataFacts,
    Environment,
    Execution,
    Horizon,
    ModelFacts,
    Operations,
    Record,
    Score,
    Seconds,
    Status,
)

UPSTREAM, HEADLINE, FAR = "glyphs", ("fashion-mnist", "mnist"), ("digits",)
NUM_TEST = {"fashion-mnist": 2000, "mnist": 2000, "digits": 899, "glyphs": 2000}
CLASSES = {"fashion-mnist": 10, "mnist": 10, "digits": 10, "glyphs": 100}
PIXELS = {"fashion-mnist": 0.687, "mnist": 0.66, "digits": 0.875}
UNTRAINED = {"ViT": 0.30, "Hybrid": 0.25, "ResNet": 0.20}
OFFSET = {"fashion-mnist": 0.04, "mnist": 0.02, "digits": 0.08, "glyphs": 0.0}
MODELS = {  # name: (family, body parameters, forward MACs)
    "ViT-nano/7": ("ViT", 60_000, 1_100_000),
    "ViT-mini/7": ("ViT", 210_000, 3_300_000),
    "ViT-small/7": ("ViT", 800_000, 12_000_000),
    "R-mini+ViT-nano/2": ("Hybrid", 90_000, 4_000_000),
    "R-mini+ViT-mini/2": ("Hybrid", 260_000, 8_000_000),
    "ResNet-mini": ("ResNet", 40_000, 3_000_000),
    "ResNet-small": ("ResNet", 160_000, 12_000_000),
    "ResNet-base": ("ResNet", 650_000, 44_000_000),
}
START, END = "2030-01-01T00:00:00.000+00:00", "2030-01-01T00:01:00.000+00:00"
Kind = TypeVar("Kind")


class World:
    """Truth and noise. Fields may be changed before `records()`; everything is a function of `seed`."""

    def __init__(self, *, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.level = {"ViT": 0.62, "Hybrid": 0.68, "ResNet": 0.70}  # accuracy at 1 TFLOP
        self.slope = {"ViT": 0.09, "Hybrid": 0.07, "ResNet": 0.06}  # per decade of compute
        self.data_slope = 0.05  # per decade of distinct images
        self.seed_sd, self.draw_sd, self.noise_sd = 0.006, 0.012, 0.003
        self.seeds, self.draws, self.shots = (0, 1), (0, 1, 2), (1, 5, 10)
        self.horizons = (0, 8_000, 24_000, 72_000)
        self.num_images, self.sizes = 30_000, (300, 1_000, 3_000, 10_000, 30_000)
        self.middle = ("ViT-mini/7", "R-mini+ViT-mini/2", "ResNet-small")  # which parts of the images are read with
        self.models = dict(MODELS)
        self.commit = "0" * 40

    @classmethod
    def small(cls, *, seeds: tuple[int, ...] = (0, 1), models: Sequence[str] = ("ViT-nano/7",)) -> Self:
        """A world of one size, one draw and one shot number: a few records where any will do."""
        world = cls(seed=1)
        world.models = {name: MODELS[name] for name in models}
        world.sizes, world.seeds, world.draws, world.shots = (30_000,), seeds, (0,), (1,)
        return world

    def accuracy(self, family: str, flops: float, num_images: int, task: str) -> float:
        base = self.level[family] + self.slope[family] * np.log10(flops / 1e12)
        return float(np.clip(base + self.data_slope * np.log10(num_images / 30_000) + OFFSET[task], 0.02, 0.99))

    def records(self) -> list[Record]:
        """Compute axis for every model, data-size axis for the middle model of each family, raw pixels."""
        self.draw_offsets = {(task, d): self.rng.normal(0, self.draw_sd) for task in NUM_TEST for d in self.draws}
        self.image_offsets = {task: self.rng.normal(0, 0.009) for task in NUM_TEST}
        middle = self.middle
        records = []
        for name in self.models:
            for size in self.sizes if name in middle else (self.num_images,):
                axes = (*(["compute"] if size == self.num_images else []), *(["data_size"] if name in middle else []))
                records += [self.record(name, size, seed, axes) for seed in self.seeds]
        return [*records, self.pixels()]

    def record(self, name: str, size: int, seed: int, axes: tuple[str, ...]) -> Record:
        family, _, macs = self.models[name]
        offsets = {task: self.rng.normal(0, self.seed_sd) for task in NUM_TEST}
        rows, spent = [], 0
        for seen in self.horizons:
            flops = 6 * macs * seen
            scores = []
            for task in (*HEADLINE, *FAR):
                for shots in self.shots:
                    truth = UNTRAINED[family] + OFFSET[task] if not seen else self.accuracy(family, flops, size, task)
                    truth -= 0.12 * np.log10(10 / shots)
                    for draw in self.draws:
                        noise = self.draw_offsets[task, draw] + offsets[task] + self.image_offsets[task]
                        value = np.clip(truth + noise + self.rng.normal(0, self.noise_sd), 0.01, 0.99)
                        scores.append(score(task, float(value), shots, draw))
            if seen:
                value = self.accuracy(family, flops, size, UPSTREAM) + offsets[UPSTREAM]
                scores.append(score(UPSTREAM, float(value), None, None))
            seconds = flops / 4e10
            rows.append(
                Horizon(
                    images_seen=seen,
                    images_trained=seen,
                    unique_images=min(seen, size),
                    epochs=seen / size,
                    steps=seen // 64,
                    batch=64,
                    train_flops=both(flops),
                    spent_images=seen - round(0.8 * spent),
                    spent_flops=both(6 * macs * (seen - 0.8 * spent)),
                    seconds=Seconds(train=seconds, evaluate=1.5, save=0.2, wait=0.0),
                    images_per_second=seen / seconds if seen else None,
                    flops_per_second=4e10 if seen else None,
                    utilisation=0.31 if seen else None,
                    core_days=2 * seconds / 86400,
                    final_train_loss=3.0 - 0.2 * float(np.log10(flops / 1e9)) if seen else None,
                    scores=tuple(scores),
                )
            )
            spent = seen
        return self.made(name, size, seed, axes, rows)

    def pixels(self) -> Record:
        scores = [
            score(task, float(np.clip(PIXELS[task] + self.draw_offsets[task, d] - 0.12 * np.log10(10 / k), 0, 1)), k, d)
            for task in (*HEADLINE, *FAR)
            for k in self.shots
            for d in self.draws
        ]
        row = Horizon(
            images_seen=0,
            images_trained=0,
            unique_images=0,
            epochs=0.0,
            steps=0,
            batch=64,
            train_flops=both(0),
            spent_images=0,
            spent_flops=both(0),
            seconds=Seconds(train=0.0, evaluate=1.0, save=0.0, wait=0.0),
            core_days=0.0,
            scores=tuple(scores),
        )
        return self.made("pixels", self.num_images, 0, (), [row])

    def made(
        self,
        name: str,
        size: int,
        seed: int,
        axes: tuple[str, ...],
        rows: list[Horizon],
        *,
        status: Status = "complete",
        reason: str | None = None,
    ) -> Record:
        family, params, macs = self.models.get(name, ("Pixels", 0, 0))
        readable = f"{name.lower().replace('/', '-')}_{UPSTREAM}-{size}_s{seed}"
        train = sum((row.seconds.train or 0.0) for row in rows)
        return Record(
            suite="scaling",
            cell_id=readable[-10:],
            directory=f"{readable}-0123456789",
            cell=Cell(
                model=name,
                data=UPSTREAM,
                num_images=size,
                seed=seed,
                axes=axes,
                recipe=Recipe(lr=0.001, batch=64, warmup_images=0),
                horizons=tuple(row.images_seen for row in rows) or (0,),
            ),
            revisions={"model": 1, "recipe": 1, "data:glyphs": 1, "task:fewshot": 1},
            status=status,
            reason=reason,
            model=ModelFacts(
                name=name,
                family=family,
                params=round(params * 1.1),
                params_body=params,
                num_features=64,
                forward_macs=both(macs),
                train_flops_per_image=both(6 * macs),
            ),
            data=DataFacts(
                name=UPSTREAM,
                kind="rendered",
                revision=1,
                num_images=size,
                num_classes=100,
                content_hash="c" * 64,
                image_size=28,
                channels=1,
                num_val=2000,
            ),
            horizons=tuple(rows),
            execution=Execution(
                device="cpu",
                accelerators=0,
                ranks=1,
                threads=2,
                dtype="float32",
                compile_mode="off" if params else None,
            ),
            cost=Cost(
                seconds=Seconds(train=train, evaluate=1.5 * len(rows), save=0.2, wait=0.0),
                spent_images=sum(row.spent_images or 0 for row in rows),
                spent_flops=Operations(
                    dense=sum(row.spent_flops.dense or 0 for row in rows),
                    paper=sum(row.spent_flops.paper or 0 for row in rows),
                ),
                core_days=2 * train / 86400,
                devices=2,
                peak_memory_bytes=400_000_000,
                peak_flops_per_second=1.3e11,
                peak_source="measured matmul, float32, 1 thread",
            ),
            environment=Environment(
                python="3.12.1",
                torch="2.8.0",
                timm="1.0.15",
                numpy="2.0.0",
                platform="Linux",
                cpu="Example CPU",
                cores=2,
                commit=self.commit,
                dirty=False,
                project_version="0.1.0",
                time_start=START,
                time_end=END,
            ),
            attempts=(Attempt(started=START, ended=END, outcome="complete"),),
        )

    def diverged(self, name: str = "ViT-small/7", seed: int = 7) -> Record:
        """A cell whose loss became NaN."""
        return self.made(
            name,
            self.num_images,
            seed,
            ("compute",),
            [],
            status="diverged",
            reason="the loss was not a number from step 120 on",
        )


def blank(cell: Cell, **fields: Any) -> Record:
    """A record of `cell` that holds no more than it must, and `fields`."""
    given: dict[str, Any] = {
        "suite": "synthetic",
        "cell_id": "0123456789",
        "directory": "x",
        "revisions": {},
        "status": "complete",
        "model": ModelFacts(name=cell.model),
        "data": DataFacts(name=cell.data),
        "execution": Execution(device="cpu"),
        "cost": Cost(),
        "environment": Environment(),
    }
    return Record(cell=cell, **given | fields)


def both(paper: float) -> Operations:
    return Operations(dense=paper * 1.02, paper=paper)


def score(task: str, value: float, shots: int | None, draw: int | None) -> Score:
    n = NUM_TEST[task]
    return Score(
        task="upstream" if task == UPSTREAM else "fewshot",
        data=task,
        metric="accuracy",
        value=value,
        stderr=float(np.sqrt(value * (1 - value) / n)),
        num_test=n,
        num_classes=CLASSES[task],
        chance=1 / CLASSES[task],
        shots=shots,
        draw=draw,
    )


def change(value: Kind, changes: Mapping[str, Any]) -> Kind:
    """A dataclass with other values at some paths, such as {"cell.recipe.lr": 0.003}."""
    for path, new in changes.items():
        name, _, rest = path.partition(".")
        value = replace(value, **{name: change(getattr(value, name), {rest: new}) if rest else new})  # type: ignore
    return value


def map_scores(record: Record, changed: Callable[[Horizon, Score], Score | None]) -> Record:
    """A record with every score replaced, or left out where `changed` gives None."""
    horizons = tuple(
        replace(h, scores=tuple(new for s in h.scores if (new := changed(h, s)) is not None)) for h in record.horizons
    )
    return replace(record, horizons=horizons)


def write(records: list[Record], directory: Path) -> Path:
    """Write records as a run leaves them; returns the suite's folder."""
    for record in records:
        folder = CellDirectory(directory / "cells" / record.directory)
        folder.prepare(record.cell)
        write_record(folder.record, record)
    return directory
