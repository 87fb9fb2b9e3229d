"""The same network from each library, with the same weights wherever it is the same function.

vit-pytorch's ViT is not: its projection to queries, keys and values has no bias and its patch embedding two more
LayerNorms, so it starts from its own weights.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

from torch import Tensor, nn

from baselines._outside import Outside
from vit import checkpoints
from vit.model import VisionTransformer

TIMM_NAMES = {
    "R50x1": "resnetv2_50x1_bit",
    "R26+ViT-S/32": "vit_small_r26_s32_224",
    "R50+ViT-B/16": "vit_base_r50_s16_224",
}


class NoCounterpart(Exception):
    """The library has no such model."""


def build(
    package: str, ours: nn.Module, *, name: str, image_size: int, num_classes: int, attention: str = "fused"
) -> tuple[nn.Module, bool]:
    """The library's counterpart of `ours`, and whether it computes the same function of the same weights.

    Args:
        attention: "fused" or "plain", where timm and Hugging Face have a choice.

    Raises:
        NoCounterpart: there is none.
    """
    if package == "timm":
        from timm.layers import set_fused_attn

        set_fused_attn(attention == "fused")
    if isinstance(ours, Outside) and name.startswith(f"{package}:"):
        return nn.Sequential(ours.own_input, ours.original()), True
    plain = isinstance(ours, VisionTransformer) and ours.config.stem == "patch"
    if not plain and not (package == "timm" and name in TIMM_NAMES):
        raise NoCounterpart(f"has no {name}")
    more = {"attention": attention} if package == "transformers" else {}
    return BUILDERS[package](ours, name, image_size, num_classes, **more)


def _timm(ours: Any, name: str, image_size: int, num_classes: int) -> tuple[nn.Module, bool]:
    import timm
    from timm.models.vision_transformer import VisionTransformer as TimmViT

    if name in TIMM_NAMES:
        fixed: dict[str, Any] = {} if name.startswith("R50x") else {"img_size": image_size}
        model = timm.create_model(TIMM_NAMES[name], num_classes=num_classes, **fixed)
        own_names = not isinstance(ours, VisionTransformer)  # the ResNets are called as timm calls them
        model.load_state_dict(ours.state_dict() if own_names else checkpoints.export(ours, "timm"))
        return model, True
    c = ours.config
    model = TimmViT(
        img_size=image_size,
        patch_size=c.patch_size[0],
        in_chans=c.channels,
        num_classes=num_classes,
        embed_dim=c.width,
        depth=c.depth,
        num_heads=c.heads,
        mlp_ratio=c.mlp_width / c.width,
    )
    model.load_state_dict(checkpoints.export(ours, "timm"))
    return model, True


def _torchvision(ours: Any, name: str, image_size: int, num_classes: int) -> tuple[nn.Module, bool]:
    from torchvision.models import VisionTransformer as TorchvisionViT

    c = ours.config
    model = TorchvisionViT(
        image_size=image_size,
        patch_size=c.patch_size[0],
        num_layers=c.depth,
        num_heads=c.heads,
        hidden_dim=c.width,
        mlp_dim=c.mlp_width,
        num_classes=num_classes,
    )
    model.load_state_dict(checkpoints.export(ours, "torchvision"))
    return model, True


def _transformers(ours: Any, name: str, image_size: int, num_classes: int, attention: str) -> tuple[nn.Module, bool]:
    from transformers import ViTConfig, ViTForImageClassification

    c = ours.config
    options: dict[str, Any] = {
        "hidden_size": c.width,
        "num_hidden_layers": c.depth,
        "num_attention_heads": c.heads,
        "intermediate_size": c.mlp_width,
        "image_size": image_size,
        "patch_size": c.patch_size[0],
        "num_channels": c.channels,
        "layer_norm_eps": c.norm_eps,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "num_labels": num_classes,
    }
    kernel = {"fused": "sdpa", "plain": "eager"}[attention]
    model = ViTForImageClassification(ViTConfig(**options, attn_implementation=kernel))
    given = hugging_face_names(checkpoints.export(ours, "timm"), set(model.state_dict()))
    model.load_state_dict(given)
    return LogitsOnly(model), True


def hugging_face_names(tensors: dict[str, Tensor], wanted: set[str]) -> dict[str, Tensor]:
    """timm's tensors under Hugging Face's names of either generation (5.x shortened those of attention)."""
    short = any(".attention.q_proj." in key for key in wanted)
    layers = "vit.layers" if any(key.startswith("vit.layers.") for key in wanted) else "vit.encoder.layer"
    parts = ("q_proj", "k_proj", "v_proj") if short else ("attention.query", "attention.key", "attention.value")
    proj = "attention.o_proj" if short else "attention.output.dense"
    mlp = any(".mlp.fc1." in key for key in wanted)
    rules = [
        (r"^cls_token$", "vit.embeddings.cls_token"),
        (r"^pos_embed$", "vit.embeddings.position_embeddings"),
        (r"^patch_embed\.proj\.", "vit.embeddings.patch_embeddings.projection."),
        (r"^norm\.", "vit.layernorm."),
        (r"^head\.", "classifier."),
        (r"^blocks\.(\d+)\.norm1\.", rf"{layers}.\1.layernorm_before."),
        (r"^blocks\.(\d+)\.norm2\.", rf"{layers}.\1.layernorm_after."),
        (r"^blocks\.(\d+)\.attn\.proj\.", rf"{layers}.\1.{proj}."),
        (r"^blocks\.(\d+)\.mlp\.fc1\.", rf"{layers}.\1.{'mlp.fc1' if mlp else 'intermediate.dense'}."),
        (r"^blocks\.(\d+)\.mlp\.fc2\.", rf"{layers}.\1.{'mlp.fc2' if mlp else 'output.dense'}."),
    ]
    renamed = {}
    for name, tensor in tensors.items():
        if match := re.fullmatch(r"blocks\.(\d+)\.attn\.qkv\.(weight|bias)", name):
            layer, kind = match.groups()
            for part, value in zip(parts, tensor.chunk(3), strict=True):
                renamed[f"{layers}.{layer}.attention.{part}.{kind}"] = value
            continue
        for pattern, new in rules:
            name, changed = re.subn(pattern, new, name)
            if changed:
                break
        renamed[name] = tensor
    return renamed


class LogitsOnly(nn.Module):
    """A Hugging Face model as a function from images to logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.model(pixel_values=x_BCHW).logits


