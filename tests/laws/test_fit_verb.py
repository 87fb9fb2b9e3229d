"""`vit-bench fit`: any table, and what it prints."""

import json
import os
import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text
from scipy import stats

from bench.commands import fit as verb
from bench.core.errors import UserError
from bench.laws import diagnostics, table_diagnostics, wording
from bench.laws import runs_table as reader
from bench.laws.fit import Points, fit
from bench.laws.forms import FORM_NAMES, FORMS, POWER, POWER_FLOOR
from bench.report import fit_figure
from bench.report.figures import _style
from bench.report.style import PAGE, STYLES
from tests.conftest import PROJECT

# -- `python -m bench fit` on CSVs from elsewhere ----------------------------------------------------------------------


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
    assert prediction["total"][0] < prediction["y"] < prediction["total"][1] and prediction["within"] is None
    crossing = answer["crossings"][0]
    assert crossing["verdict"] == "yes" and crossing["overtakes"] == "ViT"
    assert crossing["low"] < 15.0**10 < crossing["high"]


def test_exponents_are_compared_as_welchs_test_does(csv, capsys: pytest.CaptureFixture) -> None:
    """Beside SciPy's least squares: a power law is a line through logarithms."""
    rng, steep, flat = np.random.default_rng(1), {"x": X[:9]}, {"x": X}
    for line, exponent, noise in ((steep, 0.25, 0.02), (flat, 0.15, 0.04)):
        line["y"] = 60 * line["x"] ** -exponent * np.exp(rng.normal(0, noise, len(line["x"])))
    a, b = (stats.linregress(*np.log(list(line.values()))) for line in (steep, flat))
    freedom = (a.stderr**2 + b.stderr**2) ** 2 / (a.stderr**4 / 7 + b.stderr**4 / 10)
    half = stats.t.ppf(0.95, freedom) * np.hypot(a.stderr, b.stderr)
    table = pd.concat([pd.DataFrame(line).assign(kind=kind) for kind, line in (("a", steep), ("b", flat))])
    more = ("--x", "x", "--group", "kind", "--loss", "squares", "--bootstrap", "1000")
    answer = fitted(csv(table), capsys, *more, y="y")
    (apart,) = answer["exponents"]
    assert apart["value"] == pytest.approx(b.slope - a.slope, abs=0.1 * half)
    assert (apart["high"] - apart["low"]) / 2 == pytest.approx(half, rel=0.12)
    assert "a falls faster than b: exponents differ by 0.098 [" in wording.title(answer)
    bending = {**apart, "straight": False, "x": 2.5e9}
    assert wording.exponents(bending).startswith("a falls faster than b: slopes at x = 2.5e9 differ by 0.098 [")
    alike = table.assign(y=60 * table["x"] ** -0.2 * np.exp(rng.normal(0, 0.02, len(table))))
    assert wording.title(fitted(csv(alike), capsys, *more, y="y")).startswith("inconclusive whether a or b falls")
    few = pd.concat([table[table["kind"] == "a"], table[table["kind"] == "b"].head(3)])
    assert wording.title(fitted(csv(few), capsys, *more, y="y")).endswith("too few runs")


def test_the_figure_shows_runs_those_held_out_and_the_law_that_predicts(runs, tmp_path, capsys, monkeypatch) -> None:
    words = [str(runs), "--x", "compute", "--y", "error", "--group", "family", "--form", "power", "--bootstrap", "60"]
    words += ["--where", "compute<1e12", "--predict", "1e10,1e13", "--json"]
    assert verb.main([*words, "--figure", str(tmp_path / "laws.png"), "--style", "paper:5.5"]) == 0
    answer = json.loads(capsys.readouterr().out)
    monkeypatch.chdir(tmp_path)
    assert verb.main([*words[:-1], "--figure"]) == 0 and capsys.readouterr().out.endswith(f"Figure: {runs.stem}.png\n")
    assert Path(f"{runs.stem}.png").read_bytes().startswith(b"\x89PNG")
    for kind, start in (("png", b"\x89PNG"), ("svg", b"<?xm"), ("pdf", b"%PDF")):
        fit_figure.save(answer, tmp_path / f"other.{kind}")
        assert (tmp_path / f"other.{kind}").read_bytes().startswith(start)
    assert (tmp_path / "laws.png").stat().st_size != (tmp_path / "other.png").stat().st_size
    with _style.context():
        (axes,) = fit_figure.draw(answer).axes
    table = pd.read_csv(runs)
    drawn = np.concatenate([points.get_offsets() for points in axes.collections if len(points.get_offsets()) > 1])
    np.testing.assert_allclose(sorted(drawn.tolist()), sorted(table[["compute", "error"]].to_numpy().tolist()))
    for label, (name, law) in zip(axes.texts, answer["fits"].items(), strict=True):
        assert label.get_text() == f"{name}\n" + "{value:.3g} [{low:.3g}, {high:.3g}]".format(**law["slope"])
        inside, beyond = (line for line in axes.lines if line.get_color() == label.get_color())
        for line, predicted in zip((inside, beyond), law["predictions"], strict=True):
            at = np.log(predicted["x"]), np.log(line.get_xdata()), np.log(line.get_ydata())
            assert np.interp(*at) == pytest.approx(np.log(predicted["y"]), abs=1e-6)
        assert beyond.is_dashed() and not inside.is_dashed() and inside.get_xdata()[-1] == law["card"]["x_range"][1]
    for more in (["--form", "chinchilla", "--x", "compute,compute", "--y", "family"], ["--figure", "laws.txt"]):
        assert verb.main([*words, "--figure", "laws.png", *more]) == 2 and "figure" in capsys.readouterr().err


