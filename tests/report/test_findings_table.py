"""The table of findings: what a pull request adds is read, and checked against the records that it names."""

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bench.commands import findings
from bench.core.errors import EXIT_FAILED
from bench.report import hub
from bench.store import records


@pytest.fixture(scope="module")
def place(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a committed study and its entry."""
    root = tmp_path_factory.mktemp("repository")
    source = project / "results" / "reference" / "rates-cpu"
    for name in ("cells", "findings.json", "plan.json"):
        copy = shutil.copytree if (source / name).is_dir() else shutil.copyfile
        copy(source / name, (root / "kept").mkdir(exist_ok=True) or root / "kept" / name)
    return root


@pytest.fixture(scope="module")
def added(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with its entry."""
    made = tmp_path_factory.mktemp("added") / "table"
    with contextlib.chdir(place):
        assert findings.main(["--add", "kept", "--records", "kept", "--as", "mine", str(made)]) == 0
    return made


@pytest.fixture
def table(place: Path, added: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, in the repository."""
    monkeypatch.chdir(place)
    return shutil.copytree(added, tmp_path / "table")


def test_what_was_added_is_sound(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert findings.main([str(table), "--write", str(table / "page.md")]) == 0
    said = capsys.readouterr().out
    entry = json.loads((table / "mine.json").read_text())
    assert "1 sound file, 0 not sound" in said and entry["title"] in (table / "page.md").read_text()
    assert len(entry["answers"]) >= 1 and entry["runs"] == len(list(Path("kept/cells").iterdir()))
    saved = json.loads(Path("kept/findings.json").read_text())["findings"]
    main = [one for one in saved if one["main"]][: len(entry["answers"])]
    assert [one["estimate"] for one in main] == pytest.approx([one["estimate"] for one in entry["answers"]])


CHANGES: dict[str, tuple[Any, str]] = {
    "another number": (lambda e: e["answers"][0].update(estimate=9.0, low=8.0, high=10.0), "the records say"),
    "another verdict": (lambda e: e["answers"][0].update(verdict="maybe"), "the records say"),
    "an answer less": (lambda e: e["answers"].pop(), "main answers|1 to 20"),
    "other records": (lambda e: e.update(digest="0" * 64), "are not those of its digest"),
    "no digest": (lambda e: e.update(digest="x"), "64 hexadecimal digits"),
    "an interval beside": (lambda e: e["answers"][0].update(estimate=1.0, low=2.0, high=3.0), "is not within"),
    "more than is asked": (lambda e: e.update(remark="the best"), "unknown field 'remark'"),
    "nothing asked": (lambda e: e.pop("title"), "title must be a text"),
    "not a number": (lambda e: e["answers"][0].update(low="2"), "must be a number or null"),
    "a private path": (lambda e: e.update(title="of /home/jane/results"), "it holds the path /home/jane"),
    "a folder elsewhere": (lambda e: e.update(records="/etc"), "a folder of this repository"),
    "a folder above": (lambda e: e.update(records="../kept"), "a folder of this repository"),
    "a wrong hub": (lambda e: e.update(records="hub:mine"), "names no data set of the hub"),
    "other runs": (lambda e: e.update(runs=e["runs"] + 1), "runs: the records say"),
    "other hardware": (lambda e: e.update(hardware="8 x H100"), "hardware: the records say"),
    "another suite": (lambda e: e.update(suite="scaling"), "suite: the records say"),
    "another day": (lambda e: e.update(date="2030-01-01"), "date: the records say"),
    "no day": (lambda e: e.update(date="yesterday"), "date must be as in 2026-11-28"),
    "no version": (lambda e: e.update(version="new"), "version must be as in 0.2.0"),
    "a title of its own": (lambda e: e.update(title="We lead by 9 points."), "sentence of one of its answers"),
    "an address": (lambda e: e.update(hardware="https://ads.example"), "it holds an address"),
    "a subject that is no text": (
        lambda e: e["answers"][0].update(subject=[{"a": 1}]),
        "subject must be a list of texts",
    ),
    "another schema": (lambda e: e.update(schema=2), "its schema is not 1"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_sound_is_named(change: str, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apply, said = CHANGES[change]
    entry = json.loads((table / "mine.json").read_text())
    apply(entry)
    (table / "mine.json").write_text(json.dumps(entry))
    capsys.readouterr()
    assert findings.main([str(table), "--json"]) == EXIT_FAILED
    (why,) = json.loads(capsys.readouterr().out)["wrong"].values()
    assert any(part in why for part in said.split("|")), why


def test_two_files_are_not_of_the_same_records(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(table / "mine.json", table / "yours.json")
    (table / "Broken.json").write_text("{")
    assert findings.main([str(table), "--json"]) == EXIT_FAILED
    wrong = json.loads(capsys.readouterr().out.splitlines()[-1])["wrong"]
    assert (
        wrong["yours.json"] == "it is of the same records as mine.json" and "its name must be" in wrong["Broken.json"]
    )


def test_a_file_that_cannot_be_read_is_a_line_like_others(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    for name, data in {"deep.json": b"[" * 100_000, "latin.json": b'{"title": "\xe9"}', "empty.json": b""}.items():
        (table / name).write_bytes(data)
    (table / "folder.json").mkdir()
    assert findings.main([str(table), "--json"]) == EXIT_FAILED
    wrong = json.loads(capsys.readouterr().out)["wrong"]
    assert set(wrong) == {"deep.json", "latin.json", "empty.json", "folder.json"}
    assert all(wrong[name].startswith("it is not JSON in UTF-8") for name in wrong if name != "folder.json")


def test_words_of_a_file_are_no_markup_on_the_page() -> None:
    entry = {"title": "a | b <img src=x> [c](d)", "suite": "s", "runs": 1, "hardware": "h", "date": "", "records": "r"}
    assert "| a \\| b &lt;img src=x> [c] (d) |" in findings.table({"a.json": entry})


def test_a_page_of_other_files_is_not_sound(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = table.with_suffix(".md")
    assert findings.main([str(table), "--write", str(page)]) == 0
    page.write_text(page.read_text() + "| mine is better |\n")
    capsys.readouterr()
    assert findings.main([str(table)]) == EXIT_FAILED
    assert f"table.md: it is not the page of these files: vit-bench findings --write {page}" in capsys.readouterr().out


def test_a_strangers_pull_request_names_records_on_the_hub(
    table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the hub holds is fetched and compared where that is asked; where not, it is said to be unread."""
    entry = json.loads((table / "mine.json").read_text()) | {"records": "hub:lab/rates"}
    (table / "mine.json").write_text(json.dumps(entry))
    monkeypatch.setattr(hub, "fetch", lambda where, *, files: Path("kept") if where == "hub:lab/rates" else None)
    assert findings.main([str(table)]) == 0
    assert "The records of 1 on the hub were not read: --fetch reads them." in capsys.readouterr().out
    assert findings.main([str(table), "--fetch"]) == 0
    (table / "mine.json").write_text(json.dumps(entry | {"runs": 1}))
    assert findings.main([str(table)]) == 0  # which only the records contradict
    assert findings.main([str(table), "--fetch"]) == EXIT_FAILED
    assert "runs: the records say" in capsys.readouterr().out


def test_a_record_that_changed_is_another(place: Path, table: Path, tmp_path: Path, monkeypatch: Any) -> None:
    shutil.copytree(place / "kept", tmp_path / "kept")
    monkeypatch.chdir(tmp_path)
    before = findings.digest_of(Path("kept"))
    path = next(Path("kept/cells").glob("*/record.json"))
    path.write_bytes(records.changed(path, lambda body: body | {"reason": "another word"}))
    assert findings.digest_of(Path("kept")) == before  # publishing takes words out
    path.write_bytes(records.changed(path, lambda body: body | {"status": "diverged"}))
    assert findings.digest_of(Path("kept")) != before


def test_the_committed_table_is_sound(project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After results/reference was built anew: vit-bench findings --add results/reference/NAME --records the same."""
    monkeypatch.chdir(project)
    assert findings.main(["--write", str(tmp_path / "page.md")]) == 0
    assert (tmp_path / "page.md").read_text() == Path("docs/findings.md").read_text()
