"""A cell that could never run is refused before anything is measured, with one that would."""

import contextlib
import functools
import json
import re
from dataclasses import replace

import pytest

from bench import api, run
from bench.core import environment
from bench.core.data_settings import ALLOWED, max_unreadable
from bench.core.errors import EXIT_USAGE, UserError
from bench.cost import precomputed
from bench.plan import estimate, preflight, recipes
from bench.plan.__main__ import main as plan_verb
from bench.plan.sizes import DataSizes
from bench.study import registry
from bench.study import suite as suites
from bench.study.cell import Cell, Recipe, TaskSpec
from bench.study.options import Machine
from bench.study.suite import SuiteOptions
from tests.data import writers


def check(cell, root=None):
    preflight.check_data([cell], DataSizes(root=root))


def test_a_set_of_one_class_is_refused(tmp_path):
    writers.as_npz(tmp_path / "one", writers.make(200, classes=1, side=28))
    with pytest.raises(UserError, match=r"folder:one has images of one class only.*\n.*two classes"):
        check(Cell(model="ViT-pico/14", data="folder:one", horizons=(64,)), tmp_path)


SEVERAL = {  # (budget, task, metrics) -> what is refused
    (64, "adapt", ()): "and pre-training decides on one",
    (0, "fewshot", ()): "and the task fewshot decides on one",
    (0, "vtab", ()): "and the task vtab decides on one",
    (0, "adapt", ("balanced-accuracy",)): "of which there is no balanced accuracy",
    **{(0, task, ("macro-f1",)): "" for task in ("adapt", "finetune", "knn", "linear")},
}


@pytest.mark.parametrize("horizon, task, metrics", SEVERAL)
def test_images_of_several_labels_are_refused_by_what_decides_on_one(horizon, task, metrics, tmp_path, monkeypatch):
    monkeypatch.setenv("VIT_BENCH_LABELS", "")
    rows = [f"{n}.jpg,{('fog|sun', 'sun', 'haze|sun')[n % 3]}" for n in range(60)]
    for n in range(60):
        writers.picture(tmp_path / "sky" / f"{n}.jpg", 4 * n)
    (tmp_path / "sky" / "labels.csv").write_text("\n".join(["file,labels", *rows]))
    options = (("metrics", metrics),) if metrics else ()
    task = TaskSpec(task=task, data="folder:sky:16px:rgb", options=options)
    cell = Cell(model="ViT-pico/8", data=task.data, horizons=(horizon,), image_size=16, channels=3, tasks=(task,))
    said = SEVERAL[horizon, task.task, metrics]
    with pytest.raises(UserError, match=said) if said else contextlib.nullcontext():
        check(cell, tmp_path)


@pytest.mark.parametrize("warmup, budget, refused", [(8, 1024, False), (9, 1024, True), (0, 32, False), (1, 96, True)])
def test_a_warm_up_takes_at_most_a_quarter_of_the_shortest_budget(warmup, budget, refused):
    recipe = Recipe(batch=32, warmup_images=32 * warmup)
    cell = Cell(model="ViT-pico/14", data="glyphs", horizons=(0, budget, 64_000), recipe=recipe)
    asked = [cell, replace(cell, model="R8x0.125-s2", horizons=(0, 64_000)), replace(cell, horizons=(0,))]
    if not refused:
        return preflight.check_warmup(asked)
    with pytest.raises(UserError, match=rf"ViT-pico/14 on glyphs: a warm-up of .* \({warmup} step") as error:
        preflight.check_warmup(asked)
    advised = re.search(r"--set warmup=(\d+),.*--horizons ([\d.]+) times as long \(([\d,]+) images", error.value.fix)
    allowed, longer = int(advised[1]), int(advised[3].replace(",", ""))
    assert longer <= float(advised[2]) * budget < 1.1 * longer + budget / 10
    for number in (allowed, allowed + 32):  # as good as it is said to be, and no more could be
        changed = [replace(c, recipe=replace(c.recipe, warmup_images=number)) for c in asked]
        with pytest.raises(UserError) if number > allowed else contextlib.nullcontext():
            preflight.check_warmup(changed)
    preflight.check_warmup([replace(cell, horizons=(longer,))])


