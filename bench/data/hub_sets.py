"""Published data sets whose files are on the Hugging Face hub: shards that are read in place, or an archive of image
files with lists of their classes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from bench.core.errors import UserError
from bench.data.data_set import DataSet, Download
from bench.data.hub_copy import Repository
from bench.data.image_set import ImageSet
from bench.data.source import Source, image_files
from bench.data.torchvision_sets import resized, sized

OPTIONS = "{name}[:64px][:rgb|:grey]; the whole image is resized to a square of so many pixels (default {side}px)"


@dataclass(frozen=True, kw_only=True)
class HubSet(DataSet):
    """A published data set whose files are on the Hugging Face hub, in a format that the set `folder` reads
    (`bench.data.sets.folder`). Whole images are resized to a square.

    Attributes:
        hub: the repository with the files.
        bins: (number of different labels in the files, number of classes into which they are evenly grouped); None if
            labels are the classes.
    """

    hub: Repository
    bins: tuple[int, int] | None = None
    load: Callable[..., ImageSet] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        assert self.images is not None and self.side is not None
        run = f"Run: vit-bench data {self.name} --download --data-root <data root>"
        unpinned = "not verified: the newest commit is fetched"
        wired = {
            "load": self._load,
            "available": self._is_here,
            "look": self._look,
            "takes_side": True,
            "takes_colour": True,
            "how_to_get": f"{self.how_to_get} {run}" if run not in self.how_to_get else self.how_to_get,
            "options": OPTIONS.format(name=self.name, side=self.side),
            "pinned": f"commit {self.hub.revision}" if self.hub.revision else unpinned,
            "download": self._download,
            "places": None if self.hub.revision else self._places,
        }
        for name, value in wired.items():
            object.__setattr__(self, name, value)

    def _place(self, root: Path | None) -> Path | None:
        """Return the folder below the data root `root` with the files; None if they are not there. If the set states no
        commit, the only commit that has been fetched is used.

        Raises:
            UserError: the set states no commit, and several have been fetched.
        """
        if root is None:
            return None
        if self.hub.revision:
            return self.hub.find(root)
        commits = self.hub.commits(root)
        if len(commits) > 1:
            what = f"Data set {self.name!r}: {len(commits)} commits are below {self.hub.place(root)}."
            raise UserError(what, "Keep one of them.")
        return replace(self.hub, revision=commits[0]).find(root) if commits else None

    def _is_here(self, root: Path | None) -> bool:
        return self._place(root) is not None

    def _places(self, option: str, *, root: Path | None) -> list[Path] | None:
        return [place] if (place := self._place(root)) is not None else None

    def _stored(self, option: str) -> tuple[int, int]:
        """Return (pixels per side, channels) at which the images are stored. `option`: the text after the colon of the
        set's name, such as "64px:grey"; "" for the set's own size and RGB."""
        side, channels = sized(self.name, option, option.split(":") if option else (), self.options)
        return side or self.side or 224, channels or 3

    def _look(self, option: str, *, root: Path | None) -> tuple[int, int]:
        return self._stored(option)

    def _download(self, option: str) -> Download:
        from bench.data.hub import look_up  # imported here, because studies do not need it

        name = f"{self.name}:{option}" if option else self.name
        return look_up(self.hub, named=name.replace("{", "{{"), licence=self.licence)

    def _load(self, split: str, *, root: Path | None, option: str = "") -> ImageSet:
        from bench.data.decode import Storage  # imported here, because it imports Pillow
        from bench.data.sets import folder

        side, channels = self._stored(option)
        place = self._place(root)
        if root is None or place is None:
            raise self.absent()
        name = f"{self.name}:{option}" if option else self.name
        storage = Storage(size=side, channels=channels, whole=True, as_published=True)
        images = folder.read(place, split, storage=storage, streamed=None, name=name)
        images = replace(images, kind=self.kind, source=f"{images.source}; {place.relative_to(root)}")
        values, classes = self.bins or (self.classes, self.classes)
        if images.num_classes != values or values is None or classes is None:
            what = f"{place} has {images.num_classes} classes; {self.name} has {values}."
            raise UserError(what, "Remove it and download it again.")
        if self.bins is None:
            return images
        names = tuple(map(str, range(classes)))
        return replace(images, labels_N=images.labels_N * classes // values, class_names=names)


@dataclass(frozen=True, kw_only=True)
class ListedSet(HubSet):
    """A data set of image files in an archive on the Hugging Face hub, with a list of file names and classes for each
    split.

    Attributes:
        folder: folder with the lists, below the data root.
        lists: (split, file name of its list) pairs.
    """

    folder: str
    lists: tuple[tuple[str, str], ...] = (("train", "train800val200.txt"), ("test", "test.txt"))

    def _place(self, root: Path | None) -> Path | None:
        here = root is not None and all((root / self.folder / name).is_file() for _, name in self.lists)
        return root / self.folder if root is not None and here else None

    def _load(self, split: str, *, root: Path | None, option: str = "") -> ImageSet:
        side, channels = self._stored(option)
        if (place := self._place(root)) is None:
            raise self.absent()
        source = self._listed(place, dict(self.lists)[split])
        settings = (self.name, self.revision, split, source.labels_N.tobytes())
        stored = resized(self, source, settings, side=side, channels=channels, split=split)
        unreadable = json.loads(stored["facts"].tobytes())["unreadable"]
        return ImageSet(
            name=f"{self.name}:{option}" if option else self.name,
            split=split,
            images_NHWC=stored["images"],
            labels_N=stored["labels"],
            class_names=tuple(map(str, range(self.classes or 0))),
            kind=self.kind,
            source="published files" + (f"; {unreadable} unreadable left out" if unreadable else ""),
        )

    def _listed(self, folder: Path, name: str) -> Source:
        """Return the images that the list `name` in `folder` names. Each line of a list holds the name of a file and
        the number of its class.

        Raises:
            UserError: a line has another form, or its class is out of range.
        """
        paths, labels, classes = list[Path](), list[int](), self.classes or 0
        for line in (folder / name).read_text(encoding="utf-8").splitlines():
            file, _, label = line.strip().rpartition(" ")
            path = PurePosixPath(file)
            if not file or path.is_absolute() or ".." in path.parts or not label.isdecimal():
                what = f"{folder / name}: {line[:80]!r} is not the name of an image and a class."
                raise UserError(what, "Get the file again.")
            if int(label) >= classes:
                what = f"{folder / name} holds label {label}; classes are 0 to {classes - 1}."
                raise UserError(what, "Get the file again.")
            paths.append(folder / file)
            labels.append(int(label))
        return image_files(paths, labels)
