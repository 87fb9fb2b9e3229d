"""Final weights hold what they are of, and say so when a byte of them is another."""

import pytest
import safetensors.torch
import torch

from bench.core.errors import UserError
from bench.store import weights

FACTS = {"model": "ViT-pico/7", "num_classes": 10}
TENSORS = {"head.bias": torch.arange(10.0), "head.weight": torch.ones(10, 4, dtype=torch.bfloat16)}


@pytest.fixture
def path(tmp_path):
    weights.write(tmp_path / "final.safetensors", TENSORS, about=FACTS)
    return tmp_path / "final.safetensors"


def test_what_was_written_is_read(path):
    assert weights.about(path) == FACTS
    read = safetensors.torch.load_file(path)
    assert read.keys() == TENSORS.keys() and all(torch.equal(read[name], TENSORS[name]) for name in read)


def test_a_changed_byte_of_a_tensor_or_of_the_facts_is_found(path):
    whole = path.read_bytes()
    for place in (len(whole) - 1, len(whole) - 60, whole.index(b"ViT-pico") + 4):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(UserError, match="was altered"):
            weights.about(path)


def test_a_file_of_somebody_else_says_nothing_and_no_file_is_one_message(tmp_path):
    safetensors.torch.save_file(TENSORS, tmp_path / "theirs.safetensors", metadata={"format": "pt"})
    assert weights.about(tmp_path / "theirs.safetensors") is None
    safetensors.torch.save_file(TENSORS, tmp_path / "bare.safetensors")
    assert weights.about(tmp_path / "bare.safetensors") is None
    (tmp_path / "other").write_text("no weights")
    for name in ("other", "missing"):
        with pytest.raises(UserError, match="not a readable safetensors file"):
            weights.about(tmp_path / name)
