"""Depths and widths of the ResNet baselines, as data (no torch).

R<n> counts weighted layers: a stem, three convolutions per bottleneck block, a classifier: n = 2 + 3 x blocks.
26 is the BiT code's own; 50-200 are He et al. 2016's; the rest are ours, for images of 28-32 px.
"""

from __future__ import annotations

BLOCKS: dict[int, tuple[int, ...]] = {
    5: (1,),
    8: (1, 1),
    11: (1, 1, 1),
    14: (1, 1, 1, 1),
    20: (2, 2, 2),
    26: (2, 2, 2, 2),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
}


def width_of(text: str | None, default: float) -> float | None:
    """A width factor from a name; None where the channel counts would not be multiples of 8 or would vanish."""
    width = default if text is None else float(text)
    return width if width > 0 and (width * 64) % 8 == 0 else None
