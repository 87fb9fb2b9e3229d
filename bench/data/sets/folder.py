"""A folder of the user's own images: `folder:flowers` is <data root>/flowers, in any of these formats:

* a folder of images per class, with or without train/ and test/ (or val/) above them;
* WebDataset shards, `train-0000.tar` …;
* Parquet with embedded images, as the Hugging Face hub ships it, or the Arrow files of its package `datasets`;
* NumPy archives, `train.npz` and `test.npz` (or one with train_images …);
* the four IDX files (MNIST's format);
* image files anywhere below the folder, with a table of their labels (bench/data/labels.py).

Large sets are streamed (bench/data/stream.py): their files are indexed once, and decoded when they are needed; random
crops then come from the full image. Others are decoded once, at one size.

Without a test split, a tenth of every class is held out, chosen by content. The order of images depends on their
content alone (`subset.nested`), so the same images are the same set, with the same hash, in every format.

If ImageNet's ReaL labels lie in the folder (`real.json`, see bench/data/real.py), the test images get them too.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np

from bench.core.data_settings import asked_columns
from bench.core.errors import UserError
from bench.data import cache, index, labels, real
from bench.data import groups as grouping
from bench.data.data_set import DataSet
from bench.data.decode import REVISION as DECODING
from bench.data.decode import Storage, decode_all, each, head
from bench.data.formats import arrays, arrow, images, parquet, tars
from bench.data.image_set import ImageSet
from bench.data.progress import Progress
from bench.data.source import FolderContents, Source
from bench.data.stream import StreamedImages
from bench.data.subset import HELD_OUT, held_out, nested

REVISION = 2  # 2: images are turned upright by EXIF, GIF files are read
HOW_TO_GET = "Give --data-root, and name a folder in it that holds images: folder:flowers."
OPTIONS = (
    "folder:NAME[:64px][:rgb|:grey][:stream|:stored] reads <data root>/NAME; 64px resizes the central square of every "
    "image; stream decodes images when they are needed, as is done where their pixels are more than 4 GB"
)

FORMATS: tuple[ModuleType, ...] = (parquet, arrow, tars, arrays, images)  # the first that recognises a folder reads it
MAX_SIDE = 4096
LOOKED_AT = 64  # images whose sizes are read first
STREAMED_BYTES = 4 << 30  # a split with more bytes of pixels is streamed, unless the option says "stored"
INDEPENDENT = "Intervals take groups as independent, not their images."
STREAMED_SIDE = 224  # pixels per side of streamed images if the option states none


def load(split: str, *, root: Path | None, option: str = "", as_published: bool = False) -> ImageSet:
    name, storage, streamed = parse_option(option)
    storage, shown = replace(storage, as_published=as_published), f"folder:{option}" if option else "folder"
    about = About() if as_published else about_images(_place(root, name), option)
    return read(_place(root, name), split, storage=storage, streamed=streamed, name=shown, about=about)


@dataclass(frozen=True, kw_only=True)
class About:
    """What tables state about a folder's images: their labels, and their groups (images that belong together, such as
    those of one patient). Each is None without such a table."""

    labels: labels.Labels | None = None
    groups: grouping.Groups | None = None

    @property
    def words(self) -> str:
        """Parts of a set's name, "labels-" or "groups-" and a hash, that identify these labels and groups, separated by
        a blank; "" if there are neither."""
        return " ".join(one.word for one in (self.labels, self.groups) if one is not None and one.word)


def about_images(folder: Path, option: str = "") -> About:
    """Return the labels and groups of a folder's images: those whose hashes `option` (the text after the first colon of
    the set's name) states, or else those of tables in the folder.

    Raises:
        UserError: a table cannot be read, or none has the hash (`bench.data.labels`, `bench.data.groups`).
    """
    return _with_groups(labels.of_folder(folder, _word(labels.WORD, option)), folder, option)


def _with_groups(labelled: labels.Labels | None, folder: Path, option: str, file: Path | None = None) -> About:
    """Return labels together with groups: the groups whose hash `option` states, or else those in `file`, or else those
    of the folder's own file, or else those in a column of the table of labels."""
    word = _word(grouping.WORD, option)
    groups = grouping.of_folder(folder, word) if word or file is None else grouping.read(file)
    if groups is None and labelled is not None and labelled.groups:
        groups = grouping.Groups(path=labelled.path, of=labelled.groups, word="")  # the labels' hash covers them
    return About(labels=labelled, groups=groups)


