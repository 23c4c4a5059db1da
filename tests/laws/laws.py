"""Laws for any flat function of arrays, independent of primitives and jaxprs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tests.laws.samples import concrete, is_inexact
from weft.base import dtypes
from weft.ir.interpreter import replay
from weft.ir.primitive import Axis
from weft.ir.tangents import instantiate
from weft.ir.types import get_aval
from weft.ir.zeros import Zero
from weft.runtime.array import ConcreteArray
from weft.transforms.batch import batch_flat
from weft.transforms.jvp import jvp_flat
from weft.transforms.linearize import linearize_flat
from weft.transforms.transpose import backward_to_arrays

Flat = Callable[..., Sequence[Any]]

# Relative error of one rounding and a few more, by dtype.
TOLERANCE = {
    "float64": 1e-11,
    "complex128": 1e-11,
    "float32": 2e-5,
    "complex64": 2e-5,
    "float16": 5e-3,
    "bfloat16": 3e-2,
}
STEP = 1e-5


def numbers(value: Any) -> np.ndarray:
    """Return the NumPy array behind a concrete value."""
    return value._value if isinstance(value, ConcreteArray) else np.asarray(value)


def assert_close(actual: Any, expected: Any, tolerance: float | None = None, what: str = "") -> None:
    """Assert equal shapes, dtypes and (exactly for integers, else nearly) numbers."""
    actual, expected = numbers(actual), numbers(expected)
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, expected {expected.shape}"
    assert actual.dtype == expected.dtype, f"{what}: dtype {actual.dtype}, expected {expected.dtype}"
    if expected.dtype.names or not is_inexact(expected.dtype):
        np.testing.assert_array_equal(actual, expected, what)
        return
    limit = TOLERANCE.get(dtypes.name(expected.dtype), 0.2) if tolerance is None else tolerance
    wide = np.complex128 if dtypes.kind(expected.dtype) == "c" else np.float64
    actual, expected = actual.astype(wide), expected.astype(wide)
    finite = np.abs(expected[np.isfinite(expected)])
    scale = min(1.0, finite.max()) if finite.size else 1.0
    np.testing.assert_allclose(actual, expected, limit, limit * scale, err_msg=what)


# --------------------------------------------------------------------------------------------------------- derivatives


class Smooth:
    """Flat function of only its float and complex arguments, with only the float and complex results."""

    def __init__(self, function: Flat, arguments: Sequence[Any], tolerance: float | None = None):
        values = [concrete(a) for a in arguments]
        self.moving = [i for i, a in enumerate(values) if is_inexact(a.aval.dtype)]
        self.point = [numbers(values[i]) for i in self.moving]
        self.tolerance = 1e-5 if tolerance is None else tolerance
        self._function, self._values = function, values

    def __call__(self, *moving: Any) -> list[Any]:
        args: list[Any] = list(self._values)
        for i, x in zip(self.moving, moving, strict=True):
            args[i] = x
        return [r for r in self._function(*args) if is_inexact(get_aval(r).dtype)]

    def at(self, function: Flat, shift: Sequence[np.ndarray], step: float) -> list[np.ndarray]:
        return [
            numbers(instantiate(r))
            for r in function(*(concrete(p + step * s) for p, s in zip(self.point, shift, strict=True)))
        ]

    def numerical(self, function: Flat, direction: Sequence[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return the derivative along a direction by central differences, and a value near by."""
        after, before = self.at(function, direction, STEP), self.at(function, direction, -STEP)
        return [((a - b) / (2 * STEP), a) for a, b in zip(after, before, strict=True)]

    def directions(self, rng: np.random.Generator) -> Iterator[tuple[list[bool], list[np.ndarray]]]:
        """Yield a random direction in each argument alone, and one in all of them, with the arguments that move."""
        count = len(self.point)
        masks = [[i == j for i in range(count)] for j in range(count)]
        if count > 1:
            masks.append([True] * count)
        for mask in masks:
            yield mask, [random_like(rng, p) if m else np.zeros_like(p) for p, m in zip(self.point, mask, strict=True)]

    def assert_derivative(
        self, tangents: Sequence[Any], expected: Sequence[tuple[np.ndarray, np.ndarray]], what: str
    ) -> None:
        assert len(tangents) == len(expected)
        for i, (tangent, (gradient, value)) in enumerate(zip(tangents, expected, strict=True)):
            assert np.isfinite(gradient).all(), (
                f"the derivative does not exist at this sample: {gradient}; say differentiable=False"
            )
            tangent = numbers(instantiate(tangent))
            assert (tangent.shape, tangent.dtype) == (gradient.shape, gradient.dtype), f"{what} of result {i}"
            # Rounding errors of a difference are relative to the values that were subtracted, not the derivative; and
            # a derivative of 0 comes out as the square of the step.
            scale = max((np.abs(a).max() for a in (gradient, 1e-3 * value) if a.size), default=0.0) + 1e-4
            limit = self.tolerance
            np.testing.assert_allclose(tangent, gradient, limit, limit * scale, err_msg=f"{what} of result {i}")


