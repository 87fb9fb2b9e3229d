"""What a cell needs besides time: bytes on the device, the host and the disk, and where its images are read from.

No image is decoded or generated to find out: numbers of images are those that are published, listed or asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.core.errors import UserError
from bench.core.files import free_bytes
from bench.core.formatting import data_size
from bench.data import cache
from bench.data.image_set import AHEAD_BYTES, INDEX_BYTES, Tier, tier_of
from bench.plan.estimate import Rates, waiting
from bench.plan.sizes import DataSizes
from bench.store.checkpoints import MAX_KEPT
from bench.study import registry
from bench.study.cell import Cell, Recipe

FLOAT_BYTES = 4  # bytes per float32 number
MEMORY_MARGIN = 1.5  # memory that a worker requests, divided by the memory that a plan expects
GPU_PROCESS_BYTES = 8 << 30  # bytes of a process with CUDA's libraries and a compiler
CORES_BESIDE_GPU: Mapping[Tier, int] = {"resident": 4, "mapped": 8, "streamed": 16}  # per process
CHECKPOINTS_ON_DISK = (
    MAX_KEPT + 1
)  # checkpoints of a running cell: those that are kept, and the next, which is written before an old one is removed


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Resources that one cell needs, in bytes where nothing else is said. On a CPU, `device` and `host` are the same
    memory.

    Attributes:
        tier: from where training images are read: "resident", the device's memory; "mapped", stored pixels on the disk;
            "streamed", encoded files.
        device: weights, gradients, optimizer, activations of a batch, and images that are resident.
        host: images on their way to the device, and the index of streamed files.
        shared: data set -> bytes of its stored pixels or index on the disk, which all cells share that use the set.
        kept: what a checkpoint holds, which passes through the host's memory when it is written.
        weights: final weights, which stay on the disk when the cell is finished.
        decoded: images per second that the cores beside one process decode, if images are streamed; 0: not known.
        wait: expected fraction of the training time that is spent waiting for images.
    """

    tier: Tier
    device: int
    host: int
    shared: Mapping[str, int]
    kept: int
    weights: int
    decoded: float = 0.0
    wait: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Disk:
    """Bytes that cells need on the disk.

    Attributes:
        shared: stored pixels and indices, once per data set.
        checkpoints: checkpoints of the cells that run at once, taken to be those with the largest: the ones that are
            kept, and the one that is being written.
        weights: final weights of every cell.
        running: number of cells that run at once.
    """

    shared: int
    checkpoints: int
    weights: int
    running: int

    @property
    def total(self) -> int:
        return self.shared + self.checkpoints + self.weights

    def json(self) -> dict[str, int]:
        """Return the bytes, and their total, as JSON types."""
        return asdict(self) | {"total": self.total}


def disk(needed: Sequence[Needs], *, running: int) -> Disk:
    """Return what these cells need on the disk, if `running` of them run at once."""
    shared: dict[str, int] = {}
    for each in needed:
        for name, size in each.shared.items():
            shared[name] = max(size, shared.get(name, 0))
    largest = sorted((each.kept for each in needed), reverse=True)[:running]
    return Disk(
        shared=sum(shared.values()),
        checkpoints=CHECKPOINTS_ON_DISK * sum(largest),
        weights=sum(each.weights for each in needed),
        running=len(largest),
    )


def kept_bytes(recipe: Recipe, params: int) -> int:
    """Return the bytes of a checkpoint of a model with `params` parameters: weights, the optimizer's moments
    (bench/train/optimizers/), and the averaged weights where the recipe has them."""
    moments = FLOAT_BYTES * registry.load("optimizer", recipe.optimizer).moments(recipe)
    return params * (FLOAT_BYTES + moments + FLOAT_BYTES * bool(recipe.average))


def state_bytes(recipe: Recipe, params: int, *, ranks: int) -> int:
    """Return the bytes on one device of what a checkpoint holds, and of gradients, for a model with `params`
    parameters. Ranks (processes that train a cell together) that each hold the whole model have gradients twice: summed
    over micro-batches, and in the buckets that DistributedDataParallel exchanges."""
    kept = kept_bytes(recipe, params)
    if recipe.sharding == "fsdp":
        return (kept + params * FLOAT_BYTES) // ranks
    return kept + params * FLOAT_BYTES * (1 if ranks == 1 else 2)


