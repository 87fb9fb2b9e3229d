"""Frozen features, computed by a model from uint8 images or read from a file (`vit-bench probe --features`); and the
top-1 accuracy of a model's own classifier."""

from __future__ import annotations

import hashlib
import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.core.device import BATCH, InBatches, uploaded
from bench.core.errors import UserError, one_class
from bench.data.image_set import BLOCK, Images, ImageSet

AT_ONCE = 64 * BATCH  # images whose features are copied to host memory together, since that waits for the device


def extractor(
    model: Any,
    *,
    image_size: int,
    channels: int,
    device: Any = "cpu",
    batch: int = BATCH,
    batches: InBatches | None = None,
) -> Callable[[Images], np.ndarray]:
    """Return a function from uint8 images_NHWC of any size (C is 1 or 3) to float32 features_ND of `model.features`.

    The model runs in eval mode (and is put back into its previous mode), without gradients, in batches of at most
    `batch` images, or fewer if memory is short; no image is dropped from a smaller last batch.

    Args:
        model: a module with `features(x_BCHW) -> x_BD`; for lower precision see `bench.train.inference`.
        image_size, channels: the model's input; images are resized (bilinear, anti-aliased when shrinking) and
            converted from grey to RGB by repetition, from RGB to grey by Rec. 601 luma.
        batches: remembers how many images fit into memory, shared with other users; None for a new one.
    """
    import torch

    batches = batches or InBatches(batch, device=str(device))

    def features(images_NHWC: Images) -> np.ndarray:
        total = len(images_NHWC)

        def of(first: int, part: slice) -> torch.Tensor:
            rows = slice(first + part.start, first + part.stop)
            x_BHWC = uploaded(images_NHWC[rows], str(device))
            x_BCHW = network_input(x_BHWC, image_size=image_size, channels=channels)
            return model.features(x_BCHW).float()

        was_training = model.training
        model.eval()
        try:
            with torch.inference_mode():
                at_once = max(1, AT_ONCE // batches.batch) * batches.batch
                parts = [
                    part.cpu()
                    for first in range(0, total, at_once)
                    for part in batches(min(at_once, total - first), partial(of, first))
                ]
        finally:
            model.train(was_training)
        if not parts:
            raise ValueError("no images to extract features from")
        return torch.cat(parts).numpy()

    return features


class Kept:
    """A function from uint8 images_NHWC to features_ND that keeps its results in the cache on disk. Images whose
    features are in any entry of the cache for this network and image size do not pass through the network again.

    Args:
        features: the function that computes features with the network.
        model: the network; its weights are part of the cache's key.
        about: text that states what else features depend on (see `frozen`); also part of the key.

    Attributes:
        seconds: seconds that the network took for the images of the last call, possibly in an earlier study; each image
            counts with an equal part of the time of the images that were computed together with it.
    """

    def __init__(self, features: Callable[[Images], np.ndarray], *, model: Any, about: str) -> None:
        import torch

        self.features, self.seconds = features, 0.0
        weights = hashlib.sha256(about.encode())
        for name, value in model.state_dict().items():
            weights.update(name.encode())
            weights.update(value.cpu().contiguous().flatten().view(torch.uint8).numpy().data)
        self.prefix = f"features-each-{weights.hexdigest()[:20]}-"

    def __call__(self, images_NHWC: Images) -> np.ndarray:
        from bench.data import cache

        digests = [
            hashlib.sha256(image_HWC.data).digest()
            for start in range(0, len(images_NHWC), BLOCK)
            for image_HWC in np.ascontiguousarray(images_NHWC[start : start + BLOCK])
        ]
        prefix = f"{self.prefix}{'x'.join(map(str, images_NHWC.shape[1:]))}-"
        key = prefix + hashlib.sha256(b"".join(digests)).hexdigest()[:20]
        stored = cache.arrays(key, lambda: self._extended(images_NHWC, digests, prefix))
        self.seconds = float(stored["seconds"].sum())
        return stored["features"]

    def _extended(self, images_NHWC: Images, digests: Sequence[bytes], prefix: str) -> dict[str, np.ndarray]:
        """Return the content of a new entry of the cache: the digests, features and seconds of all images. Images that
        are in another entry are not computed again.

        Args:
            digests: sha256 of the pixels of each image.
            prefix: beginning of the keys of all entries for this network and image size.
        """
        from bench.data import cache

        known: dict[bytes, tuple[np.ndarray, float]] = {}
        for entry in cache.directory().glob(f"{prefix}*"):
            if (kept := cache.stored(entry.name)) is not None:
                parts = kept["digests"], kept["features"], kept["seconds"]
                known |= {digest.tobytes(): (row_D, each) for digest, row_D, each in zip(*parts, strict=True)}
        fresh_M = np.array([i for i, digest in enumerate(digests) if digest not in known], dtype=np.int64)
        if len(fresh_M):
            started = time.perf_counter()
            features_MD = self.features(images_NHWC if len(fresh_M) == len(digests) else images_NHWC[fresh_M])
            each = (time.perf_counter() - started) / len(fresh_M)
            known |= {digests[i]: (row_D, each) for i, row_D in zip(fresh_M, features_MD, strict=True)}
        rows = [known[digest] for digest in digests]
        return {
            "digests": np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(len(digests), -1),
            "features": np.stack([row_D for row_D, _ in rows]),
            "seconds": np.array([each for _, each in rows]),
        }


def timed(features: Callable[[Images], np.ndarray], images_NHWC: Images) -> tuple[np.ndarray, float]:
    """Return (features_ND, seconds that the network took for these images). The seconds may come from an earlier study
    whose features were kept in the cache."""
    started = time.perf_counter()
    features_ND = features(images_NHWC)
    return features_ND, getattr(features, "seconds", time.perf_counter() - started)


def frozen(model: str, *, image_size: int, channels: int, dtype: str, device: str) -> str:
    """Return a text for the cache's key in `Kept`: it states everything that features depend on, other than the model's
    weights and the images' pixels.

    Args:
        model: name of the model.
        image_size, channels: of the model's input.
        dtype: precision in which features are computed.
    """
    import torch

    sizes = {"image_size": image_size, "channels": channels}
    return f"{model} {sizes} {dtype} {device} torch {torch.__version__}"


def network_input(images_BHWC: Any, *, image_size: int, channels: int) -> Any:
    """Convert uint8 images_BHWC (a torch tensor) to float32 x_BCHW in [-1, 1] at the model's size (pixels per side) and
    number of channels.

    This divides by 127.5, while `bench.train.batches.to_input` multiplies by 2 / 255: recorded scores depend on the
    last bit.
    """
    from bench.train.batches import fit_input

    x_BCHW = images_BHWC.permute(0, 3, 1, 2).float().div_(127.5).sub_(1.0)
    return fit_input(x_BCHW, image_size=image_size, channels=channels)


def top1(
    model: Any, images: ImageSet, *, device: str, batches: InBatches | None = None, fit: tuple[int, int] | None = None
) -> int:
    """Return how many images a model in eval mode classifies correctly with its own classifier. Arguments are those of
    `top1_and_loss`."""
    return int(top1_and_loss(model, images, device=device, batches=batches, fit=fit)[0].sum())


def top1_and_loss(
    model: Any, images: ImageSet, *, device: str, batches: InBatches | None = None, fit: tuple[int, int] | None = None
) -> tuple[np.ndarray, float]:
    """Return (whether a model in eval mode classifies each image correctly with its own classifier, bool right_M; the
    mean cross-entropy of the softmax of its logits, in nats, whatever loss it was trained with).

    Args:
        batches: remembers how many images fit into memory; None for a new one.
        fit: (image_size, channels) of the model, if images are stored with other ones, else None.
    """
    import torch

    from bench.train.batches import fit_input, to_input

    def read(part: slice) -> Any:
        labels_B = uploaded(images.labels_N[part], device)
        x_BCHW = to_input(uploaded(images.images_NHWC[part], device))
        if fit is not None:
            x_BCHW = fit_input(x_BCHW, image_size=fit[0], channels=fit[1])
        logits_BK = model(x_BCHW)
        nats = torch.nn.functional.cross_entropy(logits_BK.float(), labels_B, reduction="sum")
        return (logits_BK.argmax(-1) == labels_B).float(), nats

    with torch.inference_mode():
        parts = (batches or InBatches(device=device))(len(images), read)
        right_M = torch.cat([right_B for right_B, _ in parts]).cpu().numpy() > 0
        nats = torch.stack([part for _, part in parts]).cpu().double().sum().item()
        return right_M, nats / len(images)


# -- features that were extracted elsewhere ----------------------------------------------------------------------------

KEYS = ("train_x", "train_y", "test_x", "test_y")
MAX_NAMED = 20  # classes named one by one
Load = Callable[[str, str], ImageSet]
Features = Callable[[Images], np.ndarray]


def read_features(path: Path) -> tuple[Features, Load, str]:
    """Read features that were extracted elsewhere from an .npz file. Return (features, load, name): the first two as in
    a `TaskContext`, and the file's name without ending.

    The "images" of the sets that `load` returns are no pictures: each is the number of a row, as 8 bytes, by which
    `features` finds its features.

    Args:
        path: an .npz with train_x (N, D), train_y (N), test_x (M, D), test_y (M).

    Raises:
        UserError: it is no such file, arrays have other shapes or kinds, values are not finite as float32, a test class
            has no training examples, or there is one class only.
    """
    parts = _read(path)
    _check(path, parts)
    with np.errstate(over="ignore"):  # overflow of float32 is reported below
        features_ND = np.concatenate([parts["train_x"], parts["test_x"]]).astype(np.float32)
    if not np.isfinite(features_ND).all():
        raise UserError(f"{path}: some features are not finite in float32.", "Extract them again.")
    classes_K = np.unique(parts["train_y"])  # the file may number classes from 0, from 1, or with gaps
    starts = {"train": 0, "test": len(parts["train_x"])}
    name = path.stem

    def load(data: str, split: str) -> ImageSet:
        labels_N = np.searchsorted(classes_K, parts[f"{split}_y"])
        rows_N = np.arange(starts[split], starts[split] + len(labels_N), dtype="<u8")
        return ImageSet(
            name=name,
            split=split,
            images_NHWC=rows_N.view(np.uint8).reshape(-1, 1, 1, 8),
            labels_N=labels_N,
            class_names=tuple(map(str, classes_K)),
            kind="features",
        )

    def features(rows_NHWC: Images) -> np.ndarray:
        return features_ND[np.ascontiguousarray(rows_NHWC[:]).reshape(-1, 8).view("<u8")[:, 0]]

    return features, load, name


def _read(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise UserError(f"There is no features file {path}.", "Write one with numpy.savez: see --help.")
    if not zipfile.is_zipfile(path):
        raise UserError(f"{path} is not a readable .npz of arrays.", "Write it with numpy.savez.")
    try:
        with np.load(path, allow_pickle=False) as stored:
            missing = [key for key in KEYS if key not in stored]
            if missing:
                raise UserError(f"{path} lacks {', '.join(missing)}.", f"It must hold {', '.join(KEYS)}.")
            return {key: stored[key] for key in KEYS}
    except UserError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{path} is not a readable .npz of arrays: {error}") from error


def _check(path: Path, parts: dict[str, np.ndarray]) -> None:
    for split in ("train", "test"):
        x, y = parts[f"{split}_x"], parts[f"{split}_y"]
        if x.ndim != 2 or y.ndim != 1 or len(x) != len(y) or not x.size:
            raise UserError(
                f"{path}: {split}_x has shape {x.shape} and {split}_y {y.shape}.",
                "They must be (N, D) and (N), with N and D of at least 1.",
            )
        if x.dtype.kind not in "fiu" or y.dtype.kind not in "iu" or int(y.min()) < 0:
            raise UserError(f"{path}: {split}_x must be numbers and {split}_y integers from 0.")
    absent = np.setdiff1d(parts["test_y"], parts["train_y"])
    if len(absent):
        named = ", ".join(map(str, absent[:MAX_NAMED])) + (", …" if len(absent) > MAX_NAMED else "")
        raise UserError(
            f"{path}: test_y holds classes without a training example: {named}.",
            "Each class of test_y needs examples in train_y; leave out the others.",
        )
    if len(np.unique(parts["train_y"])) < 2:
        raise one_class(path, of="features", fix="Give training examples of two classes or more.")
    if parts["train_x"].shape[1] != parts["test_x"].shape[1]:
        raise UserError(f"{path}: train_x and test_x have different numbers of features.")
