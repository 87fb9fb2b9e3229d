"""Names of what was measured are taken apart and put together again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.core.measure import FEWSHOT, FINETUNE, UPSTREAM, Measure, judged_on, measure_text
from bench.core.metrics import METRICS

SETS = st.sampled_from(["mnist", "folder:my images:56px", "hf:owner/name", "shapes-position:28px:rgb"])
TASKS = st.sampled_from([UPSTREAM, FEWSHOT, FINETUNE, "linear", "centroid"])
SIZES = st.lists(st.sampled_from(["56px", "10shot"]), unique=True)


@given(task=TASKS, sizes=SIZES, data=SETS, metric=st.sampled_from(sorted(METRICS)))
def test_a_name_says_all_that_its_score_says(task: str, sizes: list[str], data: str, metric: str) -> None:
    sizes = [] if task in (UPSTREAM, FEWSHOT) else sizes
    made = Measure.of_score("@".join((task, *sizes)), data, metric)
    assert Measure.parse(str(made), (FINETUNE, "linear", "centroid")) == made
    assert made.whole_task == "@".join((task, *sizes)) and made.data == ("" if task == UPSTREAM else data)
    assert (made.pixels, made.shots) == (56 if "56px" in sizes else None, 10 if "10shot" in sizes else None)


def test_what_no_task_is_called_belongs_to_the_set() -> None:
    assert Measure.parse("folder:mine") == Measure(FEWSHOT, "folder:mine")
    assert Measure.parse("centroid:mnist", ["centroid"]) == Measure("centroid", "mnist")


@pytest.mark.parametrize(
    "measure, text",
    [
        ("mnist", "mnist"),
        ("upstream", "test accuracy"),
        ("finetune:mnist", "mnist (fine-tuned)"),
        ("finetune@10shot:mnist", "mnist (fine-tuned on 10 images per class)"),
        ("finetune@56px:photo-tiles:56px", "photo-tiles (fine-tuned at 56 px)"),
        ("finetune@56px@10shot:digits:56px", "digits (fine-tuned at 56 px on 10 images per class)"),
        ("finetune:digits macro-f1", "digits macro-f1 (fine-tuned)"),
        ("linear:digits", "digits (linear probe)"),
        ("vtab:svhn", "svhn"),
        ("folder:mine", "folder:mine"),
        ("centroid:digits", "centroid:digits"),
    ],
)
def test_a_measure_is_said_as_its_set_and_how_that_is_used(measure: str, text: str) -> None:
    assert measure_text(measure) == text


def test_a_verdict_names_the_shots_only_where_a_probe_is_among_its_measures() -> None:
    assert judged_on(["mnist", "finetune:mnist"], 10) == "10-shot, mean of mnist and mnist (fine-tuned)"
    assert judged_on(["finetune:mnist"], 10) == "mnist (fine-tuned)" and judged_on([UPSTREAM], 10) == "test accuracy"
    assert judged_on([f"set-{number}" for number in range(5)], 5) == "5-shot, mean of 5 tasks"
