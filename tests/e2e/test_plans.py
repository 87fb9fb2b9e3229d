"""A plan refuses what could never run, before anything is measured, and says what would."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from bench import run
from bench.core.errors import EXIT_USAGE, UserError
from bench.core.spec import Cell
from bench.plan import estimate
from bench.plan import plan as planner
from bench.suites._contract import SuiteOptions


@pytest.fixture
def wide(tmp_path):
    """RGB photographs of 64x48 pixels in two classes, below the data root that is returned."""
    noise = np.random.default_rng(0)
    for label in ("cats", "dogs"):
        (tmp_path / "big" / label).mkdir(parents=True)
        for number in range(3):
            pixels = noise.integers(0, 256, (48, 64, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "big" / label / f"{number}.png")
    return tmp_path


def look(cell, root):
    """What the plan does before it calibrates."""
    sizes = estimate.data_sizes([cell], root=root)
    estimate.check_images([cell], sizes)
    return sizes


def test_images_of_another_shape_are_refused_with_the_name_that_works(wide):
    asked = Cell(model="ViT-pico/14", data="folder:big", horizons=(0, 64))
    with pytest.raises(UserError) as refusal:
        look(asked, wide)
    assert "48x64 images with 3 channel(s)" in refusal.value.what
    right = refusal.value.fix.removeprefix("Write ").rstrip(".")
    assert right == "folder:big:28px:grey"
    fits = Cell(model="ViT-pico/14", data=right, horizons=(0, 64))
    assert look(fits, wide)[right].shape == (28, 28, 1)
    with pytest.raises(UserError, match="this size only"):
        look(Cell(model="ViT-pico/14", data="glyphs", image_size=32), None)


def test_a_study_of_data_that_are_nowhere_is_costed_and_not_begun(tmp_path, capsys):
    asked = ["--suite", "smoke", "--data", "jft-300m", "--models", "ViT-pico/14", "--results", str(tmp_path / "r")]
    assert run.main(asked) == EXIT_USAGE
    said = capsys.readouterr().err
    assert "jft-300m" in said and "not on this machine" in said and "--plan" in said
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("suite", ["smoke", "scaling", "data"])
def test_raw_pixels_are_read_never_trained(suite):
    both = run.cells_of(suite, SuiteOptions(models=("pixels", "R8x0.125-s2")))
    pixels = [cell for cell in both if cell.model == "pixels"]
    assert [cell.horizons for cell in pixels] == [(0,)]
    assert pixels == [cell for cell in run.cells_of(suite, SuiteOptions()) if cell.model == "pixels"]
    assert {cell.model for cell in both} == {"pixels", "R8x0.125-s2"}


def test_a_suite_that_reads_no_pixels_refuses_them():
    with pytest.raises(UserError, match="nothing to train"):
        run.cells_of("transfer", SuiteOptions(models=("pixels",)))


@pytest.mark.parametrize("where", ["/proc/results", "file/below"])
def test_a_bad_results_folder_is_refused_before_anything_is_looked_at(where, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    monkeypatch.setattr(planner, "make", None)  # would be called next
    assert run.main(["--suite", "smoke", "--results", where, "--device", "cpu"]) == EXIT_USAGE
    assert "--results" in (said := capsys.readouterr().err) or where in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
