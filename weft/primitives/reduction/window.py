"""Reductions over sliding windows, and selection of an element of each window to read from or to add to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from weft.base.errors import ArgumentTypeError, NotSupportedError
from weft.ir.context import EVALUATION, active
from weft.ir.fusing import Machine, Properties, element_count, hero
from weft.ir.interpreter import storage_array
from weft.ir.jaxpr import Jaxpr
from weft.ir.nans import allow_nans
from weft.ir.parts import Parts
from weft.ir.primitive import Axis, No, Params, Primitive, Sample, primitive
from weft.ir.types import ArrayType, Shape, array_type, get_aval
from weft.primitives.contraction.convolution_shapes import Window
from weft.primitives.elementwise.arithmetic import add, mul
from weft.primitives.elementwise.compare import ge, le
from weft.primitives.elementwise.extremes import maximum, minimum
from weft.primitives.families import check_kind, fail, widen
from weft.primitives.movement.concatenate import concatenate, stack_values
from weft.primitives.movement.pad import pad
from weft.primitives.movement.shape import broadcast_in_dim, move_batch_to_front, ramp, reshape
from weft.primitives.reduction.reduce_extrema import highest, lowest
from weft.primitives.reduction.reduce_other import (
    apply_everywhere,
    check_computation,
    evaluate_definition,
    halves,
    part,
)
from weft.primitives.reduction.window_parts import (
    OVERLAP,
    chosen_factors,
    local_gather,
    local_scatter,
    local_windows,
    window_factors,
)
from weft.sharding.factors import AxisFactors, Names, by_dimension
from weft.trace.closed import stage_subjaxpr

Pads = tuple[tuple[int, int], ...]
WINDOW_PARAMETERS = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")


# --------------------------------------------------------------------------------------------------------- the windows


def geometry(
    shape: Shape,
    *,
    window_dimensions: tuple[int, ...],
    window_strides: tuple[int, ...],
    padding: Pads,
    base_dilation: tuple[int, ...] | None = None,
    window_dilation: tuple[int, ...] | None = None,
) -> list[Window]:
    """Return a `Window` for each dimension of an operand."""
    ones = (1,) * len(shape)
    rows = zip(
        shape, window_dimensions, window_strides, padding, base_dilation or ones, window_dilation or ones, strict=True
    )
    return [
        Window(size, window, stride, low, high, base, dilation)
        for size, window, stride, (low, high), base, dilation in rows
    ]


def check_parameters(name: str, shape: Shape, params: Params) -> list[Window]:
    """Return the windows over an operand; raise for wrong sizes, strides and dilations."""
    for key in WINDOW_PARAMETERS:
        values = params.get(key)
        if values is None:
            continue
        if len(values) != len(shape):
            raise fail(f"{name} got {key} {values} for an operand of shape {shape}.", fix="give one for each dimension")
        if key != "padding" and any(value < 1 for value in values):
            raise fail(f"{name} needs {key} of at least 1, got {values}.")
    return geometry(shape, **params)


def check_windows(name: str, shape: Shape, params: Params) -> list[Window]:
    """Return the windows over an operand; raise for any wrong parameter."""
    windows = check_parameters(name, shape, params)
    if any(isinstance(w.padded, int) and w.padded < 0 for w in windows):
        raise fail(
            f"{name} cannot crop {params['padding']} from an operand of shape {shape}.",
            fix="negative padding takes away at most the size of a dimension",
        )
    return windows


def counts(windows: Sequence[Window]) -> Shape:
    """Return the number of windows along each dimension."""
    return tuple(w.count for w in windows)


def padding_config(windows: Sequence[Window]) -> tuple[tuple[Any, Any, int], ...]:
    """Return the padding between and around the elements of the operand."""
    return tuple((w.low, w.high, w.lhs_dilation - 1) for w in windows)


def with_padding(x: np.ndarray, value: np.ndarray, windows: Sequence[Window]) -> np.ndarray:
    """Pad a NumPy operand with `value` between and around its elements."""
    operation: Any = pad
    result: np.ndarray = operation.eval(x, value, padding_config=padding_config(windows))
    return result


def insert_dimension(dim: int, params: Params) -> Params:
    """Insert a dimension at `dim` into window parameters, along which windows have size 1."""
    result = dict(params)
    for key in WINDOW_PARAMETERS:
        values = params.get(key)
        if values is not None:
            result[key] = (*values[:dim], (0, 0) if key == "padding" else 1, *values[dim:])
    return result


def name_untouched(windows: Sequence[Window]) -> Names:
    """Return a factor name for each dimension in which every window is one element of the operand, else None."""
    return tuple(f"d{i}" if w.is_one else None for i, w in enumerate(windows))


def elements(x: np.ndarray, window: Window, axis: int) -> Any:
    """Yield, for each element of a window along `axis`, its values in all windows."""
    for i in range(window.window):
        start = i * window.rhs_dilation
        stop = start + max(0, (window.count - 1) * window.stride + 1)
        yield x[(slice(None),) * axis + (slice(start, stop, window.stride),)]


# ------------------------------------------------------------------------------------------------ reductions by a name


WINDOWED = hero("window", materialized=None)


class WindowReduction(Primitive):
    """Each result element reduces one window of the operand; padding does not contribute."""

    kinds: ClassVar[str] = "biuf"
    ufunc: Any
    # The operation that combines two elements, by name.
    operation: ClassVar[str]

    def initial(self, dtype: Any) -> Any:
        """Return the neutral element, as a value of `dtype`."""
        raise NotSupportedError(f"{self.name} has no neutral element")

    def type(self, x: ArrayType, **params: Any) -> ArrayType:
        check_kind(self.name, x.dtype, self.kinds)
        return x.plain_of_shape(counts(check_windows(self.name, x.shape, params)))

    def eval(self, x: Any, **params: Any) -> Any:
        windows = geometry(x.shape, **params)
        result = widen(with_padding(x, self.initial(x.dtype), windows))
        # One dimension at a time: the work is the sum of the window's sizes rather than their product.
        for axis, window in enumerate(windows):
            parts = elements(result, window, axis)
            result = next(parts)
            for piece in parts:
                result = self.ufunc(result, piece)
        return result.astype(x.dtype)

    def batch(self, axis: Axis, args: Any, dims: Any, **params: Any) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        return self(x, **insert_dimension(dim, params)), dim

    def factors(self, x: ArrayType, **params: Any) -> AxisFactors:
        return window_factors(geometry(x.shape, **params), 1, 0, 1)

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        xs, local = local_windows(parts, args, params, [self.initial(args[0].dtype)])
        return [self(*xs, **local)]

    def explicit_factors(self, x: ArrayType, **params: Any) -> AxisFactors:
        return by_dimension([x.ndim])

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return WINDOWED

    def flops(self, equation: Any) -> float:
        return element_count(equation.outvars[0].aval.shape) * element_count(equation.params["window_dimensions"])

    def samples(self) -> Any:
        yield from (Sample(x, **params) for x, params in window_samples())
        plain: Params = {"window_strides": (1,), "padding": ((1, 1),), "base_dilation": (1,), "window_dilation": (1,)}
        yield Sample(ramp(5, dtype=np.int32), window_dimensions=(3,), **plain)
        yield Sample(ramp(5, dtype=ml_dtypes.bfloat16), window_dimensions=(2,), differentiable=False, **plain)


def window_samples() -> Any:
    """Yield operands whose windows have no ties, with window parameters of every kind."""
    x = np.array([[2.0, -1.5, 3.25, 0.5], [-2.25, 1.0, 0.25, 2.75], [-0.5, 1.75, -1.0, 3.75]], np.float32)

    def parameters(size: Any, stride: Any, padding: Any, base: Any = None, dilation: Any = None) -> Params:
        ones = (1,) * len(size)
        values = (size, stride, padding, base or ones, dilation or ones)
        return dict(zip(WINDOW_PARAMETERS, values, strict=True))

    yield x, parameters((2, 2), (1, 1), ((0, 0), (0, 0)))
    yield x, parameters((2, 3), (2, 1), ((0, 1), (1, 1)))
    yield x, parameters((1, 2), (1, 2), ((0, 0), (0, 0)))
    yield x, parameters((2, 2), (1, 2), ((1, 0), (2, 1)), dilation=(1, 2))
    yield x[0], parameters((3,), (2,), ((1, 1),), base=(2,))
    yield x[0], parameters((2,), (1,), ((-1, 0),))
    yield x[0], parameters((5,), (1,), ((0, 0),))
    yield np.zeros((0, 2), np.float32), parameters((1, 1), (1, 1), ((0, 0), (0, 0)))
    yield np.array(1.5, np.float32), parameters((), (), ())


@primitive
class reduce_window_sum(WindowReduction):
    """Sum of each window; reduced-precision floats accumulate wider."""

    kinds = "iufc"
    linear = (0,)
    ulp = {"": 2.0}
    ufunc = np.add
    operation = "add"

    def initial(self, dtype: Any) -> Any:
        return np.zeros((), dtype)

    def transpose(self, cotangent: Any, x: Any, **params: Any) -> Sequence[Any]:
        # Each operand element gets the cotangents of the windows it is in: windows over the dilated cotangent.
        windows = geometry(x.aval.shape, **params)
        back = reduce_window_sum(
            cotangent,
            window_dimensions=params["window_dimensions"],
            window_strides=tuple(w.lhs_dilation for w in windows),
            padding=tuple(w.pads_for_lhs() for w in windows),
            base_dilation=params["window_strides"],
            window_dilation=params["window_dilation"],
        )
        return [back]

    def samples(self) -> Any:
        yield from super().samples()
        for x, params in window_samples():
            yield Sample((x * (1 + 2j)).astype(np.complex64), **params)


class WindowExtremum(WindowReduction):
    """Extreme element of each window; the derivative goes to the first one."""

    select_prim: Any

    def partial(self, i: int, tangent: Any, out: Any, x: Any, **params: Any) -> Any:
        return select_and_gather_add(tangent, x, select_prim=self.select_prim, **params)


@primitive
class reduce_window_max(WindowExtremum):
    """Largest element of each window; NaN where there is one."""

    ufunc = maximum
    select_prim = ge
    initial = staticmethod(lowest)
    operation = "max"


@primitive
class reduce_window_min(WindowExtremum):
    """Smallest element of each window; NaN where there is one."""

    ufunc = minimum
    select_prim = le
    initial = staticmethod(highest)
    operation = "min"


# --------------------------------------------------------------------------------------------- reductions by a jaxpr


@primitive
class reduce_window(Primitive):
    """Reduce each window of the first half of the operands by `jaxpr`, a function of scalars, from the initial values
    in the second half, which are also the padding. The function must be associative; elements are taken in order."""

    multiple_results = True
    partitions = True  # so that the elements its windows read are exchanged once

    def type(self, *types: ArrayType, jaxpr: Jaxpr, consts: tuple[Any, ...] = (), **params: Any) -> list[ArrayType]:
        operands, initial = halves(types)
        check_computation("reduce_window", jaxpr, operands, initial)
        shape = counts(check_windows("reduce_window", operands[0].shape, params))
        return [array_type(shape, t.dtype) for t in operands]

    def eval(self, *arrays: Any, **params: Any) -> list[Any]:
        return evaluate_definition(self.decompose, arrays, **params)

    def decompose(self, *args: Any, jaxpr: Jaxpr, consts: tuple[Any, ...] = (), **params: Any) -> list[Any]:
        operands, initial = halves(args)
        windows = geometry(get_aval(operands[0]).shape, **params)  # type: ignore[attr-defined]
        config = padding_config(windows)
        padded = [pad(x, i, padding_config=config) for x, i in zip(operands, initial, strict=True)]
        full = [broadcast_in_dim(i, shape=counts(windows), broadcast_dimensions=()) for i in initial]
        return reduce_windows(jaxpr, padded, full, windows)

    def definition(self, *args: Any, **params: Any) -> list[Any]:
        return self.decompose(*args, **params)

    def batch(
        self, axis: Axis, args: Any, dims: Any, *, jaxpr: Jaxpr, consts: tuple[Any, ...] = (), **params: Any
    ) -> tuple[list[Any], list[int]]:
        (operands, initial), (operand_dims, initial_dims) = halves(args), halves(dims)
        out_dims = [0] * len(operands)
        operands = [move_batch_to_front(x, d, axis) for x, d in zip(operands, operand_dims, strict=True)]
        lifted = insert_dimension(0, params)
        if all(d is None for d in initial_dims):
            return reduce_window(*operands, *initial, jaxpr=jaxpr, consts=consts, **lifted), out_dims
        # Each element of the batch starts from its own values, which the primitive has no parameter for.
        windows = geometry(get_aval(operands[0]).shape, **lifted)  # type: ignore[attr-defined]
        inner, shape = padding_config(windows[1:]), counts(windows)
        padded, full = [], []
        operation: Any = pad
        for x, i, d in zip(operands, initial, initial_dims, strict=True):
            padded.append(operation.batch(axis, (x, i), (0, d), padding_config=inner)[0])
            full.append(broadcast_in_dim(i, shape=shape, broadcast_dimensions=() if d is None else (0,)))
        return reduce_windows(jaxpr, padded, full, windows), out_dims

    def factors(self, *types: ArrayType, jaxpr: Jaxpr, consts: tuple[Any, ...] = (), **params: Any) -> AxisFactors:
        count = len(types) // 2
        return window_factors(geometry(types[0].shape, **params), count, count, count)

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        operands, initial = halves(args)
        xs, local = local_windows(parts, operands, params, initial)
        result: Sequence[Any] = reduce_window(*xs, *initial, **local)
        return result

    def explicit_factors(self, *types: ArrayType, **params: Any) -> AxisFactors:
        return by_dimension([t.ndim for t in types], len(types) // 2)

    def samples(self) -> Any:
        scalar = array_type((), np.dtype(np.float32))
        product = stage_subjaxpr(lambda a, b: [mul(a, b)], [scalar, scalar])
        affine = stage_subjaxpr(lambda a, b, c, d: [mul(a, c), add(mul(b, c), d)], [scalar] * 4)
        zero, one = np.zeros((), np.float32), np.ones((), np.float32)
        for x, params in window_samples():
            yield Sample(x, one, jaxpr=product, consts=(), **params)
        for x, params in list(window_samples())[:5]:
            yield Sample(x, x + 0.5, one, zero, jaxpr=affine, consts=(), **params)


def reduce_windows(jaxpr: Jaxpr, padded: Sequence[Any], initial: Sequence[Any], windows: Sequence[Window]) -> list[Any]:
    """Reduce each window of padded operands by a function of scalars, from initial values in the result's shape."""
    if 0 in counts(windows):
        return list(initial)
    values = list(padded)
    # The last dimension first, so that elements are met in row-major order.
    for axis in reversed(range(len(windows))):
        window = windows[axis]
        values = runs(jaxpr, values, axis, window)
        if window.stride != 1 or values[0].shape[axis] != window.count:
            values = [part(v, 0, (window.count - 1) * window.stride + 1, window.stride, axis) for v in values]
    return apply_everywhere(jaxpr, [*initial, *values])


