"""Studies on the hub: what is private stays at home, what is pushed is read back as it was."""

import getpass
import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants

from bench.commands import compare
from bench.core.errors import UserError
from bench.report import __main__ as report
from bench.report import build, hub, private
from bench.store import records
from tests.data.hub_server import Hub, serving

USER, HOST = "janedoe", "jane-laptop"
TOKEN, KEY = "hf_" + "x1Y2" * 8, "topsecretvalue"
PLANTED = (
    f"RuntimeError in /home/{USER}/nets/mine.py on {HOST}.example.org for {USER}: {KEY}, {TOKEN}, "
    f"C:\\Users\\{USER}\\weights.bin and ~/photos/cats/1.jpg"
)
WORDS = (USER, HOST, KEY, TOKEN, "/home", "nets", "Users", "photos")


@pytest.fixture
def study(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Some runs, one of which failed with everything private in its reason; the study file names folders."""
    monkeypatch.setenv("USER", USER)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(getpass, "getuser", lambda: USER)
    monkeypatch.setattr(socket, "gethostname", lambda: HOST)
    monkeypatch.setattr(socket, "getfqdn", lambda *_: f"{HOST}.example.org")
    place = tmp_path / "results" / "scaling"
    kept = sorted((project / "tests" / "records" / "scaling" / "cells").iterdir())[:8]
    for cell in kept:
        shutil.copytree(cell, place / "cells" / cell.name)
    failed = place / "cells" / kept[0].name / "record.json"
    failed.write_bytes(records.changed(failed, lambda body: body | {"reason": PLANTED}))
    text = f'suite = "scaling"\nscale = "cpu"\ndata_root = "/home/{USER}/photos"\nseeds = 2\n\n[set]\nclip = 0.5\n'
    (place / "study.toml").write_text(text)
    return place


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    with serving() as hub:
        hub.token = TOKEN
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        yield hub


def everything(files: dict[str, bytes]) -> str:
    return "\n".join(f"{name}\n{data.decode('utf-8', errors='replace')}" for name, data in files.items())


@pytest.mark.gate  # a report is built
def test_a_study_is_pushed_without_anything_private_and_compared_with(
    study: Path, running: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--results", str(study.parent), "--suite", "scaling", "--to", "hub:lab/mine"]
    assert report.main([*asked, "--json", "--private"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "published": f"{running.url}/datasets/lab/mine",
        "runs": 8,
        "sent": True,
    }
    assert running.private == {"lab/mine"}
    files = running.commits["lab/mine", str(running.main("lab/mine"))]
    said = everything(files)
    for word in WORDS:
        assert word not in said, word
    assert str(study.parent) not in said
    assert {"README.md", "report.html", "report.md", "findings.json", "csv/scores.csv", "study.toml"} <= set(files)
    assert any(name.startswith("figures/") for name in files)
    assert b"seeds = 2" in files["study.toml"] and b"clip = 0.5" in files["study.toml"]
    assert files["README.md"].startswith(b"---\ntags:\n- vit-scaling-bench\n")
    names = sorted(name for name in files if name.startswith("cells/"))
    assert len(names) == 8
    (reason,) = {one for name in names if (one := json.loads(files[name])["reason"])}
    assert reason == (
        "RuntimeError in …/mine.py on [removed] for [removed]: [removed], [removed], …/weights.bin and …/1.jpg"
    )

    assert compare.main(["hub:lab/mine", str(study), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "equal" and found["a"]["name"] == "hub:lab/mine"


@pytest.fixture
def unbuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records and files as ever, without a page, which takes long."""
    monkeypatch.setattr(build, "build", lambda folder, *, suite: None)
    monkeypatch.setattr(hub, "card", lambda *_, **__: "---\n---\n")


def test_what_is_gone_here_is_gone_there(study: Path, running: Hub, unbuilt: None) -> None:
    hub.push(study, "hub:lab/mine", suite="scaling")
    shutil.rmtree(gone := next(study.glob("cells/*")))
    assert hub.push(study, "hub:lab/mine", suite="scaling") == (f"{running.url}/datasets/lab/mine", 7)
    files = running.commits["lab/mine", str(running.main("lab/mine"))]
    assert len([name for name in files if name.startswith("cells/")]) == 7
    assert f"cells/{gone.name}/record.json" not in files and {"README.md", "csv/scores.csv"} <= set(files)


def test_records_say_the_same_but_for_what_was_taken_out(study: Path, tmp_path: Path, unbuilt: None) -> None:
    assert hub.prepare(study, tmp_path / "look", suite="scaling", repo="lab/mine") == 8
    for path in study.glob("cells/*/record.json"):
        before = records.read_record(path)
        after = records.read_record(tmp_path / "look" / path.relative_to(study), of=path.parent.name)
        assert before.horizons == after.horizons and before.cell == after.cell
        assert (before == after) == (PLANTED not in path.read_text().replace("\\\\", "\\"))


def test_what_is_found_by_a_private_name_is_not_sent(study: Path, running: Hub, tmp_path: Path) -> None:
    path = next(study.glob("cells/*/record.json"))
    model = f"hf:/home/{USER}/net"
    path.write_bytes(records.changed(path, lambda body: body | {"model": body["model"] | {"name": model}}))
    with pytest.raises(UserError, match="is named after something private: its model or its images"):
        hub.push(study, "hub:lab/mine", suite="scaling")
    assert running.main("lab/mine") is None


@pytest.mark.parametrize("file, text", [("a.html", f"<p>{KEY}</p>"), ("a.svg", "/home/x/y"), ("a.csv", f"1,{USER}")])
def test_what_is_left_is_found_before_it_leaves(file: str, text: str, study: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / file).write_text(text)
    with pytest.raises(UserError, match=rf"{file} would publish (the value of the environment|the path|the name)"):
        private.check(tmp_path / "out", private.of_this_machine())
    (tmp_path / "out" / file).write_text("https://github.com/data/set and 3/4 of task-fashion-mnist-part-of-the-study")
    private.check(tmp_path / "out", private.of_this_machine())


def test_names_that_everybody_has_are_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in private.USERS:
        monkeypatch.setenv(variable, "root")
    monkeypatch.setattr(getpass, "getuser", lambda: "root")
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    monkeypatch.setattr(socket, "getfqdn", lambda *_: "localhost")
    monkeypatch.delenv("HOSTNAME", raising=False)
    known = private.of_this_machine()
    assert known.names == () and known.without("the root of 3/4, ViT-B/16 of a/b") == "the root of 3/4, ViT-B/16 of a/b"


def test_the_hub_says_no_in_one_sentence(
    study: Path, running: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--results", str(study.parent), "--suite", "scaling", "--to"]
    assert report.main([*asked, "hub:mine"]) == 2
    assert "names no data set of the hub" in capsys.readouterr().err
    running.commits["lab/photos", "1" * 40] = {"cats.parquet": b""}
    monkeypatch.setattr(hub, "prepare", lambda *_, **__: 1)
    assert report.main([*asked, "hub:lab/photos"]) == 2
    assert "lab/photos holds something else: cats.parquet" in capsys.readouterr().err
    assert compare.main(["hub:lab/photos", str(study)]) == 2
    assert "lab/photos holds no study" in capsys.readouterr().err
    running.token = "another"
    assert report.main([*asked, "hub:lab/mine"]) == 2
    error = capsys.readouterr().err
    assert "The hub does not take lab/mine" in error and "hf auth login, or HF_TOKEN" in error
    assert report.main([*asked[:-1], "--private"]) == 2
    assert "--private has no effect without --to hub:" in capsys.readouterr().err


def test_nothing_is_built_for_who_may_not_push(
    study: Path, running: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hub, "prepare", lambda *_, **__: pytest.fail("the page was built"))
    asked = ["--results", str(study.parent), "--suite", "scaling", "--to", "hub:lab/mine"]
    for change in (lambda: setattr(running, "token", "another"), lambda: monkeypatch.delenv("HF_TOKEN")):
        change()
        assert report.main(asked) == 2
        first, advice = capsys.readouterr().err.splitlines()
        assert first.startswith("error: The hub does not take lab/mine: ") and not first.endswith("..")
        assert "hf auth login, or HF_TOKEN" in advice


def test_photos_stay_at_home_unless_they_are_asked_for() -> None:
    body = {"horizons": [{"scores": [{"detail": {"surest_errors": [{"picture": "x"}], "num_support": 3}}]}]}
    words = private.PrivateWords()
    assert hub._clean(body, words, photos=False)["horizons"][0]["scores"][0]["detail"] == {"num_support": 3}
    assert hub._clean(body, words, photos=True) == body
