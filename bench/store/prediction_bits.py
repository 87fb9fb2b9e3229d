"""Per-image correctness of a score, one bit per test image, for paired comparisons of two scores.

A record keeps the bits in the score's `detail`, under "correct", with these fields:

- `content_hash`: hash of the test images and their labels in the order of the bits (`ImageSet.content_hash`; if images
  have several labels each, these are hashed too). If two scores have equal hashes, bits at the same position belong to
  the same image.
- `num_images`: number of bits; zeros fill the last byte.
- `groups`, only if some test images belong together (such as those of one patient): base64 of one uint32 per image,
  equal within a group. A record on disk has them once for the same images: in its later scores, the field `grouped`
  replaces them (`share_groups`).
- `packed`: base64 of `np.packbits`: the first image is the highest bit of the first byte, and 1 means that an image was
  classified correctly. 10,000 images take 1.7 kB.

Records that were written before this entry existed lack it; their scores are the same.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

KEY = "correct"
GROUPS, SHARED = "groups", "grouped"


@dataclass(frozen=True, kw_only=True)
class Correct:
    """For one score, which test images were classified correctly.

    Attributes:
        content_hash: hash of the test images and labels.
        num_images: number of test images.
        packed: one bit per image, as the module's docstring describes, decoded from base64.
        groups: one uint32 per image, the number of its group, decoded from base64; b"" if no images belong together.
    """

    content_hash: str
    num_images: int
    packed: bytes
    groups: bytes = b""

    @property
    def right_M(self) -> np.ndarray:
        """Whether each test image was classified correctly: (M,) bool, in the order of the test set."""
        import numpy as np  # imported here: every command that reads records imports this file, and few need the bits

        return np.unpackbits(np.frombuffer(self.packed, dtype=np.uint8), count=self.num_images).astype(bool)

    @property
    def groups_M(self) -> np.ndarray | None:
        """The number of each test image's group, (M,) uint32; None if no images belong together."""
        import numpy as np

        return np.frombuffer(self.groups, dtype="<u4") if self.groups else None


def to_detail(
    right_M: np.ndarray, *, content_hash: str, groups_M: np.ndarray | None = None
) -> tuple[str, dict[str, Any]]:
    """Return (key, entry) to add to the `detail` of a score, which state the images that were classified correctly.

    Args:
        right_M: whether each test image was classified correctly, (M,) bool, in the order of the test set.
        content_hash: hash of the test images and labels in this order.
        groups_M: label of each image's group; None if no images belong together.
    """
    import numpy as np

    packed = base64.b64encode(np.packbits(np.asarray(right_M, dtype=bool)).tobytes()).decode()
    entry = {"content_hash": content_hash, "num_images": len(right_M), "packed": packed}
    if groups_M is not None:
        numbers_M = np.unique(groups_M, return_inverse=True)[1].astype("<u4")
        entry[GROUPS] = base64.b64encode(numbers_M.tobytes()).decode()
    return KEY, entry


def from_detail(detail: Mapping[str, Any] | None) -> Correct | None:
    """Return which test images were classified correctly, as the entry by `to_detail` in a score's `detail` states;
    None if that entry is missing or malformed."""
    match detail.get(KEY) if detail else None:
        case {"content_hash": str(content_hash), "num_images": int(number), "packed": str(text), **more}:
            try:
                packed = base64.b64decode(text, validate=True)
                groups = base64.b64decode(str(more.get(GROUPS, "")), validate=True)
            except ValueError:
                return None
            if len(packed) == (number + 7) // 8 and len(groups) in (0, 4 * number):
                return Correct(content_hash=content_hash, num_images=number, packed=packed, groups=groups)
    return None


def share_groups(record: Mapping[str, Any]) -> None:
    """Remove repeated groups (`groups`: which test images belong together) from a record's JSON, in place. Only the
    first of the scores on the same test images keeps them.

    Groups take thirty times the space of the bits, and a record has dozens of scores on the same images.
    """
    known: dict[str, str] = {}
    for entry in _entries(record):
        if (groups := entry.get(GROUPS)) is None:
            continue
        if known.get(entry["content_hash"]) == groups:
            del entry[GROUPS]
            entry[SHARED] = True
        else:
            known[entry["content_hash"]] = groups


def restore_groups(record: Mapping[str, Any]) -> None:
    """Put the groups (which test images belong together) that `share_groups` removed back into a record's JSON, in
    place."""
    known: dict[str, str] = {}
    for entry in _entries(record):
        if GROUPS in entry:
            known[entry["content_hash"]] = entry[GROUPS]
        elif entry.pop(SHARED, False):
            entry[GROUPS] = known[entry["content_hash"]]


def _entries(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for horizon in record.get("horizons") or ():
        for score in horizon.get("scores") or ():
            entry = (score.get("detail") or {}).get(KEY)
            if isinstance(entry, dict) and isinstance(entry.get("content_hash"), str):
                yield entry
