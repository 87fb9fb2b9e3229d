"""A light conscience: what is weak about a study, said before anybody else has to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from bench.analysis import comparability as mixing
from bench.analysis import law_preconditions as validity
from bench.analysis import rates as learning_rates
from bench.analysis.compare import READ_AS_NOTHING
from bench.analysis.evidence import PIXELS, Evidence, PointKey, family_rank
from bench.analysis.sizes import size_curves
from bench.core.formatting import join, plural, significant
from bench.core.record import Record
from bench.core.spec import to_json

MIN_DECADES = 1.5
MAX_EPOCHS = 4.0
ONE_BUDGET = 1.25  # factor of compute up to which there is no range to see a trend in
MIXTURES: tuple[tuple[str, Callable[[Record], object]], ...] = (
    ("commits", lambda record: record.environment.commit and record.environment.commit[:10]),
    ("processors", lambda record: record.environment.cpu),
    ("devices", lambda record: record.execution.device),
    ("accelerators", lambda record: record.environment.accelerator),
    ("thread counts", lambda record: record.execution.threads),
    ("precisions", lambda record: record.execution.dtype if record.model.params else None),  # nothing to compute with
)

PAPERS_SPREAD = "Table 2's ± (at most 0.23 points on these tasks, three runs) repeats fine-tuning, not pre-training."


@dataclass(frozen=True, kw_only=True)
class Check:
    """One remark. `level`: "warning" weakens a conclusion, "note" is to be known."""

    name: str
    level: str
    text: str


def run(evidence: Evidence) -> tuple[Check, ...]:
    """Every check that has something to say."""
    return tuple(check for function in CHECKS for check in function(evidence))


def damaged(evidence: Evidence) -> list[Check]:
    return [
        Check(name="damaged record", level="warning", text=f"Left out: {d.directory}: {d.reason}")
        for d in evidence.records.damaged
    ]


def unsuccessful(evidence: Evidence) -> list[Check]:
    """Diverged, out-of-memory and failed cells, each by name."""
    found = []
    for record in evidence.records.records:
        if record.status != "complete":
            why = f": {record.reason}" if record.reason else ""
            text = f"{record.directory} {record.status}{why}. Means are over the seeds that finished."
            found.append(Check(name=record.status, level="warning", text=text))
    return found


def unfinished(evidence: Evidence) -> list[Check]:
    names = evidence.records.unfinished
    if not names:
        return []
    text = f"{plural(len(names), 'cell')} begun and not finished: bench.status says why, the same command continues."
    return [Check(name="unfinished", level="warning", text=text)]


def one_seed(evidence: Evidence) -> list[Check]:
    trained = [p for p in evidence.points.values() if p.trained]
    single = sorted({p.series for p in trained if len(p.seeds) == 1})
    if not trained or not single:
        return []
    if len({p.variant for p in trained if len(p.seeds) > 1}) == 0:
        text = f"Every model was trained once. Intervals leave training noise out, and {READ_AS_NOTHING}."
        text += f" {PAPERS_SPREAD}" if evidence.published else " More seeds: --seeds 3."
    else:
        names = join(single[:6]) + (" and others" if len(single) > 6 else "")
        text = (f"Trained once: {names}. Their intervals borrow the variance of the repeated models, or leave training "
                "noise out.")  # fmt: skip
    return [Check(name="one seed", level="warning", text=text)]


def narrow_compute(evidence: Evidence) -> list[Check]:
    """Families whose range is short for a trend; none is asked of one budget, or where nothing is judged downstream."""
    spans = [f"{significant(math.log10(high / low), 2)} decades for {family} (a factor of {significant(high / low, 2)})"
             for family, (low, high) in _flops_by_family(evidence).items()
             if ONE_BUDGET * low < high < 10**MIN_DECADES * low]  # fmt: skip
    if not spans or not evidence.headline:
        return []
    text = f"The range of compute is {join(spans)}; a trend needs at least {MIN_DECADES}."
    return [Check(name="narrow compute", level="warning", text=text)]


def narrow_data(evidence: Evidence) -> list[Check]:
    found = []
    for curve in size_curves(evidence):
        if curve.decades < MIN_DECADES:
            span = f"distinct images span {significant(curve.decades, 2)} decades"
            text = f"{curve.label}: {span}; a trend needs at least {MIN_DECADES}."
            found.append(Check(name="narrow data", level="warning", text=text))
    return found


def repeated_data(evidence: Evidence) -> list[Check]:
    found = []
    said: set[PointKey] = set()
    for axis, purpose in (("compute", "the compute axis"), ("data_size", "the data-size axis (as it is meant to)")):
        repeated = [p for s in evidence.on_axis(axis) for p in s.points if p.epochs > MAX_EPOCHS and p.key not in said]
        said |= {p.key for p in repeated}
        if repeated:
            most = max(p.epochs for p in repeated)
            text = (
                f"On {purpose}, {plural(len(repeated), 'point')} saw each image more than {MAX_EPOCHS:.0f} times "
                f"(up to {significant(most, 2)} epochs): more compute and more data are not the same there."
            )
            found.append(Check(name="repeated data", level="warning" if axis == "compute" else "note", text=text))
    return found


def mixed(evidence: Evidence) -> list[Check]:
    """Records of several commits, machines, precisions or dirty trees in one table."""
    found = []
    for what, read in MIXTURES:
        values = sorted({str(value) for record in evidence.records.records if (value := read(record)) is not None})
        if len(values) > 1:
            mixed = f"Records mix {len(values)} {what} ({join(values)})"
            text = f"{mixed}; times are not comparable, scores may differ slightly."
            found.append(Check(name=f"mixed {what}", level="warning", text=text))
    if any(record.environment.dirty for record in evidence.records.records):
        text = "Some records were made with uncommitted changes: the commit alone does not reproduce them."
        found.append(Check(name="dirty tree", level="note", text=text))
    return found


def no_baseline(evidence: Evidence) -> list[Check]:
    if evidence.published or not evidence.headline:  # what was not printed cannot be measured now; nothing was judged
        return []
    found = []
    if evidence.pixels is None and evidence.series:
        found.append("raw pixels")
    begun = {s.last.model for s in evidence.series if s.untrained}  # one network stands for its runs on every size
    lacking = [m for m in dict.fromkeys(s.last.model for s in evidence.series) if m not in begun]
    if lacking:
        named = join(lacking) if len(lacking) <= 6 else f"{len(lacking)} models"
        found.append(f"untrained {'networks' if len(lacking) > 1 else 'network'} of {named}")
    text = f"Not measured: {join(found)}. Without them a score cannot be told from what the probe does alone."
    return [Check(name="missing baseline", level="warning", text=text)] if found else []


def different_recipes(evidence: Evidence) -> list[Check]:
    """Recipes that differ between families are named: part of a difference may be theirs."""
    by_family: dict[str, dict[str, set[str]]] = {}
    fields: dict[str, set[str]] = {}
    standing = set(evidence.horizons["directory"])  # not what a sweep rejected
    for record in evidence.records.records:
        family = record.model.family
        if family != PIXELS and record.status == "complete" and record.directory in standing:
            for name, value in to_json(record.cell.recipe).items():
                fields.setdefault(name, set()).add(str(value))
                by_family.setdefault(name, {}).setdefault(family, set()).add(str(value))
    differing = sorted(name for name, values in fields.items() if len(values) > 1)
    if not differing:
        return []
    alike = [name for name in differing if all(used == fields[name] for used in by_family[name].values())]
    within = [f"{_plain(name)} ({', '.join(sorted(fields[name]))})" for name in alike]
    between = [f"{_plain(name)} ({'; '.join(f'{f} {join(sorted(v))}' for f, v in sorted(by_family[name].items()))})"
               for name in differing if name not in alike]  # fmt: skip
    theirs = f"Recipes differ between families: {', '.join(between)}. Part of a difference may be theirs."
    shared = f"Recipes differ alike within every family: {', '.join(within)}."
    text = " ".join([*([theirs] if between else []), *([shared] if within else [])])
    return [Check(name="recipes", level="note", text=text)]


def _plain(field: str) -> str:
    return {"lr": "learning rate"}.get(field, field.replace("_", " "))


def unfit(evidence: Evidence) -> list[Check]:
    """What laws refuse: points read in mid-schedule beside annealed ones, compute in two units."""
    refused: dict[str, list[str]] = {}
    for family in sorted({s.family for s in evidence.on_axis("compute")}, key=family_rank):
        points = [p for s in evidence.on_axis("compute") if s.family == family for p in s.points]
        reason = validity.refusal(evidence, points)
        if reason:
            refused.setdefault(reason, []).append(family)
    return [Check(name="refused", level="warning", text=f"No law for {join(families)}: {reason}.")
            for reason, families in refused.items()]  # fmt: skip


def kept_apart(evidence: Evidence) -> list[Check]:
    """What is not comparable, and what was set aside for it."""
    remarks = [remark for function in mixing.REMARKS for remark in function(evidence)]
    return [Check(name=name, level=level, text=text) for name, level, text in remarks]


def rates(evidence: Evidence) -> list[Check]:
    """Learning rates whose best is the edge of the sweep; warm-ups that short runs hardly leave."""
    found = learning_rates.edges(evidence)
    named = "; ".join(found[:4]) + (" and others" if len(found) > 4 else "")
    text = f"The best learning rate is the edge of its sweep: {named}. Such models look worse than they are."
    made = [Check(name="learning rate", level="warning", text=text)] if found else []
    return made + [Check(name="warm-up", level="warning", text=warm) for warm in validity.long_warmup(evidence)]


def _flops_by_family(evidence: Evidence) -> dict[str, tuple[float, float]]:
    ranges: dict[str, tuple[float, float]] = {}
    for series in evidence.on_axis("compute"):
        for point in series.points:
            if point.train_flops > 0:
                low, high = ranges.get(point.family, (math.inf, 0.0))
                ranges[point.family] = min(low, point.train_flops), max(high, point.train_flops)
    return ranges


CHECKS: tuple[Callable[[Evidence], list[Check]], ...] = (
    damaged, unsuccessful, unfinished, one_seed, narrow_compute, narrow_data, repeated_data, mixed, no_baseline,
    different_recipes, unfit, kept_apart, rates,
)  # fmt: skip
