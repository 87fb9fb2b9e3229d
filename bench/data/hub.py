"""Downloads of data sets from the Hugging Face hub: which files are fetched, and how they are checked.

Only `--download` contacts the hub. `huggingface_hub` fetches the files of a commit. Each is checked against the size
and the checksum that the hub states; then they are listed in `<data root>/hf/OWNER--NAME/COMMIT.json`, beside the
folder that holds them (`bench.data.hub_copy`).
"""

from __future__ import annotations

import fnmatch
import os
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from bench.core.errors import UserError
from bench.core.files import write_json
from bench.data.data_set import Download
from bench.data.fetch import matches, unpack
from bench.data.hub_copy import COMMIT, Repository
from bench.data.source import SPLIT_WORDS, is_image, split_word

KINDS = (".parquet", ".arrow", ".tar")  # the first kind that a set has is read; if it has none, image files in folders
NAMES = ("classes.txt", "classnames.txt")  # files with the names of the classes, fetched too
MOST_NAMED = 10
AT_ONCE = 8  # files that are fetched in parallel


@dataclass(frozen=True, kw_only=True)
class HubFile:
    """A file as the hub describes it.

    Attributes:
        name: path in the repository.
        size: bytes.
        checksum: "sha256:…"; or "git:…", git's sha1, for a file that is not in large-file storage.
    """

    name: str
    size: int
    checksum: str


def look_up(wanted: Repository, *, named: str, licence: str = "", opened_as: str = "") -> Download:
    """Ask the Hugging Face hub which files a data set has, and return what a download of it fetches.

    Args:
        wanted: the repository, revision and configuration.
        named: the set's name, with "{revision}" where the commit belongs.
        licence: licence of the images, if the dataset card on the hub does not state the right one; else "".
        opened_as: name under which the set is loaded, with "{revision}" in it; "" if that is `named`.

    Raises:
        UserError: the hub does not answer, has no such set, revision or configuration, or asks for a token; the set has
            no files that can be read; a file's name points out of its folder.
    """
    from huggingface_hub import HfApi  # imported here because it takes half a second

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None)
    try:
        about = api.dataset_info(wanted.repo, revision=_commit(api, wanted), files_metadata=True)
    except UserError:
        raise
    except Exception as error:  # the package raises errors of many kinds
        raise _not_given(wanted, error) from error
    commit = str(about.sha)
    chosen = _chosen(wanted, {one.rfilename: one for one in about.siblings or ()}, about.card_data)
    files = [_stated(wanted, name, one) for name, one in chosen.items()]
    return Download(
        name=named.format(revision=commit),
        licence=licence or _licence(about.card_data),
        source=f"{api.endpoint}/datasets/{wanted.repo}, commit {commit}",
        bytes_missing=partial(_missing, wanted, commit, files),
        fetch=partial(_fetch, wanted, commit, files),
        opened_as=opened_as.format(revision=commit),
        is_archive=bool(wanted.archive),
        is_parquet=any(file.name.endswith(".parquet") for file in files),
    )


