"""The zoom line search, for steps that satisfy the strong Wolfe conditions: enough decrease and a flat slope.

First the step grows until an interval contains such a step; then interpolation narrows the interval (Nocedal and
Wright, Numerical Optimization, algorithms 3.5 and 3.6). Where rounding hides the exact decrease, the approximate
condition of Hager and Zhang applies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft import Array, lax
from weft.errors import ArgumentError
from weft.optim.base import GradientTransformationExtraArgs, Params, Updates
from weft.optim.linesearch.common import (
    arguments_for,
    cast_like,
    check_scalar,
    in_dtype,
    scalar_dtype,
    scale_updates,
)
from weft.optim.tree_utils.arithmetic import accumulator_dtype, tree_add_scale, tree_conj, tree_vdot, tree_zeros_like


class ZoomLinesearchInfo(NamedTuple):
    """The number of steps tried, and how much the last one violates the decrease and curvature conditions."""

    num_linesearch_steps: Array
    decrease_error: Array
    curvature_error: Array


class ScaleByZoomLinesearchState(NamedTuple):
    """The last step size, and the objective and its gradient there."""

    learning_rate: Array
    value: Array
    grad: Updates
    info: ZoomLinesearchInfo


class Point(NamedTuple):
    """A step size with the objective, its derivative along the line and its gradient there."""

    rate: Any
    value: Any
    derivative: Any
    grad: Any


class Search(NamedTuple):
    """The state of the search: `current` was tried last, `guess` is tried next, `low` is the better end of the interval
    and `high` the other, `safe` decreased the objective enough."""

    count: Any
    zooming: Any
    done: Any
    failed: Any
    guess: Any
    current: Point
    low: Point
    high: Point
    third: tuple[Any, Any]
    safe: Point


def _choose(condition: Any, yes: Any, no: Any) -> Any:
    return weft.tree.map(lambda a, b: wnp.where(condition, a, b), yes, no)


def cubic_minimum(a: Any, fa: Any, da: Any, b: Any, fb: Any, c: Any, fc: Any) -> Any:
    """Return the minimum of the cubic through (a, fa) with derivative da, (b, fb) and (c, fc), or NaN."""
    db, dc = b - a, c - a
    scale = (db * dc) ** 2 * (db - dc)
    rest_b, rest_c = fb - fa - da * db, fc - fa - da * dc
    cubic = (dc**2 * rest_b - db**2 * rest_c) / scale
    square = (-(dc**3) * rest_b + db**3 * rest_c) / scale
    return a + (-square + wnp.sqrt(square * square - 3.0 * cubic * da)) / (3.0 * cubic)


def quadratic_minimum(a: Any, fa: Any, da: Any, b: Any, fb: Any) -> Any:
    """Return the minimum of the parabola through (a, fa) with derivative da and (b, fb)."""
    distance = b - a
    curvature = (fb - fa - da * distance) / (distance**2)
    return a - da / (2.0 * curvature)


def _inside(low: Point, high: Point, third: tuple[Any, Any]) -> Any:
    """Return a step between the ends, not too close to either: the minimum of a cubic, else of a parabola, else the
    middle.
    """
    left, right = wnp.minimum(low.rate, high.rate), wnp.maximum(low.rate, high.rate)
    width = right - left
    cubic = cubic_minimum(low.rate, low.value, low.derivative, high.rate, high.value, *third)
    parabola = quadratic_minimum(low.rate, low.value, low.derivative, high.rate, high.value)
    # Comparisons with NaN are false, so an undefined minimum is not used.
    use_cubic = (cubic > left + 0.2 * width) & (cubic < right - 0.2 * width)
    use_parabola = (parabola > left + 0.1 * width) & (parabola < right - 0.1 * width)
    return wnp.where(use_cubic, cubic, wnp.where(use_parabola, parabola, (left + right) / 2.0))


@dataclass(frozen=True)
class _Rules:
    """Conditions on the step size along a direction in which the objective starts at `value` with `derivative`."""

    value: Any
    derivative: Any
    tol: Any
    increase_factor: Any
    max_learning_rate: Any
    slope_rtol: Any
    curv_rtol: Any
    approx_dec_rtol: Any
    stepsize_precision: Any

    def decrease_error(self, point: Point) -> Any:
        """Return the missing decrease of the objective."""
        exact = point.value - self.value - self.slope_rtol * point.rate * self.derivative
        if self.approx_dec_rtol is not None:
            flat = point.derivative - (2 * self.slope_rtol - 1.0) * self.derivative
            near = point.value - self.value - self.approx_dec_rtol * wnp.abs(self.value)
            exact = wnp.minimum(exact, wnp.maximum(flat, near))
        return wnp.where(wnp.isnan(exact), wnp.inf, wnp.maximum(exact, 0.0))

    def curvature_error(self, point: Point) -> Any:
        """Return the excess slope of the objective."""
        excess = wnp.abs(point.derivative) - self.curv_rtol * wnp.abs(self.derivative)
        return wnp.where(wnp.isnan(excess), wnp.inf, wnp.maximum(excess, 0.0))

    def growing(self, search: Search, point: Point) -> Search:
        """Search for an interval: increase the step until it overshoots."""
        error = self.decrease_error(point)
        enough = error <= self.tol
        higher = (point.value >= search.low.value) & (search.count > 0)
        overshot = (error > 0.0) | higher
        done = enough & (self.curvature_error(point) <= self.tol)
        uphill = point.derivative >= 0
        low = _choose(overshot, search.low, point)
        high = _choose(overshot, point, search.low)
        longer = point.rate * self.increase_factor
        at_most = False
        if self.max_learning_rate is not None:
            # Enough decrease at the largest allowed step: accept it without the curvature condition.
            at_most = (point.rate >= self.max_learning_rate) & ~overshot & ~uphill
            longer = wnp.minimum(longer, self.max_learning_rate)
        zooming = overshot | uphill
        third = (high.rate, high.value)
        guess = wnp.where(zooming, _inside(low, high, third), longer)
        safe = _choose(enough, point, search.safe)
        return Search(search.count + 1, zooming & ~done, done | at_most, wnp.array(False), guess, point,
                      low, high, third, safe)  # fmt: skip

    def narrowing(self, search: Search, point: Point) -> Search:
        """Keep the half of the interval that contains a good step."""
        error = self.decrease_error(point)
        enough = error <= self.tol
        worse = (error > 0.0) | (point.value >= search.low.value)
        done = enough & (self.curvature_error(point) <= self.tol)
        opposite = point.derivative * (search.high.rate - search.low.rate) >= 0.0
        high = _choose(worse, point, _choose(opposite, search.low, search.high))
        low = _choose(worse, search.low, point)
        replaced = _choose(worse | opposite, search.high, search.low)
        third = (replaced.rate, replaced.value)
        guess = _inside(low, high, third)
        safe = _choose(enough & (point.value < search.safe.value), point, search.safe)
        # Very steep objectives need steps far below the precision: continue until one decreases enough.
        narrow = wnp.abs(search.high.rate - search.low.rate) <= self.stepsize_precision
        failed = ~done & narrow & (safe.rate > 0.0)
        return Search(search.count + 1, wnp.array(True), done, failed, guess, point, low, high, third, safe)


def _search(rules: _Rules, at: Callable[[Any], Point], origin: Point, start_rate: Any, most_steps: int) -> Search:
    """Run the search from the step size `start_rate`; `at` returns the point of a step size."""

    def step(search: Search) -> Search:
        point = at(search.guess)
        return _choose(search.zooming, rules.narrowing(search, point), rules.growing(search, point))

    def is_undecided(search: Search) -> Any:
        return ~search.done & ~search.failed & (search.count < most_steps)

    false = wnp.array(False)
    begin = Search(wnp.zeros((), wnp.int32), false, false, false, start_rate, origin, origin, origin,
                   (origin.rate, origin.value), origin)  # fmt: skip
    return lax.while_loop(is_undecided, step, begin)


def scale_by_zoom_linesearch(
    max_linesearch_steps: int,
    max_learning_rate: float | None = None,
    tol: float = 0.0,
    increase_factor: float = 2.0,
    slope_rtol: float = 1e-4,
    curv_rtol: float = 0.9,
    approx_dec_rtol: float | None = 1e-6,
    stepsize_precision: float = 1e-5,
    initial_guess_strategy: str = "keep",
    verbose: bool = False,
) -> GradientTransformationExtraArgs:
    """Rescale updates to `lr * u`, with lr that satisfies the strong Wolfe conditions.

    They are `f(p + lr u) <= f(p) + slope_rtol * lr * u.g` and `|derivative there| <= curv_rtol * |u.g|`.

    The first guess is the last step size ("keep") or 1 ("one"). update needs `value`, `grad` and `value_fn`, and passes
    the extra arguments that `value_fn` takes.

    Args:
        max_linesearch_steps: the most evaluations of the function.
        max_learning_rate: the largest step size; None for any.
        tol: the largest accepted violation of the conditions.
        increase_factor: the factor between guesses while the interval grows.
        slope_rtol: the required decrease, relative to the derivative.
        curv_rtol: the largest accepted derivative, relative to the initial one.
        approx_dec_rtol: the precision to which equal values count as a decrease.
        stepsize_precision: the smallest interval.
        initial_guess_strategy: "keep" or "one".
        verbose: whether to print the result.

    Returns:
        A `GradientTransformationExtraArgs`.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> solver = optim.chain(optim.sgd(1.0), optim.scale_by_zoom_linesearch(10))
    >>> len(solver.init(wnp.ones(2)))
    2
    """
    where = "scale_by_zoom_linesearch"
    if initial_guess_strategy not in ("keep", "one"):
        raise ArgumentError(f'initial_guess_strategy must be "keep" or "one", got {initial_guess_strategy!r}')

    def init(params: Params) -> ScaleByZoomLinesearchState:
        one = wnp.ones((), scalar_dtype(params))
        info = ZoomLinesearchInfo(wnp.zeros((), wnp.int32), one * wnp.inf, one * wnp.inf)
        return ScaleByZoomLinesearchState(one, one * wnp.inf, tree_zeros_like(params), info)

    def update(
        updates: Updates,
        state: ScaleByZoomLinesearchState,
        params: Params | None = None,
        *,
        value: Any = None,
        grad: Any = None,
        value_fn: Callable[..., Any] | None = None,
        **extra_args: Any,
    ) -> Any:
        check_scalar(where, value_fn, value, grad, params)
        assert value_fn is not None
        fn_args = arguments_for(where, value_fn, extra_args)
        both = weft.value_and_grad(lambda point: value_fn(point, **fn_args))
        dtype = accumulator_dtype(params)
        scalar = lambda x: in_dtype(x, dtype)
        # For complex parameters `grad` is the conjugate of weft.grad, as optimizers expect it.
        derivative = scalar(tree_vdot(updates, grad))

        def at(rate: Any) -> Point:
            new_value, new_grad = both(tree_add_scale(params, rate, updates))
            return Point(rate, scalar(new_value), scalar(tree_vdot(tree_conj(new_grad), updates)), new_grad)

        start_rate = scalar(1.0 if initial_guess_strategy == "one" else state.learning_rate)
        most = None if max_learning_rate is None else scalar(max_learning_rate)
        if most is not None:
            start_rate = wnp.minimum(start_rate, most)
        origin = Point(wnp.zeros_like(start_rate), scalar(value), derivative, cast_like(grad, params))
        rules = _Rules(
            origin.value, derivative, scalar(tol), scalar(increase_factor), most, scalar(slope_rtol),
            scalar(curv_rtol), None if approx_dec_rtol is None else scalar(approx_dec_rtol), scalar(stepsize_precision),
        )  # fmt: skip
        search = _search(rules, at, origin, start_rate, max_linesearch_steps)
        # After a failure: a step with enough decrease, else the last one tried if its value is finite.
        retreat = (search.safe.rate > 0.0) | wnp.isinf(rules.decrease_error(search.current))
        found = _choose(~search.done & retreat, search.safe, search.current)
        info = ZoomLinesearchInfo(search.count, rules.decrease_error(found), rules.curvature_error(found))
        if verbose:
            weft.debug.print(
                "zoom: {} steps, step size {}, value {}, errors {} and {}",
                info.num_linesearch_steps, found.rate, found.value, info.decrease_error, info.curvature_error,
            )  # fmt: skip
        new = ScaleByZoomLinesearchState(found.rate, found.value, found.grad, info)
        return scale_updates(found.rate, updates), cast_like(new, state)

    return GradientTransformationExtraArgs(init, update)
