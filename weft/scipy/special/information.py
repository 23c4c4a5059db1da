"""Logarithms and what entropies are made of, softmax, logistic functions, power transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import lax, nn
from weft.scipy.argument_docs import document
from weft.scipy.special.arguments import promote
from weft.scipy.special.primitives import information
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def logsumexp(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Any:
    """log(sum(b * exp(a))) over axes, without overflow.

    Args:
        a: the exponents.
        axis: an axis or several; None for all.
        b: factors of the exponentials, which may be negative.
        keepdims: whether the axes stay, with size 1.
        return_sign: whether the sign of the sum is returned too; without it a negative sum is nan.
        where: which elements are taken; others count for nothing.

    Returns:
        The logarithm of the sum, or with `return_sign` a pair of that and the sign.

    >>> import weft.numpy as wnp
    >>> from weft.scipy import special
    >>> special.logsumexp(wnp.array([1000.0, 1000.0]))
    Array(1000.6932, dtype=float32)
    """
    return nn.logsumexp(a, axis=axis, b=b, keepdims=keepdims, return_sign=return_sign, where=where)


def softmax(x: ArrayLike, /, *, axis: int | Sequence[int] | None = None) -> Array:
    """Compute exp(x)/sum(exp(x)) along axes, by default over all of x."""
    return nn.softmax(x, axis=axis)


def log_softmax(x: ArrayLike, /, *, axis: int | Sequence[int] | None = None) -> Array:
    """log(softmax(x)), without leaving the logarithm."""
    return nn.log_softmax(x, axis=axis)


@document("Floats of the shape of `x`, from 0 to 1.")
def expit(x: ArrayLike) -> Array:
    """Compute the logistic function 1/(1 + exp(-x)).

    >>> import weft.numpy as wnp
    >>> from weft.scipy import special
    >>> special.expit(wnp.array([-100.0, 0.0, 2.0]))
    Array([3.783506e-44, 5.000000e-01, 8.807971e-01], dtype=float32)
    """
    return lax.logistic(*promote("expit", x, kinds="fc"))


@document(
    "Floats of the shape of `x`.",
    "special.logit(wnp.array([0.0, 0.5, 0.9])) -> Array([     -inf, 0.       , 2.1972244], dtype=float32)",
)
def logit(x: ArrayLike) -> Array:
    """log(x/(1 - x)), the inverse of `expit`, of numbers from 0 to 1."""
    (x,) = promote("logit", x, kinds="fc")
    return lax.log(x / (1 - x)) if x.dtype.kind == "c" else information.logit(x)


def xlogy(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute x*log(y), which is 0 where x is 0, as is its derivative in y."""
    return information.xlogy(*promote("xlogy", x, y, kinds="fc"))


def xlog1py(x: ArrayLike, y: ArrayLike) -> Array:
    """Compute x*log(1 + y), which is 0 where x is 0, as is its derivative in y."""
    return information.xlog1py(*promote("xlog1py", x, y, kinds="fc"))


def entr(x: ArrayLike) -> Array:
    """Compute -x*log(x), 0 at 0 and minus infinity for negative x: the terms of an entropy."""
    return information.entr(*promote("entr", x))


def rel_entr(p: ArrayLike, q: ArrayLike) -> Array:
    """Compute p*log(p/q): 0 for p = 0 and q >= 0, infinite where p or q is negative or only q is 0."""
    return information.rel_entr(*promote("rel_entr", p, q))


def kl_div(p: ArrayLike, q: ArrayLike) -> Array:
    """Compute p*log(p/q) - p + q, which is never negative: a term of a Kullback-Leibler divergence."""
    return information.kl_div(*promote("kl_div", p, q))


def boxcox(x: ArrayLike, lmbda: Any) -> Array:
    """Compute (x**lmbda - 1)/lmbda, and log(x) for lmbda = 0, with derivatives in both there too."""
    return information.boxcox(*promote("boxcox", x, lmbda))


def boxcox1p(x: ArrayLike, lmbda: Any) -> Array:
    """Compute ((1 + x)**lmbda - 1)/lmbda, and log(1 + x) for lmbda = 0, with derivatives in both there too."""
    return information.boxcox1p(*promote("boxcox1p", x, lmbda))
