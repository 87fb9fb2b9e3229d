"""The contenders: each library with default settings, and with the best settings known for it. No torch here.

"defaults" is the model in a plain loop with what the library and torch do by themselves: float32, eager, fused
attention where the library has it, AdamW without options, the system's allocator settings. "tuned" is bfloat16
autocast, fused AdamW, our worker's allocator settings, and on a CPU plain attention in timm (its fused kernel's
backward is slow in bfloat16). "compiled" is tuned under torch.compile.
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
class Contender:
    """One way to train the model.

    Attributes:
        name: as shown. package: of the library; None is this project's own step.
        tuned: bfloat16, fused optimizer, and the environment that goes with it. compiled: under torch.compile.
        processes: that train at once, each with its share of the threads; their images count together.
    """

    name: str
    package: str | None
    tuned: bool = False
    compiled: bool = False
    processes: int = 1

    @property
    def dtype(self) -> str | None:
        """Of the forward pass; None where the project's own policy decides."""
        return ("bfloat16" if self.tuned else "float32") if self.package else None

    @property
    def missing(self) -> str | None:
        """How to get the library, where it is not here."""
        if self.package is None or importlib.util.find_spec(self.package):
            return None
        return f"not installed: {LIBRARIES[self.package][1]}"

    def environment(self, device: str) -> dict[str, str]:
        """Of its process, from a worker's: settings of the allocator are read when a process starts."""
        made = dict(os.environ)
        if self.package is not None and not self.tuned:
            made = {key: value for key, value in made.items() if not key.startswith(ALLOCATOR)}
        if self.package == "timm" and self.tuned and device == "cpu":
            made["TIMM_FUSED_ATTN"] = "0"
        return made


def contenders(device: str, *, threads: int = 1) -> tuple[Contender, ...]:
    """All of them. Compiled: timm, and on a GPU, where nobody would do without it, every library.

    On a CPU this project takes part a second time as its studies use one: a cell per core, side by side.
    """
    found = [Contender(name=OWN, package=None)]
    if device == "cpu" and threads > 1:
        found.append(Contender(name=f"{OWN}, {threads} cells at once", package=None, processes=threads))
    for package, (title, _) in LIBRARIES.items():
        found += [
            Contender(name=f"{title}, defaults", package=package),
            Contender(name=f"{title}, tuned", package=package, tuned=True),
        ]
        if package == "timm" or device != "cpu":
            found.append(Contender(name=f"{title}, compiled", package=package, tuned=True, compiled=True))
    return tuple(found)
