"""The class of a model family. A file that defines models exports one object of it, and nothing else of the file is
used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


PRETRAINED = "+pretrained"  # ending of the names of outside networks that come with trained weights


def check_nothing(name: str) -> None:
    """Default of `ModelFamily.check`, for a family that can build every name it accepts: do nothing."""


def no_more(name: str) -> Mapping[str, str]:
    """Default of `ModelFamily.identity`, for models that depend on their code alone: return an empty mapping."""
    return {}


def any_size(name: str) -> int | None:
    """Default of `ModelFamily.input_size`, for models that are made for no particular size: return None."""
    return None


def nothing_to_say(name: str, **options: object) -> str:
    """Default of `ModelFamily.about`, for models whose name says everything: return ""."""
    return ""


def ends_in_pretrained(name: str) -> bool:
    """Default of `ModelFamily.comes_trained`: return whether the name ends in "+pretrained"."""
    return name.endswith(PRETRAINED)


@dataclass(frozen=True, kw_only=True)
class Weights:
    """What is known of a model's trained weights before they are fetched.

    Attributes:
        where: where the weights are: a repository, an address or a folder.
        licence: name of the licence as the publisher gives it; "" if unknown.
        megabytes: size of the file in 10^6 bytes; None if unknown.
        here: whether the file is on this machine's disk already.
        gated: whether the publisher's terms have to be accepted first.
    """

    where: str
    licence: str = ""
    megabytes: float | None = None
    here: bool = False
    gated: bool = False


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """A checkpoint with the classifier that it was trained with.

    Attributes:
        network: module from x_BCHW to logits_BK.
        prepare: function from a Pillow image of any size to x_CHW, the network's input.
        classes: all names of each class, its WordNet id first; empty if unknown.
        num_classes: number of classes, K.
        said: how `prepare` prepares images, in words.
        published: test set and metric ("in1k_top1", "real_top1", "v2_top1", …) -> published accuracy in [0, 1].
        publisher: who published these accuracies.
    """

    network: nn.Module
    prepare: Callable[[Any], Any]
    classes: tuple[tuple[str, ...], ...]
    num_classes: int
    said: str
    published: Mapping[str, float]
    publisher: str


def no_classifier(name: str, checkpoint: Path | None = None) -> Classifier:
    """Default of `ModelFamily.classifier`, for families whose checkpoints have no known classifier.

    Raises:
        ValueError: always.
    """
    raise ValueError("its own classifier is not known here; those of timm:…, torchvision:… and hf:… are")


def no_weights(name: str) -> Weights | None:
    """Default of `ModelFamily.weights_of`, for models without trained weights: return None."""
    return None


@dataclass(frozen=True, kw_only=True)
class ModelFamily:
    """A family of models: their names, and how one is built. Its functions are given names without options
    ("ViT-pico/7" of "ViT-pico/7:depth=6").

    Attributes:
        label: the family's name in figures and tables.
        accepts: name -> whether the family builds a model of this name, listed or not.
        build: (name, image_size=…, channels=…, num_classes=…, **options) -> the network. Its ValueError says which
            names, sizes and options are allowed. On the meta device it gives shapes only.
        names: names that are shown in lists and suggestions.
        revision: number to be raised when a change of the code gives other models. It is part of a result's identity:
            results of another revision are not reused.
        revision_of: name -> revision of this name, where a change gave other models for some names only; the higher of
            the two counts.
        naming: the rule by which names are formed, in words.
        rehearsed: options, name -> value, that reduce models to the least that runs the same code, for rehearsals of a
            study.
        trains: False for a model that has nothing to train.
        has_dropout: whether its models have an option `dropout`.
        label_of: name -> label, where one file holds several architectures; None: all have `label`.
        check: function of a name that raises ValueError if the name has the right form but no such model exists.
        identity: name -> what else a model's results depend on: kind -> version or digest of a file.
        input_size: name -> pixels per side that the model was made for; None if for no particular size.
        on_disk: function that returns the names of models whose trained weights are on this machine; only for families
            that fetch weights.
        comes_trained: name -> whether this model comes with trained weights.
        about: (name, **options) -> what is used of a model from elsewhere, in words; "" if its name says it.
        weights_of: name -> what is known of the model's trained weights; None if it has none.
        classifier: (name, checkpoint=FILE or None) -> the network with the classifier that it was trained with;
            ValueError says why there is none.
        source: name -> the file that defines the model; None if the family's own file defines all.
        module: name of the module that exports the family; the registry fills it in.
    """

    label: str
    accepts: Callable[[str], bool]
    build: Callable[..., nn.Module]
    names: tuple[str, ...] = ()
    revision: int = 1
    revision_of: Callable[[str], int] | None = None
    naming: str = ""
    rehearsed: Mapping[str, int] = field(default_factory=dict)
    trains: bool = True
    has_dropout: bool = False
    label_of: Callable[[str], str] | None = None
    check: Callable[[str], None] = check_nothing
    identity: Callable[[str], Mapping[str, str]] = no_more
    input_size: Callable[[str], int | None] = any_size
    on_disk: Callable[[], Sequence[str]] = tuple
    comes_trained: Callable[[str], bool] = ends_in_pretrained
    about: Callable[..., str] = nothing_to_say
    weights_of: Callable[[str], Weights | None] = no_weights
    classifier: Callable[..., Classifier] = no_classifier
    source: Callable[[str], Path] | None = None
    module: str = ""

    @property
    def from_outside(self) -> bool:
        """Whether the family's models are defined outside the project, so that none may stand behind a name of the
        right form."""
        return self.check is not check_nothing

    @property
    def file(self) -> Path:
        """The file that exports the family."""
        return Path(sys.modules[self.module].__file__ or "")
