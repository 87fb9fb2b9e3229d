"""Groups of images: none lies on both sides, and the division follows from names and numbers alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bench.core.errors import UserError
from bench.data import groups
from bench.data.load import load
from bench.data.subset import HELD_OUT, held_out
from bench.plan.grouped import name_groups
from bench.study.options import StudyOptions

CLASSES = ("a", "b", "c")


@st.composite
def grouped(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Labels and groups; a group may have images of several classes."""
    number = draw(st.integers(3, 60))
    labels = draw(st.lists(st.integers(0, 2), min_size=number, max_size=number))
    of = draw(st.lists(st.integers(1, 12), min_size=number, max_size=number))
    return np.array([*labels, 0, 1, 2]), np.array([*of, 13, 14, 15], dtype=np.uint64)


@given(grouped(), st.randoms())
def test_groups_are_on_one_side_classes_on_both_in_any_order(images: tuple[np.ndarray, np.ndarray], random) -> None:
    labels, of = images
    try:
        test = groups.hold_out(labels, of, classes=CLASSES, where="x")
    except UserError:  # each class has a group of its own beside others: only one without others cannot be divided
        assert min(len(np.unique(of[labels == k])) for k in range(3)) == 1
        return
    assert not np.intersect1d(of[test], of[~test]).size
    assert set(labels[test]) == set(labels[~test]) == {0, 1, 2}
    order = np.array(random.sample(range(len(labels)), len(labels)))
    assert (groups.hold_out(labels[order], of[order], classes=CLASSES, where="x") == test[order]).all()


@given(st.lists(st.integers(1, 6), min_size=60, max_size=120), st.integers(0, 2**32))
def test_small_groups_are_held_out_in_the_share_that_is_wanted(sizes: list[int], seed: int) -> None:
    keys = np.random.default_rng(seed).integers(0, 2**63, len(sizes)).astype(np.uint64)
    labels, of = np.repeat(np.arange(len(sizes)) % 3, sizes), np.repeat(keys, sizes)
    held = np.bincount(labels[groups.hold_out(labels, of, classes=CLASSES, where="x")], minlength=3)
    assert (abs(held - HELD_OUT * np.bincount(labels)) <= 6).all()


@given(st.lists(st.integers(0, 2), min_size=20, max_size=80), st.integers(0, 2**32))
def test_images_that_each_stand_alone_are_divided_as_without_groups(labels: list[int], seed: int) -> None:
    labels_N = np.array([*labels, 0, 1, 2, 0, 1, 2])
    keys = np.random.default_rng(seed).integers(0, 2**63, len(labels_N)).astype(np.uint64)
    alone = groups.hold_out(labels_N, keys, classes=CLASSES, where="x")
    np.testing.assert_array_equal(alone, held_out(labels_N, keys))


# -- folders -----------------------------------------------------------------------------------------------------------

