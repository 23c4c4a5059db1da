"""Slices: at offsets known when tracing, and at offsets that are operands (clamped into bounds)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import ArgumentTypeError, DtypeMismatchError
from weft.base.source import user_line
from weft.indexing import index_map
from weft.indexing.dimension import ceil_divide, definitely_less, maximum
from weft.ir.element import Element
from weft.ir.fusing import AT_AFFINE_INDEX, CUT_OUT, FIRST_MATERIALIZED, Machine, Properties, hero
from weft.ir.halo import with_halo
from weft.ir.keys import KeysThrough
from weft.ir.parts import Parts
from weft.ir.primitive import Axis, Params, Primitive, Sample, lookup, primitive
from weft.ir.tangents import instantiate
from weft.ir.types import ArrayType, Shape, get_aval
from weft.ir.zeros import Zero, is_linear
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.families import Indexing, fail
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.gather import (
    GatherDimensionNumbers,
    GatherScatterMode,
    local_indices,
    to_signed_indices,
)
from weft.primitives.movement.pad import pad, zero
from weft.primitives.movement.scatter import ScatterDimensionNumbers
from weft.primitives.movement.shape import broadcast_in_dim, move_batch_to_front, ramp
from weft.sharding.factors import AxisFactors, by_dimension
from weft.sharding.halo import Reach


def _sizes(start_indices: Sequence[Any], limit_indices: Sequence[Any], strides: Sequence[int] | None) -> list[Any]:
    if strides is None:
        return [limit - start for start, limit in zip(start_indices, limit_indices, strict=True)]
    bounds = zip(start_indices, limit_indices, strides, strict=True)
    return [ceil_divide(limit - start, step) for start, limit, step in bounds]


# A slice of at most 1/LITTLE of the elements is small: all devices get it.
LITTLE = 4
_UPDATED = hero("dynamic_update_slice", FIRST_MATERIALIZED)


@primitive
class slice(Indexing):
    """From `start_indices` (included) to `limit_indices` (not included) in steps of `strides`."""

    def type(
        self, x: ArrayType, *, start_indices: Shape, limit_indices: Shape, strides: tuple[int, ...] | None
    ) -> ArrayType:
        rank = x.ndim
        if not len(start_indices) == len(limit_indices) == rank or (strides is not None and len(strides) != rank):
            raise fail(
                f"slice got start_indices {start_indices}, limit_indices {limit_indices} and strides {strides} for an "
                f"operand of shape {x.shape}.",
                fix="give one start, limit and stride for each dimension",
            )
        for size, start, limit in zip(x.shape, start_indices, limit_indices, strict=True):
            if definitely_less(start, 0) or definitely_less(limit, start) or definitely_less(size, limit):
                raise fail(
                    f"slice got start_indices {start_indices} and limit_indices {limit_indices} for shape {x.shape}.",
                    fix="0 <= start <= limit <= size must hold in each dimension",
                )
        if strides is not None and any(step < 1 for step in strides):
            raise fail(f"slice needs strides of at least 1, got {strides}.", fix="use lax.rev to reverse a dimension")
        return x.plain_of_shape(_sizes(start_indices, limit_indices, strides))

    def eval(self, x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
        steps = strides if strides is not None else (1,) * len(start_indices)
        return np.asarray(x)[tuple(map(_python_slice, start_indices, limit_indices, steps))]

    def transpose(
        self, cotangent: Any, x: Any, *, start_indices: Any, limit_indices: Any, strides: Any
    ) -> Sequence[Any]:
        config = []
        steps = strides if strides is not None else (1,) * len(start_indices)
        for n, size, start, limit, step in zip(
            x.aval.shape, cotangent.shape, start_indices, limit_indices, steps, strict=True
        ):
            # The last element read may be before the limit when the stride does not divide the distance.
            last = limit if step == 1 else start + maximum((size - 1) * step + 1, 0)
            config.append((start, n - last, step - 1))
        return [pad(cotangent, zero(cotangent.dtype), padding_config=tuple(config))]

    def batch(
        self, axis: Axis, args: Any, dims: Any, *, start_indices: Any, limit_indices: Any, strides: Any
    ) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        lifted_strides = None if strides is None else _insert(strides, dim, 1)
        lifted = {
            "start_indices": _insert(start_indices, dim, 0),
            "limit_indices": _insert(limit_indices, dim, axis.size),
        }
        return slice(x, **lifted, strides=lifted_strides), dim

    def factors(self, x: ArrayType, *, start_indices: Any, limit_indices: Any, strides: Any) -> AxisFactors:
        """Split all dimensions. If a slice takes a large part of a dimension, devices exchange the edges of their
        parts; of a small part each device takes its own elements, and the results are summed over devices."""
        kind = dtypes.kind(x.dtype)
        operand: list[str | None] = []
        reach: dict[str, tuple[Reach | None, ...]] = {}
        steps = strides if strides is not None else (1,) * x.ndim
        counts = _sizes(start_indices, limit_indices, strides)
        sizes: tuple[Any, ...] = x.shape
        for i, (size, start, count, step) in enumerate(zip(sizes, start_indices, counts, steps, strict=True)):
            if start == 0 and count == size:
                operand.append(f"d{i}")
            elif not all(isinstance(n, int) for n in (size, start, count)) or not count or kind not in "biufc":
                operand.append(None)
            elif count * LITTLE <= size:
                operand.append(f"own{i}")
            else:
                operand.append(f"d{i}")
                reach[f"d{i}"] = (Reach(size, count, step, -start),)
        owned = [n for n in operand if n is not None and n.startswith("own")]
        result = tuple(None if n in owned else n for n in operand)
        combine = dict.fromkeys(owned, "or" if kind == "b" else "sum")
        inside = dict.fromkeys((*owned, *reach), 0)
        reason = "a slice of parts is not the parts of a slice"
        return AxisFactors((tuple(operand),), (result,), combine, inside=inside, reach=reach, reason=reason)

    def explicit_factors(self, x: ArrayType, **params: Any) -> AxisFactors:
        return by_dimension([x.ndim])

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        (x,) = args
        starts, limits = list(params["start_indices"]), list(params["limit_indices"])
        owned = {}
        for d, name in parts.split_dims(0).items():
            if name in parts.reach:
                x, halo = with_halo(parts, x, 0, d)
                starts[d], limits[d] = 0, halo.width
            elif name in parts.result_names[0]:
                limits[d] = x.shape[d]  # it is taken whole
            else:
                owned[d] = name
        if owned:
            spans = [limit - start for start, limit in zip(starts, limits, strict=True)]
            offsets = [np.int32(s) if d in owned else np.int32(0) for d, s in enumerate(starts)]
            padded, offsets = around_part(parts, x, offsets, spans, owned)
            sizes = tuple(spans[d] if d in owned else n for d, n in enumerate(x.shape))
            x = dynamic_slice(padded, *offsets, slice_sizes=sizes)
            starts = [0 if d in owned else s for d, s in enumerate(starts)]
            limits = [spans[d] if d in owned else n for d, n in enumerate(limits)]
        return [slice(x, start_indices=tuple(starts), limit_indices=tuple(limits), strides=params["strides"])]

    def sources(self, x: ArrayType, *, start_indices: Any, limit_indices: Any, strides: Any) -> list[tuple[int, Any]]:
        return [(0, index_map.slice_map(x.shape, start_indices, limit_indices, strides))]

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return CUT_OUT

    def traffic(self, operands: Sequence[int], results: Sequence[int]) -> tuple[Sequence[int], int]:
        return (results[0], *operands[1:]), results[0]

    def keys_through(self, through: KeysThrough, operands: Sequence[Any], params: Params) -> Sequence[Any] | None:
        operands[0].copy_keys(self, params).use(through.at, "indexing")
        return None

    def samples(self) -> Any:
        yield Sample(ramp(4, 5), start_indices=(1, 0), limit_indices=(3, 5), strides=None)
        yield Sample(ramp(5), start_indices=(0,), limit_indices=(4,), strides=(3,))
        yield Sample(ramp(5), start_indices=(1,), limit_indices=(5,), strides=(2,))
        yield Sample(ramp(3), start_indices=(2,), limit_indices=(2,), strides=None)
        yield Sample(ramp(3), start_indices=(2,), limit_indices=(2,), strides=(2,))
        yield Sample(ramp(4, dtype=np.int32), start_indices=(1,), limit_indices=(3,), strides=None)
        yield Sample(ramp(4, dtype=dtypes.bfloat16), start_indices=(1,), limit_indices=(3,), strides=(1,))
        yield Sample(ramp(), start_indices=(), limit_indices=(), strides=None)


def _python_slice(start: Any, limit: Any, step: Any) -> Any:
    return np.s_[start:limit:step]


def _insert(values: Sequence[Any], position: int, value: Any) -> tuple[Any, ...]:
    return (*values[:position], value, *values[position:])


def check_starts(name: str, starts: Sequence[ArrayType], rank: int) -> None:
    """Raise unless start indices are integer scalars, one for each dimension."""
    if len(starts) != rank:
        raise fail(
            f"{name} got {len(starts)} start indices for an operand of rank {rank}.", fix="give one for each dimension"
        )
    for t in starts:
        if t.shape or dtypes.kind(t.dtype) not in "iu":
            raise ArgumentTypeError(f"{name} needs integer scalars as start indices, got {t.short()}.")


def clamp_starts(starts: Sequence[Any], shape: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Clamp start indices so that the slice is inside of the operand."""
    return [min(max(int(s), 0), n - size) for s, n, size in zip(starts, shape, sizes, strict=True)]


