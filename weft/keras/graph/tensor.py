"""Tensors without values: results of layers and operations in the construction of a functional model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import weft
from weft.errors import ArgumentTypeError, TracerArrayConversionError
from weft.keras.core import registry
from weft.keras.core.config import standardize_dtype
from weft.keras.core.names import auto_name
from weft.keras.core.spec import standardize_shape


class KerasHistory(NamedTuple):
    """Where a tensor comes from: an operation, which of its calls, and which result of that call."""

    operation: Any
    node_index: int
    tensor_index: int


class KerasTensor:
    """A tensor that has a shape and a dtype, and no value.

    Layers, operators and the functions of `weft.keras.ops` take it, and record what they would compute.

    Args:
        shape: the shape; None is a size that is not known, such as that of the batch.
        dtype: the dtype.
        sparse: whether values will be sparse. Weft's are dense: True is an error.
        ragged: whether values will be ragged. True is an error.
        record_history: whether the operation that computes it is recorded.
        name: its name.

    Example:
        >>> from weft import keras
        >>> x = keras.KerasTensor((None, 3))
        >>> keras.layers.Dense(2)(x).shape
        (None, 2)
    """

    def __init__(
        self,
        shape: Sequence[int | None],
        dtype: Any = "float32",
        sparse: bool = False,
        ragged: bool = False,
        record_history: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs or sparse or ragged:
            raise ArgumentTypeError(
                "A KerasTensor takes only a shape, a dtype and a name; its values are dense.",
                received=", ".join(
                    [*kwargs, *(["sparse=True"] if sparse else []), *(["ragged=True"] if ragged else [])]
                ),
            )
        self._shape = standardize_shape(shape)
        self._dtype = standardize_dtype(dtype)
        self.sparse = False
        self.ragged = False
        self.record_history = record_history
        self._name = name
        self._keras_history: KerasHistory | None = None

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Sizes of the axes; None where one is not known."""
        return self._shape

    @property
    def dtype(self) -> str:
        """The name of the dtype."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """The count of axes."""
        return len(self._shape)

    @property
    def size(self) -> int | None:
        """The count of entries; None where a size is not known."""
        total = 1
        for size in self._shape:
            if size is None:
                return None
            total *= size
        return total

    @property
    def name(self) -> str:
        """The name, `keras_tensor`, `keras_tensor_1`, ... where none was asked for."""
        if self._name is None:
            self._name = auto_name("KerasTensor")
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        self._name = value

    @property
    def T(self) -> Any:
        """The tensor with its axes in reverse order."""
        return _operation("transpose")(self)

    def reshape(self, *newshape: Any) -> Any:
        """Reshape the tensor."""
        shape = newshape[0] if len(newshape) == 1 and not isinstance(newshape[0], int) else newshape
        return _operation("reshape")(self, shape)

    def squeeze(self, axis: Any = None) -> Any:
        """Remove axes of size 1."""
        return _operation("squeeze")(self, axis)

    def astype(self, dtype: Any) -> Any:
        """Cast the tensor to a dtype."""
        return _operation("cast")(self, dtype)

    def serialized_keras_tensor(self) -> dict[str, Any]:
        """Return the tensor as files store it: shape, dtype, and the layer and call that compute it."""
        history = self._keras_history
        return {
            "shape": list(self._shape),
            "dtype": self._dtype,
            "keras_history": history and [history.operation.name, history.node_index, history.tensor_index],
        }

    def __repr__(self) -> str:
        return f"<KerasTensor shape={self._shape}, dtype={self._dtype}, name={self._name}>"

    def __getitem__(self, index: Any) -> Any:
        return _operation("get_item")(self, index)

    def __len__(self) -> int:
        self._has_no_value("len() of a size that may not be known")
        return 0

    def __iter__(self) -> Any:
        self._has_no_value("a loop over its entries")

    def __bool__(self) -> bool:
        self._has_no_value("`if`, `and`, `or` or `not`")
        return False

    def __float__(self) -> float:
        self._has_no_value("float()")
        return 0.0

    def __int__(self) -> int:
        self._has_no_value("int()")
        return 0

    def __index__(self) -> int:
        self._has_no_value("an index")
        return 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        self._has_no_value("a function of NumPy")

    def __jax_array__(self) -> Any:
        self._has_no_value("a function of Weft")

    def _has_no_value(self, what: str) -> None:
        raise TracerArrayConversionError(
            f"A KerasTensor has no value, only a shape and a dtype; it was used in {what}.",
            received=repr(self),
            fix=[
                "use functions of `weft.keras.ops`, operators and layers, which record what they compute",
                "write a layer whose `call` does it: there the values are arrays",
            ],
        )


def _operation(name: str) -> Callable[..., Any]:
    """Return the function of `weft.keras.ops` of a name; its calls on KerasTensors are recorded."""
    return registry.find("ops", name)


def _operator(name: str, reflected: bool = False) -> Callable[..., Any]:
    def apply(self: KerasTensor, *others: Any) -> Any:
        if others and isinstance(others[0], str):
            return NotImplemented
        operands = (*others, self) if reflected else (self, *others)
        return _operation(name)(*operands)

    return apply


_OPERATORS = {
    "neg": "negative",
    "abs": "absolute",
    "invert": "logical_not",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "ne": "not_equal",
}
_BINARY = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "mod": "mod",
    "pow": "power",
    "matmul": "matmul",
    "and": "logical_and",
    "or": "logical_or",
    "xor": "logical_xor",
}
for _method, _function in {**_OPERATORS, **_BINARY}.items():
    setattr(KerasTensor, f"__{_method}__", _operator(_function))
for _method, _function in _BINARY.items():
    setattr(KerasTensor, f"__r{_method}__", _operator(_function, reflected=True))
# Tensors are looked for in dicts and sets by identity.
KerasTensor.__hash__ = object.__hash__  # type: ignore[method-assign]


def is_keras_tensor(x: Any) -> bool:
    """Return whether a value is a symbolic tensor.

    Args:
        x: anything.

    Example:
        >>> from weft import keras
        >>> keras.backend.is_keras_tensor(keras.Input((3,))), keras.backend.is_keras_tensor(1.0)
        (True, False)
    """
    return isinstance(x, KerasTensor)


def any_symbolic(args: Any = None, kwargs: Any = None) -> bool:
    """Return whether the arguments contain a KerasTensor, also in lists, tuples and dicts."""
    return _contains(args) or _contains(kwargs)


def _contains(tree: Any) -> bool:
    if isinstance(tree, KerasTensor):
        return True
    if isinstance(tree, (list, tuple)):
        return any(_contains(item) for item in tree)
    if isinstance(tree, dict):
        return any(_contains(item) for item in tree.values())
    return False


def find_tensors(tree: Any) -> list[KerasTensor]:
    """Return the KerasTensors in a tree, in order."""
    return [leaf for leaf in weft.tree.leaves(tree) if isinstance(leaf, KerasTensor)]
