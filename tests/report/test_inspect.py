"""`bench.probe --draw` and `bench.report --cell`: figures of weights as a run keeps them, for reports to find."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from bench import look_inside, probe
from bench.core import registry
from bench.core.errors import UserError
from bench.report import __main__ as report
from bench.report import inspections
from bench.store import weights


def checkpoint(folder: Path, name: str, size: int = 28) -> Path:
    torch.manual_seed(1)
    sizes = {"image_size": size, "channels": 1, "num_classes": 3}
    path = folder / "final.safetensors"
    weights.write(path, registry.build_model(name, **sizes).state_dict(), {**sizes, "model": name, "data": "digits@20"})
    return path


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("R5+ViT-pico/14:position=learned-1d", {"filters", "positions", "distance", "rollout"}),
        ("AxialViT-pico/7:position=none", {"filters"}),
        ("R8x0.125-s2", {"filters"}),
    ],
)
def test_what_a_model_allows_is_drawn(name: str, kinds: set[str], tmp_path: Path, capsys) -> None:
    study = tmp_path / "study"
    given = ["--checkpoint", str(checkpoint(tmp_path, name)), "--data", "fashion-mnist"]
    assert probe.main([*given, "--draw", str(study / inspections.FOLDER)]) == 0
    found = inspections.read(study)
    assert {figure.name.rpartition("-")[2] for figure in found} == kinds
    assert all(figure.folder == inspections.FOLDER and figure.png[:4] == b"\x89PNG" for figure in found)
    assert ("not drawn" in capsys.readouterr().err) == (len(kinds) < 4)
    for figure in found:
        table = pd.read_csv(study / inspections.FOLDER / f"{figure.name}.csv")
        assert set(table["state"]) == set(look_inside.STATES)

    drawn = study / inspections.FOLDER / f"{found[0].name}.svg"
    drawn.write_text(drawn.read_text()[:500])
    with pytest.raises(UserError, match="cannot be read"):
        inspections.read(study)


def test_no_weights_is_a_users_mistake(tmp_path: Path, capsys) -> None:
    assert report.main(["--cell", str(tmp_path)]) != 0
    assert "no weights" in capsys.readouterr().err
