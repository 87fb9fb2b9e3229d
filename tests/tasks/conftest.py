"""Features of a few images, as a user keeps them in a file."""

from pathlib import Path

import numpy as np
import pytest


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 8))
    made = {}
    for split, count in (("train", 60), ("test", 30)):
        labels = np.arange(count) % 3
        made |= {f"{split}_x": centres[labels] + 0.3 * rng.normal(size=(count, 8)), f"{split}_y": labels}
    return made


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("features") / "mine.npz"
    np.savez(path, **arrays())  # type: ignore[arg-type]
    return path
