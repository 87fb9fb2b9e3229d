"""Nothing that is judged downstream is seen upstream: digits, scripts, font families, look-alikes, near-copies."""

from __future__ import annotations

import string
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import ImageFont

from bench.core.errors import UserError
from bench.data.generated.render import NUMBERS, Variation, draw, has_character, matplotlib_fonts
from bench.data.load import load
from bench.data.sets import glyphs, lettering, scripts

# Letters that some font draws like a digit: 0 1 2 5 6 8 9.
LIKE_DIGITS = "OoQDIlij|ZzSsGbBgqA"
STILL = Variation(rotation=0, shear=0, scale=0, aspect=0, shift=0, warp=0, strokes=(3,), contrast=1)


def families(paths: tuple[Path, ...] | list[Path]) -> set[str]:
    return {str(ImageFont.truetype(str(path), 10).getname()[0]) for path in paths}


def upstream_fonts(split: str) -> list[Path]:
    return [*glyphs.fonts(split, "a"), *glyphs.fonts(split, "§")]


def test_no_digit_upstream() -> None:
    for char in "".join(glyphs.CLASSES):
        assert not unicodedata.category(char).startswith("N"), char
        assert unicodedata.numeric(char, None) is None, char
        assert not set(unicodedata.normalize("NFKD", char)) & set(string.digits), char
        assert char not in LIKE_DIGITS, char


def test_no_script_of_the_downstream_set_upstream() -> None:
    for char in scripts.CLASSES:
        assert unicodedata.name(char).split()[0] in ("GREEK", "CYRILLIC"), char
    for char in "".join(glyphs.CLASSES):
        assert unicodedata.name(char).split()[0] not in ("GREEK", "CYRILLIC"), char


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
    greek_cyrillic = {c: bank(matplotlib_fonts("DejaVuSerif", "STIXGeneral"), c) for c in scripts.CLASSES}
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
        test = load(name, "test", num_images=300)
        nearest_N = (unit(test.images_NHWC) @ upstream.T).max(1)
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
