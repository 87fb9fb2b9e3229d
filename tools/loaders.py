"""Loaders of the same JPEGs, each as its own guide has it: random crops resized to 224 px, mirrored at random, in
batches of float32 normalised pixels in the process that trains, read and decoded by one worker beside it.

    python -m tools.loaders prepare FOLDER KIND    the files of FOLDER/jpegs in the format of a loader
    python -m tools.loaders race FOLDER NAME       one loader: tools/measure_loading.py talks to it

Only this project's own loader needs what this project needs: the others also run in an environment of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

SIZE, BATCH = int(os.environ.get("LOADER_SIZE", "224")), 64
WORKERS = int(os.environ.get("LOADER_WORKERS", "1"))  # processes that read; 0: the one that trains
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)  # of torchvision's random crops, and everyone's but the paper's and ours
MEAN, STD = 127.5, 127.5

Batch = Any  # float32 (B, 3, H, W), a tensor


def _finished(images: Any) -> Batch:
    """uint8 (B, 3, H, W) or (B, H, W, 3) -> what a network takes, as `bench.train.batches.to_input` makes it."""
    import torch

    x = torch.as_tensor(images)
    return (x if x.shape[1] == 3 else x.permute(0, 3, 1, 2)).to(torch.float32).mul_(1 / STD).sub_(1.0)


def _for_ever(loader: Any, take: Callable[[Any], Batch]) -> Iterator[Batch]:
    while True:
        for batch in loader:
            yield take(batch)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def this_project(folder: Path, *, boxes: str = "ours", files: str = "shards", crop: float = 0.05) -> Iterator[Batch]:
    from bench.data.load import load
    from bench.study.cell import Recipe
    from bench.train.batches import Batches

    images = load(f"folder:{files}:{SIZE}px:rgb:stream", "train", root=folder)
    recipe = Recipe(batch=BATCH, crop=crop, flip=True, shift=0)
    made = Batches(images, recipe=recipe, seed=0, device="cpu", workers=WORKERS, fit=(SIZE, 3))
    if boxes == "torchvision's":
        made.draws.boxes = lambda step, height, width: _boxes_of_torchvision(  # type: ignore[method-assign]
            np.random.default_rng(step), number=BATCH, height=height, width=width
        )
    step = 0
    while True:
        yield made(step)[0]
        step += 1


def _boxes_of_torchvision(rng: np.random.Generator, *, number: int, height: Any, width: Any) -> Any:
    """Boxes as RandomResizedCrop draws them, for one try: what does not fit is clipped."""
    area = height * width * rng.uniform(*AREA, number)
    ratio = np.exp(rng.uniform(np.log(RATIO[0]), np.log(RATIO[1]), number))
    wide = np.minimum(np.round(np.sqrt(area * ratio)), width)
    tall = np.minimum(np.round(np.sqrt(area / ratio)), height)
    down, right = rng.random((2, number))
    top, left = np.floor(down * (height - tall + 1)), np.floor(right * (width - wide + 1))
    return np.stack([top, left, tall, wide]).astype(np.int64)


def timm_own(folder: Path, *, reader: str = "", **settings: object) -> Iterator[Batch]:
    import timm.data
    import torch

    if reader == "wds":
        shards = sorted((folder / "shards").glob("train-*.tar"))
        last, number = shards[-1].stem.split("-")[1], len(list((folder / "jpegs").rglob("*.jpg")))
        split = f"train-{{{'0' * len(last)}..{last}}}.tar|{number}"
        made = timm.data.create_dataset(
            "wds/", root=str(folder / "shards"), split=split, is_training=True, batch_size=BATCH
        )
    else:
        made = timm.data.create_dataset("", root=str(folder / "jpegs"))
    loader = timm.data.create_loader(
        made,
        input_size=(3, SIZE, SIZE),
        batch_size=BATCH,
        is_training=True,
        num_workers=WORKERS,
        persistent_workers=WORKERS > 0,
        device=torch.device("cpu"),
        **settings,
    )
    yield from _for_ever(loader, lambda batch: batch[0])


def _crop(image: Any) -> Any:
    """uint8 (3, H, W) -> (3, SIZE, SIZE), by torchvision."""
    return _transform()(image)


_TRANSFORMS: list[Any] = []


def _transform() -> Any:
    if not _TRANSFORMS:
        from torchvision.transforms import v2

        _one_thread()
        _TRANSFORMS.append(v2.Compose([v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()]))
    return _TRANSFORMS[0]


def _decode(data: bytes) -> Any:
    import torch
    import torchvision.io

    return torchvision.io.decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8))


def _decoded_and_cropped(data: bytes) -> Any:
    return _crop(_decode(data))


def _from_file(path: Path | str) -> Any:
    return _decoded_and_cropped(Path(path).read_bytes())


def torchvision_v2(folder: Path) -> Iterator[Batch]:
    """Its own decoder and transforms, torch's DataLoader; pixels are handed over as uint8."""
    import torch
    from torchvision.datasets import DatasetFolder

    images = DatasetFolder(str(folder / "jpegs"), loader=_from_file, extensions=(".jpg",))
    loader = torch.utils.data.DataLoader(
        images, BATCH, shuffle=True, num_workers=WORKERS, drop_last=True, persistent_workers=WORKERS > 0
    )
    yield from _for_ever(loader, lambda batch: _finished(batch[0]))


