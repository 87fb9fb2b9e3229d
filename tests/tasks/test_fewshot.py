"""The few-shot probe: features, ridge regression, draws and scores."""

import numpy as np
import pytest
from scipy import linalg
from sklearn.linear_model import Ridge

from bench.core.device import InBatches
from bench.data.image_set import ImageSet
from bench.tasks import fewshot
from bench.tasks._features import extractor, network_input
from bench.tasks._ridge import BIAS_FEATURE, STD_FLOOR, choose_ridge, decompose
from bench.tasks.fewshot import PUBLISHED_RIDGE, RIDGES, score_features
from bench.tasks.task import TaskContext

# -- the few-shot task as a whole: draws, metrics, missing scores, shared work -----------------------------------------


CLASSES = 8


def image_set(split: str, count: int = 600, seed: int = 0) -> ImageSet:
    """Noise images around one template per class: learnable from their pixels."""
    rng = np.random.default_rng(seed + (split == "test"))
    templates = np.random.default_rng(99).integers(60, 196, (CLASSES, 6, 6, 1))
    labels_N = rng.integers(0, CLASSES, count)
    images = np.clip(templates[labels_N] + rng.normal(0, 80, (count, 6, 6, 1)), 0, 255).astype(np.uint8)
    names = tuple(str(k) for k in range(CLASSES))
    return ImageSet(name="toy", split=split, images_NHWC=images, labels_N=labels_N, class_names=names, kind="rendered")


