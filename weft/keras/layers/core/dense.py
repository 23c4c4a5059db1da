"""A layer that multiplies by a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft.errors import ArgumentError
from weft.keras import activations, constraints, initializers, regularizers
from weft.keras.core.spec import InputSpec
from weft.keras.core.variable import Variable
from weft.keras.layers.core.lora import LINEAR, LowRankLayer


class Dense(LowRankLayer):
    """`activation(inputs @ kernel + bias)`, over the last axis.

    Args:
        units: the size of the last axis of the result.
        activation: a function, or its name; none where None.
        use_bias: whether there is a bias.
        kernel_initializer: of the kernel, which has the shape (size of the last axis, units).
        bias_initializer: of the bias, which has the shape (units,).
        kernel_regularizer: a function of the kernel that is added to the loss.
        bias_regularizer: likewise of the bias.
        activity_regularizer: likewise of the result.
        kernel_constraint: a function that is applied to the kernel after an update.
        bias_constraint: likewise to the bias.
        lora_rank: where not None, the kernel is frozen and a product of this rank is trained.
        lora_alpha: the scale of the product is `lora_alpha / lora_rank`.
        quantization_config: None; layers of Weft are not quantized.
        **kwargs: `name`, `dtype`, `trainable`.

    Example:
        >>> from weft import keras
        >>> keras.layers.Dense(3, activation="relu")(keras.ops.ones((2, 4))).shape
        (2, 3)
    """

    def __init__(
        self,
        units: int,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        quantization_config: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        if not isinstance(units, int) or units <= 0:
            raise ArgumentError("`units` must be a positive integer.", received=f"units={units!r}")
        self.units = units
        self.activation = activations.get(activation)
        self.use_bias = use_bias
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.bias_constraint = constraints.get(bias_constraint)
        self._set_low_rank(lora_rank, lora_alpha, quantization_config)
        self.bias: Variable | None = None
        self.input_spec = InputSpec(min_ndim=2)
        self.supports_masking = True

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Create the kernel and the bias.

        Args:
            input_shape: the shape of the inputs; the size of the last axis is known.
        """
        size = input_shape[-1]
        if size is None:
            raise ArgumentError(
                f"Layer {self.name} needs to know the size of the last axis.", received=f"shape {tuple(input_shape)}"
            )
        self._kernel = self.add_weight(
            name="kernel",
            shape=(size, self.units),
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        if self.use_bias:
            self.bias = self.add_weight(
                name="bias",
                shape=(self.units,),
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self.input_spec = InputSpec(min_ndim=2, axes={-1: size})
        self._build_low_rank()

    @property
    def kernel(self) -> Any:
        """The matrix: a variable, or with a low-rank update its value."""
        return self._full_kernel() if self.lora_enabled else self._kernel

    def call(self, inputs: Any, training: Any = None) -> Any:
        """Apply the layer to the inputs."""
        outputs = wnp.matmul(inputs, self._full_kernel())
        if self.bias is not None:
            outputs = outputs + self.bias.value
        return outputs if self.activation in (None, LINEAR) else self.activation(outputs)

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> tuple[int | None, ...]:
        """Return the output shape for an input shape."""
        return (*input_shape[:-1], self.units)
