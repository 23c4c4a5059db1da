"""Where a functional model begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.errors import ArgumentError
from weft.keras.core.config import standardize_dtype
from weft.keras.core.names import auto_name
from weft.keras.core.policy import floatx
from weft.keras.core.spec import standardize_shape
from weft.keras.graph.node import Node
from weft.keras.graph.tensor import KerasTensor
from weft.keras.layers.layer import Layer


class InputLayer(Layer):
    """The layer that an input of a model is the result of.

    Args:
        shape: the shape of a sample, without the batch; None is an unknown size.
        batch_size: the size of the batch, where it is fixed.
        dtype: the dtype; `floatx()` where None.
        sparse: values of Weft are dense: True is an error.
        ragged: likewise.
        batch_shape: the shape with the batch, in place of `shape` and `batch_size`.
        input_tensor: a KerasTensor to take as the result.
        optional: whether None may be passed for it.
        name: its name.
    """

    def __init__(
        self,
        shape: Sequence[int | None] | None = None,
        batch_size: int | None = None,
        dtype: Any = None,
        sparse: bool | None = None,
        ragged: bool | None = None,
        batch_shape: Sequence[int | None] | None = None,
        input_tensor: KerasTensor | None = None,
        optional: bool = False,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=auto_name("input_layer") if name is None else name)
        if "input_shape" in kwargs:
            shape = kwargs.pop("input_shape")
        if "batch_input_shape" in kwargs:
            batch_shape = kwargs.pop("batch_input_shape")
        if kwargs or sparse or ragged:
            raise ArgumentError(
                "An input takes only a shape, a dtype and a name; its values are dense.",
                received=", ".join([*kwargs, *["sparse=True"] * bool(sparse), *["ragged=True"] * bool(ragged)]),
            )
        if input_tensor is not None:
            if not isinstance(input_tensor, KerasTensor):
                raise ArgumentError("`input_tensor` must be a KerasTensor.", received=repr(input_tensor))
            batch_shape, dtype = input_tensor.shape, input_tensor.dtype
        elif shape is not None and batch_shape is not None:
            raise ArgumentError("Pass `shape` or `batch_shape`, not both.")
        elif batch_shape is None and shape is None:
            raise ArgumentError("An input needs a `shape`.")
        elif shape is not None:
            batch_shape = (batch_size, *standardize_shape(shape))
        self.batch_shape = standardize_shape(batch_shape)
        self._dtype = floatx() if dtype is None else standardize_dtype(dtype)
        self.optional = optional
        self.sparse = False
        self.ragged = False
        self.supports_masking = True
        self.built = True
        tensor = KerasTensor(self.batch_shape, self._dtype, name=self.name) if input_tensor is None else input_tensor
        Node(self, (), {}, tensor)

    @property
    def dtype(self) -> str:
        """The dtype of the input."""
        return self._dtype

    def call(self) -> None:
        """Return None: the result of an input layer is `layer.output`."""

    def compute_output_shape(self, input_shape: Any = None) -> Any:
        """Return the batch shape of the layer."""
        return self.batch_shape

    def get_config(self) -> dict[str, Any]:
        """Return the constructor arguments as plain data."""
        return {
            "batch_shape": self.batch_shape,
            "dtype": self._dtype,
            "sparse": False,
            "ragged": False,
            "name": self.name,
            "optional": self.optional,
        }


def Input(
    shape: Sequence[int | None] | None = None,
    batch_size: int | None = None,
    dtype: Any = None,
    sparse: bool | None = None,
    ragged: bool | None = None,
    batch_shape: Sequence[int | None] | None = None,
    name: str | None = None,
    tensor: KerasTensor | None = None,
    optional: bool = False,
) -> KerasTensor:
    """Return an input of a functional model: a symbolic tensor.

    Args:
        shape: the shape of a sample, without the batch; None is an unknown size.
        batch_size: the size of the batch, where it is fixed.
        dtype: the dtype; `floatx()` where None.
        sparse: values of Weft are dense: True is an error.
        ragged: likewise.
        batch_shape: the shape with the batch, in place of `shape` and `batch_size`.
        name: the name of the input, and of the layer that it is the result of.
        tensor: a KerasTensor to take as the input.
        optional: whether None may be passed for it.

    Returns:
        A KerasTensor.

    Example:
        >>> from weft import keras
        >>> x = keras.Input((3,))
        >>> model = keras.Model(x, keras.layers.Dense(2)(x))
        >>> model.output_shape
        (None, 2)
    """
    layer = InputLayer(
        shape=shape,
        batch_size=batch_size,
        dtype=dtype,
        sparse=sparse,
        ragged=ragged,
        batch_shape=batch_shape,
        input_tensor=tensor,
        optional=optional,
        name=name,
    )
    return layer.output
