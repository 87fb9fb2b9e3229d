"""Decode training images on the device: nvJPEG decodes whole JPEGs, and the crops for training are cut out there.

This code has never run on a GPU; on a CPU it runs with libjpeg-turbo. Pixels differ slightly from those of
`bench.train.reading`, because an image is reduced after it is decoded, and because nvJPEG rounds differently. What
decodes is therefore a choice of the recipe (`decoding`), and part of a training run's identity. Images other than
upright baseline JPEGs are decoded by the CPU.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from bench.core.device import is_out_of_memory, to_device
from bench.core.errors import UserError
from bench.data import jpeg
from bench.data.image_set import EncodedImages, FileOrPixels
from bench.train.reading import Reader, Request

BATCHES_AHEAD = 4  # batches whose files are read ahead, one thread for each


class DeviceReader(Reader):
    """A `Reader` of encoded images that decodes them on the device that trains.

    Raises:
        UserError: the device cannot decode JPEGs.
    """

    def __init__(self, images: EncodedImages, *, request: Callable[[int], Request], device: str) -> None:
        super().__init__(images, request=request, device=device, workers=0)
        self.encoded, (_, self.size, _, self.channels) = images, images.shape
        self._threads = ThreadPoolExecutor(BATCHES_AHEAD, thread_name_prefix="files")
        self._ahead: deque[tuple[Future[list[FileOrPixels]], np.ndarray | None]] = deque()
        smallest = io.BytesIO()
        Image.new("RGB", (8, 8)).save(smallest, "JPEG")
        try:
            self._by_device([smallest.getvalue()])
        except (RuntimeError, ImportError) as error:
            why = f"No JPEG can be decoded on {device}: {str(error).splitlines()[0].rstrip('.')}."
            raise UserError(why, "Set the recipe's decoding to processor.") from error

    def close(self) -> None:
        super().close()
        self._ahead.clear()

    def _start(self, step: int) -> None:
        self.close()
        self._asked = step

    def _collect(self) -> Tensor:
        while len(self._ahead) < BATCHES_AHEAD:
            rows_B, boxes_4B = self.request(self._asked)
            self._ahead.append((self._threads.submit(self.encoded.files, rows_B), boxes_4B))
            self._asked += 1
        reading, boxes_4B = self._ahead.popleft()
        try:
            with self._waiting():
                files = reading.result()
        except UserError:
            self.close()
            raise
        boxes = [None] * len(files) if boxes_4B is None else boxes_4B.T.tolist()
        with nullcontext() if self._copies is None else torch.cuda.stream(self._copies):
            images = zip(self._decoded(files), boxes, strict=True)
            parts = [part(pixels, box, size=self.size) for pixels, box in images]
            return torch.stack(parts).permute(0, 2, 3, 1).contiguous()

    def _decoded(self, files: Sequence[FileOrPixels]) -> list[Tensor]:
        """Return the pixels of each image in full size, uint8 (C, H, W) on the device.

        Args:
            files: for each image the bytes of a baseline JPEG, or uint8 pixels (H, W, C) that the CPU has decoded.
        """
        encoded = [file for file in files if isinstance(file, bytes)]
        try:
            decoded = iter(self._by_device(encoded))
        except RuntimeError as error:  # the error does not say which image cannot be decoded
            if is_out_of_memory(error):
                raise
            decoded = iter([self._uploaded(jpeg.opened(file, channels=self.channels)) for file in encoded])
        return [next(decoded) if isinstance(file, bytes) else self._uploaded(file) for file in files]

    def _by_device(self, encoded: Sequence[bytes]) -> list[Tensor]:
        try:
            from torchvision.io import decode_jpeg
        except ImportError:  # later versions of torchvision will have no decoders
            from torchcodec.decoders import decode_jpeg
        tensors = [torch.frombuffer(bytearray(file), dtype=torch.uint8) for file in encoded]
        if tensors and self._copies is not None:
            # nvJPEG writes from streams of its own without waiting for others (pytorch/vision#9606), so it must not be
            # given memory from which the crops of the previous batch are still being cut
            torch.cuda.current_stream().synchronize()
        mode = "GRAY" if self.channels == 1 else "RGB"
        return decode_jpeg(tensors, mode=mode, device=self.device) if tensors else []

    def _uploaded(self, pixels_HWC: np.ndarray) -> Tensor:
        return to_device(torch.from_numpy(pixels_HWC.copy()).permute(2, 0, 1).contiguous(), str(self.device))


def part(pixels_CHW: Tensor, box: Sequence[int] | None, *, size: int) -> Tensor:
    """Cut a box (top, left, height, width) out of an image and resize it, as `bench.data.jpeg` does; without a box cut
    and resize the central square, as `bench.data.decode` does. Return uint8 (C, size, size) on the image's device."""
    if box is None:
        height, width = pixels_CHW.shape[1:]
        side = min(height, width)
        top, left = (height - side) // 2, (width - side) // 2
        x_1CHW = pixels_CHW[None, :, top : top + side, left : left + side].float()
        x_1CSS = F.interpolate(x_1CHW, (size, size), mode="bicubic", align_corners=False, antialias=True)
    else:
        by = 1 << jpeg.halvings(box, size=size)
        top, left, height, width = (side // by * by for side in box)
        x_1CHW = pixels_CHW[None, :, top : top + height, left : left + width].float()
        x_1CHW = F.avg_pool2d(x_1CHW, by, ceil_mode=True) if by > 1 else x_1CHW
        x_1CSS = F.interpolate(x_1CHW, (size, size), mode="bilinear", align_corners=False)
    return x_1CSS[0].round().clamp(0, 255).to(torch.uint8)
