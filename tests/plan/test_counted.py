"""Counts that come with the package are those that counting finds, of the paper's networks as their code is now."""

from dataclasses import asdict

import pytest

from bench.plan import calibrate, counted
from bench.plan.estimate import Rates
from tools.counted import networks

COUNTED = [name for name in Rates.__dataclass_fields__ if name not in counted.UNKNOWN]
AGAIN = "python -m tools.counted counts again"


def test_every_network_of_the_paper_is_there_as_its_code_is_now() -> None:
    there = [counted.find(cell, classes) for cell, classes in networks()]
    assert there and None not in there, AGAIN


def test_another_state_of_the_code_has_no_counts(monkeypatch) -> None:
    cell, classes = next(networks())
    assert counted.find(cell, classes) and counted.find(cell, classes + 1) is None
    monkeypatch.setattr(counted.fingerprint, "of_model", lambda name: None)
    assert counted.find(cell, classes) is None


def same(cell, classes) -> bool:
    rates = calibrate.answer(cell, classes, device="cpu", threads=1, measure=False)["rates"]
    known = asdict(counted.find(cell, classes))
    return {name: rates[name] for name in COUNTED} == {name: known[name] for name in COUNTED}


def test_counts_are_found_again() -> None:
    small = [(cell, classes) for cell, classes in networks() if cell.model in ("ViT-b/32", "R50x1")]
    assert len({cell.model for cell, _ in small}) == 2
    assert all(same(*one) for one in small[:2]), AGAIN


@pytest.mark.gate
def test_all_counts_are_found_again() -> None:
    assert all(same(*one) for one in networks()), AGAIN