def stack_starts(axis: Axis, starts: Sequence[Any], dims: Sequence[int | None]) -> Any:
    """Combine start indices, some of them batched, to one array of shape (batch, rank)."""
    columns = []
    dtype = np.dtype(np.int64) if any(get_aval(s).dtype.itemsize > 4 for s in starts) else np.dtype(np.int32)  # type: ignore[attr-defined]
    for start, dim in zip(starts, dims, strict=True):
        if get_aval(start).dtype != dtype:  # type: ignore[attr-defined]
            start = convert_element_type(start, new_dtype=dtype, weak_type=False)
        dimensions = (0,) if dim is not None else ()
        columns.append(broadcast_in_dim(start, shape=(axis.size, 1), broadcast_dimensions=dimensions))
    return concatenate(*columns, dimension=1)


def around_part(
    parts: Parts, x: Any, starts: Sequence[Any], sizes: Sequence[int], owned: Mapping[int, str]
) -> tuple[Any, list[Any]]:
    """Pad the part of this device with zeros (-0.0) in the dimensions it owns, enough for a window of `sizes`; return
    it with the start in it of the window that begins at `starts` of the whole: among the zeros if it is elsewhere."""
    if not owned:
        return x, list(starts)
    config = tuple((sizes[d], sizes[d], 0) if d in owned else (0, 0, 0) for d in range(len(x.shape)))
    moved = list(starts)
    for d, name in owned.items():
        limit = parts.types[0].shape[d] - sizes[d]
        index = to_signed_indices(broadcast_in_dim(starts[d], shape=(1,), broadcast_dimensions=()), [limit])
        index = local_indices(parts, index, (d,), {d: name}, x.shape)
        index = lookup("max")(index, np.full(1, -sizes[d], index.dtype))
        index = lookup("min")(index, np.full(1, x.shape[d], index.dtype))
        index = lookup("add")(index, np.full(1, sizes[d], index.dtype))
        moved[d] = lookup("reshape")(index, new_sizes=(), dimensions=None)
    # A sum with -0.0 is as it was, which it need not be with 0.0.
    nothing = np.negative(zero(x.dtype)) if dtypes.kind(x.dtype) in "fc" else zero(x.dtype)
    return pad(x, nothing, padding_config=config), moved


