"""Evaluate a model, frozen or fine-tuned, or features from anywhere, by one of the tasks."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.core import cli, files
from bench.core.by_key import by_key
from bench.core.device import BATCH, InBatches, check_usable
from bench.core.errors import EXIT_OK, UserError, command, one_class
from bench.data.image_set import Images, ImageSet
from bench.store import weights
from bench.store.load_weights import load_into
from bench.store.study import SPEC_FIELDS, CellDirectory
from bench.study import registry
from bench.study.cell import CHOICES, Recipe
from bench.study.record import Score
from bench.tasks._features import Load, read_features
from bench.tasks._options import checked_options
from bench.tasks.task import FineTuned, Task, TaskContext

EXAMPLES = """examples:
  vit-bench probe --model ViT-B/16 --checkpoint B_16.npz --data fashion-mnist --shots 1,5,10,25
  vit-bench probe --model ViT-nano/7 --image-size 28 --channels 1 --data scripts    (an untrained network)
  vit-bench probe --checkpoint results/scaling/cells/NAME/weights/final.safetensors --data digits
  vit-bench probe --model pixels --image-size 28 --channels 1 --data digits --json
  vit-bench probe --features features.npz --shots 5,10 --draws 5
  vit-bench probe --checkpoint final.safetensors --data fashion-mnist --task finetune --option image_size=42
      --option steps=500 --option batch=64 --option rates=0.01,0.03,0.1
  vit-bench probe --model ViT-B/16 --checkpoint B_16.npz --data eurosat --task vtab --device cuda
  vit-bench probe --model timm:resnet18 --checkpoint resnet18.pth --data digits
  vit-bench probe --model timm:local-dir:saved_for_hf+pretrained --data digits
  vit-bench probe --model hf:facebook/dinov2-small --data eurosat    (transformers: of the hub, or hf:FOLDER)
  vit-bench probe --model my_model.py:Net --checkpoint my_net.pth --data digits --image-size 28
  vit-bench probe --model ViT-B/16 --checkpoint B_16.npz --data flowers102 --data-root ~/data --draw inside

A features file holds train_x (N, D), train_y (N), test_x (M, D), test_y (M). Metrics: "accuracy" picks the ridge
strength on the support set by leave-one-out, "accuracy_fixed_ridge" is the published protocol with 2^10. Fine-tuning
follows the paper's Table 4 and chooses its rate on a part of the training set: see bench/tasks/finetune.py."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = cli.parser(
        "vit-bench probe",
        "Evaluate a model, frozen or fine-tuned, or features that were extracted elsewhere, on a data set.",
        EXAMPLES,
        plugins=registry.add_plugins,
        effects=lambda args: {
            "idle": {
                "with --draw": args.draw and "features task shots draws option device dtype",
                "without --data": not args.data and "labels label_columns",
            },
            "used": {"with --features": args.features and "features task shots draws option seed"},
        },
    )
    result.add_argument("--model", help="a model's name, such as ViT-B/16 (default: from the weights' metadata)")
    result.add_argument("--checkpoint", type=Path, help="its weights (.npz, .safetensors, .pth); default: untrained")
    result.add_argument("--features", type=Path, help="an .npz of features, instead of --model and --data")
    result.add_argument("--data", help="a data set, such as fashion-mnist")
    result.add_argument("--data-root", type=Path, help="folder with data sets that are not installed")
    result.add_argument("--labels", type=Path, metavar="TABLE", help="table of the labels of a folder's images")
    result.add_argument(
        "--label-columns", type=cli.names_list, default=(), metavar="ROLE=COLUMN,…", help="such as label=species"
    )
    result.add_argument("--task", default="fewshot", help="a task (default fewshot)")
    result.add_argument(
        "--draw", type=cli.folder, metavar="FOLDER", help="draw its filters, positions and attention; no score"
    )
    result.add_argument("--shots", type=_numbers, help="labelled images per class, such as 1,5,10,25")
    result.add_argument("--draws", type=int, help="independent support sets")
    result.add_argument(
        "--option",
        type=cli.setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of the task, repeatable",
    )
    stored = "what a run's weights say, else"
    result.add_argument("--image-size", type=cli.positive, help=f"pixels per side (default: {stored} the model's own)")
    result.add_argument("--channels", type=int, choices=(1, 3), help=f"1 grey, 3 RGB (default: {stored} 3)")
    result.add_argument("--device", default="cpu", help="such as cpu, cuda (default cpu)")
    result.add_argument(
        "--dtype",
        default="auto",
        choices=CHOICES["evaluation_dtype"],
        help="of features and logits (default: bfloat16 on a GPU, else float32)",
    )
    result.add_argument("--seed", type=_seed, default=0, help="of an untrained network's weights (default 0)")
    return result


