"""Higher against own resolution: pairs of the same model, seed and test images; SciPy's paired tests as the oracle."""

import math
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from bench.analysis.finding import Finding
from bench.questions import resolution_gain as resolutions
from bench.questions.resolution_gain import UNPAIRED
from bench.stats import paired
from bench.stats.intervals import IMAGES, Samples
from bench.store.prediction_bits import from_detail, to_detail
from bench.study.record import Score
from tests.analysis._records import World, map_scores
from tests.analysis._study import read

OWN, HIGH = "finetune:tiles", "finetune@56px:tiles"


@dataclass(frozen=True)
class Model:
    """A series; its last point has its number."""

    variant: str
    label: str
    number: int
    family: str = "ViT"

    @property
    def last(self) -> SimpleNamespace:
        return SimpleNamespace(number=self.number, family=self.family, variant=self.variant, train_flops=1e9)


def study(own_MS, high_MS, *, image_error=0.0, measures=(OWN, HIGH, "mnist"), level=0.95):
    """Evidence of models × seeds scored at both sizes; models are told apart by their number."""

    def samples(point, measure):
        values = {OWN: own_MS, HIGH: high_MS}[measure]
        return Samples(
            values_SD=values[point.number][:, None],
            seeds=tuple(range(values.shape[1])),
            draws=(),
            image_error=image_error,
            num_test=100,
        )

    return SimpleNamespace(measures=measures, series=models(len(own_MS)), samples=samples, level=level)


def models(count):
    return tuple(Model(variant=f"v{m}", label=f"m{m}", number=m) for m in range(count))


def answered(right_MSN, *, content_hash="images", known=True):
    """Per model, the samples of seeds whose answers to N images are on record (where `known`)."""
    number = right_MSN.shape[-1]
    made = []
    for right_SN in right_MSN:
        value_S = right_SN.mean(axis=1)
        kept_SD = np.array([[from_detail(dict([to_detail(r, content_hash=content_hash)]))] for r in right_SN])
        made.append(
            Samples(
                values_SD=value_S[:, None],
                seeds=tuple(range(len(right_SN))),
                draws=(),
                num_test=number,
                image_error=float(np.sqrt(value_S * (1 - value_S) / number).mean()),
                correct_SD=kept_SD if known else None,
            )
        )
    return made


@pytest.mark.parametrize("data, asked", [("fashion-mnist", False), ("photo-tiles:56px", True), ("tiles", True)])
def test_images_that_are_only_enlarged_are_not_asked(data: str, asked: bool) -> None:
    """Fashion-MNIST is stored at 28 px, these tiles at 56 px; of a set that is not known here nobody can say."""
    rng = np.random.default_rng(3)
    names = {f"finetune:{data}": 0.0, f"finetune@56px:{data}": 0.05}
    made = {name: rng.normal(0.7 + more, 0.01, (4, 3)) for name, more in names.items()}

    def samples(point, measure):
        return Samples(
            values_SD=made[measure][point.number][:, None], seeds=(0, 1, 2), draws=(), num_test=100, image_error=0.0
        )

    evidence = SimpleNamespace(measures=tuple(names), series=models(4), samples=samples, level=0.95)
    assert bool(list(resolutions.resolution_gain(evidence))) == asked


def compared(own, high, *, level=0.95):
    """Evidence from samples per model at both sizes."""
    samples_of = {OWN: own, HIGH: high}
    return SimpleNamespace(
        measures=(OWN, HIGH),
        series=models(len(own)),
        level=level,
        samples=lambda point, measure: samples_of[measure][point.number],
    )


def draw(rng, *, shape, number, thresholds=(0.1, 0.35), luck=0.0):
    """(right answers at own size, at the higher one, the true difference): images are hard or easy for everybody, for a
    model, and by chance; a seed may be luckier than another. Every image's answer is a probit of their sum."""
    num_models, num_seeds = shape
    sides = []
    shared_N = rng.normal(0, 1, number)
    for threshold in thresholds:
        model_MSN = rng.normal(0, 0.5, (num_models, 1, number))
        chance_MSN = rng.normal(0, 0.5, (num_models, num_seeds, number))
        luck_MSN = rng.normal(0, luck, (num_models, num_seeds, 1))
        sides.append(shared_N + model_MSN + chance_MSN + luck_MSN + threshold > 0)
    own, high = stats.norm.cdf(np.array(thresholds) / math.sqrt(1 + 0.25 + 0.25 + luck**2))
    return *sides, high - own


