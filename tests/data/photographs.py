"""JPEGs like photographs, in tar shards, to measure and to test with: parts of scikit-learn's two photographs under
other light and with the noise of natural scenes (its amplitude falls with the spatial frequency)."""

import io
import tarfile
from functools import cache
from pathlib import Path

import numpy as np
from PIL import Image

SIZES = ((500, 375), (500, 333), (375, 500), (500, 400), (480, 360), (500, 334))  # (width, height), as in ImageNet
PER_SHARD = 1_000


@cache
def _photographs() -> list[Image.Image]:
    from sklearn.datasets import load_sample_images

    return [Image.fromarray(photograph) for photograph in load_sample_images().images]


def jpeg(number: int) -> bytes:
    """Photograph `number`: about 60 kB, 4:2:0, quality 80 to 94."""
    rng = np.random.default_rng([7, number])
    width, height = SIZES[rng.integers(len(SIZES))]
    source = _photographs()[number % 2]
    taken = int(min(source.width, source.height * width / height) * rng.uniform(0.45, 1.0))
    box_width, box_height = taken, int(taken * height / width)
    left, top = rng.integers(0, source.width - box_width + 1), rng.integers(0, source.height - box_height + 1)
    box = (left, top, left + box_width, top + box_height)
    pixels_HWC = np.asarray(source.resize((width, height), Image.Resampling.BICUBIC, box=box), dtype=np.float32)
    frequency = np.fft.rfftfreq(width)[None, :] ** 2 + np.fft.fftfreq(height)[:, None] ** 2
    frequency[0, 0] = 1.0
    noise = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((height, width))) / frequency**0.35, s=(height, width))
    noise *= rng.uniform(4, 14) / noise.std()
    light = rng.uniform(0.7, 1.2, 3).astype(np.float32)
    pixels = np.clip(pixels_HWC * light + noise[..., None] + rng.uniform(-20, 20), 0, 255).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=int(rng.integers(80, 95)), subsampling="4:2:0")
    return file.getvalue()


def numbered(data: bytes, number: int) -> bytes:
    """The same picture in a file that differs: with a comment."""
    text = str(number).encode()
    return data[:2] + b"\xff\xfe" + (len(text) + 2).to_bytes(2, "big") + text + data[2:]


def write(folder: Path, *, images: int, different: int, classes: int = 100, tests: int = 0) -> None:
    """Shards `train-00000.tar` … of so many images, of which so many show different pictures; and `test-….tar`."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count, first in (("train", images, 0), ("test", tests, different)):
        pictures = [jpeg(first + number) for number in range(min(count, different))]
        for start in range(0, count, PER_SHARD):
            with tarfile.open(folder / f"{split}-{start // PER_SHARD:05}.tar", "w") as shard:
                for number in range(start, min(start + PER_SHARD, count)):
                    data = numbered(pictures[number % len(pictures)], number)
                    label = str(number % len(pictures) % classes).encode()
                    for name, content in ((f"{number:08}.jpg", data), (f"{number:08}.cls", label)):
                        member = tarfile.TarInfo(name)
                        member.size = len(content)
                        shard.addfile(member, io.BytesIO(content))
