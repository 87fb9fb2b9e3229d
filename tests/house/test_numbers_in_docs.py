"""Numbers and names that documents quote are those that the project computes, defines, or that its committed evidence
states."""

import re

import pytest

from baselines.published import timm_costs
from bench import api
from bench.analysis import scaling_laws
from bench.commands import fit
from bench.laws import table_fit
from bench.published import explore, matched, public_evidence, public_models
from tests.conftest import PROJECT

DOCS = {path.name: path.read_text() for path in (*(PROJECT / "docs").glob("*.md"), PROJECT / "README.md")}
COVERAGE = (PROJECT / "results/reference/coverage/README.md").read_text()


def words(name: str) -> str:
    return " ".join(DOCS[name].split())


def test_counts_of_published_results_are_related_once_and_right() -> None:
    table, known = public_models.table(), public_evidence.checkpoints()
    whole = known[known["complete"] & ~known["teacher"]]
    rows = len(explore.table())
    clip, paper = (len(public_models.table(name)) for name in ("clip", "paper"))
    assert rows == len(table) + clip + paper
    assert len(whole) == len(public_evidence.evidence().records.records)
    said = (
        f"the {rows:,} rows of `published.html` are {len(table):,} results of {table['model'].nunique():,} timm "
        f"checkpoints (one per test size), {clip} open_clip models and {paper} lines of the ViT paper; {len(known)} of "
        f"the {len(table):,}, of {known['model'].nunique()} checkpoints, have a recipe with a source and so a training "
        f"cost; the whole cost is known, without a teacher, of {len(whole)} results of {whole['model'].nunique()} "
        "models"
    )
    assert said in words("published.md")
    assert f"The {len(timm_costs.table()):,} models of timm that can be trained here" in words("published.md")


def test_elsewhere_the_same_counts_are_quoted_or_none() -> None:
    rows, models = f"{len(explore.table()):,}", f"{len(timm_costs.table()):,}"
    for name in DOCS:
        assert set(re.findall(r"([\d,]+) published results", words(name))) <= {rows}, name
        assert set(re.findall(r"timm's ([\d,]+)", words(name))) <= {models}, name
        if name != "published.md":
            assert not re.search(r"1,556|\b843 of", words(name)), name
    for module in (api, fit):
        assert "1,556" not in (module.__doc__ or "")


def test_the_table_of_ratios_is_that_of_table_6() -> None:
    lines = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \| (\d+) \|$", DOCS["published.md"], re.MULTILINE)
    (asked,) = [c for c in matched.comparisons() if c.name == "BiT and ViT, JFT-300M (Table 6)"]
    made = matched.by_metric(asked)
    assert [line[0] for line in lines] == [m.metric for m in made] == list(matched.METRICS)
    for (_, shown, networks), m in zip(lines, made, strict=True):
        assert int(networks) == m.networks
        if m.ratio is not None:
            numbers = [float(text) for text in re.findall(r"[\d.]+", shown)]
            assert numbers == pytest.approx([m.ratio, m.low, m.high], abs=0.0051)


def test_hybrids_lead_shrinks_by_every_metric_and_beyond_chance_by_none() -> None:
    assert "is the direction of every column, and more than single trainings may differ by in none" in words(
        "published.md"
    )
    (asked,) = [c for c in matched.comparisons() if c.name == "ViT and hybrid, JFT-300M (Table 6)"]
    for metric in matched.METRICS:
        small, *_, large = [r for r in matched.matched(asked, metric)[:-1] if r.ratio is not None]
        assert small.ratio > large.ratio and small.low < large.high, metric


ROWS = {
    "y inside the range": "y inside the range",
    "slope": "slope in the middle",
    "floor": "floor",
    "exponent": "exponent",
    "crossing": "crossing, now: Welch's interval",
}
"""What docs/fit.md calls a quantity -> its row in results/reference/coverage/README.md."""


@pytest.mark.parametrize("quantity", ROWS)
def test_coverage_that_fit_md_quotes_is_the_committed_one(quantity: str) -> None:
    line = next(line for line in COVERAGE.splitlines() if line.startswith(f"| {ROWS[quantity]} |"))
    over_forms = line.split("|")[3].split("%")[0].strip()
    assert re.fullmatch(r"[\d.]+ ± [\d.]+", over_forms)
    assert f"{over_forms} % ({quantity})" in words("fit.md")


def test_laws_are_refitted_as_often_everywhere_and_as_the_documents_say() -> None:
    often = fit.arguments_parser().parse_args(["runs.csv"]).bootstrap
    assert often == table_fit.Request(x=("x",), y="y").draws == 2 * scaling_laws.DRAWS
    assert f"{often:,} refits (`--bootstrap`)" in words("fit.md") and f"({often:,} refits)" in words("limits.md")
    by = re.search(r"an end moves by (\d+) % at the median and by (\d+) % at most", words("limits.md")).groups()
    assert "by {} % at the median, and by {} % at most".format(*by) in words("fit.md")


def test_other_tools_are_compared_on_a_page_not_by_ticks() -> None:
    assert "(docs/compare.md)" in DOCS["README.md"] and "✓" not in DOCS["README.md"]
    for name in ("timm", "big_vision", "CLIP_benchmark", "lm-evaluation-harness", "W&B"):
        assert f"[{name}](https://" in DOCS["compare.md"], name


def test_names_in_the_map_of_the_code_are_in_the_code() -> None:
    """`docs/code.md` names files and what they define; a name that was moved or renamed is noticed."""
    sources = [path for top in ("bench", "tools", "vit", "baselines") for path in (PROJECT / top).rglob("*.py")]
    known = set(re.findall(r"\w+", " ".join(f"{path.name} {path.read_text()}" for path in sources)))
    quoted = set(re.findall(r"`([^`]+)`", DOCS["code.md"]))
    files = {name for name in quoted if name.startswith(("bench/", "tools/", "docs/"))}
    assert len(files) > 40
    assert [name for name in sorted(files) if not (PROJECT / name).exists()] == []
    assert [name for name in sorted(quoted - files) if not set(re.findall(r"\w+", name)) <= known] == []
