"""A record verifies or is refused; nothing in between."""

from __future__ import annotations

import json
import random

import pytest

from bench import SCHEMA_VERSION
from bench.errors import UserError
from bench.store import records
from bench.store.cells import CellDirectory

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


@pytest.mark.parametrize("length", [0, 1, 100, -2])
def test_a_truncated_record_is_damaged(path, length):
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(records.DamagedRecord, match="damaged"):
        records.read_record(path)


def test_a_newer_schema_is_refused_and_is_not_called_damaged(path):
    body = json.loads(path.read_text()) | {"schema": SCHEMA_VERSION + 1}
    path.write_text(json.dumps(body))
    with pytest.raises(UserError, match="newer version") as caught:
        records.read_record(path)
    assert not isinstance(caught.value, records.DamagedRecord)


@pytest.mark.parametrize("key", records.REQUIRED)
def test_a_record_without_a_required_field_is_damaged(tmp_path, key):
    records.write_record(tmp_path / "r.json", {k: v for k, v in BODY.items() if k != key})
    with pytest.raises(records.DamagedRecord):
        records.read_record(tmp_path / "r.json")


def test_attempts_are_counted_beyond_a_thousand_whatever_else_lies_there(tmp_path):
    directory = CellDirectory(tmp_path)
    for name in ("002", "999", "1000", "notes"):
        (tmp_path / "attempts" / name).mkdir(parents=True)
    assert directory.new_attempt().name == "1001"
    assert [path.name for path in directory.attempts()] == ["002", "999", "1000", "1001"]
