"""Designs that vary one thing: ablations, pretraining, branches."""

from dataclasses import replace

import numpy as np
import pytest

from bench.analysis import branches
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Finding, Verdict
from bench.questions import as_published as ablations
from bench.questions.as_published import Statement
from bench.questions.branch_as_accurate import IDENTICAL
from bench.report.figures import ablation_pooling, ablation_position, ablation_shape, ablation_variants, masked
from bench.study.cell import Recipe
from bench.study.record import Record
from bench.study.suite import SuiteOptions
from bench.suites import ablation as suite
from bench.suites import branching
from bench.suites import masked as masked_suite
from bench.train import schedule
from tests.analysis._records import World, map_scores
from tests.analysis._study import ask, beside_own_training, read

# -- the paper's statements about design choices, on records whose differences are known -------------------------------


USUAL = 0.6
CELLS = suite.cells(SuiteOptions(seeds=2))


def records(accuracy, cells=CELLS) -> list[Record]:
    """One record per cell, whose scores are `accuracy(cell)` and nothing else varies but the seed, a little."""
    world = World()
    made = []
    for number, cell in enumerate(cells):
        macs = 10 + len(cell.model) + 100 * ("/4" in cell.model or "depth=6" in cell.model or "width=96" in cell.model)
        world.models = {cell.model: ("ResNet" if cell.model.startswith("R") else "ViT", 1_000, macs)}
        world.horizons = cell.horizons
        world.draw_offsets = dict.fromkeys(
            [(t, d) for t in ("mnist", "fashion-mnist", "digits", "glyphs") for d in world.draws], 0.0
        )
        world.image_offsets = dict.fromkeys(("mnist", "fashion-mnist", "digits", "glyphs"), 0.0)
        record = world.record(cell.model, 30_000, cell.seed, cell.axes)
        recipe = replace(cell.recipe, warmup_images=0)
        record = replace(record, directory=f"cell-{number:03}", cell=replace(record.cell, recipe=recipe))
        value = accuracy(cell) + 0.001 * cell.seed
        made.append(map_scores(record, lambda _, s, value=value: replace(s, value=value)))
    return made


def judged(evidence: Evidence) -> dict[tuple[Statement, str | None], Finding]:
    """By statement and what it was judged on."""
    return {(Statement(f.subject[0]), f.measure): f for f in ablations.statements(evidence)}


def like_the_paper(cell) -> float:
    """Every statement holds: by 10 points, or exactly."""
    value = USUAL - 0.1 * ("position=none" in cell.model) + 0.1 * ("depth=6" in cell.model or "Axial" in cell.model)
    value += 0.1 * (cell.model == "ViT-pico/4") - 0.1 * (cell.recipe.optimizer == "sgd")
    high = cell.recipe.lr > 1e-2 and "pooling" in cell.axes and "pooling=cls" not in cell.model
    return value - 0.2 * high


def test_every_statement_is_borne_out_where_it_holds() -> None:
    findings = judged(read(records(like_the_paper)))
    masked = {Statement.MASKED_OVER_SCRATCH, Statement.LABELS_OVER_MASKED}
    assert {statement for statement, _ in findings} == set(Statement) - masked
    assert {f.verdict for f in findings.values()} == {Verdict.YES}
    assert len({measure for _, measure in findings}) > 1
    for (statement, _), finding in findings.items():
        expected = {Statement.POOLING_RATE: 0.2}.get(statement, 0.0 if statement in ablations.EQUAL else 0.1)
        assert finding.estimate == pytest.approx(expected, abs=1e-9), statement


def test_every_statement_is_contradicted_where_the_opposite_holds() -> None:
    def opposite(cell) -> float:
        moved = 2 * USUAL - like_the_paper(cell)
        unlike = "learned-2d" in cell.model or "position=relative" in cell.model or "position_at=" in cell.model
        return moved + 0.3 * unlike * (-1) + 0.1 * ("pooling=cls" in cell.model and cell.recipe.lr < 1.6e-2)

    cells = [
        *CELLS,
        *(replace(c, recipe=replace(c.recipe, lr=3 * c.recipe.lr)) for c in CELLS if c.axes != ("pooling",)),
    ]
    findings = judged(read(records(opposite, cells)))
    # not "a position embedding helps": of three encodings two are far worse, none far better, and the mean decides
    assert {f.verdict for key, f in findings.items() if key[0] != Statement.POSITION_HELPS} == {Verdict.NO}
    assert not any(ablations.ONE_RATE in f.reasons for f in findings.values())
    at_one_rate = judged(read(records(opposite)))
    swept = {Statement.POOLING_ALIKE, Statement.POOLING_RATE, Statement.ADAM_HELPS}
    for (statement, measure), finding in at_one_rate.items():
        if statement in swept:
            assert finding.verdict == Verdict.NO and ablations.ONE_RATE not in finding.reasons
        else:
            assert finding.verdict == Verdict.CANNOT_TELL and ablations.ONE_RATE in finding.reasons
            assert finding.estimate == pytest.approx(findings[statement, measure].estimate, abs=1e-9)
            assert "one rate" in ablations.QUESTION.reasons[ablations.ONE_RATE](finding)


