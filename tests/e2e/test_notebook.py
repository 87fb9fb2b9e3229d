"""The notebook of the examples runs from its first cell to its last."""

from __future__ import annotations

import json

import matplotlib
import pytest

from tests.conftest import PROJECT


@pytest.mark.slow
def test_the_notebook_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    notebook = json.loads((PROJECT / "bench/examples/first_study.ipynb").read_text())
    found: dict = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), found)
            assert not cell["outputs"], "committed without outputs"
    assert {"ViT-pico/14", "R8x0.25-s2"} <= set(found["results"].scores["model"])
    assert found["found"].verdict in ("better", "worse", "no difference")
    assert len(found["law"].parameters) == 2
