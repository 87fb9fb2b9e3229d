"""Which models there are and how they are named is a question with an answer; sums that do not add up are explained."""

from __future__ import annotations

import json

import pytest

from bench import flops
from bench.core import registry
from bench.core.errors import EXIT_OK, UserError


@pytest.mark.parametrize("arguments", [[], ["--list"]])
def test_every_family_says_its_names_and_how_they_are_made(arguments, capsys):
    assert flops.main(arguments) == EXIT_OK
    said = capsys.readouterr().out
    for family in registry.families():
        assert f"{family.FAMILY}: {family.NAMING}\n" in said
    assert set(registry.model_names()) <= set(said.replace(",", " ").split()) and "--paper-table" in said


def test_the_listing_for_machines(capsys):
    assert flops.main(["--list", "--json"]) == EXIT_OK
    found = json.loads(capsys.readouterr().out)
    assert [name for family in found.values() for name in family["names"]] == list(registry.model_names())


def test_a_list_that_is_cut_says_where_the_whole_is():
    with pytest.raises(UserError) as refusal:
        registry.family_of("ViT-nanno/7")
    assert "bench.flops --list" in refusal.value.fix and "…." not in refusal.value.fix


def test_forward_and_backward_that_do_not_add_up_are_explained(capsys):
    assert flops.main(["ViT-pico/14", "--image-size", "28", "--json"]) == EXIT_OK
    counted = json.loads(capsys.readouterr().out)
    assert counted["backward_flops"]["dense"] < 2 * counted["forward_flops"]["dense"]
    assert flops.main(["ViT-pico/14", "--image-size", "28"]) == EXIT_OK
    assert "backward as counted leaves out the gradient of the image" in capsys.readouterr().out
