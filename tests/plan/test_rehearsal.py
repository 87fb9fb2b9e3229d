"""--rehearse: every suite's own cells in small, which never pass for others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from baselines import published
from bench.core.errors import UserError
from bench.cost import flops
from bench.data import rehearsed
from bench.data.load import data_set, load
from bench.data.rehearsed import rehearsing
from bench.execute.jobs.job import JobContext
from bench.execute.jobs.train import JOB
from bench.execute.worker import rehearses
from bench.plan.sizes import DataSizes
from bench.store.study import Study
from bench.study import registry
from bench.study.cell import Cell, to_json
from bench.study.options import StudyOptions, folder_name
from bench.study.registry import directory_name
from bench.study.suite import SCALES
from tests.plan.making import grid_asked

SUITES = registry.names("suite")
KEPT = ("lr", "weight_decay", "betas", "optimizer", "clip", "loss", "head_bias", "cooldown", "cooldown_shape", "decay")
KEPT += ("schedule", "average", "label_smoothing", "flip", "crop", "shift")


def cells_of(suite: str, scale: str, **asked) -> tuple[Cell, ...]:
    """The cells of a suite; nothing where it has no such scale."""
    options = StudyOptions.of({"suite": suite, "scale": scale, **asked})
    with rehearsing(options.what.rehearse):
        try:
            found = grid_asked(options, DataSizes(published=True))
        except UserError as error:
            assert "has no scale" in str(error)
            return ()
    return found.chosen


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("suite", SUITES)
def test_a_rehearsal_has_the_study_s_own_cells(suite: str, scale: str) -> None:
    small = cells_of(suite, scale, rehearse=True)
    assert len({directory_name(cell) for cell in small}) == len(small), "what cells differ in stays different"
    with rehearsing():  # every set is here, as it is for a rehearsal
        whole = (
            tuple(grid_asked(StudyOptions.of({"suite": suite, "scale": scale}), DataSizes(published=True)).chosen)
            if small
            else ()
        )
    assert len(small) == len(whole)
    for cut, cell in zip(small, whole, strict=True):
        assert cut.rehearsal and not cell.rehearsal
        assert (cut.model, cut.data, cut.seed, cut.axes, cut.job, cut.held_out) == (
            cell.model,
            cell.data,
            cell.seed,
            cell.axes,
            cell.job,
            cell.held_out,
        )
        assert [getattr(cut.recipe, name) for name in KEPT] == [getattr(cell.recipe, name) for name in KEPT]
        assert [(task.task, task.data) for task in cut.tasks] == [(task.task, task.data) for task in cell.tasks]
        assert len(cut.horizons) == len(cell.horizons) and cut.horizons[-1] <= 2_000
        assert cut.image_size <= cell.image_size
    assert not {directory_name(cell) for cell in small} & {directory_name(cell) for cell in whole}


def test_sizes_that_are_compared_stay_apart_and_in_order() -> None:
    (cell,) = [
        c for c in cells_of("transfer", "paper", rehearse=True) if c.model == "ViT-H/14" and c.data == "jft-300m"
    ]
    tuned = [task.kwargs["image_size"] for task in cell.tasks]
    assert sorted({cell.image_size, *tuned}) == [42, 70, 98], "224, 384 and 512 px in whole patches of 14"
    images = [c.num_images for c in cells_of("scaling", "paper", rehearse=True) if c.axes == ("data_size",)]
    assert sorted({number for number in images if number}) == [20, 24, 28], (
        "fewer than the shortest budget sees, so that Figure 4 is drawn"
    )


def test_a_rehearsal_s_cells_are_taken_for_no_others() -> None:
    (cut, *_) = cells_of("smoke", "cpu", rehearse=True)
    assert directory_name(cut) != directory_name(replace(cut, rehearsal=False)), "were they alike in all else"
    assert to_json(replace(cut, rehearsal=False), omit_defaults=True).keys() == to_json(
        cut, omit_defaults=True
    ).keys() - {"rehearsal"}, "and others have the identities that they had"
    with pytest.raises(UserError, match="rehearsal"):
        rehearses([cut, replace(cut, rehearsal=False)])


@pytest.mark.parametrize(
    "name, narrower",
    [
        ("ViT-H/14", 1),
        ("R152x2", 1),
        ("R152x4", 2),  # of width 2: a third of the time of all rows went to this network
        ("R50+ViT-L/16", 1),
        ("AxialViT-B/16", 1),
        ("ResNet-20", 1),
        ("ResNet-20-s2+ViT-nano/8", 1),
    ],
)
def test_a_network_keeps_its_name_and_its_width_but_the_widest(name: str, narrower: int) -> None:
    sizes = {"image_size": 224, "channels": 3, "num_classes": 10, "activations": False}
    options = tuple(registry.family_of(name).rehearsed.items())
    small, whole = flops.count(name, model_options=options, **sizes), flops.count(name, **sizes)
    assert small.params < 0.55 * whole.params and small.num_features * narrower == whole.num_features


# -- data --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["imagenet", "imagenet:384px", "imagenet-21k", "jft-300m", "cifar100", "pets:384px", "folder:mine"]
)
def test_a_set_that_is_not_here_is_generated_under_its_name(name: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / "cache"))
    with rehearsing():
        train, test = (load(name, split, root=tmp_path) for split in ("train", "test"))
        again = load(name, "train", root=tmp_path)
    assert train.name.partition(":")[0] == name.partition(":")[0]
    assert (len(train), len(test)) == (rehearsed.TRAIN, rehearsed.TEST)
    assert train.num_classes == test.num_classes == rehearsed.CLASSES
    assert set(train.labels_N.tolist()) == set(test.labels_N.tolist()) == set(range(rehearsed.CLASSES))
    assert train.content_hash == again.content_hash != test.content_hash
    assert not set(train.content_keys_N.tolist()) & set(test.content_keys_N.tolist())
    streamed = name.startswith(("imagenet", "jft"))
    assert (train.encoded_bytes is not None) == streamed, "large sets are decoded as they are read, as they would be"
    assert (test.multi_labels is not None) == (train.name.partition(":")[0] == "imagenet"), "ReaL labels"
    with pytest.raises(UserError):
        load(name, "train", root=tmp_path)  # the rehearsal is over


def test_a_set_that_is_here_is_read() -> None:
    whole = load("fashion-mnist:part", "train")
    with rehearsing():
        some = load("fashion-mnist:part", "train")
        assert data_set("fashion-mnist:part").available(None)
    assert set(some.content_keys_N.tolist()) <= set(whole.content_keys_N.tolist())
    assert len(some) == rehearsed.TRAIN and np.bincount(some.labels_N).min() > 90
    assert some.class_names == whole.class_names


# -- a run -------------------------------------------------------------------------------------------------------------


def test_a_rehearsal_is_marked_everywhere_and_goes_on(verb, tmp_path: Path) -> None:
    asked = ("--suite", "smoke", "--rehearse", "--track", "none", "--only", "vit", "--only", "pixels")
    done = verb("run", *asked, "--max-cells", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    study = tmp_path / "results" / folder_name("smoke", "cpu", rehearse=True)
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == [study.name]
    first = {path: path.read_bytes() for path in study.glob("cells/*/record.json")}
    assert len(first) == 2 and "mean nothing" in done.stdout
    done = verb("run", *asked)
    assert done.returncode == 0 and "2 done" in done.stdout
    assert all(path.read_bytes() == data for path, data in first.items()), "and goes on where it was"
    record = json.loads(next(iter(first)).read_text())
    assert record["cell"]["rehearsal"] is True and record["revisions"]["rehearsal"] == 1
    for page in ("report.html", "report.md"):
        assert "Rehearsal: these numbers mean nothing." in (study / page).read_text(), page
    assert json.loads((study / "findings.json").read_text())["rehearsal"]
    for path in study.glob("tables/*.md"):
        assert path.read_text().startswith("### Rehearsal"), path.name
    again = verb("report", study / "study.toml", "--results", tmp_path / "results")
    assert again.returncode == 0 and "Rehearsal" in again.stdout, "the study file leads back to it"
    refused = verb("compare", study, study)
    assert refused.returncode == 2 and "rehearsal" in refused.stderr
    assert verb("report", "--suite", study.name, "--to", "csv").returncode == 2
    assert study.name in verb("status").stdout


def test_a_picture_says_that_it_is_of_a_rehearsal() -> None:
    import pandas as pd

    from bench.report.figures import _style
    from bench.report.figures.figure import Drawing, render

    figure = _style.figure()
    figure.subplots()
    drawn = Drawing(figure=figure, data=pd.DataFrame({"x": [1.0]}), caption="", alt="")
    (made,) = render("toy", "Toy", drawn, mark="Rehearsal.")
    assert made.title == "Rehearsal. Toy"
    assert [text.get_text() for text in figure.texts] == ["Rehearsal."]


# -- two networks at the paper's own settings, with only images, steps and depth cut -----------------------------------


@pytest.mark.parametrize("model", ["ViT-B/16", "R50x1"])
def test_settings_are_those_of_tables_3_and_4(model: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(rehearsed, "TRAIN", 60)
    monkeypatch.setattr(rehearsed, "TEST", 10)
    tasks = ("finetune", "fewshot")
    asked = {"models": (model,), "data": ("jft-300m",), "tasks": tasks, "image_size": 224}
    (cell,) = (c for c in cells_of("scaling", "paper", rehearse=True, **asked) if "compute" in c.axes)
    tuned = next(task for task in cell.tasks if (task.task, task.data) == ("finetune", "cifar10"))
    probed = next(task for task in cell.tasks if (task.task, task.data) == ("fewshot", "cifar10"))
    table4 = next(row for row in published.table("table4") if row["dataset"] == "CIFAR-10")
    small = {"steps": 2, "batch": 2, "held_out": 2, "test_limit": 10, "repeats": 1}  # of the time that a test may take
    tuned = replace(tuned, options=tuple((tuned.kwargs | small).items()))
    probed = replace(probed, options=tuple({"shots": (1,), "draws": 1, "test_limit": 10}.items()))
    recipe = replace(cell.recipe, batch=4, warmup_images=0)
    cell = replace(cell, tasks=(tuned, probed), recipe=recipe, horizons=(2 * recipe.batch,))
    directory = Study(tmp_path / "study").cell(cell)
    directory.path.mkdir(parents=True)  # as whoever claims a cell has done
    context = JobContext(
        directory=directory,
        attempt=tmp_path,
        device="cpu",
        threads=1,
        progress=lambda advanced: None,
        should_stop=lambda: False,
        log=lambda text: None,
    )
    with rehearsing():
        result = JOB.run(cell, context)
    row = next(
        row
        for row in published.table("table3")
        if row["dataset"] == "JFT-300M" and row["models"].startswith(("ViT-B", "R50x{1")[model == "R50x1"])
    )
    assert result.status == "complete" and result.data.image_size == 224
    assert result.model.name == model and result.data.name == "jft-300m"
    (horizon,) = result.horizons
    assert (recipe.lr, recipe.weight_decay) == (float(row["base_lr"]), float(row["weight_decay"]))
    assert (recipe.optimizer, recipe.betas, recipe.cooldown_shape, recipe.cooldown) == (
        ("adamw", (0.9, 0.999), row["lr_decay"], 1.0)
    )
    assert (recipe.loss, recipe.head_bias, recipe.clip) == ("sigmoid", "prior", 0.0)
    assert (horizon.steps, horizon.batch) == (2, recipe.batch), "as they were cut"
    scores = {score.task: score for score in horizon.scores if score.metric == "accuracy"}
    assert set(scores) == {"upstream", "finetune@384px", "fewshot"}
    facts = scores["finetune@384px"].detail
    assert facts["rates"] == [float(rate) for rate in table4["base_lrs"].split(",")]
    assert facts["image_size"] == 384 and facts["steps"] == 2
    assert scores["fewshot"].shots == 1