@pytest.mark.parametrize(
    "asked, words",
    [
        (
            ["--suite", "scaling", "--scale", "cpu", "--horizons", "500"],
            ["640 images (20 steps)", "500 images (16 steps)", "--set warmup=128"],
        ),
        (["--suite", "smoke", "--data", "jft-300m", "--models", "ViT-pico/14"], ["jft-300m", "not on this", "--plan"]),
    ],
    ids=["a budget too short for its warm-up", "data that are nowhere"],
)
def test_a_study_that_cannot_be_run_is_refused_before_anything_is_measured(tmp_path, monkeypatch, capsys, asked, words):
    monkeypatch.setattr(estimate, "calibrate", None)
    assert run.main([*asked, "--results", str(tmp_path / "r")]) == EXIT_USAGE
    said = capsys.readouterr().err
    assert all(word in said for word in words), said
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("suite", sorted(set(registry.names("suite")) - {"whole-paper"}))
def test_a_table_shows_how_every_cell_is_trained(suite, monkeypatch, capsys):
    monkeypatch.setattr(estimate, "calibrate", None)
    assert plan_verb(["--suite", suite, "--scale", "cpu", "--recipes", "--json"]) == 0
    shown = capsys.readouterr()
    axes = json.loads(shown.out)
    cells = [c for c in suites.load(suite).cells(SuiteOptions()) if c.job == "train" and any(c.horizons)]
    assert {axis["axis"] for axis in axes} == {axis for cell in cells for axis in cell.axes or ("",)}
    assert {row["model"] for axis in axes for row in axis["rows"]} == {cell.model for cell in cells}
    assert all(axis["equal"] for axis in axes)
    named = [axis["axis"].replace("_", " ") for axis in axes if axis["axis"]]
    assert all(f"Equal along the {name} axis" in shown.err for name in named)


def test_the_table_says_what_is_not_equal():
    one = Cell(model="ViT-pico/14", data="glyphs", horizons=(64_000,), recipe=Recipe(batch=32), axes=("compute",))
    other = replace(one, model="R8x0.125-s2", recipe=replace(one.recipe, warmup_images=640, lr=1e-2))
    (axis,) = recipes.by_axis((one, other), {})
    assert axis.differ == {"warmup_steps": ("20", "62")}  # a model has its own learning rate
    (axis,) = recipes.by_axis((one, other), {"compute": ("warmup_steps",)})
    assert not axis.differ