def grouped(
    option: str, *, root: Path | None, file: Path | None, table: Path | None = None, columns: Sequence[str] = ()
) -> tuple[str, tuple[str, ...]]:
    """Return (`option` extended by the hashes of the images' labels and groups, sentences for the user about both). The
    option is unchanged if there are no such tables.

    Args:
        option: the text after the first colon of the set's name, "flowers:64px".
        root: the data root (folder with data sets that are not installed).
        file: file of groups; None for the one in the folder.
        table: table of labels; None for the one in the folder.
        columns: columns of that table, in the form of `--label-columns`.

    Raises:
        UserError: a table cannot be read, or none has the hash (`bench.data.labels`, `bench.data.groups`).
    """
    folder, word = _place(root, parse_option(option)[0]), _word(labels.WORD, option)
    if word or not (tables := labels.own_tables(folder) if table is None else [table]):
        labelled = labels.of_folder(folder, word)
    else:
        labelled = labels.read(tables, folder, asked_columns(columns))
    about = _with_groups(labelled, folder, option, file)
    said = [] if labelled is None else [f"{'; '.join(labelled.notes)}."]
    if about.groups is not None:
        said.append(f"{contents(folder, about).format.rpartition('; ')[2]}. {INDEPENDENT}")
    return ":".join([*option.split(":"), *(w for w in about.words.split() if w not in option)]).removeprefix(
        ":"
    ), tuple(said)


def _word(pattern: re.Pattern[str], option: str) -> str:
    """Return the part of an option (text with colons) that the pattern matches; "" if there is none."""
    return next((word for word in option.split(":") if pattern.fullmatch(word)), "")


def contents(folder: Path, about: About) -> FolderContents:
    """Return the images in a folder, in any format, with the labels and groups that tables give them (`about`).

    Raises:
        UserError: the images cannot be read (see `find` of `bench.data.formats`); or tables give labels or groups to
            images that are not separate files.
    """
    found = _format(folder).find(folder) if about.labels is None else labels.contents(folder, about.labels)
    return grouping.divide(found, folder, about.groups) if about.groups is not None else found


def _ungrouped(folder: Path, option: str = "") -> FolderContents:
    """Return the images in a folder with their labels, but without groups, which matter only for which images are held
    out. `option`: states the hash of the labels, or none for those of the folder's own table."""
    labelled = labels.of_folder(folder, _word(labels.WORD, option))
    return contents(folder, About(labels=labelled))


