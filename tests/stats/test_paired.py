"""The least difference that a test set of so many images can show."""

import numpy as np
import pytest

from bench.stats.paired import MIN_DIFFERING, POWER, detectable


def test_what_a_test_set_tells_apart_by_simulation() -> None:
    rng, number = np.random.default_rng(0), 2_000
    gap, disagree = detectable(number) or (0.0, 0.0)
    counts = rng.multinomial(number, [(disagree + gap) / 2, (disagree - gap) / 2, 1 - disagree], size=4_000)
    difference = (counts[:, 0] - counts[:, 1]) / number
    error = np.sqrt((counts[:, 0] + counts[:, 1]) / number - difference**2) / number**0.5
    assert (difference > 1.96 * error).mean() == pytest.approx(POWER, abs=0.03)


def test_a_small_test_set_promises_no_more_than_models_can_differ() -> None:
    """By no more than the share of the images on which they disagree, and on enough of them for a paired interval."""
    found = [detectable(number) for number in range(MIN_DIFFERING, 200)]
    assert all(made and made[0] <= made[1] <= 1 for made in found) and detectable(MIN_DIFFERING - 1) is None
    assert all(made[1] * number >= MIN_DIFFERING - 1e-9 for number, made in enumerate(found, MIN_DIFFERING) if made)
