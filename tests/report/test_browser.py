"""The report in a real browser: draws, sorts, answers to pointer, keyboard and theme; fetches and complains nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.report import build as report
from tests.analysis._records import World, write
from tests.report._browser import CHROMIUM, Browser, browser

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium on this machine: the report was not opened in a browser"
)
PHONE, DESKTOP = (390, 844), (1280, 1000)
PLACE = """(async () => {
  const point = JSON.parse(document.getElementById("data").textContent).points["figure-compute"][%d];
  document.querySelector("#figure-compute svg").scrollIntoView();
  for (let n = 0; n < 3; n++) { await new Promise(requestAnimationFrame); }  // the scroll event, which hides the tip
  const box = document.querySelector("#figure-compute svg").getBoundingClientRect();
  return [box.left + point[0] * box.width, box.top + point[1] * box.height];
})()"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    world = World(seed=4)
    world.models = {k: world.models[k] for k in ("ViT-nano/7", "ViT-mini/7", "ResNet-small")}
    world.sizes, world.shots = (3_000, 30_000), (1, 10)
    folder = tmp_path_factory.mktemp("browser") / "synthetic"
    write([*world.records(), world.diverged("ViT-mini/7")], folder)
    return report.build(folder, suite="synthetic").html


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as opened:
        yield opened


@pytest.fixture
def opened(chromium: Browser, page: Path) -> Iterator[Browser]:
    """The page at desktop width; afterwards, nothing was fetched and nothing complained."""
    chromium.open(page, width=DESKTOP[0], height=DESKTOP[1])
    yield chromium
    assert chromium.complaints() == []


def test_the_driver_sees_complaints(chromium: Browser, tmp_path: Path) -> None:
    """Otherwise "no complaints" would mean nothing."""
    (tmp_path / "bad.html").write_text('<script>console.error("x"); nothing()</script><img src="http://127.0.0.1:9/a">')
    chromium.open(tmp_path / "bad.html", width=300, height=300)
    assert len(chromium.complaints()) >= 3


def test_figures_are_drawn(opened: Browser) -> None:
    boxes = opened.run("""[...document.querySelectorAll("figure svg")].map(svg => {
        const marks = [...svg.querySelectorAll("use, path")].filter(mark => mark.getBoundingClientRect().width > 1);
        return [svg.getBoundingClientRect().width, svg.getBoundingClientRect().height, marks.length]; })""")
    assert len(boxes) >= 2
    assert all(width > 400 and height > 200 and marks > 20 for width, height, marks in boxes)


def test_pointing_at_a_mark_says_which_run_it_is(opened: Browser) -> None:
    x, y = opened.run(PLACE % 0)
    assert opened.run("getComputedStyle(tip).display") == "none"
    opened.mouse("move", x, y)
    text = opened.run("tip.innerText")
    for part in ("ViT-nano/7", "parameters", "FLOPs of training", "±", "2 seeds × 3 draws"):
        assert part in text
    shown = opened.run("(b => [b.left, b.right, innerWidth])(tip.getBoundingClientRect())")
    assert 0 <= shown[0] < shown[1] <= shown[2]
    opened.mouse("move", 2, 2)
    assert opened.run("getComputedStyle(tip).display") == "none"


def test_the_place_of_a_mark_is_where_it_was_drawn(opened: Browser) -> None:
    """The marker under the pointer is the one that the tip speaks of: its centre is drawn there."""
    x, y = opened.run(PLACE % 1)
    near = opened.run(f"""[...document.querySelectorAll("#figure-compute svg :is(use, path)")].some(mark => {{
        const b = mark.getBoundingClientRect();
        return b.width > 3 && Math.hypot((b.left + b.right) / 2 - {x}, (b.top + b.bottom) / 2 - {y}) < 1; }})""")
    assert near


def test_a_click_opens_the_record(opened: Browser) -> None:
    x, y = opened.run(PLACE % 0)
    opened.mouse("click", x, y)
    assert opened.run("document.getElementById('record').open")
    text = opened.run("document.getElementById('record').innerText")
    for part in ("ViT-nano/7", "Example CPU", "lr 0.001", "72,000", "complete", "vit-nano-7_glyphs-30000_s0"):
        assert part in text
    opened.key("Escape")
    assert not opened.run("document.getElementById('record').open")


def test_the_keyboard_reaches_marks_and_records(opened: Browser) -> None:
    opened.run("document.querySelector('#figure-compute .picture').focus()")
    opened.key("ArrowRight")
    assert "ViT-nano/7" in opened.run("tip.innerText")
    opened.key("Enter")
    assert opened.run("document.getElementById('record').open")


def test_tables_sort_by_click_and_key(opened: Browser) -> None:
    column = """(() => {
        const table = document.querySelector("#tables table");
        const at = [...table.tHead.rows[0].cells].findIndex(c => c.innerText.startsWith("Parameters"));
        return [...table.tBodies[0].rows].map(r => Number(r.cells[at].dataset.sort)); })()"""
    button = """[...document.querySelectorAll("#tables table th button")].find(
        b => b.innerText.startsWith("Parameters"))"""
    before = opened.run(column)
    opened.run(f"{button}.click()")
    assert opened.run(column) == sorted(before) and len(set(before)) > 1
    assert opened.run(f"{button}.parentElement.getAttribute('aria-sort')") == "ascending"
    opened.run(f"{button}.focus()")
    opened.key("Enter")
    assert opened.run(column) == sorted(before, reverse=True)
    assert opened.run(f"{button}.parentElement.getAttribute('aria-sort')") == "descending"


def test_dark_as_the_system_says_and_as_the_reader_chooses(opened: Browser, page: Path) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    light = opened.run(background)
    opened.run("theme.click()")
    dark = opened.run(background)
    opened.open(page, width=DESKTOP[0], height=DESKTOP[1], dark=True)
    assert opened.run(background) == dark != light
    assert "invert" in opened.run("getComputedStyle(document.querySelector('figure svg')).filter")
    opened.run("theme.click()")
    assert opened.run(background) == light


def test_nothing_overflows_on_a_phone(opened: Browser, page: Path) -> None:
    opened.open(page, width=PHONE[0], height=PHONE[1])
    opened.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert opened.run("document.documentElement.scrollWidth") <= PHONE[0]
    x, y = opened.run(PLACE % 0)
    opened.mouse("click", x, y)
    box = opened.run("(b => [b.left, b.right])(document.getElementById('record').getBoundingClientRect())")
    assert box[0] >= 0 and box[1] <= PHONE[0]
    assert opened.run("document.getElementById('record').scrollWidth") <= PHONE[0]
