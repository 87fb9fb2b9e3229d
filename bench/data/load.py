"""`load("glyphs", "train", num_images=1000)`: a data set by name, whole or as one of its nested subsets."""

from __future__ import annotations

import re
from pathlib import Path

from bench.core import registry
from bench.core.errors import UserError
from bench.data.image_set import ImageSet
from bench.data.subset import nested

SPLITS = ("train", "test")


def load(name: str, split: str, *, root: Path | None = None, num_images: int | None = None, seed: int = 0) -> ImageSet:
    """One split of a data set; `num_images` takes the nested, class-balanced subset of that size.

    Args:
        name: public name of a file in bench/data/sets/, for example "fashion-mnist"; after a colon the set's options,
            if it has any: "emnist:letters", "folder:flowers" (the file's `OPTIONS` describes them).
        split: "train" or "test".
        root: folder with data sets that do not come with the installation.
        num_images: None for the whole split in its own order. Subsets come in the order of `subset.nested`.
        seed: seed of the subset; unused for the whole split.

    Raises:
        UserError: unknown name, data not on this machine (with how to get it), more images than there are.
    """
    base, _, option = name.partition(":")
    module = registry.load("data set", base)
    if split not in SPLITS:
        raise UserError(f"Data set {name!r} has no split {split!r}.", f"Known: {', '.join(SPLITS)}.")
    if option and not getattr(module, "OPTIONS", None):
        raise UserError(f"Data set {base!r} takes nothing after a colon, but {option!r} was given.", f"Write {base!r}.")
    options = {"option": option} if option else {}
    images: ImageSet = module.load(split, root=Path(root) if root is not None else None, **options)
    if num_images is None:
        return images
    if not 1 <= num_images <= len(images):
        raise UserError(
            f"{name}@{num_images}: the {split} split of {name!r} on this machine has {len(images):,} images.",
            f"Ask for 1 to {len(images):,}.",
        )
    return images.take(nested(images.labels_N, num_images, seed, keys_N=images.content_keys_N))


def check_shape(name: str, shape: tuple[int, ...], *, image_size: int, channels: int) -> None:
    """Check that images have the shape that the study's models take: (height, width, channels).

    Raises:
        UserError: they differ; with the name under which the set has them, where it comes in any size.
    """
    if tuple(shape) == (image_size, image_size, channels):
        return
    base, _, option = name.partition(":")
    height, width, found = shape
    what = (
        f"{name} holds {height}x{width} images with {found} channel(s), but the study asks for "
        f"{image_size}x{image_size} with {channels}."
    )
    if "px" not in (getattr(registry.load("data set", base), "OPTIONS", None) or ""):
        raise UserError(what, f"{base} comes in this size only; sets that have a size in their name come in any.")
    kept = [word for word in option.split(":") if word and not re.fullmatch(r"\d+px|rgb|grey", word)]
    right = ":".join([base, *kept, f"{image_size}px", "grey" if channels == 1 else "rgb"])
    raise UserError(what, f"Write {right}.")


def parse(text: str) -> tuple[str, int | None]:
    """`"name@N"` -> (name, N); a plain name -> (name, None)."""
    match = re.fullmatch(r"([^@]+)(?:@([0-9][0-9_,]{0,17}))?", text)
    if match is None:
        raise UserError(f"{text!r} is not a data set.", "Write a name, or name@N for N images: fashion-mnist@1000.")
    size = match.group(2)
    return match.group(1), int(re.sub(r"[_,]", "", size)) if size else None
