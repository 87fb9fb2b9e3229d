"""The adapter from images to features: sizes, channels, range, batching, mode."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from bench.core.device import InBatches  # noqa: E402
from bench.tasks._features import extractor, network_input  # noqa: E402


class Recorder(torch.nn.Module):  # type: ignore[name-defined]
    """Features are the flattened input; remembers batch sizes and modes."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.modes: list[bool] = []

    def features(self, x_BCHW):
        self.sizes.append(len(x_BCHW))
        self.modes.append(self.training)
        assert not torch.is_grad_enabled()
        return x_BCHW.flatten(1)


def images(count: int, size: int, channels: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, size, size, channels), dtype=np.uint8)


def test_the_last_small_batch_is_kept_and_the_mode_restored() -> None:
    model = Recorder().train()
    x = images(23, 4, 1)
    features_ND = extractor(model, image_size=4, channels=1, batch=10)(x)
    assert model.sizes == [10, 10, 3] and model.modes == [False] * 3 and model.training
    assert features_ND.dtype == np.float32
    np.testing.assert_allclose(features_ND, x.reshape(23, -1) / 127.5 - 1, atol=1e-6)
    extractor(model.eval(), image_size=4, channels=1)(x)
    assert not model.training


def test_range_channels_and_size() -> None:
    x = torch.from_numpy(np.array([0, 255], dtype=np.uint8).reshape(2, 1, 1, 1))
    assert network_input(x, image_size=1, channels=1).flatten().tolist() == [-1.0, 1.0]
    rgb = network_input(torch.from_numpy(images(2, 5, 1)), image_size=8, channels=3)
    assert rgb.shape == (2, 3, 8, 8) and torch.equal(rgb[:, 0], rgb[:, 2])
    white = torch.full((1, 3, 3, 3), 255, dtype=torch.uint8)
    torch.testing.assert_close(network_input(white, image_size=3, channels=1), torch.ones(1, 1, 3, 3))
    small = network_input(torch.from_numpy(images(1, 32, 3)), image_size=8, channels=3)
    assert small.abs().max() <= 1
    with pytest.raises(ValueError, match="2 channels"):
        network_input(torch.from_numpy(images(1, 4, 2)), image_size=4, channels=3)


def test_read_only_maps_are_fine(tmp_path) -> None:
    np.save(tmp_path / "x.npy", images(5, 4, 1))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert extractor(Recorder(), image_size=4, channels=1)(mapped).shape == (5, 16)


def test_no_images() -> None:
    with pytest.raises(ValueError, match="no images"):
        extractor(Recorder(), image_size=4, channels=1)(images(0, 4, 1))


class Tight(Recorder):
    """Has room for `room` images at a time."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def features(self, x_BCHW):
        found = super().features(x_BCHW)
        if len(x_BCHW) > self.room:
            raise torch.OutOfMemoryError("no room")
        return found


def test_where_memory_runs_out_batches_are_halved_and_every_image_is_done_once() -> None:
    x = images(23, 4, 1)
    model, batches = Tight(3), InBatches(10, device="cpu")
    features_ND = extractor(model.train(), image_size=4, channels=1, batches=batches)(x)
    assert model.sizes == [10, 5, *[2] * 11, 1]
    np.testing.assert_array_equal(features_ND, extractor(Recorder(), image_size=4, channels=1)(x))
    assert batches.shrunk and batches.batch == 2 and model.training
    with pytest.raises(torch.OutOfMemoryError):
        extractor(Tight(0), image_size=4, channels=1)(x)


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    batches = InBatches(10, device="cpu")
    with pytest.raises(RuntimeError, match="size"):
        batches(5, lambda part: torch.ones(2) @ torch.ones(len(range(5)[part])))
    assert not batches.shrunk and batches.batch == 10
