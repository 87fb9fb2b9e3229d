"""How much several processes on one GPU gain, taking turns or under NVIDIA's MPS."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.first_contact.plan import PROJECT, SHARED, SHARES, SMALL_SHARED, Line
from tools.first_contact.race import Contest


def warm_shared(given: argparse.Namespace) -> Iterator[Line]:
    """Have compiled what `share` trains."""
    for name, (side, batch) in (SMALL_SHARED if given.cpu_rehearsal else SHARED).items():
        started = time.perf_counter()
        once, step = Contest(name, side=side, batch=batch, device=given.device).our_step(mode="default")
        once()
        yield {"what": name, "seconds": round(time.perf_counter() - started, 1), "mode": step.run_as.how}


def under_mps(given: argparse.Namespace) -> Iterator[Line]:
    """The same as `share`, of processes that NVIDIA's MPS serves, whose kernels run side by side."""
    from bench.core.device import MPS_CONTROL
    from bench.execute.sharing import served

    if shutil.which(MPS_CONTROL) is None:
        yield {"what": "processes under MPS", "value": f"no {MPS_CONTROL} here", "outcome": "n/a"}
        return
    with served(given.work) as variables:
        for line in share(given, variables):
            yield line | {"what": f"{line['what']} under MPS"}


def share(given: argparse.Namespace, variables: Mapping[str, str] | None = None) -> Iterator[Line]:
    """Images per second of 1, 2 and 4 processes that train alike, together.

    Args:
        variables: of their environments, beside this one's.
    """
    folder = given.work / f"share-{os.getpid()}"
    environment = dict(os.environ) | dict(variables or {})
    folder.mkdir(parents=True)
    models = SMALL_SHARED if given.cpu_rehearsal else SHARED
    seconds = 1.0 if given.cpu_rehearsal else 3.0
    workers = []
    for index in range(max(SHARES)):
        words = ["--step", f"share-worker:{index}:{folder}", "--device", given.device, "--work", str(given.work)]
        words += ["--cpu-rehearsal"] if given.cpu_rehearsal else []
        program = [sys.executable, "-m", "tools.first_contact", *words]
        workers.append(
            subprocess.Popen(program, cwd=PROJECT, stdout=subprocess.DEVNULL, stderr=sys.stderr, env=environment)
        )

    def wait_for(name: str, count: int) -> None:
        while len(list(folder.glob(f"{name}-*"))) < count:
            if any(worker.poll() not in (None, 0) for worker in workers):
                raise RuntimeError("one of the processes ended")
            time.sleep(0.02)

    try:
        wait_for("ready", max(SHARES))
        for model, (side, batch) in models.items():
            alone = None
            for count in SHARES:
                key = f"{model.replace('/', '_')}.{count}"
                order = {"model": model, "processes": count, "start": time.time() + 0.3, "seconds": seconds}
                (folder / f".go-{key}").write_text(json.dumps(order))
                (folder / f".go-{key}").replace(folder / f"go-{key}.json")
                wait_for(f"done-{key}", count)
                found = [json.loads(path.read_text()) for path in folder.glob(f"done-{key}-*")]
                rates = [each.pop("rate") for each in found]
                alone = alone or sum(rates)
                yield {
                    "what": f"{model} at {side} px, batch {batch}: {count} processes",
                    "images_per_second": round(sum(rates)),
                    "over_one": round(sum(rates) / alone, 3),
                    **(found[0] if count == 1 else {}),
                }
    finally:
        (folder / "over").touch()
        for worker in workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(timeout=5)
            worker.kill()


def share_worker(given: argparse.Namespace, index: int, folder: Path) -> None:
    models = SMALL_SHARED if given.cpu_rehearsal else SHARED
    calls = {}
    for name, (side, batch) in models.items():
        contest = Contest(name, side=side, batch=batch, device=given.device)
        calls[name] = contest.our_step(mode="default")[0], batch
    from bench.core.device import timed

    for call, _ in calls.values():
        timed(call, device=given.device, calls=5)
    ready = folder / f"ready-{index}"
    ready.touch()
    done: set[str] = set()
    while not (folder / "over").exists():
        for path in sorted(folder.glob("go-*.json")):
            if path.name in done:
                continue
            done.add(path.name)
            order = json.loads(path.read_text())
            if index >= order["processes"]:
                continue
            call, batch = calls[order["model"]]
            time.sleep(max(0.0, order["start"] - time.time()))
            count, ends, spent = 0, time.perf_counter() + order["seconds"], 0.0
            while time.perf_counter() < ends:
                spent += timed(call, device=given.device, calls=10)
                count += 10
            result = folder / f"done-{path.name.removeprefix('go-').removesuffix('.json')}-{index}"
            said = {"rate": count * batch / spent}
            if order["processes"] == 1 and given.device.startswith("cuda"):
                from bench.plan.calibrate import launched

                host, alone = launched(call, device=given.device)
                said |= {"host_ms": round(1e3 * host, 2), "gpu_ms": round(1e3 * alone, 2)}
            (folder / f".{result.name}").write_text(json.dumps(said))
            (folder / f".{result.name}").replace(result)
        time.sleep(0.01)
