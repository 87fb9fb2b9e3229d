"""Learning rates: which is chosen of a sweep, and whether a rule holds."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from bench.analysis import lr_sweep
from bench.analysis.check import checks
from bench.analysis.finding import Verdict
from bench.questions import best_learning_rate
from bench.questions.best_learning_rate import DIVERGED, EDGE_OF_SWEEP, NO_CURVE, rate_rule, refused, rules
from bench.study.record import Operations, Record
from tests.analysis._records import World, change, map_scores
from tests.analysis._study import read, swept

# -- the learning rate that a sweep chooses, on records whose best rate is known, and the suites' own rates ------------


WITHIN = {1e-3: 0.50, 2e-3: 0.66, 4e-3: 0.75, 8e-3: 0.70, 1.6e-2: 0.40}


def seeds_of(accuracies: dict[float, float], *, noise: float = 0.005, seeds: int = 3) -> list[Record]:
    """A sweep of several seeds about the given accuracies."""
    rng, made = np.random.default_rng(5), []
    for seed in range(seeds):
        for record in swept({rate: value + rng.normal(0, noise) for rate, value in accuracies.items()}):
            made.append(change(record, {"directory": f"{record.directory}-seed{seed}", "cell.seed": seed}))
    return made


def smooth(best: float, *, rates: int = 7, bend: float = 0.25) -> dict[float, float]:
    """Accuracies whose log-odds are a parabola over log2 of the rate, from 5e-4 up."""
    tried = [5e-4 * 2.0**step for step in range(rates)]
    return {rate: float(special.expit(1.0 - bend * np.log2(rate / best) ** 2)) for rate in tried}


def warnings(made: list[Record]) -> list[tuple[str, ...]]:
    return [check.names for check in checks(read(made)) if check.kind == "rate at edge"]


@pytest.mark.parametrize("best", [1.5e-3, 3e-3, 7e-3])
def test_the_maximum_of_a_smooth_curve_is_chosen_by_upstream_accuracy_alone(best: float) -> None:
    (sweep,) = lr_sweep.sweeps(read(seeds_of(smooth(best))))
    assert sweep.optimum == pytest.approx(best, rel=0.1) and sweep.rate == float(f"{sweep.optimum:.2g}")
    assert sweep.interval is not None and sweep.interval[0] <= best <= sweep.interval[1] and not sweep.is_open
    assert sweep.chosen.rate == min(smooth(best), key=lambda rate: abs(np.log(rate / sweep.optimum)))
    top = special.expit(1.0)
    for factor in (0.5, 2.0):
        assert sweep.lost_at(factor) == pytest.approx(top - special.expit(0.75), abs=0.02)
    (finding,) = best_learning_rate.best_learning_rates(read(seeds_of(smooth(best))))
    assert (finding.verdict, finding.estimate, finding.reasons) == (Verdict.YES, sweep.rate, ())
    assert (finding.low, finding.high) == sweep.interval
    assert warnings(seeds_of(smooth(best))) == []


def test_the_rate_that_stands_is_the_tried_one_nearest_to_the_best() -> None:
    (sweep,) = lr_sweep.sweeps(read(swept(WITHIN)))
    assert (sweep.best.rate, sweep.chosen.rate, sweep.edge) == (4e-3, 4e-3, None)
    assert sweep.images_seen == 72_000 and [t.rate for t in sweep.tried] == sorted(WITHIN)


@pytest.mark.parametrize(
    "accuracies, edge, further",
    [
        ({1e-3: 0.5, 2e-3: 0.6, 4e-3: 0.7}, "highest", (8e-3, 1.6e-2)),
        ({1e-3: 0.7, 3e-3: 0.6, 9e-3: 0.5}, "lowest", (1e-3 / 9, 1e-3 / 3)),
    ],
)
def test_no_rate_is_chosen_at_an_edge_and_the_next_rates_are_named(accuracies, edge, further) -> None:
    made = swept(accuracies)
    (sweep,) = lr_sweep.sweeps(read(made))
    assert sweep.edge == edge and sweep.further == pytest.approx(further)
    assert sweep.rate is None and sweep.interval is None and sweep.chosen is sweep.best
    assert warnings(made) == [("ViT-nano/7",)]
    (finding,) = best_learning_rate.best_learning_rates(read(made))
    assert (finding.verdict, finding.estimate) == (Verdict.NO, None)
    assert (finding.reasons, finding.evidence) == ((EDGE_OF_SWEEP,), (sweep,))
    said = best_learning_rate.QUESTION.reasons[EDGE_OF_SWEEP](finding)
    assert said == refused(sweep)
    named = ",".join(f"{rate:.3g}" for rate in further)
    assert said.startswith(f"The best rate lies at or beyond the sweep's edge: sweep {named} too")
    assert best_learning_rate.model_rates([sweep]) == {} == best_learning_rate.family_rates([sweep])


def test_a_rate_that_diverges_bounds_the_sweep_and_is_never_chosen() -> None:
    made = swept({1e-3: 0.5, 2e-3: 0.7, 4e-3: None})
    (sweep,) = lr_sweep.sweeps(read(made))
    assert (sweep.chosen.rate, sweep.rate, sweep.edge, sweep.tried[-1].diverged) == (2e-3, 2e-3, None, 1)
    (finding,) = best_learning_rate.best_learning_rates(read(made))
    assert (finding.verdict, finding.estimate, finding.reasons) == (Verdict.YES, 2e-3, (NO_CURVE, DIVERGED))
    climbing = swept({1e-3: 0.5, 2e-3: 0.65, 4e-3: 0.74, 8e-3: 0.75, 1.6e-2: None})  # the curve's top may be beyond
    (sweep,) = lr_sweep.sweeps(read(climbing))
    assert sweep.rate is not None and sweep.rate <= 8e-3
    again = change(swept({1e-3: 0.5, 2e-3: None})[1], {"directory": "another-seed-0123456789", "cell.seed": 1})
    assert lr_sweep.sweeps(read([*made, again]))[0].chosen.rate == 1e-3
    assert lr_sweep.sweeps(read(swept({1e-3: None, 2e-3: None}))) == ()


def test_a_short_budget_is_read_beside_the_long_one() -> None:
    made = []
    for record in seeds_of(smooth(2e-3)):
        short = next(h for h in record.horizons if h.images_seen)
        assert short.images_seen < record.horizons[-1].images_seen

        def changed(horizon, score, record=record, short=short):
            if score.task != "upstream" or horizon.images_seen != short.images_seen:
                return score
            noise = 0.002 * record.cell.seed
            return replace(score, value=smooth(8e-3)[record.cell.recipe.lr] + noise)

        made.append(map_scores(record, changed))
    (sweep,) = lr_sweep.sweeps(read(made))
    assert sweep.shorter is not None and sweep.shorter.images_seen == short.images_seen
    assert sweep.shorter.optimum == pytest.approx(8e-3, rel=0.1) and sweep.optimum == pytest.approx(2e-3, rel=0.1)
    value, low, high = sweep.ratio_to_shorter
    assert value == pytest.approx(0.25, rel=0.15) and low < 0.25 < high < 1
    seen = sweep.images_seen, sweep.shorter.images_seen
    assert best_learning_rate.model_rates([sweep]) == {"ViT-nano/7": {seen[1]: sweep.shorter.rate, seen[0]: sweep.rate}}


def test_what_differs_in_more_than_its_rate_is_another_sweep() -> None:
    assert lr_sweep.sweeps(read(swept({1e-3: 0.5}) + swept({2e-3: 0.6}, weight_decay=0.2))) == ()
    both = swept({1e-3: 0.5, 2e-3: 0.6}) + swept({1e-3: 0.7, 2e-3: 0.6}, weight_decay=0.2)
    assert sorted(s.chosen.rate for s in lr_sweep.sweeps(read(both))) == [1e-3, 2e-3]
    assert lr_sweep.sweeps(read(World().records())) == ()


def test_only_what_was_chosen_stands() -> None:
    evidence = lr_sweep.without_rejected(read(swept(WITHIN)))
    assert [s.last.variant for s in evidence.series] and len(evidence.series) == 1
    assert set(evidence.horizons["recipe"].map(lambda recipe: recipe.lr)) == {4e-3}
    assert evidence.swept is not None and lr_sweep.sweeps(evidence) == lr_sweep.sweeps(evidence.swept)
    unswept = read(World().records())
    assert lr_sweep.without_rejected(unswept) is unswept


# -- a rule for learning rates is offered where sizes that it has not seen confirm it, and nowhere else ----------------


RATES = [1e-3 * 2.0**step for step in range(-2, 8)]


def family(best: dict[float, float], *, flat: float = 0.1) -> list:
    """Sweeps of sizes (MACs -> their best rate): accuracy falls by `flat` for every factor of two from it."""
    made = []
    for number, (macs, peak) in enumerate(best.items()):
        accuracies = {rate: 0.9 - flat * abs(np.log2(rate / peak)) for rate in RATES}
        for record in swept({rate: max(0.01, value) for rate, value in accuracies.items()}):
            made.append(
                change(
                    record,
                    {
                        "directory": f"size{number}-{record.directory}",
                        "cell.model": f"size-{number}",
                        "model.name": f"size-{number}",
                        "model.forward_macs": Operations(dense=macs, paper=macs),
                    },
                )
            )
    return made


def test_rates_that_fall_by_a_power_are_found_and_offered():
    """rate = 0.032 × (MACs / 1 M) ** -1/2, on six sizes a factor of four apart."""
    best = {1e6 * 4.0**n: 0.032 / 2**n for n in range(6)}
    (rule,) = rules(read(family(best)))
    assert rule.exponent == pytest.approx(-0.5) and rule.scale == pytest.approx(0.032 * 1e6**0.5)
    assert [each.model for each in rule.held_out] == ["size-2", "size-3", "size-4", "size-5"]
    assert all(each.predicted == pytest.approx(each.chosen) and each.right for each in rule.held_out)
    assert rule.offered and rule.p_value == pytest.approx(0.1**4)
    exponent, scale = np.polyfit(np.log(list(best)), np.log(list(best.values())), 1)
    assert (rule.exponent, np.log(rule.scale)) == pytest.approx((exponent, scale))
    assert "for the next size" in rate_rule(read(family(best))).note


def test_one_size_that_it_misses_refuses_it():
    best = {1e6 * 4.0**n: 0.032 / 2**n for n in range(6)} | {1e6 * 4.0**4: 0.008}
    (rule,) = rules(read(family(best)))
    missed = {each.model: each.lacks for each in rule.held_out if not each.right}
    assert "size-4" in missed and missed["size-4"] == pytest.approx(0.2) and not rule.offered


def test_few_hits_or_rates_that_are_all_alike_prove_nothing():
    (few,) = rules(read(family({1e6: 8e-3, 4e6: 8e-3, 16e6: 8e-3})))
    assert [each.right for each in few.held_out] == [True] and not few.offered and few.p_value > 0.05
    (alike,) = rules(read(family({1e6 * 4.0**n: 8e-3 for n in range(5)}, flat=0.001)))
    assert all(each.right for each in alike.held_out) and alike.p_value == 1.0 and not alike.offered
    assert rules(read(family({1e6: 8e-3, 4e6: 8e-3}))) == ()
