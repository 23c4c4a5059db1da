"""A parametric distribution, and scaling of gradients inside of a function."""

from __future__ import annotations

import functools
import math
from typing import Any

import weft
import weft.numpy as wnp
from weft import Array, random


class MultiNormalDiagFromLogScale:
    """A normal distribution with independent components."""

    def __init__(self, loc: Array, log_scale: Array) -> None:
        self._loc, self._log_scale = wnp.asarray(loc), wnp.asarray(log_scale)
        self._shape = wnp.broadcast_shapes(self._loc.shape, self._log_scale.shape)

    def sample(self, shape: tuple[int, ...], seed: Any) -> Array:
        """Draw samples of the given shape, differentiable in the parameters."""
        noise = random.normal(seed, (*shape, *self._shape), self._loc.dtype)
        return noise * wnp.exp(self._log_scale) + self._loc

    def log_prob(self, x: Array) -> Array:
        """Return the log of the density, with the axes of the parameters summed over."""
        scaled = (x - self._loc) * wnp.exp(-self._log_scale)
        each = -0.5 * (math.log(2 * math.pi) + scaled**2) - self._log_scale
        return wnp.sum(each, axis=tuple(range(-len(self._shape), 0)))

    @property
    def log_scale(self) -> Array:
        """log of the standard deviations."""
        return self._log_scale

    @property
    def params(self) -> list[Array]:
        """The parameters, mean and log-scale."""
        return [self._loc, self._log_scale]


def multi_normal(loc: Array, log_scale: Array) -> MultiNormalDiagFromLogScale:
    """Return the normal distribution with mean `loc` and standard deviations `exp(log_scale)`."""
    return MultiNormalDiagFromLogScale(loc, log_scale)


@functools.partial(weft.custom_vjp, nondiff_argnums=(1,))
def _scaled_gradient(inputs: Any, scale: float) -> Any:
    return inputs


def _forward(inputs: Any, scale: float) -> Any:
    return inputs, None


def _backward(scale: float, _: Any, cotangents: Any) -> Any:
    return (weft.tree.map(lambda c: c * scale, cotangents),)


_scaled_gradient.defvjp(_forward, _backward)


def scale_gradient(inputs: Any, scale: float) -> Any:
    """Return `inputs`, with gradients multiplied by `scale` in the backward pass; 0 stops them."""
    if isinstance(scale, int | float):
        if scale == 1.0:
            return inputs
        if scale == 0.0:
            return weft.lax.stop_gradient(inputs)
    return _scaled_gradient(inputs, scale)
