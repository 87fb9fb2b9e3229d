"""Damage while a streamed set is trained on gives one error that names the file, the same after every restart; or
images left out, counted and named, the same for every process. Never a hang, never another image in its place."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bench.core.errors import UserError
from bench.data import cache, decode, index
from bench.data.image_set import ImageSet
from bench.data.load import load
from bench.study.cell import Recipe
from bench.train.batches import Batches
from tests.conftest import PROJECT
from tests.data.test_stream import as_folder, as_parquet, as_tar, encoded

NUMBER, BATCH = 48, 8
RECIPE = Recipe(batch=BATCH, crop=0.3, flip=True)
WRITERS: dict[str, Callable] = {"folder": as_folder, "tar": as_tar, "parquet": as_parquet}


@pytest.fixture(scope="module")
def files() -> list[tuple[bytes, int]]:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, (NUMBER, 32, 40, 3), dtype=np.uint8)
    return [(encoded(Image.fromarray(one)), number % 4) for number, one in enumerate(pixels)]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / "own-cache"))


@pytest.fixture
def made(tmp_path: Path, files: list[tuple[bytes, int]]) -> Callable[[str], Callable[[], ImageSet]]:
    """(format) -> a function that opens the training split, as each process does."""

    def make(kind: str) -> Callable[[], ImageSet]:
        WRITERS[kind](tmp_path / "set", files)
        return lambda: load("folder:set:24px:rgb:stream", "train", root=tmp_path)

    return make


def in_place(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Other bytes in a file of the same size and time."""
    status, data = path.stat(), path.read_bytes()
    with open(path, "r+b") as file:
        file.write(change(data))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size and path.read_bytes() != data


def trained(batches: Batches, steps: range) -> None:
    for step in steps:
        batches(step)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["folder", "tar"])
def test_damage_in_the_third_epoch(made, tmp_path, files, kind, workers, monkeypatch):
    """Bytes of one image change, and neither the size nor the time of its file."""
    opened, epoch = made(kind), NUMBER // BATCH
    images = opened()
    before = images.content_hash
    batches = Batches(images, recipe=RECIPE, seed=0, device="cpu", workers=workers)
    trained(batches, range(2 * epoch))
    victim = images.images_NHWC.index.read(int(batches.indices(3 * epoch)[0]))
    path = next(path for path in sorted((tmp_path / "set").rglob("*.*")) if victim in path.read_bytes())
    in_place(path, lambda data: data.replace(victim, victim[:300] + bytes(len(victim) - 300)))
    named = rf"{re.escape(str(path))}.* has changed since it was indexed, but not in size or time"
    with pytest.raises(UserError, match=named) as caught:
        trained(batches, range(2 * epoch, 5 * epoch))
    assert f"touch {path.parent}" in str(caught.value)
    for _ in range(2):  # as after each restart, on each rank
        again = opened()
        assert again.content_hash == before
        with pytest.raises(UserError, match=named):
            trained(Batches(again, recipe=RECIPE, seed=0, device="cpu", workers=0), range(2 * epoch, 5 * epoch))
    os.utime(path.parent)
    with pytest.raises(UserError, match="1 of 48 images cannot be read") as refusal:
        opened()
    monkeypatch.setenv("VIT_BENCH_MAX_UNREADABLE", refusal.value.fix.partition("--max-unreadable ")[2].rstrip("."))
    with pytest.warns(UserWarning, match=r"1 of 48 images cannot be read: .*They are left out"):
        ranks = [opened() for _ in range(2)]
    assert len({rank.content_hash for rank in ranks}) == 1 and ranks[0].content_hash != before
    assert "1 unreadable left out" in ranks[0].source
    trained(Batches(ranks[0], recipe=RECIPE, seed=0, device="cpu", workers=workers), range(2 * epoch))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_shard_that_vanishes(made, tmp_path, workers):
    """An open shard can still be read; who opens it later is told which is missing; a restart finds another set."""
    opened = made("tar")
    images = opened()
    before, late = images.content_hash, opened()
    expected = Batches(images, recipe=RECIPE, seed=0, device="cpu", workers=0)
    known = {step: expected(step)[0] for step in range(12)}
    running = Batches(opened(), recipe=RECIPE, seed=0, device="cpu", workers=workers)
    running(0)
    gone = sorted((tmp_path / "set").glob("*.tar"))[1]
    gone.rename(tmp_path / "away")
    missing = rf"{gone} can no longer be read: No such file"
    try:
        for step in range(1, 12):
            assert torch.equal(running(step)[0], known[step])
    except UserError as error:
        assert re.search(missing, str(error))
    with pytest.raises(UserError, match=missing):
        trained(Batches(late, recipe=RECIPE, seed=0, device="cpu", workers=workers), range(12))
    assert opened().content_hash != before  # the trainer continues no other images
    (tmp_path / "away").rename(gone)
    assert opened().content_hash == before


