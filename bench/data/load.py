"""Loading of data sets by name, whole or as a nested subset, which contains every smaller one: `load("glyphs", "train",
num_images=1000)`."""

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
MAX_VALIDATION = 2_500  # validation images at most: all learning rates share their error; more would cost like training
DEFAULT_SIDE = 64
"""Pixels per side to which larger photographs are resized if no size is given and the suite does not need more."""


def data_set(name: str) -> DataSet:
    """Return the description of a data set, by its name with or without options. In a rehearsal (a trial run of a
    study, `bench.data.rehearsed`), it is that of the set reduced to a few images.

    Raises:
        UserError: the name is unknown; the nearest is suggested.
    """
    chosen: DataSet = registry.load("data set", name)
    return rehearsed.of(chosen) if rehearsed.is_rehearsing() else chosen


def load(name: str, split: str, *, root: Path | None = None, num_images: int | None = None, seed: int = 0) -> ImageSet:
    """Return one split of a data set, or a class-balanced subset of it that contains every smaller one.

    Args:
        name: public name, for example "fashion-mnist"; after a colon the set's options, if it has any:
            "emnist:letters", "folder:flowers" (`DataSet.options` describes them).
        split: "train" or "test".
        root: folder with data sets that do not come with the installation.
        num_images: size of the subset, which is ordered as by `subset.nested`; None for the whole split in its own
            order.
        seed: seed of the subset; unused for the whole split.

    Raises:
        UserError: the name is unknown; the data is not on this machine (the message says how to get it); there are
            fewer images than asked for.
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
    """Divide the training images of a set into some to train on and some to validate on. Return (those to train on, at
    most `MAX_VALIDATION` of those that are held out).

    Args:
        name, root: see `load`.
        num_images: size of a nested subset of the images to train on, as in `load`; None for all.

    Raises:
        UserError: see `load`; or more images to train on are asked for than there are.
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
    """Return (data root, name) of a set. If a table of labels or its columns are given, the name is extended by a hash
    that identifies the images' labels.

    Args:
        name: name of the set, or the path of a folder of images.
        root: folder with data sets that are not installed.
        labels: value of `--labels`, the path of a table of labels; None without one.
        columns: value of `--label-columns`, "ROLE=COLUMN" for each column that the user named.

    Raises:
        UserError: the folder does not exist or is not directly in `root`; the table cannot be read
            (`bench.data.labels`); or a table is given for a set that is no folder of images.
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
    """Whether a set can be stored at any size and `name` does not state one."""
    return data_set(name).takes_side and re.search(r":\d+px", name) is None


def look(name: str, *, root: Path | None) -> tuple[int | None, int] | None:
    """Find out the size of a set's images, decoding as few as possible. `root`: folder with data sets that are not
    installed.

    Returns:
        (pixels per side, channels); the side is None if images have different sizes, so that the name has to state one.
        None instead of the pair if the set is not on this machine.

    Raises:
        UserError: the name or an option is unknown, or a folder does not exist.
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
    """Return the approximate number of a set's training images: as published, as rendered, or as its files list them.
    Images are decoded only if none of these is known. `root`: folder with data sets that are not installed.

    Raises:
        UserError: the name or an option is unknown, or the set is not on this machine and its size is not published.
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
    """Return the bytes of a few encoded images of a set; an empty list if its images are not encoded, or not on this
    machine. `root`: folder with data sets that are not installed."""
    named = DataName.parse(name)
    encoded = data_set(named.base).some_encoded
    return encoded(named.option, root=root) if encoded is not None else []


def side_of(name: str) -> int | None:
    """Return the pixels per side at which a set is stored, from its name or description, without opening it. None if
    neither states it, as for users' own sets, or if the set is unknown."""
    named = DataName.parse(name)
    if named.side is not None:
        return named.side
    try:
        return data_set(named.base).side
    except UserError:
        return None


def named_at(name: str, side: int, channels: int) -> str:
    """Return the name under which a resizable set is loaded at `side` pixels per side with `channels` channels:
    "folder:mine" becomes "folder:mine:64px:rgb" for 64 pixels and 3 channels."""
    named = DataName.parse(name)
    words = [word for word in named.words if word and not re.fullmatch(r"\d+px|rgb|grey", word)]
    words.append(f"{side}px")
    if data_set(named.base).takes_colour:
        words.append("grey" if channels == 1 else "rgb")
    return str(DataName(named.base, ":".join(words)))


def stored_at(name: str, side: int, channels: int, *, root: Path | None) -> str:
    """Return the name of a set at a given size (`named_at`); return `name` unchanged if the set cannot be resized, or
    not to this size (tiles are cut out of pictures of limited size)."""
    if resizes(name):
        try:
            look(stored := named_at(name, side, channels), root=root)
            return stored
        except UserError:
            pass
    return name


def parse(text: str) -> tuple[str, int | None]:
    """Split "name@N" into (name, N) and a plain name into (name, None). Options in the name are brought into a fixed
    order: "folder:mine:rgb:32px" becomes "folder:mine:32px:rgb".

    Raises:
        UserError: the text has another form.
    """
    match = re.fullmatch(r"([^@]*[^@:])(?:@([0-9][0-9_,]{0,17}))?", text)
    if match is None:
        raise UserError(f"{text!r} is not a data set.", "Write a name, or name@N for N images: fashion-mnist@1000.")
    size = match.group(2)
    name = re.sub(r":(rgb|grey):(\d+px)(?=:|$)", r":\2:\1", match.group(1))
    return name, int(re.sub(r"[_,]", "", size)) if size else None
