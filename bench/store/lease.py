"""Leases ensure that only one process works on a cell (a training run with its evaluations). A lease is a file in the
cell's folder; the process that wrote it is the holder. The lease of a dead holder can be taken over.

For a holder on the same machine, the kernel says whether the process lives. A lease held on another machine expires
when its file has not changed (no heartbeat) for `EXPIRES_AFTER` seconds of the observer's own clock. Clocks of two
machines are compared only for display (`holder`) and for a lease that was left behind on a finished cell (`claim`).
A lease is taken by a hard link, which succeeds for one claimant only, and removed by a rename, which is undone if the
renamed file is not the one that was observed. A file lock excludes other claims between observation and rename. On file
systems without locks a holder can lose its lease in that time, as it can after a long suspension. Hence a holder checks
its lease before it writes (`Lease.check`), and a finished record is never replaced.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import platform
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bench.core import files
from bench.core.clock import running
from bench.core.environment import now
from bench.core.errors import UserError

EXPIRES_AFTER = 90.0  # seconds without a heartbeat after which a holder on another machine is presumed dead
HEARTBEAT = 10.0  # seconds between two heartbeats
MAX_SKEW = 3600.0  # seconds by which two machines' clocks may differ; used only where a wrong answer does no harm
PATIENCE = 2.0  # seconds for which a holder that releases its lease tries to get the lock
RETRY_SECONDS = (0.0, 0.02, 0.2)  # pauses before each reading of a lease: an undone rename hides it for a moment
RUNNER = "VIT_BENCH_RUNNER"  # environment variable that names a worker's cluster job, for display
MOST_BYTES = 1 << 16  # bytes of a lease file that are read at most
MOST_PROCESSES = 2**31  # valid process numbers lie between 0 and this


class LeaseLost(Exception):
    """Raised when another process has taken over a cell, so that this process must not write in its folder any more."""


@dataclass(frozen=True)
class Seen:
    """A lease file as it was when it was read.

    Attributes:
        content: the bytes of the file.
        changed: the file's modification time in ns, which is only compared for equality.
    """

    content: bytes
    changed: int


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The process that holds a lease, the right to work on a cell.

    Attributes:
        pid: its process number on this machine; None if the process is on another machine or in another container.
        stopped: whether the process is stopped (by a signal or a debugger), so that it does not go on by itself.
        since: when the process claimed the cell, in UTC, by its own clock; None if not known.
        runner: the cluster job in which the process runs; "" outside a cluster.
    """

    pid: int | None
    stopped: bool
    since: str | None
    runner: str = ""

    def __str__(self) -> str:
        where = f"process {self.pid} of this machine" if self.pid else "a process of another machine or container"
        where = f"{self.runner} ({where})" if self.runner else where
        return where + (", which is stopped," if self.stopped else "") + (f" since {self.since}" if self.since else "")


# -- holders -----------------------------------------------------------------------------------------------------------


def _machine() -> str:
    """Return an identifier of this machine that does not reveal its host name.

    Containers that cannot see each other's processes get different identifiers; with a common one, a running holder in
    one container would look dead to a process in another.
    """
    text = platform.node()
    with contextlib.suppress(OSError):
        text += Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/<pid>/stat, beginning with the process state; an empty list if it cannot be read."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return []


def _start_time(pid: int) -> str | None:
    """Return when a process started, in clock ticks since boot, which distinguishes it from a later process with the
    same number; None if not known."""
    stat = _stat(pid)
    return stat[19] if len(stat) > 19 else None


def _alive(pid: int, started: str | None) -> bool:
    if not 0 < pid < MOST_PROCESSES:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    if _stat(pid)[:1] in (["Z"], ["X"]):  # a zombie
        return False
    return started is None or _start_time(pid) == started


def _look(path: Path) -> Seen | None:
    """Read the lease file `path` and return it; None if there is no such file."""
    try:
        with os.fdopen(_opened(path, os.O_RDONLY), "rb") as handle:  # opening makes a network file system ask anew
            return Seen(content=handle.read(MOST_BYTES), changed=os.fstat(handle.fileno()).st_mtime_ns)
    except FileNotFoundError:
        return None


