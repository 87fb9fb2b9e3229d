"""Studies whose points do not belong in one law are refused; weak ones are warned of; costs add up."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bench.analysis import lr_sweep, questions, scaling_laws, study_data
from bench.analysis.check import checks, say
from bench.analysis.evidence import build
from bench.analysis.findings import Level, ValidityCheck
from bench.analysis.study_data import Records
from bench.report.build import _data_kinds, measured
from bench.study import registry
from bench.study.cell import RECIPE_REVISION
from bench.study.record import Horizon, Operations, Record, Score
from bench.train import schedule
from bench.train.effective import LAST_CAPPED_REVISION
from bench.validity import size_at_edge, support_images
from tests.analysis._records import HEADLINE, World, change, map_scores
from tests.analysis._study import ask, read

REFERENCE = Path(__file__).parents[2] / "results" / "reference"
KEPT = Path(__file__).parents[1] / "records"
REFUSALS = ("no law: points not cooled down", "no law: several data sets", "no law: units of compute")


def records(**recipe: Any) -> list[Record]:
    world = World(seed=1)
    world.sizes = (30_000,)
    used = {"cooldown": 0.2, "warmup_images": 500, **recipe}
    return [change(r, {f"cell.recipe.{name}": value for name, value in used.items()}) for r in world.records()]


def of_model(made: list[Record], model: str, changes: dict[str, Any]) -> list[Record]:
    return [change(r, changes) if r.cell.model == model else r for r in made]


def found(made: list[Record], *kinds: str) -> list[ValidityCheck]:
    return [check for check in checks(read(made)) if check.kind in kinds]


def test_mid_schedule_beside_annealed_points_is_refused() -> None:
    made = records()
    assert found(made, *REFUSALS) == []
    made = of_model(made, "ViT-mini/7", {"cell.recipe.cooldown": 0.0})
    (check,) = found(made, *REFUSALS)
    assert (check.kind, check.names, check.count) == ("no law: points not cooled down", ("ViT",), 3)
    evidence = read(made)
    assert "ViT" not in scaling_laws.laws(evidence) and scaling_laws.why_not(evidence)["ViT"] == check


def test_different_pre_training_data_are_not_one_law() -> None:
    made = of_model(records(), "ViT-mini/7", {"cell.data": "photo-tiles", "data.name": "photo-tiles"})
    (check,) = found(made, *REFUSALS)
    assert check.names == ("ViT",) and check.groups == (("", ("glyphs", "photo-tiles")),)
    duels = ask(read(made), "best family at equal compute")
    models = {point.first for duel in duels for point in duel.trend if duel.subject[0] == "ViT"}
    assert models and not any("mini" in model for model in models)  # compared on equal data


def test_a_flop_unit_mix_up_is_refused_by_model() -> None:
    made = []
    for record in records():
        if record.cell.model == "ResNet-base":  # forward alone
            rows = [(h, h.train_flops.dense or 0, h.train_flops.paper or 0) for h in record.horizons]
            thirds = [replace(h, train_flops=Operations(dense=a / 3, paper=b / 3)) for h, a, b in rows]
            record = replace(record, horizons=tuple(thirds))
        made.append(record)
    (check,) = found(made, *REFUSALS)
    assert (check.kind, check.names, check.groups) == (
        "no law: units of compute",
        ("ResNet",),
        (("", ("ResNet-base",)),),
    )
    assert check.high == pytest.approx(1 / 3, abs=0.01)
    assert scaling_laws.units_apart(read(records()).points.values()) == []


def test_too_few_points_are_no_warning() -> None:
    made = [replace(r, horizons=r.horizons[:2]) for r in records() if r.model.family in ("ViT", "Pixels")]
    evidence = read(made)
    why = scaling_laws.why_not(evidence)["ViT"]
    assert (why.kind, why.count, why.limit) == ("no law: too few points", 3, 4)
    assert not [check for check in checks(evidence) if check.kind == "no law: too few points"]


def test_fine_tunings_that_chose_an_end_of_their_rates_are_counted_by_model() -> None:
    """Repeats of a choice are one; most of a model's choices at an edge are a warning, trained and untrained apart."""

    def tuned(of: Record, horizon: Horizon, edge: bool) -> Horizon:
        detail = {"rates": [0.1, 0.3, 0.9], "rate": 0.9 if edge else 0.3, "rate_at_edge": edge}
        first = next(s for s in horizon.scores if s.task == "fewshot")
        scores = [
            replace(first, task="finetune", data=data, shots=None, draw=draw, detail=detail)
            for data in HEADLINE
            for draw in (0, 1)
        ]
        return replace(horizon, scores=(*horizon.scores, *scores))

    def with_edges(edge) -> list[Record]:
        made = []
        for r in records():
            rows = [tuned(r, h, edge(r, h)) for h in r.horizons] if r.model.params else list(r.horizons)
            made.append(replace(r, horizons=tuple(rows)))
        return made

    assert found(with_edges(lambda r, h: False), "tuned at edge") == []
    (check,) = found(with_edges(lambda r, h: r.cell.model == "ViT-nano/7" and not h.images_seen), "tuned at edge")
    assert check.groups == (("ViT-nano/7, untrained", ("4 of 4",)),)  # two seeds, two sets
    assert (check.count, check.limit, check.level) == (4, 8 * 2 * 2 * 4, Level.WARNING)
    assert "4 of 128 cases (ViT-nano/7, untrained 4 of 4)" in str(say(check))
    (few,) = found(with_edges(lambda r, h: r.cell.model == "ViT-nano/7" and h.images_seen == 8_000), "tuned at edge")
    assert few.groups == (("ViT-nano/7", ("4 of 12",)),) and few.level == Level.NOTE


