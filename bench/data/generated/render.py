"""Characters drawn from fonts as 28 px grey images, light on black, each a pure function of its address.

Image i of a class is drawn with the font that i selects and deformed by numbers hashed from (stream, class, i): no
generator state, so any subset can be drawn in any order and every longer set contains every shorter one. The same
Pillow and FreeType give the same bytes on every machine; the content hash in a record shows when they do not.

Images of one character are deformations of a few drawings, so they are no independent test images, and say which belong
together (`ImageSet.groups_N`). What a test generalises over is designs of letters. A family's regular, bold and italic
faces are one design, so the test images of one letter in one family are a group, and intervals count these. In 1,937
differences between two networks on the first `scripts` (40 letters in four faces of one family, 50 images of each), the
median standard error was 0.7 points over images, 1.6 over drawings and 2.9 over letters. Training images are grouped by
their drawing, so that none is on both sides where some are held out.
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

if TYPE_CHECKING:  # a plan names what is drawn, and draws nothing
    from PIL import Image, ImageFont

SIZE = 28  # pixels of the finished image
BOX = 20  # the longer side of an undeformed character, as in MNIST
OVERSAMPLE = 3
CANVAS = 96  # of the undeformed master drawing; its character's longer side is MASTER
MASTER = 64
CELLS = 2  # the deformation is bilinear on CELLS x CELLS quadrilaterals
NUMBERS = 8 + 2 * (CELLS + 1) ** 2  # per image: rotation, shear, scale, aspect, dx, dy, stroke, ink, then the mesh


def drawable(root: Path | None, *, fonts: Callable[[str], Sequence[Path]]) -> bool:
    """Whether the fonts of a set are here, which lie below no data root."""
    try:
        fonts("train")
    except UserError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class Variation:
    """How far a drawn character may depart from its font; every amount is the half-width of a uniform range.

    Attributes:
        rotation: degrees. shear: horizontal slant, dx/dy. scale, aspect: natural logarithms of factors.
        shift: pixels of the finished image, fractions included. warp: pixels by which each node of the mesh moves.
        strokes: odd sizes of the brush that thickens the master drawing (1 leaves it), one picked with equal chance.
        contrast: the darkest brightness of the ink, as a fraction of white.
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
    """One split of a set of characters, rendered once and cached.

    Args:
        root: not needed: fonts come with packages.
        per_class: images of each class, by split.
        fonts: (split, character) -> the font files to draw it with; for "a", all of them.
        drawn_since: the revision that the pixels date from, where a later one changed something else.
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
    """The drawings of a class, every (font, character) that there is; its images use them in turn."""
    return [(font, char) for char in characters for font in fonts_of(char) if has_character(font, char)]


def groups_N(
    split: str,
    classes: Sequence[str],
    fonts_of: Callable[[str], Sequence[Path]],
    labels_N: np.ndarray,
    indices_N: np.ndarray,
) -> np.ndarray:
    """uint64: which images belong together, by their classes and numbers in their class; see `ImageSet.groups_N`."""
    groups_of = [[_group(split, font, char) for font, char in faces(each, fonts_of)] for each in classes]
    counts_K = np.array([len(of_class) for of_class in groups_of])
    first_K = np.cumsum(counts_K) - counts_K
    groups = np.array(list(itertools.chain.from_iterable(groups_of)), dtype=np.uint64)
    return groups[first_K[labels_N] + indices_N % counts_K[labels_N]]


def _group(split: str, font: Path, char: str) -> int:
    """A drawing, or of test images the letter in all faces of its family, which a file's name begins with."""
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
    """`per_class` images of every class, in class order.

    Args:
        classes: each a string of one or more characters that count as the same shape ("Cc").
        fonts_of: the font files to draw a character with; a class uses every (font, character) in turn.
        stream: names the random stream; another split or revision is another stream.

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
        master.cache_clear()  # a class's drawings are not needed again
    return {"images": images_NHW[..., None], "labels": np.repeat(np.arange(len(classes)), per_class)}


def draw(of_class: Sequence[tuple[Path, str]], numbers_NU: np.ndarray, variation: Variation) -> Iterator[np.ndarray]:
    """uint8 images (28, 28): the i-th from `of_class[i % len(of_class)]` and row i of NUMBERS numbers in [0, 1)."""
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
    """The corners of each finished image in the master drawing: (N, quadrilaterals, 4 corners x 2), in master pixels.

    A node of the finished image is moved by its jitter, then shift, rotation, shear and scale are undone.
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
    # The order that Pillow expects: upper left, lower left, lower right, upper right.
    corners = (at_NYX2[:, :-1, :-1], at_NYX2[:, 1:, :-1], at_NYX2[:, 1:, 1:], at_NYX2[:, :-1, 1:])
    return np.concatenate(corners, axis=-1).reshape(count, CELLS * CELLS, 8)


@functools.lru_cache(maxsize=4096)
def master(font: Path, char: str, stroke: int = 1) -> Image.Image:
    """The undeformed character, white on a black square of CANVAS pixels, its longer side scaled to MASTER."""
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
    """The drawing of the font for a character that it does not have."""
    return bytes(_face(font, MASTER).getmask("\U0010fffd"))


@functools.cache
def has_character(font: Path, char: str) -> bool:
    """Whether the font draws `char` as something else than its sign for a missing character."""
    drawn = bytes(_face(font, MASTER).getmask(char))
    return any(drawn) and drawn != _missing(font)


def matplotlib_fonts(*names: str) -> tuple[Path, ...]:
    """Font files inside the installed matplotlib, found without importing it.

    Raises:
        UserError: matplotlib, or one of the files, is not there.
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
    """16 hex digits over everything that rendered pixels depend on: settings, font files, Pillow and FreeType."""
    from PIL import Image, features

    digest = hashlib.sha256(repr((parts, Image.__version__, features.version("freetype2"))).encode())
    for font in fonts:
        digest.update(file_sha256(font).encode())
    return digest.hexdigest()[:16]
