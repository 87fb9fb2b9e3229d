"""Characters rendered from fonts as 28 px grey images, light on black. Each image is a pure function of (stream, class,
index), where the name of the random stream states the set, its revision and the split.

Image i of a class is rendered with the font that i selects, and deformed by numbers hashed from (stream, class, i).
There is no generator state, so any subset can be rendered in any order, and every longer set contains every shorter
one. The same Pillow and FreeType give the same bytes on every machine; the content hash in a record shows when they do
not.

Images of one character are deformations of a few drawings (a character in one font), so test images are not
independent; `ImageSet.groups_N` says which belong together. A test is meant to say how well a model does on other
designs of letters. A font family's regular, bold and italic faces are one design, so the test images of one letter in
one family form a group, and intervals are computed over groups. In 1,937 differences between two networks on the first
revision of `scripts` (40 letters in four faces of one family, 50 images of each), the median standard error was 0.7
points over images, 1.6 over drawings and 2.9 over letters. Training images are grouped by drawing, so that no drawing
is on both sides where some images are held out.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.core.errors import UserError
from bench.core.files import file_sha256
from bench.core.seeds import uniforms
from bench.data import cache
from bench.data.image_set import ImageSet
from bench.data.readable import in_package

if TYPE_CHECKING:  # imported in functions only: a plan uses this module without rendering anything
    from PIL import Image, ImageFont

SIZE = 28  # pixels per side of the finished image
BOX = 20  # pixels of the longer side of an undeformed character in the finished image, as in MNIST
OVERSAMPLE = 3
CANVAS = 96  # pixels per side of the undeformed master drawing, whose character has MASTER pixels on its longer side
MASTER = 64
CELLS = 2  # the deformation is bilinear on CELLS x CELLS quadrilaterals
NUMBERS = 8 + 2 * (CELLS + 1) ** 2  # per image: rotation, shear, scale, aspect, dx, dy, stroke, ink, then mesh nodes


def drawable(root: Path | None, *, fonts: Callable[[str], Sequence[Path]]) -> bool:
    """Whether the fonts of a rendered set are installed. `root` is ignored, because fonts do not lie in the data root.
    `fonts`: split -> its font files; raises a UserError if they are missing."""
    try:
        fonts("train")
    except UserError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Variation:
    """How far a rendered character may depart from its font. Amounts are half-widths of uniform ranges around zero,
    except `strokes` and `contrast`.

    Attributes:
        rotation: degrees.
        shear: horizontal slant, dx/dy.
        scale: natural logarithm of the factor by which the character is enlarged.
        aspect: natural logarithm of the factor by which its ratio of width to height changes.
        shift: pixels of the finished image, fractions included.
        warp: pixels by which each node of the mesh moves.
        strokes: odd sizes of the filter that thickens the master drawing (1 does nothing); one is chosen at random.
        contrast: the lowest brightness of a character, as a fraction of white.
    """

    rotation: float = 12.0
    shear: float = 0.2
    scale: float = 0.15
    aspect: float = 0.15
    shift: float = 1.5
    warp: float = 1.0
    strokes: tuple[int, ...] = (1, 3, 5)
    contrast: float = 0.6


def image_set(
    name: str,
    split: str,
    *,
    root: Path | None,
    revision: int,
    classes: tuple[str, ...],
    per_class: Mapping[str, int],
    variation: Variation,
    fonts: Callable[[str, str], Sequence[Path]],
    drawn_since: int | None = None,
) -> ImageSet:
    """Return one split of a set of characters, rendered once and cached.

    Args:
        root: ignored, because fonts come with packages.
        classes: strings of one or more characters that count as the same class ("Cc").
        per_class: split -> number of images of each class.
        variation: how far characters are deformed.
        fonts: (split, character) -> font files to render it with; for "a" it must return all fonts.
        drawn_since: revision since which the pixels are unchanged, if a later revision changed something else; else
            None.
    """
    of_split, count = functools.partial(fonts, split), per_class[split]
    key = f"{name}-r{revision}-{split}-{fingerprint(revision, classes, count, variation, fonts=of_split('a'))}"
    stream = f"{name}/{drawn_since or revision}/{split}"
    build = functools.partial(render_classes, classes, of_split, per_class=count, variation=variation, stream=stream)
    arrays = cache.arrays(key, build)
    return ImageSet(
        name=name,
        split=split,
        images_NHWC=arrays["images"],
        labels_N=arrays["labels"],
        class_names=classes,
        kind="rendered",
        source="rendered from fonts",
        groups_N=groups_N(split, classes, of_split, arrays["labels"], np.arange(len(arrays["labels"])) % count),
    )


def faces(characters: str, fonts_of: Callable[[str], Sequence[Path]]) -> list[tuple[Path, str]]:
    """Return the drawings of a class, which its images use in turn: all pairs (font, character) of its `characters` and
    their fonts (`fonts_of`: character -> font files) in which the font has the character."""
    return [(font, char) for char in characters for font in fonts_of(char) if has_character(font, char)]


def groups_N(
    split: str,
    classes: Sequence[str],
    fonts_of: Callable[[str], Sequence[Path]],
    labels_N: np.ndarray,
    indices_N: np.ndarray,
) -> np.ndarray:
    """Return the group of each image, uint64 (N,): equal for images that are not independent (see `_group`).

    Args:
        fonts_of: character -> font files to render it with.
        labels_N: class of each image.
        indices_N: index of each image within its class.
    """
    groups_of = [[_group(split, font, char) for font, char in faces(each, fonts_of)] for each in classes]
    counts_K = np.array([len(of_class) for of_class in groups_of])
    first_K = np.cumsum(counts_K) - counts_K
    groups = np.array(list(itertools.chain.from_iterable(groups_of)), dtype=np.uint64)
    return groups[first_K[labels_N] + indices_N % counts_K[labels_N]]


def _group(split: str, font: Path, char: str) -> int:
    """Return the group of a drawing (`char` in `font`), a 64-bit hash. In training each drawing is a group; in the test
    split, a letter in all faces of a font family. A family is the part of a font's file name before the first "-"."""
    drawn = font.stem if split == "train" else font.stem.partition("-")[0]
    return int.from_bytes(hashlib.sha256(f"{split}/{drawn}/{char}".encode()).digest()[:8], "little")


