"""The loading benchmark measures what it says: every way delivers the set's own pixels, copies deliver their bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from bench.cost import loading

BATCH = 8


def test_every_way_delivers_images_of_the_set(tmp_path: Path) -> None:
    images = loading.made_up(tmp_path, (40, 6, 6, 3))
    assert isinstance(images.images_NHWC, np.memmap) and len(np.unique(images.content_keys_N)) == 40
    ways = loading.ways(images, batch=BATCH)
    known = {image.tobytes() for image in images.images_NHWC}
    for name in ("read in order", "read at random"):
        seen = [image.tobytes() for _ in range(5) for image in ways[name]()]
        assert set(seen) <= known and not np.shares_memory(ways[name](), images.images_NHWC)
        assert name != "read in order" or len(set(seen)) == 40
    x_BCHW, _ = ways["batches"]()
    assert x_BCHW.dtype == torch.float32
    back = ((x_BCHW + 1) * 127.5).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    assert {image.tobytes() for image in back} <= known
    assert ways["batches, shifted"]()[0].shape == (BATCH, 3, 6, 6)


@pytest.mark.parametrize("size", [100, 5_000])
def test_a_copy_copies_so_many_bytes(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    seen = []
    monkeypatch.setattr(loading.np, "copyto", lambda target, source: seen.append((target.nbytes, source.nbytes)))
    copy = loading.copying(np.arange(1_200, dtype=np.int64).astype(np.uint8).reshape(3, 20, 20, 1), size)
    for _ in range(20):
        copy()
    assert set(seen) == {(size, size)}


def test_what_is_said_adds_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    images = loading.made_up(tmp_path, (40, 6, 6, 1))
    found = loading.measure(images, batch=BATCH, rounds=3, seconds=0.002)
    assert list(found) == list(loading.ways(images, batch=BATCH)) and torch.get_num_threads() == threads
    assert [pace.bytes_each for pace in found.values()] == [36, 36, 144, 144]
    for pace in found.values():
        assert pace.seconds > 0 and pace.copy_seconds > 0 and pace.of_limit > 0
        assert pace.bytes_per_second == pytest.approx(pace.bytes_each * BATCH / pace.seconds)
    arguments = ["--images", "40", "--size", "6", "--batch", "8", "--rounds", "1", "--seconds", "0.002"]
    assert loading.main(arguments) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in found) and "of the copy limit" in out
