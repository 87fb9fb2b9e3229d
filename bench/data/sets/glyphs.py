"""Glyphs: letters and symbols rendered from the fonts inside matplotlib, 28 px grey; the default upstream set, on which
models are pre-trained.

Training images come from DejaVu Sans and, for the letters, Computer Modern; test images from DejaVu Sans Mono, so that
no font family is on both sides. Characters that look alike share a class or are left out. Because digits and `scripts`
are downstream sets, on which pre-trained models are evaluated, no digit is in this set, nothing that looks like one (no
o, l, s, z, b, g, q, A, B, D, …), and nothing that looks like a letter of `scripts`. Only A to Z and a to z of Computer
Modern are used: its files put other symbols on other characters' code points.

The strength of the deformation was chosen by looking at results: more of it did not help the larger models and kept the
small ones from learning at all (`docs/limits.md`).
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.data.data_set import DataSet
from bench.data.generated.render import Variation, drawable, image_set, matplotlib_fonts

REVISION = 2  # 2: images of one letter in one family are a group
# One class per entry. They are chosen so that no two look alike (correlation of blurred drawings under small
# deformations), none looks like a digit, and none looks like a class of `scripts`; tests/data/test_generated.py checks
# it.
_TABLE = (
    "Cc F H J K L M N P R T Vv Ww Xx d f k m n r t u y ɐ ɔ ɬ ɮ ɲ ɶ ʁ ʇ ʌ ʍ ʎ ʞ ʡ ʤ "
    "Բ Դ Է Ը Թ Ի Խ Հ Մ Ն Շ Պ Ռ Ր Ֆ թ ժ լ խ ռ և ო ჟ ფ ჩ ჭ ჯ ჱ æ Æ Þ "
    "# $ % & @ § ¶ © ¥ £ € ¤ ± ≠ « √ ∞ ∴ ‡ → ♪ ♫ ♂ ☿ ♄ ♃ ♠ ⌘ ⇄ ⊞ ▲ ⌂"
)
CLASSES = tuple(_TABLE.split())
PER_CLASS = {"train": 300, "test": 25}
VARIATION = Variation(
    rotation=8.0, shear=0.15, scale=0.12, aspect=0.12, shift=1.0, warp=0.75, strokes=(1, 3), contrast=0.7
)

TRAIN_FONTS = ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique")
TRAIN_FONTS_LETTERS = ("cmr10", "cmb10", "cmss10", "cmtt10", "cmti10")
TEST_FONTS = ("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique")


def fonts(split: str, char: str = "a") -> Sequence[Path]:
    """Return the font files in which the character `char` is rendered in a split, "train" or "test"."""
    if split == "test":
        return matplotlib_fonts(*TEST_FONTS)
    return matplotlib_fonts(*TRAIN_FONTS, *(TRAIN_FONTS_LETTERS if char in string.ascii_letters else ()))


DATASET = DataSet(
    name="glyphs",
    revision=REVISION,
    kind="rendered",
    description="28 px rendered letters and symbols, 100 classes, 30,000 + 2,500",
    licence="Bitstream Vera / DejaVu and BaKoMa font licences (shipped by matplotlib); the images are drawn here",
    source="Fonts DejaVu Sans, DejaVu Sans Mono and Computer Modern inside the package matplotlib",
    how_to_get="It is drawn from the fonts inside matplotlib: install the package matplotlib.",
    images=(30_000, 2_500),
    classes=len(CLASSES),
    side=28,
    load=partial(
        image_set,
        "glyphs",
        revision=REVISION,
        classes=CLASSES,
        per_class=PER_CLASS,
        variation=VARIATION,
        fonts=fonts,
        drawn_since=1,
    ),
    available=partial(drawable, fonts=fonts),
)
