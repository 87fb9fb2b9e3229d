"""Extrapolation intervals from the record: nested, honest about what nobody knows, and as wide as past errors."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench import fit as verb
from bench.stats import bootstrap, extrapolation
from bench.stats.extrapolation import BENDING, MIN_ORIGINS, forecast
from bench.stats.fit import Points, fit
from bench.stats.forms import CHINCHILLA, FORMS, POWER, POWER_FLOOR
from tests.stats import coverage
from tests.stats.test_coverage import plausible
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
    for inner, outer in ((bands.within, bands.total), (bands.total, bands.one_run)):
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
    assert then.has_record and [o.end for o in then.origins] == [o.end for o in made.before(3).origins]
    for distance in (0.4, 0.7, 1.4):
        assert made.before(3).half_width(distance) == pytest.approx(then.half_width(distance), rel=1e-6)


def test_too_few_origins_are_no_record() -> None:
    few = forecast(curve(0, np.geomspace(1.0, 16.0, 6)))
    assert len(few.origins) < MIN_ORIGINS and not few.has_record
    assert np.isnan(few.half_width(0.7)) and few.half_width(0.0) == 0.0
    law = bootstrap.resample(fit(few.fits[0].points, POWER), draws=40, restarts=0)
    bands = few.bands(law, np.array([[10.0, 64.0]]))
    assert np.isfinite(bands.total[0]).all() and np.isnan(bands.total[1]).all() and np.isfinite(bands.within).all()


def test_a_real_vit_curve_is_held_where_resampling_within_one_form_is_not() -> None:
    """ViT-S/16, ImageNet 5-shot (Alabdulmohsin et al. 2022): fitted to 1.6e9 images, asked up to 3.4e9."""
    table = pd.read_csv(FIXTURES / "alabdulmohsin2022_vits16_inet5.csv")
    seen = table["is_fit"].astype(bool)
    x, y = table["seen_examples"].to_numpy(float), table["error"].to_numpy()
    made = forecast(points(y[seen], x[seen]))
    held = measure_extrapolation.judge(made, x[~seen], y[~seen])
    assert abs(held.trend_error[-1]) <= held.total[-1] < 0.1 and held.rms < 0.02
    law = fit(points(y[seen], x[seen]), FORMS["power-floor"])
    ends = np.log(np.quantile(bootstrap.resample(law, draws=100).predictions(x[~seen][None]), (0.05, 0.95), axis=0))
    trend = measure_extrapolation.trend(x[~seen], y[~seen])
    resampled = (ends[0] <= trend) & (trend <= ends[1])
    # points of one curve err together: 90 % are held over many curves (tools.measure_extrapolation), not of each
    assert (np.abs(held.trend_error) <= held.total).mean() > max(0.5, 2 * resampled.mean()) and not resampled[-1]


def test_two_inputs_are_extrapolated_along_their_product() -> None:
    table = pd.read_csv(FIXTURES / "chinchilla_fig4_subset_kyo.csv").query("C < 1e21")
    data = Points(x=table[["N", "D"]].to_numpy(float).T, y=table["loss"].to_numpy(), cluster=np.arange(len(table)))
    made = forecast(data, [CHINCHILLA], loss="huber", delta=1e-3, half_life=None)
    larger = pd.read_csv(FIXTURES / "chinchilla_fig4_subset_kyo.csv").query("C > 1.5e21")
    held = measure_extrapolation.judge(made, larger[["N", "D"]].to_numpy(float).T, larger["loss"].to_numpy())
    assert made.has_record and (np.abs(held.error) <= held.one_run).mean() > 0.8
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
        assert beyond["reach"] == pytest.approx(4) and beyond["record"]["origins"] >= MIN_ORIGINS
        assert beyond["record"]["factor"] == pytest.approx(4, rel=0.3) and beyond["record"]["median_error"] > 0
        assert below["reach"] == pytest.approx(1e-4) and below["total"] is None and below["within"]
        found = one["backtest"]
        ends = [row["end"] for row in found["rows"]]
        assert ends == sorted(ends, reverse=True) and len(ends) >= MIN_ORIGINS
        assert all(b["factor"] > 1 for row in found["rows"] for b in row["beyond"])
        assert 0 <= found["intervals_held"] <= found["intervals_judged"]
    assert verb.main([runs, "--x", "compute", "--y", "acc", "--backtest", "record.txt"]) == 2
    assert "is no figure" in capsys.readouterr().err


def test_an_accuracys_interval_ends_at_one(tmp_path: Path, capsys) -> None:
    x = np.geomspace(1e9, 1e13, 24)
    y = np.clip(0.995 + np.random.default_rng(0).normal(0, 0.004, 24), 0.9, 0.9999)  # error: chance, and stays there
    pd.DataFrame({"compute": x, "acc": 1 - y}).to_csv(tmp_path / "chance.csv", index=False)
    (one,) = run(str(tmp_path / "chance.csv"), capsys, "--predict", "1e15")["fits"].values()
    for name in ("within", "total", "one_run"):
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


@pytest.mark.slow
def test_simulated_coverage_beyond_the_data() -> None:
    """Where the truth is one of the forms: the total interval two and three times beyond the largest budget."""
    shares = coverage.beyond((2.0, 3.0), studies=3)
    for share in np.mean([*shares.values()], axis=0):
        assert plausible(float(share), studies=6 * len(shares)), shares
