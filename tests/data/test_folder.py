"""Folders of images in every format, size and kind."""

import io
import itertools
import re
import sys
import warnings
from array import array
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from bench.core.errors import UserError
from bench.data import cache as _cache
from bench.data import decode
from bench.data.load import load, look, stored_at
from bench.data.sets import folder as folder_set
from bench.data.source import PathList
from bench.train.reading import resize
from tests.data import writers
from tests.data.writers import encoded, turned

# -- a folder of one's own images: the same set in every format; sizes, kinds, held-out parts and names ----------------


PARTS = writers.make(40)


@pytest.mark.parametrize("split", writers.SPLITS)
@pytest.mark.parametrize("name", writers.WRITERS)
def test_the_same_images_are_the_same_set_in_every_format(tmp_path: Path, name: str, split: str) -> None:
    writers.WRITERS[name](tmp_path / "mine", PARTS)
    writers.as_npz(tmp_path / "reference", PARTS)
    images = load("folder:mine", split, root=tmp_path)
    assert images.content_hash == load("folder:reference", split, root=tmp_path).content_hash
    images_NHWC, labels_N = PARTS[split]
    expected = {(pixels.tobytes(), label) for pixels, label in zip(images_NHWC, labels_N, strict=True)}
    given = zip(images.images_NHWC, images.labels_N, strict=True)
    assert {(pixels.tobytes(), int(label)) for pixels, label in given} == expected
    assert len(images) == len(labels_N) and images.class_names == ("0", "1", "2")
    assert (images.name, images.split) == ("folder:mine", split)


def test_a_real_set_keeps_its_hash(tmp_path: Path) -> None:
    """`fashion-mnist@200` by its own reader, and the same images as files, shards, rows and arrays."""
    subset = {split: load("fashion-mnist", split, num_images=200) for split in writers.SPLITS}
    parts = {split: (images.images_NHWC[::-1], images.labels_N[::-1]) for split, images in subset.items()}
    for name in writers.WRITERS:
        writers.WRITERS[name](tmp_path / name, parts)
        for split in writers.SPLITS:
            again = load(f"folder:{name}", split, root=tmp_path, num_images=200)
            assert again.content_hash == subset[split].content_hash, name


def test_order_and_shards_do_not_matter(tmp_path: Path) -> None:
    writers.as_tar(tmp_path / "one", PARTS, per_shard=1000)
    orders = {split: np.random.default_rng(1).permutation(len(y)) for split, (_, y) in PARTS.items()}
    shuffled = {split: (x[orders[split]], y[orders[split]]) for split, (x, y) in PARTS.items()}
    writers.as_tar(tmp_path / "many", shuffled, per_shard=3)
    one, many = (load(f"folder:{name}", "train", root=tmp_path) for name in ("one", "many"))
    assert one.content_hash == many.content_hash


@pytest.mark.parametrize("write", [writers.as_folder, writers.as_tar, writers.as_npz])
def test_without_a_test_split_a_tenth_is_held_out_by_content(tmp_path: Path, write: Callable[..., None]) -> None:
    images, labels = writers.make(90)["train"]
    images = np.concatenate([images, images[:30]])  # copies must not end up on both sides
    labels = np.concatenate([labels, labels[:30]])
    write(tmp_path / "mine", {"train": (images, labels)})
    train, test = (load("folder:mine", split, root=tmp_path) for split in writers.SPLITS)
    assert len(train) + len(test) == 120
    assert not set(train.content_keys_N) & set(test.content_keys_N)
    assert all(3 <= count <= 6 for count in np.bincount(test.labels_N, minlength=3))
    assert "held out" in test.source


def test_class_folders_without_split_folders(tmp_path: Path) -> None:
    images, labels = writers.make(30)["train"]
    for row, (pixels, label) in enumerate(zip(images, labels, strict=True)):
        path = tmp_path / "mine" / ("ant", "bee", "cat")[label] / "deep" / f"{row}.PNG"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(writers.png(pixels))
    (tmp_path / "mine" / "ant" / "notes.txt").write_text("not an image")
    (tmp_path / "mine" / ".thumbnails").mkdir()
    train = load("folder:mine", "train", root=tmp_path)
    assert train.class_names == ("ant", "bee", "cat")
    assert len(train) == 27
    bare = load("folder", "train", root=tmp_path / "mine")  # without a name, the data root itself
    assert bare.content_hash == train.content_hash


