"""What every record says of its model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench import models

if TYPE_CHECKING:
    from bench.cost.flops import ModelCost


def model_facts(name: str, cost: ModelCost) -> dict[str, Any]:
    """The record's "model"."""
    return {
        "name": name,
        "family": models.family_of(name).FAMILY,
        "params": cost.params,
        "params_body": cost.params_body,
        "num_features": cost.num_features,
        "forward_macs": dict(cost.forward_macs),
        "train_flops_per_image": cost.train_flops_per_image,
    }
