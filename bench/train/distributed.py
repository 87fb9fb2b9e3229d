"""Train one cell (training run) in several processes (ranks) under torchrun: data parallel, or with the weights sharded
(FSDP2).

The global batch, its order, its augmentation and the dropout of its micro-batches are functions of the seed and the
step, never of the number of ranks; each rank computes its part. Control messages use a process group on the CPU, so
that no rank waits for its accelerator.

Data-parallel ranks exchange their gradients, in float32, through torch's DistributedDataParallel. It sums them in an
order of its own, so training on several ranks equals training on one only within rounding. Two ranks give the same bits
every time, also after a restart, because a sum of two does not depend on its order. If memory runs out on one rank, all
ranks stop.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import json
import os
import socket
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from bench.core.device import is_out_of_memory
from bench.core.errors import Interrupted, UserError
from bench.train import compiled, modes, precision
from bench.train.ranks import RankFailure, RankOutOfMemory, Ranks, SharedError

T = TypeVar("T")

JOIN_TIMEOUT = datetime.timedelta(minutes=10)  # for all ranks to join
EXCHANGE_TIMEOUT = datetime.timedelta(minutes=30)  # for all ranks to reach the exchange of gradients of one step
EVALUATION_TIMEOUT = datetime.timedelta(hours=24)  # for rank 0 to evaluate at a horizon, while the others wait
SIOCGIFADDR = 0x8915  # netdevice(7): the address of an interface
BUCKET_MB = 25  # megabytes of gradients that are exchanged at once: torch's own default
REPORT_TIMEOUT = 3.0  # seconds that ranks wait, after the connection broke, for the report of the rank that broke it


class DistributedRanks(Ranks):
    """The interface `Ranks` for a process that torchrun has started as one of several ranks.

    Args:
        device: "cpu" (gloo) or "cuda" (NCCL; each rank takes the device of its local number).

    Raises:
        UserError: this machine has fewer devices than ranks.
    """

    def __init__(self, *, device: str) -> None:
        self.device = device
        accelerator = None
        if device != "cpu":
            local = int(os.environ["LOCAL_RANK"])
            if local >= torch.cuda.device_count():
                raise UserError(
                    f"{os.environ['LOCAL_WORLD_SIZE']} ranks, but {torch.cuda.device_count()} CUDA device(s).",
                    "Start one rank for each device.",
                )
            torch.cuda.set_device(local)
            accelerator = torch.device("cuda", local)
        choose_interface()
        store, self.rank, self.size = next(iter(dist.rendezvous("env://", timeout=JOIN_TIMEOUT)))
        dist.init_process_group(
            "gloo" if device == "cpu" else "nccl",
            store=dist.PrefixStore("group", store),
            rank=self.rank,
            world_size=self.size,
            timeout=EXCHANGE_TIMEOUT,
            device_id=accelerator,
        )
        self._control: Any = dist.new_group(backend="gloo", timeout=EVALUATION_TIMEOUT)
        # a group of its own for votes, with a shorter timeout, because a machine that is gone never answers
        self._votes: Any = dist.new_group(backend="gloo", timeout=EXCHANGE_TIMEOUT)
        self._store = dist.PrefixStore("failures", store)
        self._vote: tuple[Any, Tensor] | None = None
        self.exchange_failed = False  # whether an exchange of gradients failed: by another rank or the network

    @property
    def is_first_here(self) -> bool:
        return os.environ.get("LOCAL_RANK", "0") == "0"

    # -- decisions -------------------------------------------------------------------------------------------------

    def run_on_rank0(self, work: Callable[[], T]) -> T:
        outcome: list[Any] = [None]
        error: Exception | None = None
        if self.is_rank0:
            try:
                outcome[0] = ("done", work())
            except Interrupted as stop:
                outcome[0], error = ("interrupted", str(stop)), stop
            except Exception as caught:
                what, fix = _explained(caught)
                outcome[0], error = ("failed", (what, fix)), SharedError(what, fix)
                error.__cause__ = caught
        dist.broadcast_object_list(outcome, src=0, group=self._control)
        if error is not None:
            raise error
        kind, value = outcome[0]
        if kind == "interrupted":
            raise Interrupted(value)
        if kind == "failed":
            raise SharedError(*value)
        return value

    def run_on_all(self, work: Callable[[], T]) -> T:
        value, error = None, None
        stopped: str | None = None
        try:
            value = work()
        except Interrupted as stop:
            stopped = str(stop)
        except Exception as caught:
            error = caught
        outcomes = self.exchange((stopped, _explained(error) if error else None))
        failed = [number for number, (_, problem) in enumerate(outcomes) if problem]
        if failed:
            what, fix = outcomes[failed[0]][1] or ("", "")
            where = "" if len(failed) == self.size else f"{self._name_of(failed[0])}: "
            raise SharedError(where + what, fix) from error
        for message, _ in outcomes:
            if message is not None:
                raise Interrupted(message)
        return value  # type: ignore[return-value]

    def exchange(self, value: T) -> list[T]:
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self._control)
        return values

    def agree(self, *, stop: bool, save: bool) -> tuple[bool, bool]:
        """Return (whether to stop, whether to save) as voted at the previous step, and start this step's vote. It is
        all-reduced while the step is computed, so that no rank waits for it.

        Args:
            stop: whether this rank wants to stop; one is enough.
            save: whether this rank wants to write a checkpoint; only rank 0's wish counts.
        """
        decided = [0, 0]
        if self._vote is not None:
            work, votes_2 = self._vote
            wait_for(work)
            decided = votes_2.tolist()
        should_save = save and self.is_rank0 and not decided[1]  # not again while the same save is being agreed on
        votes_2 = torch.tensor([int(stop), int(should_save)])
        self._vote = dist.all_reduce(votes_2, op=dist.ReduceOp.MAX, group=self._votes, async_op=True), votes_2
        return bool(decided[0]), bool(decided[1])

    # -- training --------------------------------------------------------------------------------------------------

    def check_model(self, model: nn.Module) -> None:
        for name, module in model.named_modules():
            if isinstance(module, _BatchNorm):
                raise SharedError(
                    f"The model normalises over the batch ({name}): its results would depend on the number of ranks.",
                    "Train it on one rank, or use a norm that looks at single images.",
                )

    def shard_model(self, model: nn.Module, *, sharding: str, dtype: str) -> nn.Module:
        """Return a copy of the model that FSDP2 shards block by block over the ranks; the model itself stays whole, in
        host memory, for evaluation on rank 0. If `sharding` is not "fsdp", return the model.

        Args:
            dtype: a key of `precision.DTYPES`, in which the copy computes.
        """
        if sharding != "fsdp":
            return model
        whole, model = model, copy.deepcopy(model)
        whole.cpu()  # in host memory until it is evaluated
        mode = modes.mode_for(self.device)
        compiled.compiled(model, mode="off" if self.device == "cuda" and compiled.obstacle("cuda") else mode)
        mesh = init_device_mesh(self.device, (self.size,))
        policy = MixedPrecisionPolicy(param_dtype=precision.DTYPES[dtype], reduce_dtype=torch.float32)
        exact = MixedPrecisionPolicy(reduce_dtype=torch.float32, cast_forward_inputs=False)
        # these are a small part of the weights, and are kept whole from forward to backward: half the exchanges
        kept: dict[str, Any] = {"mesh": mesh, "reshard_after_forward": False}
        for module in model.modules():
            if precision.stays_float32(module):
                fully_shard(module, mp_policy=exact, **kept)
        for block in compiled.blocks(model):  # so that blocks are gathered one at a time
            if not isinstance(block, FSDPModule):
                fully_shard(block, mp_policy=policy, **kept)
        fully_shard(model, mp_policy=policy, **kept)
        return model

    def is_sharded(self, model: nn.Module) -> bool:
        return isinstance(model, FSDPModule)

    def data_parallel(self, network: nn.Module) -> nn.Module:
        """Wrap a network in torch's DistributedDataParallel, which averages gradients over the ranks. If a weight takes
        no part in a step, its gradient is None afterwards, as on one rank."""
        for harmless in ("find_unused_parameters=True was specified", "Grad strides do not match bucket view strides"):
            warnings.filterwarnings("ignore", harmless)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about broadcast_buffers; older versions lack its successor
            shared = DistributedDataParallel(
                network,
                bucket_cap_mb=BUCKET_MB,
                broadcast_buffers=False,
                find_unused_parameters=True,
                gradient_as_bucket_view=True,
                init_sync=False,  # weights are a function of the seed, or read from a checkpoint
            )
        shared.register_comm_hook(None, lambda _, bucket: self.average_gradients(bucket.buffer()))
        return shared

    def set_gradient_sync(self, network: nn.Module, *, last: bool) -> None:
        if isinstance(network, FSDPModule):
            network.set_requires_gradient_sync(last)
            network.set_reshard_after_backward(last)  # the next micro-batch has the same weights
        elif isinstance(network, DistributedDataParallel):
            network.require_backward_grad_sync = last

    def average_gradients(self, gradients: Tensor) -> torch.futures.Future[Tensor]:
        """Start to replace a tensor of gradients by its mean over the ranks, and return a future of that tensor.

        If the exchange fails, the error is raised in the backward pass, like errors of the network itself;
        `exchange_failed` is set to tell them apart.
        """
        gradients.div_(self.size)

        def over(done: torch.futures.Future) -> Tensor:
            try:
                done.wait()
            except Exception:
                self.exchange_failed = True
                raise
            return gradients

        return dist.all_reduce(gradients, async_op=True).get_future().then(over)

    def mean(self, value: Tensor) -> Tensor:  # type: ignore[override]
        total = value.clone()
        dist.all_reduce(total)
        return total / self.size

    # -- state -----------------------------------------------------------------------------------------------------

    def gather(self, tensors: dict[str, Tensor], *, everywhere: bool = False) -> dict[str, Tensor]:
        whole = {}
        for name, value in tensors.items():
            if isinstance(value, DTensor):
                gathered = value.full_tensor()  # one by one, so that the device never holds more than one whole tensor
                if self.is_rank0 or everywhere:
                    whole[name] = gathered.cpu()
            else:
                whole[name] = value
        return whole

    def shard(self, value: Tensor, *, like: Any) -> Tensor:  # type: ignore[override]
        if not isinstance(like, DTensor) or isinstance(value, DTensor) or value.shape != like.shape:
            return value
        return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)

    # -- the end ---------------------------------------------------------------------------------------------------

    def failure(self, error: Exception) -> RankFailure:
        """Return the RankFailure to raise for an error. It says which rank failed first, and why, as far as that is
        known.

        A rank that failed by itself leaves a report in the launcher's key-value store, and a rank whose connection
        broke looks for it there. A killed rank leaves no report.
        """
        try:
            if not self.exchange_failed and not _connection_broke(error):
                what, fix = _description(error)
                report = {"rank": self.rank, "what": what, "fix": fix, "trace": traceback.format_exc()}
                mine = json.dumps(report)
                is_reporter = self._store.compare_set("report", "", mine) == mine.encode()
                return RankFailure(f"{self._name_of(self.rank)} {what}", is_reporter=is_reporter, fix=fix)
            self._store.set(f"survived {self.rank}", "")
            deadline = time.monotonic() + REPORT_TIMEOUT
            while time.monotonic() < deadline:
                if self._store.check(["report"]):
                    report = json.loads(self._store.get("report"))
                    message = f"{self._name_of(report['rank'])} {report['what']}\n{report['trace']}"
                    return RankFailure(message, is_reporter=False, fix=report["fix"])
                time.sleep(0.05)
            silent = [n for n in range(self.size) if not self._store.check([f"survived {n}"])]
            is_reporter = self._store.compare_set("reporter", "", str(self.rank)) == str(self.rank).encode()
        except RuntimeError:  # the launcher is gone too
            silent, is_reporter = [], self.is_first_here
        who = " or ".join(self._name_of(n) for n in silent) or "A rank"
        return RankFailure(
            f"{who} ended without a report (killed, or crashed; is memory short?).", is_reporter=is_reporter
        )

    def _name_of(self, rank: int) -> str:
        return f"Rank {rank} of {self.size}"

    def close(self) -> None:
        dist.barrier(group=self._control)
        dist.destroy_process_group()

    def hard_exit(self, code: int) -> NoReturn:
        """End this process at once, with exit status `code`: a clean exit would wait for ranks that no longer
        answer."""
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def choose_interface() -> None:
    """Make gloo, which exchanges data between CPUs, use the network interface that reaches the first rank, unless the
    user has chosen one (GLOO_SOCKET_IFNAME).

    By default gloo takes the interface that this machine's name resolves to. Often that is the loopback although ranks
    are on several machines, and often it is another interface although all ranks are on one machine.
    """
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    with contextlib.suppress(OSError, ImportError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], 9))  # sends nothing
        own = probe.getsockname()[0]
        import fcntl  # imported here: Windows has no such module

        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                request = struct.pack("256s", name.encode()[:15])
                address = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)[20:24]
                if socket.inet_ntoa(address) == own:
                    os.environ["GLOO_SOCKET_IFNAME"] = name
                    return


def _explained(error: BaseException) -> tuple[str, str]:
    """Return (what happened, what the user can do) for any error. The second is "" if nothing is known to help."""
    if isinstance(error, UserError):
        return error.what, error.fix
    return f"{type(error).__name__}: {error}".strip(), ""


def _description(error: Exception) -> tuple[str, str]:
    """Return (how a rank failed, what the user can do) for its error. The first is what follows the rank's name in a
    message; the second is "" if nothing is known to help."""
    if isinstance(error, RankOutOfMemory):
        return error.what, error.fix
    fix = "Use more ranks, or a smaller model." if is_out_of_memory(error) else ""
    return f"failed: {_explained(error)[0]}", fix


OPERATORS = "torch.distributed.tensor._dispatch"  # runs ordinary operators on sharded tensors: exchanges nothing itself


def _connection_broke(error: Exception) -> bool:
    """Return whether an error came from communication between ranks rather than from this rank's own work.

    NCCL's errors are known by their type; gloo's have no type of their own, and are known by the code that raised them.
    """
    if isinstance(error, dist.DistError):
        return True
    if not isinstance(error, RuntimeError) or is_out_of_memory(error):
        return False
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    while frames and frames[-1].f_globals.get("__name__") == "torch._ops":  # go on to the caller of the operator
        frames.pop()
    if not frames:
        return False
    module = str(frames[-1].f_globals.get("__name__"))
    return (module.startswith("torch.distributed.") and module != OPERATORS) or frames[-1].f_code is wait_for.__code__


def wait_for(work: Any) -> None:
    """Wait until an asynchronous exchange of torch.distributed is done. Errors raised here are errors of the connection
    between ranks (see `_connection_broke`)."""
    work.wait()