def webdataset(folder: Path) -> Iterator[Batch]:
    """Its shards and its loader; decoded and cropped by torchvision."""
    import webdataset as wds

    shards = [str(path) for path in sorted((folder / "shards").glob("train-*.tar"))]
    images = wds.WebDataset(shards, resampled=True, shardshuffle=False, empty_check=False).shuffle(1000)
    images = images.to_tuple("jpg", "cls").map_tuple(_decoded_and_cropped, int).batched(BATCH, collation_fn=_stacked)
    loader = wds.WebLoader(images, batch_size=None, num_workers=WORKERS)
    yield from _for_ever(loader, lambda batch: _finished(batch[0]))


def _stacked(samples: list[tuple[Any, int]]) -> tuple[Any, Any]:
    import torch

    return torch.stack([image for image, _ in samples]), torch.tensor([label for _, label in samples])


def mosaicml_streaming(folder: Path) -> Iterator[Batch]:
    """Its shards, shuffled by its own rule; decoded and cropped by torchvision."""
    import torch
    from streaming import StreamingDataset

    class Images(StreamingDataset):
        def __getitem__(self, at: int) -> Any:
            sample = super().__getitem__(at)
            return _decoded_and_cropped(sample["image"]), sample["label"]

    images = Images(local=str(folder / "mds"), shuffle=True, batch_size=BATCH)
    loader = torch.utils.data.DataLoader(
        images, BATCH, num_workers=WORKERS, persistent_workers=WORKERS > 0, drop_last=True
    )
    yield from _for_ever(loader, lambda batch: _finished(batch[0]))


class _Cropped:
    """A transformation of grain's, of a path; it is sent to the worker."""

    def __call__(self, path: str) -> np.ndarray:
        return _from_file(path).numpy()


def grain(folder: Path) -> Iterator[Batch]:
    """Its shuffling, batches and worker process; decoded and cropped by torchvision."""
    import grain.python as pygrain
    from absl import flags

    flags.FLAGS(["race"])
    paths = [str(path) for path in sorted((folder / "jpegs").rglob("*.jpg"))]
    images = pygrain.MapDataset.source(paths).seed(0).shuffle().repeat().map(_Cropped())
    batches = images.to_iter_dataset(pygrain.ReadOptions(num_threads=1, prefetch_buffer_size=16)).batch(BATCH)
    yield from _for_ever(batches.mp_prefetch(pygrain.MultiprocessingOptions(num_workers=WORKERS)), _finished)


