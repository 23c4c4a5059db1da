"""Reductions over sliding windows with JAX's signatures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.base.arguments import sequence
from weft.base.errors import ArgumentError
from weft.indexing.dimension import index_or_size
from weft.ir.types import get_aval
from weft.lax.reductions import FlatReduction
from weft.primitives.contraction.convolution_shapes import dilate_size, padtype_to_pads as _padtype_to_pads
from weft.primitives.reduction import window as _window

_NAMED = {
    "add": _window.reduce_window_sum,
    "max": _window.reduce_window_max,
    "min": _window.reduce_window_min,
}


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[[Any, Any], Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """Reduce every window of the operand(s) by an associative `computation(accumulated, element)` on scalars.

    Windows start `window_strides` apart; their elements are `window_dilation` apart; `base_dilation` spreads the
    operand out; padding and gaps hold the initial value. Sums and extrema become the primitives of those names.

    Args:
        operand: an array, or a tree of arrays of one shape.
        init_value: an identity for each.
        computation: a function of two scalars.
        window_dimensions: the size of the window along each axis.
        window_strides: the step of the window along each axis; 1 by default.
        padding: "VALID", "SAME" or pairs (low, high).
        base_dilation, window_dilation: the distance of elements in the operand and in the window; 1 by default.

    Returns:
        An array or tree.

    >>> import weft.numpy as wnp
    >>> from weft import lax
    >>> lax.reduce_window(wnp.array([1, 2, 3, 4]), 0, lax.add, (2,), (2,))
    Array([3, 7], dtype=int32)
    """
    reduction = FlatReduction("reduce_window", operand, init_value, computation)
    shape = get_aval(reduction.operands[0]).shape  # type: ignore[attr-defined]
    params = _parameters(shape, window_dimensions, window_strides, padding, base_dilation, window_dilation)
    named = _NAMED.get(reduction.monoid) if reduction.monoid is not None else None
    if named is not None:
        return reduction.unflatten_results([named(reduction.operands[0], **params)])
    return reduction.unflatten_results(
        _window.reduce_window(*reduction.operands, *reduction.initial, jaxpr=reduction.jaxpr, consts=(), **params)
    )


def reduce_window_shape_tuple(
    operand_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Compute the shape of a reduction over windows; a size that is negative, also by padding, has no windows."""
    shape = _sizes(operand_shape)
    params = _parameters(shape, window_dimensions, window_strides, padding, base_dilation, window_dilation)
    windows = _window.geometry(shape, **params)
    return tuple(0 if isinstance(w.padded, int) and w.padded < 0 else w.count for w in windows)  # type: ignore[misc]


def padtype_to_pads(
    in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int], padding: str
) -> list[tuple[int, int]]:
    """Compute the padding (low, high) of each dimension for 'VALID', 'SAME' or 'SAME_LOWER'.

    Args:
        in_shape: the sizes of the operand.
        window_shape: the sizes of the window.
        window_strides: the steps of the window.
        padding: "VALID", "SAME" or "SAME_LOWER".

    Returns:
        A list of pairs (low, high).

    >>> from weft import lax
    >>> lax.padtype_to_pads((5,), (3,), (2,), "SAME")
    [(1, 1)]
    """
    return _padtype_to_pads(_sizes(in_shape), _sizes(window_shape), _sizes(window_strides), padding)  # type: ignore[return-value]


def _sizes(values: Any) -> tuple[Any, ...]:
    return tuple(index_or_size(v) for v in sequence(values, "Sizes of a window"))


def _parameters(shape: Any, window: Any, strides: Any, padding: Any, base_dilation: Any, window_dilation: Any) -> Any:
    """Return the parameters of the primitive, with defaults and padding strings resolved."""
    rank = len(shape)
    ones = (1,) * rank
    window = _sizes(window)
    strides, base_dilation, window_dilation = (
        ones if v is None else _sizes(v) for v in (strides, base_dilation, window_dilation)
    )
    params = {
        "window_dimensions": window,
        "window_strides": strides,
        "padding": ((0, 0),) * rank,
        "base_dilation": base_dilation,
        "window_dilation": window_dilation,
    }
    _window.check_parameters("reduce_window", shape, params)
    if isinstance(padding, str):
        extents = [dilate_size(w, d) for w, d in zip(window, window_dilation, strict=True)]
        padding = _padtype_to_pads(shape, extents, strides, padding)
    try:
        params["padding"] = tuple((_sizes((low, high))) for low, high in padding)
    except (TypeError, ValueError):
        raise ArgumentError(
            f"lax.reduce_window takes padding as a string or as (low, high) pairs, got {padding!r}."
        ) from None
    return params
