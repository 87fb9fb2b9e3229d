"""Extrapolation intervals from the record: nested, honest about what nobody knows, and as wide as past errors."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bench.commands import fit as verb
from bench.laws import bootstrap, extrapolation
from bench.laws.extrapolation import BENDING, FREEDOM, MIN_PLACES, Bands, far_off_runs, forecast, reached
from bench.laws.fit import Points, fit
from bench.laws.forms import CHINCHILLA, FORMS, POWER, POWER_FLOOR
from tests.laws.test_coverage import plausible
from tools import coverage_of_fits as coverage
from tools import measure_extrapolation

FIXTURES = Path(__file__).resolve().parent / "fixtures"
X = np.geomspace(1.0, 1024.0, 21)  # every half octave


def points(y: np.ndarray, x: np.ndarray = X) -> Points:
    return Points(x=x[None], y=y, cluster=np.arange(len(y)))


def curve(seed: int, x: np.ndarray = X, noise: float = 0.01) -> Points:
    """A floor that nobody has seen yet, a bend and scatter."""
    rng = np.random.default_rng(seed)
    return points((0.1 + 0.9 * x**-0.1 * (1 + (x / 40) ** 2) ** -0.15) * np.exp(rng.normal(0, noise, len(x))), x)


@pytest.mark.parametrize("seed, forms", [(0, BENDING), (1, (POWER,)), (2, (POWER_FLOOR,)), (3, (POWER_FLOOR,))])
def test_within_lies_in_total_lies_in_one_run(seed: int, forms: tuple) -> None:
    data = curve(seed)
    law = fit(data, forms[0], loss="squares", max_starts=30)
    at = np.geomspace(2.0, 1e5, 40)[None]
    bands = forecast(data, forms).bands(bootstrap.resample(law, draws=100, restarts=0), at)
    inside = at[0] <= X[-1]
    assert np.isnan(bands.within[~inside]).all() and np.isfinite(bands.one_run).all()
    for inner, outer in ((bands.within[inside], bands.total[inside]), (bands.total, bands.one_run)):
        assert (outer[:, 0] <= inner[:, 0]).all() and (inner[:, 1] <= outer[:, 1]).all()
    assert ((bands.total[:, 0] <= bands.y) & (bands.y <= bands.total[:, 1])).all()


def test_the_interval_is_the_procedures_past_error() -> None:
    """A straight fit to a curve that steepens in log-log by a known amount: the record gives the next error back."""
    x = np.geomspace(1.0, 1024.0, 41)
    made = forecast(points(np.exp(-0.02 * np.log(x) ** 2), x), [POWER], half_life=None)
    for factor in (2.0, 4.0, 8.0):
        distance = float(np.log(factor))
        truth = -0.02 * np.log(1024 * factor) ** 2
        missed = abs(truth - made.log_predict(np.array([[1024 * factor]]))[0])
        assert missed < made.half_width(distance) < 2.5 * missed
    assert made.half_width(0.0) == 0.0 and np.isnan(made.half_width(-1.0))


def test_the_record_of_an_origin_is_the_record_that_was_known_there() -> None:
    data = curve(1, X[:15])
    made = forecast(data)
    then = forecast(data.take(data.x[0] <= made.origins[3].end))
    assert then.answers and [o.end for o in then.origins] == [o.end for o in made.before(3).origins]
    for distance in (0.4, 0.7, 1.4):
        assert made.before(3).half_width(distance) == pytest.approx(then.half_width(distance), rel=1e-6)


def test_without_an_origin_other_curves_give_the_interval_and_with_three_places_nothing_does() -> None:
    few = forecast(curve(0, np.geomspace(1.0, 8.0, 4)))
    assert not few.origins and few.answers and len(np.unique(few.fits[0].points.x)) == MIN_PLACES
    expected = stats.t.ppf(0.95, FREEDOM) * few.prior.usual_rate * np.log(2)
    assert few.half_width(np.log(2)) == pytest.approx(expected) and few.half_width(0.0) == 0.0
    none = forecast(curve(0, np.geomspace(1.0, 4.0, 3)), [POWER])
    assert not none.answers and np.isnan(none.half_width(0.7)) and np.isnan(few.half_width(-0.7))


def test_a_seed_at_every_size_counts_as_evidence_of_noise() -> None:
    """Two runs at each of eight sizes that differ by 20 %, beside their means: one more run may be as far off."""
    x, by = np.repeat(2.0 ** np.arange(8), 2), np.tile([-0.1, 0.1], 8)
    alone, both = (forecast(points(x**-0.3 * np.exp(factor * by), x)).scatter for factor in (0, 1))
    assert alone < 1e-6 and both == pytest.approx(0.1 * np.sqrt(2), rel=0.2)


@pytest.mark.parametrize("at, factor, named", [(6, 9.0, True), (3, 2.0, True), (6, 1.01, False), (20, 9.0, False)])
def test_a_run_far_off_the_others_is_found_and_a_last_point_never(at: int, factor: float, named: bool) -> None:
    data = curve(3)
    assert not far_off_runs(data).any()
    y = data.y * np.where(np.arange(len(X)) == at, factor, 1.0)
    assert np.flatnonzero(far_off_runs(points(y))).tolist() == ([at] if named else [])


def test_a_bend_at_the_end_is_told_and_the_interval_leans_there() -> None:
    """Straight octaves, then a floor that nothing announced: every origin missed to the same side."""
    assert forecast(points(0.2 + 0.7 * X**-0.4)).departure() is None
    floor = np.maximum(X**-0.3, 0.15) * np.exp(np.tile([2e-3, -2e-3, 0], 7))
    bent = forecast(points(floor), [POWER], half_life=None)
    below, above = bent.sides(0.7)
    assert bent.departure() > 0 and above > 1.2 * below


def test_an_inverse_goes_back_to_where_the_line_and_its_ends_are() -> None:
    x = np.geomspace(1, 1e4, 200)
    run = np.stack([0.9 * x**-0.5, 1.1 * x**-0.5], axis=1)
    law = np.stack([x**-0.5] * 2, axis=1)  # is not what is inverted
    bands = Bands(y=x**-0.5, within=law, total=law, one_run=run, reach=np.ones(200))
    found = reached(x, bands, 0.05)
    assert (found.low, found.x, found.high) == pytest.approx((324, 400, 484), rel=1e-3)
    assert reached(x, bands, 2.0).high == 0 and reached(x, bands, 1e-3).low == np.inf
    run[x > 450] = np.nan  # nothing is known there
    assert reached(x, bands, 0.05).high == np.inf


def test_curves_are_judged_by_source(tmp_path: Path, capsys) -> None:
    """Three power laws with little noise: every interval holds, and inverting gives the x that was held out."""
    x = 2.0 ** np.arange(10)
    rng = np.random.default_rng(0)
    parts = [
        pd.DataFrame({"curve": str(c), "source": "lines", "x": x, "y": x**-c * np.exp(rng.normal(0, 1e-3, 10))})
        for c in (0.1, 0.2, 0.4)
    ]
    pd.concat(parts).to_csv(tmp_path / "lines.csv", index=False)
    cases = [measure_extrapolation.case(*each) for each in measure_extrapolation.curves(str(tmp_path / "lines.csv"))]
    row = measure_extrapolation.table(cases).set_index("").loc["lines"]
    held, scored = row[["answered", "one run", "total", "x: held"]], measure_extrapolation.against(cases)["ours"]
    assert (held == "1.00").all() and (scored == row["Winkler"]).all()
    assert float(row["x: median error"]) < 0.05 and float(row["half-width"]) < 0.1 and len(cases) == 3
    assert measure_extrapolation.winkler(np.array([0.0, 0.3, -0.4]), np.full((3, 2), 0.2)) == pytest.approx(
        [0.4, 2.4, 4.4]
    )


def test_a_real_vit_curve_is_held_where_resampling_within_one_form_is_not() -> None:
    """ViT-S/16, ImageNet 5-shot (Alabdulmohsin et al. 2022): fitted to 1.6e9 images, asked up to 3.4e9."""
    table = pd.read_csv(FIXTURES / "alabdulmohsin2022_vits16_inet5.csv")
    seen = table["is_fit"].astype(bool)
    x, y = table["seen_examples"].to_numpy(float), table["error"].to_numpy()
    made = forecast(points(y[seen], x[seen]))
    held = measure_extrapolation.judge(made, x[~seen], y[~seen])
    assert measure_extrapolation.inside(held.trend_error, held.total)[-1]
    assert held.total[-1].max() < 0.1 and held.rms < 0.02
    law = fit(points(y[seen], x[seen]), FORMS["power-floor"])
    ends = np.log(np.quantile(bootstrap.resample(law, draws=100).predictions(x[~seen][None]), (0.05, 0.95), axis=0))
    trend = measure_extrapolation.trend(x[~seen], y[~seen])
    resampled = (ends[0] <= trend) & (trend <= ends[1])
    # points of one curve err together: 90 % are held over many curves (tools.measure_extrapolation), not of each
    held_in_total = measure_extrapolation.inside(held.trend_error, held.total).mean()
    assert held_in_total > max(0.5, 2 * resampled.mean()) and not resampled[-1]


def test_two_inputs_are_extrapolated_along_their_product() -> None:
    table = pd.read_csv(FIXTURES / "chinchilla_fig4_subset_kyo.csv").query("C < 1e21")
    data = Points(x=table[["N", "D"]].to_numpy(float).T, y=table["loss"].to_numpy(), cluster=np.arange(len(table)))
    made = forecast(data, [CHINCHILLA], loss="huber", delta=1e-3, half_life=None)
    larger = pd.read_csv(FIXTURES / "chinchilla_fig4_subset_kyo.csv").query("C > 1.5e21")
    held = measure_extrapolation.judge(made, larger[["N", "D"]].to_numpy(float).T, larger["loss"].to_numpy())
    assert made.answers and measure_extrapolation.inside(held.error, held.one_run).mean() > 0.8
    assert (made.distance(data.x) == 0).all() and made.distance(2 * data.x.max(axis=1, keepdims=True))[0] > 1.3


def test_a_long_table_is_averaged_and_gives_the_fit_to_all_of_its_points() -> None:
    x = np.geomspace(1.0, 1000.0, 3000)
    data = points((0.2 + 0.7 * x**-0.4) * np.exp(np.random.default_rng(0).normal(0, 0.02, len(x))), x)
    made = forecast(data, (POWER, POWER_FLOOR))
    assert len(made.fits[0].points) <= extrapolation.MAX_BINS
    every = fit(data, POWER_FLOOR, loss="squares", weight=x ** (1 / extrapolation.POINTS_HALF_LIFE))
    at = np.array([[2000.0]])
    assert made.of([POWER_FLOOR]).log_predict(at) == pytest.approx(every.log_predict(at), abs=2e-3)


@pytest.fixture
def runs(tmp_path: Path) -> str:
    x, rng = np.geomspace(1e9, 1e13, 24), np.random.default_rng(0)
    parts = [
        pd.DataFrame({"family": family, "compute": x, "acc": 1 - (floor + b * x**-c) * np.exp(rng.normal(0, 0.01, 24))})
        for family, floor, b, c in (("ViT", 0.05, 100.0, 0.25), ("Res\x1b[31mNet", 0.1, 10.0, 0.15))
    ]
    pd.concat(parts).to_csv(tmp_path / "runs.csv", index=False)
    return str(tmp_path / "runs.csv")


def run(path: str, capsys: pytest.CaptureFixture, *more: str) -> dict:
    assert verb.main([path, "--x", "compute", "--y", "acc", "--bootstrap", "40", "--json", *more]) == 0
    return json.loads(capsys.readouterr().out)


def test_auto_gives_one_form_to_all_families_and_a_record_to_each(runs: str, tmp_path: Path, capsys) -> None:
    figure = tmp_path / "record.svg"
    answer = run(runs, capsys, "--group", "family", "--predict", "1e12,4e13,1e5", "--backtest", str(figure))
    assert figure.read_text().count("<svg") == 1
    assert len({one["card"]["form"] for one in answer["fits"].values()}) == 1
    for one in answer["fits"].values():
        inside, beyond, below = one["predictions"]
        assert inside["reach"] == 1 and inside["record"] is None and inside["total"]
        assert beyond["reach"] == pytest.approx(4) and beyond["record"]["origins"] > 2
        assert beyond["record"]["factor"] == pytest.approx(4, rel=0.3) and beyond["record"]["median_error"] > 0
        assert (
            below["reach"] == pytest.approx(1e-4)
            and below["total"] is below["within"] is None
            and "run there" in below["refused"]
        )
        backtest = one["backtest"]
        ends = [row["end"] for row in backtest["rows"]]
        assert ends == sorted(ends, reverse=True) and len(ends) > 2
        assert all(b["factor"] > 1 for row in backtest["rows"] for b in row["beyond"])
        assert 0 <= backtest["intervals_held"] <= backtest["intervals_judged"]
    assert verb.main([runs, "--x", "compute", "--y", "acc", "--backtest", "record.txt"]) == 2
    assert "is no figure" in capsys.readouterr().err


def test_an_accuracys_interval_ends_at_one(tmp_path: Path, capsys) -> None:
    x = np.geomspace(1e9, 1e13, 24)
    y = np.clip(0.995 + np.random.default_rng(0).normal(0, 0.004, 24), 0.9, 0.9999)  # error: chance, and stays there
    pd.DataFrame({"compute": x, "acc": 1 - y}).to_csv(tmp_path / "chance.csv", index=False)
    (one,) = run(str(tmp_path / "chance.csv"), capsys, "--predict", "1e15")["fits"].values()
    for name in ("total", "one_run"):
        assert 0 < one["predictions"][0][name][0] <= one["predictions"][0][name][1] <= 1


def test_names_from_a_file_do_not_reach_the_terminal_as_commands(runs: str, capsys) -> None:
    for more in (["--group", "family"], ["--where", "family=none"]):
        verb.main([runs, "--x", "compute", "--y", "acc", "--form", "power", "--bootstrap", "40", *more])
        printed = capsys.readouterr()
        assert "\x1b" not in printed.out + printed.err and "Net" in printed.out + printed.err


def test_a_parameter_without_meaning_is_not_printed(tmp_path: Path, capsys) -> None:
    x = np.geomspace(1e9, 1e13, 24)
    y = 2 * (x / 1e9) ** -0.1 * np.exp(-0.01 * np.log(x / 1e9) ** 2)  # steeper and steeper: no floor
    pd.DataFrame({"compute": x, "error": y}).to_csv(tmp_path / "power.csv", index=False)
    arguments = [str(tmp_path / "power.csv"), "--x", "compute", "--y", "error", "--form", "power-floor"]
    assert verb.main([*arguments, "--bootstrap", "40"]) == 0
    printed = capsys.readouterr().out
    assert "e is not determined" in printed and "  e = " not in printed and "  c = 0." in printed


STEPS = np.arange(1.0, 33.0) * 1000


@pytest.mark.parametrize(
    "x, y, more, refused",
    [
        (STEPS, 0.3 + STEPS**-0.3, [], "no scaling curve where its rate decays"),
        (STEPS, 0.3 + STEPS**-0.3, ["--schedule", "constant"], None),
        (2.0 ** np.arange(8), 2.0 ** -np.arange(8), ["--schedule", "decay"], "no scaling curve where its rate decays"),
        (2.0 ** np.arange(3), 2.0 ** -np.arange(3), [], "run 1 more"),
    ],
)
def test_what_cannot_be_extrapolated_is_refused_with_no_number(tmp_path: Path, x, y, more, refused, capsys) -> None:
    pd.DataFrame({"step": x, "loss": y}).to_csv(tmp_path / "run.csv", index=False)
    words = [str(tmp_path / "run.csv"), "--x", "step", "--y", "loss", "--bootstrap", "40", *more]
    words += ["--predict", str(2 * x[-1]), "--reach", str(0.8 * y[-1])]
    assert verb.main(words) == 0
    text = capsys.readouterr().out
    (line,) = (line for line in text.splitlines() if line.startswith("  x = "))
    assert (refused in line and "y =" not in line and "[" not in line) if refused else "in total" in line
    assert ("warning: These" in text) == ("rate decays" in (refused or ""))
    assert verb.main([*words, "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["fits"].values()
    (prediction,), (inverse,) = one["predictions"], one["reached"]
    assert all((prediction[name] is None) == bool(refused) for name in ("total", "one_run"))
    assert prediction["within"] is None and (inverse["high"] is None) == bool(inverse["why"])


def test_the_law_that_is_named_first_predicts_and_is_inverted(runs: str, capsys) -> None:
    words = [runs, "--x", "compute", "--y", "acc", "--group", "family", "--bootstrap", "40"]
    assert verb.main(words) == 0
    assert "all" not in (first := capsys.readouterr().out.splitlines()[0]) and "the law is the median of" in first
    at = run(runs, capsys, "--group", "family", "--predict", "2e13")
    for name, one in at["fits"].items():
        accuracy = 1 - one["predictions"][0]["y"]
        back = run(runs, capsys, "--where", f"family={name}", "--reach", str(accuracy))["fits"]["all"]["reached"][0]
        assert back["x"] == pytest.approx(2e13, rel=0.02) and back["low"] < 2e13 < (back["high"] or np.inf)


@pytest.mark.nightly
def test_simulated_coverage_beyond_the_data() -> None:
    """Where the truth is one of the forms: the total interval two and three times beyond the largest budget."""
    shares = coverage.beyond((2.0, 3.0), studies=3)
    for share in np.mean([*shares.values()], axis=0):
        assert plausible(float(share), studies=6 * len(shares)), shares
