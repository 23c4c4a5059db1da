"""Concatenating arrays along a dimension, and splitting one into pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.base.errors import DtypeMismatchError
from weft.base.source import user_line
from weft.indexing import index_map
from weft.indexing.index_map import total_size
from weft.ir.fusing import CONCATENATED, INDEX_VECTOR, Machine, Properties
from weft.ir.halo import where, with_halo
from weft.ir.parts import INDEX, Parts
from weft.ir.primitive import Axis, Params, Primitive, Sample, lookup, primitive
from weft.ir.tangents import instantiate
from weft.ir.types import ArrayType
from weft.ir.zeros import Zero, is_linear
from weft.primitives.families import Indexing, fail
from weft.primitives.movement.shape import broadcast_in_dim, leading_one, move_batch_to_front, ramp
from weft.sharding.factors import AxisFactors, Names, by_dimension
from weft.sharding.halo import Reach

# An operand with less than 1/SMALL of the result's elements is replicated.
SMALL = 8
# Components of an index that a gather or a scatter takes apart.
LONGEST_INDEX = 8


@primitive
class concatenate(Indexing):
    """The operands one after the other along `dimension`."""

    keeps_nan = "all"

    def type(self, *types: ArrayType, dimension: int) -> ArrayType:
        if not types:
            raise fail("concatenate needs at least one operand.")
        first = types[0]
        if not 0 <= dimension < first.ndim:
            raise fail(f"concatenate got dimension {dimension} for operands of rank {first.ndim}.")
        around = first.shape[:dimension], first.shape[dimension + 1 :]
        for other in types[1:]:
            if other.ndim != first.ndim or (other.shape[:dimension], other.shape[dimension + 1 :]) != around:
                raise fail(
                    f"concatenate along dimension {dimension} needs shapes that agree in all other dimensions.",
                    received=" and ".join(t.short() for t in types),
                    fix="reshape, pad or transpose until they differ along the axis only; stack joins the same shapes",
                )
            if other.dtype != first.dtype:
                raise DtypeMismatchError(
                    "concatenate needs operands of one dtype.",
                    received=" and ".join(t.short() for t in types),
                    fix="convert them with .astype, or use weft.numpy.concatenate, which promotes",
                    at=user_line(),
                )
        base = first if all(t.weak_type for t in types) else first.strong()
        return base.plain_of_shape((*around[0], total_size(t.shape[dimension] for t in types), *around[1]))

    def eval(self, *arrays: Any, dimension: int) -> Any:
        return np.concatenate(arrays, dimension)

    def transpose(self, cotangent: Any, *args: Any, dimension: int) -> Sequence[Any]:
        shape = cotangent.shape
        backs: list[Any] = []
        start: Any = 0
        for x in args:
            size = x.shape[dimension]
            if is_linear(x):
                starts = (0,) * dimension + (start,) + (0,) * (len(shape) - dimension - 1)
                limits = (*shape[:dimension], start + size, *shape[dimension + 1 :])
                backs.append(lookup("slice")(cotangent, start_indices=starts, limit_indices=limits, strides=None))
            else:
                backs.append(None)
            start = start + size
        return backs

    def batch(self, axis: Axis, args: Any, dims: Any, *, dimension: int) -> tuple[Any, int]:
        dim = dims[0]
        if dim is not None and all(d == dim for d in dims):
            return concatenate(*args, dimension=dimension + (dimension >= dim)), dim
        return concatenate(
            *(move_batch_to_front(x, d, axis) for x, d in zip(args, dims, strict=True)), dimension=dimension + 1
        ), 0

    def factors(self, *types: ArrayType, dimension: int) -> AxisFactors:
        """Split all dimensions. Along `dimension` devices exchange the elements of other parts of the result, and small
        operands are replicated."""
        sizes: list[Any] = [t.shape[dimension] for t in types]
        total: Any = total_size(sizes)
        names: Names = tuple(None if i == dimension else f"d{i}" for i in range(types[0].ndim))
        operands, result = [names] * len(types), names
        reach: dict[str, tuple[Reach | None, ...]] = {}
        if all(isinstance(n, int) for n in sizes) and total and dtypes.kind(types[0].dtype) in "biufc":
            name = f"d{dimension}"
            result = (*names[:dimension], name, *names[dimension + 1 :])
            large = [n * SMALL > total for n in sizes]
            operands = [result if is_large else names for is_large in large]
            starts = np.cumsum([0, *sizes]).tolist()
            rows = zip(sizes, starts, large, strict=False)
            reach[name] = tuple(Reach(n, total, 1, start) if is_large else None for n, start, is_large in rows)
        inside, reason = dict.fromkeys(reach, 0), "pieces of parts are not the parts of the result"
        return AxisFactors(tuple(operands), (result,), inside=inside, reach=reach, reason=reason)

    def bind_local(self, parts: Parts, args: Sequence[Any], params: Params) -> Sequence[Any]:
        """Read, from each operand, the elements at the indices of this part of the result, and select the operand for
        each index."""
        dimension: int = params["dimension"]
        name = parts.result_names[0][dimension]
        if name is None or not parts.split(name):
            return [concatenate(*args, dimension=dimension)]
        result: Any = parts.results[0]
        size = result.shape[dimension]
        start = parts.start(name, size)
        out, end = None, 0
        for i, x in enumerate(args):
            if not x.shape[dimension]:
                continue
            begin = end
            if parts.operand_names[i][dimension] is None:
                x = read_window(x, dimension, lookup("sub")(start, INDEX.type(begin)), size)
            else:
                x, _ = with_halo(parts, x, i, dimension)
            end += parts.types[i].shape[dimension]
            if out is None:
                out = x
            else:
                out = where(result, dimension, start, "ge", begin, x, out)
        return [out]

    def explicit_factors(self, *types: ArrayType, dimension: int) -> AxisFactors:
        return by_dimension([t.ndim for t in types], alike=[dimension])

    def sources(self, *types: ArrayType, dimension: int) -> list[tuple[int, Any]]:
        shapes = [t.shape for t in types]
        return [(i, index_map.concatenate_map(shapes, dimension, i)) for i in range(len(types))]

    def fusion(self, equation: Any, target: Machine) -> Properties:
        parts = [a.aval for a in equation.invars]
        last = equation.params["dimension"] == parts[0].ndim - 1
        vector = last and len(parts) <= LONGEST_INDEX and all(x.shape[-1] == 1 for x in parts)
        return INDEX_VECTOR if vector and dtypes.kind(parts[0].dtype) in "iu" else CONCATENATED

    def samples(self) -> Any:
        yield Sample(ramp(2, 3), ramp(2, 1), dimension=1)
        yield Sample(ramp(2), ramp(0), ramp(3), dimension=0)
        yield Sample(ramp(2, 2), dimension=0)
        yield Sample(ramp(2, dtype=np.int32), ramp(1, dtype=np.int32), dimension=0)
        yield Sample(ramp(2, dtype=dtypes.bfloat16), ramp(2, dtype=dtypes.bfloat16), dimension=0)
        yield Sample(ramp(1, 2, dtype=np.complex64), ramp(2, 2, dtype=np.complex64) * 1j, dimension=0)


def read_window(x: Any, dimension: int, start: Any, size: int) -> Any:
    """Return `size` elements from `start` on, which may be anywhere; zeros for elements outside of the operand."""
    config = tuple((size, size, 0) if d == dimension else (0, 0, 0) for d in range(len(x.shape)))
    padded = lookup("pad")(x, np.zeros((), dtypes.storage(x.dtype)), padding_config=config)
    start = lookup("add")(start, INDEX.type(size))  # which a dynamic slice clamps, and there it is zero
    starts = [start if d == dimension else INDEX.type(0) for d in range(len(x.shape))]
    sizes = tuple(size if d == dimension else n for d, n in enumerate(x.shape))
    return lookup("dynamic_slice")(padded, *starts, slice_sizes=sizes)


def stack_values(rows: Sequence[Any], aval: ArrayType) -> Any:
    """Stack values of one type along a new leading dimension; return an empty array for no values."""
    if not rows:
        zero = np.zeros((), dtypes.storage(aval.dtype))
        return broadcast_in_dim(zero, shape=(0, *aval.shape), broadcast_dimensions=())
    return concatenate(*map(leading_one, rows), dimension=0)


@primitive
class split(Primitive):
    """Pieces of `sizes` along `axis`, in order."""

    multiple_results = True
    copies = (0,)
    introduces = ()
    weight = 0

    def type(self, x: ArrayType, *, sizes: tuple[Any, ...], axis: int) -> list[ArrayType]:
        if not 0 <= axis < x.ndim:
            raise fail(f"split got axis {axis} for an operand of shape {x.shape}.")
        if total_size(sizes) != x.shape[axis]:
            raise fail(
                f"split got sizes {sizes} for axis {axis} of shape {x.shape}.", fix="the sizes must add up to the axis"
            )
        return [x.plain_of_shape((*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in sizes]

    def eval(self, x: Any, *, sizes: tuple[int, ...], axis: int) -> Any:
        return np.split(x, np.cumsum(sizes)[:-1], axis) if sizes else []

    def jvp(self, tangents: Sequence[Any], out: Any, x: Any, *, sizes: tuple[Any, ...], axis: int) -> Any:
        (tangent,) = tangents
        return [Zero.of(o.aval) for o in out] if type(tangent) is Zero else split(tangent, sizes=sizes, axis=axis)

    def transpose(self, cotangent: Sequence[Any], x: Any, *, sizes: tuple[Any, ...], axis: int) -> Sequence[Any]:
        return [concatenate(*(instantiate(c) for c in cotangent), dimension=axis)]

    def batch(self, axis_: Axis, args: Any, dims: Any, *, sizes: tuple[Any, ...], axis: int) -> tuple[Any, Any]:
        (x,), (dim,) = args, dims
        return split(x, sizes=sizes, axis=axis + (axis >= dim)), [dim] * len(sizes)

    def factors(self, x: ArrayType, *, sizes: tuple[Any, ...], axis: int) -> AxisFactors:
        names = tuple(None if i == axis else f"d{i}" for i in range(x.ndim))
        return AxisFactors((names,), (names,) * len(sizes), reason="pieces of parts are not the parts of the results")

    def explicit_factors(self, x: ArrayType, *, sizes: tuple[Any, ...], axis: int) -> AxisFactors:
        return by_dimension([x.ndim], len(sizes))

    def definition(self, x: Any, *, sizes: tuple[Any, ...], axis: int) -> list[Any]:
        """Return the slices one after the other."""
        pieces, start = [], 0
        for size in sizes:
            starts = tuple(start if i == axis else 0 for i in range(len(x.shape)))
            limits = tuple(start + size if i == axis else n for i, n in enumerate(x.shape))
            pieces.append(lookup("slice")(x, start_indices=starts, limit_indices=limits, strides=None))
            start = start + size
        return pieces

    def samples(self) -> Any:
        yield Sample(ramp(5), sizes=(2, 3), axis=0)
        yield Sample(ramp(2, 4), sizes=(1, 0, 3), axis=1)
        yield Sample(ramp(3, dtype=np.int32), sizes=(3,), axis=0)
