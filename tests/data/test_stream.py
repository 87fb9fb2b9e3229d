"""Streamed images: the same whichever format, reader, rank or restart brings them; what cannot be read is said."""

import gc
import io
import json
import multiprocessing
import tarfile
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bench.core.errors import UserError
from bench.data import jpeg
from bench.data.image_set import INDEX_BYTES, ImageSet
from bench.data.index import IMAGE
from bench.data.load import load
from bench.data.sets import folder
from bench.study.cell import Recipe
from bench.train import device_reading, reading
from bench.train.batches import Batches, crop_boxes
from bench.train.device_reading import part
from bench.train.reading import resize
from tests.data import photographs
from tests.data.writers import add, encoded, turned
from tests.gpu import posing
from tests.train.test_batches import Rank

NUMBER, SIDE = 40, 48
WORDS = f"{SIDE}px:rgb:stream"
CROPPED = Recipe(batch=8, crop=0.05, flip=True, shift=1)
DECODED_THERE = replace(CROPPED, decoding="device")
READERS = [(CROPPED, 0), (CROPPED, 2), (DECODED_THERE, None)]


@pytest.fixture(scope="module")
def files() -> list[tuple[bytes, int]]:
    """(file, label): photographs of a fifth of the usual size."""
    encoded_images = []
    for number in range(NUMBER):
        with Image.open(io.BytesIO(photographs.jpeg(number % 8))) as image:
            small = image.resize((image.width // 4 + number, image.height // 4))
        encoded_images.append((encoded(small, quality=90), number % 4))
    return encoded_images


def as_folder(folder: Path, files: list[tuple[bytes, int]]) -> None:
    for number, (data, label) in enumerate(files):
        path = folder / str(label) / f"{number:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def as_tar(folder: Path, files: list[tuple[bytes, int]]) -> None:
    folder.mkdir(parents=True)
    for first in range(0, len(files), 16):
        with tarfile.open(folder / f"shard-{first:03}.tar", "w") as tar:
            for number, (data, label) in enumerate(files[first : first + 16]):
                add(tar, f"{number}.jpg", data)
                add(tar, f"{number}.cls", str(label).encode())


def _table(files: list[tuple[bytes, int]]):
    pa = pytest.importorskip("pyarrow")
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = pa.array([{"bytes": data, "path": None} for data, _ in files], kind)
    features = {"label": {"names": list("0123"), "_type": "ClassLabel"}, "image": {"_type": "Image"}}
    table = pa.table({"image": rows, "label": pa.array([label for _, label in files], pa.int64())})
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def as_parquet(folder: Path, files: list[tuple[bytes, int]]) -> None:
    table = _table(files)
    import pyarrow.parquet

    folder.mkdir(parents=True)
    pyarrow.parquet.write_table(table, folder / "data-00000.parquet", row_group_size=10)


def as_arrow(folder: Path, files: list[tuple[bytes, int]]) -> None:
    """As `datasets` writes it: a stream of record batches."""
    table = _table(files)
    import pyarrow as pa

    folder.mkdir(parents=True)
    path = str(folder / "data-00000-of-00001.arrow")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table, max_chunksize=7)


WRITERS = {"folder": as_folder, "tar": as_tar, "parquet": as_parquet, "arrow": as_arrow}


@pytest.fixture
def streamed(tmp_path, files):
    """(format, files) -> the training split, streamed."""

    def make(
        kind: str = "tar", given: list[tuple[bytes, int]] = files, words: str = WORDS, split: str = "train"
    ) -> ImageSet:
        if not (tmp_path / kind).exists():
            WRITERS[kind](tmp_path / kind, given)
        return load(f"folder:{kind}:{words}", split, root=tmp_path)

    return make


@pytest.mark.parametrize("kind", ["tar", "folder"])
def test_what_a_plan_asks_of_an_indexed_set_comes_from_its_index(streamed, tmp_path, monkeypatch, kind):
    """Without the headers of all shards, which are minutes for a large set."""
    images, option = streamed(kind), f"{kind}:{WORDS}"
    listed = folder.listed_images(option, root=tmp_path)
    monkeypatch.setattr(folder, "_format", lambda _: pytest.fail("the files were listed again"))
    assert folder.listed_images(option, root=tmp_path) == listed == len(images)
    files_there = {images.images_NHWC.index.read(row) for row in range(len(images))}
    sampled = folder.some_encoded(option, root=tmp_path)
    assert sampled and set(sampled) <= files_there


def test_the_same_files_are_the_same_set_in_every_format(streamed, files):
    sets = [streamed(kind) for kind in WRITERS]
    assert len({images.content_hash for images in sets}) == 1
    first = sets[0].images_NHWC[:]
    assert all(np.array_equal(images.images_NHWC[:], first) for images in sets[1:])
    tests = [streamed(kind, split="test") for kind in WRITERS]
    assert len({images.content_hash for images in tests}) == 1 and len(tests[0]) + len(sets[0]) == NUMBER
    assert sets[0].encoded_bytes + tests[0].encoded_bytes == sum(len(data) for data, _ in files)


def test_indexed_they_are_the_pixels_that_are_stored_otherwise(streamed):
    both = [
        [streamed(words=words, split=split) for split in ("train", "test")] for words in (WORDS, f"{SIDE}px:rgb:stored")
    ]
    one, other = ({pixels.tobytes() for part in parts for pixels in part.images_NHWC[:]} for parts in both)
    assert len(one) == NUMBER and one == other
    images = streamed()
    slices = np.concatenate([images.images_NHWC[at : at + 9] for at in range(0, len(images), 9)])  # decoded ahead
    assert np.array_equal(slices, images.images_NHWC[np.arange(len(images))])


@pytest.mark.parametrize("workers", [0, 2])
def test_without_crops_batches_are_those_of_the_same_pixels_in_memory(streamed, workers):
    images = streamed()
    resident = replace(images, images_NHWC=images.images_NHWC[:])
    recipe = replace(CROPPED, crop=0.0)
    one = Batches(resident, recipe=recipe, seed=1, device="cpu")
    other = Batches(images, recipe=recipe, seed=1, device="cpu", workers=workers)
    assert (one.tier, other.tier) == ("resident", "streamed")
    for step in (0, 1, 9, 4):
        assert all(torch.equal(*pair) for pair in zip(one(step), other(step), strict=True))


@pytest.mark.parametrize("recipe", [CROPPED, DECODED_THERE], ids=["processor", "device"])
def test_readers_ranks_and_restarts_do_not_change_a_batch(streamed, recipe):
    images = streamed()
    whole = Batches(images, recipe=recipe, seed=1, device="cpu", workers=0)
    expected = {step: whole(step) for step in range(7)}
    for workers in (1, 2):
        again = Batches(images, recipe=recipe, seed=1, device="cpu", workers=workers)
        for step in (3, 4, 5, 6, 2):  # a restart at its step; and a jump
            assert all(torch.equal(*pair) for pair in zip(again(step), expected[step], strict=True))
    for size in (2, 4):
        ranks = [
            Batches(images, recipe=recipe, seed=1, device="cpu", workers=0, ranks=Rank(rank, size))
            for rank in range(size)
        ]
        for step in (0, 5):
            shares = zip(*(batches(step) for batches in ranks), strict=True)
            assert all(torch.equal(torch.cat(parts), one) for parts, one in zip(shares, expected[step], strict=True))


@pytest.mark.gate
@pytest.mark.parametrize("kind", ["tar", "parquet"])
def test_readers_read_the_same_where_no_server_starts_them(streamed, kind, monkeypatch):
    """As on some systems, by spawning."""
    images = streamed(kind)
    expected = Batches(images, recipe=CROPPED, seed=1, device="cpu", workers=0)(3)
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert reading.start_context().get_start_method() == "spawn"
    again = Batches(images, recipe=CROPPED, seed=1, device="cpu", workers=1)(3)
    assert all(torch.equal(*pair) for pair in zip(again, expected, strict=True))


@pytest.mark.parametrize(("recipe", "workers"), READERS)
def test_a_set_is_let_go_with_its_batches(streamed, recipe, workers):
    """By counting references alone: open files and readers do not wait for a collection of cycles."""
    images = streamed()
    batches = Batches(images, recipe=recipe, seed=1, device="cpu", workers=workers)
    batches(0), batches(1), images.images_NHWC[:20], images.images_NHWC[20 : len(images)]
    kept = [weakref.ref(one) for one in (batches, batches.reader, images.images_NHWC, images.images_NHWC.index)]
    gc.collect()
    gc.disable()
    try:
        del images, batches
        assert [one() for one in kept] == [None] * len(kept)
    finally:
        gc.enable()


def test_crops_are_cut_out_of_the_full_image(streamed):
    """Against Pillow's decoder and torch's float interpolation; rounding along each axis moves a value by half
    a level."""
    images = streamed().images_NHWC
    rows = np.arange(12)
    heights, widths = images.sizes(rows)
    boxes_4B = crop_boxes(np.random.default_rng(3), number=12, height=heights, width=widths, least=0.3)
    out = np.empty((len(rows), *images.shape[1:]), dtype=np.uint8)
    images.read(rows, boxes_4B, out_BHWC=out, resize=resize)
    for row, (top, left, height, width) in enumerate(boxes_4B.T.tolist()):
        with Image.open(io.BytesIO(images.index.read(row))) as image:
            part = np.asarray(image.convert("RGB"))[top : top + height, left : left + width]
        x = torch.from_numpy(np.array(part)).permute(2, 0, 1)[None].float()
        exact = torch.nn.functional.interpolate(x, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
        assert np.abs(exact[0].permute(1, 2, 0).numpy() - out[row]).max() <= 1.0 + 1e-3


VARIANTS = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "progressive": {"progressive": True},
    "restarts": {"subsampling": 2, "restart_marker_rows": 1},
}


@pytest.mark.parametrize("kind", [*VARIANTS, "grey"])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_fast_decoder_gives_what_pillow_gives(kind, channels, monkeypatch):
    pytest.importorskip("simplejpeg")
    rng = np.random.default_rng(0)
    with Image.open(io.BytesIO(photographs.jpeg(3))) as image:
        image = image.resize((507, 381)).convert("L" if kind == "grey" else "RGB")
    data, out = encoded(image, quality=85, **VARIANTS.get(kind, {})), np.zeros((2, 64, 64, channels), dtype=np.uint8)
    for _ in range(30):
        height, width = rng.integers(20, 381), rng.integers(20, 507)
        box = rng.integers(0, 382 - height), rng.integers(0, 508 - width), height, width
        jpeg.read_part(data, box, out_SSC=out[0], resize=resize)
        with monkeypatch.context() as without:
            without.setattr(jpeg, "simplejpeg", None)
            jpeg.read_part(data, box, out_SSC=out[1], resize=resize)
        assert np.array_equal(*out)


def test_photographs_lie_as_the_camera_was_held_and_one_in_a_thousand_may_be_unreadable(streamed, files):
    """Sizes are those of the upright picture. Every kind of file: test_folder.py."""
    picture = Image.fromarray(np.arange(64 * 48 * 3, dtype=np.uint32).reshape(64, 48, 3).astype(np.uint8))
    odd = [(encoded(picture, quality=95, exif=turned(6)), 1), (encoded(Image.new("I;16", (9, 9), 9), "PNG"), 2)]
    with pytest.warns(UserWarning, match=r"1 of 1,042 images cannot be read: .*16-bit grey up to 9 of"):
        images = streamed("tar", [*files, *odd, *_many(files, 1_000)])
    assert "1 unreadable left out" in images.source
    rows = np.flatnonzero(images.images_NHWC.index.orientation == 6)
    assert [size.tolist() for size in images.images_NHWC.sizes(rows)] == [[48], [64]]


def _many(files: list[tuple[bytes, int]], number: int) -> list[tuple[bytes, int]]:
    return [(photographs.numbered(files[at % 5][0], at), files[at % 5][1]) for at in range(number)]


def test_too_many_unreadable_images_are_refused_unless_they_are_allowed(streamed, files, monkeypatch):
    damaged = [*files, (files[0][0][:700], 0), (b"no image", 1)]
    with pytest.raises(UserError, match=r"(?s)2 of 42 images cannot be read: .*more than 0\.1%: --max-unreadable 5%"):
        streamed("tar", damaged)
    monkeypatch.setenv("VIT_BENCH_MAX_UNREADABLE", "5%")
    with pytest.warns(UserWarning, match="2 of 42"):
        images = streamed("tar", damaged)
    index = images.images_NHWC.index
    named = [one.partition(" (")[0] for one in json.loads(index.stored["facts"].tobytes())["named"]]
    assert index.unreadable == 2 and named == ["shard-032.tar:8.jpg", "shard-032.tar:9.jpg"]
    monkeypatch.delenv("VIT_BENCH_MAX_UNREADABLE")
    assert streamed("tar", damaged).content_hash == images.content_hash  # known from now on
    assert images.content_hash == streamed("arrow").content_hash


@pytest.mark.parametrize(("recipe", "workers"), READERS)
@pytest.mark.parametrize("what", ["gone", "changed", "shorter"])
def test_a_file_that_is_not_what_it_was_ends_training_with_its_name(streamed, tmp_path, recipe, workers, what):
    batches = Batches(streamed("folder"), recipe=recipe, seed=0, device="cpu", workers=workers)
    if workers is not None:  # else every file is open by then, and stays what it was
        batches(0)
    for path in (tmp_path / "folder").glob("2/*.jpg"):
        data = path.read_bytes()
        path.unlink()
        if what != "gone":
            path.write_bytes(data[:100] if what == "shorter" else data[::-1])
    reason = "can no longer be read: No such file" if what == "gone" else "has changed since"
    with pytest.raises(UserError, match=rf"folder/2/\d+\.jpg {reason}"):
        for step in range(1, 40):
            batches(step)


def test_what_is_added_is_another_set(streamed, tmp_path, files):
    before = streamed("folder").content_hash
    (tmp_path / "folder" / "1" / "new.jpg").write_bytes(files[0][0] + b"\0")
    assert streamed("folder").content_hash != before
    (tmp_path / "folder" / "1" / "new.jpg").unlink()
    assert streamed("folder").content_hash == before


def test_a_copy_that_has_no_room_is_refused_before_it_is_begun(streamed, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1_000})())
    with pytest.raises(UserError, match=r"0\.0 GB free; a copy of the images takes 0\.0"):
        streamed("parquet")


