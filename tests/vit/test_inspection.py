"""Measures of a network's inside, and their figures."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from bench.commands import look_inside, probe
from bench.core.errors import UserError
from bench.report import __main__ as report
from bench.report import inspections
from bench.store import weights
from bench.study import registry
from vit import inspection
from vit.layers import Attention

# -- attention distance and roll-out on attention whose answers are known in closed form; capturing against computing --


GRID, PATCH = (3, 5), (4, 7)
PATCHES = GRID[0] * GRID[1]


def attention(weights_NN: torch.Tensor) -> torch.Tensor:
    """One image, two heads alike."""
    return weights_NN.expand(1, 2, -1, -1)


def shift(k: int) -> torch.Tensor:
    """Every patch attends to the one k columns to the right, around the edge."""
    rows, columns = GRID
    to = [r * columns + (c + k) % columns for r in range(rows) for c in range(columns)]
    return torch.eye(PATCHES)[to]


def distance(weights_NN: torch.Tensor) -> list[float]:
    return inspection.attention_distance(attention(weights_NN), grid=GRID, patch=PATCH).tolist()


STEPS = [math.hypot(PATCH[0] * (a // 5 - b // 5), PATCH[1] * (a % 5 - b % 5)) for a in range(15) for b in range(15)]
DISTANCES = {
    "to oneself": (torch.eye(PATCHES), 0.0, 1e-12),
    # columns - k of the columns go k to the right, the other k go columns - k to the left
    **{f"shift {k}": (shift(k), 2 * k * (GRID[1] - k) / GRID[1] * PATCH[1], 1e-12) for k in (1, 2, 3)},
    "uniform": (torch.full((PATCHES, PATCHES), 1 / PATCHES), sum(STEPS) / len(STEPS), 1e-6),
}


@pytest.mark.parametrize("weights_NN, expected, rel", DISTANCES.values(), ids=DISTANCES)
def test_distance_of_attention(weights_NN: torch.Tensor, expected: float, rel: float) -> None:
    assert distance(weights_NN) == pytest.approx([expected] * 2, rel=rel, abs=0)


def test_distance_of_uniform_attention_along_a_line() -> None:
    length, patch = 9, 7
    weights = torch.full((1, 1, length, length), 1 / length)
    measured = inspection.attention_distance(weights, grid=(1, length), patch=(4, patch))
    # mean |i - j| over all pairs of 1..n is (n^2 - 1) / (3 n)
    assert measured.item() == pytest.approx(patch * (length**2 - 1) / (3 * length), rel=1e-7)


def test_a_class_token_is_left_out_of_distances() -> None:
    weights = torch.zeros(PATCHES + 1, PATCHES + 1)
    weights[0, 0] = 1
    weights[1:, 0] = 0.75  # what is left goes one column on
    weights[1:, 1:] = 0.25 * shift(1)
    assert distance(weights) == pytest.approx(distance(shift(1)), rel=1e-12)


def roll(layers: list[torch.Tensor], *, cls: bool = False, grid: tuple[int, int] = GRID) -> torch.Tensor:
    return inspection.rollout([attention(w) for w in layers], grid=grid, cls=cls)[0]


def test_rollout_of_identity_and_of_uniform_attention() -> None:
    tokens = PATCHES + 1
    uniform = torch.full((tokens, tokens), 1 / tokens)
    # whatever the layers: half stays, half is spread evenly, so that all patches enter the class token equally
    torch.testing.assert_close(roll([uniform] * 3, cls=True), torch.full(GRID, 1 / PATCHES, dtype=torch.float64))
    torch.testing.assert_close(roll([torch.eye(PATCHES)] * 3), torch.full(GRID, 1 / PATCHES, dtype=torch.float64))


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_rollout_of_shifts_is_binomial(layers: int) -> None:
    """The class token attends to patch 0, which attends to patch 1, and so on: half stays in every layer."""
    tokens = 8
    chain = torch.eye(tokens)[[(i + 1) % tokens for i in range(tokens)]]
    share = [math.comb(layers, m) / 2**layers for m in range(1, layers + 1)] + [0.0] * (tokens - 1 - layers)
    rollout = roll([chain] * layers, cls=True, grid=(1, tokens - 1))[0]
    expected = torch.tensor(share, dtype=torch.float64) / sum(share)
    torch.testing.assert_close(rollout, expected)


def test_rollout_multiplies_later_layers_from_the_left() -> None:
    first, second = torch.eye(4)[[0, 2, 3, 1]], torch.eye(4)[[1, 0, 2, 3]]
    # token 0 looks at 1 in the second layer, and 1 at 2 in the first: a quarter reaches 2, a quarter stays at 1
    rollout = roll([first, second], cls=True, grid=(1, 3))[0]
    torch.testing.assert_close(rollout, torch.tensor([0.5, 0.5, 0.0], dtype=torch.float64))


@pytest.mark.parametrize(
    "name", ["ViT-pico/7", "ViT-pico/7:pooling=cls", "ViT-pico/7:position=relative", "R5+ViT-pico/14"]
)
def test_captured_attention_is_the_attention_used(name: str) -> None:
    torch.manual_seed(0)
    model = registry.build_model(name, image_size=28, channels=1, num_classes=3).eval()
    x_BCHW = torch.randn(4, 1, 28, 28)
    passed: list[tuple[Any, torch.Tensor, torch.Tensor]] = []  # module, input, output
    with torch.inference_mode():
        before = model.features(x_BCHW)
        hooks = [
            m.register_forward_hook(lambda m, args, output: passed.append((m, args[0], output)))
            for m in model.modules()
            if isinstance(m, Attention)
        ]
        with inspection.captured(model) as layers:
            assert torch.equal(model.features(x_BCHW), before)  # capturing changes nothing
        for hook in hooks:
            hook.remove()
        assert torch.equal(model.features(x_BCHW), before) and len(layers) == len(passed) == 3  # and ends
        for weights_BHNN, (module, x_BND, output_BND) in zip(layers, passed, strict=True):
            torch.testing.assert_close(weights_BHNN.sum(-1), torch.ones(weights_BHNN.shape[:-1]))
            assert (module.output(weights_BHNN @ module.project(x_BND)[2]) - output_BND).abs().max() < 1e-6
    assert not any(module._forward_hooks for module in model.modules())


def test_principal_components_are_scikit_learns() -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    torch.manual_seed(0)
    filters = torch.randn(20, 3, 4, 4, dtype=torch.float64)
    ours, shares = inspection.principal_components(filters, 5)
    theirs = decomposition.PCA(5, svd_solver="full").fit(filters.flatten(1).numpy())
    assert shares.numpy() == pytest.approx(theirs.explained_variance_ratio_)
    assert abs((ours.flatten(1).numpy() * theirs.components_).sum(1)) == pytest.approx([1.0] * 5)


# -- `vit-bench probe --draw` and `bench.report --cell`: figures of weights as a run keeps them, for reports to find ---


def checkpoint(folder: Path, name: str, size: int = 28) -> Path:
    torch.manual_seed(1)
    sizes = {"image_size": size, "channels": 1, "num_classes": 3}
    path = folder / "final.safetensors"
    weights.write(path, registry.build_model(name, **sizes).state_dict(), {**sizes, "model": name, "data": "digits@20"})
    return path


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("R5+ViT-pico/14:position=learned-1d", {"filters", "positions", "distance", "rollout"}),
        ("AxialViT-pico/7:position=none", {"filters"}),
        ("R8x0.125-s2", {"filters"}),
    ],
)
def test_what_a_model_allows_is_drawn(name: str, kinds: set[str], tmp_path: Path, capsys) -> None:
    study = tmp_path / "study"
    given = ["--checkpoint", str(checkpoint(tmp_path, name)), "--data", "fashion-mnist"]
    assert probe.main([*given, "--draw", str(study / inspections.INSPECTED)]) == 0
    figures = inspections.read(study)
    assert {figure.name.rpartition("-")[2] for figure in figures} == kinds
    assert all(figure.folder == inspections.INSPECTED and figure.png[:4] == b"\x89PNG" for figure in figures)
    assert ("not drawn" in capsys.readouterr().err) == (len(kinds) < 4)
    for figure in figures:
        table = pd.read_csv(study / inspections.INSPECTED / f"{figure.name}.csv")
        assert set(table["state"]) == set(look_inside.STATES)

    drawn = study / inspections.INSPECTED / f"{figures[0].name}.svg"
    drawn.write_text(drawn.read_text()[:500])
    with pytest.raises(UserError, match="cannot be read"):
        inspections.read(study)


def test_no_weights_is_a_users_mistake(tmp_path: Path, capsys) -> None:
    assert report.main(["--cell", str(tmp_path)]) != 0
    assert "no weights" in capsys.readouterr().err
