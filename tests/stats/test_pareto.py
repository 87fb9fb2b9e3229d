"""The Pareto frontier, and the bias of the best of noisy runs."""

import numpy as np

from bench.stats.pareto import frontier_bias, pareto


def test_pareto_and_the_luck_of_the_best() -> None:
    assert pareto([1, 2, 3, 4], [0.5, 0.6, 0.4, 0.4]) == [0, 2]
    bias = frontier_bias(np.full(10, 0.5), 0.01, [range(10), range(1)])
    assert -0.018 < bias[0] < -0.013 and abs(bias[1]) < 1e-3  # E[min of ten normals] = -1.54 sd
