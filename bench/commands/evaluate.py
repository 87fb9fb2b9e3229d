"""Judge a checkpoint by its own classifier on images whose classes it knows, beside the published number.

Nothing is trained. Images are prepared as the checkpoint's own library prepares them (timm's validate.py, torchvision's
weights, transformers' processor), and every image counts.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.core.cli import folder, names_list, parser, positive
from bench.core.errors import EXIT_OK, UserError, command, several_labels
from bench.core.formatting import percent, signed
from bench.study import registry

if TYPE_CHECKING:
    from bench.data.labels import Labels
    from bench.tasks._own_head import OwnHeadShares, Share
    from vit.model_family import Classifier

EXAMPLES = """examples:
  vit-bench evaluate --model timm:vit_small_patch16_224.augreg_in1k+pretrained --data imagenet --data-root ~/data
  vit-bench evaluate --model timm:tf_efficientnet_lite0.in1k --checkpoint lite0.pth --data imagenet/val
  vit-bench evaluate --model hf:google/vit-base-patch16-224 --data imagenetv2-matched-frequency-format-val
  vit-bench evaluate --model hf:google/vit-base-patch16-224 --data photos/pets --classes pets.csv
  vit-bench evaluate --model torchvision:resnet50+pretrained --data folder:my-cats --data-root photos --json

Folders of images are named by WordNet ids (n01440764), by the checkpoint's names of classes, or by their numbers; where
they have other names, --classes says which are which: a row for each, several of the checkpoint's with | between them.
real.json (github.com/google-research/reassessed-imagenet) in the folder or above it adds the ReaL labels. Published
numbers are timm's and torchvision's own; intervals are Wilson's at 95 %, over images."""


@command
def main(argv: list[str] | None = None) -> int:
    p = parser("vit-bench evaluate", (__doc__ or "").strip(), EXAMPLES, plugins=registry.add_plugins)
    p.add_argument("--model", required=True, help="timm:NAME+pretrained, torchvision:NAME+pretrained or hf:ORG/NAME")
    p.add_argument("--checkpoint", type=folder, help="a file of its weights, in its library's own names")
    p.add_argument("--data", required=True, help="a folder of images per class, or a set that is kept as one")
    p.add_argument("--labels", type=folder, metavar="TABLE", help="table of the labels of the folder's images")
    p.add_argument(
        "--label-columns", type=names_list, default=(), metavar="ROLE=COLUMN,…", help="such as label=species"
    )
    p.add_argument("--data-root", type=folder, help="folder with data sets that are not installed")
    p.add_argument(
        "--classes",
        type=folder,
        metavar="TABLE.csv",
        help="which class of the checkpoint each class of the images is: rows such as cat,n02123045|n02123159",
    )
    p.add_argument(
        "--published",
        choices=("in1k", "v2", "a", "r", "sketch", "none"),
        help="the test set that this is, whose published numbers stand beside (default: as its names say)",
    )
    p.add_argument("--device", default="cpu", help="such as cpu, cuda (default cpu)")
    p.add_argument("--batch", type=positive, default=64, metavar="N", help="images at a time (default 64)")
    args = p.parse_args(argv)
    classifier, judged = _judged(args)
    if args.json:
        print(json.dumps(_facts(args, classifier, judged), indent=2))
    else:
        print("\n".join(_text(args, classifier, judged)))
    return EXIT_OK


def _judged(args: argparse.Namespace) -> tuple[Classifier, OwnHeadShares]:
    from bench.core.device import check_usable
    from bench.data.sets.folder import About, contents
    from bench.tasks import _own_head

    registry.check_model(args.model)
    if args.checkpoint is not None and not args.checkpoint.is_file():
        raise UserError(f"There is no checkpoint {args.checkpoint}.", "Name a file of weights.")
    if args.checkpoint is None and not registry.comes_trained(args.model):
        what = f"{args.model} comes without trained weights, and so without a classifier that knows anything."
        raise UserError(what, f"Add +pretrained ({args.model}+pretrained), or --checkpoint FILE.")
    place = place_of(args.data, root=args.data_root)
    about = About(labels=_labels(args, place))
    source, names = _own_head.test_images(
        place, lambda folder: contents(folder, about), labelled=about.labels is not None
    )
    classifier = registry.own_classifier(args.model, args.checkpoint)
    check_usable(args.device)
    given = None if args.published is None else args.published.replace("none", "")
    from bench.data.progress import Progress

    progress = Progress(f"judging images by {args.model}", len(source))
    return classifier, _own_head.judge(
        classifier,
        source,
        names,
        folder=place,
        device=args.device,
        batch=args.batch,
        test_set=given,
        table=args.classes,
        step=progress.step,
    )


