"""What a score measures (task, data set, metric). Tables, figures and findings name it by a text, which only `Measure`
parses."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bench.core.formatting import join
from bench.core.metrics import ACCURACY, METRICS

UPSTREAM, FEWSHOT, FINETUNE = "upstream", "fewshot", "finetune"
SAID = {FINETUNE: "fine-tuned", "linear": "linear probe", "vtab": ""}
"""Task -> words for how it uses a downstream set. They are needed because a set's name alone means its few-shot
probe."""


MAX_TASKS = 4  # a mean over more tasks than this is described by their number, not their names


@dataclass(frozen=True)
class Measure:
    """A task, its data set and a metric: "upstream", "mnist" (its few-shot probe), "finetune@10shot:mnist map".

    Attributes:
        task: the name of the task's file.
        data: the name of the data set; empty for `UPSTREAM`, which is evaluated on the set that was trained on.
        metric: a key of `bench.core.metrics.METRICS`.
        sizes: sizes that follow the task's name after "@": "56px" (pixels per side), "10shot" (images per class).
    """

    task: str
    data: str = ""
    metric: str = ACCURACY
    sizes: tuple[str, ...] = ()

    @classmethod
    def of_score(cls, task: str, data: str = "", metric: str = ACCURACY) -> Measure:
        """Return the measure of a score. `task` may have sizes after its name: "finetune@56px@10shot"."""
        name, *sizes = task.split("@")
        return cls(name, "" if name == UPSTREAM else data, metric, tuple(sizes))

    @classmethod
    def parse(cls, text: str, tasks: Collection[str] = tuple(SAID)) -> Measure:
        """Parse the text of a measure, such as "finetune@10shot:mnist map"; the inverse of `str`.

        Args:
            tasks: names that are tasks when they stand before a colon. Any other word there is part of the data set's
                name, as in "folder:mine".
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
        """The task with its sizes, as scores name it: "finetune@56px"."""
        return "@".join((self.task, *self.sizes))

    @property
    def pixels(self) -> int | None:
        """Pixels per side of the task's images; None if the task does not state them."""
        return self._size("px")

    @property
    def shots(self) -> int | None:
        """Labelled images per class that the task uses; None if it does not state them."""
        return self._size("shot")

    @property
    def probed(self) -> bool:
        """Whether the task is the few-shot probe."""
        return self.task == FEWSHOT

    @property
    def set_text(self) -> str:
        """The data set, and the metric unless it is accuracy, as shown to people. An image size that the task states is
        left out of the set's name."""
        name = self.data if self.pixels is None else self.data.removesuffix(f":{self.pixels}px")
        return name if self.metric == ACCURACY else f"{name} {self.metric}"

    @property
    def text(self) -> str:
        """The data set and how the task uses it: "mnist, fine-tuned"."""
        return ", ".join(filter(None, (self.set_text, self.how)))

    @property
    def how(self) -> str:
        """How the task uses the data set: "fine-tuned at 56 px on 10 images per class"; empty for a few-shot probe."""
        if self.task not in SAID:
            return ""
        at = f" at {self.pixels} px" if self.pixels else ""
        on = f" on {self.shots} images per class" if self.shots else ""
        return f"{SAID[self.task]}{at}{on}"

    def _size(self, unit: str) -> int | None:
        said = (size.removesuffix(unit) for size in self.sizes if size.endswith(unit))
        return next((int(number) for number in said if number.isdecimal()), None)


def measure_text(measure: str) -> str:
    """Return a measure in words: "mnist (fine-tuned on 10 images per class)"; "test accuracy" for the classifier that
    was trained."""
    named = Measure.parse(measure)
    if named.task == UPSTREAM:
        return "test accuracy"
    return f"{named.set_text} ({named.how})" if named.how else named.set_text


def judged_on(measures: Sequence[str], shots: int | None) -> str:
    """Return the measures that a verdict rests on, in words: "10-shot, mean of scripts and mnist", "mnist
    (fine-tuned)", "mean of 19 tasks". `shots`: images per class of few-shot probes."""
    probed = any(Measure.parse(measure).probed for measure in measures)
    names = [measure_text(measure) for measure in measures]
    mean = join(names) if len(names) <= MAX_TASKS else f"{len(names)} tasks"
    head = f"{shots}-shot, " if probed and shots is not None else ""
    return head + (f"mean of {mean}" if len(names) > 1 else mean)