def test_labels_of_many_laws_lie_in_the_figure_and_over_none(csv, tmp_path: Path, capsys) -> None:
    """Even where all laws end at one place."""
    table = csv({"compute": X, "acc": 1 - ERROR})
    answer = fitted(table, capsys, "--figure", str(tmp_path / "laws.png"), y="acc")
    (law,) = answer["fits"].values()
    for groups, panels, style in [(14, 12, PAGE), *((6, 1, style) for style in STYLES.values())]:
        many = answer | {"fits": {f"group {n}": law for n in range(groups)}, "exponents": [{}, {}]}
        with _style.drawn_as(style), _style.context():
            figure = fit_figure.draw(many)
            figure.draw_without_rendering()
            seen = [axes for axes in figure.axes if axes.get_visible()]
            named = [text for axes in seen for text in (*axes.texts, axes._left_title) if text.get_text()]
            boxes = [Text.get_window_extent(text) for text in named]
            boxes += [legend.get_window_extent() for legend in figure.legends] + [figure._suptitle.get_window_extent()]
        assert len(seen) == panels
        assert ("the 12 of most runs" in figure.get_suptitle().replace("\n", " ")) == (groups > 12)
        assert all(min(box.x0, box.y0) >= 0 and box.x1 <= figure.bbox.x1 + 1 for box in boxes), style.name
        over = [
            pair for pair in combinations(boxes, 2) if pair[0].shrunk(0.98, 0.9).overlaps(pair[1].shrunk(0.98, 0.9))
        ]
        assert not over, style.name