class Counting:
    """Pixels as features; remembers how many images it was asked for, and how often."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __call__(self, images_NHWC: np.ndarray) -> np.ndarray:
        self.calls.append(len(images_NHWC))
        return images_NHWC.reshape(len(images_NHWC), -1).astype(np.float32)


def context(features: object = None, seed: int = 0) -> TaskContext:
    return TaskContext(features=features or Counting(), load=lambda name, split: image_set(split), seed=seed)  # type: ignore[arg-type]


def test_every_shot_draw_and_metric_has_a_score() -> None:
    scores = fewshot.evaluate(context(), data="toy", shots=(5, 1), draws=2, test_limit=100)
    assert {(s.metric, s.shots, s.draw) for s in scores} == {
        (metric, k, draw) for metric in ("accuracy", "accuracy_fixed_ridge") for k in (1, 5) for draw in (0, 1)
    }
    for score in scores:
        assert score.task == "fewshot" and score.data == "toy" and score.num_test == 100
        assert score.chance == 1 / CLASSES and score.num_classes == CLASSES
        assert score.value is not None and score.stderr == pytest.approx((score.value * (1 - score.value) / 100) ** 0.5)
        assert score.shots is not None and score.detail["num_support"] == score.shots * CLASSES
        if score.metric == "accuracy_fixed_ridge" or score.shots == 1:
            assert score.detail["ridge"] == 1024
    values = {s.shots: s.value or 0.0 for s in scores if s.metric == "accuracy" and s.draw == 0}
    assert values[5] > values[1] > 1 / CLASSES


def test_the_published_protocol_written_out() -> None:
    train, test = image_set("train"), image_set("test")
    scores = fewshot.evaluate(context(), data="toy", shots=(5,), draws=2, ridge="published", test_limit=None)
    for draw, (indices, ranks) in enumerate(fewshot.draw_support(train, data="toy", shots=(5,), draws=2)):
        chosen = indices[ranks < 5]
        assert np.bincount(train.labels_N[chosen]).tolist() == [5] * CLASSES
        x = train.images_NHWC[chosen].reshape(len(chosen), -1).astype(np.float64)
        mean, std = x.mean(0), x.std(0) + STD_FLOOR
        add = lambda z: np.concatenate([(z - mean) / std, np.full((len(z), 1), BIAS_FEATURE)], axis=1)  # noqa: B023, E731
        y = 2.0 * np.eye(CLASSES)[train.labels_N[chosen]] - 1.0
        model = Ridge(alpha=1024, fit_intercept=False, solver="cholesky").fit(add(x), y)
        predicted = model.predict(add(test.images_NHWC.reshape(len(test), -1).astype(np.float64))).argmax(1)
        assert scores[draw].value == np.mean(predicted == test.labels_N)


def test_draws_depend_on_the_data_alone() -> None:
    one = fewshot.evaluate(context(seed=0), data="toy", shots=(5,), draws=3)
    assert one == fewshot.evaluate(context(seed=7), data="toy", shots=(5,), draws=3)
    assert len({s.value for s in one if s.metric == "accuracy"}) > 1


def test_draws_do_not_follow_the_order_in_the_file() -> None:
    def shuffled(name: str, split: str) -> ImageSet:
        images = image_set(split)
        return images.take(np.random.default_rng(5).permutation(len(images)))

    one = fewshot.evaluate(context(), data="toy", shots=(1, 5), draws=2)
    other = fewshot.evaluate(TaskContext(features=Counting(), load=shuffled), data="toy", shots=(1, 5), draws=2)
    assert [s.value for s in one] == [s.value for s in other]


def test_short_classes_contribute_what_they_have() -> None:
    def load(name: str, split: str) -> ImageSet:
        images = image_set(split)
        return images.take(np.flatnonzero((images.labels_N != 0) | (np.arange(len(images)) < 30)))

    few = int((load("toy", "train").labels_N == 0).sum())
    assert 0 < few < 25
    scores = fewshot.evaluate(TaskContext(features=Counting(), load=load), data="toy", shots=(25,), draws=1)
    assert dict(scores[0].detail)["num_support"] == few + 25 * (CLASSES - 1)


def test_draws_of_a_pool_that_is_used_up_say_they_are_the_same_images() -> None:
    """At 10 shots no class lacks an image, and yet there is nothing to choose from."""
    pool = {"shots": (5, 10, 25), "support_pool": 10 * CLASSES}
    scores = fewshot.evaluate(context(), data="toy", draws=2, **pool)
    assert {(s.shots, s.detail["num_support"]) for s in scores} == {(5, 40), (10, 80), (25, 80)}
    assert {s.shots for s in scores if s.detail.get("same_images")} == {10, 25}
    for k in (10, 25):
        assert len({s.value for s in scores if s.shots == k and s.metric == "accuracy"}) == 1
    assert not any("same_images" in s.detail for s in fewshot.evaluate(context(), data="toy", draws=1, **pool))


def test_constant_features_give_chance_and_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    scores = fewshot.evaluate(
        context(lambda images: np.ones((len(images), 4), dtype=np.float32)), data="toy", shots=(5,), draws=1
    )
    assert all(s.value is not None and s.value < 3 / CLASSES for s in scores)
    assert not recwarn.list


def test_each_strength_has_a_score_and_those_published_and_chosen_agree() -> None:
    options = {"data": "toy", "shots": (1, 5), "draws": 2, "test_limit": 200}
    each = {(s.shots, s.draw, s.metric): s for s in fewshot.evaluate(context(), ridge="each", **options)}
    assert len(each) == 2 * 2 * len(fewshot.RIDGES)
    for score in fewshot.evaluate(context(), ridge="both", **options):
        same = each[score.shots, score.draw, f"accuracy_ridge_{score.detail['ridge']:g}"]
        assert same.value == score.value and same.detail["ridge"] == score.detail["ridge"]


@pytest.mark.parametrize("pool, draws", [(None, 1), (None, 3), (400, 3), (100, 3), (40, 3), (10_000, 8)])
def test_a_plan_counts_the_images_that_are_drawn(pool: int | None, draws: int) -> None:
    """Within the pool, and each once, however many draws have it."""
    features = Counting()
    fewshot.evaluate(context(features), data="toy", draws=draws, test_limit=100, support_pool=pool)
    planned = fewshot.forward_images(
        num_train=600, num_test=600, num_classes=CLASSES, draws=draws, test_limit=100, support_pool=pool
    )
    drawn, tested = features.calls  # each image passes once
    assert planned - 100 == pytest.approx(drawn, rel=0.03) and tested == 100
    if pool is not None and pool <= 25 * CLASSES:
        assert planned == sum(features.calls) == pool + 100


def test_a_plan_of_many_classes_is_bound_by_the_pool() -> None:
    size = {"num_train": 1_281_167, "num_test": 50_000, "num_classes": 1_000}
    assert fewshot.forward_images(**size) == 10_000 + 2_000
    assert fewshot.forward_images(**size, support_pool=None, draws=1) == 25_000 + 2_000
    pooled = fewshot.solving_seconds(**size, features=384)
    assert pooled == fewshot.solving_seconds(**size | {"num_train": 10_000}, features=384)
    assert pooled < 0.8 * fewshot.solving_seconds(**size, features=384, support_pool=None)


# -- the closed-form ridge against independent solutions, in both regimes (N >= D and N < D) ---------------------------


REGIMES = {"more examples than features": (120, 40), "fewer": (50, 130), "square": (60, 60), "one per class": (6, 64)}
STRENGTHS = (2.0**-4, 1.0, PUBLISHED_RIDGE, 2.0**20)
RIDGE_CLASSES = 6


def problem(regime: str, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features with very different scales, a dead one and a duplicated one; labels; test features."""
    count, dims = REGIMES[regime]
    rng = np.random.default_rng(seed)
    scale_D = np.exp(rng.normal(size=dims) * 2)
    labels_N = np.arange(count) % RIDGE_CLASSES
    centres_KD = rng.normal(size=(RIDGE_CLASSES, dims))

    def sample(labels: np.ndarray) -> np.ndarray:
        x = (centres_KD[labels] + 2 * rng.normal(size=(len(labels), dims))) * scale_D + 3
        x[:, 0] = 0.25
        x[:, 1] = x[:, 2]
        return x

    return sample(labels_N), labels_N, sample(rng.integers(0, RIDGE_CLASSES, 300))


