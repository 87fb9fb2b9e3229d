"""bench/laws/README.md says what the code does: its example runs, its formulas and numbers are those of the code."""

import re

import numpy as np
import pandas as pd
import pytest

from bench.laws import (
    REFITS,
    averaging,
    bootstrap,
    extrapolation,
    fit,
    lack_of_fit,
    model_selection,
    runs_table,
    table_diagnostics,
    table_fit,
)
from bench.laws.forms import FORM_NAMES, FORMS
from bench.laws.roughness import FAR
from tests.conftest import PROJECT

PAGE = (PROJECT / "bench/laws/README.md").read_text()
WORDS = " ".join(PAGE.split())
COVERAGE = PROJECT / "results/reference/coverage"


def test_the_example_runs(tmp_path, monkeypatch, capsys) -> None:
    x = np.geomspace(1e9, 1e12, 8)
    parts = [pd.DataFrame({"family": name, "compute": x, "error": b * x**-0.1}) for name, b in (("a", 3), ("b", 4))]
    pd.concat(parts).to_csv(tmp_path / "runs.csv", index=False)
    monkeypatch.chdir(tmp_path)
    exec(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], {})
    assert "another run has y = 0.2 at x = " in capsys.readouterr().out


@pytest.mark.parametrize("form", FORM_NAMES)
def test_every_form_is_listed_with_its_formula_and_source(form: str) -> None:
    (row,) = re.findall(rf"^\| `{form}` \|.*$", PAGE, re.MULTILINE)
    assert form == "isoflop" or f"`{FORMS[form].formula}`" in row
    assert set(re.findall(r"\d{4}\.\d{5}", FORM_NAMES[form][1])) <= set(re.findall(r"\d{4}\.\d{5}", PAGE))
    assert re.findall(r"\w+ et al\. \d{4}", FORM_NAMES[form][1])[-1] in row


def test_numbers_are_the_codes() -> None:
    for sentence in (
        f"percentiles of {REFITS:,} refits",
        f"with {bootstrap.LAW_LEVEL:.0%} intervals".replace("%", " %"),
        f"With {bootstrap.MANY_CLUSTERS} trunks or more",
        f"δ is {fit.HUBER_K} robust",
        f"of more than {fit.SUBSAMPLE} points",
        f"exp(−{averaging.TEMPER} Δ/2)",
        f"a Student's t with {extrapolation.FREEDOM} degrees of freedom",
        f"up to {extrapolation.REACH:g} times the data",
        f"{FAR:g} times as far off",
        f"at p < {lack_of_fit.SIGNIFICANCE}",
        f"missed by {lack_of_fit.MATERIAL:.0%} of its error".replace("%", " %"),
        f"within {model_selection.SIMPLER_WITHIN - 1:.0%} of that".replace("%", " %"),
        f"({table_diagnostics.Z_AUTOCORRELATION} standard deviations)",
        f"a column ({table_diagnostics.MIN_EXPLAINED:.0%})".replace("%", " %"),
        f"more than {table_fit.MAX_GROUPS} groups.",
        f"Of more than {table_fit.MAX_ROWS} rows of a law of one input",
        f"so many rows is fitted that {runs_table.MAX_POINTS:,} points are left",
        f"weight is below {table_fit.RULED_OUT:.0%}".replace("%", " %"),
    ):
        assert sentence in WORDS, sentence
    assert extrapolation.MIN_PLACES == 4 and "beyond fewer than four values of x" in WORDS
    assert (extrapolation.POINTS_HALF_LIFE, extrapolation.ORIGINS_HALF_LIFE) == (2, 1)
    assert extrapolation.PRIOR_ORIGINS == 2 and "weigh as much as two origins" in WORDS


def test_shares_are_the_committed_ones() -> None:
    laws = (COVERAGE / "README.md").read_text()
    for row in ("y inside the range", "slope in the middle", "floor", "exponent"):
        (ours,) = re.findall(rf"^\| {row} \|(.*)\|$", PAGE, re.MULTILINE)
        (theirs,) = re.findall(rf"^\| {row} \|(.*)\|$", laws, re.MULTILINE)
        chosen, over, given = (re.match(r" ([\d.]+ ± [\d.]+ %)", cell)[1] for cell in theirs.split("|"))
        assert [cell.strip() for cell in ours.split("|")] == [over, chosen, given]
    crossing = re.search(r"^\| crossing, now.*?\| \| ([\d.]+ ± [\d.]+ %)", laws, re.MULTILINE)[1]
    assert f"A crossing is held in {crossing}." in WORDS
    for where, words in {"twice": "{} curves; median half-width {}", "four times": "{} curves; {}"}.items():
        line = re.search(rf"^\| {where} beyond \|(.*)$", laws, re.MULTILINE)[1]
        curves, _, held, half, *_ = map(str.strip, line.split("|"))
        assert re.search(rf"in {held} {where} beyond (the data )?\({words.format(curves, half)}\)", WORDS), where
    assert "with both ends hold the x in 87 ± 3 % of 108" in laws and "with both ends hold 87 ± 3 % of 108" in WORDS
