"""torch's AdamW and SGD without the wrappers that torch puts around their methods for `torch.compile`."""

from __future__ import annotations

from typing import Any

import torch


def _bare(method: Any) -> Any:
    return getattr(method, "__wrapped__", method)


class _Eager:
    """A base class that makes an optimizer with one parameter group run without torch's wrappers around its methods.
    These wrappers import torch's compiler at their first call, which takes as long again as importing torch: longer
    than a short training run."""

    zero_grad = _bare(torch.optim.Optimizer.zero_grad)
    add_param_group = _bare(torch.optim.Optimizer.add_param_group)


class AdamW(_Eager, torch.optim.AdamW):
    """torch's AdamW without the wrappers for `torch.compile` around its methods; see `_Eager`."""

    step = torch.no_grad()(_bare(torch.optim.AdamW.step))


class SGD(_Eager, torch.optim.SGD):
    """torch's SGD without the wrappers for `torch.compile` around its methods; see `_Eager`."""

    step = torch.no_grad()(_bare(torch.optim.SGD.step))
