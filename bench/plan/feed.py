"""Estimate how many images per second processors decode for a device, which limits training that waits for images.

Only sets of encoded files (streamed sets) are decoded while training goes on. Sets that fit the device's memory are
decoded once, and stored pixels are read from the disk as they are. How fast a GPU decodes images itself was not
measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bench.data.load import some_encoded
from bench.plan.sizes import DataSizes
from bench.study.cell import Cell

PHOTOGRAPHS_PER_SECOND = 764.0
"""Images per second and core: JPEGs of 500 x 375 pixels and 60 kB, as ImageNet's, cropped at random to 224 px. Measured
by tools/measure_loading.py on an x86 core (reading, decoding, cropping and resizing, with simplejpeg)."""
PHOTOGRAPH_SIDE = 224  # pixels per side
PIXEL_SHARE = 0.24  # fraction of the time at `PHOTOGRAPH_SIDE` that grows with output pixels; measured at 64 to 384 px
UNCROPPED_FACTOR = (
    2.5  # decoding takes this many times as long without random crops, with all of the file; measured: 1.7 to 2.8
)


def of_photographs(cell: Cell) -> float:
    """Return the images per second that one core decodes for a cell, if they are photographs such as ImageNet's."""
    seconds = (1 - PIXEL_SHARE + PIXEL_SHARE * (cell.image_size / PHOTOGRAPH_SIDE) ** 2) / PHOTOGRAPHS_PER_SECOND
    return 1 / (seconds if cell.recipe.crop else UNCROPPED_FACTOR * seconds)


def per_core(cells: Iterable[Cell], sizes: DataSizes, *, device: str = "cuda") -> Mapping[Cell, float]:
    """Return cell -> images per second that one core decodes for it, for each cell whose set is streamed (decoded while
    it is read): measured here on a few files where the set is on this machine, else as for photographs.

    Args:
        device: the device that trains. Cells whose images a GPU decodes itself are left out.
    """
    rates: dict[tuple[str, int, int, float], float] = {}
    answers = {}
    for cell in cells:
        if not sizes[cell.data].streamed or (cell.recipe.decoding == "device" and device != "cpu"):
            continue
        key = (cell.data, cell.image_size, cell.channels, cell.recipe.crop)
        if key not in rates:
            rates[key] = _measured(cell, sizes) or of_photographs(cell)
        answers[cell] = rates[key]
    return answers


def _measured(cell: Cell, sizes: DataSizes) -> float:
    """Return the images per second that one core decodes of a cell's set, measured on a few of its files; 0 if no file
    is on this machine, or none can be decoded."""
    files = some_encoded(cell.data, root=sizes.root)
    if not files:
        return 0.0
    from bench.train.decoding import decoded_per_second  # imports torch

    return decoded_per_second(files, size=cell.image_size, channels=cell.channels, crop=cell.recipe.crop)
