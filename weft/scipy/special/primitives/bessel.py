"""Modified Bessel functions of order 0 and 1, without the scale that keeps them finite."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import lax, numpy as wnp
from weft.base.lazy import lazy
from weft.ir.primitive import Sample, primitive
from weft.primitives.elementwise.scalar import precise, unit_ramp
from weft.scipy.special.primitives.defined import DefinedFunction
from weft.trace.array import Array

special = lazy("scipy.special")


class BesselFunction(DefinedFunction):
    """Modified Bessel function of the first kind."""

    def samples(self) -> Any:
        yield Sample(unit_ramp(3, 2))
        yield Sample(np.array([-20, 0, 5, 89, 91, 100, -np.inf, np.nan], np.float32), differentiable=False)


def _unscale(scaled: Array, x: Array) -> Array:
    """Multiply by exp(|x|) in two steps: the factor may overflow where the product does not."""
    root = wnp.exp(abs(x) / 2)
    return wnp.where(abs(x) == np.inf, wnp.copysign(np.inf, scaled), scaled * root * root)


@primitive
class bessel_i0(BesselFunction):
    """Modified Bessel function of order 0."""

    @precise
    def eval(x: Any) -> Any:
        return np.where(np.isinf(x), np.inf, special.i0(x))

    def compute(self, x: Array) -> Array:
        return _unscale(lax.bessel_i0e(x), x)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return tangent * bessel_i1(x)


@primitive
class bessel_i1(BesselFunction):
    """Modified Bessel function of order 1."""

    @precise
    def eval(x: Any) -> Any:
        return np.where(np.isinf(x), x, special.i1(x))

    def compute(self, x: Array) -> Array:
        return wnp.where(wnp.isinf(x), x, _unscale(lax.bessel_i1e(x), x))

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        at_zero = x == 0  # I1(x)/x tends to 1/2 there
        ratio = wnp.where(at_zero, wnp.full_like(x, 0.5), out / wnp.where(at_zero, wnp.ones_like(x), x))
        return tangent * (bessel_i0(x) - ratio)
