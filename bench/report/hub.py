"""Studies on the Hugging Face hub: `vit-bench report --to hub:ORG/NAME` publishes a study as a data set, and `vit-bench
compare hub:ORG/NAME results/mine` reads it.

The data set holds the records, the page with its figures and tables, the runs as CSV and a card. To publish a study,
records are read, what is private is taken out of them (`bench.report.private`), and everything else is built anew from
what is left. Photos of a data set of the user's own are left out unless the user asks for them.
"""

from __future__ import annotations

import os
import re
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import __version__
from bench.core import files
from bench.core.errors import UserError
from bench.core.formatting import plural
from bench.report import private
from bench.store import grid, records
from bench.store.export import collect
from bench.study import option, options

PREFIX = "hub:"
REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
LONGER = re.compile(r"\.{2,}|(?:For more information|Please make sure|Check your internet)")
"""Matches where an error message of the hub's client begins to give advice that is not about this command."""
CARD, TAG = "README.md", "vit-scaling-bench"
HERE = ("data_root", "groups", "plugins", "results", "job")  # options of a study file that are about a machine
PICTURES = ("contrary_pictures", "surest_errors")  # parts of a score's detail that are photos
CODED = ("packed", "content_hash", "digest", "fingerprint")  # fields whose values are encoded, and no text
IDENTITY = ("cell", "cell_id", "directory", "model", "data")  # fields by which results are found
READ = ["cells/*/record.json", grid.PLAN_FILE, grid.STUDY_FILE]
MOST_ANSWERS = 12  # answers on the card, at most


def accepts(name: str) -> bool:
    """Return whether a name stands for a study on the hub."""
    return name.startswith(PREFIX)


def repository(name: str) -> tuple[str, str | None]:
    """Parse "hub:ORG/NAME@REVISION" into ("ORG/NAME", "REVISION"); None instead of "REVISION" if the name has none.

    Raises:
        UserError: the name has another form.
    """
    repo, _, revision = name.removeprefix(PREFIX).partition("@")
    if not REPOSITORY.fullmatch(repo):
        raise UserError(f"{name!r} names no data set of the hub.", "Write hub:ORG/NAME, such as hub:my-lab/scaling.")
    return repo, revision or None


# -- what is published -------------------------------------------------------------------------------------------------


def prepare(study: Path, target: Path, *, suite: str, repo: str, photos: bool = False) -> int:
    """Write those files of a study that are published to a new folder, without what is private. Return how many records
    it holds.

    Args:
        study: folder of the study.
        target: the new folder.
        suite: name of the study's suite.
        repo: "ORG/NAME" of the data set on the hub, for its card.
        photos: keep the small photos that records of the suite `adapt` hold.

    Raises:
        UserError: there are no records; a model's or a data set's name, or any file, holds something private.
    """
    from bench.analysis import study_data
    from bench.report.build import build
    from bench.report.send import write_csv

    asked = _asked(study)
    known = private.of_this_machine([study, target, *_folders(asked)])
    kept = collect(study, target).kept
    for name in kept:
        path = target / "cells" / name / "record.json"
        files.write_bytes(path, records.changed(path, lambda body: _clean(body, known, photos=photos)))
    if wanted := grid.read(target):
        refused = {name: known.without(why) for name, why in wanted.refused.items()}
        grid.write(
            target,
            grid.WantedCells(
                suite=wanted.suite,
                scale=wanted.scale,
                names=wanted.names,
                refused=refused,
                downstream=wanted.downstream,
            ),
        )
    if asked:
        said = {name: value for name, value in asked.items() if name not in HERE}
        grid.write_study_file(target, _study_file(said))
    made = build(target, suite=suite)
    (target / "built.json").unlink(missing_ok=True)
    write_csv(study_data.load(target, suite=suite).records, target / "csv")
    files.write_bytes(target / CARD, card(made, target, suite=suite, repo=repo, runs=len(kept)).encode())
    private.check(target, known)
    return len(kept)


def _asked(study: Path) -> dict[str, Any]:
    path = study / grid.STUDY_FILE
    try:
        return tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError):
        return {}


def _folders(asked: Mapping[str, Any]) -> list[Path]:
    """Return the folders that a study file (`asked`: its options) names by absolute paths."""
    values = [asked.get(name) for name in HERE]
    flat = [one for value in values for one in (value if isinstance(value, list) else [value])]
    return [Path(one) for one in flat if isinstance(one, str) and os.path.isabs(one)]


def _study_file(said: Mapping[str, Any]) -> str:
    """Return the text of a study file that has these options."""
    tables = {name: tuple(value.items()) for name, value in said.items() if isinstance(value, dict)}
    return option.to_toml({**said, **tables}, options.RUN, always=("suite", "scale"))


def _clean(body: dict[str, Any], known: private.PrivateWords, *, photos: bool) -> dict[str, Any]:
    """Return a record, given as JSON, without what is private. `photos`: whether to keep its small photos.

    Raises:
        UserError: a field that identifies the record, such as the model's name, holds something private.
    """

    def cleaned(value: Any, key: str) -> Any:
        if isinstance(value, dict):
            return {name: cleaned(one, name) for name, one in value.items() if photos or name not in PICTURES}
        if isinstance(value, list):
            return [cleaned(one, key) for one in value]
        return known.without(value) if isinstance(value, str) and key not in (*CODED, *PICTURES) else value

    made = {name: cleaned(value, name) for name, value in body.items()}
    for name in IDENTITY:
        if made.get(name) != body.get(name):
            what = f"The run {body.get('directory')} is named after something private: its model or its images."
            fix = "Name folders by relative paths (hf:nets/mine, folder:flowers), and run it again."
            raise UserError(what, fix)
    return made


