"""A lease keeps two runners off one cell. A dead runner's lease expires."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import threading
import time
from collections.abc import Iterator
from pathlib import Path

EXPIRES_AFTER = 90.0  # seconds without a heartbeat, for runners on another machine
HEARTBEAT = 10.0


def _machine() -> str:
    """A name for this machine that does not reveal its host name."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    text = platform.node() + (boot.read_text() if boot.exists() else "")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _start_time(pid: int) -> str | None:
    """When a process started (clock ticks since boot), so that a re-used process number is not mistaken for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return None


def _alive(pid: int, started: str | None) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return started is None or _start_time(pid) == started


def holder_is_alive(path: Path) -> bool:
    """Whether the lease at `path` is held by a running process (or by another machine that still beats)."""
    try:
        lease = json.loads(path.read_text())
        age = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return False
    except (ValueError, OSError):
        return path.exists() and time.time() - path.stat().st_mtime < EXPIRES_AFTER
    if lease.get("machine") == _machine():
        return _alive(int(lease["pid"]), lease.get("started"))
    return age < EXPIRES_AFTER


def _acquire(path: Path) -> bool:
    if path.exists():
        if holder_is_alive(path):
            return False
        # Only one of several claimants wins this rename; the losers find the file gone and compete below.
        with contextlib.suppress(OSError):
            os.rename(path, path.with_name(f".lease-expired-{os.getpid()}"))
            path.with_name(f".lease-expired-{os.getpid()}").unlink(missing_ok=True)
    content = json.dumps({"machine": _machine(), "pid": os.getpid(), "started": _start_time(os.getpid())}).encode()
    temporary = path.with_name(f".lease-{os.getpid()}.tmp")
    temporary.write_bytes(content)
    try:
        os.link(temporary, path)  # atomic and refuses to replace: two claimants cannot both succeed
        return True
    except (FileExistsError, FileNotFoundError):  # somebody was faster, and may have cleared our temporary file away
        return False
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def claim(path: Path) -> Iterator[bool]:
    """Hold the lease at `path` for the duration; yields False if somebody else has it."""
    if not _acquire(path):
        yield False
        return
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(HEARTBEAT):
            with contextlib.suppress(OSError):
                os.utime(path)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield True
    finally:
        stop.set()
        thread.join()
        path.unlink(missing_ok=True)
