"""Data sets of the Hugging Face hub, each at one commit: which files make a set up, and where they lie.

Only `--download` asks the hub. It fetches the files of a commit, checks each against the checksum that the hub states,
and then lists them in `<data root>/hf/OWNER--NAME/COMMIT.json`, beside the folder that holds them. Without that list a
set is not there, so half of one is never trained on. What trains reads files alone.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from bench.core.errors import UserError
from bench.core.files import write_json
from bench.data.fetch import Download, File
from bench.data.source import SPLIT_WORDS, is_image, split_word

FOLDER = "hf"
COMMIT = re.compile(r"[0-9a-f]{7,40}")
NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
KINDS = (".parquet", ".arrow", ".tar")  # the first that a set has is read; without, image files in folders
NAMES = ("classes.txt", "classnames.txt")  # of the classes
MOST_NAMED = 10


@dataclass(frozen=True, kw_only=True)
class Repository:
    """Files of one data set of the hub.

    Attributes:
        repo: "owner/name".
        revision: a commit, of which seven digits are enough; or, for a download, a branch or a tag; "" for the newest.
        config: which of the set's configurations; "" for the only one.
        test: the word for the split that is for testing ("validation"), of several; "" for the best that is there.
        archive: one file that is fetched and unpacked, instead of files that are read as they are; makes: what to.
    """

    repo: str
    revision: str = ""
    config: str = ""
    test: str = ""
    archive: str = ""
    makes: tuple[str, ...] = ()

    def place(self, root: Path) -> Path:
        return root / FOLDER / self.repo.replace("/", "--")

    def entry(self, commit: str) -> str:
        """The name of the folder and the list of a commit's files."""
        return ".".join(filter(None, (commit, self.config, self.test)))

    def find(self, root: Path) -> Path | None:
        """The folder of the files; None where they are not all there."""
        if not COMMIT.fullmatch(self.revision):
            return None
        lists = self._lists(root)
        whole = [path for commit, path in lists.items() if commit.startswith(self.revision)]
        if len(whole) > 1:
            what = f"{self.repo}: {len(whole)} of the commits that are here begin with {self.revision}."
            raise UserError(what, "Write more of its digits.")
        return _complete(whole[0]) if whole else None

    def commits(self, root: Path) -> tuple[str, ...]:
        """The commits that are here."""
        return tuple(self._lists(root))

    def _lists(self, root: Path) -> dict[str, Path]:
        words = self.entry("")
        entry = re.compile(f"({COMMIT.pattern})" + (re.escape(f".{words}") if words else ""))
        found = sorted(self.place(root).glob("*.json"))
        return {match.group(1): path for path in found if (match := entry.fullmatch(path.stem))}


def _complete(listed: Path) -> Path | None:
    """The folder beside a list, where each file has the size in the list."""
    folder = listed.with_suffix("")
    try:
        sizes = json.loads(listed.read_text())["files"]
        whole = all((folder / name).stat().st_size == size for name, size in sizes.items())
        return folder / _common(sizes) if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _common(names: Iterable[str]) -> str:
    """The folder that holds all of them."""
    return os.path.commonpath([PurePosixPath(name).parent for name in names])


def look_up(wanted: Repository, *, named: str) -> Download:
    """What a download of it fetches. Asks the hub.

    Args:
        named: the set's name with {revision} in it.

    Raises:
        UserError: the hub does not answer, has no such set, revision or configuration, or asks for a token; the set has
            no files that can be read; a file's name points out of its folder.
    """
    try:
        from huggingface_hub import HfApi, get_token, hf_hub_url
    except ImportError as error:
        raise UserError(
            "The Hugging Face hub needs the package huggingface_hub.", "Run: pip install huggingface_hub"
        ) from error
    endpoint = os.environ.get("HF_ENDPOINT") or None
    api, token = HfApi(endpoint=endpoint), get_token()
    try:
        commit = _commit(api, wanted)
        about = api.dataset_info(wanted.repo, revision=commit, files_metadata=True)
    except UserError:
        raise
    except Exception as error:  # in any way
        raise _refused(wanted, error) from error
    commit = str(about.sha)
    files, folder = [], f"{FOLDER}/{wanted.repo.replace('/', '--')}/{wanted.entry(commit)}"
    chosen = _chosen(wanted, {one.rfilename: one for one in about.siblings or ()}, about.card_data)
    for name, one in chosen.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not name.isprintable() or "\\" in name:
            raise UserError(f"{wanted.repo} has a file {name!r} that points out of its folder.", "Do not use this set.")
        url = hf_hub_url(wanted.repo, name, repo_type="dataset", revision=commit, endpoint=endpoint)
        sha256 = one.lfs["sha256"] if isinstance(one.lfs, Mapping) else one.lfs.sha256 if one.lfs else None
        if one.size is None or not (sha256 or one.blob_id):
            raise UserError(f"The hub states no checksum of {name} in {wanted.repo}.", "Get the set by hand.")
        files.append(
            File(
                url=url,
                checksum=f"sha256:{sha256}" if sha256 else f"git:{one.blob_id}",
                size=one.size,
                folder="" if wanted.archive else f"{folder}/{path.parent}",
                makes=wanted.makes,
                authorization=f"Bearer {token}" if token else "",
            )
        )
    sizes = {name: one.size for name, one in chosen.items()}
    return Download(
        name=named.format(revision=commit),
        files=tuple(files),
        licence=_licence(about.card_data),
        source=f"{api.endpoint}/datasets/{wanted.repo}, commit {commit}",
        finish=partial(_finish, wanted=wanted, commit=commit, sizes=sizes),
    )