def runs(jaxpr: Jaxpr, values: list[Any], axis: int, window: Window) -> list[Any]:
    """Reduce the window that starts at each index of `axis`, by doubling: runs of 1, 2, 4, ... are combined."""
    step, size = window.rhs_dilation, values[0].shape[axis]
    wanted: int = window.window  # type: ignore[assignment]

    def extend(left: list[Any], right: list[Any], distance: int, length: int) -> list[Any]:
        """Combine runs with those that start `distance` elements later, to `length` elements together."""
        room, offset = size - (length - 1) * step, distance * step
        first = [part(v, 0, room, 1, axis) for v in left]
        return apply_everywhere(jaxpr, [*first, *(part(v, offset, offset + room, 1, axis) for v in right)])

    length, doubled, covered = 1, values, 0
    found: list[Any] = []
    while True:
        if wanted & length:
            found = extend(found, doubled, covered, covered + length) if covered else doubled
            covered += length
        if covered == wanted:
            return found
        doubled = extend(doubled, doubled, length, 2 * length)
        length *= 2


# -------------------------------------------------------------------------------------- the chosen element of a window


def chosen(operand: np.ndarray, keep: Callable[[Any, Any], Any], windows: Sequence[Window]) -> np.ndarray:
    """Return the position, in row-major order, of the element selected in each window; -1 if a window has only padding.

    Going through a window, the element selected so far stays while `keep(selected, next)` holds.
    """
    positions = np.arange(operand.size).reshape(operand.shape)
    all_positions = _by_element(with_padding(positions, np.array(-1), windows), windows)
    all_values = _by_element(with_padding(operand, np.zeros((), operand.dtype), windows), windows)
    position, value = all_positions[0], all_values[0]
    for next_position, next_value in zip(all_positions[1:], all_values[1:], strict=True):
        replaced = (next_position >= 0) & ((position < 0) | ~np.asarray(keep(value, next_value)))
        position, value = np.where(replaced, next_position, position), np.where(replaced, next_value, value)
    return position


