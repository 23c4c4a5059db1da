"""The smallest programs that were once compiled wrongly or too slowly."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.host import compile_program, interpret
from weft import lax
from weft.api.inspect import make_jaxpr
from weft.base.compile_options import get_compile_options
from weft.compiler.kernel.printer import to_text
from weft.compiler.program.ir import Launch
from weft.compiler.target.cpu.link import Tier
from weft.ir import interpreter
from weft.runtime.cpu.executable import Executable
from weft.runtime.execute import compile_with_checks

pytestmark = pytest.mark.tiny


def test_weak_types_are_those_of_the_trace() -> None:
    # Constant folding of the conversion, whose result was weakly typed.
    function = lambda: wnp.stack([1, 2.0])
    assert weft.jit(function)().weak_type == function().weak_type is True


def check(function: Any, *arrays: np.ndarray, donated: tuple[bool, ...] = ()) -> None:
    """Compiled = interpreted, to the bit."""
    jaxpr = make_jaxpr(function)(*arrays)
    expected = interpreter.run(jaxpr, [a.copy() for a in arrays])
    actual = compile_with_checks(jaxpr, donated, get_compile_options())([a.copy() for a in arrays])
    for a, e in zip(actual, expected, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(e).tobytes(), f"{a} for {e}"


ROWS = np.arange(20, dtype=np.float32).reshape(5, 4)
INDICES = np.array([4, 0, 0, 3, 1], np.int32)


@pytest.mark.parametrize("name", ["add", "max", "min", "set"])
@pytest.mark.parametrize("donated", [False, True])
def test_scatter_of_an_array_into_itself(name: str, donated: bool) -> None:
    """The updates were read from the very memory that the scatter had changed, where the array was made for it."""
    indices = np.array([4, 0, 2, 3, 1], np.int32) if name == "set" else INDICES

    def function(x: Any, i: Any) -> Any:
        x = x * 2
        return getattr(x.at[i], name)(x)

    check(function, ROWS, indices, donated=(donated, False))
    check(lambda x, i: getattr(x.at[i], name)(x), ROWS, indices, donated=(donated, False))


def test_update_of_an_array_by_itself() -> None:
    def function(x: Any, i: Any) -> Any:
        x = x * 2
        return lax.dynamic_update_slice(x, x, (i, i)), lax.dynamic_update_slice(x, x[1:3], (i, np.int32(0)))

    check(function, ROWS, np.array(1, np.int32))


def test_scatter_into_the_result_of_a_loop() -> None:
    def function(x: Any, i: Any) -> Any:
        x = lax.fori_loop(0, 2, lambda _, c: c + 1, x)
        return x.at[i].add(x)

    check(function, ROWS.astype(np.int16), INDICES)


def test_donated_argument_for_a_result_that_is_updated_in_place() -> None:
    """What the update started from was sent to the result, which had no memory of its own: `jit` wrote to address 0."""

    def function(x: Any) -> Any:
        return lax.dynamic_update_slice(wnp.zeros(9, np.float32), x[:6] * 0 + 3, (np.int32(2),))

    x = np.ones(9, np.float32)
    check(function, x, donated=(True,))
    jitted = weft.jit(function, donate_argnums=0)
    for _ in range(4):
        np.testing.assert_array_equal(np.asarray(jitted(wnp.array(x))), [0, 0, 3, 3, 3, 3, 3, 3, 0])
    constant = weft.jit(lambda x: wnp.zeros(9, np.float32).at[2:5].set(1), donate_argnums=0)
    for _ in range(4):
        np.testing.assert_array_equal(np.asarray(constant(wnp.array(x))), [0, 0, 1, 1, 1, 0, 0, 0, 0])


def test_values_at_many_indices_are_not_computed_at_each() -> None:
    """The derivative of a running product reads halves of halves: each level in one kernel doubled its code."""
    x = np.arange(1, 65, dtype=np.float32) % 3 - 1
    jaxpr = make_jaxpr(weft.grad(lambda v: wnp.sum(lax.cumprod(v * 1.0, 0) * v)))(x)
    program = compile_program(jaxpr).program
    sizes = [len(to_text(step.kernel)) for step in program.all_steps() if isinstance(step, Launch)]
    assert max(sizes) < 60_000


@pytest.mark.parametrize("mode", ["clip", "wrap", "fill"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16])
def test_take_by_short_integers_from_a_long_axis(mode: str, dtype: Any) -> None:
    """The length of the axis did not fit into the dtype of the positions."""
    x = np.arange(1000, dtype=np.float32)
    indices = np.array([0, 5, 127], dtype)
    np.testing.assert_array_equal(np.asarray(wnp.take(x, indices, mode=mode)), x[[0, 5, 127]])
    put = wnp.put(x, indices, np.float32(7), mode=None if mode == "fill" else mode, inplace=False)
    np.testing.assert_array_equal(np.asarray(put)[[0, 5, 127]], [7, 7, 7])


def test_a_sum_over_nothing_reads_nothing() -> None:
    """What does not depend on the loop was read before it, from an array without elements."""

    def function(x: Any) -> Any:
        return wnp.sign(x[:, None]).astype(wnp.float16).astype(wnp.float32).sum()

    empty = np.zeros(0, np.float32)
    program = compile_program(make_jaxpr(function)(empty)).program
    (result,) = interpret(program, [empty])
    assert result.view(np.float32) == 0.0
    check(function, empty)


@pytest.mark.parametrize("tier", Tier)
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.int8, np.int16])
def test_the_last_lane_of_a_narrow_row_is_stored_alone(tier: Tier, dtype: Any) -> None:
    """Where LLVM unrolled the loop it wrote 32 bits for the 16 of the fifth element, over the first of the next row."""
    x, updates = np.full((8, 5), 3, dtype), np.zeros((4, 5), dtype)
    rows = np.zeros(4, np.int32)
    jaxpr = make_jaxpr(lambda x, i, u: x.at[i].min(u))(x, rows, updates)
    out = Executable(compile_program(jaxpr))
    out._link(tier)
    (result,) = out([x, rows, updates])
    expected = x.copy()
    expected[0] = 0
    assert np.asarray(result).tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_parameters_that_compare_equal_are_distinguished(dtype: Any) -> None:
    """The kernels of the first were taken for the second: 0.0 == -0.0, and so for keys made of them."""
    numbers = np.array([1, 2], dtype)
    fills = (0.0, -0.0) if dtype is np.float32 else (complex(0.0, 0.0), complex(0.0, -0.0))
    for fill in fills:
        check(lambda x, i, fill=fill: x.at[i].get(mode="fill", fill_value=fill), numbers, np.array([1, 7], np.int32))
    # In one program neither.
    check(lambda x, i: [x.at[i].get(mode="fill", fill_value=f) for f in fills], numbers, np.array([1, 7], np.int32))


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int32", "bool", "float32", "bfloat16"])
def test_programs_that_differ_in_a_literal_do_not_share_it(dtype: str) -> None:
    """Kernels are found again by the structure of a fusion, and floats are no part of that; all other numbers are."""
    x = np.arange(-3, 4).astype(np.float32).astype(dtype)
    for value in (0, 1, 3, 2):
        constant = np.asarray(value).astype(x.dtype)
        check(lambda x, c=constant: [wnp.maximum(x, c), wnp.where(x == c, x[::-1], c)], x)
        if dtype != "bool":
            check(lambda x, c=constant, n=value: [x * c + c, lax.integer_pow(x, n), x.at[n].set(c)], x)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8"])
def test_a_branch_with_nothing_to_do_is_chosen_like_any_other(dtype: str) -> None:
    seen: list[int] = []

    def function(index: Any) -> None:
        lax.switch(index, [lambda: None, lambda: weft.debug.callback(lambda i: seen.append(int(i)), index)])

    jitted = weft.jit(function)
    for index in (0, 1, 5) if dtype == "uint8" else (-2, 0, 1, 5):
        jitted(np.array(index, dtype))
    weft.effects_barrier()
    assert seen == [1, 5]


@pytest.mark.parametrize("name", ("atan", "tanh"))
def test_the_sign_of_a_single_float16_that_was_a_float64(name: str) -> None:
    """LLVM took the sign from the float64, by a conversion to float16 that calls a function which is not there."""
    x = np.ones((1, 1), np.float16)
    jaxpr = make_jaxpr(lambda a: getattr(lax, name)(lax.igamma(a, a)))(x)
    executable = Executable(compile_program(jaxpr, (False,)))
    for tier in (Tier.QUICK, Tier.LIGHT, Tier.FULL):
        executable._link(tier)
        (result,) = executable([x])
        np.testing.assert_allclose(np.asarray(result), interpreter.run(jaxpr, [x])[0], rtol=2e-3)


def test_checks_inside_of_branches_compile() -> None:
    """A literal of the checks' flag had a scalar type for its dtype."""
    with weft.checks("all"):
        jitted = weft.jit(lambda p, x, i: lax.cond(p, lambda: x[i], lambda: x[0]))
        assert jitted(True, np.arange(3.0, dtype=np.float32), 2) == 2