def read(
    folder: Path, split: str, *, storage: Storage, streamed: bool | None, name: str, about: About | None = None
) -> ImageSet:
    """Return one split of the images in a folder, in any format.

    Args:
        split: "train" or "test".
        storage: size and form in which images are decoded.
        streamed: whether images are decoded only when they are read; None to do so if the set is large (`_is_large`).
        name: name of the set.
        about: labels and groups of the images; None for labels from a table in the folder, and no groups.
    """
    shown, as_published = name, storage.as_published
    about = About(labels=labels.of_folder(folder, "")) if about is None else about
    word = about.words
    known = index.indexed(folder, split, as_published=as_published, words=word) if streamed is not False else None
    if known is not None and (streamed or _is_large(len(known), storage)):
        return _streamed(known, storage, name=shown, split=split)
    found = contents(folder, about)
    part = split if split in found.sources else "all"
    source = found.sources[part]
    if streamed or (streamed is None and not source.is_pixels and _is_large(len(source), storage)):
        known = index.open_index(folder, split, found=found, as_published=as_published)
        return _streamed(known, storage, name=shown, split=split)
    several = real.beside(folder, source, num_classes=len(found.class_names)) if part == "test" else None
    files = [str(path.relative_to(folder)) for path in source.files]
    settings = (REVISION, DECODING, part, storage, found.class_names, files, *word.split())
    key = f"folder-{cache.fingerprint((*settings, several) if several else settings, source.files)}"
    where = str(folder) if part == "all" else f"{folder}, {part}"
    build = partial(_build, source, part, storage=storage, where=where, several=several)
    stored = cache.arrays(key, build)
    return ImageSet(
        name=shown,
        split=split,
        images_NHWC=stored[f"{split}_images"],
        labels_N=stored[f"{split}_labels"],
        class_names=found.class_names,
        kind=DATASET.kind,
        source=found.format
        + ("; a tenth held out for testing" if "all" in found.sources else "")
        + _left_out(json.loads(stored["facts"].tobytes())["unreadable"]),
        multi_labels=_multi_labels(stored, split, real_too=bool(several)),
        several=f"{split}_several_classes" in stored,
        groups_N=stored.get(f"{split}_groups"),
    )


def look(option: str, *, root: Path | None) -> tuple[int | None, int]:
    """Return (pixels per side, None for many sizes; channels) of the images in the folder that `option` names, read
    from the headers of images. `root`: the data root."""
    name, storage, _ = parse_option(option)
    return look_into(_place(root, name), storage, option)


def look_into(folder: Path, storage: Storage, option: str = "") -> tuple[int | None, int]:
    """Return (pixels per side, channels) of the images in a folder as `storage` keeps them; the side is None if they
    have many sizes. `option`: states the hash of the labels, if any."""
    if (known := index.indexed(folder, "train", as_published=False)) is not None:
        return storage.size, storage.channels or int(known.channels.max())
    if storage.size is not None and storage.channels is not None:
        return storage.size, storage.channels
    shapes = _shapes(next(iter(_ungrouped(folder, option).sources.values())))
    sides = {side for height, width, _ in shapes for side in (height, width)}
    kinds = {channels for *_, channels in shapes}
    side = next(iter(sides)) if len(sides) == 1 and (storage.channels or len(kinds) == 1) else None
    return storage.size or side, storage.channels or max(kinds, default=3)


def _shapes(source: Source) -> set[tuple[int, int, int]]:
    """Return the different (height, width, channels) of LOOKED_AT images. If these are all equal, all images are
    examined, because a single different one would make decoding fail."""
    some = {int(number) for number in np.linspace(0, len(source) - 1, LOOKED_AT)}
    shapes = {shape for number in sorted(some) if (shape := head(source.read(number))) is not None}
    if source.is_pixels or len(some) == len(source) or len(shapes) != 1:
        return shapes

    def build() -> dict[str, np.ndarray]:
        progress, found = Progress("looking at sizes", len(source)), set(shapes)
        for shape in each(source, lambda data, _: head(data)):
            progress.step()
            found |= {shape} if isinstance(shape, tuple) else set()
        return {"shapes": np.array(sorted(found), dtype=np.int64)}

    files = [str(path) for path in source.files]
    key = cache.fingerprint((DECODING, files), source.files, read_up_to=0)
    return {
        (height, width, channels) for height, width, channels in cache.arrays(f"shapes-{key}", build)["shapes"].tolist()
    }


def listed_images(option: str, *, root: Path | None) -> int:
    """Return the number of training images in the folder that `option` names, as listed: unreadable ones are counted
    too, until the set is indexed. `root`: the data root."""
    return listed_in(_place(root, parse_option(option)[0]), option)


def listed_in(folder: Path, option: str = "") -> int:
    """Return the number of training images in a folder, without decoding any. `option`: states the hash of the labels,
    if any."""
    if (known := index.indexed(folder, "train", as_published=False)) is not None:  # fast; listing shards takes minutes
        return len(known)
    sources = _ungrouped(folder, option).sources
    return len(sources["train"]) if "train" in sources else round(len(sources["all"]) * (1 - HELD_OUT))


