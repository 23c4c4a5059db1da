"""Variables: handles to arrays that layers, optimizers and metrics read and write."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft.errors import ArgumentError, ShapeMismatchError
from weft.keras.core import budget, registry
from weft.keras.core.config import is_float_dtype, standardize_dtype
from weft.keras.core.context import current_frame, is_tracer
from weft.keras.core.layouts import as_sharding, initialize_in, variable_sharding
from weft.keras.core.names import auto_name, check_name, current_path
from weft.keras.core.scope import current_scope

_AGGREGATIONS = ("none", "mean", "sum", "only_first_replica")
_SYNCHRONIZATIONS = ("none", "on_read", "on_write", "auto")


class Variable:
    """A handle to an array that may be replaced by another of the same shape and dtype.

    Reading (`value`, operators, use as an argument of any function of Weft) and writing (`assign`) go to the innermost
    scope (`StatelessScope`, `stateless`), and outside of scopes to the variable itself.

    Args:
        initializer: an array, or a function `(shape, dtype) -> array`, or the name of an initializer.
        shape: the shape, for an initializer that is a function.
        dtype: the dtype; of the array where None, and `floatx()` for functions.
        trainable: whether an optimizer may update it.
        autocast: whether it is read in the compute dtype of the layer that reads it.
        aggregation: accepted: "none", "mean", "sum" or "only_first_replica".
        synchronization: accepted: "none", "on_read", "on_write" or "auto".
        name: the last part of its path.
        layout: how it is sharded: a `TensorLayout` or a sharding of Weft; None: as the current distribution says.

    Example:
        >>> from weft import keras
        >>> variable = keras.Variable([1.0, 2.0], name="scale")
        >>> variable.assign_add([1.0, 1.0])
        Array([2., 3.], dtype=float32)
        >>> variable
        <Variable path=scale, shape=(2,), dtype=float32>
    """

    is_variable = True  # for modules that this one imports

    def __init__(
        self,
        initializer: Any,
        shape: Sequence[int] | None = None,
        dtype: Any = None,
        trainable: bool = True,
        autocast: bool = True,
        aggregation: str | None = "none",
        synchronization: str | None = "auto",
        name: str | None = None,
        layout: Any = None,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            raise ArgumentError("A variable has no such arguments.", received=", ".join(kwargs))
        self._name = check_name(name or auto_name("Variable"))
        parent = current_path()
        self._path = f"{parent}/{self._name}" if parent else self._name
        self._aggregation = _choice(aggregation, _AGGREGATIONS, "aggregation")
        self._synchronization = _choice(synchronization, _SYNCHRONIZATIONS, "synchronization")
        self._trainable = bool(trainable)
        self._autocast = bool(autocast)
        self._regularizer: Callable[[Any], Any] | None = None
        self._constraint: Callable[[Any], Any] | None = None
        self.overwrite_with_gradient = False
        if isinstance(initializer, str):
            initializer = registry.get("initializers", initializer)
        if callable(initializer):
            self._dtype = standardize_dtype(dtype)
            self._shape = self._concrete_shape(shape)
            budget.take(self._shape, self._dtype, self._path)
            self._layout = variable_sharding(self) if layout is None else as_sharding(layout)
            self._value = self._compute_initial(initializer)
        else:
            self._value = self._initial_array(initializer, dtype)
            self._dtype = standardize_dtype(self._value.dtype)
            self._shape = tuple(self._value.shape)
            self._layout = variable_sharding(self) if layout is None else as_sharding(layout)
            if self._layout is not None:
                self._value = weft.device_put(self._value, self._layout)

    def _concrete_shape(self, shape: Sequence[int] | None) -> tuple[int, ...]:
        if shape is None or any(size is None for size in shape):
            raise ArgumentError(
                f"The variable {self._path} has an initializer, so it needs a shape without None.",
                received=f"shape={shape}",
            )
        return tuple(int(size) for size in shape)

    def _compute_initial(self, initializer: Callable[..., Any]) -> Any:
        # Inside of a trace too the value is a concrete array, since the variable outlives the trace.
        with weft.ensure_compile_time_eval():
            if self._layout is None:
                value = wnp.asarray(initializer(self._shape, dtype=self._dtype), dtype=self._dtype)
            else:
                value = initialize_in(initializer, self._shape, self._dtype, self._layout)
        return self._check_concrete(value)

    def _initial_array(self, value: Any, dtype: Any) -> Any:
        if isinstance(value, Variable):
            value = value.value
        if dtype is None and not hasattr(value, "dtype"):
            found = np.asarray(value)
            dtype = {"f": None, "i": int}.get(found.dtype.kind, found.dtype)  # of Python's scalars, not of NumPy's
            value, dtype = found, standardize_dtype(dtype)
        # As the cell of a variable is its own, an array of NumPy that changes later does not change it.
        with weft.ensure_compile_time_eval():
            return self._check_concrete(wnp.array(value, dtype=None if dtype is None else standardize_dtype(dtype)))

    def _check_concrete(self, value: Any) -> Any:
        if is_tracer(value):
            raise ArgumentError(
                f"The initial value of the variable {self._path} is traced, but the variable outlives the trace.",
                received=weft.typeof(value).__str__(),
                fix="create variables outside of jit and grad, or with an initializer and a shape",
            )
        return value

    # ------------------------------------------------------------------------------------------------------ properties

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self._name

    @property
    def path(self) -> str:
        """The names of the layers that the variable was created in, and its own."""
        return self._path

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, which never changes."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The count of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The count of entries."""
        return int(np.prod(self._shape, dtype=np.int64))

    @property
    def dtype(self) -> str:
        """The dtype that `value` has here: in a layer that casts, the layer's compute dtype."""
        return self._read_dtype() or self._dtype

    @property
    def trainable(self) -> bool:
        """Whether an optimizer may update it."""
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool) -> None:
        self._trainable = bool(value)

    @property
    def autocast(self) -> bool:
        """Whether it is read in the compute dtype of the layer that reads it."""
        return self._autocast

    @property
    def aggregation(self) -> str:
        """What the constructor was called with."""
        return self._aggregation

    @property
    def synchronization(self) -> str:
        """What the constructor was called with."""
        return self._synchronization

    @property
    def layout(self) -> Any:
        """How the variable is sharded, as a sharding of Weft, or None."""
        return self._layout

    @property
    def regularizer(self) -> Callable[[Any], Any] | None:
        """A function of the value whose result is added to the loss."""
        return self._regularizer

    @regularizer.setter
    def regularizer(self, value: Callable[[Any], Any] | None) -> None:
        self._regularizer = _function_or_none(value, "regularizer")

    @property
    def constraint(self) -> Callable[[Any], Any] | None:
        """A function that an optimizer applies to the value after an update."""
        return self._constraint

    @constraint.setter
    def constraint(self, value: Callable[[Any], Any] | None) -> None:
        self._constraint = _function_or_none(value, "constraint")

    # ---------------------------------------------------------------------------------------------- reading and writing

    def _read_dtype(self) -> str | None:
        """Return the dtype that reading casts to, or None."""
        if not self._autocast:
            return None
        frame = current_frame()
        if frame is None or frame.compute_dtype is None or frame.compute_dtype == self._dtype:
            return None
        return frame.compute_dtype if is_float_dtype(self._dtype) and is_float_dtype(frame.compute_dtype) else None

    @property
    def value(self) -> Any:
        """The present array (or tracer): of the innermost scope that has the variable, else the variable's own."""
        scope = current_scope()
        value = None if scope is None else scope.get_current_value(self)
        if value is None:
            value = self._value
        dtype = self._read_dtype()
        return value if dtype is None else value.astype(dtype)

    def numpy(self) -> np.ndarray:
        """Copy the value to a NumPy array."""
        return np.array(self.value)

    def converted(self, value: Any) -> Any:
        """Convert a value to the variable's dtype and check its shape."""
        if isinstance(value, Variable):
            value = value.value
        if not isinstance(value, weft.Array) or str(value.dtype) != self._dtype:
            value = wnp.asarray(value, dtype=self._dtype)
        if tuple(value.shape) != self._shape:
            raise ShapeMismatchError(
                f"The variable {self._path} has the shape {self._shape}, and no other value may be assigned to it.",
                received=f"a value of shape {tuple(value.shape)}",
            )
        return value

    def assign(self, value: Any) -> Any:
        """Replace the value; returns the new one, converted to the variable's dtype.

        Args:
            value: what can be converted to an array of the variable's shape.
        """
        value = self.converted(value)
        scope = current_scope()
        if scope is not None:
            scope.add_update((self, value))
        elif is_tracer(value):
            frame = current_frame()
            where = "" if frame is None else f" by layer {frame.path}"
            raise ArgumentError(
                f"The variable {self._path} cannot be assigned{where} in a traced function, whose values it outlives.",
                received=str(weft.typeof(value)),
                fix="use `layer.stateless_call` or `weft.keras.core.scope.stateless(function, variables)` inside of "
                "jit, grad and the like",
            )
        else:
            self._value = value if self._layout is None else weft.device_put(value, self._layout)
        return value

    def distribute(self, layout: Any = None) -> None:
        """Bring a variable that was created without a layout into one; None: that of the current distribution."""
        if self._layout is None:
            self._layout = variable_sharding(self) if layout is None else as_sharding(layout)
            if self._layout is not None:
                self._value = weft.device_put(self._value, self._layout)

    def redistribute(self, layout: Any) -> None:
        """Bring a variable into another layout than it has."""
        self._layout = as_sharding(layout)
        self._value = weft.device_put(self._value, self._layout)

    def assign_add(self, value: Any) -> Any:
        """Add to the value."""
        return self.assign(self._raw_value() + wnp.asarray(value))

    def assign_sub(self, value: Any) -> Any:
        """Subtract from the value."""
        return self.assign(self._raw_value() - wnp.asarray(value))

    def _raw_value(self) -> Any:
        """Return the value in the variable's own dtype."""
        scope = current_scope()
        value = None if scope is None else scope.get_current_value(self)
        return self._value if value is None else value

    def __jax_array__(self) -> Any:
        return self.value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        # `np.array` wants a copy, which its user may write to.
        return np.array(self.value, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"<Variable path={self._path}, shape={self._shape}, dtype={self._dtype}>"

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, index: Any) -> Any:
        return self.value[index]

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)

    # Equality is that of the values, as for arrays; sets and dicts go by identity.
    __hash__ = object.__hash__


