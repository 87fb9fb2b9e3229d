"""Sets that are drawn here: what they show, that splits share nothing, and what cannot be drawn."""

import string
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import LightSource
from PIL import Image, ImageFont
from scipy import ndimage

from bench.core.clusters import cluster_error
from bench.core.errors import UserError
from bench.core.seeds import uniforms
from bench.data.generated import atoms, drawn, tiles
from bench.data.generated.render import BOX, NUMBERS, SIZE, Variation, draw, has_character, matplotlib_fonts
from bench.data.generated.shapes import OVERSAMPLE, Shape, corners
from bench.data.image_set import ImageSet
from bench.data.load import load
from bench.data.sets import (
    glyphs,
    lettering,
    photo_tiles,
    scripts,
    shapes_distance,
    shapes_orientation,
    shapes_position,
    specimen_tiles,
    terrain,
)
from bench.study import registry
from bench.tasks.fewshot import draw_support

# -- visual atoms: each image a function of its class and number alone; classes can be told apart ----------------------


def test_a_larger_set_holds_a_smaller_one_and_pieces_do_not_matter(monkeypatch) -> None:
    large, small = load("visual-atoms:6x40:32px", "train"), load("visual-atoms:6x8:32px", "train")
    assert large.images_NHWC.shape == (240, 32, 32, 3) and small.num_classes == 6
    assert np.array_equal(large.images_NHWC[:48], small.images_NHWC) and (np.bincount(large.labels_N) == 40).all()
    classes, indices = np.array([5, 0, 5]), np.array([3, 7, 39])
    alone = atoms.draw(classes, indices, split="train", size=32)
    assert np.array_equal(alone, large.images_NHWC[indices * 6 + classes])
    monkeypatch.setattr(drawn, "MAX_IMAGES_OF_ONE_PROCESS", 100)
    monkeypatch.setattr(drawn, "IMAGES_PER_PIECE", 70)
    pieces = drawn._pieces(_numbers, 3, 240, "train", 1, "test")
    assert np.concatenate(list(pieces)).ravel().tolist() == list(range(240))  # by several processes, in order


def _numbers(numbers_N: np.ndarray, *, classes: int, split: str, size: int) -> np.ndarray:
    return numbers_N.astype(np.uint8).reshape(-1, 1, 1, 1)


def test_no_image_is_twice_in_a_set_or_in_both_splits() -> None:
    train, test = load("visual-atoms:6x40:32px", "train"), load("visual-atoms:6x40:32px", "test")
    keys = np.concatenate([train.content_keys_N, test.content_keys_N])
    assert len(np.unique(keys)) == len(keys) == 240 + 150


def test_frequencies_are_those_of_the_outline() -> None:
    """The strongest frequency of the radius is one of the class's two: read off the drawing by a Fourier transform."""
    right = 0
    for number in range(20):
        image = atoms.draw(np.array([number]), np.array([0]), split="train", size=128)[0].astype(float)
        inked = np.abs(image - image[0, 0]).sum(-1) > 0
        y, x = np.nonzero(inked)
        bins = ((np.arctan2(y - y.mean(), x - x.mean()) + np.pi) / (2 * np.pi) * 128).astype(int) % 128
        radius = np.array([np.hypot(y - y.mean(), x - x.mean())[bins == k].max(initial=0.0) for k in range(128)])
        spectrum = np.abs(np.fft.rfft(radius - radius.mean()))
        spectrum[:3] = 0  # the oval, and the centre of mass
        first, second, *_ = atoms._atom(number)
        right += int(np.argmax(spectrum)) in (first, second)
    assert right >= 12


@pytest.mark.parametrize("option", ["1x10", "10x0", "10x10:8px", "10by10", "100000x1001", ":64px:rgb"])
def test_what_cannot_be_drawn_is_refused(option: str) -> None:
    with pytest.raises(UserError, match=r"visual-atoms:CLASSESxIMAGES|out of range"):
        load(f"visual-atoms:{option}", "train")


