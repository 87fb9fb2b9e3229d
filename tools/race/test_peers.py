"""The race against other libraries: same function, same work, fair environments, honest ratios."""

import dataclasses
import json
import math

import pytest
import torch

from bench.analysis import evidence
from bench.analysis.study_data import Records
from bench.core.environment import Environment
from bench.cost.timing import spread
from bench.store.study import Study
from bench.study import registry
from bench.study.cell import Cell, Recipe, to_json
from bench.study.record import ContenderResult, Execution, ModelFacts, PeersResult
from bench.study.suite import SuiteOptions
from tests.analysis._records import blank
from tests.train.driving import job_context
from tools.race import builders, contenders, job, races
from tools.race.contenders import Competitor
from tools.race.figures import peers as figure
from tools.race.settings import AS_INSTALLED
from tools.race.suites import peers as suite

CELL = Cell(
    model="ViT-pico/14",
    data="fashion-mnist",
    num_images=64,
    image_size=28,
    channels=3,
    job="peers",
    recipe=Recipe(batch=8, shift=0, lr=1e-4),
    model_options=(("gelu", "exact"),),
)
SAME_LOSS = 0.02  # largest relative difference between losses of the first steps that rounding to bfloat16 explains


def record(**windows):
    """A record of a race in which these contenders had these windows."""
    entrants = [
        ContenderResult(
            name=name.replace("_", ", "),
            package=None if name == "this project" else "timm",
            left_out=None,
            windows=tuple(values),
            images_per_second=spread(values),
            share_of_peak=0.5,
            losses=(2.0, 1.0),
            same_function=True,
            dtype="float32",
        )
        for name, values in windows.items()
    ]
    entrants.append(
        ContenderResult(
            name="torchvision, defaults",
            package="torchvision",
            left_out="not installed: pip install torchvision",
            windows=(),
            images_per_second=spread([]),
        )
    )
    return blank(
        CELL,
        peers=PeersResult(revision=1, batch=8, window_seconds=1.0, peaks={}, contenders=tuple(entrants)),
        model=ModelFacts(name=CELL.model, family="ViT", params=10),
        execution=Execution(device="cpu", threads=2),
        environment=Environment(torch="2", commit="c"),
    )


@pytest.mark.parametrize("package", contenders.LIBRARIES)
def test_each_library_computes_our_function_with_our_weights(package):
    pytest.importorskip(package)
    torch.manual_seed(0)
    sizes = {"image_size": 28, "channels": 3, "num_classes": 7}
    ours = registry.build_model("ViT-b/14", **sizes, gelu="exact", depth=2)
    torch.nn.init.normal_(ours.head.weight)
    theirs, same = builders.build(package, ours, name="ViT-b/14", image_size=28, num_classes=7)
    assert same == (package != "vit_pytorch")
    x_BCHW = torch.rand(2, 3, 28, 28) * 2 - 1
    with torch.inference_mode():
        given, wanted = theirs.eval()(x_BCHW), ours.eval()(x_BCHW)
    assert given.shape == wanted.shape
    if same:
        torch.testing.assert_close(given, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["timm:test_resnet", "torchvision:shufflenet_v2_x0_5"])
def test_a_librarys_own_network_races_it(name):
    pytest.importorskip(package := name.partition(":")[0])
    (cell,) = suite.cells(SuiteOptions(models=(name,)))
    ours = registry.build_model(name, image_size=32, channels=3, num_classes=7, **dict(cell.model_options)).eval()
    x_BCHW = torch.rand(1, 3, 32, 32) * 2 - 1
    with torch.inference_mode():
        wanted = ours(x_BCHW)
        theirs, same = builders.build(package, ours, name=name, image_size=32, num_classes=7)
        assert same and torch.equal(theirs.eval()(x_BCHW), wanted)
    with pytest.raises(builders.NoCounterpart):
        builders.build("transformers", ours, name=name, image_size=32, num_classes=7)


@pytest.mark.parametrize("name", ["R50x1", "R26+ViT-S/32"])
def test_timms_counterparts_of_the_convolutional_models(name):
    (cell,) = suite.cells(SuiteOptions(models=(name,)))
    torch.manual_seed(0)
    ours = registry.build_model(name, image_size=64, channels=3, num_classes=7, **dict(cell.model_options))
    for parameter_name, parameter in ours.named_parameters():
        if parameter_name.startswith("head.") or parameter_name.endswith("norm3.weight"):
            torch.nn.init.normal_(parameter)
    theirs, _ = builders.build("timm", ours, name=name, image_size=64, num_classes=7)
    x_BCHW = torch.rand(1, 3, 64, 64) * 2 - 1
    with torch.inference_mode():
        torch.testing.assert_close(theirs.eval()(x_BCHW), ours.eval()(x_BCHW), rtol=1e-3, atol=1e-3)
    with pytest.raises(builders.NoCounterpart, match=name.replace("+", r"\+")):
        builders.build("torchvision", ours, name=name, image_size=64, num_classes=7)