def render_classes(
    classes: Sequence[str],
    fonts_of: Callable[[str], Sequence[Path]],
    *,
    per_class: int,
    variation: Variation,
    stream: str,
) -> Mapping[str, np.ndarray]:
    """Render `per_class` images of every class, in class order.

    Args:
        classes: strings of one or more characters that count as the same class ("Cc").
        fonts_of: character -> font files to render it with; a class uses all (font, character) pairs in turn.
        variation: how far characters are deformed.
        stream: name of the random stream; each split and revision has its own.

    Returns:
        {"images": uint8 (N, 28, 28, 1), "labels": int64 (N)}.
    """
    images_NHW = np.empty((len(classes) * per_class, SIZE, SIZE), dtype=np.uint8)
    row = 0
    for characters in classes:
        of_class = faces(characters, fonts_of)
        if not of_class:
            raise ValueError(f"no font holds any of {characters!r}")
        addresses = [f"{stream}/{characters}/{index}" for index in range(per_class)]
        numbers_NU = np.stack([uniforms(address, count=NUMBERS) for address in addresses])
        for index, drawn_HW in enumerate(draw(of_class, numbers_NU, variation)):
            images_NHW[row + index] = drawn_HW
        row += per_class
        master.cache_clear()  # the drawings of this class are not needed again
    return {"images": images_NHW[..., None], "labels": np.repeat(np.arange(len(classes)), per_class)}


def draw(of_class: Sequence[tuple[Path, str]], numbers_NU: np.ndarray, variation: Variation) -> Iterator[np.ndarray]:
    """Yield uint8 images (28, 28) of one class. Image i is made from the drawing `of_class[i % len(of_class)]`, a pair
    (font, character), and from row i of `numbers_NU`, which has NUMBERS random numbers in [0, 1)."""
    from PIL import Image

    corners_NQ8 = _corners(numbers_NU, variation)
    stroke_N = (numbers_NU[:, 6] * len(variation.strokes)).astype(int)
    ink_N = 1.0 - (1.0 - variation.contrast) * numbers_NU[:, 7]
    side = SIZE * OVERSAMPLE
    edges = [round(side * cell / CELLS) for cell in range(CELLS + 1)]
    boxes = [(edges[x], edges[y], edges[x + 1], edges[y + 1]) for y in range(CELLS) for x in range(CELLS)]
    for index, quads in enumerate(corners_NQ8.tolist()):
        font, char = of_class[index % len(of_class)]
        warped = master(font, char, variation.strokes[stroke_N[index]]).transform(
            (side, side),
            Image.Transform.MESH,
            list(zip(boxes, quads, strict=True)),
            resample=Image.Resampling.BILINEAR,
            fillcolor=0,
        )
        yield np.rint(np.asarray(warped.reduce(OVERSAMPLE)) * ink_N[index]).astype(np.uint8)


