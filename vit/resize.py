"""Fit trained weights to another image or patch size, when checkpoints are read or written and for fine-tuning.

Position tables are the one part of a ViT whose shape depends on the image size. Shapes: N tokens, D width, O and I
channels of a convolution, P and Q the old and the new kernel's sides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vit import formats
from vit.files import CheckpointError

HEAD = ("head.", "pre_logits.")  # classifier and hidden layer before it: dropped before fine-tuning (section 3.1)
_TABLE_TOLERANCE = 1e-4  # largest difference of a fixed table from one that another program computed in float32


def resize_grid(table_1ND: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Interpolate a position table from one grid of tokens to another: (1, N_old, D) -> (1, N_new, D). `old` and `new`
    are the grids' (rows, columns).

    Interpolation is bilinear with the corners aligned, as in the official code's `scipy.ndimage.zoom(..., order=1)`
    (vit_jax/checkpoint.py). timm aligns pixel areas instead and differs visibly. The result is computed in float64, on
    the CPU, because not every device has that type.
    """
    if old == new:
        return table_1ND
    grid_1DRS = table_1ND.cpu().double().reshape(1, *old, -1).permute(0, 3, 1, 2)
    grid_1DRS = F.interpolate(grid_1DRS, size=new, mode="bilinear", align_corners=True)
    return grid_1DRS.flatten(2).transpose(1, 2).to(table_1ND)


def grid_of(num_tokens: int, hint: tuple[int, int] | None, target: tuple[int, int]) -> tuple[int, int]:
    """Return the grid (rows, columns) that a position table of `num_tokens` rows was made for: `hint`, which the user
    gives, if it is not None; `target`, the model's grid, if it has as many tokens; else a square.

    Raises:
        ValueError: the hint does not fit, or there is none and `num_tokens` is not a square.
    """
    if hint is not None:
        if hint[0] * hint[1] != num_tokens:
            raise ValueError(f"source_grid {hint} has {hint[0] * hint[1]} tokens, the checkpoint {num_tokens}")
        return hint
    if target[0] * target[1] == num_tokens:
        return target
    side = math.isqrt(num_tokens)
    if side * side != num_tokens:
        raise ValueError(
            f"a position table of {num_tokens} rows is not of a square grid: pass source_grid=(rows, columns)"
        )
    return side, side


def resize_patch_kernel(kernel_OIPP: Tensor, new: tuple[int, int]) -> Tensor:
    """Resize the kernel of a patch embedding to `new` (height, width) in pixels, so that a resized patch keeps its
    embedding (FlexiViT, section 3.4).

    If patches are resized by bilinear interpolation x -> B x, the kernel w has to become pinv(B^T) w, which leaves the
    inner product of x and w unchanged when the patch grows. It is computed in float64 on the CPU.
    """
    old = (kernel_OIPP.shape[2], kernel_OIPP.shape[3])
    if old == new:
        return kernel_OIPP
    basis = torch.eye(old[0] * old[1], dtype=torch.float64).reshape(-1, 1, *old)
    resized = F.interpolate(basis, size=new, mode="bilinear", align_corners=False)
    solve_QP = torch.linalg.pinv(resized.flatten(1))
    flat_OIP = kernel_OIPP.cpu().double().flatten(2)
    return (flat_OIP @ solve_QP.t()).reshape(*kernel_OIPP.shape[:2], *new).to(kernel_OIPP)


# -- position tables of checkpoints ------------------------------------------------------------------------------------


@dataclass
class Placed:
    """The position tables of one checkpoint file, fitted to a model, and what did not fit.

    Attributes:
        fitted: name of a table in the model -> the table at the model's grid.
        missing: names of tables that the file lacks.
        misshaped: a sentence for each table that cannot be fitted.
        resized: a sentence for each table that was resized.
        hints: what the user can do, in sentences.
    """

    fitted: dict[str, Tensor] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    misshaped: list[str] = field(default_factory=list)
    resized: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)


def exported(model: Any, layout: str) -> dict[str, Tensor]:
    """Return a model's position table as a layout ("google", "timm" or "torchvision") stores it, {key: table with a row
    per token}, whatever the kind of the table; {} if the model has none.

    Raises:
        CheckpointError: the model has parts that the layout has no place for.
    """
    config = getattr(model, "config", None)
    if config is None:
        return {}
    obstacles = [
        (config.position == "relative", "relative positions"),
        (len(model.positions) > 0 and config.position_at != "stem", f"positions at {config.position_at}"),
        (config.attention == "axial", "axial attention"),
        (config.head == "masked", "a head for masked patches"),
        (config.stem == "conv" and layout != "torchvision", "a convolutional stem"),
        (config.stem == "resnet" and layout == "torchvision", "a ResNet stem"),
        (config.head == "mlp" and layout == "timm", "a hidden layer in the head"),
        (config.norm_after_pool and layout != "timm", "a norm after pooling"),
        (config.pooling == "mean" and layout == "torchvision", "mean pooling"),
        (config.pooling == "tokens", "a head over all tokens"),
    ]
    if without_place := [what for present, what in obstacles if present]:
        raise CheckpointError(
            f"layout {layout!r} has no place for {' and '.join(without_place)}; save with layout='safetensors' instead"
        )
    if not len(model.positions):
        return {}
    table_1ND = model.positions[0]()
    if config.has_cls and layout == "timm" and not config.position_on_cls:
        table_1ND = table_1ND[:, 1:]
    return {formats.POSITION_KEY[layout]: table_1ND}


