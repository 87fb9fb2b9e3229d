"""Networks from outside: timm's and torchvision's own logits and features, files of one's own, and what is refused."""

import re
import socket
import textwrap
import urllib.request

import numpy as np
import PIL
import pytest
import torch
from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from baselines import file
from baselines.published import timm_costs
from bench.core import environment
from bench.core.errors import UserError
from bench.cost import flops
from bench.study import fingerprint, registry
from bench.tasks._finetuner import transferred_model
from tools import timm_table

timm = pytest.importorskip("timm")
torchvision = pytest.importorskip("torchvision")

CREATE = timm.create_model
FEW = ("resnet10t", "convnext_atto", "test_vit")
MANY = (  # small ones of 40 architectures
    "resnet18",
    "resnetv2_18",
    "seresnext26t_32x4d",
    "skresnet18",
    "convnext_atto",
    "convnextv2_atto",
    "vit_tiny_patch16_224",
    "deit_tiny_distilled_patch16_224",
    "swin_tiny_patch4_window7_224",
    "mobilenetv3_small_050",
    "efficientnet_lite0",
    "mnasnet_small",
    "ghostnet_050",
    "regnetx_002",
    "regnety_002",
    "densenet121",
    "dpn48b",
    "mixer_s32_224",
    "gmlp_ti16_224",
    "resmlp_12_224",
    "xcit_nano_12_p16_224",
    "levit_128s",
    "poolformer_s12",
    "pvt_v2_b0",
    "coat_lite_tiny",
    "convit_tiny",
    "crossvit_tiny_240",
    "edgenext_xx_small",
    "efficientformerv2_s0",
    "mobilevit_xxs",
    "mobileone_s0",
    "repvgg_a0",
    "rexnet_100",
    "tinynet_e",
    "twins_svt_small",
    "visformer_tiny",
    "hardcorenas_a",
    "selecsls42",
    "dla46_c",
    "fastvit_t8",
    "tiny_vit_5m_224",
    "eva02_tiny_patch14_224",
    "beit_base_patch16_224",
    "caformer_s18",
)


