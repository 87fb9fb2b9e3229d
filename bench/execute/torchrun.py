"""Starts one worker as several ranks here: `python -m bench.execute.torchrun --ranks 2 <bench.worker options>`.

This is torchrun, called as a library so that a rank's end becomes one sentence. `torchrun -m bench.worker …` does the
same, with torchrun's own account of what failed. For a worker that spans several machines it is started on each of
them, with the same `--nodes`, `--first` and `--job`, and its own `--node`. On one machine nothing listens beyond the
loopback interface.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import socket
import sys
import time
import zlib
from collections.abc import Mapping
from typing import Any

from bench.core.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_USAGE, ProcessKilled, UserError, command
from bench.core.events import reports_failure
from bench.core.subprocesses import end_with

SHUTDOWN_SECONDS = 50  # seconds that ranks get to save after a signal, or to notice that one of them is gone
EXIT_CRASHED = 1  # Python's own exit code, for an uncaught error
JOIN_SECONDS = 900  # seconds in which all machines of a job must appear
PORTS = range(20_000, 32_000)  # below the ephemeral ports, which systems give out by themselves
POLL_SECONDS = 0.2  # seconds between looks at the ranks
HOW_TO_START = "Start it on each of them, with the same --nodes, --first and --job, and its own --node."
CONTINUE = "Run the same command to continue, with any number of ranks; nothing saved is lost."


def port(job: str) -> int:
    """Return the port at which the machines of a job meet: the same on all of them, and different for most other
    jobs."""
    return PORTS.start + zlib.crc32(job.encode()) % len(PORTS)


def own_address(first: str, number: int) -> str:
    """Return the IP address at which other machines of a job can reach this one, found by asking for the route to the
    first.

    Args:
        first: address of the first machine.
        number: the port at which it listens.

    Raises:
        UserError: there is no route to `first`.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((first, number))  # sends nothing
            return str(probe.getsockname()[0])
    except OSError as error:
        raise UserError(
            f"{first} is not to be found from here: {error}.", "Give --first an address of machine 0."
        ) from error


def loopback_store() -> Any:
    """Start the server at which the ranks of one machine meet, on the loopback interface, and return it: torchrun's own
    server would listen on all interfaces. As long as it is referenced, a second server for its port in this process
    becomes the same one."""
    from torch.distributed import TCPStore

    listening = socket.create_server(("127.0.0.1", 0))
    number = listening.getsockname()[1]
    return TCPStore(
        "127.0.0.1",
        number,
        is_master=True,
        multi_tenant=True,
        wait_for_workers=False,
        master_listen_fd=listening.detach(),
    )


def wait_for_first(first: str, number: int) -> None:
    """Wait until the first machine listens at port `number`. torchrun's own wait ends after a minute, with stack
    traces.

    Raises:
        UserError: it does not listen within JOIN_SECONDS.
    """
    deadline = time.monotonic() + JOIN_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((first, number), timeout=JOIN_SECONDS):
            return
        time.sleep(POLL_SECONDS)
    raise UserError(f"{first} does not listen at port {number}, where machines meet.", HOW_TO_START)


def outcome(failures: Mapping[int, Any], *, ranks: int) -> int:
    """Return the exit code of a worker in which some of `ranks` ranks failed. `failures`: rank -> torchrun's
    ProcessFailure, for the ranks that failed first.

    Raises:
        ProcessKilled: a signal killed a rank. The other ranks cannot report this, since they do not know it.
    """
    codes = {number: failure.exitcode for number, failure in failures.items()}
    if EXIT_INTERRUPTED in codes.values():
        return EXIT_INTERRUPTED
    killed = {number: code for number, code in codes.items() if code < 0}
    if killed:
        number, code = min(killed.items())
        name = signal.Signals(-code).name
        raise ProcessKilled(
            f"Rank {number} of {ranks} was killed by {name}; is memory short? All ranks have ended.", CONTINUE
        )
    return next((code for code in (EXIT_USAGE, EXIT_CRASHED, EXIT_FAILED) if code in codes.values()), EXIT_CRASHED)


@command
@reports_failure
def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--nodes", type=int, default=1, help="machines, each with so many ranks")
    parser.add_argument("--node", type=int, default=0, help="which of them this is")
    parser.add_argument("--first", default="localhost", metavar="HOST", help="address of machine 0")
    parser.add_argument("--job", default="", help="a name for this start that all of them share")
    parser.add_argument("--parent", type=int, default=None, help="stop when this process is no longer the parent")
    options, worker = parser.parse_known_args(argv)
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(SHUTDOWN_SECONDS))
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # its warnings of lost connections hold stack traces
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):  # until torchrun takes them over
        signal.signal(each, lambda *_: sys.exit(EXIT_INTERRUPTED))

    from torch.distributed import DistError
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError, RendezvousTimeoutError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    if options.parent is not None:
        end_with(options.parent)
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # failures are told below, in words
    number = port(options.job)
    if options.nodes == 1:
        store = loopback_store()
        how: dict[str, Any] = {
            "rdzv_backend": "static",
            "rdzv_endpoint": f"127.0.0.1:{store.port}",
            "rdzv_configs": {"rank": 0},
        }
    else:
        how = {"rdzv_backend": "c10d", "rdzv_endpoint": f"{options.first}:{number}"}
        how |= {"rdzv_configs": {"is_host": options.node == 0, "join_timeout": JOIN_SECONDS}}
        how |= {"local_addr": own_address(options.first, number)}
        if options.node:
            wait_for_first(options.first, number)
    config = LaunchConfig(
        min_nodes=options.nodes,
        max_nodes=options.nodes,
        nproc_per_node=options.ranks,
        max_restarts=0,
        run_id=f"vit-bench-{number}",
        monitor_interval=POLL_SECONDS,
        **how,
    )
    config.signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR2"
    try:
        elastic_launch(config, sys.executable)("-m", "bench.worker", *worker, "--parent", str(os.getpid()))
        return EXIT_OK
    except SignalException:
        return EXIT_INTERRUPTED
    except ChildFailedError as error:
        return outcome(error.failures, ranks=options.ranks * options.nodes)
    except RendezvousTimeoutError as error:
        late = f"Fewer than {options.nodes} machines met at port {number} within {JOIN_SECONDS} seconds."
        raise UserError(late, HOW_TO_START) from error
    except (RendezvousError, DistError) as error:
        raise UserError(
            f"{options.first}, the first of {options.nodes} machines, does not answer.", CONTINUE
        ) from error


if __name__ == "__main__":
    sys.exit(main())
