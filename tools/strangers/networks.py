"""Small networks of vit-pytorch and transformers, for images of 64 px, each by a name that `--models FILE:NAME` takes.

Those of transformers are the library's whole list of image classifiers, made from configurations with random weights;
their logits are taken out of the answer, as any user would have to.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

SIDE = 64
VIT = {"image_size": SIDE, "patch_size": 8, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 64}
VIT_PYTORCH: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "ats_vit.ViT": ("ats_vit", VIT | {"max_tokens_per_depth": (48, 32)}),
    "cait.CaiT": ("cait", VIT | {"cls_depth": 1, "layer_dropout": 0.1}),
    "cct.CCT": ("cct", {"img_size": SIDE, "embedding_dim": 32, "num_layers": 2, "num_heads": 2, "mlp_ratio": 2}),
    "cross_vit.CrossViT": (
        "cross_vit",
        {"image_size": SIDE, "sm_dim": 32, "lg_dim": 32, "depth": 1, "sm_patch_size": 8, "lg_patch_size": 16},
    ),
    "crossformer.CrossFormer": (
        "crossformer",
        {
            "dim": (32, 64, 96, 128),
            "depth": (1, 1, 1, 1),
            "global_window_size": (4, 2, 2, 1),
            "local_window_size": (4, 4, 2, 1),
        },
    ),
    "cvt.CvT": ("cvt", {"s1_emb_dim": 16, "s2_emb_dim": 32, "s3_emb_dim": 48, "s3_depth": 1, "s3_heads": 2}),
    "deepvit.DeepViT": ("deepvit", VIT),
    "jumbo_vit.JumboViT": ("jumbo_vit", VIT),
    "learnable_memory_vit.ViT": ("learnable_memory_vit", VIT),
    "levit.LeViT": ("levit", {"image_size": SIDE, "dim": (32, 48, 64), "depth": 1, "heads": (2, 2, 2), "mlp_mult": 2}),
    "local_vit.LocalViT": ("local_vit", VIT),
    "look_vit.LookViT": (
        "look_vit",
        {
            "image_size": SIDE,
            "dim": 32,
            "depth": 1,
            "heads": 2,
            "patch_size": 16,
            "highres_patch_size": 8,
            "dim_head": 16,
        },
    ),
    "looped_vit.LoopedViT": ("looped_vit", {"dim": 32, "image_size": SIDE, "patch_size": 8, "heads": 2, "mlp_dim": 64}),
    "max_vit.MaxViT": ("max_vit", {"dim": 16, "depth": (1, 1), "dim_head": 8, "window_size": 4}),
    "max_vit_with_registers.MaxViT": (
        "max_vit_with_registers",
        {"dim": 16, "depth": (1, 1), "dim_head": 8, "window_size": 4},
    ),
    "mobile_vit.MobileViT": (
        "mobile_vit",
        {"image_size": (SIDE, SIDE), "dims": (32, 40, 48), "channels": (8, 16, 24, 24, 32, 32, 40, 40, 48, 48, 64)},
    ),
    "na_vit.NaViT": ("na_vit", VIT),
    "nest.NesT": (
        "nest",
        {"image_size": SIDE, "patch_size": 4, "dim": 24, "heads": 2, "num_hierarchies": 2, "block_repeats": (1, 1)},
    ),
    "normalized_vit.nViT": ("normalized_vit", VIT),
    "parallel_vit.ViT": ("parallel_vit", VIT),
    "pit.PiT": ("pit", VIT | {"depth": (1, 1)}),
    "regionvit.RegionViT": ("regionvit", {"dim": (16, 32, 48, 64), "depth": (1, 1, 1, 1), "window_size": 2}),
    "rvt.RvT": ("rvt", VIT),
    "scalable_vit.ScalableViT": (
        "scalable_vit",
        {
            "dim": 16,
            "heads": (1, 2, 2, 2),
            "depth": (1, 1, 1, 1),
            "reduction_factor": (2, 2, 1, 1),
            "window_size": (4, 4, 2, None),
        },
    ),
    "sep_vit.SepViT": ("sep_vit", {"dim": 16, "depth": (1, 1, 1), "heads": (1, 2, 2), "window_size": 2}),
    "simple_flash_attn_vit.SimpleViT": ("simple_flash_attn_vit", VIT | {"use_flash": False}),
    "simple_uvit.SimpleUViT": ("simple_uvit", VIT),
    "simple_vit.SimpleViT": ("simple_vit", VIT),
    "simple_vit_attn_residual.SimpleViTAttnResidual": ("simple_vit_attn_residual", VIT),
    "simple_vit_with_fft.SimpleViT": ("simple_vit_with_fft", VIT | {"freq_patch_size": 8}),
    "simple_vit_with_hyper_connections.SimpleViT": (
        "simple_vit_with_hyper_connections",
        VIT | {"num_residual_streams": 2},
    ),
    "simple_vit_with_patch_dropout.SimpleViT": ("simple_vit_with_patch_dropout", VIT),
    "simple_vit_with_qk_norm.SimpleViT": ("simple_vit_with_qk_norm", VIT),
    "simple_vit_with_register_tokens.SimpleViT": ("simple_vit_with_register_tokens", VIT),
    "simple_vit_with_value_residual.SimpleViT": ("simple_vit_with_value_residual", VIT),
    "t2t.T2TViT": ("t2t", {"image_size": SIDE, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 64}),
    "twins_svt.TwinsSVT": (
        "twins_svt",
        {
            "s1_emb_dim": 16,
            "s2_emb_dim": 16,
            "s3_emb_dim": 32,
            "s4_emb_dim": 32,
            "s1_patch_size": 4,
            "s1_local_patch_size": 4,
            "s2_local_patch_size": 4,
            "s3_local_patch_size": 2,
            "s4_local_patch_size": 2,
            "s3_depth": 1,
            "s4_depth": 1,
            "s1_global_k": 2,
            "s2_global_k": 2,
            "s3_global_k": 2,
            "s4_global_k": 1,
            "s4_patch_size": 1,
        },
    ),
    "vit.ViT": ("vit", VIT | {"dropout": 0.1}),
    "vit_5.ViT": ("vit_5", VIT),
    "vit_detpool.ViTDetPool": ("vit_detpool", VIT),
    "vit_for_small_dataset.ViT": ("vit_for_small_dataset", VIT),
    "vit_with_decorr.ViT": ("vit_with_decorr", VIT),
    "vit_with_keel_post_ln.ViT": ("vit_with_keel_post_ln", VIT),
    "vit_with_patch_dropout.ViT": ("vit_with_patch_dropout", VIT),
    "vit_with_patch_merger.ViT": ("vit_with_patch_merger", VIT | {"patch_merge_layer": 1, "patch_merge_num_tokens": 8}),
    "xcit.XCiT": ("xcit", VIT | {"cls_depth": 1}),
}
TOKENS = {
    "image_size": SIDE,
    "patch_size": 8,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
BEIT = TOKENS | {"use_relative_position_bias": True}
CONVNEXT = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
CLIP = {"vision_config": TOKENS}
SWIN = {"image_size": SIDE, "patch_size": 4, "embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4}
TRANSFORMERS: Mapping[str, Mapping[str, Any]] = {
    "Beit": BEIT,
    "Bit": {"embedding_size": 16, "hidden_sizes": [32, 64], "depths": [1, 1], "num_groups": 8},
    "CLIP": CLIP,
    "ConvNext": CONVNEXT,
    "ConvNextV2": CONVNEXT,
    "Cvt": {},
    "Data2VecVision": BEIT,
    "DeiT": TOKENS,
    "Dinat": {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 2], "kernel_size": 3, "dilations": [[1], [1]]},
    "Dinov2": TOKENS,
    "Dinov2WithRegisters": TOKENS,
    "DonutSwin": SWIN,
    "EfficientNet": {"image_size": SIDE, "width_coefficient": 0.25, "depth_coefficient": 0.25, "hidden_dim": 320},
    "FocalNet": {
        "image_size": SIDE,
        "embed_dim": 16,
        "depths": [1, 1],
        "focal_levels": [2, 2],
        "focal_windows": [3, 3],
    },
    "HGNetV2": {
        "stem_channels": [3, 8, 16],
        "stage_in_channels": [16, 32, 48, 64],
        "stage_mid_channels": [8, 8, 16, 16],
        "stage_out_channels": [32, 48, 64, 64],
        "stage_num_blocks": [1, 1, 1, 1],
        "stage_numb_of_layers": [2, 2, 2, 2],
        "embedding_size": 16,
        "hidden_sizes": [32, 48, 64, 64],
        "depths": [1, 1, 1, 1],
    },
    "Hiera": {
        "image_size": [SIDE, SIDE],
        "embed_dim": 16,
        "depths": [1, 1, 1],
        "num_heads": [1, 2, 4],
        "patch_size": [7, 7],
        "query_stride": [2, 2],
        "num_query_pool": 2,
        "masked_unit_size": [4, 4],
    },
    "IJepa": TOKENS,
    "ImageGPT": {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64 * 64},
    "Levit": {
        "image_size": SIDE,
        "hidden_sizes": [32, 48, 64],
        "num_attention_heads": [2, 2, 2],
        "depths": [1, 1, 1],
        "key_dim": [8, 8, 8],
    },
    "MetaClip2": CLIP,
    "MobileNetV1": {"image_size": SIDE, "depth_multiplier": 0.25},
    "MobileNetV2": {"image_size": SIDE, "depth_multiplier": 0.35},
    "MobileViT": {"image_size": SIDE, "hidden_sizes": [32, 40, 48], "neck_hidden_sizes": [8, 16, 24, 32, 40, 48, 64]},
    "MobileViTV2": {"image_size": SIDE, "width_multiplier": 0.25},
    "PPLCNet": {"scale": 0.25},
    "PoolFormer": {"hidden_sizes": [16, 24, 32, 48], "depths": [1, 1, 1, 1]},
    "Pvt": {
        "image_size": SIDE,
        "hidden_sizes": [16, 32, 48, 64],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 1, 2, 2],
    },
    "PvtV2": {
        "image_size": SIDE,
        "hidden_sizes": [16, 32, 48, 64],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 1, 2, 2],
    },
    "RegNet": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "groups_width": 8},
    "ResNet": {"embedding_size": 16, "hidden_sizes": [32, 64], "depths": [1, 1]},
    "Segformer": {"hidden_sizes": [16, 24, 32, 48], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 1, 2, 2]},
    "ShieldGemma2": {},
    "Siglip": CLIP,
    "Siglip2": {"vision_config": TOKENS | {"num_patches": 64}},
    "SwiftFormer": {"image_size": SIDE, "depths": [1, 1, 1, 1], "embed_dims": [16, 24, 32, 48]},
    "Swin": SWIN,
    "Swinv2": SWIN,
    "TextNet": {"image_size": [SIDE, SIDE]},
    "ViT": TOKENS,
    "ViTMSN": TOKENS,
}
DINOV3 = TOKENS | {"num_register_tokens": 2}
CACHES = ("Beit", "Data2VecVision", "Dinov3ViT")
"""Image networks of transformers that keep tensors from one pass to the next, by the size of their grid."""


class Logits(nn.Module):
    """A classifier of transformers whose answer is the logits alone."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.network(x_BCHW).logits


