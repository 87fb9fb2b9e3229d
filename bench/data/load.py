"""`load("glyphs", "train", num_images=1000)`: a data set by name, whole or as one of its nested subsets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bench.core.data_settings import folder_set, is_path, remember_labels
from bench.core.errors import UserError
from bench.data import rehearsed
from bench.data.data_set import DataSet
from bench.data.image_set import ImageSet
from bench.data.subset import nested, validation
from bench.study import registry
from bench.study.names import DataName

SPLITS = ("train", "test")
MAX_VALIDATION = 2_500  # images: their error is shared by all rates of a sweep, and more would cost as much as training
DEFAULT_SIDE = 64
"""Pixels per side of larger photographs, where nobody says a size and the suite asks for no more."""


def data_set(name: str) -> DataSet:
    """The facts of a data set, by its name with or without options; in a rehearsal, those of a few images of it.

    Raises:
        UserError: unknown name (suggests the nearest).
    """
    chosen: DataSet = registry.load("data set", name)
    return rehearsed.of(chosen) if rehearsed.is_rehearsing() else chosen


def load(name: str, split: str, *, root: Path | None = None, num_images: int | None = None, seed: int = 0) -> ImageSet:
    """One split of a data set; `num_images` takes the nested, class-balanced subset of that size.

    Args:
        name: public name of a file in bench/data/sets/, for example "fashion-mnist"; after a colon the set's options,
            if it has any: "emnist:letters", "folder:flowers" (its `options` describe them).
        split: "train" or "test".
        root: folder with data sets that do not come with the installation.
        num_images: None for the whole split in its own order. Subsets come in the order of `subset.nested`.
        seed: seed of the subset; unused for the whole split.

    Raises:
        UserError: unknown name, data not on this machine (with how to get it), more images than there are.
    """
    named = DataName.parse(name)
    base, option = named.base, named.option
    chosen = data_set(base)
    if split not in SPLITS:
        raise UserError(f"Data set {name!r} has no split {split!r}.", f"Known: {', '.join(SPLITS)}.")
    if option and not chosen.options:
        raise UserError(f"Data set {base!r} takes nothing after a colon, but {option!r} was given.", f"Write {base!r}.")
    options = {"option": option} if option else {}
    images = chosen.load(split, root=Path(root) if root is not None else None, **options)
    if num_images is None:
        return images
    if not 1 <= num_images <= len(images):
        raise UserError(
            f"{name}@{num_images}: the {split} split of {name!r} on this machine has {len(images):,} images.",
            f"Ask for 1 to {len(images):,}.",
        )
    return images.take(nested(images.labels_N, num_images, seed, keys_N=images.content_keys_N))


def load_held_out(name: str, *, root: Path | None = None, num_images: int | None = None) -> tuple[ImageSet, ImageSet]:
    """Training images without a part that is held out of them, and `MAX_VALIDATION` images of that part at most.

    Args:
        num_images: of the training images that stay, as `load` takes them.

    Raises:
        UserError: as `load`, and more images than stay.
    """
    whole = load(name, "train", root=root)
    kept, out = validation(whole.labels_N, whole.content_keys_N, most=MAX_VALIDATION)
    if num_images is not None:
        if not 1 <= num_images <= len(kept):
            raise UserError(
                f"{name}@{num_images}: {len(kept):,} training images are left where a part of them is held out.",
                f"Ask for 1 to {len(kept):,}.",
            )
        kept = kept[nested(whole.labels_N[kept], num_images, keys_N=whole.content_keys_N[kept])]
    return whole.take(kept), whole.take(out)


def with_tables(
    name: str, *, root: Path | None, labels: Path | None = None, columns: Sequence[str] = ()
) -> tuple[Path | None, str]:
    """(data root, name) of a set that may be named by its folder's path, with the labels that a table gives its images.

    Args:
        labels, columns: as of `--labels` and `--label-columns`.

    Raises:
        UserError: as `folder_set`; a table for a set that is no folder of images; see `bench.data.labels`.
    """
    if is_path(name):
        root, name = folder_set(name, root)
    if labels is None and not columns:
        return root, name
    remember_labels(labels, columns)
    full, size = parse(name)
    plain = DataName.parse(full)
    if (grouped := data_set(plain.base).grouped) is None:
        raise UserError(f"--labels is about a folder of images, and {name} is none.", "Name it: folder:photos.")
    option, _ = grouped(plain.option, root=root, file=None, table=labels, columns=columns)
    return root, str(DataName(plain.base, option)) + (f"@{size}" if size else "")


def resizes(name: str) -> bool:
    """Whether a set can be stored at any size, and its name does not say one yet."""
    return data_set(name).takes_side and re.search(r":\d+px", name) is None


def look(name: str, *, root: Path | None) -> tuple[int | None, int] | None:
    """(pixels per side, channels) of the images that a name gives, decoding as few as possible.

    Returns:
        The side is None for images of many sizes, of which one has to be said. None for a set that is not here.

    Raises:
        UserError: unknown name or option; a folder that is not there.
    """
    named = DataName.parse(name)
    chosen = data_set(named.base)
    if chosen.look is not None:
        return chosen.look(named.option, root=root)
    if not chosen.available(root):
        return None
    _, side, _, channels = load(name, "test", root=root).images_NHWC.shape
    return side, channels


def num_images(name: str, *, root: Path | None) -> int:
    """Training images of a set, about, without decoding any: as published, as drawn, or as its files are listed.

    Raises:
        UserError: unknown name or option, or a set that is not here and of which nothing is published.
    """
    named = DataName.parse(name)
    chosen = data_set(named.base)
    if chosen.size is not None:
        return chosen.size(named.option)["train"]
    if chosen.images is not None and not chosen.carried_in_part:
        return chosen.images[0]
    if chosen.listed_images is not None:
        return chosen.listed_images(named.option, root=root)
    return len(load(name, "train", root=root))


def some_encoded(name: str, *, root: Path | None) -> list[bytes]:
    """A few encoded images of a set; none where they are no files, or not here."""
    named = DataName.parse(name)
    encoded = data_set(named.base).some_encoded
    return encoded(named.option, root=root) if encoded is not None else []


def side_of(name: str) -> int | None:
    """Pixels per side at which a set is stored, by its name and its facts, without opening it; None where nobody says:
    a set of a user's own, or one that is not known here."""
    named = DataName.parse(name)
    if named.side is not None:
        return named.side
    try:
        return data_set(named.base).side
    except UserError:
        return None