def needs(
    cell: Cell,
    rates: Rates,
    sizes: DataSizes,
    *,
    device: str,
    memory: int,
    decoded_per_second: float,
    ranks: int = 1,
    micro: int | None = None,
) -> Needs:
    """Return the resources that a cell that trains needs.

    Args:
        rates: throughput and sizes of its model.
        memory: free bytes of the device.
        decoded_per_second: images that the cores beside one process decode, where they are streamed; 0: not known.
        ranks: number of devices that train the cell together; the needs are those of each.
        micro: images that pass through each device at a time; None: as many as the recipe says.
    """
    size = sizes[cell.data]
    height, width, channels = size.shape or (cell.image_size, cell.image_size, cell.channels)
    images = cell.num_images or size.train
    pixels = images * height * width * channels
    tier = tier_of(pixels, memory, encoded=size.streamed)
    state = state_bytes(cell.recipe, rates.params, ranks=ranks)
    share = max(1, cell.recipe.batch // ranks)
    micro = micro or min(share, cell.recipe.micro_batch or share)
    activations = micro * rates.activation_bytes // (1 if device == "cpu" else 2)  # bfloat16 takes half
    kept = kept_bytes(cell.recipe, rates.params)
    decoded = decoded_per_second if tier == "streamed" else 0.0
    return Needs(
        tier=tier,
        device=state + activations + (pixels if tier == "resident" else 0),
        host=0 if tier == "resident" else AHEAD_BYTES + (INDEX_BYTES * size.train if tier == "streamed" else 0),
        shared={name: _stored(name, cell, sizes) for name in (cell.data, *(task.data for task in cell.tasks))},
        kept=kept,
        weights=FLOAT_BYTES * rates.params,
        decoded=decoded,
        wait=waiting(rates.train_images_per_second, decoded, device=device),
    )


def _stored(name: str, cell: Cell, sizes: DataSizes) -> int:
    """Return the bytes of a data set on the disk: of its pixels, or of its index if it is streamed (decoded while it is
    read). `cell`: gives the size of images where the set's own is not known."""
    size = sizes[name]
    height, width, channels = size.shape or (cell.image_size, cell.image_size, cell.channels)
    return (size.train + size.test) * (INDEX_BYTES if size.streamed else height * width * channels)


def beside_gpu(needs: Needs | None) -> tuple[int, int]:
    """Return (cores, bytes of host memory) that a process needs beside its GPU, on any kind of cluster. If images are
    read while it trains, each reader has a core. `needs`: None if they are not known."""
    tier = "resident" if needs is None else needs.tier
    passing = 0 if needs is None else needs.host + needs.kept
    return CORES_BESIDE_GPU[tier], GPU_PROCESS_BYTES + int(MEMORY_MARGIN * passing)


def check_room(cells: Sequence[Cell], sizes: DataSizes) -> None:
    """Refuse data sets whose pixels the disk cannot hold, before the first of them is written.

    Raises:
        UserError: a set does not fit; the message says how much it needs, how much is free, and what can be done.
    """
    place = cache.directory()
    for name in dict.fromkeys(name for cell in cells for name in (cell.data, *(task.data for task in cell.tasks))):
        needed, free = sizes.to_be_stored(name), free_bytes(place)
        if needed > free:
            raise UserError(
                f"{name} needs {data_size(needed)} of decoded images in {place}, which has {data_size(free)} free.",
                "Set VIT_BENCH_CACHE to a folder on a larger disk, or give a smaller --image-size.",
            )


def check_memory(cells: Sequence[tuple[Cell, Rates]], memory: int, *, device: str, ranks: int) -> None:
    """Refuse models whose weights, gradients and optimizer do not fit on a device with `memory` free bytes, because
    smaller batches do not help then.

    Args:
        device: name of the device, for the message.
        ranks: number of devices that train a cell together.

    Raises:
        UserError: a model does not fit; the message says which, how much it needs, and what can be done.
    """
    for cell, rates in cells:
        needed = state_bytes(cell.recipe, rates.params, ranks=ranks)
        if needed > memory:
            raise UserError(
                f"{cell.model} needs {data_size(needed)} for weights, gradients and optimizer; {device} has "
                f"{data_size(memory)} free.",
                "Spread it over devices (--ranks N --set sharding=fsdp), or leave it out of --models.",
            )


def too_little_disk(needed: Disk, results: Path) -> str:
    """Return a warning if checkpoints and weights need more than is free on the disk of `results`, the folder that they
    are written to; else ""."""
    written, free = needed.checkpoints + needed.weights, free_bytes(results)
    if written <= free:
        return ""
    return (
        f"Warning: checkpoints and final weights need about {data_size(written)}, and {results} has {data_size(free)} "
        "free. Free some space, give fewer --jobs, or choose another folder with --results."
    )
