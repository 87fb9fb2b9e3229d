"""Parts of a batch side by side on the cores of a CPU: the gradients of the whole batch, the same on every run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bench.core import registry
from bench.core.spec import Recipe
from bench.train import side_by_side
from bench.train.precision import Working
from bench.train.step import Step, TooLarge

THREADS = 3
SIZES = {"image_size": 28, "channels": 1, "num_classes": 5}
ROUNDING = 2.0**-8  # of bfloat16, relative


@pytest.fixture(autouse=True)
def several_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(before)


def made(name: str, **options: Any) -> nn.Module:
    torch.manual_seed(0)
    model = registry.build_model(name, **SIZES, **options).train()
    for weight in (p for name, p in model.named_parameters() if name.startswith("head.") and name.endswith("weight")):
        nn.init.normal_(weight, std=0.1)
    return model


def batch(images: int = 8) -> tuple[Tensor, Tensor]:
    own = torch.Generator().manual_seed(1)
    return torch.randn(images, 1, 28, 28, generator=own), torch.randint(5, (images,), generator=own)


def gradients(name: str, dtype: str, *, parts: int, **options: Any) -> tuple[Tensor, Step]:
    torch.set_num_threads(parts)
    step = Step(model=made(name, **options), recipe=Recipe(lr=0.0, batch=8, dtype=dtype), device="cpu")
    loss = step._gradients_that_fit(*batch(), seed=0)
    found = [p.grad.flatten() for p in step.model.parameters() if p.grad is not None]
    return torch.cat([loss[None], *found]), step


@pytest.mark.parametrize("name", ["ViT-nano/7", "R8x0.125-s2", "R5+ViT-pico/4"])
def test_parts_have_the_gradients_of_the_whole_and_the_same_bits_on_every_run(name: str) -> None:
    """As near to float32's as those of the whole batch are. The hybrid's weights are standardised another way."""
    right, _ = gradients(name, "float32", parts=1)
    whole, alone = gradients(name, "bfloat16", parts=1)
    divided, step = gradients(name, "bfloat16", parts=THREADS)
    assert step.beside == THREADS and alone.beside == 1
    assert (divided - right).norm() < 1.2 * (whole - right).norm() < 0.1 * right.norm()
    for _ in range(3):
        assert torch.equal(gradients(name, "bfloat16", parts=THREADS)[0], divided)


@pytest.mark.parametrize("eps_on_std", [False, True])
def test_a_weight_that_is_standardised_once_has_the_gradient_of_one_that_is_each_time(eps_on_std: bool) -> None:
    from baselines._resnet import StdConv

    torch.manual_seed(0)
    conv = StdConv(6, 8, 3, eps_on_std=eps_on_std).double()
    given = torch.randn_like(conv.weight)
    right = torch.autograd.grad(conv.standardised_weight(), conv.weight, given)[0]
    found, backward = conv.standardise()
    torch.testing.assert_close(found, conv.standardised_weight())
    torch.testing.assert_close(backward(given), right)


@pytest.mark.parametrize("options", [{"dropout": 0.3}, {"dropout_weights": 0.3}, {"head": "masked", "pooling": "mean"}])
def test_what_draws_is_done_as_a_whole(options: dict[str, Any]) -> None:
    """And the trial has drawn nothing: the step has the bits of one without it."""
    found, step = gradients("ViT-nano/7", "bfloat16", parts=THREADS, **options)
    assert step.beside == 1
    step._divides = False
    assert torch.equal(found[0], step._gradients_that_fit(*batch(), seed=0))


class Mixing(nn.Module):
    """Each image's logits depend on the others."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.body, self.norm, self.head = nn.Linear(784, 16), norm, nn.Linear(16, 5)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        x_BD = self.norm(self.body(x_BCHW.flatten(1)))
        return self.head(x_BD - x_BD.mean(0) if isinstance(self.norm, nn.Identity) else x_BD)


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(16), nn.Identity()])
def test_images_that_see_each_other_are_not_divided(norm: nn.Module) -> None:
    working = Working(Mixing(norm).train(), "bfloat16", parts=THREADS)
    assert not side_by_side.divides(working.model, working, batch()[0], parts=THREADS)


def test_float32_and_one_thread_do_as_they_did() -> None:
    for dtype, threads in (("float32", THREADS), ("bfloat16", 1)):
        assert gradients("ViT-nano/7", dtype, parts=threads)[1].beside == 1


def test_memory_that_runs_out_in_a_part_halves_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, step = gradients("ViT-nano/7", "bfloat16", parts=THREADS)
    most, whole = 2, step.both_ways

    def short(x_bCHW: Tensor, labels_b: Tensor, **more: Any) -> Tensor:
        if len(labels_b) > most:
            raise torch.OutOfMemoryError("out of memory")
        return whole(x_bCHW, labels_b, **more)

    monkeypatch.setattr(step, "both_ways", short)
    loss = step._gradients_that_fit(*batch(), seed=0)
    assert step.micro_batch == 4 and (loss - wanted[0]).abs() < 4 * ROUNDING * wanted[0]
    most = 0
    with pytest.raises(TooLarge):
        step._gradients_that_fit(*batch(), seed=0)
