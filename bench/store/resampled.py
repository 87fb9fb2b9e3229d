"""A metric's values in resamples of the test images, for paired comparisons of two scores.

A metric that is no mean over images has no answers image by image. Every score on the same test images is taken on the
same resamples of them (or of their groups), so that the spread of the differences is the error of the difference. A
score's detail keeps them under "resampled": `content_hash` as `bench.store.prediction_bits` has it, and `packed`,
base64 of float32.
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
    """The values of one score; `packed` holds them decoded from base64."""

    content_hash: str
    packed: bytes

    @property
    def values_B(self) -> np.ndarray:
        """float32, one per resample."""
        import numpy as np

        return np.frombuffer(self.packed, dtype="<f4")


def to_detail(values_B: np.ndarray, *, content_hash: str) -> tuple[str, dict[str, Any]]:
    """The entry of a score's detail."""
    packed = base64.b64encode(values_B.astype("<f4").tobytes()).decode()
    return RESAMPLED, {"content_hash": content_hash, "packed": packed}


def from_detail(detail: Mapping[str, Any] | None) -> MetricResamples | None:
    """What `to_detail` left; None where there is nothing, or something else, under that name."""
    match detail.get(RESAMPLED) if detail else None:
        case {"content_hash": str(content_hash), "packed": str(text)}:
            try:
                packed = base64.b64decode(text, validate=True)
            except ValueError:
                return None
            return MetricResamples(content_hash=content_hash, packed=packed) if len(packed) % 4 == 0 else None
    return None
