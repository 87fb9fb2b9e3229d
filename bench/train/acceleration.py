"""Choose how a new training step runs: as written, or compiled and recorded, as `bench.train.modes` says.

What compiles a step replaces its network, its forward and backward pass, and its update.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.train.step_parts import Wrapped

if TYPE_CHECKING:
    from bench.train.compiled import Compiled


class AsWritten:
    """Lets a training step run as it is written, and says that nothing is compiled or recorded.

    Attributes:
        mode: one of `bench.train.modes.MODES`.
        obstacle: why nothing was compiled although it was asked for; None where there is no such reason.
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
        """The mode in words, with the reason if another one was asked for."""
        return self.mode

    def kernels(self) -> tuple[str, ...]:
        """Return the names of the attention kernels in use, the fastest first ("plain": unfused, as on a CPU); () for a
        network without attention, or where torch chooses."""
        fused = self.device.startswith("cuda") or not hasattr(getattr(self.model, "config", None), "attention_width")
        return () if fused else ("plain",)

    def forget(self) -> None:
        """Release memory that is kept between steps."""


def accelerate(step: Wrapped, mode: str, *, ranks: int) -> AsWritten | Compiled:
    """Make a new step run as `mode` says, and return the object that says how it runs. The compiler is imported only
    where something is compiled."""
    if mode == "off":
        return AsWritten(step)
    from bench.train.compiled import Compiled

    return Compiled(step, mode=mode, ranks=ranks)
