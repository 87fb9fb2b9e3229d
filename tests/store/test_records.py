"""Records: written, read back, and refused where damaged."""

import base64
import dataclasses
import json
import os
import random
import sys
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given, strategies
from hypothesis import strategies as st

from bench import SCHEMA_VERSION
from bench.core import files
from bench.core.environment import Environment
from bench.core.errors import UserError
from bench.store import records
from bench.store.lease import LeaseLost
from bench.store.prediction_bits import from_detail, to_detail
from bench.store.study import CellDirectory, state_of
from bench.study import record as record_types
from bench.study.cell import Cell, Recipe, TaskSpec, to_json
from bench.study.record import (
    STATUSES,
    Cost,
    DataFacts,
    Execution,
    Horizon,
    ModelFacts,
    Operations,
    Record,
    Score,
    Scores,
)
from bench.tasks.task import accuracy_score

# -- a record verifies or is refused; nothing in between. It is read as it was written ------------------


RECORD = Record(
    suite="smoke",
    cell_id="0" * 10,
    directory="x-0000000000",
    revisions={"recipe": 1},
    status="complete",
    cell=Cell(model="m", data="d", horizons=(0, 10), tasks=(TaskSpec(task="t", data="d", options=(("k", (1, 5)),)),)),
    model=ModelFacts(name="m"),
    data=DataFacts(name="d"),
    execution=Execution(device="cpu"),
    cost=Cost(),
    environment=Environment(),
    horizons=(Horizon(images_seen=10),),
)


@pytest.fixture
def path(tmp_path):
    records.write_record(tmp_path / "record.json", RECORD)
    return tmp_path / "record.json"


# -- what is written is what is read -----------------------------------------------------------------------------------

