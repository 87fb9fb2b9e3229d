"""Finds fine-tuning runs that chose the lowest or the highest of the learning rates that they tried."""

from __future__ import annotations

from collections.abc import Iterator

from bench.analysis.check import Check, grouped
from bench.analysis.evidence import Evidence
from bench.analysis.findings import Level, ValidityCheck
from bench.core.by_key import by_key

TUNED_AT_EDGE = "tuned at edge"
"""`count`: number of fine-tunings, out of `limit`, whose learning rate (chosen on held-out images) is the lowest or
highest tried, so that their scores may be too low; `groups`: how many, by model, with untrained networks separate. Its
level is WARNING if these are most of a model's fine-tunings."""


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield one result on the fine-tuning runs, of trained or untrained networks, that chose the lowest or the highest
    of their learning rates; none if there are no such runs."""
    standing = set(evidence.horizons["directory"])
    chosen: set[tuple[str, bool, str, int, str, str]] = set()
    for record in evidence.records.records:
        for row in record.horizons if record.directory in standing else ():
            name = record.cell.model if row.images_seen else f"{record.cell.model}, untrained"
            for s in row.scores:  # scores that share one choice of the rate count once
                if (edge := s.detail.get("rate_at_edge")) is not None and len(s.detail.get("rates", ())) > 1:
                    chosen.add(
                        (name, bool(edge), record.directory, row.images_seen, s.task, s.data.removesuffix("-real"))
                    )
    by_model = {name: (sum(mine), len(mine)) for name, mine in by_key((c[0], c[1]) for c in chosen).items()}
    at_edge = {name: [f"{edges} of {all_}"] for name, (edges, all_) in by_model.items() if edges}
    if at_edge:
        most = any(2 * edges > all_ for edges, all_ in by_model.values())
        yield ValidityCheck(
            kind=TUNED_AT_EDGE,
            level=Level.WARNING if most else Level.NOTE,
            count=sum(edges for edges, _ in by_model.values()),
            limit=len(chosen),
            groups=grouped(at_edge),
        )


CHECK = Check(
    order=17,
    find=find,
    words={
        TUNED_AT_EDGE: "Fine-tuning chose the lowest or highest of its learning rates in {count} of "
        "{limit:g} cases ({groups}): a wider sweep may raise these scores.",
    },
)
