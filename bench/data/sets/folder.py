"""A folder of your own images: `folder:flowers` is <data root>/flowers, in whichever of the formats it is kept.

* a folder of images per class, with or without train/ and test/ (or val/) above them;
* WebDataset shards, `train-0000.tar` …; * Parquet with embedded images, as the Hugging Face hub ships it, or the
  Arrow files of its package `datasets`;
* NumPy archives, `train.npz` and `test.npz` (or one with train_images …); * the four IDX files;
* image files anywhere below the folder, with a table of their labels (bench/data/labels.py).

Large sets are streamed (bench/data/stream.py): their files are indexed once, and decoded when they are needed; random
crops then come from the full image. Others are decoded once, at one size.

Without a test split, a tenth of every class is held out, chosen by content. The images come in an order that follows
their content alone (that of `subset.nested`), so the same images are the same set, to the hash, in every format.

Where ImageNet's reassessed labels lie beside it (`real.json`, see bench/data/real.py), the test images carry them too.
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

REVISION = 2  # 2: upright as the camera was held, GIF files are read
HOW_TO_GET = "Give --data-root, and name a folder in it that holds images: folder:flowers."
OPTIONS = (
    "folder:NAME[:64px][:rgb|:grey][:stream|:stored] reads <data root>/NAME; 64px resizes the central square of every "
    "image; stream decodes images when they are needed, as is done where their pixels are more than 4 GB"
)

FORMATS: tuple[ModuleType, ...] = (parquet, arrow, tars, arrays, images)  # the first that recognises a folder reads it
MAX_SIDE = 4096
LOOKED_AT = 64  # images whose sizes are looked at first
STREAMED_BYTES = 4 << 30  # of a split's pixels; more are not stored unless that is asked for
INDEPENDENT = "Intervals take groups as independent, not their images."
STREAMED_SIDE = 224  # where the option names none


def load(split: str, *, root: Path | None, option: str = "", as_published: bool = False) -> ImageSet:
    name, storage, streamed = parse_option(option)
    storage, shown = replace(storage, as_published=as_published), f"folder:{option}" if option else "folder"
    about = About() if as_published else about_images(_place(root, name), option)
    return read(_place(root, name), split, storage=storage, streamed=streamed, name=shown, about=about)


@dataclass(frozen=True, kw_only=True)
class About:
    """Tables that say more of a folder's images than the folder does."""

    labels: labels.Labels | None = None
    groups: grouping.Groups | None = None

    @property
    def words(self) -> str:
        """The parts of a set's name that they make, apart by blanks."""
        return " ".join(one.word for one in (self.labels, self.groups) if one is not None and one.word)


def about_images(folder: Path, option: str = "") -> About:
    """The tables that an option names by their hashes, or else that lie in the folder.

    Raises:
        UserError: see `bench.data.labels` and `bench.data.groups`.
    """
    return _with_groups(labels.of_folder(folder, _word(labels.WORD, option)), folder, option)


def _with_groups(labelled: labels.Labels | None, folder: Path, option: str, file: Path | None = None) -> About:
    """A table of labels, and the groups of a file, of the folder's own, or of a column of that table."""
    word = _word(grouping.WORD, option)
    groups = grouping.of_folder(folder, word) if word or file is None else grouping.read(file)
    if groups is None and labelled is not None and labelled.groups:
        groups = grouping.Groups(path=labelled.path, of=labelled.groups, word="")  # its hash is that of the labels
    return About(labels=labelled, groups=groups)


