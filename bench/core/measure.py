"""The measure of a score: its task, data set and metric. Tables, figures and findings name a measure by a text, which
only `Measure` parses."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bench.core.formatting import join
from bench.core.metrics import ACCURACY, METRICS

UPSTREAM, FEWSHOT, FINETUNE = "upstream", "fewshot", "finetune"
SAID = {FINETUNE: "fine-tuned", "linear": "linear probe", "vtab": ""}
"""Task -> words for how it uses a downstream data set. They are needed because a data set's name alone means that a
few-shot probe was evaluated on it."""


MAX_TASKS = 4  # a mean over more tasks than this is described by their number, not their names


@dataclass(frozen=True)
class Measure:
    """What a score measures: a task, its data set and a metric.

    As text, which `str` returns: "upstream" (accuracy of the trained classifier on the test images of the pre-training
    set), "mnist" (a few-shot probe on that data set), "finetune@10shot:mnist map" (mAP after fine-tuning on 10 images
    per class).

    Attributes:
        task: the name of the task's file in bench/tasks/, or `UPSTREAM`.
        data: the name of the data set; "" for `UPSTREAM`, which is evaluated on the data set that was trained on.
        metric: a key of `bench.core.metrics.METRICS`.
        sizes: sizes that follow the task's name after "@": "56px" (pixels per side), "10shot" (images per class).
    """

    task: str
    data: str = ""
    metric: str = ACCURACY
    sizes: tuple[str, ...] = ()

    @classmethod
    def of_score(cls, task: str, data: str = "", metric: str = ACCURACY) -> Measure:
        """Return the measure of a score with these fields. `task` may have sizes after its name, such as
        "finetune@56px@10shot"; `metric` is a key of `bench.core.metrics.METRICS`."""
        name, *sizes = task.split("@")
        return cls(name, "" if name == UPSTREAM else data, metric, tuple(sizes))

    @classmethod
    def parse(cls, text: str, tasks: Collection[str] = tuple(SAID)) -> Measure:
        """Parse the text of a measure, such as "finetune@10shot:mnist map". This is the inverse of `str`.

        Args:
            tasks: words that are names of tasks if they precede a colon. Any other word before a colon is part of the
                data set's name, as in "folder:mine".
        """
        name, _, metric = text.rpartition(" ")
        if not name or metric not in METRICS:
            name, metric = text, ACCURACY
        if name == UPSTREAM:
            return cls(UPSTREAM, metric=metric)
        task, _, data = name.partition(":")
        if data and task.split("@")[0] in tasks:
            return cls.of_score(task, data, metric)
        return cls(FEWSHOT, name, metric)

    def __str__(self) -> str:
        whole = self.whole_task
        name = {UPSTREAM: UPSTREAM, FEWSHOT: self.data}.get(whole, f"{whole}:{self.data}")
        return name if self.metric == ACCURACY else f"{name} {self.metric}"

    @property
    def whole_task(self) -> str:
        """The name of the task with its sizes, such as "finetune@56px", as in the field `task` of a score."""
        return "@".join((self.task, *self.sizes))

    @property
    def pixels(self) -> int | None:
        """Pixels per side of the task's images; None if the measure does not state them."""
        return self._size("px")

    @property
    def shots(self) -> int | None:
        """Labelled images per class that the task uses; None if the measure does not state them."""
        return self._size("shot")

    @property
    def probed(self) -> bool:
        """Whether the task is the few-shot probe."""
        return self.task == FEWSHOT

    @property
    def set_text(self) -> str:
        """The data set, and the metric unless it is accuracy, in words for people. An image size that the task states
        is left out of the data set's name: "mnist:56px" becomes "mnist"."""
        name = self.data if self.pixels is None else self.data.removesuffix(f":{self.pixels}px")
        return name if self.metric == ACCURACY else f"{name} {self.metric}"

    @property
    def text(self) -> str:
        """The data set and how the task uses it, in words: "mnist, fine-tuned"."""
        return ", ".join(filter(None, (self.set_text, self.how)))

    @property
    def how(self) -> str:
        """How the task uses the data set, in words: "fine-tuned at 56 px on 10 images per class"; "" for a few-shot
        probe, and for tasks that `SAID` has no words for."""
        if self.task not in SAID:
            return ""
        at = f" at {self.pixels} px" if self.pixels else ""
        on = f" on {self.shots} images per class" if self.shots else ""
        return f"{SAID[self.task]}{at}{on}"

    def _size(self, unit: str) -> int | None:
        said = (size.removesuffix(unit) for size in self.sizes if size.endswith(unit))
        return next((int(number) for number in said if number.isdecimal()), None)


def measure_text(measure: str) -> str:
    """Return the text of a measure (see `Measure`) in words for people: "mnist (fine-tuned on 10 images per class)".
    "upstream" becomes "test accuracy"."""
    named = Measure.parse(measure)
    if named.task == UPSTREAM:
        return "test accuracy"
    return f"{named.set_text} ({named.how})" if named.how else named.set_text


def judged_on(measures: Sequence[str], shots: int | None) -> str:
    """Return in words the measures whose mean a verdict rests on: "10-shot, mean of scripts and mnist", "mnist
    (fine-tuned)", "mean of 19 tasks".

    Args:
        measures: the text of each measure; see `Measure`.
        shots: labelled images per class of the few-shot probes; None to leave them out.
    """
    probed = any(Measure.parse(measure).probed for measure in measures)
    names = [measure_text(measure) for measure in measures]
    mean = join(names) if len(names) <= MAX_TASKS else f"{len(names)} tasks"
    head = f"{shots}-shot, " if probed and shots is not None else ""
    return head + (f"mean of {mean}" if len(names) > 1 else mean)
