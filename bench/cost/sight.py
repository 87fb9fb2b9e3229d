"""What limits the information in a network's average over its last feature map.

If features see less than the whole image, the network averages over parts of it, whatever it has learned. If the last
normalisation has groups of two channels, it removes most of what an average would tell. Both are found by
bench/cost/receptive_field.py; this file imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

SMALL_GROUP = 4  # channels, below which a group of the last normalisation is said to be small


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What limits a network's features at one image size. A network without such limits has None in both fields.

    Attributes:
        pixels: pixels a side that a feature sees before the last average over the map. None where it sees the whole
            image, and where this cannot be told: with matrix products, as in attention, or without an average.
        group: channels in a group of the last group normalisation, where they are fewer than `SMALL_GROUP`.
    """

    pixels: int | None = None
    group: int | None = None

    def sentence(self, *, image_size: int) -> str:
        """Return what limits the features, in words; "" if nothing does."""
        parts = []
        if self.pixels is not None:
            parts.append(f"a feature sees {self.pixels} of {image_size} pixels a side before all are averaged")
        if self.group is not None:
            channels = "one channel" if self.group == 1 else f"{self.group} channels"
            parts.append(f"the last normalisation has groups of {channels}, whose averages tell little of an image")
        return "; ".join(parts)
