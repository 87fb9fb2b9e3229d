"""--metrics: tasks that have metrics take them; runs without them stay the runs that they were."""

import pytest

from bench.core.errors import UserError
from tests.plan.making import cells_of


def test_tasks_take_the_metrics_and_nothing_else_changes() -> None:
    plain, accuracy = cells_of("smoke"), cells_of("smoke", metrics=("accuracy",))
    assert plain == accuracy
    for before, after in zip(plain, cells_of("smoke", metrics=("macro-f1", "balanced-accuracy")), strict=True):
        assert before != after
        assert [task.kwargs for task in after.tasks] == [
            {**task.kwargs, "metrics": ("balanced-accuracy", "macro-f1")} for task in before.tasks
        ]


def test_unknown_metrics_and_suites_without_tasks_are_refused() -> None:
    with pytest.raises(UserError, match="macro_f1"):
        cells_of("smoke", metrics=("macro_f1",))
    with pytest.raises(UserError, match="No task"):
        cells_of("speed", metrics=("macro-f1",))
