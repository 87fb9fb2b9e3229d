"""`vit-bench published`: what it answers, and what it refuses."""

import json
import subprocess
import sys

import pandas as pd
import pytest

from bench import api
from bench.core.errors import UserError
from bench.published.commands import published
from tests.house.structure import PROJECT
from tests.house.test_structure import BLOCK_TORCH

TABLE = pd.DataFrame(
    {
        "model": ["small.x", "middle.x", "middle.y", "large.x", "unknown.x"],
        "arch": ["small", "middle", "middle", "large", "unknown"],
        "family": ["ViT", "ViT", "ResNet", "ViT", "ViT"],
        "train_exaflops": [1.0, 10.0, 5.0, 100.0, float("nan")],
        "in1k_top1": [70.0, 80.0, 75.0, 79.0, 90.0],
        "complete": [True, True, False, True, False],
    }
)
COST = {"cost": "train_exaflops", "measure": "in1k_top1"}


def asked(*words: str) -> dict:
    """The command's answer as JSON, in a process where torch cannot be imported."""
    code = f"{BLOCK_TORCH}\nfrom bench.__main__ import main\nsys.exit(main(['published', *sys.argv[1:]]))"
    done = subprocess.run([sys.executable, "-c", code, *words, "--json"], capture_output=True, text=True, cwd=PROJECT)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.gate
def test_the_cheapest_ways_come_first_with_their_source_and_without_torch():
    rows = asked("--reach", "85%", "--by", "train", "--where", "complete and not teacher")["rows"]
    costs = [row["train_exaflops"] for row in rows]
    assert costs == sorted(costs)
    assert all(row["in1k_top1"] >= 85 and row["source"] and row["complete"] and not row["teacher"] for row in rows)
    everything = api.published()
    chosen = everything[(everything.in1k_top1 >= 85) & everything.complete & ~everything.teacher]
    assert len(rows) == len(chosen)
    assert rows[0]["train_exaflops"] == chosen.train_exaflops.min()


def test_an_accuracy_is_a_percentage_or_a_share():
    assert {published.parser().parse_args(["--reach", said]).reach for said in ("85%", "85", "0.85")} == {85.0}
    assert published.parser().parse_args(["--reach", "0.85%"]).reach == 0.85


def test_an_expression_selects_what_pandas_selects():
    table = api.published()
    selected = published.where(table, "family == 'ViT' and pretrain_images > 1e7 and image_size in [224, 384]")
    expected = table[(table.family == "ViT") & (table.pretrain_images > 1e7) & table.image_size.isin([224, 384])]
    pd.testing.assert_frame_equal(selected, expected)
    assert len(published.where(TABLE, "not complete")) == 2
    assert list(published.where(TABLE, "train_exaflops * 2 > 15 | ~complete").model) == list(TABLE.model[1:])


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "model.str.len() > 3",
        "model.__class__ == 1",
        "train_exaflops[0] > 1",
        "@published > 1",
        "`model` == 'a'",
        "(lambda: 1)() == 1",
        "[x for x in model] == 1",
        "10 ** 10 ** 10 > in1k_top1",
        "'a' * 1000000000 == model",
        "in1k_top1 > 1; import os",
        "x := 3",
        "in1k_top1 >",
        "in1k_top1",
        "1 < 2",
        "family > 3",
        "(" * 500 + "in1k_top1 > 1" + ")" * 500,
        "in1k_top1 > 1 and " * 200 + "complete",
        "",
        "\0",
    ],
)
def test_what_is_no_condition_on_columns_is_refused(expression):
    with pytest.raises(UserError):
        published.where(TABLE, expression)


def test_a_cost_that_a_table_has_not_is_named_as_it_was_typed(capsys):
    assert published.main(["--table", "paper", "--by", "inference", "--reach", "60%"]) != 0
    assert "no cost of inference" in (said := capsys.readouterr().err) and "--by: train, images." in said


def test_a_lower_bound_is_never_best_and_is_marked(capsys):
    rows = published.frontier(TABLE, **COST)
    assert dict(zip(rows.model, rows.best, strict=True)) == {
        "small.x": True,
        "middle.y": False,
        "middle.x": True,
        "large.x": False,
    }
    published.main(["--where", "not complete and stages != ''", "--limit", "3"])
    lines = [line for line in capsys.readouterr().out.splitlines() if ".fb_dist_in1k" in line]
    assert lines
    assert all("≥" in line and "*" not in line for line in lines)


@pytest.mark.gate
def test_like_shows_the_model_among_its_neighbours():
    rows, _ = published.like(TABLE, "timm:middle.x", number=3, **COST)
    assert list(rows.model) == ["small.x", "middle.y", "middle.x"]
    assert list(rows.asked) == [False, False, True]
    bounded = TABLE.fillna({"train_exaflops": 6.0})  # at least so much, for 90 %
    said = published.like(bounded, "middle", number=3, **COST)[1]
    assert "80 % in in1k_top1 at 10 " in said and "of 2 rows known to cost as much or less, 0 have more" in said
    bound = published.like(bounded.assign(params_m=5.0), "unknown", number=3, **COST | {"measure": "params_m"})[1]
    assert "has 5 in params_m at ≥ 6 train" in bound
    answer = asked("--like", "timm:convnext_tiny", "--limit", "9")["rows"]
    assert len(answer) == 9
    several = asked("--table", "clip", "--like", "ViT-B-32", "--limit", "5")["rows"]  # of more than five recipes
    for rows in (answer, several):
        assert any(row["asked"] for row in rows) and not all(row["asked"] for row in rows)


@pytest.mark.parametrize("table", ["checkpoints", "clip", "paper"])
def test_every_table_can_be_asked(table, capsys):
    assert published.main(["--table", table]) == 0
    assert "train_exaflops" in capsys.readouterr().out


@pytest.mark.gate
def test_comparisons_are_shown_and_the_uncontrolled_one_says_so(capsys):
    assert published.main(["--compare"]) == 0
    headings = [line for line in capsys.readouterr().out.splitlines() if "at equal ImageNet top-1 error" in line]
    comparisons = asked("--compare")
    assert [bool(each["differs"]) for each in comparisons] == ["NOT controlled" in line for line in headings]
    assert all(f"{each['ratios'][-1]['ratio']:.2f}" in line for each, line in zip(comparisons, headings, strict=True))
