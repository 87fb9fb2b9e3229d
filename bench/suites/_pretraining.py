"""The pre-trained models of the transfer and VTAB suites: on which upstream (pre-training) sets, and for how long, at
each scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from baselines import published
from bench.study import registry
from bench.study.cell import Cell, TaskSpec
from bench.study.suite import SuiteOptions
from bench.suites._gpu_grid import DRAWN, gpu_models, gpu_recipe, gpu_size, gpu_upstream
from bench.suites._paper import BIT_EPOCHS, IMAGES, as_bit, as_published, rows
from bench.suites._recipes import recipe_for

Tasks = Callable[[str], tuple[TaskSpec, ...]]
"""Name of a model -> the tasks that it is evaluated by; the name decides which image sizes its patches divide."""


@dataclass(frozen=True, kw_only=True)
class Upstream:
    """Pre-training on one set.

    Attributes:
        data: name of the set.
        images: model -> images seen.
        recipe: (set) -> arguments of `recipe_for`, in which its recipe differs from the default.
        trained: (cell) -> the cell with final changes of how it is trained.
        axis: the comparison that its cells are part of.
        of: (family) -> whether models of the family that the user names are trained on this set in this way.
    """

    data: str
    images: Mapping[str, int]
    recipe: Callable[[str], Mapping[str, Any]] = lambda data: {}
    trained: Callable[[Cell], Cell] = lambda cell: cell
    axis: str = "compute"
    of: Callable[[str], bool] = lambda family: True


@dataclass(frozen=True, kw_only=True)
class PretrainingStudy:
    """A suite at one scale: models pre-trained on upstream sets and evaluated by downstream tasks.

    Attributes:
        upstream: the upstream sets, and how models are trained on each.
        tasks: (name of a model) -> the tasks that evaluate it.
        seeds: number of seeds.
        image_size: pixels per side.
        channels: channels of the images, 1 or 3.
        untrained: whether each network is also evaluated before its training on the first upstream set.
    """

    upstream: tuple[Upstream, ...]
    tasks: Tasks
    seeds: int
    image_size: int = 28
    channels: int = 1
    untrained: bool = True


def small(models: tuple[str, ...], *names: str, images: int, **recipe: Any) -> tuple[Upstream, ...]:
    """Return pre-training of the same models, for the same number of images seen, on each of the named sets. `recipe`:
    arguments of `recipe_for`, in which the recipe differs from the default."""
    return tuple(
        Upstream(data=name, images=dict.fromkeys(models, images), recipe=lambda data: recipe) for name in names
    )


def gpu_study(options: SuiteOptions, *, tasks: Tasks, seeds: int) -> PretrainingStudy:
    """Return the study at scale `gpu`: ViTs and ResNets, on the upstream set of `gpu_upstream` and, unless that is a
    set of drawings already, on generated drawings too."""
    names, models = dict.fromkeys((gpu_upstream(options), DRAWN)), gpu_models(options)
    chosen = (models[0], models[1], models[5], models[6])
    upstream = (Upstream(data=name, images=dict.fromkeys(chosen, 1_000_000), recipe=gpu_recipe) for name in names)
    return PretrainingStudy(
        upstream=tuple(upstream), tasks=tasks, seeds=seeds, image_size=gpu_size(options), channels=3
    )


def paper() -> tuple[Upstream, ...]:
    """Return pre-training of the models of the ViT paper's Table 5 on its three upstream sets, for the number of epochs
    in Table 3, the larger where it gives two. ViT-H/14 on ImageNet-21k is left out, as it has no row in Table 3."""
    judged = {(line["pretrain"], name) for line in published.table("table5") for name in line if line[name]}
    images: dict[str, dict[str, int]] = {name: {} for name in IMAGES}
    for row in sorted(rows().values(), key=lambda row: row.epochs):
        if (row.data, row.model) in judged:
            images[row.data][row.model] = row.epochs * IMAGES[row.data]
    return tuple(
        Upstream(data=name.lower(), images=seen, trained=partial(as_published, like=name.lower()))
        for name, seen in images.items()
    )


def paper_bit(*models: str) -> tuple[Upstream, ...]:
    """Return pre-training of the named ResNets on the ViT paper's three upstream sets as BiT was trained. These cells
    have an axis (comparison) of their own, "bit", because their recipe is another."""
    return tuple(
        Upstream(
            data=name.lower(),
            images=dict.fromkeys(models, BIT_EPOCHS[name.lower()] * images),
            trained=as_bit,
            axis="bit",
            of=lambda family: family == "ResNet",
        )
        for name, images in IMAGES.items()
    )


def pretrained_cells(study: PretrainingStudy, options: SuiteOptions) -> list[Cell]:
    """Return cells for models × upstream sets × seeds, each evaluated once, at the end. Untrained networks are
    evaluated in the cells of the first set."""
    return [
        upstream.trained(
            Cell(
                model=model,
                data=upstream.data,
                image_size=study.image_size,
                channels=study.channels,
                recipe=recipe_for(model, **upstream.recipe(upstream.data)),
                horizons=(0, images) if study.untrained and number == 0 else (images,),
                seed=seed,
                tasks=study.tasks(model),
                axes=(upstream.axis,),
            )
        )
        for seed in range(options.seeds or study.seeds)
        for number, upstream in enumerate(_chosen(study, options))
        for model, images in _models(upstream, options).items()
    ]


def _chosen(study: PretrainingStudy, options: SuiteOptions) -> tuple[Upstream, ...]:
    """Return pre-training on the upstream sets that the user named, or on all of the study; a set that the study does
    not know gets the settings of the first."""
    if not options.data:
        return study.upstream
    known = {upstream.data for upstream in study.upstream}
    asked = [u for u in study.upstream if u.data in options.data]
    return (*asked, *(_like(study.upstream[0], name, options) for name in options.data if name not in known))


def _like(upstream: Upstream, name: str, options: SuiteOptions) -> Upstream:
    """Return the same pre-training on another set, named `name`. If the set's number of images is known, it lasts for
    as many epochs as on ImageNet, else for as many images."""
    share = options.num_images[name] / IMAGES["ImageNet"] if name in options.num_images else 1
    images = {model: round(share * seen) for model, seen in upstream.images.items()}
    return replace(upstream, data=name, images=images, of=lambda family: True)


def _models(upstream: Upstream, options: SuiteOptions) -> dict[str, int]:
    """Return model -> images seen on an upstream set, for the models that the user named, or for all that the study
    trains on it; a model that the study does not know gets the largest budget."""
    most = max(upstream.images.values())
    named = (model for model in options.models or () if upstream.of(registry.family_label(model)))
    return {model: upstream.images.get(model, most) for model in (named if options.models else upstream.images)}
