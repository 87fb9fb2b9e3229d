"""Which device is chosen, and what is said of it."""

from __future__ import annotations

import pytest
import torch

from bench.core import device
from bench.core.errors import UserError
from tests.gpu.posing import NAME, posing


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Has a driver of the kinds that are asked for."""

    def with_drivers(*kinds):
        there = {name: tmp_path / name.replace(" ", "-") for name in device.DRIVERS.values()}
        for kind in kinds:
            there[kind].touch()
        monkeypatch.setattr(device, "DRIVERS", {str(path): name for name, path in there.items()})

    assert {"/dev/nvidiactl", "/dev/dxg", "/dev/kfd"} == set(device.DRIVERS)
    return with_drivers


@pytest.mark.parametrize("driver", ["an NVIDIA driver", "a GPU under WSL", "an AMD driver"])
def test_any_driver_is_reason_enough_to_ask_torch(machine, driver):
    """Under WSL there is no /dev/nvidiactl."""
    machine(driver)
    with posing():
        assert device.find_device("auto") == ("cuda", f"2 × {NAME}")


def test_a_driver_that_torch_cannot_use_is_named(machine, monkeypatch):
    machine("a GPU under WSL")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    found = device.find_device("auto")
    assert found.device == "cpu" and found.reason.startswith("a GPU under WSL was found, but torch")
    with pytest.raises(UserError, match="torch"):
        device.find_device("cuda")


def test_without_a_driver_it_is_the_cpu_and_torch_is_not_asked(machine, monkeypatch):
    machine()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: pytest.fail("asked"))
    assert device.find_device("auto").device == "cpu" and "no driver" in device.find_device("auto").reason
