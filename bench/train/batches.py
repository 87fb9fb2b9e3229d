"""Make training batches. Their order and augmentation are functions of (seed, step), wherever the images are read from.

Images that are stored as pixels are held as uint8 on the device if they fit there, and are otherwise read from a memory
map, with equal results. Encoded images, such as JPEG files, are decoded for each batch (`bench.data.stream`), with
random crops cut out of the full image.

Random crops ("Inception crops") are those of google-research/vision_transformer. Boxes follow TensorFlow's
`sample_distorted_bounding_box`, except for rounding: the ratio of width to height is uniform in 3:4 to 4:3, then the
height is uniform among those that keep enough of the image's area. (torchvision's RandomResizedCrop samples the area
uniformly, and shows small parts more often.) Pixels are interpolated bilinearly without a low-pass filter, as in
TensorFlow; a crop of stored pixels is enlarged to the size of the stored image.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from bench.core.device import free_memory, is_out_of_memory, to_device, uploaded
from bench.core.errors import UserError, several_labels
from bench.core.seeds import generator
from bench.data.image_set import EncodedImages, ImageSet, Tier
from bench.study.cell import Recipe
from bench.study.registry import load
from bench.train import precision
from bench.train.augmentations.augmentation import Augmentation, random_stream
from bench.train.ranks import ONE_RANK, Ranks
from vit.layers import scaled

if TYPE_CHECKING:
    from bench.train.reading import Reader, Request

UPLOAD_BYTES = 64 << 20  # bytes of stored pixels that are copied to a device at a time
RATIOS = (3 / 4, 4 / 3)  # width / height of random crops
LARGE_IMAGE_BYTES = 1 << 14  # bytes from which a CPU changes images one by one, which is faster than all together


def to_input(images_BHWC: Tensor) -> Tensor:
    """Convert uint8 NHWC pixels in [0, 255] to float32 NCHW in [-1, 1]."""
    return scaled(images_BHWC.permute(0, 3, 1, 2))


def _to_contiguous(images_BHWC: Tensor) -> Tensor:
    """Return what `to_input(images_BHWC).contiguous()` returns for images on the CPU, equal to the bit but faster.

    Images are converted one by one, so that each stays in the processor's cache. NumPy allocates the memory because it
    uses large pages; fresh small pages take longer than all the arithmetic.
    """
    batch, height, width, channels = images_BHWC.shape
    x_BCHW = torch.from_numpy(np.empty((batch, channels, height, width), dtype=np.float32))
    if channels == 1:  # `contiguous` leaves the strides of grey images as they are, and kernels depend on strides
        x_BCHW = x_BCHW.view(batch, height, width, 1).permute(0, 3, 1, 2)
    for x_CHW, image_HWC in zip(x_BCHW, images_BHWC, strict=True):
        x_CHW.copy_(image_HWC.permute(2, 0, 1)).mul_(2.0 / 255.0).sub_(1.0)
    return x_BCHW


def fit_input(x_BCHW: Tensor, *, image_size: int, channels: int) -> Tensor:
    """Return float32 images at a model's size (pixels per side) and number of channels: (B, channels, size, size).

    Resizing is bilinear, anti-aliased when shrinking. Grey becomes RGB by repetition, RGB becomes grey by Rec. 601
    luma.

    Raises:
        ValueError: the numbers of channels differ and are not 1 and 3.
    """
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
        x_BCHW = F.interpolate(x_BCHW, size=size, mode="bilinear", antialias=True, align_corners=False)
    return x_BCHW.contiguous()


def crop_boxes(
    rng: np.random.Generator, *, number: int, height: int | np.ndarray, width: int | np.ndarray, least: float
) -> np.ndarray:
    """Return the boxes of random crops of `number` images: int64 (4, number), with rows top, left, height, width in
    pixels.

    Args:
        rng: source of the random numbers.
        height, width: size of the images in pixels; one number for all of them, or an array with one for each.
        least: the smallest fraction of an image's area that a crop keeps.
    """
    ratio_B, tall_B, down_B, right_B = rng.random((4, number))
    ratio_B = RATIOS[0] + ratio_B * (RATIOS[1] - RATIOS[0])
    area = height * width
    most_B = np.floor(np.minimum(np.sqrt(area / ratio_B), np.minimum(height, (width + 0.5) / ratio_B))).clip(min=1)
    fewest_B = np.round(np.sqrt(least * area / ratio_B)).clip(1, most_B)
    height_B = fewest_B + np.floor(tall_B * (most_B - fewest_B + 1))
    width_B = np.round(height_B * ratio_B).clip(1, width)
    top_B, left_B = np.floor(down_B * (height - height_B + 1)), np.floor(right_B * (width - width_B + 1))
    return np.stack([top_B, left_B, height_B, width_B]).astype(np.int64)


def cropped(x_BCHW: Tensor, boxes_4B: Tensor) -> Tensor:
    """Cut a box out of each image and enlarge it to the size of the image: (B, C, H, W) in the dtype of `x_BCHW`.

    Args:
        boxes_4B: top, left, height and width of each image's box, in pixels.
    """
    top_B, left_B, height_B, width_B = boxes_4B.to(x_BCHW.dtype)
    y_BH = _centres(top_B, height_B, x_BCHW.shape[2])
    x_BW = _centres(left_B, width_B, x_BCHW.shape[3])
    shape = (len(x_BCHW), *x_BCHW.shape[2:])
    grid_BHW2 = torch.stack([x_BW[:, None, :].expand(shape), y_BH[:, :, None].expand(shape)], dim=-1)
    return F.grid_sample(x_BCHW, grid_BHW2, mode="bilinear", padding_mode="border", align_corners=False)


def _mirrored(images_BHWC: Tensor, mirrored_B: Tensor) -> Tensor:
    return torch.where(mirrored_B[:, None, None, None], images_BHWC.flip(2), images_BHWC)


def _cut(images_BHWC: Tensor, boxes_4B: Tensor, mirrored_B: Tensor | None, *, dtype: torch.dtype) -> Tensor:
    """Mirror some of the uint8 images, then crop all of them; return x_BCHW in [-1, 1].

    Args:
        boxes_4B: top, left, height and width of each image's crop, in pixels.
        mirrored_B: bool, which images are mirrored; None mirrors none.
        dtype: of the result.
    """
    if mirrored_B is not None:
        images_BHWC = _mirrored(images_BHWC, mirrored_B)
    return cropped(to_input(images_BHWC), boxes_4B).to(dtype)


def _centres(start_B: Tensor, length_B: Tensor, size: int) -> Tensor:
    """Return where to sample an axis of `size` pixels so that each image's part [start, start + length) of it is
    enlarged to `size` pixels: (B, size), in the coordinates of `grid_sample` (-1 to 1, edge to edge).

    Nothing outside that part is sampled: near its ends, the centre of its outermost pixel is sampled again.
    """
    step_B1, start_B1 = length_B[:, None] / size, start_B[:, None]
    at_BS = start_B1 + (torch.arange(size, device=start_B.device, dtype=start_B.dtype) + 0.5) * step_B1
    at_BS = at_BS.clamp(min=start_B1 + 0.5, max=start_B1 + length_B[:, None] - 0.5)
    return at_BS * (2 / size) - 1


class Draws:
    """Chooses which images are in a batch, and a random crop of each, as functions of (seed, step, place in the batch).

    Args:
        num_images: number of images of the training set.
        recipe: size of the batch, and the smallest part of an image that a crop keeps.
        share: the places in the batch whose images this rank (process) reads.
    """

    def __init__(self, *, num_images: int, recipe: Recipe, seed: int, share: slice) -> None:
        self.num_images, self.recipe, self.seed, self.share = num_images, recipe, seed, share
        self._epochs: dict[int, np.ndarray] = {}  # the last two permutations

    def _permutation(self, epoch: int) -> np.ndarray:
        if epoch not in self._epochs:
            order = generator(self.seed, "order", epoch).permutation(self.num_images)
            self._epochs = dict([*self._epochs.items(), (epoch, order)][-2:])
        return self._epochs[epoch]

    def indices(self, step: int) -> np.ndarray:
        """Return the positions in the training set of all images of a step's batch, (batch,). A batch may span two
        epochs: epochs follow each other without a gap, so no image is ever dropped."""
        first = step * self.recipe.batch
        epochs, offsets = np.divmod(np.arange(first, first + self.recipe.batch), self.num_images)
        return np.concatenate([self._permutation(int(e))[offsets[epochs == e]] for e in np.unique(epochs)])

    def boxes(self, step: int, height: int | np.ndarray, width: int | np.ndarray) -> np.ndarray:
        """Return the boxes of the random crops of this rank's images: int64 (4, B), with rows top, left, height, width
        in pixels.

        Args:
            height, width: size of the images in pixels; one number for all, or one for each image of the whole batch.
        """
        rng = generator(self.seed, "crop", step)
        boxes_4B = crop_boxes(rng, number=self.recipe.batch, least=self.recipe.crop, height=height, width=width)
        return np.ascontiguousarray(boxes_4B[:, self.share])

    def request(self, step: int, *, encoded: EncodedImages | None) -> Request:
        """Return what to read for this rank's part of a step's batch: (positions of the images, boxes to cut out of
        them).

        The boxes are None if the recipe has no crops, or if `encoded` is None: stored pixels are cropped after they are
        read.

        Args:
            encoded: the encoded images; None for images that are stored as pixels.
        """
        rows_B = self.indices(step)
        if encoded is None or not self.recipe.crop:
            return rows_B[self.share], None
        return rows_B[self.share], self.boxes(step, *encoded.sizes(rows_B))


class Batches:
    """The batches of a training run. A call with a step returns that batch; steps may come in any order.

    Args:
        images: the training split, or a subset of it.
        recipe: batch size and augmentation.
        seed: the cell's seed.
        device: device on which batches are made, and images are held that fit there.
        ranks: the processes that train together. Each gets its part of the batch; order and augmentation are those of
            the whole batch, whatever the number of ranks.
        fit: (image_size, channels) of the model, if images are stored with other ones; they are converted after
            augmentation. Encoded images are decoded at that size.
        tier: where images are read from, "resident", "mapped" or "streamed" (`bench.data.image_set.tier_of`); None
            chooses by the images and the free memory of the device.
        scaled: whether pixels are converted to float32 in [-1, 1] here. None: on a CPU only; on a GPU the training step
            does it in the kernel that reads them (`vit.layers.Patches`), and cropped images have the step's dtype.
        workers: number of reader processes; None chooses it (`bench.train.reading.Reader`).

    Attributes:
        tier: where the images are read from.
    """

    def __init__(
        self,
        images: ImageSet,
        *,
        recipe: Recipe,
        seed: int,
        device: str,
        ranks: Ranks = ONE_RANK,
        fit: tuple[int, int] | None = None,
        tier: Tier | None = None,
        scaled: bool | None = None,
        workers: int | None = None,
    ) -> None:
        augmentation: Augmentation = load("augmentation", recipe.augmentation)
        self.pixels, self.mixes = augmentation.pixels, augmentation.mixes
        self.own = ranks.share(recipe.batch)
        self.share = slice(0, recipe.batch) if self.mixes else self.own  # mixing needs the images of other ranks too
        self.fit, self.num_classes = fit, images.num_classes
        self.recipe, self.seed, self.device = recipe, seed, device
        self.scaled = bool(self.mixes) or (not device.startswith("cuda") if scaled is None else scaled)
        self._dtype = torch.float32 if self.scaled else precision.DTYPES[precision.resolve(recipe.dtype, device)]
        self._mirrored, self._cut = _mirrored, _cut
        if device.startswith("cuda"):
            from bench.train.compiled import fused

            self._mirrored, self._cut = (fused(function, device=device) for function in (_mirrored, _cut))
        if images.several:
            raise several_labels(images.name, for_what="pre-training")
        self.num_images = len(images)
        self.draws = Draws(num_images=len(images), recipe=recipe, seed=seed, share=self.share)
        self.tier = tier or images.tier(free_memory(device))
        self.encoded = images.images_NHWC if isinstance(images.images_NHWC, EncodedImages) else None
        if self.encoded is not None and fit is not None:
            self.encoded = self.encoded.at(fit[0])
        self.height, self.width = (self.encoded or images.images_NHWC).shape[1:3]
        self._labels_N = np.asarray(images.labels_N)
        self.reader: Reader | None = None
        request = partial(self.draws.request, encoded=self.encoded)
        if self.tier == "resident":
            self.images_NHWC = self._resident(images)
            self.labels_N = uploaded(self._labels_N.astype(np.int64), device)
        elif self.encoded is not None and recipe.decoding == "device":
            from bench.train.device_reading import DeviceReader

            self.reader = DeviceReader(self.encoded, request=request, device=device)
        else:
            from bench.train.reading import Reader

            read_from = self.encoded or images.images_NHWC
            self.reader = Reader(read_from, request=request, device=device, workers=workers)

    def _resident(self, images: ImageSet) -> Tensor:
        """Return all images as uint8 (N, H, W, C) on the device. They are copied some at a time, so that host memory
        never holds all of them.

        Raises:
            UserError: they do not fit into the device's memory.
        """
        try:
            if self.device == "cpu":
                return torch.from_numpy(np.require(images.images_NHWC, requirements=["C", "W"]))
            pixels_NHWC = torch.empty(images.images_NHWC.shape, dtype=torch.uint8, device=self.device)
            each = max(1, UPLOAD_BYTES // math.prod(images.image_shape))
            for first in range(0, len(images), each):
                part = uploaded(images.images_NHWC[first : first + each], self.device)
                pixels_NHWC[first : first + each] = part
            return pixels_NHWC
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            need = f"{images.decoded_bytes / 2**30:.1f} GiB"
            raise UserError(
                f"The images of {images.name} need {need}, more than the free memory of {self.device}.",
                "Train on fewer of them (its name@number), or on smaller ones.",
            ) from error

    @property
    def waited(self) -> float:
        """Seconds spent waiting for images that were still being read; 0 where all images are on the device."""
        return 0.0 if self.reader is None else self.reader.waited

    def indices(self, step: int) -> np.ndarray:
        """Return the positions in the training set of the whole batch's images (see `Draws.indices`)."""
        return self.draws.indices(step)

    def __call__(self, step: int) -> tuple[Tensor, Tensor]:
        """Return a step's batch, or this rank's part of it: (x_BCHW, labels_B). If the augmentation mixes images,
        targets_BK, the fractions of the classes in each image, take the place of the labels.

        Images are float32 in [-1, 1] if they are `scaled` here. Otherwise they are uint8 pixels, except those that were
        cropped (in [-1, 1], in the step's dtype) or converted to the model's size (float32 in [-1, 1]).

        Raises:
            UserError: an image can no longer be read.
        """
        x_BCHW, labels_B = self._unmixed(step)
        if self.mixes is None:
            return x_BCHW, labels_B
        with random_stream(self.seed, "mix", step):
            x_BCHW, targets_BK = self.mixes(self.recipe, x_BCHW, labels_B, self.num_classes)
        return x_BCHW[self.own], targets_BK[self.own]

    def _unmixed(self, step: int) -> tuple[Tensor, Tensor]:
        x_BHWC, labels_B = self._read(step)
        if self.pixels is not None:
            x_BHWC = self._augmented(x_BHWC, step)
        singly = x_BHWC.device.type == "cpu" and math.prod(x_BHWC.shape[1:]) >= LARGE_IMAGE_BYTES
        mirrored_B = self._to_mirror(x_BHWC, step, singly=singly) if self.recipe.flip else None
        fits = self.fit is not None and tuple(x_BHWC.shape[1:]) == (self.fit[0], self.fit[0], self.fit[1])
        stays = fits or self.fit is None
        if self.recipe.crop and self.encoded is None:
            boxes_4B = self._tensor(self.draws.boxes(step, self.height, self.width))
            x_BCHW = self._cut(x_BHWC, boxes_4B, mirrored_B, dtype=self._dtype if stays else torch.float32)
        else:
            x_BHWC = x_BHWC if mirrored_B is None else self._mirrored(x_BHWC, mirrored_B)
            if not self.scaled and stays:
                return x_BHWC.permute(0, 3, 1, 2), labels_B
            if singly and fits:
                return _to_contiguous(x_BHWC), labels_B
            x_BCHW = to_input(x_BHWC)
        if self.fit is not None:
            x_BCHW = fit_input(x_BCHW, image_size=self.fit[0], channels=self.fit[1])
        return x_BCHW, labels_B

    def _read(self, step: int) -> tuple[Tensor, Tensor]:
        """Return (pixels, labels) of this rank's part of a step's batch: uint8 (B, H, W, C), shifted if the recipe says
        so, and int64 (B,)."""
        index = self.indices(step)[self.share]
        if self.reader is None:
            images_NHWC, index_B = self.images_NHWC, self._tensor(index)
            labels_B = self.labels_N[index_B]
        else:
            images_NHWC, index_B = self.reader(step), torch.arange(len(index), device=self.device)
            labels_B = self._tensor(self._labels_N[index].astype(np.int64))
        if self.recipe.shift:
            return self._shifted(images_NHWC, index_B, step), labels_B
        return images_NHWC[index_B] if self.reader is None else images_NHWC, labels_B

    def _augmented(self, x_BHWC: Tensor, step: int) -> Tensor:
        """Return uint8 images after the recipe's augmentation of single images (`Augmentation.pixels`), which runs on
        the CPU."""
        assert self.pixels is not None
        images_BHWC = x_BHWC.cpu().numpy()
        changed = []
        for image_HWC, place in zip(images_BHWC, range(self.recipe.batch)[self.share], strict=True):
            with random_stream(self.seed, "augment", step, place):
                changed.append(self.pixels(self.recipe, image_HWC))
        return self._tensor(np.stack(changed))

    def _to_mirror(self, x_BHWC: Tensor, step: int, *, singly: bool) -> Tensor | None:
        """Choose at random which images are mirrored, and return them as bool (B,); with `singly`, mirror them here,
        one by one and in place, and return None."""
        mirrored_B = (generator(self.seed, "flip", step).random(self.recipe.batch) < 0.5)[self.share]
        if not singly:
            return self._tensor(mirrored_B)
        for place in np.flatnonzero(mirrored_B).tolist():
            x_BHWC[place] = x_BHWC[place].flip(1)
        return None

    def _shifted(self, images_NHWC: Tensor, index_B: Tensor, step: int) -> Tensor:
        """Return the images at `index_B`, each translated by up to `recipe.shift` pixels, chosen at random, along both
        axes; pixels that come into view repeat those at the edge."""
        shift, shape = self.recipe.shift, (2, self.recipe.batch)
        offsets = generator(self.seed, "shift", step).integers(0, 2 * shift + 1, shape)[:, self.share] - shift
        rows_BH = self._tensor(offsets[0])[:, None] + torch.arange(self.height, device=self.device)
        columns_BW = self._tensor(offsets[1])[:, None] + torch.arange(self.width, device=self.device)
        rows_BH, columns_BW = rows_BH.clamp(0, self.height - 1), columns_BW.clamp(0, self.width - 1)
        return images_NHWC[index_B[:, None, None], rows_BH[:, :, None], columns_BW[:, None, :]]

    def _tensor(self, array: np.ndarray) -> Tensor:
        tensor = torch.from_numpy(array)
        return tensor if self.device == "cpu" else to_device(tensor, self.device)
