"""The cost of a model: parameters, MACs, FLOPs, memory, core-days; nothing is trained.

`bench.commands.flops.count(module, *inputs)` counts any `nn.Module`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import textwrap
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

from bench.core import cli
from bench.core.errors import EXIT_FAILED, EXIT_OK, UserError, command, unknown
from bench.core.formatting import compact
from bench.core.user_code import prints_aside
from bench.cost import units
from bench.cost.flops import CONVENTIONS
from bench.cost.flops import count_module as count
from bench.study import registry
from bench.study.names import ModelName

if TYPE_CHECKING:
    from bench.cost.crosscheck import Crosscheck
    from bench.cost.flops import ModelCost
    from bench.cost.paper_table import PaperRow

EXAMPLES = """examples:
  vit-bench flops ViT-B/16
  vit-bench flops ViT-B/16 --image-size 384 --convention dense
  vit-bench flops R50+ViT-B/16 --modules --depth 3              with fvcore's counts beside ours
  vit-bench flops ViT-B/16 --check                              three counters, and why they differ
  vit-bench flops ViT-L/16 --classes 18291 --option head=mlp --images 4.2e9
  vit-bench flops ViT-H/14 --images 4.2e9 --accelerator H100 --utilisation 0.4
  vit-bench flops --paper-table
  vit-bench flops timm:convnext_atto                            any of timm's, torchvision:NAME, my_model.py:Net
  vit-bench flops --list                                        which models there are, and how they are named
  vit-bench flops --list 'convnext*'                            costs of all of timm's models with such names

conventions: FLOP = 2 MACs, training = 3 forwards. "dense" counts every tap of a convolution, "paper" only taps inside
the image, as the paper's exaFLOPs do. Norms, softmax and activations are not counted."""
MAX_IMAGE_SIZE = 65_536  # pixels per side
__all__ = ["count", "main", "model_cost"]
INDENT: Any = {"initial_indent": "    ", "subsequent_indent": "      "}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = cli.parser(
        "vit-bench flops",
        "Count parameters, MACs, FLOPs and training memory of any model, without allocating its weights.",
        EXAMPLES,
        plugins=registry.add_plugins,
        effects=lambda args: {
            "used": {
                "with --paper-table": args.paper_table and "paper_table",
                "with --list": args.list is not None and "list",
                "without a model": not args.model and "list paper_table",
            },
            "idle": {"without --images": args.images is None and "accelerator utilisation"},
        },
    )
    result.add_argument("model", nargs="?", help="a model's name, such as ViT-B/16, R50x1, R50+ViT-B/16")
    result.add_argument(
        "--list",
        nargs="?",
        const="",
        metavar="PATTERN",
        help="list families and how their models are named; with a pattern, costs of timm's models",
    )
    result.add_argument("--paper-table", action="store_true", help="the paper's Table 6 next to our counts")
    result.add_argument("--image-size", type=int, help="pixels per side (default: the model's own, else 224)")
    result.add_argument("--channels", type=int, help="of the image (default 3, or the model's own)")
    result.add_argument("--classes", type=int, help="of the head (default 1000, or the model's own)")
    result.add_argument(
        "--option",
        type=cli.setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of the model, repeatable",
    )
    result.add_argument("--convention", choices=CONVENTIONS, help="show only this one (default: both)")
    result.add_argument("--check", action="store_true", help="count by torch's flop counter and by fvcore too")
    result.add_argument("--modules", action="store_true", help="parameters and MACs forward of every module")
    result.add_argument("--depth", type=cli.positive, help="of --modules, which it implies (default 2)")
    result.add_argument("--images", type=float, help="also estimate the cost of training on this many images seen")
    result.add_argument("--accelerator", default="A100", help="for --images (default A100)")
    result.add_argument("--utilisation", type=float, default=0.4, help="assumed of its peak (default 0.4)")
    return result


