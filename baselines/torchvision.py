"""A family with every classification model of torchvision (BSD-3-Clause): torchvision:NAME[+pretrained].

Images are normalised as for ImageNet, which all these models are made for; grey images become three equal channels.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from vit.model_family import Classifier, ModelFamily, Weights

PREFIX, PRETRAINED = "torchvision:", "+pretrained"
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
OWN_SIZE = 224
SIZE_ARGUMENT = {"vision_transformer": "image_size", "maxvit": "input_size"}  # module -> argument for the image size
AUXILIARY = ("googlenet", "inception")  # modules of models that return further (auxiliary) outputs in training


def accepts(name: str) -> bool:
    """Return whether `name` is "torchvision:" followed by more."""
    return name.startswith(PREFIX) and len(name) > len(PREFIX)


def _parse(name: str) -> tuple[str, bool]:
    text = name.removeprefix(PREFIX)
    return text.removesuffix(PRETRAINED), text.endswith(PRETRAINED)


def _builder(base: str) -> Any:
    """Return torchvision's function that builds the model of a name in torchvision ("resnet18").

    Raises:
        ValueError: torchvision is not installed, or has no such model.
    """
    try:
        from torchvision import __version__, models
    except ImportError as error:
        raise ValueError(f"torchvision cannot be imported: {error}. pip install torchvision") from error
    known = models.list_models(module=models)
    if base not in known:
        close = difflib.get_close_matches(base, known, n=3)
        hint = f"; did you mean {' or '.join(f'{PREFIX}{c}' for c in close)}?" if close else ""
        raise ValueError(f"torchvision {__version__} has no model {base!r}{hint}")
    return models.get_model_builder(base)


def check(name: str) -> None:
    """Check that torchvision has the model of a name (torchvision:…).

    Raises:
        ValueError: there is no such model; the message suggests the nearest names.
    """
    _builder(_parse(name)[0])


def label_of(name: str) -> str:
    """Return the label of a model in figures: torchvision's family (the module of its builder), such as
    "torchvision:resnet"."""
    return f"{PREFIX}{_builder(_parse(name)[0]).__module__.rpartition('.')[2]}"


def identity(name: str) -> dict[str, str]:
    """Return what the results of a model depend on: {"torchvision": its version}."""
    from importlib.metadata import version

    return {"torchvision": f"version {version('torchvision')}"}


def input_size(name: str) -> int:
    """Return the pixels per side of the images that torchvision's models were made for."""
    return OWN_SIZE


def build(name: str, *, image_size: int, channels: int, num_classes: int, **options: Any) -> Any:
    """Build the model of a name (torchvision:…) with `features`, `num_features` and `head`; under
    `torch.device("meta")` it has shapes only.

    Args:
        image_size, channels: pixels per side, and channels, of the images.
        options: arguments of torchvision's builder; `input_size` sets the pixels per side of the network's input,
            whatever the size of images.

    Raises:
        ValueError: the name or an option is unknown, or the network does not take the size.
    """
    from torch import nn
    from torchvision import models

    from baselines import _outside

    base, pretrained = _parse(name)
    builder = _builder(base)
    kind = builder.__module__.rpartition(".")[2]
    size_argument = SIZE_ARGUMENT.get(kind)
    fixed: dict[str, Any] = {"aux_logits": False} if kind in AUXILIARY and not pretrained else {}
    wanted = options.pop("input_size", None)

    def make(size: int, given: int, weights: Any = None) -> nn.Module:
        if given != _outside.COLOURS:
            raise ValueError("it takes colour images")
        sides = size if size_argument == "image_size" else (size, size)
        own = {} if size_argument is None or pretrained else {size_argument: sides}
        classes = {} if pretrained else {"num_classes": num_classes}
        return builder(weights=weights, **own, **classes, **fixed, **options)

    fitting = [OWN_SIZE] if pretrained and size_argument else _outside.sizes_from(image_size, OWN_SIZE)
    sizes = [int(wanted)] if wanted else fitting
    anatomy = _outside.anatomy_of(
        make, sizes=sizes, channels=channels, num_classes=None if pretrained else num_classes or None
    )
    weights = models.get_model_weights(base).DEFAULT if pretrained else None
    network: Any = make(anatomy.input_size, anatomy.channels, weights)
    if kind == "inception":  # with weights, its builder keeps the auxiliary output
        network.aux_logits, network.AuxLogits = False, None
    model = _outside.Outside(network, anatomy, mean=MEAN, std=STD)
    if pretrained:
        model.head = nn.Linear(model.num_features, num_classes)
    return model


def weights_of(name: str) -> Weights | None:
    """Return where the default weights of a model are, how large they are, and whether they are on this disk."""
    from torchvision import models

    weights = models.get_model_weights(_parse(name)[0]).DEFAULT
    size = weights.meta.get("_file_size")
    return Weights(where=weights.url, megabytes=size * 1.048576 if size else None, here=name in on_disk())


def classifier(name: str, checkpoint: Path | None = None) -> Classifier:
    """Return a network with the classifier that it was trained with; see `baselines._own_heads`. `checkpoint` is a file
    of other weights for it, None for none."""
    from baselines import _own_heads

    check(name)
    return _own_heads.of_torchvision(_parse(name)[0], checkpoint=checkpoint)


def on_disk() -> list[str]:
    """Return the names (torchvision:…+pretrained) of models whose default weights are in torch's cache."""
    import torch
    from torchvision import models

    folder, names = Path(torch.hub.get_dir()) / "checkpoints", models.list_models(module=models)
    files = {name: models.get_model_weights(name).DEFAULT.url.rpartition("/")[2] for name in names}
    return [f"{PREFIX}{name}{PRETRAINED}" for name, file in files.items() if (folder / file).is_file()]


FAMILY = ModelFamily(
    label="torchvision",
    naming="torchvision:NAME of any of torchvision's classification models; +pretrained: with its default weights",
    accepts=accepts,
    build=build,
    check=check,
    identity=identity,
    input_size=input_size,
    on_disk=on_disk,
    label_of=label_of,
    weights_of=weights_of,
    classifier=classifier,
)
