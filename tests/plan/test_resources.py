"""Bytes on device, host and disk, where images are read from, and what does not fit."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from bench.core.errors import UserError
from bench.cost import flops
from bench.data import cache, jpeg
from bench.data.load import load, some_encoded
from bench.data.sets.folder import LOOKED_AT
from bench.plan import estimate, feed, resources
from bench.plan.estimate import Rates
from bench.plan.sizes import DataSizes
from bench.store import checkpoints
from bench.store.checkpoints import MAX_KEPT
from bench.study.cell import Cell, Recipe

GB = 10**9
RATES = Rates(
    model="ViT-S/8",
    train_images_per_second=1_000,
    eval_images_per_second=3_000,
    train_flops_per_image={"dense": 1},
    params=21_000_000,
    measured=True,
    basis="",
    activation_bytes=10_000_000,
)


def needs(data: str, *, memory: int = 80 * GB, decoded: float = 0.0, device: str = "cuda", **fields) -> resources.Needs:
    recipe, sizes = Recipe(batch=100), DataSizes(published=True)
    cell = Cell(model="ViT-S/8", data=data, image_size=64, channels=3, horizons=(64,), recipe=recipe, **fields)
    return resources.needs(cell, RATES, sizes, device=device, memory=memory, decoded_per_second=decoded)


def test_a_million_images_are_resident_where_they_fit_and_mapped_where_not() -> None:
    pixels = 1_000_000 * 64 * 64 * 3
    roomy, tight = needs("visual-atoms:1000x1000"), needs("visual-atoms:1000x1000", memory=24 * GB)
    assert (roomy.tier, tight.tier) == ("resident", "mapped")
    assert roomy.device - tight.device == pixels and roomy.host == 0 < tight.host < GB
    assert roomy.shared == tight.shared and sum(roomy.shared.values()) == pixels + 25_000 * 64 * 64 * 3
    part = needs("visual-atoms:1000x1000", memory=24 * GB, num_images=300_000)
    assert part.tier == "resident" and part.device - tight.device == 300_000 * 64 * 64 * 3
    assert tight.device >= 16 * RATES.params + 100 * RATES.activation_bytes / 2  # AdamW; half as much in bfloat16


def test_each_rank_has_its_share_of_the_batch_and_its_buckets_beside_the_gradients() -> None:
    cell = Cell(model="ViT-S/8", data="digits", image_size=64, channels=3, horizons=(64,), recipe=Recipe(batch=100))
    options = {"device": "cuda", "memory": 1, "decoded_per_second": 0.0}  # nothing is resident
    sizes = DataSizes(published=True)
    alone, four = (resources.needs(cell, RATES, sizes, ranks=ranks, **options) for ranks in (1, 4))
    assert alone.device == 16 * RATES.params + 100 * RATES.activation_bytes / 2
    assert four.device == 20 * RATES.params + 25 * RATES.activation_bytes / 2
    spread = replace(cell, recipe=replace(cell.recipe, sharding="fsdp"))
    assert resources.needs(spread, RATES, sizes, ranks=4, **options).device == (
        4 * RATES.params + 25 * RATES.activation_bytes / 2
    )


def test_photographs_are_streamed_and_the_wait_follows_from_the_slower_side() -> None:
    stream = needs("imagenet:64px", decoded=4_000)
    assert stream.tier == "streamed" and stream.host < GB
    assert resources.disk([stream], running=1).total < 2 * GB  # never 193 GB of pixels
    assert stream.wait == 0 and needs("imagenet:64px", decoded=250).wait == pytest.approx(0.75)
    assert needs("imagenet:64px", decoded=1_000, device="cpu").wait == pytest.approx(0.5)  # in turns


def test_a_set_that_is_not_here_is_decoded_as_photographs_are() -> None:
    """A resident set is not decoded; what is stored is not either. Whole files take longer than parts of them, more
    pixels longer than fewer."""
    cell = Cell(model="ViT-S/8", data="imagenet", image_size=224, channels=3, horizons=(64,), recipe=Recipe(crop=0.05))
    whole, large = replace(cell, recipe=Recipe()), replace(cell, image_size=384)
    drawn = replace(cell, data="visual-atoms:1000x1000", image_size=64)
    itself = replace(cell, recipe=Recipe(crop=0.05, decoding="device"))
    asked = [cell, whole, large, drawn, itself, replace(cell, data="digits")]
    rates = feed.per_core(asked, DataSizes(published=True))
    assert set(rates) == {cell, whole, large}
    assert feed.per_core([itself], DataSizes(published=True), device="cpu") == {itself: rates[cell]}
    assert rates[cell] == pytest.approx(feed.PHOTOGRAPHS_PER_SECOND) and rates[whole] < rates[cell] > rates[large]


GIVEN = [(10.0, 22.7, 1 - 10 / 22.7), (22.7, 22.7, 0.0), (50.0, 22.7, 0.0), (0.0, 22.7, 0.0)]


@pytest.mark.parametrize("decoded, trained, wait", GIVEN)
def test_the_slower_of_feed_and_device_decides(decoded: float, trained: float, wait: float) -> None:
    """By the clock of a pipeline: images pass both at once, and the slower sets the pace."""
    assert estimate.waiting(trained, decoded, device="cuda") == pytest.approx(wait)
    cost = estimate.CellCost(seconds=100.0)
    pace = min(trained, decoded or trained)
    assert cost.fed(wait) == pytest.approx(100 * trained / pace)


def test_the_disk_holds_a_set_once_checkpoints_of_what_runs_and_weights_of_all() -> None:
    """As counted by hand: three models of two sets, two at a time."""
    parts = [(100, {"a": 1_000}), (300, {"a": 1_000, "b": 50}), (200, {"b": 50})]
    needed = [replace(needs("digits"), kept=kept, weights=kept // 4, shared=shared) for kept, shared in parts]
    two = resources.disk(needed, running=2)
    assert (two.shared, two.checkpoints, two.weights) == (1_050, 3 * (300 + 200), 25 + 75 + 50)
    assert two.total == two.shared + two.checkpoints + two.weights == two.json()["total"]
    all_at_once, none = resources.disk(needed, running=9), resources.disk([], running=2)
    assert all_at_once.running == 3 and all_at_once.checkpoints == 3 * 600 and none.total == 0


def test_checkpoints_never_take_more_than_is_planned(tmp_path: Path) -> None:
    """The most that lies in a cell's folder, looked at whenever a file has been written."""
    held, size = [0], 400_000
    tensors = {"weights": torch.zeros(size // 4)}
    look = lambda: held.append(sum(f.stat().st_size for f in tmp_path.rglob("*") if f.is_file()))  # noqa: E731
    for step in range(5):
        checkpoints.save(tmp_path, checkpoints.Checkpoint(step=step, tensors=tensors, state={}), check_lease=look)
        look()
    assert (MAX_KEPT + 0.9) * size < max(held) <= 1.05 * resources.CHECKPOINTS_ON_DISK * size


@pytest.mark.parametrize("crop", [0.0, 0.5])
def test_what_an_image_takes_to_decode_is_measured(tmp_path: Path, monkeypatch, crop: float) -> None:
    for side in (100, 800):
        for number in range(8):
            path = tmp_path / str(side) / "ab"[number % 2] / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.frombytes("RGB", (side, side), os.urandom(3 * side * side)).save(path)
    read, parts = jpeg.read_part, []
    monkeypatch.setattr(jpeg, "read_part", lambda data, box, **more: parts.append(box) or read(data, box, **more))
    recipe, sizes = Recipe(batch=8, crop=crop), DataSizes(root=tmp_path)
    cells = [
        Cell(
            model="ViT-S/8",
            data=f"folder:{side}:64px:rgb:stream",
            image_size=64,
            channels=3,
            horizons=(64,),
            recipe=recipe,
        )
        for side in (100, 800)
    ]
    small, large = feed.per_core(cells, sizes).values()
    assert small > large > 0 and len(parts) == (2 * LOOKED_AT if crop else 0)  # as training reads them
    assert some_encoded("imagenet", root=tmp_path) == some_encoded("digits", root=tmp_path) == []


def test_a_full_disk_is_found_before_anything_is_drawn(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path))
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=GB))
    cell = Cell(model="ViT-S/8", data="visual-atoms:1000x1000", image_size=64, channels=3, horizons=(64,))
    with pytest.raises(UserError, match=r"12\.6 GB of decoded images.*1 GB free.\n.*VIT_BENCH_CACHE"):
        resources.check_room([cell], DataSizes())
    (cache.directory() / "visual-atoms-r1-train-1000x1000-64px").mkdir(parents=True)
    resources.check_room([cell, replace(cell, data="digits")], DataSizes())  # it is there already