class Classified(nn.Module):
    """A backbone of transformers with a classifier on its pooled answer."""

    def __init__(self, network: nn.Module, width: int, num_classes: int) -> None:
        super().__init__()
        self.network, self.classifier = network, nn.Linear(width, num_classes)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return self.classifier(self.network(x_BCHW).pooler_output)


def _vit_pytorch(path: str, given: Mapping[str, Any]) -> Callable[..., nn.Module]:
    def make(*, num_classes: int) -> nn.Module:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(f"vit_pytorch.{module}"), name)(num_classes=num_classes, **given)

    return make


def _transformers(name: str, given: Mapping[str, Any]) -> Callable[..., nn.Module]:
    def make(*, num_classes: int) -> nn.Module:
        import transformers

        config = getattr(transformers, f"{name}Config")(num_labels=num_classes, **given)
        return Logits(getattr(transformers, f"{name}ForImageClassification")(config))

    return make


def Dinov3ViT(*, num_classes: int) -> nn.Module:
    """It has no classifier of its own."""
    import transformers

    return Classified(transformers.DINOv3ViTModel(transformers.DINOv3ViTConfig(**DINOV3)), 32, num_classes)


def made(name: str, num_classes: int) -> nn.Module:
    """A network of vit-pytorch, by its module's name, or of transformers, by its configuration's."""
    if name == "Dinov3ViT":
        return Dinov3ViT(num_classes=num_classes)
    if name in TRANSFORMERS:
        return _transformers(name, TRANSFORMERS[name])(num_classes=num_classes)
    path = next(path for path, (module, _) in VIT_PYTORCH.items() if module == name)
    return _vit_pytorch(path, VIT_PYTORCH[path][1])(num_classes=num_classes)


