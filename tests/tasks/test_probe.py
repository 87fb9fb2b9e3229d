"""`python -m bench probe` on models, checkpoints and features files; and its answers to bad input."""

import json
from pathlib import Path

import numpy as np
import pytest

from bench.commands import probe
from tests.data import writers
from tests.tasks.conftest import arrays

SMALL = ["--image-size", "28", "--channels", "1"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = probe.main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_features_from_a_file(capsys: pytest.CaptureFixture[str], features: Path) -> None:
    code, out, _ = run(capsys, "--features", str(features), "--shots", "5,10", "--draws", "2", "--json")
    scores = json.loads(out)
    assert code == 0 and len(scores) == 8
    assert {s["data"] for s in scores} == {"mine"} and {s["num_test"] for s in scores} == {30}
    assert all(s["value"] > 0.8 for s in scores if s["metric"] == "accuracy")


@pytest.mark.parametrize("task", ["fewshot", "linear"])
def test_classes_are_those_that_there_are_however_numbered(capsys, tmp_path: Path, task: str) -> None:
    """From 1, as Matlab does, or with gaps: as many classes, and the same scores, as numbered from 0."""
    shots, found = (["--shots", "5", "--draws", "1"] if task == "fewshot" else []), []
    for number, new in enumerate((np.arange(3), np.arange(1, 4), np.array([0, 10, 10**12]))):
        (tmp_path / str(number)).mkdir()
        given = {key: new[value] if key.endswith("_y") else value for key, value in arrays().items()}
        np.savez(tmp_path / str(number) / "mine.npz", **given)  # type: ignore[arg-type]
        code, out, _ = run(
            capsys, "--features", str(tmp_path / str(number) / "mine.npz"), "--task", task, *shots, "--json"
        )
        found.append([(s["value"], s["chance"], s["num_classes"]) for s in json.loads(out)])
        assert code == 0 and all(s["num_classes"] == 3 for s in json.loads(out))
    assert found[0] == found[1] == found[2]


def test_what_is_computed_and_that_it_is_untrained_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--data", "digits", "--shots", "5", "--draws", "1", *SMALL]
    _, out, err = run(capsys, "--model", "ViT-pico/14", *common)
    assert "ViT-pico/14, untrained (no --checkpoint), on digits" in out and "features of 50 images" in err
    _, out, err = run(capsys, "--model", "ViT-pico/14", *common, "--json")
    assert json.loads(out) and "is untrained" in err
    assert "untrained" not in "".join(run(capsys, "--model", "pixels", *common)[1:]), "pixels have no weights"


def test_progress_changes_no_score(capsys: pytest.CaptureFixture[str]) -> None:
    """Images pass in the batches in which the network takes them."""
    from functools import partial

    from bench.core.device import BATCH
    from bench.data.load import load

    args = probe.parser().parse_args(["--model", "ViT-pico/14", "--data", "mnist", *SMALL])
    probe.fill_in(args)
    context = probe.model_context(args, partial(load, root=None))
    images_NHWC = load("mnist", "test").images_NHWC[: 2 * BATCH + 3]
    told = probe.announced(context, name="this")
    np.testing.assert_array_equal(told.features(images_NHWC), context.features(images_NHWC))


def test_more_shots_than_there_are_images_are_said(capsys: pytest.CaptureFixture[str], features: Path) -> None:
    """60 images of three classes."""
    given = ["--features", str(features), "--draws", "1"]
    _, out, err = run(capsys, *given, "--shots", "5000", "--json")
    assert json.loads(out)[0]["detail"]["num_support"] == 60 and "60 labelled images were used" in err
    assert not run(capsys, *given, "--shots", "5", "--json")[2]


def test_an_interruption_promises_nothing(
    capsys: pytest.CaptureFixture[str], features: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of a probe is saved; what saves itself says so, with its reason."""
    from bench.core import errors
    from bench.tasks import fewshot

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fewshot, "draw_support", interrupted)
    assert run(capsys, "--features", str(features)) == (130, "", "stopped before it was done.\n")

    @errors.command
    def saved(_: list[str] | None) -> int:
        raise errors.Interrupted("saved at step 3")

    assert saved([]) == 130
    assert capsys.readouterr().err == "stopped: saved at step 3. Run the same command to continue.\n"


def test_checkpoints_are_used(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Published layouts and a run's own checkpoint give the same scores as the network they were saved from."""
    import torch
    from safetensors.torch import save_file

    from bench.study import registry
    from vit import checkpoints

    torch.manual_seed(7)
    model = registry.build_model("ViT-pico/14", image_size=28, channels=1, num_classes=10)
    save_file({f"live/model.{k}": v.contiguous() for k, v in model.state_dict().items()}, tmp_path / "run.safetensors")
    checkpoints.save(model, tmp_path / "own.safetensors")
    common = ["--model", "ViT-pico/14", "--data", "digits", "--shots", "5", "--draws", "1", "--json", *SMALL]
    results = [
        json.loads(run(capsys, *common, *extra)[1])
        for extra in (
            ["--seed", "7"],
            ["--checkpoint", str(tmp_path / "run.safetensors")],
            ["--checkpoint", str(tmp_path / "own.safetensors")],
            ["--seed", "8"],
        )
    ]
    assert results[1] == results[2] != results[3]


def test_kept_weights_know_their_model_s_options(tmp_path: Path) -> None:
    """Heads and the kind of pooling leave no trace in the shapes of weights: they would load into another network."""
    import torch

    from bench.data.load import load
    from bench.execute.jobs import train
    from bench.store.checkpoints import load_newest
    from bench.store.study import CellDirectory
    from bench.study import registry
    from bench.study.cell import Cell, Recipe
    from tests.train.driving import job_context

    options = {"heads": 4, "norm_after_pool": True}
    recipe = Recipe(batch=16, dtype="float32", warmup_images=0)
    cell = Cell(
        model="ViT-pico/14",
        data="mnist",
        num_images=50,
        horizons=(16,),
        recipe=recipe,
        model_options=tuple(options.items()),
    )
    directory = CellDirectory(tmp_path / "cell")
    directory.prepare(cell)
    train.run(cell, job_context(tmp_path, directory=directory))
    newest, _ = load_newest(directory.checkpoints)
    model = registry.build_model("ViT-pico/14", image_size=28, channels=1, num_classes=10, **options)
    model.load_state_dict({k.removeprefix("live/model."): v for k, v in newest.tensors.items() if "/model." in k})
    images_NHWC = load("mnist", "test").images_NHWC[:20]
    with torch.inference_mode():
        x_BCHW = torch.from_numpy(np.array(images_NHWC)).permute(0, 3, 1, 2) / 127.5 - 1
        expected_ND = model.eval().features(x_BCHW).numpy()
    kept = [tmp_path / "final.safetensors", *directory.checkpoints.glob("*/tensors.safetensors")]  # of the attempt
    assert len(kept) > 1
    for path in kept:
        args = probe.parser().parse_args(["--checkpoint", str(path), "--data", "mnist"])
        probe.fill_in(args)
        context = probe.model_context(args, load)
        np.testing.assert_allclose(context.features(images_NHWC), expected_ND, atol=1e-5)
        assert dict(context.fine_tune.options) == options
    args = probe.parser().parse_args(["--checkpoint", str(kept[0]), "--model", "ViT-nano/14", "--data", "mnist"])
    probe.fill_in(args)
    assert not args.model_options, "another model is asked for"


def test_a_set_of_one_class_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    writers.as_npz(tmp_path / "one", writers.make(40, classes=1, side=28))
    asked = ["--model", "pixels", "--image-size", "28", "--data", "folder:one", "--data-root", str(tmp_path)]
    code, out, err = run(capsys, *asked)
    assert code == 2 and not out and "folder:one has images of one class only: there is nothing to classify" in err