def _by_element(x: np.ndarray, windows: Sequence[Window]) -> list[np.ndarray]:
    """Return, for each element of the window in row-major order, its values in all windows."""
    parts = [x]
    for axis, window in enumerate(windows):
        parts = [piece for p in parts for piece in elements(p, window, axis)]
    return parts


class Chosen(Primitive):
    """Linear in its first operand; the second, in whose windows an element is chosen, has no derivative.

    An element stays chosen while `select_prim(element, later)` is true of those after it.
    """

    linear = (0,)

    def batch(self, axis: Axis, args: Any, dims: Any, **params: Any) -> tuple[Any, int]:
        if dims[0] is None or dims[0] != dims[1]:
            args, dims = [move_batch_to_front(x, d, axis) for x, d in zip(args, dims, strict=True)], (0, 0)
        return self(*args, **insert_dimension(dims[0], params)), dims[0]

    def explicit_factors(self, x: ArrayType, operand: ArrayType, **params: Any) -> AxisFactors:
        return by_dimension([x.ndim, operand.ndim])

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return WINDOWED


@primitive
class select_and_gather_add(Chosen):
    """From each window, the tangent at the position of the element chosen in the operand."""

    def type(self, tangents: ArrayType, operand: ArrayType, *, select_prim: Any, **params: Any) -> ArrayType:
        check_kind(self.name, operand.dtype, "biuf")
        if tangents.shape != operand.shape:
            raise fail(
                f"select_and_gather_add needs two operands of one shape, got {tangents.shape} and {operand.shape}."
            )
        return tangents.plain_of_shape(counts(check_windows(self.name, operand.shape, params)))

    def eval(self, tangents: Any, operand: Any, *, select_prim: Any, **params: Any) -> Any:
        position = chosen(operand, select_prim.eval, geometry(operand.shape, **params))
        if not operand.size:
            return np.zeros(position.shape, tangents.dtype)
        return np.where(position >= 0, tangents.reshape(-1)[position], np.zeros((), tangents.dtype))

    def transpose(self, cotangent: Any, tangents: Any, operand: Any, **params: Any) -> Sequence[Any]:
        return [select_and_scatter_add(cotangent, operand, **params), None]

    def factors(self, tangents: ArrayType, operand: ArrayType, *, select_prim: Any, **params: Any) -> AxisFactors:
        return chosen_factors(geometry(operand.shape, **params), scatters=False)

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        xs, local = local_gather(parts, args, params)
        return [select_and_gather_add(*xs, **local)]

    def samples(self) -> Any:
        for x, params in window_samples():
            yield Sample(ramp(*x.shape), x, select_prim=ge, **params)
            yield Sample(ramp(*x.shape), x, select_prim=le, **params)


