"""Densities estimated from samples, by a sum of normal densities around them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import numpy as wnp, random
from weft.base import tree
from weft.base.errors import ArgumentError, NotSupportedError, ShapeMismatchError
from weft.nn import logsumexp
from weft.numpy.util import combining_ranks, ensure_array, promote_dtypes_inexact
from weft.scipy import linalg
from weft.scipy.special.error import ndtr
from weft.trace.array import Array


@tree.register_pytree_node_class
class gaussian_kde:
    """Estimate of a density from samples: the mean of normal densities around them.

    Args:
        dataset: samples along the last axis: n numbers, or d rows of n numbers.
        bw_method: the width of the normal densities, in units of the deviation of the samples: a number, "scott" (the
            default), "silverman", or a function of the estimate that returns a number.
        weights: how much each sample counts; all the same by default.

    >>> import weft.numpy as wnp
    >>> from weft.scipy import stats
    >>> kde = stats.gaussian_kde(wnp.array([-1.0, 0.0, 1.0]))
    >>> kde.integrate_box_1d(-10.0, 10.0)
    Array(1., dtype=float32)
    """

    neff: Any
    dataset: Any
    weights: Any
    covariance: Any
    inv_cov: Any

    def __init__(self, dataset: Any, bw_method: Any = None, weights: Any = None) -> None:
        data = wnp.atleast_2d(ensure_array(promote_dtypes_inexact(dataset)[0]))
        if data.dtype.kind == "c":
            raise NotSupportedError("gaussian_kde does not support complex data.", received=data.aval.short())
        if data.size <= 1:
            raise ArgumentError("gaussian_kde needs several samples.", received=f"a dataset of shape {data.shape}")
        count = data.shape[1]
        if weights is None:
            shares = wnp.full(count, 1 / count, data.dtype)
        else:
            shares = wnp.atleast_1d(ensure_array(promote_dtypes_inexact(weights, data)[0]))
            if shares.shape != (count,):
                raise ShapeMismatchError(
                    "The weights of gaussian_kde must be a vector with one for each sample.",
                    received=f"weights of shape {shares.shape} and {count} samples",
                )
            shares = shares / wnp.sum(shares)
        self.dataset, self.weights = data, shares.astype(data.dtype)
        self.neff = 1 / wnp.sum(wnp.square(self.weights))
        factor = wnp.square(self._factor(bw_method))
        base = wnp.atleast_2d(wnp.cov(data, rowvar=True, bias=False, aweights=self.weights))
        self.covariance = (base * factor).astype(data.dtype)
        self.inv_cov = (wnp.linalg.inv(base) / factor).astype(data.dtype)

    def _factor(self, bw_method: Any) -> Any:
        if bw_method is None or (isinstance(bw_method, str) and bw_method == "scott"):
            return self.neff ** (-1 / (self.d + 4))
        if isinstance(bw_method, str) and bw_method == "silverman":
            return (self.neff * (self.d + 2) / 4) ** (-1 / (self.d + 4))
        if callable(bw_method):
            return bw_method(self)
        if isinstance(bw_method, str) or not np.shape(bw_method) == ():
            raise ArgumentError(
                "gaussian_kde got an unknown bw_method.",
                received=f"bw_method={bw_method!r}",
                fix="'scott', 'silverman', a number or a function",
            )
        return bw_method

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """Return the arrays of the estimate."""
        return (self.neff, self.dataset, self.weights, self.covariance, self.inv_cov), None

    @classmethod
    def tree_unflatten(cls, aux_data: None, children: Any) -> gaussian_kde:
        """Rebuild the estimate from its arrays."""
        result = cls.__new__(cls)
        result.neff, result.dataset, result.weights, result.covariance, result.inv_cov = children
        return result

    @property
    def d(self) -> int:
        """Number of dimensions."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """Number of samples."""
        return self.dataset.shape[1]

    def _points(self, points: Any) -> Array:
        x = wnp.atleast_2d(ensure_array(promote_dtypes_inexact(points, self.dataset)[0]))
        if x.shape[0] != self.d and x.shape[0] == 1 and x.shape[1] == self.d:
            x = x.reshape(self.d, 1)  # one point
        if x.shape[0] != self.d:
            raise ShapeMismatchError(
                f"The points must have {self.d} rows, as the samples, got {x.shape[0]}.", received=f"shape {x.shape}"
            )
        return x

    def evaluate(self, points: Any) -> Array:
        """Evaluate the density at points along the last axis."""
        return wnp.exp(self.logpdf(points))

    def __call__(self, points: Any) -> Array:
        """Evaluate the density at points."""
        return self.evaluate(points)

    def pdf(self, x: Any) -> Array:
        """Evaluate the density at points."""
        return self.evaluate(x)

    @combining_ranks
    def logpdf(self, x: Any) -> Array:
        """Evaluate the logarithm of the density at points."""
        points = self._points(x)
        factor = wnp.linalg.cholesky(self.covariance)
        rows = linalg.solve_triangular(factor, self.dataset, lower=True)
        others = linalg.solve_triangular(factor, points, lower=True)
        energy = 0.5 * wnp.sum(wnp.square(others[:, :, None] - rows[:, None, :]), axis=0)
        constant = 0.5 * self.d * math.log(2 * math.pi) + wnp.sum(wnp.log(wnp.diagonal(factor)))
        return logsumexp(-energy, b=self.weights, axis=-1) - constant

    @combining_ranks
    def _convolve(self, mean: Array, weights: Array, cov: Array) -> Array:
        """Integrate the product with normal densities around the columns of `mean`."""
        factor = wnp.linalg.cholesky(self.covariance + cov)
        rows = linalg.solve_triangular(factor, self.dataset, lower=True)
        others = linalg.solve_triangular(factor, mean, lower=True)
        energy = 0.5 * wnp.sum(wnp.square(others[:, :, None] - rows[:, None, :]), axis=0)
        constant = 0.5 * self.d * math.log(2 * math.pi) + wnp.sum(wnp.log(wnp.diagonal(factor)))
        return wnp.einsum("i,ij,j->", weights, wnp.exp(-energy), self.weights) * wnp.exp(-constant)

    def integrate_gaussian(self, mean: Any, cov: Any) -> Array:
        """Integrate the product with a normal density."""
        centre = wnp.atleast_1d(wnp.squeeze(wnp.asarray(mean)))
        matrix = wnp.atleast_2d(wnp.asarray(cov))
        if centre.shape != (self.d,):
            raise ShapeMismatchError(f"The mean must have {self.d} components.", received=f"shape {centre.shape}")
        if matrix.shape != (self.d, self.d):
            raise ShapeMismatchError(f"The covariance must have {self.d} rows.", received=f"shape {matrix.shape}")
        return self._convolve(centre[:, None], wnp.ones(1, self.dataset.dtype), matrix)

    def integrate_box_1d(self, low: Any, high: Any) -> Array:
        """Return the probability of a value between two numbers, for an estimate of one dimension."""
        if self.d != 1:
            raise ArgumentError("integrate_box_1d needs an estimate of one dimension.", received=f"{self.d} of them")
        if np.shape(low) or np.shape(high):
            raise ArgumentError("The bounds of integrate_box_1d must be numbers.", received=f"{low} and {high}")
        deviation = wnp.sqrt(self.covariance[0, 0])
        above, below = ((wnp.asarray(bound) - self.dataset[0]) / deviation for bound in (high, low))
        return wnp.sum(self.weights * (ndtr(above) - ndtr(below)))

    def integrate_kde(self, other: gaussian_kde) -> Array:
        """Integrate the product with another estimate."""
        if other.d != self.d:
            raise ArgumentError("Both estimates must have as many dimensions.", received=f"{self.d} and {other.d}")
        return self._convolve(other.dataset, other.weights, other.covariance)

    def resample(self, key: Any, shape: Any = ()) -> Array:
        """Draw random samples of the estimated density, of shape (d, *shape)."""
        index_key, noise_key = random.split(key)
        chosen = random.choice(index_key, self.n, shape=shape, p=self.weights)
        noise = random.multivariate_normal(
            noise_key, wnp.zeros(self.d, self.dataset.dtype), self.covariance, shape=shape, dtype=self.dataset.dtype
        )
        return self.dataset[:, chosen] + wnp.moveaxis(noise, -1, 0)

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> Array:
        """Not supported: boxes have one dimension here."""
        raise NotSupportedError("gaussian_kde only integrates over boxes of one dimension.", fix="integrate_box_1d")

    def set_bandwidth(self, bw_method: Any = None) -> None:
        """Not supported: an estimate is immutable."""
        raise NotSupportedError(
            "The bandwidth of a gaussian_kde does not change: it is immutable.", fix="gaussian_kde(dataset, bw_method)"
        )
