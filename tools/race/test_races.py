"""Ratios of windows of one round, against SciPy and by simulation; a verdict is about the fastest other library."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from bench.analysis.evidence import Evidence
from bench.analysis.finding import Finding, Reason, Verdict
from bench.study.record import ContenderResult, PeersResult, Record, Spread
from tests.analysis._records import World
from tests.analysis._study import read
from tools.race import races
from tools.race.figures import peers as figure
from tools.race.races import STARTED_ONCE

OWN, PAIR, BASE, TUNED = "this project", "this project, 2 cells at once", "timm, defaults", "timm, tuned"


def race(*, starts: int | None = None, **windows: Sequence[float]) -> Evidence:
    """A race in which the contenders "own", "pair", "base", "tuned" had these windows, in as many starts."""
    return read([run(0, starts or len(windows["own"]), **windows)])


def run(seed: int, starts: int | None, **windows: Sequence[float]) -> Record:
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
    result = PeersResult(revision=1, batch=8, window_seconds=1.0, peaks={}, contenders=tuple(contenders), starts=starts)
    record = World(seed=1).records()[0]
    cell = replace(record.cell, seed=seed)
    return replace(record, horizons=(), peers=result, cell=cell, directory=f"{record.directory}-{seed}")


def answer(*, starts: int | None = None, **windows: Sequence[float]) -> Finding:
    (finding,) = races.faster_than_peers(race(starts=starts, **windows))
    assert finding.question == "faster than peers"
    return finding


def test_a_ratio_is_of_windows_of_one_round_and_its_samples_are_starts() -> None:
    """The interval of a repetition is a prediction interval: SciPy's t quantile, and the error of both means."""
    noise = np.random.default_rng(0).lognormal(0, 1, (4, 3))  # the machine's slow spells
    own = np.random.default_rng(1).lognormal(math.log(2), 0.1, (4, 3))
    ratio = races.ratio([own * noise], [noise])
    starts = np.median(np.log(own), axis=1)
    assert (ratio.races, ratio.starts, ratio.rounds) == (1, 4, 12)
    assert ratio.value == pytest.approx(math.exp(starts.mean()))
    low, high = stats.t.interval(0.95, 3, loc=starts.mean(), scale=starts.std(ddof=1) * math.sqrt(2 / 4))
    assert (ratio.low, ratio.high) == pytest.approx((math.exp(low), math.exp(high)))


def test_races_that_were_repeated_are_the_samples() -> None:
    own = np.random.default_rng(1).lognormal(0, 0.1, (3, 4, 3))
    ratio = races.ratio(list(own), list(np.ones_like(own)))
    each = np.median(np.log(own), axis=2).mean(axis=1)
    low, high = stats.t.interval(0.95, 2, loc=each.mean(), scale=each.std(ddof=1) * math.sqrt(2 / 3))
    assert (ratio.races, ratio.starts, ratio.rounds) == (3, 12, 36)
    assert (math.log(ratio.low or 0), math.log(ratio.high or 0)) == pytest.approx((low, high))


def test_one_start_says_nothing_about_repetitions() -> None:
    ratio = races.ratio([[[2.0, 2.1, 2.2]]], [[[1.0, 1.0, 1.0]]])
    assert ratio.value == pytest.approx(2.1) and ratio.low is None is ratio.high
    finding = answer(starts=1, own=[30.0, 31, 29], base=[10.0, 10, 10])
    assert (finding.verdict, finding.reasons) == (Verdict.CANNOT_TELL, (STARTED_ONCE,))


Simulated = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


