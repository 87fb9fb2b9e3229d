"""What a score measures: tables, figures and findings name it by a text, which `Measure` alone takes apart."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bench.core.formatting import join
from bench.core.metrics import ACCURACY, METRICS

UPSTREAM, FEWSHOT, FINETUNE = "upstream", "fewshot", "finetune"
SAID = {FINETUNE: "fine-tuned", "linear": "linear probe", "vtab": ""}
"""How a task uses a downstream set, where the set's name alone would be taken for its few-shot probe."""


MAX_TASKS = 4  # tasks of a mean that are named one by one


@dataclass(frozen=True)
class Measure:
    """A task, its data set and a metric: "upstream", "mnist" (its few-shot probe), "finetune@10shot:mnist map".

    Attributes:
        task: the name of the task's file.
        data: the name of the set; empty for `UPSTREAM`, whose set is the one that was trained on.
        sizes: what the task says of its images behind its name, "56px" or "10shot".
    """

    task: str
    data: str = ""
    metric: str = ACCURACY
    sizes: tuple[str, ...] = ()

    @classmethod
    def of_score(cls, task: str, data: str = "", metric: str = ACCURACY) -> Measure:
        """The measure of a score, whose task may be "finetune@56px@10shot"."""
        name, *sizes = task.split("@")
        return cls(name, "" if name == UPSTREAM else data, metric, tuple(sizes))

    @classmethod
    def parse(cls, text: str, tasks: Collection[str] = tuple(SAID)) -> Measure:
        """A name taken apart.

        Args:
            tasks: names that a task has before the colon. Anything else there belongs to the set, as in "folder:mine".
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
        """The task of its scores: "finetune@56px"."""
        return "@".join((self.task, *self.sizes))

    @property
    def pixels(self) -> int | None:
        """Pixels per side that the task says."""
        return self._size("px")

    @property
    def shots(self) -> int | None:
        """Images per class that the task says."""
        return self._size("shot")

    @property
    def probed(self) -> bool:
        """Whether it is a few-shot probe's."""
        return self.task == FEWSHOT

    @property
    def set_text(self) -> str:
        """The set for a person, whose size is not said twice, and the metric, unless that is accuracy."""
        name = self.data if self.pixels is None else self.data.removesuffix(f":{self.pixels}px")
        return name if self.metric == ACCURACY else f"{name} {self.metric}"

    @property
    def text(self) -> str:
        """The set, and how the task uses it: "mnist, fine-tuned"."""
        return ", ".join(filter(None, (self.set_text, self.how)))

    @property
    def how(self) -> str:
        """How the task uses the set: "fine-tuned at 56 px on 10 images per class"; empty for a probe."""
        if self.task not in SAID:
            return ""
        at = f" at {self.pixels} px" if self.pixels else ""
        on = f" on {self.shots} images per class" if self.shots else ""
        return f"{SAID[self.task]}{at}{on}"

    def _size(self, unit: str) -> int | None:
        said = (size.removesuffix(unit) for size in self.sizes if size.endswith(unit))
        return next((int(number) for number in said if number.isdecimal()), None)


def measure_text(measure: str) -> str:
    """ "mnist (fine-tuned on 10 images per class)"; "test accuracy" of the classifier that was trained."""
    named = Measure.parse(measure)
    if named.task == UPSTREAM:
        return "test accuracy"
    return f"{named.set_text} ({named.how})" if named.how else named.set_text


def judged_on(measures: Sequence[str], shots: int | None) -> str:
    """The measures that a verdict rests on: "10-shot, mean of scripts and mnist", "mnist (fine-tuned)", "mean of 19
    tasks"."""
    probed = any(Measure.parse(measure).probed for measure in measures)
    names = [measure_text(measure) for measure in measures]
    mean = join(names) if len(names) <= MAX_TASKS else f"{len(names)} tasks"
    head = f"{shots}-shot, " if probed and shots is not None else ""
    return head + (f"mean of {mean}" if len(names) > 1 else mean)
