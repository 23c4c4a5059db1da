"""Shapes and dtypes of what a function returns, where some sizes are not known."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import weft
from weft.errors import (
    ArgumentError,
    ArgumentTypeError,
    ConcretizationTypeError,
    InconclusiveDimensionOperation,
    ShapeMismatchError,
    TracerIntegerConversionError,
)
from weft.export import symbolic_shape
from weft.keras.core import spec
from weft.keras.core.scope import StatelessScope
from weft.keras.graph.tensor import KerasTensor

# Sizes to try where a symbolic one leaves a question open: prime, and not what a layer has by accident; then such as
# can be divided, for splits and reshapes.
_SIZES = ((331, 1009), (55440, 110880))
# A size that is less than what a slice or a diagonal has otherwise.
_SMALL = 2
_symbol: list[Any] = []  # one symbol for all unknown sizes, made when first needed
_tracing: ContextVar[bool] = ContextVar("weft_keras_symbolic_trace", default=False)


def unknown_size() -> Any:
    """Return the symbol for sizes that are None: an integer of at least 2, so that nothing takes it for a broadcast."""
    if not _symbol:
        _symbol.extend(symbolic_shape("unknown", constraints=["unknown >= 2"]))
    return _symbol[0]


def in_symbolic_trace() -> bool:
    """Return whether a function is being traced only for the shapes of its results."""
    return _tracing.get()


def compute_output_spec(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the KerasTensors that `function` would return.

    The function is traced with one symbolic size for all unknown sizes. If the trace depends on the size (`if
    x.shape[0] > 8`), the function is traced with several integers instead, and the results are compared. If shapes are
    incompatible then, an unknown size is replaced by the size that it must equal. Writes to variables are discarded.

    Args:
        function: a function of arrays.
        *args: arguments, with KerasTensors in place of arrays.
        **kwargs: likewise.

    Returns:
        The tree of results, with KerasTensors in place of arrays.
    """
    leaves, structure = weft.tree.flatten((args, kwargs), is_leaf=_is_leaf)
    tensors = [leaf for leaf in leaves if isinstance(leaf, KerasTensor)]

    def run(*values: Any) -> Any:
        fill_unknown = iter(values)
        whole = [next(fill_unknown) if isinstance(leaf, KerasTensor) else leaf for leaf in leaves]
        all_args, all_kwargs = weft.tree.unflatten(structure, whole)
        return function(*all_args, **all_kwargs)

    unknown = any(size is None for tensor in tensors for size in tensor.shape)
    if not unknown:
        return _as_tensors(_trace(run, tensors, 0, frozenset()))
    try:
        return _as_tensors(_trace(run, tensors, unknown_size(), frozenset()))
    except (InconclusiveDimensionOperation, ConcretizationTypeError, TracerIntegerConversionError, TypeError) as error:
        failures: list[Exception] = []
        for sizes in _SIZES:
            try:
                first, second = (_trace(run, tensors, size, frozenset(sizes)) for size in sizes)
            except (ArgumentError, ArgumentTypeError, ShapeMismatchError) as failure:
                failures.append(failure)
                continue
            merged = weft.tree.map(_merge_specs, first, second)
            return weft.tree.map(_less, merged, _trace_small(run, tensors, merged))
        if isinstance(failures[0], ShapeMismatchError):
            for shapes in (_broadcast_sizes(leaves), _contract_sizes(leaves), _leading_sizes(leaves)):
                found = _try_trace(run, tensors, shapes)
                if found is not None:
                    return _as_tensors(found)
            if isinstance(error, ShapeMismatchError):
                raise error from None
        raise failures[0] from None


def _trace_small(run: Callable[..., Any], tensors: Sequence[KerasTensor], merged: Any) -> Any:
    """Trace `run` for a small size; return `merged` if it fails for one (a window would not fit)."""
    if all(size is None for each in weft.tree.leaves(merged) for size in each.shape):
        return merged
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _trace(run, tensors, _SMALL, frozenset())
    except Exception:  # whatever a function of a user raises
        return merged
    return found if weft.tree.structure(found) == weft.tree.structure(merged) else merged