@command
def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    if args.paper_table:
        return _paper_table(as_json=args.json)
    if args.list:
        return _costs(args.list, as_json=args.json)
    if not args.model:
        return _list(as_json=args.json)
    if not 0 < args.utilisation <= 1:
        raise UserError(f"--utilisation {args.utilisation} is not in (0, 1].", "For example 0.4 for 40 %.")
    if args.images is not None and not 0 < args.images < math.inf:
        raise UserError(f"--images {args.images} is not a valid number of images.", "For example 4.2e9.")
    with prints_aside():
        sizes = {"image_size": args.image_size, "channels": args.channels, "classes": args.classes}
        cost = model_cost(args.model, **sizes, options=args.option)
        theirs = _crosscheck(cost, args) if args.check or args.modules or args.depth else None
    shown = (args.convention,) if args.convention else CONVENTIONS
    report = describe(cost, conventions=shown)
    if (args.modules or args.depth) and theirs:
        report["by_module"] = {c: by_module(cost.by_module[c], depth=args.depth or 2) for c in shown}
        report["by_module"] |= {"fvcore": theirs.by_module, "params": theirs.params}
    if args.check and theirs:
        report["check"] = checked(theirs)
    if args.images is not None:
        report["training"] = training(cost, args.images, accelerator=args.accelerator, utilisation=args.utilisation)
    print(json.dumps(report, indent=2) if args.json else _text(report))
    return EXIT_FAILED if args.check and theirs and theirs.differs else EXIT_OK


def _crosscheck(cost: ModelCost, args: argparse.Namespace) -> Crosscheck:
    from bench.cost.crosscheck import crosscheck

    sizes = {"image_size": cost.image_size, "channels": cost.channels, "num_classes": cost.num_classes}
    return crosscheck(cost.model, **sizes, model_options=tuple(args.option))


def model_cost(
    model: str,
    *,
    image_size: int | None = None,
    channels: int | None = None,
    classes: int | None = None,
    options: Sequence[tuple[str, Any]] = (),
) -> ModelCost:
    """Count the costs (parameters, MACs, FLOPs, memory) of a model by its name. A size that is None is the model's own,
    else 224 px, 3 channels or 1,000 classes. `options`: (name, value) of options of the model.

    Raises:
        UserError: the model is unknown, or does not take a size or option.
    """
    from bench.cost import flops
    from vit import config

    registry.check_model(model)
    preset = config.parse(ModelName.parse(model).base)
    own = preset or {"image_size": registry.own_image_size(model) or 224}
    sizes = {
        name: given if given is not None else own.get(key, default)
        for name, key, given, default in (
            ("image_size", "image_size", image_size, 224),
            ("channels", "channels", channels, 3),
            ("num_classes", "num_classes", classes, 1000),
        )
    }
    if sizes["image_size"] > MAX_IMAGE_SIZE:
        raise UserError(
            f"An image of {sizes['image_size']} pixels per side is too large.", f"At most {MAX_IMAGE_SIZE:,}."
        )
    if sizes["image_size"] < 1 or sizes["channels"] < 1 or sizes["num_classes"] < 0:
        raise UserError(f"Sizes {sizes} are out of range.", "Image and channels at least 1, classes at least 0.")
    try:
        return flops.count(model, model_options=tuple(options), **sizes)
    except TypeError as error:  # an option that the model's family does not have
        raise UserError(f"Model {model!r} refuses the options {dict(options)}: {error}") from error


def describe(cost: ModelCost, *, conventions: tuple[str, ...] = CONVENTIONS) -> dict[str, Any]:
    """Return all counts of a model as JSON types. Counts that depend on the convention of counting ("dense", "paper")
    are given for each of `conventions`."""
    return {
        "model": cost.model,
        "image_size": cost.image_size,
        "channels": cost.channels,
        "num_classes": cost.num_classes,
        "params": cost.params,
        "params_body": cost.params_body,
        "num_features": cost.num_features,
        "forward_macs": _of(cost.forward_macs, conventions),
        "forward_flops": _of(cost.forward_flops, conventions),
        "backward_flops": _of(cost.backward_flops, conventions),
        "train_flops_per_image": _of(cost.train_flops_per_image, conventions),
        "activation_bytes": cost.activation_bytes,
    }