def test_only_what_is_tuned_gets_our_allocator_settings(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "1")
    for contender in contenders.contenders("cpu", threads=2):
        assert ("MALLOC_TRIM_THRESHOLD_" in contender.environment()) == contender.tuned
    untuned = [contender.name for contender in contenders.contenders("cpu") if not contender.tuned]
    assert untuned == [contenders.BASE]


def test_names_are_the_same_where_races_are_run_and_read():
    names = [contender.name for contender in contenders.contenders("cpu")]
    assert (races.OWN, races.BASE) == (contenders.OWN, contenders.BASE) and {races.OWN, races.BASE} <= set(names)


def test_figure_and_table_name_who_was_left_out_and_why():
    entry = record(**{"this project": [30.0, 31, 29], "timm_defaults": [10.0, 10, 10]})
    raced = evidence.build(Records(suite="peers", records=(entry,)))
    drawing = figure.draw(raced)
    assert "pip install torchvision" in drawing.caption
    rows = drawing.data.set_index("contender")
    assert rows.loc["this project", "over_base"] == pytest.approx(3.0, rel=0.01)
    assert rows.loc["this project", "loss_difference"] == 0
    assert math.isnan(rows.loc["torchvision, defaults", "over_base"])
    (axes,) = drawing.figure.axes  # of those that are not this project, what its answer says
    drawn = {name.get_text(): line for name, line in zip(axes.get_yticklabels(), _dots(axes), strict=True)}
    ratios = {c.name: c.own_over.value for race in races.races(raced) for c in race if not c.own and c.own_over}
    assert {name: line.get_xdata()[0] for name, line in drawn.items()} == pytest.approx(ratios)
    (table,) = races.tables(raced)
    assert table is not None and "pip install torchvision" in table.markdown()


def _dots(axes):
    return [line for line in axes.get_lines() if line.get_marker() == "o"]


@pytest.mark.gate
def test_a_race_of_real_processes_does_the_same_work_in_each(race, tmp_path, monkeypatch):
    entrants = (
        Competitor(name=contenders.OWN, package=None, tuned=True),
        Competitor(name=contenders.BASE, package="timm"),
        Competitor(name=f"{contenders.OWN}, 2 cells at once", package=None, tuned=True, processes=2),
        Competitor(name="absent", package="no_such_library_anywhere", tuned=True),
    )
    monkeypatch.setitem(contenders.LIBRARIES, "no_such_library_anywhere", ("absent", "pip install it"))
    monkeypatch.setattr(contenders, "contenders", lambda device, threads: entrants)
    monkeypatch.setitem(job.STARTS, "cpu", 2)
    monkeypatch.setitem(job.ROUNDS, "cpu", 1)
    monkeypatch.setitem(job.WINDOW_SECONDS, "cpu", 0.02)
    directory = Study(tmp_path).cell(CELL)
    directory.prepare(CELL)
    context = job_context(tmp_path, directory=directory, attempt=directory.new_attempt())
    cell = dataclasses.replace(CELL, model="ViT-b/14", model_options=(("gelu", "exact"), ("depth", 1)))
    result = job.run(cell, context)
    assert result.status == "complete"
    ours, theirs, pair, absent = result.peers.contenders
    assert absent.left_out == "not installed: pip install it"
    assert len(ours.windows) == len(theirs.windows) == 2
    assert len(set(ours.losses)) == len(ours.losses) == 5
    assert pair.losses == ours.losses and len(pair.windows) == 2
    assert ours.losses == pytest.approx(theirs.losses, rel=SAME_LOSS)
    assert result.peers.starts == 2 and theirs.settings == AS_INSTALLED and not theirs.trials
    tried = [trial.settings for trial in ours.trials if trial.over_best is not None]
    assert {s.layout for s in (ours.settings, *tried)} == {"contiguous", "channels_last", "channels_last images"}
    assert pair.settings == ours.settings and not pair.trials
    json.dumps(to_json(result))