def _vit_pytorch(ours: Any, name: str, image_size: int, num_classes: int) -> tuple[nn.Module, bool]:
    from vit_pytorch import ViT

    c = ours.config
    model = ViT(
        image_size=image_size,
        patch_size=c.patch_size[0],
        num_classes=num_classes,
        dim=c.width,
        depth=c.depth,
        heads=c.heads,
        mlp_dim=c.mlp_width,
        channels=c.channels,
        dim_head=c.width // c.heads,
        pool="cls",
    )
    return model, False


def transformer_blocks(model: nn.Module) -> list[nn.Module]:
    """The modules that a library's network repeats, in whose forward passes nearly all of its time is spent.

    Raises:
        NoCounterpart: it has none.
    """
    for path in BLOCKS:
        with contextlib.suppress(AttributeError):
            blocks = list(model.get_submodule(path).children())
            # vit-pytorch calls the two halves of a block from a list of lists
            return [half for b in blocks for half in (b if isinstance(b, nn.ModuleList) else [b])]
    raise NoCounterpart("has no Transformer blocks")


BLOCKS = ("blocks", "transformer.layers", "encoder.layers", "model.vit.layers", "model.vit.encoder.layer")
BUILDERS: dict[str, Any] = {
    "timm": _timm,
    "torchvision": _torchvision,
    "transformers": _transformers,
    "vit_pytorch": _vit_pytorch,
}
