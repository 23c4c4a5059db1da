"""Derivatives of the incomplete gamma function in its first argument over lanes, in float64."""

from __future__ import annotations

from weft.compiler.target.math.density import gamma_exponent
from weft.compiler.target.math.gamma import digamma
from weft.compiler.target.math.hurwitz import positive_zeta
from weft.compiler.target.math.iteration import call_in_double, repeat
from weft.compiler.target.math.logarithm import log
from weft.compiler.target.math.power import exp_pair
from weft.compiler.target.math.term import Term
from weft.primitives.elementwise.gamma_derivatives import derivative


class TermFunctions:
    """Functions over lanes that `derivative` needs."""

    log = staticmethod(log)
    digamma = staticmethod(digamma)
    repeat = staticmethod(repeat)

    def zeta(self, s: int, x: Term) -> Term:
        return positive_zeta(x.of(s), x)

    def density(self, a: Term, x: Term) -> Term:
        pair, factor = gamma_exponent(a, x)
        return exp_pair(*pair) * factor * a / x


def igamma_derivative(a: Term, x: Term, order: int) -> Term:
    """Compute the derivative of this `order` of the lower function in a."""
    return call_in_double(f"igamma_derivative.{order}", lambda a, x: derivative(TermFunctions(), a, x, order), a, x)


def random_gamma_grad(a: Term, x: Term) -> Term:
    """Compute the negative first derivative divided by the density."""
    return call_in_double("random_gamma_grad", lambda a, x: -derivative(TermFunctions(), a, x, 1, relative=True), a, x)
