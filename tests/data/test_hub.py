"""Data sets of the Hugging Face hub, from one on this machine that has its addresses and answers."""

import io
import re
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.core.errors import UserError
from bench.core.formatting import data_size
from bench.data import __main__ as verb
from bench.data import hub as hub_module
from bench.data import vtab
from bench.data.identity import digest
from bench.data.load import load, look
from bench.data.public import ROWS
from tests.data import writers
from tests.data.hub_server import Hub, files_in, serving

pytest.importorskip("huggingface_hub")
pytest.importorskip("pyarrow")
OLD, NEW = "3fbd1f2" + "0" * 33, "96c3ed2" + "1" * 33
PARTS = writers.make(24)
NAME = "some-one/tiny.set"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield running


@pytest.fixture
def parquet(tmp_path: Path) -> dict[str, bytes]:
    """A set as the hub ships it."""
    writers.as_parquet(tmp_path / "made" / "data", PARTS)
    return {"README.md": b"# tiny", ".gitattributes": b"", **files_in(tmp_path / "made")}


def download(name: str, root: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The printed text."""
    verb.main([f"hf:{name}", "--download", "--data-root", str(root)])
    both = capsys.readouterr()
    return both.err + both.out


def test_the_newest_commit_is_fetched_and_named(hub, parquet, tmp_path, capsys):
    hub.commits = {(NAME, OLD): {"data/train-0.parquet": b"old"}, (NAME, NEW): parquet}
    root = tmp_path / "root"
    said = download(f"{NAME}:8px:grey", root, capsys)
    size = sum(len(data) for name, data in parquet.items() if name.endswith(".parquet"))
    assert f"hf:{NAME}:{NEW}:8px:grey: {data_size(size)} to fetch" in said and "licence mit" in said
    assert "copied out of Parquet once: as much again in" in said
    place = root / "hf" / "some-one--tiny.set"
    assert sorted(path.name for path in (place / NEW / "data").iterdir()) == sorted(
        name.removeprefix("data/") for name in parquet if name.endswith(".parquet")
    )
    asked = len(hub.sent)
    for revision in (NEW, NEW[:7]):
        images = load(f"hf:{NAME}:{revision}:8px:grey", "train", root=root)
        assert images.images_NHWC.shape == (24, 8, 8, 1)
    again = load("folder:made:8px:grey", "train", root=tmp_path)
    assert images.content_hash == again.content_hash and images.name == f"hf:{NAME}:{NEW[:7]}:8px:grey"
    assert look(f"hf:{NAME}:{NEW}", root=root) == (8, 1)
    assert len(hub.sent) == asked  # nothing but a download asks the hub


def test_a_commit_a_branch_and_what_is_neither(hub, parquet, tmp_path, capsys):
    hub.commits = {(NAME, OLD): parquet, (NAME, NEW): {"README.md": b""}}
    said = download(f"{NAME}:{OLD[:8]}", tmp_path, capsys)
    assert f"hf:{NAME}:{OLD}: " in said and f"hf:{NAME}:{OLD}:224px:stream: " in said  # looked into, of whatever size
    with pytest.raises(UserError, match=rf"names no commit.*\n.*Here: hf:{NAME}:{OLD}\."):
        load(f"hf:{NAME}:main", "train", root=tmp_path)
    with pytest.raises(UserError, match=r"is not, or not wholly, below .*\n.*--download"):
        load(f"hf:{NAME}:{NEW}", "train", root=tmp_path)
    wrong = {"main": "holds no .*README", "abcdef1": "no commits that begin", "v9": "does not give"}
    for revision, match in wrong.items():
        refused(f"hf:{NAME}:{revision}", tmp_path, capsys, match)
    refused("hf:nobody/nothing", tmp_path, capsys, "does not give nobody/nothing")


def refused(name: str, root: Path, capsys: pytest.CaptureFixture[str], match: str) -> None:
    """It cannot be downloaded, and one message says why."""
    capsys.readouterr()
    assert verb.main([name, "--download", "--data-root", str(root)]) == 2
    assert re.search(match, said := capsys.readouterr().err), said


def test_what_is_half_there_is_not_there_and_is_continued(hub, parquet, tmp_path, capsys):
    hub.commits = {(NAME, NEW): parquet}
    hub.stop_after = 500
    assert verb.main([f"hf:{NAME}", "--download", "--data-root", str(tmp_path)]) == 2
    with pytest.raises(UserError, match="not wholly"):
        load(f"hf:{NAME}:{NEW}", "train", root=tmp_path)
    hub.stop_after = None
    assert verb.main([f"hf:{NAME}", "--download", "--data-root", str(tmp_path)]) == 0
    (part,) = (tmp_path / "hf").rglob("train*.parquet")
    part.write_bytes(part.read_bytes()[:-1])  # a copy that was cut short
    with pytest.raises(UserError, match="not wholly"):
        load(f"hf:{NAME}:{NEW}", "train", root=tmp_path)
    refused(f"hf:{NAME}:{NEW}", tmp_path, capsys, "its checksum differs")


@pytest.mark.parametrize("large", [True, False])
def test_what_the_hub_states_is_checked(hub, parquet, tmp_path, capsys, large):
    """A file in large-file storage against its sha256, another against git's sha1: other bytes of the same size."""
    hub.commits = {(NAME, NEW): parquet | {"classes.txt": b"zero\none\ntwo\n"}}
    wrong = next(name for name in parquet if name.endswith(".parquet")) if large else "classes.txt"
    hub.lies = {wrong: b"x" * len(hub.commits[NAME, NEW][wrong])}
    refused(f"hf:{NAME}", tmp_path, capsys, "is not the published file: its checksum differs")
    assert not list((tmp_path / "hf").rglob(Path(wrong).name)), "nothing wrong lies under its name"
    hub.lies = {}
    assert verb.main([f"hf:{NAME}", "--download", "--data-root", str(tmp_path)]) == 0


def test_a_set_that_asks_for_a_token(hub, parquet, tmp_path, capsys, monkeypatch):
    hub.commits, hub.token = {(NAME, NEW): parquet}, "hf_secret"
    refused(f"hf:{NAME}", tmp_path, capsys, r"(?s)does not give.*hf auth login")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.sent.clear()
    assert "hf_secret" not in download(NAME, tmp_path, capsys)
    assert "Bearer hf_secret" in {token for path, token in hub.sent if path.startswith("/datasets/")}


@pytest.mark.parametrize("name", ["../escape.parquet", "/etc/escape.parquet", "a\\..\\b.parquet", "\x1b[2J.parquet"])
def test_hostile_names_are_refused(hub, tmp_path, capsys, name):
    hub.commits = {(NAME, NEW): {name: b"x", "train.parquet": b"x"}}
    refused(f"hf:{NAME}", tmp_path, capsys, "points out of its folder")
    assert not list(tmp_path.rglob("*escape*"))


def test_configurations_and_splits(hub, tmp_path, capsys):
    """One configuration of several, and the labelled split of two for testing."""
    writers.as_parquet(tmp_path / "made" / "small", PARTS)
    writers.as_parquet(tmp_path / "made" / "large", writers.make(36))
    files = files_in(tmp_path / "made")
    test = next(name for name in files if name.startswith("small/test"))
    files["small/validation-0.parquet"] = files[test]
    files[test] = b"without labels"
    hub.commits = {(NAME, NEW): files}
    paths = {
        name: [{"split": "train", "path": f"{name}/train-*"}, {"split": "rest", "path": [f"{name}/[tv]*"]}]
        for name in ("small", "large")
    }
    hub.cards = {NAME: {"configs": [{"config_name": name, "data_files": some} for name, some in paths.items()]}}
    refused(f"hf:{NAME}", tmp_path, capsys, "config=small, config=large")
    said = download(f"{NAME}:config=small:test=validation", tmp_path, capsys)
    assert f"hf:{NAME}:{NEW}:config=small:test=validation" in said and Path(test).name not in said
    chosen = f"hf:{NAME}:{NEW}:config=small:test=validation:8px"
    splits = [load(chosen, split, root=tmp_path) for split in ("train", "test")]
    assert [len(images) for images in splits] == [24, len(PARTS["test"][1])]
    with pytest.raises(UserError, match="not wholly"):  # another selection is another download
        load(f"hf:{NAME}:{NEW}:config=large", "train", root=tmp_path)
    with pytest.raises(UserError, match="'dev' names no test split"):
        load(f"hf:{NAME}:{NEW}:test=dev", "train", root=tmp_path)


@pytest.mark.parametrize("writer", ["as_folder", "as_tar"])
def test_image_files_and_shards(hub, tmp_path, capsys, writer):
    getattr(writers, writer)(tmp_path / "made", PARTS)
    hub.commits = {(NAME, NEW): files_in(tmp_path / "made")}
    download(f"{NAME}:8px", tmp_path, capsys)
    here = load(f"hf:{NAME}:{NEW}:8px:stream", "test", root=tmp_path)
    assert here.content_hash == load("folder:made:8px:stream", "test", root=tmp_path).content_hash
    assert np.array_equal(here.labels_N, load("folder:made:8px:stream", "test", root=tmp_path).labels_N)


def test_a_card_is_not_trusted():
    assert hub_module._licence({"license": "\x1b[2J"}) == "none stated on the hub"
    assert hub_module._licence({"license": ["mit", "cc0"]}) == "mit, cc0"


# VTAB's tasks: rows of the table.


def test_every_task_of_vtab_has_both_copies():
    from bench.tasks.vtab import VTAB, group_of, may_flip, task_names

    assert set(vtab.TASKS) == set(task_names(VTAB))
    for name, task in vtab.TASKS.items():
        for prefix in ("vtab-", "vtab1k-"):
            row, own = ROWS[prefix + name], ROWS[name]
            assert (row.licence, row.classes, row.kind) == (own.licence, own.classes, own.kind)
            assert (group_of(row.name), may_flip(row.name)) == (group_of(name), may_flip(name))
        assert not task.commit or hub_module.COMMIT.fullmatch(task.commit)
        assert ("not verified" in ROWS[f"vtab-{name}"].pinned) == (not task.commit)
        # the training part is that of the own row, or a part of it; the test part is the same but where a hash divides
        assert task.images[0] <= own.images[0]


def wds(split: str, images: np.ndarray, labels: np.ndarray) -> dict[str, bytes]:
    """As CLIP-benchmark's converter writes a split: lossless WebP beside its class, in `SPLIT/0.tar`."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for number, (pixels, label) in enumerate(zip(images, labels, strict=True)):
            webp = io.BytesIO()
            Image.fromarray(pixels).save(webp, "WEBP", lossless=True)
            writers.add(tar, f"s{number:07d}.cls", str(label).encode())
            writers.add(tar, f"s{number:07d}.webp", webp.getvalue())
    return {f"{split}/0.tar": data.getvalue(), f"{split}/nshards.txt": b"1\n"}


@pytest.mark.parametrize(
    "row, values",
    [("vtab-eurosat", 10), ("vtab-dsprites-location", 32), ("dsprites-location", 32), ("vtab-dtd", 47), ("dmlab", 6)],
)
def test_shards_of_a_task(hub, tmp_path, capsys, row, values):
    """Under VTAB's name, and under the plain name of a set that no library reads."""
    name = row.removeprefix("vtab-")
    task, side = vtab.TASKS[name], 16
    commit = (task.commit or "abcdef0").ljust(40, "0")
    parts = {split: made for split, made in writers.make(3 * values, classes=values, side=side, channels=3).items()}
    hub.commits = {(task.repo, commit): {"classnames.txt": "\n".join(f"kind {n}" for n in range(values)).encode()}}
    for split, (images, labels) in parts.items():
        hub.commits[task.repo, commit] |= wds(split, images, labels)
    assert not ROWS[row].available(tmp_path)
    with pytest.raises(UserError, match="--download"):
        load(row, "train", root=tmp_path)
    assert verb.main([f"{row}:16px", "--download", "--data-root", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert f"licence {ROWS[row].licence}" in said.err and f"commit {commit}" in said.err
    images = load(f"{row}:16px", "train", root=tmp_path)
    assert images.num_classes == ROWS[row].classes and images.kind == ROWS[name].kind and commit in images.source
    assert images.class_names[1] == ("kind 1" if name != "dsprites-location" else "1")
    pairs = zip(images.images_NHWC, images.labels_N.tolist(), strict=True)
    stored = {pixels.tobytes(): label for pixels, label in pairs}
    for pixels, label in zip(*parts["train"], strict=True):
        assert stored[pixels.tobytes()] == (label * 16 // 32 if name == "dsprites-location" else label)
    assert len(load(f"{row}:16px", "test", root=tmp_path)) == len(parts["test"][0])
    assert (digest(f"{row}:16px", root=tmp_path) is None) == bool(task.commit)  # which says what the images are
    assert digest(f"{row}:16px", root=None) is None


def test_another_set_than_the_task_s_is_refused(hub, tmp_path, capsys):
    task = vtab.TASKS["eurosat"]
    commit = task.commit.ljust(40, "0")
    hub.commits = {(task.repo, commit): {}}
    for split, part in writers.make(9, side=16, channels=3).items():
        hub.commits[task.repo, commit] |= wds(split, *part)
    refused("vtab-eurosat:16px", tmp_path, capsys, "has 3 classes; vtab-eurosat has 10")


def test_vtab_1k_takes_the_official_lists(tmp_path):
    below = tmp_path / "vtab-1k" / "oxford_iiit_pet"
    for part, numbers in (("train800val200", range(4)), ("test", range(4, 6))):
        lines = []
        for number in numbers:
            writers.picture(below / "images" / part / f"{number:06d}.jpg", 10 * number)
            lines.append(f"images/{part}/{number:06d}.jpg {number}\n")
        (below / f"{part}.txt").write_text("".join(lines))
    train, test = (load("vtab1k-pets:16px", split, root=tmp_path) for split in ("train", "test"))
    assert train.labels_N.tolist() == [0, 1, 2, 3] and writers.shades(train) == [0, 10, 20, 30]
    assert test.labels_N.tolist() == [4, 5] and train.num_classes == 37
    before = digest("vtab1k-pets:16px", root=tmp_path)
    writers.picture(below / "images" / "test" / "000005.jpg", 200)
    assert before != digest("vtab1k-pets:16px", root=tmp_path) and digest("vtab1k-dtd", root=tmp_path) is None
    wrong = {"../../x.jpg 1": "not the name", "a.jpg 37": "classes are 0 to 36", "a.jpg": "not the name"}
    for line, match in wrong.items():
        (below / "test.txt").write_text(line + "\n")
        with pytest.raises(UserError, match=match):
            load("vtab1k-pets:16px", "test", root=tmp_path)


def test_the_archive_of_vtab_1k_is_fetched_once_for_all_tasks(hub, tmp_path, capsys):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in ("pets", "dtd"):
            folder = f"vtab-1k/{vtab.TASKS[name].folder}"
            for part in ("train800val200", "test"):
                picture = io.BytesIO()
                Image.new("RGB", (8, 8), (len(part), 0, 0)).save(picture, "JPEG")
                archive.writestr(f"{folder}/images/{part}/000000.jpg", picture.getvalue())
                archive.writestr(f"{folder}/{part}.txt", f"images/{part}/000000.jpg 0\n")
    hub.commits = {(vtab.VTAB_1K.repo, NEW): {"vtab-1k.zip": packed.getvalue()}}
    assert verb.main(["vtab1k-pets:8px", "--download", "--data-root", str(tmp_path)]) == 0
    assert f"{data_size(2 * len(packed.getvalue()))} of disk" in capsys.readouterr().err
    assert len(load("vtab1k-dtd:8px", "train", root=tmp_path)) == 1