NAMES = (*(name for name, _ in VIT_PYTORCH.values()), *TRANSFORMERS, "Dinov3ViT")


def model_file() -> str:
    """A file that defines every network, as `--models FILE:NAME` wants it."""
    define = "def {name}(*, num_classes):\n    return made({name!r}, num_classes)\n"
    return "from tools.strangers.networks import made\n\n" + "\n".join(define.format(name=name) for name in NAMES)


TIMM = (
    *("beit_base_patch16_224", "botnet26t_256", "cait_xxs24_224", "coat_lite_tiny", "coatnet_nano_rw_224"),
    *("convit_tiny", "convmixer_768_32", "convnext_atto", "crossvit_tiny_240", "darknet17", "davit_tiny"),
    *("densenet121", "edgenext_xx_small", "efficientformer_l1", "efficientformerv2_s0", "efficientnet_lite0"),
    *("efficientvit_b0", "efficientvit_m0", "eva02_tiny_patch14_224", "fastvit_t8", "focalnet_tiny_srf"),
    *("gcvit_xxtiny", "ghostnet_050", "hardcorenas_a", "hgnetv2_b0", "hiera_tiny_224", "hrnet_w18_small"),
    *("inception_next_atto", "lcnet_050", "levit_128s", "mambaout_femto", "maxvit_rmlp_pico_rw_256"),
    *("mixer_s32_224", "mobilenetv4_conv_small_050", "mobileone_s0", "mobilevit_xxs", "mvitv2_tiny", "nest_tiny"),
    *("pit_ti_224", "poolformer_s12", "pvt_v2_b0", "regnetx_002", "repghostnet_050", "repvit_m0_9", "resmlp_12_224"),
    *("resnet10t", "rexnetr_200", "samvit_base_patch16_224", "sequencer2d_s", "starnet_s050", "swiftformer_xs"),
    *("swin_tiny_patch4_window7_224", "swinv2_cr_tiny_224", "tiny_vit_5m_224", "tinynet_e", "tnt_s_patch16_224"),
    *("twins_pcpvt_small", "vgg11", "visformer_tiny", "vit_tiny_patch16_224", "vitamin_small_224", "volo_d1_224"),
    *("xcit_nano_12_p16_224",),
)
"""A small network of each of timm's families."""