def _opened(path: Path, flags: int) -> int:
    """Open a regular file and return its descriptor. `flags`: those of `os.open`. A link is not followed, and opening a
    pipe does not wait.

    Raises:
        UserError: `path` is not a regular file, but a link, a pipe, a folder, ….
        OSError: the file cannot be opened.
    """
    no_file = UserError(
        f"{path} is a link, or no file.", "No run makes such: see where this folder is from, then remove it."
    )
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise no_file from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise no_file
    return handle


def _parsed(seen: Seen) -> dict[str, Any]:
    """Return the JSON object in a lease file; an empty dict if the file is incomplete or was altered."""
    try:
        body = json.loads(seen.content)
        return body if body.get(files.SEAL) == files.digest(body) else {}
    except (ValueError, AttributeError, RecursionError):
        return {}


def _process(seen: Seen) -> tuple[int, str | None] | None:
    """Return (process number, start as `_start_time` returns it) of a lease's holder; None if the holder is not on this
    machine, or the lease is damaged."""
    match _parsed(seen):
        case {"machine": machine, "pid": int(pid), "started": str() | None as started} if machine == _machine():
            return pid, started
    return None


def holder(path: Path) -> Holder | None:
    """Return the holder of the lease file `path`, for display; None if there is no lease or its holder is dead.

    The file is read only once, so a holder on another machine counts as alive if the file's modification time is recent
    by this machine's clock.
    """
    try:
        seen = _look(path)
    except OSError:
        return None
    if seen is None:
        return None
    body = _parsed(seen)
    since, runner = body.get("since"), str(body.get("runner", ""))
    if (process := _process(seen)) is not None:
        pid, started = process
        stopped = _stat(pid)[:1] in (["T"], ["t"])
        return Holder(pid=pid, stopped=stopped, since=since, runner=runner) if _alive(pid, started) else None
    beating = -MAX_SKEW < time.time() - seen.changed / 1e9 < EXPIRES_AFTER
    return Holder(pid=None, stopped=False, since=since, runner=runner) if beating else None


_watched: dict[Path, tuple[Seen, float]] = {}  # lease held on another machine -> (as read last, since when unchanged)


def is_held(path: Path) -> bool:
    """Return whether the lease file `path` has a living holder.

    One call cannot show that a holder on another machine is dead. That holder counts as alive until repeated calls have
    found its lease unchanged for `EXPIRES_AFTER` seconds.
    """
    try:
        seen = _look(path)
    except OSError:
        return False
    return seen is not None and not _is_dead(path, seen)


def _is_dead(path: Path, seen: Seen) -> bool:
    """Return whether the process that holds a lease is dead, or is presumed dead after a long time without heartbeat.
    `seen`: the lease file `path` as it was just read."""
    if (process := _process(seen)) is not None:
        return not _alive(*process)
    before, first = _watched.get(path, (None, 0.0))
    if before != seen:
        _watched[path] = seen, running()
        return False
    return running() - first > EXPIRES_AFTER


# -- claims ------------------------------------------------------------------------------------------------------------


