"""Extensions: found, refused, and checked against their contracts."""

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import textwrap
import zipfile
from dataclasses import replace
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest

from bench.commands import check
from bench.commands.check_model import FEATURES
from bench.core.errors import EXIT_USAGE, UserError
from bench.plan.__main__ import main as plan_main
from bench.study import registry
from tests.conftest import PROJECT
from tests.e2e.test_extend import plugins

# -- extensions outside the project: in a folder, in an installed wheel; and checked by `vit-bench check` --------------


FILES = plugins()
PACKAGES = (
    "baselines",
    "bench.data.sets",
    "bench.tasks",
    "bench.suites",
    "bench.questions",
    "bench.report.figures",
    "bench.execute.jobs",
)


def write(folder: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(textwrap.dedent(text).lstrip())
    return folder


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Plug-ins that a test adds are forgotten after it."""
    monkeypatch.setenv(registry.PLUGINS, "")
    before = set(sys.modules)
    yield
    monkeypatch.undo()
    registry.forget()
    for name in set(sys.modules) - before:
        package, _, last = name.rpartition(".")
        if package in PACKAGES:
            vars(sys.modules[package]).pop(last, None)
            del sys.modules[name]
    for kind in registry.SUBFOLDERS:
        registry.names(kind)


def test_a_folder_of_extensions(tmp_path):
    assert "stripes" not in registry.names("data set")
    registry.add_plugins(str(write(tmp_path / "mine", FILES)))
    assert registry.load("data set", "stripes").kind == "rendered"
    assert registry.load("task", "centroid").revision == 1
    assert registry.load("suite", "perceptrons").question == "do perceptrons see stripes?"
    assert registry.family_of("MLP-8").label == "MLP"
    assert registry.source_of("MLP-8") == tmp_path / "mine/models/mlp.py"
    assert str(tmp_path / "mine") in os.environ[registry.PLUGINS], "workers look there too"
    assert {"timm", "bit"} <= set(registry.names("family"))


@pytest.mark.parametrize(
    "kind, file, text, wanted",
    [
        ("task", "tasks/mine.py", "def evaluat(context):\n    pass\n", r"mine\.py has no TASK = Task\(…\)"),
        ("job", "jobs/mine.py", "JOB = 3\n", r"mine\.py has no JOB = Job\(…\)"),
        ("data set", "data/mine.py", "", r"mine\.py has no DATASET"),
        ("data set", "data/mine.py", 'DATASET = {"name": "mine"}\n', r"mine\.py has no DATASET"),
        (
            "suite",
            "suites/mine.py",
            "from bench.study.suite import Suite\nSUITE = Suite(name='yours', question='?', cells=list)\n",
            "is called 'yours'",
        ),
    ],
)
def test_a_file_that_exports_nothing_of_its_kind_is_named(tmp_path, kind, file, text, wanted):
    registry.add_plugins(str(write(tmp_path, {file: text})))
    with pytest.raises(UserError, match=wanted):
        registry.load(kind, "mine")


def test_folders_that_are_refused(tmp_path):
    """One without extensions; a name that is taken; a broken file."""
    with pytest.raises(UserError, match="has none of the folders"):
        registry.add_plugins(str(tmp_path))
    registry.add_plugins(str(write(tmp_path / "a", {"tasks/mine.py": "REVISION = 1\nevaluate = missing\n"})))
    with pytest.raises(UserError, match=rf"{tmp_path}/a/tasks/mine.py, line 2 is broken: NameError"):
        registry.load("task", "mine")
    registry.add_plugins(str(write(tmp_path / "b", {"tasks/fewshot.py": FILES["tasks/centroid.py"]})))
    with pytest.raises(UserError, match=r"fewshot\.py has the name of a task in .*bench/tasks"):
        registry.names("task")


@pytest.mark.gate
def test_extensions_of_an_installed_wheel(tmp_path, monkeypatch):
    """A wheel whose entry point names a package with the same folders; installed, nothing of it is named anywhere."""
    wheel, name = tmp_path / "tiny_nets-1.0-py3-none-any.whl", "tiny_nets-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in FILES.items():
            archive.writestr(f"tiny_nets/extensions/{path}", textwrap.dedent(text).lstrip())
        archive.writestr("tiny_nets/__init__.py", "raise ImportError('listing imports nothing')\n")
        archive.writestr("tiny_nets/extensions/__init__.py", "")
        archive.writestr(f"{name}/METADATA", "Metadata-Version: 2.1\nName: tiny-nets\nVersion: 1.0\n")
        archive.writestr(f"{name}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{name}/entry_points.txt", "[vit_bench]\ntiny = tiny_nets.extensions\n")
        archive.writestr(f"{name}/RECORD", "".join(f"{each},,\n" for each in [*archive.namelist(), f"{name}/RECORD"]))
    installed = tmp_path / "site"
    install = ("install", "--no-index", "--no-deps", "--no-build-isolation", "--quiet", "--target", installed, wheel)
    done = subprocess.run([sys.executable, "-m", "pip", *map(str, install)], capture_output=True, text=True)
    if "No module named pip" in done.stderr:
        pytest.skip("pip is not installed")
    assert done.returncode == 0, done.stderr
    monkeypatch.syspath_prepend(str(installed))
    importlib.invalidate_caches()
    registry.forget()
    assert "stripes" in registry.names("data set") and "centroid" in registry.names("task")
    model = registry.build_model("MLP-8", image_size=4, channels=1, num_classes=3)
    assert model.num_features == 8 and installed in registry.source_of("MLP-8").parents


def test_extensions_of_an_editable_installation(tmp_path, monkeypatch):
    """Their package lies on no path: a finder leads to it. Listing imports neither it nor what lies in it."""
    folder = tmp_path / "elsewhere"
    write(folder / "extensions", FILES)
    (folder / "__init__.py").write_text("raise ImportError('listing imports nothing')")
    (folder / "extensions/__init__.py").touch()

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            return spec_from_file_location(name, folder / "__init__.py") if name == "tiny_nets" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    point = importlib.metadata.EntryPoint("tiny", "tiny_nets.extensions", "vit_bench")
    monkeypatch.setattr(registry, "_entry_points", lambda: [point])
    registry.forget()
    assert "stripes" in registry.names("data set") and "centroid" in registry.names("task")


@pytest.mark.parametrize(
    "kind, name",
    [
        ("models", "family"),
        ("data", "data-set"),
        ("tasks", "task"),
        ("suites", "suite"),
        ("figures", "figure"),
        ("jobs", "job"),
    ],
)
def test_a_package_that_an_extension_lacks_is_named_with_the_line(verb, tmp_path, kind, name):
    write(tmp_path / "mine", {f"{kind}/needy.py": "REVISION = 1\nimport no_such_package\n"})
    done = verb("check", f"{name}:needy" if kind != "models" else "needy", "--plugins", "mine")
    assert done.returncode == 2 and "needy.py, line 2 is broken" in done.stderr, done.stdout + done.stderr
    assert "'no_such_package'" in done.stderr and "pip install no_such_package" in done.stderr


FACTS = 'kind="rendered", description="noise", licence="none needed", source="this file", how_to_get="Nothing to get."'
DRAWN = f"""
    from bench.data.data_set import DataSet

    def load(split, *, root):
        raise KeyError("pixels")

    DATASET = DataSet(name="torn", {FACTS}, load=load)
"""
RAISES = {
    "cells": (
        "suites/torn.py",
        "from bench.study.suite import Suite\ndef cells(options):\n    return 1 / 0\n"
        "SUITE = Suite(name='torn', question='does it?', cells=cells)\n",
        ("--suite", "torn"),
        "line 3, failed: ZeroDivisionError: division by zero",
    ),
    "load": ("data/torn.py", DRAWN, ("--suite", "smoke", "--data", "torn"), "line 4, failed: KeyError: 'pixels'"),
    "cells, oddly": (
        "suites/torn.py",
        "from bench.study.suite import Suite\ndef cells(options):\n    raise BaseException('boom')\n"
        "SUITE = Suite(name='torn', question='does it?', cells=cells)\n",
        ("--suite", "torn"),
        "line 3, failed: BaseException: boom",
    ),
    "accepts": (
        "models/torn.py",
        "from vit.model_family import ModelFamily\ndef accepts(name):\n    return int(name) > 0\n"
        "FAMILY = ModelFamily(label='Torn', accepts=accepts, build=accepts)\n",
        ("--suite", "smoke", "--models", "Torn-8"),
        "line 3, failed: ValueError: invalid literal",
    ),
}


@pytest.mark.parametrize("where", RAISES)
def test_what_an_extension_raises_is_one_message_with_its_line(tmp_path, capsys, where):
    file, text, words, said = RAISES[where]
    write(tmp_path, {file: text})
    assert plan_main([*words, "--plugins", str(tmp_path)]) == EXIT_USAGE
    shown = capsys.readouterr().err
    assert f"The plug-in {tmp_path / file}, {said}" in shown and "Traceback" not in shown


def test_an_error_of_the_project_itself_keeps_its_traceback(monkeypatch):
    def fails(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("bench.plan.__main__.make_plan", fails)
    with pytest.raises(ZeroDivisionError):
        plan_main(["--suite", "smoke"])


# -- vit-bench check ---------------------------------------------------------------------------------------------------


def test_every_kind_is_checked_and_all_is_met(verb, tmp_path):
    write(tmp_path / "mine", FILES)
    for name in ("MLP-8", "ViT-pico/14:head=masked", "stripes", "centroid", "perceptrons"):
        done = verb("check", name, "--plugins", "mine")
        assert done.returncode == 0 and "NO" not in done.stdout, done.stdout + done.stderr
        assert done.stdout.endswith("All met.\n") and done.stdout.count("\n  ok") >= 4
    assert verb("check", "stripse").returncode == 2
    rows = json.loads(verb("check", "perceptrons", "--json").stdout)
    assert len(rows) == 5 and all(row["met"] for row in rows)


JOB = """
    from bench.study.record import Cost, DataFacts, Execution, ModelFacts, Result
    from bench.execute.jobs.job import Job

    def expected_seconds(cell, *, device="cpu"):
        return 0.1

    def run(cell, context):
        return Result(status="complete", model=ModelFacts(name=cell.model), data=DataFacts(name=cell.data),
                      execution=Execution(device=context.device), cost=Cost())

    JOB = Job(run=run, revision=1, expected_seconds=expected_seconds)
"""


def test_jobs_are_checked(tmp_path, capsys):
    slipshod, silent = JOB.replace("revision=1", "revision=0"), JOB.replace("Result(", "dict(")
    write(tmp_path, {"jobs/idle.py": JOB, "jobs/slipshod.py": slipshod, "jobs/silent.py": silent})
    assert check.main(["idle", "--plugins", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("job idle\n") and said.count("\n  ok") == 3 and said.endswith("All met.\n")
    for name, wrong in (("slipshod", "revision"), ("silent", "a dict, not a Result")):
        assert check.main([f"job:{name}", "--plugins", str(tmp_path)]) == 3
        assert wrong in capsys.readouterr().out
    assert (
        check.main(["job:peers", "--plugins", str(PROJECT / "tools/race")]) == 0
        and "long jobs are not tried" in capsys.readouterr().out
    )


BROKEN = {
    "no seed": ("import random", "self.bias = nn.Parameter(torch.full((1,), random.random()))", "x"),
    "batch": ("", "", "x - x.mean(0)"),
    "no gradient": ("", "", "x.detach()"),  # weights that no logit depends on are a remark
    "not only head": (
        "",
        """self.num_features, self.head = 8, self._modules.pop("fc")
        def features(self, x):
            return self.body(x).relu().mean((2, 3))
        def fc(self, x):
            return self.head(x) + x.mean(1, keepdim=True)""",
        "x",
    ),
}
NET = """
    import torch
    {line}
    from torch import nn
    class Net(nn.Module):
        def __init__(self, num_classes):
            super().__init__()
            self.body = nn.Conv2d(3, 8, 3)
            self.fc = nn.Linear(8, num_classes)
            {more}
        def forward(self, x):
            x = self.body(x).relu().mean((2, 3))
            return self.fc({given})
"""
FOUND = {
    "no seed": "the same weights for the same seed",
    "batch": "alone",
    "no gradient": "gradients",
    "not only head": "fine-tuned",
}


@pytest.mark.parametrize("mistake", BROKEN)
def test_mistakes_of_a_model_are_found(verb, tmp_path, mistake):
    line, more, given = BROKEN[mistake]
    write(tmp_path, {f"{mistake.replace(' ', '_')}.py": NET.format(line=line, more=more, given=given)})
    done = verb("check", f"{mistake.replace(' ', '_')}.py:Net", "--channels", "3")
    wrong = [line for line in done.stdout.splitlines() if line.startswith("  NO")]
    assert done.returncode == 3 and wrong and FOUND[mistake] in wrong[0], done.stdout


@pytest.mark.parametrize(
    "old, new, wanted",
    [
        ('label="MLP"', 'label="MLP", revision="1"', "revision"),
        ('names=("MLP-32",)', "names=8", "names of its family"),
        ('names=("MLP-32",)', 'names=("MPL-32",)', "does not accept MPL-32"),
    ],
)
def test_mistakes_in_the_facts_of_a_family_are_found(tmp_path, capsys, old, new, wanted):
    text = FILES["models/mlp.py"]
    assert old in text
    write(tmp_path, {"models/mlp.py": text.replace(old, new, 1)})
    assert check.main(["MLP-8", "--plugins", str(tmp_path)]) == 3
    assert wanted in capsys.readouterr().out


FEATURELESS = """
    from torch import nn
    class Net(nn.Module):
        def __init__(self, num_classes):
            super().__init__()
            self.body = nn.Sequential(nn.Flatten(), nn.Linear(784, 8), nn.ReLU())
            self.num_features, self.head = 8, nn.Linear(8, num_classes)
        def features(self, x):
            return self.body(x)[:, :4]
        def forward(self, x):
            return self.head(self.body(x))
"""


def test_what_rests_on_a_failed_requirement_is_no_further_failure(tmp_path, capsys, monkeypatch):
    """A classifier whose features are too few: the rest that can be looked at is."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, {"featureless.py": FEATURELESS})
    assert check.main(["featureless.py:Net", "--json"]) == 3
    rows = {row["requirement"]: row for row in json.loads(capsys.readouterr().out)}
    assert [name for name, row in rows.items() if row["met"] is False] == [FEATURES]
    resting = {name for name, row in rows.items() if row["detail"].startswith("not looked at")}
    assert resting == {
        "treats every image alone in test mode",
        "its features see the whole image",
        "is saved and loaded",
    }
    assert rows["learns"]["met"] and rows["changes of these are noticed"]["met"]


def test_weights_that_cannot_be_saved_do_not_end_the_check(tmp_path, capsys, monkeypatch):
    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr("bench.store.weights.write", full)
    assert check.main(["ViT-pico/14", "--json"]) == 3
    rows = json.loads(capsys.readouterr().out)
    assert [row["requirement"] for row in rows if row["met"] is False] == ["is saved and loaded"]
    assert [row["requirement"] for row in rows[-2:]] == ["can be fine-tuned", "changes of these are noticed"]


UNSEEDED = f"""
    import numpy as np
    from bench.data import cache
    from bench.data.data_set import DataSet
    from bench.data.image_set import ImageSet

    def load(split, *, root):
        draw = lambda: {{"pixels": np.random.default_rng().integers(0, 256, (40, 8, 8, 1), np.uint8)}}
        return ImageSet(name="unseeded", split=split, images_NHWC=cache.arrays(f"unseeded-{{split}}", draw)["pixels"],
                        labels_N=np.arange(40) % 4, class_names=("a", "b", "c", "d"), kind="rendered")

    DATASET = DataSet(name="unseeded", {FACTS}, images=(40, 40), classes=4, load=load)
"""


def test_a_set_that_another_process_would_draw_otherwise_is_found_although_it_is_cached(verb, tmp_path):
    write(tmp_path / "mine", {"data/unseeded.py": UNSEEDED})
    done = verb("check", "unseeded", "--plugins", "mine")
    wrong = [line for line in done.stdout.splitlines() if line.startswith("  NO")]
    assert done.returncode == 3 and len(wrong) == 1 and "the same every time" in wrong[0], done.stdout


# -- a file that cannot be imported is named, with the line, by whatever verb meets it ---------------------------------


@pytest.mark.parametrize(
    "text, line, what",
    [
        ("FAMILY = 1\ndef build(:\n", 2, "invalid syntax"),
        ("FAMILY = 1\n\nREVISION = revision\n", 3, "NameError"),
        ("FAMILY = 1\nimport no_such_package.part\n", 2, "No module named 'no_such_package'"),
        ("FAMILY = 1\n\n\nraise SystemExit(2)\n", 4, "SystemExit: 2"),
        ("from bench.study.cell import Sell\n", 1, "cannot import name 'Sell'"),
        ("FAMILY = 1\nraise BaseException('boom')\n", 2, "BaseException: boom"),
    ],
)
def test_one_message_names_file_and_line(text, line, what, tmp_path, monkeypatch):
    package = tmp_path / "added"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "mine.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(registry.KINDS, "family", replace(registry.KINDS["family"], package="added"))
    registry.names.cache_clear()
    try:
        with pytest.raises(UserError) as refusal:
            registry.load("family", "mine")
    finally:
        registry.names.cache_clear()
        registry.load.cache_clear()
        for name in [name for name in registry.importlib.sys.modules if name.partition(".")[0] == "added"]:
            del registry.importlib.sys.modules[name]
    assert f"added/mine.py, line {line}" in refusal.value.what and what in refusal.value.what
    assert ("pip install no_such_package" in refusal.value.fix) == ("no_such_package" in text)
