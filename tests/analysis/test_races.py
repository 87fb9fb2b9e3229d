"""Ratios of windows of one round, against SciPy; a verdict is about the fastest other library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bench.analysis import races
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Finding, Question, Reason, Verdict
from bench.core.record import ContenderResult, PeersResult, Spread
from tests.analysis._records import World
from tests.analysis._study import read

OWN, PAIR, BASE, TUNED = "this project", "this project, 2 cells at once", "timm, defaults", "timm, tuned"


def race(**windows: Sequence[float]) -> Evidence:
    """A race in which the contenders "own", "pair", "base", "tuned" had these windows."""
    names = {"own": OWN, "pair": PAIR, "base": BASE, "tuned": TUNED}
    contenders = [
        ContenderResult(
            name=names[name],
            package="timm" if names[name] in (BASE, TUNED) else None,
            left_out=None,
            dtype="float32",
            windows=tuple(values),
            images_per_second=Spread(median=float(np.median(values)), n=len(values)),
            losses=(2.0, 1.0),
            same_function=True,
        )
        for name, values in windows.items()
    ]
    contenders.append(
        ContenderResult(
            name="torchvision, defaults",
            package="torchvision",
            left_out="not installed",
            windows=(),
            images_per_second=Spread(),
        )
    )
    result = PeersResult(revision=1, batch=8, window_seconds=1.0, peaks={}, contenders=tuple(contenders))
    return read([replace(World(seed=1).records()[0], horizons=(), peers=result)])


def answer(**windows: Sequence[float]) -> Finding:
    (finding,) = races.faster_than_peers(race(**windows))
    assert finding.question == Question.FASTER_THAN_PEERS
    return finding


def test_a_ratio_is_of_windows_of_one_round_with_the_t_interval_of_the_logarithms() -> None:
    noise = np.random.default_rng(0).lognormal(0, 1, 9)  # the machine's slow spells
    own = np.random.default_rng(1).lognormal(math.log(2), 0.1, 9)
    found = races.ratio(list(own * noise), list(noise))
    wanted = stats.ttest_1samp(np.log(own), 0).confidence_interval(0.95)
    assert found.rounds == 9 and found.value == pytest.approx(stats.gmean(own))
    assert (found.low, found.high) == pytest.approx((math.exp(wanted.low), math.exp(wanted.high)))


def test_the_answer_is_about_the_fastest_peer_and_only_beyond_the_interval() -> None:
    base, tuned = [10.0, 10, 10], [20.0, 20, 20]
    ahead = answer(own=[30.0, 31, 29], base=base, tuned=tuned)
    assert (ahead.verdict, ahead.leader, ahead.reasons) == (Verdict.YES, TUNED, ())
    assert ahead.estimate == pytest.approx(1.5, rel=0.01) and ahead.n.steps == 3
    level = answer(own=[21.0, 19, 20], base=base, tuned=tuned)
    assert (level.verdict, level.reasons) == (Verdict.CANNOT_TELL, (Reason.WITHIN_INTERVAL,))
    pair = answer(own=[21.0, 19, 20], pair=[40.0, 40, 40], base=base, tuned=tuned)
    assert pair.leader == TUNED  # another way to run this project is no peer
    both = next(c for c in pair.evidence if isinstance(c, races.Contender) and c.name == PAIR)
    assert both.own and both.over_base is not None and both.over_base.value == pytest.approx(4.0)
    assert answer(own=[15.0, 15, 15.1], base=[20.0, 20, 20]).verdict == Verdict.NO


def test_every_contender_is_kept_with_what_is_known_of_it() -> None:
    (found,) = races.races(race(own=[30.0, 31, 29], base=[10.0, 10, 10]))
    by_name = {c.name: c for c in found}
    assert by_name[OWN].over_base is not None and by_name[OWN].over_base.value == pytest.approx(3.0, rel=0.01)
    assert by_name[OWN].loss_difference == 0 and by_name[BASE].own_over is not None
    absent = by_name["torchvision, defaults"]
    assert absent.left_out == "not installed"
    assert absent.over_base is None is absent.own_over and absent.loss_difference is None
