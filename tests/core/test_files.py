"""A write is whole or absent; a failure is one message that says what to do."""

from __future__ import annotations

import errno
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


def test_a_torn_last_line_is_left_out_and_a_torn_middle_is_an_error(tmp_path):
    log = tmp_path / "metrics.jsonl"
    files.append_line(log, {"a": 1})
    files.append_line(log, {"a": 2})
    whole = log.read_text()
    log.write_text(whole + '{"a": 3')
    assert files.read_lines(log) == [{"a": 1}, {"a": 2}]
    log.write_text('{"a": \n' + whole)
    with pytest.raises(UserError, match="line 1"):
        files.read_lines(log)


def test_new_folders_are_on_the_disk_before_anything_is_written_into_them(tmp_path, monkeypatch):
    synced: list[str] = []
    monkeypatch.setattr(files, "sync_directory", lambda path: synced.append(path.relative_to(tmp_path).as_posix()))
    files.make_directory(tmp_path / "study" / "cells" / "one")
    assert synced == [".", "study", "study/cells"]
    files.make_directory(tmp_path / "study" / "cells" / "one")
    assert len(synced) == 3


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
