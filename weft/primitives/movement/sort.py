"""Sorting of several arrays by the first of them, and the k largest elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from weft.base import dtypes
from weft.ir.fusing import Machine, Properties, hero
from weft.ir.higher_order import HigherOrder
from weft.ir.parts import Parts
from weft.ir.primitive import Axis, Params, Primitive, Sample, lookup, primitive
from weft.ir.types import ArrayType, array_type, get_aval
from weft.ir.zeros import Zero
from weft.primitives.families import Composite, check_kind, fail
from weft.primitives.movement.gather import take_along
from weft.primitives.movement.iota import iota
from weft.primitives.movement.shape import broadcast_in_dim, move_batch_to_front, ramp
from weft.sharding.factors import AxisFactors

_INT32 = np.dtype(np.int32)
_INT64 = np.dtype(np.int64)


def index_dtype(size: Any) -> np.dtype[Any]:
    """Return the integer dtype for positions along an axis of `size`."""
    return _INT64 if isinstance(size, int) and size > 2**31 - 1 else _INT32


def sortable(x: np.ndarray) -> list[np.ndarray]:
    """Return arrays, the most significant first, by which NumPy sorts like `x`: NaN last, -0 like 0, complex by
    parts."""
    match dtypes.kind(x.dtype):
        case "c":
            return [x.real, x.imag]
        case "f" if x.dtype.itemsize < 4:
            return [x.astype(np.float32)]
        case "i" | "u" if x.dtype.isbuiltin != 1:
            return [x.astype(np.int8)]
    return [x]


def descending(x: np.ndarray) -> np.ndarray:
    """Return integers that grow as the elements of `x` fall, in the total order of floats: -0 below 0, NaNs equal, on
    top."""
    (key,) = sortable(x)
    if dtypes.kind(key.dtype) == "f":
        key = np.where(np.isnan(key), np.abs(key.dtype.type(np.nan)), key)
        bits: Any = key.view(np.int32 if key.dtype.itemsize == 4 else np.int64)
        key = np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)
    return ~key


_SORTED = hero("sort", materialized=None)


@primitive
class sort(HigherOrder):
    """Sort operands of one shape together along `dimension` by the first `num_keys` of them.

    NaNs come last, -0 equals 0, complex numbers compare by real and then imaginary part. It is a `HigherOrder` only for
    the form of its jvp rule, which makes the results and the permutation in a single sort.
    """

    higher_order = False
    types_placement = False
    introduces = ()

    def type(self, *types: ArrayType, dimension: int, is_stable: bool, num_keys: int) -> list[ArrayType]:
        if not types:
            raise fail("sort needs at least one operand.")
        shape = types[0].shape
        for t in types[1:]:
            if t.shape != shape:
                shapes = ", ".join(str(u.shape) for u in types)
                raise fail(
                    f"sort needs operands of one shape, got {shapes}.", received=" and ".join(u.short() for u in types)
                )
        if not 0 <= dimension < len(shape):
            raise fail(
                f"sort got dimension {dimension} for operands of shape {shape}.", fix="give a dimension in range(rank)"
            )
        if not 1 <= num_keys <= len(types):
            raise fail(
                f"sort got num_keys={num_keys} for {len(types)} operands.", fix="between 1 and the number of operands"
            )
        for t in types[:num_keys]:
            check_kind("sort", t.dtype, "biufc")
        return list(types)

    def eval(self, *arrays: Any, dimension: int, is_stable: bool, num_keys: int) -> list[Any]:
        keys = [part for array in arrays[:num_keys] for part in sortable(array)]
        if len(arrays) == len(keys) == 1:
            return [np.sort(keys[0], axis=dimension, kind="stable").astype(arrays[0].dtype)]
        if len(keys) == 1:
            order = np.argsort(keys[0], axis=dimension, kind="stable")
        else:
            order = np.lexsort(keys[::-1], axis=dimension)
        return [np.take_along_axis(a, order, dimension) for a in arrays]

    def jvp_through(
        self,
        through: Any,
        primals: Sequence[Any],
        tangents: Sequence[Any],
        *,
        dimension: int,
        is_stable: bool,
        num_keys: int,
    ) -> tuple[list[Any], list[Any]]:
        params: dict[str, Any] = {"dimension": dimension, "is_stable": is_stable, "num_keys": num_keys}
        types = [get_aval(p) for p in primals]
        if all(type(t) is Zero for t in tangents):
            return sort(*primals, **params), [Zero.of(t) for t in types]
        shape = types[0].shape  # type: ignore[attr-defined]
        *outs, order = sort(
            *primals, iota(dtype=index_dtype(shape[dimension]), shape=shape, dimension=dimension), **params
        )
        return outs, [
            Zero.of(a) if type(t) is Zero else take_along(t, order, dimension)
            for t, a in zip(tangents, types, strict=True)
        ]

    def batch(
        self,
        axis: Axis,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        dimension: int,
        is_stable: bool,
        num_keys: int,
    ) -> tuple[list[Any], list[int]]:
        dim = dims[0]
        if dim is None or any(d != dim for d in dims):
            args, dim = [move_batch_to_front(a, d, axis) for a, d in zip(args, dims, strict=True)], 0
        lifted = dimension + (dimension >= dim)
        return sort(*args, dimension=lifted, is_stable=is_stable, num_keys=num_keys), [dim] * len(args)

    def batch_through(self, through: Any, axis: Axis, args: Any, dims: Any, **params: Any) -> tuple[list[Any], Any]:
        return self.batch(axis, args, dims, **params)

    def factors(self, *types: ArrayType, dimension: int, is_stable: bool, num_keys: int) -> AxisFactors:
        names = tuple(None if i == dimension else f"d{i}" for i in range(types[0].ndim))
        return AxisFactors((names,) * len(types), (names,) * len(types), reason="rows are sorted on one device")

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return _SORTED

    def samples(self) -> Any:
        nan, mixed = np.nan, np.array([2.0, -1.5, 3.25, 0.5, -2.25], np.float32)
        common: dict[str, Any] = {"is_stable": True, "num_keys": 1}
        yield Sample(mixed, dimension=0, **common)
        yield Sample(np.stack([mixed, mixed[::-1] + 0.125]), dimension=1, **common)
        yield Sample(np.stack([mixed, mixed[::-1] + 0.125]), mixed * ramp(2, 1), dimension=0, **common)
        yield Sample(mixed, ramp(5), ramp(5, dtype=np.int32), dimension=0, **common)
        yield Sample(np.array([1, 0, 1, 0], np.int32), mixed[:4], ramp(4), dimension=0, is_stable=True, num_keys=2)
        yield Sample(
            np.array([1.0, nan, -0.0, 0.0, nan], np.float32), ramp(5), dimension=0, differentiable=False, **common
        )
        yield Sample(np.array([True, False, True]), ramp(3, dtype=np.int32), dimension=0, **common)
        yield Sample(
            np.array([1 + 2j, 1 - 2j, 0.5j, complex(1, nan)], np.complex64), dimension=0, differentiable=False, **common
        )
        yield Sample(np.array([1 + 2j, 0.75 - 2j, 0.5j], np.complex64), dimension=0, **common)
        yield Sample(mixed.astype(ml_dtypes.bfloat16), dimension=0, differentiable=False, **common)
        yield Sample(ramp(0, 3), dimension=0, **common)
        yield Sample(ramp(1), dimension=0, is_stable=False, num_keys=1)


@primitive
class top_k(Primitive):
    """`k` largest elements along `axis`, largest first, and their indices; equal elements in order of appearance.

    Floats compare in the total order, so -0 is below 0; every NaN counts as largest, and NaNs are equal.
    """

    multiple_results = True
    introduces = ()

    def type(self, x: ArrayType, *, k: int, axis: int) -> list[ArrayType]:
        check_kind("top_k", x.dtype, "biuf")
        if not 0 <= axis < x.ndim:
            raise fail(
                f"top_k got axis {axis} for an operand of shape {x.shape}.",
                fix="give an axis of an array of rank 1 or more",
            )
        size = x.shape[axis]
        if k < 0 or (isinstance(size, int) and isinstance(k, int) and k > size):
            raise fail(
                f"top_k got k={k} for {size} elements along axis {axis} of shape {x.shape}.", fix="0 <= k <= size"
            )
        shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
        return [x.plain_of_shape(shape), array_type(shape, index_dtype(size))]

    def eval(self, x: Any, *, k: int, axis: int) -> list[Any]:
        order = np.argsort(descending(x), axis=axis, kind="stable")
        first = np.take(order, np.arange(k), axis=axis)
        return [np.take_along_axis(x, first, axis), first.astype(index_dtype(x.shape[axis]))]

    def jvp(self, tangents: Sequence[Any], out: Any, x: Any, *, k: int, axis: int) -> list[Any]:
        values, indices = out
        (tangent,) = tangents
        tangent_out = Zero.of(values.aval) if type(tangent) is Zero else take_along(tangent, indices, axis)
        return [tangent_out, Zero.of(indices.aval)]

    def batch(self, mapped: Axis, args: Any, dims: Any, *, k: int, axis: int) -> tuple[Any, list[int]]:
        (x,), (dim,) = args, dims
        return top_k(x, k=k, axis=axis + (axis >= dim)), [dim, dim]

    def factors(self, x: ArrayType, *, k: int, axis: int) -> AxisFactors:
        """Split also along `axis`: the largest elements of all parts contain the largest of all."""
        names = tuple(f"d{i}" for i in range(x.ndim))
        result = tuple(None if i == axis else n for i, n in enumerate(names))
        return AxisFactors((names,), (result, result), inside={names[axis]: 2 * k})

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        """Find the largest elements of each part with their indices, and then the largest of those."""
        (x,), k, axis = args, params["k"], params["axis"]
        name = parts.operand_names[0][axis]
        if name is None or not parts.split(name):
            found: Sequence[Any] = top_k(x, **params)
            return found
        size = x.shape[axis]
        values, indices = top_k(x, k=min(k, size), axis=axis)
        result: Any = parts.results[1]
        if indices.dtype != result.dtype:
            indices = lookup("convert_element_type")(indices, new_dtype=result.dtype, weak_type=False)
        start = lookup("convert_element_type")(parts.start(name, size), new_dtype=result.dtype, weak_type=False)
        indices = lookup("add")(indices, broadcast_in_dim(start, shape=indices.shape, broadcast_dimensions=()))
        values, order = top_k(parts.gather(values, name, axis), k=k, axis=axis)
        return [values, take_along(parts.gather(indices, name, axis), order, axis)]

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return _SORTED

    def samples(self) -> Any:
        mixed = np.array([2.0, -1.5, 3.25, 0.5, -2.25], np.float32)
        yield Sample(mixed, k=2, axis=0)
        yield Sample(np.stack([mixed, mixed[::-1]]), k=3, axis=1)
        yield Sample(np.stack([mixed, mixed[::-1] + 0.125]), k=1, axis=0)
        yield Sample(mixed, k=0, axis=0)
        yield Sample(np.array([3, 1, 3, 2], np.int32), k=4, axis=0)
        yield Sample(np.array([200, 1, 255], np.uint8), k=2, axis=0)
        yield Sample(np.array([False, True]), k=1, axis=0)
        yield Sample(np.array([1.0, np.nan, -0.0, 0.0, np.inf], np.float32), k=5, axis=0, differentiable=False)
        yield Sample(mixed.astype(ml_dtypes.bfloat16), k=2, axis=0, differentiable=False)
        nans = np.array([0x3C, 0x7E, 0xFF, 0x7F, 0x7C], np.uint8).view(ml_dtypes.float8_e5m2)
        yield Sample(nans, k=4, axis=0, differentiable=False)
        several = np.array([1.0, np.nan, -np.nan, np.inf], np.float32)
        several.view(np.uint32)[1] ^= 5
        yield Sample(several, k=4, axis=0, differentiable=False)


@primitive
class approx_top_k(Composite):
    """`k` largest (or smallest) elements along `reduction_dimension` and their indices. The result is exact, so
    that it meets every `recall_target`."""

    multiple_results = True

    def decompose(
        self,
        x: Any,
        *,
        k: int,
        reduction_dimension: int,
        recall_target: float,
        is_max_k: bool,
        reduction_input_size_override: int,
        aggregate_to_topk: bool,
    ) -> list[Any]:
        check_kind("approx_top_k", x.dtype, "f")
        axis = reduction_dimension
        if is_max_k:
            result: list[Any] = top_k(x, k=k, axis=axis)
            return result
        size = x.shape[axis]
        if not 0 <= k <= size:
            raise fail(f"approx_min_k got k={k} for {size} elements along axis {axis}.", fix="0 <= k <= size")
        positions = iota(dtype=index_dtype(size), shape=x.shape, dimension=axis)
        ordered = sort(x, positions, dimension=axis, is_stable=True, num_keys=1)
        starts = (0,) * x.ndim
        limits = (*x.shape[:axis], k, *x.shape[axis + 1 :])
        return [lookup("slice")(y, start_indices=starts, limit_indices=limits, strides=None) for y in ordered]

    def samples(self) -> Any:
        mixed = np.array([2.0, -1.5, 3.25, 0.5, -2.25], np.float32)
        hints: dict[str, Any] = {"recall_target": 0.95, "reduction_input_size_override": -1, "aggregate_to_topk": True}
        yield Sample(mixed, k=2, reduction_dimension=0, is_max_k=True, **hints)
        yield Sample(np.stack([mixed, mixed[::-1]]), k=3, reduction_dimension=1, is_max_k=False, **hints)
