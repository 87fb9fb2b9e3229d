"""Packed sets: smaller images of the same classes, splits and groups, whatever form the source has and whenever it was
killed."""

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch.nn import functional as F

from bench.core.errors import EXIT_OK, EXIT_USAGE, UserError
from bench.core.subprocesses import child_environment
from bench.data import pack
from bench.data.__main__ import main
from bench.data.load import load
from bench.study.cell import Recipe
from bench.train.batches import Batches, crop_boxes
from bench.train.reading import resize
from tests.data import photographs, writers
from tests.data.test_stream import as_folder, as_parquet, as_tar
from tests.plan.making import grid_of

SIDE, PER_SHARD = 64, 8
WORDS = "48px:rgb:stream"


@pytest.fixture(scope="module")
def files() -> list[tuple[bytes, int]]:
    """(file, label): photographs, one of them held upside down, one grey; and a small PNG."""
    given = []
    for number in range(40):
        with Image.open(io.BytesIO(photographs.jpeg(number % 6))) as image:
            small = image.resize((150 + number, 110))
        how = {"exif": writers.turned(3 if number == 7 else 6)} if number in (7, 8) else {}
        given.append((writers.encoded(small.convert("L") if number == 9 else small, quality=92, **how), number % 4))
    given[10] = (writers.encoded(Image.fromarray(np.arange(2700, dtype=np.uint8).reshape(30, 30, 3)), "PNG"), 2)
    return given


@pytest.fixture(autouse=True)
def small_shards(monkeypatch) -> None:
    monkeypatch.setattr(pack, "MIN_IMAGES", PER_SHARD)
    monkeypatch.setattr(pack, "cores", lambda: 1)  # starting a process takes longer than all of its work here


def packed(root: Path, source: str = "folder:photos", target: str = "packed", *words: str) -> int:
    return main(["pack", source, str(root / target), "--data-root", str(root), "--side", str(SIDE), *words])


def by_name(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.tar"))}


def test_shards_follow_from_the_images_and_not_from_their_form(tmp_path, files):
    written = []
    for name, write in {"folder": as_folder, "tar": as_tar, "parquet": as_parquet}.items():
        (tmp_path / name).mkdir()
        write(tmp_path / name / "photos", files)
        assert packed(tmp_path / name) == EXIT_OK
        written.append(by_name(tmp_path / name / "packed"))
    assert written[0] == written[1] == written[2] and len(written[0]) == 6  # of 36 and of 4 images
    (content,) = {path.read_text() for path in tmp_path.glob("*/packed/packed.json")}
    facts = json.loads(content)
    assert facts["content_hash"]["train"] == load("folder:photos:stream", "train", root=tmp_path / "tar").content_hash
    assert (facts["side"], facts["quality"], facts["images"]) == (SIDE, 90, {"train": 36, "test": 4})
    assert (
        "packed from folder:photos:stream at 64 px"
        in load(f"folder:packed:{WORDS}", "test", root=tmp_path / "tar").source
    )


@pytest.mark.parametrize("kind", [(), ("--pixels",)], ids=["JPEG", "pixels"])
def test_batches_are_equal_from_shards_and_from_the_same_files_in_folders(tmp_path, files, kind):
    as_tar(tmp_path / "photos", files)
    assert packed(tmp_path, "folder:photos", "packed", *kind) == EXIT_OK
    for split in ("train", "test"):
        index = load(f"folder:packed:{WORDS}", split, root=tmp_path).images_NHWC.index
        for row, label in enumerate(index.label):
            data = index.read(row)
            ending = "ppm" if kind else "png" if data[1:4] == b"PNG" else "jpg"
            path = tmp_path / "unpacked" / split / str(label) / f"{row}.{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    recipe = Recipe(batch=8, crop=0.05, flip=True, shift=0)
    one, other = (
        Batches(load(f"folder:{name}:{WORDS}", "train", root=tmp_path), recipe=recipe, seed=1, device="cpu", workers=0)
        for name in ("packed", "unpacked")
    )
    for step in (0, 5, 1):
        for ours, theirs in zip(one(step), other(step), strict=True):
            assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("words", ["48px:rgb", "20px:rgb", "12px:grey"])
def test_packed_pixels_give_what_pillow_and_torch_make_of_the_photographs(tmp_path, files, words):
    """The photographs as Pillow resizes them, halved by means and cut by torch in float."""
    as_tar(tmp_path / "photos", files)
    assert packed(tmp_path, "folder:photos", "packed", "--pixels") == EXIT_OK
    images = load(f"folder:packed:{words}:stream", "train", root=tmp_path).images_NHWC
    rows_B, size, channels = np.arange(len(images)), images.size, images.channels
    heights_B, widths_B = images.sizes(rows_B)
    boxes_4B = crop_boxes(np.random.default_rng(0), number=len(images), height=heights_B, width=widths_B, least=0.05)
    found_BSSC, halved = np.empty(images.shape, dtype=np.uint8), 0
    images.read(rows_B, boxes_4B, out_BHWC=found_BSSC, resize=resize)
    for row, (top, left, height, width) in enumerate(boxes_4B.T.tolist()):
        with Image.open(io.BytesIO(images.index.read(row))) as image:  # the file is one that Pillow reads
            whole_HWC = np.atleast_3d(np.asarray(image.convert("RGB" if channels == 3 else "L"), dtype=np.float32))
        by = next(by for by in (8, 4, 2, 1) if by == 1 or min(height, width) >= by * size)
        top, left, height, width = (length // by * by for length in (top, left, height, width))
        part = torch.from_numpy(whole_HWC[top : top + height, left : left + width].copy()).permute(2, 0, 1)[None]
        expected = F.interpolate(F.avg_pool2d(part, by), (size, size), mode="bilinear")[0].permute(1, 2, 0)
        assert np.abs(found_BSSC[row] - expected.numpy()).max() <= by.bit_length() + 0.1  # a rounding more each time
        halved += by > 1
    assert (halved > 10) == (size < 48)


def test_a_packed_pixel_that_has_changed_is_not_trained_on(tmp_path, files):
    as_tar(tmp_path / "photos", files)
    assert packed(tmp_path, "folder:photos", "packed", "--pixels") == EXIT_OK
    images = load(f"folder:packed:{WORDS}", "train", root=tmp_path).images_NHWC
    shard = tmp_path / "packed" / "train-00000.tar"
    status, whole = shard.stat(), shard.read_bytes()
    for place in (*range(3000, 3008), None):  # each byte of a word, and none
        data = bytearray(whole)
        if place is not None:
            data[place] ^= 128
        shard.write_bytes(data)
        os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))
        with pytest.raises(UserError, match="has changed since") if place is not None else contextlib.nullcontext():
            images.read(np.arange(len(images)), None, out_BHWC=np.empty(images.shape, dtype=np.uint8))


