"""Whatever a user writes after --option, or puts into a features file, ends in one message and exit code 2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bench import probe
from bench.core.errors import UserError
from bench.tasks._contract import checked_options


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(3, 8))
    found = {}
    for split, count in (("train", 60), ("test", 30)):
        labels = np.arange(count) % 3
        found |= {f"{split}_x": centres[labels] + 0.3 * rng.normal(size=(count, 8)), f"{split}_y": labels}
    return found


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("features") / "mine.npz"
    np.savez(path, **arrays())  # type: ignore[arg-type]
    return path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = probe.main(list(arguments))
    captured = capsys.readouterr()
    assert code == 2 and not captured.out
    assert captured.err.startswith("error: ") and "Traceback" not in captured.err and len(captured.err) < 1500
    return captured.err


@pytest.mark.parametrize(
    ("task", "option", "answer"),
    [
        ("fewshot", "shots='a'", "a list, each a whole number"),
        ("fewshot", "shots=(1,'a')", "a list, each a whole number"),
        ("fewshot", "shots=()", "at least one shot number"),
        ("fewshot", "shots=0", "at least 1"),
        ("fewshot", "draws=1.5", "a whole number"),
        ("fewshot", "draws=True", "a whole number"),
        ("fewshot", "draws=0", "at least 1"),
        ("fewshot", "ridge=foo", "Known: both"),
        ("fewshot", "ridge=[1]", "a word"),
        ("fewshot", "test_limit=0", "cannot use 0 images of mine, test"),
        ("fewshot", "test_limit=-5", "cannot use -5"),
        ("fewshot", "test_limit=1.5", "None or a whole number"),
        ("fewshot", "support_pool=x", "None or a whole number"),
        ("fewshot", "support_pool=0", "cannot use 0 images of mine, train"),
        ("fewshot", "context=3", "Unknown option"),
        ("fewshot", "test-limt=3", "Did you mean 'test_limit'"),
        ("fewshot", "=3", "NAME=VALUE"),
        ("knn", "neighbours=x", "a whole number"),
        ("knn", "neighbours=0", "neighbours >= 1"),
        ("knn", "temperature=x", "a number"),
        ("knn", "temperature=1e999", "a number"),
        ("knn", "temperature=0", "temperature > 0"),
        ("knn", "train_limit=0", "cannot use 0"),
        ("linear", "folds=2.5", "a whole number"),
        ("linear", "folds=21", "smallest class has 20"),
        ("linear", "max_iter=0", "at least one iteration"),
        ("linear", "train_limit=1", "smallest class has 0"),
        ("finetune", "rates=x", "None or a list, each a number"),
        ("finetune", "rates=(0.1,'a')", "each a number"),
        ("finetune", "flip=maybe", "True or False"),
        ("finetune", "image_size=0", "not a number of pixels"),
        ("finetune", "shift=-1", "0 pixels or more"),
        ("finetune", "held_out=2.0", "cannot be held out of 60"),
        ("finetune", "steps=1", "only features"),
        ("vtab", "steps=1", "1,000 training examples"),
    ],
)
def test_options(capsys: pytest.CaptureFixture[str], features: Path, task: str, option: str, answer: str) -> None:
    assert answer in refused(capsys, "--features", str(features), "--task", task, "--option", option)


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ({"train_x": np.full((60, 8), np.nan)}, "not finite"),
        ({"test_x": np.full((30, 8), 1e300)}, "not finite in float32"),
        ({"train_y": np.full(60, 10**12)}, "label 1000000000000"),
        ({"train_x": np.zeros((60, 0)), "test_x": np.zeros((30, 0))}, "D of at least 1"),
        ({"test_x": np.zeros((0, 8)), "test_y": np.zeros(0, int)}, "N and D"),
        ({"train_y": np.ones(60, bool)}, "integers from 0"),
        ({"train_y": np.array([{}] * 60, dtype=object)}, "not a readable .npz"),
    ],
)
def test_features(capsys: pytest.CaptureFixture[str], tmp_path: Path, change: dict, answer: str) -> None:
    np.savez(tmp_path / "mine.npz", **arrays() | change)
    assert answer in refused(capsys, "--features", str(tmp_path / "mine.npz"))


def test_files_of_another_kind(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros(3))
    (tmp_path / "text.npz").write_text("hello")
    answers = {"one.npy": "savez", "text.npz": "savez", "none.npz": "no features", ".": "no features"}
    for name, answer in answers.items():
        assert answer in refused(capsys, "--features", str(tmp_path / name))


def test_values_arrive_as_the_task_takes_them() -> None:
    def evaluate(context: object, *, data: str, rates: Sequence[float] | None = None, part: float | int = 1, free=0):
        """Stands for a task; `free` says nothing of its kind."""

    found = checked_options(evaluate, {"rates": 0.1, "part": 200, "free": {}})
    assert found == {"rates": (0.1,), "part": 200, "free": {}}
    assert checked_options(evaluate, {"rates": [1, 0.5], "part": 0.1}) == {"rates": (1, 0.5), "part": 0.1}
    assert checked_options(evaluate, {"rates": None}) == {"rates": None}
    for wrong in ({"part": None}, {"part": float("inf")}, {"rates": ("0.1",)}, {"data": "x"}, {"context": None}):
        with pytest.raises(UserError):
            checked_options(evaluate, wrong)
