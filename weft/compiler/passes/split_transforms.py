"""Split long Fourier transforms into many short ones, which fit the cache and run on all threads.

This is the six-step FFT: a transform of n1 n2 numbers, read as a matrix with n1 rows, is transforms of its columns, a
multiplication by roots of unity (twiddle factors), and transforms of its rows; between them the matrix is transposed. A
real signal is first read as half as many complex numbers, and its spectrum computed from theirs. Results are equal up
to rounding, so this is no part of the passes that keep bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.passes.decompose import with_definitions
from weft.compiler.rewrite import everywhere
from weft.ir.jaxpr import Equation, Jaxpr
from weft.primitives.control.remat import optimization_barrier
from weft.primitives.elementwise.arithmetic import add, mul, sub
from weft.primitives.elementwise.bitwise import and_, or_
from weft.primitives.elementwise.compare import eq, ge
from weft.primitives.elementwise.complex import complex as complex_, conj, imag, real
from weft.primitives.elementwise.convert import convert_element_type
from weft.primitives.elementwise.select import select_n
from weft.primitives.elementwise.trigonometric import cos, sin
from weft.primitives.linalg.fft import FftType, fft
from weft.primitives.movement.concatenate import concatenate
from weft.primitives.movement.iota import iota
from weft.primitives.movement.shape import broadcast_in_dim, reshape, rev, transpose
from weft.primitives.movement.slicing import slice as slice_

INT32 = np.dtype(np.int32)
# Shorter transforms fit the cache anyway, and more than FEW long ones keep all threads busy, one each.
LEAST, FEW = 1 << 18, 2
# Sides that are prime, or nearly, would be slow themselves.
LARGEST_PRIME = 13
# Integers up to this have all their bits in a float32.
MOST = 1 << 26


@everywhere
def split_transforms(jaxpr: Jaxpr) -> Jaxpr:
    """Replace long transforms along one axis. Needs: no calls. Keeps: its form."""
    return with_definitions(jaxpr, _definition)


def _definition(equation: Equation) -> Callable[..., Any] | None:
    if equation.primitive is not fft or len(equation.params["fft_lengths"]) != 1:
        return None
    (length,) = equation.params["fft_lengths"]
    shape: Any = equation.invars[0].aval.shape  # type: ignore[attr-defined]
    count = math.prod(shape[:-1])
    if type(length) is not int or not 0 < count <= FEW or not LEAST <= length <= MOST:
        return None
    kind = FftType(equation.params["fft_type"])
    inner = length // 2 if kind in (FftType.RFFT, FftType.IRFFT) else length
    return None if length % 16 or sides(inner) is None else _DEFINITIONS[kind]


def sides(length: int) -> tuple[int, int] | None:
    """Factor a length into the sides of the most nearly square matrix; None unless it has small prime factors only."""
    rest = length
    for prime in range(2, LARGEST_PRIME + 1):
        while rest % prime == 0:
            rest //= prime
    if rest > 1:
        return None
    rows = next(r for r in range(math.isqrt(length), 0, -1) if length % r == 0)
    return (rows, length // rows) if rows >= 16 else None


# ---------------------------------------------------------------------------------------------------------- definitions


def split_fft(x: Any, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> Any:
    return _forward(x)


def split_ifft(x: Any, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> Any:
    spectrum = _forward(_conjugate(x))
    return mul(_conjugate(spectrum), np.array(1 / fft_lengths[0], spectrum.dtype))


def split_rfft(x: Any, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> Any:
    (length,) = fft_lengths
    half = length // 2
    pairs = _reshape(x, (*x.shape[:-1], half, 2))
    spectrum = _forward(complex_(_part(pairs, 0), _part(pairs, 1)))
    first = slice_(spectrum, start_indices=(0,) * spectrum.ndim, limit_indices=(*x.shape[:-1], 1), strides=None)
    spectrum = concatenate(spectrum, first, dimension=spectrum.ndim - 1)
    mirrored = _conjugate(rev(spectrum, dimensions=(spectrum.ndim - 1,)))
    half_of = np.array(0.5, spectrum.dtype)
    even = mul(add(spectrum, mirrored), half_of)
    odd = mul(sub(spectrum, mirrored), np.array(-0.5j, spectrum.dtype))
    return add(even, mul(odd, _broadcast(_roots(_iota((half + 1,), 0), length, x.dtype, -1), odd.shape)))


def split_irfft(x: Any, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> Any:
    (length,) = fft_lengths
    half, last = length // 2, x.ndim - 1
    half_shape = (*x.shape[:-1], half)
    # The first and the last number of the spectrum of a real signal are real: ignore their imaginary parts.
    at = iota(dtype=INT32, shape=x.shape, dimension=last)
    ends = or_(eq(at, np.array(0, INT32)), eq(at, np.array(half, INT32)))
    x = complex_(real(x), select_n(ends, imag(x), np.zeros((), real(x).dtype)))
    mirrored = _conjugate(rev(x, dimensions=(last,)))
    roots = _broadcast(_roots(_iota((half + 1,), 0), length, dtypes.to_real_dtype(x.dtype), 1), x.shape)
    odd = mul(mul(sub(x, mirrored), roots), np.array(1j, x.dtype))
    both = slice_(add(add(x, mirrored), odd), start_indices=(0,) * x.ndim, limit_indices=half_shape, strides=None)
    signal = mul(_conjugate(_forward(_conjugate(both))), np.array(1 / length, x.dtype))
    axes = tuple(range(x.ndim))
    pair = real(signal), imag(signal)
    parts = [broadcast_in_dim(p, shape=(*half_shape, 1), broadcast_dimensions=axes) for p in pair]
    return _reshape(concatenate(*parts, dimension=x.ndim), (*half_shape[:-1], length))


_DEFINITIONS: dict[FftType, Callable[..., Any]] = {
    FftType.FFT: split_fft,
    FftType.IFFT: split_ifft,
    FftType.RFFT: split_rfft,
    FftType.IRFFT: split_irfft,
}


# -------------------------------------------------------------------------------------------------------------- pieces


def _forward(x: Any) -> Any:
    """Transform complex numbers along the last axis."""
    found = sides(x.shape[-1])
    assert found is not None
    rows, columns = found
    lead = x.shape[:-1]
    matrix = _swap_axes(_reshape(x, (*lead, rows, columns)))
    matrix = fft(matrix, fft_type=FftType.FFT, fft_lengths=(rows,))
    exponents = mul(_iota((columns, rows), 0), _iota((columns, rows), 1))
    roots = _roots(exponents, rows * columns, dtypes.to_real_dtype(x.dtype), -1)
    # A kernel that also transposes is slow at arithmetic: the multiplication gets its own.
    (matrix,) = optimization_barrier(mul(matrix, _broadcast(roots, matrix.shape)))
    matrix = _swap_axes(matrix)
    matrix = fft(matrix, fft_type=FftType.FFT, fft_lengths=(columns,))
    return _reshape(_swap_axes(matrix), x.shape)


def _roots(exponents: Any, count: int, dtype: Any, sign: int) -> Any:
    """Return the roots of unity exp(sign 2 pi i exponent / count), for exponents from 0 to below `count`, a multiple
    of 8.

    Angles are measured from the nearest quarter of the circle, so that they are small, and as exact as their dtype.
    """
    quarters = None
    for eighth in (1, 3, 5, 7):
        beyond = _convert(ge(exponents, np.array(eighth * count // 8, INT32)), INT32)
        quarters = beyond if quarters is None else add(quarters, beyond)
    rest = sub(exponents, mul(quarters, np.array(count // 4, INT32)))
    angle = mul(_convert(rest, dtype), np.array(2 * math.pi / count, dtype))
    along, across, minus = cos(angle), sin(angle), np.array(-1, dtype)
    swapped = _has(quarters, 1)
    first, second = select_n(swapped, along, across), select_n(swapped, across, along)
    first = select_n(_has(add(quarters, np.array(1, INT32)), 2), first, mul(first, minus))
    second = select_n(_has(quarters, 2), second, mul(second, minus))
    return complex_(first, second if sign > 0 else mul(second, minus))


def _has(x: Any, bit: int) -> Any:
    """Return a mask of the integers with this bit set."""
    return eq(and_(x, np.array(bit, INT32)), np.array(bit, INT32))


def _iota(shape: tuple[int, ...], dimension: int) -> Any:
    return iota(dtype=INT32, shape=shape, dimension=dimension)


def _swap_axes(x: Any) -> Any:
    """Exchange the last two axes."""
    rank = x.ndim
    return transpose(x, permutation=(*range(rank - 2), rank - 1, rank - 2))


def _part(pairs: Any, index: int) -> Any:
    """Take one of the two numbers along the last axis."""
    start, limit = (0,) * (pairs.ndim - 1), pairs.shape[:-1]
    found = slice_(pairs, start_indices=(*start, index), limit_indices=(*limit, index + 1), strides=None)
    return _reshape(found, limit)


def _broadcast(x: Any, shape: tuple[int, ...]) -> Any:
    """Repeat an array along new leading axes."""
    if x.shape == shape:
        return x
    return broadcast_in_dim(x, shape=shape, broadcast_dimensions=tuple(range(len(shape) - x.ndim, len(shape))))


def _conjugate(x: Any) -> Any:
    return conj(x, input_dtype=x.dtype)


def _reshape(x: Any, shape: tuple[int, ...]) -> Any:
    return reshape(x, new_sizes=shape, dimensions=None)


def _convert(x: Any, dtype: Any) -> Any:
    return convert_element_type(x, new_dtype=dtype, weak_type=False)
