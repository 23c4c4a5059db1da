"""Where symbolic tensors come from."""

from __future__ import annotations

from typing import Any

from weft.keras.graph.tensor import KerasTensor


def get_source_inputs(tensor: KerasTensor) -> list[KerasTensor]:
    """Return the inputs that a symbolic tensor is computed from.

    Args:
        tensor: a symbolic tensor.

    Returns:
        Those that no layer or operation computes, each once.

    Example:
        >>> from weft import keras
        >>> x = keras.Input((3,))
        >>> keras.utils.get_source_inputs(keras.ops.exp(x))[0] is x
        True
    """
    found: dict[int, KerasTensor] = {}
    seen: set[int] = set()
    pending: list[Any] = [tensor]
    while pending:
        current = pending.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        history = current._keras_history
        inputs = [] if history is None else history.operation._inbound_nodes[history.node_index].input_tensors
        if inputs:
            pending.extend(reversed(inputs))
        else:
            found.setdefault(id(current), current)
    return list(found.values())
