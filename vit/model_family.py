"""The facts of a family of models: the one object that a file of models exports. Nothing else is asked of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


PRETRAINED = "+pretrained"  # ends the name of a network from outside that comes with its weights


def check_nothing(name: str) -> None:
    """`ModelFamily.check` of a family that builds whatever it accepts."""


def no_more(name: str) -> Mapping[str, str]:
    """`ModelFamily.identity` of models that depend on their code alone."""
    return {}


def any_size(name: str) -> int | None:
    """`ModelFamily.input_size` of models that are made for no size in particular."""
    return None


def nothing_to_say(name: str, **options: object) -> str:
    """`ModelFamily.about` of models that are taken as they are."""
    return ""


def ends_in_pretrained(name: str) -> bool:
    """`ModelFamily.comes_trained` of libraries whose networks come with weights where that is asked for."""
    return name.endswith(PRETRAINED)


@dataclass(frozen=True, kw_only=True)
class Weights:
    """The trained weights of a model, as far as it is known without fetching them.

    Attributes:
        where: a repository, an address or a folder.
        licence: as its publisher names it; "" where that is not known.
        megabytes: of the file, 10^6 bytes.
        here: whether it is on this disk.
        gated: whether its publisher asks for terms to be accepted first.
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
        network: x_BCHW -> logits_BK.
        prepare: an image of Pillow, as its file has it -> x_CHW.
        classes: what each class is called, a WordNet id first; empty where nobody says.
        num_classes: K.
        said: how images are prepared, in words.
        published: test set and measure ("in1k_top1", "real_top1", "v2_top1", …) -> the published share.
        publisher: who published these.
    """

    network: nn.Module
    prepare: Callable[[Any], Any]
    classes: tuple[tuple[str, ...], ...]
    num_classes: int
    said: str
    published: Mapping[str, float]
    publisher: str


def no_classifier(name: str, checkpoint: Path | None = None) -> Classifier:
    """`ModelFamily.classifier` of families whose checkpoints are not known with one.

    Raises:
        ValueError: always.
    """
    raise ValueError("its own classifier is not known here; those of timm:…, torchvision:… and hf:… are")


def no_weights(name: str) -> Weights | None:
    """`ModelFamily.weights_of` of models that come without any."""
    return None


@dataclass(frozen=True, kw_only=True)
class ModelFamily:
    """A family of models: their names, and how one is built. Names are given to it without options.

    Attributes:
        label: in figures and tables.
        accepts: whether it builds a model of this name, listed or not.
        build: (name, image_size=…, channels=…, num_classes=…, **options) -> the network. ValueError says which names,
            sizes and options are allowed. On the meta device it gives shapes only.
        names: shown in lists and suggestions.
        revision: raised when a change gives other models. It is part of a result's identity.
        revision_of: name -> its own revision, where a change gave other models of some names only; the higher counts.
        naming: the rule of its names, for people.
        rehearsed: options that cut its models to the least that runs the same code, for rehearsals of a study.
        trains: False for a model that has nothing to train.
        has_dropout: whether `dropout` is an option of its models.
        label_of: name -> its own label, where one file holds several architectures.
        check: raises ValueError for a name of the right form that nothing stands behind.
        identity: name -> what else its results depend on: versions, digests of files.
        input_size: name -> pixels per side that the model was made for.
        on_disk: names of models whose trained weights are on this machine, where they are otherwise fetched.
        comes_trained: whether a model of this name comes with trained weights.
        about: (name, **options) -> what is taken of a model from elsewhere, in words; "" where that is its name.
        weights_of: name -> what fetching its trained weights takes; None without.
        classifier: (name, checkpoint=FILE or None) -> the network with its own classifier; ValueError says why not.
        source: name -> the file that the model is made in; None where that is the family's own.
        module: the module that exports it; the registry fills it in.
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
        """Whether its models are made elsewhere, so that there may be nothing behind a name."""
        return self.check is not check_nothing

    @property
    def file(self) -> Path:
        """The file that exports it."""
        return Path(sys.modules[self.module].__file__ or "")
