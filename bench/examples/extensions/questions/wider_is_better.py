"""A question: does a wider perceptron do better?"""

from bench.analysis import wording
from bench.analysis.comparisons import Pair, compare, mean_finding
from bench.analysis.question import Question
from bench.analysis.table import Column, Table

NAME = "wider is better"  # the file's name with spaces
TWO_WIDTHS = "two widths"  # a reason to say "inconclusive": no trend can be seen


def widths(evidence):
    return sorted(evidence.on_axis("compute"), key=lambda series: series.last.params)


def ask(evidence):  # -> findings; none where the records do not bear on the question
    if len(series := widths(evidence)) > 1:
        narrow, wide = series[0].last, series[-1].last
        pair = Pair(contrast="narrowest", model=wide.model, point=wide, base=narrow)
        if compared := compare(evidence, [pair], "headline", apart=True):
            reasons = [TWO_WIDTHS] if len(series) == 2 else []
            yield mean_finding(NAME, [wide.family], compared, reasons=reasons)


def tables(evidence):
    columns = (Column(key="model", heading="Model", numeric=False), Column(key="params", heading="Parameters"))
    rows = tuple({"model": s.last.model, "params": s.last.params} for s in widths(evidence))
    return [Table(name="widths", title="Widths", columns=columns, rows=rows)]


QUESTION = Question(
    name=NAME,
    label="Wider",
    text="Does a wider perceptron do better?",
    yes="better",
    no="worse",
    ask=ask,
    say=wording.differences,  # finding -> sentences that explain its number
    reasons={TWO_WIDTHS: "Two widths show no trend."},
    tables=tables,
    figures=("widths",),  # files in bench/report/figures/, drawn where the question is answered
)
