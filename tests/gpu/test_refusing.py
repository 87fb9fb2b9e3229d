"""Devices that refuse, as real ones do: Apple's, one that serves a single process, one from before bfloat16."""

from multiprocessing import get_context
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.torch_version import TorchVersion

from bench.core import device
from bench.core.errors import UserError
from bench.core.subprocesses import free_memory_of
from bench.cost import peaks
from bench.data import image_set
from bench.data.image_set import ImageSet, MappedImages
from bench.execute import worker
from bench.execute.jobs import train
from bench.study import registry
from bench.study.cell import Cell, Recipe, TaskSpec
from bench.tasks import _features
from bench.train import batches, modes, reading, recorded
from bench.train.ranks import ONE_RANK
from bench.train.recorded import Recorded
from bench.train.step import Step, make_loss
from tests.gpu import posing as posing_module
from tests.gpu.posing import Apple, Forked, posing
from tests.gpu.test_posing import context


@pytest.fixture
def gpu():
    with posing():
        yield


TUNING = (("image_size", 28), ("rates", (0.01,)), ("steps", 2), ("test_limit", 20), ("train_limit", 20))


def test_an_apple_gpu_trains_evaluates_and_fine_tunes_at_another_size(tmp_path, monkeypatch):
    """To the losses and scores of the processor."""
    peak = peaks.PeakRate(flops_per_second=1e12, source="none", measured=False)
    monkeypatch.setattr(peaks, "peak", lambda *_, **__: peak)
    cell = Cell(
        model="ViT-pico/14",
        data="digits",
        num_images=32,
        image_size=14,
        horizons=(32,),
        recipe=Recipe(batch=16, warmup_images=0, average=0.9, dtype="float32"),
        tasks=(TaskSpec(task="finetune", data="digits", options=TUNING),),
    )
    wanted = train.run(cell, context(tmp_path / "cpu", cell, device="cpu")).horizons
    with posing(Apple):
        assert device.find_device("mps").device == "mps"
        with pytest.raises(TypeError, match="float64"):
            torch.zeros(1, device="mps").double()
        found = train.run(cell, context(tmp_path / "mps", cell, device="mps")).horizons
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.final_train_loss == pytest.approx(theirs.final_train_loss, rel=1e-5)
        assert [s.value for s in mine.scores] == pytest.approx([s.value for s in theirs.scores], abs=0.06)


def test_the_memory_of_a_gpu_that_serves_one_process_is_asked_for_elsewhere(gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: pytest.fail("asked here"))
    assert free_memory_of("cuda") == 80 << 30


def test_readers_that_are_forked_leave_the_device_alone(monkeypatch):
    """As they must where the process that starts them has used it."""
    context = get_context("fork")
    pixels, recipe = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), np.uint8), Recipe(batch=16)
    options = {"recipe": recipe, "seed": 0, "tier": "mapped"}
    wanted = batches.Batches(a_set(pixels), device="cpu", workers=0, scaled=False, **options)
    wanted = [wanted(step) for step in range(2)]
    monkeypatch.setattr(reading, "start_context", lambda: context)
    with posing(Forked):
        torch.zeros(1, device="cuda")
        made = batches.Batches(a_set(pixels), device="cuda", workers=2, **options)
        try:
            given = [made(step) for step in range(2)]
        finally:
            made.reader.close()
        for one, other in zip(given, wanted, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("cores, world, threads", [(96, "16", 12), (96, "64", 12), (4, "16", 1)])
def test_a_worker_has_its_share_of_its_own_machine(cores, world, threads, gpu, tmp_path, monkeypatch):
    """Eight ranks are part of a machine, however many machines there are."""
    (tmp_path / "cells.json").write_text("[]")
    seen, worked = [], SimpleNamespace(run=lambda: 0)
    monkeypatch.setattr(worker, "Worker", lambda *_, options, **__: (seen.append(options.threads), worked)[1])
    monkeypatch.setattr(worker, "join", lambda *_: ONE_RANK)
    monkeypatch.setattr(worker.environment, "cores", lambda: cores)
    monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
    monkeypatch.setenv("VIT_BENCH_CACHE", str(tmp_path / "cache"))
    for name, value in (("WORLD_SIZE", world), ("LOCAL_WORLD_SIZE", "8")):
        monkeypatch.setenv(name, value)
    shared: list[tuple[str, int]] = []
    monkeypatch.setattr(worker, "share_memory", lambda *given: shared.append(given))
    words = ["--store", str(tmp_path / "study"), "--cells", str(tmp_path / "cells.json"), "--suite", "smoke"]
    words += ["--share", "3"]
    assert worker.main([*words, "--device", "cuda"]) == 0
    assert seen == [threads] and shared == [("cuda", 3)]


REAL = ("ViT-S/16", "AxialViT-B/16", "R50+ViT-B/16", "R50x1", "timm:convnext_atto", "torchvision:resnet18")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", REAL)
def test_forward_and_loss_of_real_sizes_are_all_on_the_device(name, dtype):
    """Tensors without memory know where they are, and refuse to be mixed with others."""
    with torch.device("meta"):
        model = registry.build_model(name, image_size=224, channels=3, num_classes=1000).train()
    step = Step(model=model, recipe=Recipe(batch=256, dtype=dtype), device="cpu")
    with FakeTensorMode():
        for module in step.working.network.modules():
            for held in (module._parameters, module._buffers):
                for key, value in ((key, value) for key, value in held.items() if value is not None):
                    there = torch.empty(value.shape, dtype=value.dtype, device="cuda:0")
                    held[key] = nn.Parameter(there) if held is module._parameters else there
        x_BCHW = torch.empty((256, 3, 224, 224), dtype=torch.uint8, device="cuda:0")
        logits_BK = step.working(x_BCHW)
        loss = make_loss(step.recipe)(logits_BK, torch.zeros(256, dtype=torch.long, device="cuda:0"))
        assert loss.device == torch.device("cuda:0") and loss.dtype == torch.float32
        with pytest.raises(RuntimeError, match="device"):  # so it would say
            step.working(torch.empty((256, 3, 224, 224)))


# -- recordings and the compiler ---------------------------------------------------------------------------------------


def test_a_recording_in_the_middle_of_training_changes_nothing_but_gradients(gpu):
    """Statistics over batches, and what dropout draws next."""

    def passes(recorded):
        torch.manual_seed(0)
        network = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5))
        run = Recorded(network, buffers=network.buffers, device="cuda") if recorded else network
        outputs = [run(torch.ones(8, 4)).clone() for _ in range(3)]
        return [*outputs, *network.buffers()]

    assert all(torch.equal(a, b) for a, b in zip(passes(True), passes(False), strict=True))


