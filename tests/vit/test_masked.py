"""Masked patch prediction: what is corrupted and how, what is to be predicted, and what the counter makes of it."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from bench.core.errors import UserError
from bench.cost.flops import count_forward
from bench.study import registry
from bench.tasks._finetuner import transferred_model
from bench.train.step import own_loss, own_targets
from vit import masked

NAME = "ViT-pico/7:head=masked"


def model(**options):
    torch.manual_seed(0)
    return registry.build_model(NAME, image_size=28, channels=3, num_classes=10, **options)


def test_half_of_the_patches_are_corrupted_as_published() -> None:
    torch.manual_seed(1)
    images, patches = 4_000, 16
    picked = masked.pick(images, (4, 4), device=torch.device("cpu"))
    assert picked.index_BM.shape == (images, patches // 2)
    assert all(len(set(row.tolist())) == patches // 2 for row in picked.index_BM[:50])
    assert not (picked.other_BM == picked.index_BM).any()
    embeddings_BND = torch.arange(patches, dtype=torch.float32)[None, :, None].expand(images, -1, 2)
    after_BN = masked.corrupted(embeddings_BND, picked=picked, mask_token=torch.full((1, 1, 2), -1.0))[..., 0]
    found_BM, before_BM = after_BN.gather(1, picked.index_BM), picked.index_BM.float()
    total = found_BM.numel()
    shares = [(found_BM == -1).sum() / total, (found_BM == before_BM).sum() / total]
    noise = 4 * (0.8 * 0.2 / total) ** 0.5  # four standard errors
    assert shares == pytest.approx([0.8, 0.1], abs=noise)
    untouched = torch.ones_like(after_BN, dtype=torch.bool).scatter(1, picked.index_BM, False)
    assert torch.equal(after_BN[untouched], embeddings_BND[..., 0][untouched])


def test_colours_are_three_bits_per_channel() -> None:
    level = torch.tensor([0.0, 3.0, 7.0])  # of red, green, blue
    image_1CHW = ((level + 0.5) / 4 - 1)[None, :, None, None].expand(1, 3, 14, 14)
    assert masked.colours(image_1CHW, (2, 2)).tolist() == [[[0 * 64 + 3 * 8 + 7]] * 4]
    assert masked.num_colours(3) == 512 and masked.num_colours(1) == 8
    assert masked.colours(torch.tensor([-1.0, 1.0]).reshape(1, 1, 1, 2), (1, 2)).tolist() == [[[0], [7]]]


def test_a_patch_in_small_is_four_by_four_colours_row_by_row() -> None:
    levels_RS = torch.arange(64).reshape(8, 8) % 8  # of 2 x 2 patches of 4 x 4 pixels
    image_11HW = ((levels_RS + 0.5) / 4 - 1)[None, None]
    got_NQ = masked.colours(image_11HW, (2, 2), parts=4)[0]
    assert torch.equal(got_NQ, torch.stack([levels_RS[r : r + 4, s : s + 4].flatten() for r in (0, 4) for s in (0, 4)]))
    assert masked.outputs("small", channels=3, patch=(16, 16)) == 16 * 512
    assert masked.outputs("pixels", channels=3, patch=(16, 16)) == 256 * 3


def test_pixels_are_those_of_the_picked_patches() -> None:
    """Unfold, of torch, cuts the same patches."""
    x_BCHW = torch.rand(2, 3, 12, 8)
    picked = masked.pick(2, (3, 2), device=torch.device("cpu"))
    output_MK = torch.zeros(6, 48)
    wanted_BMP = torch.nn.functional.unfold(x_BCHW, 4, stride=4).mT.gather(
        1, picked.index_BM[..., None].expand(-1, -1, 48)
    )
    got = masked.judged(output_MK, x_BCHW, target="pixels", grid=(3, 2), picked=picked)
    assert isinstance(got, masked.Regression) and torch.equal(got.wanted, wanted_BMP.flatten(0, 1))


@pytest.mark.parametrize("target", ["small", "pixels"])
def test_every_target_is_learned_from(target: str) -> None:
    net, x_BCHW = model(masked_target=target), torch.rand(8, 3, 28, 28) * 2 - 1
    output = net(x_BCHW)
    assert len(output[0]) == len(output[1])
    loss = own_loss(output, torch.nn.functional.cross_entropy)
    loss.backward()
    assert loss.ndim == 0 and all(p.grad is not None for name, p in net.named_parameters())


def test_outputs_of_an_auxiliary_head_are_never_taken_for_targets() -> None:
    logits_BK, numbers_B = torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64)
    assert own_targets((logits_BK, numbers_B))[1] is numbers_B
    for output in ((logits_BK, logits_BK), (logits_BK, numbers_B, numbers_B)):
        with pytest.raises(UserError, match="class numbers"):
            own_targets(output)


def test_a_network_brings_its_own_targets_and_learns_from_them() -> None:
    net, x_BCHW = model(), torch.rand(8, 3, 28, 28) * 2 - 1
    logits_MK, targets_M = net(x_BCHW)
    assert logits_MK.shape == (8 * 8, 512) and targets_M.shape == (64,) and net.self_supervised
    torch.nn.functional.cross_entropy(logits_MK, targets_M).backward()
    assert all(p.grad is not None for name, p in net.named_parameters())
    assert net.features(x_BCHW).shape == (8, net.num_features)  # of the whole image


def test_fine_tuning_takes_the_body_and_leaves_the_pretext() -> None:
    sizes = {"image_size": 28, "channels": 3, "num_classes": 5}
    tuned = transferred_model(model(), NAME, **sizes)
    assert not tuned.self_supervised and tuned(torch.zeros(1, 3, 28, 28)).shape == (1, 5)


@pytest.mark.parametrize("name", [NAME, "AxialViT-pico/7", "ViT-pico/7:position=relative", "ViT-pico/4:stem=conv"])
def test_torchs_counter_agrees(name: str) -> None:
    with torch.device("meta"):
        net = registry.build_model(name, image_size=28, channels=3, num_classes=10).eval()
    x_BCHW = torch.empty(1, 3, 28, 28, device="meta")
    with FlopCounterMode(display=False) as counter:
        net(x_BCHW)
    assert 2 * count_forward(net, x_BCHW).total("dense") == counter.get_total_flops()


def test_axial_attention_sees_rows_then_columns() -> None:
    torch.manual_seed(0)
    net = registry.build_model("AxialViT-pico/7", image_size=28, channels=1, num_classes=10, depth=1).eval()
    block, x_BND = net.blocks[0], torch.randn(1, 16, 48)
    moved = x_BND.clone()
    moved[0, 5] += 1.0  # row 1, column 1 of 4 x 4
    rows = block.row(x_BND.reshape(4, 4, 48)) - block.row(moved.reshape(4, 4, 48))
    assert [bool(row.abs().max() > 0) for row in rows] == [False, True, False, False]
    assert (block(x_BND) != block(moved)).any(-1).all()  # both together reach everything


def test_options_in_a_name_are_options() -> None:
    sizes = {"image_size": 28, "channels": 1, "num_classes": 3}
    named = registry.build_model("ViT-pico/7:depth=2:position=none", **sizes)
    assert named.config == registry.build_model("ViT-pico/7", depth=2, position="none", **sizes).config
    with pytest.raises(registry.UserError, match="unknown option dept"):
        registry.build_model("ViT-pico/7:dept=2", **sizes)