@pytest.mark.parametrize("what", ["gone", "shorter", "damaged"])
def test_the_copy_of_a_parquet_file_is_made_again(made, what):
    opened = made("parquet")
    images = opened()
    before = images.content_hash
    (copy,) = cache.directory().glob("index-*.images")
    if what == "gone":
        copy.unlink()
    elif what == "shorter":
        copy.write_bytes(copy.read_bytes()[:-100])
    else:
        in_place(copy, lambda data: bytes(len(data)))
    images = opened() if what == "damaged" else images
    with pytest.raises(UserError, match=rf"{copy.name}.*\n.*(Run again|Run `rm )"):
        trained(Batches(images, recipe=RECIPE, seed=0, device="cpu", workers=0), range(6))
    if what == "damaged":
        copy.unlink()
    again = opened()
    assert again.content_hash == before
    trained(Batches(again, recipe=RECIPE, seed=0, device="cpu", workers=0), range(6))


def test_a_folder_full_of_damage_is_not_read_to_its_end(tmp_path, files, monkeypatch):
    as_folder(tmp_path / "set", [(data[:200], label) for data, label in files] * 50)
    looked, whole = [], decode.facts_of
    monkeypatch.setattr(index, "facts_of", lambda *a, **k: looked.append(1) or whole(*a, **k))
    with pytest.raises(UserError, match=r"\d or more of 2,400 images cannot be read"):
        load("folder:set:24px:rgb:stream", "train", root=tmp_path)
    assert len(looked) < 2_400 / 2


LIMITED = """
import resource, sys, warnings
from pathlib import Path
from bench.core.errors import UserError
from bench.data.load import load
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), resource.RLIM_INFINITY))
warnings.simplefilter("error")
try:
    images = load(sys.argv[2], "train", root=Path(sys.argv[1]))
    print(images.content_hash)
except UserError as error:
    print("refused:", error)
except UserWarning as warning:
    print("warned:", warning)
"""


@pytest.mark.gate
@pytest.mark.parametrize(
    "kind, words, said",
    [
        (
            "parquet",
            "24px:rgb:stream",
            r"refused: .* cannot take the images copied out of their files: .*File too large",
        ),
        ("tar", "24px:rgb:stream", r"warned: The cache .* cannot be written .*File too large.*prepares it again"),
        ("tar", "24px:rgb:stored", r"warned: The cache .* cannot be written"),
    ],
)
def test_a_disk_that_is_full(made, tmp_path, kind, words, said):
    """A limit on the size of a file fails a write as a full disk does. Nothing half-written is taken for whole."""
    opened = made(kind)
    where = tmp_path / "cache"
    environment = os.environ | {"VIT_BENCH_CACHE": str(where), "PYTHONPATH": str(PROJECT)}

    def attempt(limit: int) -> str:
        command = [sys.executable, "-c", LIMITED, str(tmp_path), f"folder:set:{words}", str(limit)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
        return done.stdout.strip()

    assert re.match(said, attempt(2_000))
    assert not [path for path in where.rglob("*") if path.is_file() and not path.name.endswith(".lock")]
    whole = attempt(1 << 30)
    assert re.fullmatch("[0-9a-f]{64}", whole)
    if words.endswith("stream"):
        assert whole == opened().content_hash
