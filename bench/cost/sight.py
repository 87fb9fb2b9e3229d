"""What limits the information in the features of a network that averages over its last feature map.

If each position of the map sees less than the whole image, the network averages over parts of the image, whatever it
has learned. If the last normalisation has groups of two channels, it removes most of what the average would tell of an
image. bench/cost/receptive_field.py finds both; this file imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

SMALL_GROUP = 4  # a group of the last normalisation is called small if it has fewer channels


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What limits a network's features at one image size. A network without such limits has None in both fields.

    Attributes:
        pixels: pixels per side of the image that one position of the last averaged map depends on. None if that is the
            whole image, or unknown: after matrix products, as in attention, or without an average.
        group: channels in a group of the last group normalisation; None if they are not fewer than `SMALL_GROUP`.
    """

    pixels: int | None = None
    group: int | None = None

    def sentence(self, *, image_size: int) -> str:
        """Return a text that says what limits the features; "" if nothing does. `image_size` is in pixels per side."""
        parts = []
        if self.pixels is not None:
            parts.append(f"a feature sees {self.pixels} of {image_size} pixels a side before all are averaged")
        if self.group is not None:
            channels = "one channel" if self.group == 1 else f"{self.group} channels"
            parts.append(f"the last normalisation has groups of {channels}, whose averages tell little of an image")
        return "; ".join(parts)
