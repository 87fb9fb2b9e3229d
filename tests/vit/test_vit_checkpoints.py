"""Checkpoints: round trips, dialects of the official .npz, resizing on load, and files that must be refused."""

import itertools
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from vit import family, files
from vit.checkpoints import CheckpointError, export, load, save
from vit.model import VisionTransformer

POSITION = "Transformer/posembed_input/pos_embedding"


def build(*, seed: int | None = None, **options: Any) -> VisionTransformer:
    """A small ViT with a class token and a learned table; random everywhere if a seed is given."""
    fields = {"image_size": 16, "channels": 3, "num_classes": 5, "width": 24, "depth": 2, "heads": 3, "mlp_width": 40}
    fields |= {"position": "learned-1d", "pooling": "cls"} | options
    model = family.build("ViT-nano/4", **fields)
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        for parameter in model.parameters():
            nn.init.normal_(parameter, generator=generator)
    return model.eval()


def equal(a: nn.Module, b: nn.Module) -> bool:
    other = b.state_dict()
    return all(torch.equal(tensor, other[name]) for name, tensor in a.state_dict().items())


def arrays(model: nn.Module) -> dict[str, np.ndarray]:
    """The arrays that the official .npz would hold."""
    return {name: tensor.detach().numpy() for name, tensor in export(model, "google").items()}


@pytest.mark.parametrize(
    ("layout", "options"),
    [
        *itertools.product(
            ("google", "timm", "torchvision", "safetensors"),
            ({}, {"image_size": (8, 24)}, {"head_dim": 5}, {"channels": 1}),
        ),
        ("google", {"head": "mlp", "head_width": 9}),
        ("safetensors", {"position": "relative"}),
        ("safetensors", {"position": "learned-2d"}),
        ("safetensors", {"position": "learned-1d", "position_at": "every-layer"}),
        ("safetensors", {"position": "sincos-2d", "pooling": "mean"}),
        ("safetensors", {"pooling": "tokens"}),
        ("safetensors", {"position": "none", "pooling": "mean", "norm_after_pool": True, "head": "mlp"}),
        ("safetensors", {"stem": "conv", "conv_stem": ((8, 3, 2), (8, 3, 2))}),
    ],
)
def test_round_trip_is_bitwise(tmp_path: Path, layout: str, options: dict) -> None:
    """Our own layout, that of safetensors, holds every option."""
    path = tmp_path / ("weights.npz" if layout == "google" else "weights.safetensors")
    source, target = build(seed=1, **options), build(**options)
    save(source, path, layout=layout)
    report = load(target, path)
    assert equal(source, target) and not report.resized and not report.fresh
    assert report.layout == ("own" if layout == "safetensors" else layout)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    x = torch.randn(2, source.config.channels, *source.config.image_size)
    assert torch.equal(source(x), target(x))


def test_fixed_positions_are_written_out_and_recognised(tmp_path: Path) -> None:
    source = build(seed=1, position="sincos-2d", pooling="mean")
    save(source, tmp_path / "w.npz", layout="google")
    fixed, learned = build(position="sincos-2d", pooling="mean"), build(position="learned-1d", pooling="mean")
    load(fixed, tmp_path / "w.npz")
    load(learned, tmp_path / "w.npz")
    x = torch.randn(2, 3, 16, 16)
    assert torch.equal(source(x), fixed(x)) and torch.equal(source(x), learned(x))
    save(build(seed=1), tmp_path / "other.npz", layout="google")
    with pytest.raises(CheckpointError, match="position='learned-1d'"):
        load(build(position="sincos-2d"), tmp_path / "other.npz")


def test_loading_after_to_empty_fills_what_is_not_in_the_file(tmp_path: Path) -> None:
    source = build(seed=1, position="sincos-2d", pooling="mean")
    save(source, tmp_path / "w.safetensors")
    with torch.device("meta"):
        target = build(position="sincos-2d", pooling="mean")
    with pytest.raises(CheckpointError, match="to_empty"):
        load(target, tmp_path / "w.safetensors")
    target.to_empty(device="cpu")
    load(target, tmp_path / "w.safetensors")
    x = torch.randn(2, 3, 16, 16)
    assert torch.equal(source(x), target(x))