# -- the structured tasks: labels are what an independent measurement says; nothing else gives them away ---------------


NAMES = ("shapes-count", "shapes-position", "shapes-orientation", "shapes-distance")


def pieces(image_HW: np.ndarray, *, at_least: int = 4) -> tuple[np.ndarray, list[int]]:
    """Connected parts well above the ground, and the numbers of those that have `at_least` pixels."""
    labels_HW, count = ndimage.label(image_HW > np.median(image_HW) + 40, structure=np.ones((3, 3)))
    sizes = np.bincount(labels_HW.ravel(), minlength=count + 1)
    return labels_HW, [number for number in range(1, count + 1) if sizes[number] >= at_least]


def sample(name: str) -> tuple[ImageSet, list[np.ndarray]]:
    images = load(name, "test")
    return images, [image[..., 0].astype(float) for image in images.images_NHWC[:300]]


def test_count() -> None:
    images, pictures = sample("shapes-count")
    counted = [len(pieces(picture, at_least=3)[1]) for picture in pictures]
    assert np.mean(np.array(counted) == images.labels_N[:300] + 1) > 0.97


def test_count_is_not_told_by_ink_alone() -> None:
    """Bright pixels of every class overlap with those of the next."""
    images = load("shapes-count", "train")
    ink_N = (images.images_NHWC > np.median(images.images_NHWC, axis=(1, 2), keepdims=True) + 40).sum(axis=(1, 2, 3))
    assert 0.3 < np.mean(np.argsort(np.argsort(ink_N)) * 6 // len(ink_N) == images.labels_N) < 0.7


def test_position() -> None:
    images, pictures = sample("shapes-position")
    width = (SIZE - 2 * shapes_position.MARGIN) / 8
    measured = []
    for picture in pictures:
        labels_HW, numbers = pieces(picture)
        largest = max(numbers, key=lambda number: np.count_nonzero(labels_HW == number))
        x = ndimage.center_of_mass(labels_HW == largest)[1] + 0.5
        measured.append((x - shapes_position.MARGIN) / width - 0.5)
    assert np.mean(np.abs(np.array(measured) - images.labels_N[:300]) < 0.9) > 0.95


def test_orientation() -> None:
    """Mean shapes of the classes, turned back by their labels, are one shape; by other angles they are not."""
    images = load("shapes-orientation", "test")
    means = []
    for label in range(8):
        total_HW = np.zeros((SIZE, SIZE))
        for image in images.images_NHWC[images.labels_N == label, :, :, 0]:
            shape_HW = (image > np.median(image) + 40).astype(float)
            centre = np.array(ndimage.center_of_mass(shape_HW))
            total_HW += ndimage.shift(shape_HW, (SIZE - 1) / 2 - centre, order=1)
        means.append(total_HW)

    def alike(label: int, turns: int) -> float:
        turned = ndimage.rotate(means[label], 45 * turns, reshape=False, order=1)  # anticlockwise in the picture
        return float(np.corrcoef(turned.ravel(), means[0].ravel())[0, 1])

    for label in range(1, 8):
        right = alike(label, label)
        assert right > 0.97
        assert all(right > alike(label, turns) for turns in range(8) if turns != label)
    tip = max(corners(Shape(outline="arrow", x=14, y=14, radius=6, angle=0, ink=100)))
    assert tip[1] == 14 * OVERSAMPLE and shapes_orientation.CLASSES[0] == "east"


def test_distance() -> None:
    images, pictures = sample("shapes-distance")
    step = (shapes_distance.FURTHEST - shapes_distance.NEAREST) / 6
    errors = []
    for picture, label in zip(pictures, images.labels_N, strict=False):
        labels_HW, numbers = pieces(picture, at_least=3)
        if len(numbers) == 2:
            (y, x), (y_2, x_2) = ndimage.center_of_mass(labels_HW > 0, labels_HW, numbers)
            errors.append((np.hypot(x - x_2, y - y_2) - shapes_distance.NEAREST) / step - 0.5 - label)
    assert len(errors) > 290 and np.mean(np.abs(errors) < 0.75) > 0.97


@pytest.mark.parametrize("name", NAMES)
def test_balanced_and_never_the_same_twice(name: str) -> None:
    train, test = load(name, "train"), load(name, "test")
    assert (len(train), len(test)) == (2000, 1000)
    for images in (train, test):
        counts = np.bincount(images.labels_N)
        assert counts.max() - counts.min() <= 1
    keys = np.concatenate([train.content_keys_N, test.content_keys_N])
    assert len(np.unique(keys)) == len(keys)


@pytest.mark.parametrize("name", NAMES)
def test_ground_does_not_tell(name: str) -> None:
    """The median brightness and the class are independent: the classes' means agree within their errors."""
    images = load(name, "train")
    ground_N = np.median(images.images_NHWC, axis=(1, 2, 3))
    means = [ground_N[images.labels_N == label].mean() for label in range(images.num_classes)]
    assert np.ptp(means) < 5 * ground_N.std() / np.sqrt(len(images) / images.num_classes)


# -- tiles of pictures and shaded relief: what is in a tile, that splits share no pixel, and bad input -----------------


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
        images = load(name + size, split, root=root)
        assert images.images_NHWC.shape[1:] == (side, side, 1) and images.num_classes == len(FILES[name])
        assert set(np.unique(images.labels_N)) == set(range(images.num_classes))
        columns_of[split] = len(images)
    # 10 columns of tiles, 7 to train; 7 rows. Larger tiles begin at the same places and end before the border.
    expected = {"": (7 * 7, 3 * 7), ":56px": (6 * 6, 2 * 6)}[size]
    assert tuple(columns_of.values()) == tuple(count * images.num_classes for count in expected)
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
    forms, turned = terrain.landforms(hill, (90, 75)), terrain.landforms(-hill, (90, 75))
    assert terrain.CLASSES[forms[40, 40]] == "ridge" and terrain.CLASSES[turned[40, 40]] == "valley"
    np.testing.assert_array_equal(np.array([5, 4, 2, 3, 1, 0])[forms], turned)
    assert terrain.CLASSES[forms[40, 0]] == "flat"


def test_terrain_s_splits_share_no_post() -> None:
    """Every test tile differs from every piece of ground that a training tile shows: none of its rows occurs there."""
    if not terrain.available(None):
        pytest.skip("matplotlib carries no elevations here")
    train, test = (load("terrain", split) for split in ("train", "test"))
    rows = lambda s: {row.tobytes() for tile in s.images_NHWC[..., 0] for row in tile}  # noqa: E731
    assert not rows(train) & rows(test)
    assert (len(train), len(test)) == (3_000, 1_500) and "terrain" in registry.names("data set")


# -- nothing that is judged downstream is seen upstream: digits, scripts, font families, look-alikes, near-copies ------


# Letters that some font draws like a digit: 0 1 2 5 6 8 9.
LIKE_DIGITS = "OoQDIlij|ZzSsGbBgqA"
STILL = Variation(rotation=0, shear=0, scale=0, aspect=0, shift=0, warp=0, strokes=(3,), contrast=1)


def families(paths: tuple[Path, ...] | list[Path]) -> set[str]:
    return {str(ImageFont.truetype(str(path), 10).getname()[0]) for path in paths}


def upstream_fonts(split: str) -> list[Path]:
    return [*glyphs.fonts(split, "a"), *glyphs.fonts(split, "§")]


def test_no_digit_and_no_script_of_the_downstream_set_upstream() -> None:
    for char in scripts.CLASSES:
        assert unicodedata.name(char).split()[0] in ("GREEK", "CYRILLIC"), char
    for char in "".join(glyphs.CLASSES):
        assert unicodedata.name(char).split()[0] not in ("GREEK", "CYRILLIC"), char
        assert not unicodedata.category(char).startswith("N"), char
        assert unicodedata.numeric(char, None) is None, char
        assert not set(unicodedata.normalize("NFKD", char)) & set(string.digits), char
        assert char not in LIKE_DIGITS, char


def test_font_families_are_disjoint() -> None:
    groups = {
        "glyphs train": families(upstream_fonts("train")),
        "glyphs test": families(upstream_fonts("test")),
        "scripts train": families(list(scripts.fonts("train"))),
        "scripts test": families(list(scripts.fonts("test"))),
    }
    names = list(groups)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            assert not groups[one] & groups[other], f"{one} and {other} share a family"


def test_computer_modern_draws_letters_only() -> None:
    """Its files put other symbols on other characters' code points."""
    for char in "".join(glyphs.CLASSES):
        drawn_with_it = any(path.name.startswith("cm") for path in glyphs.fonts("train", char))
        assert drawn_with_it == (char in string.ascii_letters), char


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_class_is_drawn_in_both_splits(split: str) -> None:
    for characters in glyphs.CLASSES:
        assert any(has_character(font, char) for char in characters for font in glyphs.fonts(split, char)), characters
    for char in scripts.CLASSES:
        assert all(has_character(font, char) for font in scripts.fonts(split)), char


def drawing(font: Path, char: str, *, rotation: float = 0.0, shear: float = 0.0, aspect: float = 0.0) -> np.ndarray:
    """An undeformed or exactly deformed drawing, blurred, of zero mean and unit length: products are correlations."""
    variation = Variation(
        rotation=abs(rotation), shear=abs(shear), aspect=abs(aspect), scale=0, shift=0, warp=0, strokes=(3,), contrast=1
    )
    numbers_1U = np.full((1, NUMBERS), 0.5)
    numbers_1U[0, :4] = [0.5 + 0.5 * np.sign(value) for value in (rotation, shear, 0.0, aspect)]
    image_HW = next(draw([(font, char)], numbers_1U, variation)).astype(float)
    for axis in (0, 1):
        image_HW = 0.5 * image_HW + 0.25 * (np.roll(image_HW, 1, axis) + np.roll(image_HW, -1, axis))
    flat = image_HW.ravel() - image_HW.mean()
    return flat / np.linalg.norm(flat)


AMOUNTS = {"rotation": 10.0, "shear": 0.2, "aspect": 0.2}
DEFORMATIONS = [{}, *({name: sign * amount} for name, amount in AMOUNTS.items() for sign in (1, -1))]


def bank(fonts: tuple[Path, ...], char: str) -> np.ndarray:
    return np.array([drawing(font, char, **how) for font in fonts for how in DEFORMATIONS])


def alike(one: dict[str, np.ndarray], other: dict[str, np.ndarray], limit: float) -> list[tuple[str, str, float]]:
    pairs = ((a, b, float((x @ y.T).max())) for a, x in one.items() for b, y in other.items() if a != b)
    return [pair for pair in pairs if pair[2] > limit]


def test_no_look_alikes() -> None:
    """Correlation of blurred drawings under small deformations; a copy gives 1, O and 0 about 0.97."""
    sans = matplotlib_fonts("DejaVuSans", "DejaVuSansMono")
    upstream = {c: bank(sans, c) for characters in glyphs.CLASSES for c in characters[:1]}
    upright = [*matplotlib_fonts("DejaVuSerif", "STIXGeneral")]
    upright += [font for font in scripts.fonts("test") if font.stem.endswith("-Regular")]
    assert len(families(upright)) == 6
    greek_cyrillic = {c: bank(tuple(upright), c) for c in scripts.CLASSES}
    digits = {c: bank(matplotlib_fonts("DejaVuSans", "DejaVuSerif", "STIXGeneral"), c) for c in string.digits}
    assert alike({"O": bank(sans, "O")}, digits, 0.9), "the measure does not see that O is like 0"
    assert alike(upstream, digits, 0.87) == []
    assert alike(upstream, greek_cyrillic, 0.87) == []
    assert alike(upstream, upstream, 0.92) == []
    assert alike(greek_cyrillic, greek_cyrillic, 0.92) == []


def unit(images_NHWC: np.ndarray) -> np.ndarray:
    flat_ND = images_NHWC.reshape(len(images_NHWC), -1).astype(np.float32)
    flat_ND -= flat_ND.mean(1, keepdims=True)
    return flat_ND / np.linalg.norm(flat_ND, axis=1, keepdims=True)


def test_no_near_copy_of_a_test_image_upstream() -> None:
    """The nearest training image of every downstream test image, by correlation of pixels."""
    upstream = unit(load("glyphs", "train", num_images=6_000).images_NHWC)
    for name in ("scripts", "fashion-mnist"):
        nearest_N = (unit(load(name, "test", num_images=300).images_NHWC) @ upstream.T).max(1)
        assert nearest_N.max() < 0.97, f"{name}: image {nearest_N.argmax()} is nearly an upstream image"
    planted = unit(np.clip(load("glyphs", "train", num_images=5).images_NHWC.astype(int) + 3, 0, 255))
    assert ((planted @ upstream.T).max(1) > 0.99).all()


def test_lettering_is_drawn_apart_from_its_test_images_and_never_twice() -> None:
    """The characters and fonts are those of `glyphs`, so what is tested above holds; here the images themselves."""
    assert lettering.CLASSES == glyphs.CLASSES
    kept = np.flatnonzero(np.arange(6_000) % 100 % 10 == 3)  # ten classes, 60 images of each
    train = lettering.drawn_by_number(kept, classes=100, split="train", size=28)
    test = lettering.drawn_by_number(kept[:250], classes=100, split="test", size=28)
    among, between = unit(train) @ unit(train).T, unit(test) @ unit(train).T
    assert between.max() < 0.985, "a test image is nearly a training image"
    np.fill_diagonal(among, -1)
    assert len(np.unique(train.reshape(len(train), -1), axis=0)) == len(train)
    assert (among.max(1) > 0.99).mean() < 0.01, "more images are not more information"


def test_a_larger_lettering_begins_with_a_smaller_one() -> None:
    numbers = np.arange(400, 700)
    whole = lettering.drawn_by_number(np.arange(1_000), classes=100, split="train", size=28)
    assert (lettering.drawn_by_number(numbers, classes=100, split="train", size=28) == whole[numbers]).all()
    assert lettering.size("100x3000") == {"train": 300_000, "test": 2_500, "classes": 100}
    for wrong in ("101x10", "100x10:32px", "many"):
        with pytest.raises(UserError):
            lettering.size(wrong)


# -- images of one design are a group ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name, designs", [("scripts", 34 * 4), ("glyphs", 104), ("lettering", 104)])
def test_groups_of_test_images_are_letters_in_families(name: str, designs: int) -> None:
    """Each group is of one class, and there are as many as letters times families: four, or DejaVu Sans Mono alone.
    Training images are grouped by their drawing, of which each class has several to hold out, and none is tested."""
    test, train = load(name, "test"), load(name, "train")
    for images in (test, train):
        assert images.groups_N is not None
        of_group = [np.unique(images.labels_N[images.groups_N == group]) for group in np.unique(images.groups_N)]
        assert all(len(labels) == 1 for labels in of_group)
    assert len(np.unique(test.groups_N)) == designs
    several = [len(np.unique(train.groups_N[train.labels_N == label])) for label in range(train.num_classes)]
    assert min(several) >= 4 and not set(train.groups_N) & set(test.groups_N)


def test_images_of_a_group_are_drawn_with_one_family() -> None:
    """By pixels: the drawing, deformed as the image was, is the image in one face alone, which is of the group's."""
    test, rng = load("scripts", "test"), np.random.default_rng(0)
    rows, fonts = np.flatnonzero(test.labels_N == scripts.CLASSES.index("Ж")), list(scripts.fonts("test"))
    family_of: dict[int, set[str]] = {}
    for place in rng.choice(len(rows), 16, replace=False):
        numbers = uniforms(f"scripts/{scripts.REVISION}/test/Ж/{place}", count=NUMBERS)[None]
        image = test.images_NHWC[rows[place], ..., 0]
        same = [f for f in fonts if np.array_equal(next(draw([(f, "Ж")], numbers, scripts.VARIATION)), image)]
        assert len(same) == 1
        family_of.setdefault(int(test.groups_N[rows[place]]), set()).update(families(same))
    assert len(family_of) > 2 and all(len(names) == 1 for names in family_of.values())
    assert len(set.union(*family_of.values())) == len(family_of)


def test_an_interval_of_scripts_counts_designs() -> None:
    """A network that knows designs, not images: the error over groups is the one that repeated test sets show."""
    test, rng = load("scripts", "test"), np.random.default_rng(0)
    of_N = np.unique(test.groups_N, return_inverse=True)[1]
    known = [(rng.random(of_N.max() + 1) < 0.8)[of_N] for _ in range(400)]
    errors = np.array([cluster_error(right_N, test.groups_N)[0] for right_N in known])
    spread = np.std([right_N.mean() for right_N in known], ddof=1)
    binomial = np.sqrt(0.8 * 0.2 / len(test))
    assert errors.mean() == pytest.approx(spread, rel=0.12)
    assert spread > 3 * binomial


def test_two_few_shot_draws_of_scripts_share_few_images() -> None:
    train = load("scripts", "train")
    (one, _), (other, _) = draw_support(train, data="scripts", shots=(10,), draws=2)
    assert len(one) == 340 and len(np.intersect1d(one, other)) < 0.1 * len(one)


def test_no_letter_of_scripts_leaves_the_image() -> None:
    """The strength follows from its rule: affNIST's ranges, and shifts that keep the largest upright letter inside."""
    v = scripts.VARIATION
    sides = np.exp([v.scale + v.aspect / 2, -v.scale - v.aspect / 2])
    assert sides == pytest.approx([1.2, 0.8], abs=0.03) and (v.rotation, v.shear) == (20, 0.2)
    assert BOX * sides[0] / 2 + v.shift == pytest.approx(SIZE / 2)
    assert (v.warp, v.contrast, v.strokes) == (0, 1, (1,))
    border = load("scripts", "test").images_NHWC[..., 0].astype(float)
    border[:, 1:-1, 1:-1] = 0
    assert (border.max((1, 2)) > 128).mean() < 0.1


def test_pixels_of_the_upstream_sets_are_those_of_their_first_revision() -> None:
    """A change of what is said of images must not draw others: each image follows from its address."""
    first = uniforms("lettering/1/train/F/3", count=NUMBERS)[None]
    of_class = [font for font in glyphs.fonts("train", "F")]
    expected = next(draw([(of_class[3], "F")], first, lettering.VARIATION))
    number = 3 * 100 + lettering.CLASSES.index("F")
    image = lettering.drawn_by_number(np.array([number]), classes=100, split="train", size=28)[0, ..., 0]
    np.testing.assert_array_equal(image, expected)
    drawn_first = uniforms("glyphs/1/test/F/1", count=NUMBERS)[None]
    expected = next(draw([(glyphs.fonts("test", "F")[1], "F")], drawn_first, glyphs.VARIATION))
    test = load("glyphs", "test")
    place = np.flatnonzero(test.labels_N == glyphs.CLASSES.index("F"))[1]
    np.testing.assert_array_equal(test.images_NHWC[place, ..., 0], expected)
