"""The table of timm's models: parameters, MACs, training FLOPs and activations of each, at its own input size.

`python -m tools.timm_table baselines/timm_models.csv` makes it again, model by model on the meta device: no weights
are downloaded or allocated. Run again after an interruption, it goes on. Beside our counts stands what
`torch.utils.flop_counter` finds (it has one convention, that of `macs_dense`).
"""

from __future__ import annotations

import csv
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.core import environment
from bench.core.errors import UserError
from bench.cost.crosscheck import torch_by_operation
from bench.cost.flops import FLOPS_PER_MAC, TRAIN_PER_FORWARD, count_forward
from bench.cost.memory import activation_bytes

COLUMNS = (
    "model",
    "family",
    "image_size",
    "channels",
    "num_classes",
    "num_features",
    "params",
    "macs_dense",
    "macs_paper",
    "train_flops_dense",
    "train_flops_paper",
    "activation_bytes",
    "torch_flops",
    "why_not",
)
TRAIN_FLOPS_PER_MAC = FLOPS_PER_MAC * TRAIN_PER_FORWARD


def heading() -> str:
    """The first line: of what versions the numbers are. timm's code is licensed under Apache-2.0."""
    version = environment.version
    versions = f"timm {version('timm')}, torch {(version('torch') or '').partition('+')[0]}"
    return (
        f"# {versions}; counted from timm's code (Apache-2.0) by python -m tools.timm_table; one image, "
        "training = 6 x MACs, activations in float32\n"
    )


def row(name: str) -> dict[str, Any]:
    """Costs of one architecture at its own input size, with its own classifier; "why_not" where it cannot be "
    "counted."""
    import timm
    import torch

    made: dict[str, Any] = {"model": name, "family": timm.models.model_entrypoint(name).__module__.rpartition(".")[2]}
    try:
        with torch.device("meta"):
            model: Any = timm.create_model(name).eval()
        channels, side, width = model.default_cfg["input_size"]
        made |= {"image_size": side, "channels": channels, "num_classes": model.num_classes}
        made |= {"num_features": getattr(model, "head_hidden_size", None) or model.num_features}
        made |= {"params": sum(parameter.numel() for parameter in model.parameters())}

        def images(batch: int) -> torch.Tensor:
            return torch.empty(batch, channels, side, width, device="meta")

        made |= {"torch_flops": FLOPS_PER_MAC * sum(torch_by_operation(model, images(1)).values())}
        counter = count_forward(model, images(1))
        for convention in ("dense", "paper"):
            macs = counter.total(convention)
            made |= {f"macs_{convention}": macs, f"train_flops_{convention}": TRAIN_FLOPS_PER_MAC * macs}
        made |= {"activation_bytes": activation_bytes(model, images)}
    except Exception as error:
        made["why_not"] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    return made


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a table that was begun; none where there is no file.

    Raises:
        UserError: it is of other versions, or another kind of file.
    """
    if not path.exists():
        return []
    with open(path, encoding="utf-8", newline="") as file:
        first, second, *lines = [*file, "", ""]
        if first != heading() or second.strip() != ",".join(COLUMNS):
            raise UserError(f"{path} is not a table of {heading()[2:].partition(';')[0]}.", "Name a new file.")
        return [entry for entry in csv.DictReader(lines, COLUMNS) if entry["model"]]


def write(path: Path) -> Iterator[tuple[dict[str, Any], int, int, float]]:
    """Count what the table lacks, a line at a time: yields (row, number of rows, of how many, seconds)."""
    import timm

    names = timm.list_models()
    done = {entry["model"] for entry in read(path)}
    new = not path.exists()
    with open(path, "a", encoding="utf-8", newline="") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            file.write(heading())
            table.writeheader()
        for name in names:
            if name in done:
                continue
            started = time.perf_counter()
            entry = row(name)
            table.writerow(entry)
            file.flush()
            done.add(name)
            yield entry, len(done), len(names), time.perf_counter() - started


def main(path: Path) -> None:
    seconds = 0.0
    for made, done, total, took in write(path):
        seconds += took
        print(f"{done:5} of {total}  {made['model']:48}{took:6.1f} s  {made.get('why_not', '')}", flush=True)
    why_not = [entry for entry in read(path) if entry["why_not"]]
    print(f"{path}: {len(read(path)) - len(why_not):,} models counted, {len(why_not)} not; {seconds:,.0f} s this time.")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
