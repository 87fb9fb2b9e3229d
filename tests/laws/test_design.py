"""The next runs: linearised variances beside least squares and simulations, choices beside all there are."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

from bench.commands import fit as verb
from bench.core.errors import UserError
from bench.laws import averaging, bootstrap, design, next_runs, runs_table
from bench.laws.fit import Points, fit
from bench.laws.forms import CHINCHILLA, POWER
from tests.conftest import PROJECT
from tools import measure_designs

X = np.geomspace(1e9, 1e12, 7)
NOISE = 0.02


def group(x: np.ndarray = X, *, form=POWER, name: str = "all", seed: int = 0, draws: int = 300) -> design.KnownGroup:
    rng = np.random.default_rng(seed)
    x = np.atleast_2d(x)
    y = 60 * x[0] ** -0.2 if form is POWER else 1.7 + 400 * x[0] ** -0.34 + 400 * x[1] ** -0.28
    points = Points(x=x, y=y * np.exp(NOISE * rng.normal(size=x.shape[1])), cluster=np.arange(x.shape[1]))
    made = fit(points, form, loss="squares")
    refits = averaging.alone(bootstrap.resample(made, draws=draws, restarts=0))
    return design.KnownGroup(name=name, fits=(made,), weights=np.ones(1), refits=refits)


def candidates(x: np.ndarray, price: np.ndarray | None = None, of: np.ndarray | None = None) -> design.Candidates:
    x = np.atleast_2d(x)
    number = x.shape[1]
    return design.Candidates(
        x=x,
        group=np.zeros(number, dtype=int) if of is None else of,
        price=x[0] if price is None else price,
    )


EXPONENT = design.NarrowedAnswer(text="exponent", value=lambda laws: laws[0].natural()["c"])


def test_the_variance_of_an_exponent_is_that_of_least_squares() -> None:
    """A power law is a line through logarithms, whose slope's standard error SciPy knows."""
    one = group()
    line = stats.linregress(np.log(X), np.log(one.fits[0].points.y))
    new = np.geomspace(1e12, 1e13, 3)
    problem = design.problem(EXPONENT, [one], candidates(new))
    none = np.zeros(3, dtype=int)
    assert problem.variances(none) == pytest.approx(line.stderr**2, rel=1e-3)
    both = np.log(np.append(X, new))
    expected = one.variance / ((both - both.mean()) ** 2).sum()
    assert problem.variances(np.ones(3, dtype=int)) == pytest.approx(expected, rel=1e-3)


def test_one_more_run_is_as_if_counted_from_the_start() -> None:
    seen = np.array(list(itertools.product(np.geomspace(1e7, 1e8, 4), np.geomspace(2e8, 2e9, 4)))).T
    one = group(seen, form=CHINCHILLA)
    wanted = next_runs.named("y@1e21", [one], form=CHINCHILLA, middle=1.0)
    wanted = next_runs._extrapolated(wanted, [one], None)
    object.__setattr__(wanted, "extrapolation", 0.01)
    new = np.array(list(itertools.product(np.geomspace(1e7, 1e9, 4), np.geomspace(1e9, 1e11, 4)))).T
    problem = design.problem(wanted, [one], candidates(new))
    count = np.zeros(16, dtype=int)
    count[[2, 9]] = 1, 2
    for place, found in enumerate(problem.with_one_more(count)):
        assert found == pytest.approx(problem.score(count + (np.arange(16) == place)), abs=1e-9)


@pytest.mark.parametrize("money", [3e12, 8e12, 2e13])
def test_no_affordable_design_is_better_by_more_than_a_hair(money: float) -> None:
    """Beside all designs of up to five runs at six places."""
    new = np.geomspace(1e11, 1e13, 6)
    problem = design.problem(EXPONENT, [group()], candidates(new))
    chosen = design.choose(problem, money)
    assert chosen @ problem.price_C <= money * (1 + 1e-9)
    best = np.inf
    for number in range(1, 6):
        for picked in itertools.combinations_with_replacement(range(6), number):
            count = np.bincount(picked, minlength=6)
            if count @ problem.price_C <= money:
                best = min(best, problem.score(count))
    assert problem.score(chosen) <= best + 0.03


