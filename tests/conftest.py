"""Shared fixtures. Tests write to temporary folders only and talk to nothing but this machine."""

import fcntl
import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

from bench import __main__ as script
from bench.core import environment
from bench.study import registry

PROJECT = Path(__file__).resolve().parent.parent
settings.register_profile("no time limits", deadline=None)  # a busy machine is no failure
settings.load_profile("no time limits")
FIRST = (
    "reliability/test_storms",
    "execute/test_first_hour",
    "e2e/test_smoke",
    "report/test_report",
    "report/test_figures",
    "house/test_structure",
    "train/test_distributed",
    "execute/test_executors",
    "reliability/test_ranks",
    "reliability/test_agents",
    "stats/test_extrapolation",
    "e2e/test_extend",
    "baselines/test_outside",
    "reliability/test_many_kills",
    "reliability/test_kill",
    "train/test_compiled",
    "stats/test_coverage",
    "gpu/test_step",
    "gpu/test_posing",
    "e2e/test_readme",
)
"""Files that take longest, so that none of them is begun when the other process is about to end."""


def pytest_configure(config):
    """One cache of decoded data for all processes of a test run, and not the user's; and one thread in each process.

    Two processes of two threads on two cores wait for each other at the end of every product: a test of small networks
    takes four times as long. Whoever asks for threads, as workers do, has them.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if "VIT_BENCH_CACHE" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="vit-bench-tests-")
        config.add_cleanup(folder.cleanup)
        os.environ["VIT_BENCH_CACHE"] = folder.name


def pytest_collection_modifyitems(items):
    """Processes take whole files (`--dist loadfile`), in this order."""
    places = {PROJECT / "tests" / f"{name}.py": place for place, name in enumerate(FIRST)}
    items.sort(key=lambda item: places.get(item.path, len(FIRST)))


def pytest_collection_finish():
    """Imported and collected objects stay to the end: a full garbage collection, which every test of short memory asks
    for several times, need not go through it again (a third of a second each)."""
    gc.freeze()


def stay_on_one_core() -> None:
    """Where tests run side by side, threads of one that wait for each other take several times the processor time."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % len(cores)]})


@pytest.fixture(scope="session")
def project() -> Path:
    """The checkout's root."""
    return PROJECT


@pytest.fixture
def race(monkeypatch) -> Iterator[None]:
    """Plug-ins of committed studies are known, as `--plugins tools/race` and `--plugins tools/control` make them."""
    monkeypatch.setenv(registry.PLUGINS, os.pathsep.join(str(PROJECT / "tools" / name) for name in ("race", "control")))
    registry.forget()
    yield
    monkeypatch.undo()
    registry.forget()


@pytest.fixture
def bench(tmp_path: Path):
    """Run a verb as a user would: `bench("run", "--suite", "smoke")` -> CompletedProcess. Works in `tmp_path`."""

    def call(verb: str, *arguments: str, project: Path = PROJECT, one_core: bool = False, **variables):
        named = ("bench.worker",) if verb == "worker" else ("bench", verb)
        return subprocess.run(
            [sys.executable, "-m", *named, *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(project)} | variables,
            capture_output=True,
            text=True,
            timeout=600,
            preexec_fn=stay_on_one_core if one_core else None,
        )

    return call


@pytest.fixture
def verb(tmp_path: Path, monkeypatch, capsys) -> Callable[..., subprocess.CompletedProcess]:
    """As `bench`, in this process: for all that does not need one of its own. Its workers have one thread each, and
    rates are kept for the next test, however busy the machine is."""
    from bench.plan import estimate

    monkeypatch.setattr(environment, "cores", lambda: 1)
    monkeypatch.setattr(estimate, "MIN_PROCESSOR_SHARE", 0.0)

    def call(name: str, *arguments: object) -> subprocess.CompletedProcess:
        monkeypatch.chdir(tmp_path)
        module = script.imported(script.verbs()[name])
        capsys.readouterr()
        code = module.main([str(argument) for argument in arguments])
        written = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, written.out, written.err)

    return call


@dataclass(frozen=True)
class Run:
    """A finished run: where it wrote, and what it printed."""

    results: Path
    output: str

    @property
    def study(self) -> Path:
        return self.results / "smoke"


@pytest.fixture(scope="session")
def smoke(tmp_path_factory) -> Run:
    """One uninterrupted run of the smoke suite, for all processes of a test run. Look at it; change only copies."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    results, output = shared / "smoke" / "results", shared / "smoke" / "output.txt"
    with open(shared / "smoke.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not output.exists():
            command = [sys.executable, "-m", "bench.run", "--suite", "smoke", "--results", str(results)]
            results.parent.mkdir(exist_ok=True)
            done = subprocess.run(
                command,
                cwd=results.parent,
                env=os.environ | {"PYTHONPATH": str(PROJECT)},
                capture_output=True,
                text=True,
                timeout=900,
                preexec_fn=stay_on_one_core,
            )
            assert done.returncode == 0, done.stdout + done.stderr
            output.write_text(done.stdout)
    return Run(results, output.read_text())
