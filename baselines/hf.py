"""Checkpoints of Hugging Face's transformers (Apache-2.0): hf:ORG/NAME[@REVISION], or hf:FOLDER that `save_pretrained`
wrote.

A checkpoint comes with its weights, unless `weights=random` asks for its architecture alone. It is loaded by AutoModel,
or by AutoBackbone if transformers has the architecture only as a backbone. If it is a model of images and texts, its
image encoder is used. Size and normalisation are those of the checkpoint's own image processor. The option `features`
says which output of the encoder is used:

* pooled: the encoder's `pooler_output` (made by a mean, an attention head or a dense layer);
* class: the class token of the last layer;
* mean: the mean of the patches' tokens of the last layer;
* auto: the first of pooled, class and mean that the checkpoint has trained weights for. transformers fills a pooler
  that the checkpoint lacks with random numbers, and such a pooler is never used.

Code that a checkpoint contains is never run.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from baselines._hub import without_a_hub_that_nobody_knows
from vit.model_family import Classifier, ModelFamily, Weights

if TYPE_CHECKING:
    import torch
    from torch import nn

PREFIX = "hf:"
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
HUB = "models--"  # prefix of the folders of models in the cache of the Hugging Face hub
CONFIG, PROCESSOR = "config.json", "preprocessor_config.json"
FILES = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
FEATURES = ("auto", "pooled", "class", "mean")
SAID = {"pooled": "its pooled output", "class": "the class token", "mean": "the mean of its patches' tokens"}
CLASS_TOKENS = re.compile(r"(^|\.)(cls_token|class_token|class_embedding|cls_embedding|cls_tokens)$")
MASKING = ("mask_ratio", "masking_ratio")  # fields by which pre-training hides patches; set to 0 for features
UNUSED = re.compile(r"(^|\.)(mask_token|pooler\..*)$")  # weights that features here do not depend on
OWN_SIZE, HALF = 224, (0.5, 0.5, 0.5)
METADATA_SECONDS = 5.0  # longest time that a plan waits for the hub to say how large weights are


def accepts(name: str) -> bool:
    """Return whether `name` is "hf:" followed by more."""
    return name.startswith(PREFIX) and len(name) > len(PREFIX)


@dataclass(frozen=True)
class _Place:
    """Where a checkpoint is. `source` is a folder, or a repository on the Hugging Face hub (ORG/NAME); `revision` is
    the commit, branch or tag of the repository, None for the newest commit."""

    source: str
    revision: str | None = None

    @property
    def is_folder(self) -> bool:
        return Path(self.source).is_dir()


def _place(name: str) -> _Place:
    text = name.removeprefix(PREFIX)
    if Path(text).is_dir():
        return _Place(text)
    source, _, revision = text.partition("@")
    return _Place(source, revision or None)


def _file(place: _Place, name: str, *, fetch: bool = False) -> Path | None:
    """Return the path on this disk of one of a checkpoint's files, called `name`; None if the checkpoint has no such
    file.

    Args:
        fetch: whether to fetch a file that is not on this disk from the hub. If not, None is returned for such a file
            too.

    Raises:
        OSError: the file cannot be fetched.
    """
    if place.is_folder:
        beside = Path(place.source) / name
        return beside if beside.is_file() else None
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    found = try_to_load_from_cache(place.source, name, revision=place.revision)
    if isinstance(found, str):
        return Path(found)
    if not fetch:
        return None
    with without_a_hub_that_nobody_knows():
        try:
            return Path(hf_hub_download(place.source, name, revision=place.revision))
        except LocalEntryNotFoundError:
            raise
        except EntryNotFoundError:
            return None


def _config(place: _Place) -> Mapping[str, Any]:
    """Return the contents of a checkpoint's config.json, which is fetched if necessary.

    Raises:
        ValueError: the checkpoint has no config.json, or is not of a kind that transformers reads.
        OSError: the file cannot be fetched.
    """
    path = _file(place, CONFIG, fetch=True)
    if path is None:
        raise ValueError(f"{place.source} has no {CONFIG}, which save_pretrained of transformers writes")
    try:
        config = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(config, dict) or "model_type" not in config:
        kind = "timm's: name it timm:hf-hub:… or timm:local-dir:…" if "architecture" in config else "of another library"
        raise ValueError(f"{path} names no model_type of transformers; it is {kind}")
    return config


def _processor(place: _Place) -> Mapping[str, Any]:
    """Return the settings of a checkpoint's image processor (preprocessor_config.json, fetched if necessary); {} if it
    has none, or the hub cannot be reached."""
    with contextlib.suppress(OSError):
        if (path := _file(place, PROCESSOR, fetch=True)) is not None:
            return json.loads(path.read_bytes())
    return {}


def _need_transformers() -> Any:
    """Import the package transformers, and return it.

    Raises:
        ValueError: transformers cannot be imported.
    """
    try:
        import transformers
    except ImportError as error:
        raise ValueError(f"transformers cannot be imported: {error}. pip install 'vit-scaling-bench[hf]'") from error
    return transformers


def check(name: str) -> None:
    """Check that the checkpoint of a name (hf:…) exists. The hub is asked if the checkpoint is not on this disk.

    Raises:
        ValueError: the checkpoint does not exist or cannot be used; the message says why.
    """
    place = _place(name)
    if name.endswith("+pretrained"):
        raise ValueError(
            f"{PREFIX}… comes with its weights: leave +pretrained out (:weights=random is its architecture alone)"
        )
    if not place.is_folder and not REPOSITORY.fullmatch(place.source):
        raise ValueError(f"{place.source} is no folder, and no name of the hub such as facebook/dinov2-small")
    _need_transformers()
    try:
        _config(place)
    except OSError as error:
        raise ValueError(refusal(place.source, error)) from error


def refusal(source: str, error: BaseException) -> str:
    """Return a sentence for the user that explains why a checkpoint could not be loaded.

    Args:
        source: the checkpoint's folder, or its repository on the hub.
        error: what transformers raised for the folder, or the hub's library for the repository.
    """
    if Path(source).is_dir():
        return f"{source} holds no weights that transformers reads, such as {FILES[0]}"
    kinds = {kind.__name__ for kind in type(error).__mro__} | {kind.__name__ for kind in type(error.__cause__).__mro__}
    if "GatedRepoError" in kinds:
        return (
            f"{source} is gated: accept its terms on https://huggingface.co/{source}, then set HF_TOKEN or run hf auth "
            "login"
        )
    if "RepositoryNotFoundError" in kinds:
        return f"the hub has no public repository {source}; a private one takes HF_TOKEN or hf auth login"
    if "RevisionNotFoundError" in kinds:
        return f"{source} has no such revision"
    return (
        f"{source} is not on this disk and cannot be fetched ({type(error).__name__}). A folder that save_pretrained "
        "wrote needs no network: hf:FOLDER"
    )


def label_of(name: str) -> str:
    """Return the label of a model in figures: its type in transformers, such as "hf:dinov2"."""
    return f"{PREFIX}{_config(_place(name))['model_type']}"


def identity(name: str) -> dict[str, str]:
    """Return what the results of a model depend on, name -> version or digest: the version of transformers, and digests
    of a folder's files or the commit of a repository."""
    from importlib.metadata import version

    place, found = _place(name), {"transformers": f"version {version('transformers')}"}
    if place.is_folder:
        for path in sorted(Path(place.source).iterdir()):
            if path.is_file() and path.suffix in (".json", ".safetensors", ".bin"):
                with open(path, "rb") as file:
                    found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    elif (config := _file(place, CONFIG)) is not None:
        found[place.source] = f"commit {config.parent.name}"
    return found


