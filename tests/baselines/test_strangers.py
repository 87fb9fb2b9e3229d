"""Networks that keep tensors, or ask them for values: looked at by shapes, they are the same networks afterwards."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from baselines._caches import forget_meta
from bench.cost import crosscheck, flops, receptive_field
from bench.study import registry
from tests.conftest import PROJECT
from tools.strangers import networks

SIZES = {"image_size": 16, "channels": 3}

NETWORKS = '''
import functools
import torch
from torch import nn


@functools.lru_cache(maxsize=10)
def index(length):  # as transformers' BEiT keeps it
    return torch.arange(length - 1, -1, -1)


class Cached(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.body, self.head = nn.Linear(3 * 16 * 16, 8), nn.Linear(8, num_classes)

    def forward(self, x):
        return self.head(self.body(x.flatten(1))[:, index(8)])


class Linspace(nn.Module):
    """The commonest line of research ViTs, and a step that depends on values."""

    def __init__(self, num_classes, drop=0.1):
        super().__init__()
        self.rates = [x.item() for x in torch.linspace(0, drop, 3)]
        self.body, self.last = nn.Linear(3 * 16 * 16, 8), nn.Linear(8, num_classes)

    def forward(self, x):
        x = self.body(x.flatten(1))
        for rate in self.rates:
            if torch.rand(1) >= rate or not self.training:
                x = x + 0.0
        return self.last(x)


class InForward(Linspace):
    def __init__(self, num_classes):
        nn.Module.__init__(self)
        self.rates = [0.0]
        self.body, self.last = nn.Linear(3 * 16 * 16, 8), nn.Linear(8, num_classes)

    def forward(self, x):
        return super().forward(x + 0 * float(x.flatten()[0]))


class Positions(nn.Module):
    """As vit-pytorch's SimpleViT keeps them: neither parameter nor buffer."""

    def __init__(self, num_classes):
        super().__init__()
        self.positions = torch.linspace(0, 1, 3 * 16 * 16)
        self.last = nn.Linear(3 * 16 * 16, num_classes)

    def forward(self, x):
        x = x.flatten(1)
        return self.last(x + self.positions.to(x.device, dtype=x.dtype))


