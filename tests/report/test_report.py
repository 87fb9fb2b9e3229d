"""The report: rebuilt from records alone, byte for byte, with or without torch; safe, self-contained, well-formed."""

import base64
import csv
import hashlib
import io
import itertools
import json
import re
import shutil
import subprocess
import sys
import warnings
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from bench import run
from bench.analysis import check, published, questions, saved_findings, table, wording
from bench.analysis.check import Words
from bench.analysis.finding import Axis, Finding, Reason, TrendPoint, Verdict
from bench.analysis.findings import CostSummary, Findings, ValidityCheck
from bench.analysis.question import question_of
from bench.core import files, formatting
from bench.core.errors import EXIT_OK
from bench.execute.local import Failure
from bench.report import build as report
from bench.report import caveats, fits, page, text
from bench.report.__main__ import main as report_main
from bench.report.figures.figure import RenderedFigure
from bench.store import built as written
from bench.store import grid
from bench.store.study import CellDirectory
from bench.study import registry
from tests.analysis._records import UNTRAINED, World, change, write
from tests.analysis._study import findings_of, study
from tests.conftest import PROJECT

# -- the report: rebuilt from records alone, byte for byte, with or without torch; safe, self-contained, well-formed ---


HOSTILE = 'ViT<script>alert("x")</script>&|`*[a](b)/7'
NASTY = "</script></td></table><script>alert(2)</script> \x1b[31mred\x07 [/x] [bold] $\\input{x}$ \u202e \"'"
VOID = {"meta", "br", "link", "img", "input", "hr"}
BLOCKER = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "timm", "torchvision"):
            raise ImportError(name + " is not installed")
sys.meta_path.insert(0, Block())
from bench.report.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def small_world() -> World:
    world = World(seed=3)
    world.models = {k: world.models[k] for k in ("ViT-nano/7", "ViT-mini/7", "R-mini+ViT-mini/2", "ResNet-small")}
    world.sizes, world.shots = (300, 3_000, 30_000), (1, 10)
    return world


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> report.ReportPaths:
    """One suite, reported once."""
    folder = tmp_path_factory.mktemp("results") / "synthetic"
    world = small_world()
    records = [*world.records(), world.diverged("ViT-mini/7")]
    write([replace(record, suite="synthetic") for record in records], folder)
    return report.build(folder, suite="synthetic")


@pytest.fixture(scope="module")
def built(reported: report.ReportPaths) -> Path:
    """Its `results/`."""
    return reported.html.parent.parent


