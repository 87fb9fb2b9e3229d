"""Collects the results of adapting pre-trained models to data sets of the user: accuracy over the number of labelled
images, with one curve for each data set, model and way of adapting (ridge regression, fine-tuning, …)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from bench.analysis.evidence import Evidence, Point
from bench.core.measure import Measure
from bench.core.metrics import ACCURACY, METRICS
from bench.stats.intervals import Estimate, Samples, difference, estimate
from bench.stats.paired import pair, resampled_error
from bench.study.registry import PRETRAINED

TASK = "adapt@"  # beginning of the names of `bench.tasks.adapt`'s tasks; the way of adapting follows
TUNED = "finetune"  # name of a task, and of a way of adapting
WAYS = {
    "ridge": "ridge regression",
    "knn": "nearest neighbours",
    "logistic": "logistic regression",
    TUNED: "fine-tuning everything",
}

EXPORTED = "timm:"  # beginning of the names of models that `report --export` can write to a file
USAGE = """\
# vit-bench report --suite adapt --export model.pt
import sys, timm, torch, PIL.Image, PIL.ImageOps

saved = torch.load("model.pt", weights_only=True)
model = timm.create_model(saved["architecture"], num_classes=len(saved["classes"]), **saved["arguments"]).eval()
model.load_state_dict(saved["state_dict"])
for path in sys.argv[1:]:
    (image := PIL.Image.open(path)).draft(None, (2 * saved["side"],) * 2)
    image = PIL.ImageOps.fit(PIL.ImageOps.exif_transpose(image).convert("RGB"), (saved["side"],) * 2)
    x = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).view(*image.size, 3).permute(2, 0, 1) / 255
    x = torch.nn.functional.interpolate(x[None], saved["input_size"][1:], mode="bilinear", antialias=True)
    print(path, saved["classes"][model((x - saved["mean"]) / saved["std"]).argmax()], sep="\\t")
"""
"""A program that uses the best model without this project, with timm only; a test runs it as it is."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Adapted:
    """The results of one pre-trained model that was adapted to one data set in one way.

    Attributes:
        data: short name of the data set whose images are labelled.
        metric: the metric of all scores here, a key of `bench.core.metrics.METRICS`. For metrics other than accuracy,
            `errors`, `classes_seen`, `pairs` and `surest` are empty, and `set_aside` and `contrary` are 0.
        model: short name of the model.
        point: the point of the evidence that stands for the model.
        way: how it was adapted, a key of WAYS.
        images: numbers of labelled images, ascending; each is the mean over few-shot samples (random choices of
            labelled images). For fine-tuning, the only number is that of all images.
        samples: scores on the test images, one entry for each of `images`.
        validation: score by cross-validation within all labelled images; None if that could not be done. It is also
            None for fine-tuning, whose best score of several learning rates on few images would be high by chance.
        seconds: time of the network's pass over all labelled images and of the fit to them; for fine-tuning, its time
            including the choice of its learning rate. None if it was not measured.
        classes: number of classes.
        errors: (true class, predicted class, number of test images) for each pair of classes that is confused when all
            labelled images are used.
        classes_seen: (class, number of labelled images, number of them that cross-validation classifies correctly or
            None if unknown, number of test images).
        set_aside: number of labelled images that were left out because they are copies of test images.
        contrary: number of pairs of images that are copies of each other but have different labels.
        pairs: some of the `contrary` pairs, as small pictures (`bench.tasks._photos`).
        surest: the errors of which the model was most certain, as small pictures.
        level: confidence level of all intervals, 0 to 1.
        groups: number of groups of labelled images that belong together, such as those of one patient (copies join
            groups); 0 if every image stands alone.
        test_groups: number of such groups of test images; 0 if every image stands alone.
        recalls: for balanced accuracy: (class, number of test images, recall, and the two ends of its interval).
        labels: for mAP: (label, number of test images that have it, average precision and the two ends of its interval,
            F1 and the two ends of its interval).
    """

    data: str
    metric: str
    model: str
    point: Point
    way: str
    images: tuple[float, ...]
    samples: tuple[Samples, ...]
    validation: float | None
    seconds: float | None
    classes: int
    errors: tuple[tuple[str, str, int], ...]
    classes_seen: tuple[tuple[str, int, int | None, int], ...]
    set_aside: int
    contrary: int
    pairs: tuple[tuple[Mapping[str, str], ...], ...]
    surest: tuple[Mapping[str, str], ...]
    level: float
    groups: int = 0
    test_groups: int = 0
    recalls: tuple[tuple[str, int, float, float, float], ...] = ()
    labels: tuple[tuple[str, int, float, float, float, float, float, float], ...] = ()

    @property
    def name(self) -> str:
        return f"{self.model}, {WAYS[self.way]}"

    @cached_property
    def estimates(self) -> tuple[Estimate, ...]:
        return tuple(estimate(samples, level=self.level) for samples in self.samples)

    @property
    def merit(self) -> tuple[bool, float]:
        """Sort key by which the best model and way are chosen; the largest is the best. It is (True, score in
        cross-validation), or (False, score on the test images) if there was no cross-validation."""
        known = self.validation is not None
        return known, self.validation if known else self.samples[-1].mean  # type: ignore[return-value]


def metrics(evidence: Evidence) -> list[str]:
    """Return the metrics in which adapted models were scored, as keys of `METRICS`, accuracy first."""
    tasks = evidence.scores["task"].astype(str)
    found = {*evidence.scores["metric"][tasks.str.startswith(TASK)].astype(str)}
    return [metric for metric in METRICS if metric in found]