def by_module(own: Mapping[str, int], *, depth: int) -> dict[str, int]:
    """Return the MACs of every module down to `depth` levels, those of the modules inside it included: path of a module
    -> MACs, in the order in which modules ran; "" is the whole model. `own`: path of a module -> MACs of its own
    operations."""
    totals: dict[str, int] = {}
    for path, macs in own.items():
        parts = path.split(".") if path else []
        for length in range(min(depth, len(parts)) + 1):
            name = ".".join(parts[:length])
            totals[name] = totals.get(name, 0) + macs
    return totals


def checked(theirs: Crosscheck) -> dict[str, Any]:
    """Return a comparison of three counters as JSON types: the MACs of a forward pass (dense) by kind of operation, and
    what explains differences between the counters."""
    return {
        "macs": {kind: [theirs.ours[kind], theirs.torch[kind], theirs.fvcore[kind]] for kind in theirs.ours},
        "counters": ["ours", "torch", "fvcore"],
        "agree": {"torch": theirs.torch_agrees, "fvcore": theirs.fvcore_agrees},
        "only_fvcore_counts": dict(theirs.beyond),
        "fused_attention": theirs.fused_attention,
        "fvcore_counts_none_of": dict(theirs.without_formula),
        "missed_by_fvcore": list(theirs.missed),
        "why_not": theirs.why_not,
    }


def training(cost: ModelCost, images: float, *, accelerator: str, utilisation: float) -> dict[str, Any]:
    """Return the cost of training a model until it has seen this number of images, in exaFLOPs, TPUv3-core-days and
    hours of a device, as JSON types.

    Args:
        accelerator: name of the device.
        utilisation: fraction of the device's peak that training is assumed to reach.
    """
    flops = {convention: per_image * images for convention, per_image in cost.train_flops_per_image.items()}
    tpu = units.tpuv3_core_days(flops["paper"])
    gpu = units.gpu_hours(flops["dense"], accelerator, utilisation)
    return {
        "images": images,
        "exaflops": {convention: value / units.EXA for convention, value in flops.items()},
        "tpuv3_core_days": {"value": tpu.value, "assumed_utilisation": tpu.assumed, "source": tpu.source},
        "gpu_hours": {"value": gpu.value, "device": gpu.device, "assumed_utilisation": gpu.assumed},
        "tpuv3_check": units.reproduction_text(),
    }


def _of(values: Mapping[str, int], conventions: tuple[str, ...]) -> dict[str, int]:
    return {convention: values[convention] for convention in conventions}


def _text(report: dict[str, Any]) -> str:
    conventions = tuple(report["forward_macs"])
    size = report["image_size"]
    lines = [
        f"{report['model']} at {size} px, {report['channels']} channels, {report['num_classes']} classes; one image",
        f"  {'parameters':32}{report['params']:>22,}",
        f"  {'  without head and embeddings':32}{report['params_body']:>22,}",
        f"  {'':32}" + "".join(f"{c:>22}" for c in conventions),
    ]
    rows = (
        ("MACs forward", "forward_macs"),
        ("FLOPs forward", "forward_flops"),
        ("FLOPs backward", "backward_flops"),
        ("FLOPs training (6 x MACs)", "train_flops_per_image"),
    )
    lines += [f"  {label:32}" + "".join(f"{report[key][c]:>22,}" for c in conventions) for label, key in rows]
    if any(report["backward_flops"][c] != 2 * report["forward_flops"][c] for c in conventions):
        lines.append("    (the usual count, 3 x forward; backward as counted leaves out the gradient of the image,")
        lines.append("    which is not needed: forward and backward add up to less)")
    kept = report["activation_bytes"]
    lines.append(f"  {'activations kept for training':32}{kept:>22,} bytes (float32, fused attention)")
    if "by_module" in report:
        lines += ["", *_module_lines(report["by_module"], conventions)]
    if "check" in report:
        lines += ["", *_check_lines(report["check"])]
    if "training" in report:
        lines += ["", *_training_lines(report["training"])]
    return "\n".join(lines)