@pytest.mark.parametrize("kind", [(), ("--pixels",)], ids=["JPEG", "pixels"])
def test_every_image_keeps_its_class_and_its_split_and_is_upright(tmp_path, files, kind):
    """Beside what Pillow makes of the file without a shortcut."""
    as_folder(tmp_path / "photos", files)
    assert packed(tmp_path, "folder:photos", "packed", *kind) == EXIT_OK
    for split in ("train", "test"):
        before = load("folder:photos:stream", split, root=tmp_path)
        after = load("folder:packed:stream", split, root=tmp_path)
        assert before.class_names == after.class_names and sorted(before.labels_N) == sorted(after.labels_N)
        left = [(label, after.images_NHWC.index.read(row)) for row, label in enumerate(after.labels_N)]
        for row, label in enumerate(before.labels_N):
            data = before.images_NHWC.index.read(row)
            image = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
            scale = min(1, SIDE / min(image.size))
            expected = image.resize([round(length * scale) for length in image.size], Image.Resampling.BICUBIC)
            found = [other for at, other in left if at == label and is_near(other, expected)]
            assert len(found) >= 1 and (found[0] == data or scale < 1 or kind)


def is_near(data: bytes, expected: Image.Image) -> bool:
    with Image.open(io.BytesIO(data)) as image:
        if image.size != expected.size or image.mode != expected.mode or "exif" in image.info:
            return False
        return np.abs(np.asarray(image, dtype=int) - np.asarray(expected, dtype=int)).mean() < 6


@pytest.mark.parametrize("kind", [(), ("--pixels",)], ids=["JPEG", "pixels"])
def test_groups_and_all_annotated_classes_stay(tmp_path, files, monkeypatch, kind):
    as_folder(tmp_path / "photos", files)
    rows = "".join(f"{number % 4}/{number:03}.jpg,camera {number // 4 % 6}\n" for number in range(40))
    (tmp_path / "photos" / "groups.csv").write_text(f"file,group\n{rows}")
    assert packed(tmp_path, "folder:photos", "packed", *kind) == EXIT_OK
    for split in ("train", "test"):
        before, after = (load(f"folder:{name}:{WORDS}", split, root=tmp_path) for name in ("photos", "packed"))
        groups = [sorted(zip(images.labels_N, images.groups_N, strict=True)) for images in (before, after)]
        assert groups[0] == groups[1] and len(set(after.groups_N)) > 1 - (split == "test")
    notes = grid_of("adapt", data=(f"folder:packed:{WORDS}",), models=("timm:test_vit",), data_root=tmp_path).notes
    said = next(note for note in notes if "to test" in note)
    assert f"packed:{WORDS}: {len(set(after.groups_N))} group" in said and not any("two models" in n for n in notes)

    several = tuple((number % 4, 3) for number in range(4))
    monkeypatch.setattr(pack, "_splits", with_real(pack._splits, several))
    (tmp_path / "photos" / "groups.csv").unlink()
    assert packed(tmp_path, "folder:photos", "real", *kind) == EXIT_OK
    after, before = (load(f"folder:{name}:{WORDS}", "test", root=tmp_path) for name in ("real", "photos"))
    order = [list(before.labels_N).index(label) for label in after.labels_N]  # one test image of each class
    assert after.multi_labels == tuple(tuple(sorted(set(several[place]))) for place in order)


