"""Weights of a trained model in one safetensors file that says what they are: model, sizes, data, images seen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.errors import UserError
from bench.spec import canonical
from bench.store import atomic

if TYPE_CHECKING:
    import torch

ABOUT = "about"  # one entry of metadata: the format keeps several in no particular order


def write(path: Path, tensors: Mapping[str, torch.Tensor], about: Mapping[str, Any]) -> None:
    """Write a state dict, atomically. Equal weights and facts give equal bytes.

    Raises:
        UserError: the disk is full, ….
    """
    from safetensors.torch import save

    whole = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    atomic.make_directory(path.parent)
    atomic.write_bytes(path, save(whole, metadata={ABOUT: canonical(dict(about))}))


def about(path: Path) -> dict[str, Any] | None:
    """What `write` was told of the model, or None for a safetensors file from elsewhere.

    Raises:
        UserError: not a safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(ABOUT)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is not a readable safetensors file: {error}") from error
    return json.loads(text) if text else None
