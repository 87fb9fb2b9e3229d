"""The best adapted model of a study as one file, which timm alone loads: `vit-bench report --suite adapt --export F`.

Its classifier is refitted, as the study fitted it, on features that the cache holds; what standardises features is
folded into its weights. `bench.analysis.adaptation.USAGE` loads the file.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from bench.analysis.adaptation import WAYS, adapted
from bench.core import files
from bench.core.data_settings import GROUPS, remember_labels
from bench.core.errors import UserError
from bench.report.build import measured
from bench.store.grid import STUDY_FILE
from bench.study import registry
from bench.study.options import read_study

MIN_SHARE_ALIKE = 0.99  # least fraction of test images that are right, or wrong, both here and in the study
CHECKED_IMAGES = 8  # images on which timm's own network must give the same logits


def export(study: Path, *, suite: str, path: Path, data_root: Path | None) -> str:
    """Write the best adapted model of a study to one file, which timm alone loads. Return a sentence that describes the
    file. If the best classifier is not linear, the same model's linear one is exported.

    Args:
        study: the study's folder.
        suite: name of the suite that the study ran.
        path: the file.
        data_root: folder with data sets that are not installed; None: the study's.

    Raises:
        UserError: the study has no adapted model, or adapted models for several data sets; the best model has no linear
            classifier; timm alone cannot make the network; images or weights are no longer those of the study.
    """
    evidence = measured(study, suite, None)[0]
    every = adapted(evidence)
    if not every:
        what = f"{study} has no adapted model that decides on one label an image, which is what a file is of."
        raise UserError(what, "Of several labels an image, the report has the scores alone.")
    if len(sets := {one.data for one in every}) != 1:
        what = f"{study} has adapted models for {len(sets)} sets of images, and one file is for one."
        raise UserError(what, "Run --suite adapt with one --data in a --results of its own.")
    best = every[0]
    chosen = next((one for one in every if one.point is best.point and one.way in ("ridge", "logistic")), None)
    if chosen is None:
        raise UserError(f"{best.name} has no linear classifier.", "Run --suite adapt with all of its ways.")
    record = next(r for r in evidence.records.records if r.directory in evidence.cells[best.point.variant])
    said = read_study(study / STUDY_FILE) if (study / STUDY_FILE).is_file() else {}
    if "groups" in said:
        os.environ[GROUPS] = str(said["groups"])
    if "labels" in said or "label_columns" in said:
        remember_labels(said.get("labels"), said.get("label_columns", ()))
    recorded = None if (known_SD := chosen.samples[-1].correct_SD) is None else known_SD.flat[0]
    tested = None if recorded is None else recorded.content_hash
    content, right_M = _made(record, chosen.way, root=data_root or said.get("data_root"), tested=tested)
    same = 1.0 if recorded is None else float((recorded.right_M == right_M).mean())
    if same < MIN_SHARE_ALIKE:
        what = f"{chosen.name} is right and wrong as in the study on {same:.0%} of the test images only."
        raise UserError(what, "Its weights, images or libraries are not what they were: run the study again.")
    buffer = io.BytesIO()
    import torch

    torch.save(content, buffer)
    files.write_bytes(path, buffer.getvalue())
    instead = f" in place of {WAYS[best.way]}, which is not linear" if best is not chosen else ""
    return f"{path}: {chosen.name}{instead}; right on {int(right_M.sum()):,} of {len(right_M):,} test images."


def _made(record: Any, way: str, *, root: Path | None, tested: str | None) -> tuple[dict[str, Any], np.ndarray]:
    """Return the contents of the exported file, and which test images its classifier gets right, (M,) bool.

    Args:
        record: the record of the cell (training run) that adapted the model.
        way: how its classifier was fitted, a key of `adapt.HEADS`: "ridge" or "logistic".
        root: folder with data sets that are not installed.
        tested: content hash of the study's test images; None if the record does not state it.
    """
    import timm
    import torch

    from baselines import timm as family
    from bench.core.device import InBatches
    from bench.core.seeds import stream
    from bench.data.load import load
    from bench.tasks import adapt
    from bench.tasks._features import Kept, extractor, frozen, network_input
    from bench.tasks.task import TaskContext
    from bench.train import inference

    cell, task = record.cell, next(task for task in record.cell.tasks if task.task == "adapt")
    impossible = UserError(f"{cell.model} cannot be exported: timm alone does not make it.", "Models named timm:… are.")
    if not family.accepts(cell.model):
        raise impossible
    device = "cuda" if record.execution.device == "cuda" and torch.cuda.is_available() else "cpu"
    classes = load(task.data, "test", root=root).class_names
    sizes, batches = {"image_size": cell.image_size, "channels": cell.channels}, InBatches(device=device)
    torch.manual_seed(stream(cell.seed, "init"))
    options = dict(cell.model_options)
    model: Any = registry.build_model(cell.model, **sizes, num_classes=len(classes), **options).to(device).eval()
    dtype = inference.resolve(cell.recipe.evaluation_dtype, device, model)
    network = inference.in_precision(model, dtype=dtype, device=device, batches=batches)
    about = frozen(cell.model, dtype=dtype, device=device, **sizes)
    features = Kept(extractor(network, **sizes, device=device, batches=batches), model=model, about=about)

    def read(name: str, split: str) -> Any:
        labelled = split == "train" and name == cell.data
        return load(name, split, root=root, num_images=cell.num_images if labelled else None)

    context = TaskContext(features=features, load=read)
    train, train_ND, test, test_MD, *_ = adapt.read(context, data=task.data, **task.kwargs)
    contents = (record.data.content_hash, read(cell.data, "train").content_hash), (tested, test.content_hash)
    if any(then not in (None, now) for then, now in contents):
        what = f"{task.data} has other images than the study had."
        raise UserError(what, "Run the study again: its numbers are of other images.")
    in_order_N = adapt.drawn(train, task.data, 0)[0]  # the study's order, on which cross-validation folds depend
    train, train_ND = train.take(in_order_N), train_ND[in_order_N]
    w_DK, b_K = adapt.HEADS[way](train_ND, train.labels_N, len(classes), train.groups_N)
    right_M = (test_MD.astype(np.float64) @ w_DK + b_K).argmax(1) == test.labels_N

    own, side = model.cpu().own_input, test.images_NHWC.shape[1]
    x_BCHW = network_input(torch.from_numpy(np.array(test.images_NHWC[:CHECKED_IMAGES])), **sizes)
    if (
        model.head is None
        or model.head.bias is None
        or (side != cell.image_size != own.input_size)
        or own.input_size < cell.image_size
    ):
        raise impossible
    with torch.inference_mode():
        model.head.weight.copy_(torch.from_numpy(w_DK.T).view_as(model.head.weight))
        model.head.bias.copy_(torch.from_numpy(b_K))
        expected_BK, own_BCHW = model(x_BCHW), own(x_BCHW)
    state = model.original().state_dict()
    source, arguments = family.created_by(cell.model)
    arguments = {name: v for name, v in (arguments | options).items() if name not in ("input_size", "num_classes")}
    try:
        plain = timm.create_model(source, num_classes=len(classes), img_size=own.input_size, **arguments)
        arguments["img_size"] = own.input_size
    except TypeError:  # the network takes any size, and no `img_size`
        plain = timm.create_model(source, num_classes=len(classes), **arguments)
    plain.load_state_dict(state)
    with torch.inference_mode():
        if not torch.allclose(plain.eval()(own_BCHW), expected_BK, rtol=1e-3, atol=1e-3):
            raise impossible
    std = 0.5 / own.scale[0]
    return {
        "architecture": source,
        "arguments": arguments,
        "state_dict": state,
        "classes": list(classes),
        "side": side,
        "input_size": [own.channels, own.input_size, own.input_size],
        "mean": 0.5 - own.shift[0] * std,
        "std": std,
        "crop": "central square, bicubic to side",
        "trained_on": f"{task.data}, {len(train):,} images, {WAYS[way]}",
    }, right_M
