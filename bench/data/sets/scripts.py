"""Scripts: Greek and Cyrillic letters in font families that the `glyphs` set never uses; the near downstream set.

The probe learns from STIX and DejaVu Serif and is tested on four other families, two with serifs and two without, of
four faces each: 34 letters, 136 designs of them, 544 drawings, three images of each. Letters that look like a Latin
letter, like a class of `glyphs` or like each other in any of the families are left out, and so are lower-case Cyrillic
letters whose italic is another shape.

How strongly images are deformed was chosen on 27 November 2026 by a rule that looks at no network: the ranges of a
published set of deformed characters, affNIST (T. Tieleman, 2013), are taken as they stand, and nothing else is added.
These are rotations by up to 20 degrees, shears by up to 0.2, and heights and widths from 0.8 to 1.2. A letter is
shifted as far as the largest upright one may be without leaving the image. In revision 1 the ranges were chosen by
results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.data import embedded
from bench.data.data_set import DataSet
from bench.data.generated.render import BOX, SIZE, Variation, drawable, image_set, matplotlib_fonts

REVISION = 2  # 2: several families, more images to learn from, a strength that was chosen beforehand, groups
CLASSES = tuple("ΞΣΦΨαβδεζηθλξςωϞДЖЗЙЦЧЩЪЫЮЯЋЉЊѢѪҐф")
PER_CLASS = {"train": 300, "test": 48}  # two draws of 10 among 300 share 3 %
LARGEST = 0.2  # natural logarithm of a side over the undeformed one
VARIATION = Variation(
    rotation=20.0,
    shear=0.2,
    scale=LARGEST / 2,
    aspect=LARGEST,  # with `scale`, each side varies by up to LARGEST
    shift=(SIZE - BOX * math.exp(LARGEST)) / 2,
    warp=0.0,
    strokes=(1,),
    contrast=1.0,
)
TRAIN = (
    *("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta"),
    *("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
)
TEST = ("NotoSans", "NotoSerif", "FiraSans", "Literata")
FACES = ("Regular", "Bold", "Italic", "BoldItalic")


def fonts(split: str, char: str = "a") -> Sequence[Path]:
    """Font files of a split, the same for every character."""
    if split == "train":
        return matplotlib_fonts(*TRAIN)
    folder = Path(embedded.__file__).with_name("fonts")
    return tuple(folder / f"{family}-{face}.ttf" for family in TEST for face in FACES)


DATASET = DataSet(
    name="scripts",
    revision=REVISION,
    kind="rendered",
    description="28 px rendered Greek and Cyrillic letters, 34 classes, 10,200 + 1,632",
    licence="SIL Open Font License, Bitstream Vera / DejaVu and STIX font licences; the images are drawn here",
    source="Fonts STIXGeneral and DejaVu Serif inside the package matplotlib; Noto Sans, Noto Serif, Fira Sans and "
    "Literata, of which this installation carries the 34 letters",
    how_to_get="It is drawn from the fonts inside matplotlib: install the package matplotlib.",
    images=(10_200, 1_632),
    classes=len(CLASSES),
    side=SIZE,
    load=partial(
        image_set, "scripts", revision=REVISION, classes=CLASSES, per_class=PER_CLASS, variation=VARIATION, fonts=fonts
    ),
    available=partial(drawable, fonts=fonts),
)