def adapted(evidence: Evidence, metric: str = ACCURACY) -> tuple[Adapted, ...]:
    """Return one entry for each data set, model and way of adapting that was scored in `metric` (a key of `METRICS`),
    sorted by data set, and within it the best first (`Adapted.merit`)."""
    tasks = evidence.scores["task"].astype(str)
    adapting_N = tasks.str.startswith(TASK)
    tuning_N = (tasks == TUNED) & evidence.scores["data"].isin(evidence.scores["data"][adapting_N])
    scores = evidence.scores[(adapting_N | tuning_N) & (evidence.scores["metric"] == metric)]
    whole = {
        (record.directory, str(Measure.of_score(score.task, score.data, score.metric))): score.detail
        for record in evidence.records.records
        for score in (record.horizons[-1].scores if record.horizons else ())
        if "validation" in score.detail or score.task == TUNED
    }
    sets = _shown(scores["data"].astype(str), short_data)
    models = _shown((point.model for point in evidence.points.values()), short_name)
    made = []
    for point in evidence.points.values():
        mine = scores[scores["directory"].isin(evidence.cells[point.variant])]
        for measure, rows in mine.groupby("measure", observed=True):
            numbers = rows.groupby("shots", observed=True)["num_support"].mean()
            sampled = {n: s for n in numbers.index if (s := evidence.samples(point, str(measure), shots=int(n)))}
            sampled = {n: replace(s, seeds=()) for n, s in sampled.items()}  # pre-trained: there is no training seed
            detail = whole.get((rows["directory"].iloc[0], str(measure)), {})
            way = str(rows["task"].iloc[0]).removeprefix(TASK)
            if way == TUNED and (tuned := evidence.samples(point, str(measure))):
                numbers, sampled = {0: detail["num_train"]}, {0: tuned}
            if sampled:
                made.append(
                    Adapted(
                        data=sets[str(rows["data"].iloc[0])],
                        metric=metric,
                        model=models[point.model],
                        way=way,
                        point=point,
                        images=tuple(float(numbers[n]) for n in sampled),
                        samples=tuple(sampled.values()),
                        validation=detail.get("validation"),
                        seconds=detail.get("seconds"),
                        classes=int(rows["num_classes"].iloc[0]),
                        errors=tuple((a, b, n) for a, b, n in detail.get("errors", ())),
                        classes_seen=tuple(map(tuple, detail.get("classes", ()))),
                        set_aside=detail.get("set_aside", 0),
                        contrary=detail.get("contrary", 0),
                        pairs=tuple(map(tuple, detail.get("contrary_pictures", ()))),
                        surest=tuple(detail.get("surest_errors", ())),
                        level=evidence.level,
                        groups=detail.get("groups", 0),
                        test_groups=detail.get("test_groups", 0),
                        labels=tuple(map(tuple, detail.get("labels", ()))),
                        recalls=tuple(map(tuple, detail.get("recalls", ()))),
                    )
                )
    return tuple(sorted(made, key=lambda a: (a.data, *(-float(x) for x in a.merit), a.name)))


def probes(every: Iterable[Adapted]) -> list[Adapted]:
    """Return the entries of ways of adapting that leave the network frozen, that is, all but fine-tuning."""
    return [one for one in every if one.way != TUNED]


def best_of_models(found: Iterable[Adapted]) -> tuple[Adapted, ...]:
    """Return, for each data set and model, only its best way of adapting, in the given order.

    Args:
        found: adapted models, sorted so that the best comes first.
    """
    first: dict[tuple[str, str], Adapted] = {}
    for one in found:
        first.setdefault((one.data, one.model), one)
    return tuple(first.values())


def compared(first: Adapted, second: Adapted) -> tuple[Estimate, bool] | None:
    """Return the difference in score between two adapted models, first - second, when all labelled images are used, and
    whether test images were compared one by one; None if the two have no few-shot sample in common."""
    ours, theirs = first.samples[-1], second.samples[-1]
    if (both := difference(ours, theirs)) is None:
        return None
    images = pair(ours, theirs)
    error = resampled_error(ours, theirs) if images is None else images.error
    both = both if error is None else replace(both, image_error=error)
    return estimate(both, level=first.level), error is not None


def on(data: str, metric: str) -> str:
    """Return the subject of a finding about a data set: its name, followed by the metric unless that is accuracy
    ("flowers, mAP")."""
    return data if metric == ACCURACY else f"{data}, {METRICS[metric]}"


def _shown(names: Iterable[str], short: Callable[[str], str]) -> dict[str, str]:
    """Return name -> `short(name)`. Names that would share a short name keep their full names."""
    shown = {name: short(name) for name in names}
    known = [*shown.values()]
    return {name: brief if known.count(brief) == 1 else name for name, brief in shown.items()}


def short_data(name: str) -> str:
    """Return a data set's name without the details of its storage: "folder:flowers:224px:rgb" -> "flowers"."""
    return re.sub(r":\d+px|:rgb|:grey|:(groups|labels)-\w+", "", name).removeprefix("folder:")


def short_name(model: str) -> str:
    """Return a model's name without its source: "timm:local-dir:nets/small+pretrained" -> "small"."""
    plain = model.removesuffix(PRETRAINED)
    return plain.rpartition(":")[2].rpartition("/")[2] if plain.startswith(("timm:", "torchvision:", "hf:")) else plain