def test_the_paper_s_own_variants_are_judged_too() -> None:
    """Names leave out what is a row's own there: class token, learned positions; shapes are of another network."""

    def accuracy(cell) -> float:
        low = 0.1 * ("position=none" in cell.model) + 0.1 * (cell.recipe.optimizer == "sgd")
        high = 0.1 * any(sign in cell.model for sign in ("depth=64", "ViT-L-8/16", "AxialViT-B/16"))
        return USUAL + high - low - 0.2 * ("pooling=mean" in cell.model and cell.recipe.lr > 5e-4)

    cells = suite.cells(SuiteOptions(scale="paper", seeds=2))
    evidence = read(records(accuracy, [replace(cell, horizons=cell.horizons[:1]) for cell in cells]))
    findings = judged(evidence)
    masked_ones = {Statement.MASKED_OVER_SCRATCH, Statement.LABELS_OVER_MASKED}
    assert {statement for statement, _ in findings} == set(Statement) - masked_ones
    for (statement, _), finding in findings.items():
        alike = statement in ablations.EQUAL
        assert finding.estimate == pytest.approx(0.0, abs=1e-9) if alike else finding.verdict == Verdict.YES, statement
    (adam,) = [f for (statement, measure), f in findings.items() if statement == Statement.ADAM_HELPS][:1]
    assert len(adam.evidence) == 2, "two ResNets"
    for figure in (ablation_position, ablation_pooling, ablation_shape, ablation_variants):
        drawing = figure.draw(evidence)
        assert len(drawing.data)
    names = drawing.figure.axes[0].get_xticklabels()
    assert len(names) == 10 and all(name.get_rotation() for name in names), "upright they would run into each other"


def test_pooling_that_was_read_on_its_way_is_drawn_over_epochs() -> None:
    """The paper's Figure 9: a line per way to pool and rate."""
    cells = [cell for cell in suite.cells(SuiteOptions(scale="paper", seeds=2)) if cell.axes == ("pooling",)]
    drawing = ablation_pooling.draw(read(records(lambda cell: USUAL, cells)))
    table = drawing.data[drawing.data["measure"] == drawing.data["measure"].iloc[0]]
    assert table.groupby("curve").size().to_dict() == {
        f"{way}, rate {rate}": 7 for way in ("Class token", "Mean over patch tokens") for rate in ("0.0008", "0.0003")
    }
    for _, line in table.groupby("curve"):
        assert line["epochs"].is_monotonic_increasing and line["epochs"].nunique() == 7
    places = drawing.figure.axes[0].transData.transform([(epochs, 60) for epochs in (1, 3, 5, 7)])[:, 0]
    assert np.ptp(places[1:] - places[:-1]) == pytest.approx(0, abs=1e-6), "epochs lie evenly"


def test_where_nothing_was_varied_nothing_is_stated() -> None:
    assert not list(ablations.statements(read(World().records()[:4])))


def test_words_and_figures() -> None:
    evidence = read(records(like_the_paper))
    for figure in (ablation_position, ablation_pooling, ablation_shape, ablation_variants):
        drawing = figure.draw(evidence)
        assert len(drawing.data) and drawing.caption and len(drawing.annotations) == len(drawing.data)
    assert set(ablation_shape.draw(evidence).data["curve"]) == set(ablation_shape.DIMENSIONS.values())
    for finding in ablations.statements(evidence):
        assert ablations.SAYS[Statement(finding.subject[0])] in ablations.say(finding)[0]


def test_masked_against_scratch_and_labels() -> None:
    cells = masked_suite.cells(SuiteOptions(seeds=2))
    level = {"ViT-pico/7": 0.8, "ViT-pico/7:head=masked": 0.7}
    evidence = read(records(lambda cell: level[cell.model] if cell.horizons != (0,) else 0.5, cells))
    findings = judged(evidence)
    assert {s for s, _ in findings} == {Statement.MASKED_OVER_SCRATCH, Statement.LABELS_OVER_MASKED}
    for (statement, _), finding in findings.items():
        assert finding.estimate == pytest.approx(0.2 if statement == Statement.MASKED_OVER_SCRATCH else 0.1)
    assert len(masked.draw(evidence).data)


