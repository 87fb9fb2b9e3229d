"""Read and write files of named tensors. A file's format is detected by its content, and no code in it is ever run.

Formats: NumPy .npz (official checkpoints), safetensors, and torch's .pth / .pt / .bin, read with `weights_only=True`.
"""

from __future__ import annotations

import os
import re
import secrets
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

UNSUSPICIOUS = 1 << 30  # bytes that any archive may unpack to, however small it is
MOST_COMPRESSED = 20  # largest compression ratio of an archive that unpacks to more; trained weights reach 1.1


class CheckpointError(ValueError):
    """Raised for a checkpoint that cannot be used; the message says what would fix it.

    The attributes `missing`, `unexpected` and `misshaped` list keys where the tensors do not match the model.
    """

    def __init__(
        self,
        message: str,
        *,
        missing: tuple[str, ...] = (),
        unexpected: tuple[str, ...] = (),
        misshaped: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.missing, self.unexpected, self.misshaped = missing, unexpected, misshaped


def read(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Return all tensors of a file, name -> tensor on the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: the file is no checkpoint, is damaged, is an archive that would unpack to far more than its
            size, or holds objects that only unpickling could read.
    """
    path = Path(path)
    kind = sniff(path)
    reader = {"npz": _read_npz, "safetensors": _read_safetensors, "torch": _read_torch}.get(kind)
    if reader is None:
        raise CheckpointError(f"{path} is not a checkpoint: expected .npz, .safetensors, or .pth with plain tensors")
    try:
        return reader(path)
    except CheckpointError:
        raise
    except MemoryError as error:
        raise CheckpointError(f"{path} does not fit into memory, or is damaged") from error
    except Exception as error:  # a damaged file may raise zlib.error, TokenError, SyntaxError, RuntimeError, …
        what = "is damaged or holds more than plain tensors, and was refused without running anything in it"
        raise CheckpointError(f"{path} {what} ({type(error).__name__}: {error})") from error


def sniff(path: Path) -> str:
    """Return the format of a file by its first bytes: "npz", "safetensors", "torch" or "unknown"."""
    if path.exists() and not path.is_file():  # reading a pipe or a device might never end
        return "unknown"
    with open(path, "rb") as file:
        start = file.read(16)
    if start[:2] == b"PK":
        names = _members(path)
        return "npz" if all(name.endswith(".npy") for name in names) else "torch"
    if start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= path.stat().st_size:
        return "safetensors"
    # A bare pickle is torch's format of before 2020; with any other file ending it is not trusted.
    return "torch" if start[:1] == b"\x80" and path.suffix in (".pth", ".pt", ".bin", ".tar") else "unknown"


def _members(path: Path) -> list[str]:
    """Return the names of the files in a zip archive (.npz and .pth are such).

    Raises:
        CheckpointError: the archive is damaged, or would unpack to far more than weights could.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names, unpacked = archive.namelist(), sum(member.file_size for member in archive.infolist())
    except Exception as error:  # BadZipFile, NotImplementedError, UnicodeDecodeError, …
        raise CheckpointError(f"{path} is truncated or damaged ({error}): download or save it again") from error
    if unpacked > max(UNSUSPICIOUS, MOST_COMPRESSED * path.stat().st_size):
        what = f"{path} would unpack to {unpacked / 1e9:.1f} GB: weights cannot be compressed that much"
        raise CheckpointError(f"{what}, and it was not read")
    return names


def _read_npz(path: Path) -> dict[str, Tensor]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: _to_tensor(archive[name]) for name in archive.files}


def _to_tensor(array: np.ndarray) -> Tensor:
    """Convert an array to a tensor of the same type; two-byte void, as which NumPy stores bfloat16, becomes
    bfloat16."""
    if array.dtype.kind == "V" and array.dtype.itemsize == 2:
        return torch.from_numpy(np.ascontiguousarray(array).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array)).reshape(array.shape)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(path)


def _read_torch(path: Path) -> dict[str, Tensor]:
    if zipfile.is_zipfile(path):  # checked here, because torch ignores checksums
        with zipfile.ZipFile(path) as archive:
            if (wrong := archive.testzip()) is not None:
                raise CheckpointError(f"{path} is damaged: the checksum of {wrong!r} in it does not match")
    content: Any = torch.load(path, map_location="cpu", weights_only=True)
    for wrapper in ("state_dict", "model", "model_state_dict"):
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path} holds a {type(content).__name__}, not tensors by name")
    tensors = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
    return {re.sub(r"^(module\.|_orig_mod\.)+", "", name): value for name, value in tensors.items()}


def write_npz(path: str | os.PathLike[str], tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by name into an .npz file of float32 arrays, atomically."""
    arrays = {name: tensor.detach().float().cpu().numpy() for name, tensor in tensors.items()}
    _replace(Path(path), lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]


def write_safetensors(path: str | os.PathLike[str], tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by name into a safetensors file, atomically."""
    from safetensors.torch import save

    copies = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    _replace(Path(path), lambda file: file.write(save(copies, metadata={"format": "pt"})))


def _replace(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file under a unique temporary name in the same folder, then rename it, so that no reader sees an
    incomplete file. `write` puts the content into an open binary file."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    finally:
        temporary.unlink(missing_ok=True)