class Wrong(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.last = nn.Linear(7, num_classes)

    def forward(self, x):
        return self.last(x.flatten(1))
'''


@pytest.fixture
def named(tmp_path):
    (tmp_path / "strange.py").write_text(NETWORKS)
    return lambda name: f"{tmp_path / 'strange.py'}:{name}"


def test_what_a_network_has_kept_of_the_meta_device_is_forgotten(named):
    """A kept index without values reads rubbish, in silence, in every later pass."""
    for look in (
        lambda name: flops.count(name, num_classes=4, **SIZES),
        lambda name: registry.build_model(name, num_classes=4, **SIZES),
        lambda name: receptive_field.of_model(name, **SIZES),
        lambda name: crosscheck.crosscheck(name, num_classes=4, **SIZES),
    ):
        look(named("Cached"))
        model = registry.build_model(named("Cached"), num_classes=4, **SIZES).eval()
        images = torch.rand(2, 3, 16, 16)
        body = model.body.body(images.flatten(1)).flip(1)  # the index, as it is defined
        assert torch.equal(model(images), model.head(body))


def test_only_caches_with_tensors_of_the_meta_device_are_emptied():
    import functools

    calls = []

    @functools.cache
    def made(device):
        calls.append(device)
        return {"kept": [torch.zeros(2, device=device)]}

    @functools.lru_cache(maxsize=4)
    def one(device):
        calls.append(device)
        return torch.zeros(2, device=device)

    for make in (made, one):
        calls.clear()
        make("cpu")
        forget_meta()
        make("cpu")
        assert calls == ["cpu"]
        make("meta")
        forget_meta()
        make("cpu")
        assert calls == ["cpu", "meta", "cpu"]


@pytest.mark.parametrize("name", ["Linspace", "InForward"])
def test_a_network_that_asks_for_values_is_counted_by_a_real_pass(named, name):
    """Its MACs are those of its two linear layers."""
    cost = flops.count(named(name), num_classes=4, **SIZES)
    assert cost.forward_macs["dense"] == 3 * 16 * 16 * 8 + 8 * 4
    assert cost.activation_bytes > 0 and cost.num_features == 8
    assert cost.params == sum(p.numel() for p in registry.build_model(named(name), num_classes=4, **SIZES).parameters())
    three = crosscheck.crosscheck(named(name), num_classes=4, **SIZES)
    assert not three.differs, three.sentence()
    assert receptive_field.of_model(named(name), **SIZES).pixels is None


def test_fvcore_follows_a_network_that_keeps_a_plain_tensor(named):
    three = crosscheck.crosscheck(named("Positions"), num_classes=4, **SIZES)
    assert three.fvcore_agrees, three.sentence()


def test_a_real_pass_takes_no_random_number(named):
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    flops.count.__wrapped__(named("Linspace"), num_classes=4, **SIZES)
    assert torch.equal(torch.rand(1), expected)


def test_a_network_that_cannot_run_is_refused_in_its_own_words(named):
    with pytest.raises(registry.UserError, match="mat1 and mat2"):
        flops.count(named("Wrong"), num_classes=4, **SIZES)


BEIT = """
import transformers
from torch import nn


class Beit(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        config = transformers.BeitConfig(
            image_size=32, patch_size=8, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=32, num_labels=num_classes, use_relative_position_bias=True,
        )
        self.network = transformers.BeitForImageClassification(config)

    def forward(self, x):
        return self.network(x).logits
"""


def test_beit_of_transformers_is_the_same_after_it_was_counted(tmp_path):
    """It keeps the index of its relative positions by the grid's size alone."""
    pytest.importorskip("transformers")
    (tmp_path / "hf.py").write_text(BEIT)
    name = f"{tmp_path / 'hf.py'}:Beit"
    sizes = {"image_size": 32, "channels": 3}
    flops.count(name, num_classes=4, **sizes)
    torch.manual_seed(0)
    model = registry.build_model(name, num_classes=4, **sizes).eval()
    images = torch.rand(4, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(model(images)[:1], model(images[:1]), rtol=1e-4, atol=1e-5)
    from transformers.models.beit import modeling_beit

    for module in model.modules():
        if isinstance(module, modeling_beit.BeitRelativePositionBias):
            assert not module.generate_relative_position_index((4, 4)).is_meta


@pytest.mark.gate
@pytest.mark.parametrize("network", networks.CACHES)
def test_networks_of_transformers_that_keep_tensors_are_the_same_after_they_were_counted(network, tmp_path):
    """All image networks of the library whose modules hold an `lru_cache`, beside one that never saw this project."""
    pytest.importorskip("transformers")
    file = tmp_path / "strangers.py"
    file.write_text(networks.model_file())
    alone = (
        "import sys, torch; from tools.strangers.networks import made; torch.manual_seed(0); "
        f"net = made({network!r}, 4).eval(); x = torch.rand(2, 3, 64, 64); "
        "print(net(x).flatten().tolist())"
    )
    done = subprocess.run([sys.executable, "-c", alone], cwd=PROJECT, capture_output=True, text=True, check=True)
    flops.count(f"{file}:{network}", num_classes=4, image_size=64, channels=3)
    torch.manual_seed(0)
    model = networks.made(network, 4).eval()
    with torch.no_grad():
        logits = model(torch.rand(2, 3, 64, 64)).flatten()
    torch.testing.assert_close(logits, torch.tensor(json.loads(done.stdout)), rtol=1e-4, atol=1e-5)


def test_no_other_image_network_of_transformers_keeps_tensors():
    """A later version may have more; those that detect or segment are built on these."""
    transformers = pytest.importorskip("transformers")
    folder = Path(transformers.__file__).parent / "models"
    classifiers = {
        path.parent.name
        for path in folder.glob("*/modeling_*.py")
        if "lru_cache" in (text := path.read_text()) and "ForImageClassification(" in text
    }
    assert classifiers <= {"beit", "data2vec", "dinov3_vit"}
