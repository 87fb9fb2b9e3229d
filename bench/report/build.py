"""Build a study's tables, figures and report from its records alone. Needs no torch; equal records, equal bytes."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.core import registry
from bench.core.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console

    from bench.analysis.evidence import Evidence
    from bench.report.figures._contract import Saved
    from bench.report.findings import Findings

PAPER = "paper"
SWEPT = ("learning-rates",)  # figures for any suite, where a sweep was made
DIGITS = 6
FINDINGS_SCHEMA = 1  # of findings.json


@dataclass(frozen=True, kw_only=True)
class ReportPaths:
    """Where a report was written, and what it found."""

    html: Path
    markdown: Path
    findings_json: Path
    tables: tuple[Path, ...]
    figures: tuple[Path, ...]
    findings: Findings


def build(suite_directory: Path, *, suite: str, reference: str | None = None) -> ReportPaths:
    """Write `suite_directory`/{report.html, report.md, findings.json, fits.json, tables/, figures/}, report.html last.

    Args:
        suite_directory: `results/<suite>`, with records under cells/.
        suite: the suite's name. A suite file of that name says which tasks are headlines and which figures to draw,
            to which a sweep of learning rates adds its own; without one, all tasks are headlines and every figure is
            tried. "paper": the paper's own tables.
        reference: "paper" lays its published points under the measured ones.

    Raises:
        UserError: no results there, a record from a newer version, a disk that cannot be written.
    """
    from bench.core import files
    from bench.report import content as content_module
    from bench.report import findings as findings_module
    from bench.report import fits, markdown, page, tables
    from bench.store import faults

    evidence, by_figure = _published() if suite == PAPER else _measured(suite_directory, suite, reference)
    findings = findings_module.find(evidence)
    figures, not_drawn = _draw(by_figure)
    made = tables.build(evidence)
    laws = fits.cards(evidence)
    content = content_module.gather(
        evidence, findings, figures=figures, not_drawn=not_drawn, tables=made, cards=laws
    )

    table_folder = files.make_directory(suite_directory / "tables")
    figure_folder = files.make_directory(suite_directory / "figures")
    pages: dict[Path, bytes] = {}
    for table in made:
        pages[table_folder / f"{table.name}.csv"] = table.csv().encode()
        pages[table_folder / f"{table.name}.md"] = table.markdown().encode()
        pages[table_folder / f"{table.name}.tex"] = table.latex().encode()
    pages[table_folder / "scores.csv"] = tables.scores_csv(evidence).encode()
    for figure in figures:
        pages |= figure.files(figure_folder)
    pages[suite_directory / "findings.json"] = files.dump_json(findings_json(evidence, findings))
    pages[suite_directory / "fits.json"] = files.dump_json(_jsonable(laws))
    pages[suite_directory / "report.md"] = markdown.render(content).encode()
    pages[suite_directory / "report.html"] = page.render(content).encode()
    for path, data in pages.items():
        files.write_bytes(path, data)
        faults.reach("during-report")
    return ReportPaths(
        html=suite_directory / "report.html", markdown=suite_directory / "report.md",
        findings_json=suite_directory / "findings.json", findings=findings,
        tables=tuple(p for p in pages if p.parent == table_folder),
        figures=tuple(p for p in pages if p.parent == figure_folder),
    )  # fmt: skip


def _measured(directory: Path, suite: str, reference: str | None) -> tuple[Evidence, dict[str, Evidence]]:
    """Evidence from the records of a suite, and the figures to try on it: the suite's, or every figure there is."""
    from bench.analysis import evidence as evidence_module
    from bench.analysis import lr_sweep, study_data

    module = registry.load("suite", suite) if suite in registry.names("suite") else None
    evidence = evidence_module.build(
        study_data.load(directory, suite=suite), headline=getattr(module, "HEADLINE", ()),
        far=getattr(module, "FAR", ()), question=getattr(module, "QUESTION", ""), data_kinds=_data_kinds(),
        reference=_published()[0] if reference else None,
    )  # fmt: skip
    evidence = lr_sweep.without_rejected(evidence)
    figures = registry.names("figure") if module is None else module.FIGURES
    return evidence, dict.fromkeys((*figures, *(SWEPT if lr_sweep.sweeps(evidence) else ())), evidence)


def _published() -> tuple[Evidence, dict[str, Evidence]]:
    """The paper's Table 6 as evidence, and the figures that its tables allow."""
    from bench.analysis import published

    figures = published.figures()
    return figures["compute"], figures


def findings_json(evidence: Evidence, findings: Findings) -> dict[str, Any]:
    """Everything said in words, with the numbers behind it, as JSON types."""
    return _jsonable({
        "schema": FINDINGS_SCHEMA, "suite": evidence.suite, "question": evidence.question, "level": evidence.level,
        "headline": evidence.headline, "far": evidence.far, "shots": evidence.shots,
        "summary": findings.summary, "note": findings.note,
        "findings": [dataclasses.asdict(f) for f in findings.findings],
        "cannot_tell": findings.limits,
        "claims": [dataclasses.asdict(c) for c in findings.claims],
        "checks": [dataclasses.asdict(c) for c in findings.checks], "cost": dataclasses.asdict(findings.cost),
    })  # fmt: skip


def to_json(paths: ReportPaths) -> dict[str, Any]:
    """Paths and findings, for `--json`."""
    listed = {name: [str(p) for p in getattr(paths, name)] for name in ("tables", "figures")}
    single = {name: str(getattr(paths, name)) for name in ("html", "markdown", "findings_json")}
    return {**single, **listed, "findings": json.loads(paths.findings_json.read_text())}


def say(paths: ReportPaths, console: Console) -> None:
    """Print what was found, what cannot be told, and where the report is."""
    from rich.text import Text

    for line in paths.findings.lines():
        indent = " " * (len(line) - len(line.lstrip()))
        rows = textwrap.wrap(line.strip(), max(20, console.width - 1), initial_indent=indent, subsequent_indent=indent)
        for row in rows:
            console.print(Text(row, style="" if indent else "bold"), highlight=False, soft_wrap=True)
    console.print(Text(f"Report: {paths.html}"), soft_wrap=True)


def _draw(wanted: dict[str, Evidence]) -> tuple[list[Saved], list[tuple[str, str]]]:
    """Figures, each from its evidence, and what could not be drawn, with the reason."""
    from bench.report.figures._contract import NothingToDraw, render

    drawn, missing = [], []
    for name, evidence in wanted.items():
        module = registry.load("figure", name)
        try:
            drawn.append(render(name, module.TITLE, module.draw(evidence)))
        except NothingToDraw as reason:
            missing.append((module.TITLE, str(reason)))
    return drawn, missing


def _data_kinds() -> dict[str, str]:
    """What each data set shows ("photographs", "handwriting", "rendered"), from its file, where that imports."""
    kinds = {}
    for name in registry.names("data set"):
        try:
            kinds[name] = str(registry.load("data set", name).KIND)
        except (ImportError, AttributeError, UserError):
            continue
    return kinds


def _jsonable(value: Any) -> Any:
    """JSON types. Numbers keep six digits (what optimisers do beyond them differs between machines); one that is not
    finite becomes null."""
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if value - value == 0 else None
    return value
