"""Native loops: the same bits as interpreted steps, for everything that can be in a loop."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.host import compilation_of, compile_program
from weft import lax
from weft.api.inspect import make_jaxpr
from weft.base import settings, tree
from weft.compiler import cache
from weft.compiler.compilation import Compilation
from weft.compiler.load import from_steps
from weft.compiler.program import stored
from weft.compiler.program.ir import Launch, Loop, While, nested_steps
from weft.compiler.target.cpu import kernels, loops, pool
from weft.compiler.target.cpu.link import Tier
from weft.ir.jaxpr import constants_to_arguments
from weft.runtime.cpu.executable import Executable

Sample = tuple[Callable[..., Any], tuple[Any, ...]]


@pytest.fixture(autouse=True)
def all_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops are compiled however little they gain."""
    monkeypatch.setattr(loops, "LEAST_PART", 0.0)
    monkeypatch.setattr(loops, "LEAST_NANOSECONDS", 0.0)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    path = tmp_path / "objects"
    with settings.compilation_cache_dir(str(path)):
        yield path


def forget() -> None:
    """As in a new process."""
    kernels._compiled.clear()
    kernels._latest.clear()


def normal(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)


def nested(x: Any) -> Any:
    def outer(c: Any, row: Any) -> Any:
        inner = lax.fori_loop(0, 3, lambda i, v: v * 0.5 + row.sum() + i, c)
        return inner, inner[:2]

    return lax.scan(outer, wnp.zeros(4), x)


def inner_slices(x: Any) -> Any:
    """The inner loop walks along rows that the outer one points at."""

    def outer(total: Any, matrix: Any) -> Any:
        return lax.scan(lambda c, row: (c + row.max(), row * c), total, matrix)

    return lax.scan(outer, wnp.float32(0), x)


def branching(x: Any, kind: Any) -> Any:
    def body(i: Any, v: Any) -> Any:
        v = lax.cond(v.sum() > 0, lambda: v - 1.5, lambda: v + 1)
        return lax.switch(
            kind + i,
            [lambda: v * 2, lambda: v, lambda: -v],
        )

    return lax.fori_loop(0, 9, body, x)


def swapped(a: Any, b: Any) -> Any:
    """Carries that change places, and one that is handed on."""
    return lax.fori_loop(0, 7, lambda i, c: (c[1], c[0] + c[2], c[2], c[0]), (a, b, a * 2, b))


def rolled(x: Any) -> Any:
    """Temporaries of several sizes share the same memory."""

    def body(c: Any, _: Any) -> Any:
        long = wnp.sort(wnp.concatenate([c, c * 2, c + 1]))
        short = long.reshape(3, -1).sum(0)
        return short * 0.3, (long[::7], short.max())

    return lax.scan(body, x, None, length=5)


def recurrent(w: Any, x: Any) -> Any:
    return lax.scan(lambda h, row: (wnp.tanh(h @ w + row),) * 2, wnp.zeros(w.shape[0]), x)[1].sum()


