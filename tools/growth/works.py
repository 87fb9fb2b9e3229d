"""Kinds of work whose growth is measured: what each is made of, its command, and its goals.

`python -m tools.growth.works make KIND SIZE` makes what a work needs in the current folder; `do NAME SIZE` does a work
that has no command of its own. Nothing large is imported before one of them is asked for.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

GB, MB = 1e9, 1e6
PARAMETERS = {5: "ViT-Ti/16", 22: "ViT-S/16", 86: "ViT-B/16"}  # millions -> a network of about as many
GROUPS = 10  # groups of a table to be fitted
PHOTO_NETWORKS = ("efficientnet_lite0", "efficientnet_lite1", "efficientnet_lite2")


@dataclass(frozen=True)
class Goal:
    """At most so many processor seconds, and bytes at the peak; or, of what the work says itself, at most so much."""

    seconds: float | None = None
    peak: float | None = None
    said: Mapping[str, float] = field(default_factory=dict)

    def met(self, seconds: float, peak: float, said: Mapping[str, float]) -> bool:
        limits = [(seconds, self.seconds), (peak, self.peak), *((said[name], most) for name, most in self.said.items())]
        return all(limit is None or value <= limit for value, limit in limits)

    def __str__(self) -> str:
        parts = [
            *([f"{self.seconds:,.0f} s"] if self.seconds is not None else []),
            *([f"{self.peak / MB:,.0f} MB"] if self.peak is not None else []),
            *(f"{name} {most:,.4g}" for name, most in self.said.items()),
        ]
        return f"at most {', '.join(parts)}"


@dataclass(frozen=True)
class Work:
    """A kind of work.

    Attributes:
        name: of it.
        unit: of its sizes.
        makes: what `make` makes for it; works that share it use the same files.
        sizes: three, the largest last.
        small: sizes of a nightly test.
        command: words, in which {size}, {python} and {work}, an empty folder, are filled in.
        goals: by size.
    """

    name: str
    unit: str
    makes: str
    sizes: tuple[int, ...]
    small: tuple[int, ...]
    command: tuple[str, ...]
    goals: Mapping[int, Goal] = field(default_factory=dict)


def verb(name: str, *words: str) -> tuple[str, ...]:
    return ("{python}", "-m", "bench", name, *words)


def own(name: str) -> tuple[str, ...]:
    return ("{python}", "-m", "tools.growth.works", "do", name, "{size}")


STUDIES = (100, 1_000, 10_000)
ADAPT = ("--suite", "adapt", "--data", "folder:photos", "--data-root", ".", "--models")
NETWORKS = ",".join(f"timm:local-dir:networks/{name}+pretrained" for name in PHOTO_NETWORKS)
WORKS = (
    Work(
        "report",
        "runs",
        "study",
        STUDIES,
        (100, 200),
        verb("report", "--suite", "scaling", "--results", "."),
        {1_000: Goal(20, 600 * MB), 10_000: Goal(120, 2 * GB)},
    ),
    Work(
        "compare",
        "runs",
        "study",
        STUDIES,
        (100, 200),
        verb("compare", "ViT-m0/7", "ResNet-m0", "--suite", "scaling", "--results", "."),
        {10_000: Goal(15, GB)},
    ),
    Work("load", "runs", "study", STUDIES, (100, 200), own("load"), {10_000: Goal(15, GB)}),
    Work(
        "status",
        "runs",
        "study",
        STUDIES,
        (100, 200),
        verb("status", "--results", "."),
        {10_000: Goal(15, 200 * MB)},
    ),
    Work(
        "index",
        "images in folders",
        "images",
        (10_000, 100_000, 1_000_000),
        (300, 1_000, 3_000),
        own("index"),
        {1_000_000: Goal(60, 200 * MB), 2_000_000: Goal(120, 400 * MB)},
    ),
    Work(
        "stream",
        "images of an index",
        "shards",
        (10_000, 1_000_000, 10_000_000),
        (1_000, 10_000, 100_000),
        own("stream"),
        {10_000_000: Goal(60, 3 * GB)},
    ),
    Work(
        "fit",
        "rows in 10 groups",
        "table",
        (1_000, 10_000, 1_000_000),
        (100, 300, 1_000),
        verb("fit", "runs.csv", "--x", "compute", "--y", "error", "--group", "family"),
        {10_000: Goal(20), 1_000_000: Goal(60)},
    ),
    Work(
        "checkpoint",
        "million parameters",
        "nothing",
        tuple(PARAMETERS),
        (5,),
        own("checkpoint"),
        {86: Goal(said={"copies": 0.2})},
    ),
    Work(
        "calibrate",
        "photographs",
        "photos",
        (50, 150, 450),
        (50,),
        verb("plan", *ADAPT, NETWORKS, "--results", "{work}"),
        {450: Goal(peak=1.5 * GB)},
    ),
    Work("adapt", "photographs", "photos", (450,), (), verb("run", *ADAPT, NETWORKS, "--results", "{work}")),
    Work(
        "smoke",
        "seeds",
        "nothing",
        (1, 2, 4),
        (1,),
        verb("run", "--suite", "smoke", "--seeds", "{size}", "--results", "{work}"),
        {1: Goal(30)},
    ),
)


# -- what works need ---------------------------------------------------------------------------------------------------


def make(kind: str, size: int) -> None:
    """Files of a kind, in the current folder."""
    if kind == "study":
        from tools.growth import studies

        studies.write_study(Path("scaling"), size)
    elif kind in ("images", "photos"):
        _write_images(Path("photos"), size, side=8 if kind == "images" else 224, classes=100 if kind == "images" else 5)
        if kind == "photos":
            _write_networks(Path("networks"))
    elif kind == "shards":
        from tools.growth import streams

        streams.write(Path())
    elif kind == "table":
        _write_table(Path("runs.csv"), size)


def _write_images(folder: Path, number: int, *, side: int, classes: int) -> None:
    """PNGs of so many classes, no two of them alike; a class's images share their colour, so that it can be learned."""
    import struct
    import zlib

    import numpy as np

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    rng = np.random.default_rng(0)
    colours_K3 = rng.integers(0, 256, (classes, 3))
    for label in range(classes):
        (folder / f"class{label:03}").mkdir(parents=True, exist_ok=True)
    for image in range(number):
        label = image % classes
        pixels_HWC = (colours_K3[label] + rng.integers(-90, 91, (side, side, 3))).clip(0, 255)
        rows = np.concatenate([np.zeros((side, 1)), pixels_HWC.reshape(side, -1)], axis=1).astype(np.uint8)
        data = chunk(b"IDAT", zlib.compress(rows.tobytes(), 1))
        path = f"{folder}/class{label:03}/{image:08}.png"
        with open(path, "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n" + header + data + chunk(b"IEND", b""))


