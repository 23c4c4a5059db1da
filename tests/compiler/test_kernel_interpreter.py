"""Hand-written kernels, interpreted and compiled, match NumPy for all sizes and widths."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from tests.compiler import kernels
from tests.compiler.running import MACHINES, assert_compiles, compiled, interpreted, numbers
from weft.base.errors import InternalError, MissingRuleError
from weft.compiler.kernel.builder import KernelBuilder
from weft.compiler.kernel.interpreter import run
from weft.compiler.kernel.ir import Compute, Index, Kernel, Load, Loop, LoopKind, Statement
from weft.compiler.target import vectors
from weft.compiler.target.cpu.link import Tier

RNG = np.random.default_rng(0)
SIZES = (0, 1, 16, 37)
DTYPES = ("float32", "float64", "int32", "int8", "uint16", "complex64")


def numeric(dtype: str, size: int) -> np.ndarray:
    return numbers(RNG, dtype, size)


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> Any:
    return MACHINES[request.param]()


@pytest.mark.parametrize("dtype", DTYPES)
def test_map(machine: Any, dtype: str) -> None:
    for size, width in [(0, 16), (1, 16), (37, 8), (1024, 16), (2100, 16), (70, 1)]:
        a, b = numeric(dtype, size), numeric(dtype, size)
        kernel = kernels.fused_map(size, dtype, width)
        y = assert_compiles(kernel, [a, b, np.zeros(size, dtype)], machine, parts=3)[2]
        np.testing.assert_array_equal(y, (a * b + a) * a)


def test_tails(machine: Any) -> None:
    """Eight vectors and a few elements more or less: there the tail comes to have a body of its own."""
    for size in (63, 127, 128, 129, 143, 144, 145):
        a, b = numeric("float32", size), numeric("float32", size)
        for kernel, results in (
            (kernels.fused_map(size), size),
            (kernels.reversed_copy(size), size),
            (kernels.padded(size, 3, 5), size + 8),
            (kernels.row_reduction(1, size), 1),
        ):
            arrays = [a, b][: len(kernel.buffers) - 1]
            assert_compiles(kernel, [*arrays, np.zeros(results, np.float32)], machine, tier=Tier.QUICK)


def test_a_tail_with_a_body_of_its_own_has_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes and their order do not depend on where masks are."""
    x = RNG.normal(size=(3, 200)).astype(np.float32)
    result = []
    for weight in (vectors.SPLIT_WEIGHT, -1):
        monkeypatch.setattr(vectors, "SPLIT_WEIGHT", weight)
        result.append(compiled(kernels.softmax(3, 200), [x, np.zeros_like(x)], MACHINES["host"]())[1])
    assert result[0].tobytes() == result[1].tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", SIZES)
def test_reductions(machine: Any, dtype: str, columns: int) -> None:
    x = numeric(dtype, 3 * columns).reshape(3, columns)
    for width in (1, 8, 16):
        rows = kernels.row_reduction(3, columns, dtype=dtype, width=width)
        (_, y) = assert_compiles(rows, [x, np.ones(3, dtype)], machine, tier=Tier.QUICK)
        np.testing.assert_array_equal(y, x.sum(1, dtype=dtype))
        down = kernels.column_reduction(3, columns, dtype, width)
        (_, y) = assert_compiles(down, [x, np.ones(columns, dtype)], machine, tier=Tier.QUICK)
        np.testing.assert_array_equal(y, x.sum(0, dtype=dtype))
        whole = kernels.whole_reduction(3, columns, dtype, width)
        (_, y) = assert_compiles(whole, [x, np.ones(1, dtype)], machine, tier=Tier.QUICK)
        np.testing.assert_array_equal(y[0], x.sum(dtype=dtype))