@primitive
class select_and_scatter_add(Chosen):
    """Add each source element at the position of the element chosen in its window of the operand; zero elsewhere."""

    def type(self, source: ArrayType, operand: ArrayType, *, select_prim: Any, **params: Any) -> ArrayType:
        check_kind(self.name, operand.dtype, "biuf")
        shape = counts(check_windows(self.name, operand.shape, params))
        if source.shape != shape:
            raise fail(
                f"select_and_scatter_add needs a source element for each window, {shape}, got shape {source.shape}."
            )
        return source.plain_of_shape(operand.shape)

    def eval(self, source: Any, operand: Any, *, select_prim: Any, **params: Any) -> Any:
        position = chosen(operand, select_prim.eval, geometry(operand.shape, **params))
        values = widen(source)
        result = np.zeros(operand.size, values.dtype)
        held = position >= 0
        np.add.at(result, position[held], values[held])
        return result.reshape(operand.shape).astype(source.dtype)

    def transpose(self, cotangent: Any, source: Any, operand: Any, **params: Any) -> Sequence[Any]:
        return [select_and_gather_add(cotangent, operand, **params), None]

    def factors(self, source: ArrayType, operand: ArrayType, *, select_prim: Any, **params: Any) -> AxisFactors:
        return chosen_factors(geometry(operand.shape, **params), scatters=True)

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        windows = geometry(parts.types[1].shape, **_window_params(params))
        pads = [w.reach_of_result().pads if w.is_known else (False, False) for w in windows]
        return [local_scatter(parts, args, params, select_and_scatter_add, pads)]

    def samples(self) -> Any:
        for x, params in window_samples():
            source = ramp(*counts(geometry(x.shape, **params)))  # type: ignore[arg-type]
            yield Sample(source, x, select_prim=ge, **params)
        x, params = next(window_samples())
        short = {k: params[k] for k in WINDOW_PARAMETERS[:3]}
        yield Sample(ramp(2, 3), x, select_prim=le, **short)


