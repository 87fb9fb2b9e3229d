"""Data sets of the Hugging Face hub, from one on this machine that has its addresses and answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from bench.core.errors import UserError
from bench.core.formatting import data_size
from bench.data import __main__ as verb
from bench.data import hub as hub_module
from bench.data.load import load, look
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
    """What was printed."""
    verb.main([f"hf:{name}", "--download", "--data-root", str(root)])
    both = capsys.readouterr()
    return both.err + both.out


def test_the_newest_commit_is_fetched_and_named(hub, parquet, tmp_path, capsys):
    hub.commits = {(NAME, OLD): {"data/train-0.parquet": b"old"}, (NAME, NEW): parquet}
    root = tmp_path / "root"
    said = download(f"{NAME}:8px:grey", root, capsys)
    size = sum(len(data) for name, data in parquet.items() if name.endswith(".parquet"))
    assert f"hf:{NAME}:{NEW}:8px:grey: {data_size(size)} to fetch" in said and "licence mit" in said
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
    assert f"hf:{NAME}:{OLD}: " in download(f"{NAME}:{OLD[:8]}", tmp_path, capsys)
    with pytest.raises(UserError, match=rf"names no commit.*\n.*Here: hf:{NAME}:{OLD}\."):
        load(f"hf:{NAME}:main", "train", root=tmp_path)
    with pytest.raises(UserError, match=r"is not, or not wholly, below .*\n.*--download"):
        load(f"hf:{NAME}:{NEW}", "train", root=tmp_path)
    wrong = {"main": "holds no .*README", "abcdef1": "no commits that begin", "v9": "does not give"}
    for revision, match in wrong.items():
        assert verb.main([f"hf:{NAME}:{revision}", "--download", "--data-root", str(tmp_path)]) == 2
        assert_said(capsys, match)
    assert verb.main(["hf:nobody/nothing", "--download", "--data-root", str(tmp_path)]) == 2
    assert_said(capsys, "does not give nobody/nothing")


def assert_said(capsys: pytest.CaptureFixture[str], match: str) -> None:
    said = capsys.readouterr().err
    assert re.search(match, said), said


def test_what_is_half_there_is_not_there_and_is_continued(hub, parquet, tmp_path, capsys):
    hub.commits = {(NAME, NEW): parquet}
    hub.stop_after = 500
    assert verb.main([f"hf:{NAME}", "--download", "--data-root", str(tmp_path)]) == 2
    with pytest.raises(UserError, match="not wholly"):
        load(f"hf:{NAME}:{NEW}", "train", root=tmp_path)
    hub.stop_after = None
    assert "checksum right" in download(NAME, tmp_path, capsys)
    (part,) = (tmp_path / "hf").rglob("train*.parquet")
    part.write_bytes(part.read_bytes()[:-1])  # a copy that was cut short
    with pytest.raises(UserError, match="not wholly"):
        load(f"hf:{NAME}:{NEW}", "train", root=tmp_path)
    assert verb.main([f"hf:{NAME}:{NEW}", "--download", "--data-root", str(tmp_path)]) == 2
    assert_said(capsys, "its checksum differs")


def test_another_file_than_the_hub_states_is_refused(hub, parquet, tmp_path, capsys):
    hub.commits = {(NAME, NEW): parquet | {"classes.txt": b"zero\none\ntwo\n"}}
    plan = verb._download_of(f"hf:{NAME}")
    assert {file.checksum.partition(":")[0] for file in plan.files} == {"sha256", "git"}
    for name in hub.commits[NAME, NEW]:
        hub.commits[NAME, NEW][name] = b"x" * len(hub.commits[NAME, NEW][name])
    for file in plan.files:
        with pytest.raises(UserError, match="is not the published file"):
            verb.fetch.fetch(file, tmp_path)


def test_a_token_is_for_the_hub_alone(hub, parquet, tmp_path, capsys, monkeypatch):
    hub.commits, hub.token = {(NAME, NEW): parquet}, "hf_secret"
    assert verb.main([f"hf:{NAME}", "--download", "--data-root", str(tmp_path)]) == 2
    assert_said(capsys, r"(?s)does not give.*hf auth login")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.sent.clear()
    assert "hf_secret" not in download(NAME, tmp_path, capsys)
    assert {token for path, token in hub.sent if path.startswith("/cdn/")} == {None}
    assert {token for path, token in hub.sent if not path.startswith("/cdn/")} == {"Bearer hf_secret"}


@pytest.mark.parametrize("name", ["../escape.parquet", "/etc/escape.parquet", "a\\..\\b.parquet", "\x1b[2J.parquet"])
def test_hostile_names_are_refused(hub, tmp_path, capsys, name):
    hub.commits = {(NAME, NEW): {name: b"x", "train.parquet": b"x"}}
    assert verb.main([f"hf:{NAME}", "--download", "--data-root", str(tmp_path)]) == 2
    assert_said(capsys, "points out of its folder")
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
    paths = {name: [{"split": "train", "path": f"{name}/train-*"}, {"split": "rest", "path": [f"{name}/[tv]*"]}]
             for name in ("small", "large")}  # fmt: skip
    hub.cards = {NAME: {"configs": [{"config_name": name, "data_files": some} for name, some in paths.items()]}}
    assert verb.main([f"hf:{NAME}", "--download", "--data-root", str(tmp_path)]) == 2
    assert_said(capsys, "config=small, config=large")
    said = download(f"{NAME}:config=small:test=validation", tmp_path, capsys)
    assert f"hf:{NAME}:{NEW}:config=small:test=validation" in said and Path(test).name not in said
    chosen = f"hf:{NAME}:{NEW}:config=small:test=validation:8px"
    found = [load(chosen, split, root=tmp_path) for split in ("train", "test")]
    assert [len(images) for images in found] == [24, len(PARTS["test"][1])]
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
