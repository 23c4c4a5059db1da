"""Loop bodies of two iterations, which copy no carries: random bodies, compiled and interpreted, and what is copied."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
import weft.numpy as wnp
from tests.compiler.host import interpret
from weft import lax
from weft.compiler.compile import compile_program
from weft.compiler.program import control
from weft.compiler.program.ir import Copy, Loop, nested_steps
from weft.compiler.target.cpu.targets import host
from weft.ir.jaxpr import constants_to_arguments

A = np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)


def random_body(seed: int) -> tuple[Callable[..., Any], int]:
    """Draw a body over several carries of one shape: permutations, values of before, neighbours, sums and constants."""
    rng = random.Random(seed)
    count = rng.randint(1, 4)
    rules = ["keep", "move", "roll", "add", "sum", "scale", "constant", "shared"]
    plan = [(rng.choice(rules), rng.randrange(count), rng.randrange(count)) for _ in range(count)]

    def body(carries: Any, fixed: Any) -> Any:
        shared = wnp.roll(carries[0], 1, 0) + carries[-1]
        values = {
            "keep": lambda i, j: carries[i],
            "move": lambda i, j: carries[j],
            "roll": lambda i, j: wnp.roll(carries[i], 1, 0) + wnp.roll(carries[j], -1, 1),
            "add": lambda i, j: carries[i] * 0.5 + carries[j],
            "sum": lambda i, j: wnp.cumsum(carries[i], 0) * 0.25 - carries[j],
            "scale": lambda i, j: carries[i] * 0.5,
            "constant": lambda i, j: fixed,
            "shared": lambda i, j: shared,
        }
        return tuple(values[rule](i, j) for rule, i, j in plan)

    return body, count


def repeat(body: Callable[..., Any], length: int) -> Callable[..., Any]:
    return lambda carries, fixed: lax.scan(lambda c, _: (body(c, fixed), None), carries, None, length=length)[0]


@pytest.mark.parametrize("seed", range(40))
def test_random_bodies(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "LEAST_COPIED", 1)
    body, count = random_body(seed)
    length = random.Random(seed + 1).randint(3, 8)
    args = (tuple(A * (i + 1) for i in range(count)), A - 1)
    jaxpr = constants_to_arguments(weft.make_jaxpr(repeat(body, length))(*args))
    program = compile_program(jaxpr, [False] * len(jaxpr.invars), host()).program
    found = interpret(program, weft.tree.leaves(args))
    carries = args[0]
    for _ in range(length):
        carries = body(carries, args[1])
    for one, other in zip(found, carries, strict=True):
        one = np.frombuffer(np.asarray(one).tobytes(), np.float32).reshape(A.shape)
        np.testing.assert_allclose(one, np.asarray(other), rtol=1e-4, atol=1e-4)


def copied(function: Callable[..., Any], *args: Any) -> tuple[int, list[int]]:
    """Return how many carries the loops of a program copy, and their iterations."""
    jaxpr = constants_to_arguments(weft.make_jaxpr(function)(*args))
    program = compile_program(jaxpr, [False] * len(jaxpr.invars), host()).program
    loops = [step for step in program.steps if isinstance(step, Loop)]
    inside = [step for loop in loops for step in nested_steps(loop.body)]
    return sum(isinstance(step, Copy) for step in inside), [loop.count for loop in loops]


def test_large_carries_are_not_copied() -> None:
    large = np.zeros((128, 128), np.float32)
    heat = lambda c, _: c[0] + wnp.roll(c[0], 1, 0) + wnp.roll(c[0], 1, 1)
    assert copied(repeat(lambda c, f: (heat(c, f),), 10), (large,), large) == (0, [5])
    wave = lambda c, f: (c[1], wnp.roll(c[1], 1, 0) - c[0])
    assert copied(repeat(wave, 10), (large, large), large) == (0, [5])


def test_odd_lengths_begin_with_one_iteration() -> None:
    large = np.zeros((128, 128), np.float32)
    heat = lambda c, f: (c[0] + wnp.roll(c[0], 1, 0) + wnp.roll(c[0], 1, 1),)
    assert copied(repeat(heat, 9), (large,), large) == (1, [1, 4])


def test_small_carries_and_scanned_arrays_keep_one_iteration() -> None:
    heat = lambda c, f: (c[0] + wnp.roll(c[0], 1, 0),)
    assert copied(repeat(heat, 10), (A,), A)[1] == [10]
    large = np.zeros((10, 128, 128), np.float32)
    scanned = lambda c, x: lax.scan(lambda c, x: (c + wnp.roll(c, 1, 0) + x, None), c, x)[0]
    assert copied(scanned, large[0], large)[1] == [10]
