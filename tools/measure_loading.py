"""Images per second and core, read, decoded, cropped at random and resized to 224 px: this project beside others, in
turns, over the same files.

    python -m tools.measure_loading [--shards FOLDER] [--images 1000] [--rounds 7] [--peers FOLDER [--install]]

Every loader (tools/loaders.py) runs in processes of its own, with one worker, and gives batches that a network can
take; with --here, in this process without a worker. Seconds are the processor's, of all its processes; turns alternate,
so that what else the machine does touches all alike. The files are those of tests/data/photographs.py, drawn anew or
taken from tar shards, in the disk's cache.

LOADER_SIZE=64 in the environment has crops of another size.

Loaders whose package is not installed here run in the environment FOLDER/PACKAGE, where there is one; --install makes
them, on top of this one.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from bench.data import jpeg
from tests.data import photographs
from tools import loaders

PROJECT = Path(__file__).resolve().parent.parent
OURS, LIMIT = "this project", "limit: libjpeg-turbo alone, whole images, one buffer"
CLASSES = 10


def read(shards: Path, number: int) -> list[bytes]:
    """The first images of the shards."""
    files: list[bytes] = []
    for path in sorted(shards.glob("train*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                if member.name.endswith(".jpg") and (file := tar.extractfile(member)) is not None:
                    files.append(file.read())
                if len(files) == number:
                    return files
    return files


def install(peers: Path) -> None:
    """An environment for every package, in which this one's packages are found too."""
    base = sysconfig.get_paths()["purelib"]
    for _, (module, packages) in loaders.PACKAGES.items():
        place = peers / module.split(".")[-1]
        if place.exists():
            continue
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
        found = next(place.glob("lib/python*/site-packages"))
        (found / "below.pth").write_text(base + "\n")
        command = [place / "bin" / "python", "-m", "pip", "install", "-q", *packages]
        if subprocess.run(command, timeout=600, check=False).returncode:
            print(f"{' '.join(packages)}: could not be installed", file=sys.stderr)


def python_of(name: str, peers: Path | None) -> str | None:
    """The interpreter in which a loader's package is found."""
    module = loaders.PACKAGES.get(name, ("torch", ()))[0]
    with suppress(ModuleNotFoundError):
        if find_spec(module) is not None:
            return sys.executable
    own = None if peers is None else peers / module.split(".")[-1] / "bin" / "python"
    return str(own) if own is not None and own.exists() else None


class Racer:
    """One loader in its processes: seconds per image when it is called with a number of batches."""

    def __init__(self, name: str, python: str, folder: Path, log: Path) -> None:
        settings = os.environ | {"OMP_NUM_THREADS": "1", "VIT_BENCH_CACHE": str(folder / "cache")}
        self.log = log
        self.process = subprocess.Popen(
            [python, "-m", "tools.loaders", "race", folder, name],
            cwd=PROJECT,
            env=settings,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            start_new_session=True,
        )

    def __call__(self, batches: int) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(batches, file=self.process.stdin, flush=True)
        for line in self.process.stdout:
            if line.startswith("RACE "):
                measured = json.loads(line[5:])
                return measured["seconds"] / measured["images"]
        raise RuntimeError(next((text for text in self.log.read_text().splitlines()[::-1] if text.strip()), "ended"))

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()


class Here:
    """One loader in this process, which reads for itself; its threads count."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.made: Iterator[loaders.Batch] | None = None

    def __call__(self, batches: int) -> float:
        try:
            self.made = self.made or loaders.LOADERS[self.name](self.folder)
            started, images = time.process_time(), 0
            for _ in range(batches):
                images += len(next(self.made))
            return (time.process_time() - started) / images
        except Exception as error:
            raise RuntimeError(error) from error


def limit(files: list[bytes]) -> Callable[[int], float]:
    """Seconds per image of the decoder alone."""
    buffer = np.empty(1 << 22, dtype=np.uint8)

    def decode(batches: int) -> float:
        started, number = time.process_time(), batches * loaders.BATCH
        for at in range(number):
            jpeg.simplejpeg.decode_jpeg(files[at % len(files)], buffer=buffer)
        return (time.process_time() - started) / number

    return decode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path, help="folder of tar shards")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=8, help=f"of {loaders.BATCH} images, in a turn")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peers", type=Path, help="folder of environments")
    parser.add_argument("--install", action="store_true", help="make those that are missing")
    parser.add_argument("--here", action="store_true", help="all in this process, without workers")
    parser.add_argument("--only", help="comma-separated parts of names; beside this project")
    given = parser.parse_args()
    if given.here:
        torch.set_num_threads(1)
        loaders.WORKERS = 0
    if given.install and given.peers:
        install(given.peers)
    chosen = (given.only or "").split(",")  # "" is in every name
    names = [name for name in loaders.LOADERS if name == OURS or any(part in name for part in chosen)]
    with tempfile.TemporaryDirectory(prefix="loading-") as where:
        compare(names, Path(where), given)


def compare(names: list[str], folder: Path, given: argparse.Namespace) -> None:
    files = read(given.shards, given.images) if given.shards else list(map(photographs.jpeg, range(given.images)))
    for number, data in enumerate(files):
        path = folder / "jpegs" / f"{number % CLASSES}" / f"{number:08}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    loaders.prepare(folder, "shards")
    racers: dict[str, Callable[[int], float]] = {}
    missing: dict[str, str] = {}
    for name in names:
        python, kind = python_of(name, given.peers), {"MosaicML streaming": "mds", "FFCV": "beton"}.get(name)
        kind = {"packed": "packed", "pixels": "pixels"}.get(name.split()[-1], kind)
        if python is None or (given.here and python != sys.executable):
            missing[name] = f"{loaders.PACKAGES[name][0]} is not installed"
            continue
        if kind is not None:
            subprocess.run([python, "-m", "tools.loaders", "prepare", folder, kind], cwd=PROJECT, check=False)
        log = folder / f"{len(racers)}.log"
        racers[name] = Here(name, folder) if given.here else Racer(name, python, folder, log)
    if jpeg.simplejpeg is not None:
        racers[LIMIT] = limit(files)
    seconds: dict[str, list[float]] = {name: [] for name in racers}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):  # what there is by then is printed
        for _ in range(given.rounds + 1):  # the first round warms up
            for name in [name for name in racers if name not in missing]:
                try:
                    seconds[name].append(racers[name](given.batches))
                except (RuntimeError, OSError) as error:
                    missing[name] = f"does not run here: {error}"
    rounds = len(seconds[LIMIT if LIMIT in racers else OURS])  # whole ones
    ours = np.array(seconds[OURS][1:rounds])
    print(
        f"{len(files)} files of {np.mean([len(data) for data in files]) / 1e3:.0f} kB, {rounds - 1} rounds of "
        f"{given.batches * loaders.BATCH} images; images/s and core, and how many times that ours is"
    )
    for name in sorted((name for name in racers if name not in missing), key=lambda name: np.median(seconds[name])):
        turns = np.array(seconds[name][1:rounds]) / ours
        print(
            f"{1 / np.median(seconds[name][1:rounds]):7,.0f}  {np.median(turns):4.2f} ({turns.min():.2f} to "
            f"{turns.max():.2f})  {name}"
        )
    for name, reason in missing.items():
        print(f"      -  {name}: {reason}", flush=True)
    for racer in racers.values():
        if isinstance(racer, Racer):
            racer.end()


if __name__ == "__main__":
    main()
