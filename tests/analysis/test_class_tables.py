"""Tables of classes, against scikit-learn's confusion matrix."""

from typing import Any, cast

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from bench.analysis import class_tables
from bench.analysis.adaptation import Adapted, short_data
from bench.tasks import adapt

NAMES = ("cat", "dog", "owl")


def adapted(labels_M: np.ndarray, predicted_M: np.ndarray, right: tuple[int, ...]) -> Adapted:
    tested = np.bincount(labels_M, minlength=3).tolist()
    rest: dict[str, Any] = dict.fromkeys(Adapted.__dataclass_fields__)
    rest |= {"data": "photos", "model": "net", "way": "knn"}
    rest["classes_seen"] = tuple((name, 40, right[k], tested[k]) for k, name in enumerate(NAMES))
    rest["errors"] = tuple((a, b, n) for a, b, n in adapt.errors(predicted_M, labels_M, NAMES))
    return cast(Adapted, Adapted(**rest))


def test_confusion_is_scikit_learns_and_the_worst_class_comes_first() -> None:
    rng = np.random.default_rng(0)
    labels_M, predicted_M = rng.integers(0, 3, 90), rng.integers(0, 3, 90)
    by_class, confusion = class_tables.tables(adapted(labels_M, predicted_M, (30, 20, 35)))
    expected = confusion_matrix(labels_M, predicted_M)
    assert [[row[f"to {name}"] for name in NAMES] for row in confusion.rows] == expected.tolist()
    assert [row["class"] for row in by_class.rows] == ["dog", "cat", "owl"]
    assert [row["validated"] for row in by_class.rows] == [0.5, 0.75, 0.875]
    dog = by_class.rows[0]
    assert dog["accuracy"] == pytest.approx(expected[1, 1] / expected[1].sum())
    assert dog["times"] == np.delete(expected[1], 1).max()


@pytest.mark.parametrize(
    ("name", "short"),
    [("folder:photos:224px:rgb", "photos"), ("fashion-mnist", "fashion-mnist"), ("emnist:letters", "emnist:letters")],
)
def test_a_set_is_named_without_how_it_is_stored(name: str, short: str) -> None:
    assert short_data(name) == short
