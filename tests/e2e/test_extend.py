"""A family, a data set, a task, a question, a figure, a suite: one file each, in a folder of plug-ins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from textwrap import dedent

import pytest

from bench.store.records import read_record
from tests.conftest import PROJECT, stay_on_one_core

FAMILY = '''
"""Multi-layer perceptrons on pixels."""
from vit.model_family import ModelFamily

def accepts(name):
    return name.startswith("MLP-") and name[4:].isdigit()

def build(name, *, image_size, channels, num_classes):
    from torch import nn

    class MLP(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.num_features = width
            self.body = nn.Sequential(nn.Flatten(), nn.Linear(channels * image_size**2, width), nn.ReLU())
            self.head = nn.Linear(width, num_classes)

        def features(self, x_BCHW):
            return self.body(x_BCHW)

        def forward(self, x_BCHW):
            return self.head(self.features(x_BCHW))

    return MLP(int(name[4:]))

FAMILY = ModelFamily(label="MLP", names=("MLP-32",), accepts=accepts, build=build)
'''

DATA = '''
"""Stripes of four directions."""
import numpy as np
from bench.data.data_set import DataSet
from bench.data.image_set import ImageSet

def load(split, *, root):
    rng = np.random.default_rng(split == "test")
    labels = np.arange(400) % 4
    y, x = np.mgrid[:28, :28]
    angle = labels * np.pi / 4
    phase = rng.uniform(0, 6, 400)[:, None, None]
    wave = np.sin(x * np.cos(angle)[:, None, None] + y * np.sin(angle)[:, None, None] + phase)
    noisy = 127 + 60 * wave + rng.normal(0, 20, wave.shape)
    return ImageSet(name="stripes", split=split, images_NHWC=noisy.clip(0, 255).astype(np.uint8)[..., None],
                    labels_N=labels, class_names=("0", "45", "90", "135"), kind="rendered")

DATASET = DataSet(name="stripes", kind="rendered", description="stripes of four directions", licence="none needed",
                  source="drawn by this file", how_to_get="Nothing to get.", images=(400, 400), classes=4, load=load)
'''

TASK = '''
"""Nearest class mean on frozen features."""
import numpy as np
from bench.core.record import Score
from bench.tasks.task import Task

def forward_images(*, num_train, num_test, **_):
    return num_train + num_test

def evaluate(context, *, data):
    train, test = context.load(data, "train"), context.load(data, "test")
    features = context.features(train.images_NHWC)
    means = np.stack([features[train.labels_N == k].mean(0) for k in range(train.num_classes)])
    distance = ((context.features(test.images_NHWC)[:, None] - means) ** 2).sum(-1)
    value = float((distance.argmin(1) == test.labels_N).mean())
    return [Score(task="centroid", data=data, metric="accuracy", value=value,
                  stderr=(value * (1 - value) / len(test)) ** 0.5, num_test=len(test),
                  num_classes=test.num_classes, chance=1 / test.num_classes)]

TASK = Task(evaluate=evaluate, forward_images=forward_images)
'''

SUITE = '''
"""Perceptrons on stripes."""
from bench.core.spec import Cell, Recipe, TaskSpec
from bench.suites.suite import Suite

def cells(options):
    task = TaskSpec(task="centroid", data="stripes")
    return [Cell(model=m, data="stripes", num_images=200, horizons=(0, 2000), tasks=(task,),
                 recipe=Recipe(lr=3e-3, warmup_images=448),
                 axes=("compute",)) for m in options.models or ("MLP-8", "MLP-32")]

SUITE = Suite(name="perceptrons", question="do perceptrons see stripes?", figures=("widths",),
              questions=("beats-untrained",), headline=("stripes",), cells=cells)
'''

FIGURE = '''
"""Accuracy against width."""
import pandas as pd
import seaborn.objects as so
from bench.report.figures import _style
from bench.report.figures.figure import Drawing, Figure

def draw(evidence):
    widths = {r.directory: r.model.num_features for r in evidence.records.records}
    last = evidence.scores[evidence.scores.measure == "centroid:stripes"].sort_values("images_seen")
    last = last.groupby("directory", observed=True).value.last()
    data = pd.DataFrame(sorted((widths[name], value) for name, value in last.items()), columns=["width", "accuracy"])
    with _style.context():
        figure = _style.figure(width=4, height=3)
        so.Plot(data, x="width", y="accuracy").add(so.Dot()).theme(_style.THEME).on(figure).plot()
    return Drawing(figure=figure, data=data, caption="Stripes.", alt="Points.")

FIGURE = Figure(title="Accuracy against width", draw=draw)
'''


QUESTION = '''
"""Does a wider perceptron do better?"""
from bench.analysis import wording
from bench.analysis.comparisons import Pair, compare, mean_finding
from bench.analysis.question import Question

NAME = "wider is better"

def ask(evidence):
    by_width = sorted(evidence.on_axis("compute"), key=lambda series: series.last.params)
    if len(by_width) > 1:
        narrow, wide = by_width[0].last, by_width[-1].last
        pair = Pair(contrast="narrowest", model=wide.model, point=wide, base=narrow)
        if compared := compare(evidence, [pair], "headline", apart=True):
            yield mean_finding(NAME, [wide.family], compared)

QUESTION = Question(name=NAME, label="Wider", text="Does a wider perceptron do better?", yes="better", no="worse",
                    ask=ask, say=wording.differences)
'''


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A folder of plug-ins: six files, and nothing of the project is touched."""
    folder = tmp_path_factory.mktemp("extended") / "mine"
    for path, text in {
        "models/mlp.py": FAMILY,
        "data/stripes.py": DATA,
        "tasks/centroid.py": TASK,
        "suites/perceptrons.py": SUITE,
        "figures/widths.py": FIGURE,
        "questions/wider_is_better.py": QUESTION,
    }.items():
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_text(dedent(text).lstrip())
    return folder


