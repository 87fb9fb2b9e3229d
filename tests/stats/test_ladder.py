"""Trends of paired gains against SciPy, and the verdict's error rates by simulation."""

from __future__ import annotations

import csv
import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bench.stats import ladder
from bench.stats.ladder import (
    LEVEL,
    MODERATED,
    TUNING,
    VERDICTS,
    Ladders,
    LadderVerdict,
    Truth,
    next_pairs,
    seeds_needed,
    simulated,
    verdicts,
)
from tests.conftest import PROJECT
from tools import ladder_cases, measure_ladder_forecasts, measure_ladders, measure_untuned

X = np.array([0.0, 2.0, 4.0])
ROWS = list(csv.DictReader(measure_ladders.FILE.open()))


def one(*rungs: list[float]) -> Ladders:
    longest = max(map(len, rungs))
    gains = [[*rung, *[np.nan] * (longest - len(rung))] for rung in rungs]
    return Ladders.of(X, np.array([gains], float))


def verdict(*rungs: list[float]) -> LadderVerdict:
    return VERDICTS[int(verdicts(one(*rungs))[0])]


def test_a_rung_is_the_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    change, baseline = rng.normal(1.0, 1.0, 5), rng.normal(0.0, 1.0, 5)
    theirs = stats.ttest_rel(change, baseline)
    ours = one(list(change - baseline), [1.0, 2.0], [0.0, 1.0]).rung(0)
    low, high = ours.interval()
    assert ours.p[0] == pytest.approx(theirs.pvalue)
    assert (low[0], high[0]) == pytest.approx(tuple(theirs.confidence_interval()))


def test_the_line_is_least_squares_over_all_pairs() -> None:
    rng = np.random.default_rng(1)
    gains = rng.normal(size=(3, 6))
    theirs = stats.linregress(np.repeat(X, 6), gains.ravel())
    ours = one(*map(list, gains))
    assert ours.slope().value[0] == pytest.approx(theirs.slope)
    assert ours.at(7.0).value[0] == pytest.approx(theirs.intercept + 7 * theirs.slope)
    assert ours.mean().value[0] == pytest.approx(gains.mean())
    uneven = one(list(gains[0]), list(gains[1][:3]), list(gains[2][:4]))
    flat = np.concatenate([gains[0], gains[1][:3], gains[2][:4]])
    theirs = stats.linregress(np.repeat(X, (6, 3, 4)), flat)
    assert uneven.slope().value[0] == pytest.approx(theirs.slope)


def test_with_two_ends_the_slope_is_welchs() -> None:
    """The middle of three rungs bears no weight: without tuning's allowance the slope is a two-sample test."""
    rng = np.random.default_rng(2)
    low, high = rng.normal(0, 1, 5), rng.normal(1, 2, 7)
    middle = (low.mean() + high.mean()) / 2
    gains = np.full((1, 3, 7), np.nan)
    gains[0, 0, :5], gains[0, 2] = low, high
    gains[0, 1, :6] = middle + np.array([-1, 1, -1, 1, -1, 1])
    equal = Ladders.of(X, gains)
    ours = Ladders(
        x_R=X,
        means_TR=equal.means_TR,
        variances_TR=equal.variances_TR,
        counts_TR=np.array([[5, 6, 7]]),
        tuning=0.0,
    )
    apart = Ladders(
        x_R=X, means_TR=ours.means_TR, variances_TR=ours.variances_TR, counts_TR=np.array([[6, 6, 6]]), tuning=0.0
    )
    error = np.sqrt((apart.variances_TR[0, 0] + apart.variances_TR[0, 2]) / 6) / 4
    theirs = stats.ttest_ind_from_stats(
        high.mean(), high.std(ddof=1), 6, low.mean(), low.std(ddof=1), 6, equal_var=False
    )
    assert apart.slope().error[0] == pytest.approx(error)
    assert apart.slope().p[0] == pytest.approx(theirs.pvalue)


SMALL = np.array([-0.2, -0.1, 0.0, 0.1, 0.2])


