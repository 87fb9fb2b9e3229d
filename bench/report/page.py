"""The report as one self-contained HTML file (which needs no network, and suits light and dark screens, phones and
paper) and as Markdown."""

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
from urllib.parse import unquote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from bench.analysis.check import Words
from bench.analysis.evidence import Evidence
from bench.analysis.findings import Findings
from bench.analysis.question import question_of
from bench.analysis.table import Column, Table, clean, markdown, shown
from bench.core.by_key import by_key
from bench.core.cell_state import CellState
from bench.core.formatting import join, plural
from bench.core.phrase import Interval, Phrase, parts_of
from bench.report import caveats, fits, next_step, runs, text
from bench.report.figures.figure import MAX_NARROW_INCHES, RenderedFigure
from bench.report.title import StudyTitle
from bench.stats.intervals import Estimate
from bench.study.record import UNKNOWN, DataFacts, Record

TEMPLATES = Path(__file__).parent / "templates"
MAX_ROWS = 500  # rows of a table in the page; the CSV has all
MAX_WARNINGS = 4  # warnings that the section shows when it is unfolded; the others are a click further
NO_BREAK = "\u00a0"
MAX_FAILURES = 6  # failed runs that are named in one sentence
NO_NETWORK = "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; style-src 'unsafe-inline'"
TITLES = {"vtab": "VTAB"}
WIDE_ONLY = '<span class="wide-only">{}</span>'
SVG_NAME = re.compile(r'(?<= id=")|(?<=url\(#)|(?<=href="#)')  # before every name in an SVG
SVG_TOGGLE = re.compile(r'<g id="toggle\.(\w+)\.([^"]*)">')  # see `_style.name_toggles`
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
    ("execution.accelerators", "Accelerators per run"),
    ("execution.threads", "Threads per run"),
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
    chosen: StudyTitle | None,
    traces: Sequence[Path] = (),
    links: Mapping[str, str] = MappingProxyType({}),
    asked: str = "",
    mark: str = "",
) -> dict[str, Any]:
    """Return everything that a reader sees: name in the templates -> value.

    Args:
        not_drawn: (title, reason) of each figure that could not be drawn.
        check: whether the suite only checks the pipeline.
        chosen: the study's title, whose figure is the first on the page; None: the study has no title.
        traces: files of torch.profiler, relative to the page.
        links: text -> file beside the page, shown below the title.
        asked: name of the study file beside the page, if it has options that the suite's name does not imply; else "".
        mark: a sentence which says that the numbers mean nothing (of a rehearsal); "" where they mean something.
    """
    answers = text.answers(findings)
    warnings, notes = caveats.warnings(findings)
    of = asked or f"--suite {evidence.suite}"
    leading = findings.findings[chosen.finding] if chosen else None
    behind = tuple(dict.fromkeys(names for figure in figures for names in figure.cells))
    return {
        **_heading(evidence, findings, chosen, check=check, mark=mark),
        **_figures(figures, chosen),
        "not_drawn": tuple(not_drawn),
        "overview": text.overview(findings, answers),
        "note": caveats.shared_facts(findings),
        "next": next_step.next_step(evidence, findings, leading, study=of, check=check),
        "not_shown": next_step.not_shown(findings),
        "usual": frozenset(text.usual_counts(findings).values()),
        "warnings": warnings,
        "notes": notes,
        "counted": join([plural(len(said), noun) for said, noun in ((warnings, "warning"), (notes, "note")) if said]),
        "questions": by_key((a.question, a) for a in answers if a.main),
        "more": by_key((a.question, a) for a in answers if not a.main),
        "claims": caveats.claims(findings, answers),
        "limits": caveats.limits(findings),
        "cost": "" if evidence.published else caveats.cost(findings.cost),
        "usage": tuple(dict.fromkeys(used for f in findings.findings if (used := question_of(f).usage(f)))),
        "laws": [
            {"heading": fits.heading(card), "facts": fits.facts(card), "warnings": card["warnings"]}
            for card in fits.cards(evidence)
        ],
        "tables": [_table(table) for table in tables if table.says_something],
        "provenance": provenance(evidence),
        "commands": _commands(evidence, asked),
        "runs": behind,
        "records": runs.records(evidence, list(dict.fromkeys(name for names in behind for name in names))),
        "traces": [(path.parts[1], path.as_posix()) for path in traces],
        "links": tuple(links.items()),
    }