def _side(value: Any) -> int | None:
    """Return pixels per side from a size in any form that processors and configurations use (a number, a list, or a
    mapping such as {"height": 224}); None if it says none."""
    if isinstance(value, Mapping):
        value = value.get("height") or value.get("shortest_edge")
    elif isinstance(value, list | tuple):
        value = value[-1] if value else None
    return int(value) if isinstance(value, int | float) and value > 0 else None


def _vision(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of a config.json that describes the image encoder."""
    return config.get("vision_config") or config


def input_size(name: str) -> int:
    """Return the pixels per side of the images that a checkpoint is made for: those that its image processor makes, or
    else those in its configuration."""
    place = _place(name)
    processor, config = _processor(place), _vision(_config(place))
    cropped = processor.get("crop_size") if processor.get("do_center_crop", "crop_size" in processor) else None
    return _side(cropped) or _side(processor.get("size")) or _side(config.get("image_size")) or OWN_SIZE


def _normalisation(place: _Place) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation per channel by which a checkpoint's pixels in [0, 1] are normalised. If it has
    no image processor, both are 0.5, as for most ViTs."""
    processor = _processor(place)
    if processor and not processor.get("do_normalize", True):
        return (0.0,) * 3, (1.0,) * 3
    return tuple(processor.get("image_mean") or HALF), tuple(processor.get("image_std") or HALF)


def _stored_names(place: _Place) -> list[str] | None:
    """Return the names of the weights in a checkpoint; None if its weights are not on this disk, or not in
    safetensors."""
    single, index = (_file(place, name) for name in FILES[:2])
    if single is not None:
        from safetensors import safe_open

        with safe_open(single, framework="pt") as opened:
            return list(opened.keys())
    return list(json.loads(index.read_bytes())["weight_map"]) if index is not None else None


def _pooler_is_trained(place: _Place, config: Any) -> bool:
    """Return whether a checkpoint has weights for the pooler of its architecture. Its files tell this; if they are not
    on this disk, the transformers class that wrote them does. `config` is its configuration as an object of
    transformers."""
    names = _stored_names(place)
    if names is None:
        import torch

        transformers = _need_transformers()
        cls = getattr(transformers, (config.architectures or [""])[0], None)
        if cls is None:
            return False
        with torch.device("meta"):
            names = [name for name, _ in cls._from_config(copy.deepcopy(config)).named_parameters()]
    return any(".pooler." in f".{name}" for name in names)


def _is_backbone_alone(config: Any) -> bool:
    """Return whether transformers has the architecture of a configuration object as a backbone only."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_BACKBONE_MAPPING, MODEL_MAPPING

    return type(config) not in MODEL_MAPPING and type(config) in MODEL_FOR_BACKBONE_MAPPING


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Turn off transformers' progress bars and loading reports inside the `with` block."""
    logging = _need_transformers().utils.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def _read_config(place: _Place) -> Any:
    """Return a checkpoint's configuration as an object of transformers.

    Raises:
        ValueError: this version of transformers does not know the model's type, or the model needs code that the
            checkpoint contains.
    """
    transformers, stored = _need_transformers(), _config(place)
    with without_a_hub_that_nobody_knows(), quiet():
        try:
            return transformers.AutoConfig.from_pretrained(
                place.source, revision=place.revision, trust_remote_code=False
            )
        except ValueError as error:
            what = f"transformers {transformers.__version__} has no model of type {stored['model_type']!r}"
            if "auto_map" in stored:
                what = f"{place.source} needs code of its own, which is not run here"
            raise ValueError(what) from error


def _taken(place: _Place, config: Any, features: str, *, trained: bool) -> str:
    """Return which output of the image encoder is used as features: "pooled", "class" or "mean".

    Args:
        config: the checkpoint's configuration as an object of transformers.
        features: the output that the user asks for, or "auto" for the first that the architecture and the checkpoint's
            weights allow.
        trained: whether the checkpoint's weights are used; otherwise any pooler is allowed.

    Raises:
        ValueError: the network does not have the output asked for, or would compute it with untrained weights.
    """
    import torch

    from baselines._caches import forget_meta

    if features not in FEATURES:
        raise ValueError(f"features={features!r}; there are {', '.join(FEATURES)}")
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        body = _network(place, config, trained=False)
    try:
        with torch.device("meta"), torch.no_grad():
            vision = _vision_of(config)
            side = _side(getattr(vision, "image_size", None)) or OWN_SIZE
            made = body(pixel_values=torch.zeros(1, getattr(vision, "num_channels", 3), side, side))
        has_output = getattr(made, "pooler_output", None) is not None
    except Exception:  # the network reads values of tensors, and all known ones that do so have a pooler
        has_output = True
    finally:
        forget_meta()
    names = [name for name, _ in body.named_parameters()]
    untrained = trained and any(".pooler." in f".{name}" for name in names) and not _pooler_is_trained(place, config)
    pooled = has_output and not untrained
    has_token = any(CLASS_TOKENS.search(name) for name in names)
    if features == "auto":
        return "pooled" if pooled else "class" if has_token else "mean"
    if features == "pooled" and not pooled:
        raise ValueError("it has no pooled output with trained weights: features=class or features=mean")
    if features == "class" and not has_token:
        raise ValueError("it has no class token: features=pooled or features=mean")
    return features


def _vision_of(config: Any) -> Any:
    """Return the part of transformers' configuration object that describes the image encoder."""
    return getattr(config, "vision_config", config)


def _network(place: _Place, config: Any, *, trained: bool) -> nn.Module:
    """Return a checkpoint's image encoder as transformers builds it.

    Args:
        config: the checkpoint's configuration as an object of transformers.
        trained: whether to load the checkpoint's weights; otherwise transformers initialises them.

    Raises:
        ValueError: the model has no image encoder, or the checkpoint lacks some of the encoder's weights.
        OSError: the weights cannot be fetched.
    """
    import torch

    transformers, config = _need_transformers(), copy.deepcopy(config)
    for field in MASKING:
        if hasattr(config, field):
            setattr(config, field, 0.0)
    auto = transformers.AutoBackbone if _is_backbone_alone(config) else transformers.AutoModel
    with quiet():
        if trained:
            with without_a_hub_that_nobody_knows():
                whole, report = auto.from_pretrained(
                    place.source,
                    revision=place.revision,
                    config=copy.deepcopy(config),
                    dtype=torch.float32,
                    output_loading_info=True,
                )
            missing = [
                name
                for name in sorted({*report["missing_keys"], *(key[0] for key in report["mismatched_keys"])})
                if not UNUSED.search(name) and not name.startswith("text_model.")
            ]
            if missing:
                raise ValueError(f"the checkpoint lacks {len(missing)} of its weights, such as {missing[0]}")
        else:
            try:
                whole = auto.from_config(copy.deepcopy(config))
            except ValueError as error:
                raise ValueError(f"transformers has no image model of type {config.model_type!r}") from error
    vision = getattr(whole, "vision_model", None) if hasattr(config, "vision_config") else whole
    if vision is None:
        raise ValueError(f"models of type {config.model_type!r} have no image encoder that stands alone")
    parameters = inspect.signature(vision.forward).parameters
    if "pixel_values" not in parameters:
        raise ValueError(f"models of type {config.model_type!r} take no images")
    needed = [one.name for one in parameters.values() if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
    if more := [name for name in needed if name != "pixel_values"]:
        raise ValueError(f"models of type {config.model_type!r} take {' and '.join(more)} beside images of one size")
    return vision


def _module(body: nn.Module, config: Any, *, how: str, num_classes: int, size: int, width: int | None) -> nn.Module:
    """Return a module from images to class logits: an image encoder, features of it, and a new linear classifier.

    Args:
        body: the image encoder.
        config: the checkpoint's configuration as an object of transformers.
        how: output that is used as features: "pooled", "class" or "mean".
        size: pixels per side of images.
        width: number of features; None = found by running the encoder once.
    """
    import torch
    from torch import nn

    vision = _vision_of(config)
    own, patch = _side(getattr(vision, "image_size", None)), _side(getattr(vision, "patch_size", None))
    more: dict[str, bool] = {}
    if own not in (None, size) and "interpolate_pos_encoding" in inspect.signature(body.forward).parameters:
        more["interpolate_pos_encoding"] = True

    # A masked autoencoder shuffles its patches by random noise; ascending numbers instead keep them in order.
    hides = "noise" in inspect.signature(body.forward).parameters

    class Checkpoint(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = body
            if width is None:
                with torch.no_grad():
                    found = self.pool(torch.zeros(2, getattr(vision, "num_channels", 3), size, size)).shape[1]
            self.classifier = nn.Linear(width or found, num_classes)

        def pool(self, x_BCHW: torch.Tensor) -> torch.Tensor:
            order = {}
            if hides and patch:
                order_T = torch.arange((size // patch) ** 2, dtype=x_BCHW.dtype, device=x_BCHW.device)
                order = {"noise": order_T.expand(len(x_BCHW), -1)}
            made = self.encoder(pixel_values=x_BCHW, **more, **order)
            if how == "pooled":
                return made.pooler_output.flatten(1)
            last = made.last_hidden_state if hasattr(made, "last_hidden_state") else made.feature_maps[-1]
            if last.ndim == 4:
                return last.mean((2, 3))
            if how == "class":
                return last[:, 0]
            patches = (size // patch) ** 2 if patch else last.shape[1]
            return last[:, max(0, last.shape[1] - patches) :].mean(1)

        def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
            return self.classifier(self.pool(x_BCHW))

    if patch and size % patch:
        raise ValueError(f"its patches of {patch} px do not divide {size} px")
    if how != "pooled" and getattr(body, "pooler", None) is not None:
        body.pooler = None  # type: ignore[assignment]  # its weights are random, or unused, and are neither counted nor trained
    return Checkpoint()


def build(
    name: str,
    *,
    image_size: int,
    channels: int,
    num_classes: int,
    features: str = "auto",
    weights: str = "trained",
    **options: Any,
) -> Any:
    """Build the model of a name (hf:…) with `features`, `num_features` and `head`; under `torch.device("meta")` it has
    shapes only.

    Args:
        image_size, channels: pixels per side, and channels, of the images.
        features: which output of the image encoder is used, one of FEATURES (see above).
        weights: "trained", or "random" for the architecture alone.
        options: fields of transformers' configuration; `input_size` sets the pixels per side of the network's input.

    Raises:
        ValueError: the name or an option is unknown, or the network does not take the size.
    """
    import torch

    from baselines import _outside

    check(name)
    if weights not in ("trained", "random"):
        raise ValueError(f"weights={weights!r}; there are trained and random")
    place = _place(name)
    wanted = options.pop("input_size", None)
    config = _read_config(place)
    vision = _vision_of(config)
    for option, value in options.items():
        if not hasattr(vision, option):
            raise ValueError(f"{type(vision).__name__} has no field {option!r}")
        setattr(vision, option, value)
    given_channels = int(getattr(vision, "num_channels", 3))
    trained = weights == "trained"
    how = _taken(place, config, features, trained=trained)

    def make(size: int, given: int, fetches: bool = False, width: int | None = None) -> nn.Module:
        if given != given_channels:
            raise ValueError("it takes colour images")
        body = _network(place, config, trained=fetches)
        return _module(body, config, how=how, num_classes=num_classes, size=size, width=width)

    sizes = [int(wanted)] if wanted else _outside.sizes_from(image_size, input_size(name))
    anatomy = _outside.anatomy_of(make, sizes=sizes, channels=channels, num_classes=num_classes or None)
    fetches = trained and torch.get_default_device().type != "meta"
    try:
        network = make(anatomy.input_size, anatomy.channels, fetches, anatomy.num_features)
    except OSError as error:
        raise ValueError(refusal(place.source, error)) from error
    mean, std = _normalisation(place)
    return _outside.Outside(network, anatomy, mean=mean, std=std)


def about(name: str, **options: Any) -> str:
    """Return a sentence that says which output, image size and normalisation of a checkpoint are used. `options` are
    those of `build`."""
    place = _place(name)
    trained = options.get("weights") != "random"
    how = _taken(place, _read_config(place), options.get("features", "auto"), trained=trained)
    mean, std = (", ".join(f"{value:.3g}" for value in values) for values in _normalisation(place))
    whose = "its processor's" if _processor(place) else "no processor is there, so assumed"
    return (
        f"features are {SAID[how]}, images have {input_size(name)} px; mean {mean}, standard deviation {std} ({whose})"
    )


def weights_of(name: str) -> Weights | None:
    """Return where a checkpoint's weights are, how large they are and their licence, as far as this is known."""
    place = _place(name)
    licence, where = "", place.source if place.is_folder else f"{place.source} of the hub"
    with contextlib.suppress(OSError):
        if (card := _file(place, "README.md")) is not None:
            found = re.search(r"^license:\s*(\S+)", card.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
            licence = found[1] if found else ""
    here = [path for file in FILES if (path := _file(place, file)) is not None]
    if here:
        size = sum(path.stat().st_size for path in here if path.suffix != ".json")
        if not size and place.is_folder:
            size = sum(path.stat().st_size for path in Path(place.source).glob("*.safetensors"))
        return Weights(where=where, licence=licence, megabytes=size / 1e6 or None, here=True)
    from huggingface_hub import HfApi

    with contextlib.suppress(Exception), without_a_hub_that_nobody_knows():  # an error must not stop a plan
        info = HfApi().model_info(place.source, revision=place.revision, files_metadata=True, timeout=METADATA_SECONDS)
        sizes = {one.rfilename: one.size or 0 for one in info.siblings or []}
        suffix = ".safetensors" if any(one.endswith(".safetensors") for one in sizes) else ".bin"
        size = sum(size for one, size in sizes.items() if one.endswith(suffix) and "/" not in one)
        licence = licence or str(getattr(info.card_data, "license", None) or "")
        return Weights(where=where, licence=licence, megabytes=size / 1e6 or None, gated=bool(info.gated))
    return Weights(where=where, licence=licence, megabytes=None, here=False)


def classifier(name: str, checkpoint: Path | None = None) -> Classifier:
    """Return a checkpoint with the classifier that it was trained with; see `baselines._own_heads`. `checkpoint` must
    be None.

    Raises:
        ValueError: the checkpoint has no classifier, or a file of other weights is given.
    """
    from baselines import _own_heads

    check(name)
    if checkpoint is not None:
        raise ValueError(f"{PREFIX}… comes with its weights: leave --checkpoint out")
    place = _place(name)
    try:
        with without_a_hub_that_nobody_knows(), quiet():
            return _own_heads.of_transformers(place.source, revision=place.revision)
    except OSError as error:
        raise ValueError(refusal(place.source, error)) from error


def on_disk() -> list[str]:
    """Return the names of transformers checkpoints whose weights are in the cache of the Hugging Face hub."""
    from huggingface_hub.constants import HF_HUB_CACHE

    found = set()
    for file in Path(HF_HUB_CACHE).glob(f"{HUB}*/snapshots/*/{FILES[0]}"):
        with contextlib.suppress(OSError, ValueError):
            config = json.loads((file.parent / CONFIG).read_bytes())
            if "model_type" in config and {"image_size", "vision_config", "num_channels"} & set(config):
                found.add(f"{PREFIX}{file.parts[-4].removeprefix(HUB).replace('--', '/', 1)}")
    return sorted(found)


FAMILY = ModelFamily(
    label="hf",
    naming="hf:ORG/NAME[@REVISION] of the Hugging Face hub, hf:FOLDER that save_pretrained wrote: a checkpoint of "
    "transformers with its weights; :features=pooled, class or mean; :weights=random",
    accepts=accepts,
    build=build,
    check=check,
    identity=identity,
    input_size=input_size,
    on_disk=on_disk,
    label_of=label_of,
    comes_trained=lambda name: True,
    about=about,
    weights_of=weights_of,
    classifier=classifier,
)
