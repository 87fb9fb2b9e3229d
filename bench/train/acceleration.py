"""What runs a training step otherwise than it is written, where `bench.train.modes` says so: it takes the place of the
network, of forward and backward, and of the update of a step that is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.train.step_parts import Wrapped

if TYPE_CHECKING:
    from bench.train.compiled import Compiled


class AsWritten:
    """A step that runs as it is written.

    Attributes:
        mode: of `bench.train.modes`.
        obstacle: why nothing was compiled that should have been.
        compiles: whether parts of the network are compiled.
        records: whether what can be is recorded as CUDA graphs.
    """

    mode = "off"
    obstacle: str | None = None
    compiles = records = False

    def __init__(self, step: Wrapped) -> None:
        self.model, self.device = step.model, step.device

    @property
    def how(self) -> str:
        """The mode, and what kept it from being another."""
        return self.mode

    def kernels(self) -> tuple[str, ...]:
        """Names of the attention kernels in use, the fastest first ("plain": none is fused, as on a CPU); none for a
        network without attention, or where torch chooses."""
        fused = self.device.startswith("cuda") or not hasattr(getattr(self.model, "config", None), "attention_width")
        return () if fused else ("plain",)

    def forget(self) -> None:
        """Give back memory that is kept between steps."""


def accelerate(step: Wrapped, mode: str, *, ranks: int) -> AsWritten | Compiled:
    """Have a new step run as `mode` says. The compiler is imported only where something is compiled."""
    if mode == "off":
        return AsWritten(step)
    from bench.train.compiled import Compiled

    return Compiled(step, mode=mode, ranks=ranks)