def ask(evidence) -> list[Finding]:
    return list(resolutions.resolution_gain(evidence))


def test_one_model_has_the_paired_t_interval():
    rng = np.random.default_rng(0)
    seeds_S = rng.normal(0, 0.1, 5)  # luck that both sizes share must not widen the interval
    own_S, high_S = 0.5 + seeds_S, 0.58 + seeds_S + rng.normal(0, 0.01, 5)
    (answer,) = ask(study(own_S[None], high_S[None]))
    wanted = stats.ttest_rel(high_S, own_S).confidence_interval(0.95)
    assert (answer.low, answer.high) == pytest.approx((wanted.low, wanted.high))
    assert (answer.verdict, answer.subject, answer.reasons) == ("yes", ("tiles", "56"), (UNPAIRED,))


@pytest.mark.parametrize("gain, verdict", [(0.2, "yes"), (-0.2, "no"), (0.01, "cannot tell")])
def test_the_error_of_the_test_set_does_not_shrink_with_models(gain, verdict):
    own_MS = np.full((6, 2), 0.5) + np.arange(2) * 1e-4
    (answer,) = ask(study(own_MS, own_MS + gain, image_error=0.02))
    assert answer.verdict == verdict and answer.n.models == 6
    assert answer.high - answer.low == pytest.approx(2 * stats.norm.ppf(0.975) * 0.02 * math.sqrt(2), rel=1e-6)


def test_nothing_is_said_of_a_study_with_one_size():
    own_MS = np.full((1, 2), 0.5)
    assert ask(study(own_MS, own_MS, measures=(OWN, "mnist"))) == []


@pytest.mark.parametrize("seed", range(3))
def test_one_run_each_has_the_error_of_scipys_paired_test(seed):
    own, high, _ = draw(np.random.default_rng(seed), shape=(1, 1), number=500)
    pair = paired.pair(answered(high)[0], answered(own)[0])
    wanted = stats.ttest_rel(high[0, 0].astype(float), own[0, 0].astype(float))
    assert pair.difference_M.mean() / pair.error == pytest.approx(wanted.statistic, rel=1e-12)
    better, worse = int((high & ~own).sum()), int((own & ~high).sum())  # McNemar's discordant images
    spread = (better + worse - (better - worse) ** 2 / 500) / 499
    assert pair.error == pytest.approx(math.sqrt(spread / 500), rel=1e-12)
    (((contrast, _),),) = resolutions.compared(compared(answered(own), answered(high))).values()
    half = contrast.estimate.margins[IMAGES]
    assert half == pytest.approx(stats.norm.ppf(0.975) * stats.sem(high[0, 0] * 1.0 - own[0, 0]), rel=1e-12)


def test_seeds_and_models_are_averaged_image_by_image():
    own, high, _ = draw(np.random.default_rng(5), shape=(3, 2), number=400)
    evidence = compared(answered(own), answered(high))
    (answer,) = ask(evidence)
    assert (answer.n.seeds, answer.n.paired, answer.n.test_images, answer.reasons) == (2, 3, 400, ())
    ((*contrasts,),) = resolutions.compared(evidence).values()
    mean = resolutions.mean_over_models(contrasts)
    difference_N = high.mean(axis=(0, 1)) - own.mean(axis=(0, 1))
    assert mean.value == pytest.approx(difference_N.mean(), rel=1e-12)
    assert mean.margins[IMAGES] == pytest.approx(stats.norm.ppf(0.975) * stats.sem(difference_N), rel=1e-12)


@pytest.mark.parametrize("level", [0.90, 0.95])
def test_the_interval_over_test_images_covers_as_often_as_it_says(level):
    """One run at each size: test images are the only chance. 800 studies, whose paired intervals are also narrower."""
    rng, covered, runs = np.random.default_rng(11), 0, 800
    for _ in range(runs):
        own, high, truth = draw(rng, shape=(1, 1), number=400)
        (((contrast, images),),) = resolutions.compared(compared(answered(own), answered(high), level=level)).values()
        (((apart, unknown),),) = resolutions.compared(
            compared(answered(own, known=False), answered(high, known=False), level=level)
        ).values()
        e = contrast.estimate
        covered += e.low <= truth <= e.high
        assert images is not None and unknown is None
        assert e.half < 0.9 * apart.estimate.half
    low, high = stats.binom.interval(0.998, runs, level)
    assert low <= covered <= high