TEXT = strategies.text(max_size=8)
NUMBERS = {float: strategies.floats(allow_nan=False, allow_infinity=False), int: strategies.integers(-(2**80), 2**80)}
JSON = strategies.recursive(
    strategies.none() | strategies.booleans() | TEXT | NUMBERS[int] | NUMBERS[float],
    lambda inner: strategies.lists(inner, max_size=2) | strategies.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
CELLS = strategies.builds(
    Cell,
    model=TEXT,
    data=TEXT,
    num_images=strategies.none() | strategies.integers(1),
    seed=NUMBERS[int],
    axes=strategies.lists(TEXT, max_size=2).map(tuple),
    recipe=strategies.builds(Recipe, lr=strategies.floats(0, 1)),
    model_options=strategies.lists(strategies.tuples(TEXT, NUMBERS[int]), max_size=2).map(tuple),
)


def values(hint: Any) -> strategies.SearchStrategy[Any]:
    """Values of a field, by its type."""
    arguments = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return strategies.one_of(*(values(part) for part in arguments))
    if typing.get_origin(hint) is typing.Literal:
        return strategies.sampled_from(arguments)
    if typing.get_origin(hint) in (tuple, Sequence):
        return strategies.lists(values(arguments[0]), max_size=2).map(tuple)
    if typing.get_origin(hint) is not None:  # a mapping
        return strategies.dictionaries(TEXT, values(arguments[1]), max_size=2)
    if hint is Cell:
        return CELLS
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        return strategies.builds(hint, **{f.name: values(hints[f.name]) for f in dataclasses.fields(hint)})
    simple = {str: TEXT, bool: strategies.booleans(), type(None): strategies.none(), Any: JSON} | NUMBERS
    return simple[hint]


def outcome_of(record: Record) -> records.Outcome:
    """The outcome that the whole record states."""
    return records.Outcome(
        status=record.status,
        reason=record.reason,
        seconds=record.cost.seconds.total,
        processor_seconds=record.cost.processor_seconds,
    )


@hypothesis.given(record=values(Record))
@hypothesis.settings(max_examples=60, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_every_record_comes_back_as_it_was(record, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any.json"
    records.write_record(path, record)
    read = records.read_record(path)
    assert read == record
    assert repr(read.cost) == repr(record.cost)  # 1 and 1.0 are equal, and not the same
    assert records.read_outcome(path) == outcome_of(record)


def test_every_field_of_every_class_says_what_it_is():
    """Its name stands in its class's docstring, or its class is as short as its docstring."""
    for kind in vars(record_types).values():
        if dataclasses.is_dataclass(kind) and kind.__module__ == record_types.__name__:
            assert kind.__doc__ and not kind.__doc__.startswith(f"{kind.__name__}("), kind


@pytest.mark.parametrize("parser", ["orjson", "json"])
@pytest.mark.parametrize("flops", [3 * 10**18, 2**63, 10**21 + 1, 1e21, 0.1 + 0.2, 5e-324])
def test_numbers_come_back_as_they_were(tmp_path, monkeypatch, flops, parser):
    """The paper's largest runs spend more FLOPs than 64 bits count."""
    if parser == "json":
        monkeypatch.setitem(sys.modules, "orjson", None)
    cost = Cost(spent_flops=Operations(paper=flops, dense=1.5))
    records.write_record(tmp_path / "r.json", dataclasses.replace(RECORD, cost=cost))
    read = records.read_record(tmp_path / "r.json").cost.spent_flops.paper
    assert read == flops
    assert type(read) is type(flops)


DIGITS = st.integers(-(2**70), 2**70) | st.integers(2**64 - 2, 2**64 + 2) | st.integers(0, 2**300).map(str)


@given(st.recursive(DIGITS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("0123456789"), inner)))
def test_json_is_read_as_the_standard_library_reads_it(value):
    """Integers beyond 64 bits too, wherever they stand in an object, and digits that are text."""
    body = {"value": value}
    for text in (json.dumps(body), json.dumps(body, separators=(",", ":"))):
        assert records._parse(text.encode()) == json.loads(text)


def test_what_is_not_finite_is_not_written(tmp_path):
    with pytest.raises(ValueError):
        records.write_record(tmp_path / "r.json", dataclasses.replace(RECORD, cost=Cost(core_days=float("nan"))))
    assert not list(tmp_path.iterdir())


def test_every_field_has_a_line_of_its_own(path):
    lines = path.read_text().splitlines()
    names = [entry.name for entry in dataclasses.fields(Record)]
    assert [line.lstrip("{")[1:].partition('"')[0] for line in lines] == sorted([*names, "schema", "digest"])
    assert json.loads(path.read_text())["schema"] == SCHEMA_VERSION


def test_records_in_another_layout_verify_by_what_they_hold(path):
    """Indented, as they were written once, or by another tool."""
    truth = json.loads(path.read_text())
    path.write_text(json.dumps(truth, indent=1))
    assert records.read_record(path) == RECORD
    assert records.read_outcome(path) == outcome_of(records.read_record(path))
    path.write_text(json.dumps(truth | {"status": "failed"}, indent=1))
    for read in (records.read_record, records.read_outcome):
        with pytest.raises(records.DamagedRecord, match="digest"):
            read(path)


# -- damage ------------------------------------------------------------------------------------------------------------


def test_an_outcome_is_read_as_strictly_as_the_whole_record(path):
    """Any flipped bit gives the same answer, or the same refusal."""
    original = path.read_bytes()
    chooser = random.Random(1)
    for _ in range(400):
        damaged = bytearray(original)
        damaged[chooser.randrange(len(original))] ^= 1 << chooser.randrange(8)
        path.write_bytes(bytes(damaged))
        try:
            record = records.read_record(path)
        except UserError as refusal:
            with pytest.raises(type(refusal)):
                records.read_outcome(path)
        else:
            assert records.read_outcome(path) == outcome_of(record)


@pytest.mark.parametrize("reason", [None, "plain", 'a "quoted" one', "two\nlines", "é, and a trailing comma,"])
def test_an_outcome_has_the_records_status_and_reason(tmp_path, reason):
    nested = {"status": 1, "reason": 1, "digest": 1, "schema": 99}
    record = dataclasses.replace(RECORD, status="diverged", reason=reason, revisions=nested)
    records.write_record(tmp_path / "r.json", record)
    assert records.read_outcome(tmp_path / "r.json") == outcome_of(record)
    (tmp_path / "r.json").write_text(json.dumps(json.loads((tmp_path / "r.json").read_text())))  # on a single line
    assert records.read_outcome(tmp_path / "r.json") == outcome_of(record)


@pytest.mark.parametrize("length", [0, 1, 100, -2])
def test_a_truncated_record_is_damaged(path, length):
    path.write_bytes(path.read_bytes()[:length])
    for read in (records.read_record, records.read_outcome):
        with pytest.raises(records.DamagedRecord, match="damaged"):
            read(path)


def test_a_newer_schema_is_refused_and_is_not_called_damaged(path):
    body = json.loads(path.read_text()) | {"schema": SCHEMA_VERSION + 1}
    path.write_text(json.dumps(body))
    for read in (records.read_record, records.read_outcome, lambda path: state_of(CellDirectory(path.parent))):
        with pytest.raises(UserError, match="newer version") as caught:
            read(path)
        assert not isinstance(caught.value, records.DamagedRecord)
        assert caught.value.fix == "Update the project, or choose another folder with --results."


def sealed(path: Path, body: dict[str, Any]) -> None:
    """Write whatever it is with a digest that matches."""
    path.write_bytes(records.to_bytes(body | {"digest": files.digest(body)}))


def test_a_record_of_a_schema_that_is_no_longer_read_is_damaged(path):
    sealed(path, json.loads(path.read_text()) | {"schema": 1})
    for read in (records.read_record, records.read_outcome):
        with pytest.raises(records.DamagedRecord, match="schema 1, which is no longer read"):
            read(path)


def test_a_record_without_a_required_field_is_damaged(path):
    whole = json.loads(path.read_text())
    for key in records.REQUIRED:
        sealed(path, {k: v for k, v in whole.items() if k != key})
        for read in (records.read_record, records.read_outcome):
            with pytest.raises(records.DamagedRecord, match=key):
                read(path)


@pytest.mark.parametrize(
    "key, value",
    [
        ("status", "unheard of"),
        ("cell", {"model": "m"}),
        ("cell", 7),
        ("cell", {"model": "m", "data": "d", "new": 1}),
        ("horizons", 7),
        ("horizons", [{}]),
        ("horizons", [{"images_seen": 1, "scores": [{}]}]),
        ("cost", 7),
    ],
)
def test_a_record_with_a_field_of_another_shape_is_damaged(path, key, value):
    sealed(path, json.loads(path.read_text()) | {key: value})
    with pytest.raises(records.DamagedRecord, match="damaged"):
        records.read_record(path)


def test_attempts_are_counted_beyond_a_thousand_whatever_else_lies_there(tmp_path):
    directory = CellDirectory(tmp_path)
    for name in ("002", "999", "1000", "notes", "²", "٣", "-1"):
        (tmp_path / "attempts" / name).mkdir(parents=True)
    assert directory.new_attempt().name == "1001"
    assert [path.name for path in directory.attempts()] == ["002", "999", "1000", "1001"]


@pytest.mark.parametrize("status", STATUSES)
def test_only_a_record_of_a_failure_leaves_a_cell_to_repeat(tmp_path, status):
    directory = CellDirectory(tmp_path / RECORD.directory)
    directory.path.mkdir()
    records.write_record(directory.record, dataclasses.replace(RECORD, status=status, reason="why"))
    assert state_of(directory)[0] == ("failed" if status == "failed" else "done")
    assert (state_of(directory)[2] is None) == (status == "complete")


@pytest.mark.parametrize("before", [None, *STATUSES])
def test_a_result_takes_the_place_of_a_failure_alone(tmp_path, before):
    directory = CellDirectory(tmp_path / RECORD.directory)
    directory.path.mkdir()
    if before is not None:
        records.write_record(directory.record, dataclasses.replace(RECORD, status=before, reason="why"))
    if before in (None, "failed"):
        directory.publish(RECORD)
        assert directory.read_record() == RECORD
    else:
        kept = directory.record.read_bytes()
        with pytest.raises(LeaseLost, match="another runner has finished"):
            directory.publish(dataclasses.replace(RECORD, reason="another"))
        assert directory.record.read_bytes() == kept
    assert [path.name for path in directory.path.iterdir()] == ["record.json"]


def test_a_field_that_an_older_record_lacks_has_its_default(path):
    """Each has one of its own: what is made for one record is not another's."""
    score = accuracy_score(0.5, task="fewshot", data="digits", num_test=20, num_classes=2)
    scores = (dataclasses.replace(score, detail={}),) * 2
    records.write_record(path, dataclasses.replace(RECORD, horizons=(Horizon(images_seen=10, scores=scores),)))
    body = json.loads(path.read_text())
    for score in body["horizons"][0]["scores"]:
        score.pop("detail", None)
    sealed(path, body)
    one, other = records.read_record(path).horizons[0].scores
    assert one.detail == other.detail == {} and one.detail is not other.detail


def test_a_record_of_another_cell_is_none(tmp_path):
    """Copied, or in a folder that was renamed: it would stand for a training that never was."""
    own = CellDirectory(tmp_path / RECORD.directory)
    own.path.mkdir()
    records.write_record(own.record, RECORD)
    assert own.read_record() == RECORD and state_of(own)[0] == "done"
    renamed = CellDirectory(own.path.rename(tmp_path / "y-1111111111"))
    assert state_of(renamed)[0] == "damaged" and "x-0000000000" in state_of(renamed)[2]
    with pytest.raises(records.DamagedRecord, match="another run"):
        renamed.read_record()
    assert json.loads(renamed.set_aside(renamed.record).read_bytes())["directory"] == RECORD.directory


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink(path, path)])
def test_what_is_no_file_is_no_record(tmp_path, make):
    """Least of all may a reader wait for a pipe to speak."""
    directory = CellDirectory(tmp_path / "x-0000000000")
    directory.path.mkdir()
    make(directory.record)
    assert state_of(directory)[0] == "damaged"
    directory.set_aside(directory.record)
    assert state_of(directory)[0] == "missing"


