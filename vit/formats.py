"""How other code bases name and arrange the same weights: a list of entries per layout, for reading and writing.

Layouts: "google" (official .npz, after `normalise`; the keys are those of vit_jax), "timm", "torchvision", and "own"
(the model's own names). Position tables have no entries, because they may change shape: see vit/resize.py.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vit.config import ViTConfig

POSITION_KEY = {
    "google": "Transformer/posembed_input/pos_embedding",
    "timm": "pos_embed",
    "torchvision": "encoder.pos_embedding",
}
CLASS_KEY = {"google": "cls", "timm": "cls_token", "torchvision": "class_token"}


@dataclass(frozen=True)
class Entry:
    """One tensor of a model, and the tensors of a checkpoint file that hold its values.

    Args:
        ours: name in the model's state_dict.
        theirs: keys in the file, in the order of the lists of `decode` and `encode`.
        decode: function from the file's tensors to the model's tensor.
        encode: function from the model's tensor to the file's tensors.
    """

    ours: str
    theirs: tuple[str, ...]
    decode: Callable[[list[Tensor]], Tensor]
    encode: Callable[[Tensor], list[Tensor]]


def same(ours: str, theirs: str) -> Entry:
    """Return the entry of a tensor, named `ours` in the model and `theirs` in the file, that is stored as it is."""
    return Entry(ours, (theirs,), lambda t: t[0], lambda t: [t])


def vector(ours: str, theirs: str) -> Entry:
    """Return the entry of a vector, named `ours` in the model and `theirs` in the file. It is flattened on reading,
    since old files store GroupNorm's vectors as (1, 1, 1, C)."""
    return Entry(ours, (theirs,), lambda t: t[0].flatten(), lambda t: [t])


def linear(ours: str, theirs: str) -> Entry:
    """Return the entry of a linear layer's weight, named `ours` in the model and `theirs` in the file. It is
    transposed: flax stores (in, out), torch has (out, in)."""
    return Entry(ours, (theirs,), lambda t: t[0].t(), lambda t: [t.t()])


def conv(ours: str, theirs: str) -> Entry:
    """Return the entry of a convolution's weight, named `ours` in the model and `theirs` in the file. Its axes are
    permuted: flax stores HWIO, torch has OIHW."""
    return Entry(ours, (theirs,), lambda t: t[0].permute(3, 2, 0, 1), lambda t: [t.permute(2, 3, 1, 0)])


def norm(ours: str, theirs: str, *, scale: str = "scale", bias: str = "bias") -> list[Entry]:
    """Return the entries of a normalisation layer, called `ours` in the model and `theirs` in the file, where its
    weights are called `scale` and `bias`."""
    return [vector(f"{ours}.weight", f"{theirs}/{scale}"), vector(f"{ours}.bias", f"{theirs}/{bias}")]


def _dense(ours: str, theirs: str) -> list[Entry]:
    return [linear(f"{ours}.weight", f"{theirs}/kernel"), vector(f"{ours}.bias", f"{theirs}/bias")]


def _attention(ours: str, theirs: str, heads: int, *, bias: bool) -> Iterator[Entry]:
    """Yield the entries of an attention layer of width D with H heads of dimension E. A file has kernels (D, H, E) for
    query, key and value, and (H, E, D) for the output; a model has (3 H E, D) for the three, and (D, H E)."""
    kernels = tuple(f"{theirs}/{part}/kernel" for part in ("query", "key", "value"))
    biases = tuple(f"{theirs}/{part}/bias" for part in ("query", "key", "value"))

    def encode_qkv(weight: Tensor) -> list[Tensor]:
        return [part.t().reshape(weight.shape[1], heads, -1) for part in weight.chunk(3)]

    yield Entry(f"{ours}.qkv.weight", kernels, lambda t: torch.cat([k.flatten(1).t() for k in t]), encode_qkv)
    if bias:
        yield Entry(
            f"{ours}.qkv.bias",
            biases,
            lambda t: torch.cat([b.flatten() for b in t]),
            lambda t: [part.reshape(heads, -1) for part in t.chunk(3)],
        )
    yield Entry(
        f"{ours}.proj.weight",
        (f"{theirs}/out/kernel",),
        lambda t: t[0].flatten(0, 1).t(),
        lambda t: [t.t().reshape(heads, -1, t.shape[0])],
    )
    yield vector(f"{ours}.proj.bias", f"{theirs}/out/bias")


