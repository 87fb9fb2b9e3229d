"""Choose how a new training step runs: as it is written, or compiled by torch.compile and recorded as CUDA graphs.

The mode decides (`bench.train.modes`). `Compiled` replaces a step's network, its forward and backward pass, and its
update.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.train.step_parts import Wrapped

if TYPE_CHECKING:
    from bench.train.compiled import Compiled


class AsWritten:
    """Leaves a training step as it is written, and reports that nothing is compiled or recorded. `Compiled` has the
    same interface.

    Attributes:
        mode: one of `bench.train.modes.MODES`; here "off".
        obstacle: why the network could not be compiled although it should have been; None if nothing prevented it.
        compiles: whether parts of the network are compiled.
        records: whether parts of the step are recorded as CUDA graphs where possible.
    """

    mode = "off"
    obstacle: str | None = None
    compiles = records = False

    def __init__(self, step: Wrapped) -> None:
        self.model, self.device = step.model, step.device

    @property
    def how(self) -> str:
        """The mode that is in effect, in words; if another mode was asked for, also the reason why it is not used."""
        return self.mode

    def kernels(self) -> tuple[str, ...]:
        """Return the names of the attention kernels that may be used, the fastest first; "plain" is unfused attention,
        as on a CPU. () means that the network has no attention, or that torch chooses the kernel."""
        fused = self.device.startswith("cuda") or not hasattr(getattr(self.model, "config", None), "attention_width")
        return () if fused else ("plain",)

    def forget(self) -> None:
        """Free memory that the step keeps for later calls, such as recorded CUDA graphs; here there is none."""


def accelerate(step: Wrapped, mode: str, *, ranks: int) -> AsWritten | Compiled:
    """Make a new training step run in a mode, and return the object that reports how it runs. The compiler is imported
    only if the mode is not "off".

    Args:
        step: the step; parts of it are replaced in place if it is compiled.
        mode: one of `bench.train.modes.MODES` except "auto".
        ranks: number of processes that train together.
    """
    if mode == "off":
        return AsWritten(step)
    from bench.train.compiled import Compiled

    return Compiled(step, mode=mode, ranks=ranks)
