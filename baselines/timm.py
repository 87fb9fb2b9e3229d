"""A family with every classification model of timm (Wightman 2019, Apache-2.0): timm:NAME[.TAG][+pretrained].

Also timm:hf-hub:ORG/NAME and timm:local-dir:FOLDER, as in timm itself. Weights are timm's initial ones, unless
"+pretrained" asks for its trained ones. Normalisation is that of the model's pretrained configuration; images are
enlarged to the smallest size that the network takes. If the classifier is not a single last layer (such as two heads
whose outputs are averaged), features are timm's `forward_head(pre_logits=True)`, and the model cannot be fine-tuned.

`timm_models.csv` has the names and costs of all of timm's models: `vit-bench flops --list 'convnext*'`.
"""

from __future__ import annotations

import difflib
import hashlib
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from baselines._hub import without_a_hub_that_nobody_knows
from baselines.published import timm_costs
from vit.model_family import Classifier, ModelFamily, Weights

PREFIX, PRETRAINED = "timm:", "+pretrained"
HUB = "models--timm--"  # prefix of the folders of timm's weights in the cache of the Hugging Face hub


def accepts(name: str) -> bool:
    """Return whether `name` is "timm:" followed by more."""
    return name.startswith(PREFIX) and len(name) > len(PREFIX)


def _parse(name: str) -> tuple[str, bool]:
    """Parse a name (timm:…) into (name for `timm.create_model`, whether pretrained weights are asked for)."""
    text = name.removeprefix(PREFIX)
    return text.removesuffix(PRETRAINED), text.endswith(PRETRAINED)


def check(name: str) -> None:
    """Check that the model of a name (timm:…) exists. timm is imported only for a name that `timm_models.csv` lacks.

    Raises:
        ValueError: there is no such model or folder; the message suggests the nearest names.
    """
    source, _ = _parse(name)
    if source.startswith("local-dir:"):
        folder = Path(source.removeprefix("local-dir:"))
        if not (folder / "config.json").is_file():
            raise ValueError(f"{folder} has no config.json, which timm.models.save_for_hf writes")
    elif ":" not in source and (base := source.partition(".")[0]) not in timm_costs.table():
        import timm

        if not timm.is_model(base):
            close = difflib.get_close_matches(base, timm.list_models(), n=3)
            hint = f"; did you mean {' or '.join(f'timm:{c}' for c in close)}?" if close else ""
            raise ValueError(f"timm {timm.__version__} has no model {base!r}{hint}")


def architecture(name: str) -> str:
    """Return timm's name of the architecture of a model: for "timm:resnet50.a1_in1k", "resnet50"."""
    source, _ = _parse(name)
    return (_stored(source)[1] if ":" in source else source).partition(".")[0]


def created_by(name: str) -> tuple[str, dict[str, Any]]:
    """Return the name and the keyword arguments with which `timm.create_model` makes the network of a name (timm:…)
    without its weights."""
    source, _ = _parse(name)
    return _stored(source)[1:] if ":" in source else (source, {})


def _stored(source: str) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Return the pretrained configuration, the architecture's name, and further arguments of `timm.create_model`, that
    a source (hf-hub:ORG/NAME or local-dir:FOLDER) holds."""
    from timm.models._factory import load_model_config_from_hf, load_model_config_from_path, parse_model_name

    kind, where = parse_model_name(source)
    with without_a_hub_that_nobody_knows() if kind == "hf-hub" else nullcontext():
        read = load_model_config_from_hf if kind == "hf-hub" else load_model_config_from_path
        config, base, arguments = read(where)
    return dict(config), base, dict(arguments or {})


def label_of(name: str) -> str:
    """Return the label of a model in figures: timm's family (the module of its architecture), such as
    "timm:convnext"."""
    base = architecture(name)
    if base in timm_costs.table():
        return f"timm:{timm_costs.table()[base]['family']}"
    from timm.models import model_entrypoint

    return f"timm:{model_entrypoint(base).__module__.rpartition('.')[2]}"


def identity(name: str) -> dict[str, str]:
    """Return what the results of a model depend on, name -> version or digest: the version of timm, and digests of the
    files of a local folder."""
    from importlib.metadata import version

    source, pretrained = _parse(name)
    found = {"timm": f"version {version('timm')}"}
    if source.startswith("local-dir:"):
        folder = Path(source.removeprefix("local-dir:"))
        for path in sorted(folder.iterdir() if pretrained else [folder / "config.json"]):
            if path.is_file():
                with open(path, "rb") as file:
                    found[str(path)] = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return found


def input_size(name: str) -> int:
    """Return the pixels per side of the images that a model was made for, by timm's configuration."""
    base = architecture(name)
    if not _parse(name)[1] and base in timm_costs.table():
        return int(timm_costs.table()[base]["image_size"])
    return int(_config(name)["input_size"][-1])