def fitted(
    model: Any,
    tensors: dict[str, Tensor],
    layout: str,
    source_grid: tuple[int, int] | None,
    resize: bool,
) -> Placed:
    """Remove the position tables from `tensors`, and return them fitted to the model's grid.

    Args:
        tensors: tensors of a checkpoint file by name; changed in place.
        layout: the file's layout: "google", "timm", "torchvision" or "own".
        source_grid: rows and columns of tokens that the checkpoint was trained with; None if unknown (see `grid_of`).
        resize: whether tables of another grid may be interpolated; otherwise they are reported as misshaped.
    """
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
    key = formats.POSITION_KEY[layout]
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
    class_key = formats.CLASS_KEY[layout]
    has_row = class_key in tensors and _has_class_row(table_1ND.shape[1], model.config.grid, source_grid)
    if ours != ["positions.0.weight"]:
        _compare(placed, model, table_1ND, key)
        return placed
    if has_row and not model.config.position_on_cls and model.config.has_cls:
        # This is the official conversion for models whose table has no row for the class token.
        tensors[class_key] = tensors[class_key].float() + table_1ND[:, :1]
        table_1ND, has_row = table_1ND[:, 1:], False
    _place(placed, model, ours[0], table_1ND, has_row, source_grid, resize)
    return placed


def _has_class_row(rows: int, grid: tuple[int, int], source_grid: tuple[int, int] | None) -> bool:
    """Return whether a position table of `rows` rows begins with a row for the class token (big_vision's and some of
    timm's do not). `grid` is the model's (rows, columns), `source_grid` the checkpoint's if known."""
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
    """Fit one learned position table of a file to the model's table `name`, and add the result to `placed`.

    Args:
        has_row: whether the file's table begins with a row for the class token.
        source_grid: rows and columns of tokens that the checkpoint was trained with; None if unknown.
        resize: whether the table may be interpolated.
    """
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
    placed.fitted[name] = fitted_table


def _compare(placed: Placed, model: Any, table_1ND: Tensor, key: str) -> None:
    """Check that a file's position table, called `key` there, equals the model's fixed one, which is not loaded. If
    not, say so in `placed`."""
    fresh = type(model.positions[0])(model.config)
    if model.config.position == "sincos-2d":
        fresh.fill_buffers()
        ours_1ND = fresh()
        ours_1ND = ours_1ND[:, ours_1ND.shape[1] - table_1ND.shape[1] :]
        if ours_1ND.shape == table_1ND.shape and torch.allclose(ours_1ND, table_1ND, atol=_TABLE_TOLERANCE):
            return
    placed.misshaped.append(f"{key}: not this model's {model.config.position} table")
    placed.hints.append("the checkpoint's positions are another kind: build with position='learned-1d'")


# -- fine-tuning at another size ---------------------------------------------------------------------------------------


@torch.no_grad()
def carry_over(source: nn.Module, target: nn.Module) -> nn.Module:
    """Fill `target` with the trained body of `source`, and the classifier of `target` with zeros. The models may be of
    any family.

    Position tables are interpolated to the target's grid, fixed ones too: each place in the picture keeps its position,
    and no position lies outside the range that the body was trained on (section 3.2).

    Returns:
        `target`.

    Raises:
        ValueError: `target` has no classifier, or a tensor of the body other than position tables depends on the image
            size.
    """
    trained = {name: value for name, value in source.state_dict().items() if not name.startswith(HEAD)}
    body = {name: value for name, value in target.state_dict().items() if not name.startswith(HEAD)}
    if hasattr(target, "positions"):
        trained |= _fitted_tables(source, target, trained)
    wrong = [
        f"{name} is {tuple(trained[name].shape) if name in trained else 'absent'}, {tuple(value.shape)} is needed"
        for name, value in body.items()
        if name not in trained or trained[name].shape != value.shape
    ]
    if wrong:
        raise ValueError(f"its trained weights do not fit this image size: {'; '.join(wrong[:3])}")
    for name, value in body.items():
        value.copy_(trained[name])
    head = [parameter for name, parameter in target.named_parameters() if name.startswith("head.")]
    if not head:
        raise ValueError("it has no classifier to fine-tune")
    for parameter in head:
        parameter.zero_()
    return target


def _fitted_tables(source: Any, target: Any, trained: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the learned position tables of `trained`, the source's tensors by name, interpolated to the target's grid.
    Fixed tables, which no state dict holds, are changed in the target directly."""
    for old, new in zip(source.positions, target.positions, strict=True):
        if new.kind == "sincos-2d":
            new.fixed.copy_(resize_grid(old.fixed, old.grid, new.grid))
    tables = {name: value for name, value in trained.items() if name.startswith("positions.")}
    placed = fitted(target, tables, "own", source.config.grid, True)
    return placed.fitted
