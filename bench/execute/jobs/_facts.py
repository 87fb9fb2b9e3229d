"""What every record says of its model and of its images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.core import registry
from bench.core.spec import Cell
from bench.data.image_set import ImageSet

if TYPE_CHECKING:
    from bench.cost.flops import ModelCost


def model_facts(name: str, cost: ModelCost) -> dict[str, Any]:
    """The record's "model"."""
    return {
        "name": name,
        "family": registry.family_of(name).FAMILY,
        "params": cost.params,
        "params_body": cost.params_body,
        "num_features": cost.num_features,
        "forward_macs": dict(cost.forward_macs),
        "train_flops_per_image": cost.train_flops_per_image,
    }


def data_facts(cell: Cell, train: ImageSet, val: ImageSet) -> dict[str, Any]:
    """The record's "data": what a cell trains on and is held to."""
    return {
        "name": cell.data,
        "kind": train.kind,
        "revision": registry.load("data set", cell.data).REVISION,
        "num_images": len(train),
        "num_classes": train.num_classes,
        "content_hash": train.content_hash,
        "image_size": cell.image_size,
        "channels": cell.channels,
        "num_val": len(val),
    }
