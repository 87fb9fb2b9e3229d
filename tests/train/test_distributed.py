"""Two ranks train what one trains: the same losses, the same checkpoints, whichever of the two continues."""

import functools
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import torch
import torch.distributed as dist

from bench.core.errors import UserError
from bench.store import checkpoints
from bench.store.prediction_bits import from_detail
from bench.store.records import build
from bench.study.cell import Cell, Recipe
from bench.study.record import Result
from bench.train.distributed import DistributedRanks, choose_interface, wait_for
from bench.train.ranks import Ranks, check_cells
from tests.conftest import PROJECT
from tests.reliability.storms import free_ports
from tests.train._two_ranks import CASES, CONTINUED, SAVED, SHORT, STEPS, job, losses, trainer

pytestmark = pytest.mark.gate

EXACT = ("vit", "vit-fsdp", "bit", "bit-micro", "hybrid-fsdp")


@pytest.mark.parametrize("ranks_here, chosen, wanted", [("1", None, "lo"), ("2", None, "lo"), ("1", "eth9", "eth9")])
def test_gloo_takes_the_interface_that_reaches_the_first_rank(ranks_here, chosen, wanted):
    """On one machine too, whose ranks would listen elsewhere, but not where somebody has chosen one. This machine's
    loopback alone is known."""
    variables = {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": ranks_here}
    with mock.patch.dict(os.environ, variables):
        os.environ.pop("GLOO_SOCKET_IFNAME", None)
        if chosen:
            os.environ["GLOO_SOCKET_IFNAME"] = chosen
        choose_interface()
        assert os.environ.get("GLOO_SOCKET_IFNAME") == wanted


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def one(folder) -> dict[str, list[float]]:
    """Losses on one rank. FSDP of one rank is that rank: the cases differ in nothing else."""
    by_case = {}
    torch.set_num_threads(1)  # as the ranks have: another number of threads rounds sums otherwise
    for case in CASES:
        steps, like = SHORT.get(case, STEPS), case.removesuffix("-fsdp")
        if like != case and like in by_case:
            by_case[case] = by_case[like][:steps]
        else:
            by_case[case] = losses(trainer(case, folder / f"one-{case}"), steps, save_at=SAVED)
    return by_case


def two_ranks(folder: Path, *what: str) -> list[dict]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2"]
    done = subprocess.run(
        [sys.executable, *launcher, "-m", "tests.train._two_ranks", str(folder), *what],
        env=os.environ | {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads((folder / f"rank{number}.json").read_text()) for number in range(2)]


@pytest.fixture(scope="module")
def two(folder, one) -> list[dict]:
    """The outcome of each of two ranks. It starts after `one`, whose checkpoint it continues."""
    return two_ranks(folder)


@pytest.mark.parametrize("case", EXACT)
def test_two_ranks_have_the_losses_of_one(one, two, case):
    """Including augmentation, dropout where micro-batches keep their place, clipping, accumulation, sharding."""
    assert len(one[case]) == SHORT.get(case, STEPS)
    assert len(set(one[case])) > 5  # it trains
    assert two[0]["losses"][case] == pytest.approx(one[case], rel=1e-5, abs=0)


@pytest.mark.parametrize("case", ["low", "low-fsdp", "low-whole"])
def test_in_bfloat16_they_agree_within_its_rounding(one, two, case):
    assert two[0]["losses"][case] == pytest.approx(one[case], rel=2**-6, abs=0)


def test_every_rank_sees_the_loss_of_the_whole_batch(two):
    assert two[0]["losses"] == two[1]["losses"]


@pytest.mark.parametrize("case", ["vit", "vit-fsdp"])
def test_two_ranks_continue_what_one_began(one, two, case):
    assert two[0]["resumed"][case] == pytest.approx(one["vit"][:CONTINUED], rel=1e-5, abs=0)


@pytest.mark.parametrize("case", ["vit", "vit-fsdp"])
def test_one_rank_continues_what_two_began(one, two, folder, case):
    made = trainer("vit", folder / f"two-{case}")
    assert made.resume() and made.progress.step == SAVED
    assert losses(made, CONTINUED) == pytest.approx(one["vit"][:CONTINUED], rel=1e-5, abs=0)


def test_two_ranks_continue_what_they_began_to_the_bit(two):
    """Buckets are the same after a restart; and a sum of two gradients does not depend on its order."""
    for rank in two:
        assert rank["continued"] == [rank["losses"]["vit"], rank["whole"]]


@pytest.mark.parametrize("case", ["vit", "vit-fsdp"])
def test_a_checkpoint_of_ranks_is_whole(two, one, folder, case):
    """Weights, both moments of the optimizer, the running average: the tensors of one rank, not shards of them."""
    mine, theirs = (checkpoints.load_newest(folder / name)[0].tensors for name in ("one-vit", f"two-{case}"))
    assert {k: v.shape for k, v in mine.items()} == {k: v.shape for k, v in theirs.items()}
    assert any("average." in k for k in mine) and any("exp_avg_sq" in k for k in mine)
    head = "live/model.head.weight"
    torch.testing.assert_close(theirs[head], mine[head], rtol=1e-3, atol=1e-5)
    assert [p.name for p in (folder / f"two-{case}").iterdir()] == [f"step-{SAVED:09d}"]


def test_what_one_rank_decides_or_suffers_all_are_told(two):
    first, second = (rank["decisions"] for rank in two)
    assert first == second
    assert first["lead"] == "returned {'number': 0}"
    assert first["lead fails"] == "SharedError: ValueError: a fuse blew"
    assert first["lead interrupted"] == "Interrupted: saved at step 3"
    assert first["everywhere"] == "returned 7"
    assert first["everywhere fails"] == "SharedError: Rank 1 of 2: ValueError: a fuse blew"
    assert first["everywhere interrupted"] == "Interrupted: saved at step 3"
    assert first["exchange"] == [0, 1]
    assert "normalises over the batch" in first["batch norm"]


def test_a_wish_of_any_rank_to_stop_is_known_to_all_one_step_later(two):
    """Saving is the first rank's to decide, and asked for once."""
    assert two[0]["decisions"]["agree"] == [[False, False], [False, True], [True, False], [False, False]]


def test_the_others_know_which_rank_failed_and_why(two, folder):
    first, _, _ = (folder / "said").read_text().partition("\n")
    assert first == "Rank 1 of 2 failed: ArithmeticError: a fuse blew"


def rank_0_of_2() -> DistributedRanks:
    """A rank with a launcher's store and no connection."""
    ranks = object.__new__(DistributedRanks)
    ranks.rank, ranks.size, ranks._store, ranks.exchange_failed = 0, 2, dist.HashStore(), False
    return ranks


@pytest.mark.parametrize("words", ["socket timed out", "no gloo today", "NCCL error", "Connection reset by peer"])
def test_an_error_of_a_model_that_speaks_of_connections_is_its_own(words):
    """Its report stands; nobody is said to have been killed."""

    class Model(torch.nn.Module):
        def forward(self, x):
            raise RuntimeError(words)

    with pytest.raises(RuntimeError) as caught:
        Model()(torch.ones(1))
    failure = rank_0_of_2().failure(caught.value)
    assert failure.is_reporter and str(failure) == f"Rank 0 of 2 failed: RuntimeError: {words}"


def test_memory_that_runs_out_in_an_exchange_is_no_broken_connection(monkeypatch):
    """FSDP takes memory for what it gathers."""

    def gathers():
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setitem(gathers.__globals__, "__name__", "torch.distributed.fsdp")
    with pytest.raises(RuntimeError) as caught:
        gathers()
    failure = rank_0_of_2().failure(caught.value)
    assert "out of memory" in str(failure) and "more ranks" in failure.fix


def test_what_waiting_for_an_exchange_raises_is_a_broken_connection(monkeypatch):
    """Its words do not matter: gloo's errors are plain ones."""

    monkeypatch.setattr("bench.train.distributed.REPORT_TIMEOUT", 0.0)
    work = mock.Mock(spec=["wait"])
    work.wait = functools.partial(torch.ones(2).view, 3)  # raised by C++: no frame of its own
    with pytest.raises(RuntimeError, match="invalid for input") as caught:
        wait_for(work)
    assert "ended without a report" in str(rank_0_of_2().failure(caught.value))


@pytest.mark.parametrize("how", ["killed", "killed-fsdp"])
def test_a_rank_that_is_killed_in_mid_exchange_ends_the_other(tmp_path, how):
    known = {"PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    known |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(*free_ports(1))}
    command = [sys.executable, "-m", "tests.train._two_ranks", str(tmp_path), how]
    both = [subprocess.Popen(command, env=os.environ | known | {"RANK": n, "LOCAL_RANK": n}) for n in "01"]
    try:
        assert [process.wait(300) for process in both] == [0, -signal.SIGKILL]
    finally:
        for process in both:
            process.kill()
    steps, said = json.loads((tmp_path / "killed.json").read_text())
    assert steps == 2 and said.startswith("Rank 1 of 2 ended without a report")


def test_the_record_of_ranks(two, folder):
    """Sharded and whole: the same rows; devices and core-days of all ranks."""
    alone, together = job(folder / "job-one"), build(Result, two[0]["body"])
    for mine, theirs in zip(together.horizons, alone.horizons, strict=True):
        if mine.images_seen:
            assert mine.final_train_loss == pytest.approx(theirs.final_train_loss, rel=1e-5)
        assert numbers(mine) == numbers(theirs)
        assert [score.task for score in mine.scores][:2] == ["upstream", "finetune"]
        assert {score.task for score in mine.scores[2:]} == {"fewshot"}
        assert answers(mine).tolist() == answers(theirs).tolist() and 0 < answers(mine).mean() < 1
        assert mine.train_flops == theirs.train_flops and mine.images_trained == theirs.images_trained
        assert mine.core_days == pytest.approx(2 * mine.seconds.train / 86_400)
    cost = together.cost
    assert (together.execution.ranks, together.execution.sharding, cost.devices) == (2, "fsdp", 2)
    assert (alone.execution.ranks, alone.execution.sharding, alone.cost.devices) == (1, None, 1)
    assert cost.core_days == pytest.approx(2 * cost.seconds.train / 86_400)


def numbers(row):  # not the detail: it holds seconds
    return [replace(score, detail={}) for score in row.scores]


def answers(row):
    """Answers of the fine-tuned network, in the order of the test set."""
    (score,) = [score for score in row.scores if score.task == "finetune"]
    right_M = from_detail(score.detail).right_M
    assert right_M.mean() == score.value and len(right_M) == score.num_test == 50
    return right_M


def test_shares_are_the_batch():
    class Rank(Ranks):
        def __init__(self, number):
            self.rank, self.size = number, 4

    batch = list(range(32))
    assert [image for number in range(4) for image in batch[Rank(number).share(32)]] == batch
    assert Ranks().share(32) == slice(0, 32)


def test_a_batch_that_ranks_cannot_share_is_refused():
    cell = Cell(model="ViT-pico/14", data="digits", horizons=(640,), recipe=Recipe(batch=64, warmup_images=64))
    check_cells([cell], ranks=4)
    with pytest.raises(UserError, match=r"64 images cannot be shared equally by 3 ranks.*\n.*1, 2, 4, 8, 16, 32, 64"):
        check_cells([cell], ranks=3)
    with pytest.raises(UserError, match="the speed job runs in a single process"):
        check_cells([Cell(model="ViT-pico/14", data="digits", job="speed")], ranks=2)
