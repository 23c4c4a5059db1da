"""Transformations with elementwise step sizes from averages of gradients: Adam and its relatives."""

from __future__ import annotations

from typing import Any, NamedTuple

import weft
import weft.numpy as wnp
from weft import Array
from weft.errors import ArgumentError
from weft.optim.argument_docs import document
from weft.optim.base import GradientTransformation, Params, Updates
from weft.optim.numerics import abs_sq, safe_increment
from weft.optim.tree_mapping import map_trees
from weft.optim.tree_utils.arithmetic import tree_full_like, tree_zeros_like
from weft.optim.tree_utils.moments import correction, like, moving_average


class ScaleByAdamState(NamedTuple):
    """Number of steps taken, the average of gradients and that of their squares.

    Args:
        count: the number of steps.
        mu: the average of gradients.
        nu: the average of their squares.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> optim.scale_by_adam().init(wnp.ones(2)).mu
    Array([0., 0.], dtype=float32)
    """

    count: Array  # type: ignore[assignment]
    mu: Updates
    nu: Updates


class ScaleByAmsgradState(NamedTuple):
    """The fields of Adam's state, and the largest corrected `nu` so far."""

    count: Array  # type: ignore[assignment]
    mu: Updates
    nu: Updates
    nu_max: Updates


class ScaleByBeliefState(NamedTuple):
    """The fields of Adam's state, where `nu` averages the squared difference of gradient and `mu`."""

    count: Array  # type: ignore[assignment]
    mu: Updates
    nu: Updates


class ScaleByLionState(NamedTuple):
    """Number of steps taken and the average of gradients."""

    count: Array  # type: ignore[assignment]
    mu: Updates


class ScaleByAdanState(NamedTuple):
    """Averages of gradients, of their differences and of squares, the last gradient, and steps taken."""

    m: Updates
    v: Updates
    n: Updates
    g: Updates
    t: Array


def zero_count() -> Array:
    """Return a counter of zero."""
    return wnp.zeros((), wnp.int32)


def in_dtype(leaf: Any, dtype: Any) -> Any:
    """Cast a leaf to a dtype, or return it unchanged if that is None."""
    return leaf if dtype is None or leaf.dtype == dtype else leaf.astype(dtype)


def plus(x: Any, eps: Any) -> Any:
    """Return `x + eps`, without an operation if eps is the number 0."""
    return x if isinstance(eps, int | float) and eps == 0 else x + eps


class Corrections:
    """Bias corrections of a step, cast once per dtype instead of once per leaf."""

    def __init__(self, decay: Any, count: Any) -> None:
        self.value = correction(decay, count)
        self.cast: dict[Any, Any] = {}

    def __call__(self, moment: Any) -> Any:
        """Return `moment / (1 - decay**count)` in the dtype of the moment."""
        if moment.dtype not in self.cast:
            self.cast[moment.dtype] = like(self.value, moment)
        return moment / self.cast[moment.dtype]


class FirstMoment:
    """The corrected average of gradients of a step, with Nesterov's look-ahead if requested."""

    def __init__(self, b1: Any, count: Any, nesterov: bool) -> None:
        self.b1, self.nesterov = b1, nesterov
        self.now = Corrections(b1, count)
        self.next = Corrections(b1, safe_increment(count)) if nesterov else self.now

    def __call__(self, g: Any, m: Any) -> Any:
        if self.nesterov:
            return self.b1 * self.next(m) + (1 - self.b1) * self.now(g)
        return self.now(m)


