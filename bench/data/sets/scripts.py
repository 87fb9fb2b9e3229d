"""Scripts: Greek and Cyrillic letters in font families that the `glyphs` set never uses; the near downstream set.

The probe learns from STIX and is tested on DejaVu Serif. Letters that look like a Latin letter, like a class of
`glyphs` or like each other are left out, and so are lower-case Cyrillic letters whose italic is another shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.data.data_set import DataSet
from bench.data.generated.render import Variation, drawable, image_set, matplotlib_fonts

REVISION = 1
CLASSES = tuple("ΞΣΦΨΩαβγδεζηθλξςωϞϠДЖЗЙЛЦЧЩЪЫЭЮЯЂЋЉЊѢѪҐф")
PER_CLASS = {"train": 40, "test": 50}
VARIATION = Variation(
    rotation=12.0, shear=0.2, scale=0.2, aspect=0.15, shift=2.0, warp=1.0, strokes=(1, 3, 5), contrast=0.6
)  # not centred: raw pixels are strong where every character sits at the same place
FONTS = {
    "train": ("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
    "test": ("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
}


def fonts(split: str, char: str = "a") -> Sequence[Path]:
    """Font files of a split, the same for every character."""
    return matplotlib_fonts(*FONTS[split])


DATASET = DataSet(
    name="scripts",
    revision=REVISION,
    kind="rendered",
    description="28 px rendered Greek and Cyrillic letters, 40 classes, 1,600 + 2,000",
    licence="Bitstream Vera / DejaVu and STIX font licences (shipped by matplotlib); the images are drawn here",
    source="Fonts STIXGeneral and DejaVu Serif inside the package matplotlib",
    how_to_get="It is drawn from the fonts inside matplotlib: install the package matplotlib.",
    images=(1_600, 2_000),
    classes=len(CLASSES),
    load=partial(
        image_set, "scripts", revision=REVISION, classes=CLASSES, per_class=PER_CLASS, variation=VARIATION, fonts=fonts
    ),
    available=partial(drawable, fonts=fonts),
)
