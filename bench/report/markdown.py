"""The report as Markdown, for places that show no HTML. Figures are linked, not embedded."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bench.report.content import MAX_ROWS, Content, by_question
from bench.report.figures._contract import Saved
from bench.report.finding import Finding


def render(content: Content) -> str:
    """report.md; figures and tables are referred to by their place beside it."""
    lines = [f"# {plain(content.title)}", ""]
    lines += [plain(content.question), ""] if content.question else []
    lines += [f"{plain(content.coverage)} {plain(content.cost)}".rstrip(), "", "## What was found", ""]
    short = content.findings.summary
    lines += ["**In short**", "", *(f"- {plain(sentence)}" for sentence in short), ""] if short else []
    lines += [plain(content.findings.note), ""] if content.findings.note else []
    lead = content.lead
    lines += _figure(lead) if lead else []
    lines += _answers([f for f in content.findings.findings if f.main]) + _claims(content)
    more = [f for f in content.findings.findings if not f.main]
    lines += ["### More answers", "", *_answers(more)] if more else []
    others = [figure for figure in content.figures if figure is not lead]
    lines += [f"## {content.figures_title}", ""] if others or content.not_drawn else []
    for figure in others:
        lines += _figure(figure)
    lines += [f"Not drawn: {plain(title)} ({plain(reason)})." for title, reason in content.not_drawn]
    lines += ["", "## What this study cannot tell", "", *(f"- {plain(limit)}" for limit in content.findings.limits), ""]
    if content.findings.checks:
        lines += ["## Warnings and notes", ""]
        lines += [f"- {c.level.capitalize()}: {plain(c.text)}" for c in content.findings.checks] + [""]
    lines += ["## Tables", ""]
    for table in content.tables:
        lines += [table.markdown(rows=MAX_ROWS), ""]
    lines += ["## Provenance", "", *(f"- {plain(label)}: {plain(text)}" for label, text in content.provenance), ""]
    lines += ["## How to reproduce", "", "```", *content.commands, "```", ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _figure(figure: Saved) -> list[str]:
    return [f"### {plain(figure.title)}", "", f"![{plain(figure.alt)}](figures/{figure.name}.png)", "",
            plain(figure.caption), ""]  # fmt: skip


def _answers(findings: Sequence[Finding]) -> list[str]:
    lines = []
    for question, members in by_question(findings).items():
        lines += [f"**{plain(question)}**", ""]
        lines += [f"- {plain(f.subject)}: " + (f"**{f.word}**. " if f.word else "") + plain(f.answer) for f in members]
        lines.append("")
    return lines


def _claims(content: Content) -> list[str]:
    """The paper's claims, with what these records say (where they are not the paper's own) and what Table 6 says."""
    found = content.findings
    lines = [f"**The paper's claims, {found.records}**", ""] if found.claims else []
    for c in found.claims:
        own = "" if found.published else f" **{c.verdict}**. {plain(c.sentence)} The paper's own Table 6:"
        lines.append(f"- {plain(c.claim)}{own} " + (f"**{c.paper}**. " if c.paper else "") + plain(c.paper_sentence))
    return [*lines, ""]


def plain(text: str) -> str:
    """Text that means itself in Markdown: one line, no markup of its own."""
    return re.sub(r"([\\`*\[\]|])", r"\\\1", text.replace("\n", " ")).replace("<", "&lt;")
