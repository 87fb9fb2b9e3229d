"""The report as Markdown, for places that show no HTML. Figures are linked, not embedded."""

from __future__ import annotations

import re

from bench.html.content import MAX_ROWS, Content, by_question


def render(content: Content) -> str:
    """report.md; figures and tables are referred to by their place beside it."""
    lines = [f"# {plain(content.title)}", ""]
    lines += [plain(content.question), ""] if content.question else []
    lines += [f"{plain(content.coverage)} {plain(content.cost)}".rstrip(), "", "## What was found", ""]
    lines += [plain(content.findings.note), ""] if content.findings.note else []
    for question, members in by_question(content.findings.findings).items():
        lines += [f"**{plain(question)}**", ""]
        lines += [f"- {plain(f.subject)}: **{f.verdict}**. {plain(f.answer)}" for f in members]
        lines.append("")
    if content.findings.claims:
        lines += ["**The paper's claims, in these records (and in the paper's own Table 6)**", ""]
        lines += [f"- {plain(c.claim)} **{c.verdict}**. {plain(c.sentence)} (Table 6: {plain(c.paper_sentence)})"
                  for c in content.findings.claims] + [""]  # fmt: skip
    lines += ["## Figures", ""]
    for figure in content.figures:
        lines += [f"### {plain(figure.title)}", "", f"![{plain(figure.alt)}](figures/{figure.name}.png)", ""]
        lines += [plain(figure.caption), ""]
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


def plain(text: str) -> str:
    """Text that means itself in Markdown: one line, no markup of its own."""
    return re.sub(r"([\\`*\[\]|])", r"\\\1", text.replace("\n", " ")).replace("<", "&lt;")
