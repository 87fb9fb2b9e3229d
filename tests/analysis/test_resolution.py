"""Higher against own resolution: pairs of the same model and seed, SciPy's paired t interval as the oracle."""

import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from bench.analysis import resolution
from bench.analysis.intervals import Samples


@dataclass(frozen=True)
class Model:
    """A series; its last point is its number."""

    variant: str
    label: str
    last: int
    family: str = "ViT"


def study(own_MS, high_MS, *, image_error=0.0, measures=("finetune:tiles", "finetune@56px:tiles", "mnist")):
    """Evidence of models × seeds scored at both sizes; models are told apart by their number."""

    def samples(point, measure):
        values = {"finetune:tiles": own_MS, "finetune@56px:tiles": high_MS}[measure]
        return Samples(values_SD=values[point][:, None], seeds=tuple(range(values.shape[1])), draws=(),
                       image_error=image_error, num_test=100)  # fmt: skip

    series = tuple(Model(variant=f"v{m}", label=f"m{m}", last=m) for m in range(len(own_MS)))
    return SimpleNamespace(measures=measures, series=series, samples=samples, level=0.95)


def test_one_model_has_the_paired_t_interval():
    rng = np.random.default_rng(0)
    seeds_S = rng.normal(0, 0.1, 5)  # luck that both sizes share must not widen the interval
    own_S, high_S = 0.5 + seeds_S, 0.58 + seeds_S + rng.normal(0, 0.01, 5)
    (answer,) = resolution.answers(study(own_S[None], high_S[None]))
    wanted = stats.ttest_rel(high_S, own_S).confidence_interval(0.95)
    assert (answer.low, answer.high) == pytest.approx((wanted.low, wanted.high))
    assert answer.verdict == "yes" and answer.subject == "tiles" and "56 px" in answer.question


@pytest.mark.parametrize("gain, verdict", [(0.2, "yes"), (-0.2, "no"), (0.01, "cannot tell")])
def test_the_error_of_the_test_set_does_not_shrink_with_models(gain, verdict):
    own_MS = np.full((6, 2), 0.5) + np.arange(2) * 1e-4
    (answer,) = resolution.answers(study(own_MS, own_MS + gain, image_error=0.02))
    assert answer.verdict == verdict and answer.n == 6
    assert answer.high - answer.low == pytest.approx(2 * stats.norm.ppf(0.975) * 0.02 * math.sqrt(2), rel=1e-6)


def test_nothing_is_said_of_a_study_with_one_size():
    own_MS = np.full((1, 2), 0.5)
    assert resolution.answers(study(own_MS, own_MS, measures=("finetune:tiles", "mnist"))) == []