def design(support_ND: np.ndarray, other_MD: np.ndarray) -> np.ndarray:
    """The published design matrix, written out: standardised by the support set, and a column of 100."""
    mean_D, std_D = support_ND.mean(0), support_ND.std(0) + STD_FLOOR
    return np.concatenate([(other_MD - mean_D) / std_D, np.full((len(other_MD), 1), BIAS_FEATURE)], axis=1)


@pytest.mark.parametrize("ridge", STRENGTHS)
@pytest.mark.parametrize("regime", REGIMES)
def test_weights_equal_an_independent_solution(regime: str, ridge: float) -> None:
    """Least squares on the design stacked on sqrt(ridge) I: no normal equations, no eigenvectors."""
    support_ND, labels_N, _ = problem(regime)
    x = design(support_ND, support_ND)
    y = 2.0 * np.eye(RIDGE_CLASSES)[labels_N] - 1.0
    stacked_x = np.concatenate([x, np.sqrt(ridge) * np.eye(x.shape[1])])
    stacked_y = np.concatenate([y, np.zeros((x.shape[1], RIDGE_CLASSES))])
    expected = linalg.lstsq(stacked_x, stacked_y, lapack_driver="gelsd")[0]
    solved = decompose(support_ND, labels_N, num_classes=RIDGE_CLASSES).weights(ridge)
    assert np.linalg.norm(solved - expected) <= 1e-8 * np.linalg.norm(expected)


@pytest.mark.parametrize("ridge", STRENGTHS)
@pytest.mark.parametrize("regime", REGIMES)
def test_leave_one_out_equals_leaving_each_out(regime: str, ridge: float) -> None:
    support_ND, labels_N, _ = problem(regime)
    x = design(support_ND, support_ND)
    y = 2.0 * np.eye(RIDGE_CLASSES)[labels_N] - 1.0
    brute = np.empty_like(y)
    for left_out in range(len(x)):
        kept = np.arange(len(x)) != left_out
        gram = x[kept] @ x[kept].T + ridge * np.eye(kept.sum())
        brute[left_out] = y[left_out] - x[left_out] @ x[kept].T @ np.linalg.solve(gram, y[kept])
    predicted = decompose(support_ND, labels_N, num_classes=RIDGE_CLASSES).leave_one_out(ridge)
    np.testing.assert_allclose(predicted, brute, rtol=1e-6, atol=1e-6 * np.abs(brute).max())


@pytest.mark.parametrize("regime", ["more examples than features", "fewer"])
def test_the_chosen_ridge_has_the_smallest_error(regime: str) -> None:
    support_ND, labels_N, _ = problem(regime)
    support = decompose(support_ND, labels_N, num_classes=RIDGE_CLASSES)
    errors = {ridge: np.mean(support.leave_one_out(ridge) ** 2) for ridge in RIDGES}
    assert choose_ridge(support, RIDGES) == min(errors, key=lambda ridge: errors[ridge])


