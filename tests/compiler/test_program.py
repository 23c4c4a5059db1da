"""Programs: their steps, sharing of memory, and that all ways of running them agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.host import compile_program, interpret
from tests.compiler.running import assert_same
from weft import lax
from weft.compiler.compile import Compilation
from weft.compiler.program.ir import Copy, Launch, Loop, nested_steps
from weft.compiler.program.verifier import verify
from weft.compiler.target.cpu.link import Tier
from weft.ir.interpreter import run, storage_array
from weft.ir.jaxpr import constants_to_arguments
from weft.runtime.cpu.executable import Executable
from weft.runtime.execute import get_executable

pytestmark = pytest.mark.tiny


def compilation_of(function: Callable[..., Any], *args: Any, donated: tuple[bool, ...] = ()) -> Compilation:
    jaxpr = weft.make_jaxpr(function)(*args)
    flags = (*[False] * len(jaxpr.consts), *donated)
    return compile_program(constants_to_arguments(jaxpr), flags if donated else ())


def arrays_of(function: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    jaxpr = weft.make_jaxpr(function)(*args)
    return [np.asarray(storage_array(c)) for c in jaxpr.consts] + [np.asarray(a) for a in weft.tree.leaves(args)]


def whole(*shape: int, seed: int = 0) -> np.ndarray:
    """Small integers, so that sums and products are exact in any order."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)


def fibonacci(n: Any) -> Any:
    return lax.fori_loop(0, n, lambda i, pair: (pair[1], pair[0] + pair[1]), (0, 1))[0]


def in_place_updates(x: Any) -> Any:
    return lax.fori_loop(0, 5, lambda i, buffer: buffer.at[i].set(buffer[i] * 2.0 + i), x)


def squared_until_large(x: Any) -> Any:
    return lax.while_loop(lambda s: s.sum() < 100.0, lambda s: s * s + x, x).sum()


def a_carry_that_is_a_constant_too(x: Any) -> Any:
    start = x + 1.0
    return lax.fori_loop(0, 3, lambda i, c: c * 2.0 + start[::-1], start)


def a_constant_beside_temporaries(x: Any, w: Any) -> Any:
    """What is made before the loop is read in each of its iterations, before and after other memory is needed."""
    scale = wnp.sort(w * 2.0)

    def step(c: Any, row: Any) -> Any:
        first = wnp.sort(wnp.concatenate([c + scale, row]))
        second = wnp.sort(first[::-1] * 2.0 - 1.0)[: c.shape[0]]
        return second - scale, first.sum()

    return lax.scan(step, w, x)


def temporaries_of_inner_loops(x: Any, y: Any) -> Any:
    """What an iteration of the outer loop makes is read in all iterations of the inner one."""

    def outer(c: Any, row: Any) -> Any:
        mine = wnp.sort(c - row)

        def inner(d: Any, other: Any) -> Any:
            new = wnp.sort(wnp.concatenate([d, other, mine]))[3:7]
            return new - mine, wnp.cumsum(new)[-1]

        return lax.scan(inner, mine, y)

    return lax.scan(outer, x[0], x)


def updated_by_itself(x: Any) -> Any:
    doubled = x * 2.0
    return doubled.at[1:3].add(doubled.reshape(6, 4).T[2:, :])


