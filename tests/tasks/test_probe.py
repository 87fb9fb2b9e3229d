"""`python -m bench.probe` on models, checkpoints and features files; and its answers to bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench import probe

SMALL = ["--image-size", "28", "--channels", "1"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = probe.main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture
def features(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, 16))
    arrays: dict[str, np.ndarray] = {}
    for split, count in (("train", 200), ("test", 120)):
        y = rng.integers(0, 4, count)
        arrays |= {f"{split}_x": (centres[y] + 0.5 * rng.normal(size=(count, 16))), f"{split}_y": y}
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def test_features_from_a_file(capsys: pytest.CaptureFixture[str], features: Path) -> None:
    code, out, _ = run(capsys, "--features", str(features), "--shots", "5,10", "--draws", "2", "--json")
    scores = json.loads(out)
    assert code == 0 and len(scores) == 8
    assert {s["data"] for s in scores} == {"mine"} and {s["num_test"] for s in scores} == {120}
    assert all(s["value"] > 0.8 for s in scores if s["metric"] == "accuracy")
    code, out, _ = run(capsys, "--features", str(features), "--shots", "5")
    assert code == 0 and "mine" in out and "chance 25.0%" in out


def test_pixels_and_an_untrained_network(capsys: pytest.CaptureFixture[str]) -> None:
    for model in ("pixels", "ViT-pico/14"):
        code, out, _ = run(capsys, "--model", model, "--data", "digits", "--shots", "5", "--draws", "1", *SMALL)
        assert code == 0 and "accuracy_fixed_ridge" in out


def test_checkpoints_are_used(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Published layouts and a run's own checkpoint give the same scores as the network they were saved from."""
    import torch
    from safetensors.torch import save_file

    from bench import models
    from vit import checkpoints

    torch.manual_seed(7)
    model = models.build("ViT-pico/14", image_size=28, channels=1, num_classes=10)
    save_file({f"live/model.{k}": v.contiguous() for k, v in model.state_dict().items()}, tmp_path / "run.safetensors")
    checkpoints.save(model, tmp_path / "own.safetensors")
    common = ["--model", "ViT-pico/14", "--data", "digits", "--shots", "5", "--draws", "1", "--json", *SMALL]
    results = [
        json.loads(run(capsys, *common, *extra)[1])
        for extra in (
            ["--seed", "7"],
            ["--checkpoint", str(tmp_path / "run.safetensors")],
            ["--checkpoint", str(tmp_path / "own.safetensors")],
            ["--seed", "8"],
        )
    ]
    assert results[1] == results[2] != results[3]


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["--model", "ViT-nan/7", "--data", "digits"], "'ViT-nano/7'"),
        (["--model", "ViT-pico/14", "--data", "digit", *SMALL], "'digits'"),
        (["--model", "ViT-pico/14", "--data", "digits", "--task", "fewshots"], "'fewshot'"),
        (["--model", "ViT-pico/14", "--data", "digits", "--option", "shot=3", *SMALL], "Known: "),
        (["--model", "ViT-pico/14", "--data", "digits", "--option", "shots", *SMALL], "NAME=VALUE"),
        (["--model", "ViT-pico/13", "--data", "digits", *SMALL], "13"),
        (["--model", "ViT-pico/14", "--data", "digits", "--checkpoint", "none.npz", *SMALL], "none.npz"),
        (["--model", "ViT-pico/14", "--data", "digits", "--device", "gpux", *SMALL], "gpux"),
        (["--model", "ViT-pico/14", "--data", "digits", "--device", "meta", *SMALL], "'meta' cannot be used"),
        (["--model", "ViT-pico/14", "--data", "digits", "--seed", "99999999999999999999", *SMALL], "2^63"),
        (["--model", "ViT-pico/14", "--data", "digits", "--seed", "-1", *SMALL], "whole number from 0"),
        (["--model", "ViT-pico/14", "--data", "digits", "--image-size", "0"], "at least 1"),
        (["--model", "ViT-pico/14", "--data", "digits", "--image-size", "28", "--channels", "2"], "choose from"),
        (["--checkpoint", "none.safetensors", "--data", "digits"], "no checkpoint none.safetensors"),
        (["--model", "ViT-pico/14", "--data", "digits@100", *SMALL], "test_limit"),
        (["--model", "ViT-pico/14"], "--data"),
        (["--features", "none.npz"], "none.npz"),
        ([], "Nothing to probe"),
    ],
)
def test_mistakes_get_one_message(capsys: pytest.CaptureFixture[str], arguments: list[str], answer: str) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 2 and not out
    assert answer in err and "Traceback" not in err


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ({"train_y": None}, "lacks train_y"),
        ({"train_y": np.zeros(3, int)}, "train_y"),
        ({"test_x": np.zeros((120, 3))}, "different numbers"),
        ({"train_y": np.full(200, -1)}, "integers from 0"),
        ({"train_x": np.full((200, 16), "a")}, "must be numbers"),
    ],
)
def test_bad_features_files(
    capsys: pytest.CaptureFixture[str], features: Path, change: dict[str, np.ndarray | None], answer: str
) -> None:
    arrays = dict(np.load(features)) | change
    np.savez(features, **{key: value for key, value in arrays.items() if value is not None})
    code, _, err = run(capsys, "--features", str(features))
    assert code == 2 and answer in err
    features.write_bytes(features.read_bytes()[:100])
    assert run(capsys, "--features", str(features))[0] == 2


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        probe.main(["--help"])
    assert "python -m bench.probe --model" in capsys.readouterr().out