def test_a_value_read_by_a_window_from_memory_is_materialized() -> None:
    """The operand is a broadcast that what follows the window computes again for itself."""

    def pooled(q: Any, x: Any) -> Any:
        wide = wnp.broadcast_to(q, (2, 3))
        back = weft.vjp(lambda s: lax.reduce_window(s, -np.inf, lax.max, (1, 2), (1, 2), [(0, 0), (0, 1)]), wide)[1](x)[
            0
        ]
        return back > wide, weft.numpy.arcsinh(q) * back

    q, x = np.arange(3, dtype=np.float32), np.ones((2, 2), np.float32)
    for got, want in zip(weft.jit(pooled)(q, x), pooled(q, x), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (3, 2)])
def test_no_window_fits(shape: tuple[int, int]) -> None:
    """Of several dimensions, one has no windows."""
    pool = lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 4), (1, 1), [(0, 0), (0, 0)], (1, 1), (1, 1))
    x = np.ones(shape, np.float32)
    assert weft.jit(pool)(x).shape == pool(x).shape


@pytest.mark.parametrize("rearrange", [lambda t: t[:, :1], lambda t: wnp.flip(t, 1), lambda t: wnp.roll(t, 1, 1)])
def test_stored_values_of_a_row_pass_are_read_at_their_own_index_only(rearrange: Any) -> None:
    """The exponential is stored between passes, but through the flip it is read at another index too."""

    def function(x: Any) -> Any:
        exponential = wnp.exp(x)
        return exponential / exponential.sum(1, keepdims=True) - rearrange(exponential * 2)

    x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(3, 8)
    np.testing.assert_allclose(weft.jit(function)(x), function(x), rtol=1e-5)


