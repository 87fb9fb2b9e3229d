"""Terrain: shaded reliefs of radar elevations in the Appalachians; the class is the landform at the centre, one of six.

Elevations: NASA's Shuttle Radar Topography Mission, 3 arc seconds, around Jacksboro, Tennessee, as shipped in
matplotlib. An image is the relief of 28 x 28 posts (points with an elevation; about 2 x 2.6 km), lit from the
north-west at 45 degrees. Its class is the landform of its centre as Weiss defines it (2001, "Topographic position and
landforms analysis"), computed from the slope and from the elevation above the mean of the surrounding disc; the shading
shows neither directly. Training tiles come from the west and test tiles from the east, without a common post;
neighbouring tiles of one split overlap.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bench.core.errors import UserError
from bench.data import cache
from bench.data.data_set import DataSet
from bench.data.image_set import ImageSet
from bench.data.readable import in_package

REVISION = 1
CLASSES = ("valley", "lower slope", "flat", "middle slope", "upper slope", "ridge")
SIDE, STRIDE = 28, 3
RADIUS = 10  # radius, in posts, of the disc with whose mean elevation a place is compared
COUNTS = {"train": 3_000, "test": 1_500}
METRES_PER_DEGREE = 111_320.0
LIGHT_AZIMUTH, LIGHT_ALTITUDE = np.radians(315.0), np.radians(45.0)


def available(root: Path | None) -> bool:
    return _file() is not None


def load(split: str, *, root: Path | None) -> ImageSet:
    path = _file()
    if path is None:
        raise DATASET.absent()
    key = f"terrain-{split}-{cache.fingerprint((REVISION, split), [path])}"
    stored = cache.arrays(key, lambda: _build(path, split))
    return ImageSet(
        name="terrain",
        split=split,
        images_NHWC=stored["images"],
        labels_N=stored["labels"],
        class_names=CLASSES,
        kind=DATASET.kind,
        source="matplotlib",
    )


def _file() -> Path | None:
    return in_package("matplotlib", "mpl-data/sample_data/jacksboro_fault_dem.npz")


def _build(path: Path, split: str) -> dict[str, np.ndarray]:
    """Cut tiles of a split out of the elevations in the file `path`, at regular distances, and keep COUNTS[split] of
    them, evenly spaced. Return {"images": uint8 (N, 28, 28, 1), "labels": int64 (N,)}.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            height_RC = file["elevation"].astype(np.float64)
            step, latitude = float(file["dx"]), float(file["ymin"] + file["ymax"]) / 2
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} cannot be read: {error}.", "Install the package matplotlib again.") from error
    north = step * METRES_PER_DEGREE
    spacing = (north, north * float(np.cos(np.radians(latitude))))
    relief_RC, landform_RC = shade(height_RC, spacing), landforms(height_RC, spacing)
    rows, columns = height_RC.shape
    border = columns * 2 // 3
    west, east = (0, border - SIDE), (border, columns - SIDE)
    low, high = west if split == "train" else east
    corners = [(r, c) for r in range(0, rows - SIDE + 1, STRIDE) for c in range(low, high + 1, STRIDE)]
    kept = np.linspace(0, len(corners) - 1, min(COUNTS[split], len(corners))).round().astype(int)
    chosen = [corners[index] for index in kept]
    half = SIDE // 2
    return {
        "images": np.stack([relief_RC[r : r + SIDE, c : c + SIDE] for r, c in chosen])[..., None],
        "labels": np.array([landform_RC[r + half, c + half] for r, c in chosen], dtype=np.int64),
    }


def shade(height_RC: np.ndarray, spacing: tuple[float, float]) -> np.ndarray:
    """Return a shaded relief, uint8 (R, C): the cosine between the ground's normal and the light, times 255; 0 where
    the ground faces away from the light. North is up.

    Args:
        height_RC: elevations in metres.
        spacing: (metres between rows, metres between columns).
    """
    south_RC, east_RC = np.gradient(height_RC, *spacing)
    length_RC = np.sqrt(1 + south_RC**2 + east_RC**2)
    flat = np.cos(LIGHT_ALTITUDE)
    to_east, to_south, up = np.sin(LIGHT_AZIMUTH) * flat, -np.cos(LIGHT_AZIMUTH) * flat, np.sin(LIGHT_ALTITUDE)
    cosine_RC = (up - east_RC * to_east - south_RC * to_south) / length_RC
    return np.clip(np.rint(255 * cosine_RC), 0, 255).astype(np.uint8)


def landforms(height_RC: np.ndarray, spacing: tuple[float, float]) -> np.ndarray:
    """Return the landform of each post (point with an elevation) as an index of CLASSES, (R, C), as Weiss (2001)
    defines it: by the standardised elevation above the mean of the surrounding disc. At intermediate elevations, a
    slope up to 5 degrees is "flat", a steeper one "middle slope". Arguments are as in `shade`."""
    from scipy import ndimage

    reach = np.arange(-RADIUS, RADIUS + 1)
    disc = (reach[:, None] ** 2 + reach**2 <= RADIUS**2).astype(np.float64)
    above_RC = height_RC - ndimage.convolve(height_RC, disc / disc.sum(), mode="nearest")
    above_RC /= above_RC.std()
    slope_RC = np.degrees(np.arctan(np.hypot(*np.gradient(height_RC, *spacing))))
    between_RC = np.where(slope_RC <= 5.0, 2, 3)
    levels = [above_RC <= -1, above_RC <= -0.5, above_RC < 0.5, above_RC <= 1]
    return np.select(levels, [np.zeros_like(between_RC), np.ones_like(between_RC), between_RC, 4], default=5)


DATASET = DataSet(
    name="terrain",
    revision=REVISION,
    kind="photographs",
    description="28 px shaded relief from radar elevations, landform at the centre, 6 classes, 3,000 + 1,500",
    licence="public domain (NASA/USGS, SRTM); shipped by matplotlib",
    source="https://www.usgs.gov/centers/eros (SRTM) by way of matplotlib's sample data",
    how_to_get="It comes with matplotlib: install the package matplotlib.",
    images=(3_000, 1_500),
    classes=6,
    load=load,
    available=available,
)
