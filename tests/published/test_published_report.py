"""`bench.report --suite published`: its files, built without torch and network, and the page to sort and filter."""

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from bench import api
from bench.analysis import saved_findings
from bench.published import explore, public_evidence, public_models
from bench.published.figures import (
    published_clip,
    published_frontiers,
    published_gains,
    published_pairs,
    published_ratios,
)
from bench.published.matched import comparisons
from bench.report.figures.figure import Drawing
from bench.study import registry
from tests.house.structure import PROJECT
from tests.house.test_structure import BLOCK_TORCH
from tests.report._browser import CHROMIUM, browser

BLOCK_NETWORK = """
import socket
def refuse(*arguments, **named): raise OSError("no network")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
"""
COMMITTED = PROJECT / "results/reference/published"


@cache
def drawing_of(module: Any) -> Drawing:
    """A figure of the published checkpoints. Look at it; change nothing of it."""
    return module.draw(public_evidence.evidence())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report, built where neither torch nor a network is to be had."""
    results = tmp_path_factory.mktemp("published")
    code = f"{BLOCK_TORCH}{BLOCK_NETWORK}\nfrom bench.report.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "--suite", "published", "--results", str(results)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 0, done.stderr
    first = " ".join(done.stdout.split())
    assert first.startswith("For the same ImageNet top-1 error ResNet (BiT) took 2.0")
    assert "; on ReaL labels 1.00 [0.47, 2.80]" in first
    return results / "published"


@pytest.mark.gate
def test_the_report_has_page_tables_figures_and_findings(folder: Path) -> None:
    figures = [name for name in registry.names("figure") if name.startswith("published")]
    assert len(figures) == 6
    assert {path.stem for path in (folder / "figures").glob("*.png")} == set(figures)
    assert len(saved_findings.read(folder)) > 50
    words = (folder / "report.html").read_text()
    assert 'href="published.html"' in words and "Not drawn" not in words and "bench.run" not in words
    assert "](published.html)" in (folder / "report.md").read_text()


@pytest.mark.gate
def test_the_committed_report_says_the_same(folder: Path) -> None:
    built, kept = (json.loads((place / "findings.json").read_text()) for place in (folder, COMMITTED))
    assert built == kept
    for name in ("equal-error.csv", "equal-error-by-metric.csv", "checkpoints.csv"):
        assert (folder / "tables" / name).read_text() == (COMMITTED / "tables" / name).read_text()
    assert (folder / "published.html").exists() and (COMMITTED / "published.html").exists()


@pytest.mark.gate
def test_tables_hold_every_column(folder: Path) -> None:
    whole = api.published()
    read = pd.read_csv(folder / "tables" / "checkpoints.csv", keep_default_na=False)
    assert list(read.columns) == list(whole.columns) and len(read) == len(whole)
    assert list(read["source"]) == list(whole["source"])


@pytest.mark.gate
def test_nothing_unknown_is_printed(folder: Path) -> None:
    """Of sets whose classes the tables do not say, and of networks whose device is not known."""
    for page in (folder / "report.md", folder / "report.html"):
        words = page.read_text()
        assert "None classes" not in words and "Device:" not in words and ">Device<" not in words
        assert "1,281,167 images" in words


# -- keys --------------------------------------------------------------------------------------------------------------


def test_exponents_in_the_key_lie_within_their_intervals() -> None:
    """Error falls with compute: exponents and both ends of their intervals are negative."""
    drawn = drawing_of(published_clip).figure
    labels = [entry.get_text().replace("−", "-") for entry in drawn.legends[0].texts]
    for label in labels:
        exponent, low, high = map(float, re.fullmatch(r".*compute\^(\S+) \[(\S+), (\S+)\]", label).groups())
        assert low < exponent < high < 0, label
    assert len(labels) == 5


def test_keys_and_intervals_lie_within_their_figures() -> None:
    for module in (published_clip, published_gains, published_ratios):
        figure = drawing_of(module).figure
        figure.canvas.draw()
        for legend in figure.legends:
            assert legend.get_window_extent().x1 <= figure.bbox.x1, module.__name__
    (axes,) = drawing_of(published_ratios).figure.axes
    low, high = axes.get_xlim()
    assert all(low <= x <= high for line in axes.lines for x in line.get_xdata())


def test_ratios_by_real_labels_are_rows_beside_those_by_imagenet() -> None:
    (axes,) = drawing_of(published_ratios).figure.axes
    numbers = dict(zip((label.get_text() for label in axes.get_yticklabels()), axes.texts[2:], strict=True))
    of_real = "ResNet (BiT) against ViT\nJFT-300M (Table 6), by ReaL labels"
    assert numbers[of_real].get_text() == "1.00× [0.47, 2.80]"
    assert [text.get_text() for text in axes.texts[:2]] == list(published_ratios.GROUPS.values())
    assert {len(text.get_text().split("×")[0].replace(".", "")) for text in numbers.values()} == {3}


def test_the_key_of_gains_has_the_marks_that_are_drawn() -> None:
    drawing = drawing_of(published_gains)
    (axes,) = drawing.figure.axes

    def look(line) -> tuple[str, str, str]:
        marked = line.get_marker() not in ("None", "")
        return (line.get_marker(), line.get_markerfacecolor(), "") if marked else ("", "", line.get_linestyle())

    (legend,) = drawing.figure.legends
    key = {text.get_text(): look(line) for text, line in zip(legend.texts, legend.legend_handles, strict=True)}
    assert {look(line) for line in axes.lines} == set(key.values()) and len(key) == 4
    of_mark = {line.get_marker(): [] for line in axes.lines}
    for line in axes.lines:
        of_mark[line.get_marker()] += list(line.get_xdata()) if len(line.get_xdata()) == 1 else []
    assert of_mark[key["after ImageNet-1k"][0]] == pytest.approx(100 * drawing.data["in1k"])
    assert of_mark[key["after ImageNet-21k"][0]] == pytest.approx(100 * drawing.data["in21k"])


# -- line styles -------------------------------------------------------------------------------------------------------


def styles(axes) -> set[str]:
    """Styles of lines that join two places."""
    return {line.get_linestyle() for line in axes.lines if len(line.get_xdata()) > 1} - {"None"}


def test_controlled_and_other_comparisons_never_share_a_line_style() -> None:
    for axes in drawing_of(published_pairs).figure.axes:
        assert styles(axes) == ({"--"} if axes.get_title(loc="left").startswith("Not controlled") else {"-"})
    for axes in drawing_of(published_frontiers).figure.axes:
        assert styles(axes) == {"--"}
    (axes,) = drawing_of(published_ratios).figure.axes
    drawn = [line.get_linestyle() for line in axes.lines if line.get_marker() == "None" and len(line.get_xdata()) == 2][
        :-1
    ]
    rows = [c for kind in ("networks", "images") for c in comparisons() if c.compares == kind]
    both = [c for c in rows for _ in range(1 + c.is_of_table_6)]
    assert drawn == ["-" if comparison.controlled else "--" for comparison in both]
    (axes,) = drawing_of(published_gains).figure.axes
    assert styles(axes) == {"-", "--"}


def test_lower_bounds_and_teachers_are_hollow_and_on_no_frontier() -> None:
    table = public_evidence.checkpoints()
    assert len(table) == (api.published()["stages"] != "").sum()
    left, _ = drawing_of(published_frontiers).figure.axes
    hollow = sum(len(dots.get_offsets()) for dots in left.collections if dots.get_facecolor().size == 0)
    assert hollow == (~table.complete | table.teacher).sum() > 90
    assert sum(len(dots.get_offsets()) for dots in left.collections) == len(table)
    exact = set(table.loc[table.complete & ~table.teacher, "train_exaflops"])
    assert all(set(line.get_xdata()) <= exact for line in left.lines)


# -- the page to sort and filter ---------------------------------------------------------------------------------------


@pytest.mark.gate
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: the page was not opened in a browser")
def test_the_page_sorts_and_filters(folder: Path) -> None:
    table = explore.table()
    shown = "[...document.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"
    with browser() as opened:
        opened.open(folder / explore.PAGE, width=1280, height=900)
        rows = opened.run(shown)
        assert [row[0] for row in rows] == list(table["model"])
        source = list(explore.COLUMNS).index("source")
        assert [row[source] for row in rows] == list(table["source"])
        cost = list(explore.COLUMNS).index("train_exaflops")
        opened.run(f"document.querySelectorAll('th button')[{cost}].click()")
        up = [float(row[cost].strip("≥ ").replace(",", "")) for row in opened.run(shown) if row[cost]]
        assert up == sorted(up) and len(up) == table["train_exaflops"].notna().sum()
        assert opened.run(shown)[-1][cost] == ""
        opened.run(f"document.querySelectorAll('th button')[{cost}].click()")
        down = opened.run(shown)
        assert down[0][cost] != "" and down[-1][cost] == ""
        opened.run(
            "document.getElementById('words').value = 'DeiT3 384'; document.getElementById('least').value = 85;"
            "document.getElementById('known').checked = true;"
            "document.querySelector('.filters').dispatchEvent(new Event('input'))"
        )
        named = table["model"].str.contains("deit3") & table["model"].str.contains("384")
        wanted = table[named & (table["in1k_top1"] >= 85)]
        assert {row[0] for row in opened.run(shown)} == set(wanted["model"]) != set()
        assert opened.run("document.getElementById('count').textContent") == f"{len(wanted)} of {len(table):,}"
        assert opened.complaints() == []


def test_a_lower_bound_is_marked_and_text_cannot_end_the_script() -> None:
    table = explore.table()
    checkpoints = api.published()
    assert (table["bound"] == "yes").sum() >= (checkpoints.train_exaflops.notna() & ~checkpoints.complete).sum() > 80
    page = explore.files(Path("x"))[Path("x") / explore.PAGE].decode()
    assert page.count("</script>") == 2 == page.count("<script")


HOSTILE = (
    "</script><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "=cmd|' /C calc'!A0",
    "\x1b]0;title\x07",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_rows_are_text_on_the_page_and_in_its_tables(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of a contributed table: every text of it, and a number without end."""
    own = public_models.table

    def table(name: str = "checkpoints") -> pd.DataFrame:
        made = own(name).head(5).copy()
        texts = [column for column in made if made[column].dtype.kind not in "fib"]
        made.loc[0, texts] = text
        made.loc[1, [column for column in made if made[column].dtype.kind == "f"]] = float("inf")
        return made

    monkeypatch.setattr(public_models, "table", table)
    files = explore.files(Path("x"))
    page = files[Path("x") / explore.PAGE].decode()
    data = json.loads(page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0])
    columns = {column["name"]: column for column in data["columns"]}
    model = columns["model"]
    assert model["texts"][model["codes"][0]] == text and columns["train_exaflops"]["numbers"][1] is None
    assert page.count("<script") == page.count("</script>") == 2 and "<img" not in page
    for path in (path for path in files if path.suffix == ".csv"):
        lines = files[path].decode().splitlines()
        assert "\x1b" not in lines[1] and not re.search(r'(^|,)"?[=@]', lines[1])
