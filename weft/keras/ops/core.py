"""Conversion, control flow, and slices of arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
import weft.numpy as wnp
from weft import lax
from weft.errors import ArgumentError, ArgumentTypeError
from weft.keras.core.config import standardize_dtype
from weft.keras.core.context import is_tracer
from weft.keras.core.variable import unwrap_variable
from weft.keras.graph.tensor import KerasTensor
from weft.keras.ops.argument_docs import document
from weft.keras.ops.dispatch import operand, operation, symbolic_as, tensor

_REDUCTIONS = {"add": "add", "max": "max", "min": "min", "mul": "multiply"}


@operation
@document("An array of the same shape.", 'print(keras.ops.cast([1.7, -1.7], "int32")) -> [ 1 -1]', dtype="the dtype.")
def cast(x: Any, dtype: Any) -> Any:
    """Cast an array to a dtype."""
    return tensor(x).astype(standardize_dtype(dtype))


@operation
@document("An array of the same shape.", dtype="the dtype.")
def saturate_cast(x: Any, dtype: Any) -> Any:
    """Cast an array to a dtype, with elements clipped to the range of that dtype."""
    x, dtype = tensor(x), standardize_dtype(dtype)
    if x.dtype == bool or dtype == "bool":
        return x.astype(dtype)
    return wnp.clip(x, *_common_range(x.dtype, wnp.dtype(dtype))).astype(dtype)


def _common_range(source: Any, target: Any) -> tuple[Any, Any]:
    """Return the smallest and largest value of both dtypes, as scalars of the first dtype.

    If the first dtype is a float, the largest integer of the second may be rounded up: casts to integers saturate
    anyway.
    """
    info = lambda dtype: wnp.iinfo(dtype) if wnp.issubdtype(dtype, wnp.integer) else wnp.finfo(dtype)
    own, other = info(source), info(target)
    scalar: Any = int if wnp.issubdtype(source, wnp.integer) else float
    return max(scalar(own.min), scalar(other.min)), min(scalar(own.max), scalar(other.max))


@operation
def convert_to_tensor(x: Any, dtype: Any = None, sparse: bool | None = None, ragged: bool | None = None) -> Any:
    """Convert lists, scalars, NumPy arrays or variables to an array of Weft.

    Args:
        x: what to convert.
        dtype: of the result; by default that of `x`.
        sparse: must not be True: Weft has no sparse tensors of Keras.
        ragged: must not be True: Weft has no ragged tensors.

    Returns:
        An array.

    Example:
        >>> from weft import keras
        >>> keras.ops.convert_to_tensor([1.0, 2.0])
        Array([1., 2.], dtype=float32)
    """
    if sparse or ragged:
        raise ArgumentError(
            "`sparse` and `ragged` must be False: arrays of Weft are dense.",
            received=f"sparse={sparse}, ragged={ragged}",
        )
    if dtype is None:
        return tensor(x)
    dtype = standardize_dtype(dtype)
    return x.astype(dtype) if isinstance(x, weft.Array) else wnp.asarray(x, dtype)


@document(
    "A NumPy array that may be written to.",
    "keras.ops.convert_to_numpy(keras.ops.ones((2,))) -> array([1., 1.], dtype=float32)",
    x="what to convert; it must not be traced.",
)
def convert_to_numpy(x: Any) -> np.ndarray:
    """Convert an array of Weft, a variable, or anything array-like to a NumPy array."""
    return np.array(tensor(x))


@document(
    "A boolean.",
    "keras.ops.is_tensor(keras.ops.ones((2,))), keras.ops.is_tensor([1.0]) -> (True, False)",
    x="anything.",
)
def is_tensor(x: Any) -> bool:
    """Return whether a value is an array of Weft, traced or not."""
    return isinstance(x, weft.Array)


@document("A tuple.", "keras.ops.shape([[1, 2]]) -> (1, 2)")
def shape(x: Any) -> tuple[Any, ...]:
    """Return the shape of an array; unknown sizes of a symbolic tensor are None."""
    return tuple(x.shape) if hasattr(x, "shape") else tensor(x).shape


@document('A name, such as "float32".', "keras.ops.dtype(keras.ops.ones((2,))) -> 'float32'")
def dtype(x: Any) -> str:
    """Return the name of the dtype of an array."""
    return standardize_dtype(x.dtype if hasattr(x, "dtype") else tensor(x).dtype)


@operation
def stop_gradient(variable: Any) -> Any:
    """Return the same value, constant for differentiation.

    Args:
        variable: an array or a variable.

    Returns:
        An array.

    Example:
        >>> from weft import keras, grad
        >>> grad(lambda x: x * keras.ops.stop_gradient(x))(3.0)
        Array(3., dtype=float32, weak_type=True)
    """
    return lax.stop_gradient(tensor(variable))


def _unstack_spec(x: Any, num: int | None = None, axis: int = 0) -> Any:
    """Return `num` symbolic slices if the size of the axis is unknown."""
    if num is None or not -x.ndim <= axis < x.ndim or x.shape[axis] is not None:
        return None
    rest = [size for i, size in enumerate(x.shape) if i != axis % x.ndim]
    return [KerasTensor(rest, x.dtype) for _ in range(num)]


@operation
@symbolic_as(_unstack_spec)
@document(
    "A list of arrays.",
    "[part.tolist() for part in keras.ops.unstack([[1, 2], [3, 4]])] -> [[1, 2], [3, 4]]",
    num="how many there are; the size of the axis where None.",
    axis="the axis.",
)
def unstack(x: Any, num: int | None = None, axis: int = 0) -> Any:
    """Split an array along an axis into slices without that axis."""
    x = tensor(x)
    if not -x.ndim <= axis < x.ndim:
        raise ArgumentError(f"An array of rank {x.ndim} has no axis {axis}.", received=f"shape {x.shape}")
    if num is not None and num != x.shape[axis]:
        raise ArgumentError(f"`num` must be the size of axis {axis}, {x.shape[axis]}.", received=f"num={num}")
    return list(wnp.unstack(x, axis=axis))


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with its own derivative.

    Args:
        f: takes arguments and returns the result and a function that maps the gradient of the result (`upstream=`, or
            its only arguments) to the gradients of the arguments.

    Returns:
        A function that returns the result only. Of variables among its arguments, `f` gets the values.
    """
    with_gradient = weft.custom_gradient(f)

    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> Any:
        return with_gradient(
            *(unwrap_variable(arg) for arg in args), **{name: unwrap_variable(arg) for name, arg in kwargs.items()}
        )

    return call