def _commit(api: Any, wanted: Repository) -> str | None:
    """The revision that the hub is asked for: it knows whole commits, branches and tags, but no beginnings."""
    if len(wanted.revision) == 40 or not COMMIT.fullmatch(wanted.revision):
        return wanted.revision or None
    commits = api.list_repo_commits(wanted.repo, repo_type="dataset")
    found = [one.commit_id for one in commits if one.commit_id.startswith(wanted.revision)]
    if len(found) != 1:
        what = f"{wanted.repo} has {len(found) or 'no'} commits that begin with {wanted.revision}."
        raise UserError(what, f"The newest is {commits[0].commit_id}." if commits else "Is it the right set?")
    return str(found[0])


def _refused(wanted: Repository, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    what = f"The hub does not give {wanted.repo} (revision {wanted.revision or 'newest'}): {reason}."
    if type(error).__name__ in ("GatedRepoError", "RepositoryNotFoundError"):
        return UserError(
            what,
            "Is the name right? For a set that asks for consent: accept its terms in a browser, and run: hf auth login",
        )
    return UserError(what, "Check its name and revision, and the network (HF_ENDPOINT names a mirror).")


def _chosen(wanted: Repository, siblings: Mapping[str, Any], card: Any) -> dict[str, Any]:
    """The files that are fetched, in a fixed order.

    Raises:
        UserError: there are none; a configuration has to be named.
    """
    if wanted.archive:
        if wanted.archive not in siblings:
            raise UserError(f"{wanted.repo} has no file {wanted.archive}.", "Try another revision.")
        return {wanted.archive: siblings[wanted.archive]}
    patterns = _patterns(wanted, card)
    names = sorted(name for name in siblings if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns))
    kind = next((kind for kind in KINDS if any(name.endswith(kind) for name in names)), None)
    names = [name for name in names if (name.endswith(kind) if kind else is_image(name))]
    if wanted.test:
        names = [name for name in names if split_word(name) in (*SPLIT_WORDS["train"], wanted.test)]
    if not names:
        there = ", ".join(sorted(siblings)[:MOST_NAMED]) or "nothing"
        what = f"{wanted.repo} holds no {', '.join(KINDS)} or image files to read; it holds {there}."
        raise UserError(what, "Sets that a program downloads have to be got by hand, and read as folder:NAME.")
    return {name: siblings[name] for name in (*(name for name in NAMES if name in siblings), *names)}


def _patterns(wanted: Repository, card: Any) -> Sequence[str]:
    """Which files belong to the configuration, from the head of the set's card."""
    stated = (card.to_dict() if hasattr(card, "to_dict") else card or {}).get("configs") or []
    configs = {str(one["config_name"]): one for one in stated if isinstance(one, Mapping) and "config_name" in one}
    usual = next((name for name, one in configs.items() if name == "default" or one.get("default")), None)
    name = wanted.config or usual or (next(iter(configs)) if len(configs) == 1 else None)
    if wanted.config and wanted.config not in configs:
        raise UserError(
            f"{wanted.repo} has no configuration {wanted.config!r}.",
            f"It has: {', '.join(configs) or 'only one, without a name'}.",
        )
    if name is None:
        if not configs:
            return ("*",)
        fix = f"Add one to the name of the set: {', '.join(f'config={one}' for one in configs)}."
        raise UserError(f"{wanted.repo} has {len(configs)} configurations.", fix)
    files: Any = configs[name].get("data_files") or f"{configs[name].get('data_dir') or ''}*"
    found: list[str] = []
    for one in files if isinstance(files, list) else [files]:
        paths = one.get("path") if isinstance(one, Mapping) else one
        found += [str(path) for path in (paths if isinstance(paths, list) else [paths])]
    return found


def _licence(card: Any) -> str:
    stated = (card.to_dict() if hasattr(card, "to_dict") else card or {}).get("license")
    text = ", ".join(map(str, stated)) if isinstance(stated, list) else str(stated or "")
    return text if text and text.isprintable() and len(text) < 100 else "none stated on the hub"


def _finish(root: Path, *, wanted: Repository, commit: str, sizes: Mapping[str, int]) -> None:
    if wanted.archive:
        return
    facts = {"repo": wanted.repo, "commit": commit, "files": dict(sizes)}
    write_json(wanted.place(root) / f"{wanted.entry(commit)}.json", facts)
