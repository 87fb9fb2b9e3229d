"""From uint8 images to a model's frozen features: the one adapter that every task and the training engine use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.core.device import BATCH, InBatches


def extractor(
    model: Any,
    *,
    image_size: int,
    channels: int,
    device: Any = "cpu",
    batch: int = BATCH,
    batches: InBatches | None = None,
    dtype: Any = None,
) -> Callable[[np.ndarray], np.ndarray]:
    """A function from uint8 images_NHWC of any size (C is 1 or 3) to float32 features_ND of `model.features`.

    The model runs in test mode (and is put back into the mode it was in), without gradients, in batches of at most
    `batch`, or of what fits; the last, smaller batch is computed like any other.

    Args:
        model: has `features(x_BCHW) -> x_BD`.
        image_size, channels: what the model takes; images are resized (bilinear, anti-aliased when shrinking) and
            turned from grey to RGB by repetition, from RGB to grey by Rec. 601 luma.
        batches: keeps what fits, for others that use it too; None for batches of its own.
        dtype: a lower-precision torch dtype to run under (autocast); None computes in float32.
    """
    import torch

    batches = batches or InBatches(batch, device=str(device))

    def features(images_NHWC: np.ndarray) -> np.ndarray:
        def of(part: slice) -> torch.Tensor:
            x_BHWC = np.array(images_NHWC[part])  # a copy: the source may be a read-only map
            x_BCHW = to_input(torch.from_numpy(x_BHWC).to(device), image_size=image_size, channels=channels)
            return model.features(x_BCHW).float().cpu()

        was_training = model.training
        model.eval()
        try:
            with (
                torch.inference_mode(),
                torch.autocast(torch.device(device).type, dtype=dtype, enabled=dtype is not None),
            ):
                parts = batches(len(images_NHWC), of)
        finally:
            model.train(was_training)
        if not parts:
            raise ValueError("no images to extract features from")
        return torch.cat(parts).numpy()

    return features


def to_input(images_BHWC: Any, *, image_size: int, channels: int) -> Any:
    """uint8 torch images_BHWC -> float32 x_BCHW in [-1, 1] at the model's size and number of channels."""
    x_BCHW = images_BHWC.permute(0, 3, 1, 2).float().div_(127.5).sub_(1.0)
    return fit_input(x_BCHW, image_size=image_size, channels=channels)


def fit_input(x_BCHW: Any, *, image_size: int, channels: int) -> Any:
    """float32 images at the model's size and number of channels: bilinear, anti-aliased when shrinking.

    Raises:
        ValueError: neither grey nor RGB where the other is needed.
    """
    from torch.nn import functional

    if x_BCHW.shape[1] != channels:
        if {x_BCHW.shape[1], channels} != {1, 3}:
            raise ValueError(f"images of {x_BCHW.shape[1]} channels for a model that takes {channels}")
        if channels == 3:
            x_BCHW = x_BCHW.expand(-1, 3, -1, -1)
        else:
            weights = x_BCHW.new_tensor([0.299, 0.587, 0.114])
            x_BCHW = (x_BCHW * weights[None, :, None, None]).sum(1, keepdim=True)
    if x_BCHW.shape[-2:] != (image_size, image_size):
        size = (image_size, image_size)
        x_BCHW = functional.interpolate(x_BCHW, size=size, mode="bilinear", antialias=True, align_corners=False)
    return x_BCHW.contiguous()