def updates_that_need_each_other(x: Any, i: Any) -> Any:
    """The second update overwrites what a later value is made of, unless it is copied."""
    first = (x + 1.0).at[i].set(5.0)
    second = first.at[i + 1].set(first[i] + 1.0)
    return second, first[::-1] * 2.0


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "map": (lambda x: x * 2.0 + 1.0, (whole(8, 16),)),
    "results twice and passed through": (lambda x: (x, x + 1.0, x, x + 1.0), (whole(5),)),
    "constants": (lambda x: (x + wnp.arange(5.0), 3.0, wnp.zeros((0, 2))), (whole(5),)),
    "scan": (lambda c, xs: lax.scan(lambda c, x: (c * 0.5 + x, c - x), c, xs), (whole(4), whole(6, 4))),
    "backwards": (lambda c, xs: lax.scan(lambda c, x: (c + x, c), c, xs, reverse=True), (whole(4), whole(6, 4))),
    "no turns": (lambda c, xs: lax.scan(lambda c, x: (c + x, c), c, xs), (whole(4), whole(0, 4))),
    "swapped carries": (fibonacci, (np.int32(20),)),
    "while": (lambda x: lax.while_loop(lambda s: s[1] < 5, lambda s: (s[0] * 2.0, s[1] + 1), (x, 0)), (whole(7),)),
    "switch": (lambda i, x: lax.switch(i, [lambda x: x, lambda x: x + x, lambda x: -x], x), (np.int32(1), whole(6))),
    "switch beyond the end": (lambda i, x: lax.switch(i, [lambda x: x, lambda x: -x], x), (np.int32(9), whole(6))),
    "updates in a loop": (in_place_updates, (whole(8),)),
    "three carries in a circle": (
        lambda x: lax.fori_loop(0, 4, lambda i, c: (c[1], c[2], c[0]), (x * 2.0, x + 1.0, x - 3.0)),
        (whole(5),),
    ),
    "two carries from one value": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: (c[0] * 2.0, c[1] + c[0]), (x + 1.0,) * 2),
        (whole(5),),
    ),
    "a carry that is a constant too": (a_carry_that_is_a_constant_too, (whole(5),)),
    "a constant of a loop beside its temporaries": (a_constant_beside_temporaries, (whole(6, 4), whole(4))),
    "temporaries of a loop in a loop": (temporaries_of_inner_loops, (whole(3, 4), whole(5, 4))),
    "switch below the start": (lambda i, x: lax.switch(i, [lambda x: x, lambda x: -x], x), (np.int32(-2), whole(6))),
    "switch by a known index": (
        lambda x: [lax.switch(wnp.array(i), [lambda x: x * 2.0, lambda x: -x, lambda x: x], x) for i in (-1, 1, 7)],
        (whole(6),),
    ),
    "read again under another shape": (lambda x: (x * 2.0) + (x * 2.0).reshape(-1)[::-1].reshape(4, 6), (whole(4, 6),)),
    "updated by itself under another shape": (updated_by_itself, (whole(4, 6),)),
    "a row less a column": (lambda x: (x - x.sum(1)[None, :], x - x.sum(1)[:, None]), (whole(7, 7),)),
    "sums over both axes": (lambda x: (x.sum(0), (x * 2.0).sum(1), x.max(0)), (whole(7, 7),)),
    "reversed after it was summed": (lambda x: (x.sum(1)[::-1] * 2.0, wnp.cumsum(x, 0)[::-1] + 1.0), (whole(9, 9),)),
    "reversed after it was computed": (lambda x: wnp.exp2(x)[::-1] + x * 2.0, (whole(40),)),
    "read before and after an update": (
        lambda x, i: ((x * 2.0).at[i].set(7.0), (x * 2.0)[::-1], (x * 2.0).at[i].add(1.0)),
        (whole(9), np.int32(3)),
    ),
    "updates that need each other": (updates_that_need_each_other, (whole(9), np.int32(3))),
    "update of what is needed": (lambda x: (x.at[1].set(7.0), x.sum()), (whole(8),)),
    "loop in a loop": (
        lambda x: lax.fori_loop(0, 3, lambda i, a: lax.fori_loop(0, i, lambda j, b: b + j, a) * 2.0, x),
        (whole(4),),
    ),
    "branch in a loop": (
        lambda x: lax.fori_loop(0, 6, lambda i, a: lax.cond(i % 2 == 0, lambda b: b + 1.0, lambda b: b * 2.0, a), x),
        (whole(4),),
    ),
    "gradient of a loop": (weft.grad(lambda x: lax.fori_loop(0, 3, lambda i, a: a * x, x).sum()), (whole(4),)),
    "gradient of an unbounded loop": (
        weft.grad(lambda x: lax.while_loop(lambda s: s.sum() < 100.0, lambda s: s * 2.0, x).sum()),
        (np.ones(4, np.float32),),
    ),
    "second gradient of an unbounded loop": (
        weft.grad(lambda x: weft.grad(squared_until_large)(x).sum()),
        (np.array([1.0, 2.0, 3.0], np.float32),),
    ),
    "batch of unbounded loops": (
        weft.vmap(weft.grad(lambda x: lax.while_loop(lambda s: s < 50.0, lambda s: s * s + 1.0, x))),
        (np.array([1.0, 2.0, 3.0], np.float32),),
    ),
    "keys": (lambda seed: weft.random.bits(weft.random.split(weft.random.key(seed))[1], (5,)), (np.uint32(7),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_all_ways_of_running_a_program_agree(name: str) -> None:
    function, args = PROGRAMS[name]
    compilation = compilation_of(function, *args)
    program = verify(compilation.program)
    arrays = arrays_of(function, *args)
    wanted = [np.asarray(w) for w in run(compilation.traced, arrays)]
    executable = Executable(compilation)
    for tier in (Tier.QUICK, Tier.LIGHT):
        for got, want in zip(executable([a.copy() for a in arrays]), wanted, strict=True):
            assert_same(got._value, want, f"{name} in tier {tier.name}")
        executable.optimise()
    for raw, want in zip(interpret(program, [a.copy() for a in arrays]), wanted, strict=True):
        assert_same(raw.view(want.dtype).reshape(want.shape), want, f"{name}, interpreted steps")


@pytest.mark.parametrize("name", PROGRAMS)
def test_donation_does_not_change_results(name: str) -> None:
    function, args = PROGRAMS[name]
    arrays = arrays_of(function, *args)
    count = len(weft.tree.leaves(args))
    compilation = compilation_of(function, *args, donated=(True,) * count)
    wanted = [np.asarray(w) for w in run(compilation.traced, [a.copy() for a in arrays])]
    verify(compilation.program)
    for got, want in zip(Executable(compilation)([a.copy() for a in arrays]), wanted, strict=True):
        assert_same(got._value, want, f"{name}, all arguments donated")
    taken = [alias for alias in compilation.program.aliases if alias is not None]
    assert len(set(taken)) == len(taken), "two results have the memory of one argument"


# ------------------------------------------------------------------------------------------------------------- memory


def steps_of(function: Callable[..., Any], *args: Any, donated: tuple[bool, ...] = ()) -> list[Any]:
    return list(nested_steps(verify(compilation_of(function, *args, donated=donated).program).steps))


def test_a_scan_is_one_kernel_in_place() -> None:
    steps = steps_of(lambda c, xs: lax.scan(lambda c, x: (wnp.tanh(c + x), c * 2.0), c, xs), whole(16), whole(9, 16))
    (loop,) = [s for s in steps if isinstance(s, Loop)]
    assert [type(s) for s in nested_steps(loop.body)].count(Launch) == 1
    assert not any(isinstance(s, Copy) for s in nested_steps(loop.body))


def test_an_update_in_a_loop_copies_nothing_in_it() -> None:
    (loop,) = [s for s in steps_of(in_place_updates, whole(1000)) if isinstance(s, Loop | object) and s.bodies]
    assert not any(isinstance(s, Copy) and s.size >= 4000 for body in loop.bodies for s in nested_steps(body))


def test_a_donated_argument_is_overwritten() -> None:
    program = compilation_of(lambda p, g: p - 0.5 * g, whole(100), whole(100), donated=(True, False)).program
    assert program.aliases == [0] and program.temporary_bytes == 0
    assert not any(isinstance(s, Copy) for s in program.all_steps())


def test_a_donated_argument_is_updated_in_place() -> None:
    program = compilation_of(lambda x, i: x.at[i].add(1.0), whole(100), np.int32(3), donated=(True, False)).program
    assert program.aliases == [0]
    assert not any(isinstance(s, Copy) for s in program.all_steps())


def test_one_program_with_and_without_donation() -> None:
    jaxpr = weft.make_jaxpr(lambda x: x.at[1].set(7.0) * 2.0)(whole(8))
    for donated in ((True,), (), (True,), (False,)):
        argument, wanted = whole(8), whole(8)
        wanted[1] = 7.0
        (result,) = get_executable(jaxpr, donated)([argument])
        assert_same(result._value, wanted * 2.0, f"donated {donated}")
        if not any(donated):
            assert_same(argument, whole(8), "an argument that is not donated")


def test_a_donated_argument_that_is_needed_later_is_not() -> None:
    function = lambda x: (x[::-1] * 2.0, x + 1.0)
    compilation = compilation_of(function, whole(100), donated=(True,))
    verify(compilation.program)
    x = whole(100)
    first, second = Executable(compilation)([x.copy()])
    np.testing.assert_array_equal(first._value, x[::-1] * 2.0)
    np.testing.assert_array_equal(second._value, x + 1.0)


def test_temporaries_share_memory() -> None:
    def chain(x: Any) -> Any:
        for _ in range(10):
            x = wnp.sort(x * 2.0)  # a sort is a kernel of its own, so every step is a value in memory
        return x

    analysis = weft.jit(chain).lower(whole(1000)).compile().memory_analysis()
    assert analysis.argument_size_in_bytes == analysis.output_size_in_bytes == 4000
    assert analysis.temp_size_in_bytes < 10 * 4096


def test_remat_lowers_the_peak() -> None:
    def block(x: Any, w: Any) -> Any:
        for _ in range(4):
            x = wnp.sin(x @ w)
        return x

    def loss(run: Callable[..., Any]) -> Callable[..., Any]:
        def total(ws: Any, x: Any) -> Any:
            for w in ws:
                x = run(x, w)
            return x.sum()

        return total

    ws, x = [np.ones((32, 32), np.float32)] * 6, np.ones((512, 32), np.float32)
    peaks = [
        weft.jit(weft.grad(loss(run))).lower(ws, x).compile().memory_analysis().temp_size_in_bytes
        for run in (block, weft.checkpoint(block))
    ]
    assert peaks[1] < 0.6 * peaks[0]


def test_operations_are_counted() -> None:
    a, b = np.ones((20, 30), np.float32), np.ones((30, 40), np.float32)
    cost = weft.jit(lambda a, b: wnp.exp(a @ b)).lower(a, b).compile().cost_analysis()
    assert cost["flops"] == 2 * 20 * 30 * 40 and cost["transcendentals"] == 800
    scanned = weft.jit(lambda a: lax.scan(lambda c, x: (c + x, None), a[0], a)[0]).lower(a).compile().cost_analysis()
    assert scanned["flops"] == 20 * 30


# ---------------------------------------------------------------------------------------------------------- constants


def kernel_names(function: Callable[..., Any], *args: Any) -> set[str]:
    return {result.name for result in Executable(compilation_of(function, *args)).kernels.values()}


def test_another_rate_or_captured_array_compiles_no_kernel() -> None:
    def step(rate: float, table: np.ndarray) -> Callable[..., Any]:
        held = wnp.asarray(table)
        return lambda p, g: p - rate * wnp.tanh(g + held)

    p = whole(50)
    one, other = (kernel_names(step(r, whole(50, seed=s)), p, p) for r, s in ((0.1, 1), (0.025, 2)))
    assert one == other


def test_equal_layers_share_their_kernels() -> None:
    def network(ws: Any, x: Any) -> Any:
        for w in ws:
            x = wnp.tanh(x @ w)
        return (x * x).sum()

    counts = [
        len(kernel_names(weft.value_and_grad(network), [np.eye(16, dtype=np.float32)] * layers, whole(4, 16)))
        for layers in (4, 12)
    ]
    assert counts[0] == counts[1]


# -------------------------------------------------------------------------------------------------------------- stages


def test_every_stage_can_be_printed() -> None:
    compiled = weft.jit(lambda x: wnp.sum(wnp.exp(x) * 2.0)).lower(whole(64)).compile()
    first, *_, last = compiled.stages
    assert first == "01_inline" and last.endswith("_fuse")
    assert "fusion 0" in compiled.fusions and "kernel 0" in compiled.program
    (name,) = compiled.kernels
    assert name in compiled.llvm and name in compiled.asm
    assert "exp" in compiled.kernels[name] and compiled.program in compiled.as_text()


def test_a_callback_error_propagates() -> None:
    def fail(x: np.ndarray) -> np.ndarray:
        raise ValueError("no such luck")

    f = weft.jit(lambda x: weft.pure_callback(fail, weft.ShapeDtypeStruct((3,), np.float32), x) + 1.0)
    for _ in range(3):
        with pytest.raises(weft.errors.JaxRuntimeError, match="no such luck"):
            f(whole(3))