def test_the_expected_width_is_what_studies_then_have() -> None:
    """Closed form of a line: Student's t times the standard error with the new runs."""
    one, new = group(draws=400), np.array([[3e13, 3e13 * 1.5]])
    found = design.expected_width(EXPONENT, [one], [new])
    every = np.log(np.append(X, new))
    error = np.sqrt(one.variance / ((every - every.mean()) ** 2).sum())
    assert found.half == pytest.approx(stats.t.ppf(0.95, one.freedom + 2) * error, rel=0.15)
    before = design.expected_width(EXPONENT, [one], [np.zeros((1, 0))])
    assert found.half < before.half


def test_the_optimum_is_where_the_law_is_least() -> None:
    seen = np.array(list(itertools.product(np.geomspace(1e7, 1e8, 4), np.geomspace(2e8, 2e9, 4)))).T
    made = group(seen, form=CHINCHILLA).fits[0]
    law = design.DrawnLaw(form=CHINCHILLA, scale=made.scale, theta=made.theta)

    def loss(log_n: float) -> float:
        n = np.exp(log_n)
        return float(law.log_predict(np.array([[n], [1e21 / (6 * n)]]))[0])

    least = minimize_scalar(loss, bounds=(np.log(1e7), np.log(1e12)), method="bounded")
    n, d = design.optimum(law, 1e21, flop_per=6.0)
    assert np.log(n) == pytest.approx(least.x, abs=1e-3) and 6 * n * d == pytest.approx(1e21)


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    x = np.geomspace(1e15, 1e17, 8)
    parts = [
        pd.DataFrame(
            {"family": name, "flops": x, "gpu_hours": x / 1e15, "error": b * x**-c * np.exp(rng.normal(0, 0.01, 8))}
        )
        for name, b, c in (("ViT", 3e3, 0.25), ("ResNet", 66.0, 0.15))
    ]
    pd.concat(parts).to_csv(tmp_path / "runs.csv", index=False)
    return tmp_path / "runs.csv"


def words(runs: Path, *more: str) -> list[str]:
    return [str(runs), "--x", "flops", "--y", "error", "--form", "power", "--bootstrap", "60", *more]


def told(capsys: pytest.CaptureFixture, *arguments: str) -> dict:
    assert verb.main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["design"]


def test_a_design_keeps_to_its_money_and_narrows(runs: Path, capsys: pytest.CaptureFixture) -> None:
    vit = words(runs, "--where", "family=ViT")
    made = told(capsys, *vit, "--design", "1e19", "--price", "2.5/gpuh", "--predict", "1e20")
    assert made["narrows"] == "y at x = 1e+20" and made["log"]
    assert (
        sum(run["number"] * run["cost"] for run in made["runs"]) == pytest.approx(made["cost"]) and made["cost"] <= 1e19
    )
    assert made["money"] == pytest.approx(2.5 * made["cost"] / (0.4 * 989.4e12 * 3600), rel=0.01)
    assert made["after"] < made["before"]
    assert max(run["x"] for run in made["runs"]) > 1e18, "what is asked lies beyond the data"
    inside = told(capsys, *vit, "--design", "40", "--cost", "gpu_hours", "--narrow", "exponent")
    assert inside["unit"] == "hours" and inside["cost"] <= 40 and max(run["x"] for run in inside["runs"]) < 5e16
    assert verb.main([*vit, "--design", "40", "--cost", "gpu_hours", "--price", "2/gpuh"]) == 0
    text = capsys.readouterr().out
    assert "next runs that narrow the exponent" in text and "90% interval, expected: now ±" in text


def test_two_groups_get_runs_of_both_for_their_crossing(runs: Path, capsys: pytest.CaptureFixture) -> None:
    made = told(capsys, *words(runs, "--group", "family", "--design", "3e17"))
    assert made["narrows"] == "x where they cross" and {run["group"] for run in made["runs"]} == {"ViT", "ResNet"}
    true = np.log(3e3 / 66.0) / 0.1
    assert np.log(made["value"]) == pytest.approx(true, abs=0.5) and made["after"] < made["before"]


