"""`--tasks` keeps every question that a suite asks by those tasks, and is refused where there is none to ask."""

from __future__ import annotations

import pytest

from bench.core.errors import UserError
from bench.run import cells_of
from bench.suites._contract import SuiteOptions


@pytest.mark.parametrize("suite", ["transfer", "vtab", "scaling"])
def test_a_suite_s_own_tasks_are_its_own_to_the_option(suite: str) -> None:
    asked = cells_of(suite, SuiteOptions())
    for name in {task.task for cell in asked for task in cell.tasks}:
        for cell, chosen in zip(asked, cells_of(suite, SuiteOptions(), tasks=(name,)), strict=True):
            assert chosen.tasks == tuple(task for task in cell.tasks if task.task == name)


def test_a_task_that_is_new_to_the_suite_is_asked_once_of_each_set() -> None:
    for cell in cells_of("transfer", SuiteOptions(), tasks=("knn",)):
        assert len(cell.tasks) == len({task.data for task in cell.tasks}) > 1


def test_a_task_named_twice_is_asked_once() -> None:
    once = cells_of("scaling", SuiteOptions(), tasks=("fewshot", "knn"))
    assert cells_of("scaling", SuiteOptions(), tasks=("fewshot", "knn", "fewshot")) == once


@pytest.mark.parametrize("suite, scale", [("rates", "cpu"), ("speed", "cpu"), ("scaling", "paper")])
def test_tasks_are_refused_where_nothing_is_judged(suite: str, scale: str) -> None:
    with pytest.raises(UserError, match="judges nothing downstream"):
        cells_of(suite, SuiteOptions(scale=scale), tasks=("fewshot",))