def spdl(folder: Path) -> Iterator[Batch]:
    """Its pipeline of threads, and FFmpeg's decoder and filters, which crop and resize."""
    import random

    import spdl.io
    from spdl.pipeline import PipelineBuilder

    paths = [str(path) for path in sorted((folder / "jpegs").rglob("*.jpg"))]
    rng = np.random.default_rng(0)

    def source() -> Iterator[str]:
        while True:
            yield from random.sample(paths, len(paths))

    def decode(path: str) -> Any:
        packets = spdl.io.demux_image(path)
        box = _boxes_of_torchvision(rng, number=1, height=packets.height, width=packets.width)
        top, left, height, width = box[:, 0].tolist()
        mirrored = ",hflip" if rng.random() < 0.5 else ""
        how = f"crop={width}:{height}:{left}:{top}:exact=1,scale={SIZE}:{SIZE}:flags=bilinear{mirrored},format=rgb24"
        return spdl.io.decode_packets(packets, filter_desc=how)

    def together(frames: list[Any]) -> Any:
        return spdl.io.to_torch(spdl.io.convert_frames(frames))

    pipeline = (
        PipelineBuilder()
        .add_source(source())
        .pipe(decode, concurrency=1)
        .aggregate(BATCH)
        .pipe(together)
        .add_sink(2)
        .build(num_threads=1)
    )
    with pipeline.auto_stop():
        yield from _for_ever(pipeline, _finished)


def dali(folder: Path) -> Iterator[Batch]:
    """Its pipeline on the processor: parts of images are decoded alone."""
    import torch
    from nvidia.dali import fn, pipeline_def, types

    @pipeline_def(batch_size=BATCH, num_threads=1, device_id=None, seed=0)
    def batches() -> Any:
        files, labels = fn.readers.file(file_root=str(folder / "jpegs"), random_shuffle=True, initial_fill=1000)
        images = fn.decoders.image_random_crop(
            files, device="cpu", random_area=list(AREA), random_aspect_ratio=list(RATIO)
        )
        images = fn.resize(images, size=[SIZE, SIZE], interp_type=types.INTERP_LINEAR, antialias=True)
        images = fn.crop_mirror_normalize(
            images, dtype=types.FLOAT, output_layout="CHW", mirror=fn.random.coin_flip(), mean=[MEAN] * 3, std=[STD] * 3
        )
        return images, labels

    made = batches()
    made.build()
    while True:
        yield torch.from_dlpack(made.run()[0].as_tensor()).clone()  # its own memory is used again


def ffcv(folder: Path) -> Iterator[Batch]:
    """Its file of JPEGs, its compiled pipeline of threads."""
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, ToTensor, ToTorchImage

    decoder = RandomResizedCropRGBImageDecoder((SIZE, SIZE), scale=AREA, ratio=RATIO)
    steps = [decoder, RandomHorizontalFlip(), ToTensor(), ToTorchImage(convert_back_int16=False)]
    loader = Loader(
        str(folder / "images.beton"),
        batch_size=BATCH,
        num_workers=1,
        order=OrderOption.RANDOM,
        os_cache=True,
        drop_last=True,
        pipelines={"image": steps},
    )
    yield from _for_ever(loader, lambda batch: _finished(batch[0]))


LOADERS: dict[str, Callable[[Path], Iterator[Batch]]] = {
    "this project": this_project,
    "this project, torchvision's boxes": partial(this_project, boxes="torchvision's"),
    "this project, packed": partial(this_project, files="packed"),
    "this project, packed as pixels": partial(this_project, files="pixels"),
    "this project, whole images": partial(this_project, crop=0.0),
    "this project, whole images, packed": partial(this_project, files="packed", crop=0.0),
    "this project, whole images, packed as pixels": partial(this_project, files="pixels", crop=0.0),
    "timm's default": timm_own,
    "timm without colour jitter": partial(timm_own, color_jitter=None),
    "timm's default, WebDataset shards": partial(timm_own, reader="wds"),
    "torchvision v2": torchvision_v2,
    "WebDataset": webdataset,
    "MosaicML streaming": mosaicml_streaming,
    "grain": grain,
    "SPDL": spdl,
    "DALI": dali,
    "FFCV": ffcv,
}
PACKAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "timm's default, WebDataset shards": ("webdataset", ("webdataset",)),
    "WebDataset": ("webdataset", ("webdataset",)),
    "MosaicML streaming": ("streaming", ("mosaicml-streaming",)),
    "grain": ("grain", ("grain",)),
    "SPDL": ("spdl", ("spdl",)),
    "DALI": ("nvidia.dali", ("nvidia-dali-cuda120",)),
    "FFCV": ("ffcv", ("ffcv", "opencv-python-headless", "numba")),
}
"""Modules to import, and packages to install (FFCV also needs libopencv-dev, libturbojpeg0-dev, pkg-config and a
compiler)."""