@pytest.mark.parametrize("dtype", [*DTYPES, "bool", "bfloat16", "float16"])
@pytest.mark.parametrize("columns", SIZES)
def test_data_movement(machine: Any, dtype: str, columns: int) -> None:
    from_name = kernels.dtype(dtype)
    x = numbers(RNG, from_name, 3 * columns).reshape(3, columns)
    for width in (1, 16):
        for make in (kernels.transposed, kernels.scattered):
            y = assert_compiles(make(3, columns, from_name, width), [x, np.zeros_like(x)], machine, tier=Tier.QUICK)[1]
            np.testing.assert_array_equal(y.reshape(-1), x.T.reshape(-1))
        row = x.reshape(-1)[:columns]
        y = assert_compiles(
            kernels.reversed_copy(columns, from_name, width), [row, np.zeros_like(row)], machine, tier=Tier.QUICK
        )[1]
        np.testing.assert_array_equal(y, row[::-1])
        padded = np.pad(row, (3, 5), constant_values=np.array(7 if dtype != "bool" else True).astype(from_name))
        kernel = kernels.padded(columns, 3, 5, from_name, width)
        y = assert_compiles(kernel, [row, np.zeros_like(padded)], machine, tier=Tier.QUICK)[1]
        np.testing.assert_array_equal(y, padded)


@pytest.mark.parametrize("size", SIZES)
def test_gathers(machine: Any, size: int) -> None:
    x = numeric("float32", 7)
    where = RNG.integers(-5, 12, size).astype(np.int32)
    for width in (1, 16):
        y = assert_compiles(kernels.taken(size, 7, width=width), [x, where, np.zeros(size, np.float32)], machine)[2]
        np.testing.assert_array_equal(y, x[where.clip(0, 6)])


def test_softmax(machine: Any) -> None:
    for columns in (1, 16, 37):
        x = RNG.standard_normal((5, columns)).astype(np.float32)
        kernel = kernels.softmax(5, columns)
        expected = np.exp(x - x.max(1, keepdims=True))
        expected /= expected.sum(1, keepdims=True)
        np.testing.assert_allclose(interpreted(kernel, [x, np.zeros_like(x)])[1], expected, 1e-6)
        np.testing.assert_allclose(compiled(kernel, [x, np.zeros_like(x)], machine, parts=2)[1], expected, 1e-6)


# ------------------------------------------------------------------------------------------------- the language itself


def statements(kernel: Kernel) -> list[Statement]:
    """All statements, with those of loops after them."""
    found: list[Statement] = []

    def visit(body: tuple[Statement, ...]) -> None:
        for statement in body:
            found.append(statement)
            if isinstance(statement, Loop):
                visit(statement.body)

    visit(kernel.body)
    return found


def test_equal_computations_are_emitted_once() -> None:
    k = KernelBuilder("twice")
    x, y = k.buffer("x", np.float32, 8), k.buffer("y", np.float32, 8, written=True)
    with k.loop(8) as i:
        one = k.scalars.mul(k.load(x, i), k.load(x, i))
        with k.loop(2) as _:
            assert k.scalars.mul(k.load(x, Index.of(i)), k.load(x, i + 0)) is one
        k.store(y, i, k.scalars.add(one, k.scalars.mul(k.load(x, i), k.load(x, i))))
    assert sum(isinstance(s, Load) for s in statements(k.finish())) == 1
    assert sum(isinstance(s, Compute) for s in statements(k.finish())) == 2


def test_a_store_invalidates_loads() -> None:
    k = KernelBuilder("again")
    y = k.buffer("y", np.float32, 4, written=True)
    with k.loop(4) as i:
        first = k.load(y, i)
        assert k.load(y, i) is first
        k.store(y, i, k.scalars.add(first, first))
        second = k.load(y, i)
        assert second is not first
        with k.loop(3) as _:
            assert k.load(y, i) is not second
            k.store(y, i, k.scalars.add(k.load(y, i), first))
        assert k.load(y, i) is not second
    y_after = np.arange(4, dtype=np.float32)
    run(k.finish(), [y_after])
    np.testing.assert_array_equal(y_after, 5 * np.arange(4))


def test_primitives_are_emitted_over_scalars() -> None:
    k = KernelBuilder("emitted")
    value = k.constant(2, np.float32)
    assert k.scalars.exp(value).dtype == np.float32
    assert k.scalars.lt(value, value).dtype == np.bool_
    assert k.scalars.convert(value, np.dtype(np.int8)).dtype == np.int8
    assert k.scalars.convert(value, np.dtype(np.float32)) is value
    with pytest.raises(MissingRuleError, match="no_such_operation"):
        k.scalars.no_such_operation(value)
    with pytest.raises(TypeError, match="the same dtypes"):
        k.scalars.add(value, k.constant(2, np.int32))