def test_a_recording_that_failed_leaves_a_device_that_is_given_up_only_where_torch_cannot_end_it(gpu, monkeypatch):
    """Then at once: what the process gives back would never be free again. An error of what is recorded is what it
    says, so that a batch is divided where memory lacks, whatever torch it is."""
    monkeypatch.setattr(recorded, "DAMAGED", device.DAMAGED)
    run = Recorded(nn.ReLU(), device="cuda")
    for version in ("2.12.0", "2.11.0+cu130"):
        monkeypatch.setattr(torch, "__version__", TorchVersion(version))
        for error in (torch.OutOfMemoryError("CUDA out of memory"), ValueError("not in a recording")):
            with pytest.raises(type(error)) as raised:
                recorded.record(mock.Mock(side_effect=error), device="cuda")
            assert raised.value is error and not device.is_lost("cuda")
        with monkeypatch.context() as patch:
            patch.setattr(torch.cuda, "graph", mock.Mock(side_effect=RuntimeError("not permitted when capturing")))
            if version == "2.12.0":
                assert run(torch.ones(1)) == 1 and "not permitted" in run.obstacle and not device.is_lost("cuda")
            else:
                with pytest.raises(UserError, match=f"(?s)not permitted.*{modes.VARIABLE}=default"):
                    Recorded(nn.ReLU(), device="cuda")(torch.ones(1))
    assert device.is_lost("cuda")
    device.DAMAGED.clear()


def test_all_warm_ups_share_a_stream(gpu, monkeypatch):
    """cuBLAS keeps a workspace for each that it has seen."""
    made, stream = [], posing_module.Stream
    recorded._aside.cache_clear()
    monkeypatch.setattr(torch.cuda, "Stream", lambda: (made.append(1), stream())[1])
    for _ in range(3):
        Recorded(nn.ReLU(), device="cuda")(torch.ones(1))
    recorded._aside.cache_clear()
    assert len(made) == 1