def prepare(folder: Path, kind: str) -> None:
    """Write the files below FOLDER/jpegs in another format."""
    files = sorted((folder / "jpegs").rglob("*.jpg"))
    if kind == "shards":
        (folder / "shards").mkdir(exist_ok=True)
        for split, part in (("train", files), ("test", files[:16])):
            with tarfile.open(folder / "shards" / f"{split}-00000.tar", "w") as tar:
                for path in part:
                    label = folder / "label"
                    label.write_text(str(int(path.parent.name)))
                    tar.add(path, f"{path.stem}.jpg")
                    tar.add(label, f"{path.stem}.cls")
    elif kind in ("packed", "pixels"):
        from bench.data.pack import QUALITY, pack

        pack("folder:shards", folder / kind, root=folder, quality=QUALITY if kind == "packed" else None)
    elif kind == "mds":
        from streaming import MDSWriter

        shutil.rmtree(folder / "mds", ignore_errors=True)
        with MDSWriter(out=str(folder / "mds"), columns={"image": "bytes", "label": "int"}) as writer:
            for path in files:
                writer.write({"image": path.read_bytes(), "label": int(path.parent.name)})
    elif kind == "beton":
        import ffcv.fields.rgb_image
        from ffcv.fields import IntField, RGBImageField
        from ffcv.writer import DatasetWriter
        from PIL import Image

        class Files:
            def __len__(self) -> int:
                return len(files)

            def __getitem__(self, at: int) -> Any:
                shown.append(files[at])
                return Image.open(files[at]).convert("RGB"), int(files[at].parent.name)

        def as_it_is(image: np.ndarray, quality: int) -> np.ndarray:
            return np.frombuffer(shown[-1].read_bytes(), dtype=np.uint8)  # not encoded a second time

        shown: list[Path] = []
        ffcv.fields.rgb_image.encode_jpeg = as_it_is
        fields = {"image": RGBImageField(write_mode="jpg"), "label": IntField()}
        DatasetWriter(str(folder / "images.beton"), fields, num_workers=1).from_indexed_dataset(Files())


def _processes() -> Iterator[str]:
    """The places in /proc of this process and of all below it."""
    todo = [f"/proc/{os.getpid()}"]
    while todo:
        place = todo.pop()
        yield place
        with suppress(OSError):  # it has ended
            for thread in os.listdir(f"{place}/task"):
                todo += [f"/proc/{child}" for child in Path(place, "task", thread, "children").read_text().split()]


def _fields(place: str) -> list[str]:
    """Those of `stat`, from the state on."""
    return Path(place, "stat").read_text().rpartition(")")[2].split()


def _at_rest() -> float:
    """Processor seconds of all processes, once what is read ahead has been read: no thread but this one runs."""
    quiet, own, spent = 0, str(threading.get_native_id()), 0
    for _ in range(1_000):
        time.sleep(0.05)
        spent, running = 0, False
        for place in _processes():
            with suppress(OSError):
                spent += sum(map(int, _fields(place)[11:15]))  # also of threads and processes that have ended
                threads = [thread for thread in os.listdir(f"{place}/task") if thread != own]
                running |= any(_fields(f"{place}/task/{thread}")[0] in "RD" for thread in threads)
        quiet = 0 if running else quiet + 1
        if quiet == 4:
            break
    return spent / os.sysconf("SC_CLK_TCK")


def race(folder: Path, name: str) -> None:
    """For every number of batches that is asked for, the images and the processor seconds they took. Counted from rest
    to rest: as much is read ahead afterwards as was before."""
    _one_thread()
    batches = LOADERS[name](folder)
    for line in sys.stdin:
        before, images = _at_rest(), 0
        for _ in range(int(line)):
            x = next(batches)
            assert tuple(x.shape[1:]) == (3, SIZE, SIZE) and str(x.dtype) == "torch.float32", (x.shape, x.dtype)
            images += len(x)
        spread = float(x.std())
        print("RACE", json.dumps({"images": images, "seconds": _at_rest() - before, "spread": spread}), flush=True)


def main() -> None:
    what, folder, name = sys.argv[1:4]
    {"prepare": prepare, "race": race}[what](Path(folder), name)


if __name__ == "__main__":
    main()
