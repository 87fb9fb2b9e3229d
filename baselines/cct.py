"""Compact Convolutional Transformers (Hassani et al. 2021, arXiv:2104.05704): the best-known hybrid for 28 to 64 px.

Names: CCT-<layers>/<kernel>x<convolutions>, such as CCT-2/3x2: the number of encoder layers, then kernel size and
number of the tokenizer's convolutions, each followed by max-pooling of stride 2. At 28 px, 3x2 gives 49 tokens and 3x1
gives 196. Options: width, heads, mlp_width, position (learned-1d, sincos-2d, none), and the probabilities dropout,
dropout_weights and stochastic_depth. The authors use probabilities of 0.1 for attention weights and for stochastic
depth, in trainings of 200 epochs and more; here all are 0 unless given, because a study's recipe regularises all of its
networks alike.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from vit.model_family import ModelFamily

if TYPE_CHECKING:
    import torch

    from baselines._cct import CCT

ROWS = {2: (128, 2, 1), 4: (128, 2, 1), 6: (256, 4, 2), 7: (256, 4, 2), 14: (384, 6, 3)}
"""Layers -> width, heads, and how many times as wide an MLP is."""
OPTIONS = ("width", "heads", "mlp_width", "position", "dropout", "dropout_weights")  # fields of ViTConfig
KERNELS, CONVOLUTIONS = (3, 5, 7), (1, 2, 3)

_NAME = re.compile(r"CCT-(?P<layers>[1-9]\d*)/(?P<kernel>\d)x(?P<convolutions>\d)")


def _parse(name: str) -> tuple[int, int, int] | None:
    """Parse a name such as "CCT-2/3x2" into (layers, kernel size, number of convolutions). Return None for a name of
    another form or with other numbers than this file supports."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    layers, kernel, convolutions = int(match["layers"]), int(match["kernel"]), int(match["convolutions"])
    known = layers in ROWS and kernel in KERNELS and convolutions in CONVOLUTIONS
    return (layers, kernel, convolutions) if known else None


def accepts(name: str) -> bool:
    """Return whether `name` is CCT-<layers>/<kernel>x<convolutions>, such as "CCT-2/3x2", with numbers that this file
    supports."""
    return _parse(name) is not None


def build(
    name: str,
    *,
    image_size: int | tuple[int, int],
    channels: int,
    num_classes: int,
    generator: torch.Generator | None = None,
    stochastic_depth: float = 0.0,
    **options: Any,
) -> CCT:
    """Build a Compact Convolutional Transformer, such as "CCT-2/3x2", with initial weights (without memory under
    `torch.device("meta")`).

    Args:
        generator: random generator of the initial weights; None = torch's global one.
        stochastic_depth: probability that the last block is skipped for an image in training; Hassani et al. use 0.1.
        options: fields of ViTConfig to override, from those in OPTIONS.

    Raises:
        ValueError: the name or an option is unknown, or an option's value is out of range.
    """
    if strange := sorted(set(options) - set(OPTIONS)):
        raise ValueError(f"unknown option {', '.join(strange)}; a CCT has: {', '.join(OPTIONS)}, stochastic_depth")
    parts = _parse(name)
    if parts is None:
        rows, kernels, counts = (", ".join(map(str, known)) for known in (ROWS, KERNELS, CONVOLUTIONS))
        raise ValueError(
            f"{name!r} is not CCT-<layers>/<kernel>x<convolutions> with layers one of {rows}, kernel one of {kernels}, "
            f"convolutions one of {counts}"
        )
    if not (isinstance(stochastic_depth, int | float) and 0 <= stochastic_depth < 1):
        raise ValueError(f"stochastic_depth={stochastic_depth!r} is not a number from 0 to below 1")
    if options.get("position", "learned-1d") not in ("learned-1d", "sincos-2d", "none"):
        raise ValueError(f"position={options['position']!r} is not one of learned-1d, sincos-2d, none")
    import torch

    from baselines import _cct, _resnet
    from vit.config import ViTConfig, pair

    layers, kernel, convolutions = parts
    width, heads, times = ROWS[layers]
    patch = _cct.pixels_per_token(kernel=kernel, convolutions=convolutions)
    covered_H, covered_W = (-(-side // patch) * patch for side in pair(image_size))  # rounded up, as padding does
    encoder = {"width": width, "heads": heads, "mlp_width": times * options.get("width", width), **options}
    config = ViTConfig(
        image_size=(covered_H, covered_W),
        patch_size=patch,
        channels=channels,
        num_classes=num_classes,
        depth=layers,
        qkv_bias=False,
        pooling="mean",
        position_std=0.2,
        gelu="exact",
        norm_eps=1e-5,
        **encoder,
    )
    device = torch.get_default_device()
    with torch.device("meta"):
        model = _cct.CCT(
            config, channels=channels, kernel=kernel, convolutions=convolutions, stochastic_depth=stochastic_depth
        )
    _resnet.materialise(model, device, generator)
    return model


FAMILY = ModelFamily(
    label="Hybrid",
    names=("CCT-2/3x2", "CCT-4/3x2", "CCT-6/3x1", "CCT-6/3x2", "CCT-7/3x1", "CCT-7/3x2", "CCT-14/7x2"),
    naming="CCT-<layers>/<kernel>x<convolutions>: convolutions and max-pooling, then an encoder; layers 2 4 6 7 14",
    has_dropout=True,
    accepts=accepts,
    build=build,
)
