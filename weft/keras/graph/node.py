"""Nodes: calls of operations that a graph has recorded."""

from __future__ import annotations

from typing import Any

import weft
from weft.keras.graph.tensor import KerasHistory, KerasTensor, find_tensors


class Node:
    """One call of an operation: its arguments, with KerasTensors in them, and its results.

    Constructing it enters it in the lists of its operation (`_inbound_nodes`) and of the operations whose results it
    takes (`_outbound_nodes`), and sets the history of its results.

    Args:
        operation: the layer or operation that was called.
        args: positional arguments.
        kwargs: arguments by name.
        outputs: the tree of results, KerasTensors.
    """

    def __init__(self, operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> None:
        self.operation = operation
        self.args = args
        self.kwargs = kwargs
        self.outputs = outputs
        self.input_tensors = find_tensors((args, kwargs))
        self.output_tensors = find_tensors(outputs)
        self.parent_nodes: list[Node] = []
        for tensor in self.input_tensors:
            history = tensor._keras_history
            if history is not None:
                parent = history.operation._inbound_nodes[history.node_index]
                if parent not in self.parent_nodes:
                    self.parent_nodes.append(parent)
        index = len(operation._inbound_nodes)
        operation._inbound_nodes.append(self)
        for parent in self.parent_nodes:
            parent.operation._outbound_nodes.append(self)
        for i, tensor in enumerate(self.output_tensors):
            tensor._keras_history = KerasHistory(operation, index, i)

    @property
    def is_input(self) -> bool:
        """Whether it takes nothing: the node of an input layer."""
        return not self.input_tensors

    def fill(self, values: dict[int, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Replace the tensors in the arguments with values, which are given by the tensors' identities."""

        def filled(leaf: Any) -> Any:
            return values[id(leaf)] if isinstance(leaf, KerasTensor) else leaf

        return weft.tree.map(filled, (self.args, self.kwargs))

    def __repr__(self) -> str:
        return f"<Node operation={self.operation.name}, id={id(self)}>"
