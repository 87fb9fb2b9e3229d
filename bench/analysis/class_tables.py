"""Tables of an adapted model's errors by class: which classes need more labelled images, and which are confused."""

from __future__ import annotations

from collections import Counter
from typing import Any

from bench.analysis.adaptation import Adapted
from bench.analysis.table import Column, Table
from bench.core.formatting import count, percent

MAX_CLASSES = 30  # a table has at most this many rows
MAX_CONFUSED = 20  # a confusion matrix is made for at most this many classes


def tables(best: Adapted) -> list[Table]:
    """Return tables of the errors of an adapted model by class; [] if its record says nothing about classes."""
    if best.recalls:
        return [_recalls(best)]
    if best.labels:
        return [_of_labels(best)]
    if not best.classes_seen:
        return []
    return [_by_class(best), *([_confusion(best)] if len(best.classes_seen) <= MAX_CONFUSED else [])]


def _recalls(best: Adapted) -> Table:
    """Return a table of recalls: one row per class, the lowest recall first."""
    rows = [
        {"class": name, "tested": tested, "recall": recall, "interval": f"{percent(low)} to {percent(high)}"}
        for name, tested, recall, low, high in sorted(best.recalls, key=lambda row: (row[2], row[0]))
    ]
    return Table(
        name=f"recalls-{best.data.replace(':', '-')}",
        title=f"Recall of each class: {best.name} on {best.data}",
        columns=(
            Column(key="class", heading="Class", numeric=False),
            Column(key="tested", heading="Test images", text=count),
            Column(key="recall", heading="Recall [%]", text=percent),
            Column(key="interval", heading="Interval [%]", numeric=False),
        ),
        rows=tuple(rows[:MAX_CLASSES]),
        note="With all labelled images, by balanced accuracy the best choice. Intervals are Wilson's, at 90 %; of "
        "images in groups, for as many independent images as there are groups.",
    )


def _of_labels(best: Adapted) -> Table:
    """Return a table for images that may have several labels: one row per label, the lowest average precision first."""
    rows = [
        {"label": name, "tested": tested, "ap": ap, "ap_ends": f"{percent(ap_low)} to {percent(ap_high)}"}
        | {"f1": f1, "f1_ends": f"{percent(f1_low)} to {percent(f1_high)}"}
        for name, tested, ap, ap_low, ap_high, f1, f1_low, f1_high in sorted(
            best.labels, key=lambda row: (row[2], row[0])
        )
    ]
    return Table(
        name=f"labels-{best.data.replace(':', '-')}",
        title=f"Average precision and F1 of each label: {best.name} on {best.data}",
        columns=(
            Column(key="label", heading="Label", numeric=False),
            Column(key="tested", heading="Test images with it", text=count),
            Column(key="ap", heading="Average precision [%]", text=percent),
            Column(key="ap_ends", heading="Interval [%]", numeric=False),
            Column(key="f1", heading="F1 [%]", text=percent),
            Column(key="f1_ends", heading="Its interval [%]", numeric=False),
        ),
        rows=tuple(rows[:MAX_CLASSES]),
        note="With all labelled images. Intervals hold 90 % of resamples of the test images, or of their groups.",
    )


def _by_class(best: Adapted) -> Table:
    """Return a table of accuracies with one row per class; the class with most errors in cross-validation comes
    first."""
    rows: list[dict[str, Any]] = []
    for name, labelled, right, tested in best.classes_seen:
        others = Counter({b: n for a, b, n in best.errors if a == name})
        other, times = others.most_common(1)[0] if others else ("", None)
        row = {"class": name, "labelled": labelled, "tested": tested, "other": other, "times": times}
        row |= {"validated": right / labelled} if right is not None and labelled else {}
        rows.append(row | ({"accuracy": 1 - others.total() / tested} if tested else {}))
    rows.sort(key=lambda row: (row.get("validated", 1.0), row.get("accuracy", 1.0)))
    return Table(
        name=f"classes-{best.data.replace(':', '-')}",
        title=f"Which classes need images most: {best.name} on {best.data}",
        columns=(
            Column(key="class", heading="Class", numeric=False),
            Column(key="labelled", heading="Labelled", text=count),
            Column(key="validated", heading="Right in cross-validation [%]", text=percent),
            Column(key="tested", heading="Test images", text=count),
            Column(key="accuracy", heading="Right of them [%]", text=percent),
            Column(key="other", heading="Most often taken for", numeric=False),
            Column(key="times", heading="Times", text=count),
        ),
        rows=tuple(rows[:MAX_CLASSES]),
        note="With all labelled images. The classes that cross-validation within them misjudges most come first.",
    )


def _confusion(best: Adapted) -> Table:
    """Return the confusion matrix: rows are true labels, columns predicted ones, both in the order of the classes."""
    taken = {(a, b): n for a, b, n in best.errors}
    names = [name for name, *_ in best.classes_seen]
    rows = []
    for name, *_, tested in best.classes_seen:
        right = tested - sum(n for (a, _), n in taken.items() if a == name)
        numbers = {f"to {other}": right if other == name else taken.get((name, other), 0) for other in names}
        rows.append({"class": name} | numbers)
    return Table(
        name=f"confusion-{best.data.replace(':', '-')}",
        title=f"Test images of each class by what they were taken for: {best.name} on {best.data}",
        columns=(
            Column(key="class", heading="Class", numeric=False),
            *(Column(key=f"to {name}", heading=name, text=count) for name in names),
        ),
        rows=tuple(rows),
        note="Right ones are on the diagonal.",
    )