def test_stored_values_of_two_dimensional_rows_are_not_read_backwards() -> None:
    """Arguments are read in their order, since what is reversed is reversed again: both dimensions are one loop."""

    def function(x: Any, factor: Any) -> Any:
        double = wnp.broadcast_to(wnp.flip(wnp.sin(x), 2), (2, *x.shape)) * factor
        again = wnp.flip(double[1], 2)
        least = again == again.min((1, 2), keepdims=True)
        return wnp.broadcast_to(1 / least.astype(x.dtype).sum((1, 2), keepdims=True), x.shape)

    x = np.linspace(-2, 2, 45, dtype=np.float32).reshape(3, 3, 5, 1)
    np.testing.assert_array_equal(weft.jit(function)(x, np.float32(2)), function(x, np.float32(2)))


@pytest.mark.parametrize(("wide", "short"), [("int32", "int16"), ("float32", "bfloat16"), ("int64", "int32")])
@pytest.mark.parametrize("count", [3, 17, 129])
def test_the_last_lane_of_a_row_is_stored_alone(wide: str, short: str, count: int) -> None:
    """LLVM stored it as wide as it was before it became short, over what follows."""
    with weft.enable_x64(True):
        array, row = np.full((3, count), 7).astype(np.dtype(short)), np.arange(count).astype(wide)
        jaxpr = make_jaxpr(lambda a, r: a.at[1].set(r.astype(a.dtype)))(array, row)
        executable = Executable(compile_program(jaxpr, (False, False)))
        expected = interpreter.run(jaxpr, [array, row])[0]
        for tier in Tier:
            executable._link(tier)
            np.testing.assert_array_equal(np.asarray(executable([array, row])[0]), np.asarray(expected), str(tier))
