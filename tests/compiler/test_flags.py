"""Programs with one flag for all checks detect what programs with a trap for each check detect."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.host import compile_program, interpret
from weft import errors, lax
from weft.base.compile_options import get_compile_options
from weft.compiler.passes.bounds import Bounds
from weft.compiler.passes.flags import lasting_carries
from weft.compiler.program.ir import Branch, Launch, Loop
from weft.compiler.program.verifier import verify
from weft.indexing.ranges import Range
from weft.ir.primitive import lookup
from weft.primitives.control.check import FlagRaised, can_flag, check, writes_in_place
from weft.primitives.movement.gather import GatherScatterMode
from weft.primitives.movement.scatter import ScatterDimensionNumbers, scatter_params

INDEX, NONFINITE = errors.OutOfBoundsIndexError, errors.NonFiniteValueError


def flagged(function: Callable[..., Any], *args: Any) -> Any:
    """The steps of a program with one flag."""
    with weft.checks("all"):
        jaxpr = weft.make_jaxpr(function)(*args)
        jaxpr = jaxpr.replace(invars=(*jaxpr.constvars, *jaxpr.invars), constvars=(), consts=())
        return verify(compile_program(jaxpr, flagged=True).program)


def count(program: Any, kind: type) -> int:
    return sum(isinstance(step, kind) for step in program.all_steps())


# --------------------------------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (lambda i: (i * 7 + 3) % 10, (0, 9)),
        (lambda i: i % -10, (-10, 0)),
        (lambda i: lax.rem(i, 10), (-9, 9)),
        (lambda i: wnp.clip(i, 2, 5) * 3 - 1, (5, 14)),
        (lambda i: wnp.where(i < 0, 0, wnp.minimum(i, 8)), (0, 8)),
        (lambda i: wnp.where((i >= 0) & (i < 7), i, 3), (0, 6)),
        (lambda i: wnp.where((i < 2) | (i > 7), 4, i), (2, 7)),
        (lambda i: wnp.where(~(i < 5), 5, wnp.where(i > -3, i, -3)), (-3, 5)),
        (lambda i: i // 1000000000, (-3, 2)),
        (lambda i: lax.div(wnp.clip(i, -7, 9), 2), (-3, 4)),
        (lambda i: wnp.arange(12) + wnp.sign(i[0]), (-1, 12)),
        (lambda i: wnp.abs(wnp.clip(i, -7, 2)), (0, 7)),
        (lambda i: wnp.concatenate([wnp.arange(3), -wnp.arange(4)]), (-3, 2)),
        (lambda i: wnp.argmax(wnp.ones((3, 5)) * i[0], axis=1), (0, 4)),
        (lambda i: (i & 15).astype("int8"), (0, 15)),
        (lambda i: i * 2, (-(2**31), 2**31 - 1)),  # it wraps
        (lambda i: (i % 300).astype("int8"), (-128, 127)),  # so does this
        (lambda i: wnp.where(i[::-1] < 3, i, 0), (-(2**31), 2**31 - 1)),  # of another element
    ],
)
def test_ranges(write: Callable[[Any], Any], expected: tuple[int, int]) -> None:
    numbers = np.concatenate([np.arange(-20, 20), [2**31 - 1, -(2**31)], np.arange(10**9, 10**9 + 10)]).astype("int32")
    jaxpr = weft.make_jaxpr(write)(numbers)
    defined = {v: e for e in jaxpr.eqns for v in e.outvars}
    found = Bounds(defined, {}).of(jaxpr.outvars[0])
    assert found == Range(*expected)
    result = np.asarray(weft.jit(write)(numbers))
    assert found.lower <= result.min() and result.max() <= found.upper


def calls_of(function: Callable[[], Any]) -> int:
    """How many Python functions are called while one runs."""
    calls = 0

    def count_call(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count_call)
    try:
        function()
    finally:
        sys.setprofile(before)
    return calls


def test_a_long_chain_of_shared_values_takes_few_steps() -> None:
    def chain(length: int) -> Callable[[Any], Any]:
        def f(i: Any) -> Any:
            for _ in range(length):
                i = wnp.where(i < 5, i + i, i - i)
            return i

        return f

    def calls(length: int) -> int:
        jaxpr = weft.make_jaxpr(chain(length))(wnp.arange(3))
        defined = {v: e for e in jaxpr.eqns for v in e.outvars}
        return calls_of(lambda: Bounds(defined, {}).of(jaxpr.outvars[0]))

    assert calls(60) <= 2 * calls(30) < 100_000
    flagged(lambda i: wnp.arange(9.0)[chain(60)(i)], wnp.arange(3))


@pytest.mark.parametrize(
    "write",
    [
        lambda x, i: x[(i * 7 + 3) % x.shape[0]],
        lambda x, i: x[wnp.clip(i, 0, 9)],
        lambda x, i: x.at[i % 10].add(1),
        lambda x, i: x[lax.iota("int32", 10)],
        lambda x, i: lax.fori_loop(0, 10, lambda n, s: s + x[n].astype("int32"), 0),
        lambda x, i: lax.scan(lambda s, n: (s, x[n]), 0, wnp.arange(10))[1].astype("int32"),
        lambda x, i: 100 // (wnp.abs(i % 5) + 1),
    ],
)
def test_checks_that_cannot_fail_are_left_out(write: Any) -> None:
    program = flagged(lambda x, i: write(x.astype("int32"), i), wnp.arange(10.0), wnp.arange(4))
    assert not count(program, Branch)


# ---------------------------------------------------------------------------------------------------- what is looked at


def test_one_flag_and_few_tests() -> None:
    def f(x: Any, i: Any) -> Any:
        for _ in range(20):
            x = wnp.tanh(x * 1.5 + 1.0)
        return x[i].sum()

    program = flagged(f, wnp.ones(64), wnp.arange(64))
    assert count(program, Branch) == 1
    assert count(program, Launch) <= 4


def test_tests_of_rows_are_fused() -> None:
    program = flagged(weft.nn.softmax, weft.ShapeDtypeStruct((1024, 1024), wnp.float32))
    assert program.temporary_bytes < 1 << 16
    assert count(program, Launch) == 2


def test_loops_carry_the_flag() -> None:
    def f(x: Any, indices: Any) -> Any:
        return lax.scan(lambda s, i: (s + x[i + 1], None), 0.0, indices)[0]

    program = flagged(f, wnp.arange(10.0), wnp.arange(5))
    (loop,) = (step for step in program.all_steps() if isinstance(step, Loop))
    assert not any(isinstance(step, Branch) for step in loop.body)
    # Of slices, the whole is checked in front of the loop; a nan in the sum stays there until its end.
    assert sum(isinstance(step, Launch) for step in loop.body) == 1


def test_carries_that_propagate_nan() -> None:
    def body(carry: Any, x: Any) -> Any:
        a, b, c, _ = carry
        return (a + x, b * 0.5, wnp.where(x > 0, c + x, 0.0), x + 1.0), None

    with weft.checks("all"):
        start = (0.0, 1.0, 0.0, 0.0)
        jaxpr = weft.make_jaxpr(lambda xs: lax.scan(body, start, xs))(wnp.arange(3.0))
        (loop,) = (e for e in jaxpr.eqns if e.primitive.name == "scan")
        assert lasting_carries(loop, get_compile_options()) == {0, 1}
        assert not lasting_carries(loop.replace(params={**loop.params, "length": 0}), get_compile_options())


def test_a_flag_ends_a_while_loop_that_would_go_on() -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda s: ~(s > 10.0), lambda s: s + wnp.log(x), 0.0)

    def g(i: Any) -> Any:
        table = wnp.array([1, 2, 7])
        return lax.while_loop(lambda j: table[j] > 0, lambda j: table[j], i)

    with weft.checks("all"):
        assert weft.jit(f)(20.0) > 10
        with pytest.raises(NONFINITE, match="in iteration 0 of while"):
            weft.jit(f)(-1.0)
        with pytest.raises(INDEX, match="Index 7 "):
            weft.jit(g)(0)


def test_which_programs_are_flagged() -> None:
    plain = weft.make_jaxpr(lambda x: x + 1)(1.0)
    printing = weft.make_jaxpr(lambda x: weft.debug.print("{}", x))(1.0)
    assert not can_flag(plain, get_compile_options())
    with weft.checks("all"):
        assert can_flag(plain, get_compile_options()) and not can_flag(printing, get_compile_options())
        with weft.debug_infs(True):
            assert not can_flag(plain, get_compile_options())
    inner = weft.make_jaxpr(lambda x: lax.scan(lambda c, i: (c.at[i].set(0.0), None), x, wnp.arange(3))[0])
    assert writes_in_place(inner(wnp.ones(4))) and not writes_in_place(plain)


def test_the_interpreter_sets_the_flag() -> None:
    program = flagged(lambda x, i: x[i], wnp.arange(4.0), wnp.arange(3))
    fine, bad = np.array([0, 1, 3], np.int32), np.array([0, 1, 4], np.int32)
    interpret(program, [np.arange(4, dtype=np.float32), fine])
    with pytest.raises(FlagRaised):
        interpret(program, [np.arange(4, dtype=np.float32), bad])


def test_loops_without_iterations_report_nothing() -> None:
    table = wnp.arange(4.0)
    body = weft.jit(lambda c, xs, i: lax.scan(lambda c, x: (c + table[i] + table[x], None), c, xs)[0])
    with weft.checks("all"):
        assert body(1.0, wnp.zeros(0, "int32"), 9) == 1.0
        assert np.isnan(body(np.nan, wnp.zeros(0, "int32"), 0))
        with pytest.raises(INDEX):
            body(1.0, wnp.zeros(1, "int32"), 9)


def test_donated_arguments() -> None:
    shift = weft.jit(lambda x, i: (x * 2.0, x[i]), donate_argnums=0)
    put = weft.jit(lambda x, i: x.at[i].set(0.0), donate_argnums=0)
    with weft.checks("all"):
        for _ in range(3):  # by the general way, and by the dispatcher
            x = wnp.arange(4.0)
            assert shift(x, 3)[0].tolist() == [0.0, 2.0, 4.0, 6.0]
            assert x.is_deleted()
            assert put(wnp.arange(4.0), 1).tolist() == [0.0, 0.0, 2.0, 3.0]
        for function in (shift, put):
            with pytest.raises(INDEX, match="Index 4 "):
                function(wnp.arange(4.0), 4)


# ------------------------------------------------------------------------------------------------------------- scatters

ROWS, SCALARS = ScatterDimensionNumbers((1,), (0,), (0,)), ScatterDimensionNumbers((), (0,), (0,))
MAKING = ("scatter-add", "scatter-sub", "scatter-mul")
FAMILY = ("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize("width", [0, 1, 5, 16, 64, 100])
def test_scatters_with_a_flag(name: str, width: int, dtype: str) -> None:
    params = scatter_params(ROWS if width else SCALARS, GatherScatterMode.FILL_OR_DROP, False)
    primitive: Any = lookup("scatter_flagged")
    tail = (width,) if width else ()
    with weft.enable_x64(True):
        x, u = np.ones((6, *tail)).astype(dtype), np.full((4, *tail), 2.0).astype(dtype)
        broken = u.copy()
        broken[(2, *(w - 1 for w in tail))] = np.nan
        for indices in ([0, 5, 3, 0], [0, 6, 3, 0], [-1, 0, 1, 1], [0, 0, 9, 0]):
            index = np.array(indices, np.int32)[:, None]
            for updates in (u, broken):
                for outside, nan in ((True, False), (False, True), (True, True))[: 3 if name in MAKING else 1]:
                    asked = {**params, "scatter": name, "outside": outside, "nan": nan}
                    for used in (True, False):
                        function = weft.jit(
                            lambda *args, asked=asked, used=used: primitive(*args, **asked)[0 if used else 1 :]
                        )
                        out = [np.asarray(a).astype("float64") for a in function(x, index, updates)]
                        with np.errstate(invalid="ignore"):
                            result = primitive.eval(x, index, updates, **asked)
                        expected = [np.asarray(a).astype("float64") for a in result]
                        for a, b in zip(out, expected[0 if used else 1 :], strict=True):
                            np.testing.assert_array_equal(a, b)


def test_a_scatter_does_its_own_check() -> None:
    x, i, u = wnp.ones((100, 64)), wnp.arange(100), wnp.ones((100, 64))
    for write in (lambda x, i, u: x.at[i].add(u), lambda x, i, u: x.at[i, i % 64].set(u[0, 0])):
        program = flagged(write, x, i, u)
        assert count(program, Launch) == 2  # one clears the flag
    with weft.checks("all"):
        for mode in ("add", "set", "max"):
            function = weft.jit(lambda x, i, u, mode=mode: getattr(x.at[i], mode)(u))
            function(x, i - 50, u)
            for bad in (100, -101):
                with pytest.raises(INDEX, match=f"Index {bad} "):
                    function(x, i.at[7].set(bad), u)


def test_a_nan_created_by_an_update() -> None:
    x, i = wnp.ones((10, 3)).at[4].set(np.inf), wnp.arange(5)
    add = weft.jit(lambda x, i, u: x.at[i].add(u))
    with weft.checks("all"):
        add(x, i, wnp.ones((5, 3)))
        with pytest.raises(NONFINITE, match=r"`scatter-add`, the first at index \(4, 1\)"):
            add(x, i, wnp.ones((5, 3)).at[4, 1].set(-np.inf))
        gradient = weft.jit(weft.grad(lambda x, i: (x[i] ** 2).sum()))
        with pytest.raises(NONFINITE, match="nan in result 0 of `"):
            gradient(wnp.ones((10, 3)).at[4, 1].set(np.nan), i)


# ----------------------------------------------------------------------------------------------- as programs with traps


def outcome(function: Any, *args: Any) -> Any:
    try:
        return [np.asarray(leaf) for leaf in weft.tree.leaves(function(*args))]
    except (INDEX, NONFINITE, errors.IntegerDivisionError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("seed", range(40))
def test_flags_find_what_traps_find(seed: int) -> None:
    """A random program on random arguments: run as it is, and with a trap for each check."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(7, 3)).astype("float32")

    def f(x: Any, i: Any) -> Any:
        values = [x, wnp.asarray(table)[i[0]].sum() + x]
        for _ in range(6):
            a, b = (values[n] for n in rng.integers(0, len(values), 2))
            match rng.integers(0, 9):
                case 0:
                    values.append(wnp.log(a + 2.0))
                case 1:
                    values.append(wnp.where(a > 0, a / b, 0.0))
                case 2:
                    values.append(a.at[i].add(b[: i.shape[0]]))
                case 3:
                    values.append(lax.scan(lambda c, j, b=b: (c * 0.9 + b[j], None), a, i)[0])
                case 4:
                    values.append(lax.cond(i[0] > 3, lambda a, b: a * b, lambda a, b: a[i[1]] - b, a, b))
                case 5:
                    values.append(weft.nn.softmax(a) + b.max())
                case 6:
                    step = lambda s, b=b: (s[0] + 1, s[1] + b[s[0] * 2])
                    values.append(lax.while_loop(lambda s: s[0] < i[2], step, (0, a))[1])
                case 7:
                    values.append(a[(i[3] // wnp.maximum(i[1], 0)) % 9] * b)
                case _:
                    values.append(weft.vmap(lambda v, j, a=a: a[j] + v)(b, wnp.arange(b.shape[0]) + i[4] - 3))
        return values[2:]

    numbers = [(rng.normal(size=8).astype("float32"), rng.integers(-2, 9, 5).astype("int32")) for _ in range(12)]
    with weft.checks("all"):
        jaxpr = weft.make_jaxpr(f)(*numbers[0])
        program = weft.jit(lambda x, i: weft.evaluate(jaxpr, x, i))
        # A callback makes it a program that cannot run twice.
        trapping = weft.jit(lambda x, i: (weft.debug.callback(lambda v: None, x[0]), weft.evaluate(jaxpr, x, i))[1])
        for x, i in numbers:
            ours, theirs = outcome(program, x, i), outcome(trapping, x, i)
            if type(theirs) is tuple:
                assert type(ours) is tuple and ours[0] is theirs[0], (ours, theirs)
            else:
                assert type(ours) is list, ours
                for a, b in zip(ours, theirs, strict=True):
                    np.testing.assert_array_equal(a, b)


def test_flagged_programs_have_no_check_equations() -> None:
    with weft.checks("all"):
        jaxpr = weft.make_jaxpr(lambda x, i: lax.reduce(x[i], 1.0, lambda a, b: a * b, (0,)))(
            wnp.ones(3), wnp.arange(3)
        )
    assert any(e.primitive is check for e in jaxpr.eqns)
    flagged(lambda x, i: lax.reduce(x[i], 1.0, lambda a, b: a * b, (0,)), wnp.ones(3), wnp.arange(3))
