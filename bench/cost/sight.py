"""What a network's average over its last map can tell: how much of an image a feature sees, how coarse the norm is.

A network whose features see less than the image averages over parts of it, whatever it has learned; groups of two
channels take away most of what an average would tell. Found in bench/cost/receptive_field.py; no torch here.
"""

from __future__ import annotations

from dataclasses import dataclass

SMALL_GROUP = 4  # channels, below which a group of the last normalisation is said to be small


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What stands between a network and an image of so many pixels a side; as it should be: nothing.

    Attributes:
        pixels: a side, that a feature sees before the last average over the map. None where it sees all of the image,
            and where nobody can say: where matrix products take part, as in attention, or nothing is averaged.
        group: channels in a group of the last group normalisation, where they are few.
    """

    pixels: int | None = None
    group: int | None = None

    def sentence(self, *, image_size: int) -> str:
        """What is wrong, in words; empty where nothing is."""
        parts = []
        if self.pixels is not None:
            parts.append(f"a feature sees {self.pixels} of {image_size} pixels a side before all are averaged")
        if self.group is not None:
            channels = "one channel" if self.group == 1 else f"{self.group} channels"
            parts.append(f"the last normalisation has groups of {channels}, whose averages tell little of an image")
        return "; ".join(parts)