def random_like(rng: np.random.Generator, array: np.ndarray) -> np.ndarray:
    result = rng.standard_normal(array.shape)
    if dtypes.kind(array.dtype) == "c":
        result = result + 1j * rng.standard_normal(array.shape)
    return np.asarray(result, array.dtype)


def input_tangents(mask: Sequence[bool], direction: Sequence[np.ndarray]) -> list[Any]:
    """Tangents for jvp: a symbolic zero where an argument does not move."""
    return [concrete(d) if m else Zero(concrete(d).aval) for m, d in zip(mask, direction, strict=True)]


def pairing(cotangents: Sequence[Any], tangents: Sequence[Any]) -> tuple[float, float]:
    """Return the real part of the sum of products, without conjugation, and the sum of magnitudes, for scale."""
    total, scale = 0.0, 0.0
    for cotangent, tangent in zip(cotangents, tangents, strict=True):
        products = numbers(cotangent) * numbers(tangent)
        total, scale = total + float(np.sum(products.real)), scale + float(np.sum(np.abs(products)))
    return total, scale


def assert_adjoint(cotangents: Any, pushed: Any, pulled: Any, tangents: Any, what: str) -> None:
    forward, scale = pairing(cotangents, pushed)
    reverse, other = pairing(pulled, tangents)
    assert abs(forward - reverse) <= 1e-9 * (scale + other + 1e-3), (
        f"{what}: <ct, Jt> = {forward} but <J'ct, t> = {reverse}"
    )


def check_jvp(function: Smooth, rng: np.random.Generator) -> None:
    """jvp is the derivative, in each argument alone and in all together."""
    for mask, direction in function.directions(rng):
        point = [concrete(p) for p in function.point]
        results, tangents = jvp_flat(function, point, input_tangents(mask, direction))
        for result, tangent in zip(results, tangents, strict=True):
            assert tangent.aval.matches(get_aval(result).tangent()), (
                f"tangent {tangent.aval} of a result {get_aval(result)}"
            )
        function.assert_derivative(tangents, function.numerical(function, direction), f"jvp along arguments {mask}")


def check_adjoint(function: Smooth, rng: np.random.Generator, flat: Flat | None = None) -> None:
    """Reverse mode is the adjoint of forward mode (of `function`, or of `flat` over the same arguments)."""
    target = function if flat is None else flat
    for mask, direction in function.directions(rng):
        point = [concrete(p) for p in function.point]
        results, tangents = jvp_flat(target, point, input_tangents(mask, direction))
        result, program, live = linearize_flat(target, point, mask)
        for one, other in zip(results, result, strict=True):
            assert_close(one, other, what="result of linearize")
        pushed = [numbers(instantiate(t)) for t, n in zip(tangents, live, strict=True) if n]
        moving = [concrete(d) for d, m in zip(direction, mask, strict=True) if m]
        for one, other in zip(replay(program, *moving), pushed, strict=True):
            assert_close(one, other, 1e-9, what="linearize against jvp")
        for tangent, n in zip(tangents, live, strict=True):
            assert n or not np.any(numbers(instantiate(tangent))), "linearize says zero where jvp does not"
        cotangents = [concrete(random_like(rng, p)) for p in pushed]
        pulled = backward_to_arrays(program, program.consts, cotangents)
        for back, forth in zip(pulled, moving, strict=True):
            assert back.aval.matches(forth.aval), f"cotangent {back.aval} for an argument {forth.aval}"
        assert_adjoint(cotangents, pushed, pulled, moving, f"arguments {mask}")


