"""The report as one self-contained HTML file (no network, light and dark, phone and paper) and as Markdown."""

from __future__ import annotations

import base64
import hashlib
import math
import operator
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from bench.analysis.evidence import Evidence
from bench.analysis.findings import Findings
from bench.analysis.table import Column, Table, clean, markdown, shown
from bench.core.formatting import join, plural
from bench.core.record import UNKNOWN, DataFacts, Record
from bench.report import caveats, fits, runs, text
from bench.report.figures.figure import RenderedFigure
from bench.report.headline import headline
from bench.stats.intervals import Estimate

TEMPLATES = Path(__file__).parent / "templates"
MAX_ROWS = 500  # of a table in the page; the CSV has all
MAX_WARNINGS = 4  # shown at once; the others are a click away
MAX_FAILURES = 6  # named in one sentence
MAX_NARROW_INCHES = 7.5  # inches up to which a figure stands beside the answers
NO_NETWORK = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src 'unsafe-inline'"
TITLES = {"vtab": "VTAB"}
SVG_NAME = re.compile(r'(?<= id=")|(?<=url\(#)|(?<=href="#)')  # before every name in an SVG
SVG_GROUP = re.compile(r'<g id="[^"]*">')  # nothing refers to these names
SVG_VIEW_BOX = re.compile(r'viewBox="([^"]*)"')
SVG_CELL_LINK = re.compile(r'xlink:href="\.\./cells/[^"]*#(\d+)"')
PROVENANCE = (
    ("environment.project_version", "Version"),
    ("environment.commit", "Commit"),
    ("environment.python", "Python"),
    ("environment.torch", "PyTorch"),
    ("environment.timm", "timm"),
    ("environment.numpy", "NumPy"),
    ("environment.platform", "System"),
    ("environment.cpu", "Processor"),
    ("environment.accelerator", "Accelerator"),
    ("execution.device", "Device"),
    ("execution.accelerators", "Accelerators per cell"),
    ("execution.threads", "Threads per cell"),
    ("execution.dtype", "Precision"),
    ("execution.evaluation_dtype", "Precision of evaluation"),
    ("cost.peak_source", "Peak for utilisation"),
)


def content(
    evidence: Evidence,
    findings: Findings,
    *,
    figures: Sequence[RenderedFigure],
    not_drawn: Sequence[tuple[str, str]],
    tables: Sequence[Table],
    check: bool,
    traces: Sequence[Path] = (),
    links: Mapping[str, str] = MappingProxyType({}),
    asked: str = "",
) -> dict[str, Any]:
    """Everything that a reader sees, as the templates name it.

    Args:
        check: the suite only checks the pipeline.
        traces: files of torch.profiler, relative to the page.
        links: text -> file beside the page, shown below the title.
        asked: the study file beside the page that says more than the suite; "" where there is none.
    """
    found = text.answers(findings)
    warnings, notes = caveats.warnings(findings)
    study = f"{TITLES.get(evidence.suite, evidence.suite[:1].upper() + evidence.suite[1:])} study"
    behind = tuple(dict.fromkeys(names for figure in figures for names in figure.cells))
    quoted = f" --reference {evidence.reference.suite}" if evidence.reference else ""
    run = () if evidence.published else (f"python -m bench.run {asked or f'--suite {evidence.suite}'}",)
    works, verdict = pipeline(evidence)
    checked = f"{verdict} The numbers of this suite mean nothing." if check else ""
    chosen = None if check else headline(findings, figures=[figure.name for figure in figures])
    lead = next((figure for figure in figures if chosen and figure.name == chosen.figure), None)
    lead = lead or (figures[0] if figures else None)
    others = [figure for figure in figures if figure is not lead]
    question = evidence.question[:1].upper() + evidence.question[1:]
    title = chosen.text if chosen else checked or f"{question or study} {caveats.note(findings)}".strip()
    if lead and chosen and chosen.figure:
        lead = replace(lead, title=title)
    return {
        "title": title,
        "study": study,
        "question": question,
        "published": evidence.published,
        "coverage": coverage(evidence),
        "machine": machine(evidence.records.records),
        "check": checked,
        "works": works,
        "lead": lead,
        "figures": others,
        "not_drawn": tuple(not_drawn),
        "figures_title": "More figures" if lead else "Figures",
        "overview": text.overview(findings, found),
        "note": caveats.note(findings),
        "warnings": warnings,
        "notes": notes,
        "questions": _by_question(a for a in found if a.main),
        "more": _by_question(a for a in found if not a.main),
        "claims": caveats.claims(findings, found),
        "limits": caveats.limits(findings),
        "cost": "" if evidence.published else caveats.cost(findings.cost),
        "laws": [
            {"heading": fits.heading(card), "facts": fits.facts(card), "warnings": card["warnings"]}
            for card in fits.cards(evidence)
        ],
        "tables": [_table(table) for table in tables if table.says_something],
        "provenance": provenance(evidence),
        "commands": (*run, f"python -m bench.report --suite {evidence.suite}{quoted}"),
        "runs": behind,
        "records": runs.records(evidence, list(dict.fromkeys(name for names in behind for name in names))),
        "traces": [(path.parts[1], path.as_posix()) for path in traces],
        "links": tuple(links.items()),
    }


