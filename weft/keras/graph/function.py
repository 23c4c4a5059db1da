"""A graph as an operation."""

from __future__ import annotations

from typing import Any

import weft
from weft.errors import TreeMismatchError
from weft.keras.core.context import type_text
from weft.keras.core.spec import is_shape
from weft.keras.graph.graph import Graph
from weft.keras.graph.operation import Operation
from weft.keras.graph.tensor import KerasTensor


class Function(Operation):
    """The function that KerasTensors describe: results for `outputs`, from values for `inputs`.

    Args:
        inputs: a KerasTensor, or a list or dict of them.
        outputs: likewise; they depend on nothing but `inputs`.
        name: its name.

    Example:
        >>> import weft.numpy as wnp
        >>> from weft import keras
        >>> x = keras.KerasTensor((None, 2))
        >>> double = keras.Function(x, x * 2)
        >>> double(wnp.ones((1, 2)))
        Array([[2., 2.]], dtype=float32)
    """

    def __init__(self, inputs: Any, outputs: Any, name: str | None = None) -> None:
        super().__init__(name)
        self.graph = Graph(inputs, outputs)

    @property
    def inputs(self) -> list[KerasTensor]:
        """The input tensors, in order."""
        return self.graph.inputs

    @property
    def outputs(self) -> list[KerasTensor]:
        """The output tensors, in order."""
        return self.graph.outputs

    @property
    def operations(self) -> list[Any]:
        """The operations of the graph."""
        return list(self.graph.operations)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the shapes of the results.

        Args:
            input_shape: the shape of the input, or a tree of shapes; None is an unknown size.
        """
        shapes = [input_shape] if is_shape(input_shape) else weft.tree.leaves(input_shape, is_leaf=is_shape)
        tensors = [KerasTensor(shape, each.dtype) for shape, each in zip(shapes, self.inputs, strict=True)]
        filled = weft.tree.unflatten(weft.tree.structure(self.graph.input_structure), tensors)
        return weft.tree.map(lambda found: found.shape, self.compute_output_spec(filled))

    def call(self, inputs: Any) -> Any:
        """Compute the results for values of the inputs."""
        values, structure = weft.tree.flatten(inputs)
        if structure != weft.tree.structure(self.graph.input_structure):
            raise TreeMismatchError(
                f"The inputs of {self.name} must have the structure {type_text(self.graph.input_structure)}.",
                received=type_text(inputs),
            )
        return self.graph.run(values)
