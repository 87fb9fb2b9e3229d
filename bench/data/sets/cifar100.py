"""CIFAR-100: 32 px colour photographs of 100 kinds of things (Krizhevsky, 2009); `cifar100:coarse` has 20 classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.core.errors import unknown
from bench.data import cifar
from bench.data.image_set import ImageSet

REVISION = 1
KIND = "photographs"
LICENCE = "none stated; free for research with a citation of Krizhevsky (2009)"
SOURCE = "https://www.cs.toronto.edu/~kriz/cifar.html"
HOW_TO_GET = (
    "Unpack cifar-100-binary.tar.gz (or cifar-100-python.tar.gz) from https://www.cs.toronto.edu/~kriz/cifar.html into "
    "<data root>/."
)
DESCRIPTION = "32 px colour photographs, 100 classes, 50,000 + 10,000"
OPTIONS = "cifar100:fine (default, 100 classes) or cifar100:coarse (20 superclasses)"
_FINE = (
    "apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can "
    "castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin "
    "elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard "
    "lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear "
    "pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark "
    "shrew skunk skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone "
    "television tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm"
)
_COARSE = (
    "aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices "
    "household_furniture insects large_carnivores large_man-made_outdoor_things large_natural_outdoor_scenes "
    "large_omnivores_and_herbivores medium_mammals non-insect_invertebrates people reptiles small_mammals trees "
    "vehicles_1 vehicles_2"
)
CLASSES = {"fine": tuple(_FINE.split()), "coarse": tuple(_COARSE.split())}

BINARY = cifar.Layout(
    folder="cifar-100-binary",
    files={"train": ("train.bin",), "test": ("test.bin",)},
    rows={"train": 50_000, "test": 10_000},
    label=1,
    label_bytes=2,  # coarse, then fine
)
PICKLED = replace(
    BINARY,
    folder="cifar-100-python",
    files={"train": ("train",), "test": ("test",)},
    label=b"fine_labels",
    label_bytes=0,
)


def _layouts(option: str) -> tuple[cifar.Layout, ...]:
    if option == "coarse":
        return replace(BINARY, label=0), replace(PICKLED, label=b"coarse_labels")
    return BINARY, PICKLED


def available(root: Path | None) -> bool:
    return all(cifar.find(root, "cifar100", _layouts("fine"), split) for split in ("train", "test"))


def load(split: str, *, root: Path | None, option: str = "fine") -> ImageSet:
    if option not in CLASSES:
        raise unknown("labelling of CIFAR-100", option, CLASSES)
    classes = CLASSES[option]
    images_NHWC, labels_N, version = cifar.read(
        root, "cifar100", _layouts(option), split, num_classes=len(classes), how_to_get=HOW_TO_GET
    )
    return ImageSet(
        name="cifar100" if option == "fine" else f"cifar100:{option}",
        split=split,
        images_NHWC=images_NHWC,
        labels_N=labels_N,
        class_names=classes,
        kind=KIND,
        source=version,
    )
