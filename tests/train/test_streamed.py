"""Training from shards: the same batches and losses, whoever reads, with however many ranks, killed wherever."""

import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.conftest import PROJECT
from tests.data import photographs
from tests.data.test_stream import as_arrow, as_folder, as_parquet, as_tar, encoded
from tests.train._streamed_ranks import KEPT, STEPS, images, of_all, train, trainer, without_crops

pytestmark = pytest.mark.gate

NUMBER = 72


@pytest.fixture(scope="module")
def files() -> list[tuple[bytes, int]]:
    """Photographs of a quarter of the usual size, with labels."""
    encoded_images = []
    for number in range(NUMBER):
        with Image.open(io.BytesIO(photographs.jpeg(number % 12))) as image:
            small = image.resize((image.width // 4 + number, image.height // 4))
        encoded_images.append((encoded(small, quality=90), number % 4))
    return encoded_images


@pytest.fixture(scope="module")
def folder(tmp_path_factory, files) -> Path:
    """FOLDER/shards."""
    made = tmp_path_factory.mktemp("streamed")
    as_tar(made / "shards", files)
    torch.set_num_threads(1)  # as ranks have
    return made


@pytest.fixture(scope="module")
def alone(folder) -> dict:
    """One process that reads for itself, from beginning to end."""
    outcome = train(trainer(images(folder), folder / "alone", workers=0))
    assert len(set(outcome["losses"])) == STEPS == len(outcome["given"])
    return outcome


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_readers_change_nothing(folder, alone, workers):
    assert train(trainer(images(folder), folder / f"{workers}-readers", workers=workers)) == alone


def test_pixels_that_are_stored_train_the_same(folder):
    """Resident and streamed, from the same stored pixels: to the bit."""
    recipe, streamed = without_crops(), images(folder)
    resident = replace(streamed, images_NHWC=streamed.images_NHWC[:])
    one, other = (
        trainer(given, folder / f"stored-{at}", workers=at, recipe=recipe)
        for at, given in enumerate((resident, streamed))
    )
    assert (one.batches.tier, other.batches.tier) == ("resident", "streamed")
    assert train(one) == train(other)


@pytest.mark.parametrize("step", range(1, STEPS))
def test_it_goes_on_from_any_step(folder, alone, step):
    """With other readers, from the checkpoint before the step."""
    place = folder / f"stopped-{step}"
    train(trainer(images(folder), place, workers=step % 3), until=step)
    outcome = train(trainer(images(folder), place, workers=(step + 1) % 3))
    saved = (step - 1) // KEPT * KEPT
    assert outcome["losses"] == alone["losses"]
    assert outcome["given"] == {str(at): alone["given"][str(at)] for at in range(saved, STEPS)}


def test_a_mirror_of_the_hub_trains_as_the_same_images_in_folders(folder, files):
    """Two splits, as `datasets.save_to_disk` lays them out, and as the hub's Parquet files: the same hashes, batches
    and losses."""
    for split, part in (("train", files[12:]), ("test", files[:12])):
        as_folder(folder / "classes" / split, part)
        as_arrow(folder / "saved" / split, part)
        (folder / "saved" / split / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
        as_parquet(folder / "parquet", part)
        (folder / "hub" / "data").mkdir(parents=True, exist_ok=True)
        (folder / "parquet" / "data-00000.parquet").rename(folder / f"hub/data/{split}-00000-of-00001.parquet")
        (folder / "parquet").rmdir()
    (folder / "saved" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    (folder / "hub" / "README.md").write_text("---\nconfigs:\n- config_name: default\n---\n")
    outcomes = {}
    for name in ("classes", "saved", "hub"):
        train_set, test_set = images(folder, name), images(folder, name, "test")
        hashes = train_set.content_hash, test_set.content_hash
        outcomes[name] = hashes, train(trainer(train_set, folder / f"of-{name}", workers=1))
    assert len(train_set) == NUMBER - 12 and outcomes["classes"] == outcomes["saved"] == outcomes["hub"]


def ranks(folder: Path, name: str, *, size: int, workers: int, kill: int | None = None) -> dict | None:
    """The outcome of so many processes; None where they killed themselves before the step `kill`."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--local-addr=127.0.0.1",
        f"--nproc-per-node={size}",
        "-m",
        "tests.train._streamed_ranks",
        str(folder),
        name,
        str(workers),
    ]
    done = subprocess.run(
        [*command, *([] if kill is None else [str(kill)])],
        env=os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    if kill is not None:
        assert "SIGKILL" in done.stderr, done.stderr[-3000:]
        return None
    assert done.returncode == 0, done.stderr[-3000:]
    return of_all([json.loads((folder / f"{name}-rank{number}.json").read_text()) for number in range(size)])


@pytest.mark.parametrize(("size", "workers"), [(1, 1), (2, 2), (4, 1)])
def test_ranks_give_the_same_batches_and_losses(folder, alone, size, workers):
    """Processes of torchrun. Gradients add up in another order: that is all that differs in a loss."""
    outcome = ranks(folder, f"{size}-ranks", size=size, workers=workers)
    assert outcome is not None and outcome["given"] == alone["given"]
    assert outcome["losses"] == (alone["losses"] if size == 1 else pytest.approx(alone["losses"], rel=1e-5, abs=0))


def test_killed_ranks_are_followed_by_others(folder, alone):
    """Two ranks are killed, then four, then one ends it: no batch differs, and no loss by more than its rounding."""
    ranks(folder, "killed", size=2, workers=1, kill=4)
    ranks(folder, "killed", size=4, workers=0, kill=8)
    outcome = ranks(folder, "killed", size=1, workers=8)
    assert outcome is not None and outcome["losses"] == pytest.approx(alone["losses"], rel=1e-5, abs=0)
    assert outcome["given"] == {str(step): alone["given"][str(step)] for step in range(2 * KEPT, STEPS)}
