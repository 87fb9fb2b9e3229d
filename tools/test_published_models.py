"""The instrument that writes the tables of published networks: its counts again, and what it says of an update."""

from importlib.metadata import version

import pytest

from baselines.published import timm_costs
from bench.published import public_models
from tools import published_models


def recounted(rows):
    for row in rows:
        name, size = row["counted_as"], int(row["image_size"])
        assert published_models.counted_as(row["arch"], size) == name or name == row["arch"]
        assert published_models.count(name, size) == (int(row["macs_dense"]), int(row["macs_paper"])), row["arch"]


def test_committed_macs_are_counted_again():
    recounted(public_models.read("timm_macs")[7::90])


PARTS = 8


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS))
def test_all_committed_macs_are_counted_again(part):
    """At sizes of their own too: those that a row of results or a stage of training needs. All parts with a timm that
    they were not counted with; the first part with the one that they were (`tools.published_models --recount 446`)."""
    if part and f"counted here from timm {version('timm')} " in (public_models.FOLDER / "SOURCES.md").read_text():
        pytest.skip("counted whole with this timm before")
    recounted(public_models.read("timm_macs")[part::PARTS])
    elsewhere = {(row["arch"], int(row["image_size"])) for row in public_models.read("timm_macs")}
    for arch, size in sorted(published_models.needed() - elsewhere)[part::PARTS]:
        row = timm_costs.table()[arch]
        assert int(row["image_size"]) == size
        assert published_models.count(arch, size) == (int(row["macs_dense"]), int(row["macs_paper"])), arch


def test_what_an_update_changes_is_said():
    before = {("a", "224"): {"top1": "80"}, ("b", "224"): {"top1": "70"}, ("c", "224"): {"top1": "60"}}
    after = {("a", "224"): {"top1": "80"}, ("b", "224"): {"top1": "71"}, ("d", "384"): {"top1": "90"}}
    said = list(published_models.changes(before, after))
    assert said == ["changed: b at 224 (top1 70 -> 71)", "gone: c at 224", "new: d at 384", "1 changed, 1 gone, 1 new"]
    assert list(published_models.changes(after, after)) == ["nothing changed"]
