"""`python -m bench.fit` on CSVs from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench import fit as verb


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    x = np.geomspace(1e9, 1e13, 14)
    parts = []
    for family, b, c in (("ViT", 300.0, 0.25), ("ResNet", 20.0, 0.15)):
        error = b * x**-c * np.exp(rng.normal(0, 0.01, len(x)))
        parts.append(pd.DataFrame({"family": family, "compute": x, "error": error}))
    pd.concat(parts).to_csv(tmp_path / "runs.csv", index=False)
    return tmp_path / "runs.csv"


def test_groups_predictions_and_crossing_as_json(runs: Path, capsys: pytest.CaptureFixture) -> None:
    arguments = [str(runs), "--x", "compute", "--y", "error", "--group", "family", "--form", "power", "--json"]
    assert verb.main([*arguments, "--predict", "2e13", "--bootstrap", "100"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["fits"]["ViT"]["card"]["parameters"]["c"] == pytest.approx(0.25, abs=0.01)
    prediction = answer["fits"]["ViT"]["predictions"][0]
    assert prediction["within"][0] < prediction["y"] < prediction["within"][1] and len(prediction["total"]) == 2
    crossing = answer["crossings"][0]
    assert crossing["verdict"] == "yes" and crossing["overtakes"] == "ViT"
    assert crossing["low"] < 15.0**10 < crossing["high"]


def test_runs_held_out_stand_beside_the_prediction_at_their_x(runs: Path, capsys: pytest.CaptureFixture) -> None:
    table = pd.read_csv(runs).assign(split="val")
    table["compute"] = table["compute"].round(-6)
    last = table[table["compute"] == 1e13]
    others = [last.assign(error=last["error"] * 1.001), last.assign(split="train", error=0.9)]
    pd.concat([table, *others]).to_csv(runs, index=False)
    words = [str(runs), "--x", "compute", "--y", "error", "--group", "family", "--form", "power", "--bootstrap", "60"]
    words += ["--where", "compute<5e12", "--where", "split=val", "--predict", "1e13,2e13"]
    assert verb.main([*words, "--json"]) == 0
    for family, found in json.loads(capsys.readouterr().out)["fits"].items():
        first, second = (prediction["observed"] for prediction in found["predictions"])
        kept = last.set_index("family")["error"][family]
        assert first["y"] == pytest.approx(1.0005 * kept) and first["n"] == 2 and second is None
        low, high = found["predictions"][0][first["interval"]]
        assert first["inside"] == sum(low <= kept * by <= high for by in (1, 1.001))
    assert verb.main(words) == 0
    assert capsys.readouterr().out.count("held out there: ") == 2
    missed = table.assign(error=table["error"].where(table["compute"] < 5e12, 99.0))
    missed.to_csv(runs, index=False)
    assert verb.main(words) == 0 and "there: 99, outside the interval of one run" in capsys.readouterr().out


def test_an_accuracy_held_out_is_read_as_that_of_the_fit(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    x = np.geomspace(1e6, 1e9, 10)
    pd.DataFrame({"images": x, "params": 1e6 * x, "accuracy": 100 - 300 * x**-0.3}).to_csv(tmp_path / "a.csv")
    words = [str(tmp_path / "a.csv"), "--x", "images", "--y", "accuracy", "--form", "power", "--bootstrap", "40"]
    assert verb.main([*words, "--where", "params<9e14", "--predict", "1e9", "--json"]) == 0
    (prediction,) = json.loads(capsys.readouterr().out)["fits"]["all"]["predictions"]
    assert prediction["observed"]["y"] == pytest.approx(prediction["y"], rel=1e-3)


def test_text_says_interval_starts_and_warnings(runs: Path, capsys: pytest.CaptureFixture) -> None:
    assert verb.main([str(runs), "--x", "compute", "--y", "error", "--form", "power", "--bootstrap", "60"]) == 0
    text = capsys.readouterr().out
    for part in ("y = b x^-c", "starts agree", "90%", "rms of log residuals"):
        assert part in text


@pytest.mark.parametrize(
    "change, message",
    [
        (["--x", "computee"], "Did you mean 'compute'"),
        (["--form", "pwer"], "Unknown form"),
        (["--predict", "minus"], "not a positive number"),
        (["--form", "chinchilla"], "takes 2 x columns"),
        (["--form", "isoflop"], "--budget"),
        (["--delta", "-1"], "not a number above 0"),
        (["--delta", "nan"], "not a number above 0"),
    ],
)
def test_bad_input_is_one_message(runs: Path, change: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    assert verb.main([str(runs), "--x", "compute", "--y", "error", "--form", "power", *change]) == 2
    assert message in capsys.readouterr().err


def test_a_missing_file_and_a_mixed_schedule(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert verb.main([str(tmp_path / "no.csv"), "--x", "a", "--y", "b"]) == 2
    table = pd.read_csv(runs)
    table["annealed"] = [i % 2 == 0 for i in range(len(table))]
    table.to_csv(runs, index=False)
    assert verb.main([str(runs), "--x", "compute", "--y", "error"]) == 2
    assert "mix schedules" in capsys.readouterr().err
