"""Calls of libraries as integers, which is what a step of a program holds: written when it is planned, and read by the
runtime that makes the call. Dtypes are indices into `DTYPES`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, fields
from typing import Any, Self

import numpy as np

from weft.base import dtypes
from weft.base.dataclass import dataclass

DTYPES = tuple(
    dtypes.as_dtype(name)
    for name in (
        "float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int8", "int32", "bool",
        "float8_e4m3fn",
    )
)  # fmt: skip
# The results of a matmul as they are, or after one of these functions.
ACTIVATIONS = ("", "relu", "gelu")
# How exactly float32 is multiplied: in the format with ten bits of mantissa that tensor cores have, or as it is.
TF32, EXACT = 1, 0


def dtype_index(dtype: Any) -> int:
    """The integer for a dtype."""
    return DTYPES.index(dtypes.as_dtype(dtype))


class Record:
    """Integers by name; the last field may be a tuple of them."""

    @property
    def integers(self) -> tuple[int, ...]:
        """All of it, as parameters of a step."""
        *first, last = astuple(self)  # type: ignore[call-overload]
        return (*map(int, first), *(map(int, last) if isinstance(last, tuple) else (int(last),)))

    @classmethod
    def of(cls, integers: Sequence[int]) -> Self:
        """The record that these are the integers of."""
        *first, last = fields(cls)  # type: ignore[arg-type]
        values = dict(zip((f.name for f in first), integers, strict=False))
        rest = integers[len(first) :]
        values[last.name] = tuple(rest) if last.type == "tuple[int, ...]" else rest[0]  # type: ignore[assignment]
        return cls(**values)


@dataclass(frozen=True)
class MatmulCall(Record):
    """C[i, j] = act(sum of A[i, l] B[l, j] + bias[j]), all stored by rows, a batch of them, in loops.

    A matrix that is `transposed` is stored as its transpose; strides are in elements, from a row to the next one as it
    is stored. The operands of the call are A, B, then the bias if there is one, then C, then what the activation is
    applied to, if that is a result too (`has_input`).
    """

    rows: int
    columns: int
    summed: int
    dtype: int
    result: int
    tf32: int
    lhs_transposed: int
    lhs_stride: int
    rhs_transposed: int
    rhs_stride: int
    out_stride: int
    batch: int
    lhs_step: int
    rhs_step: int
    out_step: int
    activation: int
    has_bias: int
    has_input: int
    # Size and steps in A, B and C of each loop around the batch.
    loops: tuple[int, ...]


@dataclass(frozen=True)
class ConvolutionSizes:
    """The forward convolution that one is, or is a gradient of: shapes of operand, kernel and result, features last."""

    shapes: tuple[tuple[int, ...], ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]


@dataclass(frozen=True)
class ConvolutionCall(Record):
    """A convolution of so many spatial dimensions, or one of its gradients. The operands and the result of the call are
    operand, kernel and result of the forward convolution; result, kernel and operand (data); operand, result and kernel
    (weights). One with a bias, which is added to all features, has that before the result; with `relu` it is then 0
    where it is less."""

    kind: int
    dtype: int
    result: int
    tf32: int
    has_bias: int
    relu: int
    rank: int
    # Of the forward convolution: the shapes, then for each dimension the stride, the dilation, and the padding before
    # and after.
    sizes: tuple[int, ...]

    @property
    def parts(self) -> ConvolutionSizes:
        """The sizes by name."""
        whole, rank = self.rank + 2, self.rank
        shapes = tuple(self.sizes[n * whole : (n + 1) * whole] for n in range(3))
        rest = self.sizes[3 * whole :]
        strides, dilations, low, high = (rest[n * rank : (n + 1) * rank] for n in range(4))
        return ConvolutionSizes(shapes, strides, dilations, low, high)


@dataclass(frozen=True)
class AttentionCall(Record):
    """softmax(q kᵀ scale + bias, of keys that are not after the query if it is `causal`) v, for heads of a batch.

    Its arrays are q, k, v, o and the logarithms of sums in float32, [batch, heads, queries]; of the `backward` one
    these and the cotangent of o, the cotangents of q, k and v, and memory for a float32 for each query and head.
    Then the bias, if there is one, and in the backward call the cotangent of scores before they are multiplied, if that
    is a result.
    Several may be parts of one array.
    """

    backward: int
    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    dtype: int
    causal: int
    # The bits of a float32.
    scale_bits: int
    # The first sizes of the bias, [batch, heads, queries, keys], 1 if it is the same along a dimension; 0 without one.
    bias_batch: int
    bias_heads: int
    bias_dtype: int
    # Whether the cotangent of scores is a result.
    of_scores: int
    # For each array, which operand or result of the call it is in, and at which element of that it begins. Then the
    # steps from one batch, head and position to the next, in elements, for q, k, v and o, and for the cotangents of o,
    # q, k and v.
    parts: tuple[int, ...]

    @property
    def scale(self) -> float:
        """What products of queries and keys are multiplied by."""
        return float(np.int32(self.scale_bits).view(np.float32))

    @property
    def bias_shape(self) -> tuple[int, int, int, int] | None:
        """The shape of the bias, if there is one."""
        return (self.bias_batch, self.bias_heads, self.queries, self.keys) if self.bias_batch else None

    @property
    def layouts(self) -> list[tuple[int, int, int]]:
        """The strides of each array of vectors."""
        strides = self.parts[2 * self._arrays :]
        return [(a, b, c) for a, b, c in zip(*(strides[n::3] for n in range(3)), strict=True)]

    @property
    def sources(self) -> tuple[tuple[int, int], ...]:
        """The operand or result that each array is in, and the element that it begins at."""
        return tuple((self.parts[2 * n], self.parts[2 * n + 1]) for n in range(self._arrays))

    @property
    def _arrays(self) -> int:
        return (10 if self.backward else 5) + (self.bias_batch > 0) + self.of_scores


@dataclass(frozen=True)
class TransformCall(Record):
    """A Fourier transform of the last dimensions of an array, from `kind` of `FftType`; inverse ones are divided by the
    number of elements. Operand, result, and memory for a copy of the operand, which some transforms overwrite."""

    kind: int
    double: int
    batch: int
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class TriangularCall(Record):
    """The x with op(a) x = b, or x op(a) = b if `right`, for a batch of matrices of `size` rows, stored by rows;
    `others` is how many right hand sides there are. `operation` is 0, or 1 for the transposed a, 2 for its
    conjugate."""

    dtype: int
    batch: int
    size: int
    others: int
    right: int
    lower: int
    operation: int
    unit: int


@dataclass(frozen=True)
class SolverCall(Record):
    """A factorization of a batch of matrices of rows and columns, stored by columns; `routine` is an index into
    `SOLVERS`, `option` what it means for it."""

    routine: int
    dtype: int
    batch: int
    rows: int
    columns: int
    option: int


# Routines of cuSOLVER: Cholesky factors, LU, QR and its Q, eigenvalues and singular values.
SOLVERS = ("potrf", "getrf", "geqrf", "orgqr", "syevd", "gesvd")
SOLVER_ROUTINE, TRIANGULAR_ROUTINE, TRANSFORM_ROUTINE = "cusolver", "cublas_triangular", "cufft_transform"
# Routines that wait for the GPU on their way, so that they cannot be recorded.
NOT_RECORDED = frozenset({SOLVER_ROUTINE})
