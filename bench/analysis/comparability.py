"""What was kept apart before anything was compared, and what could not be; reported by `bench.analysis.validity`.

Every function returns (name, level, text) of remarks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bench.analysis import rates
from bench.analysis.evidence import Evidence
from bench.core.formatting import join, plural

Remark = tuple[str, str, str]
SHOWN = 8  # hexadecimal digits of a content hash


def superseded(evidence: Evidence) -> list[Remark]:
    """Scores that another cell of the same variant stands for, by cell."""
    found = []
    for name, pairs in evidence.set_aside.items():
        text = f"Set aside: {name}: {_pairs(pairs)}. The grid asked for last, a newer revision or a later run of the "
        text += "same model has these scores."
        found.append(("superseded", "warning", text))
    return found


def rejected_rates(evidence: Evidence) -> list[Remark]:
    if evidence.swept is None:
        return []
    text = (f"{plural(len(rates.rejected(evidence)), 'run')} at learning rates that a sweep tried and did not choose: "
            "left out of every table, figure and answer but those of the sweep itself.")  # fmt: skip
    return [("sweep", "note", text)]


def chosen_on(evidence: Evidence) -> list[Remark]:
    """Rates chosen on images that are then reported on."""
    chosen = {_base(s.data) for s in rates.sweeps(evidence)}
    judged = evidence.scores.loc[evidence.scores["task"] != "upstream", "data"].unique()
    both = sorted(chosen & {_base(str(name)) for name in judged})
    text = (f"Learning rates were chosen on test images of {join(both)}, on which scores are reported too: these are "
            "flattered by the choice.")  # fmt: skip
    return [("chosen on test images", "warning", text)] if both else []


def other_images(evidence: Evidence) -> list[Remark]:
    """Data sets, or parts of them, that held other images under the same name."""
    found = []
    trained = evidence.horizons.dropna(subset=["content"])
    for (data, number), hashes in trained.groupby(["data", "num_images"], sort=True)["content"]:
        if hashes.nunique() > 1:
            text = f"Training images differ under one name: {data}, {number:,.0f} images ({_digests(hashes)}). Such "
            found.append(("mixed data", "warning", text + "runs are no repeats of each other and are not pooled."))
    told = evidence.scores[evidence.scores["correct"].notna()]
    tests = told["correct"].map(lambda correct: correct.content_hash)
    for (task, data), hashes in tests.groupby([told["task"].astype(str), told["data"].astype(str)]):
        if hashes.nunique() > 1:
            text = f"Test images differ under one name: {task} on {data} ({_digests(hashes)}). Scores of different "
            found.append(("mixed data", "warning", text + "models are not of the same images."))
    return found


def revisions(evidence: Evidence) -> list[Remark]:
    """What stands, made by different revisions of a task, a data set, the training or one model."""
    standing = set(evidence.horizons["directory"])
    used: dict[str, set[int]] = {}
    for record in evidence.records.records:
        gone = {name for task, data in evidence.set_aside.get(record.directory, ())
                for name in (f"task:{task.split('@')[0]}", f"data:{data}")}  # fmt: skip
        for name, revision in record.revisions.items() if record.directory in standing else ():
            if name not in gone:
                used.setdefault(f"{name}:{record.cell.model}" if name == "model" else name, set()).add(revision)
    mixed = [f"{name.replace(':', ' ', 1)} ({join([str(r) for r in sorted(found)])})"
             for name, found in sorted(used.items()) if len(found) > 1]  # fmt: skip
    text = f"Records mix revisions of {join(mixed)}: run the study again for scores that compare."
    return [("mixed revisions", "warning", text)] if mixed else []


def duplicates(evidence: Evidence) -> list[Remark]:
    """Test images that upstream holds a copy of, and what accuracies are without them."""
    looked = evidence.scores[evidence.scores["num_duplicates"].notna()]
    if looked.empty:
        return []
    looked = looked.assign(change=(looked["value_without_duplicates"] - looked["value"]).abs())
    most = looked.groupby("data", observed=True)[["num_duplicates", "num_test", "change"]].max()
    have = most[most["num_duplicates"] > 0]
    said = [f"{data} up to {number:,.0f} of {tests:,.0f} (without them accuracy changes by at most {100 * change:.2f} "
            "points)" for data, (number, tests, change) in zip(have.index, have.to_numpy(), strict=True)]  # fmt: skip
    clean = [data for data in most.index if data not in have.index]
    parts = [f"Copies of training images among the test images: {'; '.join(said)}."] if said else []
    parts += [f"No test image of {join(clean)} is a copy of a training image."] if clean else []
    return [("duplicates", "note", " ".join(parts) + " Accuracies without copies: tables/scores.csv.")]


REMARKS: tuple[Callable[[Evidence], list[Remark]], ...] = (
    superseded, rejected_rates, chosen_on, other_images, revisions, duplicates,
)  # fmt: skip


def _pairs(pairs: tuple[tuple[str, str], ...]) -> str:
    by_task: dict[str, list[str]] = {}
    for task, data in pairs:
        by_task.setdefault(task, []).append(data)
    return "; ".join(f"{task} on {join(data)}" for task, data in by_task.items())


def _digests(hashes: Iterable[str]) -> str:
    return join(sorted(str(digest)[:SHOWN] for digest in set(hashes)))


def _base(name: str) -> str:
    return name.split(":")[0].split("@")[0]
