"""The report as one self-contained HTML file: no network, light and dark, readable on a phone and on paper."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from bench.report import laws
from bench.report.content import MAX_ROWS, Content, by_question
from bench.report.figures._contract import Saved
from bench.report.finding import Finding
from bench.report.layout import Column, Table, shown
from bench.stats.intervals import Estimate

LONG = 24  # rows of a table that is shown open
OPEN_QUESTIONS = 9  # shown at once; the others are a click away, in the order of the study
HERE = Path(__file__).parent
POINTING = "Point at a mark to see the run; click it (or press Enter; arrow keys move) to see its record."
CLASSES = {"yes": "yes", "no": "no", "cannot tell": "unsure", "": "open"}


def render(content: Content) -> str:
    """The page. Equal content gives equal text."""
    sections = [
        ("answers", "What was found", _answers(content)),
        ("figures", content.figures_title, _figures(content)),
        ("laws", "Fitted laws", laws.cards_section(content.cards)),
        ("limits", "What this study cannot tell", _limits(content)),
        ("tables", "Tables", "".join(_table(table) for table in content.tables if table.name != "coverage")),
        ("coverage", "Coverage and cost", _coverage(content)),
        ("provenance", "Provenance", _provenance(content)),
        ("reproduce", "How to reproduce", _reproduce(content)),
    ]
    sections = [section for section in sections if section[2]]
    links = "".join(f'<a href="#{key}">{escape(title)}</a>' for key, title, _ in sections)
    body = "".join(f'<section id="{key}"><h2>{escape(title)}</h2>{text}</section>\n' for key, title, text in sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(content.title)}</title>\n<style>\n{(HERE / '_style.css').read_text()}</style>\n</head>\n"
        "<body>\n"
        '<header><button type="button" id="theme" hidden>Dark</button>'
        f'<h1>{escape(content.title)}</h1><p class="lead">{escape(content.question)}</p>'
        f'<p class="small">{escape(content.coverage)}</p>'
        f"<nav>{links}</nav></header>\n<main>\n{body}</main>\n"
        '<div id="tip" role="status"></div>\n<dialog id="record" aria-label="Record"><form method="dialog">'
        '<button type="submit">Close</button></form><div></div></dialog>\n'
        f'<script type="application/json" id="data">{content.page_data}</script>\n'
        f"<script>\n{(HERE / '_report.js').read_text()}</script>\n</body>\n</html>\n"
    )


def _answers(content: Content) -> str:
    found = content.findings
    first = list(dict.fromkeys(f.question for f in found.findings if f.main))[:OPEN_QUESTIONS]
    main = [f for f in found.findings if f.main and f.question in first]
    more = [f for f in found.findings if not f.main or f.question not in first]
    text = "".join(f"<li>{escape(sentence)}</li>" for sentence in found.summary)
    text = f'<h3>In short</h3><ul class="short">{text}</ul>' if text else ""
    text += f'<p class="note">{escape(found.note)}</p>' if found.note else ""
    text += _drawn(content, [content.lead]) if content.lead else ""
    text += _list(main) if main else "<p>No questions could be asked of these records.</p>"
    text += laws.claims_section(found.claims, published=found.published)
    if more:
        text += f"<details><summary>{len(more)} more answers</summary>{_list(more)}</details>"
    return text


def _list(findings: Sequence[Finding]) -> str:
    parts = []
    for question, members in by_question(findings).items():
        rows = "".join(
            f'<div><dt>{escape(f.subject)}</dt><dd class="verdict {CLASSES[f.word]}">{escape(f.word)}</dd>'
            f'<dd class="text">{escape(f.answer)}</dd></div>'
            for f in members
        )
        parts.append(f'<h3>{escape(question)}</h3><dl class="answers">{rows}</dl>')
    return "".join(parts)


def _limits(content: Content) -> str:
    text = "<ul>" + "".join(f"<li>{escape(limit)}</li>" for limit in content.findings.limits) + "</ul>"
    for check in content.findings.checks:
        kind = "warning" if check.level == "warning" else "remark"
        text += f'<p class="{kind}"><strong>{escape(check.name.capitalize())}.</strong> {escape(check.text)}</p>'
    return text


def _figures(content: Content) -> str:
    text = _drawn(content, [figure for figure in content.figures if figure is not content.lead])
    for title, reason in content.not_drawn:
        text += f'<p class="note">Not drawn: {escape(title)} ({escape(reason)}).</p>'
    return text


def _drawn(content: Content, figures: Sequence[Saved]) -> str:
    """Figures, with how to point at their marks once, above the first of the page that has some."""
    pointed = next((figure for figure in content.figures if figure.hover_points), None)
    return "".join(
        (f'<p class="note">{POINTING}</p>' if figure is pointed else "")
        + _figure(figure, content.spot_limits.get(figure.name, ""))
        for figure in figures
    )


def _figure(figure: Saved, limit: str) -> str:
    return (
        f'<figure id="figure-{escape(figure.name)}"><h3>{escape(figure.title)}</h3><div class="picture">'
        f"{inline_svg(figure.svg, prefix=figure.name, alt=figure.alt)}</div>"
        f"<figcaption>{escape(' '.join(filter(None, [figure.caption, limit])))}</figcaption></figure>"
    )


def inline_svg(svg: str, *, prefix: str, alt: str) -> str:
    """An SVG file as an element of the page: ids made unique, prologue, metadata and style sheets dropped."""
    text = svg[svg.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<style.*?</style>", "", text, flags=re.DOTALL)  # it would apply to the whole page
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)
    text = re.sub(r'\s(width|height)="[\d.]+pt"', "", text, count=2)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    opening = f'<svg role="img" aria-label="{escape(alt)}" style="stroke-linejoin: round; stroke-linecap: butt"'
    return text.replace("<svg", opening, 1).strip()


def _table(table: Table) -> str:
    head = "".join(
        f'<th scope="col"{_number_class(c)}><button type="button">{escape(c.heading)}</button></th>'
        for c in table.columns
    )
    rows = "".join(
        "<tr>" + "".join(_cell(c, row.get(c.key), bold=(number, c.key) in table.bold) for c in table.columns) + "</tr>"
        for number, row in enumerate(table.rows[:MAX_ROWS])
    )
    notes = [text for text in (table.left_out(MAX_ROWS), table.note) if text]
    note = f'<p class="note">{escape(" ".join(notes))}</p>' if notes else ""
    whole = f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}'
    title = escape(table.title)
    if len(table.rows) > LONG:  # folded: what follows would be far away on a phone
        return f"<details><summary>{title} ({len(table.rows):,} rows)</summary>{whole}</details>"
    return f"<h3>{title}</h3>{whole}"


def _cell(column: Column, value: Any, *, bold: bool) -> str:
    raw = value.value if isinstance(value, Estimate) else value
    missing = raw is None or (isinstance(raw, float) and math.isnan(raw))
    key = "" if missing else repr(raw) if isinstance(raw, float | int) else str(raw)
    style = ' class="wrap"' if column.key == "reason" else _number_class(column)
    text = escape(shown(column, value))
    return f'<td{style} data-sort="{escape(key)}">{f"<strong>{text}</strong>" if bold else text}</td>'


def _number_class(column: Column) -> str:
    return ' class="number"' if column.numeric else ""


def _coverage(content: Content) -> str:
    table = next((t for t in content.tables if t.name == "coverage"), None)
    listed = f"<details><summary>Every cell</summary>{_table(table)}</details>" if table else ""
    return f"<p>{escape(content.coverage)}</p><p>{escape(content.cost)}</p>{listed}"


def _provenance(content: Content) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escape(label)}</th><td class="wrap">{escape(text)}</td></tr>'
        for label, text in content.provenance
    )
    return f'<div class="scroll"><table><tbody>{rows}</tbody></table></div>'


def _reproduce(content: Content) -> str:
    return (
        "<p>Run the study (finished cells are kept), or rebuild this report alone:</p>"
        f"<pre>{escape(chr(10).join(content.commands))}</pre>"
        "<p>Beside this file: <code>tables/</code> (CSV, Markdown, LaTeX), <code>figures/</code> (PNG, SVG, and the "
        "plotted numbers as CSV), <code>findings.json</code> (every answer with the comparisons behind it).</p>"
    )