def simulated(
    *,
    races_: int = 1,
    rounds: int = 7,
    day: float = 0.0,
    start: float = 0.03,
    window: float = 0.02,
    spells: float = 0.1,
) -> Simulated:
    """Races of 4 starts, as they are run, whose true ratio is 1.1: deviations, on the logarithm, that each contender
    has of a day, of a start and of a window, and the share of windows that take 1.5 times as long."""

    def once(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        slow = rng.normal(0, 0.2, (races_, 4, rounds))  # of the machine, in both windows of a round
        made = []
        for mean in (math.log(1.1), 0.0):
            logs = mean + slow + rng.normal(0, window, slow.shape)
            logs = logs + rng.normal(0, start, (races_, 4, 1)) + rng.normal(0, day, (races_, 1, 1))
            made.append(np.exp(logs) / np.where(rng.random(slow.shape) < spells, 1.5, 1.0))
        return made[0], made[1]

    return once


@pytest.mark.parametrize(
    "kind",
    [
        simulated(),
        simulated(spells=0.0),
        simulated(start=0.0),
        simulated(start=0.1, window=0.01),
        simulated(races_=3, day=0.06),
        simulated(races_=5, day=0.06, start=0.0),
    ],
    ids=["usual", "no slow spells", "starts alike", "starts differ", "three days", "five days"],
)
def test_repeated_races_fall_within_each_others_intervals_as_often_as_they_say(kind: Simulated) -> None:
    rng = np.random.default_rng(0)
    repeated = true = 0
    pairs = 800
    for _ in range(pairs):
        first, second = (races.ratio(*(list(windows) for windows in kind(rng))) for _ in range(2))
        assert first.low is not None and first.high is not None
        repeated += first.low <= second.value <= first.high
        true += first.low <= 1.1 <= first.high
    assert 0.93 <= repeated / pairs <= 0.975  # 95 %, and five standard errors of a simulation at most
    assert true / pairs >= 0.96


def test_rounds_of_one_start_are_not_independent() -> None:
    """The interval over all rounds, as if each were a sample, misses most repetitions."""
    rng, kind, within = np.random.default_rng(0), simulated(start=0.05), 0
    for _ in range(500):
        (own, base), (again, base_again) = kind(rng), kind(rng)
        logs = np.log(own / base).ravel()[:3]  # one start
        low, high = stats.t.interval(0.95, 2, loc=logs.mean(), scale=logs.std(ddof=1) / math.sqrt(3))
        within += low <= np.log(again / base_again).ravel()[:3].mean() <= high
    assert within / 500 < 0.8


def test_records_of_one_model_at_one_size_are_one_race() -> None:
    both = read([run(seed, 3, own=[30.0, 31, 29], base=[10.0, 10, 10]) for seed in (0, 1)])
    (finding,) = races.faster_than_peers(both)
    assert (finding.n.runs, finding.n.steps) == (2, 6) and finding.low is not None
    caption = figure.draw(both).caption
    assert "run twice" in caption and figure.DAYS not in caption
    once = figure.draw(race(own=[30.0, 31, 29], base=[10.0, 10, 10])).caption
    assert "run once" in once and figure.DAYS in once


def test_the_answer_is_about_the_fastest_peer_and_only_beyond_the_interval() -> None:
    base, tuned = [10.0, 10, 10], [20.0, 20, 20]
    ahead = answer(own=[30.0, 31, 29], base=base, tuned=tuned)
    assert (ahead.verdict, ahead.leader, ahead.reasons) == (Verdict.YES, TUNED, ())
    assert ahead.estimate == pytest.approx(1.5, rel=0.01) and (ahead.n.runs, ahead.n.steps) == (1, 3)
    level = answer(own=[21.0, 19, 20], base=base, tuned=tuned)
    assert (level.verdict, level.reasons) == (Verdict.CANNOT_TELL, (Reason.WITHIN_INTERVAL,))
    pair = answer(own=[21.0, 19, 20], pair=[40.0, 40, 40], base=base, tuned=tuned)
    assert pair.leader == TUNED  # another way to run this project is no peer
    both = next(c for c in pair.evidence if isinstance(c, races.RacedContender) and c.name == PAIR)
    assert both.own and both.over_base is not None and both.over_base.value == pytest.approx(4.0)
    assert answer(own=[15.0, 15, 15.1], base=[20.0, 20, 20]).verdict == Verdict.NO


def test_every_contender_is_kept_with_what_is_known_of_it() -> None:
    (contenders,) = races.races(race(own=[30.0, 31, 29], base=[10.0, 10, 10]))
    by_name = {c.name: c for c in contenders}
    assert by_name[OWN].over_base is not None and by_name[OWN].over_base.value == pytest.approx(3.0, rel=0.01)
    assert by_name[OWN].loss_difference == 0 and by_name[BASE].own_over is not None
    absent = by_name["torchvision, defaults"]
    assert absent.left_out == "not installed"
    assert absent.over_base is None is absent.own_over and absent.loss_difference is None
