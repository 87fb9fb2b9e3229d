"""Very large studies of made-up records, written by the project's own writer; one of them is damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np

from bench.study.record import Record
from tests.analysis._records import NUM_TEST, World, write

FAMILIES = (("ViT", "ViT-m{}/7"), ("Hybrid", "R-m{}+ViT-m/2"), ("ResNet", "ResNet-m{}"))
SEEDS = 8


def records(number: int) -> Iterator[Record]:
    """So many records of 40 kB: families of equal ladders of models, each on every size of the data set, with eight
    seeds."""
    world = World(seed=5)
    world.seeds, world.draws = tuple(range(SEEDS)), (0, 1, 2, 3, 4)
    world.draw_offsets = {(task, d): world.rng.normal(0, world.draw_sd) for task in NUM_TEST for d in world.draws}
    world.image_offsets = {task: world.rng.normal(0, 0.009) for task in NUM_TEST}
    per_model = len(world.sizes) * SEEDS
    steps = -(-number // (per_model * len(FAMILIES)))
    sizes = np.geomspace(1e4, 1e6, steps)
    world.models = {
        name.format(step): (family, round(size), 30 * round(size))
        for step, size in enumerate(sizes)
        for family, name in FAMILIES
    }
    yield world.pixels()
    cells = ((name, size, seed) for name in world.models for size in world.sizes for seed in world.seeds)
    for (name, size, seed), _ in zip(cells, range(number - 1), strict=False):
        axes = ("data_size", *(["compute"] if size == world.num_images else []))
        yield world.record(name, size, seed, axes)


def write_study(directory: Path, number: int) -> None:
    """A study of so many runs; the one in the middle was cut short. What is written may be lost with the machine."""
    with patch.object(os, "fsync", lambda _: None):
        for record in records(number):
            write([record], directory)
    broken = sorted(directory.glob("cells/*/record.json"))[number // 2]
    broken.write_bytes(broken.read_bytes()[:-40])