@pytest.mark.parametrize(
    "means, wanted",
    [
        ((1, 3, 5), "grows"),
        ((-1, -3, -5), "grows"),  # a loss that grows
        ((5, 3, 1), "fades"),
        ((3, 1.5, 0), "fades"),
        ((-3, 0, 3), "reverses"),
        ((3, 0, -3), "reverses"),
        ((3, 3.1, 3), "keeps"),
        ((-3, -3.1, -3), "keeps"),
        ((0, 0.1, 0), "inconclusive"),
    ],
)
def test_clear_ladders(means, wanted) -> None:
    assert verdict(*(list(mean + SMALL) for mean in means)) == wanted


def test_no_difference_at_all_is_inconclusive_and_few_runs_are_refused() -> None:
    assert verdict([0.0] * 3, [0.0] * 3, [0.0] * 3) == "inconclusive"
    with pytest.raises(ValueError, match="two seeds"):
        one([1.0], [1.0, 2.0], [1.0, 2.0])


def test_a_slope_between_ends_that_are_not_told_from_zero_is_inconclusive() -> None:
    """Where the trend is surer than either end, nobody can say whether the gain grows, fades or reverses."""
    for lift in np.arange(0.05, 3.0, 0.05):
        made = one(*(list(mean + 5 * SMALL) for mean in (-lift, 0.0, lift)))
        bottom, top = made.at(X[0]).p[0], made.at(X[-1]).p[0]
        if made.slope().p[0] < LEVEL < min(bottom, top):
            assert VERDICTS[int(verdicts(made)[0])] == "inconclusive"
            return
    pytest.fail("no such ladder was made")


def test_rungs_vary_about_the_line_by_what_seeds_do_not_explain() -> None:
    """The variance about SciPy's line of the means, less that of a mean of seeds."""
    means = np.array([0.0, 3.0, -1.0, 2.0])
    x = np.arange(4.0)
    made = Ladders.of(x, (means[:, None] + SMALL)[None])
    line = stats.linregress(x, means)
    about = float(((means - line.intercept - line.slope * x) ** 2).sum()) / 2
    assert made.between_rungs()[0] == pytest.approx(about - SMALL.var(ddof=1) / 5)
    straight = Ladders.of(x, (x[:, None] + SMALL)[None])
    assert straight.between_rungs()[0] == pytest.approx(straight.tuning**2)


def test_one_more_pair_of_runs_falls_into_its_interval() -> None:
    rng = np.random.default_rng(4)
    made = simulated(Truth(gain=1.0, change=2.0, pair=0.5), X, seeds=4, ladders=2000, rng=rng)
    low, high = made.one_more_run(6.0).interval()
    seen = 1.0 + 2.0 * (6.0 / 4.0 - 0.5) + 0.5 * rng.normal(size=2000)
    assert 0.95 <= ((low < seen) & (seen < high)).mean() < 1.0
    assert (made.one_more_run(6.0).error > made.at(6.0).error).all()


def test_the_sign_of_a_change_does_not_matter() -> None:
    made = simulated(Truth(gain=1, change=2), X, seeds=4, ladders=200, rng=np.random.default_rng(3))
    other = Ladders(x_R=X, means_TR=-made.means_TR, variances_TR=made.variances_TR, counts_TR=made.counts_TR)
    assert np.array_equal(verdicts(made), verdicts(other))


def test_a_slope_that_does_not_stand_among_others_gives_no_trend() -> None:
    made = one(*(list(mean + SMALL) for mean in (1, 3, 5)))
    assert VERDICTS[int(verdicts(made)[0])] == "grows"
    assert VERDICTS[int(verdicts(made, stands_T=np.array([False]))[0])] == "inconclusive"


def test_more_noise_needs_more_seeds() -> None:
    quiet, noisy = (seeds_needed(Truth(gain=2, pair=pair), X) for pair in (0.5, 1.0))
    assert quiet is not None and noisy is not None and 2 < quiet < noisy
    assert seeds_needed(Truth(gain=0.0, pair=1.0), X) is None, "nothing decides that there is nothing"


def test_the_fewest_seeds_are_found_up_to_the_most_that_are_offered(monkeypatch) -> None:
    for enough in range(3, ladder.MAX_SEEDS + 3):
        monkeypatch.setattr(ladder, "power", lambda *_, seeds, enough=enough: float(seeds >= enough))
        assert seeds_needed(Truth(), X) == (enough if enough <= ladder.MAX_SEEDS else None)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "/".join(list(row.values())[:7]))
