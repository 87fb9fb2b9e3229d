"""Logs that other libraries wrote become a table with a point per run.

`fixtures/` holds what wandb 0.31 and mlflow 3.17 wrote of the same runs: two families of three sizes, three steps each,
in MLflow's a run that failed, in W&B's one that ended with an error. TensorBoard's files are written here by torch.
"""

import gzip
import json
import sqlite3
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from bench.commands import fit
from bench.core.errors import UserError
from bench.logs import read, run, wandb

FIXTURES = Path(__file__).parent / "fixtures"
SIZES, FAMILIES, STEPS = (1_000_000, 4_000_000, 16_000_000), {"vit": 1.0, "resnet": 1.2}, (0, 10, 20)
LAST = {(family, n): k * (1 + 30 * n**-0.3) + 1 / 21 for family, k in FAMILIES.items() for n in SIZES}


def loss(family: str, size: int, step: int) -> float:
    return FAMILIES[family] * (1 + 30 * size**-0.3) + 1 / (step + 1)


def logs_of(place: Path) -> run.Logs:
    found = read.read(place)
    assert found is not None
    return found


def last(place: Path, **named: str) -> dict[tuple[str, int], float]:
    """(group, x) -> y of the table that a fit takes, columns as they are guessed."""
    found = logs_of(place)
    chosen = run.columns(found, **{"x": None, "y": None, "group": None, **named})
    assert chosen.group
    table = run.table(found)
    return {(row[chosen.group], row[chosen.x]): row[chosen.y] for row in table.to_dict("records")}


def unpack(name: str, into: Path) -> Path:
    with tarfile.open(FIXTURES / name) as tar:
        tar.extractall(into, filter="data")
    return into


def database(into: Path) -> Path:
    path, script = into / "mlflow.db", gzip.decompress((FIXTURES / "mlflow.sql.gz").read_bytes()).decode()
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()
    return path


def test_a_folder_and_a_database_of_mlflow_give_the_runs_that_finished(tmp_path: Path) -> None:
    for place in (unpack("mlruns.tar.gz", tmp_path / "mlruns"), database(tmp_path)):
        assert last(place) == pytest.approx(LAST)
        found = logs_of(place)
        said = run.columns(found, x=None, y=None, group=None).said(found, "final")
        assert "x = n_params, y = val_loss (the last value of each run), group = family" in said[0]
        assert said[1] == "1 run that did not finish left out: broken (failed)."
    assert logs_of(tmp_path / "mlruns").runs[0].series["val_loss"][0][0] == 0


def test_files_of_wandb_are_read_by_what_wandb_knows_of_its_messages(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    place = unpack("wandb.tar.gz", tmp_path / "wandb")
    found = logs_of(place)
    assert [one.status for one in found.runs if one.name == "resnet-1000000"] == ["ended with 1"]
    expected = {key: value for key, value in LAST.items() if key != ("resnet", SIZES[0])}
    assert last(place) == pytest.approx(expected)
    assert found.runs[0].series["tokens"] == [(0.0, 0.0), (10.0, 10_000.0), (20.0, 20_000.0)]
    assert last(place, x="tokens").keys() == {("vit", 20_000.0), ("resnet", 20_000.0)}  # beside a size, named


def test_records_of_wandb_are_found_with_a_cut_end_and_over_blocks(tmp_path: Path) -> None:
    path = next(unpack("wandb.tar.gz", tmp_path).glob("*.wandb"))
    whole = list(wandb.records(path))
    assert len(whole) > 8 and b"vit" in b"".join(whole) + path.read_bytes()
    path.write_bytes(path.read_bytes()[:-20])
    assert list(wandb.records(path)) == whole[: len(list(wandb.records(path)))] and len(whole) > 3
    large = b"x" * 70_000  # over three blocks, as LevelDB divides it
    data, left = b":W&B" + bytes(3), large
    while left:
        room = wandb.BLOCK - len(data) % wandb.BLOCK - wandb.PIECE.size
        kind = (2 if left is large else 3) if len(left) > room else wandb.LAST
        data += wandb.PIECE.pack(0, len(left[:room]), kind) + left[:room]
        left = left[room:]
    path.write_bytes(data)
    assert list(wandb.records(path)) == [large]
    path.write_bytes(b"something else")
    with pytest.raises(UserError, match="no log of Weights"):
        list(wandb.records(path))


def test_without_wandb_its_files_say_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "wandb.proto", None)
    assert fit.main([str(unpack("wandb.tar.gz", tmp_path))]) == 2
    assert "needs wandb, which is not installed" in capsys.readouterr().err