def test_masked_at_the_paper_s_scale_is_the_first_target_against_labels_of_two_sets() -> None:
    cells = masked_suite.cells(SuiteOptions(scale="paper", seeds=2))
    level = {"jft-300m": 0.8, "imagenet": 0.5}

    def accuracy(cell) -> float:
        if "head=masked" not in cell.model:
            return level[cell.data]
        return 0.7 if "masked_target" not in cell.model and cell.data == "jft-300m" else 0.1

    evidence = read(records(accuracy, [replace(cell, horizons=cell.horizons[-1:]) for cell in cells]))
    for (statement, _), finding in judged(evidence).items():
        assert finding.estimate == pytest.approx(0.2 if statement == Statement.MASKED_OVER_SCRATCH else 0.1)
    drawing = masked.draw(evidence)
    assert masked.TRAINED in drawing.caption
    drawn = dict(zip(drawing.data["pretraining"], drawing.data["accuracy"].round(2), strict=True))
    targets = {"Masked: mean colour": 0.7, "Masked: 4 × 4 colours": 0.1, "Masked: pixels": 0.1}
    assert drawn == {"None": 0.5, **targets, "Labels": 0.8}


def test_pretraining_and_scratch_take_equal_compute() -> None:
    from bench.cost import flops

    for name, scale in masked_suite.SCALES.items():
        cells = masked_suite.cells(SuiteOptions(scale=name, seeds=1))
        assert [cell.horizons for cell in cells] == [(scale.images,), (scale.images,), (0,)]
        steps = [{t.kwargs["steps"] for t in cell.tasks if t.task == "finetune"} for cell in cells]
        assert steps[0] == steps[1] == {scale.steps}
        assert steps[2] == {scale.steps + scale.images // scale.batch}
    masks, labels = (
        flops.count(f"ViT-pico/7{end}", image_size=28, channels=1, num_classes=10).forward_macs["dense"]
        for end in (masked_suite.MASKED, "")
    )
    assert masks / labels == pytest.approx(1, abs=0.01)  # the heads differ


def test_variants_differ_from_the_base_in_what_their_names_say() -> None:
    names = {cell.model for cell in CELLS}
    assert {
        "ViT-pico/7",
        "ViT-pico/7:position=none",
        "ViT-pico/7:position=learned-1d:pooling=cls",
        "ViT-pico/4:stem=conv",
        "AxialViT-pico/7",
    } <= names
    assert all(isinstance(cell.recipe, Recipe) and not cell.model_options for cell in CELLS)


# -- branches against trainings of their own, on records whose differences and costs are known -------------------------


GAP = 0.03  # what the cosine runs lack, on every task and seed


@pytest.fixture(scope="module")
def branched() -> Evidence:
    return beside_own_training(gap=GAP)


def test_each_budget_is_paired_and_the_known_gap_is_found(branched: Evidence) -> None:
    for measure in branches.measures(branched):
        contrasts = branches.contrasts(branched, measure)
        assert list(contrasts) == ["same", "cosine"]
        for way, gap in zip(contrasts, (0.0, GAP), strict=True):
            assert len(contrasts[way]) == 6  # two models × three budgets
            assert [c.estimate.value for c in contrasts[way]] == pytest.approx([gap] * 6, abs=1e-12)
            assert all(branches.identical(c) == (gap == 0) for c in contrasts[way])


def test_savings_are_ratios_of_what_was_spent(branched: Evidence) -> None:
    savings = branches.savings(branched)
    assert [(s.budgets, s.seeds) for s in savings] == [(3, 2), (3, 2)]
    assert [s.flops for s in savings] == pytest.approx([0.5, 0.5])
    assert [s.seconds for s in savings] == pytest.approx([0.25, 0.25])


def test_findings_say_so(branched: Evidence) -> None:
    findings = ask(branched, "branch as accurate", "branches save")
    same, cosine, *_ = findings
    assert (same.subject, same.verdict, same.reasons) == (("same",), Verdict.YES, (IDENTICAL,))
    assert (cosine.subject, cosine.verdict, cosine.reasons) == (("cosine",), Verdict.YES, ())
    assert cosine.estimate == pytest.approx(GAP) and cosine.n.models == 2 and cosine.n.steps == 6
    saved = [f for f in findings if f.question == "branches save"]
    assert [f.estimate for f in saved] == pytest.approx([0.5, 0.5]) and {f.verdict for f in saved} == {Verdict.YES}


def test_a_study_of_branches_alone_has_nothing_to_compare() -> None:
    assert not ask(read(World().records()[:4]), "branch as accurate", "branches save")


@pytest.mark.parametrize("scale", ["cpu", "gpu"])
def test_the_suite_saves_what_the_literature_says(scale):
    """Hägele et al. 2024: five budgets spaced x2 cost at most 0.62 of separate trainings, three at most 0.66."""
    cells = branching.cells(SuiteOptions(scale=scale))
    by_model = {}
    for cell in cells:
        by_model.setdefault(cell.model, {})[cell.recipe.schedule, cell.recipe.cooldown] = cell
    assert len(by_model) == 3 and len({c.seed for c in cells}) == 3
    for ways in by_model.values():
        branch, apart, cosine = ways["branch", 0.2], ways["separate", 0.2], ways["separate", 1.0]
        spent = [schedule.images_trained(c.recipe, c.horizons) for c in (branch, apart, cosine)]
        assert spent[1] == spent[2]
        assert spent[0] / spent[1] <= (0.62 if len(branch.horizons) == 5 else 0.66)