def test_a_loop_says_what_it_carries() -> None:
    k = KernelBuilder("carries")
    zero = k.constant(0, np.float32)
    with pytest.raises(InternalError, match="does not say"):
        with k.loop(3, carries=[zero]):
            pass
    k = KernelBuilder("carries")
    zero = k.constant(0, np.float32)
    with pytest.raises(InternalError, match="goes on after"):
        with k.loop(3, carries=[zero]) as (i, (total,)):
            k.carry(total)
            k.position(i)


def test_interpreter_checks_bounds() -> None:
    k = KernelBuilder("outside")
    x, where = k.buffer("x", np.float32, 4), k.buffer("where", np.int32, 1)
    y = k.buffer("y", np.float32, 1, written=True)
    k.store(y, 0, k.load(x, k.load(where, 0)))
    with pytest.raises(InternalError, match=r"The kernel outside reads x\[-1\]; it has 4 elements\."):
        run(k.finish(), [np.zeros(4, np.float32), np.array([-1], np.int32), np.zeros(1, np.float32)])


def test_interpreter_names_the_loops() -> None:
    k = KernelBuilder("outside")
    x, where = k.buffer("x", np.float32, 40), k.buffer("where", np.int32, 3)
    y = k.buffer("y", np.float32, 60, written=True)
    with k.loop(3) as i:
        first = k.load(where, i)
        with k.loop(20, kind=LoopKind.LANES, width=16) as j:
            k.store(y, i * 20 + j, k.load(x, Index.of(j) + first))
    arrays = [np.zeros(40, np.float32), np.array([0, 20, 21], np.int32), np.zeros(60, np.float32)]
    with pytest.raises(InternalError, match=r"reads x\[40\]; it has 40 elements \(at i1 = 2, i2 = 16 to 19\)"):
        run(k.finish(), arrays)
    arrays[1][2] = 20
    run(k.finish(), arrays)


def test_interpreter_checks_lanes_beyond_the_bound_of_padded_buffers() -> None:
    for size, message in ((32, None), (31, r"reads x\[31\]; it has 31 elements")):
        k = KernelBuilder("padded")
        x, y = k.buffer("x", np.float32, size, padded=True), k.buffer("y", np.float32, 20, written=True)
        with k.loop(20, kind=LoopKind.LANES, width=16) as i:
            k.store(y, i, k.load(x, i))
        with pytest.raises(InternalError, match=message) if message else nullcontext():
            run(k.finish(), [np.zeros(size, np.float32), np.zeros(20, np.float32)])


def test_interpreter_detects_reads_of_unwritten_memory() -> None:
    k = KernelBuilder("early")
    scratch = k.buffer("scratch", np.float32, 20, written=True)
    with k.loop(19) as i:
        k.store(scratch, i, k.load(scratch, i + 1))
    written = np.zeros((20, 4), np.bool_)
    written[:4] = True
    with pytest.raises(InternalError, match=r"reads scratch\[4\]; that was not written before \(at i1 = 3\)"):
        run(k.finish(), [np.zeros(20, np.float32)], written=[written])
    written[:] = True
    run(k.finish(), [np.zeros(20, np.float32)], written=[written])


def test_interpreter_detects_data_races() -> None:
    for read, wrote, message in ((0, 0, None), (1, 0, "reads"), (0, 1, "writes"), (-1, 0, "writes")):
        k = KernelBuilder("shared")
        x, y = k.buffer("x", np.float32, 10), k.buffer("y", np.float32, 10, written=True)
        with k.loop(8, kind=LoopKind.THREADS) as i:
            k.store(y, i + (1 + wrote), k.load(x, i + (1 + read)))
        memory = np.zeros(10, np.float32)
        # Both buffers may be one memory only if no iteration reads what another one wrote.
        with pytest.raises(InternalError, match=f"another iteration .* {message} that") if message else nullcontext():
            run(k.finish(), [memory, memory])
    k = KernelBuilder("twice")
    y = k.buffer("y", np.float32, 1, written=True)
    with k.loop(2, kind=LoopKind.THREADS):
        k.store(y, 0, k.constant(1, np.float32))
    with pytest.raises(InternalError, match=r"writes y\[0\]; another iteration of the loop over threads writes that"):
        run(k.finish(), [np.zeros(1, np.float32)])


