"""Layers that apply a function entry by entry, or over one axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.numpy as wnp
from weft import nn
from weft.errors import ArgumentError, ShapeMismatchError
from weft.keras import activations, constraints, initializers, regularizers
from weft.keras.core.context import type_text
from weft.keras.core.spec import InputSpec
from weft.keras.layers.layer import Layer


class Pointwise(Layer):
    """A layer without variables whose result has the shape and the mask of its input."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self._build_at_init()

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the input shape unchanged."""
        return input_shape


class Activation(Pointwise):
    """A function as a layer.

    Args:
        activation: the function, or the name of one of `weft.keras.activations`.
        **kwargs: `name`, `dtype`.

    Example:
        >>> from weft import keras
        >>> keras.layers.Activation("relu")(keras.ops.array([-1.0, 2.0]))
        Array([0., 2.], dtype=float32)
    """

    def __init__(self, activation: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.activation = activations.get(activation)

    def call(self, inputs: Any) -> Any:
        """Apply the activation function."""
        return self.activation(inputs)


class ReLU(Pointwise):
    """`max(x, 0)`, with a slope below, an upper bound and a threshold.

    Args:
        max_value: the largest result; None for no bound.
        negative_slope: the slope below the threshold.
        threshold: where the slope changes.
        **kwargs: `name`, `dtype`.

    Example:
        >>> from weft import keras
        >>> keras.layers.ReLU(max_value=1.0)(keras.ops.array([-1.0, 0.5, 2.0]))
        Array([0. , 0.5, 1. ], dtype=float32)
    """

    def __init__(
        self,
        max_value: float | None = None,
        negative_slope: float = 0.0,
        threshold: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        for name, value in (("max_value", max_value), ("negative_slope", negative_slope), ("threshold", threshold)):
            if (value is None and name != "max_value") or (value is not None and value < 0):
                raise ArgumentError(f"`{name}` is not negative.", received=f"{name}={value!r}")
        self.max_value = max_value
        self.negative_slope = negative_slope
        self.threshold = threshold

    def call(self, inputs: Any) -> Any:
        """Rectify the inputs."""
        return activations.relu(
            inputs, negative_slope=self.negative_slope, max_value=self.max_value, threshold=self.threshold
        )


class LeakyReLU(Pointwise):
    """`x` above 0, `negative_slope * x` below.

    Args:
        negative_slope: the slope below 0.
        **kwargs: `name`, `dtype`.

    Example:
        >>> from weft import keras
        >>> keras.layers.LeakyReLU(0.5)(keras.ops.array([-1.0, 2.0]))
        Array([-0.5,  2. ], dtype=float32)
    """

    def __init__(self, negative_slope: float = 0.3, **kwargs: Any) -> None:
        if "alpha" in kwargs:
            negative_slope = kwargs.pop("alpha")
        super().__init__(**kwargs)
        if negative_slope is None or negative_slope < 0:
            raise ArgumentError("`negative_slope` is not negative.", received=f"negative_slope={negative_slope!r}")
        self.negative_slope = negative_slope

    def call(self, inputs: Any) -> Any:
        """Apply the leaky rectifier."""
        return activations.leaky_relu(inputs, negative_slope=self.negative_slope)


class ELU(Pointwise):
    """`x` above 0, `alpha * (exp(x) - 1)` below.

    Args:
        alpha: the scale below 0.
        **kwargs: `name`, `dtype`.
    """

    def __init__(self, alpha: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.alpha = alpha

    def call(self, inputs: Any) -> Any:
        """Apply the exponential linear unit."""
        return activations.elu(inputs, alpha=self.alpha)


class PReLU(Layer):
    """`x` above 0, `alpha * x` below, with trained `alpha`s.

    Args:
        alpha_initializer: of `alpha`, which has the shape of a sample.
        alpha_regularizer: a function of `alpha` that is added to the loss.
        alpha_constraint: a function that is applied to `alpha` after an update.
        shared_axes: axes along which there is one `alpha`.
        **kwargs: `name`, `dtype`.

    Example:
        >>> from weft import keras
        >>> keras.layers.PReLU(alpha_initializer="ones")(keras.ops.array([[-1.0, 2.0]]))
        Array([[-1.,  2.]], dtype=float32)
    """

    def __init__(
        self,
        alpha_initializer: Any = "Zeros",
        alpha_regularizer: Any = None,
        alpha_constraint: Any = None,
        shared_axes: int | Sequence[int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True
        self.alpha_initializer = initializers.get(alpha_initializer)
        self.alpha_regularizer = regularizers.get(alpha_regularizer)
        self.alpha_constraint = constraints.get(alpha_constraint)
        self.shared_axes = [shared_axes] if isinstance(shared_axes, int) else shared_axes and list(shared_axes)

    def build(self, input_shape: Sequence[int | None]) -> None:
        """Create `alpha`.

        Args:
            input_shape: the shape of the inputs.
        """
        shape = list(input_shape[1:])
        for axis in self.shared_axes or ():
            shape[axis - 1] = 1
        if any(size is None for size in shape):
            raise ArgumentError(
                f"Layer {self.name} needs to know the sizes of the axes that are not shared.",
                received=f"shape {tuple(input_shape)}, shared_axes={self.shared_axes}",
            )
        self.alpha = self.add_weight(
            name="alpha",
            shape=[size for size in shape if size is not None],
            initializer=self.alpha_initializer,
            regularizer=self.alpha_regularizer,
            constraint=self.alpha_constraint,
        )
        shared = set(self.shared_axes or range(1, len(input_shape)))
        axes = {i: input_shape[i] for i in range(1, len(input_shape)) if i not in shared}
        self.input_spec = InputSpec(ndim=len(input_shape), axes=axes)

    def call(self, inputs: Any) -> Any:
        """Apply the rectifier with learned slopes."""
        return nn.relu(inputs) - self.alpha.value * nn.relu(-inputs)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the input shape unchanged."""
        return input_shape


class Softmax(Pointwise):
    """`exp(x) / sum(exp(x))` over an axis. A mask leaves entries out.

    Args:
        axis: the axis, or several.
        **kwargs: `name`, `dtype`.

    Example:
        >>> from weft import keras
        >>> keras.layers.Softmax()(keras.ops.array([0.0, 0.0]))
        Array([0.5, 0.5], dtype=float32)
    """

    def __init__(self, axis: int | Sequence[int] = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis

    def call(self, inputs: Any, mask: Any = None) -> Any:
        """Compute the softmax of the inputs.

        Args:
            inputs: scores.
            mask: True (or more than 0.5) for the entries that count.
        """
        if mask is not None:
            sizes = zip(reversed(mask.shape), reversed(inputs.shape), strict=False)
            if mask.ndim > inputs.ndim or any(size not in (1, other) for size, other in sizes):
                raise ShapeMismatchError(
                    "The mask of a softmax must be broadcastable to its inputs.",
                    received=f"mask {type_text(mask)}, inputs {type_text(inputs)}",
                )
            mask = mask if str(mask.dtype) == "bool" else mask > 0.5
            lowest = -3e4 if str(inputs.dtype) == "float16" else -1e9
            inputs = wnp.where(mask, inputs, wnp.asarray(lowest, inputs.dtype))
        outputs = nn.softmax(inputs, axis=tuple(self.axis) if isinstance(self.axis, (list, tuple)) else self.axis)
        return outputs if mask is None else wnp.where(mask, outputs, wnp.zeros((), outputs.dtype))