def test_timms_own_npz_loader_reads_what_we_write(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    source = build(seed=1, gelu="exact")
    save(source, tmp_path / "w.npz", layout="google")
    sizes = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3, "mlp_ratio": 40 / 24}
    peer = timm.create_model("vit_tiny_patch16_224", num_classes=5, **sizes).eval()
    peer.load_pretrained(str(tmp_path / "w.npz"))
    x = torch.randn(2, 3, 16, 16)
    state = export(source, "timm")
    assert all(torch.equal(state[name], tensor) for name, tensor in peer.state_dict().items())
    torch.testing.assert_close(source(x), peer(x), atol=1e-5, rtol=1e-5)


def test_timms_state_dict_loads_as_pth_and_as_safetensors(tmp_path: Path) -> None:
    source, target = build(seed=1), build()
    torch.save({"state_dict": {f"module.{k}": v for k, v in export(source, "timm").items()}}, tmp_path / "w.pth")
    assert load(target, tmp_path / "w.pth").layout == "timm"
    assert equal(source, target)


def test_torchvisions_old_names(tmp_path: Path) -> None:
    source, target = build(seed=1), build()
    old = {
        k.replace("mlp.0.", "mlp.linear_1.").replace("mlp.3.", "mlp.linear_2."): v
        for k, v in export(source, "torchvision").items()
    }
    torch.save(old, tmp_path / "w.pth")
    load(target, tmp_path / "w.pth")
    assert equal(source, target)


# --- dialects of the official layout ---------------------------------------------------------------------------------


