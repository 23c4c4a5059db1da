"""Contractions by NumPy's rules: dot, matmul, tensordot, einsum and their relatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from weft.api.shardings import split_result
from weft.base import dtypes
from weft.base.arguments import described, index
from weft.base.errors import ArgumentError
from weft.base.lazy import lazy
from weft.ir.types import ArrayType
from weft.lax.contraction import canonical_element_type, dot_general
from weft.numpy import einsum_plan
from weft.numpy.argument_docs import document
from weft.numpy.util import (
    broadcast_shape,
    canonicalize_axis,
    cast,
    check_no_out,
    ensure_array,
    ensure_arrays,
    promote_dtypes,
)
from weft.primitives.contraction.precision import PrecisionLike
from weft.primitives.elementwise.arithmetic import mul
from weft.primitives.elementwise.bitwise import and_
from weft.primitives.elementwise.compare import eq
from weft.primitives.elementwise.complex import conj
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.elementwise.select import select_n
from weft.primitives.families import fail
from weft.primitives.movement.iota import iota
from weft.primitives.movement.shape import broadcast_in_dim, move_axis, reshape, squeeze, transpose
from weft.primitives.reduction.reduce import reduce_sum
from weft.trace.annotations import ArrayLike, DTypeLike
from weft.trace.array import Array

opt_einsum = lazy("opt_einsum")


class Result(NamedTuple):
    """The dtype of a result, and whether it is weak, so that it adapts to the next operand."""

    dtype: Any
    weak: bool


def _operands(name: str, preferred_element_type: Any, *args: Any) -> tuple[list[Array], Result]:
    """Convert operands to arrays in their own dtypes; return them with the dtype and weakness of the result.

    A contraction accepts operands of different dtypes, so only weakly typed ones are converted here.
    """
    arrays = ensure_arrays(name, *args)
    chosen = canonical_element_type(preferred_element_type, name)
    promoted, weak = dtypes.result_type(*arrays, return_weak_type_flag=True)
    arrays = [cast(x, promoted) if x.aval.weak_type and x.dtype != promoted else x for x in arrays]
    return arrays, Result(promoted, weak) if chosen is None else Result(chosen, False)


def _contract(a: Any, b: Any, dimension_numbers: Any, precision: PrecisionLike, result: Result) -> Any:
    out = dot_general(a, b, dimension_numbers, precision, result.dtype)
    return cast(out, result.dtype, True) if result.weak and not out.aval.weak_type else out


def _times(x: Any, y: Any) -> Any:
    """Multiply element-wise; for booleans, compute the logical AND."""
    return and_(x, y) if dtypes.kind(x.dtype) == "b" else mul(x, y)


# ----------------------------------------------------------------------------------------------------------- two arrays


@document(
    "An array in the promoted dtype; a scalar for two vectors.",
    "wnp.dot(wnp.array([1, 2]), wnp.array([3, 4])) -> Array(11, dtype=int32)",
    a="an array or a number.",
)
def dot(
    a: ArrayLike,
    b: Any,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: Any = None,
) -> Array:
    """Multiply vectors or matrices; for higher ranks, sum over the last axis of `a` and the second-last of `b`."""
    if out_sharding is not None:
        options = {"precision": precision, "preferred_element_type": preferred_element_type}
        return split_result(dot, out_sharding, a, b, **options)
    (a, b), result = _operands("dot", preferred_element_type, a, b)
    if not a.ndim or not b.ndim:
        contract: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    else:
        contract = ((a.ndim - 1,), (max(b.ndim - 2, 0),))
        _check_inner("dot", a, b, *contract)
    return _contract(a, b, (contract, ((), ())), precision, result)


def _check_inner(name: str, a: Any, b: Any, left: Sequence[int], right: Sequence[int]) -> None:
    """Raise an error unless the sizes of axes that are summed over together are equal."""
    for i, j in zip(left, right, strict=True):
        if a.shape[i] != b.shape[j]:
            raise fail(
                f"{name} got shapes {a.shape} and {b.shape}: axis {i} of the first ({a.shape[i]}) and axis {j} of the "
                f"second ({b.shape[j]}) are summed over together, but differ in size.",
                received=f"{a.aval.short()} and {b.aval.short()}",
                fix="transpose or reshape an operand so that the inner sizes agree",
                jax="dot_general requires contracting dimensions to have the same shape, got "
                f"{tuple(a.shape[k] for k in left)} and {tuple(b.shape[k] for k in right)}.",
            )


@document(
    "An array in the promoted dtype; numbers of rank 0 raise, use `multiply`.",
    "wnp.matmul(wnp.ones((2, 3)), wnp.ones((3, 4))).shape -> (2, 4)",
    a="an array or a number.",
)
def matmul(
    a: ArrayLike,
    b: ArrayLike,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: Any = None,
) -> Array:
    """Multiply matrices over the last two axes; leading axes broadcast.

    A vector counts as a row on the left, and as a column on the right."""
    if out_sharding is not None:
        options = {"precision": precision, "preferred_element_type": preferred_element_type}
        return split_result(matmul, out_sharding, a, b, **options)
    (a, b), result = _operands("matmul", preferred_element_type, a, b)
    for i, x in enumerate((a, b)):
        if not x.ndim:
            raise ArgumentError(
                f"matmul needs arrays of rank 1 or more, but operand {i} is a scalar.",
                received=x.aval.short(),
                fix="x * y, or weft.numpy.multiply(x, y), which takes numbers",
            )
    return _product("matmul", a, min(a.ndim, 2), b, min(b.ndim, 2), precision, result)


def matvec(x1: Any, x2: Any, /) -> Any:
    """Multiply matrices by vectors; leading axes broadcast."""
    (x1, x2), result = _operands("matvec", None, x1, x2)
    _check_ranks("matvec", x1, 2, x2, 1)
    return _product("matvec", x1, 2, x2, 1, None, result)


def vecmat(x1: Any, x2: Any, /) -> Any:
    """Multiply conjugated vectors by matrices; leading axes broadcast."""
    (x1, x2), result = _operands("vecmat", None, x1, x2)
    _check_ranks("vecmat", x1, 1, x2, 2)
    return _product("vecmat", _conjugate(x1), 1, x2, 2, None, result)


def vecdot(
    x1: ArrayLike,
    x2: ArrayLike,
    /,
    *,
    axis: int = -1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """Compute the dot products of conjugated vectors with vectors along an axis; the other axes broadcast."""
    (x1, x2), result = _operands("vecdot", preferred_element_type, x1, x2)
    _check_ranks("vecdot", x1, 1, x2, 1)
    first, second = canonicalize_axis(axis, x1.ndim, "vecdot"), canonicalize_axis(axis, x2.ndim, "vecdot")
    x1, x2 = move_axis(x1, first, x1.ndim - 1), move_axis(x2, second, x2.ndim - 1)
    return _product("vecdot", _conjugate(x1), 1, x2, 1, precision, result)


def _check_ranks(name: str, a: Any, a_rank: int, b: Any, b_rank: int) -> None:
    if a.ndim < a_rank or b.ndim < b_rank:
        raise fail(
            f"{name} needs operands of at least {a_rank} and {b_rank} dimensions, got shapes {a.shape} and {b.shape}."
        )


def _conjugate(x: Any) -> Any:
    return conj(x, input_dtype=x.dtype) if dtypes.kind(x.dtype) == "c" else x


class ProductPlan(NamedTuple):
    """A matrix product with broadcast leading axes as one contraction, and the steps before and after it."""

    a_dropped: tuple[int, ...]
    b_dropped: tuple[int, ...]
    dimension_numbers: Any
    permutation: tuple[int, ...] | None
    broadcast_dimensions: tuple[int, ...] | None
    lead: tuple[Any, ...]
    core: int


def _product(
    name: str,
    a: Any,
    a_core: int,
    b: Any,
    b_core: int,
    precision: PrecisionLike,
    result: Result,
) -> Any:
    """Contract the last axis of `a` with the first core axis of `b`; axes before the core ones broadcast."""
    _check_inner(name, a, b, (a.ndim - 1,), (b.ndim - b_core,))
    plan = _product_plan(name, a.shape, a_core, b.shape, b_core)
    if plan.a_dropped:
        a = squeeze(a, dimensions=plan.a_dropped)
    if plan.b_dropped:
        b = squeeze(b, dimensions=plan.b_dropped)
    out = _contract(a, b, plan.dimension_numbers, precision, result)
    if plan.permutation is not None:
        out = transpose(out, permutation=plan.permutation)
    if plan.broadcast_dimensions is not None:
        shape = (*plan.lead, *out.shape[out.ndim - plan.core :])
        out = broadcast_in_dim(out, shape=shape, broadcast_dimensions=plan.broadcast_dimensions)
    return out


@lru_cache(maxsize=2048)
def _product_plan(
    name: str, a_shape: tuple[Any, ...], a_core: int, b_shape: tuple[Any, ...], b_core: int
) -> ProductPlan:
    """Plan a matrix product with broadcast leading axes as one contraction.

    Leading axes of size 1 are dropped rather than repeated, and an axis that only one operand has is a free dimension.
    So an array of matrices times one matrix is a single large matmul.
    """
    a_lead, b_lead = a_shape[: len(a_shape) - a_core], b_shape[: len(b_shape) - b_core]
    lead = broadcast_shape(name, a_lead, b_lead)
    rank = len(lead)
    a_axes, b_axes = _varying(a_lead, lead, b_lead), _varying(b_lead, lead, a_lead)
    a_missing, b_missing = rank - len(a_lead), rank - len(b_lead)
    shared = [p for p in a_axes if p in b_axes]
    batch = (tuple(a_axes.index(p) for p in shared), tuple(b_axes.index(p) for p in shared))
    rows, columns = [rank] * (a_core - 1), [rank + 1] * (b_core - 1)
    order = shared + [p for p in a_axes if p not in shared] + rows + [p for p in b_axes if p not in shared] + columns
    ordered = sorted(order)
    core = len(rows) + len(columns)
    squeezed = len(ordered) != rank + core  # axes of size 1 that both operands had come back at the end
    return ProductPlan(
        tuple(i for i in range(len(a_lead)) if i + a_missing not in a_axes),
        tuple(i for i in range(len(b_lead)) if i + b_missing not in b_axes),
        (((len(a_axes) + a_core - 1,), (len(b_axes),)), batch),
        tuple(order.index(p) for p in ordered) if order != ordered else None,
        (*(p for p in ordered if p < rank), *range(rank, rank + core)) if squeezed else None,
        lead,
        core,
    )


def _varying(mine: tuple[Any, ...], lead: tuple[Any, ...], theirs: tuple[Any, ...]) -> list[int]:
    """Return the indices in the broadcast leading axes along which an operand varies."""
    missing = len(lead) - len(mine)
    absent = len(lead) - len(theirs)
    # An axis of size 1 stays only if the other operand has no such axis at all.
    return [
        missing + i for i, size in enumerate(mine) if size != 1 or (lead[missing + i] == 1 and missing + i < absent)
    ]


@document(
    "A scalar.",
    "wnp.vdot(wnp.array([1j, 2]), wnp.array([1j, 1])) -> Array(3.+0.j, dtype=complex64)",
    a="an array or a number.",
)
def vdot(
    a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None
) -> Array:
    """Compute the dot product of two arrays flattened to vectors, the first one conjugated."""
    (a, b), result = _operands("vdot", preferred_element_type, a, b)
    a, b = _flat(_conjugate(a)), _flat(b)
    _check_inner("vdot", a, b, (0,), (0,))
    return _contract(a, b, (((0,), (0,)), ((), ())), precision, result)


def _flat(x: Any) -> Any:
    return x if x.ndim == 1 else reshape(x, new_sizes=(x.aval.size,), dimensions=None)


@document(
    "An array with the other axes of `a`, then those of `b`.",
    "wnp.inner(wnp.array([[1, 2], [3, 4]]), wnp.array([1, 1])) -> Array([3, 7], dtype=int32)",
    a="an array or a number.",
)
def inner(
    a: ArrayLike, b: ArrayLike, *, precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None
) -> Array:
    """Sum the products over the last axes of both operands."""
    (a, b), result = _operands("inner", preferred_element_type, a, b)
    contract: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    if a.ndim and b.ndim:
        contract = ((a.ndim - 1,), (b.ndim - 1,))
        _check_inner("inner", a, b, *contract)
    return _contract(a, b, (contract, ((), ())), precision, result)


@document("A matrix of shape `(a.size, b.size)`.", a="an array or a number.")
def outer(a: ArrayLike, b: ArrayLike, out: None = None) -> Array:
    """Multiply each element of `a` by each element of `b`.

    >>> import weft.numpy as wnp
    >>> wnp.outer(wnp.array([1, 2]), wnp.array([1, 10]))
    Array([[ 1, 10],
           [ 2, 20]], dtype=int32)
    """
    check_no_out("outer", out)
    a, b = promote_dtypes(*(_flat(x) for x in ensure_arrays("outer", a, b)))
    shape = (a.shape[0], b.shape[0])
    return _times(
        broadcast_in_dim(a, shape=shape, broadcast_dimensions=(0,)),
        broadcast_in_dim(b, shape=shape, broadcast_dimensions=(1,)),
    )


@document(
    "An array with the remaining axes of `a`, then those of `b`.",
    "wnp.tensordot(wnp.ones((2, 3)), wnp.ones((3, 4)), axes=1).shape -> (2, 4)",
    a="an array or a number.",
    axes="the number of axes, or two lists of axes.",
)
def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    axes: int | Sequence[int] | Sequence[Sequence[int]] = 2,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: Any = None,
) -> Array:
    """Sum over the last `axes` axes of `a` and the first of `b`, or over pairs of axes given as two lists."""
    if out_sharding is not None:
        options = {"precision": precision, "preferred_element_type": preferred_element_type}
        return split_result(tensordot, out_sharding, a, b, axes, **options)
    (a, b), result = _operands("tensordot", preferred_element_type, a, b)
    if not isinstance(axes, (tuple, list)) and not (isinstance(axes, np.ndarray) and axes.ndim):
        count = index(axes)
        if count > min(a.ndim, b.ndim):
            raise fail(
                f"tensordot got axes={count}, more than the ranks of operands of shapes {a.shape} and {b.shape}."
            )
        left, right = tuple(range(a.ndim - count, a.ndim)), tuple(range(count))
    else:
        if len(axes) != 2:
            raise fail(f"tensordot takes a number of axes or two lists of them, got {axes}.")
        left, right = (_canonical_axes(x, part) for x, part in zip((a, b), axes, strict=True))
        if len(left) != len(right):
            raise fail(f"tensordot requires axes lists to have equal length, got {axes[0]} and {axes[1]}.")
    _check_inner("tensordot", a, b, left, right)
    return _contract(a, b, ((left, right), ((), ())), precision, result)


def _canonical_axes(x: Any, axes: Any) -> tuple[int, ...]:
    listed = tuple(axes) if isinstance(axes, (tuple, list, np.ndarray)) and np.ndim(axes) else (axes,)
    return tuple(canonicalize_axis(axis, x.ndim, "tensordot") for axis in listed)


@document("An array; each size is the product of the two.", a="an array or a number.")
def kron(a: ArrayLike, b: ArrayLike) -> Array:
    """Compute the Kronecker product: `b` scaled by each element of `a`, as blocks of a larger array.

    >>> import weft.numpy as wnp
    >>> wnp.kron(wnp.eye(2), wnp.ones((1, 2)))
    Array([[1., 1., 0., 0.],
           [0., 0., 1., 1.]], dtype=float32)
    """
    a, b = promote_dtypes(*ensure_arrays("kron", a, b))
    rank = max(a.ndim, b.ndim)
    left, right = (1,) * (rank - a.ndim) + a.shape, (1,) * (rank - b.ndim) + b.shape
    shape = tuple(size for pair in zip(left, right, strict=True) for size in pair)
    first = broadcast_in_dim(a, shape=shape, broadcast_dimensions=tuple(2 * i for i in range(rank - a.ndim, rank)))
    second = broadcast_in_dim(b, shape=shape, broadcast_dimensions=tuple(2 * i + 1 for i in range(rank - b.ndim, rank)))
    return reshape(
        mul(first, second), new_sizes=tuple(p * q for p, q in zip(left, right, strict=True)), dimensions=None
    )


# --------------------------------------------------------------------------------------------------------------- einsum


def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    out: None = None,
    optimize: str | bool | list[tuple[int, ...]] = "auto",
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    _dot_general: Callable[..., Any] = dot_general,
    out_sharding: Any = None,
) -> Array:
    """Sum products over labelled axes: `einsum('ij,jk->ik', x, y)` is the matrix product.

    A label that is not in the result is summed over, one that repeats in an operand takes the diagonal, `...` labels
    for axes that broadcast. With three operands or more `optimize` says how the order of contractions is chosen; it
    may be a path of your own.

    Args:
        subscripts: the labels, or the first operand when labels are given as lists of integers after each operand.
        *operands: arrays.
        out: must be None: arrays do not change, so nothing can be written into one.
        optimize: "auto", "optimal", "greedy", False for from left to right, or a path.
        precision: how exact products are where hardware has shorter formats, see `weft.lax.Precision`.
        preferred_element_type: the dtype to accumulate in and of the result; by default promoted from the operands,
            with sums of short floats in float32.
        _dot_general: a function that contracts pairs, in place of `weft.lax.dot_general`.
        out_sharding: the sharding of the result; by default it follows from the operands.

    Returns:
        An array with an axis for each label of the result.

    >>> import weft.numpy as wnp
    >>> wnp.einsum("ij,j->i", wnp.array([[1, 2], [3, 4]]), wnp.array([1, 10]))
    Array([21, 43], dtype=int32)
    """
    check_no_out("einsum", out)
    if out_sharding is not None:
        options = {"optimize": optimize, "precision": precision, "preferred_element_type": preferred_element_type}
        return split_result(einsum, out_sharding, subscripts, *operands, **options, _dot_general=_dot_general)
    text, args = _text_and_operands("einsum", subscripts, operands)
    arrays, result = _operands("einsum", preferred_element_type, *args)
    for step in einsum_plan.plan(text, tuple(x.shape for x in arrays), _hashable(optimize)):
        if isinstance(step, einsum_plan.Contract):
            pair = arrays[step.first], arrays[step.second]
            array = _dot_general(*pair, step.dimension_numbers, precision, preferred_element_type=result.dtype)
            arrays = [x for i, x in enumerate(arrays) if i not in (step.first, step.second)]
            arrays.append(array)
        elif isinstance(step, einsum_plan.Reduce):
            arrays[step.operand] = _apply_reduce(arrays[step.operand], step, result.dtype)
        else:
            arrays = [transpose(arrays[0], permutation=step.permutation)]
    return cast(arrays[0], result.dtype, result.weak)


def _text_and_operands(name: str, subscripts: Any, operands: tuple[Any, ...]) -> tuple[str, Sequence[Any]]:
    """Return the labels as text, and the operands, of either form of arguments; no operand is an error."""
    if not operands:
        raise ArgumentError(
            f"{name} needs at least one operand.",
            received=described(subscripts),
            fix=f"{name}('ij,jk->ik', x, y), or {name}(x, [0, 1], y, [1, 2])",
        )
    return (subscripts, operands) if isinstance(subscripts, str) else einsum_plan.as_text((subscripts, *operands))


def _hashable(optimize: Any) -> Any:
    return (
        tuple(tuple(s) if isinstance(s, (list, tuple)) else s for s in optimize)
        if isinstance(optimize, (list, tuple))
        else optimize
    )


def _apply_reduce(x: Any, step: einsum_plan.Reduce, dtype: Any) -> Any:
    """Take diagonals, drop axes and sum over one operand; sums are in the dtype of the result."""
    gone = list(step.squeezed)
    for group in step.diagonals:
        x = _diagonal(x, group)
        gone += group[1:]
    summed = tuple(sorted((*step.summed, *(a for group in step.diagonals for a in group[1:]))))
    if step.summed and x.dtype != dtype:
        x = convert_element_type(x, new_dtype=dtype, weak_type=False)
    if summed:
        x = _sum(x, summed)
    if step.squeezed:
        x = squeeze(x, dimensions=tuple(a - sum(s < a for s in summed) for a in step.squeezed))
    return x


def _sum(x: Any, axes: tuple[int, ...]) -> Any:
    """Sum over axes; for booleans, compute the logical OR, which is what their contraction computes."""
    if dtypes.kind(x.dtype) != "b":
        return reduce_sum(x, axes=axes)
    counted = reduce_sum(convert_element_type(x, new_dtype=np.dtype(np.int32), weak_type=False), axes=axes)
    return convert_element_type(counted, new_dtype=np.dtype(np.bool_), weak_type=False)


def _diagonal(x: Any, axes: tuple[int, ...]) -> Any:
    """Zero `x` off the diagonal over `axes`: summing over all but one of them then reads the diagonal."""
    aval: ArrayType = x.aval
    positions = [iota(dtype=np.dtype(np.int32), shape=aval.shape, dimension=a) for a in axes]
    on = eq(positions[0], positions[1])
    for position in positions[2:]:
        on = and_(on, eq(positions[0], position))
    return select_n(on, broadcast_in_dim(np.zeros((), aval.dtype), shape=aval.shape, broadcast_dimensions=()), x)


def einsum_path(
    subscripts: Any, /, *operands: Any, optimize: bool | str | list[tuple[int, ...]] = "auto"
) -> tuple[list[tuple[int, ...]], Any]:
    """Return the order of contractions that `einsum` would choose, and a description of its cost."""
    text, args = _text_and_operands("einsum_path", subscripts, operands)
    shapes = [ensure_array(x).shape for x in args]
    labels, _ = einsum_plan.parse(text, tuple(map(len, shapes)))
    einsum_plan.label_sizes(text, labels, shapes)
    if optimize is False:
        optimize = [tuple(range(len(shapes)))]
    return opt_einsum.contract_path(text, *shapes, shapes=True, optimize="optimal" if optimize is True else optimize)
