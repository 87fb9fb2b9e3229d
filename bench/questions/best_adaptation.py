"""Which model is best for these images, adapted how?

Only ways of adapting with a frozen network are compared; fine-tuning is judged in `fine_tuning_gain.py`. Models and
ways are chosen by cross-validation within the labelled images (`bench.tasks.adapt`), so that the test images measure
how good the choice is. The best model in its best way is compared, test image by test image, with the second-best model
in its best way; if there is only one model, with its second-best way.

Findings:
    subject: data set; the best model in its best way; what it is compared with.
    YES: the first is better on the test images, beyond the interval.
    evidence: `BestWay` of every model, the best first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bench.analysis import class_tables, wording
from bench.analysis.adaptation import (
    EXPORTED,
    USAGE,
    WAYS,
    Adapted,
    adapted,
    best_of_models,
    compared,
    metrics,
    on,
    probes,
)
from bench.analysis.comparisons import difference_finding
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Finding, Item, Verdict
from bench.analysis.question import Question
from bench.analysis.table import Column, Table
from bench.core.formatting import count, percent, plural
from bench.core.metrics import ACCURACY, METRICS
from bench.core.phrase import Interval, phrase

NAME = "best adaptation"


@dataclass(frozen=True, kw_only=True)
class BestWay(Item):
    """A pre-trained model in its best way of adapting to a data set, with all labelled images.

    Attributes:
        model: short name of the model.
        way: the way of adapting, a key of `adaptation.WAYS`.
        images: number of labelled images.
        accuracy, low, high: score on the test images, and its interval.
        validation: score by cross-validation within the labelled images; None if unknown.
        set_aside, contrary, groups, test_groups: numbers of images, pairs and groups; `adaptation.Adapted` describes
            them.
        metric: the metric of the scores, a key of `bench.core.metrics.METRICS`.
        exported: whether `report --export` can write the model to a file.
    """

    model: str
    way: str
    images: float
    accuracy: float
    low: float
    high: float
    validation: float | None
    set_aside: int = 0
    contrary: int = 0
    groups: int = 0
    test_groups: int = 0
    metric: str = ACCURACY
    exported: bool = True


def best_adaptations(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding for each data set and metric for which there are two models, or two ways of adapting one, to
    compare."""
    every = [one for metric in metrics(evidence) for one in probes(adapted(evidence, metric))]
    for data, metric in dict.fromkeys((one.data, one.metric) for one in every):
        mine = [one for one in every if (one.data, one.metric) == (data, metric)]
        models = best_of_models(mine)
        first, *others = models if len(models) > 1 else mine
        if not others or (both := compared(first, others[0])) is None:
            continue
        e, paired = both
        accuracy = first.samples[-1].mean - e.value / 2
        yield replace(
            difference_finding(NAME, (on(data, metric), first.name, others[0].name), e, accuracy, paired=paired),
            leader=first.name,
            evidence=tuple(map(_item, models)),
        )


def _item(one: Adapted) -> BestWay:
    e = one.estimates[-1]
    return BestWay(
        model=one.model,
        way=one.way,
        images=one.images[-1],
        accuracy=e.value,
        low=e.low,
        high=e.high,
        validation=one.validation,
        set_aside=one.set_aside,
        contrary=one.contrary,
        groups=one.groups,
        test_groups=one.test_groups,
        metric=one.metric,
        exported=one.point.model.startswith(EXPORTED) and one.metric == ACCURACY,
    )


# -- words -------------------------------------------------------------------------------------------------------------


def say(f: Finding) -> list[str]:
    best = wording.every(f, BestWay)
    scored = [
        f"{one.model} by {WAYS[one.way]} {percent(one.accuracy)} % [{percent(one.low)}, {percent(one.high)}]"
        for one in best
    ]
    chosen = "cross-validation within the labelled images" if best[0].validation is not None else "the test images"
    said = [f"With {count(best[0].images)} labelled images: {'; '.join(scored)}.", f"Ways were chosen by {chosen}."]
    if tested := best[0].test_groups:
        which = "these groups, not their images," if tested > 1 else "the images of this one group"
        held = f"{count(best[0].groups + tested)} groups of images, {count(tested)} of them held out for testing"
        said.append(f"{held}: intervals take {which} as independent.")
    if aside := best[0].set_aside:
        said.append(f"Set aside: {plural(aside, 'labelled image')}, of which the test images hold copies.")
    if pairs := best[0].contrary:
        said.append(f"Different labels of copies: {plural(pairs, 'pair')}. Such labels limit the accuracy.")
    return said


def sentence(f: Finding) -> str:
    best, (_, first, second) = wording.every(f, BestWay)[0], f.subject
    interval = Interval(f"[{percent(best.low)}, {percent(best.high)}]")
    ahead = "ahead of" if f.verdict == Verdict.YES else "behind"
    accuracy = phrase(f"{percent(best.accuracy)} % ", interval)
    if best.metric != ACCURACY:
        data = f.subject[0].removesuffix(f", {METRICS[best.metric]}")
        said = f"{first} has a {METRICS[best.metric]} of "
        return phrase(said, accuracy, f" on {data}, ", wording.amount(f), f" {ahead} {second}")
    return phrase(f"{first} is right on ", accuracy, f" of {f.subject[0]}, ", wording.amount(f), f" {ahead} {second}")


def usage(f: Finding) -> str:
    """Return a program that uses the best model without this project; "" if the model cannot be exported."""
    return USAGE if wording.every(f, BestWay)[0].exported else ""


# -- tables ------------------------------------------------------------------------------------------------------------


def tables(evidence: Evidence) -> list[Table]:
    made = list[Table]()
    for metric in metrics(evidence):
        every = adapted(evidence, metric)
        first = {one.data: one for one in reversed(probes(every))}
        best = sorted(first.values(), key=lambda one: one.data)
        made += [_ways(every, metric), *(table for one in best for table in class_tables.tables(one))]
    return made


def _ways(every: tuple[Adapted, ...], metric: str) -> Table:
    """Return a table with one row per model, way of adapting and number of labelled images."""
    plain, name = metric == ACCURACY, METRICS[metric]
    rows = [
        {"data": one.data, "model": one.model, "way": WAYS[one.way], "images": images, "accuracy": e}
        | ({"validation": one.validation} if images == one.images[-1] else {})
        for one in every
        for images, e in zip(one.images, one.estimates, strict=True)
    ]
    return Table(
        name="adapted" if plain else f"adapted-{metric}",
        title="Adapted models by number of labelled images" + ("" if plain else f": {name}"),
        columns=(
            Column(key="data", heading="Images", numeric=False),
            Column(key="model", heading="Model", numeric=False),
            Column(key="way", heading="Way", numeric=False),
            Column(key="images", heading="Labelled", text=count),
            Column(
                key="accuracy",
                heading="Test accuracy [%]" if plain else f"{name[:1].upper()}{name[1:]} on test images [%]",
            ),
            Column(key="validation", heading="Cross-validation [%]", text=percent),
        ),
        rows=tuple(rows),
        note="The best first, by cross-validation within all labelled images (by the test images where that cannot be "
        "done), and fine-tuning behind them.",
    )


QUESTION = Question(
    name=NAME,
    label="Best model and way?",
    text="Which model is best for these images, adapted how?",
    yes="{}",
    no="not better than the next",
    tones=("fact", "fact"),
    ask=best_adaptations,
    say=say,
    items=(BestWay,),
    order=5,
    subject=lambda f: f.subject[0],
    sentence=sentence,
    tables=tables,
    figures=("adaptation", "photos-to-check"),
    usage=usage,
)
