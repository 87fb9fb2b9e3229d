"""Position tables in and out of checkpoints: the one part of a ViT whose shape depends on the image size.

Shapes: N tokens, D width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vit import layouts
from vit.files import CheckpointError
from vit.resize import grid_of, resize_grid

_TABLE_TOLERANCE = 1e-4  # between a fixed table and one that another program computed in float32


@dataclass
class Placed:
    """What became of the tables of one file."""

    found: dict[str, Tensor] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    misshaped: list[str] = field(default_factory=list)
    resized: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)


def exported(model: Any, layout: str) -> dict[str, Tensor]:
    """The position table as other code bases keep it; fixed and two-dimensional ones are written out.

    Raises:
        CheckpointError: the model has parts that the layout has no place for.
    """
    config = getattr(model, "config", None)
    if config is None:
        return {}
    obstacles = [
        (config.position == "relative", "relative positions"),
        (len(model.positions) > 0 and config.position_at != "stem", f"positions at {config.position_at}"),
        (config.stem == "conv" and layout != "torchvision", "a convolutional stem"),
        (config.stem == "resnet" and layout == "torchvision", "a ResNet stem"),
        (config.head == "mlp" and layout == "timm", "a hidden layer in the head"),
        (config.norm_after_pool and layout != "timm", "a norm after pooling"),
        (config.pooling == "mean" and layout == "torchvision", "mean pooling"),
    ]
    if found := [what for present, what in obstacles if present]:
        raise CheckpointError(
            f"layout {layout!r} has no place for {' and '.join(found)}; save with layout='safetensors' instead"
        )
    if not len(model.positions):
        return {}
    table_1ND = model.positions[0]()
    if config.has_cls and layout == "timm" and not config.position_on_cls:
        table_1ND = table_1ND[:, 1:]
    return {layouts.POSITION_KEY[layout]: table_1ND}


def fitted(
    model: Any,
    tensors: dict[str, Tensor],
    layout: str,
    source_grid: tuple[int, int] | None,
    resize: bool,
) -> Placed:
    """Take the position tables out of `tensors`, fitted to the model's grid."""
    placed, state = Placed(), model.state_dict()
    ours = [name for name in state if name.startswith("positions.")]
    if layout == "own":
        for name in ours:
            if name not in tensors:
                placed.missing.append(name)
            else:
                has_row = bool(model.config.has_cls and model.config.position_on_cls)
                _place(placed, model, name, tensors.pop(name), has_row, source_grid, resize)
        return placed
    key = layouts.POSITION_KEY[layout]
    if key not in tensors:
        placed.missing += [key] if ours else []
        return placed
    if not len(model.positions) or model.config.position_at != "stem":
        placed.hints.append(
            "the checkpoint has one position table: build with position='learned-1d', position_at='stem'"
        )
        placed.missing += ours
        return placed
    table_1ND = tensors.pop(key).float()
    table_1ND = table_1ND if table_1ND.ndim == 3 else table_1ND.flatten(0, -2)[None]
    class_key = layouts.CLASS_KEY[layout]
    has_row = class_key in tensors and _has_class_row(table_1ND.shape[1], model.config.grid, source_grid)
    if ours != ["positions.0.weight"]:
        _compare(placed, model, table_1ND, key)
        return placed
    if has_row and not model.config.position_on_cls and model.config.has_cls:
        # The official conversion for models whose table leaves the class token out.
        tensors[class_key] = tensors[class_key].float() + table_1ND[:, :1]
        table_1ND, has_row = table_1ND[:, 1:], False
    _place(placed, model, ours[0], table_1ND, has_row, source_grid, resize)
    return placed


def _has_class_row(rows: int, grid: tuple[int, int], source_grid: tuple[int, int] | None) -> bool:
    """Whether a table of `rows` begins with a row for the class token (big_vision's and some of timm's do not)."""
    for tokens in (math.prod(source_grid or grid), math.isqrt(rows) ** 2):
        if rows in (tokens, tokens + 1):
            return rows == tokens + 1
    return True


def _place(
    placed: Placed,
    model: Any,
    name: str,
    table: Tensor,
    has_row: bool,
    source_grid: tuple[int, int] | None,
    resize: bool,
) -> None:
    """Fit one learned table; `has_row` says whether the file's begins with the class token's."""
    wanted = tuple(model.state_dict()[name].shape)
    if name.endswith((".rows", ".columns")):
        fitted_table = resize_grid(table[None], (table.shape[0], 1), (wanted[0], 1))[0] if resize else table
    else:
        row_1ND, patches_1ND = table[:, : int(has_row)], table[:, int(has_row) :]
        try:
            old = grid_of(patches_1ND.shape[1], source_grid, model.config.grid)
        except ValueError as error:
            placed.misshaped.append(f"{name}: {error}")
            return
        if resize and table.shape[-1] == wanted[-1]:
            patches_1ND = resize_grid(patches_1ND, old, model.config.grid)
        if wanted[1] == math.prod(model.config.grid) + 1 and not has_row:
            row_1ND = torch.zeros(1, 1, table.shape[-1])
        fitted_table = torch.cat([row_1ND, patches_1ND], dim=1)
    if tuple(fitted_table.shape) != wanted:
        placed.misshaped.append(f"{name}: the checkpoint has {tuple(table.shape)}, the model {wanted}")
        if not resize:
            placed.hints.append("the checkpoint is of another image size: load with resize=True")
        return
    if tuple(table.shape) != wanted:
        placed.resized.append(f"{name} from {tuple(table.shape)} to {wanted}")
    placed.found[name] = fitted_table


def _compare(placed: Placed, model: Any, table_1ND: Tensor, key: str) -> None:
    """A fixed table is not loaded; the file's must be the same one."""
    fresh = type(model.positions[0])(model.config)
    if model.config.position == "sincos-2d":
        fresh.fill_buffers()
        ours_1ND = fresh()
        ours_1ND = ours_1ND[:, ours_1ND.shape[1] - table_1ND.shape[1] :]
        if ours_1ND.shape == table_1ND.shape and torch.allclose(ours_1ND, table_1ND, atol=_TABLE_TOLERANCE):
            return
    placed.misshaped.append(f"{key}: not this model's {model.config.position} table")
    placed.hints.append("the checkpoint's positions are another kind: build with position='learned-1d'")
