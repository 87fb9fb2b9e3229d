"""Memory and start-up of streamed training by the number of images: an index of a few hundred files, repeated.

    python -m tools.measure_index [--images 1000,100000,10000000]

Every size starts a new process, which opens the index, hashes the set, reads batches of 64 px through one reader, and
says how long the first took and what the memory is. Only keys and labels differ between repetitions of a file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.data import cache, index
from bench.data.load import load
from tests.data import photographs

PROJECT = Path(__file__).resolve().parent.parent
FILES, BATCHES, BATCH, CLASSES = 200, 20, 64, 1_000
DATA = "folder:shards:64px:rgb:stream"


def repeat(root: Path, number: int) -> None:
    """An index of so many images in the cache, made of that of the files, as if they had been read."""
    folder = root / "shards"
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
    os.environ["VIT_BENCH_CACHE"] = str(root / str(number))
    cache.arrays(key, lambda: made)


def memory(process: int | str = "self") -> dict[str, int]:
    """Bytes by kind: resident (mapped files that others share included), and the process's own."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return {kind: int(lines[name].split()[0]) * 1024 for kind, name in (("resident", "VmRSS"), ("own", "RssAnon"))}


def start(root: Path) -> dict[str, float]:
    """The start of a training process until it has read some batches: what it took."""
    import torch

    from bench.study.cell import Recipe
    from bench.train.batches import Batches

    torch.set_num_threads(1)
    before, started = memory()["own"], time.perf_counter()
    spent = time.process_time()
    images = load(DATA, "train", root=root)
    opened = time.perf_counter() - started
    assert images.content_hash
    hashed = time.perf_counter() - started
    recipe = Recipe(batch=BATCH, crop=0.05, flip=True, shift=0)
    batches = Batches(images, recipe=recipe, seed=0, device="cpu", workers=1)
    batches(0)
    first, processor = time.perf_counter() - started, time.process_time() - spent
    for step in range(1, BATCHES):
        batches(step)
    batches(len(images) // BATCH + 1)  # the next epoch: two orders are kept
    parent, readers = memory(), [memory(int(child)) for child in _children()]
    return {
        "images": len(images),
        "opened": opened,
        "hashed": hashed,
        "first": first,
        "processor": processor,
        "before": before,
        **parent,
        "reader": max(reader["own"] for reader in readers),
    }


def _children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", default="1000,100000,10000000")
    parser.add_argument("--start", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.start is not None:
        print(json.dumps(start(given.start)))
        return
    print("    images  opened  hashed  first batch (processor)  memory: all, own, own before, a reader's own")
    with tempfile.TemporaryDirectory(prefix="index-") as where:
        root = Path(where)
        photographs.write(root / "shards", images=FILES, different=FILES, tests=16)
        for number in map(int, given.images.split(",")):
            repeat(root, number)
            command = [sys.executable, "-m", "tools.measure_index", "--start", where]
            settings = os.environ | {"OMP_NUM_THREADS": "1"}
            said = subprocess.run(command, cwd=PROJECT, env=settings, capture_output=True, text=True, check=True)
            f = json.loads(said.stdout.splitlines()[-1])
            print(
                f"{f['images']:10,}  {f['opened']:4.1f} s  {f['hashed']:4.1f} s  {f['first']:6.1f} s "
                f"({f['processor']:4.1f} s)         {f['resident'] / 1e9:.2f} GB, {f['own'] / 1e9:.2f}, "
                f"{f['before'] / 1e9:.2f}, {f['reader'] / 1e9:.2f}"
            )


if __name__ == "__main__":
    main()