def check_second_order(function: Smooth, rng: np.random.Generator) -> None:
    """jvp of jvp is the second derivative, and reverse over forward is its adjoint."""
    direction = [concrete(random_like(rng, p)) for p in function.point]

    def derivative(*moving: Any) -> list[Any]:
        return [instantiate(t) for t in jvp_flat(function, moving, direction)[1]]

    other = [random_like(rng, p) for p in function.point]
    point = [concrete(p) for p in function.point]
    _, tangents = jvp_flat(derivative, point, [concrete(o) for o in other])
    function.assert_derivative(tangents, function.numerical(derivative, other), "second derivative")
    check_adjoint(function, rng, derivative)


def check_forward_over_reverse(function: Smooth, rng: np.random.Generator) -> None:
    """jvp of the gradient is the derivative of the gradient."""
    gradient = gradient_of(function, rng)
    point = [concrete(p) for p in function.point]
    direction = [random_like(rng, p) for p in function.point]
    _, tangents = jvp_flat(gradient, point, [concrete(d) for d in direction])
    function.assert_derivative(tangents, function.numerical(gradient, direction), "derivative of the gradient")


def gradient_of(function: Smooth, rng: np.random.Generator) -> Flat:
    """Return the pullback of fixed random cotangents, as a function of the point."""
    results, _, live = linearize_flat(function, [concrete(p) for p in function.point])
    cotangents = [concrete(random_like(rng, numbers(r))) for r, n in zip(results, live, strict=True) if n]

    def gradient(*moving: Any) -> list[Any]:
        _, linear, found = linearize_flat(function, moving)
        assert found == live
        return backward_to_arrays(linear, linear.consts, cotangents)

    gradient.cotangents = [next(remaining) if n else None for remaining in [iter(cotangents)] for n in live]  # type: ignore[attr-defined]
    return gradient


def check_pullback(function: Smooth, rng: np.random.Generator) -> None:
    """Reverse mode alone against finite differences, for functions that have no forward mode."""
    point = [concrete(p) for p in function.point]
    gradient = gradient_of(function, rng)
    pulled = gradient(*point)
    for mask, direction in function.directions(rng):
        gradients = [derivative for derivative, _ in function.numerical(function, direction)]
        pairs = [(c, s) for c, s in zip(gradient.cotangents, gradients, strict=True) if c is not None]  # type: ignore[attr-defined]
        forward, scale = pairing([c for c, _ in pairs], [s for _, s in pairs])
        reverse, _ = pairing(pulled, direction)
        assert abs(forward - reverse) <= function.tolerance * (scale + 1e-3), (
            f"arguments {mask}: {reverse}, not {forward}"
        )


def check_reverse_over_reverse(function: Smooth, rng: np.random.Generator) -> None:
    """Check the gradient of the gradient against finite differences."""
    gradient = Smooth(gradient_of(function, rng), function.point)
    check_pullback(gradient, rng)