@document("A `GradientTransformation`.", mu_dtype="the dtype of the average of gradients.")
def scale_by_adam(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """Rescale updates to `m / (sqrt(v + eps_root) + eps)`, with m and v the corrected averages of g and g^2.

    >>> import weft.numpy as wnp
    >>> from weft import optim
    >>> transform = optim.scale_by_adam()
    >>> params = wnp.array([1.0, 2.0])
    >>> updates, state = transform.update(wnp.array([0.5, -1.0]), transform.init(params), params)
    >>> updates.round(3)
    Array([ 1., -1.], dtype=float32)
    """

    def init(params: Params) -> ScaleByAdamState:
        return ScaleByAdamState(zero_count(), tree_zeros_like(params, mu_dtype), tree_zeros_like(params))

    def update(updates: Updates, state: ScaleByAdamState, params: Params | None = None) -> Any:
        count = safe_increment(state.count)
        first, second = FirstMoment(b1, count, nesterov), Corrections(b2, count)

        def leaf(g: Any, m: Any, v: Any) -> tuple[Any, ...]:
            m = moving_average(g, m, b1)
            v = moving_average(abs_sq(g), v, b2)
            return first(g, m) / plus(wnp.sqrt(plus(second(v), eps_root)), eps), in_dtype(m, mu_dtype), v

        new, mu, nu = map_trees("scale_by_adam", leaf, results=3, updates=updates, mu=state.mu, nu=state.nu)
        return new, ScaleByAdamState(count, mu, nu)

    return GradientTransformation(init, update)


def scale_by_amsgrad(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    mu_dtype: Any = None,
    bias_correction_mu: bool = True,
    bias_correction_nu: bool = True,
) -> GradientTransformation:
    """Rescale updates as Adam, with the largest v so far in place of v."""

    def init(params: Params) -> ScaleByAmsgradState:
        zeros = tree_zeros_like(params)
        return ScaleByAmsgradState(zero_count(), tree_zeros_like(params, mu_dtype), zeros, zeros)

    def update(updates: Updates, state: ScaleByAmsgradState, params: Params | None = None) -> Any:
        count = safe_increment(state.count)
        first, second = Corrections(b1, count), Corrections(b2, count)

        def leaf(g: Any, m: Any, v: Any, largest: Any) -> tuple[Any, ...]:
            m = moving_average(g, m, b1)
            v = moving_average(abs_sq(g), v, b2)
            largest = wnp.maximum(largest, second(v) if bias_correction_nu else v)
            step = (first(m) if bias_correction_mu else m) / plus(wnp.sqrt(plus(largest, eps_root)), eps)
            return step, in_dtype(m, mu_dtype), v, largest

        moments = {"mu": state.mu, "nu": state.nu, "nu_max": state.nu_max}
        new, mu, nu, nu_max = map_trees("scale_by_amsgrad", leaf, results=4, updates=updates, **moments)
        return new, ScaleByAmsgradState(count, mu, nu, nu_max)

    return GradientTransformation(init, update)


def scale_by_adamax(b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> GradientTransformation:
    """Rescale updates to `m / v`, with v the decaying maximum of `|g| + eps`."""

    def init(params: Params) -> ScaleByAdamState:
        return ScaleByAdamState(zero_count(), tree_zeros_like(params), tree_zeros_like(params))

    def update(updates: Updates, state: ScaleByAdamState, params: Params | None = None) -> Any:
        count = safe_increment(state.count)
        first = Corrections(b1, count)

        def leaf(g: Any, m: Any, v: Any) -> tuple[Any, ...]:
            m = moving_average(g, m, b1)
            v = wnp.maximum(wnp.abs(g) + eps, b2 * v)
            return first(m) / v, m, v

        new, mu, nu = map_trees("scale_by_adamax", leaf, results=3, updates=updates, mu=state.mu, nu=state.nu)
        return new, ScaleByAdamState(count, mu, nu)

    return GradientTransformation(init, update)


def scale_by_belief(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-16, eps_root: float = 1e-16, *, nesterov: bool = False
) -> GradientTransformation:
    """Rescale updates as Adam, with `(g - m)^2` in place of g^2: large steps where gradients are predictable."""

    def init(params: Params) -> ScaleByBeliefState:
        return ScaleByBeliefState(zero_count(), tree_zeros_like(params), tree_zeros_like(params))

    def update(updates: Updates, state: ScaleByBeliefState, params: Params | None = None) -> Any:
        count = safe_increment(state.count)
        first, second = FirstMoment(b1, count, nesterov), Corrections(b2, count)

        def leaf(g: Any, before: Any, v: Any) -> tuple[Any, ...]:
            m = moving_average(g, before, b1)
            v = plus(moving_average(abs_sq(g - m), v, b2), eps_root)
            return first(g, m) / plus(wnp.sqrt(second(v)), eps), m, v

        new, mu, nu = map_trees("scale_by_belief", leaf, results=3, updates=updates, mu=state.mu, nu=state.nu)
        return new, ScaleByBeliefState(count, mu, nu)

    return GradientTransformation(init, update)


def scale_by_yogi(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-3,
    eps_root: float = 0.0,
    initial_accumulator_value: float = 1e-6,
) -> GradientTransformation:
    """Rescale updates as Adam, with the additive second moment `v - (1 - b2) * sign(v - g^2) * g^2`."""

    def init(params: Params) -> ScaleByAdamState:
        start = tree_full_like(params, initial_accumulator_value)
        return ScaleByAdamState(zero_count(), start, start)

    def update(updates: Updates, state: ScaleByAdamState, params: Params | None = None) -> Any:
        count = safe_increment(state.count)
        first, second = Corrections(b1, count), Corrections(b2, count)

        def leaf(g: Any, m: Any, v: Any) -> tuple[Any, ...]:
            m = moving_average(g, m, b1)
            square = abs_sq(g)
            v = v - (1 - b2) * wnp.sign(v - square) * square
            return first(m) / plus(wnp.sqrt(plus(second(v), eps_root)), eps), m, v

        new, mu, nu = map_trees("scale_by_yogi", leaf, results=3, updates=updates, mu=state.mu, nu=state.nu)
        return new, ScaleByAdamState(count, mu, nu)

    return GradientTransformation(init, update)


def scale_by_radam(
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    threshold: float = 5.0,
    *,
    nesterov: bool = False,
) -> GradientTransformation:
    """Rescale updates as Adam, with m alone until the variance of v is small, and a correction factor after."""
    longest = 2.0 / (1.0 - b2) - 1.0

    def init(params: Params) -> ScaleByAdamState:
        return ScaleByAdamState(zero_count(), tree_zeros_like(params), tree_zeros_like(params))

    def update(updates: Updates, state: ScaleByAdamState, params: Params | None = None) -> Any:
        count = safe_increment(state.count)
        decayed = wnp.asarray(b2) ** count
        length = longest - 2 * count * decayed / (1 - decayed)
        # The length of the average v; below the threshold the square root would have a negative argument.
        trusted = length >= threshold
        safe = wnp.where(trusted, length, wnp.maximum(threshold, 5.0))
        shape = (safe - 4.0) * (safe - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * safe)
        factor = wnp.sqrt(shape)
        first, second = FirstMoment(b1, count, nesterov), Corrections(b2, count)

        def leaf(g: Any, m: Any, v: Any) -> tuple[Any, ...]:
            m = moving_average(g, m, b1)
            v = moving_average(abs_sq(g), v, b2)
            mean = first(g, m)
            scaled = factor.astype(v.dtype) * mean / plus(wnp.sqrt(plus(second(v), eps_root)), eps)
            return wnp.where(trusted, scaled, mean), m, v

        new, mu, nu = map_trees("scale_by_radam", leaf, results=3, updates=updates, mu=state.mu, nu=state.nu)
        return new, ScaleByAdamState(count, mu, nu)

    return GradientTransformation(init, update)


def scale_by_lion(
    b1: float = 0.9, b2: float = 0.99, mu_dtype: Any = None, *, mode: str = "hard", smooth_beta: float = 1.0
) -> GradientTransformation:
    """Rescale updates to `sign(b1 * m + (1 - b1) * g)`; then m follows g with decay b2.

    `mode`: "hard" is the sign, "smooth" is tanh(smooth_beta * x), "refined" is x up to size 1 and the sign beyond.
    """
    signs = {
        "hard": wnp.sign,
        "smooth": lambda x: wnp.tanh(smooth_beta * x),
        "refined": lambda x: wnp.clip(x, -1.0, 1.0),
    }
    if mode not in signs:
        raise ArgumentError(f"mode of scale_by_lion is one of {', '.join(signs)}, got {mode!r}")
    sign = signs[mode]

    def init(params: Params) -> ScaleByLionState:
        return ScaleByLionState(zero_count(), tree_zeros_like(params, mu_dtype))

    def update(updates: Updates, state: ScaleByLionState, params: Params | None = None) -> Any:
        leaf = lambda g, m: (sign(moving_average(g, m, b1)), in_dtype(moving_average(g, m, b2), mu_dtype))
        new, mu = map_trees("scale_by_lion", leaf, results=2, updates=updates, mu=state.mu)
        return new, ScaleByLionState(safe_increment(state.count), mu)

    return GradientTransformation(init, update)


def scale_by_adan(
    b1: float = 0.98, b2: float = 0.92, b3: float = 0.99, eps: float = 1e-8, eps_root: float = 0.0
) -> GradientTransformation:
    """Rescale updates to `(m + (1 - b2) v) / (sqrt(n + eps_root) + eps)`.

    m, v and n are averages of g, of its change d, and of (g + (1 - b2) d)^2.
    """

    def init(params: Params) -> ScaleByAdanState:
        zeros = tree_zeros_like(params)
        return ScaleByAdanState(zeros, zeros, zeros, zeros, zero_count())

    def update(updates: Updates, state: ScaleByAdanState, params: Params | None = None) -> Any:
        count = safe_increment(state.t)
        first, second, third = Corrections(b1, count), Corrections(b2, count), Corrections(b3, count)
        is_first = state.t == 0

        def leaf(g: Any, m: Any, v: Any, n: Any, before: Any) -> tuple[Any, ...]:
            change = wnp.where(is_first, wnp.zeros_like(g), g - before)
            m = moving_average(g, m, b1)
            v = moving_average(change, v, b2)
            n = moving_average(abs_sq(g + (1 - b2) * change), n, b3)
            step = (first(m) + (1 - b2) * second(v)) / plus(wnp.sqrt(plus(third(n), eps_root)), eps)
            return step, m, v, n

        moments = {"m": state.m, "v": state.v, "n": state.n, "g": state.g}
        new, m, v, n = map_trees("scale_by_adan", leaf, results=4, updates=updates, **moments)
        return new, ScaleByAdanState(m, v, n, updates, count)

    return GradientTransformation(init, update)


class ScaleByNovogradState(NamedTuple):
    """Number of steps taken, the average of normalized gradients, and the average of squared norms of each leaf."""

    count: Array  # type: ignore[assignment]
    mu: Updates
    nu: Updates


def scale_by_novograd(
    b1: float = 0.9,
    b2: float = 0.25,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    weight_decay: float = 0.0,
    mu_dtype: Any = None,
) -> GradientTransformation:
    """Accumulate `m = b1 * m + g / (sqrt(v + eps_root) + eps) + weight_decay * p`, with v the average of the leaf's
    ||g||^2.
    """

    def init(params: Params) -> ScaleByNovogradState:
        norms = weft.tree.map(lambda p: wnp.zeros_like(p, shape=()), params)
        return ScaleByNovogradState(zero_count(), tree_zeros_like(params, mu_dtype), norms)

    def update(updates: Updates, state: ScaleByNovogradState, params: Params | None = None) -> Any:
        count = safe_increment(state.count)
        is_first = state.count == 0
        decays = not (isinstance(weight_decay, int | float) and weight_decay == 0)
        trees = {"updates": updates, "mu": state.mu, "nu": state.nu}
        if decays or params is not None:
            trees["params"] = params

        def leaf(g: Any, m: Any, v: Any, p: Any = None) -> tuple[Any, ...]:
            norm = wnp.sum(abs_sq(g))
            v = wnp.where(is_first, norm, (1 - b2) * norm + b2 * v)
            step = g / plus(wnp.sqrt(plus(v, eps_root)), eps).astype(g.dtype)
            if decays:
                step = step + weight_decay * p
            m = wnp.where(is_first, step, b1 * m + step)
            return m, in_dtype(m, mu_dtype), v

        new, mu, nu = map_trees("scale_by_novograd", leaf, results=3, same_shapes=False, **trees)
        return new, ScaleByNovogradState(count, mu, nu)

    return GradientTransformation(init, update)