SAMPLES: dict[str, Sample] = {
    "while": (lambda x: lax.while_loop(lambda c: c[1] < 9, lambda c: (wnp.sin(c[0]), c[1] + 1), (x, 0)), (normal(16),)),
    "while of no turns": (lambda x: lax.while_loop(lambda c: c.sum() > 1e9, lambda c: c * 2, x), (normal(4),)),
    "scalars": (lambda x: lax.fori_loop(0, 50, lambda i, v: 3.7 * v * (1 - v), x), (np.float32(0.3),)),
    "doubles": (lambda x: lax.fori_loop(0, 5, lambda i, v: wnp.exp(-v) + i, x), (normal(3, dtype=np.float64),)),
    "halves": (lambda x: lax.fori_loop(0, 5, lambda i, v: v * 1.5 + 1, x), (normal(5, dtype=np.float16),)),
    "bytes": (lambda x: lax.fori_loop(0, 5, lambda i, v: v * 3 + 1, x), (np.arange(7, dtype=np.int8),)),
    "complex": (lambda x: lax.fori_loop(0, 5, lambda i, v: v * v + x, x), (normal(3) + 1j * normal(3),)),
    "count from memory": (lambda n, x: lax.fori_loop(0, n, lambda i, v: v * 2 + i, x), (np.int32(5), normal(8))),
    "no turns": (lambda n, x: lax.fori_loop(0, n, lambda i, v: v * 2 + i, x), (np.int32(0), normal(8))),
    "fewer than none": (lambda n, x: lax.fori_loop(0, n, lambda i, v: v * 2 + i, x), (np.int32(-3), normal(8))),
    "backwards": (lambda x: lax.scan(lambda c, r: (c * 0.5 + r, c), x[0], x, reverse=True), (normal(6, 5),)),
    "cumulative": (lambda x: lax.fori_loop(0, 3, lambda i, v: wnp.cumsum(v), x), (normal(4),)),
    "folds": (lambda x: lax.fori_loop(0, 4, lambda i, v: v - v.max() + v.sum() * 0.1, x), (normal(8),)),
    "nested": (nested, (normal(5, 4),)),
    "inner slices": (inner_slices, (normal(3, 4, 5),)),
    "branches": (branching, (normal(4), np.int32(-1))),
    "swapped": (swapped, (normal(3), normal(4)[:3])),
    "rolled": (rolled, (normal(20),)),
    "larger than registers": (lambda x: lax.fori_loop(0, 4, lambda i, v: wnp.cos(v) + v[::-1], x), (normal(300),)),
    "recurrent": (recurrent, (normal(8, 8), normal(6, 8))),
    "its gradient": (weft.grad(recurrent, (0, 1)), (normal(8, 8), normal(6, 8))),
    "keys": (lambda k: lax.fori_loop(0, 4, lambda i, c: weft.random.split(c)[0], k), (np.array([1, 2], np.uint32),)),
}


def get_executable(name: str, donated: tuple[bool, ...] = ()) -> tuple[Executable, list[np.ndarray]]:
    function, arguments = SAMPLES[name]
    with settings.enable_x64(name == "doubles"):
        jaxpr = constants_to_arguments(make_jaxpr(function)(*arguments))
        arrays = [np.asarray(a) for a in tree.leaves(arguments)]
        missing = len(jaxpr.invars) - len(arrays)
        assert missing == 0, "a sample has no constants of its own"
        return Executable(compile_program(jaxpr, donated)), arrays


def bits(executable: Executable, arrays: list[np.ndarray]) -> list[bytes]:
    return [np.asarray(r).tobytes() for r in executable([a.copy() for a in arrays])]


@pytest.mark.parametrize("donate", [False, True])
@pytest.mark.parametrize("name", SAMPLES)
def test_native_loops_compute_the_same_bits(name: str, donate: bool) -> None:
    executable, arrays = get_executable(name, (donate,) * len(tree.leaves(SAMPLES[name][1])))
    assert executable.tier is not Tier.QUICK or not executable.loops
    words = bits(executable, arrays)
    executable._link(Tier.LIGHT)
    assert executable.loops, executable.inside.program()
    for _ in range(2):
        assert bits(executable, arrays) == words
    try:
        pool.set_threads(1)
        assert bits(executable, arrays) == words
    finally:
        pool.set_threads(0)


def test_quick_code_has_no_native_loops(folder: pathlib.Path) -> None:
    forget()
    executable, _ = get_executable("while")
    assert executable.tier is Tier.QUICK and not executable.loops


def test_the_outermost_loop_is_one_function() -> None:
    executable, _ = get_executable("nested")
    executable._link(Tier.LIGHT)
    (step,) = executable.loops
    assert step in executable.program.steps
    assert sum(isinstance(inner, Loop) for inner in nested_steps([step])) == 2


def test_inner_loops_are_native_in_an_interpreted_loop() -> None:
    """Counters and slices of the loop around come from registers of the machine."""

    def function(x: Any) -> Any:
        def outer(total: Any, matrix: Any) -> Any:
            factor = wnp.linalg.cholesky(matrix @ matrix.T + 9 * wnp.eye(4))
            last, rows = lax.scan(lambda c, row: (c + row.max(), row * c + total), total, matrix)
            return last + factor[0, 0], rows

        return lax.scan(outer, wnp.float32(0), x)

    x = normal(5, 4, 4)
    jaxpr = constants_to_arguments(make_jaxpr(function)(x))
    executable = Executable(compile_program(jaxpr))
    words = bits(executable, [x])
    executable._link(Tier.LIGHT)
    assert executable.loops and not set(executable.loops) & set(executable.program.steps)
    assert bits(executable, [x]) == words


