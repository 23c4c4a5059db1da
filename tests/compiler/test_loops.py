"""Loops: hoisting, accumulation, and matrix-vector multiplications."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.host import compile_program, hoist, run_passes
from tests.compiler.passes_bits import assert_same_bits, results_of
from weft import lax
from weft.api.inspect import make_jaxpr
from weft.base.settings import enable_x64
from weft.compiler import pipeline
from weft.compiler.passes.accumulate import accumulate
from weft.compiler.program.ir import Copy, Launch, Loop, SetAddress, Step, While, nested_steps
from weft.ir.jaxpr import Jaxpr, subjaxprs
from weft.runtime.execute import get_executable


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def equations_inside(program: Jaxpr, name: str) -> int:
    """How many equations of a primitive are in loops and branches."""
    count = 0
    for equation in program.eqns:
        for inner in subjaxprs(equation.params):
            count += sum(e.primitive.name == name for e in inner.eqns) + equations_inside(inner, name)
    return count


def passed(function: Any, *arrays: np.ndarray) -> Jaxpr:
    return run_passes(make_jaxpr(function)(*arrays), check=True)


# ------------------------------------------------------------------------------------------------------------- hoisting


def iterate(x: Any, w: Any, v: Any) -> Any:
    """The product and the exponential are the same in every iteration."""

    def body(state: Any) -> Any:
        total, iterations = state
        gradient = wnp.exp(-(x @ w))
        return total + x.T @ (gradient * (x @ total)) * 0.01, iterations + 1

    return lax.while_loop(lambda s: s[1] < 5, body, (v, 0))[0]


def test_loop_invariant_work_is_hoisted() -> None:
    arrays = normal(7, 3), normal(3), normal(3)
    before = make_jaxpr(iterate)(*arrays)
    after = passed(iterate, *arrays)
    assert equations_inside(after, "exp") == 0
    assert equations_inside(after, "dot_general") == 2 < equations_inside(before, "dot_general")
    np.testing.assert_allclose(weft.jit(iterate)(*arrays), iterate(*arrays), 1e-5)


def test_a_loop_without_iterations_is_unchanged() -> None:
    def function(x: Any, n: Any) -> Any:
        body = lambda state: (state[0] + wnp.log(x) // wnp.sum(x), state[1] + 1)
        return lax.while_loop(lambda s: s[1] < n, body, (x, 0))[0]

    x = np.array([-1.0, 0.0, 1.0], np.float32)
    assert equations_inside(passed(function, x, np.int32(0)), "log") == 0
    np.testing.assert_array_equal(weft.jit(function)(x, np.int32(0)), x)


def test_checks_are_not_hoisted() -> None:
    """An error is raised in the same iteration as without the pass."""

    def function(x: Any, n: Any) -> Any:
        def body(i: Any, total: Any) -> Any:
            weft.debug.callback(lambda v: seen.append(int(v)), i)
            return total + wnp.exp(x)

        return lax.fori_loop(0, n, body, x)

    seen: list[int] = []
    weft.block_until_ready(weft.jit(function)(np.ones(3, np.float32), 3))
    assert seen == [0, 1, 2]


def chain(x: Any, moves: Any, seen: Any) -> Any:
    """The likelihood of a hidden Markov model, as far as loops are concerned."""

    def forward(alpha: Any, symbol: Any) -> Any:
        grown = alpha[:, None] + moves
        most = lax.stop_gradient(grown.max(0))
        return wnp.log(wnp.exp(grown - most).sum(0)) + most + x[:, symbol], None

    alpha, _ = lax.scan(forward, x[:, 0], seen)
    return alpha.sum()


def products_with_hessian(x: Any, moves: Any, seen: Any, way: Any) -> Any:
    gradient = weft.grad(chain)

    def body(_: Any, v: Any) -> Any:
        result = weft.jvp(lambda p: gradient(p, moves, seen), (x,), (v,))[1]
        return v + 0.1 * result

    return lax.fori_loop(0, 3, body, way)


HIDDEN = normal(4, 6), normal(4, 4), np.array([5, 0, 3, 3, 1], np.int32), normal(4, 6)


def test_scans_with_an_invariant_part_are_split() -> None:
    """Only what depends on the vector is left in the loop; the values of the function and its gradient are not."""
    assert equations_inside(make_jaxpr(products_with_hessian)(*HIDDEN), "exp")
    after = passed(products_with_hessian, *HIDDEN)
    (outer,) = [e for e in after.eqns if any(equations_inside(p, "add") for p in subjaxprs(e.params))]
    assert [equations_inside(p, "exp") + equations_inside(p, "log") for p in subjaxprs(outer.params)] == [0]
    np.testing.assert_allclose(weft.jit(products_with_hessian)(*HIDDEN), products_with_hessian(*HIDDEN), 2e-4, 2e-5)


@pytest.mark.parametrize("change", [hoist, accumulate], ids=lambda f: f.__name__)
def test_bits_are_preserved(change: Any, monkeypatch: Any) -> None:
    changed = 0
    for function, arrays in (
        (iterate, (normal(7, 3), normal(3), normal(3))),
        (products_with_hessian, HIDDEN),
        (weft.grad(chain), HIDDEN[:3]),
    ):
        jaxpr = run_passes(make_jaxpr(function)(*arrays), pipeline.EXACT_PASSES[:8])
        after = change(jaxpr)
        changed += after is not jaxpr
        args = list(arrays)
        assert_same_bits(results_of(after, args, monkeypatch), results_of(jaxpr, args, monkeypatch), "the loop")
    assert changed == 2


# --------------------------------------------------------------------------------------------------------- accumulating


def loops_of(function: Any, *arrays: np.ndarray) -> Iterator[list[Step]]:
    """The bodies of all loops of a compiled program."""
    for step in nested_steps(compile_program(make_jaxpr(function)(*arrays)).program.steps):
        if isinstance(step, Loop | While):
            yield step.body


def test_gradients_of_slices_touch_the_slice() -> None:
    """An iteration added an array of zeros with one nonzero row to the whole total."""

    def function(table: Any, indices: Any) -> Any:
        return lax.scan(lambda c, i: (c + wnp.sin(table[i]).sum(), None), 0.0, indices)[0]

    table, indices = normal(50, 8), np.array([3, 3, 49, 0, 3], np.int32)
    after = passed(weft.grad(function), table, indices)
    assert equations_inside(after, "dynamic_update_slice") == 1
    assert equations_inside(after, "broadcast_in_dim") <= 1
    np.testing.assert_allclose(weft.jit(weft.grad(function))(table, indices), weft.grad(function)(table, indices), 1e-6)


def rnn(w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = wnp.tanh(h @ w + x)
        return h, h.sum()

    return lax.scan(step, xs[0], xs)[1].sum()


def test_the_gradient_of_a_recurrence_is_one_contraction_after_it() -> None:
    """The outer product of an iteration was stored, transposed, and added by another kernel."""
    w, xs = normal(32, 32) * np.float32(0.1), normal(20, 32)
    forward, backward = loops_of(weft.grad(rnn), w, xs)
    assert [type(step) for step in backward if not isinstance(step, SetAddress)] == [Launch, Launch]
    assert sum(isinstance(step, Copy) for step in forward) == 2
    np.testing.assert_allclose(weft.jit(weft.grad(rnn))(w, xs), weft.grad(rnn)(w, xs), 2e-4, 2e-4)


def test_contractions_accumulated_in_a_while_are_not_deferred() -> None:
    """The number of iterations is not known, so nothing is stacked."""

    def function(x: Any) -> Any:
        iteration = lambda s: (s[0] + wnp.outer(x + s[1], x), s[1] + 1)
        return lax.while_loop(lambda s: s[1] < 4, iteration, (wnp.zeros((3, 3)), 0.0))[0]

    x = normal(3)
    np.testing.assert_allclose(weft.jit(function)(x), sum(np.outer(x + n, x) for n in range(4)), 1e-5)


def test_carries_that_are_swapped() -> None:
    """Copies at the end of an iteration are correct only if what they overwrite is saved first."""

    def function(a: Any, b: Any, c: Any) -> Any:
        return lax.scan(lambda s, _: ((s[1], s[2], s[0]), (s[0], s[0] + s[1])), (a, b, c), None, length=4)

    a, b, c = (np.full(3, n, np.float32) for n in (1, 2, 3))
    (first, second, third), (passed_on, sums) = weft.jit(function)(a, b, c)
    np.testing.assert_array_equal([first[0], second[0], third[0]], [2, 3, 1])
    np.testing.assert_array_equal(passed_on[:, 0], [1, 2, 3, 1])
    np.testing.assert_array_equal(sums[:, 0], [3, 5, 4, 3])


# ------------------------------------------------------------------------------------------------ products with vectors

SIZES = [(1, 1), (5, 3), (8, 100), (19, 40), (32, 32), (100, 7), (131, 129), (33, 4000), (300, 1000), (2500, 100)]


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_matrix_and_vector(size: tuple[int, int], dtype: Any) -> None:
    """Rows and columns, with work before and after; long rows are read a few at a time."""
    rows, columns = size
    x = (normal(rows, columns) / np.sqrt(rows + columns)).astype(dtype)
    w, r = normal(columns).astype(dtype), normal(rows).astype(dtype)

    def both(x: Any, w: Any, r: Any) -> Any:
        after = wnp.tanh if dtype != np.complex64 else wnp.conj
        return after(x @ w) * 2, after(x.T @ (r + 1)) + w, x.T @ r, x @ w

    with enable_x64(True):
        result = get_executable(make_jaxpr(both)(x, w, r))([x, w, r])
        precise = np.complex128 if dtype == np.complex64 else np.float64
        expected = both(*(np.asarray(a, precise) for a in (x, w, r)))
    tolerance = 1e-12 if dtype == np.float64 else 2e-5
    for a, e in zip(result, expected, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(e), tolerance, tolerance)


def test_expensive_epilogues_of_row_sums_are_vectorized() -> None:
    """It was scalar code after the horizontal reduction of each sum."""
    x, w = normal(200, 100), normal(100)
    program = compile_program(make_jaxpr(lambda x, w: wnp.exp(x @ w))(x, w)).program
    kernels = [s.kernel for s in program.all_steps() if isinstance(s, Launch)]
    assert [kernel.name for kernel in kernels] == ["contraction", "contraction_sum"]