def _corners(numbers_NU: np.ndarray, variation: Variation) -> np.ndarray:
    """Return where the corners of the mesh's quadrilaterals lie in the master drawing, in its pixels: (N,
    quadrilaterals, 8), four corners (x, y) for each. `numbers_NU`: random numbers in [0, 1), one row per image.

    The inverse map is computed: each node of the finished image's mesh is moved at random (`warp`), then shift,
    rotation, shear and scale are undone.
    """
    count = len(numbers_NU)
    signed_NU = 2.0 * numbers_NU - 1.0
    angle_N = signed_NU[:, 0] * math.radians(variation.rotation)
    shear_N = signed_NU[:, 1] * variation.shear
    scale_N, aspect_N = signed_NU[:, 2] * variation.scale, signed_NU[:, 3] * variation.aspect
    x_scale_N, y_scale_N = np.exp(scale_N + aspect_N / 2), np.exp(scale_N - aspect_N / 2)
    grid = np.linspace(0.0, SIZE, CELLS + 1)
    nodes_YX2 = np.stack(np.meshgrid(grid, grid), axis=-1)  # last axis: x, y
    jitter_NYX2 = signed_NU[:, 8:].reshape(count, CELLS + 1, CELLS + 1, 2) * variation.warp
    shift_N2 = signed_NU[:, 4:6] * variation.shift
    at_NYX2 = nodes_YX2 - SIZE / 2 - shift_N2[:, None, None] + jitter_NYX2
    cos_N, sin_N = np.cos(angle_N)[:, None, None], np.sin(angle_N)[:, None, None]
    x_NYX = cos_N * at_NYX2[..., 0] + sin_N * at_NYX2[..., 1]
    y_NYX = cos_N * at_NYX2[..., 1] - sin_N * at_NYX2[..., 0]
    x_NYX = (x_NYX - shear_N[:, None, None] * y_NYX) / x_scale_N[:, None, None]
    y_NYX = y_NYX / y_scale_N[:, None, None]
    at_NYX2 = np.stack([x_NYX, y_NYX], axis=-1) * (MASTER / BOX) + CANVAS / 2
    # Pillow expects the corners in this order: upper left, lower left, lower right, upper right.
    corners = (at_NYX2[:, :-1, :-1], at_NYX2[:, 1:, :-1], at_NYX2[:, 1:, 1:], at_NYX2[:, :-1, 1:])
    return np.concatenate(corners, axis=-1).reshape(count, CELLS * CELLS, 8)


@functools.lru_cache(maxsize=4096)
def master(font: Path, char: str, stroke: int = 1) -> Image.Image:
    """Render a character without deformation, white on a black square of CANVAS pixels per side, its longer side scaled
    to MASTER pixels. `stroke`: size of the filter that thickens it; 1 does nothing.

    Raises:
        ValueError: the font renders nothing for this character.
    """
    from PIL import Image, ImageFilter

    face = _face(font, 2 * MASTER)
    left, top, right, bottom = face.getbbox(char)
    if right <= left or bottom <= top:
        raise ValueError(f"{font.name} draws nothing for {char!r}")
    mask, _ = face.getmask2(char, mode="L")
    drawn = Image.frombytes("L", mask.size, bytes(mask))
    drawn = drawn.crop(drawn.getbbox())
    factor = MASTER / max(drawn.size)
    size = (max(1, round(drawn.width * factor)), max(1, round(drawn.height * factor)))
    drawn = drawn.resize(size, Image.Resampling.BOX if factor < 1 else Image.Resampling.BILINEAR)
    canvas = Image.new("L", (CANVAS, CANVAS))
    canvas.paste(drawn, ((CANVAS - size[0]) // 2, (CANVAS - size[1]) // 2))
    return canvas.filter(ImageFilter.MaxFilter(stroke)) if stroke > 1 else canvas


@functools.lru_cache(maxsize=128)
def _face(font: Path, size: int) -> ImageFont.FreeTypeFont:
    from PIL import ImageFont

    return ImageFont.truetype(str(font), size, layout_engine=ImageFont.Layout.BASIC)


@functools.cache
def _missing(font: Path) -> bytes:
    """Return the pixels that the font renders in place of a character that it does not have."""
    return bytes(_face(font, MASTER).getmask("\U0010fffd"))


@functools.cache
def has_character(font: Path, char: str) -> bool:
    """Whether the font has the character: it renders something other than its sign for missing characters
    (`_missing`)."""
    drawn = bytes(_face(font, MASTER).getmask(char))
    return any(drawn) and drawn != _missing(font)


def matplotlib_fonts(*names: str) -> tuple[Path, ...]:
    """Return the paths of fonts inside the installed matplotlib, found without importing it. `names`: their file names
    without ".ttf".

    Raises:
        UserError: matplotlib or one of the files is missing.
    """
    folder = in_package("matplotlib", "mpl-data/fonts/ttf")
    if folder is None:
        raise UserError("Rendered characters need the fonts inside matplotlib.", "Install the package matplotlib.")
    paths = tuple(folder / f"{name}.ttf" for name in names)
    for path in paths:
        if not path.is_file():
            raise UserError(f"matplotlib's font {path.name} is not in {folder}.", "Reinstall the package matplotlib.")
    return paths


def fingerprint(*parts: object, fonts: Sequence[Path]) -> str:
    """Return 16 hex digits that identify everything that rendered pixels depend on: settings (`parts`, of which the
    `repr` is hashed), font files, and the versions of Pillow and FreeType."""
    from PIL import Image, features

    digest = hashlib.sha256(repr((parts, Image.__version__, features.version("freetype2"))).encode())
    for font in fonts:
        digest.update(file_sha256(font).encode())
    return digest.hexdigest()[:16]