def test_loops_that_differ_in_addresses_only_share_code() -> None:
    def function(x: Any) -> Any:
        iteration = lambda i, v: wnp.sin(v) + 1
        return lax.fori_loop(0, 6, iteration, x), lax.fori_loop(0, 6, iteration, x[::-1] * 2)

    x = normal(16)
    executable = Executable(compile_program(make_jaxpr(function)(x)))
    words = bits(executable, [x])
    executable._link(Tier.LIGHT)
    assert len(executable.loops) == 2
    assert len({loop.code.name for loop in executable.loops.values()}) == 1
    assert bits(executable, [x]) == words


def test_expensive_loops_are_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    x = normal(4000)
    executable = Executable(compile_program(make_jaxpr(SAMPLES["larger than registers"][0])(x)))
    executable._link(Tier.LIGHT)
    assert not executable.loops


def test_loops_with_tapes_are_interpreted() -> None:
    gradient = weft.grad(lambda x, n: lax.fori_loop(0, n, lambda i, v: wnp.sin(v) * 1.1, x).sum())
    arrays = [normal(4), np.asarray(np.int32(5))]
    executable = Executable(compile_program(make_jaxpr(gradient)(*arrays)))
    words = bits(executable, arrays)
    executable._link(Tier.LIGHT)
    assert not executable.loops and bits(executable, arrays) == words


def test_profiles_see_every_step() -> None:
    executable, arrays = get_executable("nested")
    words = bits(executable, arrays)
    executable._link(Tier.LIGHT)
    results, log = executable.run_timed(arrays, 100)
    assert [np.asarray(r).tobytes() for r in results] == words
    runs = {time.step: time.runs for time in log.times}
    inner = [step for step in executable.program.all_steps() if isinstance(step, Launch)]
    assert max(runs[step] for step in inner) == 15


# ---------------------------------------------------------------------------------------------------------------- disk


@pytest.mark.parametrize("name", ["while", "nested", "branches", "its gradient"])
def test_programs_from_disk_find_the_code_of_their_loops(folder: pathlib.Path, name: str) -> None:
    forget()
    executable, arrays = get_executable(name)
    words = bits(executable, arrays)
    executable._link(Tier.LIGHT)
    content = stored.to_bytes(executable.program)
    assert content is not None
    names = {loop.code.name for loop in executable.loops.values()}
    compilation = executable.compilation
    del executable
    forget()
    program = stored.from_bytes(content, "again")
    again = Executable(from_steps(compilation.traced, compilation.donated, program, compilation.target))
    assert {loop.code.name for loop in again.loops.values()} == names
    assert again.tier is Tier.LIGHT and bits(again, arrays) == words
    # Without it the machine walks through the steps, of which only names are known.
    forget()
    for path in folder.glob("*.k"):
        if any(path.name == f"{loops_key(name, compilation)}.k" for name in names):
            path.unlink()
    program = stored.from_bytes(content, "again")
    again = Executable(from_steps(compilation.traced, compilation.donated, program, compilation.target))
    assert not again.loops and bits(again, arrays) == words


def loops_key(name: str, compilation: Compilation) -> str:
    return cache.make_key(name, compilation.target, Tier.LIGHT.name)


def test_missing_code_of_loops_is_compiled_when_the_program_is_called_again(folder: pathlib.Path) -> None:
    function, arguments = SAMPLES["while"]
    jaxpr = constants_to_arguments(make_jaxpr(function)(*arguments))
    first = Executable(compilation_of(jaxpr))
    kernels.compile_kernels(first._find_kernels(), first.compilation.target, Tier.LIGHT)
    second = Executable(compile_program(jaxpr))
    assert not second.loops and second.tier is Tier.LIGHT and second.can_improve
    second.optimise()
    assert second.loops and second.compile_stats[-1].tier is Tier.LIGHT
    assert any(isinstance(step, While) for step in second.loops)
