"""Load checkpoints of timm, torchvision and transformers with the classifier that they were trained with.

Nothing is adapted here: the network is built by its own library, and images are resized, cropped and normalised as in
the library's own evaluation. Classes are identified by their names, and ImageNet's also by WordNet ids.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from vit.model_family import Classifier

IMAGENET = "imagenet-1k"
TABLE = Path(__file__).parent / "published" / "timm_results.csv"
COLUMNS = ("in1k_top1", "in1k_top5", "real_top1", "v2_top1", "a_top1", "r_top1", "sketch_top1")
QUOTED = re.compile(r'"([^"]+)"')
MIN_SAME_NAMES = 0.9  # classes are taken as ImageNet's if this fraction of 1000 names is at the same place there


def _names(text: str) -> tuple[str, ...]:
    """Split a class's label, such as "tench, Tinca tinca", into the names that it lists; return these, then the whole
    label."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    return tuple(dict.fromkeys([*parts, text.strip()]))


def _of_imagenet(subset: str = IMAGENET) -> tuple[tuple[str, ...], ...]:
    """Return the classes of ImageNet, or of a subset that timm knows by name ("imagenet-a"), in their order: of each
    class its WordNet id, then its names."""
    from timm.data import ImageNetInfo

    info = ImageNetInfo(subset)
    return tuple(
        (info.index_to_label_name(number), *_names(info.index_to_description(number)))
        for number in range(info.num_classes())
    )


def plain(name: str) -> str:
    """Return a class's name in lower case, with single spaces in place of underscores and hyphens, for comparison."""
    return " ".join(name.casefold().replace("_", " ").replace("-", " ").split())