def test_large_sets_are_streamed_unless_they_are_to_be_stored(streamed, monkeypatch):
    monkeypatch.setattr("bench.data.sets.folder.STREAMED_BYTES", 100_000)
    assert streamed("tar", words="48px").tier(1 << 40) == "streamed"
    assert streamed("tar", words="16px").tier(1 << 40) == "resident"
    assert streamed("tar", words="48px:stored").tier(1 << 40) == "resident"


def test_a_row_of_the_index_has_as_many_bytes_as_plans_say() -> None:
    assert sum(np.dtype(kind).itemsize for kind in IMAGE.values()) == INDEX_BYTES


# -- decoded on the device ---------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(tmp_path) -> Path:
    """Photographs in full size: JPEGs of several kinds, some of which lie on their side, PNG, CMYK; grey ones too."""
    root = tmp_path / "mixed"
    how = [*VARIANTS.values(), {"exif": turned(6)}, {"exif": turned(2)}]
    for number in range(24):
        with Image.open(io.BytesIO(photographs.jpeg(number % 8))) as image:
            image = image.convert("L") if number % 7 == 3 else image.convert("CMYK") if number == 5 else image.copy()
        kind, options = ("PNG", {}) if number % 6 == 0 else ("JPEG", how[number % len(how)] | {"quality": 95})
        path = root / "train" / str(number % 2) / f"{number:02}.{kind.lower()}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(image, kind, **options))
    for label in "01":
        path = root / "test" / label / "0.jpg"
        path.parent.mkdir(parents=True)
        path.write_bytes(photographs.jpeg(9 + int(label)))
    return root