def test_an_under_swept_learning_rate_and_a_long_warm_up_are_warned_of() -> None:
    swept = []
    for rate, lift in ((1e-3, 0.0), (3e-3, 0.05), (1e-2, 0.1)):
        for record in records(lr=rate):
            record = replace(record, directory=f"{record.directory}-{rate}")
            swept.append(
                map_scores(
                    record,
                    lambda _, s, lift=lift: (
                        replace(s, value=min(0.999, (s.value or 0) + lift)) if s.task == "upstream" else s
                    ),
                )
            )
    (edge,) = found(swept, "rate at edge")
    assert len(edge.names) == 8
    assert found(records(), "rate at edge", "long warm-up") == []
    assert found(records(warmup_images=2_000), "long warm-up")[0].high == pytest.approx(31 / 125)


def test_a_warm_up_is_warned_of_as_long_as_it_was() -> None:
    """Old revisions capped it: 6,000 of 8,000 images were asked for, a quarter was done."""
    made = [replace(r, revisions={**r.revisions, "recipe": 2}) for r in records(warmup_images=6_000)]
    steps = schedule.longest_warmup((0, 8_000, 24_000), 64)
    assert steps == 31
    share = steps / schedule.total_steps(8_000, 64)
    assert found(made, "long warm-up")[0].high == pytest.approx(share)


def test_runs_that_are_compared_and_were_not_trained_alike_are_warned_of_by_axis() -> None:
    assert found(records(), "unequal recipes") == []
    assert found(of_model(records(), "ViT-mini/7", {"cell.recipe.lr": 1e-2}), "unequal recipes") == []
    changes = {"cell.recipe.warmup_images": 1_000, "cell.recipe.cooldown": 0.3, "cell.recipe.batch": 32}
    checked = found(of_model(records(), "ViT-mini/7", changes), "unequal recipes")
    assert {check.names for check in checked} >= {("compute",)}
    for check in checked:
        assert dict(check.groups) == {
            "warm-up steps": ("8", "31"),
            "batch": ("32", "64"),
            "cool-down share": ("0.2", "0.3"),
        }