def test_what_was_measured_is_at_the_level(row) -> None:
    assert int(row["ladders"]) >= 300
    if row["false"] != "nan":
        assert float(row["false"]) <= LEVEL
    assert float(row["covers"]) >= 0.94


def test_the_measurement_is_of_todays_rules() -> None:
    for number in (3, 40, 70, 100, 140):
        row = ROWS[number]
        about = {name: float(row[name]) for name in ("gain", "change", "pair", "top_pair", "rung")}
        found = measure_ladders.measured(
            Truth(**about), rungs=int(row["rungs"]), seeds=int(row["seeds"]), ladders=2000, seed=1
        )
        for name in (*map(str, VERDICTS), "covers"):
            assert found[name] == pytest.approx(float(row[name]), abs=0.06), name  # 4 standard errors of a difference


# -- the next runs -----------------------------------------------------------------------------------------------------


def one_ladder(seeds: int = 3, *, pair: float = 1.0) -> Ladders:
    return simulated(Truth(pair=pair), np.array([0.0, 2.0, 4.0]), seeds=seeds, ladders=1, rng=np.random.default_rng(4))


def test_the_next_pairs_are_as_good_as_any_of_their_price() -> None:
    """Beside every way to add up to six pairs to the rungs there are."""
    found, cost_R = one_ladder(), np.array([1.0, 4.0, 16.0])
    made = next_pairs(found, cost_R, money=40.0, opening=1e9)
    assert made.cost <= 40.0 and not made.above and made.half_then < made.half
    best = np.inf
    for added in itertools.product(range(17), range(11), range(3)):
        if added @ cost_R <= 40.0:
            best = min(best, expected_half(found, np.array(added)))
    assert made.half_then <= best * 1.02
    assert made.half == pytest.approx(expected_half(found, np.zeros(3, dtype=int)))


def expected_half(found: Ladders, added_R: np.ndarray) -> float:
    """Half of the slope's interval with a rung's variance of pairs, moderated by that of all."""
    counts_TR, own = found.counts_TR + added_R, found.counts_TR - 1
    pooled = (MODERATED * found.pooled()[0] + own * found.variances_TR) / (MODERATED + own)
    weights_TR = replace(found, counts_TR=counts_TR)._slope_weights()
    error = np.sqrt((weights_TR**2 * (pooled / counts_TR + found.tuning**2)).sum()) * found._scale()[0]
    return float(stats.t.ppf(0.975, (counts_TR - 1).sum()) * error)


def test_a_rung_above_is_opened_where_it_is_worth_its_price() -> None:
    found, cost_R = one_ladder(6), np.array([1.0, 1.0, 1.0])
    assert next_pairs(found, cost_R, money=12.0).above >= 2, "a rung as cheap as others is the best place for pairs"
    assert not next_pairs(found, cost_R, money=12.0, opening=11.0).above
    assert next_pairs(found, cost_R, money=0.5).cost == 0.0


# -- rates that are not tuned alike ------------------------------------------------------------------------------------

UNTUNED = list(csv.DictReader(measure_untuned.FILE.open()))


def worst(how: str, factor: float, column: str = "wrong") -> float:
    return max(float(row[column]) for row in UNTUNED if row["rates"] == how and float(row["factor"]) == factor)


def test_the_page_says_what_untuned_rates_do() -> None:
    page = " ".join((PROJECT / "docs" / "ladder.md").read_text().split())
    for how in ("taken over", "alike"):
        assert " | ".join(f"{100 * worst(how, factor):.0f} %" for factor in measure_untuned.FACTORS) in page
    most = max(float(row["rung_sd_low"]) for row in UNTUNED if row["rates"] == "alike")
    assert f"at most {most:.2f} points" in page and most < TUNING
    assert all(worst("alike", factor) <= LEVEL for factor in measure_untuned.FACTORS)