IN_ONE_PROCESS = """
import contextlib, importlib, io, json, sys
answers = []
for verb, *words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = importlib.import_module(f"bench.{verb}").main(words)
    answers.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(answers))
"""


@pytest.mark.slow
def test_they_are_run_checked_planned_suggested_and_counted(extended, bench, tmp_path):
    done = bench("run", "--suite", "perceptrons", "--plugins", extended, one_core=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "do perceptrons see stripes?" in done.stdout
    records = [read_record(p) for p in (tmp_path / "results").glob("perceptrons/cells/*/record.json")]
    assert {r.model.family for r in records} == {"MLP"}
    for record in records:
        before, after = ({s.task: s.value for s in row.scores} for row in record.horizons)
        assert after["upstream"] > 0.6 > before["upstream"]
        assert after["centroid"] > 0.3
        assert record.model.forward_macs.dense == record.model.num_features * (784 + 4)
    assert (tmp_path / "results/perceptrons/figures/widths.png").stat().st_size > 1000
    found = json.loads((tmp_path / "results/perceptrons/findings.json").read_text())["findings"]
    (wider,) = [finding for finding in found if finding["question"] == "wider is better"]
    assert wider["evidence"][0]["model"] == "MLP-32" and wider["low"] < wider["estimate"] < wider["high"]
    assert {f["question"] for f in found} == {
        "wider is better",
        "beats untrained",
    }
    assert "Wider, MLP" in (tmp_path / "results/perceptrons/report.md").read_text()
    plan = ("plan.__main__", "--suite", "smoke", "--models", "MLP-16", "--data")
    calls = [
        ("check", "figure:widths", "--plugins", str(extended), "--study", "results/perceptrons"),
        ("check", "question:wider-is-better", "--plugins", str(extended), "--study", "results/perceptrons"),
        (*plan, "stripes", "--tasks", "fewshot,centroid", "--json"),
        (*plan, "stripes@1000"),
        ("run", "--suite", "smoke", "--models", "MPL-32"),
        ("flops", "MLP-32", "--image-size", "28", "--classes", "10", "--json"),
    ]
    variables = os.environ | {"PYTHONPATH": str(PROJECT), "VIT_BENCH_PLUGINS": str(extended)}
    done = subprocess.run(
        [sys.executable, "-c", IN_ONE_PROCESS, json.dumps(calls)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=variables,
        preexec_fn=stay_on_one_core,
    )
    assert done.returncode == 0, done.stderr
    checked, asked, planned, too_many, misspelt, counted = json.loads(done.stdout)
    assert checked[0] == 0 and "the same every time" in checked[1] and "--  " not in checked[1]
    assert asked[0] == 0 and "1 finding" in asked[1], asked
    assert planned[0] == 0, planned[2]
    plan = json.loads(planned[1])  # stripes has 400 images: the suite's 1,000 are all of them
    assert {cell["cell"]["num_images"] for cell in plan["cells"]} == {100, None}
    cut, unswept = plan["notes"]
    assert cut == "stripes has 400 training images; all are used instead of the suite's 1,000."
    assert "Learning rate not swept" in unswept and "MLP-16" in unswept
    assert too_many[0] == 2 and "stripes has only 400 training images" in too_many[2]
    assert misspelt[0] == 2 and "MLP-32" in misspelt[2]
    assert counted[0] == 0 and json.loads(counted[1])


@pytest.mark.slow
def test_the_newcomers_work_in_the_suites_there_were(extended, bench, tmp_path):
    done = bench(
        "run",
        "--suite",
        "smoke",
        "--models",
        "MLP-16",
        "--tasks",
        "fewshot,centroid",
        "--only",
        "*1000*",
        "--set",
        "lr=1e-3",
        VIT_BENCH_PLUGINS=str(extended),
        one_core=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = [read_record(p) for p in (tmp_path / "results").glob("smoke/cells/mlp*1000*/record.json")]
    assert {(s.task, s.data) for s in record.horizons[-1].scores} == {
        ("upstream", "fashion-mnist"),
        ("fewshot", "fashion-mnist"),
        ("fewshot", "digits"),
        ("centroid", "fashion-mnist"),
        ("centroid", "digits"),
    }
    report = (tmp_path / "results/smoke/report.html").read_text()
    assert "MLP-16" in report
