"""Look inside a model, before and after training, as the paper's section 4.5 does."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.core import cli, files, registry
from bench.core.errors import EXIT_OK, UserError, command
from bench.report import inspections
from bench.store.study import SPEC_FIELDS, WEIGHTS, CellDirectory

if TYPE_CHECKING:
    import numpy as np

    from bench.data.image_set import ImageSet
    from bench.report.figures._contract import Drawing

COMPONENTS = 28  # of the filters, as in Figure 7
SHOWN = 7  # images under a roll-out
LETTERS = 14  # of a class's name above its image
STATES = ("Before training", "After training")

EXAMPLES = """examples:
  python -m bench.inspect --cell results/ablation/cells/NAME        `python -m bench.report` then shows the figures
  python -m bench.inspect --checkpoint results/scaling/cells/NAME/weights/final.safetensors --data fashion-mnist
  python -m bench.inspect --model ViT-B/16 --checkpoint B_16.npz --data flowers102 --data-root ~/data --output looks

Draws (PNG, SVG and CSV) principal components of the first filters; similarity of position embeddings; mean attention
distance in pixels per head and layer; attention roll-out over images. Of other networks than ViTs and hybrids, the
filters alone."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = cli.parser(
        "python -m bench.inspect",
        "Look inside a model: filters, position embeddings, attention.",
        EXAMPLES,
        plugins=True,
    )
    result.add_argument("--cell", type=cli.folder, help="folder of a finished cell: its weights, data and seed")
    result.add_argument("--checkpoint", type=cli.folder, help="weights (.npz, .safetensors, .pth)")
    result.add_argument("--model", help="a model's name (default: from the weights' metadata)")
    result.add_argument("--data", help="images to look at: their test split (default: what it was trained on)")
    result.add_argument("--data-root", type=cli.folder, help="folder with data sets that are not installed")
    result.add_argument("--images", type=cli.positive, default=128, help="to average distances over (default 128)")
    result.add_argument("--image-size", type=cli.positive, help="pixels per side (default: the weights', else 224)")
    result.add_argument("--channels", type=int, choices=(1, 3), help="(default: the weights', else 3)")
    result.add_argument("--seed", type=int, default=0, help="of the weights before training (default: the cell's)")
    result.add_argument("--output", type=cli.folder, help="folder to write to (default: the study's, else inspect/)")
    result.add_argument("--json", action="store_true", help="machine-readable: what was written and what not")
    return result


@command
def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    _fill_in(args)
    registry.check_model(args.model)
    from bench.data.load import load

    images = load(args.data, "test", root=args.data_root) if args.data else None
    drawings, skipped = inspect(args, images)
    written = inspections.write(args.output, drawings, model=args.model)
    if args.json:
        print(json.dumps({"figures": [str(path) for path in written], "not_drawn": skipped}, indent=2))
        return EXIT_OK
    for path in written:
        print(path)
    for reason in skipped:
        print(f"not drawn: {reason}", file=sys.stderr)
    return EXIT_OK


def _fill_in(args: argparse.Namespace) -> None:
    """What was not given: as the cell, or the weights of a run, say."""
    from bench.store import weights

    if args.cell is not None and args.checkpoint is None:
        args.checkpoint = CellDirectory(args.cell).weights / WEIGHTS
    if args.checkpoint is None or not args.checkpoint.is_file():
        what = f"There are no weights at {args.checkpoint}." if args.checkpoint else "Nothing to inspect."
        raise UserError(what, "Give --cell, a finished cell's folder, or --checkpoint; see --help.")
    known: dict[str, Any] = (weights.about(args.checkpoint) or {}) if args.checkpoint.suffix == ".safetensors" else {}
    cell = CellDirectory(args.cell or args.checkpoint.absolute().parent.parent)
    spec = files.read_sealed(cell.spec, legacy_fields=SPEC_FIELDS)["cell"] if cell.spec.is_file() else {}
    args.model = args.model or known.get("model")
    if not args.model:
        raise UserError(f"{args.checkpoint} does not say which model it is of.", "Give --model.")
    args.options = dict(known.get("model_options", {})) if args.model == known.get("model") else {}
    args.image_size = args.image_size or known.get("image_size", 224)
    args.channels = args.channels or known.get("channels", 3)
    args.data = args.data or spec.get("data") or str(known.get("data", "")).partition("@")[0]
    args.seeded = "seed" in spec
    args.seed = spec.get("seed", args.seed)
    args.output = args.output or (cell.path.parent.parent if spec else Path()) / inspections.FOLDER