# ------------------------------------------------------------------------------------------------------- control flow


@operation
def cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """Return the result of one of two functions; only that one runs.

    Args:
        pred: a boolean scalar.
        true_fn: a function without arguments.
        false_fn: likewise; its result has the same structure, shapes and dtypes.

    Returns:
        What the function returned.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.cond(True, lambda: 1, lambda: 2))
        1
    """
    if isinstance(pred, (bool, np.bool_)):
        return true_fn() if pred else false_fn()
    return lax.cond(tensor(pred), true_fn, false_fn)


@operation
def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any) -> Any:
    """Run a loop over integers that updates a value.

    Args:
        lower: the first index.
        upper: the end, which is not included.
        body_fun: maps an index and the value to the next value, of the same shape and dtype.
        init_val: the value at the start: an array, or a structure of arrays.

    Returns:
        The last value.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.fori_loop(0, 4, lambda i, total: total + i, 0))
        6
    """
    return lax.fori_loop(lower, upper, body_fun, init_val)


@operation
def while_loop(
    cond: Callable[..., Any], body: Callable[..., Any], loop_vars: Any, maximum_iterations: int | None = None
) -> Any:
    """Run a loop while a condition is true.

    Args:
        cond: maps the loop's variables to a boolean scalar.
        body: maps them to their next values, of the same shapes and dtypes.
        loop_vars: their first values: a tuple or list, whose parts are the arguments of both functions, or one value.
        maximum_iterations: the most iterations; no limit by default.

    Returns:
        The last values as a tuple, or one value.

    Example:
        >>> from weft import keras
        >>> values = keras.ops.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, 2 * x), (0, 1))
        >>> [int(value) for value in values]
        [3, 8]
    """
    several = isinstance(loop_vars, (tuple, list))
    start = tuple(loop_vars) if several else (loop_vars,)

    def goes_on(state: tuple[Any, tuple[Any, ...]]) -> Any:
        done, variables = state
        holds = cond(*variables)
        return holds if maximum_iterations is None else wnp.logical_and(holds, done < maximum_iterations)

    def step(state: tuple[Any, tuple[Any, ...]]) -> tuple[Any, tuple[Any, ...]]:
        done, variables = state
        after = body(*variables)
        return done + 1, tuple(after) if isinstance(after, (tuple, list)) else (after,)

    _, values = lax.while_loop(goes_on, step, (wnp.asarray(0, "int32"), weft.tree.map(operand, start)))
    return values if several else values[0]