def test_an_old_warm_up_counts_as_it_was_done() -> None:
    """Up to revision 2 a cell's shortest budget capped it; the same recipe is one warm-up since."""
    for revision, unequal in ((2, True), (3, False)):
        made = [
            change(replace(r, revisions={**r.revisions, "recipe": revision}), {"cell.horizons": (0, budget, 64_000)})
            for r, budget in zip(records(warmup_images=4_000), itertools.cycle((8_000, 32_000)), strict=False)
        ]
        assert bool(found(made, "unequal recipes")) == unequal


@pytest.mark.parametrize(
    "study, axes",
    [
        ("scaling-of-unequal-warm-ups", {"compute", "data size"}),
        ("crossover-of-unequal-warm-ups", {"compute"}),
        ("branching-of-unequal-warm-ups", {"branching", "compute"}),
    ],
)
def test_studies_of_the_old_rule_are_caught(study: str, axes: set[str]) -> None:
    records = study_data.load(KEPT / study, suite=study.partition("-")[0])
    assert {r.revisions["recipe"] for r in records.records} <= {1, LAST_CAPPED_REVISION}
    checked = [c for c in checks(build(records)) if c.kind == "unequal recipes"]
    assert {c.names[0] for c in checked} == axes
    assert all([name for name, _ in c.groups] == ["warm-up steps"] for c in checked)


def test_the_main_study_differs_in_nothing_but_its_axes() -> None:
    records = study_data.load(REFERENCE / "scaling-cpu", suite="scaling")
    assert {r.revisions["recipe"] for r in records.records} == {RECIPE_REVISION}
    assert not [c for c in checks(build(records)) if c.kind == "unequal recipes"]


def test_old_records_read_what_a_data_set_says_now() -> None:
    """Scanned digits are no photographs: what a set shows is its file's to say, not the record's."""
    kinds = {name: str(registry.load("data set", name).kind) for name in registry.names("data set")}
    used = _data_kinds(Records(suite="s", records=tuple(records())))
    assert {"mnist", "digits"} <= set(used) and used.items() <= kinds.items()
    written = {name for name in kinds if "handwritten" in registry.load("data set", name).description}
    assert {"mnist", "digits"} <= written and {kinds[name] for name in written} == {"handwriting"}
    evidence = build(
        Records(suite="s", records=tuple(records())), headline=HEADLINE, data_kinds={**kinds, "glyphs": "handwriting"}
    )
    assert evidence.name("mnist") == "mnist (handwriting)" and evidence.name("digits") == "digits (handwriting)"
    assert evidence.name("upstream") == "Test accuracy: glyphs (handwriting)"  # the records say "rendered"
    assert evidence.name("finetune@56px:photo-tiles:56px") == "finetune@56px:photo-tiles:56px (photographs)"
    assert evidence.name("folder:pets") == "folder:pets (own images)"
    assert evidence.name("linear:unheard-of") == "linear:unheard-of"


def test_an_untrained_network_stands_for_every_size_of_its_data() -> None:
    """Cells of the data-size axis read no horizon 0: the same network was measured on the compute axis."""

    def trained(record: Record) -> Record:
        return replace(record, horizons=tuple(h for h in record.horizons if h.images_seen))

    world = World(seed=1)
    world.sizes = (3_000, 30_000)
    made = [trained(r) if r.cell.num_images == 3_000 else r for r in world.records()]
    assert found(made, "missing baseline") == []
    made = [trained(r) if r.cell.model == "ViT-nano/7" else r for r in made]
    assert found(made, "missing baseline")[0].names == ("ViT-nano/7",)
    made = [r for r in made if r.model.family != "Pixels"]
    assert found(made, "missing baseline")[0].names == ("raw pixels", "ViT-nano/7")


