"""Which networks of vit-pytorch, transformers and timm can be counted, trained and probed here:

    python -m tools.strangers [--csv FILE] [--only transformers] [--each 4]

Every network is counted, takes a training step of the project's own loop, and gives features, in this process. Those
that cannot say why. It ends with 1 where one is refused whose reason is not among those known (`KNOWN`).
"""

from __future__ import annotations

import argparse
import csv
import gc
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np

from tools.strangers import networks

CLASSES, BATCH = 10, 4
KNOWN = {
    "vit-pytorch ats_vit": "samples tokens at random, also in test mode",
    "vit-pytorch cait": "leaves layers out at random, also in test mode",
    "vit-pytorch normalized_vit": "scales its logits after the last layer: give it features, num_features and head",
    "vit-pytorch simple_vit_with_qk_norm": "makes features, no logits",
    "vit-pytorch vit_with_decorr": "makes a pair of logits and a loss",
}
"""Networks that run in plain torch, and why they are not used as they come."""
BROKEN = "fails in plain torch too: "


@dataclass(frozen=True)
class Tried:
    """What one network did: "yes", or why it did not."""

    library: str
    network: str
    gmacs: str
    counted: str
    trained: str
    probed: str
    seconds: str


def every(file: Path) -> list[tuple[str, str, str]]:
    """(library, name, name as a model) of all.

    Args:
        file: `networks.model_file`.
    """
    own = [("vit-pytorch", name) for name, _ in networks.VIT_PYTORCH.values()]
    own += [("transformers", name) for name in (*networks.TRANSFORMERS, "Dinov3ViT")]
    return [
        *((library, name, f"{file}:{name}") for library, name in own),
        *(("timm", name, f"timm:{name}") for name in networks.TIMM),
    ]


def attempt(library: str, network: str, model: str) -> Tried:
    """Count, train and probe a network, as far as it goes."""
    import torch

    from bench.core.device import InBatches
    from bench.cost import flops
    from bench.data.image_set import ImageSet
    from bench.study import registry
    from bench.study.cell import Recipe
    from bench.tasks._features import extractor
    from bench.train import inference, modes
    from bench.train.batches import Batches
    from bench.train.trainer import Trainer

    began, done = time.process_time(), {"counted": "", "trained": "", "probed": ""}
    sizes = {"image_size": networks.SIDE, "channels": 3, "num_classes": CLASSES}
    gmacs, stage = "", "counted"
    rng = np.random.default_rng(0)
    images = ImageSet(
        name="noise",
        split="train",
        kind="rendered",
        images_NHWC=rng.integers(0, 256, (4 * BATCH, networks.SIDE, networks.SIDE, 3), dtype=np.uint8),
        labels_N=np.arange(4 * BATCH) % CLASSES,
        class_names=tuple(map(str, range(CLASSES))),
    )
    try:
        gmacs = f"{flops.count(model, **sizes).forward_macs['dense'] / 1e9:.4f}"
        done["counted"], stage = "yes", "trained"
        torch.manual_seed(0)
        built = registry.build_model(model, **sizes)
        recipe = Recipe(lr=1e-3, batch=BATCH, warmup_images=0, dtype="float32")
        with modes.switched("off"):
            batches = Batches(images, recipe=recipe, seed=0, device="cpu")
            trainer = Trainer(
                model=built, recipe=recipe, horizons=(BATCH * 1000,), seed=0, device="cpu", batches=batches
            )
            built.train()
            trainer.step()
        if not all(torch.isfinite(value).all() for value in built.parameters()):
            raise ValueError("a weight was not finite after one step")
        done["trained"], stage = "yes", "probed"
        built.eval()
        several = InBatches(BATCH, device="cpu")
        dtype = inference.resolve("float32", "cpu", built)
        plain = inference.in_precision(built, dtype=dtype, device="cpu", batches=several)
        features = extractor(plain, image_size=networks.SIDE, channels=3, device="cpu", batches=several)
        together, alone = features(images.images_NHWC[:BATCH]), features(images.images_NHWC[:1])
        if not np.allclose(features(images.images_NHWC[:1]), alone, rtol=1e-3, atol=1e-4):
            raise ValueError("features of an image differ from call to call in test mode")
        if not np.allclose(together[:1], alone, rtol=1e-3, atol=1e-4):
            raise ValueError("features of an image depend on the others in its batch")
        done["probed"] = "yes"
    except Exception as error:  # a stranger's network may raise anything
        text = str(error).partition("\n")[0]
        said = text if type(error).__name__ == "UserError" else f"{type(error).__name__}: {text}"
        alone_too = None if library == "timm" or stage != "counted" else in_plain_torch(network)
        done[stage] = said if alone_too is None else BROKEN + alone_too
    gc.collect()
    return Tried(library, network, gmacs, **done, seconds=f"{time.process_time() - began:.1f}")


def in_plain_torch(network: str) -> str | None:
    """What a network says of a batch of images without this project; None where it runs."""
    import torch

    try:
        with torch.no_grad():
            networks.made(network, CLASSES).eval()(torch.rand(2, 3, networks.SIDE, networks.SIDE))
    except Exception as error:  # a stranger's network may raise anything
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    return None


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, help="write the table there")
    parser.add_argument("--only", help="of this library, or of this name")
    parser.add_argument("--each", type=int, default=1, help="only every so many of them")
    given = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    rows, unexpected, told = [], [], Counter[str]()
    folder = tempfile.TemporaryDirectory()
    file = Path(folder.name) / "strangers.py"
    file.write_text(networks.model_file())
    for library, name, model in every(file)[:: given.each]:
        if given.only not in (None, library, name):
            continue
        row = attempt(library, name, model)
        rows.append(row)
        usable = row.probed == "yes"
        told[f"{library}: {'usable' if usable else 'refused'}"] += 1
        why = next((text for text in (row.counted, row.trained, row.probed) if text not in ("", "yes")), "")
        known = KNOWN.get(f"{library} {name}")
        if not usable and known is None and not why.startswith(BROKEN):
            unexpected.append(name)
        print(f"{library} {name}: {'usable' if usable else why} ({row.gmacs} GMACs, {row.seconds} s)", flush=True)
    if given.csv:
        with open(given.csv, "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([entry.name for entry in fields(Tried)])
            writer.writerows(astuple(row) for row in rows)
    print(", ".join(f"{what} {number}" for what, number in sorted(told.items())))
    if unexpected:
        print("refused, and nobody knew:", ", ".join(unexpected))
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
