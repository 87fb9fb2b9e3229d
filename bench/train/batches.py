"""Training batches: the data set resident as uint8 on the device, order and augmentation as functions of the step."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from bench.core.device import is_out_of_memory
from bench.core.errors import UserError
from bench.core.seeds import generator
from bench.core.spec import Recipe
from bench.data.image_set import ImageSet
from bench.train import crops
from bench.train.ranks import ONE_RANK, Ranks


def to_input(images_BHWC: torch.Tensor) -> torch.Tensor:
    """uint8 NHWC in [0, 255] -> float32 NCHW in [-1, 1], the range that the paper's code uses."""
    return images_BHWC.permute(0, 3, 1, 2).to(torch.float32).mul_(2.0 / 255.0).sub_(1.0)


class Batches:
    """Batch `step` of a training run, for any step in any order.

    Args:
        images: the (subset of the) training split.
        recipe: batch size and augmentation.
        seed: the cell's seed.
        device: where the images live and the batches are made.
        ranks: each gets its share of the batch; order and augmentation are those of the whole.

    Raises:
        UserError: the device has no room for the images.
    """

    def __init__(self, images: ImageSet, *, recipe: Recipe, seed: int, device: str, ranks: Ranks = ONE_RANK) -> None:
        self.share = ranks.share(recipe.batch)
        self.recipe, self.seed, self.device = recipe, seed, device
        self.num_images = len(images)
        self.height, self.width = images.images_NHWC.shape[1:3]
        self.images_NHWC = self._resident(images)
        self.labels_N = torch.from_numpy(np.array(images.labels_N, dtype=np.int64)).to(device)
        self._permutation = lru_cache(maxsize=2)(self._shuffle)

    def _resident(self, images: ImageSet) -> torch.Tensor:
        """All images on the device, each with the border that a shift may bring into view."""
        pad = self.recipe.shift
        shape = (len(images), self.height + 2 * pad, self.width + 2 * pad, images.images_NHWC.shape[3])
        try:
            pixels_NHWC = images.images_NHWC
            if pad:
                pixels_NHWC = np.pad(pixels_NHWC, ((0, 0), (pad, pad), (pad, pad), (0, 0)), mode="edge")
            return torch.from_numpy(np.require(pixels_NHWC, requirements=["C", "W"])).to(self.device)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            need = f"{np.prod(shape) / 2**30:.1f} GiB"
            raise UserError(
                f"The images of {images.name} need {need} at once: {self.device} has no room.",
                "Train on fewer of them (its name@number), or on smaller ones.",
            ) from error

    def _shuffle(self, epoch: int) -> np.ndarray:
        return generator(self.seed, "order", epoch).permutation(self.num_images)

    def indices(self, step: int) -> np.ndarray:
        """Positions of the images of batch `step`: epoch after epoch without a gap, so no image is ever dropped."""
        first = step * self.recipe.batch
        epochs, offsets = np.divmod(np.arange(first, first + self.recipe.batch), self.num_images)
        return np.concatenate([self._permutation(int(e))[offsets[epochs == e]] for e in np.unique(epochs)])

    def __call__(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Batch `step`, or this rank's share of it: (x_BCHW float32 in [-1, 1], labels_B)."""
        index_B = self._tensor(self.indices(step)[self.share])
        x_BHWC = self._shifted(index_B, step) if self.recipe.shift else self.images_NHWC[index_B]
        if self.recipe.flip:
            mirrored = generator(self.seed, "flip", step).random(self.recipe.batch) < 0.5
            mirrored_B = self._tensor(mirrored[self.share])
            x_BHWC = torch.where(mirrored_B[:, None, None, None], x_BHWC.flip(2), x_BHWC)
        x_BCHW = to_input(x_BHWC)
        if self.recipe.crop:
            x_BCHW = crops.cropped(x_BCHW, self._tensor(self._boxes(step)))
        return x_BCHW, self.labels_N[index_B]

    def _boxes(self, step: int) -> np.ndarray:
        size = {"height": self.height, "width": self.width}
        rng = generator(self.seed, "crop", step)
        boxes_4B = crops.boxes(rng, number=self.recipe.batch, least=self.recipe.crop, **size)
        return np.ascontiguousarray(boxes_4B[:, self.share])

    def _shifted(self, index_B: torch.Tensor, step: int) -> torch.Tensor:
        shape = (2, self.recipe.batch)
        offsets = generator(self.seed, "shift", step).integers(0, 2 * self.recipe.shift + 1, shape)[:, self.share]
        rows_BH = self._tensor(offsets[0])[:, None] + torch.arange(self.height, device=self.device)
        columns_BW = self._tensor(offsets[1])[:, None] + torch.arange(self.width, device=self.device)
        return self.images_NHWC[index_B[:, None, None], rows_BH[:, :, None], columns_BW[:, None, :]]

    def _tensor(self, array: np.ndarray) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        if self.device.startswith("cuda"):
            tensor = tensor.pin_memory()  # a copy from other memory may wait until the device is idle
        return tensor.to(self.device, non_blocking=True)
