"""Records into tables: damaged ones are named, newer ones refused, nothing is silently dropped."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from bench.analysis import study_data
from bench.analysis.check import checks
from bench.report.tables import scores_csv
from tests.analysis._records import World, change, map_scores, write
from tests.analysis._study import read


@pytest.fixture
def results(tmp_path: Path) -> Path:
    world = World()
    world.sizes, world.draws = (30_000,), (0, 1)
    return write([*world.records()[:4], world.diverged(), world.pixels()], tmp_path / "scaling")


def test_all_are_read_in_order(results: Path) -> None:
    loaded = study_data.load(results)
    names = [record.directory for record in loaded.records]
    assert names == sorted(names) and len(names) == 6 and loaded.suite == "scaling"


def test_a_damaged_record_is_named_and_left_out(results: Path) -> None:
    path = sorted(results.glob("cells/*/record.json"))[1]
    text = path.read_text()
    path.write_text(text.replace("0.31", "0.99", 1))
    loaded = study_data.load(results)
    assert len(loaded.records) == 5
    assert loaded.damaged[0].directory == path.parent.name and "digest" in loaded.damaged[0].reason
    assert str(results) not in loaded.damaged[0].reason
    path.write_text(text[: len(text) // 2])
    assert "JSON" in study_data.load(results).damaged[0].reason


def test_an_unfinished_cell_is_listed(results: Path) -> None:
    path = sorted(results.glob("cells/*/record.json"))[0]
    path.unlink()
    assert study_data.load(results).unfinished == (path.parent.name,)


def test_tables_hold_every_horizon_and_score() -> None:
    made = World().records()
    horizons, scores = study_data.horizon_table(made), study_data.score_table(made)
    assert len(horizons) == sum(len(r.horizons) for r in made)
    assert len(scores) == sum(len(h.scores) for r in made for h in r.horizons)
    assert horizons["train_flops_paper"].dtype == "float64"  # products of counts overflow 64-bit integers
    assert set(scores["measure"]) == {"fashion-mnist", "mnist", "digits", "upstream"}
    assert study_data.horizon_table([]).empty and study_data.score_table([]).empty


def test_seeds_are_repeats_and_recipes_are_not() -> None:
    a, b = World().records()[:2]
    assert study_data.variant_of(a) == study_data.variant_of(b)
    b = change(b, {"cell.recipe.lr": 0.003})
    assert study_data.variant_of(a) != study_data.variant_of(b)
    assert study_data.variant_of(a, but_for=["lr"]) == study_data.variant_of(b, but_for=["lr"])
    assert set(study_data.horizon_table([a, b])["series"]) == {"ViT-nano/7 (lr 0.001)", "ViT-nano/7 (lr 0.003)"}


def test_seeds_are_pooled_only_where_their_warm_up_was_the_same() -> None:
    made = World(seed=1).records()[1]
    of = {
        (revision, horizons): study_data.variant_of(
            change(
                replace(made, revisions={**made.revisions, "recipe": revision}),
                {"cell.horizons": horizons, "cell.recipe.warmup_images": 2_000},
            )
        )
        for revision in (2, 3)
        for horizons in ((0, 4_000, 64_000), (0, 64_000), (32_000,))
    }
    assert of[2, (0, 64_000)] == of[2, (32_000,)] != of[2, (0, 4_000, 64_000)]
    assert len({name for (revision, _), name in of.items() if revision == 3}) == 1


def test_a_missing_score_is_missing_not_zero() -> None:
    made = [
        map_scores(r, lambda _, s: replace(s, value=None, stderr=None) if s.data == "mnist" else s)
        if r.cell.model == "ViT-nano/7"
        else r
        for r in World().records()
    ]
    evidence = read(made)
    nano = next(s for s in evidence.series if s.label == "ViT-nano/7")
    assert evidence.estimate(nano.last, "mnist") is None
    assert evidence.estimate(nano.last, "headline") is None  # never an average over fewer tasks
    assert evidence.estimate(nano.last, "fashion-mnist") is not None


@pytest.mark.parametrize("recorded", [None, 0.02])
def test_only_an_accuracy_has_a_binomial_error(recorded) -> None:
    made = [
        map_scores(r, lambda _, s: replace(s, metric="purity", value=1.5, stderr=recorded) if s.data == "mnist" else s)
        for r in World().records()
    ]
    sampled = study_data.samples(study_data.horizon_table(made), study_data.score_table(made))
    errors = {key[2]: one.image_error for key, one in sampled.items()}
    assert errors["mnist purity"] == pytest.approx(recorded or math.nan, nan_ok=True)
    assert errors["fashion-mnist"] > 0


def test_checks_speak_up() -> None:
    world = World()
    world.seeds, world.horizons = (0,), (0, 8_000, 16_000)
    made_up = [*world.records(), world.diverged()]
    made_up[0] = change(
        made_up[0],
        {
            "environment.commit": "f" * 40,
            "environment.cpu": "Another CPU",
            "environment.accelerator": "A GPU",
            "execution.dtype": "bfloat16",
            "execution.threads": 4,
        },
    )
    made = checks(read(made_up))
    wanted = {"one seed", "unsuccessful", "repeated data", "narrow compute"}
    assert wanted <= {check.kind for check in made}
    mixed = {check.names[0] for check in made if check.kind == "mixed"}
    assert mixed == {"commit", "cpu", "dtype", "threads"}  # one cell names an accelerator, the others had none


def test_a_clean_study_gets_no_warning_about_seeds_or_commits(evidence) -> None:
    alarming = {"one seed", "mixed", "unsuccessful"}
    assert not alarming & {check.kind for check in checks(evidence)}


def test_other_metrics_are_kept_apart_from_accuracy() -> None:
    """A second metric of the same task goes to scores.csv; it is neither averaged nor drawn."""
    made = []
    for record in World().records():
        extra = map_scores(
            record, lambda _, s: replace(s, metric="accuracy_fixed", value=0.1) if s.task == "fewshot" else None
        )
        pairs = zip(record.horizons, extra.horizons, strict=True)
        made.append(replace(record, horizons=tuple(replace(h, scores=h.scores + e.scores) for h, e in pairs)))
    evidence = read(made)
    assert evidence.measures == ("fashion-mnist", "mnist", "digits", "upstream")
    assert "mnist accuracy_fixed" in evidence.all_measures and "mnist accuracy_fixed" in scores_csv(evidence)
    assert evidence.estimate(evidence.series[0].last, "mnist").value > 0.3


def test_a_number_that_a_score_lacks_is_missing_alone() -> None:
    (record, *_) = World().records()
    whole = study_data.score_table([record])
    lacking = map_scores(record, lambda h, s: replace(s, chance=None) if h.images_seen == 0 and s.draw == 0 else s)
    table = study_data.score_table([lacking])
    assert table["chance"].isna().sum() == 9 and whole["chance"].notna().all()
    assert table.drop(columns="chance").equals(whole.drop(columns="chance"))