def html(shown: Mapping[str, Any]) -> str:
    """The page. Equal content gives equal text."""
    environment = _environment(autoescape=True)
    environment.filters["unbroken"] = _unbroken
    script = (TEMPLATES / "report.js").read_text()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    number = {names: place for place, names in enumerate(shown["runs"])}
    pictures = [_picture(figure, number) for figure in (shown["lead"], *shown["figures"]) if figure is not None]
    named = (
        ("glance", "At a glance", True),
        ("warnings", "Validity checks", shown["warnings"] or shown["notes"]),
        ("figures", shown["figures_title"], shown["figures"] or shown["not_drawn"]),
        ("answers", "Answers and reasons", shown["questions"]),
        ("claims", "The paper's claims", shown["claims"]),
        ("laws", "Fitted laws", shown["laws"]),
        ("limits", "Scope", shown["limits"]),
        ("tables", "Tables", shown["tables"]),
        ("provenance", "Provenance", True),
    )
    rendered = environment.get_template(
        "page.html.j2"
    ).render(
        {
            **shown,
            "policy": f"{NO_NETWORK}; script-src 'sha256-{digest}'",
            "max_warnings": MAX_WARNINGS,
            "style": Markup((TEMPLATES / "style.css").read_text()),
            "script": Markup(script),  # files of this project
            "lead": pictures[0] if shown["lead"] else None,
            "figures": pictures[1 if shown["lead"] else 0 :],
            "sections": [(key, name) for key, name, there in named[1:] if there],
        }
    )
    return rendered + "\n"


def report_md(shown: Mapping[str, Any]) -> str:
    """report.md: figures and tables are linked, not embedded; reasons and captions are in the page."""
    environment = _environment(autoescape=False)
    environment.filters["md"] = lambda value: markdown(str(value))
    lead = shown["lead"]
    template = environment.get_template("report.md.j2")
    lines = template.render(shown, caption=lead.caption if lead else "").splitlines()
    rendered = "\n".join(line.rstrip() for line in lines)
    return re.sub(r"\n{3,}", "\n\n", rendered).strip() + "\n"


def _environment(*, autoescape: bool) -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=not autoescape,
        lstrip_blocks=not autoescape,
        finalize=lambda v: clean(v) if type(v) is str else v,
    )


def _picture(figure: RenderedFigure, number: Mapping[tuple[str, ...], int]) -> dict[str, Any]:
    """A figure as the page shows it: its SVG with names of its own, points linked to the runs behind them."""
    drawn = figure.svg[figure.svg.index("<svg") :]
    drawn = SVG_NAME.sub(f"{figure.name}-", SVG_GROUP.sub("<g>", drawn))
    drawn = SVG_CELL_LINK.sub(lambda match: f'xlink:href="#runs-{number[figure.cells[int(match[1])]]}"', drawn)
    label = f'<svg role="img" aria-label="{escape(clean(figure.alt))}" viewBox="{SVG_VIEW_BOX.search(drawn)[1]}">'  # type: ignore[index]
    drawn = label + drawn.partition(">")[2].replace("xlink:href", "href")
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "limit": f"{figure.pointed:,} of {figure.points:,} points can be pointed at."
        if figure.pointed < figure.points
        else "",
        "narrow": figure.width <= MAX_NARROW_INCHES,
        "folded": not figure.csv,  # a second picture of the same data
        "width": figure.width,
        "inline": Markup(clean(drawn)),
    }


def _table(table: Table) -> dict[str, Any]:
    more = table.left_out(MAX_ROWS)
    return {
        "name": table.name,
        "title": table.title,
        "columns": table.displayed,
        "rows": f"{len(table.rows):,}",
        "note": " ".join(part for part in (more, table.note) if part),
        "cells": [
            [_cell(c, row.get(c.key), bold=(number, c.key) in table.bold) for c in table.displayed]
            for number, row in enumerate(table.rows[:MAX_ROWS])
        ],
    }


def _cell(column: Column, value: Any, *, bold: bool) -> dict[str, Any]:
    raw = value.value if isinstance(value, Estimate) else value
    missing = raw is None or (isinstance(raw, float) and math.isnan(raw))
    key = "" if missing else f"{raw:.10g}" if isinstance(raw, float | int) else str(raw)
    kind = "wrap" if column.key == "reason" else "number" if column.numeric else ""
    return {"text": shown(column, value), "sort": key, "bold": bold, "kind": kind}


def _by_question(found: Iterable[text.Answer]) -> dict[str, list[text.Answer]]:
    grouped: dict[str, list[text.Answer]] = {}
    for answer in found:
        grouped.setdefault(answer.question, []).append(answer)
    return grouped


