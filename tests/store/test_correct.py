"""Right and wrong answers in records: every bit comes back, and what is not such an entry is none."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.store.prediction_bits import Correct, from_detail, to_detail

HASH = "5e" * 32


def entry(right_M) -> dict:
    """As it comes back from a record."""
    return json.loads(json.dumps(dict([to_detail(np.asarray(right_M, dtype=bool), content_hash=HASH)])))


@given(st.lists(st.booleans(), max_size=70))
def test_every_bit_comes_back(right) -> None:
    found = from_detail({"rate": 0.1} | entry(right))
    assert (found.right_M.tolist(), found.num_images, found.content_hash) == (right, len(right), HASH)


def test_the_first_image_is_the_highest_bit_of_the_first_byte() -> None:
    """As documented, read without numpy."""
    right = [True, False, False, False, False, False, True, True, False, True]
    assert base64.b64decode(entry(right)["correct"]["packed"]) == bytes([0b10000011, 0b01000000])


def test_ten_thousand_images_are_small() -> None:
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


def test_equal_answers_are_equal() -> None:
    assert from_detail(entry([True, False])) == Correct(content_hash=HASH, num_images=2, packed=b"\x80")