@command
def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    task: Task = registry.load("task", args.task)
    options = checked_options(task.evaluate, _options(args))
    if args.features is None:
        fill_in(args)
        if args.draw is not None:
            return _draw(args)
    context, data = subject(args)
    if args.features is None:
        context = announced(context, name=args.model)
        if args.model and (taken := registry.about(args.model)):
            print(f"  {args.model}: {taken}", file=sys.stderr)
    scores = task.evaluate(context, data=data, **options)
    has_weights = context.model is not None and any(parameter.numel() for parameter in context.model.parameters())
    untrained = args.checkpoint is None and has_weights and not registry.comes_trained(args.model)
    if args.json:
        remarks = [f"  {args.model} is untrained: no --checkpoint was given"] if untrained else []
        remarks += ["  features and logits are bfloat16"] if args.dtype == "bfloat16" else []
        for line in remarks + _fewer(scores):
            print(line, file=sys.stderr)
        print(json.dumps([dataclasses.asdict(s) for s in scores], indent=2))
    else:
        how = f", in {args.dtype}" if args.dtype == "bfloat16" else ""
        name = f"{args.model}, untrained (no --checkpoint)," if untrained else args.model or args.features
        print(table(scores, title=f"{name} on {data}{how}"))
    return EXIT_OK


def subject(args: argparse.Namespace) -> tuple[TaskContext, str]:
    """Return the context that a task evaluates (features or a model, and data), and the name of the data set.

    Raises:
        UserError: neither features nor a model with data is given; the data set is not known; or a number of images is
            given with it.
    """
    if args.features is not None:
        features, load, data = read_features(args.features)
        return TaskContext(features=features, load=load, seed=args.seed), data
    if args.model is None or not args.data:
        raise UserError("Nothing to probe.", "Give --model and --data, or --features; see --help.")
    from bench.data.load import parse, with_tables

    tables = {"labels": args.labels, "columns": args.label_columns}
    args.data_root, args.data = with_tables(args.data, root=args.data_root, **tables)
    name, size = parse(args.data)
    registry.load("data set", name)  # report a wrong name before a model is built
    if size is not None:
        raise UserError(
            f"{args.data!r}: a number of images applies to training sets only.",
            "Limit the test set with --option test_limit=N.",
        )
    return model_context(args, partial(_load, root=args.data_root)), args.data


def fill_in(args: argparse.Namespace) -> None:
    """Fill in the model's name, options and sizes in `args` where they were not given: from what the checkpoint of a
    run states, else by default.

    Raises:
        UserError: the checkpoint does not exist; the model is not known.
    """
    if args.checkpoint is not None and not args.checkpoint.is_file():
        raise UserError(f"There is no checkpoint {args.checkpoint}.", "Name an .npz, .safetensors or .pth file.")
    known: dict[str, Any] = {}
    if args.checkpoint is not None and args.checkpoint.suffix == ".safetensors":
        known = weights.about(args.checkpoint) or _cell_of(args.checkpoint)
    args.model = args.model or known.get("model")
    args.model_options = dict(known.get("model_options", {})) if args.model == known.get("model") else {}
    if args.model:
        registry.check_model(args.model)
    own_size = (registry.own_image_size(args.model) if args.model else None) or 224
    args.image_size = args.image_size or known.get("image_size", own_size)
    args.channels = args.channels or known.get("channels", 3)


