"""One cache for the session, in a temporary folder: nothing that an earlier run left is used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder that prepared data sets are kept in."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("VIT_BENCH_CACHE")
    os.environ["VIT_BENCH_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["VIT_BENCH_CACHE"]
    else:
        os.environ["VIT_BENCH_CACHE"] = before
