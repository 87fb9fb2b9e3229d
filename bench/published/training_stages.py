"""Training recipes of published checkpoints: which images, how many of them and at what size, stage by stage.

A recipe is one line of `baselines/published/recipes.csv`. Its column `stages` is written as SET:AMOUNT@SIZE:

    in21k:300@224 | in1k:20000x512@own

means 300 epochs of ImageNet-21k at 224 pixels, then 20,000 fine-tuning steps of 512 images of ImageNet-1k at the size
that the checkpoint was made for. As an amount, `34e9i` is a number of images seen; `{epochs}` stands for what the group
of that name in the column `pattern` matches in a checkpoint's name; `*3` after the size says that each image passes
through the network three times in a step. Stages after "|" are fine-tuning.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from bench.cost.flops import EXA, FLOPS_PER_MAC, TRAIN_PER_FORWARD

STAGE = re.compile(r"(?P<upstream>\w+):(?P<amount>[^@\s]+)@(?P<size>\d+|own)(?:\*(?P<passes>\d))?")
KINDS = ("sup", "mim", "clip", "weak")
"""Kinds of targets in pre-training: labels, masked images, captions, hashtags."""
CONFIDENCE = ("verbatim", "derived")
"""Verbatim: the source states the recipe for this checkpoint or its family. Derived: it is the repository's default, a
sibling's command, or a number in the checkpoint's name."""
UNCOUNTED = ("fine-tuning", "teacher", "target network", "text tower", "decoder", "fused branches")
"""Parts of a training that the cost of a recipe may leave out."""
LEARNT_FROM = ("teacher", "target network")
"""Those parts of `UNCOUNTED` that are another trained network, from whose outputs a checkpoint learnt."""


@dataclass(frozen=True, kw_only=True)
class TrainingStage:
    """A stage of a training: one data set at one image size.

    Attributes:
        upstream: name of the data set in `baselines/published/sets.csv`.
        images_seen: number of images that went through the network, repeats included.
        image_size: pixels per side.
        fine_tuning: whether the stage is fine-tuning, after pre-training.
    """

    upstream: str
    images_seen: float
    image_size: int
    fine_tuning: bool


@dataclass(frozen=True, kw_only=True)
class PublishedRecipe:
    """The training recipe of published checkpoints: a line of recipes.csv.

    Attributes:
        pattern: regular expression that the whole names of these checkpoints match.
        stages: stages of training, in the notation that the head of this file describes.
        kind: some of `KINDS`, joined by "+".
        uncounted: parts of the training that the cost leaves out: some of `UNCOUNTED`, joined by "; ".
        batch: images per step of pre-training; "" if unknown.
        confidence: one of `CONFIDENCE`.
        source: where the recipe was read: repository@commit:file, or a paper.
        note: remark for readers of the table.
    """

    pattern: str
    stages: str
    kind: str
    uncounted: str
    batch: str
    confidence: str
    source: str
    note: str

    @property
    def missing(self) -> tuple[str, ...]:
        """The parts of the training that the recipe's cost leaves out, each one of `UNCOUNTED`."""
        return tuple(filter(None, self.uncounted.split("; ")))

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    def matched(self, model: str) -> Mapping[str, str] | None:
        """Return what the pattern's groups match in a checkpoint's name, group -> text; None if the recipe is not that
        of this checkpoint."""
        match = self._compiled.fullmatch(model)
        return None if match is None else match.groupdict()


def stages(
    recipe: PublishedRecipe, model: str, *, own_size: int, images: Mapping[str, int]
) -> tuple[TrainingStage, ...]:
    """Return a checkpoint's stages of training, parsed from its recipe.

    Args:
        model: name of the checkpoint.
        own_size: pixels per side that the checkpoint was made for.
        images: data set -> number of its images.

    Raises:
        ValueError: the recipe's stages cannot be parsed, or name an unknown data set or a group that `pattern` lacks.
    """
    groups = recipe.matched(model) or {}
    before, bar, after = recipe.stages.partition("|")
    if bar and not after.strip():
        raise ValueError("nothing follows the |")
    try:
        parts = [(text.format_map(groups), False) for text in before.split()]
        parts += [(text.format_map(groups), True) for text in after.split()]
    except (KeyError, IndexError) as error:
        raise ValueError(f"the pattern has no group {error}") from error
    if not before.strip():
        raise ValueError("no stage of pre-training")
    return tuple(_stage(text, tuned, own_size=own_size, images=images) for text, tuned in parts)


def _stage(text: str, fine_tuning: bool, *, own_size: int, images: Mapping[str, int]) -> TrainingStage:
    match = STAGE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not SET:AMOUNT@SIZE")
    upstream, amount = match["upstream"], match["amount"]
    if upstream not in images:
        raise ValueError(f"the set {upstream!r} is not in sets.csv")
    if amount.endswith("i"):
        seen = float(amount[:-1])
    elif "x" in amount:
        steps, batch = amount.split("x")
        seen = float(steps) * float(batch)
    else:
        seen = float(amount) * images[upstream]
    size = own_size if match["size"] == "own" else int(match["size"])
    if not (0 < seen < float("inf") and size > 0):
        raise ValueError(f"{text!r} trains on nothing")
    seen *= int(match["passes"] or 1)
    return TrainingStage(upstream=upstream, images_seen=seen, image_size=size, fine_tuning=fine_tuning)


def exaflops(done: Iterable[TrainingStage], macs: Callable[[int], float]) -> float:
    """Return the training compute of all stages together, in 10^18 FLOPs. `macs` is a function from pixels per side to
    the MACs of one forward pass."""
    per_mac = FLOPS_PER_MAC * TRAIN_PER_FORWARD
    return sum(per_mac * macs(stage.image_size) * stage.images_seen for stage in done) / EXA


def problems(recipe: PublishedRecipe, models: Iterable[str], *, images: Mapping[str, int]) -> list[str]:
    """Return the mistakes in a recipe, one sentence each; [] if there are none.

    Args:
        models: names of known checkpoints, at least one of which the recipe's pattern must match.
        images: data set -> number of its images, for every known data set.
    """
    wrong = []
    if not recipe.source.strip():
        wrong.append("No source says where the recipe was read.")
    if recipe.confidence not in CONFIDENCE:
        wrong.append(f"The confidence {recipe.confidence!r} is none of {', '.join(CONFIDENCE)}.")
    if unknown := set(recipe.kind.split("+")) - set(KINDS):
        wrong.append(f"The kind {', '.join(sorted(unknown))!r} is none of {', '.join(KINDS)}.")
    if unknown := set(recipe.missing) - set(UNCOUNTED):
        wrong.append(f"Uncounted: {', '.join(sorted(unknown))!r} is none of {', '.join(UNCOUNTED)}.")
    try:
        own = [name for name in models if recipe.matched(name) is not None]
        read = [stages(recipe, name, own_size=224, images=images) for name in own]
    except (ValueError, re.error) as error:
        return [*wrong, f"Its stages or its pattern cannot be read: {error}."]
    if not own:
        wrong.append("The pattern matches no known checkpoint.")
    for name, done in zip(own, read, strict=True):
        tuned = done[-1].fine_tuning or {stage.upstream for stage in done} == {"in1k"}
        if not tuned and "fine-tuning" not in recipe.missing:
            wrong.append(f"The stages of {name} do not end on ImageNet-1k, and uncounted does not say fine-tuning.")
            break
    return wrong
