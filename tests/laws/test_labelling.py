"""Images for an accuracy: the committed curves say how often intervals hold; the rest follows from the law."""

import math

import numpy as np
import pytest

from bench.core.cli import accuracies
from bench.laws.labelling import LabellingCurve, images_needed
from tools import measure_labelling


def seen(exponent: float, floor: float = 0.0, most: int = 200, num_test: int = 100_000) -> LabellingCurve:
    """Errors without noise: 0.3 at the last number."""
    images = tuple(float(n) for n in (10, 20, 50, 100, 200) if n <= most)
    law = [0.3 * (floor + (1 - floor) * (n / images[-1]) ** -exponent) for n in images]
    return LabellingCurve(
        images=images,
        errors=(*((min(error, 0.99),) * 3 for error in law[:-1]), (law[-1],)),
        num_test=num_test,
    )


def test_the_interval_holds_what_a_law_takes() -> None:
    found = images_needed(seen(0.5), 0.2)
    assert found is not None and found.low <= 200 * (0.3 / 0.2) ** 2 <= found.high < math.inf
    assert found.low < found.images < found.high and found.chance > 0.95


def test_a_floor_above_the_target_is_seen() -> None:
    found = images_needed(seen(0.5, floor=0.9), 0.1)
    assert found is not None and found.low == math.inf and found.chance < 0.05


def test_few_test_images_widen_it() -> None:
    wide, narrow = (images_needed(seen(0.5, num_test=number), 0.2) for number in (100, 100_000))
    assert wide is not None and narrow is not None and wide.low < narrow.low and wide.high > narrow.high


@pytest.mark.filterwarnings("error")
def test_a_test_set_without_a_hit_gives_an_interval() -> None:
    """Few test images may all be missed at every number."""
    found = images_needed(LabellingCurve(images=(2, 4, 10, 20), errors=((1.0, 1.0),) * 3 + ((1.0,),), num_test=3), 0.5)
    assert found is not None and 20 <= found.low <= found.images and 0 < found.chance < 1


def test_three_numbers_of_images_are_refused() -> None:
    assert images_needed(seen(0.5, most=50), 0.2) is None


def test_held_out_curves_hold_within_what_chance_explains() -> None:
    """The half that the constants were not set on, pictures drawn by a fixed rule left aside to save time: two ends are
    stated for 20 or more, and hold the truth as often as the level says or more; a straight line's seldom do."""
    curves = [c for c in measure_labelling.curves(measure_labelling.FILE) if c.half == "report"]
    some = [c for c in curves if c.problem in ("fashion-mnist", "digits", "photo-tiles", "shapes-position")]
    told = [c for c in measure_labelling.cases(some, measure_labelling.product) if c.bounded]
    lines = [c for c in measure_labelling.cases(some, measure_labelling.line) if c.bounded]
    assert len(told) >= 20 and np.mean([c.held for c in told]) >= 0.85
    assert np.mean([c.held for c in lines]) < 0.75


def test_accuracies_are_read_in_percent_and_as_shares() -> None:
    assert accuracies("95%,0.9,97.5 %") == (0.9, 0.95, 0.975)
    for text in ("95", "0", "100%", "x"):
        with pytest.raises(Exception, match="between 0 and 100"):
            accuracies(text)