def prefixed(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {f"opt/target/{k}": v for k, v in tensors.items()} | {"opt/state/step": np.array(7)}


def big_vision(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Its numbering and names; the table has no row for the class token, whose share moved into the token."""
    out = {}
    for name, array in tensors.items():
        for old, new in (
            ("MultiHeadDotProductAttention_1", "MultiHeadDotProductAttention_0"),
            ("LayerNorm_2", "LayerNorm_1"),
            ("MlpBlock_3", "MlpBlock_0"),
        ):
            name = name.replace(old, new)
        out[f"params/{name}"] = array
    table = out.pop(f"params/{POSITION}")
    out["params/pos_embedding"] = table[:, 1:]
    out["params/cls"] = out["params/cls"] + table[:, :1]
    return out


def stacked(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Blocks scanned over: one array per weight with a leading depth axis."""
    tensors = big_vision(tensors)
    out = {k: v for k, v in tensors.items() if "encoderblock_" not in k}
    for name in [k for k in tensors if "encoderblock_0/" in k]:
        parts = [tensors[name.replace("encoderblock_0/", f"encoderblock_{i}/")] for i in range(2)]
        out[name.replace("encoderblock_0/", "encoderblock/")] = np.stack(parts)
    return out


def as_bfloat16(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Two-byte void, as NumPy writes a type it does not know."""
    return {k: torch.tensor(v).bfloat16().view(torch.int16).numpy().view("V2") for k, v in tensors.items()}


@pytest.mark.parametrize(
    "dialect, options",
    [(prefixed, {}), (big_vision, {}), (stacked, {}), (lambda tensors: tensors, {"position_on_cls": False})],
    ids=["prefixed", "big_vision", "stacked", "a table without a row for the class token"],
)
def test_dialects_give_the_same_outputs(tmp_path: Path, dialect: Callable, options: dict) -> None:
    source, target = build(seed=1), build(**options)
    np.savez(tmp_path / "w.npz", **dialect(arrays(source)))
    load(target, tmp_path / "w.npz")
    x = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(source(x), target(x), atol=1e-4, rtol=1e-5)


def test_bfloat16_stored_as_void(tmp_path: Path) -> None:
    source, target = build(seed=1), build()
    np.savez(tmp_path / "w.npz", **as_bfloat16(arrays(source)))
    load(target, tmp_path / "w.npz")
    state = target.state_dict()
    assert all(torch.equal(v.bfloat16().float(), state[k]) for k, v in source.state_dict().items())


# --- another image size, patch size, head ----------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["google", "timm", "torchvision", "safetensors"])
@pytest.mark.parametrize(
    ("old", "new", "source_grid"),
    [(16, 28, None), (16, (8, 20), None), ((8, 24), 16, (2, 6)), ((8, 24), (12, 20), (2, 6))],
)
def test_other_grids_are_interpolated_as_the_official_code_does(
    tmp_path: Path, layout: str, old: Any, new: Any, source_grid: tuple[int, int] | None
) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    source, target = build(seed=1, image_size=old), build(image_size=new)
    path = tmp_path / ("w.npz" if layout == "google" else "w.safetensors")
    save(source, path, layout=layout)
    assert len(load(target, path, source_grid=source_grid).resized) == 1
    (rows, columns), table = source.config.grid, source.positions[0].weight.detach()
    factors = (target.config.grid[0] / rows, target.config.grid[1] / columns, 1)
    grid = ndimage.zoom(table[0, 1:].reshape(rows, columns, -1).double().numpy(), factors, order=1)
    expected = torch.cat([table[0, :1], torch.tensor(grid).float().flatten(0, 1)])
    torch.testing.assert_close(target.positions[0].weight[0], expected, atol=1e-6, rtol=1e-6)
    state = target.state_dict()
    assert all(torch.equal(state[name], value) for name, value in source.state_dict().items() if "position" not in name)


def test_a_grid_that_is_not_square_must_be_given(tmp_path: Path) -> None:
    save(build(seed=1, image_size=(8, 24)), tmp_path / "w.npz", layout="google")
    with pytest.raises(CheckpointError, match="pass source_grid"):
        load(build(image_size=20), tmp_path / "w.npz")
    with pytest.raises(CheckpointError, match="source_grid"):
        load(build(image_size=20), tmp_path / "w.npz", source_grid=(3, 5))
    with pytest.raises(CheckpointError, match="resize=True"):
        load(build(image_size=20), tmp_path / "w.npz", source_grid=(2, 6), resize=False)


def test_patch_kernels_are_resized_on_request(tmp_path: Path) -> None:
    source = build(seed=1)
    save(source, tmp_path / "w.npz", layout="google")
    target = family.build("ViT-nano/8", **{**sizes_of(source), "image_size": 32})
    assert "patch kernel" in " ".join(load(target, tmp_path / "w.npz").resized)
    with pytest.raises(CheckpointError, match="resize=True"):
        load(target, tmp_path / "w.npz", resize=False)


def sizes_of(model: VisionTransformer) -> dict[str, Any]:
    names = ("channels", "num_classes", "width", "depth", "heads", "mlp_width", "position", "pooling")
    return {name: getattr(model.config, name) for name in names}


def test_fine_tuning_keeps_a_fresh_head(tmp_path: Path) -> None:
    save(build(seed=1, head="mlp", num_classes=9), tmp_path / "w.npz", layout="google")
    target = build(num_classes=5)
    report = load(target, tmp_path / "w.npz", head="fresh")
    assert report.fresh == ("head.bias", "head.weight") and not target.head.weight.any()
    assert set(report.dropped) == {f"{part}/{kind}" for part in ("head", "pre_logits") for kind in ("kernel", "bias")}
    report = load(build(num_classes=0, head="mlp"), tmp_path / "w.npz")
    assert report.dropped == ("head/bias", "head/kernel") and "pre_logits.weight" in report.loaded


# --- what must be refused, and what is said ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("saved", "wanted", "message"),
    [
        ({"num_classes": 9}, {}, "num_classes=9, or load with head='fresh'"),
        ({"head": "mlp"}, {}, "build with head='mlp'"),
        ({}, {"head": "mlp"}, "build with head='linear'"),
        ({"depth": 3}, {}, "more blocks than the model"),
        ({}, {"depth": 3}, "fewer blocks than the model"),
        ({"width": 48}, {}, "48 wide, the model 24"),
        ({"channels": 1}, {}, "channels=1"),
        ({"pooling": "mean"}, {}, "build with pooling='mean'"),
        ({}, {"pooling": "mean"}, "build with pooling='cls'"),
        ({}, {"position": "relative"}, "position='learned-1d', position_at='stem'"),
        ({}, {"position": "none"}, "position='learned-1d', position_at='stem'"),
        ({"num_classes": 0}, {}, "head='fresh'"),
    ],
)
def test_errors_say_what_would_fix_them_and_change_nothing(
    tmp_path: Path, saved: dict, wanted: dict, message: str
) -> None:
    save(build(seed=1, **saved), tmp_path / "w.npz", layout="google")
    target = build(seed=2, **wanted)
    before = {name: tensor.clone() for name, tensor in target.state_dict().items()}
    with pytest.raises(CheckpointError) as error:
        load(target, tmp_path / "w.npz")
    assert message in str(error.value)
    assert error.value.missing or error.value.unexpected or error.value.misshaped
    assert all(torch.equal(tensor, before[name]) for name, tensor in target.state_dict().items())


def test_errors_list_keys(tmp_path: Path) -> None:
    tensors = arrays(build(seed=1))
    tensors["strange/kernel"] = tensors.pop("head/kernel")
    tensors["cls"] = tensors["cls"][..., :3]
    np.savez(tmp_path / "w.npz", **tensors)
    with pytest.raises(CheckpointError) as error:
        load(build(), tmp_path / "w.npz")
    assert error.value.missing == ("head/kernel",) and error.value.unexpected == ("strange/kernel",)
    assert error.value.misshaped == ("cls: the checkpoint has (1, 1, 3), the model (1, 1, 24)",)


@pytest.mark.parametrize(
    ("options", "layout"),
    [
        ({"position": "relative"}, "google"),
        ({"position_at": "shared"}, "timm"),
        ({"head": "mlp"}, "timm"),
        ({"pooling": "mean", "norm_after_pool": True}, "google"),
        ({"pooling": "mean"}, "torchvision"),
        ({"stem": "conv", "conv_stem": ((8, 3, 2), (8, 3, 2))}, "google"),
    ],
)
def test_what_a_layout_cannot_hold_is_not_written(tmp_path: Path, options: dict, layout: str) -> None:
    with pytest.raises(CheckpointError, match="no place for"):
        save(build(**options), tmp_path / "w", layout=layout)
    assert not list(tmp_path.iterdir())


class Exploit:
    """Unpickling this creates a file: proof of execution."""

    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple:
        return Path.touch, (self.proof,)


def pickle_as(suffix: str) -> Callable[[Path, Path], Path]:
    def write(folder: Path, proof: Path) -> Path:
        path = folder / f"weights{suffix}"
        path.write_bytes(pickle.dumps(Exploit(proof)))
        return path

    return write


def object_array(folder: Path, proof: Path) -> Path:
    path = folder / "weights.npz"
    np.savez(path, **{"embedding/kernel": np.array([Exploit(proof)], dtype=object)})
    return path


def torch_archive(folder: Path, proof: Path) -> Path:
    path = folder / "weights.pth"
    torch.save({"embed.proj.weight": Exploit(proof)}, path)
    return path


def torch_archive_named_npz(folder: Path, proof: Path) -> Path:
    return torch_archive(folder, proof).rename(folder / "weights.npz")


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize(
    "write",
    [
        pickle_as(".npz"),
        pickle_as(".npy"),
        pickle_as(".pth"),
        pickle_as(".bin"),
        pickle_as(".safetensors"),
        object_array,
        torch_archive,
        torch_archive_named_npz,
    ],
)
def test_a_pickle_in_disguise_is_refused_and_nothing_runs(tmp_path: Path, write: Callable[[Path, Path], Path]) -> None:
    proof = tmp_path / "executed"
    path = write(tmp_path, proof)
    with pytest.raises(CheckpointError):
        load(build(), path)
    assert not proof.exists()


@pytest.mark.parametrize("layout", ["google", "safetensors"])
@pytest.mark.parametrize("keep", [0, 5, 0.5, 0.99])
def test_truncated_files_are_refused(tmp_path: Path, layout: str, keep: float) -> None:
    path = tmp_path / "w"
    save(build(seed=1), path, layout=layout)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if keep < 1 else int(keep)])
    with pytest.raises(CheckpointError):
        load(build(), path)


def compressed_npz(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    np.savez_compressed(path, **{name: tensor.numpy() for name, tensor in tensors.items()})


def torch_before_2020(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    torch.save(tensors, path, _use_new_zipfile_serialization=False)


KINDS = {
    "w.npz": files.write_npz,
    "compressed.npz": compressed_npz,
    "w.safetensors": files.write_safetensors,
    "w.pth": lambda path, tensors: torch.save(tensors, path),
    "old.pth": torch_before_2020,
}
UNCHECKED = ("w.safetensors", "old.pth")  # the format holds no checksum: other numbers are not noticed


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", KINDS)
def test_whatever_is_wrong_with_a_file_is_one_kind_of_error(tmp_path: Path, name: str) -> None:
    """Bytes that are altered, left out, doubled: the tensors as they were, or CheckpointError."""
    whole = {"a/kernel": torch.arange(60.0).reshape(3, 20), "b": torch.ones(5), "c": torch.tensor(2.0)}
    path, chooser = tmp_path / name, random.Random(name)
    KINDS[name](path, whole)
    content = path.read_bytes()
    refused = 0
    for _ in range(400):
        at, length = chooser.randrange(len(content)), chooser.choice((1, 1, 1, 2, 8))
        other = chooser.choice((bytes(length), b"\xff" * length, chooser.randbytes(length), b"", content[at:][:99] * 2))
        path.write_bytes(content[:at] + other + content[at + length :])
        try:
            read = files.read(path)
        except CheckpointError:
            refused += 1
            continue
        if name not in UNCHECKED:
            assert all(torch.equal(read[key], whole[key]) for key in read.keys() & whole.keys())
    assert refused > 50


@pytest.mark.parametrize("suffix", [".npz", ".pth"])
def test_what_would_unpack_to_far_more_than_it_holds_is_not_read(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"bomb{suffix}"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        name = "w.npy" if suffix == ".npz" else "w/data.pkl"
        with archive.open(name, "w", force_zip64=True) as member:
            for _ in range(80):
                member.write(bytes(2**24))
    with pytest.raises(CheckpointError, match=r"unpack to 1\.3 GB"):
        files.read(path)


def test_a_pipe_or_a_device_is_no_checkpoint(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "zeros.npz").symlink_to("/dev/zero")
    for name in ("pipe.npz", "zeros.npz"):
        with pytest.raises(CheckpointError, match="not a checkpoint"):
            files.read(tmp_path / name)


def test_foreign_files_are_named_as_such(tmp_path: Path) -> None:
    np.savez(tmp_path / "w.npz", weight=np.zeros(3), bias=np.zeros(3))
    with pytest.raises(CheckpointError, match=r"none of the known layouts.*bias, weight"):
        load(build(), tmp_path / "w.npz")
    with pytest.raises(CheckpointError, match="unknown layout"):
        load(build(), tmp_path / "w.npz", layout="keras")
    with pytest.raises(FileNotFoundError):
        load(build(), tmp_path / "absent.npz")
    torch.save([torch.zeros(1)], tmp_path / "list.pth")
    with pytest.raises(CheckpointError, match="holds a list"):
        load(build(), tmp_path / "list.pth")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "w.npz"
    save(build(seed=1), path, layout="google")
    before = path.read_bytes()

    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.np, "savez", full_disk)
    with pytest.raises(OSError, match="No space"):
        save(build(seed=2), path, layout="google")
    assert path.read_bytes() == before and [file.name for file in tmp_path.iterdir()] == ["w.npz"]
