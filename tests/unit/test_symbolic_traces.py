"""Traces with symbolic sizes: with a size for the symbol, each is the trace for that size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import weft
import weft.numpy as np
from weft import lax
from weft.compiler.fingerprint import fingerprint
from weft.indexing.dimension import parse_dimension, symbol
from weft.indexing.guards import checker, compile_expression, compile_with_sharing, deciding
from weft.ir.at_sizes import at_sizes

t = symbol("t", 2)
SIZES = (2, 3, 7, 16, 64)


def struct(*shape: Any, dtype: str = "float32") -> weft.ShapeDtypeStruct:
    return weft.ShapeDtypeStruct(shape, dtype)


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


INDEX = struct(dtype="int32")
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[Any], tuple[Any, ...]]]] = {
    "softmax": (softmax, lambda n: (struct(4, n),)),
    "mean": (lambda x: x.mean(), lambda n: (struct(n, 3),)),
    "mean of integers": (lambda x: x.mean(0), lambda n: (struct(n, 3, dtype="int8"),)),
    "bfloat16 mean": (lambda x: x.mean(0), lambda n: (struct(n, dtype="bfloat16"),)),
    "std": (lambda x: np.std(x, 0), lambda n: (struct(n, 3),)),
    "gradient of a mean square": (weft.grad(lambda x: (x**2).mean()), lambda n: (struct(n, 3),)),
    "quotient": (lambda x: x / x.shape[0], lambda n: (struct(n),)),
    "array of a size": (lambda x: np.asarray(x.shape[0]), lambda n: (struct(n),)),
    "every other": (lambda x: x[::2], lambda n: (struct(n),)),
    "every third from the second": (lambda x: x[1::3], lambda n: (struct(n),)),
    "flip": (lambda x: x[::-1], lambda n: (struct(n),)),
    "last": (lambda x: x[-1], lambda n: (struct(n),)),
    "element": (lambda x, i: x[i], lambda n: (struct(n), INDEX)),
    "elements": (lambda x, i: x[i], lambda n: (struct(n), struct(3, dtype="int32"))),
    "slice": (lambda x, i: lax.dynamic_slice_in_dim(x, i, 2), lambda n: (struct(n), INDEX)),
    "fori_loop": (
        lambda x: lax.fori_loop(0, x.shape[0], lambda i, c: c + x[i], 0.0),
        lambda n: (struct(n),),
    ),
    "scan": (lambda x: lax.scan(lambda c, y: (c * y, c), 1.0, x), lambda n: (struct(n),)),
    "vmap": (weft.vmap(lambda x: x.mean()), lambda n: (struct(3, n),)),
    "jvp": (lambda x: weft.jvp(softmax, (x,), (x,)), lambda n: (struct(4, n),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_trace_at_sizes_is_the_trace_for_them(name: str) -> None:
    function, types = PROGRAMS[name]
    traced = weft.jit(function).trace(*types(t)).jaxpr
    for size in SIZES:
        concrete = weft.jit(function).trace(*types(size)).jaxpr
        assert fingerprint(at_sizes(traced, {t: size})) == fingerprint(concrete), size


def test_roll_has_its_elements() -> None:
    """A trace for known sizes cuts at a known place, so it is another one."""
    traced = weft.jit(lambda x: np.roll(x, 3)).trace(struct(t)).jaxpr
    for size in SIZES:
        (rolled,) = weft.evaluate(at_sizes(traced, {t: size}), np.arange(size, dtype="float32"))
        assert (rolled == np.roll(np.arange(size), 3)).all()


@pytest.mark.parametrize("scale", [lambda n: n * 1.5, lambda n: 1 / n, lambda n: n / 2, lambda n: 0.5 - n])
def test_numbers_of_sizes(scale: Callable[[Any], Any]) -> None:
    """What Python computes in double precision of a known size, a program computes of a symbolic one."""
    traced = weft.jit(lambda x: x * scale(x.shape[0])).trace(struct(t)).jaxpr
    for size in SIZES:
        x = np.arange(size, dtype="float32")
        (scaled,) = weft.evaluate(at_sizes(traced, {t: size}), x)
        assert scaled.dtype == x.dtype and np.allclose(scaled, x * scale(size), rtol=3e-7)


def test_fingerprints_know_names_and_bounds() -> None:
    def of(n: Any) -> str | None:
        return fingerprint(weft.jit(lambda x: x + 1).trace(struct(n)).jaxpr)

    assert of(t) is not None and of(t) == of(symbol("t", 2))
    assert len({of(t), of(symbol("t", 3)), of(symbol("t", 2, 9)), of(symbol("u", 2)), of(2 * t), of(2)}) == 6


def test_powers_are_limited() -> None:
    assert parse_dimension("a**3") is symbol("a") ** 3
    with pytest.raises(ValueError, match="16"):
        parse_dimension("a**100000")


def test_random_bits_of_symbolic_shapes_are_those_of_the_sizes() -> None:
    def draw(key: Any, x: Any) -> Any:
        return weft.random.normal(key, x.shape)

    key = weft.random.key(3)
    traced = weft.jit(draw).trace(key, struct(t, 3)).jaxpr
    for size in (2, 5):
        x = np.zeros((size, 3))
        (drawn,) = weft.evaluate(at_sizes(traced, {t: size}), key, x)
        assert (drawn == draw(key, x)).all()


def test_questions_are_answered_for_sizes_and_written_down() -> None:
    u = symbol("u", 2)
    with deciding({t: 17, u: 3}) as answers:
        assert t > 16 and not t < u and t != 5 and (t % 2) == 1
        assert t >= 2 and t != 1  # which needs no sizes
        assert range(u) == range(3) and u / 2 == 1.5 and u * 0.5 == 1.5
    texts = [str(guard) for guard in answers.guards]
    assert texts == ["t - 17 >= 0", "u - t - 1 < 0", "t - 5 != 0", "t%2 - 1 == 0", "u - 3 == 0"]
    holds = checker(answers.guards, (t, u))
    assert [holds(*sizes) for sizes in ((17, 3), (19, 3), (18, 3), (15, 3), (19, 4))] == [
        True,
        True,
        False,
        False,
        False,
    ]
    with pytest.raises(TypeError, match="a size that is a number"):
        range(t)


def test_long_expressions_are_computed_once() -> None:
    t, b = symbol("t", 2), symbol("b", 2)
    inner = "max(1, (t + 42)//48)"
    text = f"(max(1, (t - 6)//(6*{inner}) + 1), {inner}*b, min(t, b) - max(2, min(t, b)), t)"
    once, plain = compile_with_sharing(text, (t, b)), compile_expression(text, (t, b))
    for sizes in ((2, 3), (57, 4), (1000, 7)):
        assert once(*sizes) == plain(*sizes)
