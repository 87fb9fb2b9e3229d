"""What a ladder's records say: a verdict, a forecast, and the price of certainty."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bench.analysis import check, ladders
from bench.analysis import evidence as evidence_module
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Finding, Verdict
from bench.analysis.study_data import Records
from bench.questions import change_survives_scale as question
from bench.report.figures import ladder as figure
from bench.study.ladder import BASELINE, LadderPlace, place_of
from bench.study.record import Horizon, Operations, Record
from bench.validity import missing_baselines, narrow_ranges, one_seed
from tests.analysis._records import World, change, map_scores

FLOPS = (1e12, 4e12, 16e12)


def records(gains: dict[str, tuple[float, ...]], *, seeds: int = 4, noise: float = 0.2) -> list[Record]:
    """Records of a ladder whose gains are given in points; the baseline is at 60, 70 and 80 %."""
    base = next(r for r in World.small(seeds=(0,)).records() if r.cell.model == "ViT-nano/7")
    rng, made = np.random.default_rng(1), []
    for name, gain in {BASELINE: (0.0, 0.0, 0.0), **gains}.items():
        for rung, flops in enumerate(FLOPS):
            for seed in range(seeds):
                accuracy = 0.6 + 0.1 * rung + gain[rung] / 100 + noise / 100 * float(rng.normal())
                horizon = replace(base.horizons[-1], train_flops=Operations(dense=flops, paper=flops))
                about = {
                    "directory": f"{name}-{rung}-{seed}",
                    "cell.axes": (LadderPlace(change=name, rung=rung).axis,),
                    "cell.seed": seed,
                    "cell.recipe": replace(base.cell.recipe, lr=1e-3 * (1 + rung), batch=64 + len(name)),
                }
                one = replace(change(base, about), horizons=(horizon,))
                made.append(
                    map_scores(one, lambda _, s, a=accuracy: replace(s, value=a) if s.task == "upstream" else s)
                )
    return made


def evidence(gains: dict[str, tuple[float, ...]], **how: float) -> Evidence:
    ordered = tuple(sorted(records(gains, **how), key=lambda r: r.directory))  # type: ignore[arg-type]
    return evidence_module.build(Records(suite="ladder", records=ordered), headline=("upstream",))


def asked(gains: dict[str, tuple[float, ...]], **how: float) -> dict[str, Finding]:
    return {finding.subject[0]: finding for finding in question.ask(evidence(gains, **how))}


def test_a_place_is_read_as_it_was_written() -> None:
    place = LadderPlace(change="my.py:Net on rung 3", rung=2)
    assert place_of(("compute", place.axis)) == place and place_of(("compute",)) is None


def test_each_change_has_its_verdict_and_words() -> None:
    truth = {"up": (1.0, 2.5, 4.0), "same": (2.0, 2.0, 2.0), "down": (4.0, 2.0, 0.2), "over": (3.0, 0.0, -3.0)}
    found = asked(truth)
    words = {name: question._word(finding)[0] for name, finding in found.items()}
    assert words == {"up": "grows", "same": "keeps", "down": "fades", "over": "reverses"}
    assert found["up"].verdict is Verdict.YES and found["down"].verdict is Verdict.NO
    assert "The gain of up grows with compute" in question.sentence(found["up"])
    up = found["up"]
    assert up.estimate == pytest.approx(0.055, abs=0.006) and up.low < 0.055 < up.high
    assert up.reach == pytest.approx(4.0), "one rung above the highest"


def test_nothing_is_inconclusive_and_says_what_certainty_costs() -> None:
    finding = asked({"nothing": (0.0, 0.0, 0.0)}, noise=1.0)["nothing"]
    assert finding.verdict is Verdict.CANNOT_TELL and question._word(finding) == ("inconclusive", "unsure")
    price, following = question.say(finding)[-2:]
    assert "a seed on every rung takes" in price and following.startswith("The next runs that narrow the trend most")
    assert "inconclusive" in question.sentence(finding)


def test_pairs_are_of_one_seed_and_the_forecast_is_where_it_was_asked_for() -> None:
    whole = evidence({"up": (1.0, 2.5, 4.0)})
    (arm,) = ladders.arms(whole)
    for pairs, gain in zip(arm.pairs_R, (1.0, 2.5, 4.0), strict=True):
        assert list(pairs) == [0, 1, 2, 3]
        mean = np.mean([a.accuracy - b.accuracy for a, b in pairs.values()])
        assert mean == pytest.approx(gain, abs=0.4)
    (further,) = question.ask(replace(whole, forecast_at=256e12))
    assert further.reach == pytest.approx(16.0) and further.estimate == pytest.approx(0.07, abs=0.01)


def test_a_rung_of_one_pair_does_not_count() -> None:
    left = [r for r in records({"up": (1.0, 2.5, 4.0)}) if not (r.directory.startswith("up-2") and r.cell.seed)]
    whole = evidence_module.build(Records(suite="ladder", records=tuple(left)), headline=("upstream",))
    assert not ladders.arms(whole) and not list(question.ask(whole)) and not question.tables(whole)


def test_a_baseline_that_has_not_begun_decides_nothing() -> None:
    made = [
        map_scores(r, lambda _, s: replace(s, value=0.01 + 0.0001 * s.value) if s.task == "upstream" else s)
        for r in records({"up": (1.0, 2.5, 4.0)})
    ]
    whole = evidence_module.build(Records(suite="ladder", records=tuple(made)), headline=("upstream",))
    (finding,) = question.ask(whole)
    assert finding.verdict is Verdict.CANNOT_TELL and finding.reasons == (question.BLIND,)

    def guessing(at: Horizon) -> float:
        (classes,) = {s.num_classes for s in at.scores if s.task == "upstream"}
        return float(np.log(classes))

    near_guessing = [
        replace(r, horizons=tuple(replace(h, final_train_loss=0.95 * guessing(h)) for h in r.horizons))
        if r.directory.startswith(f"{BASELINE}-0")
        else r
        for r in records({"up": (1.0, 2.5, 4.0)})
    ]
    whole = evidence_module.build(Records(suite="ladder", records=tuple(near_guessing)), headline=("upstream",))
    (finding,) = question.ask(whole)
    assert finding.reasons == (question.BLIND,), "by its loss, whatever its score"


def test_table_and_figure_have_every_rung_and_the_forecast() -> None:
    whole = evidence({"up": (1.0, 2.5, 4.0), "same": (2.0, 2.0, 2.0)})
    (table,) = question.tables(whole)
    assert len(table.rows) == 6 and "4 TFLOPs" in table.markdown()
    drawing = figure.draw(whole)
    assert sorted(drawing.data.kind) == ["forecast"] * 2 + ["rung"] * 6
    rungs = drawing.data[(drawing.data.change == "up") & (drawing.data.kind == "rung")]
    assert list(rungs.gain) == pytest.approx([100 * r["gain"] for r in table.rows if r["change"] == "up"])


def test_checks_are_about_rungs_not_about_the_trials_of_their_rates() -> None:
    made = records({"up": (1.0, 2.5, 4.0)})
    trials = [
        change(one, {"directory": f"trial-{place}-{lr}", "cell.axes": ("rates",), "cell.held_out": True, "cell.seed": 9,
                     "cell.recipe": replace(one.cell.recipe, lr=lr)})
        for place, one in enumerate(made[:2])
        for lr in (1e-4, 1e-2)
    ]  # fmt: skip
    alone, both = (
        evidence_module.build(Records(suite="ladder", records=tuple(kept)), headline=("upstream",))
        for kept in (made, [*made, *trials])
    )
    assert len(both.horizons) > len(alone.horizons) and not ladders.compared(both).records.records[len(made) :]
    said = [[(c.kind, c.names, c.count) for c in check.checks(whole)] for whole in (alone, both)]
    assert said[0] == said[1]
    kinds = {kind for kind, *_ in said[0]}
    assert not kinds & {narrow_ranges.NARROW_COMPUTE, missing_baselines.MISSING_BASELINE, one_seed.ONE_SEED}
    plain = evidence_module.build(Records(suite="ladder", records=tuple(trials)), headline=("upstream",))
    assert ladders.compared(plain) is plain, "where no rung is trained yet"
