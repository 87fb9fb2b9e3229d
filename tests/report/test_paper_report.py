"""The report of the paper's own tables, and the verb's options: published points, results kept elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bench.report.__main__ import main as report_main
from tests.analysis._records import World, write
from tests.report.test_report import Page


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    results = tmp_path_factory.mktemp("results")
    assert report_main(["--suite", "paper", "--results", str(results), "--json"]) == 0
    return results / "paper"


def test_figures_tables_and_claims_of_the_paper(paper: Path) -> None:
    for name in ("compute", "pretraining-data", "groups", "laws"):
        assert all((paper / "figures" / f"{name}.{end}").exists() for end in ("png", "svg", "csv")), name
    text = (paper / "report.html").read_text()
    Page(text)
    for part in ("Quoted from arXiv 2010.11929 v2", "nothing was run here", "The paper's claims", "Fitted laws",
                 "python -m bench.report --suite paper"):  # fmt: skip
        assert part in text, part
    assert "bench.run" not in text and "took 0 s" not in text
    assert "The paper's claims" in (paper / "report.md").read_text()


def test_every_claim_has_a_verdict_and_every_law_its_card(paper: Path) -> None:
    findings = json.loads((paper / "findings.json").read_text())
    assert len(findings["claims"]) >= 3
    assert all(claim["verdict"] in ("yes", "no", "cannot tell") for claim in findings["claims"])
    text = (paper / "report.html").read_text()
    for card in json.loads((paper / "fits.json").read_text()):
        assert card["family"] in text and card["card"]["formula"] in text
        for key in ("starts", "objective", "software", "dropped"):
            assert key in card["card"]


def test_a_report_with_published_points_says_how_to_make_it(tmp_path: Path) -> None:
    world = World(seed=3)
    world.models = {k: world.models[k] for k in ("ViT-nano/7", "ResNet-small")}
    world.sizes, world.seeds, world.draws, world.shots = (30_000,), (0,), (0,), (1,)
    write([replace(record, suite="synthetic") for record in world.records()], tmp_path / "synthetic")
    options = ["--suite", "synthetic", "--results", str(tmp_path), "--reference", "paper"]
    assert report_main([*options, "--into", str(tmp_path / "kept"), "--json"]) == 0
    assert not (tmp_path / "synthetic" / "report.html").exists()
    text = (tmp_path / "kept" / "report.html").read_text()
    assert "--reference paper" in text
    assert ",published," in (tmp_path / "kept" / "figures" / "compute.csv").read_text()
    assert len(list((tmp_path / "kept" / "cells").glob("*/record.json"))) == len(world.records())
