"""How checkpoint files name a ResNet's weights.

In the official .npz files the weight of a convolution has the axes HWIO, in our models OIHW; no convolution has a bias.
"""

from __future__ import annotations

from typing import Any

from vit import formats
from vit.formats import Entry, conv, norm, vector

_CONV = "standardized_conv2d/kernel"


def entries(model: Any, layout: str) -> list[Entry]:
    """Return the entries (`vit.formats.Entry`) of a ResNet in a layout, "google", "timm" or "own". timm's names are the
    model's own."""
    if layout != "google":
        return formats.own(model.state_dict())
    return bit_entries(model) if model.preact else backbone_entries(model)


def bit_entries(model: Any) -> list[Entry]:
    """Return the entries of a BiT in its authors' layout (big_transfer), where numbers of units have two digits, and a
    norm is named after the convolution that follows it."""
    entries = [conv("stem.conv.weight", f"resnet/root_block/{_CONV}")]
    for stage, module in enumerate(model.stages):
        for unit, block in enumerate(module.blocks):
            ours, theirs = f"stages.{stage}.blocks.{unit}", f"resnet/block{stage + 1}/unit{unit + 1:02d}"
            for index, letter in enumerate("abc", start=1):
                entries += norm(f"{ours}.norm{index}", f"{theirs}/{letter}/group_norm", scale="gamma", bias="beta")
                entries.append(conv(f"{ours}.conv{index}.weight", f"{theirs}/{letter}/{_CONV}"))
            if block.downsample is not None:
                entries.append(conv(f"{ours}.downsample.conv.weight", f"{theirs}/a/proj/{_CONV}"))
    entries += norm("norm", "resnet/group_norm", scale="gamma", bias="beta")
    if model.num_classes:
        entries.append(conv("head.fc.weight", "resnet/head/conv2d/kernel"))
        entries.append(vector("head.fc.bias", "resnet/head/conv2d/bias"))
    return entries


def backbone_entries(model: Any) -> list[Entry]:
    """Return the entries of a hybrid's ResNet in the official layout (vit_jax models_resnet.py), where a norm is named
    after the convolution before it."""
    entries = [conv("stem.conv.weight", "conv_root/kernel"), *norm("stem.norm", "gn_root")]
    for stage, module in enumerate(model.stages):
        for unit, block in enumerate(module.blocks):
            ours, theirs = f"stages.{stage}.blocks.{unit}", f"block{stage + 1}/unit{unit + 1}"
            for index in (1, 2, 3):
                entries.append(conv(f"{ours}.conv{index}.weight", f"{theirs}/conv{index}/kernel"))
                entries += norm(f"{ours}.norm{index}", f"{theirs}/gn{index}")
            if block.downsample is not None:
                entries.append(conv(f"{ours}.downsample.conv.weight", f"{theirs}/conv_proj/kernel"))
                entries += norm(f"{ours}.downsample.norm", f"{theirs}/gn_proj")
    return entries
