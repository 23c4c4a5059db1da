"""Primitives that are defined outside of the package, each by the few rules of its family, work wherever Weft's do:
eager, jit, grad, vmap, checks, explanations and compositions of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.laws.samples import registered
from weft import errors, lax
from weft.compiler.kernel.names import ELEMENTWISE
from weft.compiler.target.lanes import Lanes
from weft.indexing.index_map import Constraint, IndexMap, indices
from weft.ir.primitive import Axis, primitive
from weft.ir.types import ArrayType
from weft.primitives.elementwise.elementwise import Comparison, Elementwise
from weft.primitives.families import Composite, Indexing, Reduction, remaining_axes
from weft.primitives.movement.shape import broadcast_in_dim, move_axis
from weft.primitives.reduction.cumulative import Cumulative


@primitive
class outside_step(Elementwise):
    """Known by its meaning alone: without a derivative, and without code."""

    kinds = "f"
    ulp = {"": 2.0}

    @staticmethod
    def eval(x: Any) -> Any:
        return np.floor(np.tanh(x) * 4)


@primitive
class outside_blend(Elementwise):
    """Known by its meaning and its derivative; of two operands, one of which may be a scalar."""

    kinds = "f"
    ulp = {"": 2.0}

    @staticmethod
    def eval(x: Any, y: Any) -> Any:
        return np.tanh(x) * y

    def partial(self, i: int, tangent: Any, out: Any, x: Any, y: Any) -> Any:
        return tangent * y * (1 - wnp.tanh(x) ** 2) if i == 0 else tangent * wnp.tanh(x)


@primitive
class outside_mix(Elementwise):
    """With a body for kernels."""

    kinds = "f"
    ulp = {"": 2.0}

    @staticmethod
    def eval(x: Any, y: Any) -> Any:
        return x * y + np.exp(-np.abs(x))

    def emit(self, builder: Any, x: Any, y: Any) -> Any:
        return builder.add(builder.mul(x, y), builder.exp(builder.neg(builder.abs(x))))

    def partial(self, i: int, tangent: Any, out: Any, x: Any, y: Any) -> Any:
        return tangent * (y - wnp.sign(x) * wnp.exp(-abs(x))) if i == 0 else tangent * x


@primitive
class outside_twice(Elementwise):
    """A body in terms of another one that is not Weft's."""

    kinds = "f"
    ulp = {"": 2.0}

    @staticmethod
    def eval(x: Any) -> Any:
        return 2 * (x * x + np.exp(-np.abs(x)))

    def emit(self, builder: Any, x: Any) -> Any:
        mixed = builder.outside_mix(x, x)
        return builder.add(mixed, mixed)

    def partial(self, i: int, tangent: Any, out: Any, x: Any) -> Any:
        return tangent * 2 * (2 * x - wnp.sign(x) * wnp.exp(-abs(x)))


@primitive
class outside_softsign(Composite):
    """Made of others."""

    def decompose(self, x: Any) -> Any:
        return x / (1 + abs(x))


@primitive
class outside_sum(Reduction):
    """A sum."""

    linear = (0,)
    ulp = {"": 2.0}

    def eval(self, x: Any, *, axes: tuple[int, ...]) -> Any:
        return np.sum(x, axis=axes, dtype=x.dtype)

    def initial(self, dtype: Any) -> Any:
        return np.zeros((), dtype)

    def combine(self, builder: Any, accumulator: Any, value: Any) -> Any:
        return builder.add(accumulator, value)

    def transpose(self, cotangent: Any, x: Any, *, axes: tuple[int, ...]) -> Sequence[Any]:
        shape = x.aval.shape
        return [broadcast_in_dim(cotangent, shape=shape, broadcast_dimensions=remaining_axes(len(shape), axes))]


@primitive
class outside_near(Comparison):
    """Known by its meaning alone, with a boolean result."""

    kinds = "f"

    @staticmethod
    def eval(x: Any, y: Any) -> Any:
        return abs(x.astype(np.float32) - y.astype(np.float32)) < 0.5


@primitive
class outside_running(Cumulative):
    """The root of a running sum of squares."""

    kinds = "f"

    def accumulate(self, x: np.ndarray, axis: int) -> np.ndarray:
        return np.sqrt(np.cumsum(x * x, axis=axis))

    def neutral(self, dtype: Any) -> Any:
        return 0

    def emit(self, builder: Any, x: Any, y: Any) -> Any:
        return builder.sqrt(builder.add(builder.mul(x, x), builder.mul(y, y)))


