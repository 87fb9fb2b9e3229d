"""Remove tensors of the meta device from the caches of other libraries.

A library may keep the tensor that a function returned, to return it again when the function is called with the same
arguments (transformers' BEiT so keeps an index for each size of its grid). A tensor that was made in a pass on the meta
device has no values, and a later pass on another device would read arbitrary values without an error.
"""

from __future__ import annotations

import functools
import gc
from typing import Any

from torch import Tensor

_CACHE = type(functools.lru_cache(lambda: None))
MOST_NESTED = 3  # depth of nested containers in which a cached tensor is searched


def forget_meta() -> None:
    """Clear every `functools.lru_cache` of this process that holds a tensor on the meta device, so that its values are
    computed anew."""
    for one in [one for one in gc.get_objects() if type(one) is _CACHE]:
        if any(_on_meta(kept) for kept in gc.get_referents(one)):
            one.cache_clear()


def _on_meta(value: Any, nested: int = 0) -> bool:
    if isinstance(value, Tensor):
        return value.is_meta
    if nested == MOST_NESTED or not isinstance(value, dict | list | tuple):
        return False
    return any(_on_meta(one, nested + 1) for one in (value.values() if isinstance(value, dict) else value))
