"""Settings of users who train a model, and the search for the combination that is fastest. No torch here.

- layout: "contiguous" is NCHW, as torch's own loaders hand over images. "channels_last": images and, by
  `model.to(memory_format=torch.channels_last)`, weights. "channels_last images": images alone, as loaders do that
  permute pixels; only this project's step is tried with it.
- dtype: "float32", or "bfloat16": autocast, and in this project a copy of the weights. Weights that are bfloat16
  themselves are not tried: an update below 1/256 of a weight is lost, so that is another training.
- attention: "fused" is torch's `scaled_dot_product_attention`, "plain" two products and a softmax.
- compiled: "off", "blocks" (each Transformer block; they share one compilation), "whole".
- optimizer: AdamW and clipping as torch chooses them ("default"), or in their "foreach" or "fused" implementations.

A setting that a contender's own code decides is called "own".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from bench.study.record import PeerSettings, PeerTrial

OWN = "own"
AS_INSTALLED = PeerSettings()
LAYOUTS = ("contiguous", "channels_last")
ATTENTION = {"timm": ("fused", "plain"), "transformers": ("fused", "plain"), "torchvision": ("fused", "plain")}
OPTIMIZERS = ("default", "foreach", "fused")
NO_BFLOAT16 = "not tried: this processor has no units for bfloat16"

Axes = Mapping[str, Sequence[str]]
Compare = Callable[[PeerSettings, PeerSettings], tuple[float | None, str | None]]
"""(best so far, challenger) -> (speed of the latter over that of the former, None), or (None, why it does not work)."""


def first(package: str | None, *, tuned: bool, device: str, bfloat16: bool, own_dtype: str) -> PeerSettings:
    """Settings to begin with: those of a user who sets nothing, or the likely best.

    Args:
        package: of the library; None for this project. bfloat16: whether the device multiplies it in hardware.
        own_dtype: that this project's policy chooses.
    """
    if package is None:
        layout = "contiguous" if device == "cpu" else "channels_last images"  # as batches are made there
        return PeerSettings(layout=layout, dtype=own_dtype, attention=OWN, compiled=OWN, optimizer=OWN)
    attention = ATTENTION.get(package, (OWN,))[0]
    if not tuned:
        return replace(AS_INSTALLED, attention=attention)
    return replace(
        AS_INSTALLED, attention=attention, dtype="bfloat16" if bfloat16 else "float32", optimizer=OPTIMIZERS[-1]
    )


def axes(package: str | None, *, device: str, bfloat16: bool) -> tuple[Axes, ...]:
    """The settings that are tried: groups of settings that may change each other's effect; no group changes that of
    another."""
    dtypes = ("float32", "bfloat16") if bfloat16 else ("float32",)
    if package is None:
        return ({"dtype": dtypes, "layout": (*LAYOUTS, "channels_last images")},)
    together: dict[str, Sequence[str]] = {"dtype": dtypes, "layout": LAYOUTS}
    together["attention"] = ATTENTION.get(package, (OWN,))
    together["compiled"] = ("off", "blocks") if device == "cpu" else ("off", "whole")
    return together, {"optimizer": OPTIMIZERS}


def search(start: PeerSettings, groups: Sequence[Axes], compare: Compare) -> tuple[PeerSettings, tuple[PeerTrial, ...]]:
    """The settings that no single change within a group makes faster, and every trial. None is made twice."""
    best, tried, trials = start, {start}, list[PeerTrial]()
    for group in groups:
        improved = True
        while improved:
            improved = False
            for name, value in ((name, value) for name, values in group.items() for value in values):
                challenger = replace(best, **{name: value})
                if challenger in tried:
                    continue
                tried.add(challenger)
                over_best, reason = compare(best, challenger)
                kept = over_best is not None and over_best > 1.0
                trials.append(PeerTrial(settings=challenger, over_best=over_best, kept=kept, reason=reason))
                if kept:
                    best, improved = challenger, True
    return best, tuple(trials)
