"""The nodes between input and output tensors, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft.errors import ArgumentError, ArgumentTypeError
from weft.keras.graph.node import Node
from weft.keras.graph.tensor import KerasTensor

Call = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class Graph:
    """What computes `outputs` from `inputs`.

    `nodes` and `operations` (each once) have those first that are farthest from the outputs. Nodes run in this order:
    that of Keras, on which shared layers depend that draw random numbers or update statistics.

    Args:
        inputs: a tree of KerasTensors.
        outputs: a tree of KerasTensors that depend on nothing but `inputs`.
    """

    def __init__(self, inputs: Any, outputs: Any) -> None:
        self.input_structure = inputs
        self.output_structure = outputs
        self.inputs = _check_tensors(inputs, "inputs")
        self.outputs = _check_tensors(outputs, "outputs")
        found, seen = _sort_nodes(self.inputs, self.outputs)
        self.nodes, self.operations = _by_distance(self.inputs, found, seen)
        self._check_names()
        self._members = {id(node) for node in self.nodes}
        self._members |= {id(node) for tensor in self.inputs if (node := find_node(tensor)) and node.is_input}
        self._last_use = self._last_uses()

    def __contains__(self, node: Node) -> bool:
        return id(node) in self._members

    def _check_names(self) -> None:
        names = [operation.name for operation in self.operations]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ArgumentError(
                f"Layers and operations of a model have different names; these are used twice: {', '.join(twice)}.",
                fix="pass `name=` to the constructors of the layers",
            )

    def _last_uses(self) -> dict[int, list[int]]:
        """Return for each node the tensors whose last use it is."""
        final = {id(tensor) for tensor in self.outputs}
        last: dict[int, int] = {}
        for i, node in enumerate(self.nodes):
            for tensor in (*node.input_tensors, *node.output_tensors):
                last[id(tensor)] = i
        uses: dict[int, list[int]] = {}
        for tensor_id, i in last.items():
            if tensor_id not in final:
                uses.setdefault(i, []).append(tensor_id)
        return uses

    def run(self, values: Sequence[Any], call: Call | None = None) -> Any:
        """Compute the results for `values`, the inputs in order; the tree is that of `outputs`.

        Args:
            values: what takes the positions of the input tensors.
            call: how an operation is called; by default as it is.
        """
        results: dict[int, Any] = {id(tensor): value for tensor, value in zip(self.inputs, values, strict=True)}
        for i, node in enumerate(self.nodes):
            if node.is_input or all(id(tensor) in results for tensor in node.output_tensors):
                continue
            args, kwargs = node.fill(results)
            found = node.operation(*args, **kwargs) if call is None else call(node.operation, args, kwargs)
            leaves = weft.tree.leaves(found)
            for tensor, value in zip(node.output_tensors, leaves, strict=True):
                results[id(tensor)] = value
            for tensor_id in self._last_use.get(i, ()):
                results.pop(tensor_id, None)
        filled = [results[id(tensor)] for tensor in self.outputs]
        return weft.tree.unflatten(weft.tree.structure(self.output_structure), filled)


def find_node(tensor: KerasTensor) -> Node | None:
    """Return the node that computes a tensor, or None for a tensor without a history."""
    history = tensor._keras_history
    return None if history is None else history.operation._inbound_nodes[history.node_index]


def _check_tensors(tree: Any, what: str) -> list[KerasTensor]:
    tensors = weft.tree.leaves(tree)
    for tensor in tensors:
        if not isinstance(tensor, KerasTensor):
            raise ArgumentTypeError(
                f"The {what} of a functional model must be KerasTensors, as `Input` and layers return them.",
                received=f"{type(tensor).__name__} {tensor!r}"[:200],
            )
    if not tensors:
        raise ArgumentError(f"A functional model must have {what}.", received=f"{what}={tree!r}")
    return tensors


def _sort_nodes(inputs: list[KerasTensor], outputs: list[KerasTensor]) -> tuple[list[Node], dict[int, int]]:
    """Sort the nodes topologically; also return when a search from the outputs first reached each operation."""
    boundary = {id(tensor) for tensor in inputs}
    done: set[int] = set()
    order: list[Node] = []
    seen: dict[int, int] = {}
    for output in outputs:
        # (tensor, False) visits a tensor, (node, True) leaves a node whose inputs have been visited.
        waiting: list[tuple[Any, bool]] = [(output, False)]
        while waiting:
            item, leaving = waiting.pop()
            if leaving:
                if id(item) not in done:
                    done.add(id(item))
                    order.append(item)
                continue
            node = find_node(item)
            if node is None:
                if id(item) not in boundary:
                    raise _disconnection_error(item)
                continue
            if id(node) in done or (id(item) in boundary and not node.is_input):
                continue
            if node.is_input and id(item) not in boundary:
                raise _disconnection_error(item)
            seen.setdefault(id(node.operation), len(seen))
            waiting.append((node, True))
            waiting.extend((tensor, False) for tensor in reversed(node.input_tensors))
    return order, seen


def _disconnection_error(tensor: KerasTensor) -> ArgumentError:
    history = tensor._keras_history
    source = "" if history is None else f" of {history.operation.name}"
    return ArgumentError(
        f"The outputs depend on the tensor {tensor.name}{source}, which the inputs do not compute.",
        received=repr(tensor),
        fix="list it in the inputs of the model",
    )


def _by_distance(inputs: list[KerasTensor], nodes: list[Node], seen: dict[int, int]) -> tuple[list[Node], list[Any]]:
    """Sort nodes and operations by the longest way to an output, longest first.

    Operations of one distance are in the order of `seen`, nodes in the order in which a walk back from the outputs
    meets them. Inputs that nothing uses are among the last operations.
    """
    distance: dict[int, int] = {}
    of_operation: dict[int, int] = {}
    operations: dict[int, Any] = {}
    members = {id(node): node for node in nodes}
    for node in reversed(nodes):
        far = max(distance.get(id(node), 0), of_operation.get(id(node.operation), 0))
        distance[id(node)] = of_operation[id(node.operation)] = far
        operations[id(node.operation)] = node.operation
        for parent in node.parent_nodes:
            if id(parent) in members:
                distance[id(parent)] = max(far + 1, distance.get(id(parent), 0))
    for tensor in inputs:
        node_or_none = find_node(tensor)
        if node_or_none is not None and node_or_none.is_input and id(node_or_none.operation) not in operations:
            operation = node_or_none.operation
            operations[id(operation)] = operation
            of_operation[id(operation)], seen[id(operation)] = 0, -1
    # `distance` lists nodes as the walk meets them, and sorting keeps that order within a distance.
    ordered = [members[key] for key in sorted(distance, key=lambda key: -distance[key])]
    key = lambda operation: (-of_operation[id(operation)], seen[id(operation)])
    return ordered, sorted(operations.values(), key=key)


def source_inputs(tensor: KerasTensor) -> list[KerasTensor]:
    """Return the inputs that a tensor depends on, each once."""
    found: dict[int, KerasTensor] = {}
    seen: set[int] = set()
    waiting = [tensor]
    while waiting:
        item = waiting.pop()
        node = find_node(item)
        if id(item) in seen:
            continue
        seen.add(id(item))
        if node is None or node.is_input:
            found.setdefault(id(item), item)
        else:
            waiting.extend(reversed(node.input_tensors))
    return list(found.values())