def some_encoded(option: str, *, root: Path | None) -> list[bytes]:
    """Return up to LOOKED_AT encoded images of the folder that `option` names, spread evenly over it. `root`: the data
    root."""
    return encoded_in(_place(root, parse_option(option)[0]), option)


def encoded_in(folder: Path, option: str = "") -> list[bytes]:
    """Return up to LOOKED_AT encoded images of a folder, spread evenly over it. `option`: states the hash of the
    labels, if any."""
    contents = list[bytes]()
    known = index.indexed(folder, "train", as_published=False)
    source = known or next(iter(_ungrouped(folder, option).sources.values()))
    for number in np.linspace(0, len(source) - 1, LOOKED_AT).astype(int).tolist():
        with contextlib.suppress(OSError, UserError):  # unreadable images are counted when the set is indexed
            contents += [data] if isinstance(data := source.read(number), bytes) else []
    return contents


def _place(root: Path | None, name: str) -> Path:
    """Return the path of the folder `name` in the data root `root`.

    Raises:
        UserError: there is no data root or no such folder.
    """
    if root is None:
        raise UserError("Data set 'folder' needs a place to look in.", HOW_TO_GET)
    if not (root / name).is_dir():
        raise UserError(f"There is no folder {root / name}.", HOW_TO_GET)
    return root / name


def _is_large(number: int, storage: Storage) -> bool:
    """Whether a split of `number` images is streamed if its option does not say. This depends on the set only, not on
    the machine."""
    return storage.size is not None and number * storage.size**2 * (storage.channels or 3) > STREAMED_BYTES


def _streamed(opened: index.ImageIndex, storage: Storage, *, name: str, split: str) -> ImageSet:
    channels = storage.channels or int(opened.channels.max())
    storage = replace(storage, size=storage.size or STREAMED_SIDE, channels=channels)
    return ImageSet(
        name=name,
        split=split,
        images_NHWC=StreamedImages(opened, storage),
        labels_N=opened.label,
        class_names=opened.class_names,
        kind=DATASET.kind,
        source=f"{opened.format}; streamed" + _left_out(opened.unreadable),
        multi_labels=opened.multi_labels,
        several=opened.several,
        groups_N=opened.groups_N,
    )


def _left_out(number: int) -> str:
    return f"; {number} unreadable left out" if number else ""


def parse_option(option: str) -> tuple[str, Storage, bool | None]:
    """Parse the option of a set's name into (name of the folder, storage, streamed): "flowers:64px:rgb" -> ("flowers",
    Storage(size=64, channels=3), None).

    `streamed` says whether images are decoded only when they are read, None if the option does not say. An option
    without the name of a folder means the data root itself, ".".

    Raises:
        UserError: the name is not a single plain folder name, or a word is unknown.
    """
    words = [w for w in option.split(":") if not (grouping.WORD.fullmatch(w) or labels.WORD.fullmatch(w))]
    first, option = words[0] if words else "", ":".join(words)
    if not option or re.fullmatch(r"\d{1,5}px|rgb|grey", first):
        return (".", *parse_words(option.split(":") if option else (), shown=f"folder:{option}", options=OPTIONS))
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", first):
        what = f"folder:{option}: a folder named {first!r} cannot be used."
        if "/" in first and (name := Path(first).name) and name != "..":
            named = ":".join([name, *words[1:]])
            raise UserError(
                what, f"Write folder:{named} --data-root {Path(first).parent}: a set is named, its place given."
            )
        raise UserError(what, "Rename it: letters a to z, digits, and . _ + - after the first. " + OPTIONS + ".")
    return (first, *parse_words(words[1:], shown=f"folder:{option}", options=OPTIONS))


