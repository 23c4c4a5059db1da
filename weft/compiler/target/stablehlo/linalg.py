"""Rules of linear algebra: factorizations and solutions that StableHLO has, and Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.base import dtypes
from weft.compiler.target.stablehlo import factorizations, jacobi
from weft.compiler.target.stablehlo.emitter import Emitter, Site, rule
from weft.compiler.target.stablehlo.types import boolean, int64_array
from weft.compiler.target.stablehlo.writer import Value
from weft.primitives.linalg.fft import FftType

# Definitions of operations that StableHLO has not, in terms of others.
DEFINITIONS: dict[str, Callable[..., Any]] = {
    "eigh": jacobi.eigh,
    "geqrf": factorizations.geqrf,
    "hessenberg": factorizations.hessenberg,
    "linear_solve": factorizations.linear_solve,
    "lu": factorizations.lu,
    "lu_pivots_to_permutation": factorizations.lu_pivots_to_permutation,
    "qr": factorizations.qr,
    "svd": jacobi.svd,
    "tridiagonal": factorizations.tridiagonal,
    "tridiagonal_solve": factorizations.tridiagonal_solve,
}


def triangle(e: Emitter, x: Value, lower: bool) -> Value:
    """Return matrices with zeros above (below) the diagonal."""
    rank, kind = len(x.shape), np.dtype(np.int32)
    rows, columns = (e.iota(x.shape, kind, rank - 2 + i) for i in range(2))
    return e.select(e.compare("GE" if lower else "LE", rows, columns), x, e.full_like(0, x))


@rule("cholesky")
def cholesky(e: Emitter, site: Site, x: Value) -> Value:
    """Write a Cholesky factorization; a matrix that is not positive definite has nan for its factor."""
    if 0 in x.shape:
        return x
    return triangle(e, e.op("cholesky", [x], x.shape, x.dtype, "lower = true"), lower=True)


@rule("triangular_solve")
def triangular_solve(e: Emitter, site: Site, a: Value, b: Value) -> Value:
    """Write the solution of triangular systems."""
    p = site.params
    if 0 in b.shape or 0 in a.shape:
        return b
    transposed = p["transpose_a"]
    if p["conjugate_a"] and not transposed and dtypes.kind(a.dtype) == "c":
        a = e.apply("conj", a, input_dtype=a.dtype)
    name = ("ADJOINT" if p["conjugate_a"] else "TRANSPOSE") if transposed else "NO_TRANSPOSE"
    flags = ", ".join(f"{name} = {boolean(p[name])}" for name in ("left_side", "lower", "unit_diagonal"))
    attributes = f"{flags}, transpose_a = #stablehlo<transpose {name}>"
    return e.op("triangular_solve", [a, b], b.shape, b.dtype, attributes)


@rule("fft")
def fft(e: Emitter, site: Site, x: Value) -> Value:
    """Write a Fourier transform of up to three dimensions."""
    p = site.params
    lengths = tuple(p["fft_lengths"])
    if 0 in x.shape or 0 in site.shape:
        return e.full(0, site.shape, site.dtype)
    kind = FftType(p["fft_type"])
    if len(lengths) > 3:
        return _fft_in_parts(e, site, x, kind, lengths)
    return _fft(e, x, kind, lengths, site)


def _fft(e: Emitter, x: Value, kind: FftType, lengths: tuple[int, ...], site: Site) -> Value:
    attributes = f"fft_type = #stablehlo<fft_type {kind.name}>, fft_length = {int64_array(lengths)}"
    return e.op("fft", [x], *site.results[0], attributes)


def _fft_in_parts(e: Emitter, site: Site, x: Value, kind: FftType, lengths: tuple[int, ...]) -> Value:
    """Write a transform of many dimensions by those of the last three and of the others, transposed to the end."""
    rank, extra = len(x.shape), len(lengths) - 3
    lead = rank - len(lengths)
    others = list(range(lead, lead + extra))
    order = [d for d in range(rank) if d not in others] + others
    back = np.argsort(order).tolist()
    complex_kind = FftType.IFFT if kind in (FftType.IFFT, FftType.IRFFT) else FftType.FFT

    def outer(v: Value) -> Value:
        transposed = e.apply("transpose", v, permutation=tuple(order))
        inner = e.apply("fft", transposed, fft_type=complex_kind, fft_lengths=lengths[:extra])
        return e.apply("transpose", inner, permutation=tuple(back))

    if kind is FftType.IRFFT:
        return _fft(e, outer(x), kind, lengths[extra:], site)
    shape, dtype = site.results[0]
    inner = _fft(e, x, kind, lengths[extra:], site._replace(results=((shape, dtype),)))
    return outer(inner)