@primitive
class dynamic_slice(Primitive):
    """Slice of `slice_sizes` whose start indices are operands, clamped so that the slice is inside."""

    linear = (0,)
    copies = (0,)
    introduces = ()
    weight = 0

    def type(self, x: ArrayType, *starts: ArrayType, slice_sizes: Shape) -> ArrayType:
        check_starts("dynamic_slice", starts, x.ndim)
        if len(slice_sizes) != x.ndim or any(
            definitely_less(n, s) or definitely_less(s, 0) for n, s in zip(x.shape, slice_sizes, strict=True)
        ):
            raise fail(
                f"dynamic_slice got slice_sizes {tuple(slice_sizes)} for an operand of shape {x.shape}.",
                fix="give one size for each dimension, at most as large as the operand",
            )
        return x.plain_of_shape(slice_sizes)

    def eval(self, x: Any, *starts: Any, slice_sizes: Any) -> Any:
        x = np.asarray(x)
        offsets = clamp_starts(starts, x.shape, slice_sizes)
        return x[tuple(np.s_[p : p + size] for p, size in zip(offsets, slice_sizes, strict=True))]

    def transpose(self, cotangent: Any, x: Any, *starts: Any, slice_sizes: Any) -> Sequence[Any]:
        zeros = instantiate(Zero(x.aval))
        return [dynamic_update_slice(zeros, cotangent, *starts), *(None for _ in starts)]

    def batch(self, axis: Axis, args: Any, dims: Any, *, slice_sizes: Any) -> tuple[Any, int]:
        (x, *starts), (dim, *start_dims) = args, dims
        if all(d is None for d in start_dims):
            first = np.zeros((), get_aval(starts[0]).dtype if starts else np.int32)  # type: ignore[attr-defined]
            return dynamic_slice(x, *_insert(starts, dim, first), slice_sizes=_insert(slice_sizes, dim, axis.size)), dim
        rank = len(starts)
        indices = stack_starts(axis, starts, start_dims)
        dnums = GatherDimensionNumbers(
            offset_dims=tuple(range(rank)), collapsed_slice_dims=(), start_index_map=tuple(range(rank))
        )
        params = {
            "indices_are_sorted": False,
            "unique_indices": False,
            "mode": GatherScatterMode.CLIP,
            "fill_value": None,
        }
        return lookup("gather").batch(
            axis, (x, indices), (dim, 0), dimension_numbers=dnums, slice_sizes=tuple(slice_sizes), **params
        )

    def factors(self, x: ArrayType, *starts: ArrayType, slice_sizes: Any) -> AxisFactors:
        """Split all dimensions. Along one that a slice does not cover, each device reads its own elements and zeros
        elsewhere, and the results are summed over devices."""
        same = [n == size for n, size in zip(x.shape, slice_sizes, strict=True)]
        kind = dtypes.kind(x.dtype)
        operand = tuple(f"d{i}" if whole else f"own{i}" if kind in "biufc" else None for i, whole in enumerate(same))
        owned = [n for n in operand if n is not None and n.startswith("own")]
        result = tuple(f"d{i}" if whole else None for i, whole in enumerate(same))
        combine, inside = dict.fromkeys(owned, "or" if kind == "b" else "sum"), dict.fromkeys(owned, 0)
        reason = "where a slice begins is known when the program runs"
        return AxisFactors((operand, *(() for _ in starts)), (result,), combine, inside=inside, reason=reason)

    def explicit_factors(self, x: ArrayType, *starts: ArrayType, slice_sizes: Any) -> AxisFactors:
        return by_dimension([x.ndim, *(0 for _ in starts)])

    def localize(self, params: Params, local_results: Any) -> Params:
        return {**params, "slice_sizes": local_results[0].shape}

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        """Read the part of the slice that is in this part, with zeros around it."""
        x, *starts = args
        sizes = parts.results[0].shape  # type: ignore[attr-defined]
        owned = {d: name for d, name in parts.split_dims(0).items() if name not in parts.result_names[0]}
        padded, starts = around_part(parts, x, starts, sizes, owned)
        return [dynamic_slice(padded, *starts, slice_sizes=sizes)]

    def value_at(self, element: Element, *, slice_sizes: Any) -> Any:
        x = element.types[0]
        starts = element.clamp_starts(range(1, x.ndim + 1), x.shape, slice_sizes)
        return element.operand(0, [i + start for i, start in zip(element.index, starts, strict=True)])

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return AT_AFFINE_INDEX

    def traffic(self, operands: Sequence[int], results: Sequence[int]) -> tuple[Sequence[int], int]:
        return (results[0], *operands[1:]), results[0]

    def samples(self) -> Any:
        yield Sample(ramp(4, 5), np.int32(1), np.int32(2), slice_sizes=(2, 3))
        yield Sample(ramp(4), np.int32(3), slice_sizes=(2,))
        yield Sample(ramp(4), np.int32(-7), slice_sizes=(2,))
        yield Sample(ramp(4, dtype=np.int32), np.uint8(1), slice_sizes=(0,))
        yield Sample(ramp(3, 2, dtype=dtypes.bfloat16), np.int32(1), np.int32(0), slice_sizes=(1, 2))
        yield Sample(ramp(), slice_sizes=())


