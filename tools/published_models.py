"""Brings the tables of published checkpoints up to date with a checkout of timm, and prints what changed.

    python -m tools.published_models                   counts the MACs that results or recipes need and tables lack
    python -m tools.published_models --timm CHECKOUT   reads the results of a checkout of timm's repository first
    python -m tools.published_models --recount 40      counts that many committed rows again, spread over the table

Run it after a line of `baselines/published/recipes.csv` was added. A training recipe is written by hand; all else that
the tables hold is made here. Raise `VERSION` in `bench/published/public_models.py` when numbers changed.
"""

from __future__ import annotations

import argparse
import csv
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from baselines.published import timm_costs
from bench.published import public_models, training_stages

CLASSES = 1000
Key = tuple[str, str]
"""(checkpoint, pixels per side of test images)."""
RESULTS = {
    "in1k": "results-imagenet.csv",
    "real": "results-imagenet-real.csv",
    "v2": "results-imagenetv2-matched-frequency.csv",
    "a": "results-imagenet-a.csv",
    "r": "results-imagenet-r.csv",
    "sketch": "results-sketch.csv",
}
RESULT_COLUMNS = ("model", "image_size", "own_size", "params_m", *public_models.TESTS, "licence")
MAC_COLUMNS = ("arch", "image_size", "macs_dense", "macs_paper", "counted_as")
SIBLINGS = {
    "coat_lite_medium_384": "coat_lite_medium",
    "swin_base_patch4_window12_384": "swin_base_patch4_window7_224",
    "swin_large_patch4_window12_384": "swin_large_patch4_window7_224",
    "swinv2_base_window12to16_192to256": "swinv2_base_window12_192",
    "swinv2_base_window12to24_192to384": "swinv2_base_window12_192",
    "swinv2_large_window12to16_192to256": "swinv2_large_window12_192",
    "swinv2_large_window12to24_192to384": "swinv2_large_window12_192",
}
"""Architectures whose pre-training was done as another: windows grew with the image."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timm", type=Path, help="a checkout of huggingface/pytorch-image-models")
    parser.add_argument("--recount", type=int, help="rows to count again")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.timm:
        for line in _update_results(options.timm / "results"):
            print(line)
    if options.recount:
        rows = public_models.read("timm_macs")
        for row in rows[:: max(1, len(rows) // options.recount)]:
            counted = count(row["counted_as"], int(row["image_size"]))
            same = counted == (int(row["macs_dense"]), int(row["macs_paper"]))
            print(f"{'as before' if same else 'DIFFERENT'} {row['arch']} at {row['image_size']}: {counted}")
        return
    for line in _count_missing():
        print(line, flush=True)


def needed() -> set[tuple[str, int]]:
    """(architecture, pixels per side) of all tests, of all stages of training, and of what checks the counts."""
    made = {
        (row["arch"], int(size))
        for row in public_models.read("checks")
        for size in re.findall(r"@(\d+)", row["stages"])
    }
    for row in public_models.read("timm_results"):
        model, own = row["model"], int(row["own_size"])
        arch = model.partition(".")[0]
        made.add((arch, int(row["image_size"])))
        recipe = public_models.recipe_of(model)
        if recipe is not None:
            done = training_stages.stages(recipe, model, own_size=own, images=public_models.images_of_sets())
            made |= {(arch, stage.image_size) for stage in done}
    return made


def counted_as(arch: str, image_size: int) -> str:
    """The architecture that is counted for another at one size: itself, or the sibling that was made for the size."""
    if arch in SIBLINGS and image_size < int(timm_costs.table()[arch]["image_size"]):
        return SIBLINGS[arch]
    sibling = re.sub(r"_\d{3}$", f"_{image_size}", arch)
    return sibling if sibling in timm_costs.table() else arch


def count(arch: str, image_size: int) -> tuple[int, int]:
    """MACs of one forward pass with 1000 classes, on the meta device: (dense, paper)."""
    import timm
    import torch

    from bench.cost.flops import count_forward

    with torch.device("meta"):
        try:
            model: Any = timm.create_model(arch, num_classes=CLASSES, img_size=image_size)
        except TypeError:  # most convolutional networks take any size, and have no such argument
            model = timm.create_model(arch, num_classes=CLASSES)
        counter = count_forward(model.eval(), torch.empty(1, 3, image_size, image_size))
    return counter.total("dense"), counter.total("paper")


def _count_missing() -> Iterator[str]:
    rows = {(row["arch"], int(row["image_size"])): row for row in public_models.read("timm_macs")}
    own = {
        (row["model"], int(row["image_size"]))
        for row in timm_costs.table().values()
        if row["macs_dense"] and row["num_classes"] == str(CLASSES)
    }
    wanted = needed()
    for arch, size in sorted(wanted - own - rows.keys()):
        name = counted_as(arch, size)
        dense, paper = count(name, size)
        rows[arch, size] = dict(zip(MAC_COLUMNS, (arch, str(size), str(dense), str(paper), name), strict=True))
        yield f"counted {arch} at {size} as {name}: {dense:,}"
    kept = [row for key, row in sorted(rows.items()) if key in wanted - own]
    yield f"{len(kept)} rows; {len(rows) - len(kept)} that nothing needs are gone"
    _write("timm_macs", MAC_COLUMNS, kept)


def _update_results(folder: Path) -> Iterator[str]:
    from timm.models import get_pretrained_cfg

    made: dict[tuple[str, str], dict[str, str]] = {}
    for prefix, name in RESULTS.items():
        with open(folder / name, encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                entry = made.setdefault((row["model"], row["img_size"]), dict.fromkeys(RESULT_COLUMNS, ""))
                entry |= {"model": row["model"], "image_size": row["img_size"], f"{prefix}_top1": row["top1"]}
                entry["params_m"] = row["param_count"].replace(",", "")
                if prefix == "in1k":
                    entry["in1k_top5"] = row["top5"]
    for model, size in list(made):
        config = get_pretrained_cfg(model)
        if config is None or not made[model, size]["in1k_top1"]:
            yield f"left out: {model} at {size}, which this timm does not know or which has no ImageNet result"
            del made[model, size]
        else:
            made[model, size] |= {"own_size": str(config.input_size[-1]), "licence": config.license or ""}
    before = {(row["model"], row["image_size"]): row for row in public_models.read("timm_results")}
    yield from changes(before, made)
    ordered = sorted(made.values(), key=lambda row: (-float(row["in1k_top1"]), row["model"], int(row["image_size"])))
    _write("timm_results", RESULT_COLUMNS, ordered)


def changes(before: Mapping[Key, Mapping[str, str]], after: Mapping[Key, Mapping[str, str]]) -> Iterator[str]:
    """A line per row that is new, gone or has other values, with these; then how many."""
    kinds = Counter[str]()
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        kind = "new" if old is None else "gone" if new is None else "changed"
        kinds[kind] += 1
        values = [f"{n} {v} -> {new[n]}" for n, v in old.items() if v != new[n]] if old and new else []
        yield f"{kind}: {key[0]} at {key[1]}" + (f" ({', '.join(values)})" if values else "")
    yield ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())) or "nothing changed"


def _write(name: str, columns: tuple[str, ...], rows: list[dict[str, str]]) -> None:
    with open(public_models.FOLDER / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
        made = csv.DictWriter(file, columns, lineterminator="\n")
        made.writeheader()
        made.writerows(rows)


if __name__ == "__main__":
    main()
