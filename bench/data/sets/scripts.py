"""Scripts: Greek and Cyrillic letters in font families that `glyphs` never uses. Of the downstream sets, on which
pre-trained models are evaluated, it is most similar to the default upstream set, `glyphs`.

The few-shot probe learns from STIX and DejaVu Serif and is tested on four other families, two with serifs and two
without, with four faces each: 34 letters, 136 designs of them (a letter in a family), 544 drawings (a letter in a
face), three images of each drawing. Letters that look like a Latin letter, like a class of `glyphs` or like each other
in any of the families are left out, and so are lower-case Cyrillic letters whose italic has another shape.

The strength of the deformation was chosen on 27 November 2026 by a rule that does not depend on any network: the ranges
of a published set of deformed characters, affNIST (T. Tieleman, 2013), are used unchanged, and nothing else is added.
They are rotations by up to 20 degrees, shears by up to 0.2, and heights and widths from 0.8 to 1.2. A letter is shifted
by at most as much as the largest upright one can be without leaving the image. In revision 1 the ranges were chosen by
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

REVISION = 2  # 2: several families, more training images, a strength of deformation chosen in advance, groups
CLASSES = tuple("ΞΣΦΨαβδεζηθλξςωϞДЖЗЙЦЧЩЪЫЮЯЋЉЊѢѪҐф")
PER_CLASS = {"train": 300, "test": 48}  # two few-shot samples of 10 from 300 share 3 % of their images
LARGEST = 0.2  # largest change of a side: natural logarithm of its ratio to the undeformed side
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
    """Return the font files of a split, "train" or "test"; they are the same for every character `char`."""
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
