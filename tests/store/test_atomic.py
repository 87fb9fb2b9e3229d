"""A write is whole or absent; a failure is one message that says what to do."""

from __future__ import annotations

import errno
import os

import pytest

from bench.core.errors import UserError
from bench.store import atomic


def test_write_and_replace(tmp_path):
    target = tmp_path / "a.json"
    atomic.write_json(target, {"b": 1, "a": [None]})
    atomic.write_json(target, {"b": 2})
    assert target.read_text() == '{\n "b": 2\n}\n'
    assert os.listdir(tmp_path) == ["a.json"]


def test_nan_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(ValueError):
        atomic.write_json(tmp_path / "a.json", {"score": float("nan")})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("code, words", [(errno.ENOSPC, "full"), (errno.EROFS, "read-only"), (errno.EDQUOT, "quota")])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_keeps_the_old_file(tmp_path, monkeypatch, code, words, step):
    target = tmp_path / "a.json"
    atomic.write_json(target, "old")

    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(UserError, match=words):
        atomic.write_json(target, "new")
    monkeypatch.undo()
    assert target.read_text() == '"old"\n'
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "results").write_text("")
    with pytest.raises(UserError, match="not a folder"):
        atomic.make_directory(tmp_path / "results" / "scaling")


def test_a_torn_last_line_is_left_out_and_a_torn_middle_is_an_error(tmp_path):
    log = tmp_path / "metrics.jsonl"
    atomic.append_line(log, {"a": 1})
    atomic.append_line(log, {"a": 2})
    whole = log.read_text()
    log.write_text(whole + '{"a": 3')
    assert atomic.read_lines(log) == [{"a": 1}, {"a": 2}]
    log.write_text('{"a": \n' + whole)
    with pytest.raises(UserError, match="line 1"):
        atomic.read_lines(log)


def test_new_folders_are_on_the_disk_before_anything_is_written_into_them(tmp_path, monkeypatch):
    synced: list[str] = []
    monkeypatch.setattr(atomic, "sync_directory", lambda path: synced.append(path.relative_to(tmp_path).as_posix()))
    atomic.make_directory(tmp_path / "study" / "cells" / "one")
    assert synced == [".", "study", "study/cells"]
    atomic.make_directory(tmp_path / "study" / "cells" / "one")
    assert len(synced) == 3
