"""The fastest model at inference: the ratio and its interval as SciPy has them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bench.analysis.finding import Reason, Verdict
from bench.questions.fastest_model import ONE_ROUND, QUESTION
from bench.report.title import sentence


def evidence(speeds: dict[tuple[str, int], list[float]], *, level: float = 0.95) -> Any:
    """Records of models at sizes, one per round."""
    records = []
    for (model, pixels), rounds in speeds.items():
        for rate in rounds:
            throughput = SimpleNamespace(images_per_second=SimpleNamespace(median=rate))
            speed = SimpleNamespace(inference=throughput, conditions=SimpleNamespace(device="cpu"))
            records.append(SimpleNamespace(cell=SimpleNamespace(model=model, image_size=pixels), speed=speed))
    records.append(SimpleNamespace(cell=None, speed=None))  # another job's
    return SimpleNamespace(records=SimpleNamespace(records=records), level=level)


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_two_models_are_compared_as_students_test_does(level: float) -> None:
    fast, slow = [110.0, 120.0, 118.0], [100.0, 108.0, 103.0]
    (found,) = QUESTION.ask(evidence({("slow", 64): slow, ("fast", 64): fast}, level=level))
    expected = stats.ttest_ind(np.log(fast), np.log(slow))
    low, high = np.exp(expected.confidence_interval(level))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.estimate == pytest.approx(stats.gmean(fast) / stats.gmean(slow))
    assert found.leader == "fast" and (found.verdict == Verdict.YES) == (low > 1) == (expected.pvalue < 1 - level)
    said = sentence(found)
    assert said.startswith("At 64 px fast is the fastest at inference, 1.12 times [") and said.endswith(" as slow.")


def test_sizes_share_their_noise_and_the_largest_comes_first() -> None:
    """A one-way analysis of variance over models and sizes."""
    speeds = {("a", 64): [9.0, 11.0], ("b", 64): [5.0, 5.2], ("a", 224): [1.0, 1.1], ("b", 224): [1.02, 0.99]}
    large, small = QUESTION.ask(evidence(speeds))
    assert (large.subject[0], small.subject[0]) == ("224 px", "64 px")
    logs = [np.log(rounds) for rounds in speeds.values()]
    error = np.sqrt(np.mean([np.var(one, ddof=1) for one in logs]))  # of two rounds each
    for found, (a, b) in zip((small, large), (logs[:2], logs[2:]), strict=True):
        half = stats.t.ppf(0.975, 4) * error
        assert np.log(found.high / found.estimate) == pytest.approx(half)
        assert abs(a.mean() - b.mean()) == pytest.approx(np.log(found.estimate))
    assert small.verdict == Verdict.YES and large.reasons == (Reason.WITHIN_INTERVAL,)


def test_one_round_tells_nothing_and_one_model_is_no_race() -> None:
    (found,) = QUESTION.ask(evidence({("a", 64): [9.0], ("b", 64): [5.0]}))
    assert found.verdict == Verdict.CANNOT_TELL and found.reasons == (ONE_ROUND,) and found.low is None
    assert not list(QUESTION.ask(evidence({("a", 64): [9.0, 9.1]})))
