"""Arrays that are slow to make, kept on disk: written atomically, verified when opened, memory-mapped.

An entry is a folder `<key>/` with one .npy per array and `manifest.json` (size and sha256 of each). The key must name
everything the content depends on (a revision, a hash of the source). An entry that does not verify is built again. The
cache is never a result: when it cannot be written, the arrays are used from memory and a warning says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

MANIFEST = "manifest.json"
_verified: set[tuple[str, int, int]] = set()  # (path, size, mtime_ns) whose sha256 this process has already checked


def directory() -> Path:
    """$VIT_BENCH_CACHE, else the platform's folder for caches."""
    if chosen := os.environ.get("VIT_BENCH_CACHE"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "vit-bench"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", str(Path.home() / "AppData" / "Local"))) / "vit-bench"
    return Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "vit-bench"


def arrays(key: str, build: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The arrays stored under `key` as read-only memory maps; built and stored first where missing or damaged."""
    entry = directory() / key
    found = _open(entry)
    if found is not None:
        return found
    built = {name: np.ascontiguousarray(value) for name, value in build().items()}
    try:
        _store(entry, built)
    except OSError as error:
        warnings.warn(f"The cache {entry} cannot be written ({error}); the next run prepares it again.", stacklevel=2)
        return built
    return _open(entry) or built


def _open(entry: Path) -> dict[str, np.ndarray] | None:
    """The entry's arrays, or None when it is absent or any byte of it is not what was written."""
    try:
        manifest = json.loads((entry / MANIFEST).read_text())
        found = {}
        for name, promised in manifest["arrays"].items():
            path = entry / f"{name}.npy"
            if not _verify(path, size=promised["size"], sha256=promised["sha256"]):
                return None
            found[name] = np.load(path, mmap_mode="r", allow_pickle=False)
        return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _verify(path: Path, *, size: int, sha256: str) -> bool:
    status = path.stat()
    seen = (str(path), status.st_size, status.st_mtime_ns)
    if status.st_size != size:
        return False
    if seen not in _verified:
        if file_sha256(path) != sha256:
            return False
        _verified.add(seen)
    return True


def _store(entry: Path, built: Mapping[str, np.ndarray]) -> None:
    """Write beside the final place, sync, then rename. Of two writers either may win: they wrote the same content."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{entry.name}-", dir=entry.parent))
    try:
        manifest: dict[str, dict[str, dict[str, object]]] = {"arrays": {}}
        for name, value in built.items():
            path = temporary / f"{name}.npy"
            with open(path, "wb") as file:
                np.save(file, value, allow_pickle=False)
                file.flush()
                os.fsync(file.fileno())
            manifest["arrays"][name] = {"size": path.stat().st_size, "sha256": file_sha256(path)}
        with open(temporary / MANIFEST, "w") as file_text:
            json.dump(manifest, file_text, indent=1, sort_keys=True)
            file_text.flush()
            os.fsync(file_text.fileno())
        if entry.exists() and _open(entry) is None:
            shutil.rmtree(entry, ignore_errors=True)
        try:
            os.rename(temporary, entry)
        except OSError:
            if _open(entry) is None:  # not another writer's good entry: a real failure
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def file_sha256(path: Path) -> str:
    """Hex sha256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