@operation
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: Any = 1,
) -> tuple[Any, Any]:
    """Run a loop over the first axis of arrays that updates a carry and collects results.

    Args:
        f: maps a carry and an element to the next carry and a result.
        init: the carry at the start.
        xs: an array, or a structure of arrays, whose first axis is looped over; None, if only `length` counts.
        length: how many iterations; the size of the first axis of `xs` by default.
        reverse: whether to go from the end to the start.
        unroll: how many iterations are written out in the compiled loop; True for all.

    Returns:
        The last carry, and the results stacked along a new first axis.
    """
    if not callable(f):
        raise ArgumentTypeError("The first argument of scan must be a function.", received=repr(f))
    if xs is None and length is None:
        raise ArgumentError("scan needs `xs` or `length`.")
    return lax.scan(f, init, xs, length, reverse, unroll)


@operation
def associative_scan(f: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Compute all partial results of an associative function in parallel.

    Args:
        f: an associative function of two elements.
        elems: an array, or a structure of arrays.
        reverse: whether partial results begin at the end.
        axis: the axis of elements.

    Returns:
        An array, or a structure, of the shapes of `elems`.
    """
    if not callable(f):
        raise ArgumentTypeError("The first argument of associative_scan must be a function.", received=repr(f))
    return lax.associative_scan(f, weft.tree.map(tensor, elems), reverse, axis)


@operation
def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """Apply a function to each element along the first axis, one after another.

    Args:
        f: a function of one element.
        xs: an array, or a structure of arrays.

    Returns:
        The results, stacked along a new first axis.
    """
    return lax.map(f, weft.tree.map(tensor, xs))


@operation
def vectorized_map(function: Callable[[Any], Any], elements: Any) -> Any:
    """Apply a function to all elements along the first axis at once.

    Args:
        function: a function of one element.
        elements: an array, or a structure of arrays.

    Returns:
        The results, stacked along a new first axis.
    """
    return weft.vmap(function)(weft.tree.map(tensor, elements))


@operation
def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Return the result of one of several functions; only that one runs.

    Args:
        index: which; limited to the indices that there are.
        branches: the functions.
        *operands: their arguments.

    Returns:
        What the function returned.
    """
    return lax.switch(tensor(index), branches, *operands)


# -------------------------------------------------------------------------------------------------- slices and scatters


def _slice_spec(inputs: Any, start_indices: Any, shape: Sequence[int]) -> Any:
    """Return the symbolic box: sizes of -1 are unknown where those of the inputs are, or the first index is."""
    if len(shape) != len(inputs.shape) or not any(_is_rest(size) for size in shape):
        return None
    unknown = isinstance(start_indices, KerasTensor)

    def size_on(i: int) -> int | None:
        whole = inputs.shape[i]
        if not _is_rest(shape[i]):
            return shape[i]
        return (
            None
            if unknown or whole is None or isinstance(start_indices[i], KerasTensor)
            else whole - int(start_indices[i])
        )

    return KerasTensor([size_on(i) for i in range(len(shape))], dtype(inputs))


@operation
@symbolic_as(_slice_spec)
def slice(inputs: Any, start_indices: Any, shape: Sequence[int]) -> Any:
    """Return a box of an array.

    Args:
        inputs: an array.
        start_indices: the first index of each axis, integers or an array of them; they may be traced.
        shape: the sizes of the box; -1 is up to the end of the axis, whose first index must not be traced then.

    Returns:
        An array of that shape.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.slice([1, 2, 3, 4], [1], [2]))
        [2 3]
    """
    inputs, sizes = tensor(inputs), tuple(shape)
    if len(sizes) != inputs.ndim:
        raise ArgumentError(
            f"The box must have a size for each of the {inputs.ndim} axes.", received=f"shape={sizes}, {inputs.shape}"
        )
    if any(_is_rest(size) for size in sizes):
        first = [_known_index(start_indices[i]) if _is_rest(size) else 0 for i, size in enumerate(sizes)]
        sizes = tuple(
            whole - start if _is_rest(size) else size
            for size, start, whole in zip(sizes, first, inputs.shape, strict=True)
        )
    return lax.dynamic_slice(inputs, _starts(start_indices), sizes)


def _is_rest(size: Any) -> bool:
    return isinstance(size, (int, np.integer)) and size == -1


def _known_index(index: Any) -> int:
    if isinstance(index, (int, np.integer, np.ndarray)) or (isinstance(index, weft.Array) and not is_tracer(index)):
        return int(index)
    raise ArgumentError(
        "A box that goes to the end of an axis (-1) must begin at an index that is not traced.",
        received=repr(index),
        fix="pass the size of the box",
    )


@operation
def slice_update(inputs: Any, start_indices: Any, updates: Any) -> Any:
    """Replace a box of an array.

    Args:
        inputs: an array.
        start_indices: the first index of each axis, integers or an array of them; they may be traced.
        updates: the box.

    Returns:
        An array of the shape and dtype of `inputs`.
    """
    inputs = tensor(inputs)
    return lax.dynamic_update_slice(inputs, tensor(updates).astype(inputs.dtype), _starts(start_indices))


def _starts(indices: Any) -> Any:
    if isinstance(indices, (list, tuple)):
        return tuple(tensor(i) for i in indices)
    return wnp.unstack(tensor(indices))


@operation
def scatter(indices: Any, values: Any, shape: Sequence[int]) -> Any:
    """Add values to an array of zeros at indices.

    Args:
        indices: integers; the last axis has the leading indices of one position.
        values: what is added there.
        shape: of the result.

    Returns:
        An array of the dtype of `values`.
    """
    values = tensor(values)
    return wnp.zeros(shape, values.dtype).at[_positions(indices)].add(values)


@operation
def scatter_update(inputs: Any, indices: Any, updates: Any, reduction: str | None = None) -> Any:
    """Update an array at indices.

    Args:
        inputs: an array.
        indices: integers; the last axis has the leading indices of one position.
        updates: the values.
        reduction: None replaces; "add", "max", "min" and "mul" combine with what is there.

    Returns:
        An array of the shape and dtype of `inputs`.

    Example:
        >>> from weft import keras
        >>> print(keras.ops.scatter_update([1, 2, 3], [[0], [2]], [9, 8]))
        [9 2 8]
    """
    inputs = tensor(inputs)
    at = inputs.at[_positions(indices)]
    updates = tensor(updates).astype(inputs.dtype)
    if reduction is None:
        return at.set(updates)
    if reduction not in _REDUCTIONS:
        raise ArgumentError(
            f"`reduction` must be None or one of {', '.join(_REDUCTIONS)}.", received=f"reduction={reduction!r}"
        )
    return getattr(at, _REDUCTIONS[reduction])(updates)


def _positions(indices: Any) -> tuple[Any, ...]:
    """Split indices whose last axis is a position into one array for each axis."""
    return tuple(wnp.unstack(tensor(indices), axis=-1))
