"""Series that trackers hold, read by their own libraries or from their own files: {cell: {metric: [(images, value),
...]}}."""

import json
import sqlite3
import struct
from collections.abc import Iterator
from pathlib import Path

Series = dict[str, dict[str, list[tuple[int, float]]]]


def tensorboard(study: Path, home: Path) -> Series:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    series: Series = {}
    for path in (study / "tensorboard").glob("*/*"):
        events = EventAccumulator(str(path), size_guidance={"scalars": 0}).Reload()
        tags = events.Tags()["scalars"]
        series[path.name.rpartition(".")[2]] = {
            tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in tags
        }
    return series


def mlflow(study: Path, home: Path) -> Series:
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{study / 'mlflow.db'}")
    experiment = client.get_experiment_by_name(study.name)
    series: Series = {}
    for run in client.search_runs([experiment.experiment_id]):
        of = series.setdefault(run.data.tags["cell"], {})
        for name in run.data.metrics:
            of.setdefault(name, []).extend((m.step, m.value) for m in client.get_metric_history(run.info.run_id, name))
    return series


def trackio(study: Path, home: Path) -> Series:
    with sqlite3.connect(home / f"{study.name}.db") as database:
        logs = database.execute("select run_name, metrics from metrics order by step").fetchall()
    return _by_metric((name.rpartition("-")[2], json.loads(text)) for name, text in logs)


def wandb(study: Path, home: Path) -> Series:
    """All files of a run together, as `wandb sync --append` would send them."""
    from wandb.proto.wandb_internal_pb2 import Record

    rows = []
    for path in sorted((study / "wandb").glob("offline-run-*/*.wandb")):
        for data in _log(path.read_bytes()):
            record = Record()
            record.ParseFromString(data)
            if record.HasField("history"):
                items = {(i.key or "/".join(i.nested_key)): json.loads(i.value_json) for i in record.history.item}
                kept = {key: value for key, value in items.items() if not key.startswith("_")}
                rows.append((path.parent.name.rpartition("-")[2], kept))
    return _by_metric(rows)


def _log(data: bytes) -> Iterator[bytes]:
    """Records of a file in LevelDB's log format, after a header of seven bytes."""
    at, part = 7, b""
    while at + 7 <= len(data):
        if (left := 32768 - at % 32768) < 7:
            at += left
            continue
        _, size, kind = struct.unpack("<IHB", data[at : at + 7])
        part += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield part
            part = b""


def _by_metric(rows) -> Series:
    series: Series = {}
    for cell, row in rows:
        for name, value in row.items():
            if name != "images seen":
                series.setdefault(cell, {}).setdefault(name, []).append((row["images seen"], value))
    return series