def test_every_form_is_named_in_the_help_and_in_the_documentation(capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        verb.main(["--help"])
    told, page = capsys.readouterr().out, (PROJECT / "docs" / "fit.md").read_text()
    assert set(FORM_NAMES) == {*FORMS, "isoflop"}
    for word, (name, source) in FORM_NAMES.items():
        formula = FORMS[word].formula if word in FORMS else "best size = k budget^a"
        assert f"{name}: {formula}" in told and source in told
        assert f"| {name} | `{word}` | `{formula}` | {source} |" in page


def test_runs_held_out_stand_beside_the_prediction_at_their_x(runs: Path, capsys: pytest.CaptureFixture) -> None:
    table = pd.read_csv(runs).assign(split="val")
    table["compute"] = table["compute"].round(-6)
    last = table[table["compute"] == 1e13]
    others = [last.assign(error=last["error"] * 1.001), last.assign(split="train", error=0.9)]
    pd.concat([table, *others]).to_csv(runs, index=False)
    words = [str(runs), "--x", "compute", "--y", "error", "--group", "family", "--form", "power", "--bootstrap", "60"]
    words += ["--where", "compute<5e12", "--where", "split=val", "--predict", "1e13,2e13"]
    assert verb.main([*words, "--json"]) == 0
    for family, answer in json.loads(capsys.readouterr().out)["fits"].items():
        first, second = (prediction["observed"] for prediction in answer["predictions"])
        kept = last.set_index("family")["error"][family]
        assert first["y"] == pytest.approx(1.0005 * kept) and first["n"] == 2 and second is None
        low, high = answer["predictions"][0][first["interval"]]
        assert first["inside"] == sum(low <= kept * by <= high for by in (1, 1.001))


def test_an_accuracy_held_out_is_read_as_that_of_the_fit(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    x = np.geomspace(1e6, 1e9, 10)
    pd.DataFrame({"images": x, "params": 1e6 * x, "accuracy": 100 - 300 * x**-0.3}).to_csv(tmp_path / "a.csv")
    words = [str(tmp_path / "a.csv"), "--x", "images", "--y", "accuracy", "--form", "power", "--bootstrap", "40"]
    assert verb.main([*words, "--where", "params<9e14", "--predict", "1e9", "--json"]) == 0
    (prediction,) = json.loads(capsys.readouterr().out)["fits"]["all"]["predictions"]
    assert prediction["observed"]["y"] == pytest.approx(prediction["y"], rel=1e-3)


@pytest.mark.parametrize(
    "change, message",
    [
        (["--x", "computee"], "Did you mean 'compute'"),
        (["--form", "pwer"], "Unknown form"),
        (["--predict", "minus"], "not a number above 0"),
        (["--form", "chinchilla"], "takes 2 x columns"),
        (["--form", "isoflop"], "--budget"),
        (["--delta", "-1"], "not a number above 0"),
        (["--delta", "nan"], "not a number above 0"),
        (["--y", "compute"], "the same column"),
        (["--claimed", "b=x"], "several are separated by commas"),
        (["more.csv"], "One word too many: 'more.csv'"),
    ],
)
def test_bad_input_is_one_message(runs: Path, change: list[str], message: str, capsys: pytest.CaptureFixture) -> None:
    assert verb.main([str(runs), "--x", "compute", "--y", "error", "--form", "power", *change]) == 2
    assert message in capsys.readouterr().err


# -- cSVs as people write them: names, units, accuracies, holes; and tables that do not belong in one fit --------------


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


TWO_UNITS = 6 * np.geomspace(1e7, 1e9, 12) * np.geomspace(1e9, 1e11, 12) / np.tile([2, 1], 6)  # MACs and FLOPs
SIZED = {"Training FLOPs": TWO_UNITS, "n_params": np.geomspace(1e7, 1e9, 12), "Tokens": np.geomspace(1e9, 1e11, 12)}
SIZED["error"] = ERROR


def exponent(answer: dict) -> float:
    return next(iter(answer["fits"].values()))["card"]["parameters"]["c"]


@pytest.mark.parametrize(
    "columns, y",
    [
        ({"Train FLOPs": X, "error": ERROR}, "error"),
        ({"C": X, "Error ": ERROR}, "error"),
        ({"compute": X, "top1_accuracy": 1 - ERROR}, "top1_accuracy"),
        ({"compute": X, "acc": 100 * (1 - ERROR)}, "acc"),
        ({"compute": [f"{v / 1e6:.9g}M" for v in X], "error": ERROR}, "error"),
        ({"compute": [f"{v:,.0f}" for v in X], "error": [f"{100 * e:.8g}%" for e in ERROR]}, "error"),
        ({"compute": [f"{v:.9e}" for v in X], "error": ERROR, "note": "extra"}, "error"),
        ({"compute (millions)": X / 1e6, "error": ERROR}, "error"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else value,
)
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


def raw(tmp_path: Path, text: str) -> str:
    (tmp_path / "raw.csv").write_text(text)
    return str(tmp_path / "raw.csv")


@pytest.mark.parametrize(
    "header, end",
    [
        ("compute,error,n_params", ","),
        ("compute,error,n_params,", ","),
        ("compute;error;n_params", ";"),
        ("compute\terror\tn_params", ""),
    ],
)
def test_a_separator_at_the_end_of_rows_shifts_nothing(tmp_path, header: str, end: str, capsys) -> None:
    separator = next(c for c in ",;\t" if c in header)
    rows = [separator.join([f"{x:.6e}", f"{y:.9g}", "2.0"]) + end for x, y in zip(X, ERROR, strict=True)]
    answer = fitted(raw(tmp_path, "\n".join([header, *rows, ""])), capsys)
    assert exponent(answer) == pytest.approx(0.25, abs=1e-4)
    assert answer["fits"]["all"]["card"]["x_range"] == pytest.approx([X[0], X[-1]], rel=1e-5)


@pytest.mark.parametrize(
    "text, message",
    [
        ("compute,error\n1e9,0.5\n2e9,0.4,0.3\n", "Line 3 of"),
        ("compute,error,error\n1,2,3\n", "several columns named"),
        ("compute,error\n\n\n", "has no rows"),
        (",".join(f"c{i}" for i in range(3_000)) + "\n1\n", "3,000 columns"),
    ],
)
def test_a_table_that_is_none_is_refused_in_one_message(tmp_path, text: str, message: str, capsys) -> None:
    assert verb.main([raw(tmp_path, text), "--x", "compute", "--y", "error", "--form", "power"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("as_list", [False, True])
def test_json_lines_are_read_as_a_table_would_be(tmp_path, as_list: bool) -> None:
    """Also with keys that later lines add, objects inside, and lists, which are no values of a run."""
    runs = [
        {"flops": 1e18 * k, "end": {"loss": 3.0 / k}, "seen": [k], "group": None if k == 2 else "a"} for k in (1, 2)
    ]
    runs.append({"flops": 3e18, "end": {"loss": 1.5}, "late": "yes"})
    lines = json.dumps(runs) if as_list else "\n".join(map(json.dumps, runs))
    table = reader.read(Path(raw(tmp_path, lines)))
    assert list(table["flops"]) == [1e18, 2e18, 3e18] and list(table["end.loss"]) == [3.0, 1.5, 1.5]
    assert "seen" not in table and list(table["group"].isna()) == [False, True, True] and list(table.index) == [1, 2, 3]
    with pytest.raises(UserError, match="neither a CSV nor one JSON object per line"):
        reader.read(Path(raw(tmp_path, '{"a": 1}\nnothing')))


def test_decimal_commas_are_read_between_semicolons(tmp_path, capsys: pytest.CaptureFixture) -> None:
    rows = [f"{x:.0f};{100 * y:.9g} %".replace(".", ",") for x, y in zip(X, ERROR, strict=True)]
    answer = fitted(raw(tmp_path, "\n".join(["compute;error", *rows, ""])), capsys)
    assert exponent(answer) == pytest.approx(0.25, abs=1e-4)


@pytest.mark.parametrize(
    "entries, numbers",
    [
        (["1", "1,5", "1,500", "0,25", "-1,5e-3"], [1, 1.5, 1.5, 0.25, -1.5e-3]),
        (["1,500", "1,500,000", "2 000", "1,500.5"], [1500, 1_500_000, 2000, 1500.5]),
        (["0,500", "7 %", "1.5M"], [0.5, 7, 1.5e6]),
    ],
)
def test_a_column_shows_what_its_commas_are(tmp_path, entries: list[str], numbers: list[float]) -> None:
    table = reader.read(Path(raw(tmp_path, "\n".join(["n;y", *(f"{i};{e}" for i, e in enumerate(entries)), ""]))))
    np.testing.assert_allclose(reader.numbers(table, "y"), numbers)


@pytest.mark.parametrize(
    "separator, entries, message",
    [
        (";", ["1", "1,500"], r"Line 3, column 'y': '1,500' may be 1.500 or 1500.\n.*Write 1.500, or 1500 without"),
        (";", ["1,500,000", "1,5"], "'1,5' is not a number.*\n.*commas or spaces only between thousands"),
        (";", ["1.234,5"], "'1.234,5' is not a number"),
        ("\t", ["1,5"], "Line 2, column 'y': '1,5' is not a number"),
        (",", ["1", '"1,5"'], "Line 3, column 'y': '1,5' is not a number"),
        (",", ['"1,500 000"'], "is not a number"),
        (",", ['"0,500"'], "is not a number"),
        (",", ["1 5"], "'1 5' is not a number"),
    ],
)
def test_unclear_commas_are_refused_by_line(tmp_path, separator: str, entries: list[str], message: str) -> None:
    rows = [f"{i}{separator}{entry}" for i, entry in enumerate(entries)]
    table = reader.read(Path(raw(tmp_path, "\n".join([f"n{separator}y", *rows, ""]))))
    assert list(reader.numbers(table, "n")) == list(range(len(entries)))
    with pytest.raises(UserError, match=message):
        reader.numbers(reader.select(table, ["n>=0"]), "y")


def test_more_points_than_a_law_needs_are_fitted_as_means(csv, capsys) -> None:
    x = np.geomspace(1e8, 1e11, 30_000)
    answer = fitted(csv({"compute": x, "error": 60 * x**-0.25}), capsys, "--form", "power")
    assert answer["fits"]["all"]["card"]["parameters"]["c"] == pytest.approx(0.25, rel=1e-3)
    assert any("30,000 rows are fitted as" in note for note in answer["fits"]["all"]["notes"])


def test_no_regular_file_is_refused(tmp_path, capsys) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    irregular = dict.fromkeys((tmp_path / "pipe.csv", Path("/dev/zero")), "not a regular file")
    irregular[tmp_path] = "holds no logs of runs"
    for path, message in (irregular | {tmp_path / "absent.csv": "There is no file"}).items():
        assert verb.main([str(path), "--x", "compute", "--y", "error"]) == 2
        assert message in capsys.readouterr().err


def test_a_small_group_is_refused_by_name_and_the_others_fitted(csv, capsys: pytest.CaptureFixture) -> None:
    table = {"compute": np.append(X, X[:2]), "error": np.append(ERROR, ERROR[:2]), "family": ["a"] * 12 + ["b"] * 2}
    answer = fitted(csv(table), capsys, "--group", "family")
    assert list(answer["fits"]) == ["a"] and "2 points cannot determine" in answer["refused"]["b"]


@pytest.mark.parametrize(
    "columns, more, message",
    [
        ({"compute": X, "error": ERROR, "val_error": ERROR}, ["--where", "family"], "not COLUMN=VALUE"),
        ({"compute": X, "flops": X, "error": ERROR}, ["--x", "train_flops"], "may mean several columns"),
        ({"compute": X, "error": ERROR, "split": "val"}, ["--where", "split=vall"], "Did you mean 'val'"),
        (
            {"compute": X, "loss": ["1,000"] * 12, "error": ["no"] * 12},
            [],
            "'error' holds no numbers.\n.*compute, loss",
        ),
        ({"compute": X, "error": ERROR, "checkpoint": ["best", "last"] * 6}, [], "mix checkpoints"),
        ({"compute": X, "error": ERROR, "lr_schedule": ["cosine", "constant"] * 6}, [], "mix schedules"),
        ({"compute": X, "error": ERROR, "annealed": [True, False] * 6}, [], "mix schedules"),
        ({"compute": X[:2], "error": ERROR[:2]}, [], "2 points cannot determine the 2 parameters"),
        ({"compute": X, "error": ERROR}, ["--claimed", "b=60"], "needs positive values for b, c"),
        ({"compute": X, "error": ERROR}, ["--bootstrap", "1"], "too few"),
        (SIZED, ["--form", "chinchilla", "--x", "n_params,Training FLOPs"], "is compute; this law takes parameters"),
        ({"n_params": X, "error": ERROR}, ["--form", "chinchilla", "--x", "n_params,epochs"], "column 'epochs'"),
        (SIZED, ["--x", "flops"], "counted in two ways"),
    ],
)
def test_refusals_say_what_and_where(
    csv, columns, more: list[str], message: str, capsys: pytest.CaptureFixture
) -> None:
    arguments = [csv(columns), "--y", "error", "--form", "power", *more]
    assert verb.main(arguments if "--x" in more else [*arguments, "--x", "compute"]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_a_column_of_nested_json_is_found_by_the_end_of_its_name() -> None:
    table = pd.DataFrame(columns=["results.val.loss", "results.train.loss", "config/arch", "val"])
    assert reader.column(table, "val.loss") == "results.val.loss" and reader.column(table, "arch") == "config/arch"
    assert reader.column(table, "val") == "val"
    with pytest.raises(UserError, match="'loss' may mean several columns"):
        reader.column(table, "loss")


def test_where_no_columns_are_chosen_those_there_are_are_named(csv, capsys: pytest.CaptureFixture) -> None:
    assert verb.main([csv({"compute": X, "error": ERROR})]) == 2
    assert "has: compute, error." in capsys.readouterr().err


def test_repeats_are_warned_of(csv, capsys: pytest.CaptureFixture) -> None:
    answer = fitted(csv({"compute": X, "error": ERROR, "epochs": np.linspace(1, 40, 12)}), capsys)
    assert any("more than 4 times" in w for w in answer["warnings"])


def test_an_under_swept_learning_rate_is_named(csv, capsys: pytest.CaptureFixture) -> None:
    """The optimum falls with size; the sweep does not follow: the largest models sit at its lower edge."""
    sizes, rates = np.repeat(np.geomspace(1e6, 1e9, 6), 4), np.tile([1e-3, 2e-3, 4e-3, 8e-3], 6)
    best = 4e-3 * (sizes / 1e6) ** -0.4
    loss = 3 * sizes**-0.05 * (1 + 0.02 * np.log(rates / best) ** 2)
    answer = fitted(csv({"params": sizes, "lr": rates, "loss": loss}), capsys, "--x", "params", y="loss")
    assert any("edge of its sweep" in w and "1e9" in w for w in answer["warnings"])
    swept = 3 * sizes**-0.05 * (1 + 0.02 * np.log(rates / 2.8e-3) ** 2)
    assert not table_diagnostics.check_rates(sizes, rates, swept)
    right = fitted(
        csv({"params": sizes, "lr": rates, "score": 1 - swept / 3}), capsys, "--accuracy", "--x", "params", y="score"
    )
    assert not right["warnings"]


def test_a_rate_that_follows_the_samples_is_no_sweep_and_repeats_have_a_term(csv, capsys) -> None:
    n, d = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e7, 1e9, 4), np.geomspace(1e9, 1e11, 4)))
    loss = 1.7 + 400 * n**-0.34 + 410 * d**-0.28
    table = csv(
        {"N": n, "D": d, "U": np.minimum(d, 2e10), "lr": d**-0.1, "epochs": np.maximum(1, d / 2e10), "loss": loss}
    )
    joint = fitted(table, capsys, "--form", "chinchilla", "--x", "N,D", y="loss")["warnings"]
    assert len(joint) == 1 and "--form repeated" in joint[0]
    assert not fitted(table, capsys, "--form", "repeated", "--x", "N,D,U", y="loss")["warnings"]


def test_columns_that_nobody_asked_for_refuse_nothing(csv, capsys: pytest.CaptureFixture) -> None:
    """Names of sizes in words, columns without entries, and compute of one forward pass."""
    sizes = np.geomspace(1e6, 1e9, 12)
    words = {"size": ["S/16", "B/16"] * 6, "epochs": [""] * 12, "lr": ["auto"] * 12}
    passes = {"params": sizes, "gflops": sizes / 5e6, "images_seen": [1e8, 3e8] * 6}
    answer = fitted(csv({"compute": X, "error": ERROR, **words, "images": X / 1e9}), capsys)
    assert exponent(answer) == pytest.approx(0.25) and not answer["warnings"]
    assert not fitted(csv({**passes, "error": ERROR}), capsys, "--x", "params")["warnings"]


def test_an_accuracy_given_as_an_error_is_asked_about(csv, capsys: pytest.CaptureFixture) -> None:
    answer = fitted(csv({"compute": X, "score": 1 - ERROR}), capsys, y="score")
    assert any("--accuracy" in w for w in answer["fits"]["all"]["warnings"])
    told = fitted(csv({"compute": X, "score": 1 - ERROR}), capsys, "--accuracy", y="score")
    assert exponent(told) == pytest.approx(0.25)
    wrong = fitted(csv({"compute": X, "accuracy_drop": ERROR}), capsys, y="accuracy_drop")
    assert any("no accuracy, add --no-accuracy" in w for w in wrong["fits"]["all"]["warnings"])


def test_what_rises_is_asked_about_first_and_has_no_floor(csv, capsys: pytest.CaptureFixture) -> None:
    """A reward as a loss: its card began with zeros for slope, floor and exponent, and asked after twelve lines."""
    verb.main([str(csv({"step": X, "reward": 1 - ERROR})), "--x", "step", "--y", "reward"])
    first, *others = capsys.readouterr().out.splitlines()
    assert "y grows with x" in first and "--accuracy" in first
    assert not any("grows with x" in line or line.strip().startswith(("floor", "exponent")) for line in others)


def test_a_floor_that_was_assumed_is_no_result(csv, capsys: pytest.CaptureFixture) -> None:
    """Three values of x allow a power law alone, whose floor is 0 by its form: it was given as 0 [0, 0]."""
    few = csv({"compute": X[:3], "error": ERROR[:3]})
    assert "floor" not in fitted(few, capsys)["fits"]["all"]["over_forms"]
    verb.main([str(few), "--x", "compute", "--y", "error"])
    assert "floor, the limit of y for large x: assumed to be 0, not found" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    ["error (top-1)", "err_top1", "1 - accuracy", "100 - accuracy", "frac_incorrect", "inaccuracy", "accumulated_loss"],
)
def test_the_name_of_an_error_is_not_that_of_an_accuracy(csv, capsys: pytest.CaptureFixture, name: str) -> None:
    assert exponent(fitted(csv({"compute": X, name: ERROR}), capsys, y=name)) == pytest.approx(0.25)


def test_a_group_without_a_name_or_called_none_is_fitted_as_the_others(csv, capsys: pytest.CaptureFixture) -> None:
    table = {"compute": np.tile(X, 4), "error": np.tile(ERROR, 4), "teacher": np.repeat(["None", "NA", "", "big"], 12)}
    answer = fitted(csv(table), capsys, "--group", "teacher")
    assert {name: card["card"]["points"] for name, card in answer["fits"].items()} == dict.fromkeys(
        ("None", "NA", "(blank)", "big"), 12
    )
    numbered = fitted(csv({**table, "patch": np.repeat(["16", "", "32", "8"], 12)}), capsys, "--group", "patch")
    assert set(numbered["fits"]) == {"16", "(blank)", "32", "8"}
    mixed = pd.DataFrame(table | {"patch": [16] * 12 + ["16"] * 12 + [32] * 24})
    assert {name: len(rows) for name, rows in reader.by_group(mixed, "patch").items()} == {"16": 24, "32": 24}
    one = fitted(csv(table), capsys, "--where", "teacher=None")
    assert one["fits"]["all"]["card"]["points"] == 12


def test_percents_are_those_of_the_whole_column(csv, capsys: pytest.CaptureFixture) -> None:
    """On a hard test set no run reaches one percent: the other rows say what the numbers are."""
    table = {"compute": np.tile(X, 2), "acc": [*100 * (1 - ERROR), *np.linspace(0.1, 0.9, 12)]}
    table["set"] = np.repeat(["easy", "hard"], 12)
    answer = fitted(csv(table), capsys, "--group", "set", "--predict", str(X[-1]), y="acc")
    (at,) = answer["fits"]["hard"]["predictions"]
    assert at["y"] == pytest.approx(0.991, abs=1e-3) and "in percent" in answer["fits"]["hard"]["notes"][0]


def test_runs_that_name_no_trunk_share_their_noise_with_no_other(csv) -> None:
    table = reader.read(Path(csv({"compute": X, "error": ERROR, "trunk": ["a", "a", *[""] * 10]})))
    points, _ = reader.points(table, x=("compute",), y="error", cluster="trunk")
    assert len(set(points.cluster)) == 11


@pytest.mark.parametrize("goal", ["100", "1", "150"])
def test_what_no_accuracy_can_be_is_refused(csv, capsys: pytest.CaptureFixture, goal: str) -> None:
    table = csv({"compute": X, "accuracy": 1 - ERROR})
    assert verb.main([table, "--x", "compute", "--y", "accuracy", "--reach", goal]) == 2
    assert f"an accuracy of {goal} takes" in capsys.readouterr().err
    assert verb.main([table, "--x", "compute", "--y", "accuracy", "--reach", "0.5"]) == 0
    assert "has accuracy = 0.5 at x = " in capsys.readouterr().out


def test_a_law_without_a_slope_is_said_without_warnings_of_a_library(csv, capsys, recwarn) -> None:
    answer = fitted(csv({"compute": X, "error": np.full(12, 0.5)}), capsys)
    assert exponent(answer) == pytest.approx(0, abs=1e-4) and not [w for w in recwarn if w.category is RuntimeWarning]


WHERE = pd.DataFrame(
    {
        "model": ["6 Enc, 6 Dec", "6 Enc", "ViT", "ViT"],
        "size": ["1.68e+07", "16.8M", "2,000", "none"],
        "step": [1.0, 2.0, 3.0, np.nan],
        "Tokens (billions)": [1, 2, 3, 4],
    }
)


@pytest.mark.parametrize(
    "conditions, kept",
    [
        (["model=6 Enc, 6 Dec"], [0]),
        (["model=6 Enc,ViT"], [1, 2, 3]),
        (["size=16.8M"], [0, 1]),
        (["size=2000"], [2]),
        (["step=1"], [0]),
        (["step = 1, 3.0"], [0, 2]),
        (["step<3"], [0, 1]),
        (["step>=2"], [1, 2]),
        (["step!=2"], [0, 2, 3]),
        (["tokens<=2", "model=6 Enc"], [1]),
        (["size>1K"], [0, 1, 2]),
    ],
)
def test_rows_are_chosen_by_words_and_by_numbers(conditions: list[str], kept: list[int]) -> None:
    assert reader.select(WHERE, conditions).index.tolist() == kept


@pytest.mark.parametrize(
    "condition, message",
    [
        ("model=Vit", "Did you mean 'ViT'"),
        ("step=7", "Known: 1.0, 2.0, 3.0"),
        ("step<1", "runs from 1 to 3"),
        ("model<3", "every entry of 'model' is none"),
        ("step<few", "'few' is none"),
        ("model", "not COLUMN=VALUE"),
        ("modle=ViT", "Did you mean 'model'"),
    ],
)
def test_a_condition_that_nothing_meets_says_what_there_is(condition: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        reader.select(WHERE, [condition])


def joint(tokens: np.ndarray, params: np.ndarray) -> np.ndarray:
    return 1.7 + 400 * params**-0.34 + 400 * tokens**-0.28


def test_samples_are_read_from_compute_and_parameters(csv, capsys: pytest.CaptureFixture) -> None:
    params, tokens = (v.ravel() for v in np.meshgrid(np.geomspace(1e7, 1e9, 6), np.geomspace(1e9, 1e11, 6)))
    path = csv({"Model Size": params, "Training FLOP": 6 * params * tokens, "loss": joint(tokens, params)})
    answer = fitted(path, capsys, "--form", "chinchilla", "--x", "N,D", y="loss")
    assert answer["notes"] == ["D was read as Training FLOP / (6 × Model Size)."]
    assert answer["fits"]["all"]["card"]["parameters"]["beta"] == pytest.approx(0.28, abs=1e-3)


def test_rows_of_two_laws_in_one_fit_are_told(csv, capsys: pytest.CaptureFixture) -> None:
    x, kind = np.tile(X, 2), np.repeat(["val", "train"], len(X))
    noise = np.exp(np.random.default_rng(0).normal(0, 0.05, len(x)))
    y = 60 * x**-0.25 * np.where(kind == "val", 1.0, 0.7) * noise
    told = fitted(csv({"compute": x, "error": y, "split": kind}), capsys)["fits"]["all"]["warnings"]
    assert any("Values of 'split' explain" in w and "--where 'split=train'" in w for w in told)
    alike = fitted(csv({"compute": x, "error": 60 * x**-0.25 * noise, "split": kind}), capsys)
    assert not any("Values of" in w for w in alike["fits"]["all"]["warnings"])


def test_waves_in_residuals_are_told_and_scatter_is_not() -> None:
    x = np.geomspace(1e6, 1e10, 60)
    noise = np.exp(np.random.default_rng(0).normal(0, 0.01, (20, len(x))))

    def told(y: np.ndarray) -> bool:
        points = Points(x=x[None], y=y, cluster=np.arange(len(x)))
        return bool(table_diagnostics.check_autocorrelation(fit(points, POWER)))

    assert all(told((0.2 + 300 * x**-0.4) * row) for row in noise[:3])
    assert sum(told(60 * x**-0.25 * row) for row in noise) <= 1


def test_a_floor_is_judged_beside_the_range_of_y() -> None:
    """y from 1 to 1.05 above a floor of 0.99: the floor is near the smallest y, and yet well below the range."""
    x = np.geomspace(1e6, 1e10, 30)
    y = 0.99 + 0.06 * (x / 1e6) ** -0.2
    made = fit(Points(x=x[None], y=y, cluster=np.arange(30)), POWER_FLOOR)
    assert not any("floor" in w for w in diagnostics.warnings(made))


def test_isoflop_takes_one_set_of_budgets_and_gives_sizes_with_intervals(csv, capsys: pytest.CaptureFixture) -> None:
    budget, size = (v.ravel() for v in np.meshgrid(np.geomspace(1e18, 1e21, 5), np.geomspace(1e7, 1e11, 17)))
    loss = joint(budget / 6 / size, size)
    columns = {
        "flops": np.tile(budget, 2),
        "params": np.tile(size, 2),
        "loss": np.append(loss, np.exp(loss)),
        "kind": np.repeat(["nats", "perplexity"], len(loss)),
    }
    arguments = [csv(columns), "--form", "isoflop", "--budget", "flops", "--x", "params", "--y", "loss"]
    assert verb.main([*arguments, "--where", "kind=nats", "--predict", "1e22", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert not answer["warnings"] and answer["isoflop"]["exponent"] == pytest.approx(0.28 / 0.62, abs=0.03)
    low, high = answer["isoflop"]["predictions"][0]["total"]
    assert low < answer["isoflop"]["predictions"][0]["size"] < high
    assert low < (0.34 * 400 / (0.28 * 400)) ** (1 / 0.62) * (1e22 / 6) ** (0.28 / 0.62) < high
    assert verb.main([*arguments, "--group", "kind"]) == 2
    assert "--where kind=VALUE" in capsys.readouterr().err
    tiny = [csv(columns | {"loss": columns["loss"] / 2000}), *arguments[1:], "--where", "kind=nats"]
    assert verb.main(tiny) in (0, 2) and "budget" in "".join(capsys.readouterr())  # below the noise that is assumed
