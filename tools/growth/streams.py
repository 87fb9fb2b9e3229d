"""Memory and start-up of streamed training by the number of images: an index of a few hundred files, repeated.

Only keys and labels differ between repetitions of a file.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np

from bench.data import cache, index
from bench.data.load import load
from tests.data import photographs

FILES, BATCHES, BATCH, CLASSES = 200, 20, 64, 1_000
DATA = "folder:shards:64px:rgb:stream"


def repeat(root: Path, number: int) -> None:
    """An index of so many images in the cache, made of that of the files, as if they had been read."""
    folder, given = root / "shards", os.environ["VIT_BENCH_CACHE"]
    os.environ["VIT_BENCH_CACHE"] = str(root / "once")
    load(DATA, "train", root=root)
    key = index.key_of(folder, as_published=False)
    stored = cache.stored(key)
    assert stored is not None
    made = {name: np.array(values) for name, values in stored.items()}
    rng, count = np.random.default_rng(0), len(made["train_key"])
    rows_N = np.arange(number) % count
    made |= {f"train_{name}": made[f"train_{name}"][rows_N] for name in index.IMAGE if f"train_{name}" in made}
    made["train_key"] = rng.permuted(np.arange(number, dtype="<u8") * np.uint64(0x9E3779B97F4A7C15))
    made["train_label"] = rng.integers(0, CLASSES, number)
    facts = json.loads(made["facts"].tobytes())
    facts["class_names"] = [str(label) for label in range(CLASSES)]
    facts["bytes"]["train"] = int(made["train_size"].sum(dtype=np.int64))
    made["facts"] = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    os.environ["VIT_BENCH_CACHE"] = given
    cache.arrays(key, lambda: made)


def memory(process: int | str = "self") -> dict[str, int]:
    """Bytes by kind: resident (mapped files that others share included), and the process's own."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return {kind: int(lines[name].split()[0]) * 1024 for kind, name in (("resident", "VmRSS"), ("own", "RssAnon"))}


def write(root: Path) -> None:
    """The files."""
    photographs.write(root / "shards", images=FILES, different=FILES, tests=16)


def start(root: Path, number: int) -> dict[str, float]:
    """The start of a training process until it has read some batches of so many images: what it took."""
    import torch

    from bench.study.cell import Recipe
    from bench.train.batches import Batches

    pid = os.fork()  # the index of so many is made elsewhere: its memory is not that of training
    if not pid:
        repeat(root, number)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    torch.set_num_threads(1)
    before, started = memory()["own"], time.perf_counter()
    images = load(DATA, "train", root=root)
    opened = time.perf_counter() - started
    assert images.content_hash
    hashed = time.perf_counter() - started
    recipe = Recipe(batch=BATCH, crop=0.05, flip=True, shift=0)
    batches = Batches(images, recipe=recipe, seed=0, device="cpu", workers=1)
    batches(0)
    first = time.perf_counter() - started
    for step in range(1, BATCHES):
        batches(step)
    batches(len(images) // BATCH + 1)  # the next epoch: two orders are kept
    parent, readers = memory(), [memory(int(child)) for child in _children()]
    assert len(images) == number
    return {
        "opened in s": opened,
        "hashed in s": hashed,
        "first batch in s": first,
        "resident in MB": parent["resident"] / 1e6,
        "own in MB": (parent["own"] - before) / 1e6,
        "a reader's own in MB": max(reader["own"] for reader in readers) / 1e6,
    }


def _children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
