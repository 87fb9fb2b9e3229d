"""Write tensors as a safetensors file one after the other, so that host memory never holds a copy of all of them.

The library's own writer needs every tensor in host memory first, and its errors are not OSErrors. The bytes written
here equal those that it would write (github.com/huggingface/safetensors#format), so the library can read them.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

NAMES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "float16": "F16",
    "bfloat16": "BF16",
    "int32": "I32",
    "float32": "F32",
    "float64": "F64",
    "int64": "I64",
}
"""torch dtype -> the format's name for it, in the format's order: tensors of a type further down are written first."""
ALIGNED = 8  # the header's length in bytes is a multiple of this
PIECE = 1 << 24  # bytes of a large tensor that are copied at a time


def write(handle: Callable[[bytes | memoryview], object], tensors: Mapping[str, torch.Tensor]) -> None:
    """Write tensors in the safetensors format, each copied to host memory in its turn.

    Args:
        handle: function that takes the next bytes of the file.

    Raises:
        ValueError: a dtype is not in `NAMES`, or this machine is not little-endian.
    """
    import torch

    if sys.byteorder != "little":
        raise ValueError("safetensors holds little-endian numbers, and this machine's are not")
    kinds = {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in tensors.items()}
    if strange := sorted({kind for kind in kinds.values() if kind not in NAMES}):
        raise ValueError(f"tensors of {', '.join(strange)} cannot be saved")
    rank = {kind: -at for at, kind in enumerate(NAMES)}
    order = sorted(tensors, key=lambda name: (rank[kinds[name]], name))
    header: dict[str, object] = {}
    end = 0
    for name in order:
        begin, end = end, end + math.prod(tensors[name].shape) * tensors[name].element_size()
        entry = {"dtype": NAMES[kinds[name]], "shape": list(tensors[name].shape), "data_offsets": [begin, end]}
        header[name] = entry
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNED)
    handle(len(text).to_bytes(8, "little") + text)
    for name in order:
        flat = tensors[name].detach().contiguous().reshape(-1).view(torch.uint8)
        for at in range(0, len(flat), PIECE):
            handle(flat[at : at + PIECE].cpu().numpy().data)


class Hashed:
    """Passes bytes on to `write`, and counts and hashes them (sha256) on the way."""

    def __init__(self, write: Callable[[bytes | memoryview], object]) -> None:
        self.write, self.bytes, self._sha256 = write, 0, hashlib.sha256()

    def __call__(self, data: bytes | memoryview) -> None:
        self.bytes += len(data)
        self._sha256.update(data)
        self.write(data)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()