def card(made: Any, folder: Path, *, suite: str, repo: str, runs: int) -> str:
    """Return the card (README.md) of a study's data set on the hub: what the study found, what the data set holds, and
    how it is used.

    Args:
        made: the report's `ReportPaths`.
        folder: the folder that is published.
        suite: name of the study's suite.
        repo: "ORG/NAME" of the data set.
        runs: number of records.
    """
    from bench.report import text

    tables = sorted(path.name for path in (folder / "csv").glob("*.csv"))
    configs = "\n".join(f"- config_name: {name.removesuffix('.csv')}\n  data_files: csv/{name}" for name in tables)
    lines = [
        f"- {answer.question}{_of(answer.subject)} **{answer.verdict}**{': ' if answer.number else ''}{answer.number}"
        for answer in text.answers(made.findings)[:MOST_ANSWERS]
    ]
    figure = next((f"![{made.title}](figures/{path.name})" for path in made.figures if path.suffix == ".png"), "")
    study = (
        f"vit-bench run {grid.STUDY_FILE}" if (folder / grid.STUDY_FILE).is_file() else f"vit-bench run --suite {suite}"
    )
    return f"""---
tags:
- {TAG}
- benchmark
pretty_name: {_quoted(made.title)}
configs:
{configs}
---

# {made.title}

A study of the suite `{suite}`, {plural(runs, "run")}, written by vit-scaling-bench {__version__}. `report.html` is the
whole page.

{figure}

{chr(10).join(lines)}

## Use

```
vit-bench compare {PREFIX}{repo} results/{suite}       your runs beside these, image by image where both kept that
{study}       the same study again
```

`cells/*/record.json` are the runs: settings, revisions, costs, scores and which test images were right. `csv/` holds
them as tables, `findings.json` the answers with their intervals. Names of users and machines, paths and keys were taken
out before anything was sent.
"""


def _of(subject: str) -> str:
    return f" ({subject})" if subject else ""


def _quoted(title: str) -> str:
    return '"' + title.replace("\\", "\\\\").replace('"', '\\"') + '"'


# -- to and from the hub -----------------------------------------------------------------------------------------------


def push(study: Path, name: str, *, suite: str, only_private: bool = False, photos: bool = False) -> tuple[str, int]:
    """Publish a study as a data set on the hub. Return its address, and how many records it holds.

    The user's right to push is checked first, since building the page takes half a minute.

    Args:
        study: folder of the study.
        name: "hub:ORG/NAME".
        suite: name of the study's suite.
        only_private: make the data set private if it is new; one that exists stays as it is.
        photos: keep the small photos that records of the suite `adapt` hold.

    Raises:
        UserError: as in `prepare`; or the hub refuses; or the data set exists and holds no study.
    """
    from huggingface_hub import HfApi

    repo, _ = repository(name)
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
    try:
        api.whoami()
    except Exception as error:  # whatever the hub or the network says
        raise _refused(repo, error, "does not take") from error
    with tempfile.TemporaryDirectory(prefix="vit-bench-") as place:
        folder = Path(place) / "study"
        number = prepare(study, folder, suite=suite, repo=repo, photos=photos)
        try:
            api.create_repo(repo, repo_type="dataset", private=only_private or None, exist_ok=True)
            there = {path for path in api.list_repo_files(repo, repo_type="dataset") if path != ".gitattributes"}
            if there and not any(path.startswith("cells/") for path in there) and there != {CARD}:
                raise UserError(f"{repo} holds something else: {sorted(there)[0]}.", "Name a new data set.")
            api.upload_folder(
                folder_path=folder,
                repo_id=repo,
                repo_type="dataset",
                commit_message=f"{suite}: {plural(number, 'run')}",
                delete_patterns="*",
            )
        except UserError:
            raise
        except Exception as error:  # whatever the hub or the network says
            raise _refused(repo, error, "does not take") from error
    return f"{api.endpoint}/datasets/{repo}", number


def fetch(name: str, *, files: Sequence[str] = READ) -> Path:
    """Fetch a published study from the hub, or from the cache of earlier downloads. Return its folder.

    Args:
        name: "hub:ORG/NAME" or "hub:ORG/NAME@REVISION".
        files: patterns of the files to fetch.

    Raises:
        UserError: there is no such study, or it cannot be fetched.
    """
    from huggingface_hub import HfApi

    repo, revision = repository(name)
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
    try:
        folder = Path(api.snapshot_download(repo, repo_type="dataset", revision=revision, allow_patterns=list(files)))
    except Exception as error:  # whatever the hub or the network says
        raise _refused(repo, error, "does not give") from error
    if not any(folder.glob("cells/*/record.json")):
        raise UserError(
            f"{repo} holds no study: it has no cells/*/record.json.", "vit-bench report --to hub:… writes one."
        )
    return folder


def _refused(repo: str, error: Exception, does: str) -> UserError:
    said = LONGER.split(" ".join(str(error).split()))[0]
    reason = said.strip(". ")[:300] or type(error).__name__
    kinds = {kind.__name__ for kind in type(error).__mro__}
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403) or kinds & {"RepositoryNotFoundError", "GatedRepoError", "LocalTokenNotFoundError"}:
        fix = "Is the name right? A token with the right to it: hf auth login, or HF_TOKEN."
    else:
        fix = "Check the name and the network (HF_ENDPOINT names a mirror)."
    return UserError(f"The hub {does} {repo}: {reason}.", fix)
