"""Accuracy of adapted models against labelled images, of sets large enough that the truth is known.

    python -m tools.labelling_curves FILE.csv [--data-root FOLDER] [--only NAME,NAME]

A user has so many images per class (`cut`) and a small test set. The truth is the mean over several draws of ten times
as many images, judged by test images that the user does not have. Features are cheap ones: pixels, filters that are
patches of images, and a small network trained on other images (`lettering`). `tools/measure_labelling.py` asks of the
user's accuracies how many images a target takes. Fashion-MNIST is the full set of Debian's package
dataset-fashion-mnist, installed or below the data root. About ten minutes of two cores.
"""

from __future__ import annotations

import argparse
import csv
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from bench.data.image_set import ImageSet
from bench.data.load import load
from bench.data.subset import first_per_class
from bench.laws.extrapolation import REACH
from bench.tasks.adapt import SIZES, WAYS, Predict

USER_DRAWS, TRUE_DRAWS = 3, 3
TEST_IMAGES = (200, 500, 1_000)  # of users; at most a third of those that there are
MOST = 2_000  # images per class
MOST_TEST = 4_000  # images that judge the truth
MOST_LOGISTIC = 25_000  # images times classes, up to which logistic regression is fitted
COLUMNS = ("set", "half", "model", "way", "cut", "num_test", "images", "accuracies")


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Classes of a set. `half`: of the constants' choice or of the report, see tools/extrapolation_split.csv."""

    data: str
    half: str
    classes: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        return self.data + ("" if self.classes is None else f"[{self.classes[0]}:{self.classes[1]}]")

    def read(self, split: str, root: Path | None) -> tuple[np.ndarray, np.ndarray]:
        """float32 pixels x_NCHW in [-1, 1], and labels from 0."""
        images: ImageSet = load(self.data, split, root=root)
        low, high = self.classes or (0, images.num_classes)
        chosen_M = np.flatnonzero((images.labels_N >= low) & (images.labels_N < high))
        pixels = np.asarray(images.images_NHWC[:])[chosen_M].transpose(0, 3, 1, 2)
        return pixels.astype(np.float32) / 127.5 - 1, images.labels_N[chosen_M] - low


def _quarters(data: str) -> tuple[Problem, ...]:
    return tuple(
        Problem(data=data, half=half, classes=(low, low + 25))
        for low, half in ((0, "choose"), (25, "choose"), (50, "report"), (75, "report"))
    )


PROBLEMS = (
    Problem(data="digits", half="report"),
    Problem(data="fashion-mnist", half="report"),
    Problem(data="photo-tiles", half="report"),
    Problem(data="specimen-tiles", half="report"),
    Problem(data="shapes-distance", half="report"),
    Problem(data="shapes-position", half="report"),
    Problem(data="mnist", half="choose"),
    Problem(data="terrain", half="choose"),
    Problem(data="shapes-count", half="choose"),
    Problem(data="shapes-orientation", half="choose"),
    *_quarters("glyphs"),
    *_quarters("lettering"),
    *_quarters("visual-atoms"),
)


# -- features ----------------------------------------------------------------------------------------------------------


def pixels(x_NCHW: torch.Tensor) -> torch.Tensor:
    return functional.adaptive_avg_pool2d(x_NCHW, 14 if x_NCHW.shape[-1] > 14 else 8).flatten(1)


def patches(x_NCHW: torch.Tensor) -> torch.Tensor:
    """Filters that are random patches of the first images (Coates and Ng 2011), rectified and averaged over ninths."""
    x_NCHW = _sized(x_NCHW)
    windows = functional.unfold(x_NCHW[:200], 6).transpose(1, 2).reshape(-1, 36)
    chosen = windows[torch.randperm(len(windows), generator=torch.Generator().manual_seed(0))[:400]]
    chosen = chosen[chosen.std(1) > 0.1][:48]
    filters = (chosen - chosen.mean(1, keepdim=True)) / chosen.std(1, keepdim=True)
    return functional.adaptive_avg_pool2d(functional.conv2d(x_NCHW, filters.view(-1, 1, 6, 6)).relu(), 3).flatten(1)


def network(x_NCHW: torch.Tensor) -> torch.Tensor:
    return trained()(_sized(x_NCHW))


