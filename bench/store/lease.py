"""A lease keeps two runners off one cell. A dead runner's lease expires."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from bench.core import files

EXPIRES_AFTER = 90.0  # seconds without a heartbeat, for runners on another machine
HEARTBEAT = 10.0
AHEAD = 3600.0  # seconds by which another machine's clock may be ahead of ours; a beat from later than that is none
MOST_PROCESSES = 2**31  # numbers from there on, and those below 1, are no process's
NEVER_UNSEALED: frozenset[str] = frozenset()


def _machine() -> str:
    """A name for this machine that does not reveal its host name. Containers that cannot see each other's processes
    count as machines of their own: here, one's running holder would look dead to the other."""
    text = platform.node()
    with contextlib.suppress(OSError):
        text += Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _stat(pid: int) -> list[str]:
    """What the kernel says of a process, from its state on; nothing where there is no /proc."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []


def _start_time(pid: int) -> str | None:
    """When a process started (clock ticks since boot), so that a re-used process number is not mistaken for it."""
    stat = _stat(pid)
    return stat[19] if len(stat) > 19 else None


def _alive(pid: int, started: str | None) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    if _stat(pid)[:1] in (["Z"], ["X"]):  # dead, and its parent has not asked yet how it ended
        return False
    return started is None or _start_time(pid) == started


def holder_is_alive(path: Path) -> bool:
    """Whether the lease at `path` is held by a running process (or by another machine that still beats). Of one that
    cannot be read, torn or altered, only the heartbeat tells."""
    try:
        lease = files.read_sealed(path)
        age = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return False
    except (ValueError, OSError):
        return path.exists() and -AHEAD < time.time() - path.stat().st_mtime < EXPIRES_AFTER
    match lease:
        case {"machine": machine, "pid": int(pid), "started": str() | None as started} if machine == _machine():
            return 0 < pid < MOST_PROCESSES and _alive(pid, started)
    return -AHEAD < age < EXPIRES_AFTER


def _acquire(path: Path) -> bool:
    """Make the lease ours, unless somebody has it or is just about to."""
    try:
        with _undisturbed(path) as mine:
            if not mine or holder_is_alive(path):
                return False
            path.unlink(missing_ok=True)
            temporary = path.with_name(f".lease-{os.getpid()}.tmp")
            temporary.write_bytes(_content())
            try:
                os.link(temporary, path)  # atomic, and refuses to replace: exclusive also where files cannot be locked
            except (FileExistsError, FileNotFoundError):  # or the holder has just cleared our temporary file away
                return False
            finally:
                temporary.unlink(missing_ok=True)
            return True
    except OSError as error:
        raise files.explain(error, path) from error


@contextlib.contextmanager
def _undisturbed(path: Path) -> Iterator[bool]:
    """Inside, nobody else takes or removes the lease; yields False where somebody is at it.

    Otherwise one claimant could find a lease expired, and remove the new one that another has put there meanwhile. The
    kernel unlocks the file of a process that dies.
    """
    lock = path.with_name(".lease.lock")
    with open(lock, "wb") as handle:
        mine = _locked(lock, handle)
        try:
            yield mine
        finally:
            if mine:
                lock.unlink(missing_ok=True)


def _locked(lock: Path, handle: IO[bytes]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.fstat(handle.fileno()).st_ino == lock.stat().st_ino  # else its last owner removed it as we opened it
    except (BlockingIOError, FileNotFoundError):
        return False
    except OSError:  # a file system without locks
        return True


def _content() -> bytes:
    """What this process's lease says."""
    body = {"machine": _machine(), "pid": os.getpid(), "started": _start_time(os.getpid())}
    return files.sealed(body)


def _is_mine(path: Path) -> bool:
    """Whether the lease is still this process's: one that did not beat for long has been taken for dead."""
    try:
        return path.read_bytes() == _content()
    except OSError:
        return False


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
                if _is_mine(path):
                    os.utime(path)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield True
    finally:
        stop.set()
        thread.join()
        if _is_mine(path):
            path.unlink(missing_ok=True)
