"""The fine-tuning protocol without a network: what is chosen from what, and nothing on the test split."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baselines import published
from bench.core.errors import UserError
from bench.data.image_set import ImageSet
from bench.store.prediction_bits import from_detail
from bench.study import registry
from bench.tasks import finetune, vtab
from bench.tasks._folds import together
from bench.tasks.task import FineTuned, TaskContext, Unsuited, balanced_part
from tests.tasks.test_fewshot import CLASSES, image_set

# The training images of Table 4's sets; of Flowers those of the official train and validation splits together.
SIZES = {
    "ImageNet": 1_281_167,
    "CIFAR-100": 50_000,
    "CIFAR-10": 50_000,
    "Oxford-IIIT-Pets": 3_680,
    "Oxford-Flowers-102": 2_040,
}


class Fake:
    """Stands for training: its accuracy is a given function of the rate, in every draw other mistakes.

    Remembers what it was trained on and asked to classify.
    """

    def __init__(self, accuracy_of: dict[float, float | None], labels: dict[int, int]) -> None:
        self.accuracy_of, self.labels = accuracy_of, labels
        self.trained: list[tuple[str, float, np.ndarray]] = []
        self.asked: list[tuple[str, np.ndarray]] = []
        self.forward = 0  # passes of one image; training counts three

    def __call__(self, images, *, recipe, steps, image_size=None, purpose="") -> FineTuned:
        self.trained.append((purpose, recipe.lr, images.content_keys_N))
        self.recipe = recipe
        self.forward += 3 * steps * recipe.batch
        accuracy = self.accuracy_of[recipe.lr]

        def logits(images_NHWC: np.ndarray) -> np.ndarray:
            keys_N = ImageSet(
                name="",
                split="",
                images_NHWC=images_NHWC,
                labels_N=np.zeros(len(images_NHWC), np.int64),
                class_names=("",),
                kind="",
            ).content_keys_N
            self.asked.append((purpose, keys_N))
            self.forward += len(images_NHWC)
            truth_N = np.array([self.labels[int(key)] for key in keys_N])
            wrong_N = np.arange(len(truth_N)) >= (accuracy or 0.0) * len(truth_N)
            return np.eye(CLASSES)[(truth_N + wrong_N) % CLASSES]

        losses = np.full(steps, np.nan if accuracy is None else 1.0)
        return FineTuned(
            logits=logits,
            losses_T=losses,
            diverged=accuracy is None,
            image_size=image_size or 6,
            seconds=1.0,
            train_flops={"dense": 10 * steps * recipe.batch},
        )


def context(accuracy_of: dict[float, float | None], *, test: ImageSet | None = None) -> tuple[TaskContext, Fake]:
    splits = {"train": image_set("train", 1_200), "test": test or image_set("test")}
    labels = {int(k): int(y) for s in splits.values() for k, y in zip(s.content_keys_N, s.labels_N, strict=True)}
    fake = Fake(accuracy_of, labels)
    return TaskContext(features=lambda x: x, load=lambda _, split: splits[split], fine_tune=fake), fake


RATES = {0.01: 0.5, 0.03: 0.7, 0.1: 0.7, 0.3: None}


@pytest.mark.parametrize("row", published.table("table4"), ids=lambda row: row["dataset"])
def test_settings_are_those_of_table_4(row) -> None:
    rates = tuple(map(float, row["base_lrs"].split(",")))
    if row["dataset"] == "VTAB-19":
        assert (int(row["steps"]), 512, rates) == (vtab.STEPS, vtab.BATCH, vtab.RATES)
        return
    tuning = finetune.make_tuning(SIZES[row["dataset"]])
    assert (tuning.steps, tuning.batch, tuning.rates) == (int(row["steps"]), 512, rates)
    recipe = tuning.recipe(0.01)
    assert (recipe.optimizer, recipe.momentum, recipe.weight_decay, recipe.clip) == ("sgd", 0.9, 0.0, 1.0)
    assert (recipe.cooldown, recipe.cooldown_shape, recipe.schedule) == (1.0, "cosine", "separate")


@pytest.mark.parametrize(("name", "share"), [("CIFAR-10", 0.02), ("ImageNet", 0.01), ("Oxford-IIIT-Pets", 0.1)])
def test_the_paper_s_share_is_held_out(name: str, share: float) -> None:
    assert finetune.make_tuning(SIZES[name]).num_held_out == pytest.approx(share * SIZES[name], abs=1)


def test_the_best_rate_is_chosen_and_everything_is_said() -> None:
    given_context, fake = context(RATES)
    scores = finetune.evaluate(given_context, data="toy", steps=4, batch=8, rates=tuple(RATES), repeats=2)
    assert [score.draw for score in scores] == [0, 1]
    for score in scores:
        facts = score.detail
        assert facts["rate"] == 0.03, "of equal ones the lowest"
        assert facts["held_out_accuracies"] == pytest.approx([0.5, 0.7, 0.7, None], abs=0.01)
        assert facts["rates"] == list(RATES) and not facts["rate_at_edge"]
        assert (facts["num_train"], facts["num_held_out"]) == (1_200, 120)
        assert score.value == pytest.approx(0.7, abs=0.01) and score.num_test == 600
        assert facts["train_flops"] == 10 * 4 * 8 * (1 + 4 / 2) and facts["seconds"] == 1 + 4 / 2
    assert [len(keys) for _, _, keys in fake.trained] == [1_080] * 4 + [1_200] * 2
    assert len({purpose for purpose, _, _ in fake.trained}) == 3, "repeats differ, rates are tried alike"


@pytest.mark.parametrize("accuracies", [(0.9, 0.5, 0.4), (0.4, 0.5, 0.9)])
def test_a_choice_at_the_edge_is_said(accuracies) -> None:
    given_context, _ = context(dict(zip((0.01, 0.03, 0.1), accuracies, strict=True)))
    (score,) = finetune.evaluate(given_context, data="toy", steps=1, batch=1, rates=(0.01, 0.03, 0.1))
    assert score.detail["rate_at_edge"]


def test_divergence_is_no_score() -> None:
    given_context, fake = context({0.1: None, 0.3: None})
    scores = finetune.evaluate(given_context, data="toy", steps=1, batch=1, rates=(0.1, 0.3), repeats=2)
    assert [s.value for s in scores] == [None, None] and all("reason" in s.detail for s in scores)
    assert len(fake.trained) == 2, "what never worked is not tried on everything"
    (alone,) = finetune.evaluate(given_context, data="toy", steps=1, batch=1, rates=(0.1,))
    assert alone.value is None and alone.stderr is None


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), task=st.sampled_from([finetune, vtab]))
def test_nothing_is_chosen_on_the_test_split(seed: int, task) -> None:
    """Other test images and labels, whatever they are, leave training and choice as they were; and the test images
    are seen by the last fits alone."""
    plain_context, plain = context(RATES)
    rng = np.random.default_rng(seed)
    test = image_set("test", 300, seed=seed)
    other_context, other = context(RATES, test=replace(test, labels_N=rng.permutation(test.labels_N)))
    options = {"data": "toy", "steps": 2, "batch": 4, "rates": tuple(RATES), "repeats": 2}
    for one, two in zip(task.evaluate(plain_context, **options), task.evaluate(other_context, **options), strict=True):
        facts, others = one.detail, two.detail
        assert facts["rate"] == others["rate"] and facts["held_out_accuracies"] == others["held_out_accuracies"]
    test_keys = set(test.content_keys_N.tolist())
    for (purpose, rate, keys), (_, other_rate, other_keys) in zip(plain.trained, other.trained, strict=True):
        assert rate == other_rate and np.array_equal(keys, other_keys) and purpose
        assert not test_keys & set(other_keys.tolist())
    for purpose, keys in other.asked:
        assert bool(test_keys & set(keys.tolist())) == (not purpose.endswith("choose"))


def skewed(*counts: int) -> ImageSet:
    """Noise, class by class, of so many images each."""
    labels_N = np.repeat(np.arange(len(counts)), counts)
    pixels = np.random.default_rng(0).integers(0, 256, (len(labels_N), 4, 4, 1), dtype=np.uint8)
    names = tuple(map(str, range(len(counts))))
    return ImageSet(name="skewed", split="train", images_NHWC=pixels, labels_N=labels_N, class_names=names, kind="x")


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(0, 120), min_size=1, max_size=12).filter(lambda counts: sum(counts) > 1),
    part=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_every_class_holds_out_its_share_and_the_parts_share_nothing(counts: list[int], part: float, seed: int) -> None:
    """However uneven the classes are, and whatever the order in the file."""
    train = skewed(*counts)
    number = min(max(1, round(part * len(train))), len(train) - 1)
    parts = finetune.split(train, number)
    assert [len(one) for one in parts] == [len(train) - number, number]
    keys = [one.content_keys_N for one in (*parts, train)]
    assert not np.intersect1d(keys[0], keys[1]).size
    np.testing.assert_array_equal(np.sort(np.concatenate(keys[:2])), np.sort(keys[2]))
    held_K = np.bincount(parts[1].labels_N, minlength=len(counts))
    assert (np.abs(held_K - np.array(counts) * number / len(train)) < 1).all()
    shuffled = train.take(np.random.default_rng(seed).permutation(len(train)))
    for one, again in zip(parts, finetune.split(shuffled, number), strict=True):
        assert one.content_hash == again.content_hash


def test_vtab_takes_800_and_200_then_all_1000() -> None:
    given_context, fake = context(RATES)
    scores = vtab.evaluate(given_context, data="toy", steps=2, batch=4, rates=tuple(RATES), repeats=2)
    assert [len(keys) for _, _, keys in fake.trained] == ([800] * 4 + [1_000]) * 2
    assert [len(keys) for purpose, keys in fake.asked if purpose.endswith("choose")] == [200] * 6  # one rate diverges
    first, second = fake.trained[4][2], fake.trained[9][2]
    assert set(fake.trained[0][2]) < set(first) != set(second), "other examples in every repeat"
    assert [(s.task, s.draw, s.num_test) for s in scores] == [("vtab", 0, 600), ("vtab", 1, 600)]


def test_vtab_s_examples_come_at_natural_frequencies() -> None:
    """As the first 1,000 of a shuffled training split do (Zhai et al. 2019): of a rare class few. A sum over repeats
    has the standard deviation of the hypergeometric distribution, were they independent."""
    counts = np.array([4_000, 800, 150, 30, 20])
    train, test = skewed(*counts), image_set("test")
    seen = []

    def fine_tune(images: ImageSet, **_):
        seen.append(images)
        return FineTuned(
            logits=lambda x: np.zeros((len(x), CLASSES)),
            losses_T=np.ones(1),
            diverged=False,
            image_size=4,
            seconds=0.0,
            train_flops={"dense": 0},
        )

    given_context, _ = context(RATES)
    load = {"train": train, "test": test}
    vtab.evaluate(
        replace(given_context, load=lambda _, split: load[split], fine_tune=fine_tune), data="toy", repeats=20
    )
    assert [len(set(images.content_keys_N.tolist())) for images in seen] == [1_000] * 20
    drawn_K = sum(np.bincount(images.labels_N, minlength=5) for images in seen)
    share_K = counts / counts.sum()
    spread_K = np.sqrt(20_000 * share_K * (1 - share_K) * (1 - 1_000 / counts.sum()))
    assert (np.abs(drawn_K - 20_000 * share_K) < 4 * spread_K).all()


@pytest.mark.parametrize("size", ["", ":384px"])
def test_augmentation_is_left_out_where_it_changes_the_answer_at_any_stored_size(size: str) -> None:
    done = {}
    for name in ("clevr-count", "dsprites-orientation", "dsprites-location", "pets"):
        given_context, fake = context({0.01: 0.5})
        vtab.evaluate(given_context, data=name + size, steps=1, batch=1, shift=2, flip=True)
        done[name] = (fake.recipe.shift, fake.recipe.flip)
    wanted = {"clevr-count": (0, True), "dsprites-orientation": (2, False), "dsprites-location": (0, False)}
    assert done == wanted | {"pets": (2, True)}


def test_one_rate_is_taken_as_it_is() -> None:
    given_context, fake = context({0.01: 0.6})
    (score,) = vtab.evaluate(given_context, data="toy", steps=2, batch=4)
    assert [len(keys) for _, _, keys in fake.trained] == [1_000]
    assert score.detail["num_held_out"] == 0 and not score.detail["rate_at_edge"]


def test_any_of_several_labels_is_right() -> None:
    """ReaL: images without a label do not count, and either of two is right."""
    test = image_set("test", 100)
    several = tuple(() if i < 20 else (int(y), (int(y) + 1) % CLASSES) for i, y in enumerate(test.labels_N))
    given_context, _ = context({0.1: 0.5}, test=replace(test, multi_labels=several))
    plain, real = finetune.evaluate(given_context, data="toy", steps=1, batch=1, rates=(0.1,))
    assert (plain.data, plain.value, plain.num_test) == ("toy", 0.5, 100)
    assert (real.data, real.value, real.num_test) == ("toy-real", 1.0, 80)
    assert right(real).tolist() == [True] * 80
    assert from_detail(plain.detail).content_hash != from_detail(real.detail).content_hash
    none = replace(test, multi_labels=((),) * 100)
    _, missing = finetune.evaluate(context({0.1: 0.5}, test=none)[0], data="toy", steps=1, batch=1, rates=(0.1,))
    assert missing.value is None and missing.num_test == 0 and "correct" not in missing.detail


@pytest.mark.parametrize("task", [finetune, vtab])
@pytest.mark.parametrize("limit", [None, 203])
def test_the_detail_says_which_test_images_were_right(task, limit) -> None:
    """In the order of the test set: the fake errs on the last ones that it is asked about."""
    given_context, fake = context({0.01: 0.7})
    scores = task.evaluate(given_context, data="toy", steps=1, batch=1, rates=(0.01,), repeats=2, test_limit=limit)
    test = balanced_part(given_context.load("toy", "test"), limit)
    asked = [keys for purpose, keys in fake.asked if not purpose.endswith("choose")]
    for score, keys_M in zip(scores, asked, strict=True):
        np.testing.assert_array_equal(keys_M, test.content_keys_N)
        np.testing.assert_array_equal(right(score), np.arange(len(test)) < 0.7 * len(test))
        assert right(score).mean() == score.value and len(right(score)) == score.num_test
        assert from_detail(score.detail).content_hash == test.content_hash
        json.dumps(score.detail, allow_nan=False)


def right(score) -> np.ndarray:
    return from_detail(score.detail).right_M


@pytest.mark.parametrize("task", [finetune, vtab])
@pytest.mark.parametrize("rates", [(0.01,), (0.01, 0.03, 0.1)])
def test_the_plan_counts_what_is_done(task, rates) -> None:
    given_context, fake = context(dict.fromkeys(rates, 0.5))
    options = {"steps": 5, "batch": 16, "rates": rates, "repeats": 2, "test_limit": 100}
    task.evaluate(given_context, data="toy", **options)
    assert task.forward_images(num_train=1_200, num_test=600, num_classes=CLASSES, **options) == fake.forward
    larger = task.forward_images(num_train=1_200, num_test=600, own_size=28, image_size=56, **options)
    assert larger == 4 * fake.forward


@pytest.mark.parametrize(
    ("task", "options", "answer"),
    [
        (finetune, {"rates": ()}, "not positive"),
        (finetune, {"rates": (0.1, -1)}, "not positive"),
        (finetune, {"steps": 0}, "at least one step"),
        (finetune, {"batch": 0}, "at least one step"),
        (finetune, {"held_out": 1_200}, "held out of 1,200"),
        (finetune, {"held_out": 0}, "held out of 1,200"),
        (finetune, {"average": 1.0}, "not a decay"),
        (finetune, {"repeats": 0}, "at least one fit"),
        (vtab, {"repeats": 0}, "at least one fit"),
    ],
)
def test_options_out_of_range(task, options, answer: str) -> None:
    given_context, _ = context(RATES)
    with pytest.raises(UserError, match=answer):
        task.evaluate(given_context, data="toy", **options)


def test_too_few_examples_and_no_network() -> None:
    given_context, _ = context(RATES)
    small = replace(given_context, load=lambda _, split: image_set(split))
    with pytest.raises(UserError, match="has 600"):
        vtab.evaluate(small, data="toy")
    for task in (finetune, vtab):
        with pytest.raises(UserError, match="--model"):
            task.evaluate(replace(given_context, fine_tune=None), data="toy")


def test_the_groups_are_those_of_the_paper() -> None:
    assert len(vtab.task_names(vtab.VTAB)) == 19 == len(set(vtab.task_names(vtab.VTAB)))
    assert [len(group) for group in vtab.VTAB.values()] == [7, 4, 8]
    assert tuple(vtab.VTAB) == tuple(vtab.SMALL) == ("natural", "specialised", "structured")
    assert not set(vtab.task_names(vtab.VTAB)) & set(vtab.task_names(vtab.SMALL))
    assert set(vtab.task_names(vtab.SMALL)) <= set(registry.names("data set"))
    assert vtab.group_of("terrain") == "specialised" and vtab.group_of("glyphs") is None


# -- groups and copies -------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    of=st.lists(st.integers(0, 30), min_size=30, max_size=90),
    copied=st.lists(st.integers(0, 29), max_size=20),
    part=st.floats(0.1, 0.4),
    seed=st.integers(0, 2**32),
)
def test_a_rate_is_chosen_on_images_of_other_groups_and_on_no_copies(
    of: list[int], copied: list[int], part: float, seed: int
) -> None:
    plain = skewed(len(of) // 2, len(of) - len(of) // 2)
    grouped = replace(plain, groups_N=np.array(of, dtype=np.uint64))
    train = grouped.take(np.array([*range(len(of)), *copied], dtype=int))
    number = round(part * len(train))
    try:
        learned, held = finetune.split(train, number)
    except UserError as error:
        parts = together(train)
        assert parts is not None and "can be held out" in str(error)
        assert all(len(np.unique(parts[train.labels_N == k])) == 1 for k in range(2))
        return
    for one, other in ((learned.groups_N, held.groups_N), (learned.content_keys_N, held.content_keys_N)):
        assert one is not None and other is not None and not np.intersect1d(one, other).size
    assert len(learned) + len(held) == len(train) and set(learned.labels_N) == {0, 1}
    shuffled = train.take(np.random.default_rng(seed).permutation(len(train)))
    again = finetune.split(shuffled, number)[1]
    np.testing.assert_array_equal(np.sort(again.content_keys_N), np.sort(held.content_keys_N))


def test_small_groups_hold_out_the_share_of_each_class_and_how_many_is_said() -> None:
    given_context, fake = context(RATES)
    train = image_set("train", 1_200)
    of = np.random.default_rng(0).permutation(1_200) // 3
    grouped = replace(given_context, load=lambda _, split: replace(train, groups_N=of) if split == "train" else train)
    (score,) = finetune.evaluate(grouped, data="toy", steps=1, batch=1, rates=(0.01, 0.03))
    held = {len(keys) for purpose, keys in fake.asked if purpose.endswith("choose")}
    assert held == {score.detail["num_held_out"]} and abs(score.detail["num_held_out"] - 120) <= 3 * CLASSES
    alone = replace(given_context, load=lambda _, split: replace(train, groups_N=np.zeros(1_200, int)))
    with pytest.raises(Unsuited, match="can be held out to choose a learning rate"):
        finetune.evaluate(alone, data="toy", steps=1, batch=1, rates=(0.01, 0.03))
    assert finetune.evaluate(alone, data="toy", steps=1, batch=1, rates=(0.01,))[0].value
