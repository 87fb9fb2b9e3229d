"""Tables of thousands of rows: means of neighbours are fitted, which say the same as the rows do."""

import numpy as np
import pandas as pd
import pytest

from bench.laws import isoflop, runs_table, table_fit
from bench.laws.extrapolation import far_off_runs
from bench.laws.fit import MEANS, Points, fit
from bench.laws.forms import CHINCHILLA, POWER, POWER_FLOOR

NOISE = 0.05


def points(x: np.ndarray, *, seed: int = 0, cluster: np.ndarray | None = None) -> Points:
    noise = np.exp(NOISE * np.random.default_rng(seed).standard_normal(len(x)))
    trunks = np.arange(len(x)) if cluster is None else cluster
    return Points(x=x[None], y=(0.1 + 50 * x**-0.3) * noise, cluster=trunks)


SPREAD = np.exp(np.random.default_rng(1).uniform(np.log(1e6), np.log(1e11), 3_000))


def test_a_law_of_means_is_that_of_the_rows() -> None:
    rows = points(SPREAD)
    means = rows.averaged()
    assert MEANS <= len(means) <= 2 * MEANS
    of_rows, of_means = (fit(each, POWER_FLOOR, loss="squares").parameters for each in (rows, means))
    assert of_means["c"] == pytest.approx(of_rows["c"], rel=0.02)
    assert of_means["e"] == pytest.approx(of_rows["e"], rel=0.02)
    assert of_means["c"] == pytest.approx(0.3, rel=0.04)


def test_one_run_scatters_as_much_as_before() -> None:
    """What a prediction of one more run needs, which means do not show."""
    assert points(SPREAD).averaged().scatter == pytest.approx(NOISE, rel=0.1)
    assert fit(points(SPREAD).averaged(), POWER_FLOOR).rms < NOISE / 3


def test_repeats_at_a_few_places_stay_repeats_there() -> None:
    x = np.repeat(np.geomspace(1e6, 1e11, 8), 200)
    means = points(x).averaged()
    assert np.unique(means.x.round(3)).size == 8
    assert len(means) >= MEANS


def test_rows_of_two_trunks_are_never_averaged_with_each_other() -> None:
    trunk = np.arange(len(SPREAD)) % 7
    means = points(SPREAD, cluster=trunk).averaged()
    assert sorted(set(means.cluster.tolist())) == list(range(7))
    assert not set(np.log(means.x[0]).round(9)) & set(np.log(points(SPREAD).averaged().x[0]).round(9))


def table(number: int) -> pd.DataFrame:
    rows = points(SPREAD[:number])
    return pd.DataFrame({"x": rows.x[0], "y": rows.y})


def test_what_was_averaged_is_said_and_a_small_table_is_left_alone() -> None:
    request = table_fit.Request(x=("x",), y="y", form="power-floor", draws=40)
    large, small = (table_fit.answer(table(n), request)["fits"]["all"] for n in (2_000, table_fit.MAX_ROWS))
    assert any(note.startswith("2,000 rows are fitted as ") for note in large["notes"])
    assert not any("fitted as" in note for note in small["notes"])
    assert small["card"]["points"] == table_fit.MAX_ROWS


def test_a_law_of_several_inputs_has_its_rows_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_table, "MAX_POINTS", 100)
    rng = np.random.default_rng(3)
    n, d = np.exp(rng.uniform(np.log(1e6), np.log(1e9), (2, 950)))
    rows = pd.DataFrame({"N": n, "D": d, "loss": 1.7 + 400 * n**-0.34 + 410 * d**-0.28})
    made, notes = runs_table.points(rows, x=("N", "D"), y="loss")
    assert len(made) == 95 and notes == ["Of 950 rows, one in 10 is fitted, evenly along the table."]
    assert fit(made, CHINCHILLA, max_starts=4).parameters["alpha"] == pytest.approx(0.34, rel=0.05)


def test_a_run_far_off_is_found_among_thousands_and_among_repeats() -> None:
    for x in (SPREAD, np.repeat(np.geomspace(1e6, 1e11, 300), 3)):
        rows = points(x)
        order = np.argsort(x, kind="stable")
        rows.y[order[len(x) // 2]] *= 1e4
        assert np.flatnonzero(far_off_runs(rows)).tolist() == [order[len(x) // 2]]


def test_laws_of_means_stay_a_straight_line_where_rows_make_one() -> None:
    rows = Points(x=SPREAD[None], y=3 * SPREAD**-0.2, cluster=np.arange(len(SPREAD)))
    assert fit(rows.averaged(), POWER).parameters["c"] == pytest.approx(0.2, rel=1e-3)


def test_budgets_that_differ_in_their_last_digits_are_one() -> None:
    """As runs take them: each its own compute. The answer is that of the budgets that were meant."""
    rng = np.random.default_rng(5)
    meant = np.repeat([1e18, 1e19, 1e20, 1e21], 10)
    sizes = 1e8 * (meant / 1e18) ** 0.5 * np.tile(np.geomspace(0.2, 6, 10), 4)
    losses = 2.6 + 0.05 * np.log(sizes / (1e8 * (meant / 1e18) ** 0.5)) ** 2
    taken = meant * (1 + rng.uniform(-1e-4, 1e-4, len(meant)))
    plain, made = isoflop.fit(meant, sizes, losses), isoflop.fit(taken, sizes, losses)
    assert [minimum.budget for minimum in plain.minima] == [1e18, 1e19, 1e20, 1e21]
    assert len(made.minima) == 4 and made.exponent == pytest.approx(plain.exponent, rel=1e-3)