def _write_networks(folder: Path) -> None:
    """Networks of timm with random weights, as a download would leave them."""
    import timm
    from timm.models import save_for_hf

    for name in PHOTO_NETWORKS:
        save_for_hf(timm.create_model(name), folder / name, model_config={"num_classes": 1000}, safe_serialization=True)


def _write_table(path: Path, number: int) -> None:
    """Rows of `GROUPS` laws, with the noise of seeds."""
    import numpy as np

    rng = np.random.default_rng(0)
    compute = 10 ** rng.uniform(9, 15, number)
    group = np.arange(number) % GROUPS
    error = (0.05 + 0.01 * group + 900 * compute ** -(0.3 + 0.01 * group)) * np.exp(0.02 * rng.standard_normal(number))
    with open(path, "w") as file:
        file.write("family,compute,error\n")
        for row in zip(group.tolist(), compute.tolist(), error.tolist(), strict=True):
            file.write(f"family{row[0]},{row[1]:.6g},{row[2]:.6g}\n")


# -- works without a command -------------------------------------------------------------------------------------------


def do(name: str, size: int) -> dict[str, float]:
    """A work of the given size; what it has measured itself."""
    if name == "load":
        from bench import api

        assert len(api.load("scaling").records) >= size - 1
        return {}
    if name == "index":
        from bench.data.load import load

        parts = [load("folder:photos:8px:rgb:stream", part, root=Path()) for part in ("train", "test")]
        assert sum(map(len, parts)) == size
        return {}
    if name == "stream":
        from tools.growth import streams

        return streams.start(Path(), size)
    if name == "checkpoint":
        return _checkpoint(PARAMETERS[size])
    raise SystemExit(f"unknown: {name}")


def _checkpoint(model: str) -> dict[str, float]:
    """Save and load a network's weights and two moments. "copies": of its state, held while it was saved beyond it."""
    import tempfile
    import time

    import torch

    from bench.store.checkpoints import Checkpoint, load_newest, save
    from bench.study import registry

    torch.set_num_threads(1)
    network = registry.build_model(model, image_size=224, channels=3, num_classes=1000)
    tensors = {
        f"{kind}.{name}": torch.rand_like(value)
        for kind in ("model", "first", "second")
        for name, value in network.state_dict().items()
    }
    state = sum(value.nbytes for value in tensors.values())
    with tempfile.TemporaryDirectory(dir=".") as folder:
        before = resource.getrusage(resource.RUSAGE_SELF)
        started = time.perf_counter()
        save(Path(folder) / "checkpoints", Checkpoint(step=1, tensors=tensors, state={}))
        wall = time.perf_counter() - started
        after = resource.getrusage(resource.RUSAGE_SELF)
        own_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found, problems = load_newest(Path(folder) / "checkpoints")
        assert found is not None and not problems
    return {
        "state in MB": state / MB,
        "copies": (after.ru_maxrss - before.ru_maxrss) * 1024 / state,
        "seconds to save": wall,
        "of the processor": own_seconds,
    }


if __name__ == "__main__":
    if sys.argv[1] == "make":
        make(sys.argv[2], int(sys.argv[3]))
    else:
        print(json.dumps({"growth": do(sys.argv[2], int(sys.argv[3]))}))
