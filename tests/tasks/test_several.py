"""Images of several labels: values are scikit-learn's, resamples too; tasks of one label refuse them."""

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score
from sklearn.neighbors import KNeighborsClassifier

from bench.core.errors import UserError
from bench.core.metrics import check_several
from bench.data.image_set import ImageSet
from bench.store.resampled import from_detail
from bench.tasks import _metrics, _several, adapt, fewshot, finetune, knn, linear
from bench.tasks.task import FineTuned, TaskContext
from bench.train.step import make_loss
from tests.tasks.test_fewshot import Counting

NAMES = ("fog", "haze", "sun", "none has it")


def images(split: str, number: int, seed: int) -> ImageSet:
    """Images of three quarters, each bright where the image has a label."""
    rng = np.random.default_rng(seed)
    targets_NK = rng.random((number, 3)) < [0.5, 0.3, 0.15]
    pixels = rng.integers(0, 120, (number, 8, 8, 1))
    for k, (top, left) in enumerate(((0, 0), (0, 4), (4, 0))):
        pixels[:, top : top + 4, left : left + 4] += 70 * targets_NK[:, k, None, None, None]
    rows = tuple(tuple(np.flatnonzero(row).tolist()) for row in targets_NK)
    return ImageSet(
        name="tagged",
        split=split,
        images_NHWC=pixels.astype(np.uint8),
        labels_N=np.array([max(row, default=0) for row in rows]),
        class_names=NAMES,
        kind="own images",
        multi_labels=rows,
        several=True,
    )


SETS = {"train": images("train", 150, 0), "test": images("test", 90, 1)}


def context(**more: object) -> TaskContext:
    return TaskContext(features=Counting(), load=lambda _, split: SETS[split], **more)  # type: ignore[arg-type]


def test_values_of_every_way_are_those_of_scikit_learn_and_beat_chance() -> None:
    made = adapt.evaluate(context(), data="tagged", sizes=(5,), draws=1)
    train, test, x = SETS["train"], SETS["test"], Counting()
    for way, decide in _several.WAYS.items():
        mean_ap, macro_f1 = (s for s in made if s.task == f"adapt@{way}" and "validation" in s.detail)
        order = adapt.drawn(train, "tagged", 0)[0]
        chosen = train.take(order)
        fitted = x(train.images_NHWC)[order]
        scores, threshold = decide(fitted, chosen.targets_NK, x(test.images_NHWC), _several.parts_of(chosen))
        seen = test.targets_NK[:, :3]
        assert mean_ap.value == pytest.approx(average_precision_score(seen, scores[:, :3]), abs=1e-9)
        assert macro_f1.value == pytest.approx(f1_score(seen, scores[:, :3] > threshold, average="macro"), abs=1e-9)
        assert mean_ap.value > mean_ap.chance + 0.2 and abs(mean_ap.detail["validation"] - mean_ap.value) < 0.2
        assert [row[0] for row in mean_ap.detail["labels"]] == list(NAMES[:3])
        for _, number, ap, low, high, f1, f1_low, f1_high in mean_ap.detail["labels"]:
            assert number and low <= ap <= high and f1_low <= f1 <= f1_high


def test_a_resample_has_scikit_learns_value_also_where_scores_are_equal() -> None:
    rng = np.random.default_rng(3)
    targets, scores = rng.random((40, 3)) < 0.4, rng.integers(0, 5, (40, 3)) / 4
    test = replace(
        SETS["test"].take(np.arange(40)), multi_labels=tuple(tuple(np.flatnonzero(r).tolist()) for r in targets)
    )
    head = {"task": "t", "data": "d", "num_test": 40, "num_classes": 4}
    wide = np.column_stack([scores, np.zeros(40)])
    mean_ap, macro_f1 = _several.scores(wide, test, threshold=0.5, detail={}, **head)
    rows, weights = next(_metrics.weights(40, None))
    for number in (0, 5):
        picked = np.repeat(np.arange(40), weights[number])
        for score, expected in (
            (mean_ap, average_precision_score(targets[picked], scores[picked])),
            (macro_f1, f1_score(targets[picked], scores[picked] > 0.5, average="macro")),
        ):
            kept = from_detail(score.detail)
            assert kept is not None and kept.values_B[rows.start + number] == pytest.approx(expected, abs=1e-6)


