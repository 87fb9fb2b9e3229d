"""A worker whose second rank has room for no more than ROOM images at a time, and its launcher.

`python -m tests.reliability._short_ranks launch <options of bench.execute.torchrun>` starts it as
`bench.execute.torchrun` starts a worker.
"""

import sys
from typing import Any
from unittest import mock

import torch

from bench.execute import torchrun, worker
from bench.train.step import Step

ROOM = 4
BEFORE = 5  # steps in which there is room, in each attempt


def limit(step: Step) -> None:
    """Run out of memory in the middle of the forward pass, when the first blocks have been gathered."""
    steps = iter(range(BEFORE))

    def full(module: Any, inputs: tuple[torch.Tensor]) -> None:
        if len(inputs[0]) > ROOM and next(steps, None) is None:
            raise torch.OutOfMemoryError("no room for activations")

    if step.ranks.rank == 1:
        step.model.blocks[-1].register_forward_pre_hook(full)


def launch(options: list[str]) -> int:
    from torch.distributed.launcher import api

    real = api.elastic_launch
    here = lambda config, entry: lambda _, __, *rest: real(config, entry)("-m", __spec__.name, *rest)  # noqa: E731
    with mock.patch.object(api, "elastic_launch", here):
        return torchrun.main(options)


def main(arguments: list[str]) -> int:
    made = Step.__init__

    def short(self: Step, **options: Any) -> None:
        made(self, **options)
        limit(self)

    with mock.patch.object(Step, "__init__", short):
        return worker.main(arguments)


if __name__ == "__main__":
    sys.exit(launch(sys.argv[2:]) if sys.argv[1] == "launch" else main(sys.argv[1:]))