def _try_trace(run: Callable[..., Any], tensors: Sequence[KerasTensor], shapes: list[Any]) -> Any:
    """Trace `run` with more known sizes; None if no sizes were added or the shapes are incompatible."""
    if shapes == [tensor.shape for tensor in tensors]:
        return None
    assumed = [KerasTensor(shape, tensor.dtype) for shape, tensor in zip(shapes, tensors, strict=True)]
    try:
        return _trace(run, assumed, unknown_size(), frozenset())
    except (ShapeMismatchError, InconclusiveDimensionOperation):
        return None


def _broadcast_sizes(leaves: Sequence[Any]) -> list[Any]:
    """Return the shapes of the KerasTensors, with unknown sizes taken from the other arguments along the same axis,
    counted from the last, so that `(None, 4)` and `(3, 1)` broadcast to `(3, 4)`.
    """
    shapes = [tuple(leaf.shape) for leaf in leaves if hasattr(leaf, "shape")]

    def size_on(axis: int) -> int | None:
        known = {shape[axis] for shape in shapes if len(shape) >= -axis} - {None, 1}
        return known.pop() if len(known) == 1 else None

    def fill_unknown(shape: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(size_on(i - len(shape)) if size is None else size for i, size in enumerate(shape))

    return [fill_unknown(leaf.shape) for leaf in leaves if isinstance(leaf, KerasTensor)]


def _leading_sizes(leaves: Sequence[Any]) -> list[Any]:
    """Return the shapes of the KerasTensors, with an unknown first size taken from the other arguments."""
    known = {leaf.shape[0] for leaf in leaves if getattr(leaf, "shape", ())} - {None}
    size = known.pop() if len(known) == 1 else None
    tensors = [leaf for leaf in leaves if isinstance(leaf, KerasTensor)]
    return [(size, *each.shape[1:]) if each.shape and each.shape[0] is None else each.shape for each in tensors]


def _contract_sizes(leaves: Sequence[Any]) -> list[Any]:
    """Return the shapes of a matmul's KerasTensors, with unknown contracted sizes taken from the other operand."""
    operands = [leaf for leaf in leaves if hasattr(leaf, "shape")]
    shapes = [list(leaf.shape) for leaf in operands]
    if len(shapes) == 2 and all(shapes):
        first, second = shapes
        axis = max(-2, -len(second))
        if first[-1] is None or second[axis] is None:
            first[-1] = second[axis] = second[axis] if first[-1] is None else first[-1]
    return [tuple(shape) for leaf, shape in zip(operands, shapes, strict=True) if isinstance(leaf, KerasTensor)]


def _is_leaf(value: Any) -> bool:
    return value is None


def _trace(run: Callable[..., Any], tensors: Sequence[KerasTensor], size: Any, stand_ins: frozenset[int]) -> Any:
    """Trace `run` with `size` for unknown sizes. Layers that are built inside see None for it."""
    structs = [
        weft.ShapeDtypeStruct(tuple(size if known is None else known for known in tensor.shape), tensor.dtype)
        for tensor in tensors
    ]

    def run_in_scope(*values: Any) -> Any:
        # Inside of the trace, so that it ends with it: what is written belongs to the trace.
        with StatelessScope():
            return run(*values)

    sizes, flag = spec.stand_ins.set(stand_ins), _tracing.set(True)
    try:
        return weft.eval_shape(run_in_scope, *structs)
    finally:
        _tracing.reset(flag)
        spec.stand_ins.reset(sizes)


def _as_tensors(result: Any) -> Any:
    return weft.tree.map(lambda struct: KerasTensor(struct.shape, str(struct.dtype)), result)


def _merge_specs(first: Any, second: Any) -> KerasTensor:
    """Merge the specs of a result at two sizes: axes that differ are unknown."""
    sizes = [one if one == other else None for one, other in zip(first.shape, second.shape, strict=True)]
    return KerasTensor(sizes, str(first.dtype))


def _less(merged: KerasTensor, small: Any) -> KerasTensor:
    """Return the merged spec with the axes unknown that differ for a small argument."""
    if len(small.shape) != len(merged.shape):
        return merged
    sizes = [one if one == other else None for one, other in zip(merged.shape, small.shape, strict=True)]
    return KerasTensor(sizes, merged.dtype)