class Rotation(Indexing):
    """The elements one further along the last axis, those at the end first."""

    by: int
    back: str

    def type(self, x: ArrayType) -> ArrayType:
        return x

    def eval(self, x: Any) -> Any:
        return np.roll(x, self.by, axis=-1)

    def batch(self, axis: Axis, args: Sequence[Any], dims: Sequence[int | None]) -> tuple[Any, int]:
        (x,), (dim,) = args, dims
        assert dim is not None
        return self(move_axis(x, dim, 0)), 0


@primitive
class outside_left(Rotation):
    by = -1

    def transpose(self, cotangent: Any, x: Any) -> Sequence[Any]:
        return [outside_right(cotangent)]

    def sources(self, x: ArrayType) -> list[tuple[int, IndexMap]]:
        *rest, last = indices(x.shape)
        return [(0, IndexMap.over(x.shape, (*rest, (last + 1) % x.shape[-1])))]


@primitive
class outside_right(Rotation):
    by = 1

    def transpose(self, cotangent: Any, x: Any) -> Sequence[Any]:
        return [outside_left(cotangent)]

    def sources(self, x: ArrayType) -> list[tuple[int, IndexMap]]:
        *rest, last = indices(x.shape)
        size = x.shape[-1]
        inner = IndexMap.over(x.shape, (*rest, last - 1), [Constraint(last, 1, size - 1)])
        return [(0, inner), (0, IndexMap.over(x.shape, (*rest, last + size - 1)))]


# Functions of a matrix that keep its shape, and what they mean.
FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "blend": (lambda x: outside_blend(x, np.float32(1.5)), lambda x: np.tanh(x) * np.float32(1.5)),
    "blend of two": (lambda x: outside_blend(x, x + 1), lambda x: np.tanh(x) * (x + 1)),
    "mix": (lambda x: outside_mix(x, x + 1), lambda x: x * (x + 1) + np.exp(-np.abs(x))),
    "twice": (lambda x: outside_twice(x), lambda x: 2 * (x * x + np.exp(-np.abs(x)))),
    "softsign": (lambda x: outside_softsign(x), lambda x: x / (1 + np.abs(x))),
    "sum": (lambda x: x - outside_sum(x, axes=(1,))[:, None] / 8, lambda x: x - x.sum(1, keepdims=True) / 8),
    "left": (lambda x: outside_left(x), lambda x: np.roll(x, -1, 1)),
    "right": (lambda x: outside_right(x), lambda x: np.roll(x, 1, 1)),
}
X = np.random.default_rng(3).normal(size=(4, 6)).astype(np.float32)


def close(actual: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(actual), np.asarray(expected), rtol=2e-5, atol=2e-6)