# -- what was run ----------------------------------------------------------------------------------------------------


def pipeline(evidence: Evidence) -> tuple[bool, str]:
    """Whether every cell that was asked for came to a result, and that in a sentence."""
    records = evidence.records
    lost = sum(r.status != "complete" for r in records.records)
    refused = records.wanted.refused.keys() & set(records.never_started) if records.wanted else ()
    missing = lost + len(records.damaged) + len(records.unfinished) + len(refused)
    left = len(records.never_started) - len(refused)
    done = len(records.records) - lost
    cells = plural(done + missing + left, "cell")
    if missing:
        return False, f"The pipeline does not work: {missing} of {cells} without a result."
    if not done:
        return not left, f"The pipeline was not tried: none of {cells} was started."
    if left:  # `--only` leaves cells for another run
        return True, f"The pipeline works so far: {done} of {cells} complete, {left} never started."
    return True, f"The pipeline works: {done} of {cells} complete."


def coverage(evidence: Evidence) -> str:
    """How many cells of the grid are done, and what happened to the others."""
    records = evidence.records
    if evidence.published:
        return caveats.quoted(len({r.model.name for r in records.records}), evidence.source)
    counts = Counter[str](record.status for record in records.records)
    counts["damaged"] = len(records.damaged)
    counts["not finished"] = len(records.unfinished)
    counts["never started"] = len(records.never_started)
    total = sum(counts.values())
    others = [f"{number} {status}" for status, number in sorted(counts.items()) if number and status != "complete"]
    found = f"{counts['complete']} of {plural(total, 'cell')} complete" + (f"; {join(others)}." if others else ".")
    if records.wanted is not None:
        planned = set(records.wanted.names)
        beyond = sum(record.directory not in planned for record in records.records)
        found += f" {beyond} of them outside the current grid." if beyond else ""
    lost = [f"{r.directory}: {r.reason or r.status}" for r in records.records if r.status != "complete"]
    lost += [f"{d.directory}: damaged record" for d in records.damaged]
    refused = records.wanted.refused if records.wanted is not None else {}
    lost += [f"{name}: {refused[name]}" for name in records.never_started if name in refused]
    more = [f"and {len(lost) - MAX_FAILURES} more (tables/coverage.csv)"] if len(lost) > MAX_FAILURES else []
    return found + (f" Without result: {'; '.join(lost[:MAX_FAILURES] + more)}." if lost else "")


def machine(records: Sequence[Record]) -> str:
    """Hardware, threads, precision and dates in one line; "" where nothing was run here."""
    hardware = _distinct(records, "environment.accelerator") or _distinct(records, "environment.cpu")
    threads = [plural(int(n), "thread") for n in _distinct(records, "execution.threads")]
    days = sorted({day[:10] for end in ("time_start", "time_end") for day in _distinct(records, f"environment.{end}")})
    dates = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""
    parts = [" and ".join(found) for found in (hardware, threads, _distinct(records, "execution.dtype"))]
    known = [part for part in (*parts, dates) if part]
    return f"{', '.join(known)}." if known else ""


def provenance(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    """Where the numbers come from: software, hardware, data. Distinct values are all listed."""
    records = evidence.records.records
    found = [
        (label, "; ".join(values))
        for key, label in PROVENANCE
        if (values := _distinct(records, key)) and values != ["0"]
    ]
    sets: dict[str, dict[str, None]] = {}
    for data in sorted({r.data for r in records}, key=lambda d: (d.num_images or 0, _data(d), _images(d))):
        sets.setdefault(_data(data), {})[_images(data)] = None
    data_texts = [", ".join(filter(None, (name, *sizes))) for name, sizes in sets.items()]
    found += [("Pre-training data", "; ".join(data_texts))] if sets else []
    starts, ends = (_distinct(records, key) for key in ("environment.time_start", "environment.time_end"))
    return (*found, *([("Made between", f"{starts[0]} and {ends[-1]}")] if starts and ends else []))


def _distinct(records: Sequence[Record], path: str) -> list[str]:
    """Different values of an attribute, such as "environment.torch"."""
    read = operator.attrgetter(path)
    return sorted({str(value) for record in records if (value := read(record)) is not None})


def _data(data: DataFacts) -> str:
    revision = f" revision {data.revision}" if data.revision is not None else ""
    return f"{data.name}{revision}, {data.num_classes} classes" + (f", {data.kind}" if data.kind != UNKNOWN else "")


def _images(data: DataFacts) -> str:
    images = f"{data.num_images:,} images" if data.num_images else ""
    return f"{images} sha256:{data.content_hash[:12]}".strip() if data.content_hash else images


def _unbroken(number: str) -> Markup:
    """A number whose interval, and whose unit, stay on one line."""
    kept = re.sub(r"\[[^\]]*\]", lambda found: found[0].replace(" ", "\u00a0"), clean(number))
    return escape(kept.replace(" %", "\u00a0%"))
