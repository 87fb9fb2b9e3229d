"""A metric's values on resamples of the test images, for paired comparisons of two scores.

A metric that is not a mean over images cannot be kept as one right or wrong answer per image. Instead every score on
the same test images is computed on the same resamples of them (or of their groups), so that the spread of the
differences between two scores is the error of their difference. A score's detail keeps the values under "resampled":
`content_hash` as in `bench.store.prediction_bits`, and `packed`, base64 of float32.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.core.metrics import RESAMPLED

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class MetricResamples:
    """A metric's values on the resamples, for one score. `packed` holds them as little-endian float32, which the record
    has in base64."""

    content_hash: str
    packed: bytes

    @property
    def values_B(self) -> np.ndarray:
        """The metric's value on each resample, (B,) float32."""
        import numpy as np

        return np.frombuffer(self.packed, dtype="<f4")


def to_detail(values_B: np.ndarray, *, content_hash: str) -> tuple[str, dict[str, Any]]:
    """Return (key, entry) for a score's detail that holds `values_B`, one value per resample of the test set with this
    hash."""
    packed = base64.b64encode(values_B.astype("<f4").tobytes()).decode()
    return RESAMPLED, {"content_hash": content_hash, "packed": packed}


def from_detail(detail: Mapping[str, Any] | None) -> MetricResamples | None:
    """Return the values that `to_detail` put into a score's detail; None if there are none, or they are malformed."""
    match detail.get(RESAMPLED) if detail else None:
        case {"content_hash": str(content_hash), "packed": str(text)}:
            try:
                packed = base64.b64decode(text, validate=True)
            except ValueError:
                return None
            return MetricResamples(content_hash=content_hash, packed=packed) if len(packed) % 4 == 0 else None
    return None