def loss(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: (function(x) * wnp.arange(1.0, 7.0)).sum()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_everywhere(name: str) -> None:
    function, meaning = FUNCTIONS[name]
    expected = meaning(X)
    close(function(wnp.asarray(X)), expected)
    compiled = weft.jit(function)
    close(compiled(X), expected)
    gradient = weft.grad(loss(function))(X)
    close(weft.jit(weft.grad(loss(function)))(X), gradient)
    step = np.float64(1e-3) * np.random.default_rng(4).normal(size=X.shape)
    change = sum(sign * float((meaning(X + sign * step) * np.arange(1.0, 7.0)).sum()) for sign in (1, -1)) / 2
    assert abs(change - float((np.asarray(gradient) * step).sum())) < 1e-4
    stacked = np.stack([X, X * 2, -X])
    close(weft.jit(weft.vmap(function))(stacked), np.stack([meaning(x) for x in stacked]))
    close(
        weft.vmap(function, in_axes=2, out_axes=2)(np.moveaxis(stacked, 0, 2)),
        weft.vmap(function)(stacked).transpose(1, 2, 0),
    )
    close(weft.jit(weft.jacfwd(loss(function)))(X), gradient)
    assert "outside_" in str(weft.make_jaxpr(function)(X))
    with weft.checks("all"):
        close(weft.jit(function)(X), expected)
    assert compiled.lower(X).compile().cost_analysis()["bytes accessed"] > 0


def test_explained() -> None:
    def f(x: Any) -> Any:
        for function, _ in FUNCTIONS.values():
            x = function(x)
        return outside_step(x)

    told = weft.explain(f, write=False)(X).html
    for name in ("outside_step", "outside_blend", "outside_mix", "outside_twice", "outside_sum", "outside_left"):
        assert name in told


def test_in_loops_and_branches() -> None:
    def f(x: Any) -> Any:
        x, _ = lax.scan(lambda c, _: (outside_left(outside_blend(c, np.float32(0.5))) + 1, None), x, None, length=3)
        x = lax.while_loop(lambda c: outside_sum(c, axes=(0, 1)) < 100, lambda c: outside_twice(c) + 1, x)
        return lax.cond(x[0, 0] > 0, outside_step, lambda y: -outside_step(y), x)

    close(weft.jit(f)(X), f(wnp.asarray(X)))


def test_primitives_with_eval_only() -> None:
    expected = outside_step.eval(X)
    close(weft.jit(lambda x: outside_step(x * 1) + 1)(X), expected + 1)
    close(weft.jit(weft.vmap(outside_step))(X), expected)
    assert "host outside_step" in weft.jit(outside_step).lower(X).compile().program
    with pytest.raises(errors.MissingRuleError, match="`outside_step` is not differentiable in operand 0"):
        weft.grad(lambda x: outside_step(x).sum())(X)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_booleans_by_eval(dtype: str) -> None:
    x = wnp.asarray(X, dtype)
    expected = outside_near.eval(np.asarray(x), np.asarray(x * 1.5))
    np.testing.assert_array_equal(outside_near(x, x * 1.5), expected)
    chosen = weft.jit(lambda x: wnp.where(outside_near(x, x * 1.5), x, 0).astype(np.float32))(x)
    np.testing.assert_array_equal(chosen, np.where(expected, np.asarray(x), 0).astype(np.float32))


@pytest.mark.parametrize("axis", [0, 1])
def test_running(axis: int) -> None:
    x = np.random.default_rng(5).uniform(0.5, 1, (5, 70)).astype(np.float32)
    expected = np.sqrt(np.cumsum(x * x, axis=axis))
    close(weft.jit(lambda x: outside_running(x * 1, axis=axis, reverse=False))(x), expected)
    close(weft.jit(weft.vmap(lambda x: outside_running(x, axis=axis, reverse=False)))(x[None]), expected[None])


def test_a_nan_is_reported_where_it_is_created() -> None:
    with weft.checks("all"):
        for function in (outside_step, outside_softsign, lambda x: outside_sum(x, axes=(0,))):
            with pytest.raises(errors.NonFiniteValueError):
                weft.jit(lambda x, function=function: function(x / 0 * 0))(X)
        # What is only copied is looked at where it was made.
        weft.jit(outside_left)(np.full_like(X, np.nan))


def test_a_body_of_unknown_operations() -> None:
    @primitive
    class outside_wrong(Elementwise):
        @staticmethod
        def eval(x: Any) -> Any:
            return np.exp(x)

        def emit(self, builder: Any, x: Any) -> Any:
            return builder.exponential(x)

    with pytest.raises(errors.MissingRuleError, match="Kernels have no operation `exponential`"):
        weft.jit(outside_wrong)(X)


@pytest.mark.parametrize("seed", range(6))
def test_random_compositions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    inside: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
        (lambda x: wnp.sin(x) + x, lambda x: np.sin(x) + x),
        (lambda x: x[::-1], lambda x: x[::-1]),
        (lambda x: x - x.mean(0), lambda x: x - x.mean(0)),
        (lambda x: (x @ x.T @ x) / 16, lambda x: (x @ x.T @ x) / 16),
        (lambda x: wnp.concatenate([x[:, 2:], x[:, :2]], 1), lambda x: np.concatenate([x[:, 2:], x[:, :2]], 1)),
    ]
    outside = list(FUNCTIONS.values())
    chosen = [(outside if rng.random() < 0.65 else inside)[int(rng.integers(5))] for _ in range(7)]

    def f(x: Any) -> Any:
        for function, _ in chosen:
            x = wnp.tanh(function(x))
        return x

    expected: Any = X
    for _, meaning in chosen:
        expected = np.tanh(meaning(expected))
    close(weft.jit(f)(X), expected)
    close(weft.jit(weft.grad(loss(f)))(X), weft.grad(loss(f))(X))
    close(weft.jit(weft.vmap(f))(np.stack([X, -X])), np.stack([f(X), f(-X)]))


def test_operations_of_kernels() -> None:
    own = [operation for operation in registered() if isinstance(operation, Elementwise)]
    assert all(operation.has_body(ELEMENTWISE) for operation in own)
    # Conversions have methods of other names.
    names = {name.rstrip("_") for name in dir(Lanes)} | {"bitcast_convert_type", "convert_element_type"}
    assert names >= ELEMENTWISE
