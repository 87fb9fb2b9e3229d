"""Stated 90 % intervals hold the truth about as often as they say, in studies of families x horizons x seeds.

`python -m tools.measure_fits` runs 200 studies per form; here fewer, judged by binomial bounds.
"""

import numpy as np
import pytest
from scipy import stats

from bench.laws import bootstrap, fit, forms
from tools import coverage_of_fits as coverage

STUDIES = 40


def plausible(share: float, *, studies: int, low: float = 0.85, high: float = 0.95) -> bool:
    """Whether chance explains a share if the true coverage lies in [low, high]; wrong once in a thousand."""
    held = round(share * studies)
    return stats.binom.cdf(held, studies, low) > 5e-4 and stats.binom.sf(held - 1, studies, high) > 5e-4


@pytest.mark.nightly
@pytest.mark.parametrize("name, family", [("power", (3, 3, 2)), ("power-floor", (4, 4, 3)), ("m3", (4, 4, 3))])
def test_intervals_hold_the_truth_as_often_as_stated(name: str, family: tuple[int, int, int]) -> None:
    shares = coverage.covered(name, family, studies=STUDIES, draws=120)
    assert all(plausible(share, studies=STUDIES) for share in shares.values()), shares


@pytest.mark.nightly
def test_the_crossings_interval_holds_it_and_equal_families_cannot_be_told() -> None:
    told, held = coverage.crossings((3, 3, 2), studies=30)
    assert told >= 0.9 and plausible(held, studies=round(30 * told))
    assert coverage.silent((3, 3, 2), studies=20) >= 0.9


def test_the_two_sources_of_noise_are_told_apart() -> None:
    """Averaged over studies, the variances are those that the noise was drawn with, whatever the fit takes up."""
    rng = np.random.default_rng(0)
    components = []
    for _ in range(60):
        data = coverage.study(coverage.TRUTHS["power"].law, (4, 4, 3), rng)
        components.append(bootstrap.variance_components(fit.fit(data, forms.POWER, loss="squares", max_starts=3)))
    assert np.mean([n.within for n in components]) == pytest.approx(coverage.POINT_SD**2, rel=0.1)
    assert np.mean([n.between for n in components]) == pytest.approx(coverage.TRUNK_SD**2, rel=0.25)


def test_a_straight_law_gets_students_interval() -> None:
    """Independent noise and a line in logarithms: the interval is the textbook's."""
    rng = np.random.default_rng(1)
    x = np.geomspace(1, 1000, 8)
    y = 2 * x**-0.3 * np.exp(rng.normal(0, 0.02, 8))
    made = fit.fit(fit.Points(x=x[None], y=y, cluster=np.arange(8)), forms.POWER, loss="squares")
    low, high = bootstrap.resample(made, draws=4000).parameters()["c"]
    line = stats.linregress(np.log(x), np.log(y))
    half = stats.t.ppf(0.95, 6) * line.stderr
    assert (high - low) / 2 == pytest.approx(half, rel=0.1)
    assert (low + high) / 2 == pytest.approx(-line.slope, abs=0.2 * half)