def test_untuned_rates_measured_again_are_like_those_that_are_kept() -> None:
    rows = {(r["rates"], float(r["gain"])): r for r in measure_untuned.measured(factor=2.0, ladders=150, seed=9)}
    assert float(rows["taken over", 0.0]["fades"]) == pytest.approx(worst("taken over", 2.0, "fades"), abs=0.15)
    assert float(rows["alike", 0.0]["wrong"]) < 0.08
    bend = measure_untuned.BENDS[0]
    assert float(rows["taken over", 0.0]["mean_low"]) == pytest.approx(-bend * np.log(2.0) ** 2, abs=0.3)


# -- known cases -------------------------------------------------------------------------------------------------------

RUNS, CASES = (list(csv.DictReader(path.open())) for path in (ladder_cases.RUNS, ladder_cases.CASES))


def test_cases_are_what_their_runs_say() -> None:
    assert ladder_cases.found(RUNS) == CASES
    page = " ".join((ladder_cases.FOLDER / "README.md").read_text().split())
    for case in CASES:
        found = [case[key] for key in ("gain_0", "gain_1", "gain_2", "forecast")]
        assert f"*{case['verdict']}* | {' | '.join(found)} |" in page, case["case"]


def test_every_arm_of_a_case_was_tuned_alike_and_paired() -> None:
    for case in CASES:
        mine = [row for row in RUNS if row["case"] == case["case"]]
        trials = Counter((row["arm"], row["images"]) for row in mine if row["kind"] == "trial")
        assert len(trials) == 4 and len(set(trials.values())) == 1
        flops = sorted({float(row["flops"]) for row in mine if row["arm"] == "baseline"})
        assert len(flops) >= 3 and flops[-1] / flops[0] == pytest.approx(16, rel=0.02)
        paid = Counter()
        for row in mine:
            paid[row["arm"], row["rung"]] += float(row["flops"]) * (row["kind"] == "rung")
        for rung in map(str, range(3)):
            assert paid[case["change"], rung] == pytest.approx(paid["baseline", rung], rel=0.03), "equal compute"


def test_what_a_wrong_rate_costs_is_about_what_the_cases_show() -> None:
    for assumed, shown in zip(measure_untuned.BENDS, ladder_cases.bends(RUNS), strict=True):
        assert assumed / 3 < shown < 3 * assumed


def test_forecasts_of_held_out_rungs_are_as_committed_and_hold_as_often_as_they_say():
    made = measure_ladder_forecasts.summary(
        [*measure_ladder_forecasts.of_study(), *measure_ladder_forecasts.of_published()]
    )
    assert made == measure_ladder_forecasts.rows()
    for row in made:
        assert float(row["covers_ladder"]) >= 0.95 - 2 * np.sqrt(0.95 * 0.05 / int(row["forecasts"])), row


@pytest.mark.parametrize(
    ("arch", "family"),
    [
        ("resnet50", "resnet"),
        ("convnextv2_tiny", "convnextv2"),
        ("deit3_huge_patch14_224", "deit_patch_224"),
        ("tf_efficientnet_b7", "tf_efficientnet"),
        ("regnety_032", "regnety"),
    ],
)
def test_a_family_is_a_name_without_its_size(arch, family):
    assert measure_ladder_forecasts.family(arch) == family


def test_a_forecast_of_known_noise_is_a_ladders_of_many_seeds():
    """With many seeds whose mean has the noise of one pair, the line's part of the variance is the same."""
    x_R, gains_R, pair, seeds = np.arange(4.0), np.array([1.0, 1.2, 1.1, 1.5]), measure_ladder_forecasts.PAIR, 10_000
    spread_N = np.sqrt(seeds) * pair * np.sqrt((seeds - 1) / seeds) * np.resize([1.0, -1.0], seeds)
    ladder = Ladders.of(x_R, (gains_R[:, None] + spread_N)[None])
    one = measure_ladder_forecasts.known_noise(x_R, gains_R, 5.0)
    line_only = np.sqrt((one.half / 1.959964) ** 2 - pair**2 - measure_ladder_forecasts.TUNING**2)
    assert one.value == pytest.approx(float(ladder.at(5.0).value[0]))
    assert line_only == pytest.approx(float(ladder.at(5.0).error[0]), rel=1e-3)
