"""Workers keep to cores that are near the same memory, where there are several such groups."""

from __future__ import annotations

import os

import pytest

from bench.core import environment
from bench.execute import local
from tests.execute.naps import known, naps, run
from tests.plan.making import plan_of


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Two nodes of four cores, as Linux lays them out; this process may not use the last core."""
    for number, cores in enumerate(("0-1,4-5", "2-3,6-7")):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(f"{cores}\n")
    (tmp_path / "node2").mkdir()
    (tmp_path / "node2" / "cpulist").write_text("\n")  # memory without processors
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(7)))
    return tmp_path


def test_groups_are_read_and_only_of_what_is_allowed(machine):
    assert environment.core_groups(machine) == [{0, 1, 4, 5}, {2, 3, 6}]
    assert environment.core_groups(machine / "none") == []


@pytest.mark.parametrize(
    "fields, used",
    [
        ({"threads": 3}, True),
        ({"threads": 1, "ranks": 3}, True),
        ({"threads": 4}, False),
        ({"device": "cuda"}, False),
    ],
)
def test_a_worker_that_is_larger_than_a_group_is_not_squeezed(machine, monkeypatch, fields, used):
    groups = environment.core_groups(machine)
    monkeypatch.setattr(environment, "core_groups", lambda: groups)
    assert local.groups_for(plan_of(naps(2), **fields)) == (groups if used else [])
    monkeypatch.setattr(environment, "core_groups", lambda: groups[:1])
    assert local.groups_for(plan_of(naps(2), **fields)) == []


def test_workers_run_there(tmp_path, monkeypatch):
    own = sorted(os.sched_getaffinity(0))
    groups = [{own[0]}, {own[-1]}]
    monkeypatch.setattr(environment, "core_groups", lambda: groups)
    kept, put = [], os.sched_setaffinity
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: kept.append(set(cores)) or put(pid, cores))
    with known(monkeypatch):
        assert run(naps(2), tmp_path / "test", executor="local") == []
    assert kept == groups
