"""Collectives that are started and waited for: in legal places, and within the memory that is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp
import pytest

import weft
import weft.lax as lax
import weft.numpy as np
from tests.compiler.host import partition
from weft.compiler.compile import compile_program
from weft.compiler.partition.driver import prepare
from weft.compiler.program.assign import assign
from weft.compiler.program.ir import Communicate, Launch, Program, Start, Step, Wait
from weft.compiler.program.overlap import overlap_collectives
from weft.compiler.target.cpu.targets import host
from weft.compiler.verify import verify_program

SIZE = 64
PARAMS = [onp.full((SIZE, SIZE), 0.1, onp.float32) for _ in range(4)]
BATCH = onp.ones((16, SIZE), onp.float32)
WHOLE, ROWS = ((), ()), (("d",), ())


def step(params: Any, x: Any) -> Any:
    def loss(params: Any) -> Any:
        h = x
        for w in params:
            h = np.tanh(h @ w)
        return np.mean(h**2)

    value, gradients = weft.value_and_grad(loss)(params)
    return [p - 0.1 * g for p, g in zip(params, gradients, strict=True)], value


def in_a_loop(params: Any, x: Any) -> Any:
    def body(x: Any, w: Any) -> Any:
        return np.tanh(x - (x @ w).sum(0)), (x.T @ x).sum(0)

    return lax.scan(body, x, np.stack(params))


def program_of(function: Callable[..., Any], stored: bool) -> Program:
    """The program of one of two devices, with the batch split, and parameters that are stored split."""
    jaxpr = prepare(weft.make_jaxpr(function)(PARAMS, BATCH))
    dims = [*[ROWS if stored else WHOLE] * len(PARAMS), ROWS]
    outs = [*[ROWS if stored else WHOLE] * len(PARAMS), ()] if function is step else [None] * len(jaxpr.outvars)
    local = partition(jaxpr, {"d": 2}, dims, outs, [stored] * len(PARAMS) + [False]).jaxpr
    return compile_program(local, (), host()).program


def scheduled(program: Program, most_bytes: int, most_merged: int = 0) -> list[Step]:
    program = assign(overlap_collectives(program, lambda s: True, most_bytes, most_merged))
    verify_program(program, host().memory_spaces)
    found = [s for s in program.all_steps() if isinstance(s, Communicate)]
    assert [s.index for s in found] == list(range(len(found)))
    return program.steps


def most_under_way(steps: list[Step]) -> tuple[int, int]:
    """How many collectives are under way at the same time, and how many bytes they have."""
    under_way: dict[Any, int] = {}
    counts, sizes = [0], [0]
    for s in steps:
        if isinstance(s, Start):
            under_way[s.event] = sum(slot.size for slot in s.writes)
        elif isinstance(s, Wait):
            del under_way[s.event]
        counts.append(len(under_way))
        sizes.append(sum(under_way.values()))
    assert not under_way
    return max(counts), max(sizes)


@pytest.mark.parametrize("function", [step, in_a_loop])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("most_bytes", [0, 1, 1 << 15, 1 << 30])
def test_all_schedules_are_legal(function: Callable[..., Any], stored: bool, most_bytes: int) -> None:
    for most_merged in (0, 1 << 15, 1 << 30):
        steps = scheduled(program_of(function, stored), most_bytes, most_merged)
        count, size = most_under_way(steps)
        assert size <= most_bytes or count == 1
        assert most_bytes or not count


def test_gradients_are_sent_while_others_are_computed() -> None:
    steps = scheduled(program_of(step, stored=False), 1 << 30)
    starts = [i for i, s in enumerate(steps) if isinstance(s, Start)]
    waits = [i for i, s in enumerate(steps) if isinstance(s, Wait)]
    assert most_under_way(steps)[0] == 5 and sum(isinstance(s, Launch) for s in steps[starts[1] : waits[0]]) >= 3


def test_the_next_layer_is_gathered_while_one_is_computed() -> None:
    size = SIZE * SIZE * 4
    few, many = program_of(step, stored=True), program_of(step, stored=True)
    steps = scheduled(few, 2 * size)
    gathers = [i for i, s in enumerate(steps) if isinstance(s, Start) and s.label == "all_gather"]
    first = next(i for i, s in enumerate(steps) if isinstance(s, Launch))
    assert gathers[2] < first < gathers[3]
    scheduled(many, 1 << 30)
    assert few.temporary_bytes < many.temporary_bytes


def test_small_sums_are_merged() -> None:
    def collectives(most_merged: int) -> list[str]:
        program = program_of(step, stored=False)
        scheduled(program, 1 << 30, most_merged)
        return [s.label for s in program.all_steps() if isinstance(s, Communicate)]

    assert collectives(0) == ["psum"] * 5
    assert collectives(1 << 20) == ["psum of 5"]
    assert sorted(collectives(2 * SIZE * SIZE * 4)) == ["psum", "psum of 2", "psum of 2"]
