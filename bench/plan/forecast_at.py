"""Convert the training at which the gain of a change is forecast (--at), such as "ViT-B/16:300epochs", to its FLOPs."""

from __future__ import annotations

from bench.core.cli import PLACE
from bench.core.errors import UserError
from bench.core.formatting import count, flops
from bench.cost import flops as counter
from bench.data.load import data_set
from bench.plan.sizes import DataSizes
from bench.study import registry
from bench.study.cell import Cell

USUAL_SIZE = 224  # pixels per side, for networks that do not take the study's images


def counted(text: str, cells: tuple[Cell, ...], sizes: DataSizes) -> tuple[float, str]:
    """Return the training FLOPs of "NETWORK[@PIXELS]:AMOUNT[epochs|images]", and a sentence that says of which training
    they are.

    Args:
        text: the training. Without a network, it is the one of the study that takes most FLOPs per image; epochs are
            passes over the study's training images.
        cells: cells of the study.
        sizes: sizes of the data sets.

    Raises:
        UserError: the text has another form, or the network is not known or does not take images of that size.
    """
    match = PLACE.fullmatch(text)
    if match is None or not cells:
        raise UserError(f"{text!r} names no training.", "Write ViT-B/16:300epochs, or FLOPs such as 1e18.")
    base = cells[0]
    named, at_size, pixels = (match[1] or "").rpartition("@") if "@" in (match[1] or "") else (match[1] or "", "", "")
    if at_size and not pixels.removesuffix("px").isdigit():
        raise UserError(f"{pixels!r} is no number of pixels.", "Write ViT-B/16@224:300epochs.")
    models = [named] if named else list(dict.fromkeys(cell.model for cell in cells))
    wanted = (
        [int(pixels.removesuffix("px"))] if at_size else [base.image_size, USUAL_SIZE] if named else [base.image_size]
    )
    for model in models:
        registry.check_model(model)
    size, per_image, model = max((_cost(model, wanted, base) for model in models), key=lambda made: made[1])
    images = float(match[2])
    what = f"{count(images)} images"
    if match[3].lower().startswith("epoch"):
        train = sizes[base.data].train if base.num_images is None else base.num_images
        what = f"{images:g} epochs of {count(train)} images"
        images *= train
    total = images * per_image
    return total, f"The forecast is at {flops(total)}: {model} at {size} px for {what}."


def _cost(model: str, pixels: list[int], base: Cell) -> tuple[int, float, str]:
    """Return (pixels per side, training FLOPs of an image, model), at the first size that the model takes.

    Args:
        pixels: the sizes to try, in order, in pixels per side.
        base: a cell of the study, which gives the number of channels and classes.

    Raises:
        UserError: the model takes none of the sizes.
    """
    for number, size in enumerate(pixels):
        try:
            cost = counter.count(
                model,
                image_size=size,
                channels=base.channels if size == base.image_size else 3,
                num_classes=data_set(base.data).classes or 10,
                activations=False,
            )
        except UserError:
            if number + 1 == len(pixels):
                raise
            continue
        return size, float(cost.train_flops_per_image["paper"]), model
    raise AssertionError("a size is always tried")