def agrees(name: str, image_size: int) -> None:
    """Ours is timm's: initial weights, logits, features, its checkpoints, and FLOPs by torch's counter."""
    sizes = {"image_size": image_size, "channels": 3, "num_classes": 7}
    torch.manual_seed(0)
    ours = registry.build_model(f"timm:{name}", **sizes).eval()
    size = ours.own_input.input_size
    torch.manual_seed(0)
    try:
        theirs = timm.create_model(name, num_classes=7, img_size=size).eval()
    except TypeError:
        theirs = timm.create_model(name, num_classes=7).eval()
    x_BCHW = torch.rand(2, 3, image_size, image_size, generator=torch.Generator().manual_seed(1))
    enlarged = F.interpolate(2 * x_BCHW - 1, size=(size, size), mode="bilinear")  # the same, where that is its size
    mean, std = (torch.tensor(theirs.default_cfg[key]).view(3, 1, 1) for key in ("mean", "std"))
    z_BCHW = ours.own_input(2 * x_BCHW - 1)
    torch.testing.assert_close(z_BCHW, ((enlarged + 1) / 2 - mean) / std, rtol=0, atol=2e-6)

    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        assert ours(x_BCHW).shape == (2, 7)
        torch.testing.assert_close(ours(2 * x_BCHW - 1), theirs(z_BCHW), rtol=1e-6, atol=1e-6)  # initial weights
        for parameter in theirs.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.02)
        ours.load_own(theirs.state_dict())
        if ours.head is not None:
            ours.head.load_state_dict(theirs.get_submodule(ours._path).state_dict())
        else:
            ours.body.load_state_dict(theirs.state_dict())
        wanted = theirs.forward_head(theirs.forward_features(z_BCHW), pre_logits=True)
        torch.testing.assert_close(ours(2 * x_BCHW - 1), theirs(z_BCHW), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(ours.features(2 * x_BCHW - 1), wanted, rtol=1e-6, atol=1e-6)
        assert wanted.shape == (2, ours.num_features) and wanted.std() > 0
    theirs.to("meta")  # on a CPU the counter knows no fused attention
    with torch.enable_grad(), FlopCounterMode(display=False) as counter:
        theirs(z_BCHW[:1].to("meta"))
    counted = flops.count(f"timm:{name}", **sizes, activations=False)
    assert counted.forward_flops["dense"] == pytest.approx(counter.get_total_flops(), rel=1e-3)
    assert counted.params == sum(parameter.numel() for parameter in theirs.parameters())


@pytest.mark.parametrize("name", FEW)
def test_timms_logits_features_and_flops(name):
    agrees(name, 32)


@pytest.mark.nightly
@pytest.mark.parametrize("name", MANY)
def test_timms_logits_features_and_flops_of_many_architectures(name):
    agrees(name, 64)


def test_many_are_of_many_architectures():
    assert len({registry.family_label(f"timm:{name}") for name in MANY}) >= 30


@pytest.mark.parametrize("name", ["resnet18", "squeezenet1_0"])
def test_torchvisions_logits(name):
    torchvision = pytest.importorskip("torchvision")
    if name == "squeezenet1_0":  # its last layer is a convolution before pooling
        with pytest.raises(UserError, match="features cannot be found"):
            registry.build_model(f"torchvision:{name}", image_size=64, channels=3, num_classes=7)
        return
    torch.manual_seed(0)
    ours = registry.build_model(f"torchvision:{name}", image_size=32, channels=1, num_classes=7).eval()
    torch.manual_seed(0)
    theirs = torchvision.models.get_model(name, num_classes=7).eval()
    grey_B1HW = torch.rand(2, 1, 32, 32)
    normalise = torchvision.transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    normalised = normalise(grey_B1HW.expand(-1, 3, -1, -1))
    with torch.no_grad():
        torch.testing.assert_close(ours(2 * grey_B1HW - 1), theirs(normalised), rtol=1e-5, atol=1e-5)
    assert registry.family_label(f"torchvision:{name}") == "torchvision:resnet"


@pytest.mark.parametrize(
    "name, message",
    [
        ("timm:convnext_ato", "did you mean timm:convnext_atto"),
        ("torchvision:resnet19", "did you mean"),
        ("timm:local-dir:/nowhere", "config.json"),
        ("nowhere.py:Net", "there is no file"),
        ("ViT-B_16", "timm:NAME"),
    ],
)
def test_names_that_nothing_stands_behind(name, message):
    with pytest.raises(UserError) as refusal:
        registry.check_model(name)
    assert message in str(refusal.value)


# -- a checkpoint of timm's ------------------------------------------------------------------------------------------


def test_a_checkpoint_saved_by_timm_is_probed_with_one_line(verb, tmp_path):
    torch.manual_seed(3)
    network = timm.create_model("test_resnet", num_classes=5)
    torch.save({"state_dict": network.state_dict()}, tmp_path / "net.pth")
    timm.models.save_for_hf(network, tmp_path / "saved")
    probed = ("--image-size", "32", "--data", "digits", "--shots", "5", "--draws", "1", "--option", "test_limit=100")
    one = verb("probe", "--model", "timm:test_resnet", "--checkpoint", "net.pth", *probed)
    other = verb("probe", "--model", "timm:local-dir:saved+pretrained", *probed)
    assert one.returncode == other.returncode == 0, one.stderr + other.stderr
    values = [re.findall(r"\d+\.\d%", done.stdout) for done in (one, other)]
    assert values[0] == values[1] and "untrained" not in one.stdout + other.stdout
    wrong = verb("probe", "--model", "timm:resnet10t", "--checkpoint", "net.pth", *probed)
    assert wrong.returncode == 2 and "does not fit the network" in wrong.stderr


def test_weights_that_are_not_here_are_refused_with_those_that_are(monkeypatch, tmp_path):
    from huggingface_hub import constants

    place = tmp_path / "models--timm--resnet10t.c3_in1k" / "snapshots" / "abc"
    place.mkdir(parents=True)
    (tmp_path / "models--timm--resnet18.a1_in1k").mkdir()  # begun, and not fetched
    (place / "model.safetensors").write_bytes(b"")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    file = torchvision.models.ResNet18_Weights.DEFAULT.url.rpartition("/")[2]
    (tmp_path / "hub" / "checkpoints" / file).write_bytes(b"")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(timm, "create_model", lambda *_, pretrained=False, **__: absent(pretrained))
    with pytest.raises(UserError, match="not on this machine") as refusal:
        registry.build_model("timm:test_vit+pretrained", image_size=160, channels=3, num_classes=5)
    assert "timm:resnet10t.c3_in1k+pretrained, torchvision:resnet18+pretrained. " in refusal.value.fix


def absent(pretrained):
    if pretrained:
        raise OSError("no network")
    return CREATE("test_vit", num_classes=5)


def test_a_trained_network_goes_on_at_another_size():
    """Fine-tuning: timm's own resizing of position tables, else the same body; a classifier of zeros."""
    sizes = {"channels": 3, "num_classes": 3}
    for name in ("timm:test_vit", "timm:test_resnet"):
        old = registry.build_model(name, image_size=160, **sizes)
        new = transferred_model(old, name, image_size=96, channels=3, num_classes=5).eval()
        assert not new(torch.rand(1, 3, 96, 96)).any() and new.head.out_features == 5
        state = new.body.state_dict()
        same = {key for key, value in old.body.state_dict().items() if torch.equal(value, state[key])}
        assert set(state) - same == ({"pos_embed"} if "vit" in name else set())
    model = registry.build_model("timm:deit_tiny_distilled_patch16_224", image_size=32, **sizes)
    with pytest.raises(UserError, match="cannot be fine-tuned at 32 px: its classifier is not one layer"):
        transferred_model(model, "timm:deit_tiny_distilled_patch16_224", image_size=32, **sizes)


# -- files -----------------------------------------------------------------------------------------------------------

FILE = """
    from torch import nn
    from net_parts import block

    class Plain(nn.Module):
        def __init__(self, num_classes, channels=3, width=8):
            super().__init__()
            self.block = block(channels, width)
            self.out = nn.Linear(width, num_classes)
        def forward(self, x):
            return self.out(self.block(x).mean((2, 3)))

    class Full(Plain):
        def __init__(self, num_classes, channels):
            super().__init__(num_classes, channels)
            self.num_features, self.head = 8, self.out
            del self.out
        def features(self, x):
            return self.block(x).mean((2, 3))
        def forward(self, x):
            return self.head(self.features(x))

    def without_classes():
        return Plain(10)

    class NoLinear(Plain):
        def forward(self, x):
            return super().forward(x).softmax(-1)
"""
PARTS = "from torch import nn\ndef block(a, b):\n    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.ReLU())\n"


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A file with networks; the name of one of them."""
    (tmp_path / "net.py").write_text(textwrap.dedent(FILE))
    (tmp_path / "net_parts.py").write_text(PARTS)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    monkeypatch.delitem(__import__("sys").modules, "net_parts", raising=False)
    yield lambda target: f"{tmp_path}/net.py:{target}"
    __import__("sys").modules.pop("net_parts", None)
    for cached in (fingerprint._read, fingerprint._counts, environment.version):
        cached.cache_clear()


@pytest.mark.parametrize("target", ["Plain", "Full"])
def test_a_network_of_ones_own_with_and_without_the_contract(own, target):
    model = registry.build_model(own(target), image_size=12, channels=1, num_classes=4).eval()
    x_BCHW = torch.rand(3, 1, 12, 12)
    features = model.features(x_BCHW)
    assert model.num_features == 8 and features.shape == (3, 8)
    torch.testing.assert_close(model.head(features), model(x_BCHW))
    assert flops.count(own(target), image_size=12, channels=1, num_classes=4).params == 8 * 9 + 8 + 8 * 4 + 4
    assert registry.family_label(own(target)) == target
    assert model.state_dict().keys() == {key for key, _ in model.named_parameters()}, "nothing is kept twice"


@pytest.mark.parametrize(
    "target, message",
    [
        ("without_classes", "no parameter num_classes"),
        ("NoLinear", "features cannot be found"),
        ("Plan", "it has Plain"),
    ],
)
def test_what_is_wrong_with_a_network_is_said_by_name_and_file(own, target, message):
    with pytest.raises(UserError) as refusal:
        flops.count(own(target), image_size=12, channels=1, num_classes=4)
    assert message in str(refusal.value) and "net.py" in str(refusal.value)


def test_a_change_of_the_file_of_what_it_imports_or_of_a_package_is_noticed(own, tmp_path, monkeypatch):
    def now(name):
        for cached in (fingerprint._read, fingerprint._counts, environment.version):
            cached.cache_clear()
        return fingerprint.of_model(name)

    first = now(own("Plain"))
    (tmp_path / "net_parts.py").write_text(PARTS.replace("ReLU", "GELU"))
    assert now(own("Plain")).differing(first) == ["net_parts"]
    (tmp_path / "net.py").write_text("import timm\nfrom PIL import Image\n" + textwrap.dedent(FILE))
    third = now(own("Plain"))
    assert third.modules["timm"] == f"version {timm.__version__}"
    assert third.modules["PIL"] == f"version {PIL.__version__}", "whose distribution has another name"
    upgraded = lambda package: "99.0"  # noqa: E731
    monkeypatch.setattr("importlib.metadata.version", upgraded)
    assert now(own("Plain")).differing(third) == ["PIL", "timm"]
    monkeypatch.undo()
    mine = now("timm:resnet18")
    monkeypatch.setattr("importlib.metadata.version", upgraded)
    assert now("timm:resnet18").differing(mine) == ["timm"] and now("timm:resnet18").digest != mine.digest


# -- the table ---------------------------------------------------------------------------------------------------------


def test_the_table_is_what_timm_has_and_torch_counts():
    rows = timm_costs.table()
    counted = [row for row in rows.values() if not row["why_not"]]
    assert len(rows) > 1_000 and len(counted) > 0.95 * len(rows)
    ours = np.array([2.0 * int(row["macs_dense"]) for row in counted])
    np.testing.assert_allclose(ours, [float(row["torch_flops"]) for row in counted], rtol=1e-3)
    assert all(int(row["macs_paper"]) <= int(row["macs_dense"]) for row in counted)
    if timm_table.heading().partition(";")[0] == f"# {timm_costs.heading()}".partition(";")[0]:
        assert set(rows) == set(timm.list_models())
    name = "test_vit"
    row = {key: str(value) for key, value in timm_table.row(name).items()}
    assert row == {key: value for key, value in rows[name].items() if key in row}
    cost = flops.count(f"timm:{name}", image_size=int(row["image_size"]), num_classes=int(row["num_classes"]))
    costs = (cost.params, cost.forward_macs["dense"], cost.forward_macs["paper"], cost.activation_bytes)
    assert costs == tuple(int(row[key]) for key in ("params", "macs_dense", "macs_paper", "activation_bytes"))


@pytest.mark.parametrize(("proxies", "known"), [({}, False), ({}, True), ({"https": "http://proxy.test:3128"}, False)])
def test_the_hub_is_asked_only_where_its_name_is_known(proxies, known, monkeypatch):
    """Without a network its library asks for every file six times, in half a minute."""
    asked = []

    def look_up(host, *_):
        asked.append(host)
        if not known:
            raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "https://mirror.test/hub")
    monkeypatch.setattr(urllib.request, "getproxies", lambda: proxies)
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    offline = []

    def create(*given, pretrained=False, **how):
        if pretrained:
            offline.append(constants.HF_HUB_OFFLINE)
            raise LocalEntryNotFoundError("no such file")
        return CREATE(*given, **how)

    monkeypatch.setattr(timm, "create_model", create)
    with pytest.raises(UserError, match="not on this machine and cannot be fetched"):
        registry.build_model("timm:resnet10t.c3_in1k+pretrained", image_size=64, channels=3, num_classes=7)
    assert offline == [not known and not proxies] and asked == ([] if proxies else ["mirror.test"])
    assert not constants.HF_HUB_OFFLINE  # what asks it later asks anew


def test_a_file_named_by_its_whole_path_has_no_folder_in_results(tmp_path, monkeypatch):
    """Results are published; where their user keeps files is nobody's business, and study.toml says it."""
    here, there = tmp_path / "here", tmp_path / "alice" / "there"
    for folder, channels in ((here, 3), (there, 5)):
        folder.mkdir(parents=True)
        (folder / "net.py").write_text(
            f"from torch import nn\ndef Net(num_classes): return nn.Conv2d(1, {channels}, 1)\n"
        )
    monkeypatch.chdir(here)
    monkeypatch.setenv(file.FOLDERS, "")
    named = f"{there}/net.py:Net"
    assert file.without_folder([named, "ViT-pico/7", "sub/other.py:Net"]) == [
        "net.py:Net",
        "ViT-pico/7",
        "sub/other.py:Net",
    ]
    assert file.source("net.py:Net") == there / "net.py"  # not the one that happens to be here
    with pytest.raises(UserError, match=r"here/net\.py are both called net\.py"):
        monkeypatch.setenv(file.FOLDERS, "")
        registry.as_named_in_results((named, "net.py:Net"))
