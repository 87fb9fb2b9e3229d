"""The contenders: each library with what a user gets who sets nothing, and with its best settings. No torch here.

"defaults" is the model in a plain loop with what the library and torch do by themselves: float32, NCHW, eager, fused
attention where the library has it, AdamW without options, the system's allocator settings. "tuned" is whatever is
fastest here of the settings in `tools.race.settings`, by short trials before the race, with our worker's
allocator settings. This project chooses its own in the same way.
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass

LIBRARIES = {  # package -> what is called by which name, and how to get it
    "timm": ("timm", "pip install timm"),
    "vit_pytorch": ("vit-pytorch", "pip install vit-pytorch"),
    "transformers": ("Hugging Face", "pip install transformers"),
    "torchvision": ("torchvision", "pip install torchvision"),
}
OWN = "this project"
ALLOCATOR = ("MALLOC_", "GLIBC_TUNABLES", "THP_MEM_ALLOC", "LD_PRELOAD")  # beginnings of variables that tune it
BASE = "timm, defaults"  # what every ratio is over


@dataclass(frozen=True, kw_only=True)
class Competitor:
    """One way to train the model.

    Attributes:
        name: as shown. package: of the library; None is this project's own step.
        tuned: races with its best settings, and the allocator settings that go with them.
        processes: that train at once, each with its share of the threads; their images count together. Several have
            the settings that were best for one.
    """

    name: str
    package: str | None
    tuned: bool = False
    processes: int = 1

    @property
    def missing(self) -> str | None:
        """How to get the library, where it is not here."""
        if self.package is None or importlib.util.find_spec(self.package):
            return None
        return f"not installed: {LIBRARIES[self.package][1]}"

    def environment(self) -> dict[str, str]:
        """The environment of its process, from a worker's: settings of the allocator are read when a process starts."""
        made = dict(os.environ)
        if self.package is not None and not self.tuned:
            made = {key: value for key, value in made.items() if not key.startswith(ALLOCATOR)}
        return made


def contenders(device: str, *, threads: int = 1) -> tuple[Competitor, ...]:
    """All of them. On a CPU this project takes part a second time as its studies use one: a cell per core, side by
    side."""
    entered = [Competitor(name=OWN, package=None, tuned=True)]
    if device == "cpu" and threads > 1:
        entered.append(Competitor(name=f"{OWN}, {threads} cells at once", package=None, tuned=True, processes=threads))
    entered.append(Competitor(name=BASE, package="timm"))
    entered += [
        Competitor(name=f"{title}, tuned", package=package, tuned=True) for package, (title, _) in LIBRARIES.items()
    ]
    return tuple(entered)
