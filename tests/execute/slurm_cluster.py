"""A real SLURM on this machine for as long as it is needed: munged, slurmctld and a slurmd for each of three nodes.

All of it listens on the loopback interface alone and keeps its files in one folder; every daemon is a child of this
process, which ends what it started. It needs root, as slurmd does. `python -m tests.execute.slurm_cluster FOLDER` runs
one until Ctrl-C. SLURM_ACCOUNTING=1, for the tests too, adds slurmdbd and a database of its own
(`apt-get install slurmdbd mariadb-server`). A requeued job waits for as long as credentials last: here 5 seconds,
usually two minutes.
"""

import contextlib
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.reliability.storms import free_ports, until

HOST = platform.node().partition(".")[0]
NODES = (HOST, "zz2", "zz3")  # the first machine of a job, by the alphabet, must have a name that can be looked up
CPUS = 4  # that SLURM counts on each
ACCOUNTING = os.environ.get("SLURM_ACCOUNTING") == "1"
DATABASE = ("mariadb", "mariadbd", "mariadb-install-db", "slurmdbd")  # programs for accounting
PROGRAMS = ("ss", "munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "setpriv")
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
{accounting}
JobAcctGatherType=jobacct_gather/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
GresTypes=gpu
SlurmdTimeout=15
SlurmctldTimeout=10
{nodes}
PartitionName=low Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 LLN=YES
PartitionName=high Nodes=ALL MaxTime=INFINITE PriorityTier=10
"""

ACCOUNTED = """AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStoragePass={folder}/munge.socket"""
BOOKS = """
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageLoc=accounts
StorageUser=root
CommunicationParameters=NoInAddrAny
"""


class Cluster:
    """See the module. daemons: by name; those of nodes are called as the nodes are."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.daemons = folder, dict[str, subprocess.Popen[bytes]]()
        self._commands = {
            "munged": f"munged --foreground --force --socket={folder}/munge.socket --key-file={folder}/munge.key "
            f"--pid-file={folder}/munged.pid --log-file={folder}/munged.log --seed-file={folder}/munged.seed",
            "mariadbd": f"mariadbd --no-defaults --user=root --datadir={folder}/data --socket={folder}/db.socket "
            f"--skip-networking --pid-file={folder}/mariadbd.pid --innodb-buffer-pool-size=64M",
            "slurmdbd": "slurmdbd -D",
            "slurmctld": "slurmctld -D",
        } | {node: f"slurmd -D -N {node}" for node in NODES}

    def start(self, name: str) -> None:
        """Start one of the daemons."""
        with open(self.folder / f"{name}.out", "ab") as log:
            command = ["setpriv", "--pdeathsig", "TERM", *self._commands[name].split()]  # it ends with this process
            self.daemons[name] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def keep_accounts(self, port: int) -> None:
        """Start slurmdbd on a database of its own, and make the cluster known there."""
        data, at = self.folder / "data", f"--socket={self.folder}/db.socket"
        made = ["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db"]
        subprocess.run([*made, "--auth-root-authentication-method=socket"], check=True, stdout=subprocess.DEVNULL)
        os.environ["MYSQL_UNIX_PORT"] = f"{self.folder}/db.socket"  # where slurmdbd looks for it
        (self.folder / "slurmdbd.conf").write_text(BOOKS.format(port=port, folder=self.folder))
        (self.folder / "slurmdbd.conf").chmod(0o600)
        self.start("mariadbd")
        until(lambda: ask("mariadb", "--no-defaults", at, "--execute=create database if not exists accounts; select 1"))
        self.start("slurmdbd")
        until(
            lambda: (
                "test" in ask("sacctmgr", "--immediate", "add", "cluster", "test") + ask("sacctmgr", "list", "cluster")
            )
        )

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End one of them."""
        with contextlib.suppress(ProcessLookupError):
            self.daemons[name].send_signal(how)
        try:
            self.daemons[name].wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.daemons[name].kill()
            self.daemons[name].wait()

    def ready(self) -> bool:
        """Whether every node takes jobs."""
        idle = ask("sinfo", "--noheader", "--Node", "--partition=low", "--states=idle", "--format=%N")
        return len(idle.splitlines()) == len(NODES)


def ask(*words: str) -> str:
    """The answer of a command of SLURM; "" where it fails."""
    return subprocess.run(words, capture_output=True, text=True, timeout=60).stdout


def missing() -> str:
    """Why there can be none here; "" where there can."""
    if os.getuid():
        return "a SLURM cluster of one's own needs root"
    lacking = [name for name in PROGRAMS + DATABASE * ACCOUNTING if shutil.which(name) is None]
    return f"SLURM is not installed ({', '.join(lacking)}): apt-get install slurm-wlm munge" if lacking else ""


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """A cluster, which SLURM's commands find where SLURM_CONF is `folder`/slurm.conf."""
    folder.mkdir(mode=0o711, parents=True, exist_ok=True)
    for name in ("state", *(f"spool-{node}" for node in NODES)):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    controller, books, *ports = free_ports(2 + len(NODES))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    rows = [
        f"NodeName={node} NodeHostname={HOST} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} RealMemory={memory} Gres=gpu:2"
        for node, port in zip(NODES, ports, strict=True)
    ]
    kept = ACCOUNTED if ACCOUNTING else "AccountingStorageType=accounting_storage/none"
    kept = kept.format(port=books, folder=folder)
    written = CONFIGURATION.format(
        host=HOST, controller=controller, folder=folder, accounting=kept, nodes="\n".join(rows)
    )
    (folder / "slurm.conf").write_text(written)
    (folder / "gres.conf").write_text("Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n")  # devices that exist
    version = ask("slurmctld", "-V").split()[-1]
    plugin = "cgroup/v1" if int(version.partition(".")[0]) < 23 else "disabled"  # earlier ones insist, and do nothing
    (folder / "cgroup.conf").write_text(f"CgroupPlugin={plugin}\n")
    before, os.environ["SLURM_CONF"] = os.environ.get("SLURM_CONF"), str(folder / "slurm.conf")
    cluster = Cluster(folder)
    try:
        cluster.start("munged")
        until((folder / "munge.socket").exists)
        if ACCOUNTING:
            cluster.keep_accounts(books)
        for name in ("slurmctld", *NODES):
            cluster.start(name)
        until(cluster.ready)
        yield cluster
        ask("scancel", "--user=root")  # of this controller
        until(lambda: not ask("squeue", "--noheader"))
    finally:
        for name in reversed(cluster.daemons):
            cluster.stop(name)
        os.environ.pop("SLURM_CONF")
        os.environ.update({"SLURM_CONF": before} if before else {})


if __name__ == "__main__":
    with running(Path(sys.argv[1]).absolute()) as here, contextlib.suppress(KeyboardInterrupt):
        print(f"export SLURM_CONF={here.folder}/slurm.conf", flush=True)
        signal.pause()
