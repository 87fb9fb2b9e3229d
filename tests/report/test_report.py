"""The report: rebuilt from records alone, byte for byte, with or without torch; safe, self-contained, well-formed."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bench.report import build as report
from bench.report.__main__ import main as report_main
from tests.analysis._records import World, change, write

HOSTILE = 'ViT<script>alert("x")</script>&|`*[a](b)/7'
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
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`results/` with one suite, reported once."""
    results = tmp_path_factory.mktemp("results")
    world = small_world()
    records = [*world.records(), world.diverged("ViT-mini/7")]
    write([replace(record, suite="synthetic") for record in records], results / "synthetic")
    report.build(results / "synthetic", suite="synthetic")
    return results


def digests(folder: Path) -> dict[str, str]:
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and "cells" not in p.parts)
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def test_everything_is_written(built: Path) -> None:
    names = set(digests(built / "synthetic"))
    for name in ("report.html", "report.md", "findings.json", "tables/models.csv", "tables/models.md",
                 "tables/scores.csv", "figures/compute.png", "figures/compute.svg", "figures/compute.csv",
                 "figures/data-size.png"):  # fmt: skip
        assert name in names
    assert not [name for name in names if name.endswith(".tmp")]


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


class Page(HTMLParser):
    """Checks nesting; collects attributes that load something, text and ids."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
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


def test_the_page_is_well_formed_and_self_contained(built: Path) -> None:
    text = (built / "synthetic" / "report.html").read_text()
    page = Page(text)
    assert all(link.startswith("#") for link in page.links), [x for x in page.links if not x.startswith("#")][:3]
    assert not re.search(r"https?://|@import|url\((?!#)", text)
    assert len(page.ids) == len(set(page.ids))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) <= set(page.ids)
    drawn = list((built / "synthetic" / "figures").glob("*.svg"))
    assert page.tags.count("svg") == len(drawn) >= 3
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text


def test_the_page_answers_admits_and_explains(built: Path) -> None:
    text = (built / "synthetic" / "report.html").read_text()
    for part in ("What was found", "What this study cannot tell", "cannot tell", "diverged", "core-days",
                 "Example CPU", "python -m bench.run --suite synthetic", "2 seeds × 3 draws", "rendered"):  # fmt: skip
        assert part in text, part


def test_no_path_of_this_machine(built: Path) -> None:
    for name in ("report.html", "report.md", "findings.json"):
        assert str(built) not in (built / "synthetic" / name).read_text()


def test_hostile_names_are_escaped_everywhere(tmp_path: Path) -> None:
    world = small_world()
    world.models = {HOSTILE: ("ViT", 60_000, 1_100_000), "ResNet-small": ("ResNet", 160_000, 12_000_000)}
    world.sizes = (30_000,)
    records = []
    for number, record in enumerate(world.records()):
        changes = {"directory": f"cell-{number:02d}", "environment.cpu": "<img src=x onerror=alert(1)>"}
        if record.cell.seed == 1:
            changes |= {"status": "failed", "reason": "</td></table><script>alert(2)</script>"}
        records.append(change(record, changes))
    write(records, tmp_path / "hostile")
    report.build(tmp_path / "hostile", suite="hostile")
    text = (tmp_path / "hostile" / "report.html").read_text()
    page = Page(text)
    assert page.tags.count("script") == 2 and "img" not in page.tags  # the page's data, and its script
    assert "alert(" in text and "<script>alert" not in text
    markdown = (tmp_path / "hostile" / "report.md").read_text()
    assert "<script>" not in markdown and "<img" not in markdown


def test_markdown_tables_are_rectangular(built: Path) -> None:
    text = (built / "synthetic" / "report.md").read_text()
    blocks = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    assert len(blocks) == 5
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1
    assert "![" in text and "(figures/compute.png)" in text


def test_a_damaged_record_is_reported_not_hidden(built: Path, tmp_path: Path) -> None:
    shutil.copytree(built / "synthetic" / "cells", tmp_path / "s" / "cells")
    victim = next((tmp_path / "s" / "cells").glob("resnet*s0*/record.json"))
    victim.write_text("{")
    paths = report.build(tmp_path / "s", suite="s")
    assert victim.parent.name in paths.html.read_text() and victim.parent.name in "\n".join(paths.findings.lines())


def test_a_study_without_finished_cells_still_reports(tmp_path: Path) -> None:
    write([small_world().diverged("ViT-mini/7")], tmp_path / "s")
    paths = report.build(tmp_path / "s", suite="s")
    text = paths.html.read_text()
    Page(text)
    assert "1 diverged" in text and "Not drawn" in text
    assert "No cell has been completed" in text and "judges nothing" not in text
    sentence = text.split('<section id="coverage">')[1].split("</p>")[0]
    assert "vit-mini-7" in sentence and "the loss was not a number from step 120 on" in sentence


@pytest.mark.parametrize("arguments, message", [
    (["--suite", "sclaing"], "Unknown suite"), (["--suite", "smoke"], "no results"), (["--nonsense"], "nonsense"),
])  # fmt: skip
def test_bad_input_is_one_message(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    try:
        code = report_main([*arguments, "--results", str(tmp_path)])
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    assert code == 2 and message in captured.err and "Traceback" not in captured.err


def test_help_has_examples_and_needs_no_torch(project: Path) -> None:
    command = [sys.executable, "-c", BLOCKER, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=project, timeout=60)
    assert done.returncode == 0 and "examples:" in done.stdout


def test_a_large_study_says_what_the_page_leaves_out(built: Path, tmp_path: Path, monkeypatch) -> None:
    """Marks, records and rows are bounded; what is left out is counted, and named where it lies."""
    monkeypatch.setattr("bench.report.figures._contract.MAX_HOVER_POINTS", 20)
    monkeypatch.setattr("bench.report.embed.MAX_RECORDS", 3)
    monkeypatch.setattr("bench.report.page.MAX_ROWS", 5)
    shutil.copytree(built / "synthetic" / "cells", tmp_path / "s" / "cells")
    text = report.build(tmp_path / "s", suite="s").html.read_text()
    Page(text)
    whole = (built / "synthetic" / "report.html").read_text()
    assert re.search(r"\d+ of \d+ points answer to the pointer", text) and "answer to the pointer" not in whole
    assert "The first 5 of" in text and "tables/horizons.csv" in text and "The first" not in whole
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, flags=re.DOTALL)[1])
    assert sum("facts" in cell for cell in data["cells"]) == 3 < len(data["cells"])
    assert all(len(spots) <= 20 for spots in data["spots"].values()) and len(text) < len(whole)