def digests(folder: Path) -> dict[str, str]:
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and "cells" not in p.parts)
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def printed(paths: report.ReportPaths, *, width: int = 200, verbose: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    report.say(paths, console, verbose=verbose)
    return console.file.getvalue()  # type: ignore[attr-defined]


class Page(HTMLParser):
    """Checks nesting; collects attributes that load something, text and ids."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.feed(markup)
        self.close()
        assert not self.stack, f"never closed: {self.stack}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.stack.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "action", "data"):
                self.links.append(value or "")
            if name == "id":
                self.ids.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.stack.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.stack and self.stack[-1] == tag, f"</{tag}> closes <{self.stack[-1] if self.stack else 'nothing'}>"
        self.stack.pop()

    def handle_data(self, data: str) -> None:
        if "script" not in self.stack and "style" not in self.stack:
            self.words.append(data)


# -- files -----------------------------------------------------------------------------------------------------------


def test_what_an_earlier_report_had_goes_and_what_none_made_stays(tmp_path: Path, monkeypatch) -> None:
    world = small_world()
    world.models = {"ViT-nano/7": world.models["ViT-nano/7"]}
    world.sizes, world.seeds, world.draws, world.shots = (30_000,), (0,), (0,), (1,)
    folder = write([replace(record, suite="mine") for record in world.records()], tmp_path / "mine")
    empty = RenderedFigure(
        name="one", title="", caption="", alt="", width=4.0, png=b"", svg='<svg viewBox="0 0 1 1"/>', csv="x\n"
    )
    drawn, asked = [empty, replace(empty, name="other")], []

    def draw(by_figure, *_, **__):
        asked.extend(evidence.targets for evidence in by_figure.values())
        return drawn, [], []

    monkeypatch.setattr(report, "_draw", draw)
    report.build(folder, suite="mine", targets=(0.7,))
    assert {*asked} == {(0.7,)}  # figures mark what the answers say
    kept = [folder / "figures" / "mine.svg", folder / "tables" / "notes.md", folder / "outside.csv"]
    for path in kept:
        path.write_text("mine")
    written.write(folder, {*written.read(folder), "../outside.csv", "figures/../outside.csv", "outside.csv"})
    drawn.pop()
    paths = report.build(folder, suite="mine")
    assert {path.name for path in (folder / "figures").iterdir()} == {
        *("one.png", "one.svg", "one.csv", "mine.svg"),
        *("answer.png", "answer.svg", "answer.csv"),  # of the title, which no figure here shows
    }
    assert set((folder / "tables").iterdir()) == {*paths.tables, kept[1]} and all(path.exists() for path in kept)


@pytest.mark.gate
def test_byte_identical_without_torch(built: Path, project: Path, tmp_path: Path) -> None:
    """Another process, another folder, no torch and no timm: the same bytes."""
    shutil.copytree(built / "synthetic" / "cells", tmp_path / "results" / "synthetic" / "cells")
    command = [sys.executable, "-c", BLOCKER, "--suite", "synthetic", "--results", "results", "--json"]
    variables = {"PYTHONPATH": str(project), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=variables)
    assert done.returncode == 0, done.stderr
    assert digests(tmp_path / "results" / "synthetic") == digests(built / "synthetic")
    answer = json.loads(done.stdout)
    assert answer["findings"]["suite"] == "synthetic" and answer["html"].endswith("report.html")


# -- the page --------------------------------------------------------------------------------------------------------


def test_the_page_is_well_formed_and_self_contained(built: Path, reported: report.ReportPaths) -> None:
    markup = (built / "synthetic" / "report.html").read_text()
    page = Page(markup)
    apart = [link for link in page.links if not link.startswith("#")]
    assert apart and all((built / "synthetic" / link).is_file() for link in apart)  # files of figures, beside the page
    assert not re.search(r"https?://|@import|url\((?!#)", markup)
    assert len(page.ids) == len(set(page.ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', markup)) <= set(page.ids)
    drawn = list((built / "synthetic" / "figures").glob("*.svg"))
    wide = Page(re.sub(r'(<div class="picture stacks"><svg.*?</svg>)\s*<svg.*?</svg>', r"\1", markup, flags=re.DOTALL))
    assert page.tags.count("svg") > wide.tags.count("svg") == len(drawn) >= 4
    uses, images = (
        sum(path.read_text().count(f"<{mark} ") for path in drawn) - wide.tags.count(mark) for mark in ("use", "image")
    )
    assert images == 0  # files hold no more than the page but the letters of the sentence above the main figure
    assert len(re.sub(r"\s", "", reported.title)) <= uses <= len(reported.title)
    script = markup.rsplit("<script>", 1)[1].split("</script>")[0]
    digest = hashlib.sha256(script.encode()).digest()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', markup)
    assert policy and "default-src &#39;none&#39;" in policy[1]
    assert base64.b64encode(digest).decode() in policy[1].replace("&#43;", "+")


def test_the_frontier_and_the_table_come_first_and_every_answer_has_its_reasons(built: Path) -> None:
    folder = built / "synthetic"
    markup = (folder / "report.html").read_text()
    main = markup[markup.index("<main>") :]
    assert main.index('id="figure-frontier"') < main.index('class="glance') < main.index('id="figures"')
    findings = json.loads((folder / "findings.json").read_text())["findings"]
    assert {f"answer-{n}" for n in range(1, len(findings) + 1)} <= set(Page(markup).ids)
    words = " ".join(Page(markup).words)
    for part in (
        "Example CPU",
        "2 threads",
        "float32",
        "2030-01-01",
        "python -m bench.run --suite synthetic",
        "inconclusive",
        "diverged",
        "core-days",
    ):
        assert part in words, part


FORMULA = '=cmd|"/c calc"!A1\x1b]0;owned\x07'


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> report.ReportPaths:
    """A report in whose names, folders, reasons and machine there is markup, a formula or an escape."""
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")
        patched.setitem(UNTRAINED, "@SUM(A1)", UNTRAINED["ViT"])
        world = small_world()
        world.models = {HOSTILE: ("ViT", 6e4, 1.1e6), FORMULA: ("@SUM(A1)", 6e4, 1.1e6)}
        world.models |= {"ResNet-small": ("ResNet", 1.6e5, 1.2e7)}
        world.level["@SUM(A1)"], world.slope["@SUM(A1)"] = world.level["ViT"], world.slope["ViT"]
        world.sizes, world.seeds = (30_000,), (0, 1, 2)
        made = []
        for number, record in enumerate(world.records()):
            changes = {"directory": f"-1+{number:02d}", "environment.cpu": NASTY}
            if record.cell.seed == 2:
                changes |= {"status": "failed", "reason": NASTY}
            made.append(change(record, changes))
        folder = write(made, tmp_path_factory.mktemp("strange") / "hostile")
        return report.build(folder, suite="hostile")


def test_hostile_text_is_harmless_everywhere(hostile: report.ReportPaths) -> None:
    paths = hostile
    markup = paths.html.read_text()
    page = Page(markup)
    assert page.tags.count("script") == 1 and "img" not in page.tags  # the page's own
    assert "alert(2)" in " ".join(page.words)
    markdown = paths.markdown.read_text()
    assert "<script>" not in markdown and "</td>" not in markdown and r"\[bold\]" in markdown
    for path in (*paths.tables, paths.html, paths.markdown):
        assert not re.search("[\x00-\x08\x0e-\x1f\u202e]", path.read_text()), path.name
    assert r"\$\textbackslash{}input\{x\}\$" in (paths.html.parent / "tables/coverage.tex").read_text()
    frame = pd.read_csv(paths.html.parent / "tables/coverage.csv")
    assert any("alert(2)" in str(reason) for reason in frame["reason"])
    for verbose in (False, True):
        shown = printed(paths, width=80, verbose=verbose)
        assert "\x1b" not in shown and "\x07" not in shown and ("[/x]" in shown or not verbose)


def test_no_csv_holds_a_formula_or_an_escape(hostile: report.ReportPaths) -> None:
    folder = hostile.html.parent
    assert report_main(["--suite", "hostile", "--results", str(folder.parent), "--to", "csv"]) == EXIT_OK
    paths = sorted(folder.rglob("*.csv"))
    assert {"scores", "comparison", "models", "frontier", "curves"} <= {path.stem for path in paths}
    found = 0
    for path in paths:
        text = path.read_text()
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text), path
        for cell in itertools.chain.from_iterable(csv.reader(io.StringIO(text))):
            found += "cmd|" in cell
            assert not cell.startswith(("=", "@")) and (cell[:1] not in ("-", "+") or float(cell) < 0), (path, cell)
    assert found > 100


def test_cells_of_a_csv_are_no_formulas() -> None:
    made = table.Table(name="t", title="t", columns=(table.Column(key="a", heading="a"),), rows=({"a": "=1+1"},))
    assert made.csv().splitlines()[1] == "'=1+1"


def test_markdown_tables_are_rectangular(built: Path) -> None:
    for path in [built / "synthetic" / "report.md", *(built / "synthetic" / "tables").glob("*.md")]:
        markdown = path.read_text()
        blocks = re.findall(r"(?:^\|.*\n)+", markdown, flags=re.MULTILINE)
        assert blocks
        for block in blocks:
            assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
            assert sum(set(line) <= set("|:- ") for line in block.splitlines()) == 1


def test_nothing_is_said_twice_in_markdown(built: Path) -> None:
    """Answers to the same columns are one table, equal facts one line, a rule stands once, tasks are links."""
    markdown = (built / "synthetic" / "report.md").read_text()
    heads = re.findall(r"^(\|.*)\n\|:--", markdown, flags=re.MULTILINE)
    assert heads and len(heads) == len(set(heads))
    facts = re.findall(r"^- [^:\n]*: (.*)$", markdown.split("## Provenance")[1], flags=re.MULTILINE)
    assert len(facts) > 5 and len(facts) == len(set(facts))
    pictures = re.findall(r"(!?)\[[^\]]*\]\(figures/([^)]*)\.png\)", markdown)
    assert {name for _, name in pictures} == {path.stem for path in (built / "synthetic" / "figures").glob("*.png")}
    assert all((mark == "") == name.endswith("-by-task") for mark, name in pictures)
    assert page._alike([("A", "1"), ("B", "2"), ("C", "1")]) == [("A, C", "1"), ("B", "2")]
    ruled = [Words(text="A", rule="rule: b", rest="."), Words(text="C", rule="rule: b", rest=": d."), Words(text="E.")]
    assert page._once(ruled) == ["A (rule: b).", "C: d.", "E."]


@pytest.fixture(scope="module")
def limited(built: Path, tmp_path_factory: pytest.TempPathFactory) -> report.ReportPaths:
    """The same study, one of whose records is damaged, as it is reported where a page holds little."""
    folder = tmp_path_factory.mktemp("limited") / "s"
    shutil.copytree(built / "synthetic" / "cells", folder / "cells")
    next((folder / "cells").glob("resnet*s0*/record.json")).write_text("{")
    draw = report._draw
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            report, "_draw", lambda by, *how, **more: draw({n: by[n] for n in ("frontier", "gap")}, *how, **more)
        )
        patched.setattr("bench.report.figures.figure.MAX_HOVER_POINTS", 5)
        patched.setattr("bench.report.runs.MAX_RECORDS", 3)
        patched.setattr("bench.report.page.MAX_ROWS", 5)
        return report.build(folder, suite="s")


def test_a_damaged_record_is_reported_not_hidden(limited: report.ReportPaths) -> None:
    paths = limited
    (victim,) = (p for p in paths.html.parent.glob("cells/*/record.json") if p.read_text() == "{")
    assert victim.parent.name in paths.html.read_text()
    (check,) = [c for c in paths.findings.checks if c.kind == "damaged record"]
    assert check.names == (victim.parent.name,)


def test_a_study_without_finished_cells_still_reports(tmp_path: Path) -> None:
    write([small_world().diverged("ViT-mini/7")], tmp_path / "s")
    page = Page(report.build(tmp_path / "s", suite="s").html.read_text())
    words = " ".join(page.words)
    assert "1 diverged" in words and "Not drawn" in words and "vit-mini-7" in words
    assert "the loss was not a number from step 120 on" in words


def test_a_large_study_says_what_the_page_leaves_out(built: Path, limited: report.ReportPaths) -> None:
    """Points, records and rows are bounded; what is left out is counted, and named where it lies."""
    markup = limited.html.read_text()
    whole = (built / "synthetic" / "report.html").read_text()
    assert re.search(r"\d+ of \d+ points can", markup) and not re.search(r"\d+ of \d+ points can", whole)
    assert "The first 5 of" in markup and "tables/horizons.csv" in markup and "The first" not in whole
    names = {path.parent.name for path in limited.html.parent.glob("cells/*/record.json")}
    behind = markup[markup.index('<aside class="runs"') :]
    assert behind.count("<dt>Commit</dt>") >= 3 and "Its record lies beside this report: cells/" in behind
    told = {name for name in names if re.search(rf"<h4>{re.escape(name)}</h4>\s*<dl", behind)}
    assert len(told) == 3 < len(names) and markup.count("<tr") < whole.count("<tr")


# -- words -----------------------------------------------------------------------------------------------------------


def test_every_question_reason_and_check_has_words(race) -> None:
    asked = questions.asked()
    assert all(question.label and question.text.endswith("?") and question.yes and question.no for question in asked)
    assert {*wording.REASONS, Reason.LACK_OF_FIT} == set(Reason)
    for path in PROJECT.glob("results/reference/*-cpu/findings.json"):
        for finding in saved_findings.read(path.parent):
            assert set(finding.reasons) <= {*question_of(finding).reasons, *Reason}, finding.question
    kinds = [kind for one in check.every() for kind in one.words]
    assert len(set(kinds)) == len(kinds), "a kind of result is of one check"


def test_numbers_in_words_are_those_of_the_findings() -> None:
    findings = findings_of(study(sizes=(300, 3_000, 30_000)))
    answers = text.answers(findings)
    assert len(answers) == len(findings.findings) > 10
    for f, a in zip(findings.findings, answers, strict=True):
        assert (a.verdict == "inconclusive") <= (a.tone == "unsure") and a.verdict and a.subject
        if f.estimate is not None and f.unit == "share" and f.question != "hybrid advantage shrinks":
            shown = [float(n.replace("−", "-")) for n in re.findall(r"[+−]?\d+\.\d", a.number)]
            ends = [f.estimate, f.low, f.high]
            assert shown == pytest.approx([100 * end for end in ends if end is not None], abs=0.0501)
        if f.estimate is None and f.question == "best family at equal compute" and f.trend:
            assert wording.trend(f) == a.number and "→" in a.number  # never a mean that the trend contradicts
    overview = text.overview(findings, answers)
    shown, more, unanswered = ([row for g in part for _, row in g.rows] for part in vars(overview).values())
    cells = [a for row in (*shown, *more, *unanswered) for a in row if a]
    assert len(cells) == len({a.key for a in cells})  # every answer stands once
    assert {a.key for a in cells} == {a.key for a in answers if a.main and a.at_a_glance and a.subject != "All models"}
    assert 0 < len(shown) <= text.MAX_ROWS and (len(shown) == text.MAX_ROWS or not more)
    decided = [any(a and a.tone != "unsure" for a in row) for row in (*shown, *more)]
    assert all(decided) and not any(a and a.tone != "unsure" for row in unanswered for a in row)


def test_equal_answers_share_a_row_with_the_smallest_and_the_largest(reported: report.ReportPaths) -> None:
    """By the numbers themselves; ranges and trends have no order."""
    one = replace(text.answers(reported.findings)[0], label="?", main=True, is_pair=False, verdict="yes", tone="yes")

    def row(*numbers: wording.Number) -> str:
        alike = [replace(one, subject=str(n), shown=number) for n, number in enumerate(numbers)]
        (row,), _ = text.console_rows(alike, limit=9)
        return row.shown.text

    low, middle, high = (wording.share(value, value - 0.01, value + 0.01) for value in (-0.1, 0.01, 0.02))
    assert row(high, low, middle) == "−10.0 to +2.0 points"
    few, many = (wording.shown(value, f"{value:,.0f}", "images", "") for value in (90.0, 1200.0))
    assert row(many, few) == "90 to 1,200 images"
    assert row(*[wording.Number(text="between 1 GFLOPs and 2 GFLOPs")] * 2) == ""


@pytest.mark.parametrize("width", [60, 80, 140])
def test_the_console_gets_few_lines(reported: report.ReportPaths, width: int) -> None:
    rows, more = (printed(reported, width=width, verbose=verbose).splitlines() for verbose in (False, True))
    assert rows[-1].startswith("Report: ") and len(more) > 2 * len(rows)
    assert all(row == row.rstrip() for row in rows) and all(len(row) <= width for row in rows[1:-1])
    if width >= 80:
        assert len(rows) <= 20 and sum(bool(re.search("[✓✗●?] ", row)) for row in rows) <= 15


def test_what_was_found_is_the_title_everywhere(reported: report.ReportPaths) -> None:
    """It is the title of the page and its main figure, and the first line of the console and of report.md."""
    assert printed(reported, width=60).splitlines()[0] == reported.title
    assert re.search(r"leads \w+ by .* points \[", reported.title)
    assert table.markdown(reported.title) in reported.markdown.read_text().splitlines()[0]
    words = reported.html.read_text().replace("\u00a0", " ")
    words = re.sub(r'<span class="wide-only">(.*?)</span>', r"\1", words)  # what a phone leaves out
    assert f"<h1>{reported.title}" in words and f' aria-label="{reported.title}">' in words


def test_a_suite_that_checks_the_pipeline_says_whether_it_works(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(report, "_draw", lambda *_, **__: ([], [], []))  # no figure says it
    world = World.small(seeds=(0,), models=("ViT-mini/7", "ResNet-small"))
    whole = world.records()
    studies = {"whole": whole, "part": whole, "refused": whole, "lost": [*whole, world.diverged("ViT-mini/7")]}
    studies |= {"running": whole, "failed": whole}
    for name, records in studies.items():
        write([replace(record, suite="smoke") for record in records], tmp_path / name)
        if name in ("part", "refused"):  # of a grid that has one more, which --only left out, or that cannot be run
            more = "vit-mini-7_glyphs_s1-0123456789"
            names, why = (*(record.directory for record in records), more), {more: "cannot be run: no such model"}
            asked = grid.WantedCells(suite="smoke", scale="cpu", names=names, refused=why if name == "refused" else {})
            grid.write(tmp_path / name, asked)
        if name in ("running", "failed"):  # another command is at work on one that this one did not ask for, or failed
            folder = CellDirectory(tmp_path / name / "cells" / "vit-mini-7_glyphs_s1-0123456789")
            folder.path.mkdir()
            files.write_json(folder.spec, {})
            files.write_sealed(folder.new_attempt() / "status.json", {"outcome": name})
        paths = report.build(tmp_path / name, suite="smoke")
        lines = printed(paths).splitlines()
        assert lines[-2].startswith("  vit-bench run --suite") and lines[-3].startswith("Next: ")
        assert len(lines) == 4 and ("The pipeline works" in lines[0]) == (name in ("whole", "part", "running"))
        if name == "whole":
            assert "python -m bench.run --suite smoke" in paths.markdown.read_text().splitlines()
            grid.write_study_file(tmp_path / name, 'suite = "smoke"\nonly = ["vit*"]\n')
            again = report.build(tmp_path / name, suite="smoke").markdown.read_text()
            assert "python -m bench.run study.toml" in again and "bench.run --suite" not in again
        assert ("1 never started" in lines[0]) == (name == "part") and paths.works == (
            name in ("whole", "part", "running")
        )
        assert ("1 not finished" in lines[0]) == (name == "running")


def test_a_figure_that_fails_is_named_and_the_report_is_written(tmp_path: Path, monkeypatch) -> None:
    plugins = {
        "figures/no_such_column.py": (
            "from bench.report.figures.figure import Figure\n\ndef draw(evidence):\n    evidence.scores['gone']\n\n"
            "FIGURE = Figure(title='One of mine', draw=draw)\n"
        ),
        "figures/torn.py": "TITLE = (\n",
        "suites/unlucky.py": (
            "from bench.study.suite import Suite\n"
            'SUITE = Suite(name="unlucky", question="?", cells=lambda _: [], figures=("no-such-column", "torn"))\n'
        ),
    }
    for name, code in plugins.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    with monkeypatch.context() as changed:
        changed.setenv(registry.PLUGINS, str(tmp_path))
        registry.forget()
        world = small_world()
        world.sizes, world.seeds = (30_000,), (0,)
        write([replace(record, suite="unlucky") for record in world.records()], tmp_path / "results")
        paths = report.build(tmp_path / "results", suite="unlucky")
    registry.forget()  # once the folder is named no more, else the next reader keeps its names
    page = " ".join(Page(paths.html.read_text()).words)
    for words in (page, printed(paths, width=400), paths.markdown.read_text().replace("\\", "")):
        assert "Not drawn: One of mine (KeyError: 'gone', no_such_column.py, line 4)." in words
        assert "Not drawn: torn (" in words and "line 1 is broken" in words
    assert [title for title, _ in report.to_json(paths)["broken"].items()] == ["One of mine", "torn"]


def test_cells_that_failed_are_named_even_where_the_report_fails(tmp_path: Path, monkeypatch, capsys) -> None:
    plan = SimpleNamespace(todo=(), store=tmp_path, suite="smoke")
    monkeypatch.setattr(run, "make_plan", lambda *_, **__: plan)
    monkeypatch.setattr(run.view, "show", lambda *_: None)
    monkeypatch.setattr(run, "work_off", lambda *_, **__: [Failure("vit_s0", "it was to fail")])
    assert run.main(["--suite", "smoke"]) == 2
    said = capsys.readouterr()
    assert "failed: vit_s0: it was to fail" in said.out and "no results" in said.err


def test_figures_tables_and_claims_of_the_paper(tmp_path: Path) -> None:
    assert report_main(["--suite", "paper", "--results", str(tmp_path), "--json"]) == 0
    folder = tmp_path / "paper"
    for name in ("frontier", "compute", "pretraining-data", "groups", "laws"):
        assert all((folder / "figures" / f"{name}.{end}").exists() for end in ("png", "svg", "csv")), name
    markup = (folder / "report.html").read_text()
    words = " ".join(Page(markup).words)
    for part in ("Published results from arXiv 2010.11929 v2", "python -m bench.report --suite paper"):
        assert part in words, part
    assert "bench.run" not in words
    findings = findings_of(published.evidence())
    judged = caveats.claims(findings, text.answers(findings))
    assert len(judged) == 4 and sum(claim.paper in ("yes", "no", "inconclusive") for claim in judged) == 3
    for card in json.loads((folder / "fits.json").read_text()):
        assert card["family"] in words and card["card"]["formula"] in words


def test_a_report_with_published_points_into_another_folder(tmp_path: Path) -> None:
    world = World(seed=3)
    world.models = {k: world.models[k] for k in ("ViT-nano/7", "ResNet-small")}
    world.sizes, world.seeds, world.draws, world.shots = (30_000,), (0,), (0,), (1,)
    write([replace(record, suite="synthetic") for record in world.records()], tmp_path / "synthetic")
    options = ["--suite", "synthetic", "--results", str(tmp_path), "--reference", "paper"]
    assert report_main([*options, "--into", str(tmp_path / "kept"), "--json"]) == 0
    assert not (tmp_path / "synthetic" / "report.html").exists()
    assert "--reference paper" in (tmp_path / "kept" / "report.html").read_text()
    assert ",published," in (tmp_path / "kept" / "figures" / "compute.csv").read_text()


# -- how answers are put into words: which share a row, which mark they carry, how their numbers read ------------------


NOTHING_SPENT = CostSummary(cells=0, seconds=(), total_seconds=0.0, spent_flops=0.0, spent_images=0, core_days=0.0)


@pytest.mark.parametrize(
    ("question", "subjects", "rows"),
    [
        ("more images help", [("ViT-pico/14",), ("ViT-nano/7",)], 1),
        ("more images help", [("R8x0.125-s2",), ("R11x0.25-s2",)], 1),
        ("hybrid advantage shrinks", [("R5+ViT-pico/14", "ViT-pico/14"), ("R5+ViT-nano/14", "ViT-nano/14")], 2),
    ],
)
def test_a_model_with_a_slash_is_no_pair(question: str, subjects: list[tuple[str, ...]], rows: int) -> None:
    """Findings about single models share a row, whatever their names; those about two families never do."""
    asked = [Finding(question=question, subject=subject, verdict=Verdict.YES) for subject in subjects]
    made = text.answers(Findings(findings=tuple(asked), checks=(), cost=NOTHING_SPENT, scope=None))
    shown, _ = text.console_rows(made, limit=9)
    assert len(shown) == rows


def test_sweeps_of_a_model_are_told_apart_by_their_images() -> None:
    subjects = [("ViT-pico/14", "glyphs@300"), ("ViT-pico/14", "glyphs"), ("R8x0.125-s2", "glyphs")]
    asked = [Finding(question="best learning rate", subject=subject, verdict=Verdict.YES) for subject in subjects]
    made = text.answers(Findings(findings=tuple(asked), checks=(), cost=NOTHING_SPENT, scope=None))
    assert [a.subject for a in made] == ["ViT-pico/14, glyphs@300", "ViT-pico/14, glyphs", "R8x0.125-s2"]


@pytest.mark.parametrize(
    ("verdict", "trend", "said"),
    [
        (Verdict.YES, "y?yy?", "● ViT ahead"),  # of the mean: the paper's Table 6
        (Verdict.CANNOT_TELL, "y?yy?", "? inconclusive"),
        (Verdict.YES, "???", "● ViT ahead"),
        (Verdict.CANNOT_TELL, "???", "? inconclusive"),
        (Verdict.CANNOT_TELL, "nn?", "● ResNet, then even"),
    ],
)
def test_a_leader_that_changes_is_decided_or_not(verdict: Verdict, trend: str, said: str) -> None:
    verdicts = {"y": Verdict.YES, "n": Verdict.NO, "?": Verdict.CANNOT_TELL}
    finding = Finding(
        question="best family at equal compute",
        subject=("ViT", "ResNet"),
        verdict=verdict,
        leader="ViT" if verdict is Verdict.YES else "",
        axis=Axis.COMPUTE,
        trend=tuple(TrendPoint(x=10.0**n, estimate=0.01, verdict=verdicts[v]) for n, v in enumerate(trend, start=9)),
    )
    (a,) = text.answers(Findings(findings=(finding,), checks=(), cost=NOTHING_SPENT, scope=None))
    assert f"{a.symbol} {a.verdict}" == said


def test_nothing_published_is_undecided_with_the_mark_of_a_fact() -> None:
    answers = text.answers(findings_of(published.evidence()))
    assert not [a for a in answers if a.verdict == "inconclusive" and a.symbol != "?"]


@pytest.mark.parametrize("most", [386.667, 1906.67, 10_114.5, 3_000_000.0])
def test_a_note_counts_in_plain_digits(most: float) -> None:
    said = str(check.say(ValidityCheck(kind="repeated data", names=("images",), count=8, limit=4.0, high=most)))
    assert "e+" not in said and f"up to {formatting.significant(most)})" in said
    assert check.say(ValidityCheck(kind="few images", names=("mnist",), count=8, limit=4.0, high=10.0))


# -- every fitted law as data: both kinds of interval, and what the search did -----------------------------------------


def test_cards_hold_both_intervals_and_the_search() -> None:
    cards = fits.cards(published.evidence())
    assert [card["family"] for card in cards] == ["ViT", "Hybrid", "ResNet"]
    for card in cards:
        within, total = (np.array(card["curve"][key], dtype=float) for key in ("within", "total"))
        inside = ~np.array(card["curve"]["beyond"], dtype=bool)  # beyond the data, past misses alone count
        assert (total[:, 0] < total[:, 1]).all() and (within[inside, 0] < within[inside, 1]).all()
        assert np.isnan(within[~inside]).all()
        assert {"starts", "objective", "objective_at_start", "software", "dropped"} <= card["card"].keys()
        assert card["selection_bias"] >= 0 and any(card["curve"]["beyond"])
