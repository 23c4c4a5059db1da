"""Checks in compiled programs: errors trap in every context, valid code does not, and results are unchanged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.host import compile_program, interpret
from weft import errors, lax
from weft.compiler.program.ir import Branch, Call, Launch
from weft.compiler.program.verifier import verify
from weft.primitives.control.check import CHECK, drop_checks
from weft.primitives.control.masked import mask_jaxpr

TABLE = np.arange(10, dtype=np.float32)


def read(i: Any) -> Any:
    return wnp.asarray(TABLE)[i]


def read_many(i: Any) -> Any:
    return wnp.sum(wnp.asarray(TABLE)[i + wnp.arange(3)])


def write(i: Any) -> Any:
    return wnp.sum(wnp.asarray(TABLE).at[i].add(1.0))


def cut(i: Any) -> Any:
    return wnp.sum(lax.dynamic_slice(wnp.asarray(TABLE), (i,), (2,), allow_negative_indices=False))


def paste(i: Any) -> Any:
    return wnp.sum(lax.dynamic_update_slice(wnp.asarray(TABLE), wnp.ones(2), (i,), allow_negative_indices=False))


def quotient(i: Any) -> Any:
    return (100 // (i - 12)).astype("float32")


def remainder(i: Any) -> Any:
    return (100 % (i - 12)).astype("float32")


def cut_quotient(i: Any) -> Any:
    return lax.div(100, i - 12).astype("float32")


def logarithm(i: Any) -> Any:
    return wnp.log(11.5 - i)


def difference(i: Any) -> Any:
    return 1.0 / wnp.maximum(12.0 - i, 0.0) - 1.0 / wnp.maximum(12.0 - i, 0.0)


INDEX, DIVISION, NONFINITE = errors.OutOfBoundsIndexError, errors.IntegerDivisionError, errors.NonFiniteValueError
# Each is fine at 2 and wrong at 12.
BODIES: dict[Callable[[Any], Any], type[Exception]] = {
    read: INDEX,
    read_many: INDEX,
    write: INDEX,
    cut: INDEX,
    paste: INDEX,
    quotient: DIVISION,
    remainder: DIVISION,
    cut_quotient: DIVISION,
    logarithm: NONFINITE,
    difference: NONFINITE,
}


def plain(f: Any) -> Any:
    return f


def in_scan(f: Any) -> Any:
    return lambda i: lax.scan(lambda c, j: (c + 1, f(j)), 0, wnp.stack([i * 0, i]))[1].sum()


def in_while(f: Any) -> Any:
    return lambda i: lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] + f(i * s[0])), (0, 0.0))[1]


def in_condition(f: Any) -> Any:
    """A check in what a while loop asks for."""
    return lambda i: lax.while_loop(lambda s: f(i) + s < 200.0, lambda s: s + 300.0, 0.0)


def in_fori(f: Any) -> Any:
    return lambda i: lax.fori_loop(0, i * 0 + 2, lambda n, s: s + f(i * n), 0.0)


def in_branch(f: Any) -> Any:
    return lambda i: lax.cond(i > 0, f, lambda j: 0.0, i)


def in_switch(f: Any) -> Any:
    return lambda i: lax.switch(i // i, [lambda j: 0.0, f, lambda j: 1.0], i)


def in_call(f: Any) -> Any:
    return lambda i: weft.jit(f)(i) * 2


def in_checkpoint(f: Any) -> Any:
    return weft.checkpoint(f)


def in_vmap(f: Any) -> Any:
    return lambda i: weft.vmap(f)(wnp.stack([i * 0, i])).sum()


def in_branch_of_vmap(f: Any) -> Any:
    """The branch runs for all lanes and is taken by one."""
    return lambda i: weft.vmap(lambda j, p: lax.cond(p, f, lambda k: 0.0, j))(
        wnp.stack([i * 0, i]), wnp.array([False, True])
    ).sum()


def in_while_of_vmap(f: Any) -> Any:
    return lambda i: weft.vmap(
        lambda j, n: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + f(j)), (0, 0.0))[1]
    )(wnp.stack([i * 0, i]), wnp.array([2, 1])).sum()


def in_vmap_of_scan(f: Any) -> Any:
    return lambda i: weft.vmap(in_scan(f))(wnp.stack([i * 0, i])).sum()


def in_scan_of_vmap(f: Any) -> Any:
    return in_scan(in_vmap(f))


def in_gradient(f: Any) -> Any:
    return lambda i: weft.grad(lambda x: x * f(i))(1.0)


def in_loop_of_gradient(f: Any) -> Any:
    return lambda i: weft.grad(lambda x: in_scan(lambda j: x * f(j))(i))(1.0)


WRAPPERS = [
    plain, in_scan, in_while, in_condition, in_fori, in_branch, in_switch, in_call, in_checkpoint, in_vmap,
    in_branch_of_vmap, in_while_of_vmap, in_vmap_of_scan, in_scan_of_vmap, in_gradient, in_loop_of_gradient,
]  # fmt: skip
# A branch that vmap runs for all lanes makes its numbers for all lanes.
MASKED = (in_branch_of_vmap, in_while_of_vmap)


@pytest.mark.parametrize("wrap", WRAPPERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
def test_traps_everywhere(body: Any, wrap: Any) -> None:
    program = weft.jit(wrap(body))
    with weft.checks("off"):
        expected = program(wnp.int32(2))
    with weft.checks("all"):
        for _ in range(3):  # by the general way, and by the dispatcher
            assert program(wnp.int32(2)) == expected
        for _ in range(2):
            with pytest.raises(BODIES[body]) as caught:
                program(wnp.int32(12))
        assert program(wnp.int32(2)) == expected  # the program is fine after it failed
    assert "test_checks.py" in str(caught.value)
    with weft.checks("eager"):
        program(wnp.int32(12))  # compiled programs are not checked then


@pytest.mark.parametrize("wrap", MASKED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("body", [b for b, error in BODIES.items() if error is not NONFINITE], ids=lambda f: f.__name__)
def test_lanes_that_do_not_take_a_branch_are_not_checked(body: Any, wrap: Any) -> None:
    if wrap is in_branch_of_vmap:
        mapped = weft.vmap(lambda j, p: lax.cond(p, body, lambda k: 0.0, j))
        lanes = wnp.array([True, False])
    else:
        mapped = weft.vmap(
            lambda j, n: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + body(j)), (0, 0.0))[1]
        )
        lanes = wnp.array([3, 0])
    arguments = wnp.array([2, 12]), lanes
    with weft.checks("off"):
        expected = weft.jit(mapped)(*arguments)
    with weft.checks("all"):
        np.testing.assert_array_equal(weft.jit(mapped)(*arguments), expected)
        np.testing.assert_array_equal(mapped(*arguments), expected)


def test_sub_jaxprs_get_the_mask() -> None:
    table = wnp.asarray(TABLE)

    def body(i: Any) -> Any:
        total = lax.scan(lambda c, j: (c + table[i + j], None), 0.0, wnp.arange(2))[0]
        total += lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] + table[i]), (0, 0.0))[1]
        total += lax.fori_loop(0, i, lambda n, s: s + table[i], 0.0)
        total += lax.cond(i > 5, lambda: table[i], lambda: 0.0)
        return total + weft.jit(lambda j: table[j])(i) + weft.checkpoint(lambda j: table[j])(i)

    mapped = weft.jit(weft.vmap(lambda i, p: lax.cond(p, body, lambda j: 0.0, i)))
    with weft.checks("off"):
        expected = mapped(wnp.array([3, 40]), wnp.array([True, False]))
    with weft.checks("all"):
        np.testing.assert_array_equal(mapped(wnp.array([3, 40]), wnp.array([True, False])), expected)
        with pytest.raises(INDEX, match="in lane 1 of vmap"):
            mapped(wnp.array([3, 40]), wnp.array([True, True]))


def test_jaxprs_without_checks_and_with_a_mask() -> None:
    with weft.checks("all"):
        program = weft.make_jaxpr(lambda i: in_scan(read)(i) + read(i))(wnp.int32(1))
    assert CHECK in program.effects
    assert CHECK not in drop_checks(program).effects
    assert len(mask_jaxpr(program).invars) == len(program.invars) + 1
    active = mask_jaxpr(program)
    assert weft.evaluate(active, wnp.array(False), wnp.int32(12)) == weft.evaluate(drop_checks(program), wnp.int32(12))
    with pytest.raises(INDEX):
        weft.evaluate(active, wnp.array(True), wnp.int32(12))


# ------------------------------------------------------------------------------------------------------------- indices


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32"])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (3, 1, 2)])
def test_every_position_and_bound(dtype: str, shape: tuple[int, ...]) -> None:
    size = 7
    table = wnp.arange(float(size))
    program = weft.jit(lambda i: table[i])
    low = 0 if dtype.startswith("u") else -size
    with weft.checks("all"):
        for position in np.ndindex(shape):
            for value, fine in ((low, True), (size - 1, True), (size, False), (100, False), (low - 1, low == 0)):
                index = np.ones(shape, dtype)
                index[position] = max(value, 0) if dtype.startswith("u") else value
                if fine:
                    np.testing.assert_array_equal(program(index), np.arange(size)[index.astype("int32")])
                else:
                    with pytest.raises(INDEX, match=f"Index {value} ") as caught:
                        program(index)
                    assert not shape or f"at {list(position)} of {dtype}{list(shape)}" in str(caught.value)


def test_explicit_modes_mean_what_they_say() -> None:
    table = wnp.arange(4.0)
    bad = wnp.array([1, 9])
    with weft.checks("all"):
        assert weft.jit(lambda i: table.at[i].get(mode="clip"))(bad).tolist() == [1.0, 3.0]
        assert weft.jit(lambda i: table.at[i].get(mode="fill", fill_value=-1.0))(bad).tolist() == [1.0, -1.0]
        assert weft.jit(lambda i: table.at[i].set(7.0, mode="drop"))(bad).tolist() == [0.0, 7.0, 2.0, 3.0]
        assert weft.jit(lambda i: wnp.take(table, i, mode="wrap"))(bad).tolist() == [1.0, 1.0]


def test_indices_of_take_are_checked_in_compiled_code() -> None:
    """An embedding and a loss by labels read so; what they fill in would be found later, or not at all."""
    table, bad = wnp.arange(12).reshape(4, 3), wnp.array([1, -4, 9])
    rows = wnp.array([[2], [0], [-3], [3]])
    with weft.checks("all"):
        for function in (wnp.take, weft.jit(wnp.take, static_argnames="axis")):
            with pytest.raises(INDEX, match=r"Index 9 is out of bounds for axis 0") as caught:
                function(table, bad, axis=0)
            assert "at [2] of" in str(caught.value)
        for function in (wnp.take_along_axis, weft.jit(wnp.take_along_axis, static_argnames="axis")):
            with pytest.raises(INDEX, match=r"Index 3 is out of bounds for axis 1"):
                function(table, rows, axis=1)
        with pytest.raises(INDEX, match="Index 9"):
            weft.jit(weft.vmap(lambda i: wnp.take(table, i, axis=0)))(bad)
        assert weft.jit(lambda i: wnp.take(table, i, axis=0))(bad[:2]).tolist() == [[3, 4, 5], [0, 1, 2]]
        assert weft.jit(lambda i: wnp.take(table, i, fill_value=-1))(wnp.array([1, 99])).tolist() == [1, -1]
        assert weft.jit(lambda i: wnp.take(table, i, mode="clip"))(wnp.array([1, 99])).tolist() == [1, 11]
    assert weft.jit(lambda i: wnp.take(table * 1.0, i))(wnp.array([1, 99])).tolist()[0] == 1.0


def test_errors_show_computed_indices() -> None:
    table = wnp.arange(1000.0)
    program = weft.jit(lambda i, n: table[(i * 7 + 1) % n])
    indices = (np.arange(5000) * 7 + 1) % 1003
    bad = np.flatnonzero(indices >= 1000)
    with weft.checks("all"):
        program(wnp.arange(5000), 1000)
        with pytest.raises(INDEX, match=f"Index {indices[bad[0]]} ") as caught:
            program(wnp.arange(5000), 1003)
    assert f"at [{bad[0]}] of int32[5000], the first of {len(bad)}" in str(caught.value)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_indices_that_wrap_are_checked(dtype: str) -> None:
    """A difference that is a valid index as an integer is not if its dtype is unsigned."""
    table = wnp.arange(10.0)
    program = weft.jit(lambda: table[wnp.arange(6, dtype=dtype) - np.array(3, dtype)])
    with weft.checks("all"), pytest.raises(INDEX, match=f"Index {np.iinfo(dtype).max - 2} "):
        program()


def test_several_axes() -> None:
    table = wnp.ones((3, 5))
    program = weft.jit(lambda i, j: table[i, j])
    with weft.checks("all"):
        program(2, 4)
        with pytest.raises(INDEX, match="Index 3 is out of bounds for axis 0"):
            program(3, 4)
        with pytest.raises(INDEX, match="Index 5 is out of bounds for axis 1"):
            program(2, 5)


def test_gather_and_scatter_without_a_mode() -> None:
    table = wnp.ones((6, 5))
    numbers = lax.GatherDimensionNumbers((1, 2), (), (0, 1))
    cut_out = weft.jit(lambda i: lax.gather(table, i, numbers, (2, 3)))
    with weft.checks("all"):
        assert cut_out(wnp.array([[4, 2]])).shape == (1, 2, 3)
        with pytest.raises(INDEX, match="Index 5 is out of bounds: 2 elements from there on do not fit into axis 0"):
            cut_out(wnp.array([[4, 2], [5, 2]]))
        with pytest.raises(INDEX, match="axis 1"):
            cut_out(wnp.array([[4, 3]]))
        put = weft.jit(lambda i: lax.scatter(table, i, wnp.zeros((1, 2, 3)), lax.ScatterDimensionNumbers(*numbers)))
        put(wnp.array([[4, 2]]))
        with pytest.raises(INDEX, match="axis 1"):
            put(wnp.array([[4, 3]]))


# ------------------------------------------------------------------------------------------------------------- numbers


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "complex64"])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (33,), (3, 5), (2, 1, 40)])
def test_the_first_nan_is_named(dtype: str, shape: tuple[int, ...]) -> None:
    def f(x: Any) -> Any:
        doubled = x + x
        return doubled - x * 3

    rng = np.random.default_rng(0)
    with weft.enable_x64(dtype == "float64"), weft.debug_nans(True):
        program = weft.jit(f)
        fine = rng.normal(size=shape).astype("float32")
        program(wnp.asarray(fine, dtype))
        indices = list(np.ndindex(shape))
        for i in {0, len(indices) // 2, len(indices) - 1}:
            values = fine.copy()
            values[indices[i]] = np.nan
            with pytest.raises(NONFINITE, match="nan in result 0 of `add`") as caught:
                program(wnp.asarray(values, dtype))
            assert not shape or f"index {indices[i]} of shape {shape}" in str(caught.value)


@pytest.mark.parametrize("shape", [(5, 7), (3, 4, 33), (1, 9), (6, 1)])
def test_the_first_nan_in_rows(shape: tuple[int, ...]) -> None:
    def normalized(x: Any) -> Any:
        shifted = x - x.max(-1, keepdims=True)
        powers = wnp.exp(shifted)
        return powers / powers.sum(-1, keepdims=True)

    program = weft.jit(normalized)
    with weft.checks("all"):
        for index in list(np.ndindex(shape))[:: max(1, int(np.prod(shape)) // 9)]:
            values = np.random.default_rng(1).normal(size=shape).astype("float32")
            program(values)
            values[index] = np.nan
            with pytest.raises(NONFINITE, match="nan in result 0 of `sub`") as caught:
                program(values)
            row = (*index[:-1], 0)  # the greatest of a row with a nan is a nan
            assert f"the first at index {row} of shape {shape}" in str(caught.value)
            values[index] = -np.inf
            if shape[-1] > 1:  # else it is the greatest of its row
                program(values)
            values[index] = np.inf
            with pytest.raises(NONFINITE, match="nan in result 0 of `sub`") as caught:
                program(values)  # inf - inf
            assert f"the first at index {index} of shape {shape}" in str(caught.value)


def test_infinities_and_which_operation() -> None:
    program = weft.jit(lambda x: (x * x - 1.0) / (x + 1.0))
    with weft.debug_infs(True):
        program(wnp.array([1.0, 2.0]))
        with pytest.raises(NONFINITE, match=r"inf in result 0 of `mul`, the first at index \(1,\)"):
            program(wnp.array([1.0, 1e30]))
    with weft.debug_nans(True):
        with pytest.raises(NONFINITE, match=r"nan in result 0 of `div`, the first at index \(0,\)"):
            program(wnp.array([-1.0, 1e30]))  # 0/0; the infinity is none of its business


@pytest.mark.parametrize("wrapped", [lambda f: f, weft.jit], ids=["eager", "jit"])
def test_gathers_and_scalar_functions_are_not_checked_for_nan(wrapped: Any) -> None:
    """A gather moves a nan, or fills one in as its mode says. The order in which elements are combined is free: a nan
    that is only there in one of them is none of the result."""
    table, index = wnp.array([1.0, np.nan]), wnp.array([1, 5])
    read = wrapped(lambda i: table.at[i].get(mode="fill", fill_value=0))
    larger = lambda a, b: wnp.where(a - b > 0, a, b)  # inf - inf is nan, and no number is greater
    reduce = wrapped(lambda x: lax.reduce(x, np.float32(-np.inf), larger, (0,)))
    slide = wrapped(lambda x: lax.reduce_window(x, np.float32(-np.inf), larger, (2,), (1,), "VALID"))
    with weft.checks("all"):
        assert read(index)[1] == 0
        assert np.isnan(wrapped(lambda i: table.at[i].get(mode="fill"))(index)).all()
        assert reduce(wnp.array([np.inf, np.inf, 1.0])) == np.inf
        assert slide(wnp.array([np.inf, np.inf, 1.0]))[0] == np.inf
        with pytest.raises(NONFINITE, match="reduce"):
            wrapped(lambda x: lax.reduce(x, np.float32(1), lambda a, b: a * b, (0,)))(wnp.array([np.inf, 0.0]))
    with weft.debug_nans(True), pytest.raises(NONFINITE, match="gather"):
        wrapped(lambda i: table.at[i].get(mode="fill") + 1)(index)


def test_nan_of_data_movement_is_found_in_results() -> None:
    move = weft.jit(lambda x: wnp.where(x > 0, x, 0.0).reshape(2, 2)[::-1])
    pick = weft.jit(lambda x: x[1:3] + 0.0)
    values = wnp.array([1.0, 2.0, 3.0, np.nan])
    with weft.checks("all"):
        assert move(values).shape == (2, 2)
        assert pick(values).tolist() == [2.0, 3.0]
        assert np.isnan(weft.jit(lambda x: x[::-1])(values)[0])
    with weft.debug_nans(True), pytest.raises(NONFINITE, match="nan in result 0 of the program"):
        weft.jit(lambda x: x[::-1])(values)


@pytest.mark.parametrize("axis", [0, 1])
def test_lanes_of_nan(axis: int) -> None:
    values = np.ones((3, 3), np.float32)
    values[(1, 2) if axis == 0 else (2, 1)] = -1.0
    mapped = weft.jit(weft.vmap(lambda x: wnp.sqrt(x).sum(), in_axes=axis))
    with weft.debug_nans(True), pytest.raises(NONFINITE, match=r"index \(1, 2\)(.|\n)*in lane 1 of vmap"):
        mapped(values)


LOOPS: dict[str, Any] = {
    "scan": lambda v: lax.scan(lambda c, x: (c + wnp.log(x), None), 0.0, v)[0],
    "while": lambda v: lax.while_loop(lambda s: s < 100, lambda s: s * 2 + 0 * wnp.log(v[0]), 1.0),
    "cond": lambda v: lax.cond(v[0] < 0, lambda: wnp.log(v[0]), lambda: v[0]),
    "jit": weft.jit(lambda v: wnp.log(v)),
}


@pytest.mark.parametrize("name", LOOPS)
def test_lanes_of_nan_in_sub_jaxprs(name: str) -> None:
    x = np.array([[1.0, 2.0], [2.0, 3.0], [-1.0, -2.0]], np.float32)
    with weft.debug_nans(True), pytest.raises(NONFINITE, match="in lane 2 of vmap"):
        weft.jit(weft.vmap(LOOPS[name]))(x)
    with weft.debug_nans(True), pytest.raises(NONFINITE, match=r"in lane 0 of vmap(.|\n)*in lane 2 of vmap"):
        weft.jit(weft.vmap(weft.vmap(LOOPS[name])))(x[None])


def test_many_values_of_many_elements_need_wide_flags() -> None:
    def f(x: Any) -> Any:
        for _ in range(70):
            x = x * 0.5 + 1.0
        return x

    size = 1 << 25  # with 140 values more than 32 bits
    program = compile_program(weft.make_jaxpr(f)(weft.ShapeDtypeStruct((size,), wnp.float32)))
    assert not any(isinstance(step, Branch) for step in program.program.all_steps())
    with weft.debug_nans(True):
        checked = compile_program(weft.make_jaxpr(f)(weft.ShapeDtypeStruct((size,), wnp.float32)))
    flags = [step for step in checked.program.all_steps() if isinstance(step, Branch)]
    assert [step.dtype for step in flags] == [np.uint64]


# ------------------------------------------------------------------------------------------------------------- programs


def test_a_check_fails_after_a_callback() -> None:
    seen: list[int] = []
    table = wnp.asarray(TABLE)

    def f(i: Any) -> Any:
        weft.debug.callback(lambda v: seen.append(int(v)), i)
        return table[i]

    def g(i: Any) -> Any:
        taken = wnp.log(11.5 - i)
        weft.debug.callback(lambda v: seen.append(int(v)), i)
        return taken

    with weft.checks("all"):
        with pytest.raises(INDEX):
            weft.jit(f)(12)
        assert seen == [12]
        with pytest.raises(NONFINITE):
            weft.jit(g)(12)
        assert seen == [12]


def test_programs_verify_and_their_interpreter_traps() -> None:
    with weft.checks("all"):
        jaxpr = weft.make_jaxpr(lambda i: in_while(read)(i) + in_scan(quotient)(i))(wnp.int32(1))
        constants = [np.asarray(c) for c in jaxpr.consts]
        jaxpr = jaxpr.replace(invars=(*jaxpr.constvars, *jaxpr.invars), constvars=(), consts=())
        program = verify(compile_program(jaxpr).program)
    hosts = [step for step in program.all_steps() if isinstance(step, Call) and step.label == "check"]
    assert any(step.counters for step in hosts)
    with weft.checks("off"):
        expected = weft.jit(lambda i: in_while(read)(i) + in_scan(quotient)(i))(wnp.int32(3))
    (result,) = interpret(program, [*constants, np.int32(3)])
    assert result.view(np.float32)[0] == expected
    with pytest.raises(INDEX, match="in iteration 1 of while"):
        interpret(program, [*constants, np.int32(12)])


def test_the_check_of_an_index_is_fused_with_its_reader() -> None:
    types = weft.ShapeDtypeStruct((1 << 20,), wnp.float32), weft.ShapeDtypeStruct((1 << 20,), wnp.int32)
    with weft.checks("all"):
        program = compile_program(weft.make_jaxpr(lambda x, i: x[i])(*types)).program
    assert sum(isinstance(step, Launch) for step in program.all_steps()) == 2  # in parts over threads, and of the parts
    assert program.temporary_bytes < 4096


def test_rows_stay_in_one_kernel() -> None:
    with weft.checks("all"):
        x = weft.ShapeDtypeStruct((1024, 1024), wnp.float32)
        program = compile_program(weft.make_jaxpr(lambda x: weft.nn.softmax(x))(x)).program
    assert program.temporary_bytes < 1 << 16  # nothing of the size of x


def test_equal_checks_are_done_once() -> None:
    with weft.checks("all"):
        program = compile_program(weft.make_jaxpr(lambda x, y: x // y + x % y)(1, 2)).program
    assert sum(isinstance(step, Branch) for step in program.all_steps()) == 1


def test_scalar_functions_have_no_checks() -> None:
    reduce = weft.jit(lambda x: lax.reduce(x, np.int32(1), lambda a, b: a * b // b, (0,)))
    with weft.checks("all"):
        assert int(reduce(wnp.array([1, 2, 3]))) == 1


def test_a_donated_argument_is_whole_for_the_error() -> None:
    step = weft.jit(lambda i: (i * 3, wnp.asarray(TABLE)[i * 3].sum()), donate_argnums=0)
    with weft.checks("all"):
        assert step(wnp.array([1, 2, 3, 0]))[0].tolist() == [3, 6, 9, 0]
        with pytest.raises(INDEX, match="Index 12 "):
            step(wnp.array([1, 2, 4, 0]))


def test_each_result_of_a_barrier_has_its_own_range() -> None:
    def f(x: Any, i: Any) -> Any:
        _, behind = lax.optimization_barrier((i % 4, i))
        return x[behind]

    with weft.checks("all"), pytest.raises(INDEX, match="Index 100 "):
        weft.jit(f)(wnp.arange(4.0), np.int32(100))
