"""Emitters: the kernel of a small program, run by the kernel interpreter, gives what the program gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.running import MACHINES, compiled, interpreted
from weft import lax
from weft.compiler.emit.loop import emit_loop
from weft.compiler.emit.reduction import emit_reduction
from weft.compiler.kernel import interpreter as kernel_interpreter
from weft.compiler.kernel.ir import Kernel, Kind, Loop
from weft.compiler.kernel.verifier import verify
from weft.ir.interpreter import run
from weft.ir.jaxpr import Jaxpr
from weft.ops.families import Reduction


def program_of(function: Callable[..., Any], *args: np.ndarray) -> Jaxpr:
    return weft.make_jaxpr(function)(*args)


def executed(kernel: Kernel, program: Jaxpr, args: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    verify(kernel)
    results: list[Any] = [np.zeros(v.aval.shape, v.aval.dtype) for v in program.outvars]  # type: ignore[attr-defined]
    kernel_interpreter.run(kernel, [*(a.reshape(-1) for a in args), *(r.reshape(-1) for r in results)])
    return results


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


LOOPS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "map": (lambda x, y: wnp.sin(x) * y + 1.0, (normal(3, 37), normal(3, 37))),
    "scalar": (lambda x: x * 2.0 + 1.0, (normal(),)),
    "rank-0 operand": (lambda x, s: x * s, (normal(5, 7), normal())),
    "transposed": (lambda x, y: x.T + y, (normal(5, 19), normal(19, 5))),
    "broadcast row": (lambda x, b: x + b, (normal(4, 33), normal(33))),
    "broadcast column": (lambda x, b: x - b[:, None], (normal(4, 33), normal(4))),
    "padded": (lambda x: lax.pad(x, 7.0, ((1, 2, 0), (0, 3, 1))) * 2.0, (normal(3, 5),)),
    "joined": (lambda x, y: wnp.concatenate([x, y], axis=1) + 1.0, (normal(3, 5), normal(3, 18))),
    "reversed and sliced": (lambda x: x[::-1, 1:20:2] * 3.0, (normal(4, 40),)),
    "reshaped": (lambda x: (x.reshape(6, 10) + 1.0).T, (normal(4, 15),)),
    "counting": (lambda x: x + lax.iota(wnp.float32, 21), (normal(21),)),
    "slice at a run-time place": (lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 9)) * 2.0, (normal(6, 9), np.int32(3))),
    "two results": (lambda x: (wnp.exp(x), wnp.exp(x) * x), (normal(2, 3, 18),)),
    "choices": (lambda x, y: wnp.where(x > y, x, -y), (normal(50), normal(50, seed=1))),
    "integers": (lambda x: (x * 3) // 2 - 1, (np.arange(40, dtype=np.int32),)),
    "size zero": (lambda x: x + 1.0, (normal(0, 3),)),
}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("bytes_of_vector", [64, 32])
def test_loop_kernels_compute_their_program(name: str, bytes_of_vector: int) -> None:
    function, args = LOOPS[name]
    args = tuple(np.asarray(a) for a in args)
    program = program_of(function, *args)
    kernel = emit_loop("loop", program, bytes_of_vector)
    for got, want in zip(executed(kernel, program, args), run(program, args), strict=True):
        np.testing.assert_array_equal(got, want)


REDUCTIONS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "row sum": (lambda x: wnp.sum(x * x, axis=1), (normal(5, 37),)),
    "column sum": (lambda x: wnp.sum(x + 1.0, axis=0), (normal(5, 37),)),
    "everything": (lambda x: wnp.sum(wnp.sin(x)), (normal(6, 37),)),
    "maximum": (lambda x: wnp.max(x, axis=-1), (normal(3, 4, 29),)),
    "middle axis": (lambda x: wnp.min(x, axis=1), (normal(3, 4, 29),)),
    "then a map": (lambda x: wnp.sqrt(wnp.sum(x * x, axis=1)) * 0.5, (normal(5, 37),)),
    "outer and inner": (lambda x: wnp.sum(x, axis=(0, 2)), (normal(3, 4, 29),)),
    "bfloat16": (lambda x: wnp.sum(x.astype(wnp.bfloat16), axis=1), (normal(5, 200),)),
    "any": (lambda x: wnp.any(x > 2.0, axis=1), (normal(9, 23),)),
    "no elements": (lambda x: wnp.sum(x, axis=1), (normal(3, 0),)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction_kernels_compute_their_program(name: str) -> None:
    function, args = REDUCTIONS[name]
    program = program_of(function, *args)
    (hero,) = [e for e in program.eqns if isinstance(e.primitive, Reduction)]
    kernel = emit_reduction("reduction", program, hero, 64)
    (got,), (want,) = executed(kernel, program, args), run(program, args)
    if np.asarray(want).dtype.kind == "f":
        size = max(args[0].size // max(np.asarray(want).size, 1), 1)
        np.testing.assert_allclose(got, want, rtol=size * 1.2e-7, atol=size * 1.2e-7)
    else:
        np.testing.assert_array_equal(got, want)


def test_contiguous_loops_become_one() -> None:
    program = program_of(lambda x, y: x * y, normal(4, 5, 6), normal(4, 5, 6))
    (loop,) = emit_loop("loop", program, 64).body
    assert isinstance(loop, Loop) and loop.kind is Kind.LANES and loop.stop == 120
    assert not any(isinstance(s, Loop) for s in loop.body)


def test_a_transposed_read_keeps_its_loops() -> None:
    program = program_of(lambda x, y: x.T * y, normal(4, 5), normal(5, 4))
    (loop,) = emit_loop("loop", program, 64).body
    assert isinstance(loop, Loop) and loop.stop == 5 and isinstance(loop.body[0], Loop)


@pytest.mark.parametrize("name", [*LOOPS, *REDUCTIONS])
@pytest.mark.parametrize("machine", ["host", "avx2"])
def test_compiled_kernels_give_the_bits_of_the_interpreted_ones(name: str, machine: str) -> None:
    function, given = LOOPS.get(name) or REDUCTIONS[name]
    args = tuple(np.asarray(a) for a in given)
    program = program_of(function, *args)
    heroes = [e for e in program.eqns if isinstance(e.primitive, Reduction)]
    kernel = emit_reduction("kernel", program, heroes[0], 64) if heroes else emit_loop("kernel", program, 64)
    results = [np.zeros(v.aval.shape, v.aval.dtype) for v in program.outvars]  # type: ignore[attr-defined]
    arrays = [a.reshape(-1) for a in (*args, *results)]
    wanted = interpreted(kernel, arrays)
    exact = not any(e.primitive.name in ("sin", "exp", "sqrt") for e in program.eqns)  # within ulps of NumPy's
    for got, want in zip(compiled(kernel, arrays, MACHINES[machine]()), wanted, strict=True):
        if exact:
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(got, want, rtol=1e-5)
