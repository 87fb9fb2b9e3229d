"""Make compiled blocks keep the sums along the residual stream for their backward pass.

By default torch keeps the terms that were added to the stream, which are as many bytes, and adds them again in the
backward pass. Two normalisations then read the same tensors there, and Inductor puts the column sums of one into the
kernel of the other, which costs one more pass over memory. This file is imported only where something is compiled.
"""

from __future__ import annotations

from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, Node
from torch.ops import aten
from torch.utils.checkpoint import CheckpointPolicy


class KeepSums(CustomGraphPass):
    """A pass over the joint graph of forward and backward: it marks as "must be saved" every sum of two tensors of
    equal shape that belongs to a chain of sums starting at an input."""

    def __call__(self, graph: Graph) -> None:
        stream: set[Node] = set()
        for node in graph.nodes:
            if node.op == "placeholder":
                if not str(node.target).startswith("tangents"):
                    stream.add(node)
            elif node.target is aten.add.Tensor and stream & set(node.all_input_nodes):
                shapes = [term.meta["val"].shape for term in node.all_input_nodes]
                if shapes == 2 * [node.meta["val"].shape]:
                    stream.add(node)
                    node.meta["recompute"] = CheckpointPolicy.MUST_SAVE

    def uuid(self) -> str:
        """Return a text that identifies this pass in the keys of torch's cache of compiled code."""
        return "keep sums 1"


KEEP_SUMS = KeepSums()