def on_disk() -> list[str]:
    """Return the names (timm:…+pretrained) of timm's models whose trained weights are in the cache of the Hugging Face
    hub."""
    from huggingface_hub.constants import HF_HUB_CACHE

    files = (
        file for kind in ("safetensors", "bin") for file in Path(HF_HUB_CACHE).glob(f"{HUB}*/snapshots/*/*.{kind}")
    )
    return sorted({f"{PREFIX}{file.parts[-4].removeprefix(HUB)}{PRETRAINED}" for file in files if file.is_file()})


def weights_of(name: str) -> Weights | None:
    """Return where a model's trained weights are, how large they are (in float32) and their licence, by timm's
    configuration."""
    source, config = _parse(name)[0], _config(name)
    if source.startswith("local-dir:"):
        files = [*Path(source.removeprefix("local-dir:")).glob("*.safetensors")]
        size = sum(path.stat().st_size for path in files) / 1e6
        return Weights(where=source.removeprefix("local-dir:"), megabytes=size or None, here=True)
    row = timm_costs.table().get(architecture(name))
    hub = source.removeprefix("hf-hub:") if ":" in source else config.get("hf_hub_id") or ""
    params = int(row["params"]) if row else 0
    if row and "num_classes" in config:  # the table has the architecture's own number of classes
        params += (int(config["num_classes"]) - int(row["num_classes"])) * (int(row["num_features"]) + 1)
    return Weights(
        where=f"{hub} of the hub" if hub else str(config.get("url") or source),
        licence=str(config.get("license") or ""),
        megabytes=params * 4 / 1e6 if params else None,
        here=name in on_disk(),
    )


def classifier(name: str, checkpoint: Path | None = None) -> Classifier:
    """Return a network with the classifier that it was trained with; see `baselines._own_heads`. `checkpoint` is a file
    of other weights for it, None for none."""
    from baselines import _own_heads

    check(name)
    source, pretrained = _parse(name)
    with without_a_hub_that_nobody_knows():
        return _own_heads.of_timm(source, pretrained=pretrained, checkpoint=checkpoint)


def _config(name: str) -> dict[str, Any]:
    """Return timm's pretrained configuration of a model: input size, mean, std, …; {} if timm has none."""
    from timm.models import get_pretrained_cfg

    source, _ = _parse(name)
    if ":" in source:
        return _stored(source)[0]
    found = get_pretrained_cfg(source)
    return found.to_dict() if found is not None else {}


def build(name: str, *, image_size: int, channels: int, num_classes: int, **options: Any) -> Any:
    """Build the model of a name (timm:…) with `features`, `num_features` and `head`; under `torch.device("meta")` it
    has shapes only.

    Args:
        image_size, channels: pixels per side, and channels, of the images.
        options: arguments of `timm.create_model`; `input_size` sets the pixels per side of the network's input,
            whatever the size of images.

    Raises:
        ValueError: the name or an option is unknown, or the network does not take the size.
    """
    import sys

    import timm
    import torch

    from baselines import _outside

    check(name)
    source, pretrained = _parse(name)
    wanted = options.pop("input_size", None)
    config = _config(name)

    def make(size: int, given: int, pretrained: bool = False) -> torch.nn.Module:
        arguments: dict[str, Any] = {"num_classes": num_classes, "in_chans": given, **options}
        try:
            return timm.create_model(source, pretrained=pretrained, img_size=size, **arguments)
        except TypeError as error:  # most convolutional networks take any size, and have no such argument
            if "img_size" not in str(error):
                raise
            return timm.create_model(source, pretrained=pretrained, **arguments)

    def whole(network: Any, x_BCHW: torch.Tensor) -> torch.Tensor:
        return network.forward_head(network.forward_features(x_BCHW), pre_logits=True)

    sizes = [int(wanted)] if wanted else _outside.sizes_from(image_size, (config.get("input_size") or (224,))[-1])
    anatomy = _outside.anatomy_of(make, sizes=sizes, channels=channels, num_classes=num_classes or None, whole=whole)
    on_meta = torch.get_default_device().type == "meta"  # weights would not be kept there
    fetches = pretrained and not on_meta
    with without_a_hub_that_nobody_knows() if fetches else nullcontext():
        network = make(anatomy.input_size, anatomy.channels, fetches)
    classifier = getattr(network, "default_cfg", {}).get("classifier") or ()
    module = sys.modules[type(network).__module__]
    return _outside.Outside(
        network,
        anatomy,
        mean=config.get("mean") or (0.5,),
        std=config.get("std") or (0.5,),
        whole=whole,
        convert=getattr(module, "checkpoint_filter_fn", None),
        classifiers=(classifier,) if isinstance(classifier, str) else tuple(classifier),
    )


FAMILY = ModelFamily(
    label="timm",
    naming="timm:NAME of any of timm's models; timm:hf-hub:ORG/NAME; timm:local-dir:FOLDER; +pretrained: with its "
    "weights",
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
