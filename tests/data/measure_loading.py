"""Images per second and core, decoded, cropped at random and resized to 224 px: this project beside others, in turns.

    python -m tests.data.measure_loading [--shards FOLDER] [--images 300] [--rounds 5]

Seconds are the processor's, of one thread; turns alternate, so that what else the machine does touches all alike. The
files are those of tests/data/photographs.py, drawn anew or taken from tar shards.
"""

from __future__ import annotations

import argparse
import io
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from bench.data import jpeg
from bench.train.batches import crop_boxes
from bench.train.reading import resize
from tests.data import photographs

SIZE = 224


def ways(files: list[bytes]) -> dict[str, Callable[[], object]]:
    """What is compared; torchvision and timm with their own random crops, boxes of ours are the paper's."""
    import timm.data
    import torchvision.io
    from torchvision.transforms import v2

    sizes = np.array([Image.open(io.BytesIO(data)).size for data in files])
    drawn = crop_boxes(np.random.default_rng(0), number=len(files), height=sizes[:, 1], width=sizes[:, 0], least=0.05)
    boxes, out = drawn.T.tolist(), np.empty((len(files), SIZE, SIZE, 3), dtype=np.uint8)
    default = timm.data.create_transform(SIZE, is_training=True, use_prefetcher=True)
    plain = timm.data.create_transform(SIZE, is_training=True, use_prefetcher=True, color_jitter=None)
    modern = v2.Compose([v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()])

    def this_project() -> None:
        for data, box, out_SSC in zip(files, boxes, out, strict=True):
            jpeg.read_part(data, box, out_SSC=out_SSC, resize=resize)

    def pillow(transform: Callable[[Image.Image], object]) -> None:
        for data in files:
            transform(Image.open(io.BytesIO(data)).convert("RGB"))

    def torchvision_v2() -> None:
        for data in files:
            modern(torchvision.io.decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8)))

    found: dict[str, Callable[[], object]] = {
        "this project": this_project,
        "timm's default (with its colour jitter)": lambda: pillow(default),
        "timm without colour jitter": lambda: pillow(plain),
        "torchvision v2, its own decoder": torchvision_v2,
    }
    if jpeg.simplejpeg is not None:
        found["limit: libjpeg-turbo, whole images, nothing else"] = lambda: [
            jpeg.simplejpeg.decode_jpeg(data) for data in files
        ]
    return found


def read(shards: Path, number: int) -> list[bytes]:
    """The first images of the shards."""
    files: list[bytes] = []
    for path in sorted(shards.glob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                if member.name.endswith(".jpg") and (file := tar.extractfile(member)) is not None:
                    files.append(file.read())
                if len(files) == number:
                    return files
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=Path, help="folder of tar shards")
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    number = given.images
    files = read(given.shards, number) if given.shards else [photographs.jpeg(n) for n in range(number)]
    compared = ways(files)
    rates: dict[str, list[float]] = {name: [] for name in compared}
    for _ in range(given.rounds + 1):
        for name, work in compared.items():
            started = time.process_time()
            work()
            rates[name].append(len(files) / (time.process_time() - started))
    ours = np.array(rates["this project"][1:])
    print(f"{len(files)} files of {np.mean([len(data) for data in files]) / 1e3:.0f} kB, {given.rounds} rounds")
    for name, found in rates.items():  # the first round warms up
        turns = ours / np.array(found[1:])
        print(f"{np.median(found[1:]):7,.0f} images/s  ours is {np.median(turns):4.2f} times that "
              f"({turns.min():.2f} to {turns.max():.2f})  {name}")  # fmt: skip


if __name__ == "__main__":
    main()