def test_interpreter_checks_buffers() -> None:
    kernel = kernels.reversed_copy(4)
    with pytest.raises(InternalError, match="buffer x needs 4 contiguous float32"):
        run(kernel, [np.zeros(4, np.float64), np.zeros(4, np.float32)])
    with pytest.raises(InternalError, match="buffer y needs 4"):
        run(kernel, [np.zeros(4, np.float32), np.zeros(8, np.float32)[::2]])


def test_branch(machine: Any) -> None:
    k = KernelBuilder("branch")
    x, y = k.buffer("x", np.float32, 10), k.buffer("y", np.float32, 10, written=True)
    with k.loop(10) as i:
        value = k.load(x, i)
        with k.when(k.scalars.gt(value, k.constant(0, np.float32))):
            k.store(y, i, k.scalars.add(value, value))
    x_values = numeric("float32", 10)
    y_after = assert_compiles(k.finish(), [x_values, np.full(10, 7, np.float32)], machine)[1]
    np.testing.assert_array_equal(y_after, np.where(x_values > 0, 2 * x_values, 7))


def test_a_load_that_all_lanes_share(machine: Any) -> None:
    """One element for all lanes, some of which may not ask for it; and none where that would be outside."""
    k = KernelBuilder("shared")
    x, y = k.buffer("x", np.float32, 3), k.buffer("y", np.float32, 60, written=True)
    with k.loop(6) as r:
        with k.loop(10, kind=LoopKind.LANES, width=8) as c:
            s = k.scalars
            inside = s.lt(k.position(r), k.constant(3, np.int64))
            some = getattr(s, "and")(inside, s.ge(k.position(c), k.constant(4, np.int64)))
            whole = k.load(x, r, inside, k.constant(5, np.float32))
            k.store(y, r * 10 + c, s.add(whole, k.load(x, r, some, k.constant(9, np.float32))))
    x_values = numeric("float32", 3)
    y_after = assert_compiles(k.finish(), [x_values, np.zeros(60, np.float32)], machine)[1].reshape(6, 10)
    expected = np.full((6, 10), 14, np.float32)
    expected[:3, :4], expected[:3, 4:] = x_values[:, None] + 9, 2 * x_values[:, None]
    np.testing.assert_array_equal(y_after, expected)


def test_a_store_under_a_condition(machine: Any) -> None:
    k = KernelBuilder("some")
    x, y = k.buffer("x", np.int8, 50), k.buffer("y", np.int8, 53, written=True)
    with k.loop(50, kind=LoopKind.LANES, width=16) as i:
        value = k.load(x, i)
        k.store(y, i + 3, value, k.scalars.gt(value, k.constant(0, np.int8)))
    x_values = numeric("int8", 50)
    y_after = assert_compiles(k.finish(), [x_values, np.zeros(53, np.int8)], machine)[1]
    np.testing.assert_array_equal(y_after[3:], np.maximum(x_values, 0))


def test_strided_lanes(machine: Any) -> None:
    """A loop over lanes with a step and a start, below a limit that is known only when it runs."""
    k = KernelBuilder("apart")
    x, y = k.buffer("x", np.float32, 100), k.buffer("y", np.float32, 5, written=True)
    with k.loop(5) as r:
        with k.loop(
            100, start=3, step=3, kind=LoopKind.LANES, width=4, limit=r * 11 + 2, carries=[k.constant(0, np.float32)]
        ) as (
            i,
            (total,),
        ):
            (sums,) = k.carry(k.scalars.add(total, k.load(x, i)))
        k.store(y, r, k.reduce_lanes("add", sums, 4))
    x_values = numeric("float32", 100)
    y_after = assert_compiles(k.finish(), [x_values, np.zeros(5, np.float32)], machine)[1]
    np.testing.assert_array_equal(y_after, [x_values[3 : 11 * r + 2 : 3].sum() for r in range(5)])