def _draw(args: argparse.Namespace) -> int:
    """Draw figures of the inside of a model instead of scoring it; return the exit code."""
    from bench.commands import look_inside

    if not args.model or args.checkpoint is None:
        raise UserError("Nothing to draw.", "Give --checkpoint, and --model where the file does not name it.")
    inspected = look_inside.Inspected(
        model=args.model,
        options=args.model_options,
        checkpoint=args.checkpoint,
        image_size=args.image_size,
        channels=args.channels,
        data=args.data or "",
        torch_seed=args.seed,
    )
    return look_inside.print_drawn(inspected, data_root=args.data_root, into=args.draw, as_json=args.json)


def _cell_of(checkpoint: Path) -> dict[str, Any]:
    """Return the description of the cell (training run) that wrote a checkpoint, from its spec.json, if the checkpoint
    still lies where the run wrote it; {} for other checkpoints."""
    try:
        spec = CellDirectory(checkpoint.absolute().parents[2]).spec
        return files.read_sealed(spec, legacy_fields=SPEC_FIELDS)["cell"]
    except (OSError, ValueError, KeyError, IndexError):
        return {}


def model_context(args: argparse.Namespace, load: Load) -> TaskContext:
    """Return the context in which a task evaluates the requested model with its weights. A network that is given as an
    object (`args.model` is no text) cannot be fine-tuned, since fine-tuning builds the model anew, by its name, for
    other classes. `load`: (data set, split) -> images."""
    from bench.study import registry
    from bench.tasks._features import extractor

    if named := isinstance(args.model, str):
        registry.family_of(args.model)  # report an unknown name before torch is imported
    import torch

    from bench.tasks._finetuner import FineTuner
    from bench.train import inference, precision

    precision.set_up(threads=torch.get_num_threads())
    torch.manual_seed(args.seed)
    sizes = {"image_size": args.image_size, "channels": args.channels}
    if named:
        model = registry.build_model(args.model, **sizes, num_classes=2, **args.model_options)
    else:
        model = _adapted(args.model, **sizes)
    if args.checkpoint is not None:
        load_into(model, args.checkpoint)
    check_usable(args.device)
    model.to(args.device)
    args.dtype, batches = inference.resolve(args.dtype, args.device, model), InBatches(device=args.device)
    network = inference.in_precision(model, dtype=args.dtype, device=args.device, batches=batches)
    tuner = FineTuner(
        model,
        name=args.model,
        options=tuple(args.model_options.items()),
        **sizes,
        device=args.device,
        seed=args.seed,
        batches=batches,
        dtype=args.dtype,
    )
    return TaskContext(
        features=extractor(network, **sizes, device=args.device, batches=batches),
        load=load,
        seed=args.seed,
        model=model,
        fine_tune=tuner if named else None,
        data_root=args.data_root,
    )


def _adapted(network: Any, *, image_size: int, channels: int) -> Any:
    """Return a copy of a user's network, wrapped as a model of this project.

    Raises:
        UserError: the network does not take images of this size, or lacks what a model needs.
    """
    import torch

    from baselines import _outside

    make = lambda *_: copy.deepcopy(network).to(torch.get_default_device())  # noqa: E731
    try:
        sizes = _outside.sizes_from(image_size)
        return _outside.adapted(make, sizes=sizes, image_size=image_size, channels=channels)
    except ValueError as error:
        what = f"This {type(network).__name__} cannot be probed at {image_size} px: {error}."
        raise UserError(what, "Give another image_size, or features(x_BCHW), num_features and head.") from error


def _load(data: str, split: str, *, root: Path | None) -> ImageSet:
    """Return the split ("train" or "test") of a data set. `root`: folder with data sets that are not installed.

    Raises:
        UserError: the set has fewer than two classes.
    """
    from bench.data.load import load

    images = load(data, split, root=root)
    if images.num_classes < 2:
        raise one_class(data)
    return images


