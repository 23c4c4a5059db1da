"""With `enable_checks` every level is verified: the jaxpr between passes, the Program and its kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import core, lax
from weft.base.errors import InternalError, JaxprTypeError
from weft.base.settings import enable_checks
from weft.compiler import compile as compiler
from weft.compiler.program.ir import Kind, Launch, Program

X = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)
FUNCTIONS: dict[str, Any] = {
    "elementwise": lambda x: wnp.tanh(x) * x,
    "softmax": weft.nn.softmax,
    "gradient": weft.grad(lambda x: (wnp.tanh(x @ x.T) ** 2).sum()),
    "loop": lambda x: lax.fori_loop(0, 3, lambda i, c: wnp.sin(c) + i, x),
    "while": lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c + x[0, 0] + 2, x),
    "branch": lambda x: lax.cond(x[0, 0] > 0, wnp.sin, wnp.cos, x),
    "sort": lambda x: wnp.sort(x, axis=1),
    "scatter": lambda x: x.at[wnp.array([0, 2, 2])].add(1.0),
    "convolution": lambda x: wnp.convolve(x[0], x[1]),
    "solve": lambda x: wnp.linalg.solve(x[:, :6] @ x[:, :6].T + 9 * wnp.eye(6), x[:, 0]),
    "random": lambda x: weft.random.normal(weft.random.key(0), x.shape) + x,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_programs_are_well_formed(name: str) -> None:
    function = FUNCTIONS[name]
    expected = np.asarray(weft.jit(function)(X))
    with enable_checks(True):
        found = np.asarray(weft.jit(lambda x: function(x))(X))
    np.testing.assert_array_equal(found, expected)
    weft.jit(function).lower(X).compile().verify()


def test_operations_outside_of_jit_are_verified_too() -> None:
    with enable_checks(True):
        np.testing.assert_array_equal(wnp.sign(X * 3), np.sign(X))


def compiled() -> Any:
    with enable_checks(True):
        return weft.jit(lambda x: wnp.sort(wnp.sin(x)) + wnp.sort(wnp.cos(x)))(X)


def test_memory_that_is_too_small_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    assign = compiler.assign

    def shrinking(program: Program) -> Program:
        program = assign(program)
        slot = next(s for step in program.all_steps() for s in step.writes if s.kind is Kind.TEMPORARY)
        slot.size //= 2
        return program

    compiled()
    monkeypatch.setattr(compiler, "assign", shrinking)
    with pytest.raises(InternalError, match="A kernel has a buffer"):
        compiled()


def test_a_kernel_with_a_wrong_store_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    build = compiler.build

    def writing_elsewhere(*args: Any, **options: Any) -> Program:
        program = build(*args, **options)
        step = next(step for step in program.all_steps() if isinstance(step, Launch))
        buffers = tuple(replace(buffer, written=False) for buffer in step.full.buffers)
        step.kernel = replace(step.full, buffers=buffers)
        return program

    monkeypatch.setattr(compiler, "build", writing_elsewhere)
    with pytest.raises(InternalError):
        compiled()


def test_jaxprs_are_printed_parsed_and_checked_by_public_names() -> None:
    jaxpr = weft.make_jaxpr(lambda x: lax.scan(lambda c, v: (c + v, c * 2), x[0], x))(X)
    table: list[Any] = []
    text = core.jaxpr_to_text(jaxpr, table)
    again = core.parse_jaxpr(text, table)
    core.check_jaxpr(again)
    assert core.jaxpr_to_text(again, []) == text
    broken = jaxpr.replace(eqns=jaxpr.eqns[1:])
    with pytest.raises(JaxprTypeError):
        core.check_jaxpr(broken)
