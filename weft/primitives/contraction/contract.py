"""Contraction: products summed over shared dimensions. Every matrix product and einsum is this one primitive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import ml_dtypes
import numpy as np

from weft.base import dtypes
from weft.base.errors import DtypeMismatchError
from weft.base.source import user_line
from weft.ir.fusing import HERO, UNFUSED, Machine, Properties, element_count
from weft.ir.primitive import Axis, Sample, primitive
from weft.ir.types import ArrayType, Dimension, array_type
from weft.ir.zeros import is_linear
from weft.primitives.contraction.precision import CanonicalPrecision
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.families import SumOfProducts, fail, inverse_permutation, remaining_axes, shift_axes
from weft.primitives.movement.shape import ramp, transpose
from weft.sharding.factors import AxisFactors

Axes: TypeAlias = tuple[int, ...]
DimensionNumbers: TypeAlias = tuple[tuple[Axes, Axes], tuple[Axes, Axes]]

_KIND_RANKS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


class Contraction(NamedTuple):
    """Contraction as a batch of matrix products: sizes, and the order of the operands' axes in that form.

    `lhs_axes` lists the left operand's axes as batch, free, contracted; `rhs_axes` the right's as batch, contracted,
    free. `compute` is the dtype of products and sums, `result` that of the result.
    """

    batch: Dimension
    m: Dimension
    n: Dimension
    k: Dimension
    lhs_axes: Axes
    rhs_axes: Axes
    compute: np.dtype[Any]
    result: np.dtype[Any]
    shape: tuple[Dimension, ...]


def _strength(dtype: Any) -> tuple[int, int]:
    return _KIND_RANKS[dtypes.kind(dtype)], dtypes.itemsize_bits(dtype)


@lru_cache(maxsize=1024)
def natural_dtype(lhs: Any, rhs: Any) -> Any:
    """Return the dtype of a contraction that names none: the operand's of the higher kind, or the wider one of that
    kind."""
    if lhs == rhs:
        return lhs
    by_strength = sorted((lhs, rhs), key=lambda d: (*(-s for s in _strength(d)), dtypes.name(d)))
    return by_strength[0]


@lru_cache(maxsize=1024)
def compute_dtype(lhs: Any, rhs: Any, result: Any) -> Any:
    """Return the dtype in which products are summed, before the sum is rounded to the result's.

    It is the wider of the operands' and the result's; but operands of different dtypes are converted
    first to a result dtype of a lower kind.
    """
    natural = natural_dtype(lhs, rhs)
    lowered = lhs != rhs and 0 < _KIND_RANKS[dtypes.kind(result)] < _KIND_RANKS[dtypes.kind(natural)]
    strongest = result if lowered else max(natural, result, key=_strength)
    if dtypes.kind(strongest) in "iu" and dtypes.itemsize_bits(strongest) < 8:
        return np.dtype(np.int32)
    return dtypes.accumulation_dtype(strongest)


def contraction_dtype(name: str, lhs: Any, rhs: Any, preferred: Any) -> Any:
    """Return the dtype of the result, which `preferred` may widen; integers and complex numbers are not narrowed."""
    for dtype in (lhs, rhs):
        if dtypes.kind(dtype) not in _KIND_RANKS:
            raise DtypeMismatchError(f"{name} takes booleans and numbers, got {dtypes.name(dtype)}.", at=user_line())
    natural = natural_dtype(lhs, rhs)
    if preferred is None or preferred == natural:
        return natural
    bits = dtypes.itemsize_bits(natural) // (2 if dtypes.kind(natural) == "c" else 1)
    narrower = dtypes.kind(preferred) == "b" or dtypes.itemsize_bits(preferred) < bits
    if narrower and dtypes.kind(natural) in "iuc":
        raise DtypeMismatchError(
            f"{name} got preferred_element_type={dtypes.name(preferred)} for the wider {dtypes.name(natural)}.",
            received=f"operands of {dtypes.name(lhs)} and {dtypes.name(rhs)}",
            fix="convert the result with lax.convert_element_type",
            at=user_line(),
        )
    return preferred


def round_to(x: np.ndarray, dtype: Any) -> np.ndarray:
    """Convert an operand or an accumulated result to another dtype; of a complex number that must be real, keep the
    real part."""
    if x.dtype == dtype:
        return x
    if x.dtype.kind == "c" and dtypes.kind(dtype) != "c":
        x = x.real
    return x.astype(dtype)


@lru_cache(maxsize=4096)
def free_axes(lhs_rank: int, rhs_rank: int, dimension_numbers: DimensionNumbers) -> tuple[Axes, Axes]:
    """Return the axes of each operand that are neither batch nor contracted; raise for wrong dimension numbers."""
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    for side, rank, contract, batch in (
        ("lhs", lhs_rank, lhs_contract, lhs_batch),
        ("rhs", rhs_rank, rhs_contract, rhs_batch),
    ):
        used = (*batch, *contract)
        if any(not 0 <= axis < rank for axis in used):
            raise fail(
                f"dot_general got {side} batch dimensions {batch} and contracting dimensions {contract} "
                f"for a {side} of rank {rank}.",
                fix=f"dimensions of {side} are numbered from 0 to {rank - 1}",
            )
        if len(set(used)) != len(used):
            raise fail(
                f"dot_general got {side} batch dimensions {batch} and contracting dimensions {contract}: one repeats.",
                fix="name each dimension once, as batch or as contracting",
            )
    for what, left, right in (("contracting", lhs_contract, rhs_contract), ("batch", lhs_batch, rhs_batch)):
        if len(left) != len(right):
            raise fail(
                f"dot_general got {len(left)} {what} dimensions {left} of lhs and {len(right)}, {right}, of rhs.",
                fix="name them in pairs",
            )
    return remaining_axes(lhs_rank, (*lhs_contract, *lhs_batch)), remaining_axes(rhs_rank, (*rhs_contract, *rhs_batch))


def _rank(x: Any) -> int:
    return len(x.shape) if hasattr(x, "shape") else 0


def matmul_sizes(equation: Any) -> tuple[int, int, int]:
    """Return M, N and K of one matrix product."""
    lhs, rhs = (a.aval for a in equation.invars)
    (contracted, _), (batched, _) = equation.params["dimension_numbers"]
    batch, k = (element_count([lhs.shape[i] for i in dimensions]) for dimensions in (batched, contracted))
    shared = max(batch * k, 1)
    return element_count(lhs.shape) // shared, element_count(rhs.shape) // shared, k


def suits_library(equation: Any, target: Machine) -> bool:
    """Return whether a contraction is large enough for a library of the machine, in a dtype that it supports."""
    known = target.libraries
    lhs, rhs, out = (a.aval.dtype for a in (*equation.invars, *equation.outvars))
    m, n, k = matmul_sizes(equation)
    if m * n * k < known.contraction_size or lhs != rhs or (lhs, out) not in known.contraction_dtypes:
        return False
    return dtypes.itemsize_bits(lhs) > 8 or not (n % known.byte_multiple or k % known.byte_multiple)


@primitive
class dot_general(SumOfProducts):
    """Products summed over the contracting dimensions; the result has batch, lhs free, rhs free dimensions."""

    linear = "all"
    multilinear = True
    ulp = {"": 4.0}
    keeps_nan = "all"

    def type(
        self,
        lhs: ArrayType,
        rhs: ArrayType,
        *,
        dimension_numbers: DimensionNumbers,
        precision: CanonicalPrecision = None,
        preferred_element_type: Any = None,
    ) -> ArrayType:
        (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
        left, right = lhs.shape, rhs.shape
        lhs_free, rhs_free = free_axes(len(left), len(right), dimension_numbers)
        for what, mine, theirs in (("contracting", lhs_contract, rhs_contract), ("batch", lhs_batch, rhs_batch)):
            for i, j in zip(mine, theirs, strict=True):
                if left[i] != right[j]:
                    raise fail(
                        f"dot_general got {what} dimensions of different sizes: dimension {i} of lhs has {left[i]}, "
                        f"dimension {j} of rhs has {right[j]}.",
                        received=f"{lhs.short()} and {rhs.short()} with dimension_numbers {dimension_numbers}",
                        fix=f"{what} dimensions must have the same size",
                    )
        dtype = contraction_dtype("dot_general", lhs.dtype, rhs.dtype, preferred_element_type)
        shape = tuple([left[i] for i in lhs_batch] + [left[i] for i in lhs_free] + [right[i] for i in rhs_free])
        return array_type(shape, dtype, lhs.weak_type and rhs.weak_type)

    def canonical(
        self,
        lhs: ArrayType,
        rhs: ArrayType,
        *,
        dimension_numbers: DimensionNumbers,
        precision: CanonicalPrecision = None,
        preferred_element_type: Any = None,
    ) -> Contraction:
        """Return the contraction as a batch of matrix products."""
        (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
        left, right = lhs.shape, rhs.shape
        lhs_free, rhs_free = free_axes(len(left), len(right), dimension_numbers)
        result = contraction_dtype("dot_general", lhs.dtype, rhs.dtype, preferred_element_type)
        return Contraction(
            batch=math.prod(left[i] for i in lhs_batch),
            m=math.prod(left[i] for i in lhs_free),
            n=math.prod(right[i] for i in rhs_free),
            k=math.prod(left[i] for i in lhs_contract),
            lhs_axes=(*lhs_batch, *lhs_free, *lhs_contract),
            rhs_axes=(*rhs_batch, *rhs_contract, *rhs_free),
            compute=compute_dtype(lhs.dtype, rhs.dtype, result),
            result=result,
            shape=tuple([left[i] for i in lhs_batch] + [left[i] for i in lhs_free] + [right[i] for i in rhs_free]),
        )

    def eval(self, lhs: Any, rhs: Any, **params: Any) -> Any:
        plan: Any = self.canonical(lhs, rhs, **params)  # arrays have the shape and dtype that types have
        left = round_to(lhs, plan.compute).transpose(plan.lhs_axes).reshape(plan.batch, plan.m, plan.k)
        right = round_to(rhs, plan.compute).transpose(plan.rhs_axes).reshape(plan.batch, plan.k, plan.n)
        return round_to(np.matmul(left, right).reshape(plan.shape), plan.result)

    def transpose(
        self,
        cotangent: Any,
        lhs: Any,
        rhs: Any,
        *,
        dimension_numbers: DimensionNumbers,
        precision: CanonicalPrecision = None,
        preferred_element_type: Any = None,
    ) -> Sequence[Any]:
        (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
        lhs_free, rhs_free = free_axes(_rank(lhs), _rank(rhs), dimension_numbers)
        batch = tuple(range(len(lhs_batch)))
        from_lhs = tuple(range(len(batch), len(batch) + len(lhs_free)))
        from_rhs = tuple(range(len(batch) + len(lhs_free), len(batch) + len(lhs_free) + len(rhs_free)))
        if is_linear(lhs):
            this, contract, free, mine = lhs, lhs_contract, lhs_free, lhs_batch
            other, theirs = rhs, rhs_contract
            dnums = ((from_rhs, rhs_free), (batch, rhs_batch))
        else:
            this, contract, free, mine = rhs, rhs_contract, rhs_free, rhs_batch
            other, theirs = lhs, lhs_contract
            dnums = ((from_lhs, lhs_free), (batch, lhs_batch))
        result = dot_general(
            cotangent,
            other,
            dimension_numbers=dnums,
            precision=precision,
            preferred_element_type=preferred_element_type,
        )
        # The result has batch and free dimensions, then the contracted ones in the order of the other operand.
        order = sorted(range(len(theirs)), key=theirs.__getitem__)
        permutation = inverse_permutation((*mine, *free, *(contract[i] for i in order)))
        if permutation != tuple(range(len(permutation))):
            result = transpose(result, permutation=permutation)
        if result.dtype != this.aval.dtype:
            result = convert_element_type(result, new_dtype=this.aval.dtype, weak_type=False)
        return [result, None] if this is lhs else [None, result]

    def batch(
        self,
        axis: Axis,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        dimension_numbers: DimensionNumbers,
        **params: Any,
    ) -> tuple[Any, int]:
        (lhs, rhs), (left, right) = args, dims
        (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
        dim = 0
        if left is not None:
            lhs_contract, lhs_batch = shift_axes(lhs_contract, left), shift_axes(lhs_batch, left)
        if right is not None:
            rhs_contract, rhs_batch = shift_axes(rhs_contract, right), shift_axes(rhs_batch, right)
        if left is not None and right is not None:
            lhs_batch, rhs_batch = (left, *lhs_batch), (right, *rhs_batch)
        dnums = ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch))
        if left is None or right is None:  # a free dimension of one operand
            lhs_free, rhs_free = free_axes(_rank(lhs), _rank(rhs), dnums)
            dim = len(lhs_batch) + (lhs_free.index(left) if left is not None else len(lhs_free) + rhs_free.index(right))
        return dot_general(lhs, rhs, dimension_numbers=dnums, **params), dim

    def factors(
        self, lhs: ArrayType, rhs: ArrayType, *, dimension_numbers: DimensionNumbers, **params: Any
    ) -> AxisFactors:
        (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
        lhs_free, rhs_free = free_axes(lhs.ndim, rhs.ndim, dimension_numbers)
        left, right = [""] * lhs.ndim, [""] * rhs.ndim
        for position, (i, j) in enumerate(zip(lhs_batch, rhs_batch, strict=True)):
            left[i] = right[j] = f"b{position}"
        for position, (i, j) in enumerate(zip(lhs_contract, rhs_contract, strict=True)):
            left[i] = right[j] = f"k{position}"
        for position, i in enumerate(lhs_free):
            left[i] = f"m{position}"
        for position, j in enumerate(rhs_free):
            right[j] = f"n{position}"
        result = (*(left[i] for i in (*lhs_batch, *lhs_free)), *(right[j] for j in rhs_free))
        natural = natural_dtype(lhs.dtype, rhs.dtype)
        how = "or" if dtypes.kind(params.get("preferred_element_type") or natural) == "b" else "sum"
        return AxisFactors((tuple(left), tuple(right)), (result,), {f"k{n}": how for n in range(len(lhs_contract))})

    def fusion(self, equation: Any, target: Machine) -> Properties:
        if equation.outvars[0].aval.dtype not in target.libraries.own_dtypes and suits_library(equation, target):
            return UNFUSED
        m, n, _ = matmul_sizes(equation)
        return Properties(HERO, "contraction", repeats=(n, m))

    def flops(self, equation: Any) -> float:
        (contracted, _), _ = equation.params["dimension_numbers"]
        terms = element_count([equation.invars[0].aval.shape[i] for i in contracted])
        return 2 * element_count(equation.outvars[0].aval.shape) * terms

    def samples(self) -> Any:
        plain = (((1,), (0,)), ((), ()))
        yield Sample(ramp(2, 3), ramp(3, 4), dimension_numbers=plain)
        yield Sample(ramp(3, 2), ramp(4, 3), dimension_numbers=(((0,), (1,)), ((), ())))
        yield Sample(
            ramp(3), ramp(3), dimension_numbers=(((0,), (0,)), ((), ())), preferred_element_type=np.dtype(np.float32)
        )
        yield Sample(ramp(3), ramp(2), dimension_numbers=(((), ()), ((), ())))
        yield Sample(ramp()[()], ramp(2), dimension_numbers=(((), ()), ((), ())))
        yield Sample(ramp(2, 3, 4), ramp(4, 2, 5), dimension_numbers=(((2,), (0,)), ((0,), (1,))))
        yield Sample(ramp(2, 3, 4, 2), ramp(4, 2, 5, 3), dimension_numbers=(((2, 1), (0, 3)), ((3,), (1,))))
        yield Sample(ramp(2, 3), ramp(3, 2), dimension_numbers=(((), ()), ((1, 0), (0, 1))))
        yield Sample(ramp(2, 0), ramp(0, 3), dimension_numbers=plain)
        yield Sample(ramp(0, 3), ramp(3, 2), dimension_numbers=plain)
        yield Sample(ramp(2, 3, dtype=np.complex64) * 1j, ramp(3, 2, dtype=np.complex64), dimension_numbers=plain)
        yield Sample(ramp(2, 3), ramp(3, 2, dtype=np.complex64) * (1 + 1j), dimension_numbers=plain)
        half, double = ramp(2, 3, dtype=ml_dtypes.bfloat16), ramp(3, 2, dtype=ml_dtypes.bfloat16)
        yield Sample(half, double, dimension_numbers=plain)
        yield Sample(half, double, dimension_numbers=plain, preferred_element_type=np.dtype(np.float32))
        large = np.array([[2**30, 7], [-(2**31), 3]], np.int32)
        yield Sample(large, large, dimension_numbers=plain)
        small = np.array([[100, -128, 3], [5, 6, 127]], np.int8)
        yield Sample(small, small.T, dimension_numbers=plain)
        yield Sample(small, small.T, dimension_numbers=plain, preferred_element_type=np.dtype(np.int32))
        truth = np.array([[True, False], [False, False]])
        yield Sample(truth, truth.T, dimension_numbers=plain)