def _stated(wanted: Repository, name: str, one: Any) -> HubFile:
    """Return the file `name` with the size and the checksum that the hub states. `one`: what `huggingface_hub` says
    about the file.

    Raises:
        UserError: the hub states no size or checksum, or the name points out of its folder.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not name.isprintable() or "\\" in name:
        raise UserError(f"{wanted.repo} has a file {name!r} that points out of its folder.", "Do not use this set.")
    sha256 = one.lfs["sha256"] if isinstance(one.lfs, Mapping) else one.lfs.sha256 if one.lfs else None
    if one.size is None or not (sha256 or one.blob_id):
        raise UserError(f"The hub states no checksum of {name} in {wanted.repo}.", "Get the set by hand.")
    return HubFile(name=name, size=one.size, checksum=f"sha256:{sha256}" if sha256 else f"git:{one.blob_id}")


def _missing(wanted: Repository, commit: str, files: Sequence[HubFile], root: Path) -> int:
    """Return the bytes of `files` that are still to be fetched into the data root `root`. What `huggingface_hub` has
    kept of a file whose download was interrupted is subtracted."""
    if wanted.archive and all((root / name).exists() for name in wanted.makes):
        return 0
    folder = wanted.place(root) / wanted.entry(commit)
    begun = sum(path.stat().st_size for path in folder.glob(".cache/huggingface/**/*.incomplete"))
    return max(0, sum(file.size for file in files if not (folder / file.name).is_file()) - begun)


def _fetch(wanted: Repository, commit: str, files: Sequence[HubFile], root: Path) -> list[str]:
    """Fetch the files that are missing below the data root `root`, and check all of them; then write the list of files,
    or unpack the archive. Return one line of text per file for the user.

    Raises:
        UserError: the connection breaks off, or a file has another checksum. The part that was fetched is kept, and the
            next download continues it.
    """
    from huggingface_hub import hf_hub_download

    if wanted.archive and all((root / name).exists() for name in wanted.makes):
        return [f"{wanted.archive}: there already"]
    folder = wanted.place(root) / wanted.entry(commit)
    for file in files:  # an existing file is never overwritten
        if (there := folder / file.name).is_file() and not _is_right(there, file):
            raise UserError(f"{there} is not the published file: its checksum differs.", "Move it away.")
    try:
        endpoint = os.environ.get("HF_ENDPOINT") or None
        get = partial(hf_hub_download, wanted.repo, repo_type="dataset", revision=commit, endpoint=endpoint)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda file: get(file.name, local_dir=folder), files))
    except Exception as error:  # the package raises errors of many kinds
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        what = f"{wanted.repo} was not fetched to the end: {reason}."
        raise UserError(what, "Run the same command again to continue.") from error
    for file in files:
        if not (there := folder / file.name).is_file() or not _is_right(there, file):
            there.unlink(missing_ok=True)
            what = f"What the hub sent as {file.name} is not the published file: its checksum differs."
            raise UserError(what, "Try again later.")
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # the library's files about unfinished downloads
    if wanted.archive:
        unpack(folder / wanted.archive, root, makes=wanted.makes)
        shutil.rmtree(folder, ignore_errors=True)
    else:
        sizes = {file.name: file.size for file in files}
        listed = {"repo": wanted.repo, "commit": commit, "files": sizes}
        write_json(wanted.place(root) / f"{wanted.entry(commit)}.json", listed)
    return [f"{file.name}: checksum right" for file in files]


def _is_right(path: Path, file: HubFile) -> bool:
    return path.stat().st_size == file.size and matches(path, file.checksum)


def _commit(api: Any, wanted: Repository) -> str | None:
    """Return the revision to ask the hub for; None for the newest. An abbreviated commit is expanded, because the hub
    knows only whole commits, branches and tags. `api`: a `huggingface_hub.HfApi`.

    Raises:
        UserError: no commit, or several, begin with the digits given.
    """
    if len(wanted.revision) == 40 or not COMMIT.fullmatch(wanted.revision):
        return wanted.revision or None
    commits = api.list_repo_commits(wanted.repo, repo_type="dataset")
    matching = [one.commit_id for one in commits if one.commit_id.startswith(wanted.revision)]
    if len(matching) != 1:
        what = f"{wanted.repo} has {len(matching) or 'no'} commits that begin with {wanted.revision}."
        raise UserError(what, f"The newest is {commits[0].commit_id}." if commits else "Is it the right set?")
    return str(matching[0])


def _not_given(wanted: Repository, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:300] or type(error).__name__
    what = f"The hub does not give {wanted.repo} (revision {wanted.revision or 'newest'}): {reason}."
    if type(error).__name__ in ("GatedRepoError", "RepositoryNotFoundError"):
        return UserError(
            what,
            "Is the name right? For a set that asks for consent: accept its terms in a browser, and run: hf auth login",
        )
    return UserError(what, "Check its name and revision, and the network (HF_ENDPOINT names a mirror).")


def _chosen(wanted: Repository, siblings: Mapping[str, Any], card: Any) -> dict[str, Any]:
    """Return the files of `wanted` to fetch: name -> what the hub says about the file, in a fixed order.

    Args:
        siblings: all files of the repository: name -> what the hub says about the file.
        card: the metadata of the dataset card.

    Raises:
        UserError: there are no files to read, or a configuration has to be named.
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
    """Return glob patterns of the files of the configuration `wanted.config`, from `card`, the metadata of the dataset
    card. If the name is "", the card's default or only configuration is used; a card without any gives "*".

    Raises:
        UserError: there is no such configuration, or there are several without a default and none was named.
    """
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
    patterns: list[str] = []
    for one in files if isinstance(files, list) else [files]:
        paths = one.get("path") if isinstance(one, Mapping) else one
        patterns += [str(path) for path in (paths if isinstance(paths, list) else [paths])]
    return patterns


def _licence(card: Any) -> str:
    stated = (card.to_dict() if hasattr(card, "to_dict") else card or {}).get("license")
    text = ", ".join(map(str, stated)) if isinstance(stated, list) else str(stated or "")
    return text if text and text.isprintable() and len(text) < 100 else "none stated on the hub"
