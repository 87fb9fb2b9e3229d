"""The wheel, away from the checkout: all that a stranger has. Its environment sees the packages of the running one."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import bench
from bench import __main__ as script
from tests.conftest import PROJECT

pytestmark = pytest.mark.gate

NOTEBOOK = "bench/examples/first_study.ipynb"
COMMANDS = (
    "run --suite smoke --models ViT-pico/14,R8x0.25-s2 --seeds 1",
    "report --suite paper",
    "compare R8x0.25-s2 ViT-pico/14 --suite smoke --at images",
    "fit runs.csv --x compute --y error --figure",
    "check net.py:Net --image-size 64 --channels 3",
    "run --suite smoke --models net.py:Net,pixels --data folder:mine --data-root photos --results own",
    "flops ViT-pico/14",
    "published --reach 85%",
    "status",
    "data fashion-mnist",
    *(f"{verb} --help" for verb in script.verbs()),
)
CELLS = """
import json, sys
import matplotlib
matplotlib.use("agg")
from pathlib import Path
import bench, bench.api
assert Path(bench.__file__).is_relative_to(sys.prefix)
names = {}
for cell in json.loads((Path(bench.__file__).parent / "examples/first_study.ipynb").read_text())["cells"]:
    if cell["cell_type"] == "code":
        exec("".join(cell["source"]), names)
assert {"ViT-pico/14", "R8x0.25-s2"} <= set(names["results"].scores["model"])
assert names["compared"].verdict in ("better", "worse", "no difference")
assert len(names["law"].parameters) > 1
"""
ALIAS = """
import sys, vit_bench.study.registry
from vit_bench import api
from vit_bench.commands.flops import count
import bench.api, bench.commands.flops, bench.study.registry
assert (vit_bench, api, count) == (bench, bench.api, bench.commands.flops.count)
assert sys.modules["vit_bench.study.registry"] is bench.study.registry
assert bench.study.registry.__spec__.name == "bench.study.registry"
print(bench.__path__[0])
"""


NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(8, num_classes)

    def forward(self, x):
        return self.classifier(self.body(x))
"""
AWAY = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(*words: object, **how) -> str:
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, **how)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def installed(*what: object, into: Path) -> Path:
    """The interpreter of a new environment with this, and the packages of the running one, not what they link to."""
    run(sys.executable, "-m", "venv", "--without-pip", into)
    (packages,) = (into / "lib").glob("python*/site-packages")
    (packages / "running.pth").write_text(sysconfig.get_paths()["purelib"])
    pip = sys.executable, "-m", "pip", "--python", into / "bin/python", "install", "-q", "--no-index", "--no-deps"
    run(*pip, "--ignore-installed", *what)
    return into / "bin/python"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy: building writes beside its source."""
    home = tmp_path_factory.mktemp("wheel")
    for name in ("bench", "vit", "baselines"):
        shutil.copytree(PROJECT / name, home / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, home / "source")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", home, home / "source")
    (made,) = home.glob(f"vit_scaling_bench-{bench.__version__}-*.whl")
    return made


def test_the_wheel_holds_every_file_and_no_other_package(wheel):
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    listed = run("git", "-C", PROJECT, "ls-files", "bench", "vit", "baselines").splitlines()
    tracked = {name.removeprefix("bench/_alias/") for name in listed}
    assert tracked <= names
    assert {name.partition("/")[0] for name in names - tracked} == {f"{wheel.name.rsplit('-', 3)[0]}.dist-info"}


def test_the_wheel_works_in_an_environment_of_its_own(wheel, tmp_path):
    python = installed(wheel, into=tmp_path / "env")
    verb, home = tmp_path / "env/bin/vit-bench", tmp_path / "home"
    (home / "bench").mkdir(parents=True)  # a folder of that name is no obstacle
    (home / "runs.csv").write_text("\n".join(["compute,error", *(f"1e{x},{0.9**x}" for x in range(12, 19))]))
    (home / "net.py").write_text(NET)
    for number, image in enumerate(np.random.default_rng(0).integers(256, size=(20, 64, 64, 3), dtype=np.uint8)):
        (folder := home / "photos/mine" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{number}.png")
    for command in COMMANDS:
        assert run(verb, *command.split(), cwd=home, env=AWAY), command
    run(python, "-P", "-c", CELLS + ALIAS, cwd=home, env=AWAY)
    assert (home / "results/smoke/report.html").exists()
    assert (home / "runs.png").exists() and [*home.glob("own/smoke/figures/*.png")]


def test_a_checkout_that_is_installed_has_both_names(wheel, tmp_path):
    python = installed("--no-build-isolation", "-e", wheel.parent / "source", into=tmp_path / "env")
    assert Path(run(python, "-c", ALIAS, cwd=tmp_path, env=AWAY).strip()) == wheel.parent / "source/bench"


def test_another_name_is_the_same_modules_beside_others(tmp_path):
    away = {"cwd": tmp_path, "env": AWAY | {"PYTHONPATH": str(PROJECT / "bench/_alias")}}
    (tmp_path / "bench").mkdir()
    for theirs in ("bench/__init__.py", "vit.py"):
        (tmp_path / theirs).touch()
    assert Path(run(sys.executable, "-c", ALIAS, **away).strip()) == PROJECT / "bench"
    for words, verb in ((["vit_bench", "status"], "status"), (["vit_bench.report"], "report")):
        assert f"vit-bench {verb}" in run(sys.executable, "-m", *words, "--help", **away)
    for name, place in {"bench": "bench", "vit": "vit.py"}.items():
        too_late = f"import {name}\ntry: import vit_bench\nexcept ImportError as error: print(error)"
        assert f"{tmp_path / place} has been imported as {name}." in run(sys.executable, "-c", too_late, **away)


def test_the_notebook_is_committed_as_it_ran():
    text = (PROJECT / NOTEBOOK).read_text()
    cells = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in cells) and len(text) < 250_000
    kinds = {kind for cell in cells for output in cell["outputs"] for kind in (output.get("data") or {})}
    assert {"image/png", "text/html"} <= kinds and not [
        word for word in ("Traceback", "/tmp/", "/home/", "/root/") if word in text
    ]


def test_constraints_are_the_versions_in_records():
    """And every package that is declared for studies has one."""
    lines = (PROJECT / "results/reference/constraints.txt").read_text().splitlines()[1:]
    versions = dict(line.split("==") for line in lines)
    declared = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {entry.partition(">=")[0] for entry in declared} <= set(versions)
    record = next((PROJECT / "results/reference/scaling-cpu/cells").glob("*/record.json"))
    said = json.loads(record.read_text())["environment"]
    for name in ("torch", "timm", "numpy", "scipy", "pandas"):
        assert versions[name] == said[name]