def test_the_linear_probe_decides_on_each_label_and_a_task_of_one_label_refuses() -> None:
    mean_ap, macro_f1 = linear.evaluate(context(), data="tagged")
    assert (mean_ap.metric, macro_f1.metric) == ("map", "macro-f1") and mean_ap.value > 0.6
    with pytest.raises(UserError, match="several labels, and this task decides on one"):
        fewshot.evaluate(context(), data="tagged", shots=(1,), draws=1)


def test_nearest_neighbours_vote_on_each_label() -> None:
    made = knn.evaluate(context(), data="tagged", neighbours=9, temperature=0.2)
    train, test = (unit(Counting()(SETS[split].images_NHWC)) for split in ("train", "test"))
    model = KNeighborsClassifier(9, weights=lambda d: np.exp(-(d**2) / 2 / 0.2)).fit(train, SETS["train"].targets_NK)
    seen = SETS["test"].targets_NK[:, :3]
    scores = np.column_stack([share[:, 1] for share in model.predict_proba(test)[:3]]).round(9)
    assert [score.metric for score in made] == ["map", "macro-f1"]
    assert made[0].value == pytest.approx(average_precision_score(seen, scores), abs=1e-9)
    assert made[1].value == pytest.approx(f1_score(seen, scores > 0.5, average="macro"), abs=1e-9)


def unit(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True), dtype=np.float64)


@pytest.mark.parametrize("task", [adapt, finetune, knn, linear], ids=lambda task: task.__name__)
def test_a_metric_of_one_label_is_refused_and_macro_f1_is_taken_anyway(task: ModuleType) -> None:
    with pytest.raises(UserError, match="several labels, of which there is no balanced accuracy"):
        task.evaluate(context(), data="tagged", metrics=("balanced-accuracy",))
    check_several(("macro-f1",), name="tagged")
    assert task.TASK.several_labels


def test_the_loss_is_torchs_on_the_sets_of_classes() -> None:
    import torch

    from bench.study.cell import Recipe

    sets, logits = torch.tensor([[0, 1, 1], [0, 0, 0]]), torch.randn(4, 3)
    numbers = torch.tensor([0, 1, 1, 0])
    wanted = torch.nn.functional.binary_cross_entropy_with_logits(logits, sets[numbers].float(), reduction="sum") / 4
    assert make_loss(Recipe(), sets)(logits, numbers) == pytest.approx(wanted.item())


def test_fine_tuning_is_scored_by_its_logits() -> None:
    given = []

    def tune(images: ImageSet, **how: object) -> FineTuned:
        given.append(images)

        def bright(pixels: np.ndarray) -> np.ndarray:
            parts = ((0, 0), (0, 4), (4, 0), (4, 4))
            return np.stack([pixels[:, t : t + 4, s : s + 4].mean((1, 2, 3)) - 95 for t, s in parts], axis=1)

        about = {"diverged": False, "image_size": 8, "seconds": 1.0, "train_flops": {"dense": 1}}
        return FineTuned(logits=bright, losses_T=np.ones(2), **about)  # type: ignore[arg-type]

    mean_ap, macro_f1 = finetune.evaluate(context(fine_tune=tune), data="tagged", steps=1, batch=4, rates=(0.1, 0.2))
    assert all(each.several for each in given)
    assert mean_ap.value > 0.9 and macro_f1.value > 0.8 and mean_ap.detail["held_out_accuracies"][0] > 0.9


def test_a_network_learns_several_labels() -> None:
    from bench.study import registry
    from bench.study.cell import Recipe
    from bench.tasks._finetuner import FineTuner

    model = registry.build_model("ViT-pico/4", image_size=8, channels=1, num_classes=2)
    tuner = FineTuner(model, name="ViT-pico/4", image_size=8, channels=1)
    recipe = Recipe(optimizer="sgd", lr=0.1, batch=32, weight_decay=0.0, clip=1.0, warmup_images=320, shift=0)
    tuned = tuner(SETS["train"], recipe=recipe, steps=60)
    reached = _several.mean_ap(tuned.logits(SETS["test"].images_NHWC), SETS["test"].targets_NK)
    assert not tuned.diverged and reached > 0.6 and tuned.losses_T[-1] < tuned.losses_T[0]
