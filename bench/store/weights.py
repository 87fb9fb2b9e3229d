"""Write and read the weights of a trained model: one safetensors file, whose metadata holds facts about the weights
(model, its options, sizes, data, images seen)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.core import files
from bench.core.errors import UserError
from bench.core.files import canonical

if TYPE_CHECKING:
    import torch

ENTRY = "about"  # the only entry of metadata: several would be in no particular order, so that bytes would differ
SEALED = re.compile(r"[0-9a-f]{64} ")


def write(
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    about: Mapping[str, Any],
    *,
    check_lease: Callable[[], None] = lambda: None,
) -> None:
    """Write weights and facts about them to the file `path`, atomically. Equal weights and facts give equal bytes.

    Args:
        tensors: the state dict, name -> tensor.
        about: the facts, as JSON types.
        check_lease: is called just before the file is renamed into place. If it raises an error, because another
            process has taken over the cell, nothing is left behind.

    Raises:
        UserError: the file cannot be written (the disk is full, …).
    """
    from safetensors.torch import save

    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    files.make_directory(path.parent, parents=False)
    text = canonical(dict(about))
    files.write_bytes(path, save(whole, metadata={ENTRY: f"{_digest(text, whole)} {text}"}), before=check_lease)


def about(path: Path) -> dict[str, Any] | None:
    """Return the facts that were passed to `write` for the file `path`; None for a safetensors file from elsewhere.

    Raises:
        UserError: it is not a safetensors file, or its digest does not match (a changed byte would load silently).
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            entries = file.metadata() or {}
            sealed = {key: value for key, value in entries.items() if SEALED.match(value)}
            digest, _, text = next(iter(sealed.values()), "").partition(" ")
            if sealed and (list(sealed) != [ENTRY] or digest != _digest(text, _tensors(file))):
                raise _altered(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is not a readable safetensors file: {error}", "Get it again.") from error
    try:
        return json.loads(text or entries[ENTRY])  # files written before there was a digest have the plain entry
    except KeyError:
        return None
    except ValueError as error:
        raise _altered(path) from error


def _altered(path: Path) -> UserError:
    return UserError(f"{path} was altered: its sha256 does not match.", "Train again, or use another copy.")


def _tensors(file: Any) -> dict[str, torch.Tensor]:
    return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping


def _digest(text: str, tensors: Mapping[str, torch.Tensor]) -> str:
    """Return the sha256, in hexadecimal, over the facts (`text`) and every tensor's name, dtype, shape and bytes."""
    import torch

    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