def test_a_model_that_cannot_fit_is_refused_by_name() -> None:
    params = flops.count("ViT-S/16", image_size=224, channels=3, num_classes=1000, activations=False).params
    cell = Cell(model="ViT-S/16", data="digits", image_size=224, channels=3, horizons=(64,))
    rated, free = [(cell, replace(RATES, params=params))], 16 * params - 1
    for ranks, needed in ((1, 353), (2, 441)):  # with the buckets that ranks exchange
        with pytest.raises(UserError, match=rf"ViT-S/16 needs {needed} MB.*\n.*fsdp"):
            resources.check_memory(rated, free, device="cpu", ranks=ranks)
    lighter = replace(cell, recipe=replace(cell.recipe, optimizer="sgd"))  # one moment instead of two
    resources.check_memory([(lighter, rated[0][1])], free, device="cpu", ranks=1)
    averaged = replace(cell, recipe=replace(cell.recipe, average=0.999))
    with pytest.raises(UserError, match="needs 441 MB"):
        resources.check_memory([(averaged, rated[0][1])], free, device="cpu", ranks=1)
    spread = replace(cell, recipe=replace(cell.recipe, sharding="fsdp"))
    resources.check_memory([(spread, rated[0][1])], free, device="cpu", ranks=2)


def test_a_vast_set_is_counted_once_it_is_indexed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / "cache"))
    for part, count in (("train", 20), ("val", 8)):
        for number in range(count):
            path = tmp_path / "imagenet" / part / f"n{number % 4}" / f"{number}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.frombytes("RGB", (40, 30), os.urandom(3_600)).save(path)
    before = DataSizes(root=tmp_path)["imagenet:64px"]
    assert (before.train, before.test, before.classes, before.streamed) == (1_281_167, 50_000, 1_000, True)
    load("imagenet:64px", "train", root=tmp_path)
    after = DataSizes(root=tmp_path)["imagenet:64px"]
    assert (after.train, after.test, after.classes, after.streamed) == (20, 8, 4, True)
    assert DataSizes()["imagenet"].train == DataSizes(root=tmp_path / "cache")["imagenet"].train == 1_281_167


NEEDS = resources.Needs(tier="resident", device=15 << 30, host=0, shared={}, kept=2 << 30, weights=1 << 30)


@pytest.mark.parametrize(
    "needs, cores, gigabytes",
    [
        (NEEDS, 4, 11),
        (replace(NEEDS, tier="streamed", host=512 << 20), 16, 11.75),
        (None, 4, 8),
    ],
)
def test_a_job_asks_for_what_a_process_beside_a_gpu_does(needs, cores, gigabytes):
    assert resources.beside_gpu(needs) == (cores, gigabytes * 2**30)