# -- what a machine shares ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads, readers", [(1, 1), (8, 7), (64, 16)])
def test_readers_have_the_threads_of_their_worker(threads, readers, monkeypatch):
    """Each of 16 ranks on 2 machines of 96 cores has 12 of them; each of 8 workers on 64 cores has 8."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setenv("WORLD_SIZE", "64")
    assert reading._workers() == readers


def test_ranks_share_the_memory_that_readers_write_to(monkeypatch):
    """64 MB of it, as containers have: no two ranks count on the same."""
    monkeypatch.setattr(reading.os, "statvfs", lambda _: SimpleNamespace(f_bavail=64 << 8, f_frsize=1 << 12))
    monkeypatch.setattr(reading, "DataLoader", lambda *_, **__: ())
    room = {}
    for ranks in ("1", "8"):
        monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks)
        reader = reading.Reader(
            np.zeros((64, 64, 64, 3), np.uint8), request=lambda _: (np.arange(1024), None), device="cpu", workers=1
        )
        reader._start(0)
        room[ranks] = reader._places.nbytes
    assert room["8"] * 8 <= 64 << 20 < 4 * room["1"]


# -- pixels ------------------------------------------------------------------------------------------------------------


def a_set(pixels_NHWC):
    labels_N = np.arange(len(pixels_NHWC)) % 2
    return ImageSet(
        name="x", split="train", kind="rendered", images_NHWC=pixels_NHWC, labels_N=labels_N, class_names=("a", "b")
    )


def test_resident_images_are_never_whole_in_the_processors_memory(gpu, monkeypatch):
    """They are read and sent in parts."""
    sent, pixels = [], np.random.default_rng(0).integers(0, 256, (41, 8, 8, 1), np.uint8)
    monkeypatch.setattr(batches, "UPLOAD_BYTES", 300)
    monkeypatch.setattr(batches, "uploaded", lambda x, at: (sent.append(len(x)), device.uploaded(x, at))[1])
    made = batches.Batches(a_set(pixels), recipe=Recipe(batch=4), seed=0, device="cuda")
    assert made.tier == "resident" and sent == [*10 * [4], 1, 41]  # the last are labels
    assert np.array_equal(made.images_NHWC.numpy(), pixels)


def test_features_wait_for_the_device_once_for_many_batches(monkeypatch):
    monkeypatch.setattr(_features, "AT_ONCE", 24)
    said, real = [], torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: (said.append("waits"), real(self))[1])
    network = nn.Flatten()
    network.features = lambda x: (said.append("begins"), x.flatten(1))[1]
    pixels = np.random.default_rng(0).integers(0, 256, (60, 2, 2, 1), np.uint8)
    found = _features.extractor(network, image_size=2, channels=1, batch=10)(pixels)
    assert said == 3 * ["begins", "begins", "waits", "waits"]
    assert np.array_equal(found, _features.extractor(network, image_size=2, channels=1)(pixels))


def test_mapped_images_are_hashed_once(tmp_path, monkeypatch):
    """By every cell that reads them; anew where the file or the rows are others."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 2, 2, 1), np.uint8)
    np.save(tmp_path / "x.npy", pixels)
    hashed, blocks = [], ImageSet.blocks
    monkeypatch.setattr(image_set, "_hashes", {})
    monkeypatch.setattr(ImageSet, "blocks", lambda self: (hashed.append(len(self)), blocks(self))[1])

    def hash_of(*rows):
        mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
        return a_set(MappedImages(mapped, np.array(rows)) if rows else mapped).content_hash

    first = [hash_of(), hash_of(3, 1), hash_of(1, 3)]
    assert [hash_of(), hash_of(3, 1), hash_of(1, 3)] == first and hashed == [40, 2, 2]
    assert first[0] == a_set(pixels).content_hash and first[1] == a_set(pixels[[3, 1]]).content_hash
    np.save(tmp_path / "x.npy", 255 - pixels)
    assert hash_of() == a_set(255 - pixels).content_hash != first[0]


@pytest.mark.parametrize("where", ["cuda", "cpu"])
def test_uploaded_images_are_copied_once_and_the_processor_is_two_uploads_ahead(where, tmp_path, monkeypatch):
    """Out of a map that cannot be written to, into pinned memory, of which there is never more than for three."""
    pixels = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
    np.save(tmp_path / "pixels.npy", pixels)
    mapped = np.load(tmp_path / "pixels.npy", mmap_mode="r", allow_pickle=False)
    pinned, waited, empty = [], [], torch.empty
    monkeypatch.setattr(device, "_uploads", {})
    monkeypatch.setattr(posing_module.Event, "synchronize", lambda self: waited.append(self.at))
    with posing():
        monkeypatch.setattr(torch.Tensor, "pin_memory", lambda *_: pytest.fail("copied a second time"))
        monkeypatch.setattr(
            torch, "empty", lambda *given, pin_memory, **how: (pinned.append(pin_memory), empty(*given, **how))[1]
        )
        for at in range(5):
            part = device.uploaded(mapped[4 * at : 4 * at + 4], where)
            assert np.array_equal(part.numpy(), pixels[4 * at : 4 * at + 4])
            part.zero_()
            assert len(waited) == (max(0, at - 1) if where == "cuda" else 0)
    assert pinned == [where == "cuda"] * 5 and waited == sorted(set(waited))  # for what was asked first
    assert np.array_equal(mapped, pixels)