def named_at(name: str, side: int, channels: int) -> str:
    """The name under which a set that resizes is stored at a size: "folder:mine" -> "folder:mine:64px:rgb"."""
    named = DataName.parse(name)
    words = [word for word in named.words if word and not re.fullmatch(r"\d+px|rgb|grey", word)]
    words.append(f"{side}px")
    if data_set(named.base).takes_colour:
        words.append("grey" if channels == 1 else "rgb")
    return str(DataName(named.base, ":".join(words)))


def stored_at(name: str, side: int, channels: int, *, root: Path | None) -> str:
    """`named_at`; the name itself where the set does not resize, or not to this size: tiles are cut out of pictures."""
    if resizes(name):
        try:
            look(stored := named_at(name, side, channels), root=root)
            return stored
        except UserError:
            pass
    return name


def parse(text: str) -> tuple[str, int | None]:
    """`"name@N"` -> (name, N); a plain name -> (name, None). "folder:mine:rgb:32px" is "folder:mine:32px:rgb"."""
    match = re.fullmatch(r"([^@]*[^@:])(?:@([0-9][0-9_,]{0,17}))?", text)
    if match is None:
        raise UserError(f"{text!r} is not a data set.", "Write a name, or name@N for N images: fashion-mnist@1000.")
    size = match.group(2)
    name = re.sub(r":(rgb|grey):(\d+px)(?=:|$)", r":\2:\1", match.group(1))
    return name, int(re.sub(r"[_,]", "", size)) if size else None
