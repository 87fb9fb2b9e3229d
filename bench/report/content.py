"""What a report holds, before it becomes HTML or Markdown."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from baselines.published import SOURCE
from bench.analysis.evidence import Evidence
from bench.core.formatting import join, plural
from bench.core.record import UNKNOWN, DataFacts, Record
from bench.report import embed
from bench.report.figures._contract import Saved
from bench.report.finding import Finding, Findings
from bench.report.layout import Table

MAX_ROWS = 500  # of a table, in the page and in report.md; the CSV has all
ACRONYMS = {"vtab": "VTAB"}
MAX_FAILURES = 6  # named in one sentence
ENVIRONMENT = (
    ("environment.project_version", "Version"), ("environment.commit", "Commit"), ("environment.python", "Python"),
    ("environment.torch", "PyTorch"), ("environment.timm", "timm"), ("environment.numpy", "NumPy"),
    ("environment.platform", "System"), ("environment.cpu", "Processor"), ("environment.accelerator", "Accelerator"),
    ("execution.device", "Device"), ("execution.accelerators", "Accelerators per cell"),
    ("execution.threads", "Threads per cell"), ("execution.dtype", "Precision"),
    ("cost.peak_source", "Peak for utilisation"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Content:
    """Everything that a reader sees, in order.

    Attributes:
        not_drawn: (title, reason) of figures that the records hold nothing for.
        cards: every fitted law, see `bench.report.cards`.
        cost: one sentence on what was spent; "" where nothing was run.
        provenance: (label, text) pairs.
        commands: what to type to get the same.
        page_data: JSON of the marks and of the records behind them, for the page's script.
        spot_limits: per figure, a sentence where not every mark can be pointed at.
    """

    suite: str
    question: str
    findings: Findings
    figures: tuple[Saved, ...]
    not_drawn: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]
    coverage: str
    cost: str
    provenance: tuple[tuple[str, str], ...]
    commands: tuple[str, ...]
    cards: tuple[Mapping[str, Any], ...]
    page_data: str
    spot_limits: Mapping[str, str]

    @property
    def lead(self) -> Saved | None:
        """The first figure: it stands beside the answers in short, so that who reads no further has seen it."""
        return self.figures[0] if self.figures and self.findings.summary else None

    @property
    def figures_title(self) -> str:
        """Heading of the figures that stand apart."""
        return "Figures" if self.lead is None else "More figures"

    @property
    def title(self) -> str:
        return f"{ACRONYMS.get(self.suite, self.suite[:1].upper() + self.suite[1:])} study"


def gather(
    evidence: Evidence, findings: Findings, *, figures: Sequence[Saved], not_drawn: Sequence[tuple[str, str]],
    tables: Sequence[Table], cards: Sequence[Mapping[str, Any]] = (),
) -> Content:  # fmt: skip
    """Put a report together."""
    run = () if evidence.published else (f"python -m bench.run --suite {evidence.suite}",)
    quoted = " --reference paper" if evidence.reference else ""
    return Content(
        suite=evidence.suite, question=evidence.question[:1].upper() + evidence.question[1:],
        findings=findings, figures=tuple(figures),
        not_drawn=tuple(not_drawn), tables=tuple(table for table in tables if table.says_something),
        coverage=coverage(evidence), provenance=provenance(evidence),
        cost="" if evidence.published else findings.cost.sentence,
        commands=(*run, f"python -m bench.report --suite {evidence.suite}{quoted}"),
        cards=tuple(cards), page_data=embed.page_data(evidence, figures), spot_limits=embed.limits(figures),
    )  # fmt: skip


def coverage(evidence: Evidence) -> str:
    """One sentence: how many cells of the grid are done, and what happened to the others."""
    records = evidence.records
    if evidence.published:
        return f"Quoted from {SOURCE}: {plural(len(records.records), 'model')}; nothing was run here."
    counts = Counter[str](record.status for record in records.records)
    counts["damaged"] = len(records.damaged)
    counts["not finished"] = len(records.unfinished)
    counts["never started"] = len(records.never_started)
    total = sum(counts.values())
    others = [f"{number} {status}" for status, number in sorted(counts.items()) if number and status != "complete"]
    text = f"{counts['complete']} of {plural(total, 'cell')} complete" + (f"; {join(others)}." if others else ".")
    if records.wanted is not None:
        planned = set(records.wanted.names)
        beyond = sum(record.directory not in planned for record in records.records)
        text += f" {beyond} of them outside the grid asked for last." if beyond else ""
    return text + _failures(evidence)


def _failures(evidence: Evidence) -> str:
    """Names of cells that ended without a result, with their reasons."""
    found = [f"{r.directory}: {r.reason or r.status}" for r in evidence.records.records
             if r.status != "complete"]  # fmt: skip
    found += [f"{d.directory}: damaged record" for d in evidence.records.damaged]
    more = [f"and {len(found) - MAX_FAILURES} more (tables/coverage.csv)"] if len(found) > MAX_FAILURES else []
    return f" Without result: {'; '.join(found[:MAX_FAILURES] + more)}." if found else ""


def provenance(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    """Where the numbers come from: software, hardware, data. Distinct values are all listed."""
    records = evidence.records.records
    found = []
    for key, label in ENVIRONMENT:
        values = _distinct(records, key)
        if values:
            found.append((label, "; ".join(values)))
    data = sorted({_data(record.data) for record in records})
    found += [("Pre-training data", text) for text in data]
    starts, ends = (_distinct(records, key) for key in ("environment.time_start", "environment.time_end"))
    if starts and ends:
        found.append(("Made between", f"{starts[0]} and {ends[-1]}"))
    return tuple(found)


def _distinct(records: Sequence[Record], path: str) -> list[str]:
    """Different values of an attribute, such as "environment.torch"."""
    read = operator.attrgetter(path)
    return sorted({str(value) for record in records if (value := read(record)) is not None})


def _data(data: DataFacts) -> str:
    digest = str(data.content_hash or "")[:12]
    images = f"{data.num_images:,} images, " if data.num_images else ""
    kind = f", {data.kind}" if data.kind != UNKNOWN else ""
    revision = f" revision {data.revision}" if data.revision is not None else ""
    return (f"{data.name}{revision}: {images}{data.num_classes} classes{kind}"
            + (f", sha256 {digest}…" if digest else ""))  # fmt: skip


def by_question(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    """Findings grouped by question, in order."""
    grouped: dict[str, list[Finding]] = {}
    for finding in findings:
        grouped.setdefault(finding.question, []).append(finding)
    return grouped