def test_recipes_that_differ_alike_in_every_family_are_no_difference_between_families() -> None:
    both = "recipes between families", "recipes within families"
    made = records(lr=0.004)
    assert found(made, *both) == []
    made = [change(r, {"cell.recipe.cooldown": 1.0}) if r.cell.seed == 0 else r for r in made]
    (within,) = found(made, *both)
    assert (within.kind, within.names, within.groups) == (
        "recipes within families",
        ("cooldown",),
        (("", ("0.2", "1.0")),),
    )
    made = [change(r, {"cell.recipe.lr": 0.001}) if r.model.family == "ResNet" else r for r in made]
    between = next(c for c in found(made, *both) if c.kind == "recipes between families")
    assert between.names == ("lr",) and ("ResNet", ("0.001",)) in between.groups and len(found(made, *both)) == 2


def probed(support: dict[int, int], *, draws: int = 3, **detail: Any) -> list[Record]:
    """Cells whose few-shot scores on mnist, of 10 classes, used so many images by the number of shots."""
    world = World(seed=1)
    world.sizes, world.draws = (30_000,), tuple(range(draws))

    def of_shots(score: Score, shots: int) -> Score:
        return replace(score, shots=shots, detail={"ridge": 1.0, "num_support": support[shots], **detail})

    def scores(horizon: Horizon) -> tuple[Score, ...]:
        return tuple(of_shots(s, k) for s in horizon.scores if s.data == "mnist" for k in support)

    return [replace(r, horizons=tuple(replace(h, scores=scores(h)) for h in r.horizons)) for r in world.records()]


FEW, SAME = "few images", "same draws"


@pytest.mark.parametrize(
    "support, few, same",
    [
        ({5: 50, 10: 100}, [], []),
        ({1: 10, 10: 97}, [(10, 97, 100, "warning")], []),  # some class has fewer than 10: not known to be the same
        ({10: 100, 25: 150}, [(25, 150, 250, "note")], []),  # 10 shots are shown
        ({5: 50, 10: 100, 25: 100}, [(25, 100, 250, "note")], [("warning", "10", "25")]),
        ({5: 40, 10: 40}, [(10, 40, 100, "warning"), (5, 40, 50, "note")], [("warning", "5", "10")]),
    ],
)
def test_few_shot_draws_from_too_few_images_are_warned_of(support: dict, few: list, same: list) -> None:
    made = checks(read(probed(support)))
    fewer = [(c.high, c.count, c.limit, str(c.level)) for c in made if c.kind == FEW and c.names == ("mnist",)]
    assert sorted(fewer, key=str) == sorted(few, key=str)
    assert [(str(c.level), *c.groups[0][1]) for c in made if c.kind == SAME] == same
    assert not found(probed(support, draws=1), SAME)


def test_draws_that_say_they_are_the_same_images_are_believed() -> None:
    """One number of shots alone does not show it. Captions and intervals do not count them."""
    for detail, draws in (({}, {3}), ({"same_images": True}, {0})):
        assert {e.num_draws for e in read(probed({10: 100}, **detail)).estimates("mnist").values()} == draws
    assert found(probed({10: 100}), FEW, SAME) == [] == found(probed({10: 100}, draws=1, same_images=True), FEW, SAME)
    made = [found(probed({10: 100}, same_images=True), FEW, SAME), found(probed({10: 99}), FEW, SAME)]
    assert [[check.kind for check in checks] for checks in made] == [[SAME], [FEW]]


def test_no_reference_study_draws_from_too_few_images() -> None:
    for study in sorted(REFERENCE.glob("*/cells")):
        assert not list(support_images.find(build(study_data.load(study.parent)))), study


@pytest.mark.parametrize("budgets, warned", [(1, False), (2, True)])
def test_no_trend_is_missed_where_one_budget_was_meant(budgets: int, warned: bool) -> None:
    made = [r for r in records() if r.cell.model == "ViT-mini/7"]
    made = [replace(r, horizons=tuple(h for h in r.horizons if h.images_seen)[:budgets]) for r in made]
    assert made and bool(found(made, "narrow compute")) is warned