def _heading(
    evidence: Evidence, findings: Findings, chosen: StudyTitle | None, *, check: bool, mark: str
) -> dict[str, Any]:
    """Return the title, and the lines below it, by their names in the templates: the question, how much was run, and on
    which machine. Arguments are those of `content`."""
    study = f"{TITLES.get(evidence.suite, evidence.suite[:1].upper() + evidence.suite[1:])} study"
    works, verdict = pipeline(evidence)
    checked = f"{verdict} The numbers of this suite mean nothing." if check else ""
    question = evidence.question[:1].upper() + evidence.question[1:]
    unasked = f"{mark} {checked or f'{question or study} {caveats.shared_facts(findings)}'}".strip()
    return {
        "title": chosen.text if chosen else unasked,
        "mark": mark,
        "others": chosen.others if chosen else "",
        "study": study,
        "question": question,
        "published": evidence.published,
        "coverage": coverage(evidence),
        "images": images(findings),
        "machine": machine(evidence.records.records),
        "check": checked,
        "works": works,
    }


def _figures(figures: Sequence[RenderedFigure], chosen: StudyTitle | None) -> dict[str, Any]:
    """Return the leading figure and the others, by their names in the templates. The leading figure is the one that
    shows what the study's title (`chosen`) says, and gets that title; without a title, the first figure leads."""
    lead = next((figure for figure in figures if chosen and figure.name == chosen.figure), None)
    lead = lead or (figures[0] if figures else None)
    return {
        "lead": replace(lead, title=chosen.text) if lead and chosen and chosen.figure else lead,
        "figures": [figure for figure in figures if figure is not lead],
        "figures_title": "More figures" if lead else "Figures",
    }


def _commands(evidence: Evidence, asked: str) -> tuple[str, ...]:
    """Return the commands that reproduce the study (except if its numbers are quoted) and the report. `asked`: a study
    file; "" if the suite's name suffices."""
    quoted = f" --reference {evidence.reference.suite}" if evidence.reference else ""
    run = () if evidence.published else (f"python -m bench.run {asked or f'--suite {evidence.suite}'}",)
    of = asked if evidence.records.rehearsal else f"--suite {evidence.suite}"  # its folder has another name
    return (*run, f"python -m bench.report {of}{quoted}")


def html(shown: Mapping[str, Any]) -> str:
    """Return the page as HTML. `shown`: what `content` returned; equal content gives equal text."""
    environment = _environment(autoescape=True)
    environment.filters["unbroken"] = _unbroken
    environment.filters["short"] = _short
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
        ("usage", "Use the best model", shown["usage"]),
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
    """Return the text of report.md, which links figures and tables and leaves reasons and captions to the page.
    `shown`: what `content` returned."""
    environment = _environment(autoescape=False)
    environment.filters["once"] = _once
    environment.filters["md"] = lambda value: markdown(str(value))
    lead = shown["lead"]
    template = environment.get_template("report.md.j2")
    said = (lead.caption if lead.n in shown["usual"] else lead.explained).strip() if lead else ""
    answered = _merged([*shown["overview"].shown, *shown["overview"].more])
    lines = template.render(shown, caption=said, answered=answered, provenance=_alike(shown["provenance"])).splitlines()
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip() + "\n"


def _merged(tables: Iterable[text.Glance]) -> list[text.Glance]:
    """Return the tables, with those that have the same heading and columns merged into one."""
    merged: dict[tuple[str, ...], text.Glance] = {}
    for table in tables:
        key = (table.heading, *table.columns)
        merged[key] = replace(merged[key], rows=merged[key].rows + table.rows) if key in merged else table
    return list(merged.values())