class Lease:
    """A lease, the right to work on a cell, that this process holds. Until the lease is released, a thread shows that
    the process lives by updating the modification time of the lease file (heartbeat)."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self._content = path, content
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="lease")
        self._thread.start()

    def _beat(self) -> None:
        with contextlib.suppress(OSError), open(self.path, "rb") as handle:
            while not self._stop.wait(HEARTBEAT):
                with contextlib.suppress(OSError):
                    if self._is_ours():
                        os.utime(handle.fileno())  # by the open handle, which can never be another holder's file

    def _is_ours(self) -> bool:
        seen = _look(self.path)
        return seen is not None and seen.content == self._content

    def check(self) -> None:
        """Check that this process still holds the lease.

        Raises:
            LeaseLost: another process has taken the lease after a long time without heartbeat, or removed it.
            UserError: the lease cannot be read.
        """
        try:
            for pause in RETRY_SECONDS:
                time.sleep(pause)
                if self._is_ours():
                    return
        except OSError as error:
            raise files.explain(error, self.path) from error
        raise LeaseLost("another runner has taken over the run, because this process was suspended for too long")

    def release(self) -> None:
        """Release the lease, so that another process can claim the cell. A lease that was lost is left alone."""
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(OSError, UserError), _lock_of(self.path, patience=PATIENCE):
            seen = _look(self.path)
            if seen is not None and seen.content == self._content:
                _remove(self.path, seen)


@contextlib.contextmanager
def claim(path: Path, *, finished: bool = False) -> Iterator[Lease | None]:
    """Hold the lease `path`, the right to work on a cell, inside a `with` block, and yield it; yield None if another
    process holds it.

    Args:
        finished: whether the cell is finished. If so, a lease that is old by this machine's clock is taken over from
            another machine, because two processes do no harm there.

    Raises:
        UserError: the lease cannot be written.
    """
    if (content := _acquire(path, finished=finished)) is None:
        yield None
        return
    lease = Lease(path, content)
    try:
        yield lease
    finally:
        lease.release()


def _acquire(path: Path, *, finished: bool = False) -> bytes | None:
    """Try to take the lease `path`. Return its unique content, or None if another process holds the lease or is just
    taking it. `finished`: see `claim`."""
    body = {"machine": _machine(), "pid": os.getpid(), "started": _start_time(os.getpid())}
    body |= {"runner": os.environ[RUNNER]} if os.environ.get(RUNNER) else {}
    content = files.sealed(body | {"since": now(), "token": secrets.token_hex(8)})
    try:
        with _lock_of(path) as undisturbed:
            seen = _look(path)
            old = finished and seen is not None and time.time() - seen.changed / 1e9 > MAX_SKEW + EXPIRES_AFTER
            if not undisturbed or (seen is not None and not ((_is_dead(path, seen) or old) and _remove(path, seen))):
                return None
            files.write_new(path, content)
            return content
    except FileExistsError:
        return None
    except OSError as error:
        raise files.explain(error, path) from error
    except UserError as error:
        if isinstance(error.__cause__, FileNotFoundError):  # the holder has just removed our temporary file
            return None
        raise


def _remove(path: Path, seen: Seen) -> bool:
    """Remove the lease file `path` if it has not changed since it was read as `seen`; return whether it was removed. A
    changed lease is put back, unless yet another process has claimed the cell in between."""
    aside = files.temporary_name(path)
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        if not aside.exists():  # if it exists, a network file system has repeated a rename that had succeeded
            return False
    same = _look(aside) == seen
    if not same:
        with contextlib.suppress(FileExistsError):
            files.link_new(aside, path)
    aside.unlink(missing_ok=True)
    return same


@contextlib.contextmanager
def _lock_of(path: Path, *, patience: float = 0.0) -> Iterator[bool]:
    """Hold an exclusive file lock, for changing the lease `path`, inside a `with` block. Yield True if this process has
    the lock, False if another process still has it after `patience` seconds.

    Without the lock one claimant could find a lease expired, and then remove the new lease of another claimant. The
    kernel releases the lock when the process that holds it dies.
    """
    lock, deadline = path.with_name(".lease.lock"), time.monotonic() + patience
    while True:
        with os.fdopen(_opened(lock, os.O_RDWR | os.O_CREAT), "wb") as handle:
            mine = _locked(lock, handle)
            if mine or time.monotonic() >= deadline:
                try:
                    yield mine
                finally:
                    if mine:
                        lock.unlink(missing_ok=True)
                return
        time.sleep(0.01)


def _locked(lock: Path, handle: IO[bytes]) -> bool:
    taken = files.lock(handle.fileno())
    try:  # if the inode numbers differ, the lock's last owner removed the file while we opened it
        return taken is None or (taken and os.fstat(handle.fileno()).st_ino == lock.stat().st_ino)
    except FileNotFoundError:
        return False