def announced(context: TaskContext, *, name: str) -> TaskContext:
    """Return a copy of a context that also prints to standard error what it is computing, and on a terminal how far it
    is. `name`: the model's name."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    say = partial(console.print, style="dim", highlight=False, markup=False, soft_wrap=True)

    def features(images_NHWC: Images) -> np.ndarray:
        say(f"{name}: features of {len(images_NHWC):,} images …")
        starts = range(0, len(images_NHWC), BATCH)
        shown = track(starts, description="", console=console, transient=True, disable=not console.is_terminal)
        return np.concatenate([context.features(images_NHWC[start : start + BATCH]) for start in shown])

    def fine_tune(images: ImageSet, *, recipe: Recipe, steps: int, **more: Any) -> FineTuned:
        assert context.fine_tune is not None
        say(f"{name}: fine-tuning for {steps:,} steps of {recipe.batch} images at learning rate {recipe.lr:g} …")
        return context.fine_tune(images, recipe=recipe, steps=steps, **more)

    return dataclasses.replace(context, features=features, fine_tune=fine_tune)


def _options(args: argparse.Namespace) -> dict[str, Any]:
    options = {name: value for name in ("shots", "draws") if (value := getattr(args, name)) is not None}
    return options | dict(args.option)


def _seed(text: str) -> int:
    if not text.isdigit() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to 2^63 - 1")
    return int(text)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list such as 1,5,10") from None


def table(scores: Sequence[Score], *, title: str) -> str:
    """Return the scores as a table with one line per metric and number of shots: the mean over few-shot samples, the
    standard error over test images, and the standard deviation over few-shot samples."""
    first = scores[0]
    lines = [
        f"{title}: {first.num_classes} classes, {first.num_test:,} test images, chance {first.chance:.1%}",
        f"  {'metric':24}{'shots':>6}{'draws':>6}{'value':>9}{'± test images':>15}{'± draws (std)':>15}",
    ]
    groups = by_key(
        ((score.metric if score.data == first.data else f"{score.metric}, {score.data}", score.shots), score)
        for score in scores
    )
    for (metric, shots), group in sorted(groups.items(), key=lambda item: (item[0][0], item[0][1] or 0)):
        values = [s.value for s in group if s.value is not None]
        if not values:
            lines.append(f"  {metric:24}{shots or '-':>6}{len(group):>6}{'no score':>9}  {group[0].detail}")
            continue
        error = statistics.mean(s.stderr for s in group if s.stderr is not None)
        spread = f"{statistics.stdev(values):.1%}" if len(values) > 1 else "-"
        mean = f"{statistics.mean(values):.1%}"
        lines.append(f"  {metric:24}{shots or '-':>6}{len(group):>6}{mean:>9}{error:>15.1%}{spread:>15}")
    return "\n".join([*lines, *_fewer(scores), *_choice(first)])


def _fewer(scores: Sequence[Score]) -> list[str]:
    """Return one line for each number of shots (labelled images per class) for which some class has too few images. The
    line says how many images were used."""
    used: dict[int, int] = {}
    classes = scores[0].num_classes or 1
    for score in scores:
        if score.shots and (number := score.detail.get("num_support")) is not None:
            used[score.shots] = number
    return [
        f"  {shots:,} shots: not every class has as many images to draw from; {number:,} labelled images were used, "
        f"{number / classes:g} per class (see --option support_pool)"
        for shots, number in sorted(used.items())
        if number < shots * classes
    ]


def _choice(score: Score) -> list[str]:
    """Return a line on how the learning rate of a fine-tuned score was chosen, and whether a wider sweep might find a
    better one; [] for a score without such a choice."""
    facts = score.detail
    if facts.get("rate") is None or not facts["held_out_accuracies"]:
        return []
    rates, accuracies = facts["rates"], facts["held_out_accuracies"]
    tried = (f"{r:g} ({'diverged' if a is None else f'{a:.1%}'})" for r, a in zip(rates, accuracies, strict=True))
    edge = "; it is at the edge of these: a wider sweep may find a better one" if facts["rate_at_edge"] else ""
    chosen = f"  learning rate {facts['rate']:g}, by {facts['num_held_out']:,} images held out of the training set"
    return [f"{chosen}, from {', '.join(tried)}{edge}"]


if __name__ == "__main__":
    sys.exit(main())