@pytest.mark.parametrize("regime", REGIMES)
def test_every_strength_on_request_predicts_what_scikit_learn_does(regime: str) -> None:
    support_ND, labels_N, test_MD = problem(regime)
    y = 2.0 * np.eye(RIDGE_CLASSES)[labels_N] - 1.0
    train, test = design(support_ND, support_ND), design(support_ND, test_MD)
    test_labels_M = np.arange(len(test_MD)) % RIDGE_CLASSES
    ranks_N = np.zeros(len(labels_N), dtype=np.int64)
    scores = score_features(
        support_ND,
        labels_N,
        test_MD,
        test_labels_M,
        picks=[(np.arange(len(labels_N)), ranks_N)],
        data="toy",
        num_classes=RIDGE_CLASSES,
        shots=(1,),
        ridge="each",
    )
    assert [score.detail["ridge"] for score in scores] == list(RIDGES)
    for ridge, score in zip(RIDGES, scores, strict=True):
        model = Ridge(alpha=ridge, fit_intercept=False, solver="svd").fit(train, y)
        assert score.value == (model.predict(test).argmax(1) == test_labels_M).mean()


# -- the adapter from images to features: sizes, channels, range, batching, mode ---------------------------------------


torch = pytest.importorskip("torch")


class Recorder(torch.nn.Module):  # type: ignore[name-defined]
    """Features are the flattened input; remembers batch sizes and modes."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.modes: list[bool] = []

    def features(self, x_BCHW):
        self.sizes.append(len(x_BCHW))
        self.modes.append(self.training)
        assert not torch.is_grad_enabled()
        return x_BCHW.flatten(1)


def images(count: int, size: int, channels: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, size, size, channels), dtype=np.uint8)


def test_the_last_small_batch_is_kept_and_the_mode_restored() -> None:
    model = Recorder().train()
    x = images(23, 4, 1)
    features_ND = extractor(model, image_size=4, channels=1, batch=10)(x)
    assert model.sizes == [10, 10, 3] and model.modes == [False] * 3 and model.training
    assert features_ND.dtype == np.float32
    np.testing.assert_allclose(features_ND, x.reshape(23, -1) / 127.5 - 1, atol=1e-6)
    extractor(model.eval(), image_size=4, channels=1)(x)
    assert not model.training


def test_range_channels_and_size() -> None:
    x = torch.from_numpy(np.array([0, 255], dtype=np.uint8).reshape(2, 1, 1, 1))
    assert network_input(x, image_size=1, channels=1).flatten().tolist() == [-1.0, 1.0]
    rgb = network_input(torch.from_numpy(images(2, 5, 1)), image_size=8, channels=3)
    assert rgb.shape == (2, 3, 8, 8) and torch.equal(rgb[:, 0], rgb[:, 2])
    white = torch.full((1, 3, 3, 3), 255, dtype=torch.uint8)
    torch.testing.assert_close(network_input(white, image_size=3, channels=1), torch.ones(1, 1, 3, 3))
    small = network_input(torch.from_numpy(images(1, 32, 3)), image_size=8, channels=3)
    assert small.abs().max() <= 1
    with pytest.raises(ValueError, match="2 channels"):
        network_input(torch.from_numpy(images(1, 4, 2)), image_size=4, channels=3)


def test_read_only_maps_are_fine(tmp_path) -> None:
    np.save(tmp_path / "x.npy", images(5, 4, 1))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert extractor(Recorder(), image_size=4, channels=1)(mapped).shape == (5, 16)


def test_no_images() -> None:
    with pytest.raises(ValueError, match="no images"):
        extractor(Recorder(), image_size=4, channels=1)(images(0, 4, 1))


class Tight(Recorder):
    """Has room for `room` images at a time."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def features(self, x_BCHW):
        features_BD = super().features(x_BCHW)
        if len(x_BCHW) > self.room:
            raise torch.OutOfMemoryError("no room")
        return features_BD


def test_where_memory_runs_out_batches_are_halved_and_every_image_is_done_once() -> None:
    x = images(23, 4, 1)
    model, batches = Tight(3), InBatches(10, device="cpu")
    features_ND = extractor(model.train(), image_size=4, channels=1, batches=batches)(x)
    assert model.sizes == [10, 5, *[2] * 11, 1]
    np.testing.assert_array_equal(features_ND, extractor(Recorder(), image_size=4, channels=1)(x))
    assert batches.shrunk and batches.batch == 2 and model.training
    with pytest.raises(torch.OutOfMemoryError):
        extractor(Tight(0), image_size=4, channels=1)(x)


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    batches = InBatches(10, device="cpu")
    with pytest.raises(RuntimeError, match="size"):
        batches(5, lambda part: torch.ones(2) @ torch.ones(len(range(5)[part])))
    assert not batches.shrunk and batches.batch == 10
