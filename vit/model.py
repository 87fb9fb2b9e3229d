"""The Vision Transformer as a torch module.

Shapes: B images, C channels, H and W pixels, N tokens, D width, F features, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from vit.config import ViTConfig, pair
from vit.layers import (
    AxialBlock,
    Block,
    Embed,
    PositionTable,
    RelativePosition,
    allocate,
    constant,
    keeps_order,
    lecun_normal,
    normal,
)

if TYPE_CHECKING:
    from vit.formats import Entry


class VisionTransformer(nn.Module):
    """A Vision Transformer from images in [-1, 1] to class logits; where `takes_pixels`, uint8 pixels are accepted too.

    Construction allocates memory only at its end; under `torch.device("meta")` it allocates nothing at all, and
    `model.to_empty(device=...)` followed by `model.init_weights(generator)` gives the same model later.

    Args:
        config: the configuration.
        backbone: only for stem="resnet": a module from x_BCHW to a feature map, with `out_channels`, `stride` and
            `init_weights(generator)`.
        generator: random generator of the initial weights; None = torch's global one.

    Raises:
        ValueError: stem="resnet" without a backbone, or a backbone with another stem.
    """

    def __init__(
        self, config: ViTConfig, *, backbone: nn.Module | None = None, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        if (config.stem == "resnet") != (backbone is not None):
            raise ValueError("stem='resnet' and a backbone go together: give both or neither")
        self.config = config
        self.num_features = config.num_features
        device = torch.get_default_device()
        with torch.device("meta"):
            self._build(config, backbone)
        if device.type != "meta":
            allocate(self, device)
            self.init_weights(generator)

    def _build(self, config: ViTConfig, backbone: nn.Module | None) -> None:
        self.embed = Embed(config, backbone)
        self.cls = nn.Parameter(torch.empty(1, 1, config.width)) if config.has_cls else None
        tables = {"none": 0, "relative": 0}.get(config.position, 1)
        relatives = int(config.position == "relative")
        if config.position_at == "every-layer":
            tables *= config.depth
        if config.position_at != "shared":
            relatives *= config.depth
        self.positions = nn.ModuleList(PositionTable(config) for _ in range(tables))
        self.relatives = nn.ModuleList(RelativePosition(config) for _ in range(relatives))
        self.drop = nn.Dropout(config.dropout)
        block = AxialBlock if config.attention == "axial" else Block
        self.blocks = nn.ModuleList(block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps)
        self.pre_logits = nn.Linear(config.width, config.num_features) if config.head == "mlp" else None
        self.mask_token = nn.Parameter(torch.empty(1, 1, config.width)) if config.head == "masked" else None
        classes = config.num_classes
        if config.head == "masked":
            from vit import masked

            patch = pair(config.patch_size)
            classes = masked.outputs(config.masked_target, channels=config.channels, patch=patch)
        self.head = nn.Linear(config.num_features, classes) if classes else nn.Identity()

    def init_weights(self, generator: torch.Generator | None = None) -> None:
        """Initialise all weights as in the ViT paper. They depend only on the state of the generator (None: torch's
        global one)."""
        self.embed.init_weights(generator)
        constant(self.cls, 0.0)
        for module in (*self.positions, *self.relatives, *self.blocks):
            module.init_weights(generator)  # type: ignore[operator]
        self.norm.reset_parameters()
        if self.pre_logits is not None:
            lecun_normal(self.pre_logits.weight, generator)
            constant(self.pre_logits.bias, 0.0)
        if self.mask_token is not None:
            normal(self.mask_token, self.config.position_std, generator)
        if isinstance(self.head, nn.Linear):
            constant(self.head.weight, 0.0)
            constant(self.head.bias, self.config.head_bias)

    def fill_buffers(self) -> None:
        """Compute the position tables that are not learned. Call this after `to_empty` if `init_weights` is not
        called."""
        for module in (*self.positions, *self.relatives):
            module.fill_buffers()  # type: ignore[operator]

    def checkpoint_entries(self, layout: str) -> list[Entry]:
        """Return how each weight is stored in a checkpoint layout ("google", "timm", "torchvision" or "own"; see
        vit/formats.py), without position tables."""
        from vit import formats

        backbone = self.embed.backbone.checkpoint_entries(layout) if self.config.stem == "resnet" else ()
        return formats.entries(layout, list(self.state_dict()), self.config, backbone)

    @property
    def self_supervised(self) -> bool:
        """Whether training targets are computed from the images, so that labels are not used."""
        return self.config.head == "masked"

    @property
    def takes_pixels(self) -> bool:
        """Whether the model also accepts uint8 pixels; these are scaled by the kernel that cuts them into patches."""
        return self.embed.backbone is None and self.mask_token is None

    def tokens(
        self, x_BCHW: Tensor, *, corrupt: Callable[[Tensor], Tensor] | None = None, first: int | None = None
    ) -> Tensor:
        """Return the encoder's output x_BND before the last normalisation; the class token, if any, comes first.

        Args:
            corrupt: function applied to the patch embeddings before positions are added.
            first: number of tokens, from the start, that the caller uses: the last block may leave the others out;
                None: all.

        Raises:
            ValueError: the images have another size than the model was built for.
        """
        if tuple(x_BCHW.shape[-2:]) != self.config.image_size:
            raise ValueError(
                f"images are {tuple(x_BCHW.shape[-2:])} px, the model was built for {self.config.image_size}; "
                "build it at that size (checkpoints are resized on loading)"
            )
        x_BND = self.embed(x_BCHW)
        if corrupt is not None:
            x_BND = corrupt(x_BND)
        if self.cls is not None:
            x_BND = torch.cat([self.cls.expand(x_BND.shape[0], -1, -1).to(x_BND.dtype), x_BND], dim=1)
        at_stem = self.config.position_at == "stem"
        if at_stem and len(self.positions):
            x_BND = x_BND + self.positions[0]().to(x_BND.dtype)
        x_BND = self.drop(x_BND)
        if keeps_order(x_BND):
            first = None
        for index, block in enumerate(self.blocks):
            if not at_stem and len(self.positions):
                x_BND = x_BND + self.positions[min(index, len(self.positions) - 1)]().to(x_BND.dtype)
            relative = self.relatives[min(index, len(self.relatives) - 1)] if len(self.relatives) else None
            is_last = index == len(self.blocks) - 1
            x_BND = block(x_BND, relative, first) if first and is_last else block(x_BND, relative)
        return x_BND

    def features(self, x_BCHW: Tensor) -> Tensor:
        """Return the classifier's input x_BF, which is also the representation that probes on a frozen model are
        given."""
        reads_cls = self.config.pooling == "cls"
        x_BND = self.tokens(x_BCHW, first=1 if reads_cls else None)
        if reads_cls:
            x_BD = self.norm(x_BND[:, 0])  # LayerNorm acts on each token: normalising the others would be wasted
        else:
            patches_BND = x_BND[:, int(self.config.has_cls) :]
            if self.config.pooling == "tokens":
                return self.norm(patches_BND).flatten(1)
            after = self.config.norm_after_pool
            x_BD = self.norm(patches_BND.mean(dim=1)) if after else self.norm(patches_BND).mean(dim=1)
        return x_BD if self.pre_logits is None else torch.tanh(self.pre_logits(x_BD))

    def forward(self, x_BCHW: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        """Return class logits x_BK, or the features x_BF if num_classes is 0. A self-supervised model returns its
        outputs for the corrupted patches together with their targets, as `vit.masked.judged` does."""
        if self.mask_token is None:
            return self.head(self.features(x_BCHW))
        from vit import masked

        picked = masked.pick(x_BCHW.shape[0], self.config.grid, device=x_BCHW.device)
        x_BND = self.tokens(x_BCHW, corrupt=partial(masked.corrupted, picked=picked, mask_token=self.mask_token))
        patches_BND = self.norm(masked.of_picked(x_BND[:, int(self.config.has_cls) :], picked))
        output_MK = self.head(patches_BND.flatten(0, 1))
        target, grid = self.config.masked_target, self.config.grid
        return masked.judged(output_MK, x_BCHW, target=target, grid=grid, picked=picked)