@pytest.mark.parametrize("size", [32, 160])
@pytest.mark.parametrize("kind", ["rgb", "grey"])
@pytest.mark.parametrize("crop", [0.0, 0.3])
def test_a_device_cuts_nearly_the_same_pixels_out_of_any_file(mixed, size, kind, crop):
    """Of 256 levels, on average over an image. Cropped, processors halve JPEGs alone before they resize them, and from
    the left before they mirror them; else, odd margins are cut off half a pixel beside the middle."""
    images = load(f"folder:mixed:{size}px:{kind}:stream", "train", root=mixed.parent)
    recipe = Recipe(batch=24, crop=crop, shift=0)
    one, other = (
        Batches(images, recipe=replace(recipe, decoding=decoding), seed=1, device="cpu", workers=0, scaled=False)
        for decoding in ("processor", "device")
    )
    index = images.images_NHWC.index
    for step in (0, 5):
        (x_BCHW, labels_B), (z_BCHW, same_B) = one(step), other(step)
        assert x_BCHW.dtype == z_BCHW.dtype == torch.uint8 and torch.equal(labels_B, same_B)
        rows_B = one.indices(step)
        halved_alike = [".jpeg" in index.name(row) for row in rows_B.tolist()] & (index.orientation[rows_B] != 2)
        apart_B = (x_BCHW.float() - z_BCHW.float()).abs().mean((1, 2, 3))[halved_alike | (not crop)]
        assert len(apart_B) > 12 and apart_B.mean() < 1.5 and apart_B.max() < 4.0


