"""How much more training compute did one published family take than another for the same error?

Findings:
    subject: the two families, and the comparison.
    estimate: compute of the second family over that of the first; the geometric mean over the first's networks.
    leader: who took less.
    margin: the factor that chance between single trainings may cause.
    main: nothing but the families differs.
    evidence: the `Comparison`, and a `Ratio` per network of the first family.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.analysis import wording
from bench.analysis.evidence import Evidence
from bench.analysis.finding import Counts, Finding, Reason, Unit, Verdict
from bench.analysis.matched import LEVEL, TEST_IMAGES, Comparison, Ratio, comparisons, matched
from bench.analysis.public_evidence import is_public
from bench.analysis.question import FACTS, Question
from bench.analysis.table import Column, Table
from bench.core.formatting import significant
from bench.stats.intervals import SEEDS

NAME = "compute at equal error"


def ask(evidence: Evidence) -> Iterator[Finding]:
    """One finding per comparison that has a ratio."""
    for asked in comparisons() if is_public(evidence) else ():
        *networks, mean = matched(asked)
        if mean.ratio is None or mean.low is None or mean.high is None:
            continue
        within = mean.low <= 1 <= mean.high
        yield Finding(
            question=NAME,
            subject=(asked.first, asked.second, asked.name),
            verdict=Verdict.YES if mean.decided else Verdict.CANNOT_TELL,
            reasons=() if mean.decided else (Reason.WITHIN_INTERVAL if within else Reason.UNREPLICATED,),
            quantity="compute ratio",
            unit=Unit.TIMES,
            estimate=mean.ratio,
            low=mean.low,
            high=mean.high,
            level=LEVEL,
            n=Counts(models=sum(r.ratio is not None for r in networks), test_images=TEST_IMAGES),
            leader=asked.first if mean.ratio > 1 else asked.second,
            margin=mean.margin,
            excluded=(SEEDS,),
            main=asked.controlled,
            evidence=(asked, *networks),
        )


def tables(evidence: Evidence) -> Sequence[Table]:
    """One row per network of a comparison, and one for all of them."""
    rows = [
        {
            "comparison": asked.name,
            "controlled": "yes" if asked.controlled else "no",
            "network": ratio.model,
            "compute": ratio.compute,
            "error": ratio.error,
            "second": asked.second,
            "ratio": ratio.ratio,
            "low": ratio.low,
            "high": ratio.high,
            "chance": ratio.margin,
            "differs": asked.differs,
            "stated": asked.stated,
        }
        for asked in (comparisons() if is_public(evidence) else ())
        for ratio in matched(asked)
    ]
    words = {"comparison": "Comparison", "controlled": "Controlled", "network": "Network", "second": "Against"}
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
        note="Intervals hold chance in the test images. No ratio: the other family does not enclose the error.",
    )
    return (table,) if rows else ()


def say(f: Finding) -> Iterator[str]:
    """Networks one by one, what else differs, and what the authors state."""
    for asked in wording.every(f, Comparison):
        yield f"{asked.second} over {asked.first}."
        yield f"Not controlled. Besides, these differ: {asked.differs}." if asked.differs else "Controlled."
        yield f"Stated: {asked.stated}." if asked.stated else ""
    known = [r for r in wording.every(f, Ratio) if r.ratio is not None]
    shown = (f"{r.model} {significant(r.ratio or 0)} {wording.bracket(r.low, r.high, significant)}" for r in known)
    yield f"At the error of single networks: {'; '.join(shown)}."


def sentence(f: Finding) -> str:
    first, second, name = f.subject
    estimate, low, high = (wording.or_nan(value) for value in (f.estimate, f.low, f.high))
    if f.leader == second:
        first, second, estimate, low, high = second, first, 1 / estimate, 1 / high, 1 / low
    times = f"{significant(estimate)} {wording.bracket(low, high, significant)} times"
    where = name.partition(", ")[2]
    return f"On {where}, {second} took {times} the training compute of {first} for the same ImageNet error"


QUESTION = Question(
    name=NAME,
    label="Compute at equal error?",
    text="How many times the training compute did the second family take for the same ImageNet error?",
    yes="{} took less",
    no="{} took more",
    tones=FACTS,
    ask=ask,
    say=say,
    reasons={
        Reason.UNREPLICATED: lambda f: (
            f"The interval excludes training noise: between single trainings a factor of {significant(f.margin or 1)} "
            "may be due to chance."
        )
    },
    items=(Comparison, Ratio),
    order=10,
    about_two=True,
    subject=lambda f: f.subject[-1],
    tables=tables,
    sentence=sentence,
    figures=("published-ratios", "published-frontiers", "published-pairs"),
    is_of_pairs=True,
)
