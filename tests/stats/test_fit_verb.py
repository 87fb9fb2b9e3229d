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


def test_text_says_interval_starts_and_warnings(runs: Path, capsys: pytest.CaptureFixture) -> None:
    assert verb.main([str(runs), "--x", "compute", "--y", "error", "--form", "power", "--bootstrap", "60"]) == 0
    text = capsys.readouterr().out
    for part in ("y = b x^-c", "starts agree", "90%", "rms of log residuals"):
        assert part in text


@pytest.mark.parametrize("change, message", [
    (["--x", "computee"], "Did you mean 'compute'"), (["--form", "pwer"], "Unknown form"),
    (["--predict", "minus"], "not a positive number"), (["--form", "chinchilla"], "takes 2 x columns"),
    (["--form", "isoflop"], "--budget"),
])  # fmt: skip
def test_bad_input_is_one_message(
    runs: Path, change: list[str], message: str, capsys: pytest.CaptureFixture
) -> None:
    assert verb.main([str(runs), "--x", "compute", "--y", "error", "--form", "power", *change]) == 2
    assert message in capsys.readouterr().err


def test_a_missing_file_and_a_mixed_schedule(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert verb.main([str(tmp_path / "no.csv"), "--x", "a", "--y", "b"]) == 2
    table = pd.read_csv(runs)
    table["annealed"] = [i % 2 == 0 for i in range(len(table))]
    table.to_csv(runs, index=False)
    assert verb.main([str(runs), "--x", "compute", "--y", "error"]) == 2
    assert "mix schedules" in capsys.readouterr().err
