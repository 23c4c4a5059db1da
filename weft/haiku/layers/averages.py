"""Moving averages, and normalization by the largest singular value."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from weft import lax, numpy as wnp
from weft.errors import ArgumentError
from weft.haiku.data_structures import map as map_values
from weft.haiku.initializers import Constant, RandomNormal
from weft.haiku.module import Module, transparent
from weft.haiku.parameters import get_state, set_state


class ExponentialMovingAverage(Module):
    """average = decay · average + (1 - decay) · value; with `zero_debias` divided by 1 - decayⁿ.

    For the first `warmup_length` values the average is the value itself.
    """

    def __init__(self, decay: Any, zero_debias: bool = True, warmup_length: int = 0, name: str | None = None):
        super().__init__(name=name)
        if warmup_length < 0:
            raise ArgumentError(
                f"ExponentialMovingAverage {self.module_name!r} needs a warmup_length of 0 or more, got "
                f"{warmup_length}."
            )
        if warmup_length and zero_debias:
            raise ArgumentError(
                f"ExponentialMovingAverage {self.module_name!r} takes zero_debias or a warmup_length, not both."
            )
        self.decay = decay
        self.zero_debias = zero_debias
        self.warmup_length = warmup_length

    def initialize(self, shape: Any, dtype: Any = wnp.float32) -> None:
        """Make the state for values of a shape, or like an array; all zeros, if it is not there."""
        if hasattr(shape, "shape"):
            shape, dtype = shape.shape, shape.dtype
        get_state("counter", (), wnp.int32, init=Constant(-self.warmup_length))
        get_state("hidden", shape, dtype, init=wnp.zeros)
        get_state("average", shape, dtype, init=wnp.zeros)

    def __call__(self, value: Any, update_stats: bool = True) -> Any:
        value = wnp.asarray(value)
        dtype = value.dtype if wnp.issubdtype(value.dtype, wnp.inexact) else wnp.float32
        count = get_state("counter", (), wnp.int32, init=Constant(-self.warmup_length)) + 1
        decay = wnp.asarray(self.decay).astype(dtype)
        if self.warmup_length:
            decay = wnp.where(count <= 0, wnp.zeros_like(decay), decay)
        one = wnp.ones([], dtype)
        hidden = get_state("hidden", value.shape, dtype, init=wnp.zeros)
        hidden = hidden * decay + value * (one - decay)
        average = hidden
        if self.zero_debias:
            average = average / (one - wnp.power(decay, count))
        if update_stats:
            set_state("counter", count)
            set_state("hidden", hidden)
            set_state("average", average)
        return average

    @property
    def average(self) -> Any:
        """The average so far."""
        return get_state("average")


def _l2_normalize(x: Any, eps: float) -> Any:
    return x * lax.rsqrt(wnp.maximum(wnp.sum(x * x), wnp.asarray(eps, x.dtype)))


class SpectralNorm(Module):
    """A matrix divided by its largest singular value, which power iteration estimates over calls."""

    def __init__(self, eps: float = 1e-4, n_steps: int = 1, name: str | None = None):
        super().__init__(name=name)
        self.eps = eps
        self.n_steps = n_steps

    def __call__(self, value: Any, update_stats: bool = True, error_on_non_matrix: bool = False) -> Any:
        value = wnp.asarray(value)
        if value.ndim <= 1 or (value.ndim > 2 and error_on_non_matrix):
            what = "a matrix" if error_on_non_matrix else "two dimensions or more"
            raise ArgumentError(f"SpectralNorm {self.module_name!r} needs {what}, got shape {value.shape}.")
        matrix = wnp.reshape(value, (-1, value.shape[-1]))
        left = get_state("u0", [1, matrix.shape[-1]], value.dtype, init=RandomNormal())
        for _ in range(self.n_steps):
            right = _l2_normalize(wnp.matmul(left, matrix.T), self.eps)
            left = _l2_normalize(wnp.matmul(right, matrix), self.eps)
        left, right = lax.stop_gradient(left), lax.stop_gradient(right)
        sigma = wnp.matmul(wnp.matmul(right, matrix), left.T)[0, 0]
        out = wnp.reshape(matrix / sigma, value.shape)
        if update_stats:
            set_state("u0", left)
            set_state("sigma", sigma)
        else:
            get_state("sigma", (), value.dtype, init=wnp.ones)
        return out

    @property
    def u0(self) -> Any:
        """The left singular vector so far."""
        return get_state("u0")

    @property
    def sigma(self) -> Any:
        """The largest singular value so far."""
        return get_state("sigma")


class _Tree(Module):
    """A module for each parameter of a tree, except for those whose full name matches `ignore_regex`."""

    def __init__(self, ignore_regex: str, name: str | None):
        super().__init__(name=name)
        self._ignore = ignore_regex

    @transparent
    def _map(self, function: Callable[[str, Any], Any], tree: Any, tilde: str) -> Any:
        def one(path: str, name: str, value: Any) -> Any:
            full = f"{path}/{name}"
            if self._ignore and re.match(self._ignore, full):
                return value
            return function(full.replace("/", "__").replace("~", tilde), value)

        return map_values(one, tree)


class EMAParamsTree(_Tree):
    """A moving average of each parameter of a tree."""

    def __init__(
        self,
        decay: Any,
        zero_debias: bool = True,
        warmup_length: int = 0,
        ignore_regex: str = "",
        name: str | None = None,
    ):
        super().__init__(ignore_regex, name)
        self._options = (decay, zero_debias, warmup_length)

    def __call__(self, tree: Any, update_stats: bool = True) -> Any:
        def average(name: str, value: Any) -> Any:
            return ExponentialMovingAverage(*self._options, name=name)(value, update_stats)

        return self._map(average, tree, "_tilde_")


class SNParamsTree(_Tree):
    """Each parameter of a tree divided by its largest singular value."""

    def __init__(self, eps: float = 1e-4, n_steps: int = 1, ignore_regex: str = "", name: str | None = None):
        super().__init__(ignore_regex, name)
        self._options = (eps, n_steps)

    def __call__(self, tree: Any, update_stats: bool = True) -> Any:
        def divide(name: str, value: Any) -> Any:
            return SpectralNorm(*self._options, name=name)(value, update_stats)

        return self._map(divide, tree, "_tilde")
