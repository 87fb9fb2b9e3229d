"""A record verifies or is refused; nothing in between."""

from __future__ import annotations

import json
import os
import random
import sys

import pytest

from bench import SCHEMA_VERSION
from bench.core.errors import UserError
from bench.store import records
from bench.store.study import CellDirectory, state_of

BODY = {
    "suite": "smoke", "cell_id": "0" * 10, "directory": "x-0000000000", "cell": {"model": "m", "horizons": (0, 10)},
    "revisions": {"recipe": 1}, "status": "complete", "reason": None, "cost": {"seconds": {"train": 1.25}}, "env": {},
    "attempts": [], "horizons": [{"images_seen": 10, "scores": [{"value": 0.5}]}],
}  # fmt: skip


@pytest.fixture
def path(tmp_path):
    records.write_record(tmp_path / "record.json", BODY)
    return tmp_path / "record.json"


def test_round_trip(path):
    found = records.read_record(path)
    assert found["schema"] == SCHEMA_VERSION
    assert found["cell"]["horizons"] == [0, 10]
    assert found["horizons"][0]["scores"][0]["value"] == 0.5


@pytest.mark.parametrize("parser", ["orjson", "json"])
@pytest.mark.parametrize("flops", [3 * 10**18, 2**63, 10**21 + 1, 1e21, 0.1 + 0.2, 5e-324])
def test_numbers_come_back_as_they_were(tmp_path, monkeypatch, flops, parser):
    """The paper's largest runs spend more FLOPs than 64 bits count."""
    if parser == "json":
        monkeypatch.setitem(sys.modules, "orjson", None)
    records.write_record(tmp_path / "r.json", BODY | {"cost": {"spent_flops": {"paper": flops, "dense": 1.5}}})
    found = records.read_record(tmp_path / "r.json")["cost"]["spent_flops"]["paper"]
    assert found == flops
    assert type(found) is type(flops)


def test_every_field_has_a_line_of_its_own(path):
    lines = path.read_text().splitlines()
    assert [line.lstrip("{")[1:].partition('"')[0] for line in lines] == sorted([*BODY, "schema", "digest"])
    assert json.loads(path.read_text()) == records.read_record(path)


def test_records_in_another_layout_verify_by_what_they_hold(path):
    """Indented, as they were written once, or by another tool."""
    truth = records.read_record(path)
    path.write_text(json.dumps(truth, indent=1))
    assert records.read_record(path) == truth
    assert records.read_outcome(path) == records.Outcome(status="complete", reason=None)
    path.write_text(json.dumps(truth | {"status": "failed"}, indent=1))
    for read in (records.read_record, records.read_outcome):
        with pytest.raises(records.DamagedRecord, match="digest"):
            read(path)


def test_every_flipped_bit_is_detected(path):
    original = path.read_bytes()
    truth = records.read_record(path)
    chooser = random.Random(0)
    positions = [chooser.randrange(len(original)) for _ in range(400)]
    for position in positions:
        damaged = bytearray(original)
        damaged[position] ^= 1 << chooser.randrange(8)
        path.write_bytes(bytes(damaged))
        try:
            assert records.read_record(path) == truth  # only white space changed
        except UserError:
            continue
        assert json.loads(bytes(damaged)) == truth


def test_an_outcome_is_read_as_strictly_as_the_whole_record(path):
    """Whatever bit flips: the same answer, or the same refusal."""
    original = path.read_bytes()
    chooser = random.Random(1)
    for _ in range(400):
        damaged = bytearray(original)
        damaged[chooser.randrange(len(original))] ^= 1 << chooser.randrange(8)
        path.write_bytes(bytes(damaged))
        try:
            body = records.read_record(path)
        except UserError as refusal:
            with pytest.raises(type(refusal)):
                records.read_outcome(path)
        else:
            assert records.read_outcome(path) == records.Outcome(status=body["status"], reason=body["reason"])


