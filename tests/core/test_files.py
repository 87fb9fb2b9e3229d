"""A write is whole or absent; a failure is one message that says what to do."""

import errno
import json
import os
import threading

import pytest

from bench.core import files
from bench.core.errors import UserError


def test_write_and_replace(tmp_path):
    target = tmp_path / "a.json"
    files.write_json(target, {"b": 1, "a": [None]})
    files.write_json(target, {"b": 2})
    assert target.read_text() == '{\n "b": 2\n}\n'
    assert os.listdir(tmp_path) == ["a.json"]


def test_nan_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(ValueError):
        files.write_json(tmp_path / "a.json", {"score": float("nan")})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("code, words", [(errno.ENOSPC, "full"), (errno.EROFS, "read-only"), (errno.EDQUOT, "quota")])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch, code, words, step):
    target = tmp_path / "a.json"
    files.write_json(target, "old")

    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(UserError, match=words):
        files.write_json(target, "new")
    monkeypatch.undo()
    assert target.read_text() == '"old"\n'
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "results").write_text("")
    with pytest.raises(UserError, match="not a folder"):
        files.make_directory(tmp_path / "results" / "scaling")


def test_new_folders_are_on_the_disk_before_anything_is_written_into_them(tmp_path, monkeypatch):
    synced: list[str] = []
    monkeypatch.setattr(files, "sync_directory", lambda path: synced.append(path.relative_to(tmp_path).as_posix()))
    files.make_directory(tmp_path / "study" / "cells" / "one")
    assert synced == [".", "study", "study/cells"]
    files.make_directory(tmp_path / "study" / "cells" / "one")
    assert len(synced) == 3


def test_two_processes_of_the_same_number_never_share_a_temporary_name(tmp_path, monkeypatch):
    """The main process of every container is number 1."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with files.replacing(tmp_path / "a") as first, files.replacing(tmp_path / "a") as second:
        first.write(b"first")
        second.write(b"second")
        assert first.name != second.name
    assert os.listdir(tmp_path) == ["a"]


def test_the_longest_name_that_a_file_system_takes_can_be_written(tmp_path):
    name = "图" * 80 + ".json"  # 245 bytes; 255 are allowed
    files.write_json(tmp_path / name, [1])
    assert json.loads((tmp_path / name).read_text()) == [1] and os.listdir(tmp_path) == [name]


def test_what_is_being_written_is_no_leftover(tmp_path):
    (tmp_path / ".torn.0.tmp").write_text("{")
    (tmp_path / ".step.0.tmp").mkdir()
    (tmp_path / ".step.0.tmp" / "half").write_text("x")
    with files.replacing(tmp_path / "a") as handle, files.new_directory(tmp_path / "b"):
        handle.write(b"whole")
        files.remove_leftovers(tmp_path)
        assert len(os.listdir(tmp_path)) == 2
    assert sorted(os.listdir(tmp_path)) == ["a", "b"] and (tmp_path / "a").read_bytes() == b"whole"


@pytest.mark.parametrize("code", [None, errno.EPERM])
def test_a_new_file_never_replaces_one(tmp_path, monkeypatch, code):
    """Also where the file system has no links."""

    def refuse(*_):
        raise OSError(code, os.strerror(code))

    if code is not None:
        monkeypatch.setattr(os, "link", refuse)
    files.write_new(tmp_path / "a", b"first")
    with pytest.raises(FileExistsError):
        files.write_new(tmp_path / "a", b"second")
    assert (tmp_path / "a").read_bytes() == b"first" and os.listdir(tmp_path) == ["a"]


def test_a_new_file_whose_writing_is_reported_as_failed_is_not_there(tmp_path, monkeypatch):
    """The link succeeded, the sync of the folder did not."""

    def fail(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(files, "sync_directory", fail)
    with pytest.raises(UserError, match="Writing failed"):
        files.write_new(tmp_path / "a", b"whole")
    assert os.listdir(tmp_path) == []


def test_a_new_folder_is_whole_or_absent(tmp_path):
    with pytest.raises(RuntimeError), files.new_directory(tmp_path / "a") as folder:
        (folder / "half").write_text("x")
        raise RuntimeError
    assert os.listdir(tmp_path) == []


def test_writers_of_one_process_id_do_not_tear_each_others_files(tmp_path):
    """As in containers, where every main process has the same id."""
    target, bodies, failures = tmp_path / "plan.json", [bytes([65 + i]) * (200_000 + i) for i in range(4)], []

    def write(body):
        try:
            for _ in range(25):
                files.write_bytes(target, body)
        except UserError as error:
            failures.append(error)

    writers = [threading.Thread(target=write, args=(body,)) for body in bodies]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert not target.exists() or target.read_bytes() in bodies
    assert not failures and os.listdir(tmp_path) == ["plan.json"]


def test_a_name_that_a_network_says_cannot_be_changed_though_it_was_is_no_failure(tmp_path, monkeypatch):
    """NFS: the answer was lost, the call is repeated, and what was to be renamed is there no more."""

    def twice(change):
        def changed(source, target):
            change(source, target)
            change(source, target)

        return changed

    for name in ("replace", "rename", "link"):
        monkeypatch.setattr(os, name, twice(getattr(os, name)))
    files.write_json(tmp_path / "a.json", "old")
    files.write_json(tmp_path / "a.json", "new")
    files.write_new(tmp_path / "b", b"first")
    with files.new_directory(tmp_path / "c") as folder:
        (folder / "inside").touch()
    monkeypatch.undo()
    assert (tmp_path / "a.json").read_text() == '"new"\n' and (tmp_path / "b").read_bytes() == b"first"
    assert sorted(os.listdir(tmp_path)) == ["a.json", "b", "c"] and os.listdir(tmp_path / "c") == ["inside"]


def test_a_file_that_is_gone_before_it_is_renamed_is_a_failure(tmp_path):
    (tmp_path / "a").write_text("another's")
    with pytest.raises(FileNotFoundError), files.replacing(tmp_path / "a") as handle:
        os.unlink(handle.name)
    assert (tmp_path / "a").read_text() == "another's"
