"""Studies whose points do not belong in one law are refused; weak ones are warned of."""

from __future__ import annotations

from typing import Any

from bench.analysis import law_preconditions as validity
from bench.analysis import validity as checks
from bench.analysis.evidence import build
from bench.analysis.study_data import Records
from bench.core import registry
from bench.core.spec import Recipe
from bench.report import findings, fits
from bench.report.build import _data_kinds
from bench.train import schedule
from tests.analysis._records import HEADLINE, World
from tests.analysis._study import read


def records(**recipe: Any) -> list[dict[str, Any]]:
    world = World(seed=1)
    world.sizes = (30_000,)
    made = world.records()
    for record in made:
        record["cell"]["recipe"] |= {"cooldown": 0.2, "warmup_images": 500, **recipe}
    return made


def said(made: list[dict[str, Any]], name: str) -> list[str]:
    return [check.text for check in checks.run(read(made)) if check.name == name]


def test_mid_schedule_beside_annealed_points_is_refused() -> None:
    made = records()
    assert said(made, "refused") == []
    for record in made:
        if record["cell"]["model"] == "ViT-mini/7":
            record["cell"]["recipe"]["cooldown"] = 0.0
    (text,) = said(made, "refused")
    assert text.startswith("No law for ViT") and "not cooled down" in text
    evidence = read(made)
    assert "ViT" not in {card["family"] for card in fits.cards(evidence)}
    assert any("ViT" in reason and "cooled down" in reason for reason in fits.missing(evidence))


def test_different_pre_training_data_are_not_one_law() -> None:
    made = records()
    for record in made:
        if record["cell"]["model"] == "ViT-mini/7":
            record["cell"]["data"] = record["data"]["name"] = "photo-tiles"
    (text,) = said(made, "refused")
    assert text.startswith("No law for ViT") and "different data sets (glyphs and photo-tiles)" in text
    duel = next(f for f in findings.compared(read(made))[0] if f.subject == "ViT or ResNet")
    assert duel.evidence and not any("mini" in row["first"] for row in duel.evidence)  # compared on equal data


def test_a_flop_unit_mix_up_is_refused_by_model() -> None:
    made = records()
    for record in made:
        if record["cell"]["model"] == "ResNet-base":  # forward alone
            for horizon in record["horizons"]:
                horizon["train_flops"] = {name: value / 3 for name, value in horizon["train_flops"].items()}
    (text,) = said(made, "refused")
    assert "No law for ResNet" in text and "ResNet-base: compute is 0.33 times" in text


def test_an_under_swept_learning_rate_and_a_long_warm_up_are_warned_of() -> None:
    swept = []
    for rate, lift in ((1e-3, 0.0), (3e-3, 0.05), (1e-2, 0.1)):
        for record in records(lr=rate):
            record["directory"] += f"-{rate}"
            for horizon in record["horizons"]:
                for score in (s for s in horizon["scores"] if s["task"] == "upstream"):
                    score["value"] = min(0.999, score["value"] + lift)
            swept.append(record)
    (text,) = said(swept, "learning rate")
    assert "best 0.01 of 0.001 to 0.01" in text
    assert said(records(), "learning rate") == [] == said(records(), "warm-up")
    assert "short runs look worse" in said(records(warmup_images=2_000), "warm-up")[0]
    assert validity.units(read(records()).points.values()) == []


def test_a_warm_up_is_warned_of_as_long_as_it_was() -> None:
    """Training caps it: 6,000 of 8,000 images were asked for, a quarter was done."""
    recipe = Recipe(batch=64, warmup_images=6_000)
    share = schedule.warmup_steps(recipe, (8_000, 24_000)) / schedule.total_steps(8_000, 64)
    assert f"up to {share:.0%} of" in said(records(warmup_images=6_000), "warm-up")[0]


def test_old_records_read_what_a_data_set_says_now() -> None:
    """Scanned digits are no photographs: what a set shows is its file's to say, not the record's."""
    kinds = _data_kinds()
    written = {name for name in kinds if "handwritten" in registry.load("data set", name).DESCRIPTION}
    assert {"mnist", "digits"} <= written and {kinds[name] for name in written} == {"handwriting"}
    evidence = build(Records(suite="s", records=tuple(records())), headline=HEADLINE,
                     data_kinds={**kinds, "glyphs": "handwriting"})  # fmt: skip
    assert evidence.name("mnist") == "mnist (handwriting)" and evidence.name("digits") == "digits (handwriting)"
    assert evidence.name("upstream") == "Upstream: glyphs (handwriting)"  # the records say "rendered"
    assert evidence.name("finetune@56px:photo-tiles:56px") == "finetune@56px:photo-tiles:56px (photographs)"
    assert evidence.name("folder:pets") == "folder:pets (own images)"
    assert evidence.name("linear:unheard-of") == "linear:unheard-of"


def test_an_untrained_network_stands_for_every_size_of_its_data() -> None:
    """Cells of the data-size axis read no horizon 0: the same network was measured on the compute axis."""
    world = World(seed=1)
    world.sizes = (3_000, 30_000)
    made = world.records()
    for record in made:
        if record["cell"]["num_images"] == 3_000:
            record["horizons"] = [h for h in record["horizons"] if h["images_seen"]]
    assert said(made, "missing baseline") == []
    for record in made:
        if record["cell"]["model"] == "ViT-nano/7":
            record["horizons"] = [h for h in record["horizons"] if h["images_seen"]]
    assert "untrained network of ViT-nano/7." in said(made, "missing baseline")[0]
