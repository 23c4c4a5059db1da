"""SpectralNormalization."""

from __future__ import annotations

from typing import Any

import weft.numpy as wnp
from weft import Array, lax
from weft.errors import ArgumentError
from weft.keras import initializers
from weft.keras.core.spec import InputSpec
from weft.keras.layers.core.wrapper import Wrapper
from weft.keras.numerics.normalization import normalize


class SpectralNormalization(Wrapper):
    """A layer whose kernel is divided by its largest singular value in training.

    The singular value is estimated by power iteration from a vector that the layer stores.

    Args:
      layer: a layer with a `kernel` or `embeddings`.
      power_iterations: how many iterations a call in training does.
    """

    def __init__(self, layer: Any, power_iterations: int = 1, **kwargs: Any):
        super().__init__(layer, **kwargs)
        if power_iterations <= 0:
            raise ArgumentError(f"`power_iterations` must be positive. Received: power_iterations={power_iterations}")
        self.power_iterations = power_iterations

    def build(self, input_shape: Any = None) -> None:
        """Build the layer, and make the vector."""
        super().build(input_shape)
        self.input_spec = InputSpec(min_ndim=1, axes={-1: input_shape[-1]})
        for name in ("kernel", "embeddings"):
            if hasattr(self.layer, name):
                self.kernel = getattr(self.layer, name)
                break
        else:
            raise ArgumentError(
                f"SpectralNormalization needs a layer with a `kernel` or `embeddings`. Received: "
                f"{type(self.layer).__name__} {self.layer.name!r}"
            )
        self.vector_u = self.add_weight(
            name="vector_u",
            shape=(1, self.kernel.shape[-1]),
            initializer=initializers.TruncatedNormal(stddev=0.02),
            trainable=False,
            dtype=self.kernel.dtype,
        )

    def call(self, inputs: Array, training: bool | None = False) -> Array:
        """Apply the layer; in training, normalize and store its kernel first."""
        if training:
            vector, kernel = self.normalize_weights()
            empty = wnp.all(self.kernel.value == 0)
            self.vector_u.assign(wnp.where(empty, self.vector_u.value, vector))
            self.kernel.assign(wnp.where(empty, self.kernel.value, kernel))
        return self.layer(inputs).astype(inputs.dtype)

    def normalize_weights(self) -> tuple[Array, Array]:
        """Return the vector after the power iterations, and the kernel divided by the estimated norm."""
        kernel, vector = self.kernel.value, self.vector_u.value
        matrix = wnp.reshape(kernel, (-1, kernel.shape[-1]))
        for _ in range(self.power_iterations):
            left = normalize(vector @ matrix.T, axis=None)
            vector = normalize(left @ matrix, axis=None)
        vector, left = lax.stop_gradient(vector), lax.stop_gradient(left)
        largest = left @ matrix @ vector.T
        return vector, wnp.reshape(kernel / largest, kernel.shape)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the output shape of the wrapped layer."""
        return self.layer.compute_output_shape(input_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {**super().get_config(), "power_iterations": self.power_iterations}