def test_the_share_of_unreadable_images_is_checked_first_and_then_holds(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(ALLOWED, "")
    asked = ["--suite", "smoke", "--data", "jft-300m", "--results", str(tmp_path / "r"), "--max-unreadable"]
    assert run.main([*asked, "some"]) == EXIT_USAGE and "'some' is not a share" in capsys.readouterr().err
    assert run.main([*asked, "6%"]) == EXIT_USAGE and "jft-300m" in capsys.readouterr().err
    assert max_unreadable() == 0.06


@pytest.mark.parametrize("where", ["/proc/results", "file", "file/below", "x" * 300, "x/" * 2100])
def test_a_bad_results_folder_is_refused_before_anything_is_looked_at(where, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    monkeypatch.setattr(estimate, "calibrate", None)
    monkeypatch.setattr(DataSizes, "_opened", None)
    assert run.main(["--suite", "smoke", "--results", where, "--device", "cpu"]) == EXIT_USAGE
    assert "--results" in (said := capsys.readouterr().err) or where in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_study_is_planned_for_an_apple_gpu(tmp_path, monkeypatch, capsys):
    """The GPU is only a name here: the processes that measure are stood in for."""
    import torch

    def measured(questions, *, device, **_):
        assert device == "mps"
        rates = {
            "train_images_per_second": 100.0,
            "eval_images_per_second": 300.0,
            "params": 10,
            "measured": True,
            "train_flops_per_image": {"dense": 10**6, "paper": 10**6},
            "basis": "made up",
        }
        nothing = precomputed.to_json(measured={}, costs=())
        return {
            key: {"rates": {"model": question["cell"]["model"], **rates}, "precomputed": nothing}
            for key, question in questions.items()
        }

    monkeypatch.setattr(torch.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_available", functools.cache(lambda: True))
    monkeypatch.setattr(estimate, "_measure", measured)
    asked = ["--suite", "smoke", "--device", "mps", "--scale", "cpu", "--results", str(tmp_path / "r")]
    assert plan_verb([*asked, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["device"] == "mps" and made["workers"] == 1 and made["expected_seconds"] > 1
    assert plan_verb([*asked, "--ranks", "2"]) == EXIT_USAGE and "this machine has 1 GPU" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [("--hardware", "8xH100", "--price", "2.5/gpuh"), ("--price", "2.5/gpuh")])
def test_a_run_on_devices_that_are_not_here_is_refused(flags, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(estimate, "calibrate", None)
    asked = ["--suite", "smoke", "--device", "cpu", "--results", str(tmp_path / "r")]
    assert run.main([*asked, *flags]) == EXIT_USAGE
    assert "vit-bench plan --hardware 8xH100" in capsys.readouterr().err
    named = dict(zip((flag.removeprefix("--") for flag in flags[::2]), flags[1::2], strict=True))
    (tmp_path / "study.toml").write_text("".join(f'{name} = "{value}"\n' for name, value in named.items()))
    assert run.main([str(tmp_path / "study.toml"), *asked]) == EXIT_USAGE
    assert "the study file" in capsys.readouterr().err
    with pytest.raises(UserError, match="for plans"):
        api.run(suite="smoke", device="cpu", results=tmp_path / "r", **named)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    "cores, wanted, exclusive, ranks, expected",
    [
        (8, None, False, 1, (4, 2)),
        (8, None, True, 1, (1, 8)),
        (8, 2, False, 1, (2, 4)),
        (8, None, False, 4, (2, 1)),
        (1, None, False, 1, (1, 1)),
        (2, 9, False, 1, (4, 1)),
    ],
)
def test_workers_share_the_cores(monkeypatch, cores, wanted, exclusive, ranks, expected):
    monkeypatch.setattr(environment, "cores", lambda: cores)
    cells = [Cell(model="ViT-pico/14", data="digits", horizons=(64,), seed=seed) for seed in range(4)]
    options = Machine(workers=wanted, ranks=ranks)
    assert preflight.processes(options, cells, device="cpu", exclusive=exclusive) == expected


@pytest.mark.parametrize(
    "share, device, words, expected",
    [
        ("none", "cuda", {}, 2),
        ("3", "cuda", {}, 6),
        ("mps", "cuda", {}, 8),
        ("mps", "cuda", {"workers": 5}, 5),
        ("3", "cuda", {"workers": 5}, "both say"),
        ("3", "cpu", {}, "for GPUs of this machine"),
        ("3", "cuda", {"executor": "slurm"}, "for GPUs of this machine"),
        ("3", "cuda", {"ranks": 2}, "for GPUs of this machine"),
        ("mps", "cuda", {"PATH": ""}, "nvidia-cuda-mps-control"),
    ],
)
def test_cells_share_gpus_as_they_are_told_to(share, device, words, expected, tmp_path, monkeypatch):
    (tmp_path / "nvidia-cuda-mps-control").touch(mode=0o755)
    monkeypatch.setenv("PATH", words.get("PATH", str(tmp_path)))
    monkeypatch.setattr(preflight, "accelerators", lambda _: ("0", "1"))
    monkeypatch.setattr(preflight, "_check_ranks", lambda *_: None)
    cells = [Cell(model="ViT-pico/14", data="digits", horizons=(64,), seed=seed) for seed in range(9)]
    options = Machine(share=share, **{name: value for name, value in words.items() if name != "PATH"})
    if isinstance(expected, int):
        assert preflight.processes(options, cells, device=device, exclusive=False)[0] == expected
    else:
        with pytest.raises(UserError, match=expected):
            preflight.processes(options, cells, device=device, exclusive=False)