def test_parts_are_those_of_torchvision(mixed):
    """Its decoder, crop and resize; boxes that are not halved."""
    from torchvision.io import decode_image
    from torchvision.transforms.v2 import functional

    images = load("folder:mixed:128px:rgb:stream", "train", root=mixed.parent).images_NHWC
    rng = np.random.default_rng(0)
    for row in np.flatnonzero(images.index.orientation == 1)[:12]:
        data = torch.frombuffer(bytearray(images.index.read(int(row))), dtype=torch.uint8)
        pixels_CHW = decode_image(data, mode="RGB")
        top, left, height, width = box = *rng.integers(0, 90, 2).tolist(), *rng.integers(130, 240, 2).tolist()
        expected = functional.resized_crop(pixels_CHW, top, left, height, width, [128, 128], antialias=False)
        given = part(pixels_CHW, box, size=128)
        assert (given.int() - expected.int()).abs().max() <= 1
        if abs(pixels_CHW.shape[1] - pixels_CHW.shape[2]) % 2:
            continue  # each has its own idea of half a pixel
        square = functional.center_crop(pixels_CHW, [min(pixels_CHW.shape[1:])] * 2)
        stored = functional.resize(square, [128, 128], functional.InterpolationMode.BICUBIC, antialias=True)
        apart = (part(pixels_CHW, None, size=128).int() - stored.int()).abs()
        assert (apart <= 1).float().mean() > 0.999  # it clamps what overshoots after each axis


