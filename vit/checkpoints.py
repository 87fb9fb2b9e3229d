"""Load published weights into our models, and save our weights in published layouts: `load`, `save`.

A layout is a convention of how weights are named and arranged in a file: Google's, timm's, torchvision's or ours. A
file is loaded completely or not at all, and a tensor that the model has no place for is an error. This works for ViTs,
hybrids and BiT ResNets: a model's method `checkpoint_entries(layout)` says what its weights are called in each layout.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vit import files, formats
from vit.files import CheckpointError
from vit.resize import exported, fitted, resize_patch_kernel

__all__ = ["CheckpointError", "LoadReport", "export", "load", "save"]

LAYOUTS = ("google", "timm", "torchvision", "own")
_SHOWN = 8  # keys of each kind in an error message


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """What `load` has done.

    Args:
        layout: the layout of the file that was found or asked for.
        loaded: names of the model's tensors that were filled from the file.
        fresh: names of the model's tensors that were left as they were (a new classifier).
        dropped: keys of the file that were not loaded (its classifier).
        resized: one sentence per tensor that was fitted to another grid or patch size.
    """

    layout: str
    loaded: tuple[str, ...]
    fresh: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    resized: tuple[str, ...] = ()


def load(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    layout: str = "auto",
    resize: bool = True,
    head: Literal["load", "fresh"] = "load",
    source_grid: tuple[int, int] | None = None,
) -> LoadReport:
    """Fill a model from a checkpoint file. The model must have memory, i.e. not be on the meta device.

    Args:
        layout: naming of the weights in the file: "google", "timm", "torchvision", "own" (ours), or "auto" to detect it
            by the keys.
        resize: whether to fit position tables to the model's grid, and patch kernels to its patch size.
        head: "fresh" leaves the classifier, and the hidden layer before it, as they are, for fine-tuning.
        source_grid: rows and columns of tokens that the checkpoint was trained with; None takes the model's grid if it
            has as many tokens, else a square one.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: the file is unreadable, of an unknown layout, or does not fit the model; the message says what
            would fix it. The model is not changed then.
    """
    if any(parameter.is_meta for parameter in model.parameters()):
        raise CheckpointError("the model is on the meta device: call model.to_empty(device=...) before loading")
    tensors = files.read(path)
    layout = _layout_of(set(tensors), path) if layout == "auto" else layout
    if layout not in LAYOUTS:
        raise CheckpointError(f"unknown layout {layout!r}; known: auto, {', '.join(LAYOUTS)}")
    tensors = formats.normalise(tensors, layout)
    fit = _Fit(model, tensors, layout, path)
    fit.drop_head(fresh=head == "fresh")
    fit.take(resize=resize, source_grid=source_grid)
    return fit.copy()


def save(model: nn.Module, path: str | os.PathLike[str], *, layout: str = "safetensors") -> None:
    """Write a model's weights to a file.

    Args:
        layout: "google" for .npz, which the official code and timm's .npz loader read; "timm" or "torchvision" for
            safetensors with the names of these libraries; "safetensors" for safetensors with our names.

    Raises:
        CheckpointError: the model has parts that the layout has no place for.
    """
    layout = "own" if layout == "safetensors" else layout
    write = files.write_npz if layout == "google" else files.write_safetensors
    write(path, export(model, layout))


def export(model: nn.Module, layout: str) -> dict[str, Tensor]:
    """Return a model's weights as the file of a layout holds them: name in the file -> tensor.

    Args:
        layout: "google", "timm", "torchvision" or "own" (our names).

    Raises:
        CheckpointError: the model has parts that the layout has no place for.
    """
    if layout not in LAYOUTS:
        raise CheckpointError(f"unknown layout {layout!r}; known: google, timm, torchvision, safetensors")
    state = model.state_dict()
    tensors: dict[str, Tensor] = {}
    if layout != "own":
        tensors |= exported(model, layout)
    for entry in model.checkpoint_entries(layout):  # type: ignore[operator]
        tensors |= dict(zip(entry.theirs, entry.encode(state[entry.ours]), strict=True))
    return tensors


def _layout_of(names: set[str], path: Any) -> str:
    layout = formats.detect(names)
    if layout is None:
        some = ", ".join(sorted(names)[:_SHOWN]) or "nothing"
        raise CheckpointError(
            f"{Path(path).name} is none of the known layouts ({', '.join(LAYOUTS)}): it holds {some}. "
            "Is it a checkpoint of a ViT, a hybrid or a BiT ResNet?"
        )
    return layout


class _Fit:
    """The state of one call of `load`. It collects what fits and what does not, then copies all or raises an error."""

    def __init__(self, model: nn.Module, tensors: dict[str, Tensor], layout: str, path: Any) -> None:
        self.model, self.tensors, self.layout, self.path = model, dict(tensors), layout, path
        self.state = model.state_dict()
        self.entries: list[formats.Entry] = list(model.checkpoint_entries(layout))  # type: ignore[operator]
        self.fitted: dict[str, Tensor] = {}
        self.missing: list[str] = []
        self.misshaped: list[str] = []
        self.hints: list[str] = []
        self.fresh: list[str] = []
        self.dropped: list[str] = []
        self.resized: list[str] = []

    def drop_head(self, *, fresh: bool) -> None:
        """Exclude classifiers from loading: with `fresh` those of the model and the file, so that the model's stays as
        it is; otherwise the file's, if the model has none."""
        prefixes: tuple[str, ...] = ()
        if fresh:
            ours = {entry.ours for entry in self.entries if entry.ours.startswith(("head.", "pre_logits."))}
            self.entries = [entry for entry in self.entries if entry.ours not in ours]
            self.fresh = sorted(ours)
            prefixes = ("head/", "pre_logits/", "resnet/head/", "head.", "pre_logits.", "heads.")
        elif not any(entry.ours.startswith("head.") for entry in self.entries):
            prefixes = ("head/", "resnet/head/", "head.", "heads.head.")
        self.dropped = sorted(name for name in self.tensors if name.startswith(prefixes))
        for name in self.dropped:
            del self.tensors[name]

    def take(self, *, resize: bool, source_grid: tuple[int, int] | None) -> None:
        """Fit tensors of the file to each of the model's entries; collect keys that are missing and shapes that differ.
        The arguments are those of `load`."""
        if hasattr(self.model, "positions"):
            placed = fitted(self.model, self.tensors, self.layout, source_grid, resize)
            self.fitted |= placed.fitted
            self.missing += placed.missing
            self.misshaped += placed.misshaped
            self.resized += placed.resized
            self.hints += placed.hints
            self.entries = [entry for entry in self.entries if not entry.ours.startswith("positions.")]
        for entry in self.entries:
            absent = [name for name in entry.theirs if name not in self.tensors]
            if absent:
                self.missing += absent
                continue
            parts = [self.tensors.pop(name) for name in entry.theirs]
            self._fit_one(entry, parts, resize)

    def _fit_one(self, entry: formats.Entry, parts: list[Tensor], resize: bool) -> None:
        wanted = tuple(self.state[entry.ours].shape)
        try:
            tensor = entry.decode(parts)
        except (RuntimeError, IndexError) as error:
            self.misshaped.append(
                f"{entry.theirs[0]} {tuple(parts[0].shape)} cannot become {entry.ours} {wanted}: {error}"
            )
            return
        if resize and entry.ours == "embed.proj.weight" and tensor.ndim == 4 and tensor.shape[:2] == wanted[:2]:
            old = tuple(tensor.shape[2:])
            tensor = resize_patch_kernel(tensor.float(), (wanted[2], wanted[3]))
            if old != wanted[2:]:
                self.resized.append(f"patch kernel from {old} to {wanted[2:]} px")
        if tuple(tensor.shape) != wanted:
            self.misshaped.append(f"{entry.theirs[0]}: the checkpoint has {tuple(tensor.shape)}, the model {wanted}")
            self._explain(entry.ours, tuple(tensor.shape), wanted)
            return
        self.fitted[entry.ours] = tensor

    def _explain(self, ours: str, theirs: tuple[int, ...], wanted: tuple[int, ...]) -> None:
        if ours.startswith("head.") and theirs[1:] == wanted[1:]:
            self.hints.append(
                f"the checkpoint has {theirs[0]} classes, the model {wanted[0]}: build it with "
                f"num_classes={theirs[0]}, or load with head='fresh'"
            )
        elif ours == "embed.proj.weight":
            if theirs[0] != wanted[0]:
                self.hints.append(f"the checkpoint is {theirs[0]} wide, the model {wanted[0]}: choose the matching row")
            elif theirs[1] != wanted[1]:
                self.hints.append(f"the checkpoint has {theirs[1]} channels: build the model with channels={theirs[1]}")
            else:
                self.hints.append(
                    f"the checkpoint's patches are {theirs[2:]}: build that size, or load with resize=True"
                )

    def copy(self) -> LoadReport:
        """Fill the model with the fitted tensors. Raise CheckpointError, and leave the model as it is, if a tensor is
        missing, left over or of another shape."""
        unexpected = sorted(self.tensors)
        if self.missing or unexpected or self.misshaped:
            raise self._error(unexpected)
        with torch.no_grad():
            for name, tensor in self.fitted.items():
                self.state[name].copy_(tensor)
        if hasattr(self.model, "fill_buffers"):
            self.model.fill_buffers()  # type: ignore[operator]
        return LoadReport(
            layout=self.layout,
            loaded=tuple(self.fitted),
            fresh=tuple(self.fresh),
            dropped=tuple(self.dropped),
            resized=tuple(self.resized),
        )

    def _error(self, unexpected: list[str]) -> CheckpointError:
        self._guess(unexpected)
        lines = [f"{Path(self.path).name} (layout {self.layout}) does not fit the model; nothing was loaded."]
        groups = {"missing": self.missing, "unexpected": unexpected, "mis-shaped": self.misshaped}
        for title, names in groups.items():
            if names:
                more = f", ... {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
                lines.append(f"  {title} ({len(names)}): {', '.join(names[:_SHOWN])}{more}")
        lines += [f"  fix: {hint}" for hint in dict.fromkeys(self.hints)]
        return CheckpointError(
            "\n".join(lines),
            missing=tuple(self.missing),
            unexpected=tuple(unexpected),
            misshaped=tuple(self.misshaped),
        )

    def _guess(self, unexpected: list[str]) -> None:
        """Add to the hints for the user the likely reasons for keys that are missing, or left over (`unexpected`)."""
        missing = self.missing

        def some(names: list[str], *parts: str) -> bool:
            return any(part in name for name in names for part in parts)

        if some(unexpected, "pre_logits"):
            self.hints.append(
                "the checkpoint has a hidden layer in its head: build with head='mlp', or load head='fresh'"
            )
        if some(missing, "pre_logits"):
            self.hints.append("the checkpoint has no hidden layer in its head: build with head='linear'")
        if some(missing, "head") and not some(missing, "pre_logits"):
            self.hints.append("the checkpoint has no head: load with head='fresh'")
        if some(unexpected, "MAPHead"):
            self.hints.append("attention pooling (MAPHead) is not supported")
        if some(unexpected, "encoderblock_", "blocks.", "encoder_layer_"):
            self.hints.append("the checkpoint has more blocks than the model: choose the matching row or depth")
        elif some(missing, "encoderblock_", "blocks.", "encoder_layer_"):
            self.hints.append("the checkpoint has fewer blocks than the model: choose the matching row or depth")
        if some(unexpected, "conv_root", "backbone"):
            self.hints.append("the checkpoint is a hybrid: choose R<depth>+ViT-<row>/<n>")
        if some(missing, "conv_root", "backbone"):
            self.hints.append("the checkpoint is not this hybrid: choose the matching name")
        class_keys = set(formats.CLASS_KEY.values())
        if class_keys & set(unexpected):
            self.hints.append("the checkpoint has a class token: build with pooling='cls' or cls_token=True")
        if class_keys & set(missing):
            self.hints.append("the checkpoint has no class token: build with pooling='mean'")
