"""Derivatives of nondifferentiable functions through noise on their inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft
import weft.numpy as wnp
from weft import Array, lax, random
from weft.errors import suggest as _suggest
from weft.optim.tree_utils.randomness import tree_split_key_like


class Normal:
    """The standard normal distribution."""

    def sample(self, key: Any, sample_shape: Sequence[int] = (), dtype: Any = float) -> Array:
        """Draw independent samples."""
        return random.normal(key, tuple(sample_shape), dtype)

    def log_prob(self, inputs: Array) -> Array:
        """Return the log density up to a constant."""
        return -0.5 * inputs**2


class Gumbel:
    """The standard Gumbel distribution."""

    def sample(self, key: Any, sample_shape: Sequence[int] = (), dtype: Any = float) -> Array:
        """Draw independent samples."""
        return random.gumbel(key, tuple(sample_shape), dtype)

    def log_prob(self, inputs: Array) -> Array:
        """Return the log density up to a constant."""
        return -inputs - wnp.exp(-inputs)


def make_perturbed_fun(
    fun: Callable[[Any], Any],
    num_samples: int = 1000,
    sigma: float = 0.1,
    noise: Any = Gumbel(),  # noqa: B008
    use_baseline: bool = True,
) -> Callable[[Any, Any], Any]:
    """Return (key, x) -> mean of `fun(x + sigma * noise)`, with the derivatives of its expectation.

    Derivatives of any order need only values of `fun`: each value is weighted by exp(l - stop_gradient(l)), which is
    one, and whose derivative is that of the log-density l of the noise at the perturbed point (Foerster et al. 2018).
    With `use_baseline` the value at x itself is subtracted from the weighted values, which lowers the variance.
    """

    def perturb(key: Any, inputs: Any) -> Any:
        inputs = weft.tree.map(wnp.asarray, inputs)
        keys = tree_split_key_like(key, inputs)
        draw = lambda k, x: noise.sample(k, (num_samples, *x.shape), x.dtype)
        noises = weft.tree.map(draw, keys, inputs)
        points = weft.tree.map(lambda x, z: lax.stop_gradient(x + sigma * z), inputs, noises)

        def log_density(x: Any, point: Any) -> Any:
            logs = noise.log_prob((point - x) / sigma)
            return wnp.sum(logs.reshape(num_samples, -1), axis=1)

        logs = sum(weft.tree.leaves(weft.tree.map(log_density, inputs, points)))
        weights = wnp.exp(logs - lax.stop_gradient(logs))
        values = weft.vmap(fun)(points)
        baseline = fun(lax.stop_gradient(inputs)) if use_baseline else None

        def mean(leaf: Any, base: Any = None) -> Any:
            shaped = weights.reshape((-1,) + (1,) * (leaf.ndim - 1)).astype(leaf.dtype)
            if base is None:
                return wnp.mean(shaped * leaf, axis=0)
            return wnp.mean(shaped * (leaf - base) + base, axis=0)

        return weft.tree.map(mean, values) if baseline is None else weft.tree.map(mean, values, baseline)

    return perturb


_suggest(__name__)
