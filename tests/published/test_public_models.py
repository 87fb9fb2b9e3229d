"""Published networks: costs computed again from the committed files by other code, and beside others' numbers."""

import csv
import dataclasses
import json
import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import bench
from baselines.published import timm_costs
from bench.core.errors import EXIT_FAILED, EXIT_OK
from bench.published import public_models, training_stages
from bench.published.training_stages import PublishedRecipe, problems, stages
from tests.house.structure import PROJECT

FOLDER = PROJECT / "baselines/published"
IMAGES = {"in1k": 1_281_167, "in21k": 14_197_122}
MODELS = ("net_a.sup_in1k", "net_b.e300_in1k")
GOOD = PublishedRecipe(
    pattern=r"net_a\.sup_in1k",
    stages="in21k:90@224 | in1k:20000x512@own",
    kind="sup",
    uncounted="",
    batch="4096",
    confidence="verbatim",
    source="owner/name@commit:README.md",
    note="",
)


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return public_models.table()


def rows_of(name: str) -> list[dict[str, str]]:
    with open(FOLDER / f"{name}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_line_of_recipes_is_valid_and_matches_a_checkpoint():
    models = [row["model"] for row in rows_of("timm_results")]
    wrong = {r.pattern: problems(r, models, images=public_models.images_of_sets()) for r in public_models.recipes()}
    assert not {pattern: reasons for pattern, reasons in wrong.items() if reasons}


def test_no_checkpoint_has_two_recipes():
    models = {row["model"] for row in rows_of("timm_results")}
    patterns = [re.compile(row["pattern"]) for row in rows_of("recipes")]
    assert not [model for model in models if sum(bool(p.fullmatch(model)) for p in patterns) > 1]


def test_every_training_cost_is_recomputed_from_the_files(table):
    """By exact fractions and another parser; all rows that have a recipe, both conventions."""
    images = {row["name"]: int(row["images"]) for row in rows_of("sets")}
    own = {row["model"]: row["own_size"] for row in rows_of("timm_results")}
    macs = {(n, row["image_size"]): row for n, row in timm_costs.table().items() if row["macs_dense"]}
    macs |= {(row["arch"], row["image_size"]): row for row in rows_of("timm_macs")}
    done = 0
    for line in rows_of("recipes"):
        for row in table[table["stages"] == line["stages"]].to_dict("records"):
            match = re.fullmatch(line["pattern"], row["model"])
            if match is None:
                continue
            totals = dict.fromkeys(("macs_dense", "macs_paper", "before", "seen"), Fraction(0))
            before, _, after = line["stages"].format(**match.groupdict()).partition(" | ")
            for part, tuned in [(p, False) for p in before.split()] + [(p, True) for p in after.split()]:
                part, _, passes = part.partition("*")
                upstream, _, rest = part.partition(":")
                amount, _, size = rest.partition("@")
                if amount.endswith("i"):
                    seen = Fraction(amount[:-1])
                elif "x" in amount:
                    seen = Fraction(amount.split("x")[0]) * Fraction(amount.split("x")[1])
                else:
                    seen = Fraction(amount) * images[upstream]
                seen *= int(passes or 1)
                cost = macs[row["arch"], own[row["model"]] if size == "own" else size]
                for key in ("macs_dense", "macs_paper"):
                    totals[key] += 6 * seen * int(cost[key])
                totals["before"] += 0 if tuned else 6 * seen * int(cost["macs_dense"])
                totals["seen"] += seen
            columns = {
                "macs_dense": "train_exaflops",
                "macs_paper": "train_exaflops_paper",
                "before": "pretrain_exaflops",
            }
            for key, column in columns.items():
                assert row[column] == pytest.approx(float(totals[key] / 10**18), rel=1e-12), (row["model"], column)
            assert row["images_seen"] == pytest.approx(float(totals["seen"]), rel=1e-12)
            done += 1
    assert done == (table["stages"] != "").sum() == table["train_exaflops"].notna().sum() > 800


def test_costs_are_where_others_found_them():
    """The 53 checks: each number of ours differs from the published one by as much as the table says and explains."""
    clip = public_models.table("clip").set_index("model")["train_exaflops"]
    for row in rows_of("checks"):
        convention = ("dense", "paper").index(row["convention"])
        if row["arch"].startswith("clip:"):
            ours = clip[row["arch"].removeprefix("clip:")]
        elif row["unit"] == "GMACs":
            ours = public_models.macs(row["arch"], int(row["stages"].removeprefix("@")))[convention] / 1e9
        else:
            recipe = dataclasses.replace(GOOD, pattern=".*", stages=row["stages"])
            done = stages(recipe, "", own_size=0, images=public_models.images_of_sets())
            ours = training_stages.exaflops(
                done, lambda size, of=row["arch"], at=convention: public_models.macs(of, size)[at]
            )
        difference = 100 * (ours / float(row["published"]) - 1)
        assert difference == pytest.approx(float(row["difference_percent"]), abs=0.06), row["what"]
        assert row["source"]
        if row["source"].startswith("ViT paper"):
            assert abs(difference) < 2.1 if row["note"] else abs(difference) < 1
        elif "open_clip" in row["source"]:
            assert abs(difference) < 0.05
        elif "peak" in row["unit"]:  # a utilisation between 5 and 70 %
            assert -95 < difference < -30
        elif "infer_gmacs" in row["note"]:
            assert abs(difference) < 6


def test_columns_are_described_and_complete(table):
    for name in public_models.TABLES:
        made = public_models.table(name)
        assert set(made.columns) <= set(public_models.COLUMNS)
        assert made["model"].ne("").all()
        assert not np.isinf(made.select_dtypes("number").to_numpy(dtype=float)).any()
    assert set(table.columns) >= {"family", "licence", "source", "complete", "teacher"}
    assert not table.duplicated(["model", "image_size"]).any()
    assert table["family"].ne("").all()
    assert table[["gmacs", "gmacs_paper", "in1k_top1"]].notna().all().all()
    assert (table["gmacs_paper"] <= table["gmacs"]).all()
    known = table[table["stages"] != ""]
    assert known[["source", "confidence", "pretrain_set", "pretrain_group"]].ne("").all().all()
    assert not known.loc[known["uncounted"].str.contains("fine-tuning"), "complete"].any()
    assert known.loc[~known["uncounted"].str.contains("fine-tuning"), "complete"].all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"source": " "}, "No source"),
        ({"confidence": "guess"}, "'guess' is none of verbatim, derived"),
        ({"kind": "sup+magic"}, "'magic' is none of"),
        ({"uncounted": "teecher"}, "'teecher' is none of"),
        ({"stages": "in21k:90@224"}, "do not end on ImageNet-1k"),
        ({"stages": "in21k:90 | in1k:1@224"}, "'in21k:90' is not SET:AMOUNT@SIZE"),
        ({"stages": "in22:90@224 | in1k:1@224"}, "'in22' is not in sets.csv"),
        ({"stages": "in1k:{epochs}@224"}, "no group 'epochs'"),
        ({"stages": "in1k:0@224"}, "trains on nothing"),
        ({"stages": "in1k:many@224"}, "cannot be read"),
        ({"stages": "in1k:90@224 |"}, "nothing follows"),
        ({"stages": "| in1k:90@224"}, "no stage of pre-training"),
        ({"stages": ""}, "no stage of pre-training"),
        ({"pattern": "net_c"}, "matches no known checkpoint"),
        ({"pattern": "net_("}, "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(change, said):
    reasons = problems(dataclasses.replace(GOOD, **change), MODELS, images=IMAGES)
    assert len(reasons) == 1
    assert said in reasons[0]


def test_a_good_line_has_nothing_wrong():
    assert problems(GOOD, MODELS, images=IMAGES) == []
    lower_bound = dataclasses.replace(GOOD, stages="in21k:90@224", uncounted="fine-tuning")
    assert problems(lower_bound, MODELS, images=IMAGES) == []


def answer(capsys, name):
    from bench.commands import check

    code = check.main([f"recipe:{name}", "--json"])
    (line,) = json.loads(capsys.readouterr().out)
    assert code == (EXIT_OK if line["met"] else EXIT_FAILED)
    return line["met"], line["detail"]


def test_a_line_is_checked_by_name(capsys, monkeypatch):
    met, said = answer(capsys, "convnext_tiny.fb_in1k")
    assert met
    assert said.startswith("10.27 exaFLOPs")
    assert "facebookresearch/ConvNeXt" in said
    assert answer(capsys, "vit_large_patch14_clip_224.openai_ft_in1k")[1].startswith("at least 6")
    name = "resnet50d.ra2_in1k"
    assert not answer(capsys, name)[0] and not answer(capsys, "convnext_tiny.nobody")[0]
    own = [dataclasses.replace(GOOD, pattern=r"resnet50d\.ra2_in1k", stages="in1k:100@999", confidence="derived")]
    monkeypatch.setattr(public_models, "recipes", lambda: own)
    assert "tools.published_models" in answer(capsys, name)[1]
    own[0] = dataclasses.replace(own[0], stages="in1k:100@224")
    assert answer(capsys, name)[0]
    own.append(dataclasses.replace(own[0], pattern=r"resnet50d\..*"))
    assert "matches it too" in answer(capsys, name)[1]


def test_the_papers_points_are_the_papers_tables():
    """Accuracies and printed exaFLOPs of `paper.csv` beside `table5` and `table6`; epochs beside `table3`."""
    six = {(row["name"], row["epochs"]): row for row in rows_of("table6_scaling")}
    five = {(row["pretrain"], row["dataset"]): row for row in rows_of("table5_by_pretraining_dataset")}
    sets = {"in1k": "ImageNet", "in21k": "ImageNet-21k", "jft300m": "JFT-300M"}
    done = {"5": 0, "6": 0}
    for row in rows_of("paper"):
        name, epochs, _, _, number = row["model"].rstrip(")").split()
        upstream = row["stages"].partition(":")[0]
        assert row["stages"] == f"{upstream}:{epochs}@224"
        if number == "6":
            printed = six[name, epochs]
            assert upstream == "jft300m"
            wanted = printed["ImageNet"], printed["ReaL"], printed["exaFLOPs"]
        else:
            wanted = (*(five[sets[upstream], test][name] for test in ("ImageNet", "ImageNet-ReaL")), "")
            assert epochs in {"in1k": ("300",), "in21k": ("90",), "jft300m": ("7", "14")}[upstream]
        assert [float(value or 0) for value in wanted] == [
            float(row[column] or 0) for column in ("in1k_top1", "real_top1", "printed_exaflops")
        ]
        done[number] += 1
    assert done["6"] == len(six)
    assert done["5"] == sum(
        bool(value) for (_, test), row in five.items() if test == "ImageNet" for value in list(row.values())[2:]
    )


def test_stages_are_read():
    recipe = dataclasses.replace(
        GOOD,
        pattern=r"net_b\.e(?P<epochs>\d+)_in1k",
        stages="in21k:34e9i@224 in1k:{epochs}@192*3 | in1k:20000x512@own",
    )
    first, second, third = stages(recipe, MODELS[1], own_size=384, images=IMAGES)
    assert (first.images_seen, first.image_size, first.fine_tuning) == (34e9, 224, False)
    assert (second.images_seen, second.image_size) == (3 * 300 * IMAGES["in1k"], 192)
    assert (third.images_seen, third.image_size, third.fine_tuning) == (20_000 * 512, 384, True)


def test_the_citation_names_the_version_of_the_tables_and_the_commits_of_their_sources():
    cited, sources = (PROJECT / "CITATION.cff").read_text(), (public_models.FOLDER / "SOURCES.md").read_text()
    assert f'version: "{public_models.VERSION}"' in cited
    assert f"version: {bench.__version__}" in cited
    commits = re.findall(r"commit: (\w+)", cited)
    assert len(commits) == 2
    assert all(f"@{commit}" in sources for commit in commits)