def pushed_along(function: Flat, point: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    return [instantiate(t) for t in jvp_flat(function, point, tangents)[1]]


# ------------------------------------------------------------------------------------------------------------- batching

BATCH = 3


def variants(array: np.ndarray) -> list[np.ndarray]:
    """Different values for the elements of a batch, that stay where the operation is defined."""
    if array.dtype.names:
        return [array if k == 0 else np.flip(array) for k in range(BATCH)]
    kind = dtypes.kind(array.dtype)
    if kind in "fc":
        return [(array * array.dtype.type(1 + k / 4)).astype(array.dtype) for k in range(BATCH)]
    if kind == "b":
        return [array ^ bool(k % 2) for k in range(BATCH)]
    if array.size > 1:
        return [array if k % 2 == 0 else np.flip(array, 0).copy() for k in range(BATCH)]
    return [np.where(array >= k, array - array.dtype.type(k), array).astype(array.dtype) for k in range(BATCH)]


def placements(ranks: Sequence[int], rng: np.random.Generator, limit: int) -> list[tuple[int | None, ...]]:
    """Return the batch dimension of each operand (None: not batched): every combination, or a random sample."""
    choices = [[None, *range(rank + 1)] for rank in ranks]
    every = list(itertools.islice(itertools.product(*choices), 20_000))[1:]
    if len(every) <= limit:
        return every
    return [every[i] for i in sorted(rng.choice(len(every), limit, replace=False))]


def check_batch(
    function: Flat, arguments: Sequence[Any], rng: np.random.Generator, tolerance: float | None = None, limit: int = 80
) -> None:
    """Check that a batched function returns what a loop returns, for all positions of the batch dimension."""
    values = [concrete(a) for a in arguments]
    each = [[ConcreteArray(v, a.aval) for v in variants(numbers(a))] for a in values]
    looped: dict[tuple[bool, ...], list[list[np.ndarray]]] = {}
    for dims in placements([a.ndim for a in values], rng, limit):
        batched = tuple(d is not None for d in dims)
        if batched not in looped:
            rows = [[v[k if b else 0] for v, b in zip(each, batched, strict=True)] for k in range(BATCH)]
            looped[batched] = [[numbers(r) for r in function(*row)] for row in rows]
        args = [v[0] if d is None else stacked(v, d) for v, d in zip(each, dims, strict=True)]
        results, out_dims = batch_flat(function, Axis(BATCH), args, dims)
        for i, (result, dim) in enumerate(zip(results, out_dims, strict=True)):
            array = numbers(result)
            rows = [array] * BATCH if dim is None else list(np.moveaxis(array, dim, 0))
            assert len(rows) == BATCH, f"batch dimension {dim} of a result of shape {array.shape}"
            for row, expected in zip(rows, looped[batched], strict=True):
                assert_close(row, expected[i], tolerance, f"result {i} batched at {dims}")
    check_batch_of_none(function, each, looped)


def check_batch_of_none(
    function: Flat, each: Sequence[Sequence[ConcreteArray]], looped: Mapping[tuple[bool, ...], Sequence[Any]]
) -> None:
    """Over an empty batch, a function returns empty arrays of the same types as for one element."""
    for batched, rows in looped.items():
        args = [
            ConcreteArray(numbers(v[0])[None][:0], v[0].aval.plain_of_shape((0, *v[0].shape))) if b else v[0]
            for v, b in zip(each, batched, strict=True)
        ]
        results, out_dims = batch_flat(function, Axis(0), args, [0 if b else None for b in batched])
        for result, dim, expected in zip(results, out_dims, rows[0], strict=True):
            shape = expected.shape if dim is None else (*expected.shape[:dim], 0, *expected.shape[dim:])
            found = numbers(result)
            assert (found.shape, found.dtype) == (shape, expected.dtype), f"a batch of none at {batched}"


def stacked(values: Sequence[ConcreteArray], dim: int) -> ConcreteArray:
    array = np.stack([numbers(v) for v in values], dim)
    return ConcreteArray(array, values[0].aval.plain_of_shape(array.shape))


def batched_at_front(function: Flat, values: Sequence[Any]) -> list[Any]:
    """Return a function over arguments that all have a batch of 3 first; results without a batch stay unchanged."""
    return batch_flat(function, Axis(BATCH), values, [0] * len(values))[0]
