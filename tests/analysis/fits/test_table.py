"""CSVs as people write them: names, units, accuracies, holes; and tables that do not belong in one fit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench import fit as verb
from bench.analysis.fits import conscience
from bench.errors import UserError

X = np.geomspace(1e8, 1e11, 12)
ERROR = 60 * X**-0.25  # 60 % to 11 %


@pytest.fixture
def csv(tmp_path: Path):
    def write(columns: dict[str, object]) -> str:
        pd.DataFrame(columns).to_csv(tmp_path / "runs.csv", index=False)
        return str(tmp_path / "runs.csv")

    return write


def fitted(path: str, capsys: pytest.CaptureFixture, *more: str, y: str = "error") -> dict:
    arguments = [path, "--y", y, "--form", "power", "--bootstrap", "40", "--json"]
    if "--x" not in more:
        arguments += ["--x", "compute"]
    assert verb.main([*arguments, *more]) == 0
    return json.loads(capsys.readouterr().out)


def exponent(answer: dict) -> float:
    return next(iter(answer["fits"].values()))["card"]["parameters"]["c"]


@pytest.mark.parametrize("columns, y", [
    ({"Train FLOPs": X, "error": ERROR}, "error"),
    ({"C": X, "Error ": ERROR}, "error"),
    ({"compute": X, "top1_accuracy": 1 - ERROR}, "top1_accuracy"),
    ({"compute": X, "acc": 100 * (1 - ERROR)}, "acc"),
    ({"compute": [f"{v / 1e6:.9g}M" for v in X], "error": ERROR}, "error"),
    ({"compute": [f"{v:,.0f}" for v in X], "error": [f"{100 * e:.8g}%" for e in ERROR]}, "error"),
    ({"compute": [f"{v:.9e}" for v in X], "error": ERROR, "note": "extra"}, "error"),
    ({"compute (millions)": X / 1e6, "error": ERROR}, "error"),
], ids=lambda value: next(iter(value)) if isinstance(value, dict) else value)  # fmt: skip
def test_one_law_in_many_spellings(csv, columns, y: str, capsys: pytest.CaptureFixture) -> None:
    x = "compute (millions)" if "compute (millions)" in columns else "compute"
    answer = fitted(csv(columns), capsys, "--x", x, y=y)
    assert exponent(answer) == pytest.approx(0.25, abs=1e-4)
    low, high = answer["fits"]["all"]["card"]["x_range"]
    assert low == pytest.approx(1e8, rel=1e-3) and high == pytest.approx(1e11, rel=1e-3)


def test_dropped_rows_are_named_by_line(csv, capsys: pytest.CaptureFixture) -> None:
    error = ERROR.copy()
    error[2], error[5] = np.nan, 0.0
    x, error = np.append(X, X[-1]), np.append(error, error[-1])
    dropped = fitted(csv({"compute": x, "error": error}), capsys)["fits"]["all"]["card"]["dropped"]
    reasons = ["a missing value", "x or y not above zero", "a copy of an earlier row"]
    assert [d.split(": ")[1] for d in dropped] == reasons
    assert ["(line 4)" in dropped[0], "(line 7)" in dropped[1], "(line 14)" in dropped[2]] == [True] * 3


def test_a_small_group_is_refused_by_name_and_the_others_fitted(csv, capsys: pytest.CaptureFixture) -> None:
    table = {"compute": np.append(X, X[:2]), "error": np.append(ERROR, ERROR[:2]), "family": ["a"] * 12 + ["b"] * 2}
    answer = fitted(csv(table), capsys, "--group", "family")
    assert list(answer["fits"]) == ["a"] and "2 points cannot determine" in answer["refused"]["b"]
    assert list(fitted(csv(table), capsys, "--where", "family=a")["fits"]) == ["all"]


@pytest.mark.parametrize("columns, more, message", [
    ({"compute": X, "error": ERROR, "val_error": ERROR}, ["--where", "family"], "not COLUMN=VALUE"),
    ({"compute": X, "flops": X, "error": ERROR}, ["--x", "train_flops"], "may mean several columns"),
    ({"compute": X, "error": ERROR, "split": "val"}, ["--where", "split=vall"], "Did you mean 'val'"),
    ({"compute": X, "error": ["none"] * 12}, [], "holds no numbers"),
    ({"compute": X, "error": ERROR, "checkpoint": ["best", "last"] * 6}, [], "mix checkpoints"),
    ({"compute": X, "error": ERROR, "lr_schedule": ["cosine", "constant"] * 6}, [], "mix schedules"),
    ({"compute": X[:2], "error": ERROR[:2]}, [], "2 points cannot determine the 2 parameters"),
    ({"compute": X, "error": ERROR}, ["--claimed", "b=60"], "needs positive values for b, c"),
    ({"compute": X, "error": ERROR}, ["--bootstrap", "1"], "too few"),
])  # fmt: skip
def test_refusals_say_what_and_where(
    csv, columns, more: list[str], message: str, capsys: pytest.CaptureFixture
) -> None:
    arguments = [csv(columns), "--y", "error", "--form", "power", *more]
    assert verb.main(arguments if "--x" in more else [*arguments, "--x", "compute"]) == 2
    assert message in capsys.readouterr().err


def test_flop_units_are_checked_whatever_the_columns_are_called(csv, capsys: pytest.CaptureFixture) -> None:
    params, tokens = np.geomspace(1e7, 1e9, 12), np.geomspace(1e9, 1e11, 12)
    flops = 6 * params * tokens
    flops[::2] /= 2  # multiply-adds
    path = csv({"Training FLOPs": flops, "n_params": params, "Tokens": tokens, "loss": 2 + flops**-0.05})
    assert verb.main([path, "--x", "flops", "--y", "loss"]) == 2
    assert "counted in two ways" in capsys.readouterr().err


def test_an_under_swept_learning_rate_is_named(csv, capsys: pytest.CaptureFixture) -> None:
    """The optimum falls with size; the sweep does not follow: the largest models sit at its lower edge."""
    sizes, rates = np.repeat(np.geomspace(1e6, 1e9, 6), 4), np.tile([1e-3, 2e-3, 4e-3, 8e-3], 6)
    best = 4e-3 * (sizes / 1e6) ** -0.4
    loss = 3 * sizes**-0.05 * (1 + 0.02 * np.log(rates / best) ** 2)
    answer = fitted(csv({"params": sizes, "lr": rates, "loss": loss}), capsys, "--x", "params", y="loss")
    assert any("edge of its sweep" in w and "1e+09" in w for w in answer["warnings"])
    swept = 3 * sizes**-0.05 * (1 + 0.02 * np.log(rates / 2.8e-3) ** 2)
    assert not conscience.check_rates(sizes, rates, swept)


def test_an_accuracy_given_as_an_error_is_asked_about(csv, capsys: pytest.CaptureFixture) -> None:
    answer = fitted(csv({"compute": X, "score": 1 - ERROR}), capsys, y="score")
    assert any("--accuracy" in w for w in answer["fits"]["all"]["warnings"])
    told = fitted(csv({"compute": X, "score": 1 - ERROR}), capsys, "--accuracy", y="score")
    assert exponent(told) == pytest.approx(0.25)


def test_predictions_far_out_and_repeats_are_warned_of(csv, capsys: pytest.CaptureFixture) -> None:
    answer = fitted(csv({"compute": X, "error": ERROR, "epochs": np.linspace(1, 40, 12)}), capsys, "--predict", "1e14")
    assert any("guesses" in w for w in answer["fits"]["all"]["warnings"])
    assert any("more than 4 times" in w for w in answer["warnings"])
    with pytest.raises(UserError, match="mix checkpoints"):
        conscience.check_checkpoints(np.array(["best", "final"]))


def test_a_column_of_words_is_refused_with_those_that_hold_numbers(csv, capsys) -> None:
    path = csv({"compute": X, "error": ERROR, "family": ["ViT"] * len(X), "seen": ["1,000"] * len(X)})
    assert verb.main([path, "--x", "compute", "--y", "family"]) == 2
    said = capsys.readouterr().err
    assert "'family' holds no numbers" in said and "compute, error, seen" in said
