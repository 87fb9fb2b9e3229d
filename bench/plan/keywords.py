"""The options of a study as keyword arguments, for editors and type checkers; a test holds it to the table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar

from bench.core.options import Option

Call = TypeVar("Call", bound=Callable[..., Any])


class Keywords(TypedDict, total=False):
    plugins: Sequence[Path | str]
    suite: str
    scale: str
    models: Sequence[str]
    data: Sequence[str]
    sizes: Sequence[int]
    downstream: Sequence[str]
    image_size: int
    hours: float
    tasks: Sequence[str]
    seeds: int
    grid: Sequence[str]
    horizons: Sequence[str]
    recipe: str
    set: Mapping[str, Any]
    sweep: Mapping[str, Any]
    rehearse: bool
    only: Sequence[str]
    results: Path | str
    data_root: Path | str
    groups: Path | str
    max_unreadable: float | str
    device: str
    workers: int
    share: str
    ranks: int
    executor: Literal["local", "slurm", "ray"]
    job: Sequence[str]
    detach: bool
    nodes: int
    max_cells: int
    retry: Literal["failed"]
    co2: float
    changed: Literal["refuse", "keep", "redo"]
    calibrate: bool
    accelerator: str
    hardware: str
    cores: int
    price: str
    reference: Literal["paper", "published"]
    target: Sequence[float | str]
    track: Sequence[str]
    profile: bool


"""Any of them; None is as good as not given."""


def spelt_out(options: Sequence[Option]) -> Callable[[Call], Call]:
    """Give a function that ends in `**options` a signature and a docstring that name every option."""

    def wrap(function: Call) -> Call:
        own = [p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD]
        named = [inspect.Parameter(o.name, inspect.Parameter.KEYWORD_ONLY, default=o.default) for o in options]
        function.__signature__ = inspect.Signature([*own, *named])  # type: ignore[attr-defined]
        lines = (f"    {option.name}: {option.help.replace('%%', '%')}" for option in options)
        function.__doc__ = "\n".join([f"{function.__doc__}\n\nOptions:", *lines])
        return function

    return wrap