def _module_lines(modules: Mapping[str, Mapping[str, int]], conventions: tuple[str, ...]) -> list[str]:
    """Return one line per module: its parameters, its MACs by our counter and by fvcore, and its fraction of the
    model's MACs. `modules`: column ("params", a convention or "fvcore") -> path of a module -> number."""
    columns = ("params", *conventions, "fvcore")
    headings = ("parameters", *(f"MACs, {c}" for c in conventions), "fvcore")
    total = modules[conventions[0]].get("", 0) or 1
    lines = [f"  {'module':40}" + "".join(f"{heading:>18}" for heading in headings) + f"{'share':>8}"]
    for name, macs in modules[conventions[0]].items():
        numbers = (modules[column].get(name) for column in columns)
        cells = "".join(f"{'-' if number is None else f'{number:,}':>18}" for number in numbers)
        lines.append(f"  {name or '(model)':40}{cells}{macs / total:>8.1%}")
    return [*lines, "  fvcore counts norms and pooling too"]


def _check_lines(check: Mapping[str, Any]) -> list[str]:
    """Return a line with the MACs of three counters for each kind of operation, then lines that explain differences
    between the counters. `check`: the result of `checked`."""
    from bench.cost.crosscheck import ATTENTION, FVCORE_ONLY

    def line(name: str, numbers: Sequence[int | None]) -> str:
        return f"    {name:36}" + "".join(f"{'-' if n is None else f'{n:,}':>18}" for n in numbers)

    untraced = bool(check["why_not"])
    rows = {kind: [*macs[:2], None if untraced else macs[2]] for kind, macs in check["macs"].items()}
    sums = [None if untraced and place == 2 else sum(macs[place] for macs in rows.values()) for place in range(3)]
    lines = ["  MACs forward (dense), by three counters"]
    lines += [f"    {'':36}" + "".join(f"{name:>18}" for name in check["counters"])]
    lines += [line(kind, macs) for kind, macs in rows.items()]
    lines += [line("together", sums)]
    lines += [line(f"{name} ({FVCORE_ONLY[name]})", [None, None, n]) for name, n in check["only_fvcore_counts"].items()]
    if untraced:
        return [*lines, f"    fvcore cannot trace this model: {check['why_not']}"]
    if check["only_fvcore_counts"]:
        lines.append("    fvcore counts norms, pooling and resizing, which are no contractions")
    if check["fused_attention"]:
        lines.append(f"    fvcore has no formula for {ATTENTION}; it was given one, without which it counts")
        lines.append(f"    {check['fused_attention']:,} MACs less")
    if check["missed_by_fvcore"]:
        lines.append(f"    fvcore has no formula for these contractions: {', '.join(check['missed_by_fvcore'])}")
    if nothing := [name.removeprefix("aten::") for name in check["fvcore_counts_none_of"]]:
        lines.append(textwrap.fill(f"fvcore counts nothing for {', '.join(nothing)}", 110, **INDENT))
    for name, agrees in check["agree"].items():
        lines.append(f"    {name} {'agrees with our count' if agrees else 'DIFFERS from our count'}")
    return lines


def _training_lines(training: dict[str, Any]) -> list[str]:
    tpu, gpu = training["tpuv3_core_days"], training["gpu_hours"]
    exa = ", ".join(f"{compact(value)} ({c})" for c, value in training["exaflops"].items())
    return [
        f"  training on {training['images']:,.0f} images",
        f"    exaFLOPs         {exa}",
        f"    TPUv3-core-days  {compact(tpu['value'])} (proxy: {tpu['assumed_utilisation']:.1%} of peak; "
        f"{tpu['source']})",
        f"    {gpu['device']}-hours  {compact(gpu['value'])} (assuming {gpu['assumed_utilisation']:.0%} of peak)",
        f"    {training['tpuv3_check']}",
    ]