# -- how far a cell is, from its files ---------------------------------------------------------------------------------


# -- right and wrong answers in records: every bit comes back, and what is not such an entry is none -------------------


HASH = "5e" * 32


def entry(right_M) -> dict:
    """As it comes back from a record."""
    return json.loads(json.dumps(dict([to_detail(np.asarray(right_M, dtype=bool), content_hash=HASH)])))


@given(st.lists(st.booleans(), max_size=70))
def test_every_bit_comes_back(right) -> None:
    bits = from_detail({"rate": 0.1} | entry(right))
    assert (bits.right_M.tolist(), bits.num_images, bits.content_hash) == (right, len(right), HASH)
    assert bits == from_detail(entry(right))


def test_groups_of_the_same_images_are_written_once_and_come_back_with_every_score(tmp_path: Path) -> None:
    """A score's groups take thirty times the room of its answers, and a record has dozens on the same images."""
    rng = np.random.default_rng(0)
    groups = {"one": rng.integers(0, 300, 1_000), "other": rng.integers(0, 500, 900)}

    def score(name: str, grouped: bool = True) -> record_types.Score:
        right_M = rng.random(len(groups[name])) < 0.5
        kept = to_detail(right_M, content_hash=name, groups_M=groups[name] if grouped else None)
        return accuracy_score(
            float(right_M.mean()),
            task="fewshot",
            data=name,
            num_test=len(right_M),
            num_classes=2,
            detail=dict([kept]),
        )

    rows = tuple(
        Horizon(images_seen=n, scores=(score("one"), score("other"), score("one"), score("one", grouped=False)))
        for n in (10, 20)
    )
    written, alone = tmp_path / "record.json", tmp_path / "alone.json"
    records.write_record(written, dataclasses.replace(RECORD, horizons=rows))
    records.write_record(
        alone, dataclasses.replace(RECORD, horizons=(dataclasses.replace(rows[0], scores=rows[0].scores[:2]),))
    )
    read = records.read_record(written)
    assert read.horizons == rows
    bits = from_detail(read.horizons[1].scores[2].detail)
    np.testing.assert_array_equal(bits.groups_M, np.unique(groups["one"], return_inverse=True)[1])
    assert from_detail(read.horizons[1].scores[3].detail).groups_M is None
    assert written.stat().st_size < 1.5 * alone.stat().st_size


