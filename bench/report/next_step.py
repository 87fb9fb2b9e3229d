"""The one step that a report recommends next, with its command and its cost; and the sentence on what the report does
not show."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bench.analysis import lr_sweep
from bench.analysis.evidence import Evidence
from bench.analysis.finding import ALL_MODELS, Finding, Reason, Unit, Verdict
from bench.analysis.findings import Findings
from bench.analysis.question import question_of
from bench.core.formatting import count, duration, flops, join, plural, short_count
from bench.study import registry
from bench.study.ladder import BASELINE, place_of

MAX_MORE_SEEDS = 4  # factor on the study's seeds; where more would be needed, a larger study answers for less
NARROWED_BY_SEEDS = frozenset((Reason.WITHIN_INTERVAL, Reason.UNREPLICATED, Reason.SEVERAL))
TRIALS = 4  # trials of learning rates at a new budget of a ladder
LADDER_QUESTION = "change survives scale"
RATE_QUESTION = "best learning rate"
MAIN_SUITE = "scaling"
LARGER = {"cpu": "gpu", "gpu": "paper"}
"""Scale -> the next larger one."""
DEVICES = {"gpu": "H100", "paper": "8xH100"}
"""Scale -> the devices that the recommended plan is priced for."""
PLANNED = "a minute, without training"


@dataclass(frozen=True, kw_only=True)
class NextStep:
    """What a reader may do after a report: a sentence, a command, and how long that takes (`price`)."""

    text: str
    command: str
    price: str


def next_step(evidence: Evidence, findings: Findings, leading: Finding | None, *, study: str, check: bool) -> NextStep:
    """Return the most useful step after a study, by rules that are tried in order, mainly: run the missing cells; after
    a check of the pipeline, run the main study; use the best model of an adaptation; after a ladder, see
    `_ladder_step`; widen a sweep of learning rates whose best lies at its end; use the best learning rate; repeat
    trainings with more seeds; price a larger study.

    Args:
        leading: the finding that titles the report; None without a title.
        study: the words by which a command names the study: `--suite NAME`, or a study file.
        check: whether the suite only checks the pipeline.
    """
    run = f"vit-bench run {study}"
    if findings.published:
        return NextStep(
            text="Price a study of your own",
            command=f"vit-bench plan --suite {MAIN_SUITE} --scale paper --hardware 8xH100",
            price=PLANNED,
        )
    if missing := _missing(evidence):
        price = _seconds(evidence, missing)
        text = f"Finish the study ({plural(len(missing), 'run')} without a result)"
        return NextStep(text=text, command=run, price=_took(price) if price else "what it took before")
    if check:
        takes = registry.load("suite", MAIN_SUITE).takes
        return NextStep(
            text="Run the main study", command=f"vit-bench run --suite {MAIN_SUITE}", price=f"{takes}, two cores"
        )
    if usage := next((used for f in findings.findings if (used := question_of(f).usage(f))), ""):
        return NextStep(
            text="Take the best model to photos of your own",
            command=usage.splitlines()[0].removeprefix("# "),
            price="a minute",
        )
    if (ladder := next((f for f in findings.findings if f.question == LADDER_QUESTION), None)) is not None:
        return _ladder_step(ladder, evidence, study)
    at_edge = next((s for s in lr_sweep.sweeps(evidence) if s.further), None)
    if at_edge is not None:
        rates = ",".join(f"{rate:.3g}" for rate in at_edge.further)
        seconds = _seconds(evidence, len(at_edge.further) * _num_seeds(evidence) * ("",))
        return NextStep(
            text=f"Sweep further rates of {at_edge.model}, whose best lies at the edge",
            command=f"{run} --models {at_edge.model} --sweep lr={rates}",
            price=_took(seconds),
        )
    if leading is not None and leading.question == RATE_QUESTION and leading.estimate is not None:
        named = f"--models {leading.subject[0]} --set lr={leading.estimate:.2g}"
        text = "Price a study of this network at its best rate"
        return NextStep(text=text, command=f"vit-bench plan --suite {MAIN_SUITE} {named}", price=PLANNED)
    if findings.scope is None:
        text = "Measure it on the device that you will use"
        return NextStep(text=text, command=run, price=f"{duration(findings.cost.total_seconds)}, as here")
    return _more_seeds(evidence, findings, run) or _larger(evidence, run)


def _ladder_step(f: Finding, evidence: Evidence, study: str) -> NextStep:
    """Return the next step after a ladder (the gain of changes at growing budgets): more seeds if they may decide the
    answer, else one more budget above the highest, which shows whether the forecast holds. A sweep of learning rates is
    never proposed: it would be for one model, and the baseline and all changes are to be tuned alike.

    Args:
        f: the answer on one change.
        study: the words by which a command names the study.
    """
    from bench.analysis import wording
    from bench.questions.change_survives_scale import RungGain, Survival

    (whole,), rungs = wording.every(f, Survival), list(wording.every(f, RungGain))
    climb = f"vit-bench ladder {study.removeprefix('--suite ladder').strip()}".rstrip()
    if f.verdict is Verdict.CANNOT_TELL and whole.seeds_needed is not None and f.reasons != ("blind rung",):
        more = max(1, whole.seeds_needed - whole.seeds)
        if whole.seeds + more <= MAX_MORE_SEEDS * whole.seeds:
            return NextStep(
                text=f"More seeds may settle whether {f.subject[0]} survives scale",
                command=f"{climb} --seeds {whole.seeds + more}",
                price=_took(more * whole.seconds),
            )
    on_ladder = [r for r in evidence.records.records if (p := place_of(r.cell.axes)) and p.change == BASELINE]
    budgets = sorted({r.horizons[-1].images_seen for r in on_ladder if r.horizons})
    if len(budgets) < len(rungs) or len({r.cell.model for r in on_ladder}) > 1:
        return NextStep(
            text="Price the same ladder at a larger scale", command=f"{climb} --scale gpu --plan", price=PLANNED
        )
    further = round(budgets[-1] ** 2 / budgets[-2])
    top = rungs[-1].seconds * further / budgets[-1]  # learning rates are tuned there, which changes those between
    seconds = top * (1 + TRIALS / whole.seeds) + sum(rung.seconds for rung in rungs[1:])
    return NextStep(
        text="Climb one rung further, which shows whether the forecast holds",
        command=f"{climb} --horizons {','.join(map(str, (*budgets, further)))}",
        price=_took(seconds),
    )


def _missing(evidence: Evidence) -> tuple[str, ...]:
    records = evidence.records
    refused = records.wanted.refused if records.wanted else {}
    begun = (*records.unfinished, *records.never_started, *(d.directory for d in records.damaged))
    return tuple(name for name in begun if name not in refused)


def _seconds(evidence: Evidence, names: tuple[str, ...]) -> float:
    """Return how many seconds these cells take one worker: as planned if the study keeps a plan, else as long as its
    finished runs took on average."""
    taken = [r.cost.seconds.total for r in evidence.records.records if r.cost.seconds.total]
    usual = math.fsum(taken) / len(taken) if taken else 0.0
    plans = evidence.records.plans.cells
    return math.fsum(plans[name].seconds if name in plans else usual for name in names)


def _num_seeds(evidence: Evidence) -> int:
    return len({record.cell.seed for record in evidence.records.records})


def _took(seconds: float) -> str:
    return f"about {duration(seconds)} of one worker, as this study's runs took"


def _more_seeds(evidence: Evidence, findings: Findings, run: str) -> NextStep | None:
    """Return the step to train with more seeds: with a second one if every network was trained once, else with as many
    as may settle the first inconclusive answer. None if all answers are decided, or if too many seeds would be needed.
    `run`: the command that runs the study."""
    records = evidence.records.records
    seeds = _num_seeds(evidence)
    each = math.fsum(r.cost.seconds.total or 0.0 for r in records) / max(1, seeds)
    if seeds == 1:
        text = "Train every network with a second seed, so that intervals hold the luck of a training"
        return NextStep(text=text, command=f"{run} --seeds 2", price=_took(each))
    for f in findings.findings:
        asked = f.main and question_of(f).at_a_glance and f.subject != (ALL_MODELS,)
        if not asked or f.verdict is not Verdict.CANNOT_TELL or not set(f.reasons) & NARROWED_BY_SEEDS:
            continue
        wanted = _seeds_for(f, seeds)
        if wanted is not None:
            question = question_of(f)
            text = (
                f"More seeds may settle “{question.label.format(target=question.target(f))}” for {question.subject(f)}"
            )
            return NextStep(text=text, command=f"{run} --seeds {wanted}", price=_took(each * (wanted - seeds)))
    return None


def _seeds_for(f: Finding, seeds: int) -> int | None:
    """Return how many seeds would make the interval of an inconclusive finding exclude "no difference", if the estimate
    stayed the same and all noise came from seeds. None if that takes more than `MAX_MORE_SEEDS` times as many, or
    cannot be known. `seeds`: the study's number of seeds."""
    if f.estimate is None or f.low is None or f.high is None:
        return None
    off = abs(f.estimate - (f.unit == Unit.TIMES))
    times = max(f.high - f.estimate, f.estimate - f.low) / off if off else math.inf
    if times**2 > MAX_MORE_SEEDS:
        return None
    return max(seeds + 1, math.ceil(seeds * times**2))


def _larger(evidence: Evidence, run: str) -> NextStep:
    wanted = evidence.records.wanted
    scale = LARGER.get(wanted.scale if wanted else "cpu", "paper")
    command = f"{run.replace(' run ', ' plan ', 1)} --scale {scale} --hardware {DEVICES[scale]}"
    return NextStep(text="Price the same study at a larger scale", command=command, price=PLANNED)


def not_shown(findings: Findings) -> str:
    """Return one sentence on what the report says nothing about: larger models, more compute, other images."""
    scope = findings.scope
    if findings.published:
        return (
            "Not shown here: causes. Networks of other authors were trained once each, by recipes that differ, and on "
            "data that nobody else has."
        )
    if scope is None:
        return "Not shown here: accuracy, and other devices than the one above." if findings.completed else ""
    sets = join([f"{name} ({kind})" for name, kind in scope.upstream])
    size = f" at {scope.image_size} px" if scope.image_size else ""
    compute = f"trainings of more than {flops(scope.flops[1])}, " if scope.flops else ""
    return (
        f"Not shown here: {compute}networks of more than {short_count(scope.params)} parameters, more than "
        f"{count(scope.images)} images, and other images than {sets}{size}."
    )
