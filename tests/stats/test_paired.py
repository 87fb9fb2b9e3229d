"""Differences on the same test images against SciPy and least squares; the least one that a test set can show."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bench.core.clusters import cluster_error
from bench.stats.intervals import Samples
from bench.stats.paired import MIN_DIFFERING, POWER, contrast_error, detectable, mean_of, pair, resampled_error
from bench.store import prediction_bits, resampled

NUMBER = 400  # test images


def answered(
    right_RM: np.ndarray,
    *,
    seeds: tuple[int, ...] = (),
    draws: tuple[int, ...] = (),
    name: str = "images",
    groups_M: np.ndarray | None = None,
) -> Samples:
    """Scores of runs, seeds first, with the answers behind them."""
    made = []
    for right_M in right_RM:
        _, entry = prediction_bits.to_detail(right_M, content_hash=name, groups_M=groups_M)
        made.append(prediction_bits.from_detail({"correct": entry}))
    shape = max(1, len(seeds)), max(1, len(draws))
    correct_SD = np.empty(len(made), dtype=object)
    correct_SD[:] = made
    return Samples(
        values_SD=right_RM.mean(axis=1).reshape(shape),
        seeds=seeds,
        draws=draws,
        image_error=0.01,
        num_test=right_RM.shape[1],
        correct_SD=correct_SD.reshape(shape),
    )


def answers(seed: int, runs: int, *, accuracy: float = 0.7) -> np.ndarray:
    """Runs that agree on most images: some are easy."""
    rng = np.random.default_rng(seed)
    easy_M = rng.normal(size=NUMBER)
    return easy_M + 0.5 * rng.normal(size=(runs, NUMBER)) > -stats.norm.ppf(accuracy)


def test_one_pair_of_runs_has_the_error_of_the_paired_t_test() -> None:
    ours_M, theirs_M = answers(0, 2)
    made = pair(answered(ours_M[None]), answered(theirs_M[None]))
    theirs = stats.ttest_rel(ours_M.astype(float), theirs_M.astype(float))
    assert made and made.shared == 0 and made.content_hash == "images"
    assert made.difference_M.mean() / made.error == pytest.approx(theirs.statistic)


def test_groups_of_test_images_are_what_is_independent() -> None:
    """Images that are there three times say no more than once; and equal groups are as a t test of their means."""
    ours_M, theirs_M = answers(1, 2)
    groups_M = np.repeat(np.arange(NUMBER), 3)
    once = pair(answered(ours_M[None]), answered(theirs_M[None]))
    copies = (np.repeat(side_M, 3)[None] for side_M in (ours_M, theirs_M))
    thrice = pair(*(answered(side_RM, groups_M=groups_M) for side_RM in copies))
    assert once and thrice and thrice.error == pytest.approx(once.error)
    fours_M = np.arange(NUMBER) // 4
    grouped = pair(*(answered(side_M[None], groups_M=fours_M) for side_M in (ours_M, theirs_M)))
    difference_G = (ours_M.astype(float) - theirs_M).reshape(-1, 4).mean(axis=1)
    assert grouped and grouped.error == pytest.approx(stats.sem(difference_G))


@pytest.mark.parametrize("grouped", [False, True])
def test_too_few_images_or_groups_that_differ_have_no_error(grouped: bool) -> None:
    theirs_M = np.zeros(NUMBER, dtype=bool)
    groups_M = np.arange(NUMBER) // 2 if grouped else None
    for differing, known in ((MIN_DIFFERING - 1, False), (MIN_DIFFERING, True)):
        ours_M = theirs_M.copy()
        ours_M[: differing * (2 if grouped else 1)] = True
        sides = [answered(side_M[None], groups_M=groups_M) for side_M in (ours_M, theirs_M)]
        assert (pair(*sides) is not None) is known
        assert (contrast_error([(1.0, sides[0]), (-1.0, sides[1])]) is not None) is known


def test_runs_are_paired_by_seed_and_draw() -> None:
    """Whatever their order; those that one side alone has are left out."""
    ours_RM, theirs_RM = answers(2, 4), answers(3, 4)
    ours = answered(ours_RM, seeds=(0, 1), draws=(0, 1))
    theirs = answered(theirs_RM[[3, 2, 1, 0]], seeds=(1, 0), draws=(1, 0))
    wanted_M = (ours_RM.astype(float) - theirs_RM).mean(axis=0)
    made = pair(ours, theirs)
    assert made is not None and made.difference_M == pytest.approx(wanted_M)
    alone = pair(ours, answered(theirs_RM[:1], seeds=(0,), draws=(0,)))
    assert alone is not None and alone.difference_M == pytest.approx(ours_RM[0].astype(float) - theirs_RM[0])
    drawn = pair(answered(ours_RM[:2], draws=(0, 1)), answered(theirs_RM[:2], draws=(0, 1)))
    assert drawn is not None and drawn.difference_M == pytest.approx(
        (ours_RM[:2].astype(float) - theirs_RM[:2]).mean(0)
    )


def test_answers_on_other_images_or_without_answers_are_not_paired() -> None:
    ours_M, theirs_M = answers(4, 2)
    a, b = answered(ours_M[None]), answered(theirs_M[None], name="others")
    assert pair(a, b) is None and contrast_error([(1.0, a), (-1.0, b)]) is None
    bare = replace(b, correct_SD=None)
    assert pair(a, bare) is None and pair(bare, a) is None and contrast_error([(1.0, a), (-1.0, bare)]) is None
    assert contrast_error([]) is None


@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("grouped", [False, True])
def test_what_runs_and_images_share_is_the_residual_of_a_layout_of_two_factors(runs: int, grouped: bool) -> None:
    """As least squares with a term for every run and every image, or group, leave it."""
    seeds = tuple(range(runs))
    groups_M = np.arange(NUMBER) // 4 if grouped else None
    ours_RM, theirs_RM = answers(5, runs), answers(6, runs)
    made = pair(*(answered(side_RM, seeds=seeds, groups_M=groups_M) for side_RM in (ours_RM, theirs_RM)))
    x_RM = ours_RM.astype(float) - theirs_RM
    x_RM = x_RM.reshape(runs, -1, 4).mean(axis=2) if grouped else x_RM
    run_N, image_N = np.indices(x_RM.shape).reshape(2, -1)
    design = np.column_stack([run_N[:, None] == np.arange(runs), image_N[:, None] == np.arange(x_RM.shape[1])])
    left_N = x_RM.ravel() - design @ np.linalg.lstsq(design.astype(float), x_RM.ravel(), rcond=None)[0]
    freedom = (runs - 1) * (x_RM.shape[1] - 1)
    assert made is not None
    assert made.shared == pytest.approx(left_N @ left_N / freedom / x_RM.size if freedom else 0.0)


def test_a_contrast_is_what_its_differences_make() -> None:
    """One of two scores is the paired difference; different test sets are independent; the spread that runs and images
    share is not counted twice."""
    seeds = (0, 1)
    first = [answered(answers(seed, 2), seeds=seeds, name="first") for seed in (7, 8)]
    other = [answered(answers(seed, 2), seeds=seeds, name="other") for seed in (9, 10)]
    a, b = pair(*first), pair(*other)
    assert a is not None and b is not None and a.shared > 0
    of_a, of_b = a.error**2 - a.shared, b.error**2 - b.shared
    assert contrast_error([(1.0, first[0]), (-1.0, first[1])]) == pytest.approx(math.sqrt(of_a))
    both = [(0.5, first[0]), (-0.5, first[1]), (0.5, other[0]), (-0.5, other[1])]
    assert contrast_error(both) == pytest.approx(math.sqrt(of_a + of_b) / 2)
    assert contrast_error([(1.0, first[0]), (-0.9, first[1])]) is None, (
        "the weights leave an accuracy, not a difference"
    )
    alone = answered(answers(11, 1), name="first")  # without seeds: for each of the others'
    against = contrast_error([(1.0, first[0]), (-1.0, alone)])
    assert against is not None and against == contrast_error([(-1.0, alone), (1.0, first[0])])
    drawn = [answered(answers(seed, 2), draws=(0, 1), name="first") for seed in (12, 13)]
    assert contrast_error([(1.0, drawn[0]), (-1.0, drawn[1])]) is not None
    assert contrast_error([(1.0, drawn[0]), (-1.0, alone)]) is not None


def test_a_contrast_of_grouped_images_takes_groups_as_independent() -> None:
    ours_M, theirs_M = answers(14, 2)
    groups_M = np.arange(NUMBER) // 8
    sides = [answered(side_M[None], groups_M=groups_M) for side_M in (ours_M, theirs_M)]
    theirs = cluster_error(ours_M.astype(float) - theirs_M, groups_M)[0]
    assert contrast_error([(1.0, sides[0]), (-1.0, sides[1])]) == pytest.approx(theirs)


def test_a_mean_of_differences_is_taken_image_by_image() -> None:
    seeds = [pair(answered(answers(seed, 1)), answered(answers(seed + 1, 1))) for seed in (15, 17)]
    mean = mean_of(seeds)
    assert mean is not None and seeds[0] is not None and seeds[1] is not None
    assert mean.difference_M == pytest.approx((seeds[0].difference_M + seeds[1].difference_M) / 2)
    assert mean_of([*seeds, None]) is None and mean_of([]) is None
    other = pair(answered(answers(19, 1), name="other"), answered(answers(20, 1), name="other"))
    assert mean_of([*seeds, other]) is None


def test_metrics_on_the_same_resamples_have_the_spread_of_their_differences() -> None:
    rng = np.random.default_rng(0)
    values_2B = rng.normal(size=(2, 50)).astype("<f4")
    made = []
    for values_B in values_2B:
        _, entry = resampled.to_detail(values_B, content_hash="images")
        kept = np.empty((1, 1), dtype=object)
        kept[0, 0] = resampled.from_detail({"resampled": entry})
        made.append(replace(answered(answers(21, 1)), resampled_SD=kept))
    a, b = made
    assert resampled_error(a, b) == pytest.approx(np.std(values_2B[0] - values_2B[1].astype(float), ddof=1))
    assert resampled_error(a, a) is None, "of equal answers"
    for fewer in (replace(b, resampled_SD=None), replace(b, resampled_SD=np.repeat(b.resampled_SD, 2, axis=0))):
        assert resampled_error(a, fewer) is None and resampled_error(fewer, a) is None
    other = np.empty((1, 1), dtype=object)
    for changed in ({"content_hash": "others"}, {"packed": a.resampled_SD[0, 0].packed[:-4]}):
        other[0, 0] = replace(b.resampled_SD[0, 0], **changed)
        assert resampled_error(a, replace(b, resampled_SD=other)) is None


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
