"""The contract of every data set: each file in bench/data/sets/ is found by its name and checked here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.core import registry
from bench.core.errors import UserError
from bench.data.image_set import ImageSet

NAMES = registry.names("data set")


def load(name: str, split: str) -> ImageSet:
    module = registry.load("data set", name)
    if not module.available(None):
        with pytest.raises(UserError) as caught:
            module.load(split, root=None)
        assert module.HOW_TO_GET in str(caught.value)
        pytest.skip(f"{name} is not on this machine, and says how to get it")
    return module.load(split, root=None)


@pytest.mark.parametrize("name", NAMES)
def test_says_what_it_is(name: str) -> None:
    module = registry.load("data set", name)
    assert isinstance(module.REVISION, int) and module.REVISION >= 1
    kinds = ("own images",) if name == "folder" else ("photographs", "handwriting", "rendered")
    assert module.KIND in kinds
    for text in (module.LICENCE, module.SOURCE, module.HOW_TO_GET, module.DESCRIPTION):
        assert isinstance(text, str) and text.strip()
    assert "\n" not in module.DESCRIPTION
    assert isinstance(module.available(None), bool)


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("name", NAMES)
def test_loads_labelled_images(name: str, split: str) -> None:
    images = load(name, split)
    assert (images.name, images.split) == (name, split)
    assert images.kind == registry.load("data set", name).KIND
    count, height, width, channels = images.images_NHWC.shape
    assert count > 0 and height > 0 and width > 0 and channels in (1, 3)
    assert images.images_NHWC.dtype == np.uint8 and images.labels_N.dtype == np.int64
    assert len(set(images.class_names)) == images.num_classes
    assert set(np.unique(images.labels_N)) == set(range(images.num_classes))
    assert images.images_NHWC.max() > 128, "blank images"


@pytest.mark.parametrize("name", NAMES)
def test_the_same_every_time(name: str) -> None:
    first, second = load(name, "test"), load(name, "test")
    assert first.content_hash == second.content_hash
    assert len(first.content_hash) == 64


@pytest.mark.parametrize("name", NAMES)
def test_splits_share_classes_and_no_image(name: str) -> None:
    train, test = load(name, "train"), load(name, "test")
    assert train.class_names == test.class_names
    assert train.images_NHWC.shape[1:] == test.images_NHWC.shape[1:]
    # Fashion-MNIST itself holds a few images twice; nothing else may.
    shared = np.intersect1d(train.content_keys_N, test.content_keys_N)
    assert len(shared) <= (20 if name == "fashion-mnist" else 0)


def test_listing_and_naming_import_no_torch() -> None:
    code = (
        "import sys; from bench.core import registry; from bench.data.load import load\n"
        "for name in registry.names('data set'): registry.load('data set', name).available(None)\n"
        "assert not {'torch', 'sklearn', 'matplotlib'} & set(sys.modules)"
    )
    root = Path(registry.__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root, timeout=120)
