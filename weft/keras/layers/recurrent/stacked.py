"""StackedRNNCells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.keras.core import registry
from weft.keras.layers.layer import Layer
from weft.keras.layers.recurrent.cell import Steps
from weft.keras.layers.signature import call_signature


class StackedRNNCells(Layer, Steps):
    """Several cells as one: each gets the output of the one before; the states are a list with those of each.

    Args:
      cells: the cells.
    """

    def __init__(self, cells: Sequence[Any], **kwargs: Any):
        super().__init__(**kwargs)
        for cell in cells:
            if not hasattr(cell, "call") or not hasattr(cell, "state_size"):
                raise ArgumentError(f"A cell has a method `call` and a `state_size`. Received: {cell!r}")
        self.cells = list(cells)

    @property
    def state_size(self) -> list[Any]:
        """The sizes of the states of each cell."""
        return [cell.state_size for cell in self.cells]

    @property
    def output_size(self) -> int:
        """The size of the last cell's output."""
        return _output_size(self.cells[-1])

    def get_initial_state(self, batch_size: Any = None) -> list[Any]:
        """Return the states of each cell before the first step."""
        return [self._initial(cell, batch_size) for cell in self.cells]

    def _initial(self, cell: Any, batch_size: Any) -> Any:
        if hasattr(cell, "get_initial_state"):
            return cell.get_initial_state(batch_size=batch_size)
        zeros = lambda size: wnp.zeros((batch_size, size), self.compute_dtype)
        return zeros(cell.state_size) if isinstance(cell.state_size, int) else [zeros(s) for s in cell.state_size]

    def build(self, input_shape: Any) -> None:
        """Build the cells."""
        for cell in self.cells:
            if isinstance(cell, Layer) and not cell.built:
                cell.build(input_shape)
            input_shape = (input_shape[0], _output_size(cell))
        self.built = True

    def call(self, inputs: Array, states: Any, training: bool | None = False, **kwargs: Any) -> tuple[Array, Any]:
        """Run one step of all cells."""
        new = []
        for cell, own in zip(self.cells, states, strict=True):
            listed = isinstance(own, (list, tuple))
            options = {**kwargs, "training": training} if "training" in call_signature(type(cell).call) else kwargs
            inputs, after = (cell if callable(cell) else cell.call)(inputs, list(own) if listed else [own], **options)
            after = after if isinstance(after, (list, tuple)) else [after]
            new.append(list(after) if listed else after[0])
        return inputs, new

    # -------------------------------------------------------------------------------------------------- steps of cells

    def has_steps(self) -> bool:
        """Return whether all cells separate their steps from the contraction with the inputs."""
        return all(isinstance(cell, Steps) and cell.has_steps() for cell in self.cells)

    def draw(self, inputs: Array, states: Any) -> list[Any]:
        """Draw the dropout masks of each cell."""
        masks = []
        for cell, own in zip(self.cells, states, strict=True):
            masks.append(cell.draw(inputs, own))
            inputs = wnp.zeros((inputs.shape[0], cell.output_size), inputs.dtype)
        return masks

    def no_dropout(self) -> list[Any]:
        """Return masks that drop nothing."""
        return [cell.no_dropout() for cell in self.cells]

    def project(self, inputs: Array, masks: Any) -> Array:
        """Contract the inputs with the kernel of the first cell."""
        return self.cells[0].project(inputs, masks[0])

    def step(self, projected: Array, states: Any, masks: Any) -> list[Any]:
        """Return the states of all cells after one step."""
        new: list[Any] = []
        for i, (cell, own) in enumerate(zip(self.cells, states, strict=True)):
            if i:
                projected = cell.project(self.cells[i - 1].read_output(new[-1]), masks[i])
            new.append(cell.step(projected, own, masks[i]))
        return new

    def read_output(self, states: Any) -> Array:
        """Return the output of the last cell."""
        return self.cells[-1].read_output(states[-1])

    # ----------------------------------------------------------------------------------------------------------- config

    def get_config(self) -> dict[str, Any]:
        """Return the cells as plain data."""
        return {**super().get_config(), "cells": [registry.serialize_keras_object(cell) for cell in self.cells]}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> StackedRNNCells:
        """Construct the cells from a config of `get_config`."""
        config = dict(config)
        cells = [registry.deserialize_keras_object(cell, custom_objects) for cell in config.pop("cells")]
        return cls(cells, **config)


def _output_size(cell: Any) -> int:
    size = getattr(cell, "output_size", None)
    if size is not None:
        return size
    return cell.state_size[0] if isinstance(cell.state_size, (list, tuple)) else cell.state_size
