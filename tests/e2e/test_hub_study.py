"""A study on data sets of the Hugging Face: one of the hub, fetched first from a hub on this machine, and one that its
package `datasets` saved on the disk. Both are streamed."""

import pytest

from bench import run
from bench.data import __main__ as data_verb
from bench.store.records import read_record
from tests.data import writers
from tests.data.hub_server import files_in, serving
from tests.data.test_stream import as_arrow

pytestmark = pytest.mark.gate
COMMIT = "3fbd1f2" + "0" * 33
PARTS = writers.make(60, classes=4, side=16, channels=3)


def save(folder):
    """As `DatasetDict.save_to_disk`: by the package itself where it is installed."""
    try:
        import datasets
    except ImportError:
        for split, (images, labels) in PARTS.items():
            pairs = zip(map(writers.png, images), labels.tolist(), strict=True)
            as_arrow(folder / split, list(pairs))
        return
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list("0123"))})
    sets = {
        split: datasets.Dataset.from_dict(
            {"image": [{"bytes": writers.png(image), "path": None} for image in images], "label": labels.tolist()},
            features=features,
        )
        for split, (images, labels) in PARTS.items()
    }
    datasets.DatasetDict(sets).save_to_disk(folder)


def test_they_are_trained_on_without_the_hub(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    pytest.importorskip("huggingface_hub")
    root, name = tmp_path / "data", f"hf:some-one/tiny:{COMMIT[:7]}:16px:rgb:stream"
    writers.as_parquet(tmp_path / "made" / "data", PARTS)
    save(root / "saved")
    with serving() as hub:
        hub.commits = {("some-one/tiny", COMMIT): files_in(tmp_path / "made")}
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        assert data_verb.main(["hf:some-one/tiny:16px:rgb:stream", "--download", "--data-root", str(root)]) == 0
    saved = "folder:saved:16px:rgb:stream"
    asked = ["--suite", "smoke", "--data", f"{name},{saved}", "--downstream", name, "--models", "ViT-pico/8"]
    asked += [
        "--horizons",
        "0,64",
        "--set",
        "batch=16",
        "--set",
        "warmup=0",
        "--only",
        "vit",
        "--workers",
        "1",
        "--track",
        "none",
    ]
    assert run.main([*asked, "--data-root", str(root), "--results", str(tmp_path / "results")]) == 0
    records = [read_record(path) for path in sorted(tmp_path.glob("results/smoke/cells/*/record.json"))]
    assert [record.status for record in records] == ["complete", "complete"]
    assert {record.data.name for record in records} == {name, saved}
    assert len({record.data.content_hash for record in records}) == 1
