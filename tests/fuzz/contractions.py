"""Contractions, convolutions, linear algebra and Fourier transforms in random programs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.draw import Draw, Skip, Text, Value
from tests.fuzz.elementwise import Drawing
from tests.fuzz.numbers import SMALL

LAPACK = tuple(map(np.dtype, (np.float32, np.float64, np.complex64, np.complex128)))


def contract(draw: Draw) -> None:
    x = draw.pick("fiuc", most=5)
    x = draw.within(x, SMALL)
    order = draw.permutation(x.rank)
    batch = order[: draw.below(min(x.rank, 2) + 1)]
    contracted = order[len(batch) :][: draw.below(3)]
    free = draw.shape(draw.below(3))
    if math.prod(free) * x.size > 8 * draw.settings.most:
        raise Skip
    # The other operand has the shared axes anywhere.
    sizes = [("batch", a, x.shape[a]) for a in batch] + [("contracted", a, x.shape[a]) for a in contracted]
    sizes += [("free", n, s) for n, s in enumerate(free)]
    mixed = [sizes[n] for n in draw.permutation(len(sizes))]
    y = draw.like([s for _, _, s in mixed], x.dtype, SMALL)
    where = {(kind, a): n for n, (kind, a, _) in enumerate(mixed)}
    numbers = (
        (tuple(contracted), tuple(where["contracted", a] for a in contracted)),
        (tuple(batch), tuple(where["batch", a] for a in batch)),
    )
    count = math.prod(x.shape[a] for a in contracted)
    wider: dict[str, Any] = {}
    if x.kind == "f" and x.bits < 32 and draw.flag():
        wider = {"preferred_element_type": np.dtype(np.float32)}
    if draw.flag():
        x, y, numbers = y, x, tuple(tuple(reversed(pair)) for pair in numbers)
    result = draw.call("lax.dot_general", x, y, numbers, **wider)
    draw.keep(result, 2 * x.bound * y.bound * max(count, 1))


def convolve(draw: Draw) -> None:
    """Odd paddings, dilations of both operands, groups, and images of no elements."""
    focus = draw.focus
    if focus is not None and focus.kind in "fic" and focus.rank in (3, 4):
        space, dtype = focus.rank - 2, focus.dtype
        batch, features, *sizes = focus.shape
    else:
        if focus is not None and draw.flag(0.7):
            raise Skip
        space, dtype = draw.between(1, 2), draw.dtype("fic")
        batch, features = draw.between(1, 2), draw.one_of((1, 2, 3, 4, 8))
        sizes = [draw.between(0 if draw.flag(0.1) else 1, 9) for _ in range(space)]
    results = draw.one_of((1, 2, 4, 17))
    groups = draw.one_of([g for g in (1, 1, 2, 4) if features % g == 0 and results % g == 0 and features >= g])
    kernel = [draw.between(1, 3) for _ in range(space)]
    x = draw.like((batch, features, *sizes), dtype, SMALL)
    weights = draw.like((results, features // groups, *kernel), dtype, SMALL)
    letters = "HW"[:space]
    numbers: tuple[str, str, str] = (f"NC{letters}", f"OI{letters}", f"NC{letters}")
    a, b = x, weights
    if draw.flag():
        a = draw.call("lax.transpose", a, (0, *range(2, space + 2), 1))
        b = draw.call("lax.transpose", b, (*range(2, space + 2), 1, 0))
        numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    dilation = [draw.between(1, 2) if draw.flag(0.3) else 1 for _ in range(space)]
    lhs_dilation = [draw.between(1, 2) if draw.flag(0.3) else 1 for _ in range(space)]
    padding: Any = draw.one_of(("SAME", "VALID"))
    if max(lhs_dilation) > 1 or 0 in sizes or draw.flag(0.4):
        padding = [(draw.between(-1, 3), draw.between(-1, 3)) for _ in range(space)]
    pads = padding if isinstance(padding, list) else [(0, 0)] * space
    for size, wide, pair, by, apart in zip(sizes, kernel, pads, dilation, lhs_dilation, strict=True):
        if max((size - 1) * apart + 1, 0) + sum(pair) < (wide - 1) * by + 1:
            raise Skip
    strides = [draw.between(1, 3) for _ in range(space)]
    result = draw.call(
        "lax.conv_general_dilated", a, b, strides, padding, lhs_dilation, dilation, numbers, feature_group_count=groups
    )
    draw.keep(result, 2 * x.bound * weights.bound * max(features, 1) * math.prod(kernel))


# ------------------------------------------------------------------------------------------------------- linear algebra


def matrix(draw: Draw, square: bool = True, accepts: Any = None) -> Value:
    """Small matrices of a dtype that LAPACK has; those that must be square are cut."""
    x = draw.pick("fc", rank=2, accepts=lambda v: v.dtype in LAPACK and v.size <= 200)
    if square and x.shape[-1] != x.shape[-2]:
        side = min(x.shape[-2:])
        limits = [*x.shape[:-2], side, side]
        x = draw.bounded(draw.call("lax.slice", x, [0] * x.rank, limits), x.bound)
    return x


def decomposition(name: str, **params: Any) -> Drawing:
    """Draw a function of `lax.linalg`, all of whose results are used."""

    def draw_it(draw: Draw) -> None:
        x = matrix(draw, square=name not in ("qr", "svd", "lu"))
        if name in ("svd", "eig", "eigh", "hessenberg", "tridiagonal") and not x.size:
            raise Skip
        if name in ("hessenberg", "tridiagonal"):
            x = draw.constant(x)
        result = draw.call(f"linalg.{name}", x, **params)
        for value in result if isinstance(result, list) else [result]:
            draw.keep(value)

    return draw_it


def positive(draw: Draw) -> Value:
    """Draw a matrix with a Cholesky factor: mostly a matrix times its own adjoint plus a multiple of the identity."""
    x = matrix(draw)
    if draw.flag(0.3):
        return x
    side = x.shape[-1]
    product = f"np.matmul({x.name}, np.conj(np.swapaxes({x.name}, -1, -2)))"
    return draw.assign(f"{product} + {side + 1} * np.eye({side}, dtype={x.name}.dtype)")


def cholesky(draw: Draw) -> None:
    draw.keep(draw.call("linalg.cholesky", positive(draw), symmetrize_input=draw.flag()))


def triangular_solve(draw: Draw) -> None:
    a = matrix(draw)
    b = draw.like((*a.shape[:-1], draw.between(0, 3)), a.dtype)
    result = draw.call("linalg.triangular_solve", a, b, left_side=True, lower=draw.flag(), unit_diagonal=draw.flag())
    draw.keep(result)


def tridiagonal_solve(draw: Draw) -> None:
    d = draw.pick("f", rank=1, most=2, accepts=lambda v: v.dtype in LAPACK[:2] and v.shape[-1] > 0)
    low, high = draw.like(d.shape, d.dtype), draw.like(d.shape, d.dtype)
    b = draw.like((*d.shape, 2), d.dtype)
    # The first of the lower and the last of the upper diagonal are nobody's.
    draw.keep(draw.call("linalg.tridiagonal_solve", low, d, high, b))


def permutation_of_pivots(draw: Draw) -> None:
    """Of pivots that a decomposition gave, or of any indices within bounds."""
    pivots = draw.pick("i", rank=1, accepts=lambda v: v.dtype == np.int32 and 0 < v.shape[-1] <= 9)
    count = pivots.shape[-1]
    pivots = draw.call("lax.clamp", np.int32(0), pivots, np.int32(count - 1))
    draw.keep(draw.call("linalg.lu_pivots_to_permutation", pivots, count + draw.below(3)))


def linear_solve(draw: Draw) -> None:
    a = matrix(draw)
    b = draw.like(a.shape[-1:], a.dtype) if a.rank == 2 else draw.like((*a.shape[:-1], 2), a.dtype)
    draw.keep(draw.call("np.linalg.solve", a, b))


def geqrf(draw: Draw) -> None:
    x = matrix(draw, square=False)
    if x.shape[-1] < 1 or x.shape[-2] < 1:
        raise Skip
    for value in draw.call("np.linalg.qr", x, mode="raw"):
        draw.keep(value)


def schur(draw: Draw) -> None:
    for value in draw.call("linalg.schur", draw.constant(matrix(draw))):
        draw.keep(value)


def fft(draw: Draw) -> None:
    kind = draw.one_of(("FFT", "IFFT", "RFFT", "IRFFT"))
    real = kind == "RFFT"
    x = draw.pick("f" if real else "c", rank=1, accepts=lambda v: v.dtype in LAPACK and 0 < v.size <= 400)
    lengths = x.shape[-draw.between(1, min(x.rank, 2)) :]
    if kind == "IRFFT":
        lengths = (*lengths[:-1], max(2 * (lengths[-1] - 1), 1))
        if lengths[-1] // 2 + 1 != x.shape[-1]:
            raise Skip
    draw.keep(draw.call("lax.fft", x, Text(f"lax.FftType.{kind}"), lengths))