def entries(layout: str, names: Iterable[str], config: ViTConfig, backbone: Sequence[Entry] = ()) -> list[Entry]:
    """Return the entries of a ViT in a layout, without position tables.

    Args:
        layout: "google", "timm", "torchvision" or "own".
        names: names in the model's state_dict.
        backbone: entries of the model's ResNet stem in the layout "google"; () without one.
    """
    if layout == "google":
        return _google(config, backbone)
    if layout == "timm":
        return renamed(names, _timm_rules(names, config))
    if layout == "torchvision":
        return renamed(names, _torchvision_rules(config))
    return own(names)


def _google(config: ViTConfig, backbone: Sequence[Entry]) -> list[Entry]:
    """Return the entries of the official .npz, which numbers the parts of a block LayerNorm_0, attention 1, LayerNorm_2
    and MLP 3. `backbone` holds the entries of a ResNet stem."""
    made = [conv("embed.proj.weight", "embedding/kernel"), vector("embed.proj.bias", "embedding/bias")]
    if config.has_cls:
        made.append(same("cls", "cls"))
    for index in range(config.depth):
        ours, theirs = f"blocks.{index}", f"Transformer/encoderblock_{index}"
        made += norm(f"{ours}.norm1", f"{theirs}/LayerNorm_0")
        attention = f"{theirs}/MultiHeadDotProductAttention_1"
        made += _attention(f"{ours}.attn", attention, config.heads, bias=config.qkv_bias)
        made += norm(f"{ours}.norm2", f"{theirs}/LayerNorm_2")
        made += _dense(f"{ours}.mlp.fc1", f"{theirs}/MlpBlock_3/Dense_0")
        made += _dense(f"{ours}.mlp.fc2", f"{theirs}/MlpBlock_3/Dense_1")
    made += norm("norm", "Transformer/encoder_norm")
    made += [dataclasses.replace(entry, ours=f"embed.backbone.{entry.ours}") for entry in backbone]
    if config.head == "mlp":
        made += _dense("pre_logits", "pre_logits")
    if config.num_classes:
        made += _dense("head", "head")
    return made


def renamed(names: Iterable[str], rules: list[tuple[str, str]]) -> list[Entry]:
    """Return the entries of a layout that differs from the model's `names` in names only, without position tables.

    Args:
        rules: (regular expression, replacement) pairs; the first one that matches a name is applied to it.
    """
    made = []
    for name in names:
        if name.startswith("positions."):
            continue
        theirs = name
        for pattern, replacement in rules:
            theirs, count = re.subn(pattern, replacement, name)
            if count:
                break
        made.append(same(name, theirs))
    return made


def _timm_rules(names: Iterable[str], config: ViTConfig) -> list[tuple[str, str]]:
    stem_only = config.stem == "resnet" and not any(".stages." in name for name in names)
    rules = [(r"^embed\.backbone\.stem\.", "patch_embed.backbone.")] if stem_only else []
    rules += [(r"^embed\.", "patch_embed."), (r"^cls$", "cls_token")]
    if config.norm_after_pool:
        rules.append((r"^norm\.", "fc_norm."))
    return rules


