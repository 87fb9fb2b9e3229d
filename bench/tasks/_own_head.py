"""Measure the accuracy of a checkpoint's own classifier on images whose classes it knows.

Every image of the folder is classified, prepared as by the checkpoint's library; nothing is fitted. `_known_classes`
matches the classes of the images to those of the checkpoint; where a table says that a class of the images stands for
several classes of the checkpoint, any of them is correct. Accuracies have Wilson's interval over images.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.core.errors import UserError
from bench.data import real
from bench.data.source import SPLIT_WORDS, FolderContents, Source
from bench.tasks._known_classes import match

if TYPE_CHECKING:
    from vit.model_family import Classifier

LEVEL = 0.95  # confidence level of intervals
TOP = 5
IMAGENET_CLASSES = 1000
SETS = {  # test set -> (its name in texts, names of folders that hold it, key of its published accuracy)
    "in1k": ("ImageNet's validation images", ("imagenet", "imagenet-1k", "ilsvrc2012", "imagenet1k"), "in1k_top1"),
    "v2": ("ImageNet-V2", ("imagenetv2", "imagenet-v2"), "v2_top1"),
    "a": ("ImageNet-A", ("imagenet-a",), "a_top1"),
    "r": ("ImageNet-R", ("imagenet-r",), "r_top1"),
    "sketch": ("ImageNet-Sketch", ("imagenet-sketch", "sketch"), "sketch_top1"),
}
PARTS = ("a", "r")  # test sets with a part of the classes; their published accuracy is among these classes


@dataclass(frozen=True, kw_only=True)
class Share:
    """An accuracy, the fraction of images that are classified correctly, with its interval and the published value.

    Attributes:
        name: what is measured, in words ("top-1").
        key: what is measured, for programs ("top1").
        right, images: numbers of correct images, and of all.
        low, high: Wilson's interval at `LEVEL`, over images.
        published: the published fraction; None if unknown.
    """

    name: str
    key: str
    right: int
    images: int
    low: float
    high: float
    published: float | None = None

    @property
    def value(self) -> float:
        return self.right / self.images

    @property
    def agrees(self) -> bool | None:
        """Whether the published fraction is inside the measured interval; None if none is known."""
        return None if self.published is None else self.low <= self.published <= self.high


@dataclass(frozen=True, kw_only=True)
class OwnHeadShares:
    """The accuracies of a checkpoint's own classifier on a folder of images.

    Attributes:
        shares: the accuracies: top-1, and where they apply top-5, top-1 among the set's classes, and ReaL.
        images: number of images.
        classes: number of the checkpoint's classes that the images have.
        num_classes: number of all the checkpoint's classes.
        matched: how classes were matched, in words.
        test_set: which public test set the images are, a key of `SETS`; "" for other images.
        top_NK: for each image the checkpoint's classes with the highest logits, best first.
        labels_N: for each image its class in the checkpoint; the first if its class stands for several.
    """

    shares: tuple[Share, ...]
    images: int
    classes: int
    num_classes: int
    matched: str
    test_set: str
    top_NK: np.ndarray
    labels_N: np.ndarray


def share(name: str, key: str, right_N: np.ndarray, published: float | None = None) -> Share:
    """Return the fraction of correct images as a `Share`, with its interval.

    Args:
        name, key: what is measured, in words and for programs.
        right_N: bool, one per image: whether it is classified correctly.
        published: the published fraction; None if unknown.
    """
    from scipy.stats import binomtest

    right, images = int(right_N.sum()), len(right_N)
    ends = binomtest(right, images).proportion_ci(LEVEL, method="wilson")
    return Share(
        name=name, key=key, right=right, images=images, low=float(ends.low), high=float(ends.high), published=published
    )


def test_images(
    folder: Path, find: Callable[[Path], FolderContents], *, labelled: bool = False
) -> tuple[Source, tuple[str, ...]]:
    """Return (the test images of a folder, or all images if it is not divided into training and test images; the names
    of their classes).

    Args:
        find: function that lists what a folder holds.
        labelled: whether a table, and not folders, says which images are for testing.

    Raises:
        UserError: the folder has no images.
    """
    below = [word for word in SPLIT_WORDS["test"] if (folder / word).is_dir()]
    if below and not labelled and not any((folder / word).is_dir() for word in SPLIT_WORDS["train"]):
        folder = folder / below[0]
    found = find(folder)
    return found.sources.get("test") or found.sources["all"], found.class_names


def which_set(folder: Path, source: Source, names: Sequence[str]) -> str:
    """Guess from names of images and folders which public test set a folder holds: a key of `SETS`, or "" for other
    images.

    Args:
        source: the images.
        names: names of their classes.
    """
    if real.NUMBER.search(source.name(0)) and real.NUMBER.search(source.name(len(source) - 1)):
        return "in1k"
    parts = [part.casefold().replace("_", "-") for part in folder.absolute().parts[-2:]]
    for key, (_, patterns, _) in SETS.items():
        if key != "in1k" and any(
            part == pattern or part.startswith(f"{pattern}-") for part in parts for pattern in patterns
        ):
            return key
    return "v2" if len(names) == IMAGENET_CLASSES and all(name.isdigit() for name in names) else ""


def logits(classifier: Classifier, source: Source, *, device: str, batch: int) -> Iterator[np.ndarray]:
    """Yield the logits of all images in order, float32 (B, K), one batch at a time, with the network in eval mode.

    Args:
        source: the images.
        batch: number of images in a batch.

    Raises:
        UserError: an image cannot be read; leaving it out would change the score.
    """
    import torch
    from PIL import Image, UnidentifiedImageError

    def prepared(number: int) -> Any:
        try:
            data = source.read(number)
            image = Image.fromarray(np.squeeze(data)) if isinstance(data, np.ndarray) else Image.open(io.BytesIO(data))
            return classifier.prepare(image)
        except (OSError, SyntaxError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            what = f"{source.name(number)} cannot be read: {type(error).__name__}."
            raise UserError(
                what, "Get it again, or take it away: it would count as neither right nor wrong."
            ) from error

    network = classifier.network.to(device).eval()
    with ThreadPoolExecutor() as pool, torch.inference_mode():
        ahead = [pool.submit(prepared, number) for number in range(min(2 * batch, len(source)))]
        for start in range(0, len(source), batch):
            part, ahead = ahead[:batch], ahead[batch:]
            x_BCHW = torch.stack([one.result() for one in part])
            done = start + 2 * batch
            ahead += [pool.submit(prepared, number) for number in range(done, min(done + batch, len(source)))]
            yield network(x_BCHW.to(device)).float().cpu().numpy()


def judge(
    classifier: Classifier,
    source: Source,
    names: Sequence[str],
    *,
    folder: Path,
    device: str = "cpu",
    batch: int = 64,
    test_set: str | None = None,
    table: Path | None = None,
    step: Callable[[int], None] = lambda images: None,
) -> OwnHeadShares:
    """Classify every image with the checkpoint's own classifier, and return the accuracies.

    Args:
        source: the images.
        names: names of the classes of the images.
        folder: folder of the images; a `real.json` in it, or in the folder above it, adds the ReaL labels.
        test_set: key of `SETS` whose published accuracies are compared, "" for none; None guesses it (`which_set`).
        table: file that says which class of the checkpoint each class of the images is; None matches them by name.
        step: called after each batch with its number of images.

    Raises:
        UserError: see `_known_classes.match` and `logits`.
    """
    matched = match(names, classifier, where=str(folder), table=table)
    known_C, own_K = matched.numbers, matched.of_checkpoint(classifier.num_classes)
    top, within = list[np.ndarray](), list[np.ndarray]()
    for logits_BK in logits(classifier, source, device=device, batch=batch):
        most = min(TOP, logits_BK.shape[1])
        top.append(np.argsort(-logits_BK, axis=1, kind="stable")[:, :most])
        within.append(own_K[known_C[logits_BK[:, known_C].argmax(1)]])
        step(len(logits_BK))
    top_NK, within_N = np.concatenate(top), np.concatenate(within)
    if test_set is None:
        test_set = which_set(folder, source, names) if classifier.num_classes == IMAGENET_CLASSES else ""
    of_part = len(known_C) < classifier.num_classes
    own_NT, labels_N = own_K[top_NK], source.labels_N
    column = SETS[test_set][2] if test_set else ""
    published = classifier.published.get
    part_only = test_set in PARTS
    shares = [share("top-1", "top1", own_NT[:, 0] == labels_N, None if part_only or not column else published(column))]
    if top_NK.shape[1] == TOP < classifier.num_classes:
        five = published("in1k_top5") if test_set == "in1k" else None
        shares.append(share("top-5", "top5", (own_NT == labels_N[:, None]).any(1), five))
    if of_part:
        found = share(
            f"top-1 among the set's {len(names):,} classes",
            "top1_within",
            within_N == labels_N,
            published(column) if part_only else None,
        )
        shares.append(found)
    if (several := _real(folder, source, classifier)) is not None:
        right_R = real.real_right(top_NK[:, 0], several)
        if len(right_R):
            shares.append(share("ReaL, top-1", "real_top1", right_R, published("real_top1")))
    return OwnHeadShares(
        shares=tuple(shares),
        images=len(source),
        classes=len(known_C),
        num_classes=classifier.num_classes,
        matched=matched.said,
        test_set=test_set,
        top_NK=top_NK,
        labels_N=np.array([each[0] for each in matched.classes])[labels_N],
    )


def _real(folder: Path, source: Source, classifier: Classifier) -> real.MultiLabels | None:
    """Return the ReaL labels of the images (all classes that are in each image of ImageNet's validation set), in the
    checkpoint's classes; None unless a real.json is in the folder or in the one above it, and the checkpoint has
    ImageNet's thousand classes."""
    path = next((place / real.FILE for place in (folder, folder.parent) if (place / real.FILE).is_file()), None)
    if (
        path is None or classifier.num_classes != IMAGENET_CLASSES
    ):  # labels in real.json are numbers of ImageNet's thousand classes
        return None
    labels = real.read_real(path, num_classes=IMAGENET_CLASSES)
    return real.by_name(labels, [source.name(number) for number in range(len(source))], path=path)