def test_runs_of_wandbs_server_are_points(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The answers are those that wandb 0.31 makes of its server's: nested settings, a summary with private names."""
    runs = [
        SimpleNamespace(
            name=f"{family}-{size}",
            state="crashed" if (family, size) == ("vit", SIZES[0]) else "finished",
            config={"model": {"size": size, "family": family}, "_wandb": {"cli_version": "0.31"}},
            summary={"loss": loss(family, size, 20), "converged": True, "_step": 20, "_runtime": 3.5},
        )
        for family in FAMILIES
        for size in SIZES
    ]
    asked: list[str] = []
    api = SimpleNamespace(runs=lambda path: asked.append(path) or iter(runs))
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(Api=lambda: api))  # type: ignore[arg-type]
    found = wandb.from_server("wandb:lab/nets")
    assert asked == ["lab/nets"]
    assert [one.status for one in found] == ["crashed", *[""] * 5]
    assert found[1].settings == {"model.size": SIZES[1], "model.family": "vit"}
    assert {name for one in found for name in one.series} == {"loss"}  # a truth value is no measurement
    assert fit.main(["wandb:lab/nets", "--json"]) == 0
    assert "x = model.size, y = loss (the last value of each run), group = model.family" in capsys.readouterr().err

    def refuses(path: str) -> None:
        raise ValueError("Could not find project nets")

    api.runs = refuses
    assert fit.main(["wandb:lab/nets"]) == 2
    assert "wandb:lab/nets cannot be read from Weights & Biases: Could not find project nets" in capsys.readouterr().err


