"""Finds training images of one data set that are copies of test images of another, and draws the pairs so that they can
be judged by eye."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
from PIL import Image

from bench.core import files
from bench.core.errors import UserError
from bench.data import dedup
from bench.data.image_set import ImageSet
from bench.data.load import load, parse

ACROSS, SCALE = 12, 3  # pairs in a row; factor by which images are enlarged, up to MAX_SIDE
MAX_SIDE, GAP = 112, 12  # pixels per side of an image at most, and between pairs
MAX_PAIRS = 600  # pairs that a picture shows


def compare(upstream: str, downstream: str, *, root: Path | None, picture: Path | None, as_json: bool) -> str:
    """Find the training images of one data set that are copies of test images of another.

    Args:
        upstream: name of the set with the training images; name@N uses N of them.
        downstream: name of the set with the test images.
        root: folder with data sets that are not installed.
        picture: path of a .png to which the pairs are drawn, upstream above downstream; None for no picture.
        as_json: return JSON instead of text.

    Returns:
        The number of copies as text; or, as JSON, positions, classes and residual (`Duplicates.residual_M`) of every
        pair.

    Raises:
        UserError: a name is unknown, data is missing, or the picture cannot be written.
    """
    if picture is not None and (picture.suffix != ".png" or not picture.absolute().parent.is_dir()):
        raise UserError(f"No picture can be written to {picture}.", "Name a .png in a folder that is there.")
    name, size = parse(upstream)
    train = load(name, "train", root=root, num_images=size)
    test = load(downstream, "test", root=root)
    pairs = dedup.find(train, test)
    if picture is not None and len(pairs):
        data = io.BytesIO()
        Image.fromarray(contact_sheet(train, test, pairs)).save(data, "PNG", optimize=True)
        files.write_bytes(picture, data.getvalue())
    return json.dumps(rows(train, test, pairs), indent=1) if as_json else summary(train, test, pairs, picture=picture)


def summary(upstream: ImageSet, downstream: ImageSet, found: dedup.Duplicates, *, picture: Path | None = None) -> str:
    """Return the numbers of pairs of copies, and of images in them, as text for people.

    Args:
        upstream, downstream: the sets that were compared.
        found: the pairs of copies.
        picture: path of the picture of the pairs; None if none was asked for.
    """
    ups, downs = (len(np.unique(place_M)) for place_M in (found.upstream_M, found.downstream_M))
    lines = [
        f"{len(found):,} pairs: {ups:,} of {len(upstream):,} training images of {upstream.name} are copies of "
        f"{downs:,} of {len(downstream):,} test images of {downstream.name}",
        f"  {int(found.flipped_M.sum()):,} of them mirrored; {found.candidates:,} candidates by their hashes",
    ]
    if picture is not None:
        shown = f"{min(len(found), MAX_PAIRS):,} pairs, the surest first: {picture}"
        lines.append(f"  {shown}" if len(found) else "  no pair, no picture")
    return "\n".join(lines)


def rows(upstream: ImageSet, downstream: ImageSet, found: dedup.Duplicates) -> list[dict[str, object]]:
    """Return a row for each pair of copies: positions in the two sets, class names, the residual
    (`Duplicates.residual_M`), and whether one image is mirrored."""
    return [
        {
            "upstream": int(up),
            "downstream": int(down),
            "upstream_class": upstream.class_names[upstream.labels_N[up]],
            "downstream_class": downstream.class_names[downstream.labels_N[down]],
            "residual": float(residual),
            "mirrored": bool(flipped),
        }
        for up, down, residual, flipped in zip(
            found.upstream_M, found.downstream_M, found.residual_M, found.flipped_M, strict=True
        )
    ]


def contact_sheet(upstream: ImageSet, downstream: ImageSet, found: dedup.Duplicates) -> np.ndarray:
    """Draw pairs of copies (`found`), each as the upstream image above the downstream image, the smallest residual
    first. Return uint8 pixels, (H, W), or (H, W, 3) if either set is in colour."""
    order = np.argsort(found.residual_M, kind="stable")[:MAX_PAIRS]
    pairs = zip(found.upstream_M[order].tolist(), found.downstream_M[order].tolist(), strict=True)
    mode = "L" if upstream.images_NHWC.shape[3] == downstream.images_NHWC.shape[3] == 1 else "RGB"
    side = min(MAX_SIDE, SCALE * upstream.images_NHWC.shape[1])
    step_x, step_y = side + GAP, 2 * side + GAP
    sheet = Image.new(mode, (step_x * min(ACROSS, len(order)) + GAP, step_y * -(-len(order) // ACROSS) + GAP), "white")
    for place, (up, down) in enumerate(pairs):
        for below, pixels_HWC in enumerate((upstream.images_NHWC[up], downstream.images_NHWC[down])):
            image = Image.fromarray(pixels_HWC[..., 0] if pixels_HWC.shape[2] == 1 else pixels_HWC).convert(mode)
            corner = (GAP + step_x * (place % ACROSS), GAP + step_y * (place // ACROSS) + side * below)
            sheet.paste(image.resize((side, side), Image.Resampling.NEAREST), corner)
    return np.asarray(sheet)
