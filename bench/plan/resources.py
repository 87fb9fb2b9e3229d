"""What a cell needs besides time: bytes on the device, the host and the disk, and from where its images are read.

Nothing is decoded or drawn to find out: numbers of images are those that are published, listed or asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.core import environment
from bench.core.device import free_memory
from bench.core.errors import UserError
from bench.core.files import free_bytes
from bench.core.formatting import data_size
from bench.core.spec import Cell, Recipe
from bench.cost.units import OPTIMIZER_BYTES
from bench.data import cache
from bench.data.image_set import AHEAD_BYTES, Tier, tier_of
from bench.data.load import some_encoded
from bench.plan.estimate import Rates
from bench.plan.sizes import DataSizes

FLOAT = 4
CHECKPOINTS = 2  # that are kept of a cell: the newest and the one before


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What one cell needs. Bytes; on a CPU, `device` and `host` are the same memory.

    Attributes:
        tier: from where training images are read. device: weights, gradients, optimizer, activations of a batch, and
            resident images. host: images on their way, and the index. disk: stored pixels or the index (all cells of a
            set share them), and checkpoints. wait: expected share of the training time spent waiting for images.
        kept: what a checkpoint holds, which passes through the host's memory when it is written.
    """

    tier: Tier
    device: int
    host: int
    disk: int
    wait: float
    kept: int


def kept_bytes(recipe: Recipe, params: int) -> int:
    """Bytes of what a checkpoint holds: weights, the optimizer's moments (bench/train/optim.py), their mean."""
    moments = OPTIMIZER_BYTES if recipe.optimizer == "adamw" else FLOAT * bool(recipe.momentum)
    return params * (FLOAT + moments + FLOAT * bool(recipe.average))


def state_bytes(recipe: Recipe, params: int, *, ranks: int) -> int:
    """Bytes on one device of what is kept, and gradients. Ranks that each hold the whole model have gradients twice:
    summed over micro-batches, and in the buckets that they exchange (bench/train/buckets.py)."""
    kept = kept_bytes(recipe, params)
    if recipe.sharding == "fsdp":
        return (kept + params * FLOAT) // ranks
    return kept + params * FLOAT * (1 if ranks == 1 else 2)


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
    """What a cell that trains needs.

    Args:
        memory: free bytes of the device. decoded_per_second: images that this machine decodes, where they are streamed.
        ranks: devices that train it together; needs are those of each. micro: images at a time on each, where that is
            not the recipe's.
    """
    from bench.data.index import ROW_BYTES  # brings Pillow

    size = sizes[cell.data]
    height, width, channels = size.shape or (cell.image_size, cell.image_size, cell.channels)
    images = cell.num_images or size.train
    pixels, total = images * height * width * channels, (size.train + size.test) * height * width * channels
    tier = tier_of(pixels, memory, encoded=size.streamed)
    state = state_bytes(cell.recipe, rates.params, ranks=ranks)
    share = max(1, cell.recipe.batch // ranks)
    micro = micro or min(share, cell.recipe.micro_batch or share)
    activations = micro * rates.activation_bytes // (1 if device == "cpu" else 2)  # half of it in bfloat16
    kept = kept_bytes(cell.recipe, rates.params)
    return Needs(
        tier=tier,
        device=state + activations + (pixels if tier == "resident" else 0),
        host=0 if tier == "resident" else AHEAD_BYTES + (ROW_BYTES * size.train if tier == "streamed" else 0),
        disk=CHECKPOINTS * kept + (ROW_BYTES * (size.train + size.test) if tier == "streamed" else total),
        wait=_wait(rates, decoded_per_second, device=device) if tier == "streamed" else 0.0,
        kept=kept,
    )


def _wait(rates: Rates, decoded_per_second: float, *, device: str) -> float:
    """Share of the time: a CPU decodes and trains in turns; for a GPU others decode beside it."""
    if not decoded_per_second:
        return 0.0
    decode, train = 1 / decoded_per_second, 1 / rates.train_images_per_second
    return decode / (decode + train) if device == "cpu" else max(0.0, 1 - train / decode)


def decoding_rate(cells: Sequence[Cell], sizes: DataSizes) -> float:
    """Images per second that all cores of this machine decode of the first streamed set that is here, from what one of
    them takes for a few; 0 where none is."""
    for cell in cells:
        if sizes[cell.data].streamed and (files := some_encoded(cell.data, root=sizes.root)):
            from bench.train.decoding import decoded_per_second  # brings torch

            shape = {"size": cell.image_size, "channels": cell.channels}
            return environment.cores() * decoded_per_second(files, **shape, crop=cell.recipe.crop)
    return 0.0


def check_room(cells: Sequence[Cell], sizes: DataSizes) -> None:
    """Refuse sets whose pixels the disk cannot hold, before the first of them is made.

    Raises:
        UserError: how much is needed, how much there is, what can be done.
    """
    place = cache.directory()
    for name in dict.fromkeys(name for cell in cells for name in (cell.data, *(task.data for task in cell.tasks))):
        needed, free = sizes.to_be_stored(name), free_bytes(place)
        if needed > free:
            raise UserError(
                f"{name} needs {data_size(needed)} of decoded images in {place}, which has {data_size(free)} free.",
                "Set VIT_BENCH_CACHE to a folder on a larger disk, or give a smaller --image-size.",
            )


def check_memory(cells: Sequence[tuple[Cell, Rates]], *, device: str, ranks: int) -> None:
    """Refuse models whose weights, gradients and optimizer do not fit on the device: smaller batches do not help.

    Raises:
        UserError: which model, how much it needs, what can be done.
    """
    memory = free_memory(device)
    for cell, rates in cells:
        needed = state_bytes(cell.recipe, rates.params, ranks=ranks)
        if needed > memory:
            raise UserError(
                f"{cell.model} needs {data_size(needed)} for weights, gradients and optimizer; {device} has "
                f"{data_size(memory)} free.",
                "Spread it over devices (--ranks N --set sharding=fsdp), or leave it out of --models.",
            )
