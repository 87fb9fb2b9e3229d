"""Labels from a table: each way to write one gives the same set; each mistake in one is a sentence, and nothing is left
out unsaid."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench.core.data_settings import asked_columns, remember_labels
from bench.core.errors import UserError
from bench.data import labels, pack
from bench.data.load import load
from bench.plan.grouped import name_groups
from bench.study.options import StudyOptions
from tests.data.writers import picture

CLASSES = ("daisy", "red rose")
ROWS = [(f"img_{n}", CLASSES[n % 3 == 0], ("train", "train", "test")[n // 5 % 3], f"p{n // 4}") for n in range(24)]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """24 images of shades 10, 20, … in no class folders; class 1 has every third."""
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / "cache"))
    for name in ("VIT_BENCH_GROUPS", "VIT_BENCH_LABELS"):
        monkeypatch.setenv(name, "")
    for n in range(24):
        picture(tmp_path / "photos" / ("a", "b")[n % 2] / f"img_{n}.jpg", 10 * n)
    return tmp_path


def table(path: Path, rows: list[tuple[str, ...]], header: str = "file,label") -> Path:
    path.write_text("\n".join([*header.split("\n"), *(",".join(row) for row in rows)]) + "\n", encoding="utf-8-sig")
    return path


def place(name: str) -> str:
    return f"{'ab'[int(name[4:]) % 2]}/{name}.jpg"


def labelled(root: Path, name: str = "folder:photos:16px:rgb") -> dict[int, str]:
    """Shade of each image of both splits -> its class; none is on both sides."""
    found: dict[int, str] = {}
    for split in ("train", "test"):
        images = load(name, split, root=root)
        for pixels, label in zip(np.asarray(images.images_NHWC[:]), images.labels_N, strict=True):
            shade = round(float(pixels.mean()) / 10)
            assert shade not in found
            found[shade] = images.class_names[label]
    return found


WANTED = {n: label for n, (_, label, _, _) in enumerate(ROWS)}
WAYS = {
    "path below the folder": ("file,label", lambda name: place(name), ""),
    "another's names of columns": ("image_path,species", lambda name: place(name), ""),
    "Kaggle's names without an ending": ("id,target", lambda name: name, "without an ending"),
    "name alone": ("filename,class", lambda name: f"{name}.jpg", "by name alone"),
    "elsewhere's paths": ("path,label", lambda name: f"/data/x/{name}.jpg", "by name alone"),
    "folders as on Windows": ("path,label", lambda name: place(name).replace("/", "\\"), ""),
    "another's whole path": ("path,label", lambda name: f"C:\\x\\{name}.jpg", "by name alone"),
    "beside the table": ("path,label", lambda name: f"photos/{place(name)}", "beside the table"),
}


@pytest.mark.parametrize("way", WAYS)
def test_files_and_columns_are_found_however_they_are_written(root: Path, way: str) -> None:
    header, written, said = WAYS[way]
    path = table(root / "mine.csv", [(written(name), label) for name, label, *_ in ROWS], header)
    study = StudyOptions.called(None, {"data": ["folder:photos"], "data_root": str(root), "labels": str(path)})
    what, (note,) = name_groups(study.what, study.where)
    study.where.use()
    assert labelled(root, f"{what.data[0]}:16px:rgb") == WANTED
    assert f"label = {header.partition(',')[2]}" in note and said in note and "24 images of 2 classes" in note


def test_the_same_labels_are_the_same_set_in_every_kind_of_table_and_order(root: Path) -> None:
    rows = [{"file_name": place(name), "label": label, "note": ""} for name, label, *_ in ROWS]
    frame = pd.DataFrame(rows)
    frame[::-1].to_csv(root / "a.csv", sep=";")  # with a column of row numbers
    frame.to_csv(root / "b.tsv", sep="\t", index=False)
    frame.to_json(root / "c.jsonl", orient="records", lines=True)
    frame.to_parquet(root / "d.parquet")
    (root / "e.csv").write_text("\n".join(f"{row['file_name']},{row['label']}" for row in rows))  # no header
    read = [labels.read([root / name], root / "photos") for name in ("a.csv", "b.tsv", "c.jsonl", "d.parquet", "e.csv")]
    assert len({one.word for one in read if one}) == 1 and None not in read
    other = labels.read(
        [table(root / "f.csv", [(place(n), "x" if n == "img_3" else k) for n, k, *_ in ROWS])], root / "photos"
    )
    assert other and read[0] and other.word != read[0].word


def test_labels_in_the_folder_count_by_themselves_stored_and_streamed(root: Path) -> None:
    table(root / "photos" / "labels.csv", [(place(name), label) for name, label, *_ in ROWS])
    assert labelled(root) == labelled(root, "folder:photos:16px:rgb:stream") == WANTED
    images = load("folder:photos:16px:rgb", "train", root=root)
    assert "labels from labels.csv (file = file, label = label)" in images.source
    table(root / "photos" / "labels.csv", [(place(name), f"{label} 2") for name, label, *_ in ROWS])
    assert labelled(root)[0] == "red rose 2"  # what was cached for other labels is not taken for these


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_metadata_as_imagefolder_has_it_with_a_file_per_split(root: Path, ending: str) -> None:
    (root / "photos" / "a").rename(root / "photos" / "train")
    (root / "photos" / "b").rename(root / "photos" / "test")
    for split, odd in (("train", 0), ("test", 1)):
        rows = [{"file_name": f"{name}.jpg", "label": label} for name, label, *_ in ROWS[odd::2]]
        path = root / "photos" / split / f"metadata.{ending}"
        if ending == "csv":
            pd.DataFrame(rows).to_csv(path, index=False)
        else:
            path.write_text("\n".join(json.dumps(row) for row in rows))
    assert labelled(root) == WANTED
    assert len(load("folder:photos:16px:rgb", "test", root=root)) == 12


def test_metadata_of_captions_leaves_class_folders_as_they_are(root: Path) -> None:
    table(root / "photos" / "metadata.csv", [(place(n), "a flower") for n, *_ in ROWS], "file_name,text")
    assert set(labelled(root).values()) == {"a", "b"}


def test_a_column_divides_the_images_and_another_keeps_patients_together(root: Path) -> None:
    rows = [(place(name), *rest) for name, *rest in ROWS]
    table(root / "photos" / "labels.csv", [row[:3] for row in rows], "file,label,split")
    test = {round(float(x.mean()) / 10) for x in np.asarray(load("folder:photos:16px", "test", root=root).images_NHWC)}
    assert test == {n for n, row in enumerate(ROWS) if row[2] == "test"}
    table(root / "photos" / "labels.csv", [(a, b, d) for a, b, _, d in rows], "file,label,patient_id")
    sides = [load("folder:photos:16px", split, root=root) for split in ("train", "test")]
    of = [{round(float(x.mean()) / 10) // 4 for x in np.asarray(one.images_NHWC)} for one in sides]
    assert of[0] and of[1] and not of[0] & of[1]
    assert sides[0].groups_N is not None and len(set(sides[0].groups_N.tolist())) == len(of[0])


def test_groups_that_cross_the_split_of_a_table_are_named(root: Path) -> None:
    rows = [(place(name), *rest) for name, *rest in ROWS]
    table(root / "photos" / "labels.csv", rows, "file,label,split,patient_id")
    with pytest.raises(
        UserError, match=r"groups in both splits of the table: group p\d.*\n?.*take the column of splits"
    ):
        load("folder:photos:16px", "train", root=root)


def test_rows_and_images_that_are_left_out_are_counted(root: Path) -> None:
    rows = [(place(n), "" if n == "img_5" else label, split) for n, label, split, _ in ROWS[:20]]
    rows[1] = (*rows[1][:2], "val")
    table(root / "photos" / "labels.csv", rows, "file,label,split")
    said = load("folder:photos:16px", "train", root=root).source
    for part in (
        "1 row without a label left out",
        "1 image of val left out, as test is there",
        "4 images without a row left out",
        "18 images of 2 classes",
        "1 class of fewer than 10 images: red rose 7",
    ):
        assert part in said


BAD = {
    "a file that is not there": (
        [("a/img_0.jpg", "x"), ("a/gone.jpg", "y")],
        "",
        r"names 1 file that .*photos does not have: a/gone",
    ),
    "no file at all": ([("q.jpg", "x"), ("w.jpg", "y")], "", r"No column of .* names an image of .*photos"),
    "two spellings": (
        [("a/img_0.jpg", "Red fox"), ("b/img_1.jpg", "red_fox")],
        "",
        r"two ways: 'Red fox' \(1\) and 'red_fox' \(1 image\)\.",
    ),
    "two numbers": ([("a/img_0.jpg", "1"), ("b/img_1.jpg", "01"), ("a/img_2.jpg", "1")], "", r"'1' \(2\) and '01'"),
    "two labels": ([("a/img_0.jpg", "x"), ("a/img_0.jpg", "y")], "", r"gives 1 image different labels"),
    "a table that is not there": ([("absent",)], "", r"There is no table .*absent\.csv"),
    "other text than UTF-8": ([("latin-1",)], "", r"mine\.csv is not text in UTF-8"),
    "one label": ([("a/img_0.jpg", "x"), ("b/img_1.jpg", "x")], "", r"images of one label only: x"),
    "an unknown label": (
        [("a/img_0.jpg", "x", "train"), ("b/img_1.jpg", "y", "train"), ("a/img_2.jpg", "z", "test")],
        "file,label,split",
        r"tests 1 label that no training image has: z",
    ),
    "rows of no split": ([("a/img_0.jpg", "x", "train"), ("b/img_1.jpg", "y", "")], "file,label,split", r"of no split"),
    "no column that is likely": (
        [("a/img_0.jpg", "1", "b")],
        "file,height,note",
        r"Which column .*'file'.*'height', 'note'",
    ),
    "no rows": ([], "", "has no rows"),
    "a row too long": ([("a/img_0.jpg", "a", "b", "c")], "", "has 4 fields"),
}


@pytest.mark.parametrize("mistake", BAD)
def test_mistakes_are_one_sentence(root: Path, mistake: str) -> None:
    rows, header, said = BAD[mistake]
    path = table(root / "mine.csv", rows, header or "file,label")
    if rows == [("absent",)]:
        path = root / "absent.csv"
    if rows == [("latin-1",)]:
        path.write_bytes("file,label\na/img_0.jpg,caf\xe9\n".encode("latin-1"))
    with pytest.raises(UserError, match=said) as caught:
        labels.read([path], root / "photos")
    assert caught.value.fix and "\n" not in caught.value.what


def test_a_folder_that_has_no_file_of_a_name_once_says_so(root: Path) -> None:
    picture(root / "photos" / "b" / "img_0.jpg", 1)
    path = table(root / "mine.csv", [(f"{name}.jpg", label) for name, label, *_ in ROWS])
    with pytest.raises(UserError, match=r"names 1 file that several folders have: img_0\.jpg"):
        labels.read([path], root / "photos")


def test_letters_and_listed_classes_may_differ_in_their_case_alone(root: Path) -> None:
    rows = [(place(name), ("a", "A", "Polish", "polish")[n % 4]) for n, (name, *_) in enumerate(ROWS)]
    path = table(root / "mine.csv", rows)
    with pytest.raises(UserError, match=r"'Polish'.*'polish'"):
        labels.read([path], root / "photos")
    (root / "classes.txt").write_text("a\nA\nPolish\npolish\n")
    made = labels.read([path], root / "photos")
    assert made is not None and {label for (label,) in made.labels} == {"a", "A", "Polish", "polish"}


def test_columns_can_be_named_and_a_name_that_is_none_is_refused(root: Path) -> None:
    rows = [(place(name), label, f"{n % 2}") for n, (name, label, *_) in enumerate(ROWS)]
    path = table(root / "mine.csv", rows, "file,label,toxic")
    made = labels.read([path], root / "photos", asked_columns(["label=toxic"]))
    assert made is not None and {label for (label,) in made.labels} == {"0", "1"}
    for wrong, said in ((["label=toxix"], "toxic"), (["lable=toxic"], "label"), (["toxic"], "ROLE=COLUMN")):
        with pytest.raises(UserError, match=said):
            labels.read([path], root / "photos", asked_columns(wrong))


def test_labels_that_have_changed_are_not_taken_for_those_of_a_name(root: Path) -> None:
    path = table(root / "mine.csv", [(place(name), label) for name, label, *_ in ROWS])
    made = labels.read([path], root / "photos")
    assert made is not None
    remember_labels(path, [])
    assert labelled(root, f"folder:photos:{made.word}:16px:rgb") == WANTED
    table(path, [(place(name), label) for name, label, *_ in ROWS[1:]])
    with pytest.raises(UserError, match=r"mine\.csv has changed"):
        load(f"folder:photos:{made.word}:20px:rgb", "test", root=root)


def test_a_labelled_folder_is_packed_as_it_is_labelled(root: Path) -> None:
    table(root / "photos" / "labels.csv", [(place(name), label) for name, label, *_ in ROWS])
    pack.pack("folder:photos", root / "packed", root=root)
    assert labelled(root, "folder:packed:16px:rgb") == WANTED


# -- several labels an image -------------------------------------------------------------------------------------------

TAGS = {f"img_{n}": [tag for k, tag in enumerate(("fog", "haze", "sun")) if n % (k + 2) == 0] for n in range(24)}


def tagged(root: Path) -> dict[int, set[str]]:
    """Shade of each image of both splits -> its labels."""
    found: dict[int, set[str]] = {}
    for split in ("train", "test"):
        images = load("folder:photos:16px:rgb", split, root=root)
        assert images.several
        for pixels, row_K in zip(np.asarray(images.images_NHWC[:]), images.targets_NK, strict=True):
            names = {images.class_names[k] for k in np.flatnonzero(row_K)}
            assert found.setdefault(round(float(pixels.mean()) / 10), names) is names
    return found


@pytest.mark.parametrize("how", ["bars", "blanks", "lists", "columns"])
def test_several_labels_of_an_image_are_read_however_they_are_written(root: Path, how: str) -> None:
    names = sorted({tag for tags in TAGS.values() for tag in tags})
    path = root / "photos" / ("labels.jsonl" if how == "lists" else "labels.csv")
    if how == "lists":
        path.write_text("\n".join(json.dumps({"file": place(n), "labels": tags}) for n, tags in TAGS.items()))
    elif how == "columns":
        table(
            path,
            [(n, *(str(int(name in tags)) for name in names)) for n, tags in TAGS.items()],
            f"id,{','.join(names)}",
        )
    else:
        separator = {"bars": "|", "blanks": " "}[how]
        table(path, [(n, separator.join(tags)) for n, tags in TAGS.items()], "image_name,tags")
    assert tagged(root) == {n: set(TAGS[f"img_{n}"]) for n in range(24)}
    train = load("folder:photos:16px:rgb", "train", root=root)
    rarest = min(names, key=lambda name: sum(name in tags for tags in TAGS.values()))
    assert {
        train.class_names[k]
        for k, row in zip(train.labels_N, train.targets_NK, strict=True)
        if row[names.index(rarest)]
    } == {rarest}
    bare = sum(not tags for tags in TAGS.values())
    assert f"24 images of 3 labels, {bare} of them without any" in train.source
    part = train.take(np.array([3, 0]))
    np.testing.assert_array_equal(part.targets_NK, train.targets_NK[[3, 0]])


def test_other_labels_of_the_same_images_are_another_content(root: Path) -> None:
    hashes = set()
    for extra in ("fog", "sun"):
        rows = [(n, "|".join([*tags, extra] if n == "img_23" else tags)) for n, tags in TAGS.items()]
        table(root / "photos" / "labels.csv", rows, "image_name,tags")
        hashes.add(tuple(load("folder:photos:16px:rgb", s, root=root).content_hash for s in ("train", "test")))
    assert len(hashes) == 2


def test_a_column_of_names_with_blanks_holds_one_label_each(root: Path) -> None:
    rows = [(place(n), ("great dane", "basset hound")[k % 2]) for k, n in enumerate(TAGS)]
    made = labels.read([table(root / "mine.csv", rows, "file,labels")], root / "photos")
    assert made is not None and not made.several
