"""Every kind of model against two independent counters, and what `bench.flops --check` says of a difference."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from bench import flops
from bench.core import registry
from bench.core.errors import EXIT_FAILED, EXIT_OK, UserError
from bench.cost import crosscheck
from bench.cost.flops import count_forward
from tests.cost.test_flops import KNOWN

# Others of test_flops.KNOWN are compared with torch's counter there; of fvcore they are the same operations.
ALSO = {"ViT-Ti/16", "ViT-B/16", "R50x1", "R+ViT-Ti/16", "R26+ViT-S/32"}
NAMES = tuple(name for name in registry.model_names() if name != "pixels" and (name in ALSO or name not in KNOWN))
SIZES = (56, 64, 96, 112, 128)  # the smallest that a model takes: the method is what is checked
LARGE = re.compile(r"ViT-[BLHgG]/")  # of many equal blocks, two


def on_meta(name: str, **options: int) -> tuple[nn.Module, int]:
    """The model without weights, and an image size it takes."""
    for size in SIZES:
        try:
            sizes = {"image_size": size, "channels": 3, "num_classes": 10}
            return crosscheck.on_meta(name, **sizes, model_options=tuple(options.items()))[0], size
        except UserError:
            continue
    raise AssertionError(f"{name} takes none of {SIZES} px")


@pytest.mark.parametrize("name", NAMES)
def test_torch_and_fvcore_count_the_same(name: str) -> None:
    model, size = on_meta(name, **({"depth": 2} if LARGE.search(name) else {}))
    images = torch.empty(1, 3, size, size, device="meta")
    counted = count_forward(model, images)
    logits = model(images)
    with FlopCounterMode(display=False) as backward:
        logits.sum().backward()
    assert 2 * counted.backward["dense"] == backward.get_total_flops()
    assert counted.total("paper") <= counted.total("dense")
    for module in model.modules():
        if hasattr(module, "standardised_weight"):  # elementwise work on every weight, which is not counted anyway
            module.standardised_weight = lambda _dtype, module=module: module.weight  # type: ignore[assignment]
    three = crosscheck.compare(model, images)
    assert sum(three.ours.values()) == counted.total("dense")
    assert three.ours == three.torch == three.fvcore and not three.missed
    assert sum(three.beyond.values()) + sum(three.fvcore.values()) == three.by_module[""]
    assert three.params[""] == sum(parameter.numel() for parameter in model.parameters())


ODD = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.fc = nn.Linear(28, num_classes)

    def forward(self, x):
        {line}
        return self.fc(x.mean((1, 2)))
"""


@pytest.mark.parametrize(
    ("line", "agrees", "missed"),
    [
        ("x = x @ x", True, []),
        ("x = torch.baddbmm(x[:, 0], x[:, 0], x[:, 0])[:, None]", False, ["aten::baddbmm"]),
        ("assert not torch.jit.is_tracing(), 'only eagerly'", None, []),
    ],
)
def test_the_command_says_which_counters_agree_and_why_not(line, agrees, missed, tmp_path: Path, capsys) -> None:
    (tmp_path / "odd.py").write_text(ODD.format(line=line))
    asked = [f"{tmp_path}/odd.py:Net", "--image-size", "28", "--channels", "1", "--classes", "10", "--check"]
    assert flops.main([*asked, "--json"]) == (EXIT_FAILED if agrees is False else EXIT_OK)
    check = json.loads(capsys.readouterr().out)["check"]
    assert check["agree"] == {"torch": True, "fvcore": agrees}
    assert check["missed_by_fvcore"] == missed and ("only eagerly" in check["why_not"]) == (agrees is None)
    flops.main(asked)
    assert all(name in capsys.readouterr().out for name in missed)