def test_imagenet_layout_has_val_and_sizes_and_grey_among_colour(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        images = [(40, 30, "RGB"), (25, 60, "L"), (50, 50, "CMYK"), (64, 40, "P")]
        for number, (width, height, mode) in enumerate(images):
            folder = tmp_path / "net" / split / f"n0000000{number % 2}"
            folder.mkdir(parents=True, exist_ok=True)
            image = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)).convert(mode)
            image.save(folder / f"{number}.{'PNG' if mode == 'P' else 'JPEG'}")
    (tmp_path / "net" / "test").mkdir()  # ImageNet's test images have no labels
    with pytest.raises(UserError, match=r"mixes (sizes|grey)"):
        load("folder:net", "train", root=tmp_path)
    with pytest.raises(UserError, match=r"mixes grey and colour.*\n.*:rgb"):
        load("folder:net:16px", "train", root=tmp_path)
    for word, channels in (("rgb", 3), ("grey", 1)):
        for split in writers.SPLITS:
            assert load(f"folder:net:16px:{word}", split, root=tmp_path).images_NHWC.shape == (4, 16, 16, channels)


def test_resizing_takes_the_central_square(tmp_path: Path) -> None:
    pixels = np.zeros((40, 100, 1), dtype=np.uint8)
    pixels[:, 30:70] = 200  # the central square is all ink
    writers.as_folder(tmp_path / "wide", {"train": (np.stack([pixels, pixels // 2]), np.array([0, 0]))})
    images = load("folder:wide:20px", "train", root=tmp_path)
    assert images.images_NHWC.min() >= 85 and images.images_NHWC.shape[1:] == (20, 20, 1)


def test_decoded_once_and_again_when_a_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writers.as_folder(tmp_path / "mine", PARTS)
    first = load("folder:mine", "train", root=tmp_path)
    assert isinstance(first.images_NHWC, np.memmap)
    with monkeypatch.context() as patch:
        patch.setattr(folder_set, "decode_all", lambda *_, **__: pytest.fail("decoded twice"))
        assert load("folder:mine", "train", root=tmp_path).content_hash == first.content_hash
    (tmp_path / "mine" / "train" / "0" / "00000.png").write_bytes(writers.png(PARTS["test"][0][0]))
    assert load("folder:mine", "train", root=tmp_path).content_hash != first.content_hash


def test_large_sets_go_through_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writers.as_npz(tmp_path / "mine", PARTS)
    expected = load("folder:mine", "train", root=tmp_path).content_hash
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_cache, "IN_MEMORY", 100)
    kinds = []
    real = decode.cache.scratch
    monkeypatch.setattr(decode.cache, "scratch", lambda shape, **more: kinds.append(real(shape, **more)) or kinds[-1])
    assert load("folder:mine", "train", root=tmp_path).content_hash == expected
    assert isinstance(kinds[0], np.memmap)
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_full_disk_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cache, "IN_MEMORY", 100)
    with pytest.raises(UserError, match="no room for"):
        _cache.scratch((1 << 30, 1 << 30))


def test_medmnist_and_keras_archives(tmp_path: Path) -> None:
    (x, y), (x_test, y_test) = PARTS["train"], PARTS["test"]
    writers.as_npz(tmp_path / "plain", PARTS)
    expected = load("folder:plain", "train", root=tmp_path).content_hash
    for name, arrays in {
        "med": {"train_images": x[..., 0], "train_labels": y[:, None], "test_images": x_test, "test_labels": y_test},
        "keras": {"x_train": x[..., 0], "y_train": y.astype(np.uint8), "x_test": x_test[..., 0], "y_test": y_test},
    }.items():
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "set.npz", **arrays)
        assert load(f"folder:{name}", "train", root=tmp_path).content_hash == expected


def test_class_names_from_the_hub_and_from_a_file(tmp_path: Path) -> None:
    writers.as_npz(tmp_path / "a", PARTS)
    (tmp_path / "a" / "classes.txt").write_text("ant\nbee\ncat\n")
    assert load("folder:a", "train", root=tmp_path).class_names == ("ant", "bee", "cat")
    writers.as_parquet(tmp_path / "b" / "data", PARTS, names=["x", "y", "z"])
    assert load("folder:b", "test", root=tmp_path).class_names == ("x", "y", "z")


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UserError, match="pip install pyarrow"):
        load("folder:mine", "train", root=tmp_path)


@pytest.mark.parametrize(
    "option, fix",
    [
        *((name, "") for name in ("../x", "/etc", "a:b", "a:0px", "a:64", "a\nb", "a:99999px")),
        *((f"{name}:28px", "letters a to z, digits") for name in ("my flowers", "Blüten", ".hidden")),
        ("a/b:28px", "Write folder:b:28px --data-root a"),
    ],
)
def test_names_of_folders(tmp_path: Path, option: str, fix: str) -> None:
    with pytest.raises(UserError, match="folder:") as refusal:
        load(f"folder:{option}", "train", root=tmp_path)
    assert fix in refusal.value.fix


@pytest.mark.parametrize(
    "name, root, message",
    [
        ("folder:absent", Path(), "There is no folder"),
        ("folder:absent", None, "--data-root"),
        ("glyphs:flowers", None, "takes nothing after a colon"),
    ],
)
def test_a_folder_that_is_not_there(name: str, root: Path | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load(name, "train", root=root)


def test_one_image_per_class_says_how_many_are_needed(tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        writers.picture(tmp_path / "few" / name / "1.png", 100)
    with pytest.raises(UserError, match=r"few: too few different images.*\n.*two or more"):
        load("folder:few", "train", root=tmp_path)


def test_classes_may_have_any_name_and_any_number_of_images(tmp_path: Path) -> None:
    for name, count in (("Kätzchen", 12), ("犬", 3), ("a b", 1)):
        for number in range(count):
            writers.picture(tmp_path / "uneven" / name / f"{number}.png", 20 * number)
    train, test = (load("folder:uneven:28px:grey", split, root=tmp_path) for split in ("train", "test"))
    assert train.class_names == test.class_names == ("Kätzchen", "a b", "犬")
    assert np.bincount(train.labels_N, minlength=3).tolist() == [11, 1, 2]
    assert np.bincount(test.labels_N, minlength=3).tolist() == [1, 0, 1]


def test_published_protocols_do_not_look_at_exif_data(tmp_path: Path) -> None:
    """Users' photographs are turned upright: other pixels than revision 1 had. See below."""
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    for split, name in itertools.product(writers.SPLITS, ("a", "b")):
        path = tmp_path / "mine" / split / name / "1.png"
        path.parent.mkdir(parents=True)
        Image.fromarray(pixels).save(path, exif=turned(6))
    raw = folder_set.load("train", root=tmp_path, option="mine", as_published=True)
    assert folder_set.REVISION == 2 and np.array_equal(raw.images_NHWC[0], pixels)
    assert np.array_equal(load("folder:mine", "train", root=tmp_path).images_NHWC[0], np.rot90(pixels, -1))


def test_damaged_exif_says_nothing_about_the_pixels(tmp_path: Path) -> None:
    picture = np.full((8, 8, 3), 90, np.uint8)
    for split in writers.SPLITS:
        for name in ("a", "b"):
            path = tmp_path / "mine" / split / name / "1.png"
            path.parent.mkdir(parents=True)
            Image.fromarray(picture).save(path, exif=b"Exif\0\0MM\0\x2a\xff\xff\xff\xff")
    assert load("folder:mine", "train", root=tmp_path).images_NHWC[0, 0, 0].tolist() == [90, 90, 90]


# -- photographs as people have them: every kind of image file is read as Pillow reads it upright, stored and streamed


SIDE = 24
PIXELS = np.random.default_rng(0).integers(0, 256, (3, 3, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
PICTURE = Image.fromarray(PIXELS)
OTHER = Image.fromarray(255 - PIXELS)


def sixteen_bits(channels: str) -> bytes:
    """A PNG of 16 bits a channel, which Pillow cannot write in colour."""
    deep = PIXELS.astype(">u2") * 257 if channels == "RGB" else PIXELS[..., :1].astype(">u2") * 257
    rows = b"".join(b"\0" + row.tobytes() for row in deep)
    return writers.png_file(SIDE, SIDE, rows, bits=16, colour=2 if channels == "RGB" else 0)


READ = {
    **{f"JPEG turned {n}": (encoded(PICTURE, "JPEG", quality=95, exif=turned(n)), ".jpg") for n in range(1, 9)},
    "PNG turned": (encoded(PICTURE, "PNG", exif=turned(6)), ".png"),
    "WebP turned": (encoded(PICTURE, "WEBP", lossless=True, exif=turned(8)), ".webp"),
    "progressive JPEG turned": (encoded(PICTURE, "JPEG", progressive=True, exif=turned(3)), ".jpeg"),
    "CMYK JPEG": (encoded(PICTURE.convert("CMYK"), "JPEG", quality=95), ".jpg"),
    "grey JPEG": (encoded(PICTURE.convert("L"), "JPEG", quality=95), ".JPG"),
    "GIF": (encoded(PICTURE, "GIF"), ".gif"),
    "animated GIF": (encoded(PICTURE, "GIF", save_all=True, append_images=[OTHER]), ".gif"),
    "animated PNG": (encoded(PICTURE, "PNG", save_all=True, append_images=[OTHER]), ".png"),
    "animated WebP": (encoded(PICTURE, "WEBP", lossless=True, save_all=True, append_images=[OTHER]), ".webp"),
    "palette": (encoded(PICTURE.convert("P"), "PNG"), ".png"),
    "palette with a transparent colour": (encoded(PICTURE.convert("P"), "PNG", transparency=0), ".png"),
    "RGBA": (encoded(PICTURE.convert("RGBA"), "PNG"), ".png"),
    "grey with alpha": (encoded(PICTURE.convert("LA"), "PNG"), ".png"),
    "one bit": (encoded(PICTURE.convert("1"), "PNG"), ".png"),
    "16 bits in colour": (sixteen_bits("RGB"), ".png"),
    "TIFF": (encoded(PICTURE, "TIFF"), ".tif"),
    "compressed TIFF of two pages": (
        encoded(PICTURE, "TIFF", compression="tiff_lzw", save_all=True, append_images=[OTHER]),
        ".TIFF",
    ),
    "BMP": (encoded(PICTURE, "BMP"), ".bmp"),
    "PPM": (encoded(PICTURE, "PPM"), ".ppm"),
}
NAMED = {
    "32 bits of grey": (encoded(Image.fromarray(np.ones((8, 8), np.int32)), "TIFF"), ".tif", "not 8 or 16 bits"),
    "12 bits of grey in 16": (encoded(Image.fromarray(np.full((8, 8), 4095, np.uint16)), "PNG"), ".png", "multiply"),
    "an icon under another name": (encoded(PICTURE, "ICO"), ".jpg", "not a JPEG"),
    "half a JPEG": (READ["JPEG turned 1"][0][:-60], ".jpg", "truncated"),
    "an empty file": (b"", ".png", "not a JPEG"),
}


def upright(data: bytes) -> np.ndarray:
    """Pillow's own reading of the first frame."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a palette's transparency
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def folder_of(files: dict[str, bytes], below: Path) -> None:
    for number, (name, data) in enumerate(files.items()):
        for split in ("train", "test"):
            path = below / "mine" / split / str(number % 2) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


@pytest.mark.filterwarnings("ignore:Palette images with Transparency")
@pytest.mark.parametrize("how", ["stored", "stream"])
def test_every_kind_is_read_upright(tmp_path: Path, how: str) -> None:
    files = {f"{number:02}{end}": data for number, (data, end) in enumerate(READ.values())}
    folder_of(files, tmp_path)
    images = load(f"folder:mine:{SIDE}px:rgb:{how}", "train", root=tmp_path)
    assert len(images) == len(READ) and "unreadable" not in images.source
    pictures = {pixels.tobytes() for pixels in images.images_NHWC[:]}
    for kind, (data, _) in READ.items():
        assert upright(data).tobytes() in pictures, kind
    if how == "stream":  # what training cuts out: here all of each
        index = images.images_NHWC.index
        whole = np.array([[0], [0], [SIDE], [SIDE]]).repeat(len(images), 1)
        cut = np.empty((len(images), SIDE, SIDE, 3), dtype=np.uint8)
        images.images_NHWC.read(np.arange(len(images)), whole, out_BHWC=cut, resize=resize)
        for row in range(len(images)):
            assert np.abs(cut[row].astype(int) - upright(index.read(row))).max() <= 1, row


@pytest.mark.parametrize("how", ["stored", "stream"])
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_grey_of_16_bits_is_scaled_to_8(tmp_path: Path, how: str, kind: str) -> None:
    """65,535 is 255, and every level between is the nearest one; upright, cut out and stored."""
    deep = np.arange(SIDE * SIDE, dtype=np.uint16).reshape(SIDE, SIDE) * 113
    how_written = {} if kind == "PPM" else {"exif": turned(6)}
    files = {f"{n}.{kind.lower()}": encoded(Image.fromarray(deep + n), kind, **how_written) for n in range(4)}
    folder_of({name.replace(".ppm", ".pgm"): data for name, data in files.items()}, tmp_path)
    images = load(f"folder:mine:{SIDE}px:grey:{how}", "train", root=tmp_path)
    for n in range(4):
        expected = np.rint((deep + n) / 257).astype(np.uint8)
        expected = expected if kind == "PPM" else np.rot90(expected, -1)
        assert any((pixels[..., 0] == expected).all() for pixels in images.images_NHWC[:]), n
    if how == "stream":
        whole = np.array([[0], [0], [SIDE], [SIDE]]).repeat(4, 1)
        cut = np.empty((4, SIDE, SIDE, 1), dtype=np.uint8)
        images.images_NHWC.read(np.arange(4), whole, out_BHWC=cut, resize=resize)
        assert np.abs(cut.astype(int) - images.images_NHWC[:]).max() <= 1


def test_one_other_image_among_many_is_found_before_any_is_decoded(tmp_path: Path) -> None:
    """A set whose images are all alike says its size by itself; no sample of it could."""
    rng = np.random.default_rng(0)
    for number in range(200):
        path = tmp_path / "mine" / str(number % 2) / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path)
    assert look("folder:mine", root=tmp_path) == (16, 3)
    Image.new("RGB", (40, 20)).save(tmp_path / "mine" / "0" / "0002.png")
    assert look("folder:mine", root=tmp_path) == (None, 3)
    name = stored_at("folder:mine", 16, 3, root=tmp_path)
    assert load(name, "train", root=tmp_path).images_NHWC.shape == (181, 16, 16, 3)
    (tmp_path / "mine" / "0" / "0002.png").unlink()
    Image.new("L", (16, 16)).save(tmp_path / "mine" / "0" / "0002.png")
    assert look("folder:mine", root=tmp_path) == (None, 3) and look("folder:mine:grey", root=tmp_path) == (16, 1)


@pytest.mark.parametrize("splits", [("",), writers.SPLITS])
def test_what_archives_and_disks_leave_behind_is_no_class(tmp_path: Path, splits: tuple[str, ...]) -> None:
    for split in splits:
        for number in range(40):
            path = tmp_path / "mine" / split / str(number % 2) / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(writers.png(np.full((8, 8, 1), number, np.uint8)))
        for junk in ("__MACOSX/0/._1.png", "@eaDir/1.jpg", "0/@eaDir/1.jpg", "0/.thumbs/1.jpg", "none/notes.txt"):
            path = tmp_path / "mine" / split / junk
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"no image")
    images = load("folder:mine", "train", root=tmp_path)
    assert images.class_names == ("0", "1") and len(images) == (36 if splits == ("",) else 40)
    assert "left out, without images: @eaDir, __MACOSX, none" in images.source
    (tmp_path / "mine" / splits[0] / "none" / "1.heic").write_bytes(b"an image of a telephone")
    with pytest.raises(UserError, match=r"none holds no image that is read, only 1 \.heic"):
        load("folder:mine", "train", root=tmp_path)


def test_every_unreadable_image_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / "own-cache"))
    good = {f"{n:02}.png": writers.png(np.full((8, 8, 1), n, np.uint8)) for n in range(60)}
    folder_of(good | {f"bad{n:02}.png": b"<html>" for n in range(30)}, tmp_path)
    with pytest.raises(UserError, match=r"train: 30 of 90 images cannot be read") as refused:
        load("folder:mine", "train", root=tmp_path)
    listed = Path(re.search(r"\((\S+) names all 30\)", refused.value.what)[1]).read_text()
    assert sorted(re.findall(r"bad\d\d", listed)) == [f"bad{n:02}" for n in range(30)]
    assert refused.value.fix.endswith("--max-unreadable 34%.")


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
@pytest.mark.parametrize("how", ["stored", "stream"])
def test_what_is_not_read_is_counted_and_named(tmp_path: Path, monkeypatch, how: str) -> None:
    """Refused, unless so many may be left out; then that is said once, and noted."""
    good = {f"{number:02}.png": encoded(Image.fromarray(np.roll(PIXELS, number, 0)), "PNG") for number in range(8)}
    bad = {f"bad{number}{end}": data for number, (data, end, _) in enumerate(NAMED.values())}
    folder_of(good | bad, tmp_path)
    for ending in (".heic", ".psd", ".PSD", ".txt"):  # not even listed; images are counted
        (tmp_path / "mine" / "train" / "0" / f"other{ending}").write_bytes(b"x")
    name, count = f"folder:mine:{SIDE}px:rgb:{how}", f"{len(NAMED)} of {len(good) + len(NAMED)} images cannot be read"
    with pytest.raises(UserError, match=rf"{count}: .*bad0\.tif"):
        load(name, "train", root=tmp_path)
    monkeypatch.setenv("VIT_BENCH_MAX_UNREADABLE", "50%")
    with pytest.warns(UserWarning, match=count) as said:
        images = load(name, "train", root=tmp_path)
    for number, (_, end, reason) in enumerate(NAMED.values()):
        assert re.search(rf"bad{number}{end} \((?=[^)]*({reason}))", str(said[0].message)), number
    with warnings.catch_warnings(action="error"):
        again = load(name, "train", root=tmp_path)
    left_out = {"stored": len(NAMED), "stream": 2 * len(NAMED)}[how]  # of this split; of both
    assert "1 .heic, 2 .psd" in images.source and f"; {left_out} unreadable left out" in images.source
    assert again.source == images.source and len(images) == len(good)


ENDS = array("q", [9, 67])


def test_a_list_of_paths_holds_their_common_folder_once():
    root = Path("/data/photos")
    mine = [root / "cat" / "1.png", Path("/elsewhere/2.png"), root / "dog" / f"{'3' * 50}.png", Path("4.png")]
    listed, joined = PathList(mine, below=root), PathList(below=root)
    for part in (PathList(mine[:2], below=root), PathList(mine[2:])):
        joined.join(part)
    for paths in (listed, joined, PathList(map(str, mine))):
        assert list(paths) == mine and paths[-1] == mine[-1] and paths[1:3] == mine[1:3]
        assert [paths.encoded(number) for number in range(4)] == [bytes(path) for path in mine]
    assert len(listed._names) + len(str(root)) < len(PathList(mine)._names)
    assert PathList(mine[::2], below=root).relative_to(root) == (
        bytearray(b"cat/1.pngdog/" + b"3" * 50 + b".png"),
        ENDS,
    )
    assert listed.relative_to(root) is None and PathList(mine[:1], below=root).relative_to(root / "cat") is None