def _alike(facts: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return facts, (name, value) each, with those of equal value joined: (all of their names, value)."""
    return [(", ".join(names), value) for value, names in by_key((value, name) for name, value in facts).items()]


def _once(results: Sequence[Words]) -> list[str]:
    """Return results of validity checks as texts. Where several results share a rule, only the first of them states
    it."""
    first = {words.rule: nth for nth, words in reversed(list(enumerate(results)))}
    return [str(words) if first[words.rule] == nth else words.without_rule for nth, words in enumerate(results)]


def _environment(*, autoescape: bool) -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=not autoescape,
        lstrip_blocks=not autoescape,
        finalize=lambda v: clean(str(v)) if type(v) in (str, Words, Phrase) else v,
    )


def _picture(figure: RenderedFigure, number: Mapping[tuple[str, ...], int]) -> dict[str, Any]:
    """Return a figure under the names that the template uses, among them its SVG, whose points link to the runs behind
    them. `number`: group of cells -> its number on the page."""
    stacked = figure.stacked
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.explained,
        "limit": f"{figure.pointed:,} of {figure.points:,} points can be pointed at."
        if figure.pointed < figure.points
        else "",
        "files": tuple(
            (kind.upper(), f"{figure.folder}/{figure.name}.{kind}")
            for kind in ("csv", "png", "pdf")
            if getattr(figure, kind)
        ),
        "narrow": figure.width <= MAX_NARROW_INCHES,
        "folded": not figure.csv,  # a second picture of the same data
        "width": figure.width,
        "inline": _inline(figure, number, figure.name),
        "stacked": _inline(stacked, number, f"{figure.name}-stacked") if stacked else "",
    }


def _inline(figure: RenderedFigure, number: Mapping[tuple[str, ...], int], prefix: str) -> Markup:
    """Return a figure's SVG for the page. All of its ids begin with `prefix`, so that no two figures share an id.
    `number`: group of cells -> its number on the page, which links of points refer to."""
    drawn = figure.svg[figure.svg.index("<svg") :]
    drawn = SVG_NAME.sub(f"{prefix}-", SVG_GROUP.sub("<g>", SVG_TOGGLE.sub(_toggle, drawn)))
    drawn = SVG_CELL_LINK.sub(lambda match: f'xlink:href="#runs-{number[figure.cells[int(match[1])]]}"', drawn)
    label = f'<svg role="group" aria-label="{escape(clean(figure.alt))}" viewBox="{SVG_VIEW_BOX.search(drawn)[1]}">'  # type: ignore[index]
    return Markup(clean(label + drawn.partition(">")[2].replace("xlink:href", "href")))


def _toggle(match: re.Match[str]) -> str:
    """Return the SVG tag of a name that hides and shows what is drawn in its colour when it is clicked; report.js makes
    it a button. `match`: the tag as `_style.name_toggles` wrote it, with groups for colour and name."""
    name = " ".join(clean(unquote(match[2])).split())
    return f'<g class="toggle" data-colour="#{match[1]}" data-name="{escape(name)}">'


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


# -- what was run ----------------------------------------------------------------------------------------------------


def pipeline(evidence: Evidence) -> tuple[bool, str]:
    """Return (whether the pipeline works, a sentence that says so). It works if there are results and no cell (run)
    failed, is damaged or cannot be run; cells that are left for another run do not matter."""
    records = evidence.records
    lost = sum(r.status != "complete" for r in records.records)
    refused = records.wanted.refused.keys() & set(records.never_started) if records.wanted else ()
    missing = lost + len(records.damaged) + len(records.failed) + len(refused)
    at_work = len(records.unfinished) - len(records.failed)  # by another command, or stopped by its user
    left = len(records.never_started) - len(refused) + at_work
    done = len(records.records) - lost
    cells = plural(done + missing + left, "run")
    if missing:
        return False, f"The pipeline does not work: {missing} of {cells} without a result."
    if not done:
        return not left, f"The pipeline was not tried: none of {cells} was {'finished' if at_work else 'started'}."
    if left:  # `--only` leaves cells for another run
        how = "not finished" if at_work else "never started"
        return True, f"The pipeline works so far: {done} of {cells} complete, {left} {how}."
    return True, f"The pipeline works: {done} of {cells} complete."


def coverage(evidence: Evidence) -> str:
    """Return in words how many cells (runs) of the study's grid are done, and what happened to the others."""
    records = evidence.records
    if evidence.published:
        return caveats.quoted(len({r.model.name for r in records.records}), evidence.source)
    counts = Counter[str](record.status for record in records.records)
    counts[CellState.DAMAGED] = len(records.damaged)
    counts["not finished"] = len(records.unfinished)
    counts[CellState.NEVER_STARTED] = len(records.never_started)
    total = sum(counts.values())
    others = [f"{number} {status}" for status, number in sorted(counts.items()) if number and status != "complete"]
    wanted = records.wanted
    beyond = sum(r.directory not in wanted.names for r in records.records) if wanted else 0
    refused = wanted.refused if wanted else {}
    lost = [
        *(f"{r.directory}: {r.reason or r.status}" for r in records.records if r.status != "complete"),
        *(f"{d.directory}: damaged record" for d in records.damaged),
        *(f"{name}: {refused[name]}" for name in records.never_started if name in refused),
    ]
    more = [f"and {len(lost) - MAX_FAILURES} more (tables/coverage.csv)"] if len(lost) > MAX_FAILURES else []
    said = (
        f"{counts['complete']} of {plural(total, 'run')} complete" + (f"; {join(others)}." if others else "."),
        f"{beyond} of them outside the current grid." if beyond else "",
        f"Without result: {'; '.join(lost[:MAX_FAILURES] + more)}." if lost else "",
    )
    return " ".join(sentence for sentence in said if sentence)


def images(findings: Findings) -> str:
    """Return a sentence on the images that the study's models were trained on; "" if none was trained."""
    scope = findings.scope
    if findings.published or scope is None or not scope.upstream or not scope.flops:
        return ""
    sets = join([f"{name} ({kind})" for name, kind in scope.upstream])
    size = f" at {scope.image_size} px" if scope.image_size else ""
    return f"Trained on up to {scope.images:,} images of {sets}{size}."


def machine(records: Sequence[Record]) -> str:
    """Return hardware, threads, precision and dates of the runs in one line; "" where nothing was run here."""
    hardware = _distinct(records, "environment.accelerator") or _distinct(records, "environment.cpu")
    threads = [plural(int(n), "thread") for n in _distinct(records, "execution.threads")]
    days = sorted({day[:10] for end in ("time_start", "time_end") for day in _distinct(records, f"environment.{end}")})
    dates = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""
    parts = [" and ".join(words) for words in (hardware, threads, _distinct(records, "execution.dtype"))]
    known = [part for part in (*parts, dates) if part]
    return f"{', '.join(known)}." if known else ""


def provenance(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    """Return (label, text) on where the numbers come from: software, hardware, data. Where runs differ, the text lists
    all values."""
    records = evidence.records.records
    rows = [
        (label, "; ".join(values))
        for key, label in PROVENANCE
        if (values := _distinct(records, key)) and values != ["0"]
    ]
    sets: dict[str, dict[str, None]] = {}
    for data in sorted({r.data for r in records}, key=lambda d: (d.num_images or 0, _data(d), _images(d))):
        sets.setdefault(_data(data), {})[_images(data)] = None
    data_texts = [", ".join(filter(None, (name, *sizes))) for name, sizes in sets.items()]
    given = all(r.cell.horizons == (0,) for r in records)  # networks that were evaluated as they are
    rows += [("Images" if given else "Pre-training data", "; ".join(data_texts))] if sets else []
    starts, ends = (_distinct(records, key) for key in ("environment.time_start", "environment.time_end"))
    return (*rows, *([("Made between", f"{starts[0]} and {ends[-1]}")] if starts and ends else []))


def _distinct(records: Sequence[Record], path: str) -> list[str]:
    """Return the distinct values, as text, of an attribute of records, given by its path such as "environment.torch";
    missing values are left out."""
    value_of = operator.attrgetter(path)
    return sorted({str(value) for record in records if (value := value_of(record)) not in (None, "")})


def _data(data: DataFacts) -> str:
    revision = f" revision {data.revision}" if data.revision is not None else ""
    classes = f"{data.num_classes:,} classes" if data.num_classes is not None else ""
    return ", ".join(filter(None, (f"{data.name}{revision}", classes, data.kind if data.kind != UNKNOWN else "")))


def _images(data: DataFacts) -> str:
    images = f"{data.num_images:,} images" if data.num_images else ""
    return f"{images} sha256:{data.content_hash[:12]}".strip() if data.content_hash else images


def _unbroken(text: str) -> Markup:
    """Return a text as HTML in which no line breaks inside an interval or before a percent sign."""
    return Markup("").join(map(_on_one_line, parts_of(text)))


def _on_one_line(part: str) -> Markup:
    kept = clean(part)
    kept = kept.replace(" ", NO_BREAK) if isinstance(part, Interval) else kept
    return escape(kept.replace(" %", f"{NO_BREAK}%"))


def _short(title: str, others: str) -> Markup:
    """Return a title as HTML. On a narrow page its end, `others`, is hidden, since tables of the page say the same."""
    parts = list(parts_of(title))
    ends = [parts.pop()] if others else []
    made, last = ("".join(map(str, map(_on_one_line, some))) for some in (parts, ends))
    return Markup(made.strip() + (WIDE_ONLY.format(f" {last}") if last else ""))