def grouped(
    option: str, *, root: Path | None, file: Path | None, table: Path | None = None, columns: Sequence[str] = ()
) -> tuple[str, tuple[str, ...]]:
    """An option with the hashes of its images' labels and groups, and a sentence on each; as it is without any.

    Args:
        file: of the groups; None for the one in the folder.
        table: of the labels; None for the one in the folder.
        columns: of that table, as `--label-columns` names them.

    Raises:
        UserError: see `bench.data.labels` and `bench.data.groups`.
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
    """The word of an option that a pattern describes; "" without."""
    return next((word for word in option.split(":") if pattern.fullmatch(word)), "")


def contents(folder: Path, about: About) -> FolderContents:
    """The images in a folder, in whichever format, with what tables say of them.

    Raises:
        UserError: as the formats; labels or groups of images that are no files.
    """
    found = _format(folder).find(folder) if about.labels is None else labels.contents(folder, about.labels)
    return grouping.divide(found, folder, about.groups) if about.groups is not None else found


def _ungrouped(folder: Path, option: str = "") -> FolderContents:
    """The images in a folder with their labels, whichever are held out."""
    labelled = labels.of_folder(folder, _word(labels.WORD, option))
    return contents(folder, About(labels=labelled))


def read(
    folder: Path, split: str, *, storage: Storage, streamed: bool | None, name: str, about: About | None = None
) -> ImageSet:
    """One split of the images in a folder, in whichever format.

    Args:
        streamed: None to stream large sets.
        name: what the set is called.
        about: tables about its images; None for labels in the folder.
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
    """(pixels per side, channels), from the heads of the images; see `bench.data.load.look`."""
    name, storage, _ = parse_option(option)
    return look_into(_place(root, name), storage, option)


def look_into(folder: Path, storage: Storage, option: str = "") -> tuple[int | None, int]:
    """`look` of a `DataSet`, for folders."""
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
    """(height, width, channels) of some images; where these are all alike, of all: one other image among them would
    stop the decoding."""
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
    """Training images by the number of files: before any is found unreadable."""
    return listed_in(_place(root, parse_option(option)[0]), option)


def listed_in(folder: Path, option: str = "") -> int:
    """`listed_images` of a `DataSet`, for folders."""
    if (known := index.indexed(folder, "train", as_published=False)) is not None:  # headers of shards take minutes
        return len(known)
    sources = _ungrouped(folder, option).sources
    return len(sources["train"]) if "train" in sources else round(len(sources["all"]) * (1 - HELD_OUT))


def some_encoded(option: str, *, root: Path | None) -> list[bytes]:
    """A few of the encoded images, from all over the set."""
    return encoded_in(_place(root, parse_option(option)[0]), option)


def encoded_in(folder: Path, option: str = "") -> list[bytes]:
    """`some_encoded` of a `DataSet`, for folders."""
    contents = list[bytes]()
    known = index.indexed(folder, "train", as_published=False)
    source = known or next(iter(_ungrouped(folder, option).sources.values()))
    for number in np.linspace(0, len(source) - 1, LOOKED_AT).astype(int).tolist():
        with contextlib.suppress(OSError, UserError):  # what cannot be read is counted when it is indexed
            contents += [data] if isinstance(data := source.read(number), bytes) else []
    return contents


def _place(root: Path | None, name: str) -> Path:
    """The folder of this name.

    Raises:
        UserError: there is none.
    """
    if root is None:
        raise UserError("Data set 'folder' needs a place to look in.", HOW_TO_GET)
    if not (root / name).is_dir():
        raise UserError(f"There is no folder {root / name}.", HOW_TO_GET)
    return root / name


def _is_large(number: int, storage: Storage) -> bool:
    """Whether a split of so many images is streamed where nobody says: it follows from the set, not from a machine."""
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
    """ "flowers:64px:rgb" -> ("flowers", Storage(size=64, channels=3), None); without a name, the data root itself. The
    last says whether the images are streamed, where the option does.

    Raises:
        UserError: a name that is not one plain folder name, a word that is not known.
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
    """How images are stored, and whether they are streamed where a word says it.

    Raises:
        UserError: a word that is not known.
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
    """The reader for what lies in a folder and one level below."""
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
    """All classes of each image: by a table of labels, or ReaL's of test images."""
    if f"{split}_several_classes" in stored:
        return real.from_arrays(stored, f"{split}_several")
    return real.from_arrays(stored) if real_too else None


DATASET = DataSet(
    name="folder",
    revision=REVISION,
    kind="own images",  # what they show is unknown
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