@pytest.mark.parametrize("reason", [None, "plain", 'a "quoted" one', "two\nlines", "é, and a trailing comma,"])
def test_an_outcome_has_the_records_status_and_reason(tmp_path, reason):
    nested = {"status": "failed", "reason": "nested", "digest": "0" * 64, "schema": 99}
    body = BODY | {"status": "diverged", "reason": reason, "cost": nested}
    records.write_record(tmp_path / "r.json", body)
    assert records.read_outcome(tmp_path / "r.json") == records.Outcome(status="diverged", reason=reason)
    (tmp_path / "r.json").write_text(json.dumps(json.loads((tmp_path / "r.json").read_text())))  # on a single line
    assert records.read_outcome(tmp_path / "r.json") == records.Outcome(status="diverged", reason=reason)


@pytest.mark.parametrize("length", [0, 1, 100, -2])
def test_a_truncated_record_is_damaged(path, length):
    path.write_bytes(path.read_bytes()[:length])
    for read in (records.read_record, records.read_outcome):
        with pytest.raises(records.DamagedRecord, match="damaged"):
            read(path)


def test_a_newer_schema_is_refused_and_is_not_called_damaged(path):
    body = json.loads(path.read_text()) | {"schema": SCHEMA_VERSION + 1}
    path.write_text(json.dumps(body))
    for read in (records.read_record, records.read_outcome):
        with pytest.raises(UserError, match="newer version") as caught:
            read(path)
        assert not isinstance(caught.value, records.DamagedRecord)


@pytest.mark.parametrize("key", records.REQUIRED)
def test_a_record_without_a_required_field_is_damaged(tmp_path, key):
    records.write_record(tmp_path / "r.json", {k: v for k, v in BODY.items() if k != key})
    for read in (records.read_record, records.read_outcome):
        with pytest.raises(records.DamagedRecord):
            read(tmp_path / "r.json")


def test_attempts_are_counted_beyond_a_thousand_whatever_else_lies_there(tmp_path):
    directory = CellDirectory(tmp_path)
    for name in ("002", "999", "1000", "notes", "²", "٣", "-1"):
        (tmp_path / "attempts" / name).mkdir(parents=True)
    assert directory.new_attempt().name == "1001"
    assert [path.name for path in directory.attempts()] == ["002", "999", "1000", "1001"]


@pytest.mark.parametrize(("status", "state"), [
    ("complete", "done"), ("diverged", "done"), ("oom", "done"), ("failed", "failed"),
])  # fmt: skip
def test_only_a_record_of_a_failure_leaves_a_cell_to_repeat(tmp_path, status, state):
    directory = CellDirectory(tmp_path / BODY["directory"])
    directory.path.mkdir()
    records.write_record(directory.record, BODY | {"status": status, "reason": "why"})
    assert state_of(directory)[0] == state
    assert (state_of(directory)[2] is None) == (status == "complete")


def test_a_record_of_another_cell_is_none(tmp_path):
    """Copied, or in a folder that was renamed: it would stand for a training that never was."""
    own = CellDirectory(tmp_path / BODY["directory"])
    own.path.mkdir()
    records.write_record(own.record, BODY)
    assert own.read_record()["status"] == "complete" and state_of(own)[0] == "done"
    renamed = CellDirectory(own.path.rename(tmp_path / "y-1111111111"))
    assert state_of(renamed)[0] == "damaged" and "x-0000000000" in state_of(renamed)[2]
    with pytest.raises(records.DamagedRecord, match="another cell"):
        renamed.read_record()
    assert json.loads(renamed.set_aside_record().read_bytes())["directory"] == BODY["directory"]


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink(path, path)])
def test_what_is_no_file_is_no_record(tmp_path, make):
    """Least of all may a reader wait for a pipe to speak."""
    directory = CellDirectory(tmp_path / "x-0000000000")
    directory.path.mkdir()
    make(directory.record)
    assert state_of(directory)[0] == "damaged"
    directory.set_aside_record()
    assert state_of(directory)[0] == "missing"