def inspect(args: argparse.Namespace, images: ImageSet | None) -> tuple[dict[str, Drawing], list[str]]:
    """Every figure that the model allows, and why others are not there."""
    import torch

    from bench.probe import load_weights
    from bench.report.figures import _inspection
    from vit import inspection

    models = dict(zip(STATES, (_built(args), _built(args)), strict=True))
    load_weights(models[STATES[1]], args.checkpoint)
    trained: Any = models[STATES[1]]
    drawings: dict[str, Drawing] = {}
    skipped: list[str] = []
    first = {state: inspection.first_filters(model) for state, model in models.items()}
    if all(filters is not None for filters in first.values()):
        parts = {s: inspection.principal_components(f, COMPONENTS) for s, f in first.items() if f is not None}
        kernel = "x".join(str(side) for side in next(iter(first.values())).shape[2:])  # type: ignore[union-attr]
        drawings["filters"] = _inspection.filters(
            {state: (components.numpy(), shares.numpy()) for state, (components, shares) in parts.items()},
            model=args.model,
            what=f"the filters of the first layer ({kernel} pixels)",
        )
    tables = {state: inspection.positions_of(model) for state, model in models.items()}
    if all(table is not None for table in tables.values()):
        drawings["positions"] = _inspection.positions(
            {s: inspection.position_similarity(t).numpy() for s, t in tables.items() if t is not None},
            grid=trained.config.grid,
            model=args.model,
            fixed=trained.config.position == "sincos-2d",
        )
    else:
        skipped.append(f"{args.model} has no table of position embeddings")
    config = getattr(trained, "config", None)
    if config is None or config.attention != "full":
        return drawings, [*skipped, f"{args.model} has no attention among all patches"]
    if images is None:
        return drawings, [*skipped, "attention needs images: give --data"]
    sample = images.take(_spread(images, args.images))
    x_BCHW, pixels_BHWC = _inputs(sample, args)
    distances, rolled = {}, {}
    for state, model in models.items():
        with torch.inference_mode(), inspection.captured(model.eval()) as layers:
            model.features(x_BCHW)
        place = {"grid": config.grid, "patch": config.patch_size}
        heads = [inspection.attention_distance(weights_BHNN, **place) for weights_BHNN in layers]
        distances[state] = torch.stack(heads).numpy()
        shown_BHNN = [weights_BHNN[:SHOWN] for weights_BHNN in layers]
        rolled[state] = inspection.rollout(shown_BHNN, grid=config.grid, cls=config.pooling == "cls").numpy()
    uniform = inspection.pixel_distances(config.grid, config.patch_size).mean().item()
    shown = {"model": args.model, "data": images.name}
    drawings["distance"] = _inspection.distances(
        distances, uniform=uniform, images=len(sample), side=args.image_size, **shown
    )
    labels = [sample.class_names[label][:LETTERS] for label in sample.labels_N[:SHOWN]]
    drawings["rollout"] = _inspection.rollouts(rolled, pixels_BHWC[:SHOWN], labels=labels, **shown)
    return drawings, skipped


def _built(args: argparse.Namespace) -> Any:
    """The model with its initial weights: those of the cell, where there is one."""
    import torch

    from bench.core.seeds import stream

    torch.manual_seed(stream(args.seed, "init") if args.seeded else args.seed)
    sizes = {"image_size": args.image_size, "channels": args.channels, "num_classes": 2}
    return registry.build_model(args.model, **sizes, **args.options).eval()


def _spread(images: ImageSet, number: int) -> np.ndarray:
    """Positions of images of all classes in turn."""
    import numpy as np

    from bench.data.subset import rank_within_class

    order_N = np.arange(len(images))
    return np.lexsort((images.labels_N, rank_within_class(images.labels_N, order_N)))[:number]


def _inputs(images: ImageSet, args: argparse.Namespace) -> tuple[Any, np.ndarray]:
    """Images as the network takes them, and as they are shown: in 0..1, NHWC."""
    import numpy as np
    import torch

    from bench.tasks._features import network_input

    x_BHWC = torch.from_numpy(np.array(images.images_NHWC[:]))
    x_BCHW = network_input(x_BHWC, image_size=args.image_size, channels=args.channels)
    return x_BCHW, ((x_BCHW + 1) / 2).clamp(0, 1).permute(0, 2, 3, 1).numpy()


if __name__ == "__main__":
    sys.exit(main())
