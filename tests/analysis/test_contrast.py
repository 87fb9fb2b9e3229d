"""Weighted sums over points: one difference as it always was, means and slopes with the noise that they have."""

from dataclasses import replace

import numpy as np
import pytest

from bench.analysis import frontiers, questions
from bench.analysis.comparisons import independent_difference, on_the_same_images
from bench.analysis.contrast import contrast, slope_weights
from bench.analysis.finding import Reason, Verdict
from bench.stats.intervals import DRAWS, IMAGES, SEEDS, t_quantile
from bench.stats.moderated import ADJACENT
from tests.analysis._study import study


def points(world, family):
    series = next(s for s in world.series if s.family == family)
    return series.points


def error(made) -> float:
    """Standard error over seeds."""
    e, _ = made
    return e.margins[SEEDS] / t_quantile(e.seed_df, e.level)


def test_one_difference_is_that_of_two_models_trained_apart() -> None:
    world = study()
    a, b = points(world, "ViT")[-1], points(world, "ResNet")[-1]
    made = contrast(world, [(1.0, a)], [(1.0, b)], "headline")
    samples = [world.samples(p, "headline") for p in (a, b)]
    expected = independent_difference(world, *samples, "headline")
    assert made is not None and expected is not None
    expected = on_the_same_images(world, expected, [(1.0, a), (-1.0, b)], "headline") or expected
    assert made[0].value == pytest.approx(expected.value) and made[0].excluded == expected.excluded
    assert dict(made[0].margins) == pytest.approx(dict(expected.margins))


def test_a_sum_of_one_trunk_has_the_noise_of_correlated_budgets() -> None:
    """Simulated: luck with correlation `ADJACENT` from budget to budget; a mean has less, a difference more."""
    world = study()
    own = points(world, "ViT")[:3]
    one = [error(contrast(world, [(1.0, p)], [], "headline")) for p in own]
    step = np.abs(np.subtract.outer(np.arange(3), np.arange(3)))
    luck = np.random.default_rng(0).multivariate_normal(np.zeros(3), ADJACENT**step, size=200_000) * one
    for weights in ([1 / 3] * 3, [-1.0, 0.0, 1.0]):
        made = contrast(world, [(w, p) for w, p in zip(weights, own, strict=True)], [], "headline")
        assert error(made) == pytest.approx((luck @ weights).std(), rel=0.01)


def test_what_points_share_cancels() -> None:
    world = study()
    a = points(world, "ViT")[-1]
    made = contrast(world, [(1.0, a)], [(1.0, a)], "headline")
    assert made is not None and made[0].value == 0
    assert made[0].margins.get(DRAWS, 0.0) == pytest.approx(0, abs=1e-12)
    assert SEEDS not in made[0].margins or made[0].margins[SEEDS] == 0
    assert IMAGES in made[0].margins


def test_weights_of_a_slope_are_those_of_least_squares() -> None:
    x, y = np.array([1e9, 3e9, 2e10, 1e11]), np.array([0.1, 0.2, 0.15, 0.4])
    assert slope_weights(x) @ y == pytest.approx(np.polyfit(np.log10(x), y, 1)[0])


def test_a_mean_over_budgets_is_no_less_sure_than_one_of_them() -> None:
    world = study()
    gaps = frontiers.at_compute(world, world.on_axis("compute"), "ViT", "ResNet", "headline")
    assert isinstance(gaps, frontiers.Gaps) and gaps.slope is not None
    assert gaps.mean.value == pytest.approx(np.mean([gap.estimate.value for gap in gaps.gaps]))
    assert gaps.mean.margins[SEEDS] < max(gap.estimate.margins[SEEDS] for gap in gaps.gaps)
    values = [gap.estimate.value for gap in gaps.gaps]
    assert gaps.slope.value == pytest.approx(np.polyfit(np.log10([gap.x for gap in gaps.gaps]), values, 1)[0])


def test_verdicts_of_a_table_hold_together() -> None:
    """One p of 0.03 among several questions is no verdict; its estimate and interval stay. Alone it is one."""
    found = questions.find(study(), ["best-family-at-equal-compute", "compute-to-match"]).findings
    first = replace(found[0], p=0.03, verdict=Verdict.YES, reasons=(), leader=found[0].subject[0])
    others = [replace(f, p=0.5, verdict=Verdict.CANNOT_TELL) for f in found[1:]]
    assert questions.held([first])[0] == first
    (kept, *_) = questions.held([first, *others])
    assert kept.verdict == Verdict.CANNOT_TELL and kept.reasons == (Reason.SEVERAL,)
    assert (kept.estimate, kept.low, kept.high) == (first.estimate, first.low, first.high)
    assert questions.held([replace(first, main=False), *others])[0].verdict == Verdict.YES
    assert questions.held([replace(first, p=0.001), *others])[0].verdict == Verdict.YES
