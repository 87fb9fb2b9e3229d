"""The cache is verified when opened: damage of any kind means building again, never wrong arrays."""

import pickle
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from bench.data import cache as _cache

X = np.arange(1000, dtype=np.uint8)


class Builder:
    """Counts how often the arrays had to be built."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> dict[str, np.ndarray]:
        self.count += 1
        return {"x": X, "y": X[:10].astype(np.int64)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(_cache, "_verified", set())
    return tmp_path / "cache"


def _check(arrays: dict[str, np.ndarray]) -> None:
    np.testing.assert_array_equal(arrays["x"], X)
    np.testing.assert_array_equal(arrays["y"], X[:10])


def test_an_entry_is_for_whom_its_folder_is_for(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)
    _cache.arrays("key", Builder())
    assert (folder / "key").stat().st_mode & 0o777 == 0o755


def test_built_once_then_mapped_read_only(folder: Path) -> None:
    build = Builder()
    _check(_cache.arrays("key", build))
    again = _cache.arrays("key", build)
    _check(again)
    assert build.count == 1
    assert isinstance(again["x"], np.memmap) and not again["x"].flags.writeable
    assert sorted(path.name for path in folder.iterdir()) == ["key"]  # no temporary folder is left


def test_what_is_mapped_goes_to_other_processes_by_its_path(folder: Path) -> None:
    mapped = _cache.arrays("key", Builder())["x"]
    for part in (mapped, mapped[100:300], mapped[:0], mapped[::2], mapped.copy()):
        sent = pickle.dumps(part)
        np.testing.assert_array_equal(pickle.loads(sent), part)
    assert len(pickle.dumps(mapped)) < 500 < len(mapped) and len(pickle.dumps(mapped[100:])) < 500


DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes | None]]] = {
    "cut short": ("x.npy", lambda data: data[:-100]),
    "a bit": ("x.npy", lambda data: data[:-7] + bytes([data[-7] ^ 1]) + data[-6:]),
    "another array": ("x.npy", lambda data: data[:-1000] + data[-1000:][::-1]),
    "no array": ("y.npy", lambda _: None),
    "no manifest": (_cache.MANIFEST, lambda _: None),
    "empty manifest": (_cache.MANIFEST, lambda _: b""),
    "foreign manifest": (_cache.MANIFEST, lambda _: b'{"arrays": ["x"]}'),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_and_repaired(folder: Path, damage: str) -> None:
    build = Builder()
    _cache.arrays("key", build)
    _cache._verified.clear()  # as a new process would start
    name, change = DAMAGE[damage]
    path = folder / "key" / name
    data = change(path.read_bytes())
    path.unlink() if data is None else path.write_bytes(data)
    _check(_cache.arrays("key", build))
    _check(_cache.arrays("key", build))
    assert build.count == 2


def test_a_torn_write_leaves_no_entry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(_cache.os, "rename", fail)
        with pytest.warns(UserWarning, match="cannot be written"):
            _check(_cache.arrays("key", Builder()))
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_only_costs_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="cannot be written"):
        _check(_cache.arrays("key", Builder()))


def test_one_builds_while_others_wait(folder: Path) -> None:
    builder = Builder()

    def slow_build() -> dict[str, np.ndarray]:
        time.sleep(0.2)
        return builder()

    with ThreadPoolExecutor(4) as pool:
        for arrays in pool.map(lambda _: _cache.arrays("key", slow_build), range(4)):
            _check(arrays)
    assert builder.count == 1


def test_another_writer_may_win_the_race(folder: Path) -> None:
    """Where files cannot be locked."""
    other = Builder()

    def slow_build() -> dict[str, np.ndarray]:
        _cache._store(folder / "key", other())
        return other()

    _check(_cache.arrays("key", slow_build))
    assert sorted(path.name for path in folder.iterdir()) == ["key"]


def test_pieces_are_stored_as_one_array(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = np.random.default_rng(0).permutation(1000)
    pieces = _cache.rows(X, order, at_once=300)
    np.testing.assert_array_equal(_cache.arrays("key", lambda: {"x": pieces})["x"], X[order])
    short = _cache.Chunks(shape=(9,), dtype="uint8", make=lambda: iter([X[:4]]))
    with pytest.raises(ValueError, match="4 rows were made of 9"):
        _cache.arrays("short", lambda: {"x": short})
    monkeypatch.setenv("VIT_BENCH_CACHE", str(folder / "key" / "x.npy"))
    with pytest.warns(UserWarning, match="cannot be written"):
        np.testing.assert_array_equal(_cache.arrays("key", lambda: {"x": pieces})["x"], X[order])


def test_the_key_of_files_follows_their_bytes_or_their_times(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    keys = {_cache.fingerprint(1, [path]), _cache.fingerprint(2, [path]), _cache.fingerprint(1, [path], read_up_to=2)}
    path.touch()
    assert _cache.fingerprint(1, [path]) in keys  # the bytes are the same
    path.write_bytes(b"two")
    assert not {_cache.fingerprint(1, [path]), _cache.fingerprint(1, [path], read_up_to=2)} & keys