def test_what_a_device_refuses_is_decoded_by_the_processor(mixed, monkeypatch):
    import torchvision

    images = load("folder:mixed:64px:rgb:stream", "train", root=mixed.parent)
    batches, again = (
        Batches(images, recipe=replace(DECODED_THERE, batch=24, shift=0), seed=1, device="cpu") for _ in range(2)
    )
    expected = batches(0)[0]

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("nvjpegDecode failed: 5")

    monkeypatch.setattr(torchvision.io, "decode_jpeg", refuse)
    assert (again(0)[0] - expected).abs().mean() < 0.01
    with pytest.raises(UserError, match=r"(?s)No JPEG can be decoded on cpu: nvjpegDecode failed: 5\..*processor"):
        Batches(images, recipe=DECODED_THERE, seed=1, device="cpu")


def test_a_gpu_is_given_the_files(mixed, monkeypatch):
    """It decodes into memory that nobody reads any more: the decoder writes without waiting for the stream on which the
    batch before is cut, so that is drained."""
    import torchvision

    images = load("folder:mixed:64px:rgb:stream", "train", root=mixed.parent)
    by_processor = Batches(images, recipe=DECODED_THERE, seed=1, device="cpu", scaled=False)
    expected = {step: by_processor(step)[0] for step in (0, 1, 2)}
    decode, cut, asked, happened = torchvision.io.decode_jpeg, device_reading.part, [], []

    def by_nvjpeg(files: list[torch.Tensor], *, mode: str, device: torch.device) -> list[torch.Tensor]:
        asked.append((len(files), device.type))
        happened.append("decoded")
        return decode(files, mode=mode)

    monkeypatch.setattr(torchvision.io, "decode_jpeg", by_nvjpeg)
    monkeypatch.setattr(posing.Stream, "synchronize", lambda _: happened.append("drained"))
    monkeypatch.setattr(device_reading, "part", lambda *x, **y: (happened.append("cut"), cut(*x, **y))[1])
    with posing.posing():
        batches = Batches(images, recipe=DECODED_THERE, seed=1, device="cuda", scaled=False, tier="streamed")
        assert all(torch.equal(batches(step)[0], expected[step]) for step in (0, 1, 2, 1))
    assert {kind for _, kind in asked} == {"cuda"} and max(number for number, _ in asked) > 2
    decoded = [at for at, what in enumerate(happened) if what == "decoded"]
    assert len(decoded) >= 4 and all(happened[at - 1] == "drained" for at in decoded) and "cut" in happened