def _with_ids(labels: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the names of each class, given the labels of all classes in order. If these are ImageNet's thousand
    classes, the WordNet id comes first among the names of each."""
    own = tuple(_names(label) for label in labels)
    if len(labels) != 1000:
        return own
    known = _of_imagenet()
    same = sum(bool(set(map(plain, a)) & set(map(plain, b))) for a, b in zip(own, known, strict=True))
    if same < MIN_SAME_NAMES * len(labels):
        return own
    return tuple(tuple(dict.fromkeys((*b, *a))) for a, b in zip(own, known, strict=True))


def _published(model: str, *, image_size: int) -> Mapping[str, float]:
    """Return the accuracies that timm publishes for a checkpoint at an image size (pixels per side): test set and
    metric ("in1k_top1") -> accuracy in [0, 1]; {} if there are none."""
    with open(TABLE, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            if row["model"] == model and int(row["image_size"]) == image_size:
                return {column: float(row[column]) / 100 for column in COLUMNS if row[column]}
    return {}


def _misfit(error: Exception) -> str:
    """Return one sentence on why weights do not fit a network, given torch's error, which may list hundreds of
    names."""
    heading, *lines = str(error).splitlines() or [""]
    if not lines:
        return heading
    first = lines[0].strip()
    names = QUOTED.findall(first)
    if len(names) < 2 or not first.startswith(("Missing", "Unexpected")):
        return first.rstrip(".")
    lacks = "it lacks" if first.startswith("Missing") else "it has, beside those of the network,"
    return f"{lacks} {len(names):,} weights, such as {names[0]}"


def _prepared(transform: Any, image: Any) -> Any:
    return transform(image.convert("RGB"))


def of_timm(source: str, *, pretrained: bool, checkpoint: Path | None) -> Classifier:
    """Load a network of timm with the classifier that it was trained with; images are prepared as by timm's
    validate.py.

    Args:
        source: name that `timm.create_model` takes.
        pretrained: whether to load timm's weights, if no checkpoint is given.
        checkpoint: file of the weights; None = no file.

    Raises:
        ValueError: the file does not hold the network's weights, or the network has no classifier of its own.
        OSError: the weights cannot be fetched.
    """
    import timm
    from timm.data import create_transform, infer_imagenet_subset, resolve_data_config
    from timm.models import load_checkpoint

    network = timm.create_model(source, pretrained=pretrained and checkpoint is None)
    if checkpoint is not None:
        try:
            load_checkpoint(network, str(checkpoint))
        except (RuntimeError, KeyError, TypeError) as error:
            raise ValueError(f"{checkpoint} does not fit {source}: {_misfit(error)}") from error
    number: int = network.num_classes  # type: ignore[assignment]
    if not number:
        raise ValueError("it comes without a classifier: its features are probed by vit-bench probe")
    settings: Mapping[str, Any] = getattr(network, "pretrained_cfg", {})
    config = resolve_data_config({}, model=network, use_test_size=True)
    subset = infer_imagenet_subset(network)
    labels = settings.get("label_names") or ()
    side, tag = int(config["input_size"][-1]), settings.get("tag")
    name = source.rpartition("/")[2] if ":" in source else source
    name = f"{name}.{tag}" if tag and "." not in name and checkpoint is None else name
    return Classifier(
        network=network,
        prepare=partial(_prepared, create_transform(**config, is_training=False)),
        classes=_of_imagenet(subset) if subset else _with_ids(labels),
        num_classes=number,
        said=f"{side} px, the central {config['crop_pct']:.1%}, {config['interpolation']}, as timm evaluates",
        published=_published(name, image_size=side),
        publisher=f"timm's results of {name} at {side} px",
    )


def of_torchvision(base: str, *, checkpoint: Path | None) -> Classifier:
    """Load a network of torchvision with its classifier; images are prepared as torchvision does for its default
    weights.

    Args:
        base: torchvision's name of the network ("resnet18").
        checkpoint: file of the weights; None = torchvision's default weights.

    Raises:
        ValueError: the file does not hold the network's weights.
    """
    import torch
    from torchvision import models

    weights: Any = models.get_model_weights(base).DEFAULT
    network = models.get_model_builder(base)(weights=None if checkpoint else weights)
    if checkpoint is not None:
        try:
            network.load_state_dict(torch.load(checkpoint, map_location="cpu", weights_only=True))
        except Exception as error:  # a file of another kind may raise anything
            raise ValueError(f"{checkpoint} does not fit {base}: {_misfit(error)}") from error
    transform, metrics = weights.transforms(), weights.meta.get("_metrics", {}).get("ImageNet-1K", {})
    keys = {"acc@1": "in1k_top1", "acc@5": "in1k_top5"}
    return Classifier(
        network=network,
        prepare=partial(_prepared, transform),
        classes=_with_ids(weights.meta["categories"]),
        num_classes=len(weights.meta["categories"]),
        said=f"{transform.crop_size[0]} px cropped from a shorter side of {transform.resize_size[0]}, as torchvision "
        "evaluates",
        published={keys[key]: value / 100 for key, value in metrics.items() if key in keys},
        publisher=f"torchvision's {weights}",
    )


def of_transformers(source: str, *, revision: str | None) -> Classifier:
    """Load a checkpoint of transformers with its classifier; images are prepared by the checkpoint's own processor.

    Args:
        source: repository on the hub (ORG/NAME), or a folder.
        revision: commit, branch or tag of the repository; None = the newest commit.

    Raises:
        ValueError: the checkpoint has no classifier, or no image processor.
        OSError: its files cannot be fetched.
    """
    import torch
    import transformers

    network, report = transformers.AutoModelForImageClassification.from_pretrained(
        source, revision=revision, dtype=torch.float32, output_loading_info=True
    )
    if missing := sorted(report["missing_keys"]):
        raise ValueError(f"it has no trained classifier: the checkpoint lacks {missing[0]}")
    try:
        processor: Any = transformers.AutoImageProcessor.from_pretrained(source, revision=revision)
    except (OSError, ValueError) as error:
        raise ValueError("it names no processor of images (preprocessor_config.json)") from error

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
            return self.network(pixel_values=x_BCHW).logits

    def prepare(image: Any) -> Any:
        from PIL import ImageOps

        upright = ImageOps.exif_transpose(image).convert("RGB")  # as transformers' pipelines load images
        return processor(upright, return_tensors="pt")["pixel_values"][0]

    labels = network.config.id2label or {}
    named = [str(labels[number]) for number in range(len(labels))] if set(labels) == set(range(len(labels))) else []
    generic = all(name == f"LABEL_{number}" for number, name in enumerate(named))
    return Classifier(
        network=Logits(),
        prepare=prepare,
        classes=() if generic else _with_ids(named),
        num_classes=int(network.config.num_labels),
        said="as its own processor prepares images",
        published={},
        publisher="",
    )
