"""Published data sets that may not be redistributed: they are read from the user's own copy, a folder in the data root
that has the set's name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.core.errors import UserError
from bench.data.data_set import DataSet, Kind, Numbers
from bench.data.image_set import ImageSet

NON_COMMERCIAL = "non-commercial research only; the images belong to their owners"


@dataclass(frozen=True, kw_only=True)
class FolderSet(DataSet):
    """A data set that lies in a folder of its name below the data root, in any format that the set `folder` reads
    (`bench.data.sets.folder`). Its images are streamed (decoded whenever they are read), as RGB."""

    kind: Kind = "photographs"
    licence: str = NON_COMMERCIAL
    revision: int = 2  # 2: streamed, not stored
    split: str = "train and val as your folder has them, else a tenth of every class is for testing"
    pinned: str = "not verified: a copy of yours"
    unopened: bool = True
    load: Callable[..., ImageSet] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for function in ("load", "available", "look", "some_encoded", "indexed", "places"):
            object.__setattr__(self, function, getattr(self, f"_{function}"))

    def _available(self, root: Path | None) -> bool:
        return root is not None and (root / self.name).is_dir()

    def _places(self, option: str, *, root: Path | None) -> list[Path] | None:
        return [root / self.name] if root is not None and self._available(root) else None

    def _look(self, option: str, *, root: Path | None) -> tuple[int, int]:
        return int((option or "224px").removesuffix("px")), 3

    def _some_encoded(self, option: str, *, root: Path | None) -> list[bytes]:
        from bench.data.sets import folder

        return folder.some_encoded(self.name, root=root) if self._available(root) else []

    def _indexed(self, root: Path | None) -> Numbers | None:
        from bench.data import index  # imported here, because it imports Pillow

        if root is None or not self._available(root):
            return None
        train, test = (index.indexed(root / self.name, split, as_published=True) for split in ("train", "test"))
        if train is None or test is None:
            return None
        return {"train": len(train), "test": len(test), "classes": len(train.class_names)}

    def _load(self, split: str, *, root: Path | None, option: str = "") -> ImageSet:
        from bench.data.sets import folder

        if not self._available(root):
            raise self.absent()
        images = folder.load(split, root=root, option=f"{self.name}:{option or '224px'}:rgb:stream", as_published=True)
        return replace(images, name=f"{self.name}:{option}" if option else self.name, kind=self.kind)


def no_images(name: str, how_to_get: str) -> Callable[..., ImageSet]:
    """Return a function for `DataSet.load` of a set that is not public: it always raises a UserError, which says
    `how_to_get`."""

    def load(split: str, *, root: Path | None) -> ImageSet:
        raise UserError(f"The data set {name} is not public.", how_to_get)

    return load
