"""A study from shards is killed twice, and ends as if it had not been."""

from __future__ import annotations

import pytest

from tests.data import photographs
from tests.reliability.streamed_study import Runs, compare


@pytest.mark.slow
def test_a_study_from_shards_is_killed_twice_and_ends_as_if_it_had_not_been(tmp_path):
    photographs.write(tmp_path / "shards", images=300, different=60, classes=5, tests=60)
    runs = Runs(tmp_path / "study", data="folder:shards:32px:rgb:stream", root=tmp_path, size=32, images=(100, 300),
                horizons=(0, 320), cache=tmp_path / "cache")  # fmt: skip
    runs.kill("killed", after=1, later=0.5)
    runs.kill("killed", after=3, later=0.3)
    killed = runs.to_the_end("killed")
    assert compare(runs.to_the_end("alone"), killed, cells=4) >= 1