ROWS = [(f"{label}/{n}.png", f"camera {n // 4}") for label in CLASSES for n in range(44)]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three classes of 46 flat images, each of a brightness that is its number; two of each have no group."""
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("VIT_BENCH_GROUPS", raising=False)
    for label in CLASSES:
        (tmp_path / "photos" / label).mkdir(parents=True)
        for n in range(46):
            Image.new("RGB", (40, 40), (5 * n, 5 * n, 80 * CLASSES.index(label))).save(
                tmp_path / "photos" / label / f"{n}.png"
            )
    return tmp_path


def write(path: Path, rows: list[tuple[str, str]], header: str = "file,group") -> Path:
    path.write_text("\n".join([header, *(",".join(row) for row in rows)]), encoding="utf-8-sig")
    return path


def held_out_of(root: Path, name: str) -> set[tuple[int, int]]:
    """(class, number) of the test images, after checks of both splits."""
    sides = []
    for images in (load(name, split, root=root) for split in ("train", "test")):
        numbers = np.asarray(images.images_NHWC[:])[:, 5, 5, 0] // 5
        assert images.groups_N is not None
        for group in np.unique(images.groups_N):
            assert len(set(numbers[images.groups_N == group] // 4)) == 1
        sides.append({*zip(images.labels_N.tolist(), numbers.tolist(), strict=True)})
    assert not {n // 4 for _, n in sides[0] if n < 44} & {n // 4 for _, n in sides[1] if n < 44}
    assert len(sides[0] | sides[1]) == 3 * 46
    return sides[1]


def test_a_folder_is_divided_alike_at_every_size_stored_or_streamed_and_by_a_file_elsewhere(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = write(root / "photos" / "groups.csv", ROWS)
    wanted = held_out_of(root, "folder:photos:20px:rgb")
    assert 3 <= len(wanted) <= 30
    assert held_out_of(root, "folder:photos:32px:rgb:stream") == wanted
    word = groups.read(inside).word
    inside.unlink()
    monkeypatch.setenv("VIT_BENCH_GROUPS", str(write(root / "mine.csv", ROWS[::-1])))
    assert held_out_of(root, f"folder:photos:{word}:20px:rgb") == wanted
    assert load("folder:photos:20px:rgb", "test", root=root).groups_N is None
    write(root / "mine.csv", ROWS[1:])
    with pytest.raises(UserError, match=r"mine\.csv has changed"):
        load(f"folder:photos:{word}:20px:rgb", "test", root=root)


@pytest.mark.parametrize(
    ("rows", "header", "said"),
    [
        (ROWS, "file,patient", "'group'"),
        ([(f"b/x{n}.png", "g") for n in range(5)], "file,group", r"names 5 files .*: b/x0.png, b/x1.png, b/x2.png, …"),
        ([(f"../photos/{f}", g) for f, g in ROWS], "file,group", r"names 132 files .*: \.\./photos/a/0.png, "),
        ([("a/1.png", "g"), ("./a/1.png", "h")], "file,group", "puts 1 image into several groups: a/1.png"),
        ([(f"a/{n}.png", "g") for n in range(46)], "file,group", "46 images of class a are of 1 group"),
    ],
)
def test_a_mistake_is_one_error(root: Path, rows: list[tuple[str, str]], header: str, said: str) -> None:
    write(root / "photos" / "groups.csv", rows, header)
    with pytest.raises(UserError, match=said):
        load("folder:photos:20px", "train", root=root)


def test_paths_from_elsewhere_are_no_images_without_a_group(root: Path) -> None:
    write(root / "photos" / "groups.csv", [(f"{root}/photos/{file}", group) for file, group in ROWS])
    with pytest.raises(UserError, match="names 132 files"):
        load("folder:photos:20px", "train", root=root)


def test_groups_that_cross_a_published_split_are_named(root: Path) -> None:
    (root / "photos").rename(root / "train")
    (root / "photos").mkdir()
    (root / "train").rename(root / "photos" / "train")
    for label in CLASSES:
        (root / "photos" / "test" / label).mkdir(parents=True)
        for n in (0, 1, 44):
            place = root / "photos" / "train" / label / f"{n}.png"
            place.rename(root / "photos" / "test" / label / f"{n}.png")
    rows = [(f"{'test' if int(Path(f).stem) < 2 else 'train'}/{f}", group) for f, group in ROWS]
    write(root / "photos" / "groups.csv", rows)
    with pytest.raises(UserError, match="1 group in both splits of the folder: group camera 0"):
        load("folder:photos:20px", "train", root=root)
    write(root / "photos" / "groups.csv", [row for row in rows if row[1] != "camera 0"])
    assert counts_of(root) == (3 * 43, 3 * 3)


def counts_of(root: Path) -> tuple[int, ...]:
    return tuple(len(load("folder:photos:20px", split, root=root)) for split in ("train", "test"))


def test_a_plan_names_the_groups_and_a_study_file_repeats_them(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"data": ["folder:photos@30"], "data_root": root, "groups": write(root / "mine.csv", ROWS)}
    monkeypatch.setenv("VIT_BENCH_GROUPS", "")  # which a command sets
    given = StudyOptions.called(None, asked)
    given.where.use()
    what, notes = name_groups(given.what, given.where)
    options = replace(given, what=what)
    word = groups.read(root / "mine.csv").word
    assert what.data == (f"folder:photos:{word}@30",) and len(notes) == 1
    assert f'groups = "{root}/mine.csv"' in options.to_toml() and word in options.to_toml()
    assert name_groups(what, given.where)[0].data == what.data
    write(root / "mine.csv", ROWS[1:])
    with pytest.raises(UserError, match="has changed"):
        name_groups(what, given.where)
    with pytest.raises(UserError, match="--groups is about a folder"):
        name_groups(replace(what, data=("digits",)), given.where)