@primitive
class select_and_scatter(Primitive):
    """Combine each source element, by `scatter_jaxpr`, with the result at the position of the element that
    `select_jaxpr` chooses in its window of the operand; results start from the initial value."""

    jvp = No("it may choose and combine by any function; for pooling use lax.reduce_window, which has a derivative")

    def type(
        self,
        operand: ArrayType,
        source: ArrayType,
        initial: ArrayType,
        *,
        select_jaxpr: Jaxpr,
        scatter_jaxpr: Jaxpr,
        **params: Any,
    ) -> ArrayType:
        windows = check_windows(self.name, operand.shape, _window_params(params))
        if source.shape != counts(windows):
            raise fail(
                f"select_and_scatter needs a source element for each window, {counts(windows)}, got shape "
                f"{source.shape}."
            )
        if initial.shape or not source.dtype == initial.dtype == operand.dtype:
            raise fail(
                "select_and_scatter needs operand, source and a scalar initial value of one dtype, got "
                f"{operand.short()}, {source.short()} and {initial.short()}."
            )
        scalar = array_type((), operand.dtype)
        check_computation(self.name, scatter_jaxpr, [scalar], [scalar])
        if [t.dtype for t in select_jaxpr.out_avals] != [np.bool_]:  # type: ignore[attr-defined]
            raise ArgumentTypeError("The selecting computation of select_and_scatter must return one boolean.")
        return operand.strong()

    def eval(
        self, operand: Any, source: Any, initial: Any, *, select_jaxpr: Jaxpr, scatter_jaxpr: Jaxpr, **params: Any
    ) -> Any:
        def everywhere(jaxpr: Jaxpr, *arrays: Any) -> np.ndarray:
            with active(EVALUATION), allow_nans():
                return np.asarray(storage_array(apply_everywhere(jaxpr, arrays)[0]))

        windows = geometry(operand.shape, **_window_params(params))
        position = chosen(operand, lambda a, b: everywhere(select_jaxpr, a, b), windows).reshape(-1)
        values, position = source.reshape(-1)[position >= 0], position[position >= 0]
        result = np.full(operand.size, initial, operand.dtype)
        # Sources for one position are combined one after the other: each round takes the next one of every position.
        order = np.argsort(position, kind="stable")
        position, values = position[order], values[order]
        rank = np.arange(position.size) - np.searchsorted(position, position)
        for i in range(rank.max(initial=-1) + 1):
            now = position[rank == i]
            result[now] = everywhere(scatter_jaxpr, result[now], values[rank == i])
        return result.reshape(operand.shape)

    def batch(self, axis: Axis, args: Any, dims: Any, **params: Any) -> tuple[Any, int]:
        operand, source, initial = args
        operand, source = (move_batch_to_front(x, d, axis) for x, d in zip((operand, source), dims[:2], strict=True))
        lifted = {**params, **insert_dimension(0, _window_params(params))}
        if dims[2] is None:
            return select_and_scatter(operand, source, initial, **lifted), 0
        if axis.size == 0:
            return stack_values([], operand.aval.without_dimension(0)), 0
        if not isinstance(axis.size, int):
            raise fail(f"select_and_scatter over initial values that are batched needs a known size, got {axis.size}.")
        # The primitive has one initial value, so each element of the batch is computed by itself.
        results = []
        for i in range(axis.size):
            own = reshape(part(initial, i, i + 1), new_sizes=(), dimensions=None)
            results.append(select_and_scatter(part(operand, i, i + 1), part(source, i, i + 1), own, **lifted))
        return concatenate(*results, dimension=0), 0

    def factors(self, operand: ArrayType, source: ArrayType, initial: ArrayType, **params: Any) -> AxisFactors:
        names = name_untouched(geometry(operand.shape, **_window_params(params)))
        return AxisFactors((names, names, ()), (names,), reason=OVERLAP)

    def explicit_factors(self, operand: ArrayType, source: ArrayType, initial: ArrayType, **params: Any) -> AxisFactors:
        return by_dimension([operand.ndim, source.ndim, 0])

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return WINDOWED

    def samples(self) -> Any:
        scalar = array_type((), np.dtype(np.float32))
        selects = stage_subjaxpr(lambda a, b: [ge(a, b)], [scalar, scalar])
        scatters = stage_subjaxpr(lambda a, b: [mul(a, b)], [scalar, scalar])
        for x, params in window_samples():
            if not math.prod(params["base_dilation"]) == math.prod(params["window_dilation"]) == 1:
                continue
            short = {k: params[k] for k in WINDOW_PARAMETERS[:3]}
            source = ramp(*counts(geometry(x.shape, **short)))  # type: ignore[arg-type]
            computations: Params = {
                "select_jaxpr": selects,
                "select_consts": (),
                "scatter_jaxpr": scatters,
                "scatter_consts": (),
            }
            yield Sample(x, source, np.float32(2), differentiable=False, **computations, **short)


def _window_params(params: Params) -> Params:
    return {key: params[key] for key in WINDOW_PARAMETERS if key in params}
