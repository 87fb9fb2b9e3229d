"""Write tensors one after the other to a safetensors file, so that host memory never holds a copy of all of them.

The writer of the safetensors library needs all tensors in host memory first, and its errors are not OSErrors. The bytes
written here equal those that the library would write (github.com/huggingface/safetensors#format), so it can read them.
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
"""torch dtype -> its name in the safetensors format. Tensors are written in the reverse order of these dtypes."""
ALIGNED = 8  # the header's length in bytes is a multiple of this
PIECE = 1 << 24  # bytes of a large tensor that are copied to host memory at a time


def write(handle: Callable[[bytes | memoryview], object], tensors: Mapping[str, torch.Tensor]) -> None:
    """Write tensors in the safetensors format. Each tensor is copied to host memory only when it is its turn.

    Args:
        handle: function that is called with the next bytes of the file, such as a file's `write`.
        tensors: name -> tensor.

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
    """A callable that passes bytes on to the function `write`, and counts and hashes them.

    Attributes:
        bytes: number of bytes so far.
        sha256: sha256 of all bytes so far, in hexadecimal.
    """

    def __init__(self, write: Callable[[bytes | memoryview], object]) -> None:
        self.write, self.bytes, self._sha256 = write, 0, hashlib.sha256()

    def __call__(self, data: bytes | memoryview) -> None:
        self.bytes += len(data)
        self._sha256.update(data)
        self.write(data)

    @property
    def sha256(self) -> str:
        return self._sha256.hexdigest()
