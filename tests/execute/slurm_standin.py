"""Stand-ins for the commands of SLURM: `sbatch` starts the tasks of an array as processes of this machine.

As the programs are described: a task's directives are comments of the batch script; `scontrol requeue` starts a task
again once it has ended. What was asked is written down: `sbatch.txt`, the scripts; `calls.txt`, the command lines.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

PROGRAMS = ("sbatch", "srun", "scontrol", "scancel", "sacct")


def install(folder: Path) -> dict[str, str]:
    """Put the programs into a folder. Returns the environment in which they are found."""
    folder.mkdir()
    for name in PROGRAMS:
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} {folder} {name} "$@"\n')
        program.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def sbatch(folder: Path, script: str) -> None:
    text = Path(script).read_text()
    with open(folder / "sbatch.txt", "a") as log:
        log.write(text)
    job = 1000 + len(list(folder.glob("job-*")))
    (folder / f"job-{job}").mkdir()
    tasks = range(int(re.search(r"--array=.?0-(\d+)", text).group(1)) + 1) if "--array=" in text else [None]
    copy = folder / f"job-{job}" / "script.sh"
    copy.write_text(text)
    for task in tasks:
        subprocess.Popen(
            [sys.executable, __file__, str(folder), "task", str(copy), str(job), str(task)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    print(f"Submitted batch job {job}")


def task(folder: Path, script: str, job: str, number: str) -> None:
    """One task of an array, again and again while it is requeued."""
    name = job if number == "None" else f"{job}_{number}"
    ids = {
        "SLURM_JOB_ID": job,
        "SLURM_NTASKS": "1",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
    }
    if number != "None":
        ids |= {"SLURM_ARRAY_JOB_ID": job, "SLURM_ARRAY_TASK_ID": number, "SLURM_JOB_ID": str(50_000 + int(number))}
    again = folder / f"job-{job}" / f"requeue-{name}"
    while True:
        again.unlink(missing_ok=True)
        process = subprocess.Popen(["bash", script], env=os.environ | ids, start_new_session=True)
        (folder / f"job-{job}" / f"pid-{name}").write_text(str(process.pid))
        process.wait()
        (folder / f"job-{job}" / f"pid-{name}").unlink(missing_ok=True)
        if not again.exists():
            return


def srun(_: Path, *words: str) -> None:
    """Its options are left out: output goes where `sbatch` has it go."""
    rest = list(words)
    while rest and rest[0].startswith("-"):
        rest = rest[1:] if rest[0] == "--unbuffered" or "=" in rest[0] else rest[2:]
    os.execvp(rest[0], rest)


def scontrol(folder: Path, verb: str, name: str) -> None:
    if verb == "requeue":
        (folder / f"job-{name.partition('_')[0]}" / f"requeue-{name}").touch()


def send(folder: Path, name: str, what: signal.Signals) -> bool:
    """Send a signal to all processes of a task but its batch shell, as SLURM does. False: it is not running."""
    path = folder / f"job-{name.partition('_')[0]}" / f"pid-{name}"
    try:
        leader = int(path.read_text())
        members = [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit() and _group(p) == leader]
        for pid in members if what == signal.SIGKILL else set(members) - {leader}:
            os.kill(pid, what)
        return bool(members)
    except (FileNotFoundError, ProcessLookupError):
        return path.exists()


def _group(process: Path) -> int | None:
    try:
        return int((process / "stat").read_text().rsplit(")", 1)[1].split()[2])
    except (OSError, IndexError):
        return None


def scancel(folder: Path, *names: str) -> None:
    for name in names:
        if send(folder, name, signal.SIGTERM):
            for _ in range(300):
                time.sleep(0.1)
                if not send(folder, name, signal.SIGCONT):
                    break
            send(folder, name, signal.SIGKILL)


def sacct(_: Path, *__: str) -> None:
    print("JobID|State|NodeList")


if __name__ == "__main__":
    here, program, *arguments = sys.argv[1:]
    with open(Path(here) / "calls.txt", "a") as calls:
        calls.write(" ".join([program, *arguments]) + "\n")
    globals()[program](Path(here), *arguments)
