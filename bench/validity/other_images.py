"""Finds data sets that held different images under the same name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bench.analysis.check import Check, grouped
from bench.analysis.evidence import Evidence
from bench.analysis.findings import ValidityCheck

OTHER_TRAINING_IMAGES = "other training images"
"""Training images of one name differ between runs, which are therefore not treated as repeats of each other. `names`:
the data set; `count`: number of images; `groups`: content hashes."""
OTHER_TEST_IMAGES = "other test images"
"""Test images of one name differ between runs, whose scores are therefore not comparable. `names`: task and data set;
`groups`: content hashes."""
HASH_DIGITS = 8  # digits of a content hash that are shown


def find(evidence: Evidence) -> Iterator[ValidityCheck]:
    """Yield a result for every training set, subset of one, or test set that held different images under the same
    name."""
    trained = evidence.horizons.dropna(subset=["content"])
    for (data, number), hashes in trained.groupby(["data", "num_images"], sort=True)["content"]:
        if hashes.nunique() > 1:
            yield ValidityCheck(kind=OTHER_TRAINING_IMAGES, names=(data,), count=int(number), groups=_hashes(hashes))
    known = evidence.scores[evidence.scores["correct"].notna()]
    tests = known["correct"].map(lambda correct: correct.content_hash)
    for (task, data), hashes in tests.groupby([known["task"].astype(str), known["data"].astype(str)]):
        if hashes.nunique() > 1:
            yield ValidityCheck(kind=OTHER_TEST_IMAGES, names=(task, data), groups=_hashes(hashes))


def _hashes(hashes: Iterable[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return grouped({"": {str(digest)[:HASH_DIGITS] for digest in hashes}})


CHECK = Check(
    order=21,
    find=find,
    words={
        OTHER_TRAINING_IMAGES: "Training images named {names} differ between runs ({groups}): these runs "
        "are not pooled.",
        OTHER_TEST_IMAGES: "Test images named {names} differ between runs ({groups}): their scores are not comparable.",
    },
)