def test_with_seeds_and_models_it_covers_at_least_as_often():
    """Luck of seeds counts by its own spread, as it always did, and that spread holds chance answers once more."""
    rng, covered, widths, runs = np.random.default_rng(12), 0, [], 400
    for _ in range(runs):
        own, high, truth = draw(rng, shape=(3, 2), number=400, luck=0.05)
        (pairs,) = ask(compared(answered(own), answered(high)))
        (apart,) = ask(compared(answered(own, known=False), answered(high, known=False)))
        covered += pairs.low <= truth <= pairs.high
        widths.append((pairs.high - pairs.low) / (apart.high - apart.low))
    assert covered >= stats.binom.ppf(0.001, runs, 0.95)
    assert np.quantile(widths, 0.99) < 1 and np.median(widths) < 0.8


def test_what_cannot_be_paired_is_not():
    own, high, _ = draw(np.random.default_rng(3), shape=(2, 2), number=300)
    plain = answered(own, known=False), answered(high, known=False)
    (apart,) = ask(compared(*plain))
    assert apart.n.paired == 0 and apart.reasons[-1] == UNPAIRED
    for others in (answered(high, known=False), answered(high, content_hash="other images")):
        (answer,) = ask(compared(answered(own), others))
        assert answer == apart
    (answer,) = ask(compared([answered(own)[0], plain[0][1]], answered(high)))
    assert (answer.n.paired, answer.n.models) == (1, 2) and answer.reasons[-1] == UNPAIRED
    both = ask(compared(answered(own), answered(high)))[0]
    assert both.high - both.low < answer.high - answer.low < apart.high - apart.low


@pytest.mark.parametrize("differing", [0, paired.MIN_DIFFERING - 1, paired.MIN_DIFFERING])
def test_a_handful_of_images_is_no_normal_distribution(differing):
    own = np.random.default_rng(0).random((1, 1, 200)) < 0.5
    other = own ^ (np.arange(200) < differing)
    assert (paired.pair(*answered(own), *answered(other)) is not None) == (differing >= paired.MIN_DIFFERING)


def test_from_records_and_from_a_study_that_was_begun_without_answers():
    """Seeds match by name, repeats of a fit as draws; one old record makes its model unpaired, and stays readable."""
    rng = np.random.default_rng(8)
    own, high, _ = draw(rng, shape=(2, 4), number=250)  # two models, two seeds with two repeats
    names = "ViT-nano/7", "ViT-small/7"
    records = []
    for record in World().records():
        if record.cell.model in names:
            at = [(names.index(record.cell.model), 2 * record.cell.seed + repeat) for repeat in (0, 1)]
            more = [
                score(task, right[place], repeat)
                for repeat, place in enumerate(at)
                for task, right in (("finetune", own), ("finetune@56px", high))
            ]
            last = replace(record.horizons[-1], scores=(*record.horizons[-1].scores, *more))
            records.append(replace(record, horizons=(*record.horizons[:-1], last)))
    assert len(records) == 4
    (answer,) = ask(read(records))
    difference_N = high.mean(axis=(0, 1)) - own.mean(axis=(0, 1))
    assert answer.estimate == pytest.approx(difference_N.mean()) and answer.n.paired == 2
    assert answer.n.test_images == 250
    ((*contrasts,),) = resolutions.compared(read(records)).values()
    error = resolutions.mean_over_models(contrasts).margins[IMAGES] / stats.norm.ppf(0.975)
    assert error == pytest.approx(stats.sem(difference_N))
    old = [*records[:-1], map_scores(records[-1], lambda _, s: replace(s, detail={}))]
    (mixed,) = ask(read(old))
    assert (mixed.n.paired, mixed.n.models) == (1, 2) and mixed.estimate == pytest.approx(answer.estimate)


def score(task, right_N, repeat):
    value = float(right_N.mean())
    return Score(
        task=task,
        data="tiles",
        metric="accuracy",
        value=value,
        num_classes=9,
        chance=1 / 9,
        stderr=math.sqrt(value * (1 - value) / len(right_N)),
        num_test=len(right_N),
        shots=None,
        draw=repeat,
        detail=dict([to_detail(right_N, content_hash="tiles")]),
    )
