"""Tiles of pictures and shaded relief: what is in a tile, that splits share no pixel, and bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import LightSource
from PIL import Image

from bench.core import registry
from bench.core.errors import UserError
from bench.data.generated import tiles
from bench.data.load import load
from bench.data.sets import photo_tiles, specimen_tiles, terrain

FILES = {one.DATASET.name: tuple(one.FILES.values()) for one in (photo_tiles, specimen_tiles)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data root whose pictures hold in every pixel where it is: column, row and picture all differ."""
    folder = tmp_path / "scikit-image"
    folder.mkdir()
    for number, file in enumerate(file for files in FILES.values() for file in files):
        rows, columns = np.mgrid[:200, :300]
        picture = ((columns * 7 + rows * 13 + number * 29) % 251).astype(np.uint8)
        Image.fromarray(picture).save(folder / file, format="PNG")  # the reader goes by content, not by name
    return tmp_path


@pytest.mark.parametrize("size", ["", ":56px"])
@pytest.mark.parametrize("name", FILES)
def test_tiles_are_cut_from_their_picture_and_no_pixel_is_shared(name: str, size: str, root: Path) -> None:
    side = int(size[1:3] or 28)
    columns_of = {}
    for split in ("train", "test"):
        found = load(name + size, split, root=root)
        assert found.images_NHWC.shape[1:] == (side, side, 1) and found.num_classes == len(FILES[name])
        assert set(np.unique(found.labels_N)) == set(range(found.num_classes))
        columns_of[split] = len(found)
    # 10 columns of tiles, 7 to train; 7 rows. Larger tiles begin at the same places and end before the border.
    expected = {"": (7 * 7, 3 * 7), ":56px": (6 * 6, 2 * 6)}[size]
    assert tuple(columns_of.values()) == tuple(count * found.num_classes for count in expected)
    if name == "photo-tiles":
        train = load(name + size, "train", root=root)
        picture = np.asarray(Image.open(root / "scikit-image" / "brick.png"))
        cut = train.images_NHWC[train.labels_N == 1, ..., 0]
        np.testing.assert_array_equal(cut[0], picture[:side, :side])
        last = train.images_NHWC[train.labels_N == 1][-1, ..., 0]
        np.testing.assert_array_equal(last[:, -1], picture[cut_rows(side), 7 * 28 - 1])


def cut_rows(side: int) -> slice:
    """Rows of the last tile of a column of a picture of 200 rows."""
    top = (200 - side) // 28 * 28
    return slice(top, top + side)


def test_brightness_and_contrast_do_not_tell_specimens_apart(root: Path) -> None:
    images = load("specimen-tiles", "train", root=root).images_NHWC.astype(np.float64)
    assert np.abs(images.mean((1, 2, 3)) - 128).max() < 1 and np.abs(images.std((1, 2, 3)) - 48).max() < 3


@pytest.mark.parametrize("option", ["56", "7px", "129px", "big", "1000px"])
def test_other_options_are_refused(option: str, root: Path) -> None:
    with pytest.raises(UserError, match="56px"):
        load(f"photo-tiles:{option}", "train", root=root)


def test_a_damaged_picture_is_named(root: Path) -> None:
    (root / "scikit-image" / "brick.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match="brick"):
        load("photo-tiles", "train", root=root)
    assert tiles.folder_with(("brick.png", "absent.png"), root) is None


def test_relief_is_shaded_as_matplotlib_does() -> None:
    """Its hillshade is the same cosine, stretched to 0..1: an affine function of ours."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:60, :80]
    height = 40 * np.sin(x / 7) + 60 * np.cos(y / 9 + x / 20) + rng.normal(0, 0.5, x.shape)
    reference = LightSource(azdeg=315, altdeg=45).hillshade(height, dx=80, dy=90)
    ours = terrain.shade(height, (90, 80)).astype(float)
    fit = np.polyval(np.polyfit(reference.ravel(), ours.ravel(), 1), reference)
    assert ours.std() > 10 and np.abs(ours - fit).max() < 0.6, "but for rounding to whole grey levels"


def test_landforms_turn_over_with_the_ground() -> None:
    """A lone hill is a ridge at its top; upside down, valleys and ridges, lower and upper slopes change places."""
    y, x = np.mgrid[:81, :81] - 40.0
    hill = 400 * np.exp(-(x**2 + y**2) / 200) + 0.01 * x
    found, turned = terrain.landforms(hill, (90, 75)), terrain.landforms(-hill, (90, 75))
    assert terrain.CLASSES[found[40, 40]] == "ridge" and terrain.CLASSES[turned[40, 40]] == "valley"
    opposite = np.array([5, 4, 2, 3, 1, 0])
    np.testing.assert_array_equal(opposite[found], turned)
    assert terrain.CLASSES[found[40, 0]] == "flat"


def test_terrain_s_splits_share_no_post() -> None:
    """Every test tile differs from every piece of ground that a training tile shows: none of its rows occurs there."""
    if not terrain.available(None):
        pytest.skip("matplotlib carries no elevations here")
    train, test = (load("terrain", split) for split in ("train", "test"))
    rows = lambda s: {row.tobytes() for tile in s.images_NHWC[..., 0] for row in tile}  # noqa: E731
    assert not rows(train) & rows(test)
    assert (len(train), len(test)) == (3_000, 1_500) and "terrain" in registry.names("data set")
