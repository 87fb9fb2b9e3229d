"""Question: how much more training compute did one published family take than another for the same error?

Findings:
    subject: the family named first, the family named second, and the comparison's name.
    estimate: compute of the first family divided by that of the second at equal error; the geometric mean over the
        networks of the second. (A `Comparison` calls these families `second` and `first`.)
    leader: the family that took less.
    margin: the factor that chance between single trainings may cause; the interval includes it.
    main: whether nothing but the families differs.
    evidence: the `Comparison`, its means `ByMetric` (first by ImageNet, which is the estimate), and a `Ratio` per
        network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Counts, Finding, Reason, Unit, Verdict
from bench.analysis.question import FACTS, Question
from bench.analysis.table import Column, Table
from bench.core.formatting import significant
from bench.core.phrase import phrase
from bench.published.matched import LEVEL, TEST_IMAGES, ByMetric, Comparison, Ratio, by_metric, compared, matched
from bench.published.wording import CHANCE, REAL, TOP1, in_other_metrics

NAME = "compute at equal error"


def ask(evidence: Evidence) -> Iterator[Finding]:
    """Yield one finding per comparison of published families whose mean ratio is known."""
    for asked in compared(evidence):
        *networks, mean = matched(asked)
        if mean.ratio is None:
            continue
        yield Finding(
            question=NAME,
            subject=(asked.second, asked.first, asked.name),
            verdict=Verdict.YES if mean.decided else Verdict.CANNOT_TELL,
            reasons=() if mean.decided else (Reason.WITHIN_INTERVAL,),
            quantity="compute ratio",
            unit=Unit.TIMES,
            estimate=mean.ratio,
            low=mean.low,
            high=mean.high,
            level=LEVEL,
            n=Counts(models=sum(r.ratio is not None for r in networks), test_images=TEST_IMAGES),
            leader=asked.first if mean.ratio > 1 else asked.second,
            margin=mean.margin,
            main=asked.controlled,
            evidence=(asked, *by_metric(asked), *networks),
        )


def tables(evidence: Evidence) -> Sequence[Table]:
    """Return two tables. The first has for each comparison a row per network and one for their mean, the second the
    mean ratios of Table 6's comparisons by every metric. Without comparisons, return no table."""
    rows = [
        {
            "comparison": asked.name,
            "controlled": "yes" if asked.controlled else "no",
            "network": ratio.model,
            "compute": ratio.compute,
            "error": ratio.error,
            "over": f"{asked.second} over {asked.first}",
            "ratio": ratio.ratio,
            "low": ratio.low,
            "high": ratio.high,
            "chance": ratio.margin,
            "differs": asked.differs,
            "stated": asked.stated,
        }
        for asked in compared(evidence)
        for ratio in matched(asked)
    ]
    words = {"comparison": "Comparison", "controlled": "Controlled", "network": "Network", "over": "Ratio of"}
    numbers = {"compute": "exaFLOPs", "error": "Error [%]", "ratio": "Times its compute", "low": "from", "high": "to"}
    last = {"chance": "Factor of chance between trainings"}, {"differs": "What else differs", "stated": "As stated"}
    table = Table(
        name="equal-error",
        title="Compute of one family over another's at equal error",
        rows=tuple(rows),
        columns=(
            *(Column(key=key, heading=heading, numeric=False) for key, heading in words.items()),
            *(Column(key=key, heading=heading, text=significant) for key, heading in (numbers | last[0]).items()),
            *(Column(key=key, heading=heading, numeric=False) for key, heading in last[1].items()),
        ),
        note=f"{CHANCE} No ratio: the other family does not enclose the error.",
    )
    return (table, _by_metric(evidence)) if rows else ()


def _by_metric(evidence: Evidence) -> Table:
    rows = [
        {
            "comparison": asked.name,
            "over": f"{asked.second} over {asked.first}",
            "metric": made.metric,
            "ratio": made.ratio,
            "low": made.low,
            "high": made.high,
            "networks": made.networks,
        }
        for asked in compared(evidence)
        if asked.is_of_table_6
        for made in by_metric(asked)
    ]
    words = {"comparison": "Comparison", "over": "Ratio of", "metric": "At equal error on"}
    numbers = {"ratio": "Compute ratio", "low": "from", "high": "to", "networks": "Networks"}
    return Table(
        name="equal-error-by-metric",
        title="Table 6 of the ViT paper: compute of one family over another's, by what error is equal",
        rows=tuple(rows),
        columns=(
            *(Column(key=key, heading=heading, numeric=False) for key, heading in words.items()),
            *(Column(key=key, heading=heading, text=significant) for key, heading in numbers.items()),
        ),
        note=f"{CHANCE} Networks: those whose error the other family encloses.",
    )


def say(f: Finding) -> Iterator[str]:
    """Yield sentences about a finding: other metrics, what else differs, what the authors state, single networks,
    chance."""
    for asked in wording.every(f, Comparison):
        yield f"{asked.second} over {asked.first} {of(f)}."
        yield f"Not controlled. Besides, these differ: {asked.differs}." if asked.differs else "Controlled."
        yield f"Stated: {asked.stated}." if asked.stated else ""
    known = [r for r in wording.every(f, Ratio) if r.ratio is not None]
    shown = (f"{r.model} {significant(r.ratio or 0)} {wording.bracket(r.low, r.high, significant)}" for r in known)
    yield f"At the error of single networks: {'; '.join(shown)}."
    yield f"Single trainings: {significant(f.margin or 1)} × of the interval. {CHANCE}"


def of(f: Finding) -> str:
    """Return what a finding's ratio is, and the ratio by other metrics: "at equal ImageNet top-1 error; ReaL labels 1.0
    ×, CIFAR-10 2.5 ×, …"."""
    return f"at equal {TOP1} error{in_other_metrics([(m.metric, m.ratio) for m in wording.every(f, ByMetric)])}"


def sentence(f: Finding) -> str:
    more, less, name = f.subject
    estimate, low, high = (wording.or_nan(value) for value in (f.estimate, f.low, f.high))
    turned = f.leader == more
    if turned:
        more, less, estimate, low, high = less, more, 1 / estimate, 1 / high, 1 / low
    times = phrase(f"{significant(estimate)} ", wording.bracket(low, high, significant), " times")
    where = name.partition(", ")[2]
    real = next((made for made in wording.every(f, ByMetric) if made.metric == REAL and made.ratio is not None), None)
    also: str = ""
    if real is not None:
        ends = [wording.or_nan(value) for value in (real.ratio, real.low, real.high)]
        ratio, start, end = (1 / ends[0], 1 / ends[2], 1 / ends[1]) if turned else ends
        also = phrase(f"; on {REAL} labels {ratio:.2f} ", wording.bracket(start, end, "{:.2f}".format))
    on = f" on {where}" if where else ""
    return phrase(f"For the same {TOP1} error {more} took ", times, f" the training compute of {less}{on}", also)


QUESTION = Question(
    name=NAME,
    label="Compute at equal ImageNet error?",
    text="How many times the training compute of the second family did the first take at equal ImageNet top-1 error?",
    yes="{} took less",
    no="{} took more",
    tones=FACTS,
    ask=ask,
    say=say,
    items=(Comparison, ByMetric, Ratio),
    of=of,
    order=10,
    about_two=True,
    subject=lambda f: f.subject[-1],
    tables=tables,
    sentence=sentence,
    figures=("published-ratios", "published-pairs"),
    is_of_pairs=True,
)