COSTS = {  # column of the table of timm's models -> heading, unit
    "params": ("M params", 1e6),
    "macs_dense": ("GMACs dense", 1e9),
    "macs_paper": ("paper", 1e9),
    "train_flops_dense": ("training GFLOPs", 1e9),
    "activation_bytes": ("activations MB", 1e6),
}


def _costs(pattern: str, *, as_json: bool) -> int:
    """Print the costs of timm's models whose name or family matches a pattern ("convnext*"); return the exit code."""
    from baselines import timm
    from baselines.published import timm_costs

    wanted = pattern.removeprefix(timm.PREFIX)
    found = [row for name, row in timm_costs.table().items() if fnmatch(name, wanted) or fnmatch(row["family"], wanted)]
    if not found:
        raise unknown("model of timm", pattern, timm_costs.table())
    if as_json:
        print(json.dumps(found, indent=2))
        return EXIT_OK
    print(f"{'timm:':40}{'px':>5}" + "".join(f"{heading:>17}" for heading, _ in COSTS.values()))
    for row in found:
        costs = (f"{int(row[key]) / unit:>17,.2f}" for key, (_, unit) in COSTS.items() if not row["why_not"])
        print(f"{row['model']:40}{row['image_size']:>5}" + ("".join(costs) or f"  not counted: {row['why_not']}"))
    print(f"{len(found)} of {len(timm_costs.table()):,} models of timm, one image; {timm_costs.heading()}")
    return EXIT_OK


def _list(*, as_json: bool) -> int:
    """Print how the models of every family are named, and the names that each family lists; return the exit code."""
    families = list(registry.families())
    if as_json:
        made: dict[str, dict[str, Any]] = {}  # several files may make models of one family
        for family in families:
            about = made.setdefault(family.label, {"naming": None, "names": []})
            about["naming"] = "; ".join(filter(None, (about["naming"], family.naming))) or None
            about["names"] += family.names
        print(json.dumps(made, indent=2))
        return EXIT_OK
    for family in families:
        listed = f"\n  {', '.join(family.names)}" if family.names else ""
        print(f"{family.label}: {family.naming or 'these names'}{listed}")
    print("What one costs: vit-bench flops NAME; the paper's own: --paper-table")
    return EXIT_OK


def _paper_table(*, as_json: bool) -> int:
    from bench.cost.paper_table import rows

    table = rows()
    print(json.dumps([_row_json(row) for row in table], indent=2) if as_json else _table_text(table))
    return EXIT_OK if all(row.within for row in table) else EXIT_FAILED


def _row_json(row: PaperRow) -> dict[str, Any]:
    return {
        "name": row.printed,
        "model": row.model,
        "epochs": row.epochs,
        "forward_macs": {"paper": row.forward_macs},
        "exaflops": row.ours,
        "published": row.theirs,
        "ratio": row.ratio,
        "tolerance": row.tolerance,
        "within": row.within,
        "contradicted": row.note or None,
    }


def _table_text(rows: list[PaperRow]) -> str:
    header = f"{'model':16}{'epochs':>7}{'GMACs forward':>15}{'exaFLOPs':>11}{'published':>11}{'ratio':>8}"
    lines = ["The paper's Table 6 (224 px, JFT-300M, convention: paper)", "", header]
    for row in rows:
        mark = ("" if row.within else "  OUTSIDE TOLERANCE") + ("  *" if row.note else "")
        numbers = f"{row.forward_macs / 1e9:>15.3f}{row.ours:>11.1f}{row.theirs:>11g}{row.ratio:>8.3f}"
        lines.append(f"{row.printed:16}{row.epochs:>7}{numbers}{mark}")
    lines += ["", *(f"* {row.printed}, {row.epochs} epochs: {row.note}" for row in rows if row.note)]
    within = sum(row.within for row in rows)
    lines += [f"{within} of {len(rows)} rows within tolerance (1.5 %; the starred ones 2.5 % and 3.5 %)."]
    return "\n".join([*lines, units.reproduction_text()])


if __name__ == "__main__":
    sys.exit(main(None))