def test_the_first_image_is_the_highest_bit_of_the_first_byte() -> None:
    """As documented, read without numpy; ten thousand images are small."""
    right = [True, False, False, False, False, False, True, True, False, True]
    assert base64.b64decode(entry(right)["correct"]["packed"]) == bytes([0b10000011, 0b01000000])
    assert len(json.dumps(entry(np.random.default_rng(0).random(10_000) < 0.5))) < 1_900


@pytest.mark.parametrize(
    "detail",
    [
        None,
        {},
        {"rate": 0.1},
        {"correct": 37},
        {"correct": None},
        {"correct": {"packed": "gA=="}},
        {"correct": {"content_hash": HASH, "num_images": 9, "packed": "gA=="}},
        {"correct": {"content_hash": HASH, "num_images": 2, "packed": "g!A=="}},
    ],
)
def test_records_without_it_and_other_things_of_that_name(detail) -> None:
    assert from_detail(detail) is None


# -- scores as columns -------------------------------------------------------------------------------------------------


@given(scores=st.lists(values(Score), max_size=5).map(tuple))
def test_scores_as_columns_are_the_scores(scores):
    made = Scores.of_json(to_json(scores))
    scores = tuple(dataclasses.replace(s, detail=dict(s.detail)) for s in scores)
    assert made == scores and scores == made and made == Scores.of_all(scores)
    assert (list(made), made[1:], len(made), repr(made)) == (list(scores), scores[1:], len(scores), repr(scores))
    assert [made[-at] for at in range(1, len(made) + 1)] == list(reversed(scores))
    assert made != (*scores, "another") and made != list(scores)
    with pytest.raises(IndexError):
        made[len(made)]


def test_runs_that_are_evaluated_alike_share_what_their_scores_are_of():
    """Ten thousand runs took 0.8 GB as objects."""
    score = {"task": "t", "data": "d", "metric": "accuracy", "num_test": 10, "num_classes": 2, "chance": 0.5}
    one, two = (Scores.of_json([score | {"value": value, "stderr": None}]) for value in (0.25, 1))
    assert one.of is two.of and (one[0].value, two[0].value, two[0].stderr, two[0].shots) == (0.25, 1.0, None, None)
    with pytest.raises(KeyError, match="stderr"):
        Scores.of_json([score | {"value": 0.25}])
    with pytest.raises(KeyError, match="data"):
        Scores.of_json([{"task": "t", "value": 0.25, "stderr": None}])