def parse_words(words: Sequence[str], *, shown: str, options: str) -> tuple[Storage, bool | None]:
    """Parse words such as "64px", "rgb" and "stream" into (storage, streamed).

    `streamed` says whether images are decoded only when they are read, None if no word says.

    Args:
        shown: name of the set in messages.
        options: explanation of the known words, for messages.

    Raises:
        UserError: a word is unknown, or a size is out of range.
    """
    size, channels, streamed = None, None, None
    for word in words:
        if match := re.fullmatch(r"(\d{1,5})px", word):
            size = int(match.group(1))
            if not 1 <= size <= MAX_SIDE:
                raise UserError(f"{shown}: a side of {size} pixels.", f"From 1 to {MAX_SIDE}.")
        elif word in ("rgb", "grey"):
            channels = 3 if word == "rgb" else 1
        elif word in ("stream", "stored"):
            streamed = word == "stream"
        else:
            raise UserError(f"{shown}: {word!r} is not understood.", options + ".")
    return Storage(size=size, channels=channels), streamed


def _format(folder: Path) -> ModuleType:
    """Return the module of `bench.data.formats` that reads a folder, chosen by the names of files in it and one level
    below."""
    names = {path.name for path in folder.iterdir()}
    names |= {path.name for pattern in ("*/*.parquet", "*/*.arrow", "*/*.tar") for path in folder.glob(pattern)}
    return next(reader for reader in FORMATS if reader.recognises(names))


def _build(
    source: Source, part: str, *, storage: Storage, where: str, several: real.MultiLabels | None = None
) -> Mapping[str, np.ndarray | cache.Chunks]:
    decoded = decode_all(source, storage=storage, where=where)
    facts = json.dumps({"unreadable": len(decoded.unreadable), "named": decoded.unreadable[:100]})
    order_N = nested(decoded.labels_N, None, keys_N=decoded.keys_N)
    rows = {part: order_N}
    if part == "all":
        held_out_N = held_out(decoded.labels_N, decoded.keys_N)
        rows = {"train": order_N[~held_out_N[order_N]], "test": order_N[held_out_N[order_N]]}
        if not len(rows["test"]) or not len(rows["train"]):
            what = f"{where}: too few different images to hold some out for testing."
            raise UserError(what, "Put two or more into a class, or the test images into a folder test/ beside train/.")
    built: dict[str, np.ndarray | cache.Chunks] = {"facts": np.frombuffer(facts.encode(), dtype=np.uint8)}
    for split, rows_M in rows.items():
        built[f"{split}_images"] = cache.rows(decoded.images_NHWC, rows_M)
        built[f"{split}_labels"] = decoded.labels_N[rows_M]
        if source.several is not None:
            kept = decoded.kept_N[rows_M].tolist()
            built |= real.to_arrays(tuple(source.several[i] for i in kept), f"{split}_several")
    if source.groups_N is not None:
        built[f"{part}_groups"] = source.groups_N[decoded.kept_N[order_N]]
    if several:
        built |= real.to_arrays(tuple(several[i] for i in decoded.kept_N[order_N].tolist()))
    return built


def _multi_labels(stored: dict[str, np.ndarray], split: str, *, real_too: bool) -> real.MultiLabels | None:
    """Return all classes of each image of a split, from arrays in the cache (`stored`): those of a table of labels, or
    else, with `real_too`, the ReaL labels (`bench.data.real`); None if there are neither."""
    if f"{split}_several_classes" in stored:
        return real.from_arrays(stored, f"{split}_several")
    return real.from_arrays(stored) if real_too else None


DATASET = DataSet(
    name="folder",
    revision=REVISION,
    kind="own images",  # it is not known what they show
    description="your own images: a folder per class, a table of labels, tar shards, Parquet, NumPy or IDX files",
    licence="that of your images",
    source="a folder below --data-root",
    how_to_get=HOW_TO_GET,
    options=OPTIONS,
    pinned="by its content",
    takes_side=True,
    takes_colour=True,
    load=load,
    grouped=grouped,
    available=lambda root: False,  # an option names the folder
    look=look,
    listed_images=listed_images,
    some_encoded=some_encoded,
    places=lambda option, *, root: [_place(root, parse_option(option)[0])],
)