@pytest.mark.parametrize(
    "more, said",
    [
        (("--design", "1e18", "--narrow", "crossing"), "A crossing is of two groups"),
        (("--design", "1e18", "--narrow", "colour"), "Unknown answer 'colour'"),
        (("--design", "1e18", "--narrow", "y@much"), "names no place"),
        (("--design", "3"), "is no budget for runs like these"),
        (("--design", "1e18", "--narrow", "x@1e-300"), "These laws give no x of y"),
        (("--design", "1e18", "--price", "20/h"), "the price of many devices"),
        (("--design", "1e18", "--group", "family", "--narrow", "y@1e20"), "groups have no one"),
    ],
)
def test_what_cannot_be_designed_is_said(runs: Path, more: tuple[str, ...], said: str) -> None:
    one = () if "--group" in more else ("--where", "family=ViT")
    with pytest.raises(UserError, match=said):
        verb.main.__wrapped__(words(runs, *one, *more))


def test_what_a_run_costs() -> None:
    n, d = np.array([1e6, 1e7, 1e8]), np.array([1e9, 4e9, 2e9])
    table = pd.DataFrame({"N": n, "D": d, "loss": 3.0, "gpu_hours": 1e-12 * n**0.9 * d**1.1, "images": d})
    x = np.array([[3e7], [5e9]])
    assert runs_table.run_price(table, ("N", "D")).of(x) == pytest.approx(6 * 3e7 * 5e9)
    hours = runs_table.run_price(table, ("N", "D"), cost="gpu_hours")
    assert hours.unit == "hours"
    only = runs_table.run_price(table[["images", "loss"]], ("images",))
    assert only.unit == "images" and only.of(np.array([[7.0]])) == pytest.approx(7.0)
    four = pd.concat([table, table.assign(N=2e6, D=2e9, gpu_hours=1e-12 * 2e6**0.9 * 2e9**1.1)[:1]])
    assert runs_table.run_price(four, ("N", "D"), cost="gpu_hours").of(x) == pytest.approx(1e-12 * 3e7**0.9 * 5e9**1.1)


# -- what designs are worth --------------------------------------------------------------------------------------------

ROWS = {(row["truth"], row["answer"], row["design"]): row for row in csv.DictReader(measure_designs.FILE.open())}
HELD = list(measure_designs.TRUTHS)[:3]  # truths that the fitted form holds


def over_designer(answer: str, kind: str, column: str) -> float:
    ratios = [float(ROWS[t, answer, kind][column]) / float(ROWS[t, answer, "designer"][column]) for t in HELD]
    return float(np.exp(np.mean(np.log(ratios))))


@pytest.mark.parametrize("kind", [*measure_designs.OTHERS, "none"])
def test_the_page_says_what_was_measured(kind: str) -> None:
    page = (PROJECT / "docs" / "fit.md").read_text()
    cells = " | ".join(
        f"{over_designer(answer, kind, 'half'):.1f}, {over_designer(answer, kind, 'error'):.1f}"
        for answer in measure_designs.ANSWERS
    )
    assert f"| {cells} |" in page


def test_the_designer_is_the_narrowest_where_the_form_holds_and_the_worst_case_is_said() -> None:
    for (truth, answer, kind), row in ROWS.items():
        assert float(row["spent"]) <= 1.001
        if truth in HELD:
            assert float(ROWS[truth, answer, "designer"]["half"]) <= float(row["half"]), (truth, answer, kind)
            assert float(row["covers"]) >= 0.6
    worst = {kind: float(ROWS["Kaplan", "y", kind]["error"]) for kind in ("designer", *measure_designs.OTHERS)}
    assert max(worst, key=worst.__getitem__) == "designer"
    page = " ".join((PROJECT / "docs" / "fit.md").read_text().split())
    assert f"{100 * worst['designer']:.0f} % beside {100 * worst['equal spacing']:.1f} % of equal spacing" in page
    assert f"hold the truth in {100 * float(ROWS['Kaplan', 'y', 'designer']['covers']):.0f} %" in page


def test_a_study_measured_again_is_like_those_that_are_kept() -> None:
    rows = measure_designs.measured(measure_designs.TRUTHS["Besiroglu"], seed=10_000)
    half = {(row["design"], row["answer"]): row["half"] for row in rows}
    for answer in measure_designs.ANSWERS:
        kept = float(ROWS["Besiroglu", answer, "designer"]["half"])
        assert kept / 3 < half["designer", answer] < 3 * kept
        assert half["designer", answer] < min(half[kind, answer] for kind in ("equal spacing", "largest", "none"))
    true = measure_designs.truth_of(measure_designs.TRUTHS["Hoffmann"], 1e22)
    assert true["exponent"] == pytest.approx(0.28 / (0.34 + 0.28), rel=1e-3), "beta / (alpha + beta)"
