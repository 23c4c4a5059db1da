"""Line search for a step that satisfies the strong Wolfe conditions: bracket it, then narrow the bracket down (Nocedal
and Wright, Numerical Optimization, algorithms 3.5 and 3.6).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft import lax
from weft.base import dtypes, tree

DECREASE = 1e-4  # fraction of the decrease predicted by the derivative that the value must reach
CURVATURE = 0.9  # fraction of the derivative that may be left


class Sample(NamedTuple):
    """Evaluation of a step: value there, derivative along the direction, gradient."""

    step: Any
    value: Any
    derivative: Any
    gradient: Any


class Bracket(NamedTuple):
    """Between `low`, the best step so far, and `high` there are good steps, once it is `closed`."""

    low: Sample
    high: Sample
    recent: Sample  # the end that was replaced last
    closed: Any
    accepted: Any  # `low` is good
    count: Any


def choose(condition: Any, a: Any, b: Any) -> Any:
    """Select one of two trees by a scalar condition."""
    return tree.map(lambda x, y: lax.select(lax.broadcast(condition, x.shape), x, y), a, b)


def line_search(
    evaluate: Callable[[Any], Sample], start: Sample, first_step: Any, maxiter: Any
) -> tuple[Sample, Any, Any]:
    """Search for a step that satisfies the strong Wolfe conditions. Return the best step found, which may be `start`,
    the number of evaluations, and whether the bracket was closed.
    """
    slack = np.asarray(4 * float(dtypes.finfo(start.value.dtype).eps), start.value.dtype) * lax.abs(start.value)

    def too_high(sample: Sample) -> Any:
        # Near a minimum differences of values are rounding errors, which must not keep a good derivative from counting.
        enough = start.value + DECREASE * sample.step * start.derivative + slack
        return ~(sample.value <= enough)  # also of NaN

    def good(sample: Sample) -> Any:
        return lax.abs(sample.derivative) <= -CURVATURE * start.derivative

    def open_bracket(state: tuple[Bracket, Any]) -> tuple[Bracket, Any]:
        bracket, step = state
        new = evaluate(step)
        beyond = too_high(new) | ((new.value >= bracket.low.value + slack) & (bracket.count > 0))
        accepted = ~beyond & good(new)
        rising = ~beyond & ~accepted & (new.derivative >= 0)
        high = choose(beyond, new, bracket.low)
        low = choose(beyond, bracket.low, new)
        return Bracket(low, high, high, beyond | rising, accepted, bracket.count + 1), step + step

    def needs_bracket(state: tuple[Bracket, Any]) -> Any:
        bracket, step = state
        return ~bracket.closed & ~bracket.accepted & (bracket.count < maxiter) & lax.is_finite(step)

    first = Bracket(start, start, start, np.zeros((), bool), np.zeros((), bool), np.zeros((), np.int32))
    bracket, _ = lax.while_loop(needs_bracket, open_bracket, (first, first_step))

    def narrow(state: tuple[Bracket, Any]) -> tuple[Bracket, Any]:
        bracket, k = state
        low, high = bracket.low, bracket.high
        new = evaluate(_inside(bracket, k))
        worse = too_high(new) | (new.value >= low.value + slack)
        accepted = ~worse & good(new)
        crossed = ~worse & (new.derivative * (high.step - low.step) >= 0)
        new_high = choose(worse, new, choose(crossed, low, high))
        recent = choose(worse | crossed, high, low)
        return Bracket(choose(worse, low, new), new_high, recent, bracket.closed, accepted, bracket.count + 1), k + 1

    def wide(state: tuple[Bracket, Any]) -> Any:
        bracket, k = state
        eps = np.asarray(float(dtypes.finfo(start.value.dtype).eps), start.value.dtype)
        width = lax.abs(bracket.high.step - bracket.low.step)
        open_still = width > eps * lax.max(lax.abs(bracket.high.step), lax.abs(bracket.low.step))
        return bracket.closed & ~bracket.accepted & (k < maxiter) & open_still

    bracket, _ = lax.while_loop(wide, narrow, (bracket, np.zeros((), np.int32)))
    return bracket.low, bracket.count, bracket.closed


def _inside(bracket: Bracket, k: Any) -> Any:
    """Choose the next step to try: the minimum of a cubic through the samples, else of a parabola, else the middle,
    whichever first lies well inside the bracket.
    """
    low, high, recent = bracket.low, bracket.high, bracket.recent
    width = high.step - low.step
    smallest, largest = lax.min(low.step, high.step), lax.max(low.step, high.step)

    def within(step: Any, margin: float) -> Any:
        room = margin * lax.abs(width)
        return (step > smallest + room) & (step < largest - room)  # not of NaN

    quadratic = low.step - low.derivative * width * width / (2 * (high.value - low.value - low.derivative * width))
    # value = low + derivative * d + b d² + a d³ through both other samples
    one, other = high.step - low.step, recent.step - low.step
    rest_one = high.value - low.value - low.derivative * one
    rest_other = recent.value - low.value - low.derivative * other
    below = one * one * other * other * (one - other)
    a = (other * other * rest_one - one * one * rest_other) / below
    b = (one * one * one * rest_other - other * other * other * rest_one) / below
    cubic = low.step + (lax.sqrt(lax.max(b * b - 3 * a * low.derivative, lax.full_like(b, 0))) - b) / (3 * a)
    middle = (smallest + largest) * 0.5
    step = lax.select(within(quadratic, 0.1), quadratic, middle)
    return lax.select((k > 0) & within(cubic, 0.2), cubic, step)
