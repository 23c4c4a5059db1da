"""Error function, normal distribution and their relatives."""

from __future__ import annotations

from typing import Any

from weft import lax
from weft.base import dtypes
from weft.base.arguments import index
from weft.numpy.util import cast
from weft.scipy.argument_docs import document
from weft.scipy.special.arguments import SHORT, promote
from weft.scipy.special.primitives import error, faddeeva, integrals
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


@document(
    "Floats of the shape of `x`, from -1 to 1.",
    "special.erf(wnp.array([0.0, 1.0, 10.0])) -> Array([0.        , 0.84270084, 1.        ], dtype=float32)",
    x="real numbers.",
)
def erf(x: ArrayLike) -> Array:
    """Compute the error function: 2/sqrt(pi) times the integral of exp(-t*t) from 0 to x."""
    return lax.erf(*promote("erf", x))


def erfc(x: ArrayLike) -> Array:
    """Compute 1 - erf(x), accurate where that is small."""
    return lax.erfc(*promote("erfc", x))


def erfinv(x: ArrayLike) -> Array:
    """Compute the inverse of `erf` for numbers from -1 to 1."""
    return lax.erf_inv(*promote("erfinv", x))


def erfcx(x: ArrayLike) -> Array:
    """Compute exp(x*x) * erfc(x), which does not underflow for large x; also of complex numbers."""
    (x,) = promote("erfcx", x, kinds="fc")
    return faddeeva.faddeeva(_times_i(x), order=0) if _is_complex(x) else error.scaled_erfc(x, order=0)


def dawsn(x: ArrayLike) -> Array:
    """Compute Dawson's integral: exp(-x*x) times the integral of exp(t*t) from 0 to x."""
    return error.dawson(*promote("dawsn", x), order=0)


def wofz(z: ArrayLike) -> Array:
    """Compute the Faddeeva function exp(-z*z) * erfc(-i*z), a complex number."""
    (z,) = promote("wofz", z, kinds="fc")
    if not _is_complex(z):
        real = cast(z, dtypes.float32) if z.dtype in SHORT else z
        z = lax.complex(real, lax.full_like(real, 0))
    return faddeeva.faddeeva(z, order=0)


def _is_complex(x: Any) -> bool:
    return x.dtype.kind == "c"


def _times_i(z: Array) -> Array:
    return lax.complex(lax.neg(lax.imag(z)), lax.real(z))


def ndtr(x: ArrayLike) -> Array:
    """Compute the normal distribution function: the integral of exp(-t*t/2)/sqrt(2*pi) up to x."""
    return error.ndtr(*promote("ndtr", x))


@document(
    "Floats of the shape of `p`.",
    "special.ndtri(wnp.array([0.5, 0.975, 1.0])) -> Array([0.       , 1.9599644,       inf], dtype=float32)",
    p="probabilities, from 0 to 1; nan for others.",
)
def ndtri(p: ArrayLike) -> Array:
    """Compute the inverse of `ndtr`: the x at which the normal distribution function is p."""
    return error.ndtri(*promote("ndtri", p))


def log_ndtr(x: ArrayLike, series_order: int = 3) -> Array:
    """log(ndtr(x)), which is finite however far out x is, with its derivatives. `series_order` is accepted for
    compatibility: the result is right to the last digits without a choice."""
    index(series_order)
    return error.log_ndtr(*promote("log_ndtr", x))


def owens_t(h: ArrayLike, a: ArrayLike) -> Array:
    """Compute Owen's function: 1/(2*pi) times the integral of exp(-h*h*(1 + t*t)/2)/(1 + t*t) from t = 0 to a."""
    return integrals.owens_t(*promote("owens_t", h, a))
