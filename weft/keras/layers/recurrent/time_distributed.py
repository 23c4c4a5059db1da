"""TimeDistributed."""

from __future__ import annotations

from typing import Any

import weft
import weft.numpy as wnp
from weft import Array, lax
from weft.errors import ArgumentError
from weft.keras.core.scope import stateless
from weft.keras.layers.core.wrapper import Wrapper
from weft.keras.layers.layer import Layer
from weft.keras.layers.signature import call_signature
from weft.keras.numerics.recurrent import time_first


class TimeDistributed(Wrapper):
    """A layer applied to each step of (batch, steps, ...).

    Args:
      layer: a layer for (batch, ...).

    Returns:
      A layer; its call takes a `mask` (batch, steps) and `training` for the layer inside.

    Example:
      >>> import weft
      >>> from weft import keras
      >>> keras.layers.TimeDistributed(keras.layers.Conv2D(4, 3))(weft.numpy.ones((2, 5, 8, 8, 3))).shape
      (2, 5, 6, 6, 4)
    """

    def __init__(self, layer: Any, **kwargs: Any):
        if not isinstance(layer, Layer):
            raise ArgumentError(f"TimeDistributed takes a layer. Received: {layer!r}")
        super().__init__(layer, **kwargs)
        self.supports_masking = True

    def _step_shape(self, input_shape: Any) -> tuple[Any, ...]:
        if not isinstance(input_shape, (tuple, list)) or len(input_shape) < 3:
            raise ArgumentError(
                f"TimeDistributed needs inputs (batch, steps, ...) of 3 dimensions or more. Received: {input_shape}"
            )
        return (input_shape[0], *input_shape[2:])

    def build(self, input_shape: Any = None) -> None:
        """Build the layer for one step."""
        super().build(self._step_shape(input_shape))

    def call(self, inputs: Array, training: bool | None = None, mask: Any = None) -> Array:
        """Apply the layer to each step."""
        if mask is not None and tuple(mask.shape[:2]) != tuple(inputs.shape[:2]):
            raise ArgumentError(
                f"The mask of TimeDistributed is (batch, steps). Received: mask of shape {mask.shape}, inputs of shape "
                f"{inputs.shape}"
            )
        signature = call_signature(type(self.layer).call)
        options = {"training": training} if "training" in signature else {}
        steps = [time_first(inputs)]
        if mask is not None and "mask" in signature:
            steps.append(time_first(wnp.asarray(mask)))
        variables = self.layer.non_trainable_variables
        written: set[int] = set()

        def step(values: list[Any], x: Array, *valid: Array) -> tuple[Any, list[Any]]:
            masks = {"mask": valid[0]} if valid else {}
            out, after = stateless(self.layer, variables)(values, x, **masks, **options)
            written.update(i for i, (old, value) in enumerate(zip(values, after, strict=True)) if value is not old)
            return out, after

        values = [variable.value for variable in variables]
        # Steps that write nothing do not depend on each other, so they are done at once.
        out = weft.vmap(lambda *step_inputs: step(values, *step_inputs)[0])(*steps)
        if written:
            after, out = lax.scan(lambda values, xs: step(values, *xs)[::-1], values, tuple(steps))
            for i in sorted(written):
                variables[i].assign(after[i])

        def finish(found: Array) -> Array:
            found = time_first(found)
            return found.astype(self.compute_dtype) if wnp.issubdtype(found.dtype, wnp.floating) else found

        return weft.tree.map(finish, out)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the output shape of the layer, with the steps as second axis."""
        out = self.layer.compute_output_shape(self._step_shape(input_shape))
        return (out[0], input_shape[1], *out[1:])