def _torchvision_rules(config: ViTConfig) -> list[tuple[str, str]]:
    last = "conv_last." if config.stem == "conv" else ""
    block = r"^blocks\.(\d+)\."
    layer = r"encoder.layers.encoder_layer_\1."
    return [
        (r"^embed\.backbone\.(\d+)\.", r"conv_proj.conv_bn_relu_\1."),
        (r"^embed\.proj\.", f"conv_proj.{last}"),
        (r"^cls$", "class_token"),
        (rf"{block}norm(\d)\.", rf"{layer}ln_\2."),
        (rf"{block}attn\.qkv\.", rf"{layer}self_attention.in_proj_"),
        (rf"{block}attn\.proj\.", rf"{layer}self_attention.out_proj."),
        (rf"{block}mlp\.fc1\.", rf"{layer}mlp.0."),
        (rf"{block}mlp\.fc2\.", rf"{layer}mlp.3."),
        (r"^norm\.", "encoder.ln."),
        (r"^(pre_logits|head)\.", r"heads.\1."),
    ]


def own(names: Iterable[str]) -> list[Entry]:
    """Return the entries of the layout "own", in which tensors have the model's `names` and shapes."""
    return [same(name, name) for name in names]


def detect(names: set[str]) -> str | None:
    """Return the layout ("google", "timm", "torchvision" or "own") that a file's keys belong to; None if unknown."""
    if any(re.search(r"(^|/)(embedding|root_block/standardized_conv2d(_\d+)?)/kernel$", name) for name in names):
        return "google"
    if "patch_embed.proj.weight" in names:
        return "timm"
    if names & {"conv_proj.weight", "conv_proj.conv_last.weight"}:
        return "torchvision"
    if names & {"embed.proj.weight", "stem.conv.weight"}:
        return "own"
    return None


_PREFIXES = ("opt/target/", "params/img/", "params/")
_BIG_VISION = {
    "MultiHeadDotProductAttention_0": "MultiHeadDotProductAttention_1",
    "LayerNorm_1": "LayerNorm_2",
    "MlpBlock_0": "MlpBlock_3",
}


def normalise(tensors: dict[str, Tensor], layout: str) -> dict[str, Tensor]:
    """Return a file's tensors under the keys that `entries` uses for its layout: remove prefixes, and convert
    big_vision's numbering, stacked blocks and old names."""
    if layout == "torchvision":
        numbers = {"linear_1": "0", "linear_2": "3"}  # names before torchvision 0.14
        return _renamed_keys(tensors, r"(?<=\.mlp\.)linear_[12](?=\.)", lambda m: numbers[m[0]])
    if layout != "google":
        return tensors
    for prefix in _PREFIXES:
        if any(name.startswith(prefix) for name in tensors):
            tensors = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            break
    tensors = _renamed_keys(tensors, r"standardized_conv2d_\d+", lambda m: "standardized_conv2d")
    if "root_block/standardized_conv2d/kernel" in tensors:
        tensors = {f"resnet/{name}": tensor for name, tensor in tensors.items()}
    tensors = _unstacked(tensors)
    if any("/MlpBlock_0/" in name for name in tensors):
        pattern = rf"(?<=\d/)({'|'.join(_BIG_VISION)})(?=/)"
        tensors = _renamed_keys(tensors, pattern, lambda m: _BIG_VISION[m[0]])
    if "pos_embedding" in tensors:
        tensors[POSITION_KEY["google"]] = tensors.pop("pos_embedding")
    return tensors


def _renamed_keys(tensors: dict[str, Tensor], pattern: str, new: Callable[[re.Match[str]], str]) -> dict[str, Tensor]:
    return {re.sub(pattern, new, name): tensor for name, tensor in tensors.items()}


def _unstacked(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return a file's tensors with those of each block by themselves: blocks that flax ran in a scan are stored as one
    array with a leading axis for the block."""
    stacked = "Transformer/encoderblock/"
    single: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if name.startswith(stacked):
            rest = name.removeprefix(stacked)
            single |= {f"Transformer/encoderblock_{i}/{rest}": part for i, part in enumerate(tensor)}
        else:
            single[name] = tensor
    return single
