"""Checkpoints of transformers: features are those of its own pipeline, and counted, tuned and refused like others."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import constants
from PIL import Image
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from baselines import hf
from bench.commands import probe
from bench.core.errors import UserError
from bench.cost import flops
from bench.study import fingerprint, registry
from bench.tasks._features import extractor
from bench.tasks._finetuner import transferred_model

transformers = pytest.importorskip("transformers")
transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

SIDE, WIDTH = 32, 32
DIGITS = 1e-5  # of features of size 1 to 3: float32 rounding through two blocks
PLAIN: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "image_size": SIDE,
    "patch_size": 8,
}
TEXT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 9}
TEXT |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SQUARE = {"height": SIDE, "width": SIDE}


def made(kind: str) -> tuple[Any, Any]:
    """A network with random weights, and the processor that such checkpoints come with."""
    t = transformers
    stretched = {"size": SQUARE}
    cropped = {"size": {"shortest_edge": SIDE}, "crop_size": SQUARE}
    both = {"vision_config": PLAIN, "text_config": TEXT}
    return {
        "vit": lambda: (t.ViTModel(t.ViTConfig(**PLAIN)), t.ViTImageProcessor(**stretched)),
        "vit, classified": lambda: (
            t.ViTForImageClassification(t.ViTConfig(**PLAIN)),
            t.ViTImageProcessor(**stretched),
        ),
        "dinov2": lambda: (t.Dinov2Model(t.Dinov2Config(**PLAIN)), t.BitImageProcessor(**cropped)),
        "dinov3": lambda: (
            t.DINOv3ViTModel(t.DINOv3ViTConfig(**PLAIN, num_register_tokens=2)),
            t.ViTImageProcessor(**stretched),
        ),
        "dinov2, registers": lambda: (
            t.Dinov2WithRegistersModel(t.Dinov2WithRegistersConfig(**PLAIN, num_register_tokens=2)),
            t.BitImageProcessor(**cropped),
        ),
        "beit": lambda: (t.BeitModel(t.BeitConfig(**PLAIN)), t.BeitImageProcessor(size=SQUARE, crop_size=SQUARE)),
        "deit, classified": lambda: (
            t.DeiTForImageClassification(t.DeiTConfig(**PLAIN)),
            t.DeiTImageProcessor(size=SQUARE, crop_size=SQUARE),
        ),
        "resnet": lambda: (
            t.ResNetForImageClassification(
                t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
            ),
            t.ConvNextImageProcessor(size={"shortest_edge": SIDE}, crop_pct=1.0),
        ),
        "convnext": lambda: (
            t.ConvNextForImageClassification(
                t.ConvNextConfig(hidden_sizes=[8, 8, 16, 32], depths=[1] * 4, image_size=SIDE)
            ),
            t.ConvNextImageProcessor(size={"shortest_edge": SIDE}, crop_pct=1.0),
        ),
        "swin": lambda: (
            t.SwinForImageClassification(
                t.SwinConfig(
                    image_size=SIDE, patch_size=4, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4
                )
            ),
            t.ViTImageProcessor(**stretched),
        ),
        "siglip, vision": lambda: (
            t.SiglipVisionModel(t.SiglipVisionConfig(**PLAIN)),
            t.SiglipImageProcessor(**stretched),
        ),
        "siglip": lambda: (t.SiglipModel(t.SiglipConfig(**both)), t.SiglipImageProcessor(**stretched)),
        "clip": lambda: (t.CLIPModel(t.CLIPConfig(**both)), t.CLIPImageProcessor(**cropped)),
    }[kind]()


KINDS = {  # kind -> what is taken of it
    "vit": "pooled",
    "vit, classified": "class",  # its pooler is not in the checkpoint
    "dinov2": "pooled",
    "dinov2, registers": "pooled",
    "dinov3": "pooled",
    "beit": "pooled",
    "deit, classified": "class",
    "resnet": "pooled",
    "convnext": "pooled",
    "swin": "pooled",
    "siglip, vision": "pooled",
    "siglip": "pooled",
    "clip": "pooled",
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    torch.manual_seed(0)
    places = {}
    for kind in KINDS:
        places[kind] = tmp_path_factory.mktemp("hf") / kind.replace(", ", "-")
        for part in made(kind):
            part.save_pretrained(places[kind])
    return places


@pytest.fixture
def photographs() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (5, SIDE, SIDE, 3), dtype=np.uint8)


@pytest.mark.parametrize("kind", KINDS)
def test_features_are_those_of_transformers_own_pipeline(
    kind: str, folders: dict[str, Path], photographs: np.ndarray
) -> None:
    name, folder = f"hf:{folders[kind]}", folders[kind]
    network = transformers.AutoModel.from_pretrained(folder)
    pipeline = transformers.pipeline(
        "image-feature-extraction",
        model=getattr(network, "vision_model", network),
        image_processor=transformers.AutoImageProcessor.from_pretrained(folder),
    )
    pooled = KINDS[kind] == "pooled"
    theirs = [pipeline(Image.fromarray(image), pool=pooled) for image in photographs]
    expected_ND = np.array([np.ravel(one[0] if pooled else one[0][0]) for one in theirs])
    model = registry.build_model(name, image_size=SIDE, channels=3, num_classes=7)
    ours_ND = extractor(model, image_size=SIDE, channels=3)(photographs)
    np.testing.assert_allclose(ours_ND, expected_ND, atol=DIGITS)
    assert expected_ND.std(0).mean() > 10 * DIGITS  # images differ
    assert hf.SAID[KINDS[kind]] in registry.about(name)
    assert registry.own_image_size(name) == SIDE
    assert registry.family_label(name) == f"hf:{json.loads((folder / 'config.json').read_text())['model_type']}"


@pytest.mark.parametrize(
    "kind", [kind if kind == "vit" else pytest.param(kind, marks=pytest.mark.gate) for kind in KINDS]
)
def test_it_is_counted_and_tuned_like_any_other(kind: str, folders: dict[str, Path]) -> None:
    name, sizes = f"hf:{folders[kind]}", {"channels": 3, "num_classes": 7}
    model: Any = registry.build_model(name, image_size=SIDE, **sizes).eval()
    counted = flops.count(name, image_size=SIDE, **sizes)
    assert counted.params == sum(parameter.numel() for parameter in model.parameters())
    plain = sdpa_kernel(SDPBackend.MATH)  # torch counts no fused attention of a CPU
    with plain, FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, 3, SIDE, SIDE))
    assert counted.forward_macs["dense"] == pytest.approx(counter.get_total_flops() / 2, rel=0.02)
    assert {p.shape[0] for p in model.head.parameters()} == {7}
    larger: Any = transferred_model(model, name=name, image_size=2 * SIDE, channels=3, num_classes=3)
    assert larger.own_input.input_size == 2 * SIDE
    larger(torch.randn(2, 3, 2 * SIDE, 2 * SIDE)).sum().backward()
    untouched = [n for n, p in larger.named_parameters() if p.grad is None and "mask_token" not in n]
    assert untouched == []


def test_a_pooler_that_nobody_trained_is_neither_used_nor_counted(folders: dict[str, Path]) -> None:
    sizes = {"image_size": SIDE, "channels": 3, "num_classes": 2}
    name = f"hf:{folders['vit, classified']}"
    with_pooler = registry.build_model(f"hf:{folders['vit']}", **sizes)
    without = registry.build_model(name, **sizes)
    count = lambda model: sum(p.numel() for p in model.parameters())  # noqa: E731
    assert count(with_pooler) - count(without) == WIDTH * WIDTH + WIDTH
    with pytest.raises(UserError, match="no pooled output with trained weights: features=class or features=mean"):
        registry.build_model(f"{name}:features=pooled", **sizes)
    token = registry.build_model(f"hf:{folders['vit']}:features=class", **sizes)
    assert count(token) == count(without)


def test_what_is_taken_can_be_asked_for(folders: dict[str, Path], photographs: np.ndarray) -> None:
    features = {}
    for how in ("pooled", "class", "mean"):
        model = registry.build_model(
            f"hf:{folders['dinov3']}:features={how}", image_size=SIDE, channels=3, num_classes=2
        )
        features[how] = extractor(model, image_size=SIDE, channels=3)(photographs)
    network = transformers.AutoModel.from_pretrained(folders["dinov3"]).eval()
    x_BCHW = (torch.from_numpy(photographs).permute(0, 3, 1, 2) / 255 - 0.5) / 0.5
    with torch.no_grad():
        made_BTD = network(pixel_values=x_BCHW).last_hidden_state.numpy()
    np.testing.assert_allclose(features["class"], made_BTD[:, 0], atol=DIGITS)
    np.testing.assert_allclose(features["mean"], made_BTD[:, 3:].mean(1), atol=DIGITS)  # after a class, 2 registers
    with pytest.raises(UserError, match="no class token"):
        registry.build_model(f"hf:{folders['siglip']}:features=class", image_size=SIDE, channels=3, num_classes=2)


def test_a_masked_autoencoder_hides_nothing(tmp_path: Path, photographs: np.ndarray) -> None:
    """Pre-training hides three quarters of the patches at random; features are of all, and the same every time."""
    config = transformers.ViTMAEConfig(**PLAIN, decoder_num_hidden_layers=1, mask_ratio=0.75)
    transformers.ViTMAEModel(config).save_pretrained(tmp_path / "mae")
    transformers.ViTImageProcessor(size=SQUARE).save_pretrained(tmp_path / "mae")
    model = registry.build_model(f"hf:{tmp_path / 'mae'}", image_size=SIDE, channels=3, num_classes=2)
    ours = [extractor(model, image_size=SIDE, channels=3)(photographs) for _ in range(2)]
    assert np.array_equal(*ours)
    whole = transformers.ViTMAEModel.from_pretrained(tmp_path / "mae", mask_ratio=0.0).eval()
    x_BCHW = (torch.from_numpy(photographs).permute(0, 3, 1, 2) / 255 - 0.5) / 0.5
    with torch.no_grad():
        expected = whole(pixel_values=x_BCHW).last_hidden_state[:, 0].numpy()  # in whichever order its patches are
    np.testing.assert_allclose(ours[0], expected, atol=DIGITS)


@pytest.mark.parametrize(
    "kind, said",
    [
        ("BertModel", "models of type 'bert' take no images"),
        ("Siglip2Model", "'siglip2' take pixel_attention_mask and spatial_shapes beside images of one size"),
    ],
)
def test_what_takes_no_plain_images_says_so(kind: str, said: str, tmp_path: Path) -> None:
    small = {name: TEXT[name] for name in ("hidden_size", "num_hidden_layers", "num_attention_heads")}
    vision = small | {"intermediate_size": 16, "patch_size": 8, "num_patches": 16}
    config = {
        "BertModel": lambda: transformers.BertConfig(**small, intermediate_size=16, vocab_size=9),
        "Siglip2Model": lambda: transformers.Siglip2Config(vision_config=vision, text_config=TEXT),
    }[kind]()
    getattr(transformers, kind)(config).save_pretrained(tmp_path / "net")
    with pytest.raises(UserError, match=said):
        registry.build_model(f"hf:{tmp_path / 'net'}", image_size=SIDE, channels=3, num_classes=2)


def test_the_processors_normalisation_is_used(
    folders: dict[str, Path], tmp_path: Path, photographs: np.ndarray
) -> None:
    shutil.copytree(folders["convnext"], tmp_path / "other")
    file = tmp_path / "other" / "preprocessor_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"image_mean": [0.1, 0.2, 0.3], "image_std": [1, 2, 3]}))
    model = registry.build_model(f"hf:{tmp_path / 'other'}", image_size=SIDE, channels=3, num_classes=2)
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "other")
    expected = processor([Image.fromarray(image) for image in photographs], return_tensors="pt")["pixel_values"]
    x_BCHW = torch.from_numpy(photographs).permute(0, 3, 1, 2) / 127.5 - 1
    torch.testing.assert_close(model.own_input(x_BCHW), expected, atol=1e-6, rtol=1e-6)
    file.unlink()
    assert "no processor is there, so assumed" in registry.about(f"hf:{tmp_path / 'other'}")


def test_a_repository_in_the_cache_needs_no_network(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, photographs: np.ndarray
) -> None:
    commit = "0" * 40
    place = tmp_path / "models--lab--net"
    shutil.copytree(folders["dinov2"], place / "snapshots" / commit)
    (place / "snapshots" / commit / "README.md").write_text("---\nlicense: mit\n---\n")
    (place / "refs").mkdir()
    (place / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(transformers.utils.hub.constants, "HF_HUB_CACHE", str(tmp_path))
    features = [
        extractor(registry.build_model(name, image_size=SIDE, channels=3, num_classes=2), image_size=SIDE, channels=3)(
            photographs
        )
        for name in ("hf:lab/net", f"hf:{folders['dinov2']}")
    ]
    assert np.array_equal(*features)
    weights = registry.weights_of("hf:lab/net")
    size = (folders["dinov2"] / "model.safetensors").stat().st_size
    assert weights is not None and (weights.here, weights.licence, weights.megabytes) == (True, "mit", size / 1e6)
    assert hf.on_disk() == ["hf:lab/net"]
    code = fingerprint.of_model("hf:lab/net")
    assert code is not None and code.modules["lab/net"] == f"commit {commit}"
    with pytest.raises(UserError, match=r"lab/other is not on this disk and cannot be fetched") as refusal:
        registry.check_model("hf:lab/other")
    assert "hf:FOLDER" in str(refusal.value)


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda folder: (folder / "config.json").unlink(), "has no config.json, which save_pretrained"),
        (
            lambda folder: (folder / "config.json").write_text('{"architecture": "vit_tiny"}'),
            "timm's: name it timm:hf-hub:… or timm:local-dir:…",
        ),
        (lambda folder: (folder / "config.json").write_text("{"), "is not JSON"),
        (
            lambda folder: (folder / "config.json").write_text('{"model_type": "unheard-of"}'),
            "has no model of type 'unheard-of'",
        ),
        (
            lambda folder: (folder / "config.json").write_text(
                '{"model_type": "unheard-of", "auto_map": {"AutoModel": "code.Net"}}'
            ),
            "needs code of its own, which is not run here",
        ),
        (lambda folder: (folder / "model.safetensors").unlink(), "holds no weights that transformers reads"),
        (
            lambda folder: (folder / "config.json").write_text(
                (folder / "config.json").read_text().replace('"num_hidden_layers": 2', '"num_hidden_layers": 3')
            ),
            "the checkpoint lacks 16 of its weights, such as",
        ),
    ],
)
def test_what_is_wrong_with_a_folder_is_one_sentence(
    change: Any, said: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    shutil.copytree(folders["vit"], tmp_path / "net")
    change(tmp_path / "net")
    with pytest.raises(UserError) as refusal:
        registry.check_model(name := f"hf:{tmp_path / 'net'}")
        registry.build_model(name, image_size=SIDE, channels=3, num_classes=2)
    assert said in str(refusal.value).replace("\n", " ")


def test_names_that_nothing_stands_behind_are_refused(folders: dict[str, Path]) -> None:
    for name, said in {
        "hf:nowhere": "is no folder, and no name of the hub such as",
        f"hf:{folders['vit']}+pretrained": "leave [+]pretrained out",
    }.items():
        with pytest.raises(UserError, match=said):
            registry.check_model(name)
    sizes = {"image_size": SIDE, "channels": 3, "num_classes": 2}
    with pytest.raises(UserError, match="ViTConfig has no field 'dpeth'"):
        registry.build_model(f"hf:{folders['vit']}:dpeth=3", **sizes)
    assert not registry.comes_trained(f"hf:{folders['vit']}:weights=random")
    one, two = (registry.build_model(f"hf:{folders['vit']}:weights=random", **sizes) for _ in range(2))
    assert not torch.equal(*(next(iter(model.parameters())) for model in (one, two)))


def test_a_gated_repository_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub.errors import GatedRepoError

    error = OSError("You are trying to access a gated repo.")
    error.__cause__ = GatedRepoError.__new__(GatedRepoError)
    assert "accept its terms on https://huggingface.co/lab/net, then set HF_TOKEN" in hf.refusal("lab/net", error)


def test_a_checkpoint_is_probed(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    name = os.path.relpath(folders["dinov2"])
    asked = ["--model", f"hf:{name}", "--data", "digits", "--shots", "1", "--draws", "1", "--option", "test_limit=50"]
    assert probe.main(asked) == 0
    said = capsys.readouterr()
    assert "untrained" not in said.out and "features are its pooled output" in said.err