@cache
def trained() -> nn.Module:
    """A convolutional network without its head, trained on `lettering` for three epochs."""
    torch.manual_seed(0)
    body = nn.Sequential(
        *(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    )
    head = nn.Linear(128, 100)
    images = load("lettering", "train")
    x_NCHW = torch.from_numpy(np.array(images.images_NHWC[:])).permute(0, 3, 1, 2).float() / 127.5 - 1
    labels_N = torch.from_numpy(images.labels_N)
    optimiser = torch.optim.Adam([*body.parameters(), *head.parameters()], 2e-3)
    for _ in range(3):
        for batch in torch.randperm(len(x_NCHW)).split(64):
            optimiser.zero_grad()
            functional.cross_entropy(head(body(x_NCHW[batch])), labels_N[batch]).backward()
            optimiser.step()
    return body.eval()


def _sized(x_NCHW: torch.Tensor) -> torch.Tensor:
    """Grey, 28 pixels per side."""
    return functional.interpolate(x_NCHW.mean(1, keepdim=True), 28, mode="bilinear", antialias=True)


MODELS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "pixels": pixels,
    "patches": patches,
    "network": network,
}


def features(model: str, x_NCHW: np.ndarray) -> np.ndarray:
    """Features of images; the first 200 images give the filters of `patches`."""
    if model == "network":
        trained()  # with gradients
    with torch.inference_mode():
        if model == "patches":
            return patches(torch.from_numpy(x_NCHW)).numpy()
        return torch.cat([MODELS[model](part) for part in torch.from_numpy(x_NCHW).split(1_000)]).numpy()


# -- accuracies --------------------------------------------------------------------------------------------------------


def rows(problem: Problem, root: Path | None) -> Iterator[tuple[object, ...]]:
    """A row for every model and way: the truth (cut 0), then what users see."""
    (train, train_y), (test, test_y) = (problem.read(split, root) for split in ("train", "test"))
    rng = np.random.default_rng(zlib.crc32(problem.name.encode()))
    order_M = rng.permutation(len(test))
    classes, smallest = int(train_y.max()) + 1, min(MOST, int(np.bincount(train_y).min()))
    cuts = [cut for cut in sorted({*SIZES, smallest // int(REACH)}) if 10 <= cut <= smallest / REACH]
    cuts = cuts or [smallest // int(REACH)]
    users = {cut: min(len(test) // 3, int(rng.choice(TEST_IMAGES))) for cut in cuts}
    true_M = order_M[max(users.values()) :][:MOST_TEST]
    for model in MODELS:
        both = features(model, np.concatenate([train, test]))
        x_ND, x_MD = both[: len(train)], both[len(train) :]
        for way, predict in WAYS.items():
            if way == "logistic" and smallest * classes**2 > MOST_LOGISTIC:
                continue
            judged = partial(_accuracy, predict, x_ND, train_y, x_MD, test_y)
            head = (problem.name, problem.half, model, way)
            sizes = [size for size in sorted({*SIZES, *cuts, smallest}) if min(cuts) <= size <= smallest]
            draws = [first_per_class(train_y, smallest, f"truth/{draw}") for draw in range(TRUE_DRAWS)]
            for size in sizes:
                right = [judged(chosen_N[ranks_N < size], true_M) for chosen_N, ranks_N in draws]
                yield (*head, 0, len(true_M), size * classes, _text(right))
            for cut in cuts:
                pool_N, _ = first_per_class(train_y, cut, f"pool/{cut}")
                for size in [size for size in SIZES if size < cut] + [cut]:
                    right = []
                    for draw in range(USER_DRAWS if size < cut else 1):
                        inner_N, _ = first_per_class(train_y[pool_N], size, f"user/{draw}")
                        right.append(judged(pool_N[inner_N], order_M[: users[cut]]))
                    yield (*head, cut * classes, users[cut], size * classes, _text(right))


def _accuracy(
    predict: Predict,
    x_ND: np.ndarray,
    train_y: np.ndarray,
    x_MD: np.ndarray,
    test_y: np.ndarray,
    chosen_N: np.ndarray,
    judged_M: np.ndarray,
) -> float:
    predicted_M = predict(x_ND[chosen_N], train_y[chosen_N], x_MD[judged_M], int(train_y.max()) + 1)
    return float((predicted_M == test_y[judged_M]).mean())


def _text(accuracies: list[float]) -> str:
    return " ".join(f"{value:.4f}".removeprefix("0") for value in accuracies)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("python -m tools.labelling_curves", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--only", help="comma-separated names of sets")
    asked = parser.parse_args(arguments)
    with asked.file.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for problem in PROBLEMS:
            if asked.only is None or problem.data in asked.only.split(","):
                writer.writerows(rows(problem, asked.data_root))
                file.flush()
                print(problem.name, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
