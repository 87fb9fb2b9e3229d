"""Metrics beside accuracy are scikit-learn's; their errors hold what resampling by hand gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, f1_score, recall_score

from bench.core.errors import UserError
from bench.core.metrics import BALANCED, MACRO_F1
from bench.store.resampled import from_detail
from bench.tasks import _metrics

NAMES = ("a", "b", "c", "d")
HEAD = {"task": "t", "data": "d", "num_test": 0, "num_classes": 4}
BOTH = (BALANCED, MACRO_F1)


def scored(predicted, labels, groups=None, content="hash"):  # type: ignore[no-untyped-def]
    given = {"names": NAMES, "content_hash": content, "groups_M": groups, "detail": {}}
    return {score.metric: score for score in _metrics.scores(BOTH, predicted, labels, **given, **HEAD)}


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=60))
@settings(max_examples=30, deadline=None)
@pytest.mark.filterwarnings("ignore:y_pred contains classes")
def test_values_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    predicted, labels = np.array(pairs).T
    made = scored(predicted, labels)
    assert made[BALANCED].value == pytest.approx(balanced_accuracy_score(labels, predicted))
    assert made[MACRO_F1].value == pytest.approx(f1_score(labels, predicted, average="macro", zero_division=0))
    assert [row[2] for row in made[BALANCED].detail["recalls"]] == pytest.approx(
        recall_score(labels, predicted, labels=np.unique(labels), average=None, zero_division=0)
    )
    for name, _, recall, low, high in made[BALANCED].detail["recalls"]:
        assert name in NAMES and 0 <= low <= recall <= high <= 1 and low < high


def test_a_resample_has_the_value_that_scikit_learn_gives_to_its_images() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 50)
    predicted = np.where(rng.random(50) < 0.6, labels, rng.integers(0, 4, 50))
    made = scored(predicted, labels)
    rows, weights = next(_metrics.weights(50, None))
    for number in (0, 1, 2):
        images = np.repeat(np.arange(50), weights[number])
        for metric, official in ((BALANCED, balanced_accuracy_score), (MACRO_F1, f1_score)):
            kept = from_detail(made[metric].detail)
            assert kept is not None and len(kept.values_B) == _metrics.RESAMPLES and kept.content_hash == "hash"
            how = {} if metric == BALANCED else {"average": "macro"}
            expected = official(labels[images], predicted[images], **how)
            assert kept.values_B[rows.start + number] == pytest.approx(expected, abs=1e-6)


def test_images_of_a_group_are_drawn_together_and_err_as_one() -> None:
    groups = np.repeat(np.arange(20), 10)
    _, weights = next(_metrics.weights(200, groups))
    assert all(len({*row[groups == 3]}) == 1 for row in weights[:20])
    labels = np.arange(20).repeat(10) % 4
    predicted = np.where(np.arange(20).repeat(10) % 3 == 0, (labels + 1) % 4, labels)  # a group is right or wrong
    alone, together = scored(predicted, labels), scored(predicted, labels, groups)
    assert together[BALANCED].stderr / alone[BALANCED].stderr == pytest.approx(10**0.5, rel=0.15)
    assert together[BALANCED].detail["test_groups"] == 20


def test_intervals_of_a_metric_hold_the_truth() -> None:
    """90 % of the intervals of balanced accuracy of an imbalanced set hold the value of its population."""
    rng, rates, shares = np.random.default_rng(1), np.array([0.95, 0.7, 0.5, 0.6]), [0.6, 0.2, 0.1, 0.1]
    held = []
    for _ in range(120):
        labels = rng.choice(4, 300, p=shares)
        predicted = np.where(rng.random(300) < rates[labels], labels, (labels + 1) % 4)
        score = scored(predicted, labels, content=None)[BALANCED]
        held.append(abs(score.value - rates.mean()) < 1.645 * score.stderr)
    assert 0.82 < np.mean(held) < 0.97


def test_no_error_is_zero_and_an_unknown_metric_is_named() -> None:
    labels = np.arange(40) % 4
    for score in scored(labels, labels).values():
        assert score.value == 1 and score.stderr > 0.01
    with pytest.raises(UserError, match="macro_f1"):
        _metrics.check(["macro_f1"])
