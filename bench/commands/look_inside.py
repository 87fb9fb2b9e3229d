"""Figures of what is inside a model, before and after training, as in the paper's section 4.5."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.core import files
from bench.core.errors import EXIT_OK, UserError
from bench.report import inspections
from bench.store import weights
from bench.store.load_weights import load_into
from bench.store.study import SPEC_FIELDS, WEIGHTS, CellDirectory
from bench.study import registry

if TYPE_CHECKING:
    import numpy as np

    from bench.data.image_set import ImageSet
    from bench.report.figures.figure import Drawing

COMPONENTS = 28  # principal components of the filters that are shown, as in Figure 7
AVERAGED_IMAGES = 128  # images that attention distances are averaged over
ROLLOUT_IMAGES = 7  # images that are shown with their attention roll-out
LABEL_LETTERS = 14  # letters of a class's name that are shown above its image
STATES = ("Before training", "After training")


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """A model whose inside is drawn, at one image size, and where its trained weights are.

    Attributes:
        model: the model's name.
        options: options of the model, by name.
        checkpoint: a file of trained weights.
        image_size: pixels per side.
        channels: channels of an image.
        data: name of the data set whose test images are used to show attention; "": no attention is drawn.
        torch_seed: random seed of the weights before training.
        rehearsal: whether the model was trained in a rehearsal; then the figures use the rehearsal's images.
        name: name of the figures' files; "": the model's name.
    """

    model: str
    checkpoint: Path
    image_size: int
    channels: int
    data: str = ""
    torch_seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    rehearsal: bool = False
    name: str = ""


def of_cell(folder: Path) -> Inspected:
    """Return the model of a finished cell (a training run), with its weights, data and seed. `folder`: the cell's.

    Raises:
        UserError: there are no weights in the folder.
    """
    from bench.core.seeds import stream

    cell = CellDirectory(folder)
    checkpoint = cell.weights / WEIGHTS
    facts = weights.about(checkpoint) if checkpoint.is_file() else None
    if facts is None:
        raise UserError(f"There are no weights at {checkpoint}.", "Name the folder of a finished run.")
    spec = files.read_sealed(cell.spec, legacy_fields=SPEC_FIELDS)["cell"]
    return Inspected(
        model=facts["model"],
        options=facts.get("model_options", {}),
        checkpoint=checkpoint,
        image_size=facts["image_size"],
        channels=facts["channels"],
        data=spec["data"],
        torch_seed=stream(spec["seed"], "init"),
        rehearsal=spec.get("rehearsal", False),
        name=folder.absolute().name,  # two recipes of one model have folders of their own
    )


def print_drawn(of: Inspected, *, data_root: Path | None, into: Path, as_json: bool) -> int:
    """Write every figure that the model allows into the folder `into`. Print the figures' paths, and why other figures
    are missing. `data_root`: folder with data sets that are not installed.

    Returns:
        The exit code of a command.

    Raises:
        UserError: unknown names, weights that do not fit, a folder that cannot be written.
    """
    from bench.data.load import load
    from bench.data.rehearsed import rehearsing
    from bench.report.build import REHEARSAL

    registry.check_model(of.model)
    with rehearsing(of.rehearsal):
        images = load(of.data, "test", root=data_root) if of.data else None
        drawings, not_drawn = inspect(of, images)
    mark = REHEARSAL if of.rehearsal else ""
    written = [str(path) for path in inspections.write(into, drawings, model=of.model, name=of.name, mark=mark)]
    if as_json:
        print(json.dumps({"figures": written, "not_drawn": not_drawn}, indent=2))
        return EXIT_OK
    print(*written, sep="\n")
    for reason in not_drawn:
        print(f"not drawn: {reason}", file=sys.stderr)
    return EXIT_OK


def inspect(of: Inspected, images: ImageSet | None) -> tuple[dict[str, Drawing], list[str]]:
    """Draw every figure that the model allows. Return (name of a figure -> drawing, reasons why other figures are
    missing). `images`: images that attention is shown on; None: no attention is drawn."""
    import torch

    from bench.report.figures import _inspection
    from vit import inspection

    models = dict(zip(STATES, (_built(of), _built(of)), strict=True))
    load_into(models[STATES[1]], of.checkpoint)
    trained: Any = models[STATES[1]]
    drawings: dict[str, Drawing] = {}
    skipped: list[str] = []
    first = {state: inspection.first_filters(model) for state, model in models.items()}
    if all(filters is not None for filters in first.values()):
        parts = {s: inspection.principal_components(f, COMPONENTS) for s, f in first.items() if f is not None}
        kernel = "x".join(str(side) for side in next(iter(first.values())).shape[2:])  # type: ignore[union-attr]
        drawings["filters"] = _inspection.filters(
            {state: (components.numpy(), shares.numpy()) for state, (components, shares) in parts.items()},
            model=of.model,
            what=f"the filters of the first layer ({kernel} pixels)",
        )
    tables = {state: inspection.positions_of(model) for state, model in models.items()}
    if all(table is not None for table in tables.values()):
        drawings["positions"] = _inspection.positions(
            {s: inspection.position_similarity(t).numpy() for s, t in tables.items() if t is not None},
            grid=trained.config.grid,
            model=of.model,
            fixed=trained.config.position == "sincos-2d",
        )
    else:
        skipped.append(f"{of.model} has no table of position embeddings")
    config = getattr(trained, "config", None)
    if config is None or config.attention != "full":
        return drawings, [*skipped, f"{of.model} has no attention among all patches"]
    if images is None:
        return drawings, [*skipped, "attention needs images, and none were named"]
    sample = images.take(_spread(images, AVERAGED_IMAGES))
    x_BCHW, pixels_BHWC = _inputs(sample, of)
    distances, rolled = {}, {}
    for state, model in models.items():
        with torch.inference_mode(), inspection.captured(model.eval()) as layers:
            model.features(x_BCHW)
        place = {"grid": config.grid, "patch": config.patch_size}
        heads = [inspection.attention_distance(weights_BHNN, **place) for weights_BHNN in layers]
        distances[state] = torch.stack(heads).numpy()
        shown_BHNN = [weights_BHNN[:ROLLOUT_IMAGES] for weights_BHNN in layers]
        rolled[state] = inspection.rollout(shown_BHNN, grid=config.grid, cls=config.pooling == "cls").numpy()
    uniform = inspection.pixel_distances(config.grid, config.patch_size).mean().item()
    shown = {"model": of.model, "data": images.name}
    drawings["distance"] = _inspection.distances(
        distances, uniform=uniform, images=len(sample), side=of.image_size, **shown
    )
    labels = [sample.class_names[label][:LABEL_LETTERS] for label in sample.labels_N[:ROLLOUT_IMAGES]]
    drawings["rollout"] = _inspection.rollouts(rolled, pixels_BHWC[:ROLLOUT_IMAGES], labels=labels, **shown)
    return drawings, skipped


def _built(of: Inspected) -> Any:
    """Return the model with its weights before training. For a cell's model they are those that the cell began with."""
    import torch

    torch.manual_seed(of.torch_seed)
    sizes = {"image_size": of.image_size, "channels": of.channels, "num_classes": 2}
    return registry.build_model(of.model, **sizes, **of.options).eval()


def _spread(images: ImageSet, number: int) -> np.ndarray:
    """Return the indices of `number` images, one class after the other in turn, so that all classes are shown."""
    import numpy as np

    from bench.data.subset import rank_within_class

    order_N = np.arange(len(images))
    return np.lexsort((images.labels_N, rank_within_class(images.labels_N, order_N)))[:number]


def _inputs(images: ImageSet, of: Inspected) -> tuple[Any, np.ndarray]:
    """Return the images as the network takes them (a tensor NCHW, -1 to 1), and as they are shown (NHWC, 0 to 1)."""
    import numpy as np
    import torch

    from bench.tasks._features import network_input

    x_BHWC = torch.from_numpy(np.array(images.images_NHWC[:]))
    x_BCHW = network_input(x_BHWC, image_size=of.image_size, channels=of.channels)
    return x_BCHW, ((x_BCHW + 1) / 2).clamp(0, 1).permute(0, 2, 3, 1).numpy()
