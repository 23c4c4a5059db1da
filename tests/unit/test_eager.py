"""Evaluation outside of jit: plans, kernels of any length, loops that are traced once, and loops without jit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.compiler.compilation import FLAT_LENGTH
from weft.ir.types import array_type
from weft.primitives.elementwise.trigonometric import sin
from weft.runtime import evaluate
from weft.runtime.execute import compile_costs, get_equation_jaxpr

pytestmark = pytest.mark.tiny


def test_one_kernel_serves_arrays_of_every_length() -> None:
    for shape in ((), (1,), (5,), (0, 3), (7, 11), (1000,), (3, 4, 5), (70000,)):
        x = np.linspace(-3, 3, int(np.prod(shape)), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(wnp.sin(x), weft.jit(wnp.sin)(x))
    jaxpr = get_equation_jaxpr(sin, [array_type((FLAT_LENGTH,), np.dtype(np.float32))], {})
    assert len(compile_costs(jaxpr)) == 2  # for one thread and for several


def test_scalars_beside_arrays() -> None:
    x = np.linspace(0.1, 3, 21, dtype=np.float32).reshape(3, 7)
    for power in (weft.jit(lax.pow), lax.pow):
        np.testing.assert_array_equal(power(x, np.float32(1.7)), weft.jit(lambda a: a**1.7)(x))
        np.testing.assert_array_equal(power(np.float32(1.7), x), weft.jit(lambda a: 1.7**a)(x))


def test_operands_of_any_layout_and_kind() -> None:
    x = np.linspace(-3, 3, 24, dtype=np.float32).reshape(4, 6)
    for view in (x.T, x[::2, ::-1], x[:, 1:4], np.broadcast_to(x[0], (5, 6))):
        np.testing.assert_array_equal(wnp.exp(view), wnp.exp(view.copy()))
        np.testing.assert_array_equal(wnp.sum(view, axis=0), wnp.sum(view.copy(), axis=0))
    np.testing.assert_array_equal(wnp.exp(0.5), weft.jit(wnp.exp)(0.5))


def test_plans_tell_parameters_apart() -> None:
    x = wnp.arange(6.0).reshape(2, 3)
    assert wnp.sum(x, axis=0).shape == (3,) and wnp.sum(x, axis=1).shape == (2,)
    plans = len(evaluate._plans)
    wnp.sum(x, axis=0), wnp.sum(x, axis=1)
    assert len(evaluate._plans) == plans


def test_nan_is_found_at_the_line_of_the_operation() -> None:
    with weft.debug_nans(True), pytest.raises(FloatingPointError, match=r"log.*\n(.*\n)*.*test_eager\.py"):
        wnp.log(np.float32(-1.0))


def test_the_greater_zero() -> None:
    zero, minus = np.zeros(1, np.float32), -np.zeros(1, np.float32)
    for a, b in ((zero, minus), (minus, zero)):
        for f in (lambda x: x, weft.jit):
            assert not np.signbit(f(lax.max)(a, b)) and np.signbit(f(lax.min)(a, b))
            assert not np.signbit(f(wnp.max)(np.concatenate([a, b]))) and np.signbit(f(wnp.min)(np.concatenate([a, b])))
            assert not np.signbit(f(lambda x: lax.cummax(x))(np.concatenate([a, b]))[1])


# -- loops ------------------------------------------------------------------------------------------------------------


def test_a_body_is_traced_once_for_its_types() -> None:
    traced = []

    def body(i: Any, carry: Any) -> Any:
        traced.append("fori")
        return carry * 0.5 + i

    def step(carry: Any, x: Any) -> Any:
        traced.append("scan")
        return carry + x, carry

    def double(x: Any) -> Any:
        traced.append("branch")
        return x * 2

    def keep(x: Any) -> Any:
        return x

    def small(x: Any) -> Any:
        traced.append("condition")
        return x < 9

    for _ in range(3):
        np.testing.assert_allclose(lax.fori_loop(0, 3, body, np.ones(2, np.float32)), [2.625, 2.625])
        lax.scan(step, np.float32(0), np.ones(4, np.float32))
        assert float(lax.cond(True, double, keep, 1.5)) == 3
        assert float(lax.while_loop(small, double, 1.0)) == 16
        np.testing.assert_array_equal(lax.map(double, np.ones(3, np.float32)), [2, 2, 2])
    assert sorted(traced) == ["branch"] * 3 + ["condition", "fori", "scan"]
    lax.fori_loop(0, 3, body, np.ones(3, np.float32))
    assert traced.count("fori") == 2


def test_a_body_that_closes_over_a_traced_value_is_traced_again() -> None:
    def power(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, c: c * x, 1.0)

    def body(_: Any, carry: Any) -> Any:
        return carry * held[0]

    held = [wnp.float32(2.0)]
    assert float(weft.grad(power)(2.0)) == 12

    def outer(x: Any) -> Any:
        held[0] = x
        return lax.fori_loop(0, 3, body, 1.0)

    assert float(outer(wnp.float32(2.0))) == 8
    assert float(weft.grad(outer)(2.0)) == 12


def test_without_jit_bodies_do_not_write_into_arrays_of_the_caller() -> None:
    x = np.zeros(3, np.float32)

    def add_to(value: Any) -> Any:
        value += 1
        return value

    with weft.disable_jit():
        np.testing.assert_array_equal(lax.fori_loop(0, 2, lambda _, c: add_to(c), x), [2, 2, 2])
        np.testing.assert_array_equal(lax.while_loop(lambda c: c[0] < 2, add_to, x), [2, 2, 2])
        np.testing.assert_array_equal(lax.scan(lambda c, y: (add_to(c), add_to(y)), x, x[:2])[0], [2, 2, 2])
        np.testing.assert_array_equal(lax.cond(True, add_to, add_to, x), [1, 1, 1])
        np.testing.assert_array_equal(lax.switch(1, [add_to, add_to], x), [1, 1, 1])
        np.testing.assert_array_equal(lax.map(add_to, x), [1, 1, 1])
    np.testing.assert_array_equal(x, [0, 0, 0])


def test_without_jit_scalars_have_the_types_of_tracing() -> None:
    def results() -> list[Any]:
        return [
            lax.fori_loop(0, 3, lambda i, c: c + i, 0),
            lax.fori_loop(0, 3, lambda i, c: c * 0.5 + i, 1.0),
            lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0),
            lax.cond(True, lambda a: a + 1, lambda a: a, 1),
            lax.scan(lambda c, x: (c + x, c), 0.0, np.ones(3, np.float32)),
        ]

    with weft.disable_jit():
        eager = results()
    for found, expected in zip(weft.tree.leaves(eager), weft.tree.leaves(results()), strict=True):
        assert found.aval.matches(expected.aval)
        np.testing.assert_array_equal(found, expected)


def test_profiles_include_eager_operations() -> None:
    x = wnp.ones((40, 40))
    with weft.profile(quiet=True) as profile:
        wnp.sin(x) @ x
    assert {kernel.kind for kernel in profile.kernels} == {"loop", "contraction"}
