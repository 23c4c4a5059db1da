"""Normal distribution of vectors."""

from __future__ import annotations

import math

from weft import numpy as wnp
from weft.api.jit import jit
from weft.base.errors import NotSupportedError, ShapeMismatchError
from weft.numpy.util import combining_ranks
from weft.scipy import linalg
from weft.scipy.special.arguments import promote_floats
from weft.trace.annotations import ArrayLike
from weft.trace.array import Array


def logpdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: None = None) -> Array:
    """Return the logarithm of the density at x.

    Args:
        x: vectors along the last axis.
        mean: the mean, a vector or several; a number for all components.
        cov: the covariance, a matrix or several; a number for independent components.
        allow_singular: not supported; a covariance that is not positive definite has the result nan.
    """
    if allow_singular is not None:
        raise NotSupportedError(
            "multivariate_normal does not support allow_singular: a singular covariance has no density.",
            received=f"allow_singular={allow_singular}",
            fix="cov + epsilon * eye(n)",
        )
    x, mean, cov = promote_floats("multivariate_normal.logpdf", x, mean, cov)
    if mean.ndim and cov.ndim and (cov.ndim < 2 or cov.shape[-1] != cov.shape[-2] or cov.shape[-1] != mean.shape[-1]):
        raise ShapeMismatchError(
            "The covariance must be a square matrix, with as many rows as the mean has components.",
            received=f"mean of shape {mean.shape} and cov of shape {cov.shape}",
        )
    return _logpdf(x, mean, cov)


@jit
@combining_ranks
def _logpdf(x: Array, mean: Array, cov: Array) -> Array:
    if not mean.shape or not cov.shape:
        if cov.shape:
            raise ShapeMismatchError(
                "A matrix of covariances needs a vector of means.",
                received=f"mean of shape {mean.shape} and cov of shape {cov.shape}",
            )
        return -0.5 * wnp.square(x - mean) / cov - 0.5 * wnp.log(2 * math.pi * cov)
    size = mean.shape[-1]
    factor = wnp.linalg.cholesky(cov)
    difference = x - mean
    lead = wnp.broadcast_shapes(difference.shape[:-1], factor.shape[:-2])
    columns = wnp.broadcast_to(difference, (*lead, size))[..., None]
    whitened = linalg.solve_triangular(wnp.broadcast_to(factor, (*lead, size, size)), columns, lower=True)[..., 0]
    diagonal = wnp.diagonal(factor, axis1=-1, axis2=-2)
    constant = 0.5 * size * math.log(2 * math.pi) + wnp.sum(wnp.log(diagonal), axis=-1)
    return -0.5 * wnp.sum(wnp.square(whitened), axis=-1) - constant


def pdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
    """Return the density at x."""
    return wnp.exp(logpdf(x, mean, cov))
