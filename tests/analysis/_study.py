"""Synthetic records as evidence."""

from dataclasses import replace
from functools import cache
from typing import Any

from bench.analysis import evidence as evidence_module
from bench.analysis import lr_sweep, questions
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Finding
from bench.analysis.findings import Findings
from bench.analysis.study_data import Records
from bench.study.record import Horizon, Record, Score
from tests.analysis._records import FAR, HEADLINE, World, change, map_scores

KINDS = {"fashion-mnist": "photographs", "mnist": "photographs", "digits": "photographs"}
MADE: dict[str, Evidence] = {}  # by what `study` was asked for


def read(records: list[Record]) -> Evidence:
    """Evidence from records in memory."""
    ordered = tuple(sorted(records, key=lambda record: record.directory))
    whole = evidence_module.build(
        Records(suite="scaling", records=ordered),
        headline=HEADLINE,
        far=FAR,
        question="How do they scale?",
        data_kinds=KINDS,
    )
    return lr_sweep.without_rejected(whole)


def ask(evidence: Evidence, *names: str) -> list[Finding]:
    """The findings of some questions, in the order of a report."""
    return list(questions.answered(evidence, questions.asked(names)))


def study(*, seed: int = 1, extra: tuple[str, ...] = (), **changes: Any) -> Evidence:
    """Evidence from a world with `changes` to its fields. `extra` "diverged" adds a cell that diverged. Equal
    worlds are one in each process, with the laws that were fitted to it: look at it, change only copies."""
    key = repr((seed, extra, sorted(changes.items())))
    if key not in MADE:
        world = World(seed=seed)
        for name, value in changes.items():
            setattr(world, name, value)
        MADE[key] = read(world.records() + ([world.diverged()] if "diverged" in extra else []))
    return MADE[key]


@cache
def findings_of(evidence: Evidence) -> Findings:
    """Every answer that an evidence gives, asked once."""
    return questions.find(evidence)


def swept(accuracies: dict[float, float | None], *, model: str = "ViT-nano/7", **recipe: Any) -> list[Record]:
    """One record per rate whose upstream accuracy at the longest budget is as given; None for one that diverged.

    At shorter budgets, and downstream, the highest rate is the best everywhere; untrained networks are at 5 %.
    """
    world = World(seed=3)
    world.models, world.seeds = {model: world.models[model]}, (0,)
    base = next(r for r in world.records() if r.cell.model == model)
    made = []
    for rate, accuracy in accuracies.items():
        directory = base.directory + f"-{rate:g}" + "".join(f"{value}" for value in recipe.values())
        record = change(base, {"directory": directory, "cell.recipe": replace(base.cell.recipe, lr=rate, **recipe)})

        def changed(horizon: Horizon, score: Score, rate: float = rate, accuracy: float | None = accuracy) -> Score:
            last = score.task == "upstream" and horizon is base.horizons[-1]
            elsewhere = min(0.99, 0.1 + 50 * rate) if horizon.images_seen else 0.05
            return replace(score, value=accuracy if last else elsewhere)

        record = map_scores(record, changed)
        if accuracy is None:
            record = replace(record, status="diverged", reason="not finite", horizons=record.horizons[:1])
        made.append(record)
    return made


def beside_own_training(*, gap: float) -> Evidence:
    """Two models, each trained by branches, on its own with the same schedule and the same scores, and on its own with
    a cosine schedule, which costs `gap` of every score. Own training spends twice the compute, four times the time."""
    world = World()
    world.models = {name: world.models[name] for name in ("ViT-nano/7", "ResNet-mini")}
    whole = {"schedule": "separate", "cooldown": 1.0, "cooldown_shape": "cosine"}
    made = []
    for record in world.records()[:-1]:
        if "data_size" in record.cell.axes:
            continue
        spent = record.cost.spent_flops.times(2)
        for end, used, less in (("a", {"schedule": "separate"}, 0.0), ("b", whole, gap)):
            other = change(
                record,
                {
                    "directory": record.directory + end,
                    "cell.axes": ("branching",),
                    "cost.spent_flops": spent,
                    "cell.recipe": replace(record.cell.recipe, **used),  # type: ignore[arg-type]
                    "cost.seconds.train": 4 * (record.cost.seconds.train or 0),
                },
            )
            made.append(map_scores(other, lambda _, s, less=less: replace(s, value=(s.value or 0) - less)))
        made.append(change(record, {"cell.axes": ("compute", "branching")}))
    return read(made)
