"""`python -m bench.data --copies`: the pairs it says and draws are those that were planted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bench.data import __main__ as data
from bench.data.load import load
from tests.data import writers

COUNT = 40


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image folder, some of whose training images are test images of Fashion-MNIST, mirrored."""
    train, test = (load("fashion-mnist", split) for split in ("train", "test"))
    stolen, own = test.images_NHWC[:3, :, ::-1], train.images_NHWC[:COUNT]
    labels = np.arange(COUNT + 3) % 2
    parts = {"train": (np.concatenate([stolen, own]), labels), "test": (own[:4], labels[:4])}
    writers.as_npz(folder := tmp_path_factory.mktemp("data") / "mine", parts)
    return folder.parent


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = data.main(["--copies", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_pairs_are_said_and_drawn(capsys: pytest.CaptureFixture[str], root: Path, tmp_path: Path) -> None:
    where, picture = ["folder:mine", "fashion-mnist", "--data-root", str(root)], tmp_path / "pairs.png"
    code, out, _ = run(capsys, *where, "--picture", str(picture), "--json")
    rows = json.loads(out)
    upstream, test = load("folder:mine", "train", root=root), load("fashion-mnist", "test")
    assert code == 0 and sorted(row["downstream"] for row in rows) == [0, 1, 2]
    for row in rows:
        np.testing.assert_array_equal(
            upstream.images_NHWC[row["upstream"], :, ::-1], test.images_NHWC[row["downstream"]]
        )
        assert row["mirrored"] and row["residual"] == 0 and row["downstream_class"] in test.class_names
    drawn = np.asarray(Image.open(picture))
    tile = lambda top, left: drawn[top : top + 84 : 3, left : left + 84 : 3]  # noqa: E731
    assert drawn.shape == (2 * 84 + 24, 3 * 96 + 12)
    for place, row in enumerate(rows):
        np.testing.assert_array_equal(tile(12, 12 + 96 * place), upstream.images_NHWC[row["upstream"], :, :, 0])
        np.testing.assert_array_equal(tile(96, 12 + 96 * place), test.images_NHWC[row["downstream"], :, :, 0])
    code, out, _ = run(capsys, *where)
    assert "3 pairs: 3 of 43 training images" in out and "3 of them mirrored" in out


def test_nothing_found_draws_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "pairs.png"
    code, out, _ = run(capsys, "shapes-count@50", "fashion-mnist", "--picture", str(picture))
    assert code == 0 and "0 pairs" in out and "no picture" in out and not picture.exists()


def test_mistakes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments, answer in (
        (["digts", "digits"], "'digits'"),
        (["digits", "digits", "--picture", str(tmp_path / "x.jpg")], ".png"),
        (["digits", "digits", "--picture", str(tmp_path / "none" / "x.png")], "folder that is there"),
        (["digits@9999999", "digits"], "Ask for"),
        (["pets", "digits"], "not on this machine"),
        (["digits"], "--copies"),
    ):
        code, out, err = run(capsys, *arguments)
        assert code == 2 and not out and answer in err