def with_real(splits, several):
    def changed(*given):
        made = splits(*given)
        return made | {"test": replace(made["test"], multi_labels=several)}

    return changed


PACKS = """
import os, resource, sys
from bench.data import pack
pack.MIN_IMAGES, pack.cores = 1, lambda: 1
if sys.argv[1] == "full":  # of what a process may write
    resource.setrlimit(resource.RLIMIT_FSIZE, (14_000, resource.RLIM_INFINITY))
elif sys.argv[1] == "killed":  # after its first shard
    pack.Progress = type("Ends", (), {"__init__": lambda *_: None, "step": lambda *_: os.kill(os.getpid(), 9)})
sys.exit(pack.main(["folder:photos", sys.argv[2], "--data-root", ".", "--side", "64", *sys.argv[3:]]))
"""


@pytest.mark.gate
@pytest.mark.parametrize("kind", [(), ("--pixels",)], ids=["JPEG", "pixels"])
def test_a_killed_packing_goes_on_to_the_same_bytes(tmp_path, files, kind):
    as_tar(tmp_path / "photos", files)

    def run(*words: str) -> int:
        command = [sys.executable, "-c", PACKS, *words, *kind]  # its output ends with the processes that it has started
        done = subprocess.run(command, cwd=tmp_path, env=child_environment(1), capture_output=True, text=True)
        said.append(done.stderr)
        return done.returncode

    said: list[str] = []
    if kind:  # of 150 x 110 pixels some lie in files of more than 14 kB
        assert run("full", "packed") == EXIT_USAGE
        assert said[-1].count("error: ") == 1 and "Traceback" not in said[-1] and "too large" in said[-1]
    assert run("killed", "packed") == -signal.SIGKILL
    part = tmp_path / ".packed.packing"
    kept = {path.name: path.stat().st_mtime_ns for path in part.glob("*.tar")}
    assert 1 <= len(kept) < 40 and not (tmp_path / "packed").exists()
    assert run("whole", "packed") == run("whole", "other") == EXIT_OK
    written = by_name(tmp_path / "packed")
    assert len(written) == 40 and written == by_name(tmp_path / "other")
    assert {name: (tmp_path / "packed" / name).stat().st_mtime_ns for name in kept} == kept
    assert not list(tmp_path.glob(".*"))


def test_mistakes_are_said(tmp_path, files, capsys, monkeypatch):
    as_tar(tmp_path / "photos", files)
    writers.as_npz(tmp_path / "arrays", writers.make(9))

    def said(*given: str, code: int = EXIT_USAGE) -> str:
        assert packed(tmp_path, *given) == code
        told = capsys.readouterr().err
        assert told.count("error: ") <= 1 and "Traceback" not in told
        return told

    assert "holds pixels" in said("folder:arrays")
    assert "kept as pixels" in said("fashion-mnist")
    assert "Leave the size out" in said("folder:photos:64px")
    assert "no folder" in said("folder:nowhere")
    assert "cannot be used" in said("folder:photos", "my photos")  # nor read there
    assert "folder named rgb" in said("folder:photos", "rgb")
    assert "From 50 to 100" in said("folder:photos", "packed", "--quality", "101")
    assert "not allowed with argument --pixels" in said("folder:photos", "packed", "--pixels", "--quality", "80")
    assert "From 32 to 2048" in said("folder:photos", "packed", "--side", "8")
    with monkeypatch.context() as changed:
        changed.setattr("bench.core.files.free_bytes", lambda _: 10_000)
        assert "has 10 kB free" in said()
    assert said(code=EXIT_OK) == said(code=EXIT_OK) == ""  # the second time there is nothing to do
    assert "is not folder:photos packed so" in said("folder:photos", "packed", "--quality", "80")
    assert "is not folder:photos packed so" in said("folder:photos", "arrays")
    assert "is not folder:photos packed so" in said("folder:photos", "packed", "--pixels")
    assert "folder:photos packed takes about" in said("folder:photos", "pixels", "--pixels", code=EXIT_OK)
    with pack._unfinished(tmp_path / "other", {"side": 1}):
        assert "by another process" in said("folder:photos", "other")
    assert "rm -r" in said("folder:photos", "other")
    shutil.rmtree(tmp_path / ".other.packing")
    (shard,) = (tmp_path / "photos").glob("shard-000.tar")
    status, data = shard.stat(), bytearray(shard.read_bytes())
    data[3000] ^= 1  # of the first image
    shard.write_bytes(data)
    os.utime(shard, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert "has changed since it was indexed" in said("folder:photos", "other")
