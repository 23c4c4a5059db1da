"""Library calls as integers, the form in which a step of a program holds them: written by planning, read by the
runtime. Dtypes are indices into `DTYPES`."""

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
# Activations in the epilogue of a matmul; empty for none.
ACTIVATIONS = ("", "relu", "gelu")
# Products of float32: rounded to the 10-bit mantissa of tensor cores (tf32), or exact.
TF32, EXACT = 1, 0


def dtype_index(dtype: Any) -> int:
    """Return the index of a dtype in `DTYPES`."""
    return DTYPES.index(dtypes.as_dtype(dtype))


class Record:
    """Named integers; the last field may be a tuple of them."""

    @property
    def integers(self) -> tuple[int, ...]:
        """All fields, as parameters of a step."""
        *first, last = astuple(self)  # type: ignore[call-overload]
        return (*map(int, first), *(map(int, last) if isinstance(last, tuple) else (int(last),)))

    @classmethod
    def of(cls, integers: Sequence[int]) -> Self:
        """Return the record with these integers."""
        *first, last = fields(cls)  # type: ignore[arg-type]
        values = dict(zip((f.name for f in first), integers, strict=False))
        rest = integers[len(first) :]
        values[last.name] = tuple(rest) if last.type == "tuple[int, ...]" else rest[0]  # type: ignore[assignment]
        return cls(**values)


@dataclass(frozen=True)
class MatmulCall(Record):
    """C[i, j] = act(sum of A[i, l] B[l, j] + bias[j]), all stored by rows, for a batch, in loops.

    A `transposed` matrix is stored as its transpose; strides are in elements, from row to row as stored. The operands
    of the call are A, B, the bias if there is one, C, and the operand of the activation if that is a result too
    (`has_input`).
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
    """Forward convolution (or the one whose gradient this is): shapes of operand, kernel and result, features last."""

    shapes: tuple[tuple[int, ...], ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]


@dataclass(frozen=True)
class ConvolutionCall(Record):
    """Convolution of `rank` spatial dimensions, or one of its gradients. Operands and result of the call are:
    operand, kernel, result (forward); cotangent of the result, kernel, cotangent of the operand (data); operand,
    cotangent of the result, cotangent of the kernel (weights). A bias over features precedes the result; `relu`
    clamps the result at 0."""

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
        """Sizes by name."""
        whole, rank = self.rank + 2, self.rank
        shapes = tuple(self.sizes[n * whole : (n + 1) * whole] for n in range(3))
        rest = self.sizes[3 * whole :]
        strides, dilations, low, high = (rest[n * rank : (n + 1) * rank] for n in range(4))
        return ConvolutionSizes(shapes, strides, dilations, low, high)


@dataclass(frozen=True)
class AttentionCall(Record):
    """softmax(q kᵀ scale + bias) v for heads of a batch; with `causal`, over keys up to the query.

    Arrays of the forward call are q, k, v, o and the log-sum-exp in float32, [batch, heads, queries]; the `backward`
    call adds the cotangent of o, those of q, k and v, and scratch of one float32 per query and head. Then the bias, if
    there is one, and in the backward call the cotangent of scores (before scaling) if that is a result. Several may be
    slices of one array.
    """

    backward: int
    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    dtype: int
    causal: int
    # Bits of a float32.
    scale_bits: int
    # Leading sizes of the bias [batch, heads, queries, keys], 1 where it is broadcast; 0 without a bias.
    bias_batch: int
    bias_heads: int
    bias_dtype: int
    # Whether the cotangent of scores is a result.
    of_scores: int
    # For each array the operand or result that holds it and its first element there. Then the strides in elements of
    # batch, heads and positions for q, k, v and o, and for the cotangents of o, q, k and v.
    parts: tuple[int, ...]

    @property
    def scale(self) -> float:
        """Factor of products of queries and keys."""
        return float(np.int32(self.scale_bits).view(np.float32))

    @property
    def bias_shape(self) -> tuple[int, int, int, int] | None:
        """Shape of the bias, or None without one."""
        return (self.bias_batch, self.bias_heads, self.queries, self.keys) if self.bias_batch else None

    @property
    def layouts(self) -> list[tuple[int, int, int]]:
        """Strides of each array of vectors."""
        strides = self.parts[2 * self._arrays :]
        return [(a, b, c) for a, b, c in zip(*(strides[n::3] for n in range(3)), strict=True)]

    @property
    def sources(self) -> tuple[tuple[int, int], ...]:
        """Operand or result that holds each array, and its first element there."""
        return tuple((self.parts[2 * n], self.parts[2 * n + 1]) for n in range(self._arrays))

    @property
    def _arrays(self) -> int:
        return (10 if self.backward else 5) + (self.bias_batch > 0) + self.of_scores


@dataclass(frozen=True)
class TransformCall(Record):
    """Fourier transform of the last dimensions of an array, of `kind` in `FftType`; inverse ones are divided by the
    number of elements. Arrays: operand, result, and a copy of the operand for transforms that overwrite it."""

    kind: int
    double: int
    batch: int
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class TriangularCall(Record):
    """Solution x of op(a) x = b, or x op(a) = b if `right`, for a batch of matrices of `size` rows, stored by rows;
    `others` is the number of right-hand sides. `operation` is 0, 1 for the transpose of a, or 2 for its conjugate
    transpose."""

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
    """Factorization of a batch of matrices stored by columns; `routine` is an index into `SOLVERS`, which defines
    the meaning of `option`."""

    routine: int
    dtype: int
    batch: int
    rows: int
    columns: int
    option: int


# Routines of cuSOLVER: Cholesky factors, LU, QR and its Q, eigenvalues and singular values.
SOLVERS = ("potrf", "getrf", "geqrf", "orgqr", "syevd", "gesvd")
SOLVER_ROUTINE, TRIANGULAR_ROUTINE, TRANSFORM_ROUTINE = "cusolver", "cublas_triangular", "cufft_transform"
# Routines that synchronise with the GPU, so they cannot be recorded in a graph.
NOT_RECORDED = frozenset({SOLVER_ROUTINE})
