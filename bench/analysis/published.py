"""The paper's own scaling study as evidence, so that every question and figure can be put to it as well."""

from __future__ import annotations

from typing import Any

from baselines.published import scaling, transfer
from bench.analysis import evidence as evidence_module
from bench.analysis.evidence import Evidence
from bench.analysis.study_data import Records
from bench.core.record import Record
from bench.store.records import from_json

SUITE = "paper"


def _records(bodies: list[dict[str, Any]]) -> tuple[Record, ...]:
    """Ordered by directory."""
    return tuple(sorted(map(from_json, bodies), key=lambda record: record.directory))


def evidence() -> Evidence:
    """Table 6: 15 models, 18 runs, one seed each; the headline is Figure 5's Average-5."""
    found = _records(scaling.records())
    kinds = {data: "photographs" for data, _, _ in scaling.TESTS.values()}
    return evidence_module.build(
        Records(suite=SUITE, records=found), headline=scaling.HEADLINE, question=scaling.QUESTION, data_kinds=kinds,
        published=True,
    )


def figures() -> dict[str, Evidence]:
    """Per figure that the paper's tables allow, the table that it is drawn from: 6, 5 and 9. Marks are hollow."""
    table6 = evidence()
    table5 = _records(transfer.by_upstream())
    table9 = _records(transfer.vtab())
    kinds = {data: "photographs" for data, _, _ in scaling.TESTS.values()}
    return {
        "compute": table6,
        "laws": table6,
        "pretraining-data": evidence_module.build(
            Records(suite=SUITE, records=table5), headline=scaling.HEADLINE, data_kinds=kinds, published=True
        ),
        "groups": evidence_module.build(Records(suite=SUITE, records=table9), published=True),
    }
