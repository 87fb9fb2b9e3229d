"""A data set of the Hugging Face hub, at one commit: `hf:owner/name:3fbd1f2`. See `bench.data.hub`.

`vit-bench data hf:owner/name --download --data-root data` fetches the newest commit (or a branch, or a tag, after
another colon) and prints the name with the commit in it; use this name in studies. A study itself fetches nothing.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from bench.core.errors import UserError
from bench.data import hub_copy
from bench.data.data_set import DataSet, Download
from bench.data.decode import Storage
from bench.data.image_set import ImageSet
from bench.data.sets import folder
from bench.data.source import SPLIT_WORDS

HOW_TO_GET = "Run: vit-bench data hf:OWNER/NAME --download --data-root <data root>"
OPTIONS = (
    "hf:OWNER/NAME:COMMIT[:config=NAME][:test=validation][:64px][:rgb|:grey][:stream|:stored]; config takes one "
    "configuration of several, test the split that is for testing; the rest as of folder"
)


def parse(option: str) -> tuple[hub_copy.Repository, Storage, bool | None]:
    """Parse the option of a set's name, "owner/name:3fbd1f2:64px", into (repository, storage, streamed).

    `streamed` says whether images are decoded only when they are read, None if the option does not say.

    Raises:
        UserError: the option does not begin with the name of a set, or has an unknown word.
    """
    repo, *words = option.split(":")
    if not hub_copy.NAME.fullmatch(repo):
        raise UserError(f"hf:{option}: {repo!r} is not the name of a data set on the hub.", OPTIONS + ".")
    plain = r"\d{1,5}px|rgb|grey|stream|stored|(config|test)=.*"
    revision = words.pop(0) if words and not re.fullmatch(plain, words[0]) else ""
    chosen = dict(word.split("=", 1) for word in words if re.match(r"(config|test)=", word))
    config, test = chosen.get("config", ""), chosen.get("test", "")
    if not re.fullmatch(r"[\w.-]*", config) or not re.fullmatch(r"[\w./-]*", revision):
        raise UserError(f"hf:{option}: letters, digits, and . _ - name a revision or a configuration.", OPTIONS + ".")
    if test not in ("", *SPLIT_WORDS["test"]):
        known = ", ".join(SPLIT_WORDS["test"])
        raise UserError(f"hf:{option}: {test!r} names no test split.", f"Known: {known}.")
    rest = [word for word in words if not re.match(r"(config|test)=", word)]
    storage, streamed = folder.parse_words(rest, shown=f"hf:{option}", options=OPTIONS)
    return hub_copy.Repository(repo=repo, revision=revision, config=config, test=test), storage, streamed


def load(split: str, *, root: Path | None, option: str = "") -> ImageSet:
    place, storage, streamed = _here(option, root)
    return folder.read(place, split, storage=storage, streamed=streamed, name=f"hf:{option}")


def look(option: str, *, root: Path | None) -> tuple[int | None, int]:
    """Return (pixels per side, None for many sizes; channels) of the images of the set that `option` names. `root`: the
    data root."""
    place, storage, _ = _here(option, root)
    return folder.look_into(place, storage)


def listed_images(option: str, *, root: Path | None) -> int:
    """Return the number of training images of the set that `option` names, without decoding any. `root`: the data
    root."""
    return folder.listed_in(_here(option, root)[0])


def some_encoded(option: str, *, root: Path | None) -> list[bytes]:
    """Return a few encoded images of the set that `option` names, spread evenly over it. `root`: the data root."""
    return folder.encoded_in(_here(option, root)[0])


def download(option: str) -> Download:
    """Ask the Hugging Face hub about the set that `option` names, and return what a download of it fetches. The
    download's name states the commit."""
    from bench.data.hub import look_up  # imported here, because studies do not need it

    wanted, storage, streamed = parse(option)
    words = option.split(":")[1 + bool(wanted.revision) :]
    named = ":".join(["hf", wanted.repo, "{revision}", *words])
    # Images of different sizes can be loaded if they are streamed at one size.
    opened_as = named if storage.size else f"{named}:224px" + (":stream" if streamed is None else "")
    return look_up(wanted, named=named, opened_as=opened_as)


def _here(option: str, root: Path | None) -> tuple[Path, Storage, bool | None]:
    """Return (folder below the data root `root` with the files of the set that `option` names, storage, streamed).

    `streamed` says whether images are decoded only when they are read, None if the option does not say.

    Raises:
        UserError: the option names no commit, or its files are not all on this machine.
    """
    if not option or root is None:
        raise UserError("Data set 'hf' needs the name of a set on the hub, and a place to look in.", HOW_TO_GET)
    wanted, storage, streamed = parse(option)
    place = wanted.find(root)
    if place is not None:
        return place, storage, streamed
    here = replace(wanted, revision="").commits(root)
    command = f"vit-bench data hf:{option} --download --data-root {root}"
    if not hub_copy.COMMIT.fullmatch(wanted.revision):
        known = f"Here: {', '.join(f'hf:{wanted.repo}:{commit}' for commit in here)}." if here else f"Run: {command}"
        raise UserError(f"hf:{option} names no commit, so it may be another set tomorrow.", known)
    raise UserError(f"hf:{option} is not, or not wholly, below {root}.", f"Run: {command}")


DATASET = DataSet(
    name="hf",
    kind="own images",  # it is not known what they show
    description="a data set of the Hugging Face hub at one commit: Parquet, Arrow, tar shards or image files",
    licence="that of the set, as its card on the hub says",
    source="https://huggingface.co/datasets",
    how_to_get=HOW_TO_GET,
    options=OPTIONS,
    split="as published; of several test splits the best labelled, or test=WORD; without one a tenth is held out",
    pinned="by the commit in its name",
    takes_side=True,
    takes_colour=True,
    load=load,
    available=lambda root: False,  # an option names the set
    look=look,
    listed_images=listed_images,
    some_encoded=some_encoded,
    download=download,
)
