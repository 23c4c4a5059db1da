"""Carries of loops are written where they were, without copies, wherever all that reads them can come before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from weft import lax
from weft.compiler.compile import compile_program
from weft.compiler.program.ir import Copy, Loop, While, nested_steps
from weft.compiler.target.cuda.targets import hopper
from weft.ir.jaxpr import constants_to_arguments

A = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32) / 4
# Results of reductions and cumulative sums are not computed in place.
SUMS = wnp.cumsum


def read_after(a: Any) -> Any:
    """What is read of the carry is written after it in the program."""
    return lax.scan(lambda c, _: (SUMS(c * a, 0), c[0]), a, None, length=3)


def followed(a: Any) -> Any:
    """The next value is read too, by what comes before the last that reads the carry."""

    def step(c: Any, _: Any) -> Any:
        new = wnp.tanh(SUMS(c, 0))
        return new, (SUMS(new, 1), SUMS(c, 1))

    return lax.scan(step, a, None, length=3)


def in_while(a: Any) -> Any:
    def body(carry: Any) -> Any:
        c, total, i = carry
        return wnp.sin(SUMS(c, 0)), total + c.sum(), i + 1

    return lax.while_loop(lambda carry: carry[2] < 4, body, (a, wnp.float32(0), 0))


def exchanged(a: Any) -> Any:
    """Each of two carries is computed from the other one, in place, and they change places."""
    return lax.scan(lambda c, _: ((SUMS(c[1], 0), SUMS(c[0], 1)), None), (a, a + 1), None, length=3)[0]


def depends(a: Any) -> Any:
    """What reads the carry last needs its next value."""

    def step(c: Any, _: Any) -> Any:
        new = SUMS(c, 0)
        return new, wnp.cumsum(c * wnp.cumsum(new, 1), 1)

    return lax.scan(step, a, None, length=3)


@pytest.mark.parametrize(
    ("function", "copies"), [(read_after, 0), (followed, 0), (in_while, 0), (exchanged, 3), (depends, 1)]
)
def test_copies_of_carries(function: Callable[..., Any], copies: int) -> None:
    jaxpr = constants_to_arguments(weft.make_jaxpr(function)(A))
    program = compile_program(jaxpr, [False] * len(jaxpr.invars), hopper()).program
    (loop,) = [step for step in program.steps if isinstance(step, Loop | While)]
    inside = [step for body in loop.bodies for step in nested_steps(body)]
    assert sum(isinstance(step, Copy) and step.size == A.nbytes for step in inside) == copies
    with weft.disable_jit():
        expected = weft.tree.leaves(function(A))
    for one, other in zip(weft.tree.leaves(weft.jit(function)(A)), expected, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-5, atol=1e-6)