@primitive
class dynamic_update_slice(Primitive):
    """Operand with `update` written over it at start indices that are operands; jointly linear in both."""

    linear = (0, 1)
    copies = (0, 1)
    keeps_nan = (1,)
    introduces = ()
    weight = 0

    def type(self, x: ArrayType, update: ArrayType, *starts: ArrayType) -> ArrayType:
        check_starts("dynamic_update_slice", starts, x.ndim)
        if update.ndim != x.ndim or any(definitely_less(n, s) for n, s in zip(x.shape, update.shape, strict=True)):
            raise fail(
                f"dynamic_update_slice got an update of shape {update.shape} for an operand of shape {x.shape}.",
                fix="the update has the operand's rank and is nowhere larger",
            )
        if update.dtype != x.dtype:
            raise DtypeMismatchError(
                "dynamic_update_slice needs operands of one dtype.",
                received=f"{x.short()} and {update.short()}",
                fix="convert the update with .astype",
                at=user_line(),
            )
        return x if x.weak_type == update.weak_type else x.strong()

    def eval(self, x: Any, update: Any, *starts: Any) -> Any:
        out = np.array(x)
        update = np.asarray(update)
        offsets = clamp_starts(starts, out.shape, update.shape)
        out[tuple(np.s_[p : p + size] for p, size in zip(offsets, update.shape, strict=True))] = update
        return out

    def transpose(self, cotangent: Any, x: Any, update: Any, *starts: Any) -> Sequence[Any]:
        shape = get_aval(update).shape  # type: ignore[attr-defined]
        to_x = to_update = None
        if is_linear(x):
            hole = broadcast_in_dim(zero(cotangent.dtype), shape=shape, broadcast_dimensions=())
            to_x = dynamic_update_slice(cotangent, hole, *starts)
        if is_linear(update):
            to_update = dynamic_slice(cotangent, *starts, slice_sizes=shape)
        return [to_x, to_update, *(None for _ in starts)]

    def batch(self, axis: Axis, args: Any, dims: Any) -> tuple[Any, int]:
        (x, update, *starts), (dim, update_dim, *start_dims) = args, dims
        if all(d is None for d in start_dims):
            first = np.zeros((), get_aval(starts[0]).dtype if starts else np.int32)  # type: ignore[attr-defined]
            x, update = move_batch_to_front(x, dim, axis), move_batch_to_front(update, update_dim, axis)
            return dynamic_update_slice(x, update, first, *starts), 0
        rank = len(starts)
        indices = stack_starts(axis, starts, start_dims)
        dnums = ScatterDimensionNumbers(
            update_window_dims=tuple(range(rank)),
            inserted_window_dims=(),
            scatter_dims_to_operand_dims=tuple(range(rank)),
        )
        params = {"indices_are_sorted": True, "unique_indices": True, "mode": GatherScatterMode.CLIP}
        return lookup("scatter").batch(
            axis, (x, indices, update), (dim, 0, update_dim), dimension_numbers=dnums, **params
        )

    def factors(self, x: ArrayType, update: ArrayType, *starts: ArrayType) -> AxisFactors:
        """Split all dimensions. Along one that the update does not cover, each device writes its own elements."""
        same = [n == size for n, size in zip(x.shape, update.shape, strict=True)]
        movable = dtypes.kind(x.dtype) in "biufc"
        names = tuple(f"d{i}" if whole or movable else None for i, whole in enumerate(same))
        updated = tuple(n if whole else None for n, whole in zip(names, same, strict=True))
        inside = {n: 0 for n, whole in zip(names, same, strict=True) if n is not None and not whole}
        reason = "where an update begins is known when the program runs"
        return AxisFactors((names, updated, *(() for _ in starts)), (names,), inside=inside, reason=reason)

    def explicit_factors(self, x: ArrayType, update: ArrayType, *starts: ArrayType) -> AxisFactors:
        """Split the update like the operand in dimensions where it is smaller, because its parts are written over parts
        of the operand."""
        smaller = [d for d, (n, size) in enumerate(zip(x.shape, update.shape, strict=True)) if n != size]
        return by_dimension([x.ndim, update.ndim, *(0 for _ in starts)], alike=smaller)

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        """Write the update over the part with padding around it, and remove the padding."""
        x, update, *starts = args
        owned = {d: name for d, name in parts.split_dims(0).items() if name not in parts.operand_names[1]}
        padded, starts = around_part(parts, x, starts, update.shape, owned)
        out = dynamic_update_slice(padded, update, *starts)
        if owned:
            first = [update.shape[d] if d in owned else 0 for d in range(len(x.shape))]
            last = [start + size for start, size in zip(first, x.shape, strict=True)]
            out = slice(out, start_indices=tuple(first), limit_indices=tuple(last), strides=None)
        return [out]

    def fusion(self, equation: Any, target: Machine) -> Properties:
        return _UPDATED

    def traffic(self, operands: Sequence[int], results: Sequence[int]) -> tuple[Sequence[int], int]:
        return (0, *operands[1:]), operands[1]  # it is done in place

    def samples(self) -> Any:
        yield Sample(ramp(4, 5), ramp(2, 3), np.int32(1), np.int32(2))
        yield Sample(ramp(4), ramp(2)[::-1].copy(), np.int32(3))
        yield Sample(ramp(4), ramp(2), np.int32(-7))
        yield Sample(ramp(4, dtype=np.int32), ramp(1, dtype=np.int32), np.uint8(1))
        yield Sample(ramp(3, 2, dtype=dtypes.bfloat16), ramp(1, 2, dtype=dtypes.bfloat16), np.int32(1), np.int32(0))
        yield Sample(ramp(3), ramp(0), np.int32(1))
        yield Sample(ramp(), ramp() + 1)
