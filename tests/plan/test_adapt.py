"""The suite `adapt`: its models, the images that they are given, and when they are fine-tuned."""

import re
from pathlib import Path

import numpy as np
import pytest
import timm
from PIL import Image

from bench.core.device import meta
from bench.plan import notes
from bench.plan.estimate import Rates, rate_key
from bench.plan.passes.slow_tasks import AFFORDABLE
from bench.plan.sizes import DataSizes, evaluation_images, solving_seconds
from bench.study import registry
from bench.study.cell import Cell
from bench.suites.adapt import MODELS, TUNING
from tests.plan.making import cells_of, grid_of
from vit.model_family import Weights

SMALL, LARGE = "timm:test_vit", "timm:vit_base_patch16_224"


def tasks(cell: Cell) -> list[str]:
    return [task.task for task in cell.tasks]


LICENCES = {"Apache 2.0": "apache-2.0", "MIT": "mit", "DINOv3 licence, of Meta": "dinov3-license"}


@pytest.mark.parametrize("name", MODELS)
def test_the_models_are_timms_with_the_licence_and_size_that_the_page_says(name: str, project: Path) -> None:
    tag = name.removeprefix("timm:").removesuffix("+pretrained")
    known = timm.models.get_pretrained_cfg(tag)
    assert tag in timm.list_pretrained() and known.hf_hub_id == f"timm/{tag}"
    page = (project / "docs" / "your-images.md").read_text()
    row = re.search(rf"\| `{re.escape(tag)}` \|.*\| (\d+) \| (.*) \|", page)
    assert row is not None and LICENCES[row[2]] == known.license
    with meta():
        network = registry.build_model(name, image_size=MODELS[name], channels=3, num_classes=3)
        whole = timm.create_model(tag)
    assert network.own_input.input_size == MODELS[name]
    size = sum(4 * parameter.numel() for parameter in whole.parameters()) / 1e6
    weights = registry.weights_of(name)
    assert weights is not None and weights.megabytes is not None and weights.licence == known.license
    assert size == pytest.approx(float(row[1]), rel=0.02) and size == pytest.approx(weights.megabytes, rel=0.02)


def test_a_plan_says_what_weights_take(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Weights(where="lab/one of the hub", licence="mit", megabytes=86.0, here=True)
    gated = Weights(where="lab/two of the hub", megabytes=1200.0, gated=True)
    monkeypatch.setattr(registry, "weights_of", {"one": here, "two": gated, "three": None}.get)
    monkeypatch.setattr(registry, "about", {"one": "", "two": "features are the class token", "three": ""}.get)
    monkeypatch.setattr(notes, "reachable", lambda: False)
    cells = [Cell(model=name, data="digits") for name in ("one", "two", "three", "one")]
    assert notes.from_outside(cells) == [
        "two: features are the class token.",
        "Weights: one 86 MB, licence mit, here; two 1,200 MB, to be fetched from lab/two of the hub, gated: accept its "
        "terms on the hub and set HF_TOKEN. There is no network here: those that are not here cannot be fetched; "
        "--models takes others.",
    ]
    assert notes.from_outside(cells[2:3]) == []


def test_tiles_are_taken_as_they_are_by_a_model_of_larger_images() -> None:
    (cell,) = cells_of("adapt", data=("photo-tiles",), models=(SMALL,))
    assert (cell.data, cell.image_size, cell.tasks[0].data) == ("photo-tiles", 160, "photo-tiles")


def test_a_part_of_the_images_is_what_is_labelled() -> None:
    whole, part = (
        cells_of("adapt", data=(name,), models=(SMALL,), tasks=("adapt",))[0] for name in ("digits", "digits@90")
    )
    sizes = DataSizes()
    assert part.num_images == 90 and whole.num_images is None
    assert evaluation_images(whole, sizes) - evaluation_images(part, sizes) == sizes["digits"].train - 90
    assert solving_seconds(part, sizes, features=64) < solving_seconds(whole, sizes, features=64)


def test_what_takes_long_is_not_fine_tuned_unless_that_is_asked_for() -> None:
    study = grid_of("adapt", data=("digits",), models=(SMALL, LARGE))
    small, large = study.cells
    assert tasks(small) == ["adapt", "finetune"] and tasks(large) == ["adapt"] and list(study.costly) == [large]
    asked = cells_of("adapt", data=("digits",), models=(LARGE,), tasks=("adapt", "finetune"))[0]
    assert asked.tasks[1:] == study.costly[large] and dict(asked.tasks[1].options).items() >= TUNING["cpu"].items()
    # the whole of it, at so many images a second; a base network's training alone is beyond the limit
    images = sum(3 * 100 * 32 for _ in range(4))
    assert images * 17.5e9 * 2 > AFFORDABLE
    sizes, rate = DataSizes(), 50.0
    rates = Rates(
        model=LARGE,
        train_images_per_second=1.0,
        eval_images_per_second=rate,
        train_flops_per_image={},
        params=1,
        measured=True,
        basis="a test",
    )
    (note,) = notes.costly(study, {rate_key(large, sizes["digits"].classes): rates}, sizes)
    said = re.search(rf"{LARGE} ([\d.]+) min", note)
    assert said is not None and float(said[1]) == pytest.approx(images / rate / 60, rel=0.1)


def test_published_sets_are_adapted_to_side_by_side(tmp_path: Path) -> None:
    published(tmp_path)
    cells = cells_of("adapt", data=("pets@4", "dtd"), data_root=tmp_path, models=(SMALL, "timm:test_resnet"))
    sizes, models = DataSizes(root=tmp_path), (SMALL, "timm:test_resnet")
    expected = [(name, model) for name in ("pets:160px:rgb", "dtd:160px:rgb") for model in models]
    assert sorted((cell.data, cell.model) for cell in cells) == sorted(expected)
    assert {cell.data: cell.num_images for cell in cells} == {"pets:160px:rgb": 4, "dtd:160px:rgb": None}
    assert {cell.data: sizes[cell.data].train for cell in cells} == {"pets:160px:rgb": 6, "dtd:160px:rgb": 8}


def published(root: Path, *, each: int = 3) -> None:
    """Pets and textures of two classes as their authors publish them: lists, and pictures of noise."""
    rng, pets, dtd = np.random.default_rng(0), root / "oxford-iiit-pet", root / "dtd" / "dtd"
    for folder in (pets / "annotations", pets / "images", dtd / "labels"):
        folder.mkdir(parents=True)

    def draw(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (24, 24, 3), dtype=np.uint8)).save(path)

    for part in ("trainval", "test"):
        rows = [f"{name}_{part}{i} {k} 1 1" for k, name in ((1, "Abyssinian"), (2, "beagle")) for i in range(each)]
        (pets / "annotations" / f"{part}.txt").write_text("\n".join(rows))
        for row in rows:
            draw(pets / "images" / f"{row.split()[0]}.jpg")
    for part in ("train", "val", "test"):
        names = [f"{name}/{name}_{part}{i}.jpg" for name in ("banded", "zigzagged") for i in range(each - 1)]
        (dtd / "labels" / f"{part}1.txt").write_text("\n".join(names))
        for name in names:
            draw(dtd / "images" / name)