def unwrap_variable(x: Any) -> Any:
    """Return the value of a variable; anything else unchanged."""
    return x.value if isinstance(x, Variable) else x


def _operator(function: Callable[..., Any], reflected: bool = False) -> Callable[..., Any]:
    def apply(self: Variable, *others: Any) -> Any:
        operands = [unwrap_variable(other) for other in others]
        return function(*operands, self.value) if reflected else function(self.value, *operands)

    return apply


def _install_operators() -> None:
    unary = ("neg", "pos", "abs", "invert")
    compared = ("eq", "ne", "lt", "le", "gt", "ge")
    binary = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul")
    for name in (*unary, *compared, *binary):
        setattr(Variable, f"__{name.rstrip('_')}__", _operator(getattr(operator, name)))
    for name in binary:
        setattr(Variable, f"__r{name.rstrip('_')}__", _operator(getattr(operator, name), reflected=True))
    # Those of Keras are logical, for every dtype.
    for name in ("and", "or", "xor"):
        logical = getattr(weft.numpy, f"logical_{name}")
        setattr(Variable, f"__{name}__", _operator(logical))
        setattr(Variable, f"__r{name}__", _operator(logical, reflected=True))
    setattr(Variable, "__round__", _operator(lambda value, digits=0: weft.numpy.round(value, digits or 0)))  # noqa: B010


_install_operators()


def _choice(value: str | None, accepted: tuple[str, ...], what: str) -> str:
    if value is None:
        return "none"
    if value not in accepted:
        raise ArgumentError(f"`{what}` must be one of {', '.join(accepted)}.", received=f"{what}={value!r}")
    return value


def _function_or_none(value: Any, what: str) -> Any:
    if value is not None and not callable(value):
        raise ArgumentError(f"A {what} must be a function of the value, or None.", received=f"{what}={value!r}")
    return value
