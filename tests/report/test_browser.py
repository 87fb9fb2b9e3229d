"""The report in a real browser: draws, sorts, answers to pointer, keyboard and theme; fetches and complains nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.report import build as report
from tests.analysis._records import World, write
from tests.reliability.storms import until
from tests.report._browser import CHROMIUM, Browser, browser

pytestmark = [
    pytest.mark.gate,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: the report was not opened in a browser"),
]
PHONE, DESKTOP = (390, 844), (1280, 1000)
PLACE = """(async () => {
  const shown = svg => getComputedStyle(svg).display !== "none";
  const svg = [...document.querySelectorAll("#figure-compute svg")].find(shown);
  const area = svg.querySelectorAll("a use")[%d];
  svg.scrollIntoView();
  for (let n = 0; n < 2; n++) { await new Promise(requestAnimationFrame); }
  const box = area.getBoundingClientRect();
  return [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
})()"""
UNDER_POINTER = "document.elementFromPoint({}, {})?.closest('a')?.querySelector('title')?.textContent"
PICTURES = """[...document.querySelectorAll(".picture")].map(picture => {
    const drawn = [...picture.children], shown = drawn.filter(svg => getComputedStyle(svg).display !== "none");
    return [drawn.length, shown.length, picture.scrollWidth - picture.clientWidth]; })"""
SHOWN = """[...document.querySelectorAll(".runs")].filter(runs => runs.offsetParent !== null ||
    getComputedStyle(runs).display !== "none").map(runs => runs.innerText)"""


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
    """The page at desktop width, its sections unfolded; afterwards, nothing was fetched and nothing complained."""
    chromium.open(page, width=DESKTOP[0], height=DESKTOP[1])
    chromium.run("document.querySelectorAll('details.section').forEach(section => { section.open = true; })")
    yield chromium
    assert chromium.complaints() == []


def test_the_driver_sees_complaints(chromium: Browser, tmp_path: Path) -> None:
    """Otherwise "no complaints" would mean nothing."""
    (tmp_path / "bad.html").write_text('<script>console.error("x"); nothing()</script><img src="http://127.0.0.1:9/a">')
    chromium.open(tmp_path / "bad.html", width=300, height=300)
    assert len(chromium.complaints()) >= 3


def test_figures_are_drawn(opened: Browser) -> None:
    boxes = opened.run("""[...document.querySelectorAll("figure svg:first-child")].map(svg => {
        const marks = [...svg.querySelectorAll("use, path")].filter(mark => mark.getBoundingClientRect().width > 1);
        return [svg.getBoundingClientRect().width, svg.getBoundingClientRect().height, marks.length]; })""")
    assert len(boxes) >= 2
    assert all(width > 400 and height > 200 and marks > 20 for width, height, marks in boxes)


def test_a_point_says_which_run_it_is(opened: Browser) -> None:
    x, y = opened.run(PLACE % 0)
    text = opened.run(UNDER_POINTER.format(x, y))
    for part in ("ViT-nano/7", "parameters", "FLOPs of training", "±", "2 seeds × 3 few-shot samples"):
        assert part in text


def test_what_answers_to_the_pointer_is_where_the_point_is_drawn(opened: Browser) -> None:
    """A marker's centre lies under the middle of the area that speaks of it."""
    x, y = opened.run(PLACE % 1)
    near = opened.run(f"""[...document.querySelectorAll("#figure-compute svg :is(use, path)")].some(mark => {{
        const b = mark.getBoundingClientRect();
        return !mark.closest("a") && b.width > 3 && b.width < 20 &&
            Math.hypot((b.left + b.right) / 2 - {x}, (b.top + b.bottom) / 2 - {y}) < 1; }})""")
    assert near


def test_a_click_opens_the_record(opened: Browser) -> None:
    x, y = opened.run(PLACE % 0)
    assert opened.run(SHOWN) == []
    opened.mouse("click", x, y)
    (text,) = until(lambda: opened.run(SHOWN))
    for part in ("ViT-nano/7", "Example CPU", "lr 0.001", "72,000", "complete", "vit-nano-7_glyphs-30000_s0"):
        assert part in text
    opened.key("Escape")
    until(lambda: opened.run(SHOWN) == [])


VISIBLE_WORDS = "document.body.innerText.split(/\\s+/).filter(word => /[A-Za-z]/.test(word)).length"
OPEN = "[...document.querySelectorAll('details.section[open]')].map(section => section.id)"


def test_sections_are_folded_until_somebody_asks(chromium: Browser, page: Path) -> None:
    chromium.open(page, width=DESKTOP[0], height=DESKTOP[1])
    assert chromium.run(OPEN) == [] and chromium.run(VISIBLE_WORDS) <= 250
    chromium.run("document.querySelector('nav a[href=\"#tables\"]').click()")
    chromium.run("document.querySelector('a.answer').getAttribute('href')")
    until(lambda: chromium.run(OPEN) == ["tables"])
    chromium.run("location.hash = document.querySelector('a.answer').hash")
    until(lambda: set(chromium.run(OPEN)) == {"tables", "answers"})
    assert chromium.complaints() == []


def test_the_keyboard_reaches_points_and_records(opened: Browser) -> None:
    opened.run("document.querySelector('#figure-compute svg a').focus()")
    opened.key("Enter")
    (text,) = until(lambda: opened.run(SHOWN))
    assert "ViT-nano/7" in text


DRAWN = """(() => { const svg = document.querySelector("#figure-%s svg");
    const shown = mark => getComputedStyle(mark).visibility === "visible" && mark.getBoundingClientRect().width > 0;
    return [...svg.querySelectorAll('[style*="%s"]'), ...svg.querySelectorAll("a use")].filter(shown).length; })()"""


@pytest.mark.parametrize("figure", ["frontier", "compute"])  # named beside its lines; named in a legend
def test_a_name_in_a_figure_hides_what_it_names(opened: Browser, figure: str) -> None:
    """By click, Enter and Space; points that are hidden do not answer to the pointer; nothing else goes."""
    toggle = f"document.querySelector('#figure-{figure} .toggle[data-name=ViT]')"
    blue, red = (
        opened.run(f"document.querySelector('#figure-{figure} .toggle[data-name={name}]').dataset.colour")
        for name in ("ViT", "ResNet")
    )
    before = {colour: opened.run(DRAWN % (figure, colour)) for colour in (blue, red)}
    links = opened.run(DRAWN % (figure, "no colour"))
    assert opened.run(f"{toggle}.getAttribute('role')") == "button"
    for act in ("click", "Enter", " "):
        for shown in ("false", "true"):
            if act == "click":
                opened.run(f"{toggle}.scrollIntoView()")
                box = opened.run(
                    f"(b => [(b.left + b.right) / 2, (b.top + b.bottom) / 2])({toggle}.getBoundingClientRect())"
                )
                opened.mouse("click", *box)
            else:
                opened.run(f"{toggle}.focus()")
                opened.key(act)
            assert opened.run(f"{toggle}.getAttribute('aria-pressed')") == shown
            left = {colour: opened.run(DRAWN % (figure, colour)) for colour in (blue, red)}
            areas = opened.run(DRAWN % (figure, "no colour"))
            if shown == "true":
                assert left == before and areas == links
            else:
                assert 0 < areas < links and left[blue] - areas <= 1  # the name itself may be blue
                assert left[red] - areas == before[red] - links


def test_files_and_a_link_are_under_every_figure(opened: Browser, page: Path) -> None:
    figures = opened.run("""[...document.querySelectorAll("figure")].map(figure =>
        [figure.id, [...figure.querySelectorAll(".files a")].map(link => link.getAttribute("href"))])""")
    assert len(figures) >= 3
    for name, links in figures:
        *files, permalink = links
        assert permalink == f"#{name}" and all((page.parent / file).is_file() for file in files)
        assert files[-1].endswith(".png")
    assert sum(".csv" in "".join(links) for _, links in figures) >= 2
    permalink = "document.querySelector('#figure-compute .permalink')"
    opened.mouse("move", 1, 1)
    touch = opened.run("matchMedia('(hover: none)').matches")
    assert opened.run(f"getComputedStyle({permalink}).opacity") == ("1" if touch else "0")
    opened.run(f"{permalink}.focus({{focusVisible: true}})")
    assert opened.run(f"getComputedStyle({permalink}).opacity") == "1"
    assert opened.run(f"{permalink}.ariaLabel").startswith("Link to this figure: ")


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


def test_a_title_has_its_interval_on_every_page_and_four_lines_on_a_phone(opened: Browser, page: Path) -> None:
    title = "document.querySelector('h1').innerText"
    lines = "(h => h.getBoundingClientRect().height / parseFloat(getComputedStyle(h).lineHeight))"
    assert "[" in opened.run(title)
    opened.open(page, width=PHONE[0], height=PHONE[1])
    assert "[" in opened.run(title) and opened.run(f"{lines}(document.querySelector('h1'))") <= 4.01


def test_nothing_overflows_on_a_phone(opened: Browser, page: Path) -> None:
    opened.open(page, width=PHONE[0], height=PHONE[1])
    opened.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert opened.run("document.documentElement.scrollWidth") <= PHONE[0]
    drawn = opened.run(PICTURES)
    assert {number for number, _, _ in drawn} == {2} and all((shown, wider) == (1, 0) for _, shown, wider in drawn)
    x, y = opened.run(PLACE % 0)
    opened.mouse("click", x, y)
    box = opened.run("(b => [b.left, b.right])(document.querySelector('.runs:target').getBoundingClientRect())")
    assert box[0] >= 0 and box[1] <= PHONE[0]
    assert opened.run("document.querySelector('.runs:target').scrollWidth") <= PHONE[0]
