"""Tensors that compiled blocks keep for their backward pass: the sums along the residual stream.

Left to itself torch keeps what was added to the stream, as many bytes, and adds again in the backward pass. There two
normalisations then read the same tensors, and Inductor puts the column sums of one into the kernel of the other, which
takes a pass over memory more. Imported only where something is compiled.
"""

from __future__ import annotations

from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, Node
from torch.ops import aten
from torch.utils.checkpoint import CheckpointPolicy


class KeepSums(CustomGraphPass):
    """Marks sums of equal shapes that begin at an input, in a graph of forward and backward pass."""

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
        """The name of this pass in torch's cache of compiled code."""
        return "keep sums 1"


KEEP_SUMS = KeepSums()