def _labels(args: argparse.Namespace, place: Path) -> Labels | None:
    """Read the table that holds the labels of the images in the folder `place`: the table named by --labels, else the
    one in the folder. Return None without a table; then the names of subfolders are the classes.

    Raises:
        UserError: the table cannot be read (`bench.data.labels`), or has several labels per image.
    """
    from bench.core.data_settings import asked_columns
    from bench.data import labels

    tables = [args.labels] if args.labels else labels.own_tables(place)
    found = labels.read(tables, place, asked_columns(args.label_columns)) if tables else None
    if found is not None and found.several:
        raise several_labels(found.path, for_what="a checkpoint's own classifier")
    return found


def place_of(data: str, *, root: Path | None) -> Path:
    """Return the folder of a set of images: `data` itself if it is a folder, else the folder of the data set of this
    name. `root`: folder with data sets that are not installed.

    Raises:
        UserError: there is no such folder, or the data set is not kept as image files.
    """
    from bench.data.load import data_set

    if Path(data).is_dir():
        return Path(data)
    base, _, option = data.partition(":")
    known = data_set(base)
    if known.places is None:
        what = f"{data} is not kept as files of images, which a checkpoint's own library could prepare."
        raise UserError(what, "Give a folder of images per class: --data photos/flowers, folder:NAME or imagenet.")
    places = known.places(option, root=root)
    if not places or not places[0].is_dir():
        raise UserError(f"{data} is not on this machine.", known.how_to_get)
    return places[0]


def _facts(args: argparse.Namespace, classifier: Classifier, judged: OwnHeadShares) -> dict[str, Any]:
    """Return the accuracies of a checkpoint's classifier, with what they were measured on, as JSON types."""
    return {
        "model": args.model,
        "data": args.data,
        "test_set": judged.test_set,
        "images": judged.images,
        "classes": judged.classes,
        "num_classes": judged.num_classes,
        "matched": judged.matched,
        "prepared": classifier.said,
        "publisher": classifier.publisher,
        "shares": [
            dataclasses.asdict(one) | {"value": one.value, "published_inside": one.agrees} for one in judged.shares
        ],
    }


def _text(args: argparse.Namespace, classifier: Classifier, judged: OwnHeadShares) -> list[str]:
    """Return the accuracies of a checkpoint's classifier as lines of text, with the published ones beside them."""
    from bench.tasks._own_head import PARTS, SETS

    of = "all" if judged.classes == judged.num_classes else f"{judged.classes:,} of"
    which = f", {SETS[judged.test_set][0]}" if judged.test_set else ""
    lines = [
        f"{args.model}, its own classifier, on {args.data}{which}: {judged.images:,} images of {of} its "
        f"{judged.num_classes:,} classes, found {judged.matched}",
        f"  images: {classifier.said}",
        f"  {'':36}{'here':>8}  {'95 % interval':16}{'images':>8}  {'published':>9}",
    ]
    width = max(36, *(len(one.name) + 2 for one in judged.shares))
    lines += [_line(one, width) for one in judged.shares]
    compared = [one for one in judged.shares if one.published is not None]
    if not compared:
        why = "of these images" if not judged.test_set else "of this checkpoint on this set"
        lines.append(f"  No published number {why} is known here.")
        return lines
    lines.append(f"  Published: {classifier.publisher}, on the whole set.")
    if judged.classes < judged.num_classes and judged.test_set not in PARTS:
        lines.append(f"  It is of all {judged.num_classes:,} classes, and these images are of {judged.classes:,}.")
        return lines
    outside = [one for one in compared if not one.agrees]
    gaps = ", ".join(f"{one.name} by {signed(one.value - (one.published or 0))} points" for one in outside)
    if outside:
        lines.append(
            f"  The published number is outside the interval: {gaps}. Other images, labels, sizes or weights explain "
            "that, or chance, in one case of twenty."
        )
    else:
        lines.append("  The published number is inside the interval.")
    return lines


def _line(one: Share, width: int) -> str:
    published = "–" if one.published is None else f"{100 * one.published:.1f}"
    ends = f"[{percent(one.low)}, {percent(one.high)}]"
    return f"  {one.name:{width}}{percent(one.value):>8}  {ends:16}{one.images:>8,}  {published:>9}"


if __name__ == "__main__":
    sys.exit(main())