def test_a_best_network_at_the_end_of_its_familys_sizes_is_named() -> None:
    """In the main study: counted once more, from its table of budgets."""
    study = REFERENCE / "scaling-cpu"
    evidence, _ = measured(study, "scaling", None)
    rows = pd.read_csv(study / "figures/frontier.csv")
    rows["rung"] = np.log2(rows["compute_GFLOPs"]).round(1)
    several = rows.groupby(["family", "rung"]).filter(lambda group: len(group) > 1)
    best = several.loc[several.groupby(["family", "rung"])["accuracy"].idxmax()]
    size = {s.label: s.last.train_flops / s.last.images_seen for s in evidence.on_axis("compute")}
    expected = set()
    for family, of_family in best.groupby("family"):
        sizes = {name: size[name] for name in rows[rows["family"] == family]["series"]}
        for kind, end in ((size_at_edge.SMALLEST, min), (size_at_edge.LARGEST, max)):
            if count := int((of_family["series"] == (name := end(sizes, key=sizes.__getitem__))).sum()):
                expected.add((kind, family, name, count))
    assert expected and {(c.kind, *c.names, c.count) for c in size_at_edge.find(evidence)} == expected


def test_mixtures_of_any_kind_are_named() -> None:
    """Any record says where it was made, whatever its job: one without horizons counts as well."""
    made = records()
    for path, value in (
        ("environment.commit", "1" * 40),
        ("environment.accelerator", "B"),
        ("execution.dtype", "bfloat16"),
    ):
        other, name = change(made[0], {path: value}), path.rpartition(".")[2]
        if name == "accelerator":
            made = [change(r, {path: "A"}) for r in made]
        (check,) = found([replace(other, horizons=()), *made[1:]], "mixed")
        assert check.names == (name,) and len(check.groups[0][1]) == 2 and check.level == Level.WARNING
    judged = change(made[0], {"execution.evaluation_dtype": "bfloat16"})  # the others' is not recorded: it was float32
    (check,) = [c for c in found([judged, *made[1:]], "mixed") if c.names == ("evaluation dtype",)]
    assert check.groups == (("", ("bfloat16", "float32")),)
    assert not found([replace(judged, horizons=()), *made[1:]], "mixed")[1:]
    assert [c.level for c in found([change(made[0], {"environment.dirty": True})], "dirty tree")] == ["note"]


def test_what_did_not_finish_is_named() -> None:
    bad = World(seed=1).diverged()
    (check,) = found([*records(), bad], "unsuccessful")
    assert check.names == (bad.directory, "diverged") and check.message == bad.reason


@pytest.mark.parametrize("study", [KEPT / "branching-of-unequal-warm-ups", KEPT / "crossover"])
def test_flops_over_images_are_the_flops_of_an_image(study: Path) -> None:
    """Study by study the sum, cell by cell the quotient: a cell that reads several branches trains on more images than
    its longest horizon says."""
    made = study_data.load(study).records
    implied = 0
    for record in made:
        one, per_image = questions.cost([record]), record.model.train_flops_per_image.paper
        if one.spent_images and per_image:
            assert one.spent_flops / one.spent_images == pytest.approx(per_image, rel=1e-9)
            implied += round(one.spent_flops / per_image)
    whole = questions.cost(made)
    assert whole.spent_images == implied > 0 and whole.cells == len(made)
    assert whole.spent_images >= sum(max(h.images_seen for h in r.horizons) for r in made)


def test_the_rejected_rates_of_a_sweep_are_counted() -> None:
    swept = [
        replace(change(r, {"cell.recipe.lr": rate}), directory=f"{r.directory}-{rate}")
        for rate in (1e-3, 3e-3)
        for r in records()[:2]
    ]
    evidence = lr_sweep.without_rejected(read(swept))
    (check,) = [c for c in checks(evidence) if c.kind == "rejected rates"]
    assert (check.count, check.level) == (2, Level.NOTE)