def test_event_files_of_torch_with_hyperparameters_beside_them(tmp_path: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    for family in FAMILIES:
        for size in SIZES:
            writer = SummaryWriter(str(tmp_path / "tb" / family / str(size)))
            for step in STEPS:
                writer.add_scalar("loss/val", loss(family, size, step), step)
            writer.add_hparams({"n_params": size, "family": family}, {"hparam/best": 1.0})
            writer.close()
    assert last(tmp_path / "tb") == pytest.approx(LAST, rel=1e-6)
    assert {one.name for one in logs_of(tmp_path / "tb").runs} == {f"{f}/{n}" for f in FAMILIES for n in SIZES}


def test_json_lines_beside_settings_nested_json_and_rows_that_name_their_run(tmp_path: Path) -> None:
    rows, whole = [], {}
    for family in FAMILIES:
        for size in SIZES:
            name, settings = f"{family}-{size}", {"family": family, "model": {"n_params": size}}
            log = [{"step": step, "val": {"loss": loss(family, size, step)}} for step in STEPS]
            (tmp_path / "a" / name).mkdir(parents=True)
            (tmp_path / "a" / name / "config.json").write_text(json.dumps(settings))
            (tmp_path / "a" / name / "metrics.jsonl").write_text("\n".join(map(json.dumps, log)))
            (tmp_path / "b").mkdir(exist_ok=True)
            (tmp_path / "b" / f"{name}.json").write_text(json.dumps({"config": settings, "log_history": log}))
            rows += [{"run": name, **settings, **row} for row in log]
            whole[name] = {**settings, "val_loss": [row["val"]["loss"] for row in log], "step": STEPS}  # type: ignore[index]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "d.json").write_text(json.dumps(whole))
    (tmp_path / "e.json").write_text(
        json.dumps({"runs": [{"family": f, "n_params": n, "val_loss": v} for (f, n), v in LAST.items()]})
    )
    for name in ("a", "b", "c.jsonl", "d.json", "e.json"):
        assert last(tmp_path / name) == pytest.approx(LAST), name


def test_what_the_page_of_wandb_exports_of_a_chart_and_of_its_table(tmp_path: Path) -> None:
    chart = pd.DataFrame({"Step": STEPS})
    for size in SIZES:
        for end in ("", "__MIN", "__MAX"):
            chart[f"vit-{size} - val/loss{end}"] = [loss("vit", size, step) for step in STEPS]
    chart.to_csv(tmp_path / "chart.csv", index=False)
    found = logs_of(tmp_path / "chart.csv")
    assert {one.name: one.series["val/loss"][-1][1] for one in found.runs} == pytest.approx(
        {f"vit-{n}": LAST["vit", n] for n in SIZES}
    )
    table = pd.DataFrame(
        [
            {
                "Name": f"{f}-{n}",
                "State": "crashed" if n == SIZES[1] else "finished",
                "family": f,
                "n_params": n,
                "val/loss": v,
            }
            for (f, n), v in LAST.items()
        ]
    )
    table.to_csv(tmp_path / "table.csv", index=False)
    assert last(tmp_path / "table.csv") == pytest.approx({key: v for key, v in LAST.items() if key[1] != SIZES[1]})


def write_curves(place: Path, sizes: tuple[int, ...] = SIZES) -> Path:
    """JSON Lines of runs whose loss is best at the middle step."""
    for size in sizes:
        (place / str(size)).mkdir(parents=True)
        log = [
            {"step": s, "tokens": s * size, "val_loss": 2 + 10 * size**-0.3 + (s - 20) ** 2 / 1e4}
            for s in range(0, 41, 4)
        ]
        (place / str(size) / "metrics.jsonl").write_text("\n".join(map(json.dumps, log)))
    return place


def test_a_point_is_the_last_of_a_run_the_best_or_each_value(tmp_path: Path) -> None:
    found = logs_of(write_curves(tmp_path / "runs"))
    final, best, every = (run.table(found, points=points, y="val_loss") for points in ("final", "best", "all"))
    assert final["step"].tolist() == [40] * 3 and best["step"].tolist() == [20] * 3 and len(every) == 33
    assert best["tokens"].tolist() == [20 * int(name) for name in best["run"]]


def test_the_curve_of_one_run_is_no_law(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(write_curves(tmp_path / "one", SIZES[:1]))
    assert fit.main([place]) == 2
    assert "holds one run" in (said := capsys.readouterr().err) and "no points of a law" in said
    asked = [place, "--points", "all", "--x", "tokens", "--where", "step<20", "--predict", "1e9", "--bootstrap", "20"]
    assert fit.main(asked) == 0
    assert "evaluations of one run, which are no scaling curve" in capsys.readouterr().out


def test_columns_are_named_by_their_ends_and_what_cannot_be_guessed_is_asked(tmp_path: Path) -> None:
    for n in (1, 2, 3):
        (tmp_path / f"{n}.json").write_text(json.dumps({"config": {"model": {"size_b": n}}, "quality": n}))
    found = logs_of(tmp_path)
    with pytest.raises(UserError, match=r"Which series .* is y") as caught:
        run.columns(found, x=None, y=None, group=None)
    assert "quality" in caught.value.fix
    chosen = run.columns(found, x="size_b", y="quality", group=None)
    assert (chosen.x, chosen.y, chosen.group, chosen.guessed) == ("model.size_b", "quality", None, ("group",))
    with pytest.raises(UserError, match=r"Which column .* is x"):
        run.columns(found, x=None, y="quality", group=None)


def test_a_place_without_logs_and_points_of_a_table_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs.csv").write_text("n,loss\n1,2\n2,1\n")
    assert read.read(tmp_path / "runs.csv") is None
    with pytest.raises(UserError, match="holds no logs of runs") as caught:
        read.read(tmp_path)
    assert "runs.csv" in caught.value.fix
    assert fit.main([str(tmp_path / "runs.csv"), "--points", "best"]) == 2
    assert "--points is about logs" in capsys.readouterr().err
